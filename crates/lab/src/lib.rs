//! The programs behind the `forebay` command: experiments on a real disk, advice for a server, and a live view.
//!
//! How a run of the laboratory goes: [`cli`] turns the command line into plain settings, [`run`] gathers facts,
//! makes a working file, lets the [`experiment`]s measure, and writes the report. What it shares with the other
//! programs is in [`forebay_measure`].
#![forbid(unsafe_code)]

pub mod cli;
pub mod compare;
pub mod device;
pub mod emulate;
pub mod experiment;
pub mod explain;
#[cfg(feature = "object")]
pub mod object;
pub mod on;
pub mod run;

/// The version, with the commit that it was built from.
pub(crate) const VERSION: &str = env!("FOREBAY_VERSION");
