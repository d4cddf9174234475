//! The example `kv`.

use std::collections::BTreeMap;
use std::path::Path;

use super::run;

const KEYS: usize = 6000;

fn kv(dir: &Path, args: &[&str]) -> (i32, String, String) {
    run("kv", dir, args)
}

/// Runs a command that must succeed; returns its output.
fn good(dir: &Path, args: &[&str]) -> String {
    let (code, out, err) = kv(dir, args);
    assert_eq!((code, &*err), (0, ""), "{args:?}");
    out
}

/// Runs a command that must fail; returns its error message, which must be one sentence.
fn bad(dir: &Path, args: &[&str]) -> String {
    let (code, out, err) = kv(dir, args);
    assert_eq!((code, &*out), (1, ""), "{args:?}: {err}");
    let said = err.strip_prefix("kv: ").and_then(|said| said.strip_suffix('\n'));
    said.filter(|said| !said.contains('\n')).unwrap_or_else(|| panic!("{err}")).to_owned()
}

fn list(dir: &Path) -> BTreeMap<String, String> {
    let out = good(dir, &["list"]);
    let pairs: Vec<_> = out.lines().map(|line| line.split_once('\t').unwrap()).collect();
    let map: BTreeMap<_, _> =
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    assert_eq!(map.len(), pairs.len(), "a key is listed twice");
    map
}

#[test]
fn what_one_process_sets_the_next_one_gets() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    assert_eq!(good(dir, &["set", "apple", "red"]), "");
    assert_eq!(good(dir, &["set", "plum", "blue and a longer value"]), "");
    assert_eq!(good(dir, &["get", "apple"]), "red\n");
    assert_eq!(good(dir, &["set", "apple", "green"]), "");
    assert_eq!(good(dir, &["get", "apple"]), "green\n");
    assert_eq!(good(dir, &["set", "", ""]), "");
    let listed = list(dir);
    let expected = [("", ""), ("apple", "green"), ("plum", "blue and a longer value")];
    assert!(listed.iter().map(|(key, value)| (&**key, &**value)).eq(expected), "{listed:?}");
    assert_eq!(good(dir, &["del", "apple"]), "");
    assert!(bad(dir, &["get", "apple"]).starts_with("there is no key `apple`"));
    assert!(bad(dir, &["del", "apple"]).starts_with("there is no key `apple`"));
    assert_eq!(good(dir, &["get", "plum"]), "blue and a longer value\n");
    assert!(good(dir, &["stats"]).starts_with("2 keys, "));
}

#[test]
fn data_larger_than_the_pool_is_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let before = [("kept", "as it was"), ("bench-00000007", "overwritten")];
    before.iter().for_each(|(key, value)| drop(good(dir, &["set", key, value])));
    // Twice: the second time each key has an old value to replace.
    for _ in 0..2 {
        let printed = good(dir, &["bench", &KEYS.to_string()]);
        assert!(printed.contains(&format!("got {KEYS} keys")), "{printed}");
    }
    let file_bytes = std::fs::metadata(dir.join("kv")).unwrap().len();
    assert!(file_bytes > 2 * (256 << 10), "the file fits the pool: {file_bytes} bytes");
    let listed = list(dir);
    assert_eq!(listed.len(), KEYS + 1);
    assert_eq!(listed["kept"], "as it was");
    for n in 0..KEYS {
        assert_eq!(listed[&format!("bench-{n:08}")], format!("{n:->80}"));
    }
    let last = format!("bench-{:08}", KEYS - 1);
    assert_eq!(good(dir, &["get", &last]), format!("{:->80}\n", KEYS - 1));
    assert_eq!(good(dir, &["del", &last]), "");
    assert_eq!(list(dir).len(), KEYS);
}

#[test]
fn a_byte_that_changed_on_disk_is_an_error_that_names_the_block() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    good(dir, &["set", "apple", "a value that is easily found"]);
    good(dir, &["bench", "200"]);
    let path = dir.join("kv");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(12).position(|bytes| bytes == b"easily found").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let corrupt = format!("block {} of {} is corrupt", at / 4096, path.display());
    for args in [&["get", "apple"][..], &["set", "apple", "red"], &["list"], &["stats"]] {
        let (code, _, err) = kv(dir, args);
        assert_eq!(code, 1, "{args:?}: {err}");
        assert!(err.starts_with(&format!("kv: {corrupt}")), "{args:?}: {err}");
    }
    // The other keys are unaffected, and the damaged page is left for inspection.
    let fine = (0..200).filter(|n| kv(dir, &["get", &format!("bench-{n:08}")]).0 == 0).take(3);
    assert_eq!(fine.count(), 3);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn wrong_use_gets_a_usage_message() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("none");
    for args in [&[][..], &["get"], &["set", "key"], &["frob"], &["bench", "many"]] {
        let (code, out, err) = kv(&dir, args);
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(err.starts_with("usage: kv "), "{err}");
    }
    assert!(!dir.exists());
}

#[test]
fn what_cannot_be_done_is_reported_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    assert!(bad(dir, &["get", "apple"]).contains("there is no store in"));
    assert!(bad(dir, &["set", "key", &"x".repeat(5000)]).contains("4078 is the most"));
    std::fs::write(dir.join("kv"), "not whole pages").unwrap();
    assert!(bad(dir, &["get", "apple"]).contains("has 15 bytes"));
    std::fs::write(dir.join("kv"), [0; 8192]).unwrap();
    assert!(bad(dir, &["get", "apple"]).contains("is not a file of kv's"));
    let file = dir.join("a file");
    std::fs::write(&file, "").unwrap();
    assert!(bad(&file, &["set", "apple", "red"]).starts_with("cannot make the directory"));
}

#[test]
fn a_store_in_use_says_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    good(dir, &["set", "apple", "red"]);
    let builder = forebay::BufferPool::builder().frames(8).checksum(forebay::Checksum::Off);
    let builder = builder.torn_pages(forebay::TornPages::Unprotected);
    let pool = builder.directory(dir).build().unwrap();
    let said = bad(dir, &["get", "apple"]);
    assert!(said.contains(&format!("pid {}", std::process::id())), "{said}");
    pool.close().unwrap();
    assert_eq!(good(dir, &["get", "apple"]), "red\n");
}
