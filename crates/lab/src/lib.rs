//! The laboratory behind the `forebay` command: experiments on a real disk, and their report.
//!
//! This crate is the only one of the workspace that prints, reads the clock and looks at the
//! environment; the crates below it receive what they need as arguments.
//!
//! How a run goes: [`cli`] turns the command line into plain settings, [`run`] gathers facts,
//! makes a [`workfile`], lets the [`experiment`]s measure, and writes the [`report`].
#![forbid(unsafe_code)]

// The sample of a report is shared with the integration tests, which name this crate.
#[cfg(test)]
extern crate self as forebay_lab;

/// Shows values by the names that they have in records.
macro_rules! shown_by_name {
    ($($named:ty),+) => {$(
        impl std::fmt::Display for $named {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, out)
            }
        }
    )+};
}

pub mod advise;
pub mod cli;
pub mod compare;
pub mod device;
pub mod device_readahead;
pub mod emulate;
pub mod experiment;
pub mod explain;
pub mod facts;
pub mod ground;
pub mod interrupt;
mod libpq;
pub mod measure;
#[cfg(feature = "object")]
pub mod object;
pub mod output;
mod progress;
pub mod report;
pub mod run;
pub mod statistics;
pub mod units;
pub mod watch;
pub mod workfile;

/// The request cannot be done as given, and the user must change it: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Returns early with a [`BadInput`] that is formatted like `format!`.
#[macro_export]
macro_rules! bad_input {
    ($($message:tt)*) => { return Err($crate::BadInput(format!($($message)*)).into()) };
}
