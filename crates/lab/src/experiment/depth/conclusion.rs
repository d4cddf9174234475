//! What the records of `depth` say: how far ahead is enough, and what that is in PostgreSQL.

use std::collections::BTreeMap;

use super::{NAME, Settings};
use crate::report::{Advice, Record};

/// "As good as the best": within this part of it.
const GOOD_ENOUGH: f64 = 0.95;

/// A gain below this is not worth advising for.
const GAIN_MIN: f64 = 1.10;

/// PostgreSQL takes no larger value for effective_io_concurrency.
const CONCURRENCY_MAX: u64 = 1000;

/// One line of the plot.
struct Line<'a> {
    backend: &'a str,
    cache: &'a str,
    /// (depth, blocks per second, lowest, highest), ascending.
    points: Vec<(u64, f64, f64, f64)>,
}

impl Line<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.backend, self.cache)
    }

    fn best(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(0.0, f64::max)
    }

    /// The smallest depth as good as the best, and its rate.
    fn knee(&self) -> Option<(u64, f64)> {
        let enough = self.best() * GOOD_ENOUGH;
        self.points.iter().find(|point| point.1 >= enough).map(|point| (point.0, point.1))
    }

    /// The rate of the shallowest depth: the start of the line.
    fn start(&self) -> Option<(u64, f64, f64, f64)> {
        self.points.first().copied()
    }

    /// How much the knee gains over the start; `None` if the rounds overlap, so that it may be
    /// chance.
    fn gain(&self) -> Option<f64> {
        let (start, knee) = (self.start()?, self.knee()?);
        let lowest_at_knee = self.points.iter().find(|point| point.0 == knee.0)?.2;
        (lowest_at_knee > start.3).then_some(knee.1 / start.1)
    }
}

/// The conclusions, the most useful first.
pub(super) fn draw(settings: &Settings, records: &[Record]) -> Vec<Advice> {
    let lines = lines(records);
    let sentence = |sentence: String| Advice {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    };
    let best = lines
        .iter()
        .filter(|line| line.backend != "fio")
        .max_by(|a, b| f64::total_cmp(&a.best(), &b.best()));
    let Some(best) = best else {
        let warm = records.iter().any(Record::is_not_cold);
        let why = if warm {
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
        } else {
            "No conclusion: nothing could be measured."
        };
        return vec![sentence(why.to_owned())];
    };
    let mut advice = Vec::new();
    if let (Some(start), Some((depth, rate))) = (best.start(), best.knee()) {
        let compared = match best.gain() {
            _ if best.points.len() == 1 => "the only depth measured".to_owned(),
            Some(gain) if gain >= GAIN_MIN => {
                format!(
                    "{gain:.1} times what depth {} gives, and within 5 % of the best of any depth",
                    start.0
                )
            }
            _ => format!("no clear gain over depth {}", start.0),
        };
        advice.push(sentence(format!(
            "The fastest way to read random blocks here is {}: {} blocks/s of {} with {depth} \
             asked for ahead ({compared}).",
            best.name(),
            grouped(rate),
            crate::units::shown_size(settings.block_bytes),
        )));
    }
    // PostgreSQL reads through the page cache: with WILLNEED up to version 17 and with
    // io_method=sync, by worker processes or io_uring from 18 on.
    let postgres = [
        ("sync", "PostgreSQL up to 17, and 18 with io_method=sync"),
        ("threads", "PostgreSQL 18 with io_method=worker and as many io_workers"),
        ("uring", "PostgreSQL 18 with io_method=io_uring"),
    ];
    for (backend, who) in postgres {
        let line = lines.iter().find(|line| line.backend == backend && line.cache == "buffered");
        let Some(line) = line else { continue };
        let Some((depth, _)) = line.knee() else { continue };
        if let Some(gain) = line.gain().filter(|&gain| gain >= GAIN_MIN) {
            let value = depth.clamp(1, CONCURRENCY_MAX).to_string();
            advice.push(Advice {
                experiment: NAME.to_owned(),
                sentence: format!(
                    "{who}: {value} requests ahead are within 5 % of the best and {gain:.1} times \
                     as fast as none ({}).",
                    line.name()
                ),
                setting: "effective_io_concurrency".to_owned(),
                value,
            });
        }
    }
    advice
}

fn lines(records: &[Record]) -> Vec<Line<'_>> {
    let mut lines: BTreeMap<(&str, &str), Line<'_>> = BTreeMap::new();
    for record in records {
        let (backend, cache) = (record.cell_text("backend"), record.cell_text("cache"));
        // A warm cell is no evidence about the disk.
        let cold = !record.is_not_cold();
        let point = (
            record.cell_number("depth"),
            record.metric("blocks_per_s"),
            record.metric("blocks_per_s_min"),
            record.metric("blocks_per_s_max"),
        );
        if let (true, (Some(depth), Some(rate), Some(min), Some(max))) = (cold, point) {
            let line = lines.entry((backend, cache)).or_insert_with(|| Line {
                backend,
                cache,
                points: Vec::new(),
            });
            line.points.push((depth, rate, min, max));
        }
    }
    let mut lines: Vec<_> = lines.into_values().collect();
    for line in &mut lines {
        line.points.sort_by_key(|point| point.0);
    }
    lines
}

/// A number with its thousands apart: 73 120.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(backend: &str, depth: u64, rate: f64, spread: f64) -> Record {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        Record {
            experiment: NAME.to_owned(),
            cell: map(json!({ "backend": backend, "cache": "buffered", "depth": depth })),
            metrics: map(json!({
                "blocks_per_s": rate,
                "blocks_per_s_min": rate * (1.0 - spread),
                "blocks_per_s_max": rate * (1.0 + spread),
            })),
            remarks: Vec::new(),
        }
    }

    fn settings() -> Settings {
        let common = crate::cli::CommonArgs { dir: ".".into(), seed: Some(1) };
        Settings::new(&crate::cli::DepthArgs::quick(&common)).unwrap()
    }

    #[test]
    fn the_smallest_depth_within_five_percent_of_the_best_is_advised() {
        let rates = [(0, 100.0), (16, 300.0), (64, 480.0), (256, 500.0)];
        let records: Vec<_> =
            rates.iter().map(|&(depth, rate)| record("sync", depth, rate, 0.01)).collect();
        let advice = draw(&settings(), &records);
        assert!(advice[0].sentence.contains("64 asked for ahead"), "{advice:?}");
        let setting = advice.iter().find(|one| !one.setting.is_empty()).unwrap();
        assert_eq!(setting.value, "64");
    }

    #[test]
    fn a_gain_within_the_noise_is_no_advice() {
        let records = [record("sync", 0, 100.0, 0.3), record("sync", 64, 130.0, 0.3)];
        let advice = draw(&settings(), &records);
        assert!(advice.iter().all(|one| one.setting.is_empty()), "{advice:?}");
        assert!(advice[0].sentence.contains("no clear gain"), "{advice:?}");
    }

    #[test]
    fn a_warm_cell_is_no_evidence() {
        let mut warm = record("sync", 64, 9000.0, 0.01);
        warm.remarks.push("not cold: 5 of 9 pages stayed in the page cache".to_owned());
        let advice = draw(&settings(), &[record("sync", 0, 100.0, 0.01), warm]);
        assert!(advice.iter().all(|one| one.setting.is_empty()), "{advice:?}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(73_120.4), "73 120");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(1_234_567.0), "1 234 567");
    }
}
