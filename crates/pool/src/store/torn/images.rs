//! Images: each page is logged once completely, before its first write after a redo point.
//!
//! Recovery starts at a redo point. Every page written in place since then may be torn, and each of them has an image
//! in the log after the redo point; so the engine's recovery can restore it from there. Pages that are not written have
//! none: a page that changes a hundred times between two checkpoints, or is dropped before it is written, costs one
//! image or none.
//!
//! Whether a page has had its image since the redo point is recorded for each page of an open file, in memory or not: a
//! bit next to its entry in the page table, with the number of the redo point that it refers to.
//!
//! Invariants:  [IMG-1] a page is written in place only after an image of it is durable in the log that is newer than
//!              the redo point of the newest completed checkpoint, and that contains every change before it
//!              [IMG-2] no page's image is recorded before the log is durable up to it
//! Concurrency: any thread; one at a time for each page, which WRITING in its frame's word ensures.
//! Failure:     the pages stay dirty. Images that are already in the log are logged again next time.
//! Source:      PostgreSQL's full_page_writes, which logs a page at its first change; see
//!              docs/adr/0011-torn-pages.md for why it is the first write here.

use crate::error::Error;
use crate::observe::stats::{PoolEvent, Wait};
use crate::store::file::FileCore;
use crate::store::{PageCopy, Store};
use crate::tag::Lsn;
use crate::wal::{PageImage, Wal};

/// Logs the missing images of pages that are about to be written; raises `newest` to the last of them.
///
/// # Errors
/// [`Error::Image`].
pub(super) fn append_missing(
    store: &Store,
    file: &FileCore,
    copies: &[PageCopy<'_>],
    newest: &mut Lsn,
) -> Result<(), Error> {
    // Uses the redo number at the time of each copy, not the current one: a page may have been changed between the two,
    // before a redo point, and an image without that change must not count as one after it.
    for copy in copies.iter().filter(|copy| !file.table.has_image(copy.block(), copy.redo())) {
        let wal = store.wal.as_deref();
        let wal = wal.expect("[IMG-1] images without a log are refused by the builder");
        let lsn = store.waiting(Wait::Log, || append(wal, file, copy));
        let lsn = lsn.inspect_err(|_| store.counters.count_pool(PoolEvent::LogErrors))?;
        *newest = lsn.max(*newest);
    }
    Ok(())
}

/// Records that the pages have had an image since the redo point: the log has been flushed ([IMG-2]).
pub(super) fn note(file: &FileCore, copies: &[PageCopy<'_>]) {
    copies.iter().for_each(|copy| file.table.note_image(copy.block(), copy.redo()));
}

fn append(wal: &dyn Wal, file: &FileCore, copy: &PageCopy<'_>) -> Result<Lsn, Error> {
    let block = copy.block();
    let image =
        PageImage { tablespace: &file.space.name, file: &file.name, block, bytes: copy.bytes() };
    wal.append_image(&image).map_err(|source| Error::Image {
        file: file.path.clone(),
        block,
        source: source.into(),
    })
}

#[cfg(test)]
mod tests;
