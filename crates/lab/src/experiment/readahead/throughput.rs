//! Part `throughput`: the rate of sequential readers under each readahead, and the disk's upper bound.
//!
//! Compared cells, those of one row, are measured one after the other in each round, in shuffled
//! order. After the first rounds only the rows that decide are measured again, while the knee is undecided
//! and there is time.
//!
//! `slowest_of_fastest` is 1 when all readers got the same, and 0.1 when the slowest got a tenth of what the
//! fastest did.
//!
//! Invariants:  [THR-1] all cells of a row that can be measured have the same rounds
//! Failure:     a cell that this system does not support is not tried again and says why.

use forebay_io::CacheMode;
use serde::Serialize;

use super::control::Readahead;
use super::race::Finish;
use super::reader::DIRECT_REQUEST_BYTES;
use super::settings::{Files, Part, Settings};
use crate::experiment::by_name;
use crate::experiment::samples::Row;
use forebay_measure::facts::DeviceCounters;
use forebay_measure::units::typed_size;

/// A cell and its rounds.
pub(super) type Cell = Row<Throughput, Round>;

/// One thing to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Throughput {
    pub(super) readers: u32,
    pub(super) files: Files,
    #[serde(flatten)]
    pub(super) readahead: Readahead,
    pub(super) request_bytes: u64,
    #[serde(serialize_with = "by_name")]
    pub(super) cache: CacheMode,
    /// Which backend carried direct reads out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<String>,
    /// Bytes reserved for each of the own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spacing_bytes: Option<u64>,
}

impl Throughput {
    /// The reads, in words: `own files, reads of 8KiB`.
    pub(super) fn reads(&self) -> String {
        let files = if self.files == Files::One { "one file" } else { "own files" };
        format!("{files}, reads of {}", typed_size(self.request_bytes))
    }

    /// The cell, in words.
    pub(super) fn label(&self) -> String {
        format!("readahead {}, {}, {}", self.readahead, readers(self.readers), self.reads())
    }
}

/// `1 reader`, `8 readers`.
pub(super) fn readers(count: u32) -> String {
    if count == 1 { "1 reader".to_owned() } else { format!("{count} readers") }
}

/// The result of one round of a cell.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    /// The sum of all readers.
    pub(super) bytes_per_s: f64,
    /// In the order of the readers, so that one that always loses shows.
    reader_bytes_per_s: Vec<f64>,
    pub(super) slowest_of_fastest: f64,
    seconds: f64,
    bytes: u64,
    device_requests: Option<u64>,
    device_bytes: Option<u64>,
}

impl Round {
    pub(super) fn new(finish: &Finish, device: Option<DeviceCounters>) -> Round {
        let (seconds, moved) = (finish.seconds, finish.moved.iter().map(|&moved| moved as f64));
        let bytes: u64 = finish.moved.iter().sum();
        let least = moved.clone().fold(f64::INFINITY, f64::min);
        Round {
            bytes_per_s: bytes as f64 / seconds,
            reader_bytes_per_s: moved.clone().map(|moved| moved / seconds).collect(),
            slowest_of_fastest: least / moved.fold(0.0, f64::max),
            seconds,
            bytes,
            device_requests: device.map(|device| device.reads),
            device_bytes: device.map(|device| device.read_bytes),
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
        self.median(|round| Some(round.bytes_per_s))
    }
}

/// All cells to measure, in the order of the report.
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
                files,
                readahead: Readahead::default(),
                request_bytes: DIRECT_REQUEST_BYTES,
                cache: CacheMode::Direct,
                backend: None,
                spacing_bytes: args.spacing.filter(|_| files == Files::Own),
            };
            let is_buffered = args.cache.contains(&CacheMode::Buffered);
            let requests = settings.requests(Part::Throughput).into_iter();
            for request_bytes in requests.filter(|_| is_buffered) {
                cells.extend(settings.readaheads.iter().map(|&readahead| Throughput {
                    readahead,
                    request_bytes,
                    cache: CacheMode::Buffered,
                    ..direct.clone()
                }));
            }
            cells.extend(args.cache.contains(&CacheMode::Direct).then_some(direct));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::NAME;
    use super::*;
    use serde_json::json;

    #[test]
    fn every_readahead_meets_every_number_of_readers_and_the_ceiling_each_once() {
        let options = "--quick --set-via descriptor --readers 8,1,8 --request 8KiB,128KiB";
        let cells = cells(&Settings::new(crate::experiment::typed(options)).unwrap());
        // Three kinds of advice, two numbers of readers, two files, two sizes; the ceiling.
        assert_eq!(cells.len(), 3 * 2 * 2 * 2 + 2 * 2);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{cell:?} twice");
        }
        let cells: Vec<Cell> = cells.into_iter().map(Cell::new).collect();
        let mut rows: Vec<usize> =
            super::super::series::rows(&cells, |_| true).iter().map(Vec::len).collect();
        rows.sort_unstable();
        assert_eq!(rows, [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3], "[THR-1]");
    }

    #[test]
    fn a_rate_is_what_all_had_together_and_a_readers_its_own() {
        let options = "--quick --files own --set-via descriptor";
        let settings = Settings::new(crate::experiment::typed(options)).unwrap();
        let mut cell = Cell::new(cells(&settings).remove(0));
        let record = |cell: &Cell| cell.record(NAME, "bytes_per_s");
        assert_eq!(record(&cell).metrics["bytes_per_s"], json!(null));
        for (seconds, moved) in [(1.0, [300, 100]), (2.0, [200, 200]), (1.0, [500, 250])] {
            let finish = Finish { seconds, moved: moved.to_vec() };
            cell.rounds.push(Round::new(&finish, None));
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
        cell.rounds.push(Round::new(&still, None));
        assert!(record(&cell).metrics["bytes_per_s"].is_null(), "none of three is reported");
    }
}
