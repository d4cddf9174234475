//! Records of the experiment `readahead`: a table such as document 002 has, for each way of reading.
//!
//! A panel has the cells of one kind of files and one size of a read: a row for each readahead, ascending, a
//! column for each number of readers, and as its last row the ceiling, direct reads of the same files.
//! Records with a `position` are no cells of a panel; they say what each end of the disk gives.
//!
//! Worked example: eight readers with files of their own at 6 MiB and 8 KiB are row `6 MiB`, 12288 sectors,
//! column 8 of the panel `own files, reads of 8 KiB`.
//!
//! Invariants:  [RPR-1] every record is in exactly one panel, at one end of the disk, or among the leftovers
//!              (a ceiling is shown in each panel of its files)
//!              [RPR-2] the best of a column was cold
//! Source:      the tables of document 002 are the shape.

use super::labels::{others, rank};
use super::standing::Standing;
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "readahead";

const FILES: [&str; 2] = ["own", "one"];

/// The sectors of `blockdev --setra`.
const SECTOR_BYTES: u64 = 512;

/// Settings that a panel's heading, a row or a column has already.
const KNOWN: [&str; 9] = [
    "readers",
    "files",
    "readahead_bytes",
    "readahead_by",
    "advice",
    "request_bytes",
    "cache",
    "backend",
    "position",
];

/// One figure of a panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) readers: u64,
    /// The record it comes from.
    pub(crate) record: &'a Record,
}

impl Cell<'_> {
    /// Bytes per second, as measured, whatever they are worth.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.record.metric("bytes_per_s").filter(|rate| *rate >= 0.0)
    }

    /// Bytes per second if they may be compared.
    pub(crate) fn cold_rate(&self) -> Option<f64> {
        self.rate().filter(|_| self.standing() == Standing::Cold)
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::by(self.record, "bytes_per_s")
    }
}

/// All readers under one readahead.
#[derive(Debug, Clone)]
pub(crate) struct Row<'a> {
    pub(crate) bytes: Option<u64>,
    advice: &'a str,
    /// By number of readers, each once.
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Row<'a> {
    pub(crate) fn at(&self, readers: u64) -> Option<&Cell<'a>> {
        self.cells.iter().find(|cell| cell.readers == readers)
    }

    /// `6.0 MiB`, or `none (RANDOM)`.
    pub(crate) fn label(&self) -> String {
        let size = match self.bytes {
            Some(0) => "none".to_owned(),
            Some(bytes) => numbers::bytes(bytes).replace(".0 ", " "),
            None => "unknown".to_owned(),
        };
        if self.advice.is_empty() {
            size
        } else {
            format!("{size} ({})", self.advice.to_uppercase())
        }
    }

    /// As `blockdev --setra` takes it.
    pub(crate) fn sectors(&self) -> Option<String> {
        let sectors = self.bytes? / SECTOR_BYTES;
        Some(if sectors < 100 { sectors.to_string() } else { numbers::number(sectors as f64) })
    }

    fn put(&mut self, cell: Cell<'a>) -> bool {
        let is_new = self.at(cell.readers).is_none();
        if is_new {
            self.cells.push(cell);
            self.cells.sort_by_key(|cell| cell.readers);
        }
        is_new
    }
}

/// All cells of one kind of files and one size of a read.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) label: String,
    pub(crate) rows: Vec<Row<'a>>,
    /// Direct reads of the same files.
    pub(crate) ceiling: Option<Row<'a>>,
    files: &'a str,
    place: String,
    request_bytes: Option<u64>,
}

impl<'a> Panel<'a> {
    /// Numbers of readers, ascending, each once.
    pub(crate) fn readers(&self) -> Vec<u64> {
        let rows = self.rows.iter().chain(&self.ceiling);
        let mut readers: Vec<u64> =
            rows.flat_map(|row| row.cells.iter().map(|cell| cell.readers)).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// The cold figures of one number of readers, by readahead.
    pub(crate) fn curve(&self, readers: u64) -> Vec<(u64, f64)> {
        let point = |row: &Row<'a>| Some((row.bytes?, row.at(readers)?.cold_rate()?));
        self.rows.iter().filter_map(point).collect()
    }

    /// The highest cold rate of a column.
    pub(crate) fn best(&self, readers: u64) -> Option<f64> {
        let rates = self.rows.iter().filter_map(|row| row.at(readers)?.cold_rate()); // [RPR-2]
        rates.reduce(f64::max)
    }

    /// The highest rate of all, the ceiling's too, for bars and plots drawn to one scale.
    pub(crate) fn highest(&self) -> Option<f64> {
        let rows = self.rows.iter().chain(&self.ceiling);
        rows.flat_map(|row| &row.cells).filter_map(Cell::cold_rate).reduce(f64::max)
    }

    /// How far the slowest of the most readers was behind the fastest, at worst.
    fn unfair(&self) -> Option<(u64, f64)> {
        let most = *self.readers().last()?;
        let shares = self.rows.iter().filter_map(|row| {
            row.at(most)?.record.metric("slowest_of_fastest").filter(|share| *share >= 0.0)
        });
        Some((most, shares.reduce(f64::min)?))
    }
}

/// What one end of the disk gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) position: &'a str,
    pub(crate) cell: Cell<'a>,
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curves<'a> {
    pub(crate) panels: Vec<Panel<'a>>,
    pub(crate) ends: Vec<End<'a>>,
    /// Records that lack a setting, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Curves<'a> {
    /// Groups the records of the experiment `readahead`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Curves<'a> {
        let mut grouped = Curves::default();
        let of_us = || records.iter().filter(|record| record.experiment == EXPERIMENT);
        let is_ceiling = |record: &&Record| record.cell_text("cache") == "direct";
        for record in of_us().filter(|record| !is_ceiling(record)) {
            grouped.place(record);
        }
        for record in of_us().filter(is_ceiling) {
            grouped.place_direct(record);
        }
        grouped.panels.sort_by_key(|panel| (rank(&FILES, panel.files), panel.request_bytes));
        for panel in &mut grouped.panels {
            panel.rows.sort_by_key(|row| (row.bytes.is_none(), row.bytes));
        }
        grouped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.panels.is_empty() && self.ends.is_empty()
    }

    fn place(&mut self, record: &'a Record) {
        let files = record.cell_text("files");
        let request_bytes = record.cell_number("request_bytes");
        let (Some(readers), Some(request), false) =
            (record.cell_number("readers"), request_bytes, files.is_empty())
        else {
            self.leftovers.push(record);
            return;
        };
        let request = numbers::bytes(request).replace(".0 ", " ");
        let label = format!("{files} files, reads of {request}{}", others(record, &KNOWN))
            .replacen("one files", "one file", 1);
        let panel = self.panel(label, files, others(record, &KNOWN), request_bytes);
        let (bytes, advice) = (record.cell_number("readahead_bytes"), record.cell_text("advice"));
        let at = panel.rows.iter().position(|row| row.bytes == bytes && row.advice == advice);
        let at = at.unwrap_or_else(|| {
            panel.rows.push(Row { bytes, advice, cells: Vec::new() });
            panel.rows.len() - 1
        });
        if !panel.rows[at].put(Cell { readers, record }) {
            self.leftovers.push(record); // [RPR-1]
        }
    }

    fn place_direct(&mut self, record: &'a Record) {
        let (files, position) = (record.cell_text("files"), record.cell_text("position"));
        let Some(readers) = record.cell_number("readers") else {
            self.leftovers.push(record);
            return;
        };
        let cell = Cell { readers, record };
        if !position.is_empty() {
            if self.ends.iter().all(|end| end.position != position) {
                self.ends.push(End { position, cell });
            } else {
                self.leftovers.push(record); // [RPR-1]
            }
            return;
        }
        let place = others(record, &KNOWN);
        let is_of = |panel: &Panel<'_>| panel.files == files && panel.place == place;
        if !files.is_empty() && !self.panels.iter().any(is_of) {
            let label =
                format!("{files} files, direct{place}").replacen("one files", "one file", 1);
            self.panel(label, files, place.clone(), None);
        }
        let mut is_placed = false;
        for panel in self.panels.iter_mut().filter(|panel| is_of(panel)) {
            let row = Row { bytes: None, advice: "", cells: Vec::new() };
            is_placed |= panel.ceiling.get_or_insert(row).put(cell);
        }
        if !is_placed {
            self.leftovers.push(record);
        }
    }

    fn panel(
        &mut self,
        label: String,
        files: &'a str,
        place: String,
        request_bytes: Option<u64>,
    ) -> &mut Panel<'a> {
        let at = self.panels.iter().position(|panel| panel.label == label);
        let at = at.unwrap_or_else(|| {
            let (rows, ceiling) = (Vec::new(), None);
            self.panels.push(Panel { label, rows, ceiling, files, place, request_bytes });
            self.panels.len() - 1
        });
        &mut self.panels[at]
    }

    /// One sentence: what readahead gives to the most readers and to the fewest, in the first panel.
    pub(crate) fn sentence(&self) -> String {
        let told = self.panels.first().and_then(|panel| {
            let readers = panel.readers();
            let (most, fewest) = (*readers.last()?, *readers.first()?);
            let of = |readers: u64| {
                let curve = panel.curve(readers);
                let smallest = curve.first().filter(|(_, rate)| *rate > 0.0)?.1;
                let gain = numbers::number(panel.best(readers)? / smallest);
                let who = match readers {
                    1 => "one reader gets".to_owned(),
                    _ => format!("{readers} reading at once get"),
                };
                Some(format!("{who} up to {gain} times"))
            };
            let mut told = format!("{} what they get with the smallest readahead", of(most)?);
            if fewest < most {
                told = format!("{told}, {}", of(fewest)?);
            }
            if let Some((readers, share)) = panel.unfair()
                && readers > 1
            {
                let share = numbers::percent(share);
                told = format!(
                    "{told}; the slowest of {readers} had {share} % of the fastest at worst"
                );
            }
            Some(format!("{told} ({})", panel.label))
        });
        told.unwrap_or_else(|| "no readahead could be compared with another".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::{absurd_readaheads, readahead, readahead_end};
    use super::*;

    /// Two readaheads, one and eight readers, and the ceiling.
    fn realistic() -> Vec<Record> {
        let mut records = vec![readahead("own", 8, None, 640e6)];
        for (bytes, one, eight) in [(4096, 290e6, 38e6), (6 << 20, 309e6, 304e6)] {
            records.push(readahead("own", 8, Some(bytes), eight));
            records.push(readahead("own", 1, Some(bytes), one));
        }
        records
    }

    #[test]
    fn readaheads_are_rows_readers_columns_and_direct_reads_the_ceiling() {
        let records = realistic();
        let grouped = Curves::group(&records);
        let [panel] = &grouped.panels[..] else { panic!("{grouped:?}") };
        assert_eq!(panel.label, "own files, reads of 8 KiB, ext4");
        assert_eq!(panel.readers(), [1, 8]);
        let labels: Vec<String> = panel.rows.iter().map(Row::label).collect();
        assert_eq!(labels, ["4 KiB", "6 MiB"]);
        assert_eq!(panel.rows[1].sectors().as_deref(), Some("12,288"));
        assert_eq!(panel.curve(8), [(4096, 38e6), (6 << 20, 304e6)]);
        let ceiling = panel.ceiling.as_ref().unwrap();
        assert_eq!(ceiling.at(8).and_then(Cell::rate), Some(640e6));
        assert_eq!(panel.highest(), Some(640e6));
        assert!(grouped.leftovers.is_empty());
        let told = grouped.sentence();
        assert!(told.starts_with("8 reading at once get up to 8.00 times what they"), "{told}");
        assert!(told.contains("one reader gets up to 1.07 times"), "{told}");
    }

    #[test]
    fn a_descriptors_readahead_has_its_advice_in_its_name() {
        let mut none = readahead("own", 1, Some(0), 30e6);
        none.cell.insert("advice".into(), json!("random"));
        let records = [none];
        assert_eq!(Curves::group(&records).panels[0].rows[0].label(), "none (RANDOM)");
    }

    #[test]
    fn what_was_not_cold_is_on_no_curve() {
        let mut records = realistic();
        records[3].remarks.push("not cold: 1 of 2 pages stayed".into());
        assert_eq!(records[3].cell["readers"], 8);
        let grouped = Curves::group(&records);
        assert_eq!(grouped.panels[0].curve(8), [(4096, 38e6)]);
        assert_eq!(grouped.panels[0].best(8), Some(38e6), "[RPR-2]");
    }

    #[test]
    fn no_record_is_lost_whatever_it_looks_like() {
        let mut records = absurd_readaheads();
        records.extend(realistic());
        let twice = readahead_end("begin", 500e6);
        records.extend([twice.clone(), twice, readahead("one", 2, None, 1.0)]);
        let grouped = Curves::group(&records);
        // A ceiling stands in several panels and is counted once.
        let mut placed: Vec<*const Record> = Vec::new();
        for panel in &grouped.panels {
            for cell in panel.rows.iter().chain(&panel.ceiling).flat_map(|row| &row.cells) {
                placed.push(std::ptr::from_ref(cell.record));
            }
        }
        placed.sort_unstable();
        placed.dedup();
        let placed = placed.len() + grouped.ends.len() + grouped.leftovers.len();
        assert_eq!(placed, records.len(), "[RPR-1]");
        assert!(!grouped.leftovers.is_empty() && grouped.ends.len() == 2);
    }
}
