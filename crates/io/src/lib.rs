//! Asynchronous file I/O for storage engines, under one contract.
//!
//! A storage engine reads bytes into its own memory and is notified when they have arrived. The result must be the
//! same whether io_uring, Linux AIO, a pool of threads or plain `preadv` does the work. This crate defines that
//! contract:
//!
//! - A [`Request`] names a [`File`], a byte offset and a list of memory [`Lease`]s, and *owns* the
//!   leases until the transfer has ended. Dropping its [`Ticket`] never frees memory that
//!   the kernel may still write to.
//! - [`Io`] is the shared part: it checks alignment, holds back submitters when the queue is full, continues short
//!   transfers, retries transient errors, and turns the kernel's error numbers into an [`Error`] that says what to do.
//! - A [`Backend`](backend::Backend) is the part that differs. Its documentation is the contract; one conformance
//!   suite checks all backends against it.
//! - [`Io::open`] tries the backends from the best down. Its [`Report`](backend::Report) records which one is used
//!   and why each better one is not.
//!
//! ```
//! use forebay_io::{Arena, File, Io, IoOptions, OpenOptions, Request};
//!
//! # fn main() -> Result<(), forebay_io::Error> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let path = directory.path().join("example");
//! let io = Io::open(&IoOptions::default())?;
//! let file = File::open(&path, &OpenOptions::new().create(true))?;
//! let arena = Arena::new(16, 8192)?;
//!
//! let mut page = arena.take().expect("16 slots are free");
//! page.fill(7);
//! io.submit(Request::write(&file, 0, vec![page])).wait().into_result()?;
//! file.sync_data()?;
//!
//! // Ask early, look later: the read is under way while the caller does something else.
//! let ticket = io.submit(Request::read(&file, 0, arena.take().into_iter().collect()));
//! let pages = ticket.wait().into_result()?;
//! assert!(pages[0].iter().all(|&byte| byte == 7));
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows nothing of pages, logs or transactions; it prints nothing and reads no clock.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
pub mod backend;
mod batch;
#[cfg(forebay_bug)]
pub mod bug;
mod completion;
mod error;
mod file;
mod io;
mod kind;
mod memory;
mod op;
mod options;
mod os_error;
mod owner;
mod properties;
mod request;
mod shared;
mod sys;
mod ticket;
mod volume;
mod waiters;

pub use answer::{Completed, Then};
pub use batch::Batch;
pub use error::{Action, Error, NameOp, Part};
pub use file::{Change, DirectFiles, File, Interpose, OpenOptions, Volume, sync_directory};
pub use io::{Booked, Io, IoStats};
pub use kind::Kind;
pub use memory::{Arena, Lease, Lender, Mapping};
pub use op::Op;
pub use options::{IoOptions, Prefer};
pub use os_error::OsError;
pub use owner::Owner;
pub use properties::{
    Advice, Alignment, AlignmentSource, AtomicWrite, CacheMode, Hint, Preallocate, Residency,
    ThroughCache,
};
pub use request::Request;
pub use sys::survive_file_size_limit;
pub use ticket::Ticket;

/// The result of all fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
