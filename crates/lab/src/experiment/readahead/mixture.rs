//! Part `mixture`: streaming readers with random readers beside them, and who loses what.
//!
//! The last question of document 002: "I will also measure its affect when mixed random access and streaming
//! reads occur." A large readahead lets a stream have the disk for longer at a time, and a random reader
//! wait for as long; a small one is the other way round. Under each readahead each kind is measured alone,
//! then both together, and told is what part of what it had alone each of them keeps.
//!
//! The first half of the file belongs to the streams, each a range of its own, the second to the random
//! readers, each with blocks of its own. At the end of its part each drops the pages from the cache and
//! begins again, so that the time is as long as was asked for on a fast disk too.
//!
//! Invariants:  [MIX-1] what a kind keeps is compared with what it had alone in the same round, under the same
//!              readahead
//!              [MIX-2] no two random readers have a block in common
//! Failure:     a block that is not the one asked for ends the run.
//! Source:      document 002.

use std::ops::Range;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::files::{Share, emptied, ranges};
use super::knob::{Readahead, Turned, set};
use super::race::{Finish, hold};
use super::reader::Plain;
use super::{Part, SETTLING_TIME_MAX, Settings};
use crate::experiment::Bench;
use crate::experiment::tally::{Row, counted, one_round, shuffled};
use crate::facts::DeviceCounters;
use crate::measure::wait_histogram;
use crate::statistics::{Estimate, Judgement, paired_ratio};

/// A cell and its rounds.
pub(super) type Cell = Row<Mixture, Round>;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mix {
    Streams,
    Random,
    Both,
}

/// One thing to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Mixture {
    pub(super) mix: Mix,
    /// How many streams, where they take part.
    pub(super) streams: u32,
    pub(super) random_readers: u32,
    #[serde(flatten)]
    pub(super) readahead: Readahead,
    request_bytes: u64,
}

impl Mixture {
    fn label(&self) -> String {
        format!("readahead {}, {:?}", self.readahead, self.mix).to_lowercase()
    }
}

/// What one round of a cell gave; of a kind that did not take part nothing.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Round {
    pub(super) stream_bytes_per_s: Option<f64>,
    pub(super) stream_kept: Option<f64>,
    pub(super) random_reads_per_s: Option<f64>,
    pub(super) random_kept: Option<f64>,
    random_wait_us_p50: Option<f64>,
    pub(super) random_wait_us_p99: Option<f64>,
    seconds: f64,
    device_requests: Option<u64>,
    device_bytes: Option<u64>,
}

impl Round {
    fn new(
        cell: &Mixture,
        finish: &Finish,
        waits: &Histogram<u64>,
        device: Option<DeviceCounters>,
    ) -> Round {
        let streams = if cell.mix == Mix::Random { 0 } else { cell.streams as usize };
        let (streams, random) = finish.moved.split_at(streams);
        let rate = |moved: &[u64]| {
            let total: u64 = moved.iter().sum();
            (!moved.is_empty()).then(|| total as f64 / finish.seconds)
        };
        let wait_us =
            |quantile| (!waits.is_empty()).then(|| waits.value_at_quantile(quantile) as f64 / 1e3);
        Round {
            stream_bytes_per_s: rate(streams),
            random_reads_per_s: rate(random).map(|rate| rate / cell.request_bytes as f64),
            random_wait_us_p50: wait_us(0.5),
            random_wait_us_p99: wait_us(0.99),
            seconds: finish.seconds,
            device_requests: device.map(|device| device.reads),
            device_bytes: device.map(|device| device.read_bytes),
            ..Round::default()
        }
    }
}

/// Everything that is to be measured, in the order of the report.
pub(super) fn cells(settings: &Settings) -> Vec<Mixture> {
    let wanted = settings.readaheads.iter().filter(|_| settings.has(Part::Mixture));
    let cells = |&readahead: &Readahead| {
        [Mix::Streams, Mix::Random, Mix::Both].map(|mix| Mixture {
            mix,
            streams: settings.args.streams,
            random_readers: settings.args.random,
            readahead,
            request_bytes: settings.requests(Part::Mixture)[0],
        })
    };
    wanted.flat_map(cells).collect()
}

/// Measures all cells.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn measure(
    settings: &Settings,
    bench: &Bench<'_>,
    turned: &Turned,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = cells(settings).into_iter().map(Cell::new).collect();
    let mut random = fastrand::Rng::with_seed(settings.args.common.seed);
    for _ in 0..settings.args.rounds.least {
        let order = shuffled(&cells, &mut random);
        one_round(&mut cells, order, progress, Mixture::label, |row| {
            row.begins(&emptied(bench.workfile)?);
            row.remarks.extend(set(turned, row.cell.readahead)?);
            round(settings, bench, &row.cell, &mut random)
        })?;
        compare(&mut cells);
    }
    Ok(cells)
}

fn round(
    settings: &Settings,
    bench: &Bench<'_>,
    cell: &Mixture,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Round> {
    let (workfile, request, readahead) = (bench.workfile, cell.request_bytes, cell.readahead);
    let size = workfile.size_bytes;
    let half = size / 2;
    let (streams, randoms) = match cell.mix {
        Mix::Streams => (cell.streams, 0),
        Mix::Random => (0, cell.random_readers),
        Mix::Both => (cell.streams, cell.random_readers),
    };
    let mut readers: Vec<Plain<'_>> = Vec::new();
    for range in ranges(half, streams) {
        readers.push(Plain::open(Share { workfile, range }, readahead, None, request)?);
    }
    for offsets in deal(half..size, request, randoms, random) {
        let share = Share { workfile, range: half..size };
        readers.push(Plain::open(share, readahead, Some(offsets), request)?);
    }
    readers.iter_mut().for_each(|reader| reader.again = true);
    let time = settings.args.time;
    let race = || hold(&mut readers, time, 2 * time);
    let (finish, device) = counted(bench.counters, SETTLING_TIME_MAX, race)?;
    let mut waits = wait_histogram();
    for reader in readers.iter().skip(streams as usize) {
        waits.add(&reader.wait_ns).expect("all histograms are made alike");
    }
    Ok(Round::new(cell, &finish, &waits, device))
}

/// Fills in what each kind kept in the last round [MIX-1].
fn compare(cells: &mut [Cell]) {
    let (threes, _) = cells.as_chunks_mut::<3>();
    for [streams, random, both] in threes {
        if let (Some(streams), Some(random), Some(both)) =
            (streams.rounds.last(), random.rounds.last(), both.rounds.last_mut())
        {
            let kept = |both: Option<f64>, alone: Option<f64>| Some(both? / alone?);
            both.stream_kept = kept(both.stream_bytes_per_s, streams.stream_bytes_per_s);
            both.random_kept = kept(both.random_reads_per_s, random.random_reads_per_s);
        }
    }
}

/// What the streams and what the random readers of both together keep of what they had alone.
fn kept(both: &Cell) -> [Option<Estimate>; 2] {
    let estimate = |kept: fn(&Round) -> Option<f64>| {
        let kept = both.figures(kept)?;
        paired_ratio(&kept, &vec![1.0; kept.len()]).filter(|_| both.cold)
    };
    [estimate(|round| round.stream_kept), estimate(|round| round.random_kept)]
}

/// Who loses more, under the smallest and under the largest readahead; nothing if nothing was asked.
pub(super) fn sentence(cells: &[Cell]) -> Option<String> {
    let both = cells.iter().filter(|cell| cell.cell.mix == Mix::Both);
    let told: Vec<String> = both
        .filter_map(|cell| {
            let [streams, random] = kept(cell);
            let part = |kind: &str, kept: Estimate| match kept.judgement() {
                Judgement::Keeps => format!("{kind} lose nothing"),
                _ => format!("{kind} keep {:.0} %", kept.value * 100.0),
            };
            let (streams, random) = (part("streams", streams?), part("random readers", random?));
            let readahead = cell.cell.readahead;
            Some(format!("with a readahead of {readahead} {streams} and {random}"))
        })
        .collect();
    let told = match &told[..] {
        [] if cells.is_empty() => return None,
        [] => {
            let none = "No conclusion about streams beside random readers: too little could be";
            return Some(format!("{none} measured."));
        }
        [only] => only.clone(),
        [least, .., most] => format!("{least}; {most}"),
    };
    Some(format!("Of what they have alone, {told}."))
}

/// For each of `readers` its own blocks of `range`, in random order [MIX-2].
fn deal(
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
    offsets.chunks(each.max(1)).take(readers as usize).map(<[u64]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::super::view;
    use super::*;

    #[test]
    fn every_block_is_dealt_at_most_once_and_lies_in_the_range() {
        let mut random = fastrand::Rng::with_seed(1);
        let hands = deal(1 << 20..3 << 20, 8192, 3, &mut random);
        assert_eq!(hands.iter().map(Vec::len).collect::<Vec<_>>(), [85; 3], "256 blocks for three");
        let mut all: Vec<u64> = hands.concat();
        assert!(!all.is_sorted());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 255, "[MIX-2]");
        assert!(all.iter().all(|at| (1 << 20..3 << 20).contains(at) && at.is_multiple_of(8192)));
    }

    /// All mixes under two readaheads, of which in each round this is kept by streams and by random readers.
    fn measured(kept: [[(f64, f64); 3]; 2]) -> Vec<Cell> {
        let options = "--quick --parts mixture --size 64MiB --streams 2 --random 1 --by descriptor";
        let settings = Settings::new(crate::experiment::typed(options));
        let mut cells: Vec<Cell> = cells(&settings.unwrap()).into_iter().map(Cell::new).collect();
        cells.drain(3..6);
        for round in 0..3 {
            for (three, kept) in cells.chunks_mut(3).zip(&kept) {
                let (streams, random) = kept[round];
                let moved = [
                    vec![400, 600],
                    vec![8192 * 10],
                    vec![
                        (streams * 500.0) as u64,
                        (streams * 500.0) as u64,
                        (81_920.0 * random) as u64,
                    ],
                ];
                for (cell, moved) in three.iter_mut().zip(moved) {
                    let finish = Finish { seconds: 1.0, moved };
                    let waits = wait_histogram();
                    cell.rounds.push(Round::new(&cell.cell, &finish, &waits, None));
                }
            }
            compare(&mut cells);
        }
        cells
    }

    #[test]
    fn each_kind_is_compared_with_itself_alone() {
        let kept = [(0.2, 0.5), (0.25, 0.4), (0.3, 0.3)];
        let cells = measured([kept, kept]);
        let [streams, random, both, ..] = &cells[..] else { panic!("{cells:?}") };
        let [streams, random, both] =
            [streams, random, both].map(|cell| cell.record("readahead", "seconds"));
        assert_eq!(streams.metric("stream_bytes_per_s"), Some(1000.0));
        assert_eq!(streams.metric("random_reads_per_s"), None);
        assert_eq!(streams.metric("stream_kept"), None);
        assert_eq!(random.metric("random_reads_per_s"), Some(10.0));
        assert_eq!(both.metric("stream_kept"), Some(0.25), "[MIX-1]");
        assert_eq!(both.metric("random_kept"), Some(0.4), "[MIX-1]");
        assert_eq!(both.rounds[0]["stream_kept"], 0.2, "[MIX-1]");
        assert_eq!(both.cell_text("mix"), "both");
        let table = view::mixture(&cells);
        let texts: Vec<&str> = table.rows[1].cells.iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(texts[1..4], ["0.001", "2.5e-4", "25.0"]);
        assert_eq!(texts[4..], ["10.0", "4.00", "40.0", "–", "–"]);
        assert_eq!((table.rows.len(), texts.len()), (2, table.columns.len()));
    }

    #[test]
    fn the_smallest_and_the_largest_readahead_are_told_with_what_each_kind_keeps() {
        let mut cells = measured([[(0.4, 1.0); 3], [(0.8, 0.1); 3]]);
        let told = sentence(&cells).unwrap();
        let first =
            "with a readahead of none (RANDOM) streams keep 40 % and random readers lose nothing;";
        assert!(told.contains(first), "{told}");
        assert!(
            told.ends_with("(SEQUENTIAL) streams keep 80 % and random readers keep 10 %."),
            "{told}"
        );
        for cell in &mut cells {
            cell.cold = false;
        }
        assert!(sentence(&cells).unwrap().starts_with("No conclusion"));
        assert_eq!(sentence(&[]), None);
    }
}
