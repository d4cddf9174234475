//! `forebay lab object` on stores that need no server: what it measures, what it leaves, and what it says of addresses and
//! settings that do not do.

use std::time::Duration;

use serde_json::Value;

use crate::command::{
    assert_ends_with, assert_refused, entries, interrupt, output, scratch, started, wait_until,
};

#[test]
fn a_store_in_memory_is_measured_with_a_tablespace_on_it() {
    let scratch = scratch();
    let words = "lab object --url memory:///a --data 64MiB --memory 64MiB --pages 100 --rounds 2 --time 10ms \
                 --in-flight 1,4 --sizes 8KiB,1MiB --latency 1ms --bandwidth 10GB/s --seed 7 --json out.json";
    let args: Vec<&str> = words.split_whitespace().collect();
    let output = output(scratch.path(), &args);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["GET 8KiB", "in flight reach", "scan, read ahead", "to repeat: ", "a request"]
    {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let json = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "forebay-object/1");
    let records = json["records"].as_array().unwrap();
    let of = |part: &str| records.iter().find(|it| it["cell"]["part"] == part).unwrap();
    let [scan, single] = ["scan, read ahead", "scan, page by page"].map(of);
    let requests = |record: &Value| record["metrics"]["requests"].as_f64().unwrap();
    // Each page of the second is a request.
    assert!(requests(scan) < 1000.0 && requests(single) >= 100.0, "{scan} {single}");
    assert_eq!(scan["metrics"]["pages"], 8192.0);
    assert!(scan["metrics"]["bare_bytes_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(of("checkpoint")["metrics"]["pages"], 1024.0);
    assert_eq!(records.iter().filter(|it| it["experiment"] == "object-requests").count(), 6);
}

#[test]
fn a_directory_is_measured_bare_and_left_as_it_was_also_by_an_interrupt() {
    let scratch = scratch();
    let url = format!("file://{}", scratch.path().display());
    let args = ["lab", "object", "--url", &url, "--in-flight", "2", "--sizes", "8KiB"];
    let short = [&args[..], &["--rounds", "1", "--time", "10ms"]].concat();
    let output = output(scratch.path(), &short);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("cannot hold a tablespace"), "{told}");
    assert!(entries(scratch.path()).is_empty());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("other runs"), "{told}");

    let child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let is_read = || entries(scratch.path()).iter().any(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", is_read);
    std::thread::sleep(Duration::from_millis(300)); // in the middle of reading
    interrupt(&child);
    assert_ends_with(130, child, "interrupted");
    assert!(entries(scratch.path()).is_empty());
}

#[test]
fn what_a_killed_run_has_left_is_told_and_removed_on_request() {
    let scratch = scratch();
    let url = format!("file://{}", scratch.path().display());
    let args = ["lab", "object", "--url", &url, "--in-flight", "2", "--sizes", "8KiB"];
    let mut child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let is_read = || entries(scratch.path()).iter().any(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", is_read);
    child.kill().unwrap();
    child.wait().unwrap();
    // No run's names, whatever they begin with; and one that the store cannot list.
    let mine = ["forebay-lab-12-3x", "forebay-lab-Ab-3", "forebay-lab-notes", "mine"];
    for name in mine {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        std::fs::write(scratch.path().join(name).join("precious"), "x").unwrap();
    }
    let left = entries(scratch.path()).into_iter().find(|it| !mine.contains(&it.as_str())).unwrap();
    std::fs::write(scratch.path().join(&left).join("begun#1"), "x").unwrap();

    let later = output(scratch.path(), &[&args[..], &["--rounds", "1", "--time", "10ms"]].concat());
    let told = String::from_utf8_lossy(&later.stderr);
    assert!(later.status.success() && told.contains("of 1 other runs"), "{told}");
    assert!(told.contains(&format!("forebay lab object --url {url} --clean")), "{told}");
    assert!(scratch.path().join(&left).exists(), "another run may be going on");
    let cleaned = output(scratch.path(), &["lab", "object", "--url", &url, "--clean"]);
    let told = String::from_utf8_lossy(&cleaned.stderr);
    assert!(cleaned.status.success() && told.contains("what 1 runs had left is removed"), "{told}");
    assert!(told.contains(&format!("{left} is removed")), "{told}");
    let mut stayed = entries(scratch.path());
    stayed.sort();
    assert_eq!(stayed, mine);
    assert!(mine.iter().all(|it| scratch.path().join(it).join("precious").exists()));

    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
    std::fs::write(scratch.path().join(odd), "x").unwrap();
    let later = output(scratch.path(), &[&args[..], &["--rounds", "1", "--time", "10ms"]].concat());
    assert!(later.status.success(), "{}", String::from_utf8_lossy(&later.stderr));
}

#[test]
fn what_an_interrupted_run_cannot_remove_is_told() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = scratch();
    let url = format!("file://{}", scratch.path().display());
    let args = ["lab", "object", "--url", &url, "--in-flight", "2", "--sizes", "8KiB"];
    let child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let ours = || entries(scratch.path()).into_iter().find(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", || ours().is_some());
    // No name of an object, so that the store fails to list what is there.
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    std::fs::write(scratch.path().join(ours().unwrap()).join(odd), "x").unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("could not be removed") && told.contains("--clean"), "{told}");
    assert!(told.contains("interrupted") && !told.contains("nothing is left"), "{told}");
}

#[test]
fn what_cannot_be_measured_is_told_with_exit_code_2() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 10] = [
        (&["--url", "bucket"], "s3://bucket/prefix"),
        (&["--url", "ftp://server/a"], "s3://bucket/prefix"),
        (&["--url", "http://127.0.0.1:1/a"], "cannot be reached"),
        (&["--url", "file:///proc/a"], "/proc/a"),
        (&["--url", "memory:///a", "--latency", "fast"], "20ms,p99=200ms"),
        (&["--url", "memory:///a", "--bandwidth", "1GB"], "1GB/s"),
        (&["--url", "memory:///a", "--sizes", "1GiB"], "from 512 B to 8.0 MiB"),
        (&["--url", "memory:///a", "--in-flight", "0"], "--in-flight"),
        (&["--url", "memory:///a", "--on", "nvme"], "without --on"),
        (&["--url", "memory:///a", "--json", "no/such/file"], "no directory"),
    ];
    assert_refused(scratch.path(), &["lab", "object"], &cases);
    assert!(entries(scratch.path()).is_empty());
}
