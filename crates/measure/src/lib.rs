//! What every program of the `forebay` command builds on: facts about a host and its disks, comparisons of rounds, the
//! undo log, interruption, and reports.
//!
//! Only this crate and the programs above it print, read the clock and look at the environment; the crates below receive
//! what they need as arguments.
#![forbid(unsafe_code)]

/// Shows values by the names that they have in records.
#[macro_export]
macro_rules! shown_by_name {
    ($($named:ty),+) => {$(
        impl std::fmt::Display for $named {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, out)
            }
        }
    )+};
}

pub mod coldness;
pub mod device_readahead;
pub mod facts;
pub mod filesystem;
pub mod interrupt;
mod laboratory;
pub mod lists;
pub mod output;
mod program;
pub mod progress;
pub mod question;
pub mod report;
mod retry;
pub mod shell;
pub mod start;
pub mod statistics;
pub mod tracefs;
pub mod undo_log;
pub mod units;
pub mod workfile;

pub use laboratory::{DiskRun, Laboratory};

/// The request cannot be done as given, and the user must change it: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Returns early with a [`BadInput`] that is formatted like `format!`.
#[macro_export]
macro_rules! bad_input {
    ($($message:tt)*) => { return Err($crate::BadInput(format!($($message)*)).into()) };
}
