//! The same over a real S3 server: the guarantees of commits, readers, fencing and mounts; and the example.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)] // tests hand over what they are done with

mod addresses;
#[path = "../../../pool/tests/pool/disk.rs"]
#[allow(dead_code, reason = "the pool's own tests use all of it")]
mod disk;
#[path = "../../examples/tree.rs"]
#[allow(dead_code, reason = "its `main`")]
mod example;
mod gateway;
mod kills;
#[path = "../mounted/mounting.rs"]
mod mounting;
#[path = "../mounted/mounts.rs"]
mod mounts;
mod place;
mod refusals;
#[allow(dead_code, reason = "the tests of the lab use all of it")]
mod scripted;
#[path = "../../../pool/tests/pool/site.rs"]
#[allow(dead_code, reason = "the pool's own tests use all of it")]
mod site;
mod walk;

mod object {
    #[path = "../../object/basics.rs"]
    mod basics;
    #[path = "../../object/fencing.rs"]
    mod fencing;
    #[path = "../../object/oracle.rs"]
    mod oracle;
    #[path = "../../object/pages.rs"]
    pub(crate) mod pages;
    mod site;
    mod store;
}
