//! Tallies: what the rounds of one cell gave, and the metrics that follow.
//!
//! Every experiment measures a cell several times and reports medians under the same names.
//!
//! Invariants:  [TAL-1] a metric is the median of all rounds, or null; never of some of them
//!              [TAL-2] a 99th percentile is of a thousand waits at least
//! Failure:     a round that this system has not the means for is put down with its reason; anything
//!              else that went wrong is handed back and ends the run.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::facts::{CounterSource, DeviceCounters};
use crate::measure::Coldness;

/// Of fewer waits than this the 99th percentile is one of the ten longest, and so chance.
const WAITS_FOR_P99: u64 = 1000;

/// What one measurement gave.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) blocks: u64,
    /// Different blocks that had to come from the device; `None` where that is no question, since they
    /// were in memory.
    pub(super) blocks_needed: Option<u64>,
    pub(super) seconds: f64,
    /// Processor time of the whole process.
    pub(super) processor_seconds: f64,
    /// How long the reader waited for each block, in nanoseconds; `None` where nobody looked.
    pub(super) wait_ns: Option<Histogram<u64>>,
}

impl Round {
    /// Blocks per second.
    pub(super) fn rate(&self) -> f64 {
        self.blocks as f64 / self.seconds
    }

    /// Bytes nobody asked for, as a part of those that were asked for.
    pub(super) fn over_read(
        &self,
        device: Option<&DeviceCounters>,
        block_bytes: u64,
    ) -> Option<f64> {
        let needed = self.blocks_needed.filter(|&needed| needed > 0)?;
        Some(device?.read_bytes as f64 / (needed * block_bytes) as f64 - 1.0)
    }

    /// What half of the blocks were waited for at most, in microseconds.
    pub(super) fn wait_us_p50(&self) -> Option<f64> {
        self.wait_us(0.50, 1)
    }

    /// What 99 of 100 blocks were waited for at most, in microseconds; `None` of too few.
    pub(super) fn wait_us_p99(&self) -> Option<f64> {
        self.wait_us(0.99, WAITS_FOR_P99) // [TAL-2]
    }

    fn wait_us(&self, quantile: f64, fewest: u64) -> Option<f64> {
        let waits = self.wait_ns.as_ref().filter(|waits| waits.len() >= fewest)?;
        Some(waits.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Processor time for each block, in microseconds.
    pub(super) fn processor_us(&self) -> f64 {
        self.processor_seconds * 1e6 / self.blocks as f64
    }

    /// Its metrics by their names, with what the device did meanwhile.
    fn metrics(&self, device: Option<&DeviceCounters>, block_bytes: u64) -> Map<String, Value> {
        let metrics = json!({
            "seconds": self.seconds,
            "blocks": self.blocks,
            "blocks_per_s": self.rate(),
            "bytes_per_s": self.rate() * block_bytes as f64,
            "device_requests": device.map(|device| device.reads),
            "device_bytes": device.map(|device| device.read_bytes),
            "over_read": self.over_read(device, block_bytes),
            "wait_us_p50": self.wait_us_p50(),
            "wait_us_p99": self.wait_us_p99(),
            "cpu_us_per_block": self.processor_us(),
        });
        metrics.as_object().cloned().unwrap_or_default()
    }
}

/// What one round of a cell gave.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) round: Round,
    pub(super) device: Option<DeviceCounters>,
    pub(super) notes: Vec<String>,
}

#[cfg(test)]
impl Measured {
    /// A hundred blocks at `rate` blocks per second.
    pub(super) fn of_rate(rate: f64) -> Measured {
        let (blocks, seconds, processor_seconds) = (100, 100.0 / rate, 0.1);
        let round =
            Round { blocks, blocks_needed: Some(100), seconds, processor_seconds, wait_ns: None };
        Measured { round, device: None, notes: Vec::new() }
    }
}

impl Measured {
    /// Both, measured one after the other.
    pub(super) fn plus(mut self, other: Measured) -> Measured {
        let (round, more) = (&mut self.round, other.round);
        round.blocks += more.blocks;
        round.blocks_needed =
            round.blocks_needed.zip(more.blocks_needed).map(|(some, others)| some + others);
        round.seconds += more.seconds;
        round.processor_seconds += more.processor_seconds;
        if let (Some(waits), Some(others)) = (&mut round.wait_ns, &more.wait_ns) {
            waits.add(others).expect("all histograms are made alike");
        }
        self.device = self.device.zip(other.device).map(|(some, others)| some.plus(others));
        self.notes.extend(other.notes);
        self
    }
}

/// What the rounds of one cell gave.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rounds: Vec<Round>,
    /// One for each round.
    device: Vec<Option<DeviceCounters>>,
    pub(super) coldness: Vec<Coldness>,
    /// What the queues had to say, in each round anew.
    pub(super) notes: Vec<String>,
    /// Why rounds could not be measured.
    pub(super) failures: Vec<String>,
}

impl Tally {
    /// Takes in a round; one that this system has not the means for is put down as such, and
    /// anything else that went wrong is handed back.
    pub(super) fn take(
        &mut self,
        coldness: Coldness,
        measured: anyhow::Result<Measured>,
    ) -> anyhow::Result<()> {
        match measured {
            Ok(Measured { round, device, notes }) => {
                self.coldness.push(coldness);
                self.rounds.push(round);
                self.device.push(device);
                self.notes.extend(notes);
            }
            Err(error) => match lack_of_means(&error) {
                Some(lack) => self.failures.push(lack.to_string()),
                None => return Err(error),
            },
        }
        Ok(())
    }

    /// The metrics of each round by their names, as [`Record::new`](crate::report::Record::new) takes
    /// them. `block_bytes`: size of a block.
    pub(super) fn rounds(&self, block_bytes: u64) -> Vec<Map<String, Value>> {
        let rounds = self.rounds.iter().zip(&self.device);
        rounds.map(|(round, device)| round.metrics(device.as_ref(), block_bytes)).collect()
    }
}

/// From a nanosecond to an hour in steps of 0.1 %.
pub(super) fn wait_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the histogram's bounds are valid")
}

/// What `work` gives, and what the device did meanwhile where that can be told. `settle` is called
/// after the work and before the second look at the device.
pub(super) fn counted(
    counters: Option<&CounterSource>,
    work: impl FnOnce() -> anyhow::Result<Round>,
    settle: impl FnOnce(),
) -> anyhow::Result<Measured> {
    let read = || counters.and_then(|source| source.read().ok());
    let before = read();
    let round = work()?;
    settle();
    let device = before.zip(read()).map(|(before, after)| after.since(&before));
    Ok(Measured { round, device, notes: Vec::new() })
}

/// The error below `error` if it says that this system does not provide what a cell needs: no
/// evidence against the other cells, as wrong data or a failing device would be.
pub(super) fn lack_of_means(error: &anyhow::Error) -> Option<&forebay_io::Error> {
    use forebay_io::Error::{Memlock, Memory, Unavailable, Unsupported};
    let below = error.downcast_ref::<forebay_io::Error>().or_else(|| {
        match error.downcast_ref::<forebay::Error>()? {
            forebay::Error::Io(error) => Some(error),
            _ => None,
        }
    });
    below.filter(|error| {
        matches!(error, Unavailable { .. } | Unsupported { .. } | Memory { .. } | Memlock { .. })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Record;

    fn measured(device: Option<DeviceCounters>, blocks_needed: Option<u64>) -> Measured {
        let seconds = 0.5;
        let round =
            Round { blocks: 100, blocks_needed, seconds, processor_seconds: 0.1, wait_ns: None };
        Measured { round, device, notes: Vec::new() }
    }

    fn metrics(rounds: Vec<Measured>) -> Map<String, Value> {
        let mut tally = Tally::default();
        for measured in rounds {
            tally.take(Coldness::Cold, Ok(measured)).unwrap();
        }
        Record::new("depth", &serde_json::Map::new(), &tally.rounds(8192)).metrics
    }

    #[test]
    fn what_one_round_did_not_count_is_null_for_all() {
        let device = DeviceCounters { reads: 7, read_bytes: 819_200, ..Default::default() };
        let both =
            metrics(vec![measured(Some(device), Some(50)), measured(Some(device), Some(50))]);
        assert_eq!(both["device_requests"], 7.0);
        assert_eq!(both["over_read"], 1.0, "twice the bytes that were needed");
        let one = metrics(vec![measured(Some(device), Some(50)), measured(None, Some(50))]);
        assert!(one["device_requests"].is_null(), "[TAL-1]");
        let resident = metrics(vec![measured(Some(device), None)]);
        assert!(resident["over_read"].is_null(), "[TAL-1]");
        assert_eq!(resident["blocks_per_s"], 200.0);
        assert!(resident["wait_us_p50"].is_null());
    }

    #[test]
    fn each_round_has_its_metrics_and_a_p99_only_of_a_thousand_waits() {
        let mut tally = Tally::default();
        for count in [999, 1000] {
            let mut waits = wait_histogram();
            waits.record_n(2000, count).unwrap();
            let device = DeviceCounters { reads: count, read_bytes: 819_200, ..Default::default() };
            let mut measured = measured(Some(device), Some(50));
            measured.round.wait_ns = Some(waits);
            tally.take(Coldness::Cold, Ok(measured)).unwrap();
        }
        let rounds = tally.rounds(8192);
        assert_eq!(
            (&rounds[0]["device_requests"], &rounds[1]["device_requests"]),
            (&999.into(), &1000.into())
        );
        assert_eq!(
            (&rounds[0]["over_read"], &rounds[0]["blocks_per_s"]),
            (&1.0.into(), &200.0.into())
        );
        assert!(rounds[0]["wait_us_p99"].is_null(), "[TAL-2]");
        assert!(rounds[0]["wait_us_p50"].is_number() && rounds[1]["wait_us_p99"].is_number());
    }

    #[test]
    fn two_measurements_make_one_and_what_one_of_them_lacks_is_lacking() {
        let device = DeviceCounters { reads: 7, ..Default::default() };
        let sum = measured(Some(device), Some(50)).plus(measured(Some(device), None));
        assert_eq!(
            (sum.round.blocks, sum.round.seconds, sum.round.blocks_needed),
            (200, 1.0, None)
        );
        assert_eq!(sum.device.map(|device| device.reads), Some(14));
        assert!(sum.plus(measured(None, None)).device.is_none());
    }

    #[test]
    fn a_pools_error_shows_the_same_lack_of_means() {
        let lack = || forebay_io::Error::Memlock {
            what: "the arena",
            needed: 9,
            source: forebay_io::OsError::ENOMEM,
        };
        assert!(lack_of_means(&anyhow::Error::new(lack())).is_some());
        assert!(lack_of_means(&anyhow::Error::new(forebay::Error::Io(lack()))).is_some());
        assert!(lack_of_means(&anyhow::Error::new(forebay::Error::Closed)).is_none());
    }
}
