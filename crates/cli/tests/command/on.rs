//! `--emulate PROFILE`: experiments on an emulated disk, and nothing left of it.
//!
//! Mount points, undo log and data go into the test's own directory, so that leftovers can be distinguished from
//! the files of other processes. Without FUSE, or root's rights for `--fs`, the tests say `skipped`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_measure::filesystem::Filesystem;
use forebay_measure::undo_log::STATE_DIRECTORY;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command::{
    assert_ends_with, entries, forebay, has_ended, spawned, under_way, wait_until,
    wait_until_it_listens,
};
use crate::environment::{Scratch, lacking, left_of};
use crate::skip::{no_fuse, skipped};

/// A small `depth`, for reports.
const DEPTH: [&str; 13] = [
    "lab",
    "depth",
    "--size",
    "16MiB",
    "--blocks",
    "64",
    "--rounds",
    "2",
    "--depths",
    "0,16",
    "--backends",
    "sync,threads",
    "--json",
];

/// A private directory of the test, in which a run keeps everything.
struct Scene {
    scratch: Scratch,
}

impl Scene {
    fn new() -> Scene {
        let scratch = Scratch::new();
        for name in ["tmp", "work"] {
            std::fs::create_dir(scratch.path().join(name)).unwrap();
        }
        Scene { scratch }
    }

    fn work(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = forebay(&self.work(), args);
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command.env(STATE_DIRECTORY, self.scratch.path().join("state"));
        command.env("TMPDIR", self.scratch.path().join("tmp")).env_remove("XDG_RUNTIME_DIR");
    }

    /// The report of a run that succeeds.
    #[track_caller]
    fn report(&self, args: &[&str]) -> Value {
        let mut line = DEPTH.to_vec();
        line.push("out.json");
        line.extend(args);
        let output = self.command(&line).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        let json = self.work().join("out.json");
        let text = std::fs::read_to_string(&json).unwrap();
        std::fs::remove_file(json).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The leftovers: mounts, loop devices, directories, entries.
    fn left(&self) -> Vec<String> {
        let mut left = left_of(self.scratch.path());
        for name in ["tmp", "work", "state"] {
            let directory = self.scratch.path().join(name);
            if directory.exists() {
                left.extend(entries(&directory));
            }
        }
        left
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        assert_eq!(self.left(), [""; 0]);
    }

    /// The first output of a start; this one does nothing else.
    fn next_start(&self) -> String {
        let output = self.command(&["lab", "depth", "--dir", "nowhere"]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }

    /// A run on ext4 on an emulated disk that has set the loop device's readahead.
    fn varying(&self) -> Child {
        let line = "lab strategies --quick --size 64MiB --cache buffered --rounds 50 \
                    --device-readahead 0,132KiB \
                    --emulate fixed-100us --fs ext4";
        let args: Vec<&str> = line.split_whitespace().collect();
        let child = spawned(&mut self.command(&args));
        wait_until_it_listens(&child);
        let state = self.scratch.path().join("state");
        let has_set = || {
            let ledgers = std::fs::read_dir(&state).into_iter().flatten().flatten();
            let mut texts = ledgers.map(|entry| std::fs::read_to_string(entry.path()));
            // To one value or the other, whichever is first.
            let sets = ["\"set_kib\":[0", "\"set_kib\":[132"];
            texts.any(|text| text.is_ok_and(|text| sets.iter().any(|set| text.contains(set))))
        };
        wait_until("the readahead to be set", || has_set() || has_ended(child.id()));
        under_way(child)
    }
}

/// `pid` and all its descendants, the youngest last.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            family.extend(self::family(child.parse().unwrap()));
        }
    }
    family
}

#[test]
fn a_report_says_what_was_emulated_and_how_to_repeat_it() {
    if let Some(reason) = no_fuse() {
        return skipped("a_report_says_what_was_emulated", &reason);
    }
    let scene = Scene::new();
    let report = scene.report(&["--emulate", "fixed-100us", "--speed-up", "2"]);
    let emulated = &report["storage"]["emulated"];
    assert_eq!(emulated["profile"], "fixed-100us");
    assert_eq!(emulated["speed_up"], 2.0);
    let remark = report["storage"]["device_remark"].as_str().unwrap();
    assert!(remark.contains("fixed-100us") && remark.contains("2 times as fast"), "{remark}");
    assert_eq!(report["storage"]["filesystem"], "fuse.forebay");
    assert_counted(&report);
    let command = report["command"].as_str().unwrap();
    assert!(command.contains("lab depth --size 16MiB "), "{command}");
    assert!(command.contains(" --emulate fixed-100us --speed-up 2 --seed "), "{command}");
    assert!(!command.contains("forebay-disk-"), "{command}");
    scene.assert_nothing_left();
    let mut again = Command::new("sh");
    again.args(["-c", command]).current_dir("/");
    scene.surround(&mut again);
    let again = again.output().unwrap();
    assert!(again.status.success(), "{command}: {}", String::from_utf8_lossy(&again.stderr));
    scene.assert_nothing_left();
}

/// Every measured cell has seen requests of the emulated device.
#[track_caller]
fn assert_counted(report: &Value) {
    let mut measured = 0;
    for record in report["records"].as_array().unwrap() {
        let metrics = &record["metrics"];
        if metrics["blocks_per_s"].is_null() {
            continue;
        }
        let requests = metrics["device_requests"].as_f64().unwrap();
        assert!(requests >= 1.0, "{record}");
        measured += 1;
    }
    assert!(measured >= 4, "{measured}");
}

#[test]
fn every_filesystem_goes_over_an_emulated_disk_and_is_counted() {
    if let Some(reason) = no_fuse() {
        return skipped("every_filesystem_goes_over_an_emulated_disk", &reason);
    }
    for filesystem in Filesystem::ALL {
        if let Some(reason) = lacking(filesystem) {
            skipped("every_filesystem_goes_over_an_emulated_disk", &reason);
            continue;
        }
        let scene = Scene::new();
        let report = scene.report(&["--emulate", "fixed-100us", "--fs", filesystem.name()]);
        let storage = &report["storage"];
        assert_eq!(storage["filesystem"], filesystem.name());
        assert_eq!(storage["emulated"]["profile"], "fixed-100us");
        assert_counted(&report);
        let words = format!(" --emulate fixed-100us --fs {filesystem} --seed ");
        let command = report["command"].as_str().unwrap();
        assert!(command.contains(&words) && !command.contains("--dir"), "{command}");
        scene.assert_nothing_left();
    }
}

#[test]
fn what_is_measured_takes_the_devices_time_and_the_filling_none() {
    if let Some(reason) = no_fuse() {
        return skipped("what_is_measured_takes_the_devices_time", &reason);
    }
    let scene = Scene::new();
    let line =
        "--emulate 7200rpm --backends sync --cache direct --depths 0 --rounds 1 --size 256MiB";
    let args: Vec<&str> = line.split(' ').collect();
    let mut whole = vec!["lab", "depth", "--blocks", "64", "--json", "out.json"];
    whole.extend(args);
    assert!(scene.command(&whole).output().unwrap().status.success());
    let text = std::fs::read_to_string(scene.work().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let record = &report["records"][0]["metrics"];
    // A random read on such a disk takes milliseconds, on any machine.
    let blocks_per_s = record["blocks_per_s"].as_f64().unwrap();
    assert!(blocks_per_s < 400.0, "[OND-1] {blocks_per_s}");
}

#[test]
fn a_disk_whose_emulation_has_died_is_not_taken_for_a_bad_device() {
    if let Some(reason) = no_fuse() {
        return skipped("a_disk_whose_emulation_has_died", &reason);
    }
    let scene = Scene::new();
    let line = "lab depth --emulate 7200rpm --size 64MiB --backends sync --cache direct --depths 0 --rounds 9";
    let args: Vec<&str> = line.split(' ').collect();
    let said = File::create(scene.scratch.path().join("said")).unwrap();
    let mut child = scene.command(&args).stdout(Stdio::null()).stderr(said).spawn().unwrap();
    let written = || {
        let mounts = left_of(scene.scratch.path());
        let point = mounts.first().and_then(|line| line.split(' ').nth(4)).unwrap_or_default();
        let counters = std::fs::read_to_string(Path::new(point).join(".forebay/counters"));
        counters.is_ok_and(|line| line.contains("writes") && !line.contains("\"writes\":0,"))
    };
    wait_until("the working file", || written() || has_ended(child.id()));
    // The lab's only child; the child's own child is the guardian.
    let emulation = family(child.id())[1];
    kill_process(Pid::from_raw(emulation as i32).unwrap(), Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let stderr = std::fs::read_to_string(scene.scratch.path().join("said")).unwrap();
    assert!(
        stderr.contains("the emulation has died") || stderr.contains("forebay emulate"),
        "{stderr}"
    );
    wait_until("all to be removed", || left_of(scene.scratch.path()).is_empty());
    std::fs::remove_file(scene.scratch.path().join("said")).unwrap();
    scene.assert_nothing_left();
}

#[test]
fn after_a_signal_or_two_nothing_of_the_emulated_disk_is_left() {
    if let Some(reason) = no_fuse().or_else(|| lacking(Filesystem::Ext4)) {
        return skipped("after_a_signal_or_two_nothing_of_the_emulated_disk_is_left", &reason);
    }
    let scene = Scene::new();
    for signals in [&[Signal::INT][..], &[Signal::TERM], &[Signal::INT, Signal::TERM]] {
        let child = scene.varying();
        for &signal in signals {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        assert_ends_with(130, child, &format!("{signals:?}"));
        // What was in use at the second signal is removed when its user ends.
        wait_until("all to be removed", || left_of(scene.scratch.path()).is_empty());
        scene.assert_nothing_left();
    }
}

#[test]
fn after_a_kill_the_next_start_unmounts_detaches_and_removes() {
    if let Some(reason) = no_fuse().or_else(|| lacking(Filesystem::Ext4)) {
        return skipped("after_a_kill_the_next_start_unmounts", &reason);
    }
    let scene = Scene::new();
    let mut child = scene.varying();
    child.kill().unwrap();
    child.wait().unwrap();
    let stderr = scene.next_start();
    assert!(
        stderr.contains(&format!("(process {}) was killed; put back: ", child.id())),
        "{stderr}"
    );
    for word in ["unmounted ", "detached /dev/loop"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    // The emulation may still be ending; then the start after that finds nothing to do.
    wait_until("all to be removed", || {
        scene.next_start().contains("nowhere") && scene.left().is_empty()
    });
    let again = scene.next_start();
    assert!(!again.contains("earlier run"), "{again}");
}

#[test]
fn after_everybody_was_killed_at_once_the_next_start_cleans_up_for_all_of_them() {
    if let Some(reason) = no_fuse().or_else(|| lacking(Filesystem::Ext4)) {
        return skipped("after_everybody_was_killed_at_once", &reason);
    }
    let scene = Scene::new();
    let mut child = scene.varying();
    let family = family(child.id());
    assert!(family.len() >= 3, "the lab, the emulation, its guardian: {family:?}");
    // The guardian first, then the emulation: no process is left that could clean up.
    for &pid in family.iter().rev() {
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    }
    child.wait().unwrap();
    wait_until("all to be dead", || family.iter().all(|&pid| has_ended(pid)));
    assert!(left_of(scene.scratch.path()).len() >= 2, "a mount and a loop device");
    let stderr = scene.next_start();
    assert!(stderr.contains("put back: "), "{stderr}");
    scene.assert_nothing_left();
}

#[test]
fn without_fuse_or_root_it_is_bad_input_in_a_sentence() {
    let scene = Scene::new();
    if !rustix::process::geteuid().is_root() {
        if let Some(reason) = no_fuse() {
            return skipped("without_fuse_or_root_it_is_bad_input", &reason);
        }
        let output =
            scene.command(&["lab", "depth", "--emulate", "nvme", "--fs", "xfs"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("--fs xfs: ") && stderr.contains("needs root"), "{stderr}");
        return scene.assert_nothing_left();
    }
    // A machine without the device: a view of /dev that lacks it.
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /dev && exec \"$0\" lab depth --emulate nvme";
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_forebay")]);
    command.current_dir(scene.work()).stdin(Stdio::null());
    scene.surround(&mut command);
    let Ok(output) = command.output() else {
        return skipped("without_fuse_or_root_it_is_bad_input", "no unshare");
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare") || stderr.contains("mount:") {
        return skipped("without_fuse_or_root_it_is_bad_input", stderr.trim());
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("/dev/fuse"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    scene.assert_nothing_left();
}

#[test]
fn what_is_wrong_with_the_line_is_reported_before_anything_is_mounted() {
    let scene = Scene::new();
    let cases = [
        (&["--emulate", "no-such-disk"][..], "no-such-disk"),
        (&["--fs", "ext4"], "are for emulated disks: name one with --emulate"),
        (&["--speed-up", "3"], "are for emulated disks: name one with --emulate"),
        (&["--emulate", "nvme", "--fs", "zfs"], "ext4, xfs, btrfs"),
        (&["--emulate", "nvme", "--speed-up", "0"], "a speed-up is a number"),
        (&["--emulate", "nvme", "--emulated-size", "1MiB"], "too small"),
        (&["--emulate", "nvme", "--block-size", "5000"], "power of two"),
    ];
    let started = std::time::Instant::now();
    for (args, expected) in cases {
        let mut line = vec!["lab", "depth"];
        line.extend(args);
        let output = scene.command(&line).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    assert!(started.elapsed() < Duration::from_secs(180));
    scene.assert_nothing_left();
}
