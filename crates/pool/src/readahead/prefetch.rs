//! Prefetching: requests for pages outside any stream, by name or because misses continue a sequence.
//!
//! No thread waits for such a page or pins it, and the caller need not drive the queue that carries it. The next thread
//! that drives that queue processes its completion: a thread that needs one of its pages, a stream, another prefetch.
//! Until then, its frame is only lent: before a page has to be evicted for want of a free frame, completed prefetches
//! are processed, and their pages become ordinary pages.
//!
//! Invariants:  [PRE-1] a page being prefetched counts in the budget from its mapping to the end of its read
//!              [PRE-2] frames of reads that have ended are available to a thread that searches for a frame
//! Failure:     a page whose read fails is not resident; the next reader receives the error.

use std::sync::Arc;

use forebay_lookahead::Limits;

use super::submit::{Ahead, Submitted, requests};
use crate::cache::frame::NO_FRAME;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::readahead::trace::{self, Why};
use crate::store::file::FileCore;
use crate::tag::Block;

impl Core {
    /// Requests those of `blocks` that are not in memory, as far as budget, frames and queue allow, without ever
    /// waiting. Returns the number of requested pages.
    pub(crate) fn prefetch(self: &Arc<Self>, file: &Arc<FileCore>, blocks: &[Block]) -> u32 {
        if !matches!(file.check_open_now(), Some(Ok(()))) {
            return 0;
        }
        let io = &file.space.queue;
        if self.budget.room() == 0 || io.in_flight() >= io.queue_depth() {
            self.poll();
        }
        let end = file.blocks();
        let absent = |block: &Block| *block < end && file.table.lookup(*block) == NO_FRAME;
        let absent = blocks.iter().copied().filter(absent);
        let mut wanted: Vec<Block> = absent.take(self.budget.room() as usize).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let requests_most = io.queue_depth().saturating_sub(io.in_flight());
        self.prefetch_sorted(file, wanted, &AccessStrategy::NORMAL, None, requests_most).pages
    }

    /// Requests those of `wanted` (ascending, each once) that are not in memory, in at most `requests_most` requests.
    pub(super) fn prefetch_sorted(
        self: &Arc<Self>,
        file: &Arc<FileCore>,
        mut wanted: Vec<Block>,
        strategy: &AccessStrategy,
        why: Option<Why>,
        requests_most: usize,
    ) -> Submitted {
        let combine_blocks = self.combine_pages as u32;
        let limits = Limits { combine_blocks, gap_blocks: 0, over_read_percent: 0 };
        let mut runs = Vec::new();
        requests(file, &mut wanted, limits, &mut runs);
        runs.truncate(requests_most);
        let ahead = Ahead {
            core: self,
            file,
            strategy,
            through: None,
            queued: true,
            watch: None,
            traced: trace::plain_number(),
            why,
            waits: false,
            prefetched: true,
        };
        ahead.submit(&runs, &wanted, || {})
    }

    /// Processes completed prefetches, which hold frames and budget until then.
    pub(crate) fn take_in_prefetched(&self) {
        if self.budget.prefetching() > 0 {
            self.poll();
        }
    }
}
