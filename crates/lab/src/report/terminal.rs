//! Terminal: the tables that end a run.
//!
//! A narrower terminal loses columns, least telling first.
//!
//! Invariants:  [TER-1] no line is wider than `width` (of at least [`WIDTH_MIN`])
//!              [TER-2] without colour there is no escape, with `ascii` no other character

mod activation;
mod checkpoint;
mod grid;
mod interplay;
mod mixture;
mod readahead;
mod strategies;
pub(crate) mod text;

pub use activation::activation_table;
pub use checkpoint::checkpoint_table;
pub use interplay::interplay_table;
pub use mixture::mixture_table;
pub use readahead::readahead_table;
pub use strategies::strategies_table;

/// Columns of text below which a table of numbers is not worth drawing.
pub const WIDTH_MIN: usize = 30;

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal; fewer than [`WIDTH_MIN`] are taken as that.
    pub width: usize,
    /// True when escapes for colour and weight may be written.
    pub colour: bool,
    /// True when only ASCII may be written: bars of `#`, `us` for µs.
    pub ascii: bool,
}
