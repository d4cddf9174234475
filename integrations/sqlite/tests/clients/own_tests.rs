//! Python's own tests of sqlite3, with the VFS as the default of the process.
//!
//! Their data is small and mostly in memory, so they run a second time with every in-memory database in a file. They
//! show that the VFS behaves like SQLite's own for a program; look-ahead has little to do in files of a few pages.

use std::path::Path;

use crate::client::{self, Client};

const SCRIPT: &str = include_str!("own_tests.py");

/// The number of tests, the number of connections to files, and the tests that failed.
fn run(python: &Client, library: &Path, where_to: &str) -> Option<(usize, usize, Vec<String>)> {
    let directory = tempfile::tempdir().unwrap();
    let says = python.run(SCRIPT, &[library, directory.path(), Path::new(where_to)]);
    // The package prints its SQLite's version on a separate line.
    let mut lines = says.lines().skip_while(|line| line.starts_with("test_sqlite3:"));
    let counts = lines.next()?;
    let (ran, files) = counts.split_once(' ')?;
    let failed = lines.map(str::to_owned).collect();
    Some((ran.parse().ok()?, files.parse().ok()?, failed))
}

#[test]
fn pythons_own_tests_pass_with_it_as_the_default() {
    let test = "pythons_own_tests";
    let missing = "no python3 with the package test.test_sqlite3";
    let has = ["-c", "import test.test_sqlite3"];
    let programs = ["python3", "/usr/bin/python3"];
    let Some(python) = client::found(test, missing, &programs, &has) else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(python) = python.with_slow_reads(test, directory.path()) else { return };
    for where_to in ["as they are", "files"] {
        let stock = run(&python, Path::new(""), where_to).unwrap();
        let Some(ours) = run(&python, python.library(), where_to) else {
            client::skip(test, "this Python has a built-in SQLite");
            return;
        };
        let (ran, files, failed) = &ours;
        println!("{where_to}: {ran} tests, {files} files, failed with stock as well: {failed:?}");
        assert!(*ran > 200 && *files > if where_to == "files" { 200 } else { 5 }, "{ours:?}");
        assert_eq!(stock, ours, "{where_to}");
        assert!(where_to == "files" || failed.is_empty(), "{failed:?}");
    }
}
