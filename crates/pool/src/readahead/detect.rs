//! Plain reads that turn out to be a sequence: the following blocks are read ahead.
//!
//! A hit costs nothing extra and provides no information. So sequences are detected among the misses, and blocks are
//! read ahead in growing batches: the reader finds them in memory, and its next miss is at their end. Read streams do
//! better, as they know what follows; this is for callers that cannot name their blocks.
//!
//! Concurrency: the detector's lock is held to check a few entries, never across I/O, and never waited for.

use std::sync::{Arc, TryLockError};

use forebay_lookahead::Detected;

use crate::cache::frame::NO_FRAME;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::readahead::trace::Why;
use crate::store::file::FileCore;
use crate::tag::Block;

/// Most bytes read ahead at a miss: two of the largest requests, so that the second is read while the
/// first is used.
const FOLLOW_REQUESTS: u32 = 2;

impl Core {
    /// Called when `block` is about to be read for a plain read or write: if it continues a sequence, starts reading
    /// the following blocks, if the queue has room for them.
    pub(crate) fn follow(
        self: &Arc<Self>,
        file: &Arc<FileCore>,
        block: Block,
        strategy: &AccessStrategy,
    ) {
        let combine = self.combine_pages as u32;
        let ring = strategy.ring_frames().map_or(u32::MAX, |frames| frames as u32 / 2);
        let most = (FOLLOW_REQUESTS * combine).min(self.budget.most()).min(ring);
        if most < 2 {
            return;
        }
        let resident = |block| file.table.lookup(block) != NO_FRAME;
        let found = {
            let mut detector = match file.detector.try_lock() {
                Ok(detector) => detector,
                // A value left by a panic is acceptable: it is only a guess.
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Missing one miss is not worth a wait either.
                Err(TryLockError::WouldBlock) => return,
            };
            detector.missed(block, file.blocks(), most, resident)
        };
        if found.count < 2 {
            return;
        }
        self.prefetch_sorted(
            file,
            ahead_of(&found),
            strategy,
            Some(Why::Detected(found.why)),
            usize::MAX,
        );
    }
}

/// The blocks after the missed one, ascending.
fn ahead_of(found: &Detected) -> Vec<Block> {
    let at = |step: u32| i64::from(found.first) + found.stride * i64::from(step);
    let blocks = (1..found.count).filter_map(|step| Block::try_from(at(step)).ok());
    let mut blocks: Vec<Block> = blocks.collect();
    blocks.sort_unstable();
    blocks
}
