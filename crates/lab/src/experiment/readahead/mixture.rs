//! Part `mixture`: streaming readers together with random readers, and what each loses.
//!
//! The last question of document 002: "I will also measure its affect when mixed random access and streaming
//! reads occur." A large readahead lets a stream keep the disk for longer at a time, and a random reader
//! waits that long; a small one does the opposite. Under each readahead each kind is measured alone,
//! then both together, and the report says what part of its rate alone each of them keeps.
//!
//! The streams read the first half of the file, each its own range; the random
//! readers read the second half, each its own blocks. At the end of its part each drops the pages from the cache and
//! begins again, so that the measurement lasts the requested time on a fast disk too.
//!
//! Invariants:  [MIX-1] what a kind keeps is compared with what it had alone in the same round, under the same
//!              readahead
//!              [MIX-2] no two random readers have a block in common
//! Failure:     a block other than the requested one ends the run.
//! Source:      document 002.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::control::{Readahead, Turned, set};
use super::files::{Share, emptied, ranges};
use super::race::{Finish, hold};
use super::reader::Plain;
use super::settings::{Part, SETTLING_TIME_MAX, Settings};
use crate::experiment::driver::{AllAlike, drive};
use crate::experiment::samples::{Row, counted};
use crate::experiment::schedule::Limits;
use crate::experiment::{Bench, stopwatch};
use forebay_measure::coldness::wait_histogram;
use forebay_measure::facts::DeviceCounters;
use forebay_measure::statistics::{Floor, Judge, Judgement};

/// A cell and its rounds.
pub(super) type Cell = Row<Mixture, Round>;

/// The readers.
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

/// The result of one round of a cell; empty for a kind that did not take part.
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

/// All cells to measure, in the order of the report.
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
    let mut cells = AllAlike::new(cells(settings), Mixture::label);
    let mut random = fastrand::Rng::with_seed(settings.args.common.seed);
    let limits = Limits { time: Duration::ZERO, ..settings.limits() };
    drive(&mut cells, limits, &mut random, &stopwatch(), progress, |cells, index, turn| {
        let row = &mut cells.rows[index];
        row.begins(&emptied(bench.workfile)?);
        row.remarks.extend(set(turned, row.cell.readahead)?);
        round(settings, bench, &row.cell, turn.random)
    })?;
    compare(&mut cells.rows);
    Ok(cells.rows)
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

/// Computes the part that each kind kept in each round [MIX-1].
fn compare(cells: &mut [Cell]) {
    let (threes, _) = cells.as_chunks_mut::<3>();
    for [streams, random, both] in threes {
        let alone = streams.rounds.iter().zip(&random.rounds);
        for (both, (streams, random)) in both.rounds.iter_mut().zip(alone) {
            let kept = |both: Option<f64>, alone: Option<f64>| Some(both? / alone?);
            both.stream_kept = kept(both.stream_bytes_per_s, streams.stream_bytes_per_s);
            both.random_kept = kept(both.random_reads_per_s, random.random_reads_per_s);
        }
    }
}

/// The part of its rate alone that each kind keeps next to the other, round by round.
fn kept(both: &Cell) -> Option<[Vec<f64>; 2]> {
    let kept = [both.figures(|round| round.stream_kept)?, both.figures(|round| round.random_kept)?];
    let is_evidence = both.cold && kept.iter().flatten().all(|it| it.is_finite() && *it > 0.0);
    is_evidence.then_some(kept)
}

/// Which kind loses more, under the smallest and under the largest readahead; `None` if nothing was measured.
/// Differences smaller than `floor` are not reported.
pub(super) fn sentence(cells: &[Cell], floor: Floor) -> Option<String> {
    let both = cells.iter().filter(|cell| cell.cell.mix == Mix::Both);
    let all: Vec<(Readahead, [Vec<f64>; 2])> =
        both.filter_map(|cell| Some((cell.cell.readahead, kept(cell)?))).collect();
    let alone = |kept: &Vec<f64>| vec![1.0; kept.len()];
    let series =
        all.iter().flat_map(|(_, both)| both.iter().map(|kept| vec![kept.clone(), alone(kept)]));
    let judge = Judge::new(&series.collect::<Vec<_>>(), 2 * all.len(), floor);
    let shares: Vec<String> = all
        .iter()
        .filter_map(|(readahead, [streams, random])| {
            let part = |kind: &str, kept: &Vec<f64>| {
                let ratio = judge.ratio(kept, &alone(kept))?;
                Some(match ratio.judgement() {
                    Judgement::Keeps => format!("{kind} lose nothing"),
                    Judgement::Misses => format!("{kind} keep {:.0} %", ratio.value * 100.0),
                    Judgement::Undecided => format!("{kind} lose nothing that is clear"),
                })
            };
            let (streams, random) = (part("streams", streams)?, part("random readers", random)?);
            Some(format!("with a readahead of {readahead} {streams} and {random}"))
        })
        .collect();
    let shares = match &shares[..] {
        [] if cells.is_empty() => return None,
        [] => {
            let none = "No conclusion about streams with random readers: too little could be";
            return Some(format!("{none} measured."));
        }
        [only] => only.clone(),
        [least, .., most] => format!("{least}; {most}"),
    };
    Some(format!("Of what they have alone, {shares}."))
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

    /// All mixes under two readaheads; in each round streams and random readers keep these parts.
    fn measured(kept: [[(f64, f64); 3]; 2]) -> Vec<Cell> {
        let options =
            "--quick --parts mixture --size 64MiB --streams 2 --random 1 --set-via descriptor";
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
    fn the_smallest_and_the_largest_readahead_are_reported_with_what_each_kind_keeps() {
        let mut cells = measured([[(0.4, 1.0); 3], [(0.8, 0.1); 3]]);
        let shares = sentence(&cells, Floor::default()).unwrap();
        let first =
            "with a readahead of none (RANDOM) streams keep 40 % and random readers lose nothing;";
        assert!(shares.contains(first), "{shares}");
        assert!(
            shares.ends_with("(SEQUENTIAL) streams keep 80 % and random readers keep 10 %."),
            "{shares}"
        );
        for cell in &mut cells {
            cell.cold = false;
        }
        assert!(sentence(&cells, Floor::default()).unwrap().starts_with("No conclusion"));
        assert_eq!(sentence(&[], Floor::default()), None);
    }
}
