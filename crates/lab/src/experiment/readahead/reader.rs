//! Sequential readers: plain reads through the page cache, and many large ones past it.
//!
//! Programs that leave readahead to the kernel use plain reads. The large reads are the upper bound: they
//! always keep some megabytes in flight, so that neither the kernel's readahead nor the time from one
//! request to the next has an effect.
//!
//! Invariants:  [RDR-1] every read is checked: its first block carries the number it should
//!              [RDR-2] a reader that begins again reads no block that is in memory because it was read before

use std::time::Instant;

use anyhow::bail;
use forebay_io::{Advice, CacheMode, File, IoOptions, OpenOptions};
use hdrhistogram::Histogram;

use super::control::Readahead;
use super::files::Share;
use super::race::{ReadCounter, Runner};
use super::settings::BLOCK_BYTES;
use crate::experiment::comparison::read_exactly;
use crate::experiment::window::{Window, queue};
use forebay_measure::coldness::wait_histogram;
use forebay_measure::workfile::Workfile;

/// Size of a request past the page cache, in bytes.
pub(super) const DIRECT_REQUEST_BYTES: u64 = 1 << 20;

/// Bytes that all readers together have in flight past the page cache, limited by
/// [`DIRECT_DEPTHS`] requests for each.
const DIRECT_BYTES_IN_FLIGHT: u64 = 64 << 20;

/// Minimum and maximum requests of one reader in flight.
const DIRECT_DEPTHS: (u64, u64) = (2, 16);

/// Plain reads of one size, one after the other.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    share: Share<'a>,
    readahead: Readahead,
    file: File,
    /// Of the reads, in their order.
    offsets: Vec<u64>,
    memory: Vec<u8>,
    /// Whether it begins again at the end, from an emptied cache, until time is up.
    pub(super) again: bool,
    /// The time of each read since counting began, for a reader that begins again.
    pub(super) wait_ns: Histogram<u64>,
}

impl<'a> Plain<'a> {
    /// Opens the file under `readahead`, which has been set. `offsets`: within the share, where reads of
    /// `request_bytes` begin; `None`: from beginning to end.
    pub(super) fn open(
        share: Share<'a>,
        readahead: Readahead,
        offsets: Option<Vec<u64>>,
        request_bytes: u64,
    ) -> anyhow::Result<Plain<'a>> {
        let in_order = || share.range.clone().step_by(request_bytes as usize).collect();
        let offsets = offsets.unwrap_or_else(in_order);
        let file = readahead.open(share.workfile.path())?;
        // Written, not only reserved: the first use of memory must not be measured.
        let memory = vec![1; request_bytes as usize];
        let wait_ns = wait_histogram();
        Ok(Plain { share, readahead, file, offsets, memory, again: false, wait_ns })
    }
}

impl Runner for Plain<'_> {
    fn run(&mut self, counter: &ReadCounter<'_>) -> anyhow::Result<()> {
        let Share { workfile, range } = &self.share;
        while !self.offsets.is_empty() {
            for &at in &self.offsets {
                let len = (range.end - at).min(self.memory.len() as u64);
                let moment = Instant::now();
                read(&self.file, workfile, at, &mut self.memory[..len as usize])?;
                if self.again && counter.is_settled() {
                    self.wait_ns.saturating_record(moment.elapsed().as_nanos() as u64);
                }
                if !counter.moved(len) {
                    return Ok(());
                }
            }
            if !self.again {
                break;
            }
            // [RDR-2] Others' pages may be dropped as well; they will not read them before this one's turn either.
            self.file.advise(range.clone(), Advice::DontNeed)?;
            // A descriptor for each pass: a sequence that begins again is a new one.
            self.file = self.readahead.open(workfile.path())?;
        }
        Ok(())
    }
}

/// Reads all of `memory` at `offset`, and checks its contents [RDR-1].
pub(super) fn read(
    file: &File,
    workfile: &Workfile,
    offset: u64,
    memory: &mut [u8],
) -> anyhow::Result<()> {
    read_exactly(file, offset, memory)?;
    check(workfile, offset, memory)
}

/// Refuses bytes that are not those of the file at `offset` [RDR-1].
fn check(workfile: &Workfile, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
    let number = offset / BLOCK_BYTES;
    if offset.is_multiple_of(BLOCK_BYTES) && !bytes.starts_with(&workfile.stamp(number)) {
        bail!("block {number} of a working file has other contents");
    }
    Ok(())
}

/// Requests that each of `readers` has in flight.
pub(super) fn direct_depth(readers: u32) -> usize {
    let (least, most) = DIRECT_DEPTHS;
    let fair = DIRECT_BYTES_IN_FLIGHT / DIRECT_REQUEST_BYTES / u64::from(readers.max(1));
    fair.clamp(least, most) as usize
}

/// Reads a range past the page cache, many requests in flight.
#[derive(Debug)]
pub(super) struct Direct<'a> {
    window: Window,
    share: Share<'a>,
}

impl<'a> Direct<'a> {
    /// Opens a queue for `depth` requests.
    pub(super) fn open(share: Share<'a>, depth: usize) -> Result<Direct<'a>, forebay_io::Error> {
        let options = OpenOptions::new().read_only(true).cache(CacheMode::Direct);
        let file = File::open(share.workfile.path(), &options)?;
        let options =
            IoOptions { cache: CacheMode::Direct, workers: depth, ..IoOptions::default() };
        let (io, memory) = queue(&options, depth, DIRECT_REQUEST_BYTES)?;
        let window = Window::new(io, file, share.range.end, depth, &memory);
        Ok(Direct { window, share })
    }

    /// The backend that executes its requests.
    pub(super) fn backend(&self) -> String {
        self.window.io.kind().to_string()
    }
}

impl Runner for Direct<'_> {
    fn run(&mut self, counter: &ReadCounter<'_>) -> anyhow::Result<()> {
        let Share { workfile, range } = &self.share;
        let offsets = range.clone().step_by(DIRECT_REQUEST_BYTES as usize);
        self.window.read(offsets.take_while(|_| !counter.is_over()), |offset, bytes, _| {
            check(workfile, offset, bytes)?;
            counter.moved(bytes.len() as u64);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::Fadvise;
    use super::super::files::emptied;
    use super::super::race::hold;
    use super::*;
    use forebay_measure::coldness::Coldness;
    use forebay_measure::workfile::Naming;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    const AT_ONCE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(60);

    fn full_file(directory: &tempfile::TempDir) -> Workfile {
        let mut workfile =
            Workfile::create(directory.path(), 5 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        workfile.fill(|_| ()).unwrap();
        workfile
    }

    fn normal() -> Readahead {
        Readahead::descriptor(Fadvise::Normal, None)
    }

    #[test]
    fn a_share_is_read_to_its_last_byte_whatever_the_request() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let workfile = full_file(&directory);
        for request in [4096, 8192, 3 << 20] {
            let share = Share { workfile: &workfile, range: 8192..(4 << 20) + 8192 };
            let mut readers = [Plain::open(share, normal(), None, request).unwrap()];
            let finish = hold(&mut readers, AT_ONCE, LONG).unwrap();
            assert_eq!(finish.total(), 4 << 20);
        }
    }

    #[test]
    fn who_begins_again_reads_until_time_is_up_and_nothing_from_memory() {
        const PASS: u64 = 1 << 20;
        let directory = tempfile::tempdir_in(".").unwrap();
        let workfile = full_file(&directory);
        let random = Readahead::descriptor(Fadvise::Random, None);
        for _ in 0..4 {
            let mut time = Duration::from_millis(500);
            // A busy machine takes longer for a second pass.
            let (finish, readers) = loop {
                if emptied(&workfile).unwrap() != Coldness::Cold {
                    return; // a filesystem that is its own page cache
                }
                let share = Share { workfile: &workfile, range: 0..PASS };
                let mut readers = [Plain::open(share, random, None, 8192).unwrap()];
                readers[0].again = true;
                let finish = hold(&mut readers, AT_ONCE, time).unwrap();
                if finish.total() > PASS || time > LONG {
                    break (finish, readers);
                }
                time *= 4;
            };
            assert!(finish.total() > PASS, "a second pass: {finish:?}");
            assert!(readers[0].wait_ns.len() >= finish.total() / 8192);
            // Only of the last pass, except for reads after the end of counting.
            let resident = readers[0].file.residency(0..PASS).unwrap();
            let bytes = resident.pages_resident * resident.page_bytes;
            let last = finish.total() % PASS;
            assert!(last == 0 || bytes <= last + PASS / 4, "[RDR-2] {bytes} of {finish:?}");
        }
    }

    #[test]
    fn past_the_page_cache_too() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let workfile = full_file(&directory);
        // The last request is half as long as the others.
        let range = 0..(4 << 20) + (1 << 19);
        let share = Share { workfile: &workfile, range: range.clone() };
        let opened = Direct::open(share, 3);
        let mut reader = match opened {
            Err(forebay_io::Error::DirectRefused { .. }) => return,
            opened => opened.unwrap(),
        };
        let finish = hold(std::slice::from_mut(&mut reader), AT_ONCE, LONG).unwrap();
        assert_eq!(finish.total(), range.end);
    }

    #[test]
    fn other_contents_are_noticed() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let workfile = full_file(&directory);
        let file = std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap();
        file.write_all_at(&[0xff; 8], 5 * BLOCK_BYTES).unwrap();
        drop(file);
        let share = Share { workfile: &workfile, range: 0..1 << 20 };
        let mut readers = [Plain::open(share, normal(), None, BLOCK_BYTES).unwrap()];
        let error = hold(&mut readers, AT_ONCE, LONG).unwrap_err();
        assert!(error.to_string().starts_with("block 5 "), "[RDR-1] {error}");
    }

    #[test]
    fn fewer_readers_have_more_in_flight_each() {
        assert_eq!([1, 2, 8, 32, 256].map(direct_depth), [16, 16, 8, 2, 2]);
    }
}
