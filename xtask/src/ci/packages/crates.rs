//! The crates as those who build engines use them: a program of another directory, with an empty cache of crates.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::Place;
use crate::dist::{output, succeed};

/// Opens a database through the VFS, in the SQLite that rusqlite brings.
const PROGRAM: &str = r#"
use rusqlite::{Connection, OpenFlags, ffi};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: these are the functions of the SQLite that this program is linked with.
    unsafe {
        forebay_sqlite::register(
            ffi::sqlite3_vfs_find,
            ffi::sqlite3_vfs_register,
            ffi::sqlite3_mprintf,
            ffi::sqlite3_uri_parameter,
            ffi::sqlite3_log,
            false,
        )?;
    }
    let db = Connection::open_with_flags("file:data.db?vfs=forebay", OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)?;
    let stats: String = db.query_row("PRAGMA forebay_stats", [], |row| row.get(0))?;
    assert!(stats.starts_with("wakes=0"), "{stats}");

    let directory = std::env::current_dir()?;
    let builder = forebay::BufferPool::builder().memory("8 MiB").directory(directory);
    let builder = builder.checksum(forebay::Checksum::Crc32c { offset: 0 });
    let pool = builder.torn_pages(forebay::TornPages::DoubleWrite).build()?;
    let heap = pool.open_file("heap", &forebay::FileOptions::new().create(true))?;
    drop(heap.append()?);
    println!("{}", pool.checkpoint(forebay::CheckpointOptions::now())?);
    Ok(())
}
"#;

/// They are not in the registry, so each is taken from its package.
pub(super) fn use_them(place: &Place<'_>) -> Result<()> {
    let mut patches = String::new();
    let packages =
        place.packages.iter().filter(|it| it.extension().is_some_and(|it| it == "crate"));
    for package in packages {
        let unpack = &mut Command::new("tar");
        succeed(unpack.arg("--extract").arg("--file").arg(package).current_dir(place.scratch))?;
        let directory = package.file_stem().unwrap_or_default().to_string_lossy();
        let name = directory.rsplit_once('-').map_or(&*directory, |(name, _)| name);
        patches += &format!("{name} = {{ path = \"../{directory}\" }}\n");
    }
    let program = place.scratch.join("program");
    fs::create_dir_all(program.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nforebay = \"0.1\"\nforebay-sqlite = \"0.1\"\n\
         rusqlite = {{ version = \"0.42\", features = [\"bundled\"] }}\n\n[patch.crates-io]\n{patches}"
    );
    fs::write(program.join("Cargo.toml"), manifest)?;
    fs::write(program.join("src/main.rs"), PROGRAM)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&program).args(["run", "--quiet"]).env_remove("CARGO_TARGET_DIR");
    output(cargo.env("CARGO_HOME", place.scratch.join("home"))).map(drop)
}
