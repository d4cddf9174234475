//! The extension for PostgreSQL: for each server below /usr/lib/postgresql that has its development files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::command::shared_libraries;
use super::{Dist, output, succeed};

/// Where Debian has its servers.
const SERVERS: &str = "/usr/lib/postgresql";

pub(super) fn make(dist: &Dist) -> Result<()> {
    let mut servers: Vec<PathBuf> = match fs::read_dir(SERVERS) {
        Ok(found) => found.map(|it| Ok(it?.path())).collect::<Result<_>>()?,
        Err(_) => Vec::new(),
    };
    servers.retain(|server| server.join("lib/pgxs/src/makefiles/pgxs.mk").exists());
    servers.sort();
    ensure!(
        !servers.is_empty(),
        "no server with development files below {SERVERS}: apt-get install postgresql postgresql-server-dev-all"
    );
    servers.iter().try_for_each(|server| of_server(dist, server))
}

fn of_server(dist: &Dist, server: &Path) -> Result<()> {
    let config = server.join("bin/pg_config");
    let major = server.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("postgresql-{major}-forebay");
    let stage = dist.stage(&name)?;
    let work = dist.out.join("stage").join(format!("{name}-build"));
    fs::create_dir_all(&work)?;
    let make = |goals: &[&str]| {
        let mut make = Command::new("make");
        make.current_dir(&work).arg("--file");
        make.arg(dist.root().join("integrations/postgres/Makefile")).args(goals);
        make.arg(format!("PG_CONFIG={}", config.display()));
        make.arg(format!("CARGO_TARGET_DIR={}", dist.workspace.target_directory));
        succeed(&mut make)
    };
    make(&[])?;
    make(&["install", &format!("DESTDIR={}", stage.display())])?;
    let directory = output(Command::new(&config).arg("--pkglibdir"))?;
    let library = format!("{}/forebay.so", directory.trim_start_matches('/'));
    succeed(Command::new("strip").arg("--strip-unneeded").arg(stage.join(&library)))?;
    let depends = format!("postgresql-{major}, {}", shared_libraries(&stage, &library)?);
    dist.deb(
        &name,
        &stage,
        &depends,
        &format!("index scans that prefetch, for PostgreSQL {major}"),
    )?;
    dist.tar(&name, &stage)
}
