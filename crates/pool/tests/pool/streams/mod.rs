//! Read streams: the right pages, in order, once each, whatever the disk and the caller do.
//!
//! Most tests run over a [`Dam`], which holds reads back so that a test can act while they are in flight, and
//! afterwards reports what was read from the disk.

mod budgets;
mod cold;
mod corners;
mod counts;
mod dam;
mod descriptors;
mod faults;
mod leaving;
mod many;
mod modes;
mod order;
mod plain;
mod prefetch;
mod sharing;
mod soak;

use forebay::{
    BufferPool, DeviceCosts, Error, PagedFile, ReadaheadStrategy, StreamOptions, Tablespace,
};
use forebay_io::{CacheMode, Kind};
use std::time::Duration;

use crate::site::{PAGE, Site, number_in, numbered, reopened, skip};
use dam::Dam;

/// Block n of a [`stage`] contains n plus this number.
const FIRST: u64 = 1000;

/// A pool over a disk that the test controls, and a file with no block in memory.
struct Stage {
    /// Dropped first: a test that fails must not wait for reads that are never released.
    dam: Dam,
    file: PagedFile,
    pool: BufferPool,
}

/// A pool of `frames` over a dam on `kind`, buffered, with a file of `blocks`. `None`, recorded as skipped, where that
/// backend does not work.
fn stage(site: &Site, kind: Kind, frames: u64, blocks: u32) -> Option<Stage> {
    stage_at(site, kind, frames, blocks, |space| space)
}

/// As [`stage`], in a tablespace that the test configures.
fn stage_at(
    site: &Site,
    kind: Kind,
    frames: u64,
    blocks: u32,
    space: impl FnOnce(Tablespace) -> Tablespace,
) -> Option<Stage> {
    let dam = match Dam::over(site, kind, CacheMode::Buffered) {
        Ok(dam) => dam,
        Err(reason) => {
            skip(&format!("streams over {kind}"), &reason);
            return None;
        }
    };
    let main = Tablespace::new("main", site.path(&format!("main {kind}"))).costs(no_gaps());
    let builder = Site::bare(frames).cleaner(false);
    let pool = builder.tablespace(space(main.io(dam.io()))).build().unwrap();
    let file = reopened(&pool, numbered(&pool, "table", blocks, FIRST));
    dam.forget();
    Some(Stage { file, pool, dam })
}

/// Costs for which no gap is worth reading through.
fn no_gaps() -> DeviceCosts {
    let (request, mebibyte) = (Duration::from_nanos(1), Duration::from_secs(1));
    DeviceCosts { request, mebibyte, useful_depth: 64 }
}

/// Costs for which every gap is.
fn all_gaps() -> DeviceCosts {
    let (request, mebibyte) = (Duration::from_secs(1), Duration::from_nanos(1));
    DeviceCosts { request, mebibyte, useful_depth: 64 }
}

/// Reads directly into frames, whatever the page cache has.
fn ahead() -> StreamOptions {
    StreamOptions::new().readahead(ReadaheadStrategy::Async)
}

/// Backends whose reads are driven differently.
const KINDS: [Kind; 3] = [Kind::Uring, Kind::Threads, Kind::Sync];

/// Asserts that block `block` has the expected contents.
#[track_caller]
fn assert_says(page: &[u8], block: u32) {
    assert_eq!(number_in(page), FIRST + u64::from(block), "the contents of block {block}");
}

/// Asserts that there are no pins once all reads have completed, that every frame is accounted for, and that the pool
/// closes.
#[track_caller]
fn assert_settled(stage: &Stage) {
    stage.dam.io().drain();
    let pool = &stage.pool;
    let view = pool.view();
    for frame in &view {
        assert_eq!(
            (frame.pins, frame.reading || frame.writing, frame.orphan),
            (0, false, false),
            "[SUB-2] {frame}"
        );
    }
    let stats = pool.stats();
    assert_eq!(stats.frames_free + view.len() as u64, stats.frames, "[RS-3] frames are lost");
    pool.close().unwrap();
    assert_eq!(pool.stats().frames_free, stats.frames, "a closed pool has all its frames");
}

fn is_past_end(error: &Error) -> bool {
    matches!(error, Error::PastEnd { .. })
}

/// Byte offset of a block.
fn at(block: u32) -> u64 {
    u64::from(block) * PAGE as u64
}
