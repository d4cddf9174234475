//! Statistics of each file and device, from a process tree's accesses.
//!
//! Worked example, continuing the one in `calls`: a read of page 4, for which pages 5 to 35 are read ahead, and then
//! one of page 5, which is a hit: 30 unused pages are left.
//!
//! Invariants:  [ACC-1] avoidable waiting is at most the waiting
//!              [ACC-2] unused pages are at most the pages read ahead
//!              [ACC-3] remembered pages are bounded
//! Concurrency: one owner.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;

use super::access::{Access, Read};
use super::event::Transfer;
use super::pattern::{Pattern, PatternDetector};

/// Maximum words of 64 pages that are kept for unused readahead of all files: 256 GiB at 4 KiB if all bits are set, in
/// 50 MB of memory. Pages beyond that are not counted as read ahead.
const AHEAD_MAX: usize = 1 << 20;

/// Maximum letters kept of a file's strip.
const STRIP_MAX: usize = 256;

/// Size classes, by powers of two: up to 2 GiB, more than one call reads.
const SIZES: usize = 32;

/// Histogram of sizes by powers of two, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Indexed by the binary logarithm of the size.
    counts: [u64; SIZES],
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Sizes {
    pub(super) fn add(&mut self, bytes: u64) {
        self.counts[(bytes.max(1).ilog2() as usize).min(SIZES - 1)] += 1;
        self.count += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: u64) {
        let same = &mut self.counts[(bytes.max(1).ilog2() as usize).min(SIZES - 1)];
        *same = same.saturating_sub(1);
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Each size class that occurred, as the size rounded down to a power of two, and its count.
    pub(super) fn seen(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..).map(|bits| 1 << bits).zip(self.counts).filter(|(_, count)| *count > 0)
    }
}

/// Count, sum and maximum of some durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) longest_ns: u64,
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// The figures of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileStats {
    /// As programs request them.
    pub(super) reads: Sizes,
    pub(super) writes: Sizes,
    /// As devices receive them, from the tasks of the process tree.
    pub(super) requests: Sizes,
    pub(super) requests_written: Sizes,
    pub(super) hits: u64,
    pub(super) waits: Times,
    /// Indexed by [`Pattern`].
    pub(super) avoidable_ns: [u64; 3],
    pub(super) syncs: Times,
    /// Pages that were read without being requested.
    pub(super) ahead_pages: u64,
    /// Pages that were read because the program advised the kernel.
    pub(super) advised_pages: u64,
    pub(super) strip: VecDeque<char>,
    unused: Pages,
}

impl FileStats {
    /// Pages read ahead and not used yet.
    pub(super) fn unused_pages(&self) -> u64 {
        self.unused.pages
    }

    /// Appends a letter to the strip; the help of the command says what each means.
    fn letter(&mut self, letter: char) {
        // More than two hits in a row carry no more information.
        if letter != '.' || !self.strip.iter().rev().take(2).eq(['.', '.'].iter()) {
            if self.strip.len() == STRIP_MAX {
                self.strip.pop_front();
            }
            self.strip.push_back(letter);
        }
    }
}

/// A set of pages, as a bitmap.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    words: HashMap<u64, u64>,
    pages: u64,
}

impl Pages {
    /// Calls `each` with the words that cover `first..first + pages`, and the bits of these pages in them.
    fn words(first: u64, pages: u64, mut each: impl FnMut(u64, u64)) {
        let end = first.saturating_add(pages);
        let mut at = first;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            each(at / 64, (u64::MAX >> (64 - bits)) << (at % 64));
            at += bits;
        }
    }

    /// Returns how many pages are new. `room`: maximum words to add.
    pub(super) fn add(&mut self, first: u64, pages: u64, room: usize) -> u64 {
        let (before, words_most) = (self.pages, self.words.len() + room);
        Pages::words(first, pages, |word, bits| {
            if self.words.len() >= words_most && !self.words.contains_key(&word) {
                return; // [ACC-3]
            }
            let seen = self.words.entry(word).or_default();
            self.pages += u64::from((bits & !*seen).count_ones());
            *seen |= bits;
        });
        self.pages - before
    }

    fn remove(&mut self, first: u64, pages: u64) {
        if self.pages == 0 {
            return;
        }
        Pages::words(first, pages, |word, bits| {
            let Some(seen) = self.words.get_mut(&word) else { return };
            self.pages -= u64::from((bits & *seen).count_ones());
            *seen &= !bits;
            if *seen == 0 {
                self.words.remove(&word);
            }
        });
    }
}

/// Requests to one device, from all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) read: Sizes,
    pub(super) written: Sizes,
    /// Those of the process tree among them.
    pub(super) own_read: Sizes,
    pub(super) own_written: Sizes,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Indexed by file number.
    files: Vec<FileStats>,
    patterns: PatternDetector,
    /// Words of unused readahead, of all files: at most [`AHEAD_MAX`].
    ahead_words: usize,
    pub(super) devices: BTreeMap<u32, Device>,
}

impl Stats {
    /// Numbers and figures of the files that were read, written or synced, in the order in which they were first seen.
    pub(super) fn files(&self) -> impl Iterator<Item = (u32, &FileStats)> {
        (0..).zip(&self.files).filter(|(_, it)| {
            it.reads.count + it.writes.count + it.syncs.count + it.requests.count + it.ahead_pages
                > 0
        })
    }

    /// Counts `access`.
    pub(super) fn access(&mut self, access: &Access) {
        match *access {
            Access::Read(read) => self.read(&read),
            Access::ReadAnywhere { file, bytes } => self.file(file).reads.add(bytes),
            Access::Write { file, bytes } => self.file(file).writes.add(bytes),
            Access::Sync { file, took_ns } => self.file(file).syncs.add(took_ns),
            Access::Advise { file, pages, .. } => self.file(file).advised_pages += pages,
            Access::Ahead { file, first, pages } => {
                let room = AHEAD_MAX.saturating_sub(self.ahead_words);
                let file = self.file(file);
                let before = file.unused.words.len();
                file.ahead_pages += file.unused.add(first, pages, room);
                let added_words = file.unused.words.len() - before;
                self.ahead_words += added_words;
            }
            Access::Request { device, bytes, transfer, file } => {
                let of_device = self.devices.entry(device).or_default();
                let (all, own) = match transfer {
                    Transfer::Read => (&mut of_device.read, &mut of_device.own_read),
                    Transfer::Write => (&mut of_device.written, &mut of_device.own_written),
                    Transfer::Other => return,
                };
                all.add(bytes);
                let Some(file) = file else { return };
                own.add(bytes);
                let file = self.file(file);
                match transfer {
                    Transfer::Read => file.requests.add(bytes),
                    _ => file.requests_written.add(bytes),
                }
            }
            Access::Requeue { device, bytes, transfer } => {
                let of_device = self.devices.entry(device).or_default();
                match transfer {
                    Transfer::Read => of_device.read.take(bytes),
                    Transfer::Write => of_device.written.take(bytes),
                    Transfer::Other => {}
                }
            }
            Access::Exited { task } => self.patterns.forget(task),
        }
    }

    /// The figures of file `number`, created if it is new.
    fn file(&mut self, number: u32) -> &mut FileStats {
        let number = number as usize;
        if number >= self.files.len() {
            self.files.resize_with(number + 1, FileStats::default);
        }
        &mut self.files[number]
    }

    fn read(&mut self, read: &Read) {
        let known = self.patterns.read(read.task, read.file, read.pages());
        let file = self.file(read.file);
        file.reads.add(read.bytes);
        let before = file.unused.words.len();
        file.unused.remove(read.first, read.more + 1);
        let removed_words = before - file.unused.words.len();
        if let Some(ns) = read.waited_ns {
            file.waits.add(ns);
            if let Some(known) = known {
                let avoidable_ns = &mut file.avoidable_ns[known as usize];
                *avoidable_ns = avoidable_ns.saturating_add(ns);
            }
        }
        match (read.missed, read.waited_ns) {
            (false, None) => {
                file.hits += 1;
                file.letter('.');
            }
            (false, Some(_)) => file.letter('!'),
            (true, _) => file.letter(match known {
                Some(Pattern::Sequence | Pattern::Stride) => 'S',
                Some(Pattern::Range) | None => 'R',
            }),
        }
        self.ahead_words -= removed_words;
    }
}

#[cfg(test)]
mod tests;
