//! Reading and looking: after each read, how much of a stream's part of the file is in the page cache.
//!
//! A stream begins in an empty page cache and has its own part of the file. Bytes of it that are resident but
//! were not requested were read ahead; bytes that are resident and were not at the previous look were added by this
//! read: they are a window. Worked example, reads of 8 KiB from the middle of a file: after the first only itself is
//! resident; after the second 40 KiB are, of which 16 KiB were requested; so the kernel began with the
//! second read, with a window of 32 KiB.
//!
//! `cachestat` (Linux 6.5) counts a page as soon as its read has been submitted, which is exactly
//! what this part looks for; `mincore` counts it when the read has completed, and
//! then the look is repeated until nothing changes any more.
//!
//! Invariants:  [WCH-1] a look is valid when two in a row are the same
//!              [WCH-2] requested bytes are never counted as read ahead
//!              [WCH-3] a stream that never saw anything ahead has no windows

use std::ops::Range;
use std::time::{Duration, Instant};

use forebay_io::File;
use serde::Serialize;

use super::reader::read;
use forebay_measure::interrupt;
use forebay_measure::workfile::Workfile;

/// How long a look may change.
const CHANGING_TIME_MAX: Duration = Duration::from_millis(500);

/// The pause between two looks by `mincore`, while invisible reads may be in flight.
const PAUSE: Duration = Duration::from_millis(10);

/// Number of reads after which a kernel that has not started to read ahead will not start.
const READS_WITHOUT_MAX: u32 = 64;

/// The findings on a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Finding {
    /// The number of the read, counted from 1, at which more was read than was requested.
    pub(super) reads_until_ahead: Option<u32>,
    /// Bytes added by each read that added any, from that read on.
    pub(super) windows_bytes: Vec<u64>,
}

/// A stream of reads, and the findings on it.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    pub(super) file: &'a File,
    /// Its part of the file: from the first read to the end of the examined range.
    pub(super) part: Range<u64>,
    reads: u32,
    /// At the last look.
    resident_bytes: u64,
    pub(super) finding: Finding,
}

impl<'a> Stream<'a> {
    pub(super) fn new(file: &'a File, part: Range<u64>) -> Stream<'a> {
        Stream { file, part, reads: 0, resident_bytes: 0, finding: Finding::default() }
    }

    /// Records that `resident_bytes` of its part are in memory after one more read of `request_bytes`.
    fn push(&mut self, request_bytes: u64, resident_bytes: u64) {
        let fresh = resident_bytes.saturating_sub(self.resident_bytes);
        self.resident_bytes = resident_bytes;
        self.reads += 1;
        let finding = &mut self.finding;
        if finding.reads_until_ahead.is_none()
            && resident_bytes > u64::from(self.reads) * request_bytes
        {
            finding.reads_until_ahead = Some(self.reads); // [WCH-2]
        }
        if finding.reads_until_ahead.is_some() && fresh > 0 {
            finding.windows_bytes.push(fresh); // [WCH-3]
        }
    }

    /// Whether the kernel will not begin any more, or the window has reached its full size: the same size three times
    /// in a row, after another size. Before that it may be the same twice, since the rest of one
    /// window makes the next one smaller.
    fn is_done(&self) -> bool {
        let Finding { reads_until_ahead, windows_bytes } = &self.finding;
        let is_steady = matches!(windows_bytes[..], [_, .., a, b, c] if a == b && b == c);
        is_steady || (reads_until_ahead.is_none() && self.reads >= READS_WITHOUT_MAX)
    }
}

/// Lets `streams` read `request_bytes` each in turn at `offsets` of their parts, until the windows of all have their
/// full size or will never have one.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), a read that failed, or a system without residency information.
pub(super) fn follow(
    workfile: &Workfile,
    streams: &mut [Stream<'_>],
    request_bytes: u64,
    offsets: impl Iterator<Item = u64>,
) -> anyhow::Result<()> {
    let mut memory = vec![0; request_bytes as usize];
    for offset in offsets {
        interrupt::check()?;
        if streams.iter().all(Stream::is_done) {
            break;
        }
        for stream in &mut *streams {
            read(stream.file, workfile, stream.part.start + offset, &mut memory)?;
            let resident_bytes = settled(stream.file, &stream.part)?;
            stream.push(request_bytes, resident_bytes);
        }
    }
    Ok(())
}

/// How many bytes of `range` are resident, once that number is stable [WCH-1].
fn settled(file: &File, range: &Range<u64>) -> Result<u64, forebay_io::Error> {
    let begun = Instant::now();
    let mut before = file.residency(range.clone())?;
    loop {
        let is_certain = before.pages_dirty.is_some();
        if !is_certain {
            std::thread::sleep(PAUSE);
        }
        let now = file.residency(range.clone())?;
        if now.pages_resident == before.pages_resident || begun.elapsed() > CHANGING_TIME_MAX {
            return Ok(now.pages_resident * now.page_bytes);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::{Fadvise, Readahead};
    use super::super::files::emptied;
    use super::super::settings::BLOCK_BYTES;
    use super::*;
    use forebay_io::Advice;
    use forebay_measure::coldness::Coldness;
    use forebay_measure::workfile::Naming;

    const KIB: u64 = 1024;
    const PAGE: u64 = 4096;

    /// A file of 2 MiB, none of it in memory; `None` where that is not possible.
    fn cold(directory: &tempfile::TempDir) -> Option<(Workfile, File)> {
        let naming = Naming::Nameless;
        let mut workfile =
            Workfile::create(directory.path(), 2 << 20, BLOCK_BYTES, 7, naming).unwrap();
        workfile.fill(|_| ()).unwrap();
        let coldness = emptied(&workfile).unwrap();
        let file = Readahead::descriptor(Fadvise::Random, None).open(workfile.path()).unwrap();
        (coldness == Coldness::Cold).then_some((workfile, file))
    }

    /// A stream of reads of 8 KiB after which this many KiB were resident.
    fn seen<'a>(file: &'a File, resident_kib: &[u64]) -> Stream<'a> {
        let mut stream = Stream::new(file, 0..2 << 20);
        resident_kib.iter().for_each(|kib| stream.push(8 * KIB, kib * KIB));
        stream
    }

    fn finding(reads: u32, windows_kib: &[u64]) -> Finding {
        let windows_bytes = windows_kib.iter().map(|kib| kib * KIB).collect();
        Finding { reads_until_ahead: Some(reads), windows_bytes }
    }

    #[test]
    fn the_read_that_brings_more_than_asked_is_the_one_and_its_bytes_the_first_window() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let Some((_, file)) = cold(&directory) else { return };
        // (resident after each read, expected)
        let cases: [(&[u64], Finding); 5] = [
            // From the beginning of a file: immediately.
            (&[32, 96, 96, 96, 96], finding(1, &[32, 64])),
            // From the middle: the second read; the first added only its own bytes.
            (&[8, 40, 104, 104, 232], finding(2, &[32, 64, 128])),
            // Only the last look counts.
            (&[8, 16, 24, 56], finding(4, &[32])),
            // Half of the window holds requested bytes.
            (&[8, 16, 28, 32, 40], finding(3, &[12, 4, 8])),
            // Nothing ahead at all.
            (&[8, 16, 24, 32], Finding::default()),
        ];
        for (resident, expected) in cases {
            assert_eq!(seen(&file, resident).finding, expected, "[WCH-2] [WCH-3] {resident:?}");
        }
    }

    #[test]
    fn three_equal_windows_after_another_are_the_full_size() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let Some((_, file)) = cold(&directory) else { return };
        assert!(!seen(&file, &[32, 96]).is_done());
        assert!(!seen(&file, &[32, 64, 96]).is_done(), "growth has to be seen");
        assert!(!seen(&file, &[32, 96, 160, 216]).is_done());
        assert!(seen(&file, &[32, 96, 160, 160, 224]).is_done());
        assert!(seen(&file, &(1..=64).map(|read| read * 8).collect::<Vec<_>>()).is_done());
        assert!(!seen(&file, &[]).is_done());
    }

    #[test]
    fn random_advice_shows_nothing_ahead_and_a_prefetched_range_shows() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let Some((workfile, file)) = cold(&directory) else { return };
        let offsets = || (0..8).map(|read| read * 2 * PAGE);
        let mut streams = [Stream::new(&file, 64 * PAGE..128 * PAGE)];
        follow(&workfile, &mut streams, PAGE, offsets()).unwrap();
        assert_eq!((streams[0].reads, streams[0].resident_bytes), (8, 8 * PAGE), "[WCH-1]");
        assert_eq!(streams[0].finding, Finding::default(), "[WCH-2]");

        file.advise(300 * PAGE..310 * PAGE, Advice::WillNeed).unwrap();
        let mut streams = [Stream::new(&file, 300 * PAGE..400 * PAGE)];
        follow(&workfile, &mut streams, PAGE, offsets()).unwrap();
        let finding = &streams[0].finding;
        assert_eq!((finding.reads_until_ahead, finding.windows_bytes[0]), (Some(1), 10 * PAGE));
    }
}
