//! Which scans of a buffered file are left to the kernel's own readahead, and how much that may over-read.

use forebay::{BufferPool, FileOptions, PagedFile, ReadaheadStrategy, StreamOptions, Tablespace};
use forebay_io::{File, OpenOptions};

use super::cold::{can_chill, chill};
use crate::decisions::{Decision, decisions};
use crate::site::{PAGE, Site, numbered, reopened, skip};

/// 128 KiB of readahead in pages, the default of Linux.
const USUAL: u64 = (128 << 10) / PAGE as u64;

/// Number of blocks that an adaptive scan reads before it tries another mode, if it has to wait for them.
const BEFORE_TRIAL: u32 = 128;

fn buffered(site: &Site) -> BufferPool {
    let main = Tablespace::new("main", site.path("main"));
    Site::chosen().frames(512).page_size(PAGE).tablespace(main).build().unwrap()
}

fn opened(file: &PagedFile) -> File {
    File::open(file.path(), &OpenOptions::new().read_only(true)).unwrap()
}

fn adaptive() -> StreamOptions {
    StreamOptions::new().readahead(ReadaheadStrategy::Adaptive)
}

/// The decisions during a scan of the first `blocks` blocks.
fn decided(file: &PagedFile, blocks: u32, options: &StreamOptions) -> Vec<Decision> {
    let (count, events) =
        decisions(|| file.scan_with(0..blocks, options).map(Result::unwrap).count());
    assert_eq!(count, blocks as usize);
    events
}

fn first_hint(events: &[Decision]) -> Option<u32> {
    let hints = events.iter().filter(|event| event.action == "Hint");
    hints.map(|event| event.first).min()
}

#[test]
fn a_short_scan_is_prefetched_and_nothing_behind_its_end_is_read() {
    let test = "a_short_scan_is_prefetched_and_nothing_behind_its_end_is_read";
    if !can_chill(test) {
        return;
    }
    let site = Site::new();
    let pool = buffered(&site);
    let file = reopened(&pool, numbered(&pool, "table", 2000, 0));
    chill(&file);
    let behind = 64 * PAGE as u64..2000 * PAGE as u64;
    if opened(&file).residency(behind.clone()).unwrap().pages_resident > 0 {
        return skip(test, "this filesystem's pages stay in the page cache");
    }
    let events = decided(&file, 64, &adaptive());
    assert_eq!(first_hint(&events), Some(0), "{events:?}");
    assert_eq!(opened(&file).residency(behind).unwrap().pages_resident, 0);
}

#[test]
fn a_long_scan_is_left_to_the_kernel_and_read_in_large_requests() {
    let test = "a_long_scan_is_left_to_the_kernel_and_read_in_large_requests";
    if !can_chill(test) {
        return;
    }
    let site = Site::new();
    let pool = buffered(&site);
    let file = pool.open_file("table", &FileOptions::new().create(true)).unwrap();
    let readahead = opened(&file).kernel_readahead().map_or(USUAL, |bytes| bytes / PAGE as u64);
    let Some(blocks) = u32::try_from(8 * readahead).ok().filter(|&blocks| blocks <= 1 << 16) else {
        return skip(test, "the kernel reads ahead further than a test should write");
    };
    let blocks = blocks.max(2 * BEFORE_TRIAL);
    file.extend(blocks).unwrap();
    let file = reopened(&pool, file);
    chill(&file);
    let events = decided(&file, blocks, &adaptive());
    let hint = first_hint(&events);
    assert!(hint.is_none_or(|first| first >= BEFORE_TRIAL), "hint for {hint:?}");
    let requests = events.iter().filter(|event| event.action == "Request");
    let early: Vec<_> = requests.filter(|event| event.first < BEFORE_TRIAL).collect();
    assert!(!early.is_empty() && early.iter().all(|event| event.blocks >= 16), "{early:?}");
}

#[test]
fn what_was_in_memory_when_it_was_named_is_counted_whatever_the_mode() {
    let test = "what_was_in_memory_when_it_was_named_is_counted_whatever_the_mode";
    if !can_chill(test) {
        return;
    }
    for readahead in [ReadaheadStrategy::Adaptive, ReadaheadStrategy::Prefetch] {
        let site = Site::new();
        let pool = buffered(&site);
        let file = reopened(&pool, numbered(&pool, "table", 300, 0));
        chill(&file);
        // Far from each other, so that no read includes another one's block.
        [10, 70, 150].into_iter().for_each(|block| drop(file.read(block).unwrap()));
        let options = StreamOptions::new().readahead(readahead);
        let mut stream = file.stream_with(0..200, &options);
        stream.by_ref().for_each(|row| drop(row.unwrap()));
        assert_eq!(stream.stats().hits, 3, "{readahead}");
    }
}
