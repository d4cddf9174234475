//! Operations of a request.

use std::fmt;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// From file to memory.
    Read,
    /// From memory to file.
    Write,
    /// Make the data of all completed writes durable, with the metadata needed to read it.
    SyncData,
    /// Make data and all metadata durable.
    SyncAll,
}

impl Op {
    /// True for reads and writes, false for syncs.
    pub fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::SyncData => "data sync",
            Op::SyncAll => "sync",
        })
    }
}
