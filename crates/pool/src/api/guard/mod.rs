//! Guards: holds on pages, as types.
//!
//! [`Pin`] keeps a page in its frame; [`PageRef`] also keeps its contents from changing; [`PageMut`] lets its owner
//! change them; [`Optimistic`] holds nothing and detects changes.

mod optimistic;
mod page;

pub use optimistic::Optimistic;
pub use page::{PageMut, PageRef, Pin, TryUpgrade, Upgrade};
