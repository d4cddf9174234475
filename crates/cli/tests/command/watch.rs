//! `forebay watch`: its counts compared with the device's own, and that it leaves nothing behind however it ends.
//!
//! The tests need root and a kernel with trace events; otherwise they print `skipped`, and the skip is counted.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_measure::filesystem::Filesystem;
use forebay_measure::undo_log::STATE_DIRECTORY;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command::{
    assert_ends_with, forebay, has_ended, mount_over, spawned, under_way, wait_until,
};
use crate::environment::{Scratch, disk, lacking};
use crate::skip::skipped;

/// A scratch directory with tracefs mounted in it; otherwise the test is counted as skipped.
fn traced(test: &str) -> Option<(Scratch, PathBuf)> {
    let scratch = Scratch::new();
    let tracing = scratch.path().join("tracing");
    std::fs::create_dir(&tracing).unwrap();
    let mounted = mount("tracefs", &tracing, "tracefs", MountFlags::empty(), None);
    let reason = match mounted {
        Err(error) => format!("no tracefs: {error}"),
        Ok(()) if !tracing.join("events/block/block_rq_issue").exists() => {
            "no trace events of block devices".to_owned()
        }
        Ok(()) => return Some((scratch, tracing)),
    };
    skipped(test, &reason);
    None
}

/// `forebay watch ARGS` with its undo log below `directory`.
fn watch(directory: &Path, args: &[&str]) -> Command {
    let mut command = forebay(directory, &[&["watch"], args].concat());
    command.env(STATE_DIRECTORY, directory.join("state"));
    command
}

/// The trace instances of the process `pid`.
fn instances(tracing: &Path, pid: u32) -> Vec<String> {
    let names = std::fs::read_dir(tracing.join("instances")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("forebay-{pid}-"))).collect()
}

/// Starts `forebay watch ARGS`, and waits until it watches.
fn begun(directory: &Path, tracing: &Path, args: &[&str]) -> Child {
    let child = spawned(&mut watch(directory, args));
    let last = |name: &String| {
        tracing.join("instances").join(name).join("events/block/block_rq_issue/enable")
    };
    wait_until("the watch to begin", || {
        let found = instances(tracing, child.id());
        let is_on = |name| std::fs::read_to_string(last(name)).is_ok_and(|on| on.trim() == "1");
        has_ended(child.id()) || found.len() == 2 && found.iter().any(is_on)
    });
    // Only then does it follow its subject, or the thread that starts it: before, the list has only the idle task.
    wait_until("the watch to follow its subject", || {
        let list = |name: &String| tracing.join("instances").join(name).join("set_event_pid");
        let follows = |name: String| {
            let tasks = std::fs::read_to_string(list(&name)).unwrap_or_default();
            tasks.lines().any(|task| task.trim() != "0")
        };
        has_ended(child.id()) || instances(tracing, child.id()).into_iter().any(follows)
    });
    under_way(child)
}

#[test]
fn without_rights_or_a_subject_it_says_what_is_missing() {
    let scratch = Scratch::new();
    let refused = |args: &[&str], expected: &str| {
        let output = watch(scratch.path(), args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{args:?}: {stderr}");
    };
    if !rustix::process::geteuid().is_root() {
        return refused(&["true"], "only root may read: start it with sudo");
    }
    if traced("without_rights_or_a_subject_it_says_what_is_missing").is_none() {
        return;
    }
    refused(&[], "name what to watch: --pid P, --service NAME, or a command");
    refused(&["--pid", "2147483647"], "there is no process 2147483647");
    refused(&["--service", "no-such-service"], "there is no service no-such-service.service");
    refused(&["/no/such/program"], "/no/such/program cannot be started");
    refused(&["--dsn", "host=/no/such/directory", "true"], "cannot connect to a server");
    refused(&["--json", "/no/such/directory/file", "true"], "there is no directory");
    std::fs::write(scratch.path().join("record"), "of yesterday").unwrap();
    refused(&["--record", "record", "--pid", "2147483647"], "there is no process 2147483647");
    assert_eq!(std::fs::read(scratch.path().join("record")).unwrap(), b"of yesterday");
    refused(&["--json", "new", "--record", "./new", "true"], "would overwrite the record");
    refused(&["--predict", "--record-limit", "9000TiB", "true"], "needs room for a record of");
}

#[test]
fn in_a_separate_pid_namespace_it_says_that_it_has_to_be_outside() {
    const TEST: &str = "in_a_separate_pid_namespace_it_says_that_it_has_to_be_outside";
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    let watch = watch(scratch.path(), &["true"]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(watch.get_program());
    command.args(watch.get_args()).env(STATE_DIRECTORY, scratch.path().join("state"));
    let Ok(output) = command.output() else { return skipped(TEST, "no unshare") };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("watch from outside of it") && stderr.lines().count() == 1, "{stderr}");
}

/// Makes a filesystem on a loop device for this test: returns the device's name and the mount point.
fn filesystem(scratch: &Scratch) -> (String, PathBuf) {
    let (image, point) = (scratch.path().join("image"), scratch.path().join("mounted"));
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    std::fs::create_dir(&point).unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let image = image.to_str().unwrap();
    let device = run("losetup", &["--find", "--show", "--direct-io=on", image]);
    run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device]);
    run(
        "mount",
        &[
            "-o",
            "noatime,noinit_itable,no_prefetch_block_bitmaps",
            &device,
            point.to_str().unwrap(),
        ],
    );
    (device.strip_prefix("/dev/").unwrap().to_owned(), point)
}

/// The device's own counts: read requests, bytes read, write requests, bytes written.
fn counted_by(device: &str) -> [u64; 4] {
    let text = std::fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [numbers[0], numbers[2] * 512, numbers[4], numbers[6] * 512]
}

/// Asserts that two counts differ by at most 2 %.
#[track_caller]
fn assert_close(seen: &Value, counted: u64, what: &str) {
    let seen = seen.as_f64().unwrap();
    let counted = counted as f64;
    assert!((seen - counted).abs() <= 0.02 * counted, "{what}: {seen} seen, {counted} counted");
}

#[test]
fn counts_are_those_of_the_block_device() {
    const TEST: &str = "counts_are_those_of_the_block_device";
    if let Some(reason) = lacking(Filesystem::Ext4) {
        return skipped(TEST, &reason);
    }
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    let (device, point) = filesystem(&scratch);
    let file = point.join("file");
    let bytes: Vec<u8> = (0..64u32 << 20).map(|at| (at >> 9) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let random = "at=7; for i in $(seq 300); do at=$(( (at * 5 + 3) % 8192 )); \
                  dd if=file of=/dev/null bs=8k count=1 skip=$at iflag=FLAGS status=none || exit; done";
    let cases = [
        ("sequential", ("cat file > /dev/null".to_owned(), 64 << 20, ".")),
        (
            "direct",
            ("dd if=file of=/dev/null bs=64k iflag=direct 2>/dev/null".to_owned(), 64 << 20, "S"),
        ),
        (
            "random",
            (
                random.replace("FLAGS", "skip_bytes").replace("skip=$at", "skip=$((at*8192))"),
                300 * 8192,
                "R",
            ),
        ),
        ("random, direct", (random.replace("FLAGS", "direct"), 300 * 8192, "R")),
        (
            "written",
            (
                "dd if=/dev/zero of=written bs=16k count=1000 oflag=direct conv=fsync 2>/dev/null"
                    .to_owned(),
                0,
                "",
            ),
        ),
    ];
    for (case, (script, read_bytes, letter)) in cases {
        Command::new("sync").status().unwrap();
        rustix::fs::fadvise(File::open(&file).unwrap(), 0, None, rustix::fs::Advice::DontNeed)
            .unwrap();
        let before = counted_by(&device);
        let json = scratch.path().join("watched.json");
        let mut command =
            watch(scratch.path(), &["--json", json.to_str().unwrap(), "--", "sh", "-c", &script]);
        let output = command.current_dir(&point).output().unwrap();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        let after = counted_by(&device);
        let counted = [0, 1, 2, 3].map(|at| after[at] - before[at]);
        let watched: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let remarks = watched["remarks"].as_array().unwrap();
        assert!(remarks.is_empty(), "{case}: {remarks:?}");
        let named = |list: &str, field: &str, end: &str| {
            let list = watched[list].as_array().unwrap();
            list.iter()
                .find(|it| it[field].as_str().is_some_and(|name| name.ends_with(end)))
                .cloned()
        };
        let seen = named("devices", "name", &device).unwrap_or_else(|| panic!("{case}: {watched}"));
        if read_bytes > 0 {
            assert_close(&seen["read"]["count"], counted[0], &format!("{case}: reads"));
            assert_close(&seen["read"]["bytes"], counted[1], &format!("{case}: bytes read"));
            // No other process reads there, and the requests of the process tree are attributed to its files.
            assert_close(
                &seen["own_read"]["bytes"],
                counted[1],
                &format!("{case}: the tree's own"),
            );
            // Processes that run for a millisecond have exited before their file can be looked up.
            let nameless = format!("inode {} of {device}", std::fs::metadata(&file).unwrap().ino());
            let file = named("files", "path", "mounted/file")
                .or_else(|| named("files", "name", &nameless));
            let file = file.unwrap_or_else(|| panic!("{case}: {watched}"));
            let facts = (counted, &watched["processes"]);
            assert_eq!(file["reads"]["bytes"], read_bytes, "{case}: {facts:?}: {file}");
            assert_close(
                &file["requests"]["bytes"],
                counted[1],
                &format!("{case}: the file's own"),
            );
            let strip = file["strip"].as_str().unwrap();
            assert!(strip.contains(letter), "{case}: {strip}");
        } else {
            assert_close(&seen["written"]["count"], counted[2], &format!("{case}: writes"));
            assert_close(&seen["written"]["bytes"], counted[3], &format!("{case}: bytes written"));
            let file = named("files", "path", "mounted/written").unwrap();
            assert_eq!(file["writes"]["bytes"], 16384 * 1000, "{case}: {file}");
            assert_eq!(file["syncs"], 1, "{case}: {file}");
            assert!(file["sync_seconds"].as_f64().unwrap() > 0.0, "{case}: {file}");
        }
    }
}

#[test]
fn what_a_command_writes_and_syncs_is_counted_though_it_has_ended_by_then() {
    const TEST: &str = "what_a_command_writes_and_syncs_is_counted_though_it_has_ended_by_then";
    if let Some(reason) = lacking(Filesystem::Ext4) {
        return skipped(TEST, &reason);
    }
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let (_, point) = filesystem(&scratch);
    // Not on the loop device, so that the shell itself writes nothing there.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.path().join("gate"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    std::fs::write(point.join("old"), "x").unwrap();
    let script = "exec 3<gate; cd mounted; printf more >>old; \
                  exec dd if=/dev/zero of=made bs=4k count=10 conv=fdatasync status=none";
    let json = scratch.path().join("watched.json");
    let args = ["--json", json.to_str().unwrap(), "--", "sh", "-c", script];
    let child = begun(scratch.path(), &tracing, &args);
    let command = format!("/proc/{0}/task/{0}/children", child.id());
    let started = || std::fs::read_to_string(&command).unwrap().trim().parse::<u32>().ok();
    wait_until("the command", || started().is_some());
    let started = started().unwrap();
    // While it is stopped, it looks nothing up: the command ends first.
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    drop(File::options().write(true).open(scratch.path().join("gate")).unwrap());
    wait_until("the end of the command", || has_ended(started));
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    assert_ends_with(0, child, "a watch");
    let seen: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let inode = |name: &str| std::fs::metadata(point.join(name)).unwrap().ino();
    for (name, [writes, bytes, syncs]) in [("made", [10, 40960, 1]), ("old", [1, 4, 0])] {
        let prefix = format!("inode {} of ", inode(name));
        let mut files = seen["files"].as_array().unwrap().iter();
        let file = files.find(|it| it["name"].as_str().unwrap().starts_with(&prefix));
        let file = file.unwrap_or_else(|| panic!("{name}: {seen}"));
        let counted = [&file["writes"]["count"], &file["writes"]["bytes"], &file["syncs"]];
        assert_eq!(counted, [writes, bytes, syncs], "{name}: {file}");
    }
}

#[test]
fn it_exits_as_its_command_does() {
    let Some((scratch, _tracing)) = traced("it_exits_as_its_command_does") else { return };
    for (args, code, words) in [
        (&["true"][..], 0, ""),
        (&["--", "sh", "-c", "exit 7"], 7, "the command ended with exit status: 7"),
        (&["--", "sh", "-c", "kill -9 $$"], 137, "the command ended with signal: 9"),
        (&["--seconds", "1", "--", "sleep", "1000"], 0, ""),
    ] {
        let output = watch(scratch.path(), args).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        assert!(
            printed.contains(words) && printed.is_empty() == (code == 0),
            "{args:?}: {printed}"
        );
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

/// The output of `forebay watch --replay RECORD`, as JSON and as text.
fn replayed(directory: &Path, record: &Path, code: i32) -> (Value, String) {
    let json = directory.join("replayed.json");
    let args = ["--replay", record.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = watch(directory, &args).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    assert_eq!(output.status.code(), Some(code), "{printed}");
    let json = std::fs::read(&json).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap());
    (json.unwrap_or_default(), printed)
}

#[test]
fn what_was_recorded_is_seen_again_and_a_damaged_record_is_refused() {
    const TEST: &str = "what_was_recorded_is_seen_again_and_a_damaged_record_is_refused";
    let scratch = Scratch::new();
    let record = scratch.path().join("record");
    std::fs::write(&record, "something else").unwrap();
    let (_, printed) = replayed(scratch.path(), &record, 2);
    assert!(
        printed.ends_with("record is no record of forebay watch\n") && printed.lines().count() == 1
    );
    std::os::unix::fs::symlink(&record, scratch.path().join("link")).unwrap();
    for other in [scratch.path().join("link"), record.clone()] {
        let args = ["--replay", record.to_str().unwrap(), "--json", other.to_str().unwrap()];
        let output = watch(scratch.path(), &args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && stderr.contains("--json would overwrite the record"),
            "{stderr}"
        );
        assert_eq!(std::fs::read(&record).unwrap(), b"something else");
    }
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    if let Some(reason) = lacking(Filesystem::Ext4) {
        return skipped(TEST, &reason);
    }
    // A device of its own: a prediction sets its readahead, which all files on the device have.
    let mounted = mount_over(&disk(scratch.path()), Filesystem::Ext4);
    let place = mounted.directory();
    let (record, json) = (place.join("record"), place.join("watched.json"));
    std::fs::write(place.join("file"), vec![b'\n'; 4 << 20]).unwrap();
    // The shell ends when its files have been looked up, which takes long on a busy machine.
    let script = "exec 3<file >copy; read -r line <&3; echo written; while [ ! -e seen ]; do sleep 0.1; done; \
                  read -r line <&3";
    let [of_record, of_json] = [&record, &json].map(|path| path.to_str().unwrap());
    let args = ["--record", of_record, "--json", of_json, "--", "sh", "-c", script];
    let mut watching = watch(place, &args);
    watching.current_dir(place).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = watching.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("    2 s  ") {
        assert!(lines.read_line(&mut printed).unwrap() > 0, "{printed}");
    }
    std::fs::write(place.join("seen"), "").unwrap();
    lines.read_to_string(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("forebay: recorded "), "{stderr}");
    let seen: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let files = seen["files"].as_array().unwrap();
    let copied =
        files.iter().find(|file| file["path"].as_str().is_some_and(|it| it.ends_with("/copy")));
    assert_eq!(copied.map(|file| file["writes"]["bytes"].as_u64()), Some(Some(8)), "{seen}");
    let (again, printed) = replayed(place, &record, 0);
    assert_eq!(again, seen);
    // The end of the output is the same as in the watch itself.
    let end = printed.split_once("source: ").unwrap().1;
    assert!(printed.contains(end) && printed.contains("    1 s  "), "{printed}");

    let predict = |readahead: &str, code| {
        let args = ["--replay", of_record, "--predict", "--rounds", "3", "--predict-seconds", "3"];
        let output = watch(place, &[&args[..], &["--json", of_json, readahead]].concat());
        let output = { output }.output().unwrap();
        let printed =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        let ways: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        (ways["prediction"]["ways"].as_array().map_or(0, Vec::len), printed)
    };
    let (ways, printed) = predict("--readahead=4KiB,256KiB", 0);
    assert!(ways == 8 && printed.contains("kernel readahead: 256.0 KiB"), "{printed}");
    std::fs::remove_file(place.join("file")).unwrap();
    std::fs::remove_file(place.join("copy")).unwrap();

    let whole = std::fs::read(&record).unwrap();
    std::fs::write(&record, &whole[..whole.len() - 7]).unwrap();
    let (cut, _) = replayed(place, &record, 0);
    let remark = cut["remarks"][0].as_str().unwrap();
    assert!(remark.starts_with("the record is incomplete"), "{remark}");
    let mut bytes = whole;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&record, bytes).unwrap();
    let (_, printed) = replayed(place, &record, 2);
    assert!(
        printed.contains("record is damaged: a checksum is wrong") && printed.lines().count() == 1
    );
    mounted.remove().unwrap();
}

#[test]
fn ctrl_c_ends_it_with_what_was_seen_and_leaves_neither_instance_nor_command() {
    let Some((scratch, tracing)) =
        traced("ctrl_c_ends_it_with_what_was_seen_and_leaves_neither_instance_nor_command")
    else {
        return;
    };
    let json = scratch.path().join("watched.json");
    for signal in [Signal::INT, Signal::TERM] {
        let args = ["--json", json.to_str().unwrap(), "sh", "-c", "echo $$ > pid; exec sleep 1000"];
        let child = begun(scratch.path(), &tracing, &args);
        let id = child.id();
        wait_until("the command", || scratch.path().join("pid").exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_ends_with(0, child, "a watch");
        assert_eq!(instances(&tracing, id), [""; 0], "{signal:?}");
        let command: u32 =
            std::fs::read_to_string(scratch.path().join("pid")).unwrap().trim().parse().unwrap();
        assert!(has_ended(command), "{signal:?}");
        std::fs::remove_file(&json).unwrap();
        std::fs::remove_file(scratch.path().join("pid")).unwrap();
    }
    // The record for --predict is an unnamed file.
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let own = std::process::id().to_string();
    let mut command =
        watch(scratch.path(), &["--predict", "--record-limit", "1MiB", "--pid", &own]);
    let child = spawned(command.env("TMPDIR", &place));
    wait_until("the record", || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        open.any(|path| path.starts_with(&place))
    });
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    wait_until("the watch to begin", || instances(&tracing, child.id()).len() == 2);
    let child = under_way(child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_ends_with(130, child, "a watch with --predict");
}

/// Watches this process while `doing` runs, and returns the result as JSON.
fn seen_of_this_process(scratch: &Scratch, tracing: &Path, doing: impl FnOnce()) -> Value {
    let (own, json) = (std::process::id().to_string(), scratch.path().join("watched.json"));
    let child = begun(scratch.path(), tracing, &["--pid", &own, "--json", json.to_str().unwrap()]);
    doing();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_ends_with(0, child, "a watch");
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

/// Bytes written to the files `names` in `scratch`, by path: other tests of this process have files of the same names.
fn written_to<const COUNT: usize>(
    seen: &Value,
    scratch: &Scratch,
    names: [&str; COUNT],
) -> [u64; COUNT] {
    names.map(|name| {
        let path = scratch.path().join(name).canonicalize().unwrap();
        let mut files = seen["files"].as_array().unwrap().iter();
        let file = files.find(|file| file["path"].as_str().is_some_and(|it| Path::new(it) == path));
        file.map_or(0, |file| file["writes"]["bytes"].as_u64().unwrap())
    })
}

#[test]
fn a_write_is_reported_for_the_file_that_the_descriptor_has_then() {
    const TEST: &str = "a_write_is_reported_for_the_file_that_the_descriptor_has_then";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let [first, second] =
        ["first", "second"].map(|name| File::create(scratch.path().join(name)).unwrap());
    let mut place = rustix::io::dup(&first).unwrap();
    let write = |to: &OwnedFd, count: usize| {
        assert_eq!(rustix::io::write(to, &vec![b'x'; count]).unwrap(), count);
    };
    let seen = seen_of_this_process(&scratch, &tracing, || {
        // Within one batch of events: the first write counts for its file if the filesystem names that, or for no file.
        write(&place, 1);
        rustix::io::dup2(&second, &mut place).unwrap();
        write(&place, 20);
        std::thread::sleep(Duration::from_millis(200));
        write(&place, 20);
    });
    let [first, second] = written_to(&seen, &scratch, ["first", "second"]);
    assert!(first <= 1 && second == 40, "{first} {second}: {seen}");
}

#[test]
fn a_close_that_is_lost_does_not_have_writes_counted_for_another_file() {
    const TEST: &str = "a_close_that_is_lost_does_not_have_writes_counted_for_another_file";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    if Command::new("perl").arg("-e0").status().is_err() {
        return skipped(TEST, "no perl");
    }
    let at = |name: &str| scratch.path().join(name);
    std::fs::write(at("input"), "x").unwrap();
    // Descriptor 1 is the first file and then the second; the reads in between leave some events that
    // are not overwritten.
    let script = "sub pause { select undef, undef, undef, 0.02 } \
                  sub reads { for (1 .. $_[0]) { sysseek A, 0, 0; sysread A, $a, 1 } } \
                  open A, '<input'; open STDOUT, '>first'; syswrite STDOUT, '1'; \
                  pause for 1 .. 20; open B, '>ready'; pause until -e 'go'; reads 10000; \
                  open STDOUT, '>second'; reads 800000; open B, '>done'; pause until -e 'on'; \
                  syswrite STDOUT, 'x' x 20; pause for 1 .. 20";
    let json = at("watched.json");
    // Files named in the arguments are known even if the command has exited before it is looked up.
    let args = ["--json", json.to_str().unwrap(), "--", "perl", "-e", script, "first", "second"];
    let child = begun(scratch.path(), &tracing, &args);
    wait_until("the first write", || at("ready").exists());
    // While it is stopped, it reads no events, and the buffers overflow.
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    File::create(at("go")).unwrap();
    wait_until("the reads", || at("done").exists());
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    File::create(at("on")).unwrap();
    assert_ends_with(0, child, "a watch");
    let seen: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(seen["remarks"].to_string().contains("dropped events"), "{seen}");
    let [first, second] = written_to(&seen, &scratch, ["first", "second"]);
    assert!(first <= 1 && second == 20, "{first} {second}: {seen}");
}

#[test]
fn short_threads_are_reported_and_are_no_processes() {
    const TEST: &str = "short_threads_are_reported_and_are_no_processes";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let file = File::create(scratch.path().join("written")).unwrap();
    let seen = seen_of_this_process(&scratch, &tracing, || {
        for _ in 0..400 {
            std::thread::scope(|scope| {
                scope.spawn(|| rustix::io::write(&file, b"12345").unwrap());
            });
        }
    });
    assert_eq!(written_to(&seen, &scratch, ["written"]), [400 * 5], "{seen}");
    // Other tests start processes, too.
    assert!(seen["processes"].as_u64().unwrap() < 200, "{}", seen["processes"]);
}

#[test]
fn what_is_closed_by_close_range_is_looked_up_again() {
    const TEST: &str = "what_is_closed_by_close_range_is_looked_up_again";
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    let json = scratch.path().join("watched.json");
    // close_range has the number 436 on all architectures. The second file gets the descriptor of the first.
    let script = "open A, '>first'; syswrite A, 'x' x 300; select undef, undef, undef, 0.3; \
                  my $number = fileno A; syscall 436, $number, $number + 9, 0; \
                  open B, '>second'; fileno B == $number or die; \
                  syswrite B, 'x' x 4000; select undef, undef, undef, 0.3";
    let args = ["--json", json.to_str().unwrap(), "--", "perl", "-e", script, "first", "second"];
    let output = watch(scratch.path(), &args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && stderr.contains("perl cannot be started") {
        return skipped(TEST, "no perl");
    }
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    let seen: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(written_to(&seen, &scratch, ["first", "second"]), [300, 4000], "{seen}");
}

#[test]
fn a_process_that_has_ended_is_not_watched_without_end() {
    const TEST: &str = "a_process_that_has_ended_is_not_watched_without_end";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let mut watched = Command::new("sleep").arg("1000").spawn().unwrap();
    let child = begun(scratch.path(), &tracing, &["--pid", &watched.id().to_string()]);
    watched.kill().unwrap();
    wait_until("the end of the watch", || has_ended(child.id()));
    assert_ends_with(0, child, "a watch");
    watched.wait().unwrap();
}

#[test]
fn a_file_that_replaced_another_is_not_read_again_for_it() {
    const TEST: &str = "a_file_that_replaced_another_is_not_read_again_for_it";
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    for name in ["file", "other"] {
        std::fs::write(scratch.path().join(name), vec![b'x'; 9 << 12]).unwrap();
    }
    let script = "open A, '<file'; sysread A, $_, 9; select undef, undef, undef, 0.3; close A; \
                  rename 'other', 'file'; select undef, undef, undef, 1.3";
    let args = ["--record", "record", "--", "perl", "-e", script];
    let output = watch(scratch.path(), &args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && stderr.contains("perl cannot be started") {
        return skipped(TEST, "no perl");
    }
    assert!(output.status.success(), "{stderr}");
    // If the file were read, a remark would report this change.
    std::fs::write(scratch.path().join("file"), vec![b'y'; 10 << 12]).unwrap();
    let args = ["--replay", "record", "--predict", "--rounds", "1", "--predict-seconds", "3"];
    let output = watch(scratch.path(), &args).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    assert!(printed.contains("left out: ") && !printed.contains("were written since"), "{printed}");
}

#[test]
fn a_file_may_have_any_name() {
    let Some((scratch, _tracing)) = traced("a_file_may_have_any_name") else { return };
    let name = OsStr::from_bytes(b"a\xff\n\x1b[2Jb");
    std::fs::write(scratch.path().join(name), vec![b'x'; 9 << 12]).unwrap();
    let mut command = watch(scratch.path(), &["--", "cat"]);
    let output = command.arg(name).env("LC_ALL", "C.UTF-8").output().unwrap();
    let printed =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{printed:?}");
    assert!(
        printed[0].contains("a\u{fffd}\\n\\u{1b}[2Jb ") && !printed[0].contains('\u{1b}'),
        "{printed:?}"
    );
}

#[test]
fn a_file_that_the_command_names_has_its_whole_path() {
    const TEST: &str = "a_file_that_the_command_names_has_its_whole_path";
    let Some((scratch, _tracing)) = traced(TEST) else { return };
    std::fs::create_dir(scratch.path().join("data")).unwrap();
    std::fs::write(scratch.path().join("data/file"), vec![b'x'; 9 << 12]).unwrap();
    std::os::unix::fs::symlink("file", scratch.path().join("data/link")).unwrap();
    let json = scratch.path().join("watched.json");
    for name in ["data/file", "data/link"] {
        let args = ["--json", json.to_str().unwrap(), "--", "cat", name];
        assert!(watch(scratch.path(), &args).output().unwrap().status.success());
        let seen: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let expected = scratch.path().canonicalize().unwrap().join("data/file");
        let mut files = seen["files"].as_array().unwrap().iter();
        let is_it = |file: &Value| file["path"] == expected.to_str().unwrap();
        assert!(files.any(is_it), "{name}: {seen}");
    }
}

#[test]
fn a_watch_ends_when_its_output_is_closed() {
    const TEST: &str = "a_watch_ends_when_its_output_is_closed";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let own = std::process::id().to_string();
    let mut command = watch(scratch.path(), &["--pid", &own]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" s  "), "{line}");
    wait_until("the end of the watch", || has_ended(child.id()));
    assert_eq!(instances(&tracing, child.id()), [""; 0]);
    assert_ends_with(0, child, "a watch");
}

#[test]
fn what_a_killed_watch_leaves_goes_with_the_next_start_and_nothing_of_one_that_runs() {
    const TEST: &str =
        "what_a_killed_watch_leaves_goes_with_the_next_start_and_nothing_of_one_that_runs";
    let Some((scratch, tracing)) = traced(TEST) else { return };
    let own = std::process::id().to_string();
    let running = begun(scratch.path(), &tracing, &["--pid", &own]);
    let record = scratch.path().join("record");
    let mut killed =
        begun(scratch.path(), &tracing, &["--pid", &own, "--record", record.to_str().unwrap()]);
    // More than the first line is written.
    wait_until("the record", || std::fs::metadata(&record).is_ok_and(|facts| facts.len() > 16));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(instances(&tracing, killed.id()).len(), 2, "nothing could remove them");
    let output = watch(scratch.path(), &["--seconds", "1", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(
        stderr.matches("was killed; put back: removed the trace instance").count(),
        2,
        "{stderr}"
    );
    assert_eq!(instances(&tracing, killed.id()), [""; 0]);
    assert_eq!(instances(&tracing, running.id()).len(), 2);
    let (_, printed) = replayed(scratch.path(), &record, 0);
    assert!(printed.contains("the record is incomplete, as the watch was killed"), "{printed}");
    let id = running.id();
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert_ends_with(0, running, "the other watch");
    assert_eq!(instances(&tracing, id), [""; 0]);
}
