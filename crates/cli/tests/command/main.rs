//! The command as its users meet it: in a separate process, its reports in a browser.
#![allow(clippy::unwrap_used)]

mod checkpoint;
mod cli;
mod command;
mod compare;
mod comparisons;
mod device;
mod emulate;
mod environment;
mod explain;
#[cfg(feature = "object")]
mod object;
mod on;
mod page;
mod readahead;
mod skip;
mod watch;
