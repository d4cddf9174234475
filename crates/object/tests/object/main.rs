//! Tablespaces on stores that fail, lag, answer wrongly and lose races.
//!
//! Environment: `FOREBAY_SEED` is the first seed of the simulated runs, `FOREBAY_OBJECT_RUNS` their number.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)] // tests hand over what they are done with

mod basics;
mod crashes;
mod fencing;
mod merging;
mod oracle;
mod pages;
mod requests;
mod shapes;
mod site;
#[allow(dead_code, reason = "the tests of mounts use all of it")]
mod store;
