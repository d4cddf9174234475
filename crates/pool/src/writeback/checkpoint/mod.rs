//! Checkpoints: everything that was dirty at one moment, written in the disk's order, at a steady pace.
//!
//! A checkpoint ends what recovery would have to do again: when it has ended, the log before its redo
//! point is not needed any more. It is also the largest burst of writes that a pool makes, so the order
//! and the pace of its writes decide what everybody else feels of it.
//!
//! | module | its one idea |
//! |---|---|
//! | `desk` | where checkpoints are asked for, watched and waited for |
//! | `keeper` | the thread that carries them out, step by step |
//! | `pages` | what is dirty, noted in memory set aside, and sorted there: pure |
//! | `elevator` | in which order: pure |
//! | `pacer`, `pacing` | when: pure, and what connects it to the pool |
//! | `writer`, `flight` | pages taken and copied; requests under way |
//! | `lane`, `syncs` | a tablespace's part; every file synced once |
//! | `report` | what it is doing, and what it did |

mod desk;
mod elevator;
mod flight;
mod keeper;
mod lane;
mod pacer;
mod pacing;
mod pages;
mod redo;
mod report;
mod syncs;
mod writer;

pub use desk::Checkpoint;
pub(crate) use desk::Desk;
pub(crate) use keeper::{Keeper, Triggers};
pub(crate) use pages::checkpoint_bytes;
pub(crate) use redo::RedoPoint;
pub use report::{CheckpointReport, Phase, Progress, TablespaceReport, Trigger};
