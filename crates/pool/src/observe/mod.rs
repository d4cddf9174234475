//! Counters, wait times, and the reports of checkpoints.

pub(crate) mod checkpoint_report;
pub(crate) mod stats;
