//! From claims to trials: seeds, skips with reasons, replay commands and a watchdog.
//!
//! A claim that hangs is a failure, but no test can report its own hang: the watchdog names it and ends the process.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use libtest_mimic::{Completion, Failed, Trial};

use crate::bench::{Bench, Cell};

/// Maximum duration of a trial. The slowest needs seconds; this leaves room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const CHILD_PATIENCE: Duration = Duration::from_secs(150);

/// The outcome of a claim that did not panic.
pub(crate) enum Outcome {
    Held,
    /// It cannot be tested here, for this reason.
    Skipped(String),
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Held
    }
}

/// One statement of the contract and the function that tries to refute it.
pub(crate) struct Claim {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&Bench) -> Outcome,
}

/// Turns functions into claims of the same name; they return `()` or [`Outcome`].
macro_rules! claims {
    ($($body:ident),* $(,)?) => {
        vec![$($crate::harness::Claim {
            name: stringify!($body),
            body: |bench| $crate::harness::Outcome::from($body(bench)),
        }),*]
    };
}
pub(crate) use claims;

/// A claim on one backend and cache mode.
pub(crate) fn trial(cell: Cell, claim: Claim) -> Trial {
    let name = format!("{cell}/{}", claim.name);
    named_trial(name, move || match cell.refusal() {
        Some(reason) => Outcome::Skipped(reason),
        None => (claim.body)(&Bench::new(cell, seed())),
    })
}

/// A trial that needs no bench.
pub(crate) fn named_trial(name: String, body: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::ignorable_test(name.clone(), move || {
        let complaint =
            format!("{name} hangs: not done after {PATIENCE:?}; replay with:\n  {}", replay(&name));
        watch(&name, PATIENCE, complaint);
        let ended = catch_unwind(AssertUnwindSafe(body));
        unwatch(&name);
        match ended {
            Ok(Outcome::Held) => Ok(Completion::Completed),
            Ok(Outcome::Skipped(reason)) => {
                note_skip(&name, &reason);
                Ok(Completion::ignored_with(reason))
            }
            Err(panic) => Err(Failed::from(format!(
                "{}\nseed {}; replay with:\n  {}",
                message(&*panic),
                seed(),
                replay(&name)
            ))),
        }
    })
}

/// The seed of this run: from `FOREBAY_SEED`, or a new one.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match env::var("FOREBAY_SEED") {
        Ok(text) => text.parse().expect("FOREBAY_SEED should be a number"),
        Err(_) => fastrand::u64(..),
    })
}

/// The command that runs this trial again with the same random choices.
fn replay(name: &str) -> String {
    let mut command = format!("FOREBAY_SEED={}", seed());
    if let Ok(directory) = env::var("FOREBAY_TEST_DIR") {
        command += &format!(" FOREBAY_TEST_DIR={directory}");
    }
    if cfg!(forebay_portable) {
        command += " RUSTFLAGS='--cfg forebay_portable'";
    }
    command + &format!(" cargo test -p forebay-io --test conformance -- --exact {name}")
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_else(|| "panicked with something that is no text".to_owned())
}

fn note_skip(name: &str, reason: &str) {
    let Some(path) = env::var_os("FOREBAY_SKIPS") else {
        return;
    };
    let line = format!("conformance: {name}: {}\n", reason.replace('\n', " "));
    let appended = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    appended.expect("FOREBAY_SKIPS should name a file that can be written");
}

/// A trial that the watchdog observes: its deadline, and the message if it misses it.
struct Watched {
    until: Instant,
    complaint: String,
}

static RUNNING: Mutex<BTreeMap<String, Watched>> = Mutex::new(BTreeMap::new());

fn watch(name: &str, patience: Duration, complaint: String) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.insert(name.to_owned(), Watched { until: Instant::now() + patience, complaint });
}

fn unwatch(name: &str) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
}

/// Observes this process as the child of a trial; the child's deadline must be the earlier one.
pub(crate) fn watch_child(name: &str) {
    watch(name, CHILD_PATIENCE, format!("{name} hangs: not done after {CHILD_PATIENCE:?}"));
}

/// Starts the thread that ends the process when a trial takes too long.
pub(crate) fn start_watchdog() {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let late = running.values().find(|watched| watched.until < Instant::now());
            if let Some(Watched { complaint, .. }) = late {
                eprintln!("\nconformance: {complaint}");
                process::abort();
            }
        }
    });
}
