//! Resources that a process has once: its limit on open files, its signals, its process id.
//!
//! Each test runs in its own process, for which this binary is started again with that test alone.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod descriptors;
mod direct;
mod file_size;
mod fork;

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use forebay::{
    BufferPool, Checksum, FileOptions, Lsn, PagedFile, PoolBuilder, Tablespace, TornPages,
};

/// Set in a process that was started for one test.
const ALONE: &str = "FOREBAY_TEST_ALONE";

const PAGE: usize = 4096;

/// Runs `body` in a separate process, which must succeed. In that process, nothing but `body` runs.
fn alone(body: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    let name = thread::current().name().unwrap().to_owned();
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn builder(directory: &Path) -> PoolBuilder {
    with(Tablespace::new("main", directory))
}

fn with(tablespace: Tablespace) -> PoolBuilder {
    let sums = Checksum::Crc32c { offset: 0 };
    let builder = BufferPool::builder().checksum(sums).torn_pages(TornPages::Unprotected);
    builder.frames(64).page_size(PAGE).tablespace(tablespace)
}

/// A file of one page, in which `byte` is written and not flushed.
fn dirty(pool: &BufferPool, name: &str, byte: u8) -> PagedFile {
    let file = pool.open_file(name, &FileOptions::new().create(true)).unwrap();
    if file.blocks() == 0 {
        file.extend(1).unwrap();
    }
    set(&file, byte);
    file
}

fn set(file: &PagedFile, byte: u8) {
    let mut page = file.write(0).unwrap();
    page[8..].fill(byte);
    page.mark_dirty(Lsn::NONE);
}

/// The byte in the page on disk.
fn on_disk(file: &PagedFile) -> u8 {
    std::fs::read(file.path()).unwrap()[100]
}

/// Records a test that cannot run here, where skips are counted.
fn skip(test: &str, reason: &str) {
    let line = format!("process: {test}: {}\n", reason.replace('\n', " "));
    eprint!("skipped: {line}");
    let Some(path) = env::var_os("FOREBAY_SKIPS") else {
        return;
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("FOREBAY_SKIPS should name a file that can be written");
}
