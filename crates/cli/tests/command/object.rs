//! `forebay lab object` on stores that need no server: its measurements, its leftovers, and its errors about invalid
//! addresses and settings.

use std::time::Duration;

use serde_json::Value;

use crate::command::{
    assert_ends_with, assert_refused, entries, forebay, interrupt, output, scratch, spawned,
    started, wait_until,
};
use scripted::{Fate, Server, refused};

#[path = "../../../object/tests/server/scripted.rs"]
#[allow(dead_code, reason = "the tests of tablespaces use all of it")]
mod scripted;

#[test]
fn a_store_in_memory_is_measured_with_a_tablespace_on_it() {
    let scratch = scratch();
    let words = "lab object --url memory:///a --data 64MiB --memory 64MiB --pages 100 --rounds 2 --time 10ms \
                 --in-flight 1,4 --sizes 8KiB,1MiB --latency 1ms --bandwidth 10GB/s --seed 7 --json out.json";
    let args: Vec<&str> = words.split_whitespace().collect();
    let output = output(scratch.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["GET 8KiB", "in flight reach", "scan, read ahead", "to repeat: ", "a request"]
    {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
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
    let stderr = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stderr.contains("cannot hold a tablespace"), "{stderr}");
    assert!(entries(scratch.path()).is_empty());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("other runs"), "{stderr}");

    let child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let is_read = || entries(scratch.path()).iter().any(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", is_read);
    std::thread::sleep(Duration::from_millis(300)); // in the middle of reading
    interrupt(&child);
    assert_ends_with(130, child, "interrupted");
    assert!(entries(scratch.path()).is_empty());
}

#[test]
fn what_a_killed_run_has_left_is_reported_and_removed_on_request() {
    let scratch = scratch();
    let url = format!("file://{}", scratch.path().display());
    let args = ["lab", "object", "--url", &url, "--in-flight", "2", "--sizes", "8KiB"];
    let mut child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let is_read = || entries(scratch.path()).iter().any(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", is_read);
    child.kill().unwrap();
    child.wait().unwrap();
    // These are no run's names, whatever their prefix; and one that the store cannot list.
    let mine = ["forebay-lab-12-3x", "forebay-lab-Ab-3", "forebay-lab-notes", "mine"];
    for name in mine {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        std::fs::write(scratch.path().join(name).join("precious"), "x").unwrap();
    }
    let left = entries(scratch.path()).into_iter().find(|it| !mine.contains(&it.as_str())).unwrap();
    std::fs::write(scratch.path().join(&left).join("begun#1"), "x").unwrap();

    let later = output(scratch.path(), &[&args[..], &["--rounds", "1", "--time", "10ms"]].concat());
    let stderr = String::from_utf8_lossy(&later.stderr);
    assert!(later.status.success() && stderr.contains("of 1 other runs"), "{stderr}");
    assert!(stderr.contains(&format!("forebay lab object --url {url} --clean")), "{stderr}");
    assert!(scratch.path().join(&left).exists(), "another run may be going on");
    let cleaned = output(scratch.path(), &["lab", "object", "--url", &url, "--clean"]);
    let stderr = String::from_utf8_lossy(&cleaned.stderr);
    assert!(
        cleaned.status.success() && stderr.contains("what 1 runs had left is removed"),
        "{stderr}"
    );
    assert!(stderr.contains(&format!("{left} is removed")), "{stderr}");
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
fn what_an_interrupted_run_cannot_remove_is_reported() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = scratch();
    let url = format!("file://{}", scratch.path().display());
    let args = ["lab", "object", "--url", &url, "--in-flight", "2", "--sizes", "8KiB"];
    let child = started(scratch.path(), &[&args[..], &["--time", "60s"]].concat());
    let ours = || entries(scratch.path()).into_iter().find(|it| it.starts_with("forebay-lab-"));
    wait_until("objects", || ours().is_some());
    // Not a valid object name, so that listing the store fails.
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    std::fs::write(scratch.path().join(ours().unwrap()).join(odd), "x").unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("could not be removed") && stderr.contains("--clean"), "{stderr}");
    assert!(stderr.contains("interrupted") && !stderr.contains("nothing is left"), "{stderr}");
}

/// PUTs that the server executes after the client has ended, as it may when it has read all of them.
#[test]
fn a_second_interrupt_leaves_no_object_or_names_it() {
    let scratch = scratch();
    let server = Server::start();
    server.script(|request| match request.method.as_str() {
        "PUT" if !request.key.ends_with("reach") => Fate::DoneAfter(Duration::from_millis(500)),
        _ => Fate::Done,
    });
    let args = ["lab", "object", "--url", "s3://bucket/a", "--parts", "requests", "--seed", "1"];
    let child = spawned(forebay(scratch.path(), &args).envs(server.variables()));
    wait_until("PUTs", || server.under_way() >= 2);
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(50)); // two at once would be one
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let left = server.keys_when_settled();
    assert!(left.iter().all(|it| stderr.contains(it.as_str())), "{left:?}: {stderr}");
    assert!(left.is_empty(), "in time: {left:?}: {stderr}");
}

#[test]
fn objects_that_an_interrupted_run_may_not_delete_are_named() {
    let scratch = scratch();
    let server = Server::start();
    server.script(|request| match request.method.as_str() {
        "DELETE" if !request.key.ends_with("reach") => refused(403, "AccessDenied"),
        _ => Fate::Done,
    });
    let args = ["lab", "object", "--url", "s3://bucket/a", "--parts", "requests", "--time", "60s"];
    let child = spawned(forebay(scratch.path(), &args).envs(server.variables()));
    wait_until("an object", || server.keys_when_settled().len() >= 4);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let left = server.keys_when_settled();
    assert!(left.len() >= 4 && left.iter().all(|it| stderr.contains(it.as_str())), "{stderr}");
    assert!(stderr.contains("AccessDenied") && stderr.contains("--clean"), "{stderr}");
    assert!(!stderr.contains("nothing is left"), "{stderr}");
}

#[test]
fn requests_that_fail_occasionally_end_no_run_and_are_reported() {
    let scratch = scratch();
    let server = Server::start();
    let mut requests = 0;
    server.script(move |_| {
        requests += 1;
        match requests % 10 {
            1 => refused(503, "SlowDown"),
            6 => Fate::DoneUnanswered,
            _ => Fate::Done,
        }
    });
    let words = "lab object --url s3://bucket/a --parts requests --rounds 1 --time 10ms --in-flight 4 --sizes 8KiB";
    let args: Vec<&str> = words.split_whitespace().collect();
    let output = forebay(scratch.path(), &args).envs(server.variables()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stderr.contains("failed and were repeated"), "{stderr}");
    assert_eq!(server.keys_when_settled(), [""; 0]);
}

#[test]
fn a_servers_reason_for_refusing_a_run_is_reported() {
    let scratch = scratch();
    let server = Server::start();
    for (status, code, hint) in [
        (404, "InvalidAccessKeyId", "does not know the bucket or the key"),
        (404, "NoSuchBucket", "does not know the bucket or the key"),
        (403, "AccessDenied", "--help for the variables"),
        (400, "ExpiredToken", "refuses the request"),
    ] {
        server.script(move |_| refused(status, code));
        let args = ["lab", "object", "--url", "s3://bucket/a"];
        let output = forebay(scratch.path(), &args).envs(server.variables()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(hint) && stderr.contains(&format!("{code}: As the")), "{stderr}");
        assert!(!stderr.contains("removed"), "nothing was put: {stderr}");
    }
}

#[test]
fn what_cannot_be_measured_is_reported_with_exit_code_2() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 11] = [
        (&["--url", "bucket"], "s3://bucket/prefix"),
        (&["--url", "s3://bucket/a?x=1"], "ends with its path"),
        (&["--url", "ftp://server/a"], "s3://bucket/prefix"),
        (&["--url", "http://127.0.0.1:1/a"], "cannot be reached"),
        (&["--url", "file:///proc/a"], "/proc/a"),
        (&["--url", "memory:///a", "--latency", "fast"], "20ms,p99=200ms"),
        (&["--url", "memory:///a", "--bandwidth", "1GB"], "1GB/s"),
        (&["--url", "memory:///a", "--sizes", "1GiB"], "from 512 B to 8.0 MiB"),
        (&["--url", "memory:///a", "--in-flight", "0"], "--in-flight"),
        (&["--url", "memory:///a", "--emulate", "nvme"], "without --emulate"),
        (&["--url", "memory:///a", "--json", "no/such/file"], "no directory"),
    ];
    assert_refused(scratch.path(), &["lab", "object"], &cases);
    assert!(entries(scratch.path()).is_empty());
}
