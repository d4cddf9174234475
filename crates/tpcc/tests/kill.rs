//! A run that is killed loses nothing that it has reported.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forebay_tpcc::{Done, Store, contains};

/// FOREBAY_TPCC_KILLS: how often it is killed.
fn kills() -> u32 {
    std::env::var("FOREBAY_TPCC_KILLS").map_or(2, |kills| kills.parse().unwrap())
}

fn program(directory: &Path, args: &[&str]) -> Command {
    // Read here, as compilers behind a shell do not get a variable of that name.
    let program = std::env::var_os("CARGO_BIN_EXE_forebay-tpcc").expect("cargo names the program");
    let mut command = Command::new(program);
    command.arg(args[0]).arg(directory).args(&args[1..]).stderr(Stdio::null());
    command
}

/// Kills it after it has reported some transactions, and returns all that it has reported.
fn killed(mut child: Child, after: usize) -> Vec<Done> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reported = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<u32> = words[1..].iter().map_while(|word| word.parse().ok()).collect();
        match (words[0], numbers[..].try_into(), numbers[..].try_into()) {
            ("order", Ok(order), _) => reported.push(Done::Order(order)),
            ("payment", _, Ok(payment)) => reported.push(Done::Payment(payment)),
            // The last line may be torn.
            _ => {}
        }
        if reported.len() == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    reported
}

#[test]
fn what_is_durable_is_found_after_a_kill() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = directory.path();
    assert!(
        program(directory, &["load", "--warehouses", "1", "--memory", "64MiB"])
            .status()
            .unwrap()
            .success()
    );
    let mut random = fastrand::Rng::with_seed(35);
    for kill in 0..kills() {
        // Little memory, so that pages are written all the time; a checkpoint now and then.
        let run = [
            "run",
            "--log",
            "--acknowledge",
            "--memory",
            "8MiB",
            "--checkpoint-log",
            "4MiB",
            "--seconds",
            "600",
        ];
        let child = program(directory, &run).stdout(Stdio::piped()).spawn().unwrap();
        let reported = killed(child, random.usize(100..4000));
        let store = Store::open(directory, 32 << 20, Some(u64::MAX)).unwrap();
        for tree in store.trees() {
            tree.check().unwrap();
        }
        for &done in &reported {
            assert!(contains(store.trees(), done).unwrap(), "kill {kill}: {done:?} was durable");
        }
        store.close().unwrap();
    }
}
