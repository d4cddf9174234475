//! Where on an emulated disk the files are placed first.

use serde::{Deserialize, Serialize};

/// Which part of the address space files are placed in first. A disk is fastest at its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// From the first byte on.
    Begin,
    /// From the middle on, so that writes to the beginning of `disk` do not touch the files.
    #[default]
    Middle,
    /// In the last sixteenth.
    End,
}

impl Place {
    /// All three variants.
    pub const ALL: [Place; 3] = [Place::Begin, Place::Middle, Place::End];

    /// The name as typed on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Place::Begin => "begin",
            Place::Middle => "middle",
            Place::End => "end",
        }
    }

    pub(super) fn start(self, size_bytes: u64) -> u64 {
        match self {
            Place::Begin => 0,
            Place::Middle => size_bytes / 2,
            Place::End => size_bytes / 16 * 15,
        }
    }
}
