//! Tests of the public interface: against a model, with several threads, after power cuts and crashes, on damaged pages.

#![allow(clippy::unwrap_used)]

mod crash;
mod cursors;
mod damage;
mod model;
mod recovery;
mod site;
mod threads;
