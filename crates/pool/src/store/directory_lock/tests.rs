//! The guarantees of the directory lock, to this process and to others.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;

/// Names the directory to lock in a test that runs as a child.
const CHILD: &str = "FOREBAY_TEST_LOCK_DIRECTORY";

/// The child's message when it has the lock.
const HELD: &str = "the child holds the lock";

fn in_use(taken: Result<DirectoryLock, Error>) -> String {
    match taken {
        Err(Error::InUse { holder, .. }) => holder,
        other => panic!("[DIR-1] it is in use, but {other:?}"),
    }
}

fn text_in(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(NAME)).unwrap()
}

/// Runs the test called `name` of this module in a separate process, until it holds the lock.
fn start_child(name: &str, directory: &Path) -> Child {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &format!("{module}::{name}")])
        .env(CHILD, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let held = said.lines().map_while(Result::ok).any(|line| line.contains(HELD));
    if !held {
        let ended = child.wait();
        panic!("the child did not get the lock: {ended:?}");
    }
    child
}

/// Holds the lock until killed, if this process was started for that.
fn hold_if_child() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let _lock = DirectoryLock::take(&PathBuf::from(directory)).unwrap();
        println!("{HELD}");
        // Ends with the parent, if that is killed first.
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(1);
    }
}

/// Reports that `test` could not run, and why.
fn skip(test: &str, reason: &str) {
    println!("skipped: {reason}");
    if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(skips).unwrap();
        // One write, so that tests that skip at the same time do not mix their lines.
        file.write_all(format!("pool: {test}: {reason}\n").as_bytes()).unwrap();
    }
}

#[test]
fn dir_1_a_second_lock_in_the_same_process_is_refused_with_the_name_of_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let _lock = DirectoryLock::take(directory.path()).unwrap();
    let taken = DirectoryLock::take(directory.path());
    let error = taken.as_ref().unwrap_err().to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
    let holder = in_use(taken);
    assert!(holder.starts_with(&format!("pid {}", std::process::id())), "{holder}");
    if cfg!(target_os = "linux") {
        let program = std::env::current_exe().unwrap();
        assert!(holder.ends_with(&program.display().to_string()), "{holder}");
    }
}

#[test]
fn dir_1_another_path_to_the_directory_is_the_same_directory() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, link) = (parent.path().join("directory"), parent.path().join("link"));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let _lock = DirectoryLock::take(&directory).unwrap();
    in_use(DirectoryLock::take(&link));
}

#[test]
fn dir_1_of_many_threads_at_once_one_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let start = std::sync::Barrier::new(8);
        let try_once = || {
            start.wait();
            DirectoryLock::take(directory.path())
        };
        let taken: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(try_once)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1, "[DIR-1]");
        taken.into_iter().filter(Result::is_err).for_each(|taken| drop(in_use(taken)));
    }
}

#[test]
fn it_is_free_again_once_dropped_and_the_file_stays_empty() {
    let directory = tempfile::tempdir().unwrap();
    drop(DirectoryLock::take(directory.path()).unwrap());
    assert_eq!(text_in(directory.path()), "", "a released lock names no process");
    DirectoryLock::take(directory.path()).unwrap();
}

#[test]
fn it_is_free_once_dropped_although_a_copy_of_the_descriptor_lives() {
    // As a child between fork and exec does.
    let directory = tempfile::tempdir().unwrap();
    let lock = DirectoryLock::take(directory.path()).unwrap();
    let _copy = lock.file.try_clone().unwrap();
    drop(lock);
    DirectoryLock::take(directory.path()).unwrap();
}

#[test]
fn dir_2_a_refused_attempt_leaves_the_holders_text() {
    let directory = tempfile::tempdir().unwrap();
    let _lock = DirectoryLock::take(directory.path()).unwrap();
    std::fs::write(directory.path().join(NAME), "a holder\n").unwrap();
    assert_eq!(in_use(DirectoryLock::take(directory.path())), "a holder");
    assert_eq!(text_in(directory.path()), "a holder\n", "[DIR-2]");
}

#[test]
fn a_holder_without_a_name_or_with_a_strange_one_is_reported_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let _lock = DirectoryLock::take(directory.path()).unwrap();
    let long = vec![b'x'; 1 << 20];
    let limit = usize::try_from(HOLDER_BYTES_MAX).unwrap();
    let texts: [(&[u8], String); 3] = [
        (b"", "it left no name".to_owned()),
        (b" pid 1,\x1b[2J \xff\nmore", "pid 1,[2J \u{fffd}more".to_owned()),
        (&long, "x".repeat(limit)),
    ];
    for (text, expected) in texts {
        std::fs::write(directory.path().join(NAME), text).unwrap();
        assert_eq!(in_use(DirectoryLock::take(directory.path())), expected);
    }
}

#[test]
fn a_longer_text_left_by_a_killed_holder_is_replaced_whole() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(NAME), "x".repeat(5000)).unwrap();
    let _lock = DirectoryLock::take(directory.path()).unwrap();
    assert!(!text_in(directory.path()).contains("xxx"));
}

#[test]
fn dir_1_a_lock_of_another_process_holds_until_that_is_killed() {
    hold_if_child();
    let directory = tempfile::tempdir().unwrap();
    let name = "dir_1_a_lock_of_another_process_holds_until_that_is_killed";
    let mut child = start_child(name, directory.path());
    let holder = in_use(DirectoryLock::take(directory.path()));
    assert!(holder.starts_with(&format!("pid {}", child.id())), "[DIR-1] {holder}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(text_in(directory.path()).starts_with("pid "), "its text is still there");
    DirectoryLock::take(directory.path()).unwrap();
}

#[test]
fn a_directory_that_is_missing_is_an_error_that_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = DirectoryLock::take(&missing).unwrap_err();
    let Error::Io(forebay_io::Error::Open { file, source }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(**file, missing.join(NAME));
    assert_eq!(source.raw(), Errno::NOENT.raw_os_error());
    assert!(error.to_string().contains("check the path"), "{error}");
}

#[test]
fn a_directory_that_may_not_be_written_is_an_error_that_says_so() {
    if rustix::process::geteuid().is_root() {
        let test = "a_directory_that_may_not_be_written_is_an_error_that_says_so";
        return skip(test, "root may write everywhere");
    }
    let directory = tempfile::tempdir().unwrap();
    let permit = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), permissions).unwrap();
    };
    permit(0o555);
    let error = DirectoryLock::take(directory.path()).unwrap_err();
    permit(0o755);
    let refused =
        matches!(&error, Error::Io(forebay_io::Error::Open { source: OsError::EACCES, .. }));
    assert!(refused, "{error:?}");
    assert!(error.to_string().contains("check the owner and mode"), "{error}");
}
