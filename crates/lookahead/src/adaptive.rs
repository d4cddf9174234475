//! Adaptive: chooses the mode of reading from what the last reads have shown.
//!
//! Reading ahead wins whenever reads wait for the disk. When the kernel has the file in its page cache, there is
//! nothing to wait for: a plain read of a block costs two or three microseconds, and any additional work is noticeable.
//!
//! | mode | what happens | suits the page cache | tried for the disk |
//! |---|---|---|---|
//! | `Plain` | this thread reads each block when it is needed | a few single blocks | |
//! | `Inline` | this thread reads a window at a time, merged | long runs | |
//! | `Queue` | requests go to the queue; requests to the disk go far ahead | fragments, where one system call takes all
//! | random reads |
//! | `Kernel` | this thread reads run after run, the kernel reads ahead on its own | | scans |
//! | `Hint` | the kernel receives a hint for each run far ahead (WILLNEED), and this thread reads it | | both |
//!
//! Where the system can report what is in the page cache, it is queried for a run or two of each batch that would go to
//! the queue; after that, the duration of reads shows it. Which mode suits the disk, the kernel and the machine is
//! found by trial.
//!
//! Invariants:  [ADP-1] direct files, which have no page cache, are always read ahead, by the queue
//!              [ADP-2] only scans are left to the kernel's guesses
//! Rejected:    timing the reads of the queue: a batch whose reads all end within its submission has latencies like those
//!              of a disk, because they end one after the other.

use std::time::Duration;

use crate::trial::{Side, Trial};

/// What is read, and which means are available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Through the kernel's page cache.
    pub buffered: bool,
    /// Size of a page, in bytes.
    pub page_bytes: usize,
    /// One system call submits a whole batch of requests.
    pub batches: bool,
    /// Consecutive blocks are read.
    pub scan: bool,
}

/// How blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// The reader itself reads each block when it is needed.
    Plain,
    /// The reader itself reads a window at a time, with requests merged.
    Inline,
    /// Requests go to the queue.
    Queue,
    /// The reader itself reads run after run; the kernel reads ahead.
    Kernel,
    /// Like `Kernel`, and the kernel receives a hint for each run (WILLNEED).
    Hint,
}

/// The maximum time of reading a page from the page cache: the system call, and a nanosecond for each two bytes.
pub fn cached_read_max(page_bytes: usize) -> Duration {
    CACHED_REQUEST_MAX + cached_page_max(page_bytes)
}

/// The maximum time of reading `pages` pages in `requests` requests from the page cache: a page among many costs at
/// most half of what a single one may cost.
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

/// Plain reads after which a batch is tried again: adjacent blocks may have appeared.
const RETRY_READS: u32 = 1024;

/// After batches that seemed to be cached proved slow, this many batches go to the queue, whatever the page cache seems
/// to contain: pages that are still being read into the page cache look as if they were present.
const DISTRUST_BATCHES: u32 = 64;

/// Blocks to know in advance while the page cache has everything: what was read should still be in the processor's
/// cache when it is used.
const CACHED_WINDOW: u32 = 128;

/// Maximum of that window: a larger window makes longer runs of scattered blocks.
const CACHED_WINDOW_MAX: u32 = 1024;

/// Blocks to know in advance while the kernel reads ahead: a few of the largest requests.
const KERNEL_WINDOW: u32 = 64;

/// Blocks that are read at once in that mode, approximately.
const KERNEL_RUN: u32 = 16;

/// Minimum length of a long run, in blocks: a longer one would bring no gain.
const INLINE_RUN_LONG: u32 = 8;

/// Minimum number of blocks in a batch for which the queue is faster even if no read waits, where one system call
/// submits them all.
const QUEUE_BATCH: u32 = 32;

/// Minimum number of blocks in a run for which reading them together is faster.
const INLINE_RUN: u32 = 2;

/// The choice of a mode, for one reader.
#[derive(Debug, Clone)]
pub struct Adaptive {
    /// The mode while the page cache has the blocks; `None` while they come from the disk.
    cached: Option<ReadMode>,
    /// The modes for the disk.
    modes: [ReadMode; 2],
    trial: Trial,
    reading: Reading,
    /// Plain reads since the mode was chosen.
    reads: u32,
    slow: u32,
    /// Number of batches for which samples are ignored.
    distrust: u32,
    /// Blocks to know in advance while no read waits.
    cached_window: u32,
}

impl Adaptive {
    /// Begins to read ahead. `winner`: the result of the trials of similar streams.
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

    /// Records that the kernel accepts no hints.
    pub fn without_hints(&mut self) {
        self.trial = Trial::only(if self.is_scan() { Side::First } else { Side::Second });
    }

    /// Records that reading `blocks` has cost the reader `spent`; `known` more have been requested. Returns the winner
    /// of the trial once it is known.
    pub fn spent(&mut self, blocks: u32, spent: Duration, known: u32) -> Option<Side> {
        if self.cached.is_some() {
            return None;
        }
        self.trial.spent(blocks, spent, known)
    }

    /// Blocks to know in advance now, if `distance` is the useful look-ahead for a disk.
    pub fn window(&self, distance: u32) -> u32 {
        match self.cached {
            None if self.disk_mode() == ReadMode::Kernel => distance.min(KERNEL_WINDOW),
            None | Some(ReadMode::Plain) => distance,
            Some(_) => self.cached_window,
        }
    }

    /// Whether to sample the page cache before a batch. Not where the kernel reads ahead: cached blocks are read in the
    /// same way there.
    pub fn wants_sample(&self) -> bool {
        self.reading.buffered && self.distrust == 0 && self.disk_mode() != ReadMode::Kernel
    }

    /// Chooses the mode for a batch of `blocks` in `runs`. `cached`: whether the sampled part of it is in the page
    /// cache; `None` where the system does not report that.
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

    /// Records that a batch of `pages` pages in `requests` requests was read inline, and how long that took.
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

    /// Records how long a plain read took.
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
        } else if self.reads % SLOW_WITHIN == 0 {
            self.slow = 0;
        }
    }

    /// Fragments form longer runs if more blocks are known in advance.
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
    fn adp_2_a_scan_is_left_to_the_kernel_first_and_others_are_predicted() {
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
