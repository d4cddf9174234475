//! Reading and looking: after each read, which part of what follows is in the page cache.
//!
//! The kernel tells how many pages of a range are resident; asked for halves of a range that is neither
//! empty nor full, it tells which. Where `cachestat` is there (Linux 6.5), a page counts as soon as its
//! read has been asked for, which is the very thing to be seen; `mincore` counts it when it is there, and
//! then it is waited until nothing changes any more.
//!
//! Invariants:  [WCH-1] a look is taken when two in a row are the same

use std::ops::Range;
use std::time::{Duration, Instant};

use forebay_io::File;

use super::reader::read;
use super::trail::Trail;
use crate::interrupt;
use crate::workfile::Workfile;

/// How long a look may change.
const CHANGING_TIME_MAX: Duration = Duration::from_millis(500);

/// Between two looks by `mincore`, while reads are under way that cannot be seen.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads after which a kernel that has not begun will not begin.
const READS_WITHOUT_MAX: u32 = 64;

/// A stream of reads, and what is known of it.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    pub(super) file: &'a File,
    /// Where the first read begins.
    pub(super) start: u64,
    pub(super) trail: Trail,
}

/// How streams read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    /// Size of a read, in bytes.
    pub(super) request_bytes: u64,
    /// From the start of a read to the start of the next, in bytes.
    pub(super) stride_bytes: u64,
    /// How far a stream goes at most, in bytes.
    pub(super) span_bytes: u64,
    /// How far ahead it is looked, in bytes.
    pub(super) horizon_bytes: u64,
}

/// Lets `streams` read in turn, each until its window has its full size or will never have one.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), a read that failed, or a system that cannot be looked into.
pub(super) fn follow(
    workfile: &Workfile,
    streams: &mut [Stream<'_>],
    steps: Steps,
) -> anyhow::Result<()> {
    let mut memory = vec![0; steps.request_bytes as usize];
    for number in 0.. {
        interrupt::check()?;
        let offset = number * steps.stride_bytes;
        if offset + steps.request_bytes > steps.span_bytes || streams.iter().all(is_done) {
            break;
        }
        for stream in &mut *streams {
            let at = stream.start + offset;
            let asked = at..at + steps.request_bytes;
            read(stream.file, workfile, at, &mut memory)?;
            let end = (asked.end + steps.horizon_bytes).min(workfile.size_bytes());
            let resident = settled(stream.file, at..end)?;
            stream.trail.push(asked, resident);
        }
    }
    Ok(())
}

fn is_done(stream: &Stream<'_>) -> bool {
    let trail = &stream.trail;
    let never = trail.finding().reads_until_ahead.is_none();
    let never = never && trail.reads() >= READS_WITHOUT_MAX;
    never || trail.is_steady()
}

/// What is resident of `range`, once that no longer changes [WCH-1].
fn settled(file: &File, range: Range<u64>) -> Result<Vec<Range<u64>>, forebay_io::Error> {
    let begun = Instant::now();
    let is_certain = file.residency(range.start..range.start + 1)?.pages_dirty.is_some();
    let mut before = resident(file, range.clone())?;
    loop {
        if !is_certain {
            std::thread::sleep(PAUSE);
        }
        let now = resident(file, range.clone())?;
        if now == before || begun.elapsed() > CHANGING_TIME_MAX {
            return Ok(now);
        }
        before = now;
    }
}

/// Which bytes of `range` are resident, whole pages of it, in order.
pub(super) fn resident(
    file: &File,
    range: Range<u64>,
) -> Result<Vec<Range<u64>>, forebay_io::Error> {
    let mut found: Vec<Range<u64>> = Vec::new();
    // Halves still to be looked at, the last one first.
    let mut halves = vec![range];
    while let Some(range) = halves.pop() {
        let seen = file.residency(range.clone())?;
        if seen.pages_resident == 0 {
            continue;
        }
        if seen.pages_resident < seen.pages {
            let pages = (range.end - range.start).div_ceil(seen.page_bytes);
            let middle = range.start + pages / 2 * seen.page_bytes;
            assert!(range.start < middle && middle < range.end, "one page is resident or not");
            halves.push(middle..range.end);
            halves.push(range.start..middle);
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::files::{BLOCK_BYTES, emptied};
    use super::super::knob::{Readahead, Told};
    use super::*;
    use crate::experiment::contest::read_exactly;
    use crate::measure::Coldness;
    use crate::workfile::Naming;
    use forebay_io::Advice;

    const PAGE: u64 = 4096;

    /// A file of 2 MiB, nothing of it in memory; `None` where that cannot be had.
    fn cold(directory: &tempfile::TempDir) -> Option<(Workfile, File)> {
        let naming = Naming::Nameless;
        let mut workfile =
            Workfile::create(directory.path(), 2 << 20, BLOCK_BYTES, 7, naming).unwrap();
        workfile.fill(|_| ()).unwrap();
        let coldness = emptied(&workfile).unwrap();
        let file = Readahead::descriptor(Told::Random, None).open(workfile.path()).unwrap();
        (coldness == Coldness::Cold).then_some((workfile, file))
    }

    #[test]
    fn exactly_the_pages_that_were_read_are_resident() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let Some((_, file)) = cold(&directory) else { return };
        let mut memory = vec![0; PAGE as usize];
        for page in [3, 4, 9, 200, 511] {
            read_exactly(&file, page * PAGE, &mut memory).unwrap();
        }
        let pages: Vec<Range<u64>> = settled(&file, 0..2 << 20)
            .unwrap()
            .into_iter()
            .map(|range| range.start / PAGE..range.end / PAGE)
            .collect();
        assert_eq!(pages, [3..5, 9..10, 200..201, 511..512], "[WCH-1]");
        assert_eq!(resident(&file, 5 * PAGE..9 * PAGE).unwrap(), []);
    }

    #[test]
    fn random_advice_shows_nothing_ahead_and_a_range_asked_for_ahead_shows() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let Some((workfile, file)) = cold(&directory) else { return };
        let steps = Steps {
            request_bytes: PAGE,
            stride_bytes: PAGE,
            span_bytes: 8 * PAGE,
            horizon_bytes: 64 * PAGE,
        };
        let mut streams = [Stream { file: &file, start: 64 * PAGE, trail: Trail::default() }];
        follow(&workfile, &mut streams, steps).unwrap();
        assert_eq!(streams[0].trail.reads(), 8);
        assert_eq!(streams[0].trail.finding().reads_until_ahead, None);

        file.advise(300 * PAGE..310 * PAGE, Advice::WillNeed).unwrap();
        let mut streams = [Stream { file: &file, start: 300 * PAGE, trail: Trail::default() }];
        follow(&workfile, &mut streams, steps).unwrap();
        let finding = streams[0].trail.finding();
        assert_eq!((finding.reads_until_ahead, finding.windows_bytes[0]), (Some(1), 10 * PAGE));
    }
}
