//! What the records of `depth` say: how far ahead is enough, and what that is in PostgreSQL.

use std::collections::BTreeMap;

use super::{NAME, Settings};
use crate::report::{Conclusion, Record};

/// "As good as the best": within this part of it.
const GOOD_ENOUGH: f64 = 0.95;

/// A gain below this is not worth advising for.
const GAIN_MIN: f64 = 1.10;

/// PostgreSQL takes no larger value for effective_io_concurrency.
const CONCURRENCY_MAX: u64 = 1000;

/// PostgreSQL starts no more io_workers, so io_method=worker has no more reads in flight.
const WORKERS_MAX: u64 = 32;

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

    /// The line as far as `depth`.
    fn up_to(&self, depth: u64) -> Line<'_> {
        let points = self.points.iter().copied().filter(|point| point.0 <= depth).collect();
        Line { backend: self.backend, cache: self.cache, points }
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
pub(super) fn draw(settings: &Settings, records: &[Record]) -> Vec<Conclusion> {
    let lines = lines(records);
    let sentence = |sentence: String| Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    };
    let ours: Vec<&Line<'_>> = lines.iter().filter(|line| line.backend != "fio").collect();
    let Some(best) = ours.iter().max_by(|a, b| f64::total_cmp(&a.best(), &b.best())) else {
        let warm = records.iter().any(Record::is_not_cold);
        let why = if warm {
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
        } else {
            "No conclusion: nothing could be measured."
        };
        return vec![sentence(why.to_owned())];
    };
    let mut advice: Vec<Conclusion> =
        headline(settings, best, &ours).map(sentence).into_iter().collect();
    // PostgreSQL reads through the page cache: with WILLNEED up to version 17 and with
    // io_method=sync, by worker processes or io_uring from 18 on.
    for backend in ["sync", "threads", "uring"] {
        let line = ours.iter().find(|line| line.backend == backend && line.cache == "buffered");
        advice.extend(line.and_then(|line| for_postgres(line)));
    }
    advice
}

/// Which line is the fastest, where it is, and which others are as good.
fn headline(settings: &Settings, best: &Line<'_>, lines: &[&Line<'_>]) -> Option<String> {
    let (start, (depth, rate)) = (best.start()?, best.knee()?);
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
    let as_good: Vec<String> = lines
        .iter()
        .filter(|line| line.name() != best.name() && line.best() >= best.best() * GOOD_ENOUGH)
        .map(|line| line.name())
        .collect();
    let (which, others) = match as_good.as_slice() {
        [] => ("The fastest way", String::new()),
        [one] => ("One of the fastest ways", format!("; {one} is within 5 % of it")),
        [firsts @ .., last] => (
            "One of the fastest ways",
            format!("; {} and {last} are within 5 % of it", firsts.join(", ")),
        ),
    };
    Some(format!(
        "{which} to read random blocks here is {}: {} blocks/s of {} with {depth} asked for ahead \
         ({compared}){others}.",
        best.name(),
        grouped(rate),
        crate::units::shown_size(settings.block_bytes),
    ))
}

/// What a buffered line says about PostgreSQL's effective_io_concurrency, if it gains anything.
fn for_postgres(line: &Line<'_>) -> Option<Conclusion> {
    let workers = line.backend == "threads";
    let settable = line.up_to(if workers { WORKERS_MAX } else { CONCURRENCY_MAX });
    let worth = |line: &Line<'_>| line.gain().filter(|&gain| gain >= GAIN_MIN);
    // Only a depth that was measured is advised, so never the limit in place of what is past it.
    let beyond = (!workers && worth(line).is_some())
        .then(|| line.knee())
        .flatten()
        .filter(|(depth, _)| *depth > CONCURRENCY_MAX)
        .map(|(depth, _)| {
            format!(
                "the best needs {depth} requests ahead, more than PostgreSQL's limit of \
                 {CONCURRENCY_MAX}"
            )
        });
    let name = line.name();
    let (found, depth) = match (worth(&settable), settable.knee(), settable.start()) {
        (Some(gain), Some((depth, _)), Some((start, ..))) => {
            let than = if start == 0 { "none".to_owned() } else { format!("depth {start}") };
            let found = format!(
                "{depth} requests ahead are within 5 % of the best and {gain:.1} times as fast as \
                 {than}"
            );
            (Some(found), Some(depth))
        }
        _ => (None, None),
    };
    let what = match (beyond, found) {
        (Some(beyond), Some(found)) => format!("{beyond}; up to there, {found}"),
        (beyond, found) => beyond.or(found)?,
    };
    let who = match (line.backend, depth) {
        ("sync", _) => "PostgreSQL up to 17, and 18 with io_method=sync".to_owned(),
        ("threads", Some(depth)) => {
            format!("PostgreSQL 18 with io_method=worker (io_workers = {depth})")
        }
        _ => "PostgreSQL 18 with io_method=io_uring".to_owned(),
    };
    Some(Conclusion {
        experiment: NAME.to_owned(),
        sentence: format!("{who}: {what} ({name})."),
        setting: depth.map_or_else(String::new, |_| "effective_io_concurrency".to_owned()),
        value: depth.map_or_else(String::new, |depth| depth.to_string()),
    })
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
            rounds: Vec::new(),
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

    /// Records of a buffered line without noise.
    fn line(backend: &str, rates: &[(u64, f64)]) -> Vec<Record> {
        rates.iter().map(|&(depth, rate)| record(backend, depth, rate, 0.01)).collect()
    }

    #[test]
    fn a_line_that_starts_deeper_is_not_compared_with_none() {
        let advice = draw(&settings(), &line("uring", &[(4, 100.0), (64, 300.0)]));
        assert!(advice[1].sentence.contains("3.0 times as fast as depth 4 ("), "{advice:?}");
        let advice = draw(&settings(), &line("uring", &[(0, 100.0), (64, 300.0)]));
        assert!(advice[1].sentence.contains("3.0 times as fast as none ("), "{advice:?}");
    }

    #[test]
    fn past_postgresqls_limit_only_what_was_measured_below_it_is_advised() {
        let advice = draw(&settings(), &line("uring", &[(0, 100.0), (512, 200.0), (2048, 300.0)]));
        assert_eq!(
            advice[1].sentence,
            "PostgreSQL 18 with io_method=io_uring: the best needs 2048 requests ahead, more than \
             PostgreSQL's limit of 1000; up to there, 512 requests ahead are within 5 % of the best \
             and 2.0 times as fast as none (uring buffered)."
        );
        assert_eq!(advice[1].value, "512");
        let advice = draw(&settings(), &line("uring", &[(0, 100.0), (2048, 300.0)]));
        assert!(advice[1].sentence.ends_with("limit of 1000 (uring buffered)."), "{advice:?}");
        assert_eq!(advice[1].setting, "");
    }

    #[test]
    fn postgresql_workers_are_judged_by_as_many_as_there_can_be() {
        let rates = [(0, 100.0), (16, 190.0), (32, 195.0), (64, 400.0), (256, 800.0)];
        let advice = draw(&settings(), &line("threads", &rates));
        assert!(advice[0].sentence.contains("with 256 asked for ahead"), "{advice:?}");
        assert_eq!(advice[1].value, "16");
        assert!(advice[1].sentence.contains("(io_workers = 16): 16 requests"), "{advice:?}");
        // What is only faster with more workers than that gives no advice.
        let advice = draw(&settings(), &line("threads", &[(0, 100.0), (64, 400.0)]));
        assert_eq!(advice.len(), 1, "{advice:?}");
    }

    #[test]
    fn there_is_no_winner_among_equals() {
        let mut records = line("uring", &[(0, 100.0), (64, 300.0)]);
        records.extend(line("sync", &[(0, 100.0), (64, 180.0)]));
        let told = |records: &[Record]| draw(&settings(), records)[0].sentence.clone();
        assert!(told(&records).starts_with("The fastest way "), "{}", told(&records));
        assert!(told(&records).ends_with("any depth)."), "{}", told(&records));
        records.extend(line("threads", &[(0, 100.0), (64, 290.0)]));
        assert!(told(&records).starts_with("One of the fastest ways "), "{}", told(&records));
        assert!(told(&records).ends_with("; threads buffered is within 5 % of it."));
        records.extend(line("aio", &[(0, 100.0), (64, 298.0)]));
        assert!(
            told(&records).ends_with("; aio buffered and threads buffered are within 5 % of it.")
        );
        // fio is there to compare with, and no way to read blocks.
        records.extend(line("fio", &[(0, 100.0), (64, 299.0)]));
        assert!(!told(&records).contains("fio"));
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
