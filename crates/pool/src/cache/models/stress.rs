//! Many threads, few frames, random steps, and a model that says what the result must be.
//!
//! With `--cfg shuttle` the threads are shuttle's, and each run is one random schedule, which a failure prints so that
//! it can be repeated. Otherwise they are the system's, for Miri and the thread sanitizer. Each thread's steps come
//! from a separate seed.

use std::sync::Arc;

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

use super::Model;
use crate::cache::frame::word::Mode;
use crate::error::Error;
use crate::sync::{AtomicU64, Ordering, park};
use crate::tag::{Block, Lsn};

const THREADS: u64 = 4;
const FRAMES: usize = 3;
const BLOCKS: u64 = 4;

/// The result of a run: for each block, the number of its changes.
type Changes = Vec<AtomicU64>;

fn step(pool: &Model, changes: &Changes, random: &mut fastrand::Rng) {
    let block = random.u32(0..BLOCKS as Block);
    let count = |block: Block| changes[block as usize].fetch_add(1, Ordering::Relaxed);
    // The count of a block is changed under its exclusive latch, and so can be compared under it.
    let said =
        |block: Block| 10 + u64::from(block) + changes[block as usize].load(Ordering::Relaxed);
    match random.u32(0..10) {
        0 | 1 => {
            let frame = pool.acquire(block, Mode::Exclusive).unwrap();
            assert_eq!(pool.read(frame), said(block), "[FRM-4] block {block} lost a change");
            pool.add(frame, 1);
            count(block);
            pool.mark_dirty(block, frame, Lsn::NONE);
            pool.frames().release_exclusive(frame);
        }
        2 | 3 => {
            let frame = pool.acquire(block, Mode::Shared).unwrap();
            assert_eq!(pool.read(frame), said(block), "[FRM-1] not block {block}, or an old one");
            pool.frames().release_shared(frame);
        }
        4 => {
            let frame = pool.acquire(block, Mode::Shared).unwrap();
            if pool.frames().try_upgrade(frame) {
                pool.add(frame, 1);
                count(block);
                pool.mark_dirty(block, frame, Lsn::NONE);
                pool.frames().downgrade(frame);
            }
            assert_eq!(pool.read(frame), said(block), "[FRM-2] block {block}");
            pool.frames().release_shared(frame);
        }
        5 => {
            pool.prefetch(block);
            pool.end_request();
        }
        6 => {
            let frame = random.u32(0..FRAMES as u32);
            pool.write_out(frame);
            pool.evict(frame);
        }
        7 => {
            let frame = pool.acquire(block, Mode::Pin).unwrap();
            pool.latch_pinned(frame, Mode::Exclusive);
            assert_eq!(pool.read(frame), said(block), "[FRM-1] not block {block}, or an old one");
            pool.frames().release_exclusive(frame);
        }
        8 => {
            // A request that no other thread is about to complete is completed here.
            let idle = || {
                if !pool.end_request() {
                    park();
                }
            };
            if let Some(value) = pool.value_by_task(block, idle).unwrap() {
                let ever = 10 + u64::from(block)..=said(block);
                assert!(ever.contains(&value), "[FRM-1] {value} in block {block}");
            }
        }
        _ => {
            if let Some(seen) = pool.optimistic(block)
                && let Some(value) = pool.read_by(seen)
            {
                // A change is counted before its latch is released, so the count is at least what is seen.
                let ever = 10 + u64::from(block)..=said(block);
                assert!(ever.contains(&value), "[OPT-1] {value} in block {block}");
            }
        }
    }
}

fn random_steps(steps: usize, seed: u64) {
    let pool = Model::new(FRAMES, BLOCKS);
    let changes: Arc<Changes> = Arc::new((0..BLOCKS).map(|_| AtomicU64::new(0)).collect());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (pool, changes) = (Arc::clone(&pool), Arc::clone(&changes));
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * THREADS + thread);
                (0..steps).for_each(|_| step(&pool, &changes, &mut random));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while pool.end_request() {}
    pool.assert_settled();
    for block in 0..BLOCKS as Block {
        let expected = 10 + u64::from(block) + changes[block as usize].load(Ordering::Relaxed);
        assert_eq!(pool.value(block).unwrap(), expected, "[FRM-4] block {block}");
    }
}

/// Blocks are added and removed, and some cannot be read: the caller gets an error, and no frame is lost.
fn truncations(steps: usize, seed: u64) {
    let pool = Model::new(FRAMES, BLOCKS);
    pool.spoil(1);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * THREADS + thread);
                for _ in 0..steps {
                    if thread == 0 {
                        pool.truncate(BLOCKS - 1);
                        pool.extend(13);
                        continue;
                    }
                    let block = random.u32(0..BLOCKS as Block);
                    pool.prefetch(random.u32(0..BLOCKS as Block));
                    match pool.value(block) {
                        Ok(value) => assert!(block != 1 && value >= 10 + u64::from(block)),
                        Err(Error::Corrupt { .. }) => assert_eq!(block, 1, "[LOD-2]"),
                        Err(error) => assert_eq!(block, 3, "[RSZ-1] {error}"),
                    }
                    let changed = pool.change(block, 1);
                    assert!(changed.is_ok() || [1, 3].contains(&block), "{changed:?}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while pool.end_request() {}
    pool.assert_settled();
    pool.truncate(0);
    assert_eq!(pool.frames().free_count(), FRAMES, "[FRM-3]");
}

/// A seed that is part of the schedule, so that a failed one can be repeated.
#[cfg(shuttle)]
fn seed() -> u64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().r#gen()
}

#[cfg(shuttle)]
#[test]
fn shuttle_random_steps_agree_with_the_model() {
    shuttle::check_random(|| random_steps(8, seed() >> 8), 5_000);
    shuttle::check_pct(|| random_steps(8, seed() >> 8), 5_000, 3);
}

#[cfg(shuttle)]
#[test]
fn shuttle_truncations_and_failed_reads_lose_no_frame() {
    shuttle::check_random(|| truncations(4, seed() >> 8), 5_000);
    shuttle::check_pct(|| truncations(4, seed() >> 8), 5_000, 3);
}

#[cfg(not(shuttle))]
#[test]
fn random_steps_agree_with_the_model() {
    let (runs, steps) = if cfg!(miri) { (4, 30) } else { (40, 1_000) };
    (0..runs).for_each(|seed| random_steps(steps, seed));
}

#[cfg(not(shuttle))]
#[test]
fn truncations_and_failed_reads_lose_no_frame() {
    let (runs, steps) = if cfg!(miri) { (4, 20) } else { (40, 500) };
    (0..runs).for_each(|seed| truncations(steps, seed));
}
