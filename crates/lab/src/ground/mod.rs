//! The ground on which experiments measure: what is put under them, and what is put back.
//!
//! A run may change things outside itself: a device's readahead, a directory on the disk to be
//! measured, a filesystem that is made and mounted for the occasion. Guards in the process undo all
//! of it on every way out that a process has a say in; a [`ledger`] on disk knows of it also when
//! the process had none.

pub mod filesystem;
pub mod ledger;
pub mod on;
mod program;
