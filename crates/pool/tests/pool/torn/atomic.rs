//! Atomic writes: refused where they are not proven to work, and used for every page where they are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::{BufferPool, CheckpointOptions, Error, FileOptions, Tablespace, TornPages};
use forebay_io::{CacheMode, Op};

use crate::disk::Disk;
use crate::site::{PAGE, Site, numbered, read, reopened, skip, write};

/// For a test in its own process: names a directory on a filesystem that guarantees atomic writes.
const DIRECTORY: &str = "FOREBAY_ATOMIC_DIRECTORY";

#[test]
fn where_atomic_writes_are_not_proven_the_pool_is_not_built_and_says_what_to_do() {
    let site = Site::new();
    let built = |name: &str, cache| {
        let main = Tablespace::new("main", site.path(name)).cache(cache);
        Site::bare(16).torn_pages(TornPages::Atomic).tablespace(main).build()
    };
    let error = built("buffered", CacheMode::Buffered).unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "torn pages", .. }), "{error}");
    assert!(error.to_string().contains("is buffered"), "{error}");
    match built("direct", CacheMode::Direct) {
        Ok(_) => skip("where_atomic_writes_are_not_proven", "they are proven here"),
        Err(Error::Io(forebay_io::Error::DirectRefused { .. })) => {
            skip("where_atomic_writes_are_not_proven", "no direct I/O here");
        }
        Err(error) => {
            assert!(matches!(error, Error::Setting { setting: "torn pages", .. }), "{error}");
            let message = error.to_string();
            let parts = [" on device ", "proves no atomic writes", "double write"];
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}

/// In a separate process, with a mounted XFS that writes out of place and so guarantees atomic writes on any device.
#[test]
fn every_page_is_written_by_one_atomic_write_where_they_are_proven() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return write_atomically(&PathBuf::from(directory));
    }
    let site = Site::new();
    let test = "every_page_is_written_by_one_atomic_write";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "mounting an image needs root");
    }
    let script = "truncate -s 320M \"$0.image\" && mkfs.xfs -q -m reflink=1 \"$0.image\" \
                  && mkdir \"$0\" && mount -o loop \"$0.image\" \"$0\" || exit 77; exec \"$@\"";
    let mut child = Command::new("unshare");
    child.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    child.arg(site.path("mounted")).arg(env::current_exe().unwrap());
    child.args(["--exact", "--nocapture"]);
    child.arg("torn::atomic::every_page_is_written_by_one_atomic_write_where_they_are_proven");
    match child.env(DIRECTORY, site.path("mounted")).output() {
        Err(error) => skip(test, &format!("cannot run unshare: {error}")),
        Ok(output) if output.status.code() == Some(77) => {
            skip(test, &format!("no XFS: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            if said.contains("proves no atomic writes") {
                skip(test, "this kernel's XFS proves none");
            }
        }
    }
}

fn write_atomically(directory: &Path) {
    let (whole, torn) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = [Arc::clone(&whole), Arc::clone(&torn)];
    let (io, disk) = Disk::watched(move |it| {
        if it.op() == Op::Write {
            let good = it.is_atomic() && it.remaining() == PAGE as u64;
            counts[usize::from(!good)].fetch_add(1, Ordering::SeqCst);
        }
    });
    let main = || Tablespace::new("main", directory.join("main")).cache(CacheMode::Direct);
    let builder = |main| Site::bare(64).torn_pages(TornPages::Atomic).tablespace(main);
    let pool: BufferPool = match builder(main().io(io)).build() {
        Ok(pool) => pool,
        Err(error) => return eprintln!("{error}"),
    };
    let file = numbered(&pool, "table", 100, 5);
    (0..60).for_each(|block| write(&file, block, 900));
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!(report.requests, report.pages, "[ATM-1]");
    let file = reopened(&pool, file);
    assert_eq!((read(&file, 59), read(&file, 60)), (900, 65));
    assert_eq!(torn.load(Ordering::SeqCst), 0, "[ATM-1]");
    assert!(whole.load(Ordering::SeqCst) >= 160 && disk.count(Op::Write) >= 160);
    pool.close().unwrap();
    // And with the best backend of this machine.
    let pool = builder(main()).build().unwrap();
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    (0..100).for_each(|block| write(&file, block, 1000 + u64::from(block)));
    let file = reopened(&pool, file);
    (0..100).for_each(|block| assert_eq!(read(&file, block), 1000 + u64::from(block)));
    pool.close().unwrap();
}
