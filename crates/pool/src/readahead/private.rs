//! Private descriptors: one reader's own view of a file for the kernel's readahead.
//!
//! Readahead state and the RANDOM flag belong to the open file description. Eight scans through one descriptor look to
//! the kernel like random reads; through eight descriptors they are eight sequences, and read about twice as fast
//! (docs/adr/0009-read-streams.md).
//!
//! Failure:     when the system provides no further descriptor, the shared one is used; that costs speed and is logged.
//! Invariants:  [PRV-1] a private descriptor refers to the segment's current file

use std::sync::{Mutex, PoisonError};

use forebay_io::{File, Hint};

use crate::error::Error;
use crate::store::file::FileCore;
use crate::tag::Block;

/// Descriptors of one reader, one for each segment that it has reached.
#[derive(Debug)]
pub(crate) struct Private {
    hint: Hint,
    /// Opened so far, by segment: only the last one used, as readers stay in a segment for long.
    last: Mutex<Option<(usize, File)>>,
}

impl Private {
    pub(crate) fn new(hint: Hint) -> Private {
        Private { hint, last: Mutex::new(None) }
    }

    /// The reader's own descriptor of the segment that holds `block`, and the byte offset there.
    pub(crate) fn place(&self, file: &FileCore, block: Block) -> Result<(File, u64), Error> {
        let (shared, offset) = file.place(block)?;
        let segment = file.segment(block);
        // Each change is one assignment, so a poisoned value is still consistent.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // [PRV-1]: a segment that was truncated and created again is another file.
        if let Some((number, private)) = &*last
            && *number == segment
            && private.is_of(&shared)
        {
            return Ok((private.clone(), offset));
        }
        let private = self.open(&shared);
        *last = Some((segment, private.clone()));
        Ok((private, offset))
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
