//! `explain` as its users meet it: whether it shows the requests that the disk received, request by request.
//!
//! Its output is compared with two independent sources: the log that each emulated disk
//! keeps, and the requests that arrive when this test itself reads the same blocks, on a disk that it
//! has mounted. Without FUSE the tests say `skipped` and write that to the file named by
//! FOREBAY_SKIPS.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_measure::undo_log::STATE_DIRECTORY;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::command::{
    assert_ends_with, assert_refused, entries, forebay, has_ended, interrupt, output, scratch,
    spawned, wait_until,
};
use crate::skip::can_emulate;

/// Fast, and steady enough not to affect these tests.
const DISK: &str = "nvme";

const BLOCK: u64 = 8192;

/// The output of `forebay explain ARGS --json`, and its directory.
fn explained(args: &[&str]) -> (Value, tempfile::TempDir) {
    let scratch = scratch();
    let mut line = vec!["explain", "--profile", DISK, "--json", "out.json"];
    line.extend(args);
    let output = output(scratch.path(), &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    (serde_json::from_str(&text).unwrap(), scratch)
}

/// The strategy of that name.
fn stderr<'v>(explained: &'v Value, name: &str) -> &'v Value {
    let all = explained["strategies"].as_array().unwrap();
    all.iter().find(|stderr| stderr["strategy"] == name).unwrap()
}

fn pairs(value: &Value) -> Vec<[u64; 2]> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The reads of a file of that name in a disk's log, as [offset, length], in the order of the kernel's
/// numbers.
fn logged(log: &str, file: &str) -> Vec<[u64; 2]> {
    let mut reads = BTreeMap::new();
    for line in log.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        if request["op"] == "read" && request["file"].as_str().unwrap().ends_with(file) {
            let read = ["offset", "len"].map(|name| request[name].as_u64().unwrap());
            let number = request["number"].as_u64().expect("the kernel's number");
            assert!(reads.insert(number, read).is_none(), "a number is given once");
        }
    }
    reads.into_values().collect()
}

/// In whole blocks, rounded outwards: [first block, blocks].
fn in_blocks(reads: &[[u64; 2]]) -> Vec<[u64; 2]> {
    let block = |&[offset, len]: &[u64; 2]| {
        let first = offset / BLOCK;
        [first, (offset + len).div_ceil(BLOCK) - first]
    };
    reads.iter().map(block).collect()
}

#[test]
fn what_it_shows_is_the_disks_own_log_request_by_request() {
    if !can_emulate("explain: log") {
        return;
    }
    for pattern in ["1,3,2,6,4,9", "shuffled:2x60/12,500-470,3,3"] {
        let (explained, scratch) = explained(&[pattern, "--logs", "logs", "--seed", "5"]);
        assert_eq!(explained["schema"], "forebay-explain/1");
        let strategies = explained["strategies"].as_array().unwrap();
        let names: Vec<&str> =
            strategies.iter().map(|stderr| stderr["strategy"].as_str().unwrap()).collect();
        assert_eq!(names, ["os", "random", "max", "willneed", "adaptive"]);
        for stderr in strategies {
            let name = stderr["strategy"].as_str().unwrap();
            let log = scratch.path().join("logs").join(format!("{name}.jsonl"));
            let reads = logged(&std::fs::read_to_string(log).unwrap(), "blocks");
            assert!(!reads.is_empty());
            assert_eq!(pairs(&stderr["request_bytes"]), reads, "{pattern} {name}");
            assert_eq!(pairs(&stderr["requests"]), in_blocks(&reads), "{pattern} {name}");
            assert_eq!(stderr["bytes"], reads.iter().map(|read| read[1]).sum::<u64>());
            assert!(stderr["seconds"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn six_blocks_are_six_requests_by_willneed_and_at_most_three_by_a_stream() {
    if !can_emulate("explain: six blocks") {
        return;
    }
    let (explained, _scratch) = explained(&["1,3,2,6,4,9"]);
    assert_eq!(explained["pattern"], json!([1, 3, 2, 6, 4, 9]));
    let singly = vec![[1, 1], [3, 1], [2, 1], [6, 1], [4, 1], [9, 1]];
    for name in ["willneed", "random"] {
        assert_eq!(pairs(&stderr(&explained, name)["requests"]), singly, "{name}");
        assert_eq!(stderr(&explained, name)["over_read"], 0.0);
    }
    let ours = pairs(&stderr(&explained, "adaptive")["requests"]);
    assert!(ours.len() <= 3, "{ours:?}");
}

/// A process that is stopped when dropped, also by a test that fails.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
            let _ = self.0.wait();
        }
    }
}

/// `forebay emulate`, mounted until dropped. The process ends first.
struct Mounted {
    _process: Stopped,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Mounted {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["emulate", DISK])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let mounted = Mounted { _process: Stopped(child), directory };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line}");
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The requests when this test reads `blocks` as `strategy` does, from a separate file.
fn read_by_oneself(mounted: &Mounted, strategy: &str, blocks: &[u32]) -> Vec<[u64; 2]> {
    let path = mounted.path(strategy);
    let writer = File::create(&path).unwrap();
    fallocate(&writer, FallocateFlags::empty(), 0, 256 << 20).unwrap();
    let reader = File::open(&path).unwrap();
    match strategy {
        "random" => fadvise(&reader, 0, None, Advice::Random).unwrap(),
        "max" => fadvise(&reader, 0, None, Advice::Sequential).unwrap(),
        _ => {}
    }
    let mut page = vec![0; BLOCK as usize];
    for (at, &block) in blocks.iter().enumerate() {
        if strategy == "willneed" {
            let first = if at == 0 { 0 } else { at + 7 };
            for &ahead in blocks.iter().take(at + 8).skip(first) {
                let len = std::num::NonZeroU64::new(BLOCK);
                fadvise(&reader, u64::from(ahead) * BLOCK, len, Advice::WillNeed).unwrap();
            }
        }
        reader.read_exact_at(&mut page, u64::from(block) * BLOCK).unwrap();
    }
    drop(reader);
    // Waits for pages that are still in flight.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&writer, hole, 0, 256 << 20).unwrap();
    let log = std::fs::read_to_string(mounted.path(".forebay/log")).unwrap();
    logged(&log, strategy)
}

#[test]
fn the_kernel_makes_the_same_requests_when_others_read_the_same_blocks() {
    if !can_emulate("explain: reading by oneself") {
        return;
    }
    for pattern in ["1,3,2,6,4,9", "0-99", "1,1001,2,1002,3,1003,4,1004,5,1005"] {
        let (explained, _scratch) = explained(&[pattern, "--strategy", "os,random,max,willneed"]);
        let blocks: Vec<u32> = serde_json::from_value(explained["pattern"].clone()).unwrap();
        let mounted = Mounted::new();
        for strategy in ["os", "random", "max", "willneed"] {
            let here = read_by_oneself(&mounted, strategy, &blocks);
            let there = pairs(&stderr(&explained, strategy)["request_bytes"]);
            assert_eq!(there, here, "{pattern} {strategy}");
        }
    }
}

#[test]
fn a_readahead_is_set_and_shown_and_its_edges_are_the_kernels() {
    if !can_emulate("explain: readahead") {
        return;
    }
    let args = ["sequential:64", "--strategy", "os", "--readahead", "32KiB"];
    let (explained, _scratch) = explained(&args);
    assert_eq!(explained["readahead_bytes"], 32 << 10);
    let reads = pairs(&stderr(&explained, "os")["request_bytes"]);
    assert!(reads.iter().all(|read| read[1] <= 32 << 10), "{reads:?}");
    assert!(reads.iter().skip(2).any(|read| read[1] == 32 << 10), "{reads:?}");
    // A scan: each request continues where the previous one ended.
    assert!(reads.windows(2).all(|pair| pair[0][0] + pair[0][1] == pair[1][0]), "{reads:?}");
}

#[test]
fn past_the_page_cache_a_stream_reads_what_it_requests() {
    if !can_emulate("explain: direct") {
        return;
    }
    let (explained, _scratch) =
        explained(&["1,3,2,6,4,9", "--strategy", "adaptive", "--cache", "direct"]);
    let reads = pairs(&stderr(&explained, "adaptive")["request_bytes"]);
    assert!(reads.len() <= 3, "{reads:?}");
    assert!(reads.iter().all(|read| read[0] >= BLOCK && read[0] + read[1] <= 10 * BLOCK));
}

#[test]
fn the_strips_and_the_picture_are_there_and_nothing_else() {
    if !can_emulate("explain: files") {
        return;
    }
    let scratch = scratch();
    let args = ["explain", "1,3,2,6,4,9", "--profile", DISK, "--svg", "out.svg"];
    let output = output(scratch.path(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in ["willneed: plain reads", "requests", "over-read", "picture:  out.svg"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let picture = std::fs::read_to_string(scratch.path().join("out.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns") && picture.ends_with("</svg>\n"));
    assert_eq!(entries(scratch.path()), ["out.svg"]);
}

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2() {
    let scratch = scratch();
    std::fs::write(scratch.path().join("list"), "1\n2\nx\n").unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["1,3,x"], "\"x\": expected a block"),
        (&["@nowhere"], "cannot be read"),
        (&["@list"], "list, line 3: \"x\": expected a block"),
        (&["random:9/4"], "only 4 blocks"),
        (&["1", "--strategy", "quantum"], "os, random, max, willneed, adaptive"),
        (&["1", "--block-size", "5000"], "power of two from 4KiB"),
        (&["1", "--distance", "0"], "--distance"),
        (&["1", "--readahead", "1000"], "KiB"),
        (&["1", "--speed-up", "0"], "a number from"),
        (&["1", "--json", "no/such/file.json"], "no directory"),
    ];
    assert_refused(scratch.path(), &["explain"], &cases);
    assert_eq!(entries(scratch.path()), ["list"]);
}

#[test]
fn a_block_beyond_the_disk_is_named_with_the_last_one_that_fits() {
    if !can_emulate("explain: a block beyond the disk") {
        return;
    }
    let output = output(scratch().path(), &["explain", "4294967295", "--profile", DISK]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for text in
        ["block 4294967295 is beyond the end of the disk nvme", "the last block that fits is"]
    {
        assert!(stderr.contains(text), "{text} in {stderr}");
    }
}

#[test]
fn a_profile_that_is_not_there_is_bad_input() {
    let output = output(scratch().path(), &["explain", "1", "--profile", "no-such-disk"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{stderr}");
    assert!(stderr.contains("no-such-disk"), "{stderr}");
}

#[test]
fn ctrl_c_once_or_twice_unmounts_the_disk_and_ends_with_130() {
    if !can_emulate("explain: ctrl-c") {
        return;
    }
    for signals in [1, 2] {
        let scratch = scratch();
        // The mount is in there, next to the undo log.
        let place = scratch.path().canonicalize().unwrap().join("temporary");
        let text = place.to_str().unwrap();
        let mounted = || std::fs::read_to_string("/proc/self/mounts").unwrap().contains(text);
        // Without a signal it would take minutes.
        let args = ["explain", "random:100000", "--profile", "7200rpm", "--json", "out.json"];
        let mut command = forebay(scratch.path(), &args);
        let child = spawned(command.env(STATE_DIRECTORY, &place));
        wait_until("a mount", || mounted() || has_ended(child.id()));
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..signals {
            interrupt(&child);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_ends_with(130, child, "a run interrupted");
        assert!(!mounted());
        assert_eq!(entries(&place), [""; 0]);
        assert_eq!(entries(scratch.path()), ["temporary"]);
    }
}

#[test]
fn help_teaches() {
    let output = output(Path::new("."), &["explain", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    for word in ["1,3,2,6,4,9", "shuffled:4x1000/24", "@FILE", "FADV_RANDOM", "Examples:"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
