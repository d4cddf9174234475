//! Records of the experiment `mixture`: each kind of readers alone and together, by readahead.
//!
//! A panel has the cells of one number of streams and of random readers; a row is one readahead and has up
//! to three records: streams alone, random readers alone, and both.
//!
//! Invariants:  [MXP-1] every record is in exactly one row or among the leftovers

use super::labels::others;
use super::standing::Standing;
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "mixture";

/// Settings that a panel's heading or a row has already.
const KNOWN: [&str; 8] = [
    "mix",
    "streams",
    "random_readers",
    "readahead_bytes",
    "readahead_by",
    "advice",
    "request_bytes",
    "cache",
];

/// Who reads, in the order of a row's records.
const MIXES: [&str; 3] = ["streams", "random", "both"];

/// Both kinds of readers under one readahead.
#[derive(Debug, Clone)]
pub(crate) struct Row<'a> {
    pub(crate) bytes: Option<u64>,
    advice: &'a str,
    records: [Option<&'a Record>; 3],
}

impl<'a> Row<'a> {
    /// `6 MiB`, or `none (RANDOM)`.
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

    pub(crate) fn streams(&self) -> Option<&'a Record> {
        self.records[0]
    }

    pub(crate) fn random(&self) -> Option<&'a Record> {
        self.records[1]
    }

    pub(crate) fn both(&self) -> Option<&'a Record> {
        self.records[2]
    }

    /// Remarks of all three.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.records.iter().flatten().flat_map(|record| record.remarks.iter().cloned()).collect()
    }

    /// What a kind keeps beside the other, if that is evidence. `kind`: `stream` or `random`.
    pub(crate) fn kept(&self, kind: &str) -> Option<f64> {
        let key = format!("{kind}_kept");
        let both = self.both().filter(|record| Standing::by(record, &key) == Standing::Cold)?;
        both.metric(&key)
    }
}

/// All readaheads of one mixture.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) label: String,
    pub(crate) rows: Vec<Row<'a>>,
}

impl Panel<'_> {
    /// What a kind keeps, by readahead.
    pub(crate) fn curve(&self, kind: &str) -> Vec<(u64, f64)> {
        self.rows.iter().filter_map(|row| Some((row.bytes?, row.kept(kind)?))).collect()
    }
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mixtures<'a> {
    pub(crate) panels: Vec<Panel<'a>>,
    /// Records that lack a setting, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Mixtures<'a> {
    /// Groups the records of the experiment `mixture`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Mixtures<'a> {
        let mut grouped = Mixtures::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        for panel in &mut grouped.panels {
            panel.rows.sort_by_key(|row| (row.bytes.is_none(), row.bytes));
        }
        grouped
    }

    fn place(&mut self, record: &'a Record) {
        let mix = MIXES.iter().position(|mix| *mix == record.cell_text("mix"));
        let number = |key| record.cell_number(key);
        let (Some(mix), Some(streams), Some(random), Some(request)) =
            (mix, number("streams"), number("random_readers"), number("request_bytes"))
        else {
            self.leftovers.push(record);
            return;
        };
        let request = numbers::bytes(request).replace(".0 ", " ");
        let place = others(record, &KNOWN);
        let label =
            format!("{streams} streams, {random} random readers, reads of {request}{place}");
        let at = self.panels.iter().position(|panel| panel.label == label).unwrap_or_else(|| {
            self.panels.push(Panel { label, rows: Vec::new() });
            self.panels.len() - 1
        });
        let rows = &mut self.panels[at].rows;
        let (bytes, advice) = (number("readahead_bytes"), record.cell_text("advice"));
        let is_here = |row: &Row<'_>| row.bytes == bytes && row.advice == advice;
        let at = rows.iter().position(is_here).unwrap_or_else(|| {
            rows.push(Row { bytes, advice, records: [None; 3] });
            rows.len() - 1
        });
        match &mut rows[at].records[mix] {
            Some(_) => self.leftovers.push(record), // [MXP-1]
            empty => *empty = Some(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{absurd_readaheads, mixture};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_both_kinds_alone_and_together() {
        let records =
            [mixture(6 << 20, "both", 0.8, 0.2), mixture(131_072, "streams", 1.0, 1.0), {
                mixture(6 << 20, "random", 1.0, 1.0)
            }];
        let grouped = Mixtures::group(&records);
        let [panel] = &grouped.panels[..] else { panic!("{grouped:?}") };
        assert_eq!(panel.label, "4 streams, 4 random readers, reads of 8 KiB, ext4");
        let labels: Vec<String> = panel.rows.iter().map(Row::label).collect();
        assert_eq!(labels, ["128 KiB", "6 MiB"]);
        assert!(panel.rows[0].streams().is_some() && panel.rows[0].both().is_none());
        assert_eq!(
            (panel.rows[1].kept("stream"), panel.rows[1].kept("random")),
            (Some(0.8), Some(0.2))
        );
        assert_eq!(panel.curve("random"), [(6 << 20, 0.2)]);
    }

    #[test]
    fn what_was_not_cold_is_kept_by_nobody() {
        let mut record = mixture(6 << 20, "both", 0.8, 0.2);
        record.remarks.push("not cold: 1 of 2 pages stayed".into());
        assert_eq!(Mixtures::group(&[record]).panels[0].rows[0].kept("stream"), None);
    }

    #[test]
    fn no_record_is_lost_whatever_it_looks_like() {
        let mut records = absurd_readaheads();
        for record in &mut records {
            record.experiment = EXPERIMENT.to_owned();
        }
        let mut odd = mixture(0, "both", -1.0, f64::MAX);
        odd.cell.insert("more".into(), json!({"a": []}));
        let twice = mixture(0, "both", 0.5, 0.5);
        records.extend([odd, twice.clone(), twice]);
        let grouped = Mixtures::group(&records);
        let rows = grouped.panels.iter().flat_map(|panel| &panel.rows);
        let placed: usize = rows.map(|row| row.records.iter().flatten().count()).sum();
        assert_eq!(placed + grouped.leftovers.len(), records.len(), "[MXP-1]");
        assert_eq!(placed, 2);
    }
}
