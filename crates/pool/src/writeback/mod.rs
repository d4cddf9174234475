//! Writeback: dirty pages to disk.
//!
//! A page is written from a *copy*, made in a write buffer under the shared latch, with its checksum added there. So a
//! latch is held for the time of a copy and never across I/O, and a page may change again while its copy is being
//! written: it is then dirty again.
//!
//! The order for each page is: latch shared, copy, clear the dirty flag, unlatch; flush the log up to the copy's LSN;
//! write. If the log or the write fails, the page is dirty again, and it never left its frame (WRITING keeps it).
//!
//! Rejected:    writing directly from the frame, as InnoDB and PostgreSQL do: it saves one copy (a few percent of a
//!              core at 1 GB/s) but makes every thread that wants to change the page wait for the disk. See
//!              docs/adr/0007-write-from-a-copy.md.

pub(crate) mod checkpoint;
mod cleaner;
mod resize;
mod write;

pub(crate) use cleaner::Cleaner;
pub(crate) use write::Copying;
