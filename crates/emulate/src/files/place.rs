//! Where on an emulated disk its files begin.

use serde::{Deserialize, Serialize};

/// Which part of the address space files are placed in first. A disk is fastest at its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// From the first byte on.
    Begin,
    /// From the middle on, so that what is written to the beginning of `disk` is not in the way.
    #[default]
    Middle,
    /// In the last sixteenth.
    End,
}

impl Place {
    /// The three there are.
    pub const ALL: [Place; 3] = [Place::Begin, Place::Middle, Place::End];

    /// As it is typed.
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
