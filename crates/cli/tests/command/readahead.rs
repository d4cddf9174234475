//! `readahead` and its parts as their users meet them: the cells they promise, what they refuse, and what they
//! leave behind.
//!
//! Settings of a device are varied only on the test's own loop devices; everywhere else by descriptor.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_measure::filesystem::{Filesystem, Mounted};
use serde_json::{Value, json};

use crate::command::{
    assert_ends_with, assert_refused, assert_repeats, entries, interrupt, mount_over, output,
    scratch, started, wait_until, wait_until_it_listens,
};
use crate::environment::lacking;
use crate::skip::{is_quiet, skipped};

/// The smallest size that all three filesystems accept.
const DISK_BYTES: u64 = 640 << 20;

const SMALL: [&str; 14] = [
    "--parts",
    "throughput",
    "--share",
    "256KiB",
    "--readers",
    "1,3",
    "--time",
    "2s",
    "--rounds",
    "2",
    "--seed",
    "7",
    "--set-via",
    "descriptor",
];

/// The report of `forebay lab ARGS` in `directory`, which succeeds and leaves only its records.
fn report_in(directory: &Path, args: &[&str]) -> Value {
    let before = entries(directory);
    let mut line = vec!["lab"];
    line.extend(args);
    line.extend(["--json", "out.json"]);
    let output = output(directory, &line);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let path = directory.join("out.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(entries(directory), before, "{args:?}");
    serde_json::from_str(&text).unwrap()
}

fn report(args: &[&str]) -> Value {
    report_in(scratch().path(), args)
}

/// The records of a run of one part alone.
fn records<'r>(report: &'r Value, part: &str) -> &'r [Value] {
    let records = report["records"].as_array().unwrap();
    assert!(records.iter().all(|record| record["experiment"] == "readahead"));
    assert!(records.iter().all(|record| record["cell"]["part"] == part));
    records
}

/// Those settings of each cell that `keys` names.
fn cells(records: &[Value], keys: &[&str]) -> Vec<String> {
    let cell = |record: &Value| {
        let fields = keys.iter().map(|&key| (key.to_owned(), record["cell"][key].clone()));
        Value::Object(fields.collect()).to_string()
    };
    records.iter().map(cell).collect()
}

#[test]
fn readahead_measures_every_setting_under_every_number_of_readers_and_the_ceiling() {
    let mut args = vec!["readahead", "--request", "8KiB,64KiB"];
    args.extend(SMALL);
    let report = report(&args);
    let records = records(&report, "throughput");
    let mut expected = BTreeSet::new();
    for files in ["own", "one"] {
        for readers in [1, 3] {
            for advice in ["random", "normal", "sequential"] {
                for request in [8192, 65_536] {
                    let cell = json!({
                        "files": files, "readers": readers, "advice": advice,
                        "request_bytes": request, "cache": "buffered",
                    });
                    expected.insert(cell.to_string());
                }
            }
            let ceiling = json!({
                "files": files, "readers": readers, "advice": null, "request_bytes": 1 << 20,
                "cache": "direct",
            });
            expected.insert(ceiling.to_string());
        }
    }
    let keys = ["files", "readers", "advice", "request_bytes", "cache"];
    let found = cells(records, &keys);
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.len(), expected.len(), "each once");
    for record in records {
        check_readahead(record);
    }
}

fn check_readahead(record: &Value) {
    let (cell, metrics) = (&record["cell"], &record["metrics"]);
    for key in ["readahead_bytes", "profile", "filesystem"] {
        assert!(cell.get(key).is_some(), "{key}: {record}");
    }
    if metrics["bytes_per_s"].is_null() {
        let why = record["remarks"][0].as_str().unwrap();
        assert!(why.starts_with("not measured: "), "{why}");
        assert_eq!(cell["cache"], "direct", "{record}");
        return;
    }
    assert!(metrics["bytes_per_s"].as_f64().unwrap() > 0.0, "{record}");
    assert_eq!(metrics["rounds"], 2);
    let rounds = record["rounds"].as_array().unwrap();
    assert!(rounds.len() == 2 && rounds.iter().all(|round| round["bytes_per_s"].is_number()));
    let readers = metrics["reader_bytes_per_s"].as_array().unwrap();
    assert_eq!(Some(readers.len() as u64), cell["readers"].as_u64(), "{record}");
    for key in ["device_requests", "device_bytes", "slowest_of_fastest", "seconds"] {
        assert!(metrics.get(key).is_some(), "{key}: {record}");
    }
    if cell["advice"] == "random" {
        assert_eq!(cell["readahead_bytes"], 0);
    }
}

#[test]
fn mixture_measures_each_kind_alone_and_both() {
    let args = [
        "readahead",
        "--parts",
        "mixture",
        "--size",
        "8MiB",
        "--streams",
        "2",
        "--random",
        "1",
        "--time",
        "150ms",
        "--rounds",
        "1",
        "--set-via",
        "descriptor",
    ];
    let report = report(&args);
    let records = records(&report, "mixture");
    let found = cells(records, &["advice", "mix"]);
    assert_eq!(found.len(), 9);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 9, "{found:?}");
    for record in records {
        let (mix, metrics) = (record["cell"]["mix"].as_str().unwrap(), &record["metrics"]);
        let is_measured = |key: &str| metrics[key].is_number();
        assert_eq!(is_measured("stream_bytes_per_s"), mix != "random", "{record}");
        assert_eq!(is_measured("random_reads_per_s"), mix != "streams", "{record}");
        assert_eq!(is_measured("stream_kept") && is_measured("random_kept"), mix == "both");
    }
}

#[test]
fn the_command_of_a_report_repeats_the_run_as_it_stands() {
    let mut readahead = vec!["readahead", "--cache", "buffered"];
    readahead.extend(SMALL);
    let others = "readahead --parts activation,mixture --size 32MiB --repetitions 1 --strides 1 --quick \
                  --time 50ms --rounds 1 --set-via descriptor --request 4KiB";
    for args in [readahead, others.split_whitespace().collect()] {
        let report = report(&args);
        assert_repeats(scratch().path(), &report);
        // All that was measured, and no more.
        let (_, options) = report["command"].as_str().unwrap().split_once(" readahead ").unwrap();
        let (options, rest) = options.split_once(" --dir ").unwrap();
        let line: Vec<&str> = ["readahead"]
            .into_iter()
            .chain(options.split(' '))
            .chain(rest.split(' ').skip(1))
            .collect();
        // But for the device's readahead, which other tests may set meanwhile.
        let cells = |report: &Value| -> Vec<Value> {
            let mut cells: Vec<Value> = report["records"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["cell"].clone())
                .collect();
            for cell in &mut cells {
                cell.as_object_mut().unwrap().remove("readahead_bytes");
            }
            cells
        };
        assert_eq!(cells(&self::report(&line)), cells(&report));
    }
}

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 14] = [
        (&["readahead", "--dir", "nowhere"], "nowhere"),
        (&["readahead", "--share", "1000"], "--share"),
        (&["readahead", "--readers", "0"], "--readers"),
        (&["readahead", "--files", "both"], "own, one"),
        (&["readahead", "--request", "1000"], "--request"),
        (&["readahead", "--readahead", "1000"], "KiB"),
        (&["readahead", "--readahead", "4KiB", "--set-via", "descriptor"], "--readahead"),
        (&["readahead", "--set-via", "magic"], "device, descriptor"),
        (&["readahead", "--size", "1MiB"], "--size"),
        (&["readahead", "--hints", "tepid"], "sequential"),
        (
            &["readahead", "--parts", "mixture", "--size", "8KiB", "--set-via", "descriptor"],
            "--size",
        ),
        (&["readahead", "--random", "0"], "--random"),
        (&["readahead", "--parts", "all"], "throughput, activation, mixture"),
        (&["mixture"], "mixture"),
    ];
    assert_refused(scratch.path(), &["lab"], &cases);
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[test]
fn ctrl_c_and_a_kill_leave_no_file() {
    let scratch = scratch();
    for part in ["throughput", "activation", "mixture"] {
        // More than a run reads in this test, with space for it on a nearly full disk.
        let mut args = vec!["lab", "readahead", "--parts", part, "--set-via", "descriptor"];
        args.extend(if part == "throughput" { ["--share", "8MiB"] } else { ["--size", "256MiB"] });
        let child = started(scratch.path(), &args);
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(400));
        let begun = Instant::now();
        interrupt(&child);
        assert_ends_with(130, child, part);
        assert!(begun.elapsed() < Duration::from_secs(120), "{part}: {:?}", begun.elapsed());
        assert_eq!(entries(scratch.path()), [""; 0], "{part}");

        let mut child = started(scratch.path(), &args);
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(400));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(entries(scratch.path()), [""; 0], "{part}");
    }
}

#[test]
fn help_teaches() {
    let scratch = scratch();
    let output = output(scratch.path(), &["lab", "readahead", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout).to_lowercase();
    let flowing = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        ["--readahead", "Example:", "blockdev --setra", "FADV_RANDOM"],
        ["--strides", "--parts", "initial", "two interleaved"],
        ["--streams", "mixture", "--random", "loses what"],
    ] {
        for word in words {
            assert!(flowing.contains(&word.to_lowercase()), "{word}: {help}");
        }
    }
}

/// The reason if no emulated disk with a settable readahead is available here.
fn no_emulated_disk() -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".to_owned());
    }
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "to set the readahead of a mount takes root".to_owned())
}

#[test]
fn on_an_emulated_array_eight_readers_gain_what_one_does_not() {
    if let Some(reason) = no_emulated_disk() {
        skipped("on_an_emulated_array_eight_readers_gain_what_one_does_not", &reason);
        return;
    }
    if !is_quiet() {
        let reason = "it compares rates, for which the machine must be idle (FOREBAY_TIMING=1)";
        return skipped("on_an_emulated_array_eight_readers_gain_what_one_does_not", reason);
    }
    // Rates of a few seconds depend on chance: 5.3 times is usual, 4.3 occurred once in ten runs. An effect that
    // is missing in three runs does not exist.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let rates = rates_on_an_array();
        let eight = rates(8, 12_288) / rates(8, 8);
        let [eight_beyond, one_beyond] =
            [8, 1].map(|readers| rates(readers, 12_288) / rates(readers, 256));
        seen.push((eight, eight_beyond, one_beyond));
        if eight >= 4.0 && eight_beyond > 1.5 * one_beyond {
            return;
        }
    }
    panic!(
        "gains of eight readers from 8 to 12288 sectors, and of eight and one beyond 256: {seen:?}"
    );
}

/// Bytes a second for a number of readers and a readahead in sectors.
fn rates_on_an_array() -> impl Fn(u64, u64) -> f64 {
    // At a quarter of its speed, so that the disk is slower than the slowest machine. Files of 8 GiB
    // as in document 002, of which the first part is used: more than can be read before time is up.
    let args = [
        "readahead",
        "--emulate",
        "raid10-12",
        "--speed-up",
        "0.25",
        "--readers",
        "1,8",
        "--files",
        "own",
        "--request",
        "8KiB",
        "--readahead",
        "4KiB,128KiB,6MiB",
        "--share",
        "64MiB",
        "--spacing",
        "8GiB",
        "--time",
        "4s",
        "--rounds",
        "2",
        "--cache",
        "buffered",
        "--parts",
        "throughput",
    ];
    let report = report(&args);
    move |readers, sectors| {
        let is = |record: &&Value| {
            record["cell"]["readers"] == readers
                && record["cell"]["readahead_bytes"] == sectors * 512
        };
        let record = records(&report, "throughput").iter().find(is).unwrap();
        assert_eq!(record["cell"]["profile"], "raid10-12");
        record["metrics"]["bytes_per_s"].as_f64().unwrap()
    }
}

/// A private filesystem of the test, on a loop device over a file in `directory`.
fn mounted(directory: &Path, filesystem: Filesystem) -> Mounted {
    let disk = directory.join("disk");
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    mount_over(&disk, filesystem)
}

/// The readahead that files of a mount are opened with, at this filesystem's place for it.
fn readahead_file(mounted: &Mounted, filesystem: Filesystem) -> PathBuf {
    if filesystem.name() != "btrfs" {
        return Path::new("/sys/block").join(mounted.device()).join("queue/read_ahead_kb");
    }
    let filesystems = std::fs::read_dir("/sys/fs/btrfs").unwrap();
    let own = filesystems
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("devices").join(mounted.device()).exists());
    own.unwrap().join("bdi/read_ahead_kb")
}

fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[test]
fn a_devices_readahead_is_varied_and_put_back_on_each_filesystem() {
    for filesystem in Filesystem::ALL {
        if let Some(reason) = lacking(filesystem) {
            skipped("a_devices_readahead_is_varied_and_put_back", &reason);
            continue;
        }
        let scratch = scratch();
        let mounted = mounted(scratch.path(), filesystem);
        let file = readahead_file(&mounted, filesystem);
        std::fs::write(&file, "132\n").unwrap();
        let args = [
            "readahead",
            "--share",
            "1MiB",
            "--readers",
            "2",
            "--request",
            "8KiB",
            "--files",
            "own",
            "--readahead",
            "0,64KiB,1MiB",
            "--time",
            "5s",
            "--rounds",
            "1",
            "--parts",
            "throughput",
        ];
        let report = report_in(mounted.directory(), &args);
        assert_eq!(number(&file), 132, "{}", filesystem.name());
        let records = records(&report, "throughput");
        let of = |bytes: u64| {
            let is = |record: &&Value| record["cell"]["readahead_bytes"] == bytes;
            records.iter().find(is).unwrap()
        };
        for bytes in [0, 64 << 10, 1 << 20] {
            assert_eq!(of(bytes)["cell"]["readahead_by"], "device");
            assert_eq!(of(bytes)["cell"]["filesystem"], filesystem.name());
        }
        // The loop device counts its requests: without readahead there is one for each page or block.
        let requests = |bytes| of(bytes)["metrics"]["device_requests"].as_f64();
        if let (Some(none), Some(much)) = (requests(0), requests(1 << 20)) {
            assert!(none > 4.0 * much, "{}: {none} and {much} requests", filesystem.name());
        }

        let mut args =
            vec!["lab", "readahead", "--parts", "throughput", "--rounds", "50", "--share", "4MiB"];
        args.extend(["--readers", "2", "--readahead", "0,64KiB"]);
        let child = started(mounted.directory(), &args);
        wait_until("another readahead", || number(&file) != 132);
        interrupt(&child);
        assert_ends_with(130, child, filesystem.name());
        assert_eq!(number(&file), 132, "{} after Ctrl-C", filesystem.name());
        mounted.remove().unwrap();
    }
}

#[test]
fn activation_is_found_and_stable_over_20_repetitions_on_each_filesystem() {
    for filesystem in Filesystem::ALL {
        if let Some(reason) = lacking(filesystem) {
            skipped("activation_is_found_and_stable_over_20_repetitions", &reason);
            continue;
        }
        let scratch = scratch();
        let mounted = mounted(scratch.path(), filesystem);
        std::fs::write(readahead_file(&mounted, filesystem), "128\n").unwrap();
        let mut args = vec!["readahead", "--parts", "activation", "--size", "64MiB"];
        args.extend(["--request", "8KiB", "--strides", "1,3"]);
        let report = report_in(mounted.directory(), &args);
        let name = filesystem.name();
        for record in records(&report, "activation") {
            let (cell, metrics) = (&record["cell"], &record["metrics"]);
            assert_eq!(metrics["repetitions"], 20);
            // Of two streams on a busy machine, one repetition in 20 was seen to begin a read later.
            let least = if cell["streams"] == 2 { 18 } else { 20 };
            assert!(metrics["repetitions_agreeing"].as_u64() >= Some(least), "{name}: {record}");
            let is_sequence = cell["stride_bytes"] == cell["request_bytes"] && cell["streams"] == 1;
            let reads = &metrics["reads_until_ahead"];
            match (cell["advice"].as_str().unwrap(), cell["start"].as_str().unwrap()) {
                ("random", _) => assert!(reads.is_null(), "{name}: {record}"),
                // The kernel treats the beginning of a file as the beginning of a sequence.
                (_, "begin") => assert_eq!(*reads, 1, "{name}: {record}"),
                _ if is_sequence => assert_eq!(*reads, 2, "{name}: {record}"),
                // The kernel recognises two streams sooner or later.
                _ if cell["streams"] == 2 => assert!(reads.is_u64(), "{name}: {record}"),
                // Two blocks left out are no sequence.
                _ => assert!(reads.is_null(), "{name}: {record}"),
            }
            let largest = metrics["window_bytes_max"].as_u64();
            let full = cell["readahead_bytes"].as_u64().unwrap();
            if is_sequence && full > 0 {
                let largest = largest.unwrap();
                assert!((full / 2..=2 * full).contains(&largest), "{name}: {record}");
            }
        }
        mounted.remove().unwrap();
    }
}
