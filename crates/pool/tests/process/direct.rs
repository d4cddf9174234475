//! Direct I/O that the kernel performs through its page cache: detected, and reported.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay::Tablespace;
use forebay_io::{CacheMode, Volume};

use crate::{skip, with};

/// For a test in its own process: names a directory, and which direct I/O is expected to go through the page cache.
const DIRECTORY: &str = "FOREBAY_TEST_DIRECTORY";
const EXPECTED: &str = "FOREBAY_TEST_EXPECTED";

const TEST: &str = "direct::direct_io_through_the_page_cache_is_reported";

#[test]
fn direct_io_through_the_page_cache_is_reported() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return look(&PathBuf::from(directory), &env::var(EXPECTED).unwrap());
    }
    if cfg!(any(forebay_portable, not(target_os = "linux"))) {
        return skip(TEST, "this build has no direct I/O");
    }
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "mounting an image needs root");
    }
    let scratch = tempfile::tempdir().unwrap();
    for (name, make, mount, prepare, expected) in [
        // Data journaling excludes direct I/O, in every kernel.
        ("journal", "mkfs.ext4 -q -F", "loop,data=journal", ":", "reads and writes"),
        ("ext4", "mkfs.ext4 -q -F", "loop", ":", "nothing"),
        // With checksums there are no direct writes since Linux 6.14, until a later version; without them there are.
        ("btrfs", "mkfs.btrfs -q", "loop", ":", ""),
        ("nocow", "mkfs.btrfs -q", "loop", "chattr +C \"$0\"", "nothing"),
    ] {
        let script = format!(
            "truncate -s 128M \"$0.image\" && {make} \"$0.image\" && mkdir \"$0\" \
             && mount -o {mount} \"$0.image\" \"$0\" && {prepare} || exit 77; exec \"$@\""
        );
        let at = scratch.path().join(name);
        let mut child = Command::new("unshare");
        child.args(["--mount", "--propagation", "private", "sh", "-c", &script]).arg(&at);
        child.arg(env::current_exe().unwrap()).args(["--exact", "--nocapture", TEST]);
        match child.env(DIRECTORY, &at).env(EXPECTED, expected).output() {
            Err(error) => skip(TEST, &format!("cannot run unshare: {error}")),
            Ok(output) if output.status.code() == Some(77) => {
                skip(TEST, &format!("no {name}: {}", String::from_utf8_lossy(&output.stderr)));
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {said}");
            }
        }
    }
}

fn look(directory: &Path, expected: &str) {
    let found = Volume::system().through_cache(directory).unwrap();
    assert!(expected.is_empty() || found.to_string() == expected, "{found}");
    let names = || directory.read_dir().unwrap().map(|it| it.unwrap().file_name());
    let space = || Tablespace::new("main", directory);
    let pool = with(space().cache(CacheMode::Direct)).build().unwrap();
    let prefix = format!("tablespace main: direct {found} in ");
    let notes = pool.notes();
    let is_reported = notes.iter().any(|note| note.starts_with(&prefix));
    assert_eq!(is_reported, !found.is_nothing(), "{notes:?}");
    drop(pool);
    let pool = with(space()).build().unwrap();
    assert!(!pool.notes().iter().any(|note| note.contains(": direct ")), "nothing direct");
    assert!(names().all(|name| name == "forebay.lock" || name == "lost+found"), "it left a file");
}
