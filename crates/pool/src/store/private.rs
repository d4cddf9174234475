//! Private descriptors: one reader's own view of a file for the kernel's readahead.
//!
//! Readahead state and the RANDOM flag belong to the open file description. Eight scans through one descriptor look to
//! the kernel like random reads; through eight descriptors they are eight sequences, and read about twice as fast
//! (docs/adr/0009-read-streams.md).
//!
//! Failure:     when the system provides no further descriptor, the shared one is used; that costs speed and is logged.
//! Invariants:  [PRV-1] a private descriptor refers to the file that the pool has open now

use std::sync::{Mutex, PoisonError};

use forebay_io::{File, Hint};

use crate::store::file::FileCore;
use crate::tag::Block;

/// The descriptor of one reader.
#[derive(Debug)]
pub(crate) struct Private {
    hint: Hint,
    /// Opened when it is first used.
    opened: Mutex<Option<File>>,
}

impl Private {
    pub(crate) fn new(hint: Hint) -> Private {
        Private { hint, opened: Mutex::new(None) }
    }

    /// The reader's own descriptor, and the block's position in the file, in bytes.
    pub(crate) fn place(&self, file: &FileCore, block: Block) -> (File, u64) {
        let (shared, offset) = file.place(block);
        // Each change is one assignment, so a poisoned value is still consistent.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // [PRV-1]: a read-only file that was opened again may be another one.
        let private = match opened.take().filter(|private| private.is_of(&shared)) {
            Some(private) => private,
            None => self.open(&shared),
        };
        *opened = Some(private.clone());
        (private, offset)
    }

    fn open(&self, shared: &File) -> File {
        let opened = match shared.private(self.hint) {
            // No hints on this system; a private descriptor is still useful.
            Err(forebay_io::Error::Unsupported { .. }) => shared.private(Hint::Normal),
            opened => opened,
        };
        opened.unwrap_or_else(|error| {
            tracing::warn!(%error, "no private descriptor for a stream; it shares the file's");
            shared.clone()
        })
    }
}
