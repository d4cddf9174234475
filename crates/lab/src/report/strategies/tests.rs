//! Maps, losses and means, as a reader of the report relies on them.

use serde_json::json;

use super::super::sample::{absurd, strategy};
use super::*;

const COLD: (&str, &str) = ("cold", "direct");

fn row(rates: &[(&str, f64)]) -> Vec<Record> {
    rates.iter().map(|(name, rate)| strategy("uniform", name, COLD, Some(*rate), &[])).collect()
}

#[test]
fn records_become_maps_in_the_order_a_reader_expects() {
    let records = [
        strategy("tidal", "adaptive", ("pool", "direct"), Some(1.0), &[]),
        strategy("uniform", "newest", ("cold", "direct"), Some(1.0), &[]),
        strategy("sequential", "adaptive", ("cold", "direct"), Some(1.0), &[]),
        strategy("sequential", "os", ("cold", "direct"), Some(1.0), &[]),
        strategy("uniform", "os", ("cold", "buffered"), Some(1.0), &[]),
    ];
    let grouped = Maps::group(&records);
    let labels: Vec<&str> = grouped.maps.iter().map(|map| map.label.as_str()).collect();
    let expected = ["cold, buffered", "cold, direct", "pool, direct"]
        .map(|place| format!("{place}, kernel readahead 128 KiB"));
    assert_eq!(labels, expected);
    assert_eq!(grouped.strategies, ["os", "adaptive", "newest"]);
    let patterns: Vec<&str> = grouped.maps[1].rows.iter().map(|row| row.pattern).collect();
    assert_eq!(patterns, ["sequential", "uniform"]);
}

#[test]
fn no_record_is_lost_whatever_its_shape() {
    let records = absurd();
    let grouped = Maps::group(&records);
    let rows = grouped.maps.iter().flat_map(|map| &map.rows);
    let placed: usize = rows.map(|row| row.cells.len()).sum();
    let all = records.iter().filter(|record| record.experiment == EXPERIMENT).count();
    assert_eq!(placed + grouped.leftovers.len(), all, "[STR-1]");
    assert!(placed > 3 && grouped.leftovers.len() > 24, "both are met: {placed}");
}

#[test]
fn the_best_of_a_row_is_cold() {
    let mut records = row(&[("os", 100.0), ("async", 400.0), ("max", 900.0)]);
    records[2].remarks.push("not cold: half was cached".into());
    let grouped = Maps::group(&records);
    let row = &grouped.maps[0].rows[0];
    assert_eq!(row.best().map(|cell| cell.strategy), Some("async"), "[STR-2]");
    assert_eq!(row.cold_share("os"), Some(0.25));
    assert_eq!(row.cold_share("max"), None);
    assert_eq!(row.share(row.at("max").unwrap()), Some(2.25), "shown, though not ranked");
}

#[test]
fn adaptive_loses_below_its_bound_and_not_at_it() {
    for (place, rate, is_lost) in [
        (COLD, 380.0, false),
        (COLD, 379.0, true),
        (("quarter", "direct"), 380.0, false),
        (("pool", "direct"), 387.0, true),
        (("page-cache", "buffered"), 388.0, false),
    ] {
        let records = [
            strategy("uniform", "async", place, Some(400.0), &[]),
            strategy("uniform", "adaptive", place, Some(rate), &[]),
        ];
        let grouped = Maps::group(&records);
        let verdict = grouped.verdict();
        assert_eq!(verdict.losses().len(), usize::from(is_lost), "{place:?} {rate}");
        let kept = if is_lost { "in 0 of 1 rows" } else { "in 1 of 1 rows" };
        assert!(verdict.sentence().contains(kept), "{}", verdict.sentence());
    }
}

#[test]
fn a_loss_names_its_rival_and_whether_it_may_be_noise() {
    let mut records = row(&[("os", 1000.0), ("adaptive", 900.0)]);
    let told = |records: &[Record]| {
        let grouped = Maps::group(records);
        let verdict = grouped.verdict();
        verdict.losses()[0].1.told()
    };
    assert_eq!(told(&records), "0.900 of os: 900 against 1,000 blocks/s");
    records[1].metrics.insert("blocks_per_s_max".into(), json!(980.0));
    assert!(told(&records).ends_with("their rounds overlap"));
}

#[test]
fn the_worst_loss_comes_first_and_is_in_the_sentence() {
    let mut records = row(&[("os", 1000.0), ("adaptive", 900.0)]);
    records.push(strategy("zipfian", "os", COLD, Some(1000.0), &[]));
    records.push(strategy("zipfian", "adaptive", COLD, Some(500.0), &[]));
    records.push(strategy("backward", "os", COLD, None, &["not measured: no disk"]));
    records.push(strategy("backward", "adaptive", COLD, Some(500.0), &[]));
    let grouped = Maps::group(&records);
    let verdict = grouped.verdict();
    let patterns: Vec<&str> = verdict.losses().iter().map(|(_, lost)| lost.pattern).collect();
    assert_eq!(patterns, ["zipfian", "uniform"]);
    assert_eq!(
        verdict.sentence(),
        "adaptive keeps its bound, 0.95 of the best other strategy (0.97 where memory answers), in \
         0 of 2 rows; 1 more had nothing to compare; worst 0.500 of os (zipfian, cold, direct, \
         kernel readahead 128 KiB)"
    );
}

#[test]
fn a_figure_that_was_not_cold_neither_wins_nor_loses() {
    let mut records = row(&[("os", 1000.0), ("adaptive", 900.0)]);
    records[0].remarks.push("not cold: half was cached".into());
    let grouped = Maps::group(&records);
    assert!(grouped.verdict().losses().is_empty());
    assert!(grouped.verdict().sentence().ends_with("nowhere"));
}

#[test]
fn a_mean_is_over_patterns_that_every_strategy_has() {
    let mut records = row(&[("os", 250.0), ("async", 1000.0)]);
    records.push(strategy("zipfian", "os", COLD, Some(1000.0), &[]));
    records.push(strategy("zipfian", "async", COLD, Some(1000.0), &[]));
    records.push(strategy("backward", "async", COLD, Some(1000.0), &[]));
    records.push(strategy("zipfian", "max", COLD, None, &["not measured"]));
    let grouped = Maps::group(&records);
    let (means, patterns) = grouped.maps[0].means(&grouped.strategies);
    assert_eq!(grouped.strategies, ["os", "max", "async"]);
    assert_eq!((means, patterns), (vec![Some(0.5), None, Some(1.0)], 2), "[STR-3]");
}

#[test]
fn shares_are_rounded_down_so_that_only_the_best_is_one() {
    let written = [1.0, 0.9999, 0.95, 0.9499, 0.0, 0.002, 7.349, 41_230.0].map(share_text);
    assert_eq!(written, ["1.00", "0.99", "0.95", "0.94", "0.00", "<.01", "7.34", "41,230"]);
    assert_eq!([0.0, 0.2499, 0.25, 0.94, 0.95, 1.0, -1.0].map(step), [1, 1, 2, 5, 6, 6, 1]);
}
