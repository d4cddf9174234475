//! A mount by the library, in this very process. How it is met through the command is tested in the lab.
//!
//! Where there is no FUSE, the test says `skipped` and writes that to the file named by FOREBAY_SKIPS.
#![cfg(all(target_os = "linux", not(forebay_portable)))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use forebay_emulate::Place;
use forebay_emulate::profile::Profile;
use forebay_emulate::serve::{Data, Emulation, Error, LOG_ENTRIES, Options};

fn options(text: &str) -> Options {
    let profile = Profile::parse(text, "test").unwrap();
    Options {
        name: profile.name.clone(),
        about: profile.about.clone(),
        device: profile.build(0),
        size_bytes: profile.size_bytes,
        place: Place::Middle,
        speed_up: 1.0,
        seed: 0,
        data: Data::Memory { limit_bytes: 64 << 20 },
        readahead_bytes: None,
        log_entries: LOG_ENTRIES,
        log_file: None,
        remove: None,
        ended: None,
    }
}

const HOUR: &str = "about = \"An hour for any command\"\n[fixed]\nsize = \"1TiB\"\ncommand_time = \"3600s\"\n\
                    rate = \"0MB/s\"\nflush_time = \"3600s\"\nconcurrency = 32\n";

fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

fn children() -> usize {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path().join("children");
        count += std::fs::read_to_string(path).unwrap_or_default().split_whitespace().count();
    }
    count
}

fn mounted(directory: &Path) -> Option<Emulation> {
    match Emulation::mount(directory, options(HOUR)) {
        Ok(emulation) => Some(emulation),
        Err(error @ (Error::NoFuse | Error::FuseRefused(_) | Error::NoHelper)) => {
            println!("skipped: {error}");
            if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
                let mut file = File::options().append(true).create(true).open(skips).unwrap();
                file.write_all(format!("emulate: mount: {error}\n").as_bytes()).unwrap();
            }
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_dropped_emulation_answers_what_is_under_way_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let Some(emulation) = mounted(&path) else { return };
    assert!(is_mounted(&path));
    assert_eq!(children(), 1, "the guardian");
    let again = Emulation::mount(&path, options(HOUR)).unwrap_err();
    assert!(matches!(again, Error::Busy { .. }), "{again}");

    let disk = File::open(path.join("disk")).unwrap();
    let reader = std::thread::spawn(move || disk.read_exact_at(&mut [1; 4096], 0));
    while emulation.counters().in_flight == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!emulation.wait_for_end(Duration::from_millis(1)));
    drop(emulation);
    reader.join().unwrap().expect("[EMU-2] answered, not refused");
    assert!(!is_mounted(&path), "[EMU-1]");
    assert_eq!(children(), 0, "[EMU-1]");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
}
