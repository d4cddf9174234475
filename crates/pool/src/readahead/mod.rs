//! Look-ahead: pages asked for before anybody wants them, in few large requests.
//!
//! What a read stream and pages that are prefetched (`prefetch`: by name, or by `detect`) have in common: *how*
//! requests are made and taken in (`submit`, `complete`), through which descriptors (`private`), within which share
//! of the pool (`budget`). Which requests, [`forebay_lookahead`] says.
//!
//! A page that is read ahead is mapped in the page table as loading from the moment its read is about
//! to be submitted, so a thread that asks for it joins that read. When the read ends, the page becomes
//! resident on whichever thread noticed; nobody needs to have waited for it.

mod budget;
mod complete;
mod detect;
mod prefetch;
mod private;
pub(crate) mod stream;
mod submit;

pub(crate) use budget::{Budget, Share};
pub(crate) use complete::{Told, Watch};
pub(crate) use private::Private;
pub(crate) use submit::{Ahead, Submitted, requests};
