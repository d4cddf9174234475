//! A mount by the library, in this process. The lab tests the mount through the command.
//!
//! Where there is no FUSE, the test says `skipped` and writes that to the file named by FOREBAY_SKIPS.
#![cfg(all(target_os = "linux", not(forebay_portable)))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_emulate::Place;
use forebay_emulate::profile::Profile;
use forebay_emulate::serve::{Data, Emulation, Error, LOG_ENTRIES, Options};

/// Tests count this process's children, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn what_is_mounted_over_an_emulation_or_in_its_place_stays() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let Some(emulation) = mounted(&path) else { return };
    // A user who may not mount has nothing to test here.
    if mount("over", &path, "tmpfs", MountFlags::empty(), None).is_err() {
        return;
    }
    let refused = emulation.unmount().unwrap_err();
    let stays = is_tmpfs(&path);
    unmount(&path, UnmountFlags::DETACH).unwrap();
    assert!(stays, "[MNT-1]");
    assert!(matches!(refused, Error::Covered { .. }), "{refused}");
    while is_mounted(&path) || children() > 0 {
        std::thread::sleep(Duration::from_millis(5)); // the guardian's work
    }

    let Some(emulation) = mounted(&path) else { return };
    unmount(&path, UnmountFlags::DETACH).unwrap();
    mount("instead", &path, "tmpfs", MountFlags::empty(), None).unwrap();
    let ending = emulation.unmount();
    let stays = is_tmpfs(&path);
    unmount(&path, UnmountFlags::DETACH).unwrap();
    assert!(stays, "[MNT-1]");
    assert!(!ending.unwrap().detached);
}

/// Whether the topmost mount there is one.
fn is_tmpfs(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut words = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.rfind(|words| Some(words[1]) == path.to_str()).is_some_and(|it| it[2] == "tmpfs")
}
