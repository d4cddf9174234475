//! Prefetching: pages asked for that no stream has in hand, by name or because misses go on a sequence.
//!
//! Nobody waits for such a page or pins it, and nobody need drive the queue that carries it. It is taken in by
//! the thread that drives that queue next: a thread that wants one of its pages, a stream, another prefetch. Where
//! nobody does, its frame is only lent: before a page has to go for want of a free frame, what has come in is taken
//! in, and is a page like any other.
//!
//! Invariants:  [PRE-1] a page being prefetched counts in the budget from when it is mapped to its end
//!              [PRE-2] frames of reads that have ended are found by a thread that searches for one
//! Failure:     a page that fails to come is not there; the next reader is told why.

use std::sync::Arc;

use forebay_lookahead::Limits;

use super::submit::{Ahead, Submitted, requests};
use crate::cache::frame::NO_FRAME;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::observe::trace::Why;
use crate::store::file::FileCore;
use crate::store::tablespace::QUEUE_OWN;
use crate::tag::Block;

impl Core {
    /// Asks for those of `blocks` that are not in memory, as far as budget, frames and queue have room, and waits
    /// for nothing. Returns for how many pages.
    pub(crate) fn prefetch(self: &Arc<Self>, file: &Arc<FileCore>, blocks: &[Block]) -> u32 {
        if !matches!(file.check_open_now(), Some(Ok(()))) {
            return 0;
        }
        let io = file.space.queue(QUEUE_OWN);
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

    /// Asks for those of `wanted` (ascending, each once) that are not in memory, in so many requests at most.
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
        let trace = self.tracing.now();
        let ahead = Ahead {
            core: self,
            file,
            strategy,
            through: None,
            queue: QUEUE_OWN,
            watch: None,
            trace: trace.as_ref().map(|trace| (trace, 0)),
            why,
            waits: false,
            prefetched: true,
        };
        ahead.submit(&runs, &wanted, |_| {})
    }

    /// Takes in what has been prefetched by now, which holds frames and budget until then.
    pub(crate) fn take_in_prefetched(&self) {
        if self.budget.prefetching() > 0 {
            self.poll();
        }
    }
}
