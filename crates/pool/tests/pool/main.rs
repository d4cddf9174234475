//! Tests of the pool's public interface, on disks that fail, fill up and block.
//!
//! Environment: `FOREBAY_SEED` and `FOREBAY_SOAK_SECONDS` are for [`soak`]; skips are appended to
//! the file that `FOREBAY_SKIPS` names.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)] // tests hand over what they are done with

mod attached;
mod backends;
mod backups;
mod bookkeeping;
mod checkpoints;
#[path = "../engine/cipher.rs"]
mod cipher;
mod cleaning;
mod codecs;
mod corners;
mod corruption;
mod crowds;
mod decisions;
mod disk;
mod endings;
mod eviction;
mod failed_reads;
mod failed_syncs;
mod failed_writes;
mod file_stats;
mod futures;
mod latches;
mod lengths;
mod log;
mod memory;
mod model;
mod names;
mod optimistic;
mod pages;
mod place;
mod resizing;
mod rings;
mod settings;
mod shortened;
mod site;
mod soak;
mod streams;
mod torn;
mod without_waiting;
