//! Tests of the Prometheus text, with a parser that accepts only what the format allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::observe::stats::{Counters, Event, PoolEvent};

/// A parsed scrape: metrics' kinds, and samples in order.
#[derive(Debug, Default)]
struct Scrape {
    kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

impl Scrape {
    fn value(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        let fits = |sample: &&Sample| {
            sample.name == name && label.is_none_or(|(key, value)| sample.label(key) == Some(value))
        };
        let found: Vec<&Sample> = self.samples.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{name} {label:?}");
        found[0].value
    }
}

/// `[a-zA-Z_][a-zA-Z0-9_]*`
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(plain) && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a space before the value");
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => {
            let inside = rest.strip_suffix('}').expect("a brace at the end of the labels");
            (name, inside.split(',').map(label).collect())
        }
    };
    assert!(is_name(name), "{line}");
    Sample { name: name.to_owned(), labels, value: value.parse().expect("a number") }
}

fn label(text: &str) -> (String, String) {
    let (key, value) = text.split_once('=').expect("= in a label");
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let value = value.expect("quotes around a label's value");
    assert!(is_name(key) && !value.contains(['"', '\\', '\n']), "{text}");
    (key.to_owned(), value.to_owned())
}

/// The metric that a sample belongs to: a histogram's parts have suffixes.
fn metric_of<'a>(name: &'a str, kinds: &BTreeMap<String, String>) -> &'a str {
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    histogram
        .filter(|base| kinds.get(*base).is_some_and(|kind| kind == "histogram"))
        .unwrap_or(name)
}

fn parse(text: &str) -> Scrape {
    let mut scrape = Scrape::default();
    let mut helped: Option<String> = None;
    let mut current = String::new();
    let mut series = BTreeSet::new();
    assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').expect("HELP has a text");
            assert!(is_name(name) && !about.trim().is_empty() && helped.is_none(), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("TYPE has a kind");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(helped.take().as_deref(), Some(name), "[STAT-5] HELP before TYPE");
            let earlier = scrape.kinds.insert(name.to_owned(), kind.to_owned());
            assert!(earlier.is_none(), "[STAT-5] {name} has two TYPEs");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = name.to_owned();
        } else {
            let sample = sample(line);
            let metric = metric_of(&sample.name, &scrape.kinds);
            assert_eq!(metric, current, "[STAT-5] a sample stands under its TYPE");
            let key = (sample.name.clone(), sample.labels.iter().cloned().collect::<BTreeSet<_>>());
            assert!(series.insert(key), "[STAT-5] {line} is there twice");
            scrape.samples.push(sample);
        }
    }
    assert_eq!(helped, None);
    scrape
}

fn busy() -> Counters {
    let counters = Counters::new();
    for (kind, hits) in StrategyKind::ALL.into_iter().zip(1..) {
        (0..hits).for_each(|_| counters.hit(kind));
        counters.add(kind, Event::BytesWritten, hits * 4096);
    }
    counters.optimistic();
    counters.add_pool(PoolEvent::CleanerPages, 77);
    for wait in Wait::ALL {
        for us in [0, 1, 30, 30, 900, 2_000_000, 90_000_000] {
            counters.waited(wait, Duration::from_micros(us + wait.index() as u64));
        }
    }
    counters
}

#[test]
fn the_text_keeps_to_the_format_busy_or_not() {
    parse(&Stats::default().prometheus());
    parse(&busy().snapshot().prometheus());
}

#[test]
fn every_number_arrives_under_its_name_and_strategy() {
    let stats = Stats { frames: 100, frames_dirty: 5, page_bytes: 8192, ..busy().snapshot() };
    let scrape = parse(&stats.prometheus());
    assert_eq!(scrape.value("forebay_frames", None), 100.0);
    assert_eq!(scrape.value("forebay_frames_dirty", None), 5.0);
    assert_eq!(scrape.value("forebay_page_bytes", None), 8192.0);
    assert_eq!(scrape.value("forebay_memory_bytes", None), 819_200.0);
    assert_eq!(scrape.value("forebay_optimistic_reads_total", None), 1.0);
    assert_eq!(scrape.value("forebay_cleaner_pages_total", None), 77.0);
    for (kind, hits) in StrategyKind::ALL.into_iter().zip([1.0, 2.0, 3.0, 4.0]) {
        let label = Some(("strategy", kind.name()));
        assert_eq!(scrape.value("forebay_hits_total", label), hits);
        assert_eq!(scrape.value("forebay_written_bytes_total", label), hits * 4096.0);
    }
    let counters = stats.total().named().len() * StrategyKind::COUNT + stats.pool.named().len();
    let totals = scrape.samples.iter().filter(|sample| sample.name.ends_with("_total")).count();
    assert_eq!(totals, counters);
}

#[test]
fn a_series_is_there_before_it_counts_anything() {
    let series = |stats: &Stats| parse(&stats.prometheus()).samples.len();
    assert_eq!(series(&Stats::default()), series(&busy().snapshot()));
}

// [STAT-4]
#[test]
fn buckets_rise_to_infinity_which_is_the_count() {
    let scrape = parse(&busy().snapshot().prometheus());
    assert_eq!(scrape.kinds["forebay_wait_seconds"], "histogram");
    for wait in Wait::ALL {
        let label = Some(("wait", wait.name()));
        let buckets: Vec<(f64, f64)> = scrape
            .samples
            .iter()
            .filter(|sample| sample.name == "forebay_wait_seconds_bucket")
            .filter(|sample| sample.label("wait") == Some(wait.name()))
            .map(|sample| (sample.label("le").unwrap().parse().unwrap(), sample.value))
            .collect();
        for pair in buckets.windows(2) {
            assert!(pair[0].0 < pair[1].0, "ends rise: {pair:?}");
            assert!(pair[0].1 <= pair[1].1, "[STAT-4] {pair:?}");
        }
        let (end, count) = *buckets.last().unwrap();
        assert_eq!(end, f64::INFINITY);
        assert_eq!(count, 7.0);
        assert_eq!(count, scrape.value("forebay_wait_seconds_count", label));
        assert!(scrape.value("forebay_wait_seconds_sum", label) >= 92.0);
    }
}

#[test]
fn the_ends_of_buckets_are_in_seconds() {
    let scrape = parse(&busy().snapshot().prometheus());
    let within = |seconds: f64| {
        let buckets = scrape.samples.iter().filter(|sample| {
            sample.label("wait") == Some("read") && sample.name.ends_with("_bucket")
        });
        let end = |sample: &Sample| sample.label("le").unwrap().parse::<f64>().unwrap();
        buckets
            .filter(|sample| end(sample) <= seconds)
            .map(|sample| sample.value)
            .fold(0.0, f64::max)
    };
    // Waits of 0, 1, 30, 30 and 900 us, 2 s and 90 s.
    assert_eq!([within(2e-6), within(1e-4), within(1.0), within(10.0)], [2.0, 4.0, 5.0, 6.0]);
}
