//! Records of the experiment: each kind's throughput, and what it keeps of what it had alone.
//!
//! A record has metrics of both kinds of readers; those of a kind that did not take part are null. In
//! records of `both`, `stream_kept` and `random_kept` are rates as parts of those alone under the same
//! readahead.

use serde_json::{Map, Value, json};

use super::{Cell, Measured, Mix, NAME, Settings, Tally};
use crate::experiment::readahead::{Setting, place};
use crate::experiment::tally::wait_histogram;
use crate::experiment::unique;
use crate::facts::Storage;
use crate::measure::{Coldness, Spread};
use crate::report::Record;
use crate::units::shown_size;

/// The records of all `cells`, in their order.
pub(super) fn records(
    settings: &Settings,
    storage: &Storage,
    cells: &[Cell],
    tallies: &[Tally],
) -> Vec<Record> {
    let pairs = || cells.iter().copied().zip(tallies);
    pairs()
        .map(|(cell, tally)| {
            let alone = |mix: Mix| {
                // [MIX-1]
                let of = Cell { mix, ..cell };
                pairs().find(|(other, _)| *other == of).map(|(_, tally)| tally)
            };
            record(settings, storage, cell, tally, [Mix::Streams, Mix::Random].map(alone))
        })
        .collect()
}

fn record(
    settings: &Settings,
    storage: &Storage,
    cell: Cell,
    tally: &Tally,
    alone: [Option<&Tally>; 2],
) -> Record {
    let mut fields = object(json!({
        "mix": cell.mix.name(),
        "streams": settings.streams,
        "random_readers": settings.random,
        "readahead_bytes": cell.setting.bytes(settings.knob.found_bytes),
        "readahead_by": cell.setting.by().name(),
        "advice": cell.setting.advice(),
        "request_bytes": settings.request_bytes,
        "cache": "buffered",
    }));
    fields.extend(place(storage));
    Record {
        rounds: Vec::new(),
        experiment: NAME.to_owned(),
        cell: fields,
        metrics: metrics(settings, cell, tally, alone),
        remarks: remarks(settings, cell, tally),
    }
}

/// Bytes per second of one kind in one round.
fn rates<'t>(
    settings: &'t Settings,
    mix: Mix,
    kind: Mix,
    tally: &'t Tally,
) -> impl Iterator<Item = f64> + 't {
    let (streams, random) = settings.readers(mix);
    let streams = streams as usize;
    let range = if kind == Mix::Streams { 0..streams } else { streams..streams + random as usize };
    let rate = move |round: &Measured| {
        let moved: u64 = round.finish.moved[range.clone()].iter().sum();
        moved as f64 / round.finish.seconds
    };
    tally.rounds.iter().filter(move |_| mix == kind || mix == Mix::Both).map(rate)
}

fn metrics(
    settings: &Settings,
    cell: Cell,
    tally: &Tally,
    alone: [Option<&Tally>; 2],
) -> Map<String, Value> {
    let spread = |kind| Spread::of(rates(settings, cell.mix, kind, tally));
    let (streams, random) = (spread(Mix::Streams), spread(Mix::Random));
    let kept = |kind: Mix, mixed: Option<Spread>, alone: Option<&Tally>| {
        let alone = Spread::of(rates(settings, kind, kind, alone?))?.median;
        let kept = mixed?.median / alone;
        (cell.mix == Mix::Both && kept.is_finite()).then_some(kept)
    };
    let mut waits = wait_histogram();
    for round in &tally.rounds {
        waits.add(&round.wait_ns).expect("all histograms are made alike");
    }
    let wait_us =
        |quantile| (!waits.is_empty()).then(|| waits.value_at_quantile(quantile) as f64 / 1e3);
    let reads = |bytes_per_s: f64| bytes_per_s / settings.request_bytes as f64;
    let device = |value: &dyn Fn(&crate::facts::DeviceCounters) -> f64| {
        let values: Option<Vec<f64>> =
            tally.rounds.iter().map(|round| round.device.as_ref().map(value)).collect();
        Spread::of(values?).map(|spread| spread.median)
    };
    object(json!({
        "stream_bytes_per_s": streams.map(|it| it.median),
        "stream_bytes_per_s_min": streams.map(|it| it.min),
        "stream_bytes_per_s_max": streams.map(|it| it.max),
        "stream_kept": kept(Mix::Streams, streams, alone[0]),
        "random_reads_per_s": random.map(|it| reads(it.median)),
        "random_reads_per_s_min": random.map(|it| reads(it.min)),
        "random_reads_per_s_max": random.map(|it| reads(it.max)),
        "random_kept": kept(Mix::Random, random, alone[1]),
        "random_wait_us_p50": wait_us(0.5),
        "random_wait_us_p99": wait_us(0.99),
        "seconds": Spread::of(tally.rounds.iter().map(|round| round.finish.seconds)).map(|it| it.median),
        "rounds": tally.rounds.len(),
        "device_requests": device(&|counters| counters.reads as f64),
        "device_bytes": device(&|counters| counters.read_bytes as f64),
    }))
}

fn remarks(settings: &Settings, cell: Cell, tally: &Tally) -> Vec<String> {
    let mut remarks: Vec<String> = tally.coldness.iter().filter_map(Coldness::remark).collect();
    if let Some(bytes) = tally.made_bytes {
        remarks.push(format!("the kernel made {} of this readahead", shown_size(bytes)));
    }
    if let (Setting::Descriptor(_), Some(why)) = (cell.setting, &settings.knob.why_not_device) {
        remarks.push(format!(
            "varied by advice for descriptors, since the device's readahead cannot be set ({why})"
        ));
    }
    unique(&remarks)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CommonArgs, MixtureArgs};
    use crate::experiment::readahead::{By, Finish};

    fn settings() -> Settings {
        Settings::new(&MixtureArgs {
            common: CommonArgs { dir: ".".into(), seed: Some(1) },
            size: Some(64 << 20),
            streams: 2,
            random: 1,
            request: 8192,
            readahead: Vec::new(),
            by: Some(By::Descriptor),
            time: None,
            rounds: None,
            quick: true,
            output: crate::cli::OutputArgs::default(),
        })
        .unwrap()
    }

    /// One round of a second.
    fn tally(moved: &[u64]) -> Tally {
        let finish = Finish { seconds: 1.0, moved: moved.to_vec(), by_share: false };
        let wait_ns = wait_histogram();
        Tally { rounds: vec![Measured { finish, wait_ns, device: None }], ..Tally::default() }
    }

    #[test]
    fn each_kind_is_compared_with_itself_alone() {
        let settings = settings();
        let setting = settings.readaheads[1];
        let mixes = [Mix::Streams, Mix::Random, Mix::Both];
        let tallies = [tally(&[300, 500]), tally(&[8192 * 10]), tally(&[100, 100, 8192 * 4])];
        let other = Cell { setting: settings.readaheads[0], mix: Mix::Streams };
        let cells: Vec<Cell> =
            std::iter::once(other).chain(mixes.map(|mix| Cell { setting, mix })).collect();
        let tallies: Vec<Tally> = std::iter::once(tally(&[1, 1])).chain(tallies).collect();
        let storage = Storage::read(std::path::Path::new(".")).unwrap();
        let records = self::records(&settings, &storage, &cells, &tallies);
        let [_, streams, random, both] = &records[..] else { panic!("{records:?}") };
        assert_eq!(streams.metric("stream_bytes_per_s"), Some(800.0));
        assert_eq!(streams.metric("random_reads_per_s"), None);
        assert_eq!(streams.metric("stream_kept"), None);
        assert_eq!(random.metric("random_reads_per_s"), Some(10.0));
        assert_eq!(both.metric("stream_kept"), Some(0.25), "[MIX-1]");
        assert_eq!(both.metric("random_kept"), Some(0.4), "[MIX-1]");
    }
}
