//! Checkpoints: all pages that were dirty at one moment, written in the disk's order, at a steady pace.
//!
//! A checkpoint bounds the work of recovery: when it has ended, the log before its redo point is no longer needed. It
//! is also the largest burst of writes that a pool makes, so the order and the pace of its writes determine how much it
//! disturbs other users.
//!
//! | module | purpose |
//! |---|---|
//! | `checkpointer` | the thread that performs them, step by step |
//! | `pages` | the dirty pages, recorded in reserved memory, and sorted there: pure |
//! | `elevator` | the order of writes: pure |
//! | `pacer`, `pacing` | the times of writes: pure, and its connection to the pool |
//! | `writer`, `in_flight` | pages taken and copied; requests in progress |
//! | `tablespace_state`, `syncs` | the state of one tablespace; every file synced once |

mod checkpointer;
mod elevator;
mod in_flight;
mod pacer;
mod pacing;
mod pages;
mod syncs;
mod tablespace_state;
mod writer;

pub(crate) use checkpointer::{Checkpointer, Triggers};
pub(crate) use pages::checkpoint_bytes;
