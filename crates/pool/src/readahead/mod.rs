//! Look-ahead: pages requested before they are needed, in few large requests.
//!
//! This module has the common part of read streams (`api::stream`), prefetches (`prefetch`: by name, or by `detect`) and
//! page requests of tasks (`acquire`): *how* requests are made and completed (`submit`, `complete`).
//! [`forebay_lookahead`] decides which requests.
//!
//! A page that is read ahead is mapped in the page table as loading from the moment its read is about to be submitted,
//! so a thread that requests it joins that read. When the read ends, the page becomes resident on whichever thread sees
//! the completion; no thread needs to have waited for it.

mod acquire;
mod complete;
mod detect;
mod prefetch;
mod submit;
pub(crate) mod trace;

pub(crate) use acquire::{Acquire, How};
pub(crate) use complete::{Notify, Watch};
pub(crate) use submit::{Ahead, Submitted, requests};
