//! The reference engine on its own: its log, its recovery and its oracle.

#![allow(clippy::unwrap_used)]

#[path = "mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "other suites use the rest of it")]
mod engine;

mod backup_tests;
mod log_tests;
mod oracle_tests;
mod recovery_tests;
