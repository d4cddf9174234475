//! The pool over tablespaces on object stores: the pool's own model, and the guarantees of mounts.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)] // tests hand over what they are done with

#[path = "../../../pool/tests/pool/disk.rs"]
#[allow(dead_code, reason = "the pool's own tests use all of it")]
mod disk;
mod edges;
mod faulty;
#[path = "../../../pool/tests/pool/model.rs"]
mod model;
mod mounting;
mod mounts;
#[path = "../object/pages.rs"]
mod pages;
mod place;
#[path = "../../../pool/tests/pool/site.rs"]
#[allow(dead_code, reason = "the pool's own tests use all of it")]
mod site;
#[path = "../object/store.rs"]
#[allow(dead_code, reason = "the tests of the store's faults use all of it")]
mod store;
mod tier;
