//! A buffer manager for storage engines. (In the making.)
#![forbid(unsafe_code)]

mod clock;
mod error;
mod tag;

pub use clock::{Clock, SystemClock};
pub use error::{Error, Fate};
pub use tag::{Block, FileId, Lsn, PageTag};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
