//! PostgreSQL servers of a test's own: found, given the extension, started, looked at and removed.
//!
//! The servers of this machine are never changed. A test gets a private copy of an installation (links, and
//! copies of two programs), `make install DESTDIR=…` puts the extension into that copy, and a new cluster runs
//! there, on a socket in a temporary directory. So `LOAD 'forebay'` and `CREATE EXTENSION forebay` find what an
//! administrator's would, and two versions, or two runs, never meet.
//!
//! As root, whose processes PostgreSQL refuses to be, everything runs as the user `postgres`, or as `nobody`.
//!
//! Failure: an [`Error`] with the command's own words. Whatever ends the test, Ctrl-C and SIGKILL too, a watcher
//! process stops the server and removes its directory (`watcher`).

mod error;
mod installation;
mod log;
mod owner;
mod server;
mod session;
pub mod suite;
mod watcher;

pub use error::{Error, Result};
pub use installation::{Extension, Found, Installation, find};
pub use log::{Finding, Mark};
pub use server::{Disk, HintCount, QuickReads, Server, Settings};
pub use session::{Difference, Outcome, Session};
