//! Adaptive: which mode of reading suits what the last reads have shown.
//!
//! Reading ahead wins whenever reads wait for the disk. When the kernel has the file in
//! its page cache there is nothing to wait for: a plain read of a block costs two or three microseconds,
//! and anything done around it shows.
//!
//! | mode | what happens | suits the page cache | tried for the disk |
//! |---|---|---|---|
//! | `Plain` | this thread reads each block when it is needed | a few single blocks | |
//! | `Inline` | this thread reads a window at a time, merged | long runs | |
//! | `Queue` | requests go to the queue; of the disk's, far ahead | fragments, where one system call takes all | random reads |
//! | `Kernel` | this thread reads run after run, the kernel reads ahead by itself | | scans |
//! | `Hint` | the kernel is told of each run far ahead (WILLNEED), and this thread reads it | | both |
//!
//! Whether the page cache has what is read, it says itself, where the system tells what is in it, asked for a
//! run or two of each batch that is to go to the queue; and after that the time that reads take. Which mode
//! suits the disk, the kernel and the machine is found by trial.
//!
//! Invariants:  [ADP-1] direct files, which have no page cache, are always read ahead, by the queue
//!              [ADP-2] nothing but scans is left to the kernel's guesses
//! Rejected:    to time the reads of `Ahead`: a batch whose reads all end within its submission has
//!              latencies like those of a disk, because they end one after the other.

use std::time::Duration;

use crate::trial::{Side, Trial};

/// What is read, and what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Through the kernel's page cache.
    pub buffered: bool,
    /// Size of a page, in bytes.
    pub page_bytes: usize,
    /// One system call takes a whole batch of requests.
    pub batches: bool,
    /// One block after the other is read.
    pub scan: bool,
}

/// How blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Each block when it is needed, by the reader itself.
    Plain,
    /// A window at a time, merged, by the reader itself.
    Inline,
    /// Requests to the queue.
    Queue,
    /// Run after run, by the reader itself; the kernel reads ahead.
    Kernel,
    /// The same, and the kernel is told of each run (WILLNEED).
    Hint,
}

/// What a read of a page from the page cache takes at most: the system call, and a nanosecond for each
/// two bytes.
pub fn cached_read_max(page_bytes: usize) -> Duration {
    CACHED_REQUEST_MAX + cached_page_max(page_bytes)
}

/// What a batch of so many pages in so many requests takes at most, if the page cache has it: a page of
/// many costs half of what one by itself may cost.
pub fn cached_batch_max(requests: u32, pages: u32, page_bytes: usize) -> Duration {
    CACHED_REQUEST_MAX * requests + cached_page_max(page_bytes) * pages / 2
}

fn cached_page_max(page_bytes: usize) -> Duration {
    Duration::from_nanos(page_bytes as u64 / 2)
}

const CACHED_REQUEST_MAX: Duration = Duration::from_micros(12);

/// Slow reads in a short time before plain reading is given up: one may be an interruption.
const SLOW_READS: u32 = 2;

/// Plain reads after which slow ones are forgotten.
const SLOW_WITHIN: u32 = 64;

/// Plain reads after which a batch is tried again: neighbours may have come up.
const RETRY_READS: u32 = 1024;

/// Batches that go to the queue, whatever the page cache seems to have, after those that it seemed to
/// have were slow: pages that are still on their way into the page cache look as if they were there.
const DISTRUST_BATCHES: u32 = 64;

/// Blocks to know of while the page cache has everything: what was read should still be in the
/// processor's cache when it is looked at.
const CACHED_WINDOW: u32 = 128;

/// The most of them: more make longer runs of what comes in disorder.
const CACHED_WINDOW_MAX: u32 = 1024;

/// Blocks to know of while the kernel looks ahead: a few of the largest requests.
const KERNEL_WINDOW: u32 = 64;

/// Blocks that are read at once then, about.
const KERNEL_RUN: u32 = 16;

/// Blocks in a run from which on more would be no gain.
const INLINE_RUN_LONG: u32 = 8;

/// Blocks in a batch from which on the queue pays even if nothing has to be waited for, where one system
/// call takes all of them.
const QUEUE_BATCH: u32 = 32;

/// Blocks in a run from which on it is worth reading them together.
const INLINE_RUN: u32 = 2;

/// The choice of a mode, for one reader.
#[derive(Debug, Clone)]
pub struct Adaptive {
    /// The mode while the page cache has what is read; `None` while it comes from the disk.
    cached: Option<ReadMode>,
    /// The modes for the disk.
    modes: [ReadMode; 2],
    trial: Trial,
    reading: Reading,
    /// Plain reads since the mode was taken.
    reads: u32,
    slow: u32,
    /// Batches for which samples are not believed.
    distrust: u32,
    /// Blocks to know of while nothing has to be waited for.
    cached_window: u32,
}

impl Adaptive {
    /// Begins to read ahead. `winner`: of the trials of streams like this one.
    pub fn new(reading: Reading, winner: Option<Side>) -> Adaptive {
        let (modes, trial) = match (reading.buffered, reading.scan) {
            (false, _) => ([ReadMode::Queue; 2], Trial::only(Side::First)), // [ADP-1]
            (true, true) => {
                let waiting = cached_batch_max(1, KERNEL_RUN, reading.page_bytes) * 2 / KERNEL_RUN;
                ([ReadMode::Kernel, ReadMode::Hint], Trial::new(winner, Some(waiting)))
            }
            (true, false) => ([ReadMode::Hint, ReadMode::Queue], Trial::new(winner, None)), // [ADP-2]
        };
        Adaptive {
            cached: None,
            modes,
            trial,
            reading,
            reads: 0,
            slow: 0,
            distrust: 0,
            cached_window: CACHED_WINDOW,
        }
    }

    /// How blocks are read now.
    pub fn mode(&self) -> ReadMode {
        self.cached.unwrap_or_else(|| self.disk_mode())
    }

    /// How to read what comes from the disk.
    pub fn disk_mode(&self) -> ReadMode {
        self.modes[self.trial.side() as usize]
    }

    /// Whether the kernel's own readahead is one of the modes.
    pub fn is_scan(&self) -> bool {
        self.modes[0] == ReadMode::Kernel
    }

    /// Reads from the disk by the queue alone.
    pub fn by_queue_only(&mut self) {
        self.modes = [ReadMode::Queue; 2];
        self.trial = Trial::only(Side::First);
    }

    /// The kernel takes no hints.
    pub fn without_hints(&mut self) {
        self.trial = Trial::only(if self.is_scan() { Side::First } else { Side::Second });
    }

    /// Reading `blocks` has cost the reader `spent`; `known` more have been asked for. Gives the winner of
    /// the trial when there is one.
    pub fn spent(&mut self, blocks: u32, spent: Duration, known: u32) -> Option<Side> {
        if self.cached.is_some() {
            return None;
        }
        self.trial.spent(blocks, spent, known)
    }

    /// Blocks to know of now, if `distance` is how far it pays to be ahead of a disk.
    pub fn window(&self, distance: u32) -> u32 {
        match self.cached {
            None if self.disk_mode() == ReadMode::Kernel => distance.min(KERNEL_WINDOW),
            None | Some(ReadMode::Plain) => distance,
            Some(_) => self.cached_window,
        }
    }

    /// Whether the page cache is worth a look before a batch. It is not where the kernel reads ahead: what
    /// is there is read in the same way.
    pub fn wants_sample(&self) -> bool {
        self.reading.buffered && self.distrust == 0 && self.disk_mode() != ReadMode::Kernel
    }

    /// A batch of `blocks` in `runs` is about to be read. `cached`: whether what was looked at of it is
    /// in the page cache; `None` where the system does not tell.
    pub fn batch(&mut self, cached: Option<bool>, blocks: u32, runs: u32) -> ReadMode {
        self.distrust = self.distrust.saturating_sub(1);
        let mode = match cached {
            Some(true) if self.reading.buffered => Some(if blocks >= INLINE_RUN_LONG * runs {
                ReadMode::Inline
            } else if self.reading.batches && blocks >= QUEUE_BATCH {
                self.widen();
                ReadMode::Queue
            } else if blocks >= INLINE_RUN * runs {
                ReadMode::Inline
            } else {
                ReadMode::Plain
            }),
            _ => None,
        };
        if mode != self.cached {
            self.take(mode);
        }
        self.mode()
    }

    /// A batch of so many pages in so many requests was read inline, and took so long.
    pub fn read_inline(&mut self, took: Duration, requests: u32, pages: u32) {
        if requests == 0 {
            return; // All of it was in memory.
        }
        if pages < INLINE_RUN * requests
            || (self.reading.batches && pages < INLINE_RUN_LONG * requests)
        {
            self.take(Some(ReadMode::Queue));
            return;
        }
        if pages < INLINE_RUN_LONG * requests {
            self.widen();
        }
        if took <= cached_batch_max(requests, pages, self.reading.page_bytes) {
            self.slow = 0;
            return;
        }
        self.slow += 1;
        if self.slow >= SLOW_READS {
            self.take(None);
            self.distrust = DISTRUST_BATCHES;
        }
    }

    /// A plain read took so long.
    pub fn read_plain(&mut self, took: Duration) {
        if self.cached != Some(ReadMode::Plain) {
            return;
        }
        self.reads += 1;
        if took > cached_read_max(self.reading.page_bytes) {
            self.slow += 1;
        }
        if self.slow >= SLOW_READS {
            self.take(None);
            self.distrust = DISTRUST_BATCHES;
        } else if self.reads >= RETRY_READS {
            self.take(Some(ReadMode::Queue));
        } else if self.reads.is_multiple_of(SLOW_WITHIN) {
            self.slow = 0;
        }
    }

    /// What comes in fragments comes in longer runs, if more of it is known.
    fn widen(&mut self) {
        self.cached_window = (self.cached_window * 2).min(CACHED_WINDOW_MAX);
    }

    fn take(&mut self, cached: Option<ReadMode>) {
        self.cached = cached;
        (self.reads, self.slow) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(3);
    const SLOW: Duration = Duration::from_micros(80);
    const READING: Reading =
        Reading { buffered: true, page_bytes: 8192, batches: false, scan: false };

    fn buffered() -> Adaptive {
        Adaptive::new(READING, None)
    }

    #[test]
    fn adp_1_a_direct_file_is_always_read_ahead() {
        let reading = Reading { buffered: false, batches: true, scan: true, ..READING };
        let mut direct = Adaptive::new(reading, Some(Side::First));
        assert!(!direct.wants_sample(), "[ADP-1]");
        assert_eq!(direct.batch(Some(true), 64, 4), ReadMode::Queue, "[ADP-1]");
        assert_eq!(direct.spent(1 << 20, SLOW, 0), None, "[ADP-1]");
        assert_eq!(direct.disk_mode(), ReadMode::Queue, "[ADP-1]");
    }

    #[test]
    fn adp_2_a_scan_is_left_to_the_kernel_first_and_others_are_told_of() {
        let of = |scan| Adaptive::new(Reading { batches: true, scan, ..READING }, None);
        let (mut scan, other) = (of(true), of(false));
        assert_eq!(
            (scan.disk_mode(), other.disk_mode()),
            (ReadMode::Kernel, ReadMode::Hint),
            "[ADP-2]"
        );
        assert!(!scan.wants_sample() && other.wants_sample());
        assert_eq!((scan.window(4096), other.window(4096)), (KERNEL_WINDOW, 4096));
        scan.spent(4096, SLOW, 0);
        assert_eq!((scan.disk_mode(), scan.window(4096)), (ReadMode::Hint, 4096));
        scan.without_hints();
        assert_eq!(scan.disk_mode(), ReadMode::Kernel);
        scan.by_queue_only();
        assert_eq!(scan.disk_mode(), ReadMode::Queue);
        let known = Adaptive::new(Reading { scan: true, ..READING }, Some(Side::Second));
        assert_eq!(known.disk_mode(), ReadMode::Hint, "as it was the cheaper one elsewhere");
    }

    #[test]
    fn what_is_cached_is_read_without_the_queue_and_merged_where_that_saves_reads() {
        let mut adaptive = buffered();
        assert_eq!(adaptive.batch(Some(true), 64, 4), ReadMode::Inline);
        assert_eq!(adaptive.batch(Some(true), 64, 60), ReadMode::Plain);
        assert_eq!(adaptive.batch(Some(false), 64, 4), ReadMode::Hint);
        assert_eq!(adaptive.batch(None, 64, 4), ReadMode::Hint);
    }

    #[test]
    fn many_single_blocks_go_through_a_queue_that_takes_them_at_once() {
        let mut adaptive = Adaptive::new(Reading { batches: true, ..READING }, None);
        assert_eq!(adaptive.batch(Some(true), 64, 20), ReadMode::Queue);
        assert_eq!(adaptive.batch(Some(true), 64, 4), ReadMode::Inline);
        assert_eq!(adaptive.batch(Some(true), 10, 10), ReadMode::Plain);
    }

    #[test]
    fn fragments_call_for_a_wider_window_and_strays_for_the_queue() {
        let mut adaptive = buffered();
        adaptive.batch(Some(true), 64, 4);
        adaptive.read_inline(FAST, 4, 64);
        assert_eq!(adaptive.window(8), CACHED_WINDOW);
        adaptive.read_inline(SLOW, 0, 0);
        adaptive.read_inline(SLOW, 0, 0);
        assert_eq!(adaptive.mode(), ReadMode::Inline, "a batch without reads says nothing");
        adaptive.read_inline(FAST, 20, 64);
        assert_eq!(adaptive.window(8), 2 * CACHED_WINDOW);
        adaptive.read_inline(FAST, 60, 64);
        assert_eq!(adaptive.mode(), ReadMode::Queue);
    }

    #[test]
    fn pages_that_only_seem_to_be_cached_are_read_by_the_queue_for_a_while() {
        let mut adaptive = buffered();
        adaptive.batch(Some(true), 64, 4);
        adaptive.read_inline(SLOW * 100, 4, 64);
        assert_eq!(adaptive.mode(), ReadMode::Inline, "one may be an interruption");
        adaptive.read_inline(SLOW * 100, 4, 64);
        assert_eq!(adaptive.cached, None);
        assert!(!adaptive.wants_sample());
    }

    #[test]
    fn slow_reads_end_plain_reading_and_a_lone_one_does_not() {
        let mut adaptive = buffered();
        adaptive.batch(Some(true), 4, 4);
        adaptive.read_plain(SLOW);
        (1..SLOW_WITHIN).for_each(|_| adaptive.read_plain(FAST));
        adaptive.read_plain(SLOW);
        assert_eq!(adaptive.mode(), ReadMode::Plain, "the first one was forgotten");
        adaptive.read_plain(SLOW);
        assert_eq!(adaptive.cached, None);
    }

    #[test]
    fn plain_reading_is_put_to_the_test_from_time_to_time() {
        let mut adaptive = buffered();
        adaptive.batch(Some(true), 4, 4);
        assert_eq!(adaptive.mode(), ReadMode::Plain);
        (0..RETRY_READS).for_each(|_| adaptive.read_plain(FAST));
        assert_eq!(adaptive.mode(), ReadMode::Queue);
    }
}
