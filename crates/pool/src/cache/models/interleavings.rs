//! Explores every interleaving of two or three threads around a frame, up to the bound on preemptions, and every value
//! that a load may see by the memory model.
//!
//! `LOOM_MAX_PREEMPTIONS` overrides the bounds. Loom treats `SeqCst` accesses as `AcqRel`, so where a total order is
//! needed there is a fence.

use std::sync::Arc;

use loom::thread;

use super::{BAD, Model, waker};
use crate::cache::frame::word::{Mode, Touch, USAGE_MAX, VALID};
use crate::cache::frame::{FrameIndex, Loaded, NO_FRAME};
use crate::error::Error;
use crate::sync::Ordering;
use crate::tag::{Block, FileId, Lsn, PageTag};

pub(super) fn tag(block: Block) -> PageTag {
    PageTag { file: FileId(7), block }
}

/// Runs a model with at most this many preemptive switches.
pub(super) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(model);
}

pub(super) type Job<R> = thread::JoinHandle<R>;

pub(super) fn run<R: 'static>(
    pool: &Arc<Model>,
    job: impl FnOnce(&Model) -> R + 'static,
) -> Job<R> {
    let pool = Arc::clone(pool);
    thread::spawn(move || job(&pool))
}

/// A pool with block 0 in frame 0, not pinned.
pub(super) fn with_block_0(frames: usize, blocks: u64) -> Arc<Model> {
    let pool = Model::new(frames, blocks);
    assert_eq!(pool.acquire(0, Mode::Pin).unwrap(), 0);
    pool.frames().unpin(0);
    pool
}

fn add_one_by_latch(pool: &Model) {
    assert!(pool.frames().pin(0, tag(0), Touch::Not));
    pool.latch_pinned(0, Mode::Exclusive);
    assert!(!pool.frames().get(0).version().is_multiple_of(2), "[FRM-2] held exclusively");
    pool.add(0, 1);
    pool.frames().release_exclusive(0);
}

#[test]
fn loom_one_holder_of_the_exclusive_latch_at_a_time() {
    check(4, || {
        let pool = with_block_0(1, 1);
        let version = pool.frames().get(0).version();
        let other = run(&pool, add_one_by_latch);
        add_one_by_latch(&pool);
        other.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 12, "[FRM-2] a change was lost");
        assert_eq!(pool.frames().get(0).version(), version + 4, "[FRM-2]");
        pool.assert_settled();
    });
}

/// Waiting threads sleep; since all models end, they are woken ([PRK-1]).
#[test]
fn loom_prk_1_three_that_want_the_latch_all_get_it() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let one = run(&pool, add_one_by_latch);
        let two = run(&pool, add_one_by_latch);
        add_one_by_latch(&pool);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 13, "[FRM-2] a change was lost");
        pool.assert_settled();
    });
}

#[test]
fn loom_prk_1_readers_and_a_writer_wake_each_other() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let writer = run(&pool, add_one_by_latch);
        let reader = run(&pool, |pool| pool.value(0).unwrap());
        let seen = [pool.value(0).unwrap(), reader.join().unwrap()];
        writer.join().unwrap();
        assert!(seen.iter().all(|seen| [10, 11].contains(seen)), "{seen:?}");
        pool.assert_settled();
    });
}

#[test]
fn loom_a_reader_kept_out_by_a_waiting_writer_comes_after_it() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.acquire(0, Mode::Shared).unwrap();
        let writer = run(&pool, add_one_by_latch);
        let reader = run(&pool, |pool| pool.value(0).unwrap());
        assert_eq!(pool.read(0), 10);
        pool.frames().release_shared(0);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 11);
        pool.assert_settled();
    });
}

/// A release wakes sleepers too, so here no thread releases before the sleeper has finished.
#[test]
fn loom_prk_1_the_end_of_a_load_wakes_those_who_wait_for_it() {
    check(4, || {
        let pool = Model::new(2, 1);
        let visitor = run(&pool, |pool| pool.value(0).unwrap());
        let frame = pool.acquire(0, Mode::Pin).unwrap();
        assert_eq!(visitor.join().unwrap(), 10, "[PRK-1]");
        pool.frames().unpin(frame);
        pool.assert_settled();
    });
}

#[test]
fn loom_prk_1_a_downgrade_wakes_readers() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.acquire(0, Mode::Exclusive).unwrap();
        let reader = run(&pool, |pool| pool.value(0).unwrap());
        pool.add(0, 1);
        pool.frames().downgrade(0);
        assert_eq!(reader.join().unwrap(), 11, "[PRK-1]");
        pool.frames().release_shared(0);
        pool.assert_settled();
    });
}

#[test]
fn loom_prk_1_the_end_of_a_write_wakes_a_truncation() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.change(0, 1).unwrap();
        pool.acquire(0, Mode::Shared).unwrap();
        assert!(pool.frames().begin_write(0));
        let truncation = run(&pool, |pool| pool.truncate(0));
        pool.frames().copied(0);
        pool.frames().unlatch_shared(0);
        pool.cache.end_write(&pool.file, 0, 0, None);
        truncation.join().unwrap();
        assert_eq!(pool.frames().free_count(), 1, "[FRM-3]");
        pool.assert_settled();
    });
}

fn add_one_by_upgrade(pool: &Model) {
    pool.acquire(0, Mode::Shared).unwrap();
    let seen = pool.read(0);
    let version = pool.frames().get(0).version();
    if pool.frames().try_upgrade(0) {
        assert_eq!(pool.read(0), seen, "[WRD-1] changed between shared and exclusive");
    } else {
        pool.frames().unlatch_shared(0);
        pool.frames().latch(0, Mode::Exclusive);
        let unchanged = pool.frames().get(0).version() == version + 1;
        assert!(!unchanged || pool.read(0) == seen, "[FRM-2] a change without a version");
    }
    pool.add(0, 1);
    pool.frames().downgrade(0);
    assert!(pool.read(0) > seen);
    pool.frames().release_shared(0);
}

#[test]
fn loom_two_readers_that_both_upgrade_come_one_after_the_other() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let other = run(&pool, add_one_by_upgrade);
        add_one_by_upgrade(&pool);
        other.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 12);
        pool.assert_settled();
    });
}

/// Frame 0 is taken for block 1 while another thread looks up block 0 there.
#[test]
fn loom_frm_1_a_pinned_frame_keeps_its_page() {
    for mode in [Mode::Pin, Mode::Shared, Mode::Exclusive] {
        check(4, move || {
            let pool = with_block_0(1, 2);
            let other = run(&pool, |pool| {
                if pool.evict(0) {
                    assert_eq!(pool.value(1).unwrap(), 11);
                }
            });
            let frame = pool.lookup(0);
            if pool.frames().acquire(frame, tag(0), mode, Touch::Count).is_some() {
                assert_eq!(pool.read(frame), 10, "[FRM-1] another page in a pinned frame");
                assert!(pool.frames().get(frame).holds(tag(0)), "[FRM-1]");
                pool.frames().release(frame, mode);
            }
            other.join().unwrap();
            pool.assert_settled();
        });
    }
}

/// The frame is given to another page and back to the first one (ABA), which is harmless.
#[test]
fn loom_an_old_entry_leads_to_the_page_or_nowhere() {
    check(3, || {
        let pool = with_block_0(2, 2);
        let other = run(&pool, |pool| {
            if pool.evict(0) {
                assert_eq!(pool.value(1).unwrap(), 11);
                pool.evict(0);
                assert_eq!(pool.value(0).unwrap(), 10);
            }
        });
        assert_eq!(pool.value(0).unwrap(), 10, "[FRM-1] another page");
        other.join().unwrap();
        pool.assert_settled();
    });
}

#[test]
fn loom_lod_1_a_page_that_two_threads_request_is_read_once() {
    check(3, || {
        let pool = Model::new(2, 1);
        let other = run(&pool, |pool| pool.value(0).unwrap());
        assert_eq!(pool.value(0).unwrap(), 10);
        assert_eq!(other.join().unwrap(), 10);
        assert_eq!(pool.reads.load(Ordering::Relaxed), 1, "[LOD-1] read twice");
        pool.assert_settled();
    });
}

#[test]
fn loom_lod_2_a_failed_read_reaches_all_waiters_and_frees_its_frame_once() {
    check(3, || {
        let pool = Model::new(2, 1);
        pool.spoil(0);
        let other = run(&pool, |pool| pool.value(0).unwrap_err());
        let errors = [pool.value(0).unwrap_err(), other.join().unwrap()];
        for error in errors {
            assert!(matches!(error, Error::Corrupt { .. }), "[LOD-2] {error}");
        }
        assert_eq!(pool.frames().free_count(), 2, "[FRM-3]");
        pool.assert_settled();
    });
}

/// The frame of a failed load is given to another page at once. A thread that follows the entry that pointed to it, and
/// compares nothing else, would mistake that page for its own.
#[test]
fn loom_tab_4_an_entry_goes_before_the_frame_of_its_failed_load() {
    for ahead in [false, true] {
        check(2, move || {
            let pool = Model::new(1, 2);
            pool.spoil(0);
            if ahead {
                assert!(pool.prefetch(0));
            }
            let other = run(&pool, move |pool| match ahead {
                true => drop(pool.end_request()),
                false => drop(pool.value(0).unwrap_err()),
            });
            assert_eq!(pool.value(1).unwrap(), 11, "[FRM-1]");
            let error = pool.value(0).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "[TAB-4] {error}");
            other.join().unwrap();
            assert_eq!(pool.lookup(0), NO_FRAME, "[LOD-2] a failed load bars the way");
            pool.assert_settled();
        });
    }
}

/// The page is discarded, to be read again, while its load fails; the next load, which succeeds, may or may not be
/// mapped by then: its entry must not be removed.
#[test]
fn loom_tab_1_an_entry_goes_only_with_its_own_failed_load() {
    check(3, || {
        let pool = Model::new(2, 1);
        pool.spoil(0);
        let other = run(&pool, |pool| {
            assert!(pool.value(0).is_err(), "[LOD-2]");
            pool.disk[0].store(10, Ordering::Relaxed);
            assert_eq!(pool.value(0).unwrap(), 10, "[LOD-2] a failed load bars the way");
        });
        pool.refresh();
        other.join().unwrap();
        pool.assert_settled();
        assert_eq!(pool.value(0).unwrap(), 10);
    });
}

/// A thread with an entry that was valid a moment ago waits for a load that is then cancelled, because a third thread's
/// load was mapped first.
#[test]
fn loom_a_visitor_of_a_load_that_is_called_off_looks_again() {
    check(2, || {
        let pool = with_block_0(2, 1);
        let visitor = run(&pool, |pool| pool.value(0).unwrap());
        let evictor = run(&pool, |pool| {
            pool.evict(0);
            pool.value(0).unwrap()
        });
        let here = pool.value(0).unwrap();
        let seen = [here, visitor.join().unwrap(), evictor.join().unwrap()];
        assert_eq!(seen, [10; 3]);
        pool.assert_settled();
    });
}

/// A page that was latched when another thread looked it up is evicted and its next read fails: that thread receives
/// the read error, and not an error for a truncated page.
#[test]
fn loom_lod_2_a_visitor_who_saw_the_latch_gets_the_error_of_the_failed_read() {
    check(3, || {
        let pool = with_block_0(1, 1);
        pool.acquire(0, Mode::Exclusive).unwrap();
        pool.spoil(0);
        let visitor = run(&pool, |pool| pool.value(0));
        pool.frames().release_exclusive(0);
        if pool.evict(0) {
            let error = pool.value(0).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "[LOD-2] {error}");
        }
        let seen = visitor.join().unwrap();
        let right = matches!(seen, Ok(10) | Err(Error::Corrupt { .. }));
        assert!(right, "[LOD-2] {seen:?}");
        pool.assert_settled();
    });
}

/// One frame for two pages: each miss makes the clock sweep take it from the other page.
#[test]
fn loom_vic_1_two_pages_that_share_a_frame_take_turns() {
    check(2, || {
        let pool = with_block_0(1, 2);
        let other = run(&pool, |pool| pool.value(1).unwrap());
        assert_eq!(pool.value(0).unwrap(), 10, "[FRM-1]");
        assert_eq!(other.join().unwrap(), 11, "[FRM-1]");
        pool.assert_settled();
    });
}

/// As above, with a page that must be written first.
#[test]
fn loom_vic_1_a_dirty_victim_is_written_before_its_frame_is_taken() {
    check(2, || {
        let pool = with_block_0(1, 2);
        let other = run(&pool, |pool| pool.value(1).unwrap());
        pool.change(0, 5).unwrap();
        assert_eq!(other.join().unwrap(), 11, "[FRM-1]");
        assert_eq!(pool.value(0).unwrap(), 15, "[VIC-1] a change was lost");
        pool.assert_settled();
    });
}

#[test]
fn loom_lnd_2_a_page_that_lands_on_another_thread_wakes_who_waits() {
    check(3, || {
        let pool = Model::new(2, 1);
        assert!(pool.prefetch(0));
        let lander = run(&pool, |pool| pool.end_request());
        assert_eq!(pool.value(0).unwrap(), 10);
        lander.join().unwrap();
        assert_eq!(pool.reads.load(Ordering::Relaxed), 0, "[LOD-1] read twice");
        pool.assert_settled();
    });
}

/// The first thread completes it for the other, too.
#[test]
fn loom_lnd_2_two_that_wait_for_a_page_read_ahead_drive_its_queue() {
    check(3, || {
        let pool = Model::new(2, 1);
        assert!(pool.prefetch(0));
        let other = run(&pool, |pool| pool.value(0).unwrap());
        assert_eq!(pool.value(0).unwrap(), 10);
        assert_eq!(other.join().unwrap(), 10);
        assert_eq!(pool.reads.load(Ordering::Relaxed), 0, "[LOD-1] read twice");
        pool.assert_settled();
    });
}

/// Mapped, and not submitted yet: a thread that looks it up then waits for both.
#[test]
fn loom_lod_1_a_page_is_read_ahead_or_by_who_wants_it_and_not_by_both() {
    check(3, || {
        let pool = Model::new(2, 1);
        let ahead = run(&pool, |pool| pool.prefetch(0));
        assert_eq!(pool.value(0).unwrap(), 10);
        let begun = ahead.join().unwrap();
        let read = pool.reads.load(Ordering::Relaxed);
        assert_eq!(read + u64::from(begun), 1, "[LOD-1] read twice, or not at all");
        pool.assert_settled();
    });
}

/// Its error is not reported: a thread that waited reads on its own, and receives the error then.
#[test]
fn loom_lnd_2_a_read_ahead_that_fails_leaves_nothing_behind() {
    check(3, || {
        let pool = Model::new(2, 1);
        pool.spoil(0);
        assert!(pool.prefetch(0));
        let lander = run(&pool, |pool| pool.end_request());
        let error = pool.value(0).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "[CPL-1] {error}");
        lander.join().unwrap();
        assert_eq!(pool.reads.load(Ordering::Relaxed), 1, "notified of another's read");
        assert_eq!(pool.frames().free_count(), 2, "[FRM-3]");
        pool.assert_settled();
    });
}

/// The waker is registered while the load completes: it is woken, or finds the page resident.
#[test]
fn loom_prk_1_a_task_that_waits_for_a_landing_page_is_woken() {
    for readable in [true, false] {
        check(4, move || {
            let pool = Model::new(2, 1);
            if !readable {
                pool.spoil(0);
            }
            assert!(pool.prefetch(0));
            let lander = run(&pool, |pool| pool.end_request());
            let seen = pool.value_by_task(0, thread::park).unwrap();
            assert!(seen == readable.then_some(10) || !readable, "[PRK-1] {seen:?}");
            lander.join().unwrap();
            pool.assert_settled();
        });
    }
}

/// A task and a thread wait for one load, and the task is dropped, or not.
#[test]
fn loom_prk_1_a_dropped_task_takes_no_other_tasks_wake() {
    check(3, || {
        let pool = Model::new(2, 1);
        assert!(pool.prefetch(0));
        let lander = run(&pool, |pool| pool.end_request());
        let task = run(&pool, |pool| {
            let mut held = None;
            drop(pool.poll_value(0, Mode::Shared, &mut held, &waker()));
            held.into_iter().for_each(|held| pool.cache.let_go(held));
        });
        assert_eq!(pool.value_by_task(0, thread::park).unwrap(), Some(10), "[PRK-1]");
        task.join().unwrap();
        lander.join().unwrap();
        pool.assert_settled();
    });
}

#[test]
fn loom_prk_1_a_task_gets_the_latch_that_a_thread_lets_go_of() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let writer = run(&pool, add_one_by_latch);
        let seen = pool.value_by_task(0, thread::park).unwrap().unwrap();
        assert!([10, 11].contains(&seen), "{seen}");
        writer.join().unwrap();
        pool.assert_settled();
    });
}

/// A task that waits exclusively blocks readers. It is dropped, or woken and never polled again: either way they go on.
#[test]
fn loom_prk_2_readers_do_not_wait_for_a_task_that_has_ended() {
    for dropped in [true, false] {
        check(3, move || {
            let pool = with_block_0(1, 1);
            pool.acquire(0, Mode::Shared).unwrap();
            let (mut held, waker) = (None, waker());
            assert!(pool.poll_value(0, Mode::Exclusive, &mut held, &waker).is_pending());
            let reader = run(&pool, |pool| pool.value(0).unwrap());
            if dropped {
                held.take().into_iter().for_each(|held| pool.cache.let_go(held));
            }
            pool.frames().release_shared(0);
            assert_eq!(reader.join().unwrap(), 10, "[PRK-2]");
            held.into_iter().for_each(|held| pool.cache.let_go(held));
            pool.assert_settled();
        });
    }
}

#[test]
fn loom_frm_4_a_page_leaves_its_frame_only_as_it_is_on_disk() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let user = run(&pool, |pool| pool.change(0, 1).unwrap());
        let writer = run(&pool, |pool| pool.write_out(0));
        pool.evict(0);
        user.join().unwrap();
        writer.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 11, "[FRM-4] a change was lost");
        pool.write_out(0);
        assert_eq!(pool.on_disk(0), 11, "[FRM-4] a dirty page was taken for clean");
        pool.assert_settled();
    });
}

#[test]
fn loom_frm_4_a_failed_write_leaves_the_page_dirty() {
    check(3, || {
        let pool = with_block_0(1, 1);
        pool.change(0, 1).unwrap();
        let evictor = run(&pool, |pool| pool.evict(0));
        let user = run(&pool, |pool| {
            pool.acquire(0, Mode::Exclusive).unwrap();
            pool.add(0, 1);
            pool.mark_dirty(0, 0, Lsn(3));
            pool.frames().release_exclusive(0);
        });
        pool.acquire(0, Mode::Shared).unwrap();
        assert!(pool.frames().begin_write(0));
        let lsn = pool.frames().copied(0);
        pool.frames().unlatch_shared(0);
        pool.cache.end_write(&pool.file, 0, 0, Some(lsn));
        user.join().unwrap();
        assert!(!evictor.join().unwrap(), "[FRM-4] a page newer than on disk was taken");
        assert_eq!(pool.frames().get(0).lsn(), Lsn(3));
        assert_eq!(pool.value(0).unwrap(), 12);
    });
}

/// Reads block 0 optimistically, with an entry that may be stale by then, and twice with one guard.
fn read_twice(pool: &Model, allowed: &[u64]) {
    let Some(seen) = pool.optimistic(0) else { return };
    let Some(one) = pool.read_by(seen) else { return };
    assert!(allowed.contains(&one), "[OPT-1] {one} is not what the page ever said");
    if let Some(two) = pool.read_by(seen) {
        assert_eq!(one, two, "[OPT-1] one guard, two states");
    }
}

#[test]
fn loom_opt_1_an_optimistic_reader_sees_one_state_while_a_writer_works() {
    check(3, || {
        let pool = with_block_0(1, 1);
        let writer = run(&pool, |pool| {
            for _ in 0..2 {
                pool.acquire(0, Mode::Exclusive).unwrap();
                pool.add(0, 1);
                pool.frames().release_exclusive(0);
            }
        });
        read_twice(&pool, &[10, 11, 12]);
        writer.join().unwrap();
        assert_eq!(pool.read_by(pool.optimistic(0).unwrap()), Some(12));
    });
}

#[test]
fn loom_opt_1_an_optimistic_reader_never_takes_another_page_for_its_own() {
    check(2, || {
        let pool = with_block_0(1, 2);
        let other = run(&pool, |pool| {
            pool.evict(0);
            assert_eq!(pool.value(1).unwrap(), 11);
            pool.evict(0);
            // As if another thread had written it meanwhile.
            assert_eq!(pool.value(0).unwrap(), 10);
        });
        read_twice(&pool, &[10]);
        other.join().unwrap();
    });
}

#[test]
fn loom_opt_1_an_optimistic_reader_never_gets_a_page_that_failed_its_check() {
    check(4, || {
        let pool = Model::new(1, 1);
        pool.spoil(0);
        let other = run(&pool, |pool| drop(pool.value(0).unwrap_err()));
        let waiter = run(&pool, |pool| drop(pool.value(0).unwrap_err()));
        if let Some(seen) = pool.optimistic(0) {
            assert_ne!(pool.read_by(seen), Some(BAD), "[OPT-1] a page that failed its check");
        }
        other.join().unwrap();
        waiter.join().unwrap();
        pool.assert_settled();
    });
}

/// A page that was truncated and created again: its old bytes are not valid any more, even while another thread keeps
/// them pinned.
#[test]
fn loom_opt_1_a_guard_of_a_discarded_page_is_over() {
    check(3, || {
        let pool = with_block_0(2, 1);
        let seen = pool.optimistic(0).unwrap();
        let pinned = run(&pool, |pool| {
            if let Ok(frame) = pool.acquire(0, Mode::Pin) {
                thread::yield_now();
                pool.frames().unpin(frame);
            }
            // May get the same frame.
            drop(pool.value(0));
        });
        pool.truncate(0);
        pool.extend(20);
        assert_eq!(pool.read_by(seen), None, "[OPT-1] an invalidated page is still valid");
        pinned.join().unwrap();
        assert_eq!(pool.value(0).unwrap(), 20);
        pool.assert_settled();
    });
}

/// When an optimistic read clears COLD and the clock hand sets it, the later one to change the word decides.
#[test]
fn loom_frm_5_a_page_that_ages_while_it_is_looked_at_is_used_or_cold() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.frames().age(0);
        // Used once, and still cold.
        pool.value(0).unwrap();
        let hand = run(&pool, |pool| pool.frames().age(0));
        assert_eq!(pool.read_by(pool.optimistic(0).unwrap()), Some(10));
        hand.join().unwrap();
        pool.assert_settled();
    });
}

/// The tag is written with plain stores; the later change of the word publishes it.
#[test]
fn loom_frm_1_the_tag_is_as_new_as_the_pin() {
    check(4, || {
        let pool = Model::new(1, 2);
        let loader = run(&pool, |pool| pool.value(1).unwrap());
        let it = pool.frames().get(0);
        if it.word().has(VALID) {
            assert!(it.holds(tag(1)), "[FRM-1] a resident frame without its tag");
        }
        if pool.frames().pin(0, tag(1), Touch::Not) {
            pool.frames().wait_loaded(0);
            assert_eq!(pool.read(0), 11, "[FRM-1]");
            pool.frames().unpin(0);
        }
        loader.join().unwrap();
        let claimed: Option<FrameIndex> = pool.frames().claim(0, USAGE_MAX).map(|_| 0);
        assert_eq!(claimed, Some(0));
    });
}

/// The frame of a failed load keeps the error for the threads that have it pinned, though the page is read again
/// meanwhile, successfully, into another frame.
#[test]
fn loom_lod_2_an_error_stays_until_all_who_waited_have_seen_it() {
    check(3, || {
        let pool = Model::new(2, 1);
        pool.spoil(0);
        let waiter = run(&pool, |pool| {
            let frame = pool.lookup(0);
            if frame == NO_FRAME || !pool.frames().pin(frame, tag(0), Touch::Not) {
                return;
            }
            pool.frames().wait_loaded(frame);
            match pool.frames().loaded(frame) {
                Loaded::Here => assert_eq!(pool.read(frame), 10, "[LOD-2] the page that failed"),
                Loaded::Failed(Error::Corrupt { .. }) => {}
                other => panic!("[LOD-2] {other:?} instead of the error"),
            }
            pool.frames().unpin(frame);
        });
        assert!(pool.value(0).is_err(), "[LOD-2]");
        pool.disk[0].store(10, Ordering::Relaxed);
        assert_eq!(pool.value(0).unwrap(), 10, "[LOD-2] a failed load bars the way");
        waiter.join().unwrap();
        pool.assert_settled();
    });
}
