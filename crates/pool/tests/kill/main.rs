//! A writer that is killed at any moment, on a real filesystem, loses nothing that it acknowledged.
//!
//! A child process runs the reference engine (`tests/engine`): several workers, continuous checkpoints, a pool that is
//! too small. Through a pipe it reports what each worker is about to do and what was acknowledged. The parent kills it,
//! with SIGKILL, at a moment derived from a seed: during its work, or during its recovery from the last kill. Then the
//! parent recovers the database and checks it with the oracle. The contents of the kernel's page cache survive; power
//! cuts are the subject of another suite.
//!
//! Environment: `FOREBAY_KILL_ROUNDS` is the total number of kills (default: 40), `FOREBAY_KILL_SEED` seeds the
//! choices; skips are appended to the file that `FOREBAY_SKIPS` names.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod child;
#[path = "../engine/mod.rs"]
#[allow(dead_code, reason = "other suites use the rest of it")]
mod engine;
mod pipe;
mod rounds;

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use engine::Settings;
use forebay::TornPages;
use forebay_io::CacheMode;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// A configuration of the pool with which writers are killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    cache: CacheMode,
    pub(crate) torn: TornPages,
    /// No checkpoints are requested: they start automatically.
    pub(crate) automatic: bool,
}

const PLAIN: Variant = Variant {
    name: "buffered",
    cache: CacheMode::Buffered,
    torn: TornPages::Unprotected,
    automatic: false,
};

const VARIANTS: [Variant; 6] = [
    PLAIN,
    Variant { name: "direct", cache: CacheMode::Direct, ..PLAIN },
    Variant { name: "automatic", automatic: true, ..PLAIN },
    Variant { name: "images", torn: TornPages::Images, ..PLAIN },
    Variant { name: "double_write", torn: TornPages::DoubleWrite, ..PLAIN },
    Variant { name: "atomic", cache: CacheMode::Direct, torn: TornPages::Atomic, ..PLAIN },
];

impl Variant {
    pub(crate) fn settings(&self, root: &Path) -> Settings {
        Settings {
            cache: self.cache,
            torn: self.torn,
            checkpoint_every: self.automatic.then_some(Duration::from_millis(15)),
            checkpoint_log: self.automatic.then_some(16 << 10),
            // Automatic checkpoints start at opening: not before recovery is over.
            checkpoint_at_open: self.automatic,
            frames: 40,
            dawdle: Duration::from_millis(3),
            ..Settings::new(root)
        }
    }

    pub(crate) fn needs_direct(&self) -> bool {
        self.cache == CacheMode::Direct
    }

    pub(crate) fn named(name: &str) -> Variant {
        VARIANTS.into_iter().find(|it| it.name == name).expect("a variant of that name")
    }
}

fn main() -> ExitCode {
    if let Some(code) = child::run_if_child() {
        return code;
    }
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number("FOREBAY_KILL_ROUNDS").unwrap_or(40);
    let seed = number("FOREBAY_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let rounds_each = rounds.div_ceil(VARIANTS.len() as u64);
    let trials = VARIANTS.map(|variant| {
        let name = format!("{}/what_was_acknowledged_survives_kill_9", variant.name);
        let replay = format!(
            "FOREBAY_KILL_SEED={seed} FOREBAY_KILL_ROUNDS={rounds} cargo test -p forebay --test kill {name}"
        );
        Trial::ignorable_test(name.clone(), move || {
            match rounds::run(variant, rounds_each, seed) {
                Ok(rounds::Outcome::Held(said)) => {
                    eprintln!("{}: {said}", variant.name);
                    Ok(Completion::Completed)
                }
                Ok(rounds::Outcome::Skipped(reason)) => {
                    note_skip(&name, &reason);
                    Ok(Completion::ignored_with(reason))
                }
                Err(broken) => Err(Failed::from(format!("{broken}\nreplay with:\n  {replay}"))),
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn note_skip(name: &str, reason: &str) {
    let Some(path) = env::var_os("FOREBAY_SKIPS") else {
        return;
    };
    let line = format!("kill: {name}: {}\n", reason.replace('\n', " "));
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("FOREBAY_SKIPS should name a file that can be written");
}
