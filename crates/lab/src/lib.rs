//! Experiments on a disk: what it and the kernel do with a storage engine's requests.
//!
//! How a run goes: [`run`] gathers facts, makes a working file, lets the [`experiment`]s measure, and writes the
//! report. The arguments of each command are next to the code that uses them. What this crate shares with the other
//! programs of the `forebay` command is in [`forebay_measure`].
#![forbid(unsafe_code)]

mod args;
pub mod compare;
pub mod device;
pub mod emulate;
pub mod experiment;
pub mod explain;
#[cfg(feature = "object")]
pub mod object;
pub mod on;
mod run;

pub use args::repeated;
pub use compare::CompareArgs;
pub use emulate::EmulateArgs;
pub use explain::ExplainArgs;
pub use run::{LabArgs, Laboratory, run};
