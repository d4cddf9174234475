//! Fewer frames, while others miss, hit and change pages.

use std::sync::Arc;
use std::time::Duration;

use super::Model;
use super::interleavings::{check, run};
use crate::cache::frame::word::{Mode, NO_FRAME};
use crate::cache::replacement::AccessStrategy;
use crate::error::Error;
use crate::strategy_kind::StrategyKind;

/// As many blocks as frames, all in memory, not pinned: the first in the first frame, and so on.
fn full(frames: usize, blocks: u64) -> Arc<Model> {
    let mut pool = Model::new(frames, blocks);
    Arc::get_mut(&mut pool).unwrap().cache.frame_wait = Duration::ZERO;
    for block in 0..frames as u32 {
        let frame = pool.acquire(block, Mode::Pin).unwrap();
        assert_eq!(frame, block);
        pool.frames().unpin(frame);
    }
    pool
}

fn shrink(pool: &Model, frames: usize) -> Result<(), Error> {
    pool.cache.shrink(pool, &pool.frames().begin_shrink(frames))
}

#[test]
fn loom_shr_1_a_page_that_is_changed_as_its_frame_goes_is_not_lost() {
    check(3, || {
        let pool = full(2, 2);
        let other = run(&pool, |pool| pool.change(1, 1));
        let shrunk = shrink(&pool, 1);
        // If a frame was briefly in use, the pool has given up: it waits for no thread here.
        let pages = match shrunk {
            Ok(()) => 1,
            Err(Error::MemoryInUse { pages: 1, .. }) => 2,
            Err(error) => panic!("[SHR-2] {error}"),
        };
        assert_eq!(pool.frames().len(), pages, "[SHR-2]");
        if other.join().unwrap().is_ok() {
            assert_eq!(pool.value(1).unwrap(), 12, "[SHR-1] a change was lost");
        }
        pool.assert_settled();
    });
}

/// The thread that misses may have read the number of frames just before.
#[test]
fn loom_ext_2_a_frame_that_was_taken_a_moment_too_early_is_found() {
    check(3, || {
        let pool = full(2, 3);
        let other = run(&pool, |pool| pool.value(2));
        let shrunk = shrink(&pool, 1);
        assert_eq!(pool.frames().len(), if shrunk.is_ok() { 1 } else { 2 }, "[SHR-2]");
        assert!(other.join().unwrap().is_ok_and(|value| value == 12));
        assert_eq!(pool.value(1).unwrap(), 11);
        pool.assert_settled();
    });
}

#[test]
fn loom_ext_2_a_ring_leaves_a_frame_that_is_about_to_go() {
    check(1, || {
        let pool = full(3, 4);
        let ring = AccessStrategy::new(StrategyKind::BulkRead, Some(4096), 4096, 100);
        ring.fill_slot(ring.next_slot().unwrap(), 2, pool.file.tag(2));
        let shrinking = pool.frames().begin_shrink(2);
        let (owned, _) = pool.cache.allocate(&*pool, &ring).unwrap();
        let loading = owned.load(pool.file.tag(3), false, |_| true).unwrap();
        assert!(loading.frame() < 2, "[EXT-2] a page comes into frame {}", loading.frame());
        loading.abandon();
        drop(shrinking);
        pool.assert_settled();
    });
}

/// Of three frames the second is pinned, and the third may be free: the shrink is cancelled, and all three stay.
#[test]
fn loom_ext_2_a_pool_that_turns_back_has_all_its_frames() {
    check(3, || {
        let pool = full(3, 4);
        assert!(pool.evict(2));
        pool.acquire(1, Mode::Pin).unwrap();
        let other = run(&pool, |pool| pool.value(3));
        let error = shrink(&pool, 1).unwrap_err();
        assert!(matches!(error, Error::MemoryInUse { .. }), "[SHR-2] {error}");
        assert!(other.join().unwrap().is_ok_and(|value| value == 13));
        pool.frames().unpin(1);
        assert_eq!((pool.frames().len(), pool.frames().usable()), (3, 3), "[SHR-2]");
        pool.assert_settled();
        shrink(&pool, 1).unwrap();
        pool.frames().grow(3);
        pool.assert_settled();
    });
}

/// Of four frames the last two will be removed, and three are free: one that stays is on the list below one that is
/// removed.
#[test]
fn loom_ext_2_a_miss_has_a_free_frame_while_the_pool_shrinks() {
    check(3, || {
        let pool = full(4, 5);
        for block in [1, 2, 3] {
            assert!(pool.evict(block));
        }
        let other = run(&pool, |pool| pool.value(4));
        shrink(&pool, 2).ok();
        assert!(other.join().unwrap().is_ok_and(|value| value == 14));
        assert_eq!(pool.lookup(0), 0, "[EXT-2] evicted while a frame was free");
        let at = pool.lookup(4);
        let len = pool.frames().len();
        assert!(at == NO_FRAME || (at as usize) < len, "[EXT-1] a page in frame {at} of {len}");
        pool.assert_settled();
    });
}
