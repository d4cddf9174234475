//! Part `throughput`: what sequential readers get under each readahead, and what the disk could give.
//!
//! Cells that are compared, those of one row, are measured one after the other in each round, in shuffled
//! order. After the first rounds only the rows are measured again that do not tell yet which readahead is
//! the knee, until they do or time is up.
//!
//! `slowest_of_fastest` is 1 when all readers got the same, and 0.1 when the slowest got a tenth of what the
//! fastest did.
//!
//! Invariants:  [THR-1] all cells of a row that can be measured have the same rounds
//! Failure:     a cell that this system has not the means for is not tried again and says why.

use std::time::{Duration, Instant};

use forebay_io::CacheMode;
use serde::Serialize;
use serde_json::json;

use super::files::{Files, Library, emptied};
use super::knob::{Readahead, Turned, set};
use super::race::{Finish, Limits, hold};
use super::reader::{DIRECT_REQUEST_BYTES, Direct, Plain, direct_depth};
use super::{Device, NAME, Part, Settings, conclusion, counted};
use crate::experiment::Bench;
use crate::experiment::tally::{Row, one_round};
use crate::report::Record;
use crate::statistics::median;
use crate::units::typed_size;

/// A cell and its rounds.
pub(super) type Cell = Row<Throughput, Round>;

/// Past the page cache or through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cache {
    Buffered,
    Direct,
}

/// One thing to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Throughput {
    pub(super) readers: u32,
    pub(super) files: Option<Files>,
    #[serde(flatten)]
    pub(super) readahead: Readahead,
    pub(super) request_bytes: u64,
    pub(super) cache: Cache,
    /// Which backend carried direct reads out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<String>,
    /// Bytes reserved for each of the own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) apart_bytes: Option<u64>,
}

impl Throughput {
    /// Whether both are measured side by side.
    pub(super) fn is_beside(&self, other: &Throughput) -> bool {
        let row = |cell: &Throughput| (cell.readers, cell.files, cell.request_bytes, cell.cache);
        row(self) == row(other)
    }

    /// What is measured, in words.
    pub(super) fn label(&self) -> String {
        let readers = readers(self.readers);
        let files = files_name(self.files);
        match self.cache {
            Cache::Buffered => {
                let request = typed_size(self.request_bytes);
                format!("readahead {}, {readers}, {files}, {request}", self.readahead)
            }
            Cache::Direct => format!("direct, {readers}, {files}"),
        }
    }
}

/// `1 reader`, `8 readers`.
pub(super) fn readers(count: u32) -> String {
    if count == 1 { "1 reader".to_owned() } else { format!("{count} readers") }
}

/// `own files`.
pub(super) fn files_name(files: Option<Files>) -> &'static str {
    if files == Some(Files::One) { "one file" } else { "own files" }
}

/// What one round of a cell gave.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    /// Of all readers together.
    pub(super) bytes_per_s: f64,
    reader_bytes_per_s: Vec<f64>,
    pub(super) slowest_of_fastest: f64,
    seconds: f64,
    bytes: u64,
    #[serde(flatten)]
    device: Device,
}

impl Round {
    pub(super) fn new(finish: &Finish, device: Device) -> Round {
        let (seconds, moved) = (finish.seconds, finish.moved.iter().map(|&moved| moved as f64));
        let least = moved.clone().fold(f64::INFINITY, f64::min);
        Round {
            bytes_per_s: finish.total() as f64 / seconds,
            reader_bytes_per_s: moved.clone().map(|moved| moved / seconds).collect(),
            slowest_of_fastest: least / moved.fold(0.0, f64::max),
            seconds,
            bytes: finish.total(),
            device,
        }
    }
}

impl Cell {
    /// Bytes a second of each round.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.bytes_per_s).collect()
    }

    /// Bytes a second, the median of the rounds.
    pub(super) fn rate(&self) -> Option<f64> {
        median(&self.rates())
    }
}

/// Everything that is to be measured, in the order of the report.
pub(super) fn cells(settings: &Settings) -> Vec<Throughput> {
    let args = &settings.args;
    let mut cells = Vec::new();
    if !settings.has(Part::Throughput) {
        return cells;
    }
    for &files in &args.files {
        for &readers in &args.readers {
            let direct = Throughput {
                readers,
                files: Some(files),
                readahead: Readahead::default(),
                request_bytes: DIRECT_REQUEST_BYTES,
                cache: Cache::Direct,
                backend: None,
                apart_bytes: args.apart.filter(|_| files == Files::Own),
            };
            let is_buffered = args.cache.contains(&CacheMode::Buffered);
            let requests = settings.requests(Part::Throughput).into_iter();
            for request_bytes in requests.filter(|_| is_buffered) {
                cells.extend(settings.readaheads.iter().map(|&readahead| Throughput {
                    readahead,
                    request_bytes,
                    cache: Cache::Buffered,
                    ..direct.clone()
                }));
            }
            cells.extend(args.cache.contains(&CacheMode::Direct).then_some(direct));
        }
    }
    cells
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
    let cells = cells(settings);
    let mut cells: Vec<Cell> = cells.into_iter().map(Cell::new).collect();
    if cells.is_empty() {
        return Ok(cells);
    }
    let library = bench.untimed(|| Library::make(bench.workfile, settings, progress))?;
    let mut random = fastrand::Rng::with_seed(settings.args.common.seed);
    let mut round = |cells: &mut [Cell], again: &dyn Fn(&Throughput) -> bool| {
        let mut rows = rows(cells, again);
        random.shuffle(&mut rows);
        rows.iter_mut().for_each(|row| random.shuffle(row));
        one_round(cells, rows.concat(), progress, Throughput::label, |row| {
            measure_row(settings, bench, turned, &library, row)
        })
    };
    for _ in 0..settings.args.rounds.least {
        round(&mut cells, &|_| true)?;
    }
    let begun = Instant::now();
    while begun.elapsed() < settings.time_added() {
        let again = conclusion::undecided(settings, &cells);
        if again.is_empty() {
            break;
        }
        round(&mut cells, &|cell| again.iter().any(|other| cell.is_beside(other)))?;
    }
    Ok(cells)
}

/// The numbers of those cells that are measured `again`, by row.
fn rows(cells: &[Cell], again: impl Fn(&Throughput) -> bool) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (index, one) in cells.iter().enumerate().filter(|(_, one)| again(&one.cell)) {
        match rows.iter_mut().find(|row| cells[row[0]].cell.is_beside(&one.cell)) {
            Some(row) => row.push(index),
            None => rows.push(vec![index]),
        }
    }
    rows
}

fn measure_row(
    settings: &Settings,
    bench: &Bench<'_>,
    turned: &Turned,
    library: &Library<'_>,
    row: &mut Cell,
) -> anyhow::Result<Round> {
    let Throughput { readers, files, readahead, request_bytes, cache, .. } = row.cell;
    for workfile in library.all() {
        let coldness = emptied(workfile)?;
        if cache == Cache::Buffered {
            row.begins(&coldness);
        }
    }
    let shares = files.map(|files| library.shares(files, readers)).unwrap_or_default().into_iter();
    let limits = Limits { settle: Duration::ZERO, time_max: settings.args.time };
    let (finish, device) = if cache == Cache::Buffered {
        // Before the files are opened, which take it then.
        row.remarks.extend(set(turned, readahead)?);
        let opened = shares.map(|share| Plain::open(share, readahead, None, request_bytes));
        let mut runners = opened.collect::<anyhow::Result<Vec<_>>>()?;
        counted(bench, || hold(&mut runners, limits))?
    } else {
        let opened = shares.map(|share| Direct::open(share, direct_depth(readers)));
        let mut runners = opened.collect::<Result<Vec<_>, _>>()?;
        row.cell.backend = runners.first().map(Direct::backend);
        counted(bench, || hold(&mut runners, limits))?
    };
    Ok(Round::new(&finish, device))
}

/// The record of a cell. Rates of readers are in their order, so that one that always loses shows.
pub(super) fn record(cell: &Cell) -> Record {
    let mut record = cell.record(NAME, "bytes_per_s");
    let readers = cell.rounds.first().map_or(0, |round| round.reader_bytes_per_s.len());
    let of_reader =
        |reader| cell.median(|round: &Round| round.reader_bytes_per_s.get(reader).copied());
    let of_readers: Vec<Option<f64>> = (0..readers).map(of_reader).collect();
    record.metrics.insert("reader_bytes_per_s".to_owned(), json!(of_readers));
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_readahead_meets_every_number_of_readers_and_the_ceiling_each_once() {
        let options = "--quick --by descriptor --readers 8,1,8 --request 8KiB,128KiB";
        let cells = cells(&Settings::new(crate::experiment::typed(options)).unwrap());
        // Three kinds of advice, two numbers of readers, two files, two sizes; the ceiling.
        assert_eq!(cells.len(), 3 * 2 * 2 * 2 + 2 * 2);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{cell:?} twice");
        }
        let cells: Vec<Cell> = cells.into_iter().map(Cell::new).collect();
        let mut rows: Vec<usize> = rows(&cells, |_| true).iter().map(Vec::len).collect();
        rows.sort_unstable();
        assert_eq!(rows, [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3], "[THR-1]");
    }

    #[test]
    fn a_rate_is_what_all_had_together_and_a_readers_its_own() {
        let options = "--quick --files own --by descriptor";
        let settings = Settings::new(crate::experiment::typed(options)).unwrap();
        let mut cell = Cell::new(cells(&settings).remove(0));
        assert_eq!(record(&cell).metrics["bytes_per_s"], json!(null));
        for (seconds, moved) in [(1.0, [300, 100]), (2.0, [200, 200]), (1.0, [500, 250])] {
            let finish = Finish { seconds, moved: moved.to_vec() };
            cell.rounds.push(Round::new(&finish, Device::default()));
        }
        let made = record(&cell);
        assert_eq!(made.metrics["bytes_per_s"], 400.0);
        assert_eq!(made.rounds[1]["bytes_per_s"], 200.0);
        assert_eq!(made.metrics["reader_bytes_per_s"], json!([300.0, 100.0]));
        assert_eq!(made.metrics["slowest_of_fastest"], 0.5);
        assert_eq!(made.metrics["rounds"], 3);
        assert!(made.metrics["device_bytes"].is_null());
        assert_eq!(made.cell["files"], "own");
        let still = Finish { seconds: 0.0, moved: vec![0, 0] };
        cell.rounds.push(Round::new(&still, Device::default()));
        assert!(record(&cell).metrics["bytes_per_s"].is_null(), "none of three is told");
    }
}
