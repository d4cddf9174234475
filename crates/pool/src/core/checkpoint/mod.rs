//! What the pool knows of its checkpoints: those that were requested, their progress and results, the redo point.
//!
//! `writeback::checkpoint` executes them.

mod options;
mod redo;
mod request_queue;

pub use options::{CheckpointOptions, Elevator};
pub(crate) use redo::RedoPoint;
pub use request_queue::Checkpoint;
pub(crate) use request_queue::{Ask, Call, RequestQueue};
