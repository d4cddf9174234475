//! The tree as its users see it: against a model, by several threads, after power cuts, on damaged pages.

#![allow(clippy::unwrap_used)]

mod crash;
mod cursors;
mod damage;
mod model;
mod site;
mod threads;
