//! Streams and random readers on one file, for a settled time.
//!
//! The first half of the file belongs to the streams, each a range of its own, the second to the random
//! readers, each with blocks of its own. Whoever comes to the end of its part drops the pages from the
//! cache and begins again, so that the time is as long as was asked for on a fast disk too.
//!
//! Invariants:  [MXR-1] nobody reads a block that is in memory because it was read before
//! Failure:     a block that is not the one asked for ends the run.

use std::ops::Range;
use std::time::Instant;

use forebay_io::{Advice, File};
use hdrhistogram::Histogram;

use crate::experiment::contest::read_exactly;
use crate::experiment::readahead::{Lane, Runner, Setting, check};
use crate::experiment::tally::wait_histogram;
use crate::workfile::Workfile;

/// Somebody who reads.
#[derive(Debug)]
pub(super) enum Reader<'a> {
    Stream(Stream<'a>),
    Random(Random<'a>),
}

impl Runner for Reader<'_> {
    fn run(&mut self, lane: &Lane<'_>) -> anyhow::Result<()> {
        match self {
            Reader::Stream(stream) => stream.run(lane),
            Reader::Random(random) => random.run(lane),
        }
    }
}

/// Reads a range from beginning to end, again and again.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    workfile: &'a Workfile,
    setting: Setting,
    range: Range<u64>,
    memory: Vec<u8>,
}

impl<'a> Stream<'a> {
    /// Of `range`, a multiple of `request_bytes` long.
    pub(super) fn new(
        workfile: &'a Workfile,
        setting: Setting,
        range: Range<u64>,
        request_bytes: u64,
    ) -> Stream<'a> {
        let length = (range.end - range.start) / request_bytes * request_bytes;
        let range = range.start..range.start + length;
        Stream { workfile, setting, range, memory: vec![1; request_bytes as usize] }
    }

    fn run(&mut self, lane: &Lane<'_>) -> anyhow::Result<()> {
        loop {
            // A descriptor for each pass: a sequence that begins again is a new one.
            let file = self.setting.open(self.workfile.path())?;
            let mut at = self.range.start;
            while at < self.range.end {
                read_exactly(&file, at, &mut self.memory)?;
                check(self.workfile, at, &self.memory)?;
                at += self.memory.len() as u64;
                if !lane.moved(self.memory.len() as u64) {
                    return Ok(());
                }
            }
            file.advise(self.range.clone(), Advice::DontNeed)?;
        }
    }
}

/// Reads blocks in a given order, each once.
#[derive(Debug)]
pub(super) struct Random<'a> {
    workfile: &'a Workfile,
    file: File,
    offsets: Vec<u64>,
    /// Where they all lie.
    range: Range<u64>,
    memory: Vec<u8>,
    /// How long each read took, once counting had begun.
    pub(super) wait_ns: Histogram<u64>,
}

impl<'a> Random<'a> {
    pub(super) fn new(
        workfile: &'a Workfile,
        setting: Setting,
        offsets: Vec<u64>,
        request_bytes: u64,
    ) -> anyhow::Result<Random<'a>> {
        let file = setting.open(workfile.path())?;
        let memory = vec![1; request_bytes as usize];
        let first = offsets.iter().min().copied().unwrap_or(0);
        let range = first..offsets.iter().max().map_or(first, |last| last + request_bytes);
        Ok(Random { workfile, file, offsets, range, memory, wait_ns: wait_histogram() })
    }

    fn run(&mut self, lane: &Lane<'_>) -> anyhow::Result<()> {
        while !self.offsets.is_empty() {
            for &at in &self.offsets {
                let moment = Instant::now();
                read_exactly(&self.file, at, &mut self.memory)?;
                let waited = moment.elapsed();
                check(self.workfile, at, &self.memory)?;
                if lane.is_settled() {
                    self.wait_ns.saturating_record(waited.as_nanos() as u64);
                }
                if !lane.moved(self.memory.len() as u64) {
                    return Ok(());
                }
            }
            // [MXR-1] Others' pages go as well, which they will not read before this one's turn either.
            self.file.advise(self.range.clone(), Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// For each of `readers` its own blocks of `range`, in random order [MXR-1].
pub(super) fn deal(
    range: Range<u64>,
    request_bytes: u64,
    readers: u32,
    random: &mut fastrand::Rng,
) -> Vec<Vec<u64>> {
    let count = (range.end - range.start) / request_bytes;
    let mut offsets: Vec<u64> =
        (0..count).map(|block| range.start + block * request_bytes).collect();
    random.shuffle(&mut offsets);
    let each = offsets.len() / readers.max(1) as usize;
    (0..readers as usize)
        .map(|reader| offsets[reader * each..(reader + 1) * each].to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::readahead::{BLOCK_BYTES, Limits, hold};
    use crate::workfile::Naming;
    use forebay_io::Hint;
    use std::time::Duration;

    #[test]
    fn every_block_is_dealt_at_most_once_and_lies_in_the_range() {
        let mut random = fastrand::Rng::with_seed(1);
        let hands = deal(1 << 20..3 << 20, 8192, 3, &mut random);
        assert!(hands.iter().all(|hand| hand.len() == 85), "256 blocks for three");
        let mut all: Vec<u64> = hands.concat();
        assert!(!all.is_sorted());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 255, "[MXR-1]");
        assert!(all.iter().all(|at| (1 << 20..3 << 20).contains(at) && at.is_multiple_of(8192)));
    }

    #[test]
    fn both_kinds_begin_again_until_time_is_up() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let mut workfile =
            Workfile::create(directory.path(), 1 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        workfile.fill(|_| ()).unwrap();
        let normal = Setting::Descriptor(Hint::Normal);
        let mut random = fastrand::Rng::with_seed(1);
        let hand = deal(1 << 19..1 << 20, 4096, 8, &mut random).remove(0);
        let (settle, time_max) = (Duration::ZERO, Duration::from_secs(1));
        let limits = Limits { settle, time_max };
        let once = hand.len() as u64 * 4096;
        let mut readers = [Reader::Random(Random::new(&workfile, normal, hand, 4096).unwrap())];
        let finish = hold(&mut readers, limits).unwrap();
        assert!(!finish.by_share && finish.total() > once, "{finish:?}");
        let Reader::Random(reader) = &readers[0] else { panic!("{readers:?}") };
        assert!(reader.wait_ns.len() >= finish.total() / 4096);

        let stream = Stream::new(&workfile, normal, 0..1 << 16, 8192);
        let finish = hold(&mut [Reader::Stream(stream)], limits).unwrap();
        assert!(!finish.by_share && finish.total() > 1 << 16, "a second pass: {finish:?}");
    }
}
