//! Records of the experiment: what the rounds of each cell gave.
//!
//! Bytes per second are medians over rounds, also those of each reader: the list has the readers in
//! their order, so that one that always loses shows. `slowest_of_fastest` is 1 when all readers got the
//! same, and 0.1 when the slowest got a tenth of what the fastest did.
//!
//! Invariants:  [RRC-1] a metric is the median of all rounds, or null; never of some of them

use serde_json::{Map, Value, json};

use super::knob::Setting;
use super::race::Finish;
use super::reader::DIRECT_REQUEST_BYTES;
use super::{Cell, NAME, Settings};
use crate::experiment::unique;
use crate::facts::{DeviceCounters, Storage};
use crate::measure::{Coldness, Spread};
use crate::report::Record;
use crate::units::shown_size;

/// What the rounds of one cell gave.
#[derive(Debug, Default)]
pub(super) struct Tally {
    finishes: Vec<Finish>,
    device: Vec<DeviceCounters>,
    coldness: Vec<Coldness>,
    /// Why rounds could not be measured.
    pub(super) failures: Vec<String>,
    /// What the kernel made of the readahead, if it is not what was asked for.
    pub(super) made_bytes: Option<u64>,
    /// Which backend read past the page cache.
    pub(super) backend: Option<String>,
}

impl Tally {
    pub(super) fn take(
        &mut self,
        coldness: Coldness,
        finish: Finish,
        device: Option<DeviceCounters>,
    ) {
        self.coldness.push(coldness);
        self.finishes.push(finish);
        self.device.extend(device);
    }

    fn spread(&self, value: impl Fn(&Finish) -> Option<f64>) -> Option<Spread> {
        let values: Option<Vec<f64>> = self.finishes.iter().map(value).collect();
        Spread::of(values?) // [RRC-1]
    }

    fn device_median(&self, value: impl Fn(&DeviceCounters) -> f64) -> Option<f64> {
        let complete = self.device.len() == self.finishes.len(); // [RRC-1]
        let values = self.device.iter().filter(|_| complete).map(value);
        Spread::of(values).map(|spread| spread.median)
    }

    /// Every metric by its name.
    fn metrics(&self) -> Map<String, Value> {
        let rate = self.spread(|finish| positive(finish.total() as f64 / finish.seconds));
        let readers = self.finishes.first().map_or(0, |finish| finish.moved.len());
        let of_reader = |reader: usize| {
            let rate =
                |finish: &Finish| positive(*finish.moved.get(reader)? as f64 / finish.seconds);
            self.spread(rate).map(|spread| spread.median)
        };
        let median =
            |value: &dyn Fn(&Finish) -> Option<f64>| self.spread(value).map(|it| it.median);
        let metrics = json!({
            "bytes_per_s": rate.map(|spread| spread.median),
            "bytes_per_s_min": rate.map(|spread| spread.min),
            "bytes_per_s_max": rate.map(|spread| spread.max),
            "reader_bytes_per_s": (0..readers).map(of_reader).collect::<Vec<_>>(),
            "slowest_of_fastest": median(&slowest_of_fastest),
            "seconds": median(&|finish| Some(finish.seconds)),
            "bytes": median(&|finish| Some(finish.total() as f64)),
            "rounds": self.finishes.len(),
            "device_requests": self.device_median(|device| device.reads as f64),
            "device_bytes": self.device_median(|device| device.read_bytes as f64),
        });
        object(metrics)
    }

    /// What a reader of the figures has to know, each thing once.
    fn remarks(&self, settings: &Settings, cell: Cell) -> Vec<String> {
        let mut remarks: Vec<String> = self.coldness.iter().filter_map(Coldness::remark).collect();
        if let Cell::Buffered { setting, .. } = cell {
            if let Some(bytes) = self.made_bytes {
                remarks.push(format!("the kernel made {} of this readahead", shown_size(bytes)));
            }
            if let (Setting::Descriptor(_), Some(why)) = (setting, &settings.knob.why_not_device) {
                remarks.push(format!(
                    "varied by advice for descriptors, since the device's readahead cannot be set ({why})"
                ));
            }
        }
        if self.finishes.iter().any(|finish| !finish.by_share) {
            let time_max = settings.cell_time_max.as_secs_f64();
            remarks.push(format!(
                "time was up after {time_max} s, before a reader had all of its share"
            ));
        }
        let rounds = self.finishes.len() + self.failures.len();
        if rounds < settings.rounds as usize {
            let of = settings.rounds;
            remarks.push(format!("{rounds} of {of} rounds, as there was no more time"));
        }
        if let Some(why) = self.failures.first() {
            remarks.insert(0, format!("not measured: {why}"));
        }
        unique(&remarks)
    }
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn slowest_of_fastest(finish: &Finish) -> Option<f64> {
    let (slowest, fastest) = (finish.moved.iter().min()?, finish.moved.iter().max()?);
    positive(*slowest as f64 / *fastest as f64)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The records of all `cells`, in their order.
pub(super) fn records(
    settings: &Settings,
    storage: &Storage,
    cells: &[Cell],
    tallies: &[Tally],
) -> Vec<Record> {
    let pairs = cells.iter().zip(tallies);
    pairs.map(|(&cell, tally)| record(settings, storage, cell, tally)).collect()
}

fn record(settings: &Settings, storage: &Storage, cell: Cell, tally: &Tally) -> Record {
    let mut fields = match cell {
        Cell::Buffered { files, readers, setting, request_bytes } => json!({
            "readers": readers,
            "files": files.name(),
            "readahead_bytes": setting.bytes(settings.knob.found_bytes),
            "readahead_by": setting.by().name(),
            "advice": setting.advice(),
            "request_bytes": request_bytes,
            "cache": "buffered",
        }),
        Cell::Direct { files, readers } => json!({
            "readers": readers,
            "files": files.name(),
            "readahead_bytes": null,
            "request_bytes": DIRECT_REQUEST_BYTES,
            "cache": "direct",
            "backend": tally.backend,
        }),
        Cell::End(position) => json!({
            "position": position.name(),
            "readers": 1,
            "files": null,
            "readahead_bytes": null,
            "request_bytes": DIRECT_REQUEST_BYTES,
            "cache": "direct",
            "backend": tally.backend,
        }),
    };
    if let Value::Object(fields) = &mut fields {
        if let (Some(apart), Some("own")) =
            (settings.apart_bytes, fields.get("files").and_then(Value::as_str))
        {
            fields.insert("apart_bytes".to_owned(), json!(apart));
        }
        fields.extend(place(storage));
    }
    Record {
        rounds: Vec::new(),
        experiment: NAME.to_owned(),
        cell: object(fields),
        metrics: tally.metrics(),
        remarks: tally.remarks(settings, cell),
    }
}

/// The settings of a cell that say where it was measured: profile of an emulated disk, and filesystem.
pub(in crate::experiment) fn place(storage: &Storage) -> Map<String, Value> {
    object(json!({ "profile": storage.profile(), "filesystem": storage.filesystem }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(seconds: f64, moved: &[u64]) -> Finish {
        Finish { seconds, moved: moved.to_vec(), by_share: true }
    }

    #[test]
    fn a_rate_is_what_all_had_together_and_a_readers_its_own() {
        let mut tally = Tally::default();
        for (seconds, moved) in [(1.0, [300, 100]), (2.0, [200, 200]), (1.0, [500, 250])] {
            tally.take(Coldness::Cold, finish(seconds, &moved), None);
        }
        let metrics = tally.metrics();
        assert_eq!(metrics["bytes_per_s"], 400.0);
        assert_eq!(metrics["bytes_per_s_min"], 200.0);
        assert_eq!(metrics["reader_bytes_per_s"], json!([300.0, 100.0]));
        assert_eq!(metrics["slowest_of_fastest"], 0.5);
        assert_eq!(metrics["rounds"], 3);
        assert!(metrics["device_bytes"].is_null());
    }

    #[test]
    fn what_one_round_did_not_count_is_null_for_all() {
        let device = DeviceCounters { reads: 7, ..DeviceCounters::default() };
        let mut tally = Tally::default();
        tally.take(Coldness::Cold, finish(1.0, &[1]), Some(device));
        assert_eq!(tally.metrics()["device_requests"], 7.0);
        tally.take(Coldness::Cold, finish(1.0, &[1]), None);
        assert!(tally.metrics()["device_requests"].is_null(), "[RRC-1]");
        tally.take(Coldness::Cold, finish(0.0, &[0]), None);
        assert!(tally.metrics()["bytes_per_s"].is_null(), "[RRC-1]");
    }

    #[test]
    fn a_cell_that_could_not_be_measured_has_no_figures() {
        let metrics = Tally::default().metrics();
        assert!(metrics["bytes_per_s"].is_null());
        assert!(metrics["slowest_of_fastest"].is_null());
        assert_eq!(metrics["reader_bytes_per_s"], json!([]));
    }
}
