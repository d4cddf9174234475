//! The example `ledger`, killed and recovered. As with `kv`, this test starts itself again as the example program.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use forebay::Lsn;

#[allow(dead_code, reason = "this test calls what the example's main calls")]
#[path = "../examples/ledger.rs"]
mod ledger;

/// Contains the arguments for a process that should run the program, separated by newlines.
const ARGS: &str = "FOREBAY_TEST_LEDGER_ARGS";

const PAGE_BYTES: u64 = 4096;

/// Not a test itself: runs the program, in a process started by [`command`].
#[test]
fn program() {
    if let Some(args) = std::env::var_os(ARGS) {
        let args = args.as_bytes().split(|&byte| byte == b'\n');
        let code = ledger::program(args.map(|arg| OsString::from_vec(arg.to_vec())));
        std::process::exit(code.into());
    }
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let args = [&[dir.to_str().unwrap()], args].concat().join("\n");
    command.args(["--exact", "--nocapture", "program"]).env(ARGS, args);
    command
}

/// Exit code, and standard error.
fn run(dir: &Path, args: &[&str]) -> (i32, String) {
    let output = command(dir, args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The pairs of words in the lines of `check`: what each account has transferred, and the sum.
fn check(dir: &Path) -> (HashMap<String, i64>, u64) {
    let output = command(dir, &["check"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let recovered = text.lines().find(|line| line.starts_with("recovered")).unwrap();
    let words: Vec<_> = recovered.split(' ').collect();
    let restored = words[words.len() - 3].parse().unwrap();
    (text.lines().filter_map(pair).collect(), restored)
}

fn pair(line: &str) -> Option<(String, i64)> {
    let (name, number) = line.split_once(' ')?;
    Some((name.to_owned(), number.parse().ok()?))
}

/// Transfers until `count` transfers were acknowledged, and kills the process; returns how many of each account were.
fn transfer_and_kill(dir: &Path, count: usize) -> HashMap<String, i64> {
    let mut child = command(dir, &["transfer", "1000000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged: HashMap<_, _> =
        lines.by_ref().filter_map(|it| pair(&it)).take(count).collect();
    child.kill().unwrap();
    // What it printed before it was killed counts too; the last line may be cut off.
    acknowledged.extend(lines.filter_map(|it| pair(&it)).filter(|(name, _)| name.len() == 1));
    child.wait().unwrap();
    acknowledged
}

fn redo(dir: &Path) -> Lsn {
    let text = std::fs::read_to_string(dir.join("ledger.redo")).unwrap();
    Lsn(text.trim().parse().unwrap())
}

/// Replaces the second half of a page; returns what it was.
fn replace_half(dir: &Path, block: u32, new: &[u8; 2048]) -> [u8; 2048] {
    let file = OpenOptions::new().read(true).write(true).open(dir.join("accounts")).unwrap();
    let at = u64::from(block) * PAGE_BYTES + 2048;
    let mut old = [0; 2048];
    file.read_exact_at(&mut old, at).unwrap();
    file.write_all_at(new, at).unwrap();
    old
}

/// Blocks of the transfers in the log after the redo point: one with an image, and one without.
fn changed(dir: &Path) -> [u32; 2] {
    let (_, records) = ledger::Log::open(dir, redo(dir)).unwrap();
    let mut blocks: HashMap<u32, bool> = HashMap::new();
    for (_, record) in &records {
        if let ledger::Record::Transfer { to, .. } = record {
            blocks.entry(to / 510).or_default();
        }
    }
    for (_, record) in &records {
        if let ledger::Record::Image { block, .. } = record {
            blocks.entry(*block).and_modify(|image| *image = true);
        }
    }
    [true, false].map(|image| *blocks.iter().find(|(_, has)| **has == image).unwrap().0)
}

#[test]
fn what_was_acknowledged_survives_kills_and_torn_pages() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(run(dir, &["create", "100000"]), (0, String::new()));
    let mut before = check(dir).0;
    for round in 0..4 {
        let acknowledged = transfer_and_kill(dir, 400);
        // What a power cut in the middle of a page's write leaves.
        let [torn, damaged] = changed(dir);
        replace_half(dir, torn, &[0xA5; 2048]);
        // No power cut does that: the page was not written since the redo point, and there is no image of it.
        let old = replace_half(dir, damaged, &[0xA5; 2048]);
        let redo_before = redo(dir);
        let (code, words) = run(dir, &["check"]);
        assert!(code == 1 && words.contains("has no image of it"), "{code} {words}");
        assert_eq!(
            redo(dir),
            redo_before,
            "a recovery that failed is repeated from where it began"
        );
        replace_half(dir, damaged, &old);

        let (after, restored) = check(dir);
        assert_eq!(after["sum"], 0, "round {round}");
        assert!(restored <= 1, "round {round}: {restored}");
        for (account, number) in acknowledged {
            let done = after[&account] - before[&account];
            // At most one was durable and not acknowledged.
            assert!((number..=number + 1).contains(&done), "account {account}: {number}, {done}");
        }
        assert_eq!(run(dir, &["check"]), (0, String::new()), "round {round}");
        before = after;
    }
}

#[test]
fn wrong_usage_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["transfer", "many"]).0, 2);
    let (code, words) = run(dir.path(), &["check"]);
    assert!(code == 1 && words.contains("`create` makes a ledger"), "{words}");
    assert_eq!(run(dir.path(), &["create", "600"]), (0, String::new()));
    let (code, words) = run(dir.path(), &["create", "600"]);
    assert!(code == 1 && words.contains("already"), "{words}");
}
