//! The environment of an experiment, and that nothing of it is left, however a run ends.
//!
//! Everything that is changed here belongs to the test: files in a scratch directory, loop devices over
//! them, filesystems on those. Without root's rights there is no loop device; the tests that need one
//! say `skipped` and write that to the file named by FOREBAY_SKIPS.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use forebay_measure::device_readahead::ReadaheadGuard;
use forebay_measure::facts::{Storage, Sysfs};
use forebay_measure::filesystem::{Filesystem, Mounted};
use forebay_measure::undo_log::STATE_DIRECTORY;
use forebay_measure::workfile::{Naming, Workfile};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{
    assert_ends_with, entries, forebay, has_ended, interrupt, mount_over, scratch, spawned,
    under_way, wait_until, wait_until_it_listens,
};
use crate::skip::skipped;

/// The smallest size that all three filesystems accept.
const DISK_BYTES: u64 = 640 << 20;

/// The changes of a run: the readahead of the device, a named working file, both temporary.
const VARYING: [&str; 11] = [
    "lab",
    "strategies",
    "--quick",
    "--size",
    "64MiB",
    "--cache",
    "buffered",
    "--device-readahead",
    "0,132KiB",
    // More rounds than a run completes before the test has observed it.
    "--rounds",
    "50",
];

/// The reason if no filesystem of this kind can be made here.
pub(crate) fn lacking(filesystem: Filesystem) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a loop device needs root".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("no loop devices".to_owned());
    }
    let mut directories: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    directories.extend(["/usr/sbin".into(), "/sbin".into()]);
    let found = |program: &str| directories.iter().any(|path| path.join(program).exists());
    let needed = [filesystem.maker(), "losetup".to_owned()];
    let missing = needed.into_iter().find(|program| !found(program));
    missing.map(|program| format!("no {program}"))
}

/// A directory on a disk. When it is dropped, also after a failed test, nothing is mounted below it any more and
/// none of its files is attached to a device.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(scratch())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let shown = self.path().to_str().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // The newest first, as one may be on top of another.
        for mount in mounts.lines().rev().filter(|line| line.contains(shown)) {
            let point = mount.split(' ').nth(4).unwrap_or_default();
            let source = mount.rsplit(' ').nth(1).unwrap_or_default();
            let _ = Command::new("umount").args(["--lazy", point]).output();
            let _ = Command::new("fusermount3").args(["-u", "-z", "-q", point]).output();
            if source.starts_with("/dev/loop") {
                let _ = Command::new("losetup").args(["--detach", source]).output();
            }
        }
        for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = entry.path().join("loop/backing_file");
            if std::fs::read_to_string(file).is_ok_and(|file| file.contains(shown)) {
                let device = Path::new("/dev").join(entry.file_name());
                let _ = Command::new("losetup").arg("--detach").arg(device).output();
            }
        }
    }
}

/// An empty file for a filesystem.
pub(crate) fn disk(directory: &Path) -> PathBuf {
    let path = directory.join("disk");
    File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
    path
}

/// The mounts and loop devices that involve `directory`.
pub(crate) fn left_of(directory: &Path) -> Vec<String> {
    let shown = directory.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(shown)).map(str::to_owned).collect();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        let file = entry.unwrap().path().join("loop/backing_file");
        left.extend(std::fs::read_to_string(file).ok().filter(|file| file.contains(shown)));
    }
    left
}

fn readahead_file(mounted: &Mounted) -> PathBuf {
    Path::new("/sys/block").join(mounted.device()).join("queue/read_ahead_kb")
}

fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[test]
fn how_far_the_kernel_reads_ahead_is_reported_for_a_file_as_its_device_has_it() {
    // A btrfs may have several devices.
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        if let Some(reason) = lacking(filesystem) {
            skipped("how_far_the_kernel_reads_ahead_is_reported_for_a_file", &reason);
            continue;
        }
        let scratch = Scratch::new();
        let mounted = mount_over(&disk(scratch.path()), filesystem);
        let path = mounted.directory().join("file");
        let options = forebay_io::OpenOptions::new().create(true);
        let file = forebay_io::File::open(&path, &options).unwrap();
        for kib in [132, 0, 4096] {
            std::fs::write(readahead_file(&mounted), format!("{kib}\n")).unwrap();
            assert_eq!(file.kernel_readahead(), Some(kib * 1024), "{filesystem}");
        }
        drop(file);
        mounted.remove().unwrap();
    }
}

#[test]
fn each_filesystem_is_made_on_a_file_past_its_page_cache_and_leaves_nothing() {
    for filesystem in Filesystem::ALL {
        if let Some(reason) = lacking(filesystem) {
            skipped("each_filesystem_is_made_on_a_file_past_its_page_cache", &reason);
            continue;
        }
        let scratch = Scratch::new();
        let disk = disk(scratch.path());
        let mounted = mount_over(&disk, filesystem);
        let directory = mounted.directory().to_owned();
        let storage = Storage::read(&directory).unwrap();
        assert_eq!(storage.filesystem.as_deref(), Some(filesystem.name()));
        assert_eq!(storage.source.unwrap(), format!("/dev/{}", mounted.device()));
        let dio = format!("/sys/block/{}/loop/dio", mounted.device());
        assert_eq!(number(Path::new(&dio)), 1);
        // Data written there is in the file.
        let file = File::create(directory.join("file")).unwrap();
        file.write_all_at(b"all that glisters", 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let again = Mounted::over(&disk, filesystem).unwrap_err();
        assert!(again.is::<forebay_measure::BadInput>());
        assert!(again.to_string().contains(mounted.device()), "{again}");
        mounted.remove().unwrap();
        assert!(!directory.exists());
        assert_eq!(left_of(scratch.path()), [""; 0]);
        let bytes = std::fs::read(&disk).unwrap();
        assert!(bytes.windows(17).any(|window| window == b"all that glisters"));
    }
}

#[test]
fn a_filesystem_in_use_goes_out_of_sight_and_then_with_its_user() {
    if let Some(reason) = lacking(Filesystem::Ext4) {
        return skipped("a_filesystem_in_use_goes_out_of_sight", &reason);
    }
    let scratch = Scratch::new();
    let mounted = mount_over(&disk(scratch.path()), Filesystem::Ext4);
    let (directory, device) = (mounted.directory().to_owned(), mounted.device().to_owned());
    let user = File::create(directory.join("file")).unwrap();
    mounted.remove().unwrap();
    assert!(!directory.exists());
    user.write_all_at(b"still there", 0).unwrap();
    drop(user);
    wait_until("the loop device to go", || left_of(scratch.path()).is_empty());
    // Another test may have got the same number in the meantime.
    let backing = Path::new("/sys/block").join(device).join("loop/backing_file");
    let backing = std::fs::read_to_string(backing).unwrap_or_default();
    assert!(!Path::new(backing.trim()).starts_with(scratch.path()), "{backing}");
}

#[test]
fn a_panic_leaves_neither_setting_nor_mount_nor_loop_device_nor_file() {
    let Some(scene) = Scene::new("a_panic_leaves_neither_setting_nor_mount") else { return };
    let second = scene.scratch.path().join("second");
    std::fs::create_dir(&second).unwrap();
    let disk = disk(&second);
    let device = Storage::read(scene.mounted.directory()).unwrap().device.unwrap();
    let mut seen = PathBuf::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let over = mount_over(&disk, Filesystem::Ext4);
        let guard = ReadaheadGuard::take(&Sysfs::system(), &device).unwrap();
        guard.set(132 << 10).unwrap();
        let on_the_first = scene.mounted.directory();
        let _file = Workfile::create(on_the_first, 1 << 20, 8192, 7, Naming::Named).unwrap();
        assert_eq!(scene.kib(), 132);
        assert_eq!(entries(on_the_first).len(), 2);
        assert!(!left_of(&second).is_empty());
        over.directory().clone_into(&mut seen);
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !seen.as_os_str().is_empty());
    assert!(!seen.exists());
    assert_eq!(left_of(&second), [""; 0]);
    assert_eq!(scene.kib(), scene.found_kib);
    assert_eq!(entries(scene.mounted.directory()), ["lost+found"]);
}

#[test]
fn a_disk_that_takes_no_filesystem_leaves_nothing_and_says_why() {
    if let Some(reason) = lacking(Filesystem::Ext4) {
        return skipped("a_disk_that_takes_no_filesystem_leaves_nothing", &reason);
    }
    let scratch = Scratch::new();
    let small = scratch.path().join("small");
    File::create(&small).unwrap().set_len(16 << 10).unwrap();
    let error = Mounted::over(&small, Filesystem::Ext4).unwrap_err();
    assert!(error.to_string().contains("cannot make ext4 on /dev/loop"), "{error}");
    assert_eq!(left_of(scratch.path()), [""; 0]);
}

/// A private disk of the test, on which a run varies the readahead.
struct Scene {
    mounted: Mounted,
    found_kib: u64,
    scratch: Scratch,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        if let Some(reason) = lacking(Filesystem::Ext4) {
            skipped(test, &reason);
            return None;
        }
        let scratch = Scratch::new();
        let mounted = mount_over(&disk(scratch.path()), Filesystem::Ext4);
        let found_kib = number(&readahead_file(&mounted));
        assert!(![0, 132].contains(&found_kib), "{found_kib} is one of the values that are set");
        Some(Scene { mounted, found_kib, scratch })
    }

    fn kib(&self) -> u64 {
        number(&readahead_file(&self.mounted))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = forebay(self.scratch.path(), args);
        command.env(STATE_DIRECTORY, self.scratch.path().join("state"));
        command
    }

    /// A run that has changed the readahead.
    fn varying(&self) -> Child {
        let mut args = VARYING.to_vec();
        args.extend(["--dir", self.mounted.directory().to_str().unwrap()]);
        let child = spawned(&mut self.command(&args));
        wait_until_it_listens(&child);
        wait_until("the readahead to be set", || {
            self.kib() != self.found_kib || has_ended(child.id())
        });
        under_way(child)
    }

    /// The first output of a start; this one does nothing else.
    fn next_start(&self) -> String {
        let output = self.command(&["lab", "depth", "--dir", "nowhere"]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }

    #[track_caller]
    fn assert_as_found(&self) {
        assert_eq!(self.kib(), self.found_kib);
        assert_eq!(entries(self.mounted.directory()), ["lost+found"]);
        assert_eq!(entries(&self.scratch.path().join("state")), [""; 0]);
    }
}

#[test]
fn after_a_signal_or_two_the_readahead_and_the_directory_are_as_found() {
    let Some(scene) = Scene::new("after_a_signal_or_two_the_readahead_is_as_found") else { return };
    for signals in [&[Signal::INT][..], &[Signal::TERM], &[Signal::INT, Signal::TERM]] {
        let child = scene.varying();
        for &signal in signals {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        assert_ends_with(130, child, &format!("{signals:?}"));
        scene.assert_as_found();
    }
}

#[test]
fn after_a_kill_the_next_start_puts_back_what_was_left_and_says_so() {
    let Some(scene) = Scene::new("after_a_kill_the_next_start_puts_back") else { return };
    let mut child = scene.varying();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(scene.kib(), scene.found_kib, "a kill cannot be caught");
    assert_eq!(entries(scene.mounted.directory()).len(), 2, "the working file is left");

    let stderr = scene.next_start();
    let expected = format!("an earlier run (process {}) was killed; put back: ", child.id());
    assert!(stderr.contains(&expected), "{stderr}");
    let readahead = format!("readahead of {} to {} KiB", scene.mounted.device(), scene.found_kib);
    assert!(stderr.contains(&readahead) && stderr.contains("removed /"), "{stderr}");
    scene.assert_as_found();
    let again = scene.next_start();
    assert!(!again.contains("earlier run"), "{again}");
}

#[test]
fn a_readahead_that_another_process_set_after_the_kill_is_left_alone() {
    let Some(scene) =
        Scene::new("a_readahead_that_another_process_set_after_the_kill_is_left_alone")
    else {
        return;
    };
    let mut child = scene.varying();
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::write(readahead_file(&scene.mounted), "1024\n").unwrap();
    let stderr = scene.next_start();
    assert!(stderr.contains("left alone: ") && stderr.contains("1024 KiB now"), "{stderr}");
    assert_eq!(scene.kib(), 1024);
}

#[test]
fn a_start_leaves_a_run_that_is_under_way_in_peace_and_a_second_one_may_not_vary_the_same() {
    let Some(scene) = Scene::new("a_start_leaves_a_run_that_is_under_way_in_peace") else { return };
    let child = scene.varying();
    let stderr = scene.next_start();
    assert!(!stderr.contains("earlier run"), "{stderr}");
    assert_eq!(entries(scene.mounted.directory()).len(), 2);
    let child = under_way(child);

    let mut args = VARYING.to_vec();
    args.extend(["--dir", scene.mounted.directory().to_str().unwrap()]);
    let second = scene.command(&args).output().unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("process {} is varying", child.id())), "{stderr}");

    interrupt(&child);
    assert_ends_with(130, child, "the first run");
    scene.assert_as_found();
}
