//! Real full disks and file size limits.
//!
//! Small filesystems are mounted in a mount namespace of a child process, so nothing remains however the child ends.
//! Root mounts a tmpfs and an ext4 image; an ordinary user also gets a user namespace, where the system permits it, and
//! may then mount the tmpfs.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use forebay_io::{Error, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bench::{Bench, Cell, assert_same, lease_of, noise};
use crate::child;
use crate::harness::{Claim, Outcome, claims};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        a_full_ext4_is_no_space_until_room_is_made,
        growing_past_the_file_size_limit_is_too_large,
    ];
    if !cell.is_direct() {
        claims.extend(claims![a_full_tmpfs_is_no_space_until_room_is_made]);
    }
    claims
}

pub(crate) fn child_bodies() -> Vec<Claim> {
    claims![full_disk, file_size_limit]
}

fn a_full_tmpfs_is_no_space_until_room_is_made(bench: &Bench) -> Outcome {
    on_small_filesystem(bench, "full_disk", "mount -t tmpfs -o size=2m forebay \"$0\"")
}

fn a_full_ext4_is_no_space_until_room_is_made(bench: &Bench) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Outcome::Skipped("mounting an image needs root".to_owned());
    }
    let make = "truncate -s 8M \"$0.image\" \
        && mkfs.ext4 -q -F -m 0 -O ^has_journal \"$0.image\" \
        && mount -o loop \"$0.image\" \"$0\"";
    on_small_filesystem(bench, "full_disk", make)
}

/// Runs `body` in a child where `mount`, a shell command, mounts on the directory `$0`.
pub(crate) fn on_small_filesystem(bench: &Bench, body: &str, mount: &str) -> Outcome {
    let mut unshare = vec!["unshare", "--mount", "--propagation", "private"];
    if !rustix::process::geteuid().is_root() {
        unshare.extend(["--user", "--map-root-user"]);
    }
    match Command::new(unshare[0]).args(&unshare[1..]).arg("true").output() {
        Err(error) => return Outcome::Skipped(format!("cannot run unshare: {error}")),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            return Outcome::Skipped(format!("no mount namespace: {}", said.trim()));
        }
        Ok(_) => {}
    }
    let directory = bench.path("mounted");
    std::fs::create_dir(&directory).unwrap();
    let script = format!("{{ {mount}; }} || exit {}; exec \"$@\"", child::SKIPPED);
    let mut launcher: Vec<&OsStr> = unshare.iter().map(OsStr::new).collect();
    launcher.extend([OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)]);
    launcher.push(directory.as_os_str());
    child::run(bench, body, &launcher, &directory)
}

fn full_disk(bench: &Bench) -> Outcome {
    let io = bench.io(4);
    let file = match bench.cell.refusal() {
        Some(reason) => return Outcome::Skipped(reason),
        None => bench.empty_file("data"),
    };
    let ballast = fill_up(&bench.path("ballast"));
    let bytes = noise(&mut bench.rng(), 262_144);
    let halves = bytes.chunks(131_072).map(lease_of).collect();
    let refused = io.submit(Request::write(&file, 0, halves)).wait();
    match refused.result {
        Err(Error::NoSpace { offset: 0, len: 262_144, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(refused.leases.len(), 2);
    ballast.set_len(0).unwrap();
    ballast.sync_all().unwrap();
    io.submit(Request::write(&file, 0, refused.leases)).wait().into_result().unwrap();
    io.submit(Request::sync_all(&file)).wait().result.unwrap();
    assert_same(&bench.contents("data"), &bytes, "the file");
    Outcome::Held
}

/// Writes until the filesystem is full to the last page.
fn fill_up(path: &Path) -> StdFile {
    let mut ballast = StdFile::create(path).unwrap();
    for piece in [65_536, 4096, 512] {
        while let Ok(1..) = ballast.write(&vec![1; piece]) {}
    }
    ballast.sync_all().unwrap();
    ballast
}

fn growing_past_the_file_size_limit_is_too_large(bench: &Bench) -> Outcome {
    // The signal for the limit would end the child; a shell can make it ignored.
    let launcher = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"].map(OsStr::new);
    child::run(bench, "file_size_limit", &launcher, bench.directory())
}

fn file_size_limit(bench: &Bench) -> Outcome {
    const LIMIT: u64 = 65_536;
    let io = bench.io(4);
    let file = bench.empty_file("data");
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), ..limit }).unwrap();
    let bytes = noise(&mut bench.rng(), 16_384);
    // Half of it fits and is written: the error comes with the second attempt.
    for offset in [LIMIT - 8192, LIMIT] {
        let refused = io.submit(Request::write(&file, offset, vec![lease_of(&bytes)])).wait();
        match refused.result {
            Err(Error::TooLarge { end, .. }) => assert_eq!(end, offset + 16_384),
            other => panic!("at {offset}: {other:?}"),
        }
        assert_eq!(refused.leases.len(), 1);
    }
    io.submit(Request::write(&file, 0, vec![lease_of(&bytes)])).wait().into_result().unwrap();
    assert_same(&bench.contents("data")[..16_384], &bytes, "the file");
    Outcome::Held
}
