//! Look-ahead: pages asked for before anybody wants them, in few large requests.
//!
//! What a read stream and the detection of sequences have in common: *how* requests
//! are made and taken in (`depart`, `land`), through which descriptors (`private`), within which share of
//! the pool (`budget`). Which requests, [`forebay_lookahead`] says.
//!
//! A page that is read ahead is listed in the page table as loading from the moment its read is about
//! to be submitted, so whoever asks for it joins that read. When the read ends, the page becomes
//! resident on whichever thread noticed; nobody needs to have waited for it.

mod budget;
mod depart;
mod follow;
mod land;
mod private;
mod tracing;

pub(crate) use budget::{Budget, Share};
pub(crate) use depart::{Ahead, Departed};
pub(crate) use land::Watch;
pub(crate) use private::Private;
pub(crate) use tracing::Tracing;
