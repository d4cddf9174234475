//! Files of a mount, through the kernel: reads return what was written, through the page cache or past it.
//!
//! Where there is no FUSE, a test says `skipped` and writes that to the file named by FOREBAY_SKIPS.
#![cfg(all(target_os = "linux", not(forebay_portable)))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod model;
mod removal;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_emulate::Place;
use forebay_emulate::profile::Profile;
use forebay_emulate::serve::{Data, Emulation, Error, Options};
use rustix::fs::OFlags;
use tempfile::TempDir;

const INSTANT: &str = "about = \"No time for any command\"\n[fixed]\nsize = \"1GiB\"\ncommand_time = \"0s\"\n\
                       rate = \"0MB/s\"\nflush_time = \"0s\"\nconcurrency = 32\n";

/// A mount that is removed before its directory is.
struct Mounted {
    emulation: Emulation,
    _directory: TempDir,
    path: PathBuf,
}

fn mounted(profile: &str) -> Option<Mounted> {
    let profile = Profile::parse(profile, "test").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let options = Options {
        name: profile.name.clone(),
        about: profile.about.clone(),
        device: profile.build(0),
        size_bytes: profile.size_bytes,
        place: Place::Middle,
        speed_up: 1.0,
        seed: 0,
        data: Data::Memory { limit_bytes: 128 << 20 },
        readahead_bytes: None,
        log_entries: 1000,
        log_file: None,
        remove: None,
        ended: None,
    };
    match Emulation::mount(&path, options) {
        Ok(emulation) => Some(Mounted { emulation, _directory: directory, path }),
        Err(error @ (Error::NoFuse | Error::FuseRefused(_) | Error::NoHelper)) => {
            println!("skipped: {error}");
            if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
                let mut file = File::options().append(true).create(true).open(skips).unwrap();
                file.write_all(format!("emulate: files: {error}\n").as_bytes()).unwrap();
            }
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn direct(path: &Path) -> File {
    options().custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap()
}

/// Memory that is aligned for direct transfers.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![0xEE; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[test]
fn a_direct_read_of_a_hole_before_bytes_that_are_not_written_back_gives_zeros() {
    let Some(mount) = mounted(INSTANT) else { return };
    let read_only = |path: &Path| {
        let flags = OFlags::DIRECT.bits() as i32;
        OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap()
    };
    // In both orders of opening.
    for (name, direct_first) in [("a", true), ("b", false)] {
        for open in [direct as fn(&Path) -> File, read_only] {
            let path = mount.path.join(name);
            File::create(&path).unwrap();
            let early = direct_first.then(|| open(&path));
            let writer = options().open(&path).unwrap();
            let late = early.unwrap_or_else(|| open(&path));
            writer.write_all_at(&[7; 100_000], 1 << 20).unwrap();
            let mut hole = Aligned::new(65_536);
            assert_eq!(late.read_at(hole.bytes(), 0).unwrap(), 65_536, "{name}: not the end");
            assert!(hole.bytes().iter().all(|byte| *byte == 0));
            let end = (1 << 20) + 65_536;
            assert_eq!(late.read_at(hole.bytes(), end).unwrap(), 100_000 - 65_536, "{name}");
            assert_eq!(late.read_at(hole.bytes(), 2 << 20).unwrap(), 0, "{name}: the end");
        }
    }
}
