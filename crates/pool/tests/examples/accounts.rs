//! The example `accounts`, killed and recovered.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use forebay::Lsn;

use super::accounts_program::{Log, Record};
use super::command;

const PAGE_BYTES: u64 = 4096;

/// Exit code, and standard error.
fn run(dir: &Path, args: &[&str]) -> (i32, String) {
    let (code, _, err) = super::run("accounts", dir, args);
    (code, err)
}

/// The pairs of words in the lines of `check`: what each account has transferred, and the sum.
fn check(dir: &Path) -> (HashMap<String, i64>, u64) {
    let (code, text, err) = super::run("accounts", dir, &["check"]);
    assert_eq!((code, &*err), (0, ""), "{text}");
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
    let mut command = command("accounts", dir, &["transfer", "1000000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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
    let text = std::fs::read_to_string(dir.join("accounts.redo")).unwrap();
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
    let (_, records) = Log::open(dir, redo(dir)).unwrap();
    let mut blocks: HashMap<u32, bool> = HashMap::new();
    for (_, record) in &records {
        if let Record::Transfer { to, .. } = record {
            blocks.entry(to / 510).or_default();
        }
    }
    for (_, record) in &records {
        if let Record::Image { block, .. } = record {
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

/// A crash may lose the extension of a file that was not synced; the log has it.
#[test]
fn an_extension_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let blocks = || std::fs::metadata(dir.join("accounts")).unwrap().len() / PAGE_BYTES;
    assert_eq!(run(dir, &["create", "1000"]), (0, String::new()));
    let (redo, before) = (std::fs::read(dir.join("accounts.redo")).unwrap(), blocks());
    assert_eq!(run(dir, &["grow", "5000"]), (0, String::new()));
    let after = blocks();
    assert_eq!(after, before + 5000_u64.div_ceil(510));
    std::fs::write(dir.join("accounts.redo"), redo).unwrap();
    let file = OpenOptions::new().write(true).open(dir.join("accounts")).unwrap();
    file.set_len(before * PAGE_BYTES).unwrap();
    assert_eq!(check(dir).0["sum"], 0);
    assert_eq!(blocks(), after);
}

#[test]
fn wrong_usage_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["transfer", "many"]).0, 2);
    let (code, words) = run(dir.path(), &["check"]);
    assert!(code == 1 && words.contains("`create` makes accounts"), "{words}");
    assert_eq!(run(dir.path(), &["create", "600"]), (0, String::new()));
    let (code, words) = run(dir.path(), &["create", "600"]);
    assert!(code == 1 && words.contains("already"), "{words}");
}
