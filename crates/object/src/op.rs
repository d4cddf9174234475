//! The operations on a store.

use std::fmt;

/// An operation on the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads bytes of an object.
    Get,
    /// Puts a new object, or the next manifest.
    Put,
    /// Deletes an object.
    Delete,
    /// Lists the names below a prefix.
    List,
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Op::Get => "reading",
            Op::Put => "putting",
            Op::Delete => "deleting",
            Op::List => "listing",
        })
    }
}
