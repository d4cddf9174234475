//! What the records of `strategies` say: whether `adaptive` holds, what to set where it is not wanted,
//! and how far the device should read ahead.

use std::collections::BTreeMap;

use super::NAME;
use crate::experiment::contest::{adaptive_misses, mean_ratio};
use crate::report::{Conclusion, Record};
use crate::units::shown_size;

/// A fixed strategy or a setting is advised when it is better than the next by this factor.
const CLEAR: f64 = 1.05;

/// Fewer rows than this are no evidence for a setting.
const ROWS_MIN: usize = 5;

/// Rows where `adaptive` is behind that are told one by one.
const MISSES_TOLD_MAX: usize = 3;

/// The conclusions, the most useful first.
pub(super) fn draw(records: &[Record]) -> Vec<Conclusion> {
    let mut advice: Vec<Conclusion> = adaptive(records).into_iter().collect();
    advice.extend(best_fixed(records));
    advice.extend(device_readahead(records));
    if advice.is_empty() {
        advice.push(conclusion("No conclusion: no strategy is clearly ahead.".to_owned(), "", ""));
    }
    advice
}

fn conclusion(sentence: String, setting: &str, value: &str) -> Conclusion {
    Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: setting.to_owned(),
        value: value.to_owned(),
    }
}

/// Where a record was measured, in words.
fn place(record: &Record) -> String {
    ["pattern", "cache_state", "cache"].map(|key| record.cell_text(key)).join(" ")
}

/// In how many rows `adaptive` is as good as it should be, and the worst of the others.
fn adaptive(records: &[Record]) -> Option<Conclusion> {
    let measured: Vec<&Record> = records
        .iter()
        .filter(|record| record.cell_text("strategy") == "adaptive")
        .filter(|record| record.metric("ratio_to_best").is_some())
        .collect();
    let (mean, rows) = mean_ratio(measured.iter().copied())?;
    let mut misses: Vec<&Record> =
        measured.into_iter().filter(|record| adaptive_misses(record)).collect();
    let ratio = |record: &Record| record.metric("ratio_to_best").unwrap_or(1.0);
    misses.sort_by(|a, b| f64::total_cmp(&ratio(a), &ratio(b)));
    let told: Vec<String> = misses
        .iter()
        .take(MISSES_TOLD_MAX)
        .map(|record| format!("{} ({:.2})", place(record), ratio(record)))
        .collect();
    let sentence = if misses.is_empty() {
        format!(
            "adaptive is as fast as the best other or nearly so in all of {rows} rows ({mean:.2} of the \
             best in the geometric mean): leave the strategy to it."
        )
    } else {
        format!(
            "adaptive is as fast as the best other or nearly so in {} of {rows} rows ({mean:.2} of the \
             best in the geometric mean); it is furthest behind in {}.",
            rows - misses.len(),
            told.join(", ")
        )
    };
    // With misses in every tenth row or more, it is no advice.
    let holds = rows >= ROWS_MIN && misses.len() * 10 < rows;
    let (setting, value) = if holds { ("readahead", "adaptive") } else { ("", "") };
    Some(conclusion(sentence, setting, value))
}

/// The fixed strategy that loses least over all cold rows, for each cache mode, if one is clearly ahead.
fn best_fixed(records: &[Record]) -> Vec<Conclusion> {
    let mut advice = Vec::new();
    for cache in ["buffered", "direct"] {
        let mut by_strategy: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        let cold = records.iter().filter(|record| {
            record.cell_text("cache") == cache && record.cell_text("cache_state") == "cold"
        });
        for record in cold {
            by_strategy.entry(record.cell_text("strategy")).or_default().push(record);
        }
        let rows_most = by_strategy.values().map(Vec::len).max().unwrap_or(0);
        let mut means: Vec<(&str, f64)> = by_strategy
            .iter()
            .filter(|(strategy, _)| **strategy != "adaptive")
            .filter_map(|(strategy, records)| {
                let (mean, rows) = mean_ratio(records.iter().copied())?;
                // Compared over the same rows or not at all.
                (rows == rows_most).then_some((*strategy, mean))
            })
            .collect();
        means.sort_by(|a, b| f64::total_cmp(&b.1, &a.1));
        if let [(best, mean), (next, next_mean), ..] = means[..]
            && rows_most >= ROWS_MIN
            && mean >= next_mean * CLEAR
        {
            advice.push(conclusion(
                format!(
                    "Where one fixed strategy has to do for all cold {cache} reads, {best} loses least: \
                     it reaches {mean:.2} of the best in the geometric mean of {rows_most} rows, and \
                     {next}, the next, {next_mean:.2}."
                ),
                "",
                "",
            ));
        }
    }
    advice
}

/// The device's readahead, if several values were measured and one reads sequences clearly fastest.
fn device_readahead(records: &[Record]) -> Option<Conclusion> {
    let mut points: Vec<(u64, f64, f64, f64)> = records
        .iter()
        .filter(|record| {
            let cell =
                ["pattern", "strategy", "cache_state", "cache"].map(|key| record.cell_text(key));
            cell == ["sequential", "os", "cold", "buffered"] && !record.is_not_cold()
        })
        .filter_map(|record| {
            Some((
                record.cell_number("device_readahead_bytes")?,
                record.metric("blocks_per_s")?,
                record.metric("blocks_per_s_min")?,
                record.metric("blocks_per_s_max")?,
            ))
        })
        .collect();
    points.sort_by(|a, b| f64::total_cmp(&b.1, &a.1));
    let (best, next) = (points.first()?, points.get(1)?);
    // Rounds that overlap may be chance, and so may a small gain.
    let clear = best.1 >= next.1 * CLEAR && points[1..].iter().all(|point| best.2 > point.3);
    clear.then(|| {
        let sentence = format!(
            "With the device's readahead at {} the kernel reads a sequence at {:.1} times the speed of \
             {}, the next best of {} values measured.",
            shown_size(best.0),
            best.1 / next.1,
            shown_size(next.0),
            points.len()
        );
        conclusion(sentence, "read_ahead_kb", &(best.0 / 1024).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(pattern: &str, strategy: &str, readahead: u64, rate: f64, ratio: f64) -> Record {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        let missed = strategy == "adaptive" && ratio < 0.95;
        Record {
            rounds: Vec::new(),
            experiment: NAME.to_owned(),
            cell: map(json!({
                "pattern": pattern, "strategy": strategy, "cache_state": "cold",
                "cache": "buffered", "device_readahead_bytes": readahead,
            })),
            metrics: map(json!({
                "blocks_per_s": rate, "blocks_per_s_min": rate * 0.99,
                "blocks_per_s_max": rate * 1.01, "ratio_to_best": ratio,
            })),
            remarks: missed.then(|| "adaptive reaches 0.5 of os".to_owned()).into_iter().collect(),
        }
    }

    #[test]
    fn adaptive_is_advised_where_it_holds_and_its_misses_are_named() {
        let holds: Vec<Record> =
            (0..12).map(|_| record("uniform", "adaptive", 0, 1.0, 1.0)).collect();
        let advice = draw(&holds);
        assert_eq!(
            (advice[0].setting.as_str(), advice[0].value.as_str()),
            ("readahead", "adaptive")
        );
        let mut misses = holds;
        misses.truncate(3);
        misses.push(record("bitmap-10", "adaptive", 0, 1.0, 0.5));
        let advice = draw(&misses);
        assert_eq!(advice[0].setting, "");
        assert!(advice[0].sentence.contains("3 of 4 rows"), "{advice:?}");
        assert!(advice[0].sentence.contains("bitmap-10 cold buffered (0.50)"), "{advice:?}");
    }

    #[test]
    fn one_fixed_strategy_is_named_only_if_it_is_clearly_ahead() {
        let of = |os: f64, rows: usize| {
            let pair = [record("a", "async", 0, 1.0, 1.0), record("a", "os", 0, 1.0, os)];
            let records: Vec<Record> = pair.iter().cycle().take(2 * rows).cloned().collect();
            draw(&records).iter().any(|one| one.sentence.contains("async loses least"))
        };
        assert!(of(0.5, 5));
        assert!(!of(0.5, 4), "too few rows");
        assert!(!of(0.97, 5));
    }

    #[test]
    fn the_devices_readahead_is_advised_only_if_several_were_measured_and_one_wins_clearly() {
        let advised = |rates: &[(u64, f64)]| {
            let records =
                rates.iter().map(|&(kib, rate)| record("sequential", "os", kib << 10, rate, 1.0));
            let records: Vec<Record> = records.collect();
            draw(&records).into_iter().find(|one| one.setting == "read_ahead_kb")
        };
        let advice = advised(&[(128, 100.0), (8192, 300.0), (0, 20.0)]).unwrap();
        assert_eq!(advice.value, "8192");
        assert!(advice.sentence.contains("3.0 times"), "{advice:?}");
        assert!(advised(&[(128, 100.0)]).is_none());
        assert!(advised(&[(128, 100.0), (8192, 101.0)]).is_none());
    }

    #[test]
    fn nothing_measured_is_no_conclusion() {
        assert!(draw(&[])[0].sentence.starts_with("No conclusion"));
    }
}
