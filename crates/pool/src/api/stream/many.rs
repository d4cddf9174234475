//! Reading many: a stream of blocks that are all known and needed from the start.
//!
//! A stream over an iterator learns how far look-ahead is worthwhile; here that is known, so the first miss already
//! keeps the device busy. More blocks are requested as soon as the queue runs dry, in batches that are sorted and
//! merged, however far behind the caller is, up to look-ahead's part of the pool. Until the first miss, pages in memory
//! cost as much as with a plain read.
//!
//! Invariants:  [RM-1] a reader of many never waits for another reader's next step: a read in progress is driven by the
//!              thread that waits for it, and the frames that other streams have pinned ahead are at most a quarter of
//!              the pool, so that the search for one ends
//!              [RM-2] while blocks are left and the window has room, the queue does not run dry: neither hits nor a
//!              caller's order that differs from the disk's shorten look-ahead

use std::slice;

use super::{DISTANCE_MOST, Plan, Policy, ReadMode, ReadStream, Wanted};
use crate::api::options::StreamOptions;
use crate::api::paged_file::PagedFile;
use crate::readahead_strategy::ReadaheadStrategy;

/// Pages between the one that is returned and the one that is prefetched into the processor's cache: a few hundred
/// nanoseconds, even if little is done with each.
const CACHED_AHEAD: usize = 8;

impl PagedFile {
    /// Returns the pages of `blocks`, in that order: those in memory at once, the others in few requests, which are
    /// sorted, merged and all in progress together. Each block may be named with a value that is returned with its
    /// page, and any number of times; a block that cannot be read is a separate error.
    ///
    /// ```
    /// # use forebay::{BufferPool, Checksum::Off, FileOptions, Order, StreamOptions, TornPages::Unprotected};
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(256).directory(directory.path()).build()?;
    /// # let vectors = pool.open_file("vectors", &FileOptions::new().create(true))?;
    /// # vectors.extend(100)?;
    /// let mut sum = 0;
    /// for page in vectors.read_many(&[90, 7, 8, 7]) {
    ///     sum += u64::from(page?[16]);
    /// }
    ///
    /// // As they come, each with its place in the query.
    /// let any = StreamOptions::new().order(Order::Any);
    /// for page in vectors.read_many_with(&[(90, "a"), (7, "b"), (8, "c")], &any) {
    ///     let page = page?;
    ///     println!("{}: block {}, {:?}", page.data, page.page.block(), &page[0..4]);
    /// }
    /// # assert_eq!(sum, 0);
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The list may be longer than the pool: pages ahead of the caller are pinned, up to the limit for all streams
    /// together, and are requested in windows, the next when half of one has been taken. The caller releases the
    /// returned pages: a caller that collects pages needs a frame for each, and gets [`NoFreeFrame`](crate::Error::NoFreeFrame) for those
    /// that have none.
    ///
    /// The readahead settings of the handle and the pool do not apply here: known blocks are always requested.
    pub fn read_many<'f, W>(&'f self, blocks: &'f [W]) -> ReadStream<'f, ListedBlocks<'f, W>>
    where
        W: Wanted + Copy,
    {
        let plan = Plan::many(self, &StreamOptions::default());
        ReadStream::new(self, ListedBlocks { handle: self, blocks: blocks.iter() }, plan)
    }

    /// As [`PagedFile::read_many`], with `options`.
    pub fn read_many_with<'f, W>(
        &'f self,
        blocks: &'f [W],
        options: &StreamOptions,
    ) -> ReadStream<'f, ListedBlocks<'f, W>>
    where
        W: Wanted + Copy,
    {
        let plan = Plan::many(self, options);
        ReadStream::new(self, ListedBlocks { handle: self, blocks: blocks.iter() }, plan)
    }
}

/// The blocks of a list, for [`PagedFile::read_many`]. Those in memory are prefetched into the processor's caches some time
/// before the stream reaches them.
#[derive(Debug)]
pub struct ListedBlocks<'f, W> {
    handle: &'f PagedFile,
    blocks: slice::Iter<'f, W>,
}

impl<W: Wanted + Copy> Iterator for ListedBlocks<'_, W> {
    type Item = W;

    #[inline]
    fn next(&mut self) -> Option<W> {
        let wanted = *self.blocks.next()?;
        if let Some(later) = self.blocks.as_slice().get(CACHED_AHEAD) {
            let (core, file) = (self.handle.core(), self.handle.file());
            let frame = file.table.lookup(later.into_parts().0);
            core.memory.cache_soon(&core.cache.frames, frame);
        }
        Some(wanted)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.blocks.size_hint()
    }
}

impl Plan {
    fn many(handle: &PagedFile, options: &StreamOptions) -> Plan {
        let readahead = options.readahead.unwrap_or(ReadaheadStrategy::Async);
        let distance = options.distance.unwrap_or(DISTANCE_MOST);
        let (readahead, distance) = (Some(readahead), Some(distance));
        let plan =
            Plan::new(handle, &StreamOptions { readahead, distance, ..options.clone() }, None);
        let all_wanted = options.expected_rows.is_none()
            && matches!(plan.policy, Policy::Fixed(ReadMode::Queue));
        let depth = handle.file().space.device_costs().useful_depth.max(1) as usize;
        // A separate descriptor would cost a short list more than it gains.
        Plan { hint: None, known: all_wanted.then_some(depth), ..plan }
    }
}
