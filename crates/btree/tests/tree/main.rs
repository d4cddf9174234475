//! Tests of the tree's public interface: against a model, with several threads, after power cuts, on damaged pages.

#![allow(clippy::unwrap_used)]

mod crash;
mod cursors;
mod damage;
mod model;
mod site;
mod threads;
