//! The laboratory behind the `forebay` command.
//!
//! This crate is the only one of the workspace that prints, reads the clock and looks at the
//! environment; the crates below it are handed what they need.
#![forbid(unsafe_code)]

pub mod facts;
pub mod report;
