//! Checkpoints: everything that was dirty at one moment, written in the disk's order, at a steady pace.
//!
//! A checkpoint ends what recovery would have to do again: when it has ended, the log before its redo
//! point is not needed any more. It is also the largest burst of writes that a pool makes, so the order
//! and the pace of its writes decide what everybody else feels of it.
//!
//! | module | its one idea |
//! |---|---|
//! | `request_queue` | where checkpoints are asked for, watched and waited for |
//! | `checkpointer` | the thread that carries them out, step by step |
//! | `pages` | what is dirty, noted in memory set aside, and sorted there: pure |
//! | `elevator` | in which order: pure |
//! | `pacer`, `pacing` | when: pure, and what connects it to the pool |
//! | `writer`, `in_flight` | pages taken and copied; requests under way |
//! | `tablespace_state`, `syncs` | a tablespace's part; every file synced once |
//! | `report` | what it is doing, and what it did |

mod checkpointer;
mod elevator;
mod in_flight;
mod pacer;
mod pacing;
mod pages;
mod redo;
mod report;
mod request_queue;
mod syncs;
mod tablespace_state;
mod writer;

pub(crate) use checkpointer::{Checkpointer, Triggers};
pub(crate) use pages::checkpoint_bytes;
pub(crate) use redo::RedoPoint;
pub use report::{CheckpointReport, Phase, Progress, TablespaceReport, Trigger};
pub use request_queue::Checkpoint;
pub(crate) use request_queue::RequestQueue;
