//! Disks one does not have: timing models of devices, and a filesystem that takes as long as they would.
//!
//! A [`model`] is pure logic: told of a command and of the time, it says when that command ends. It
//! knows no data, no clock and no thread, so that it can be tested by property, and an hour of a disk can
//! be computed in a second. A [`profile`] says in a few lines of text which model with which figures.
//!
//! Around a model stand a [`store`] for the bytes, a clockwork that lets it run by a real clock, a [`log`]
//! of requests, and, on Linux, [`serve`]: a FUSE filesystem by which the real kernel meets it.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod clockwork;
mod files;
pub mod log;
pub mod model;
pub mod profile;
pub mod serve;
pub mod store;

pub use clockwork::{Counters, Summary};
pub use files::Place;
