//! Conclusions from rows, among them those of a run that concluded wrongly.
use clap::ValueEnum;
use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;
use serde_json::Value;

use super::*;
use crate::experiment::comparison::Row;
use crate::experiment::{CacheState, Pattern};
use forebay_measure::coldness::Coldness;
use forebay_measure::report::{Mark, Part, Verdict};
use forebay_measure::statistics::{Floor, Judge, Judgement};

const OS: Variant = Variant::Stream(ReadaheadStrategy::Os);
const HINT: Variant = Variant::Stream(ReadaheadStrategy::Hint);
const ASYNC: Variant = Variant::Stream(ReadaheadStrategy::Async);
const ADAPTIVE: Variant = Variant::Stream(ReadaheadStrategy::Adaptive);

/// A cold buffered row whose variants have read at these rates, one for each round.
fn result(pattern: Pattern, rates: &[(Variant, Vec<f64>)]) -> RowResult {
    let row = Row {
        pattern,
        state: CacheState::Cold,
        cache: CacheMode::Buffered,
        device_readahead: None,
        variants: rates.iter().map(|(variant, _)| *variant).collect(),
    };
    let mut result = RowResult::new(row);
    for (samples, (_, rates)) in result.measured.iter_mut().zip(rates) {
        *samples = samples.clone().with_rates(rates);
    }
    result
}

/// Four rounds around `rate`, all within 2 percent.
fn about(rate: f64) -> Vec<f64> {
    [0.99, 1.01, 1.0, 0.995].map(|noise| rate * noise).to_vec()
}

/// The sentences of `results` as one text.
fn sentences(results: &[RowResult]) -> String {
    let judge = judged(results);
    let conclusions = conclusion::draw(results, &verdicts(results), &judge);
    conclusions.into_iter().map(|it| it.sentence).collect::<Vec<_>>().join("\n")
}

fn judged(results: &[RowResult]) -> Judge {
    judge(results, 2, Floor::default())
}

fn verdicts(results: &[RowResult]) -> Vec<Verdict> {
    conclusion::verdicts(results, &judged(results))
}

fn settings() -> Settings {
    crate::experiment::typed::<Settings>("--quick --noise-check --seed 1").checked().unwrap()
}

/// The rows of the run of 2026-11-21 whose report said "adaptive is as fast as the best other or nearly so in
/// 62 of 133 rows", each with one round: the rates that it concluded from.
fn concluded_from() -> Vec<RowResult> {
    let text = include_str!("../../../../../results/2026-11-21-vm/strategies-ways.json");
    let report: Value = serde_json::from_str(text).unwrap();
    let mut results: Vec<RowResult> = Vec::new();
    // Variants of a row are measured side by side.
    for six in report["records"].as_array().unwrap().chunks(6) {
        let text = |record: &Value, key: &str| record["cell"][key].as_str().unwrap().to_owned();
        let rate = |record: &Value| record["metrics"]["blocks_per_s"].as_f64().unwrap();
        let rates: Vec<(Variant, Vec<f64>)> = six
            .iter()
            .map(|record| (text(record, "strategy").parse().unwrap(), vec![rate(record)]))
            .collect();
        let mut result = result(text(&six[0], "pattern").parse().unwrap(), &rates);
        result.row.state = CacheState::from_str(&text(&six[0], "cache_state"), false).unwrap();
        if text(&six[0], "cache") == "direct" {
            result.row.cache = CacheMode::Direct;
        }
        results.push(result);
    }
    results
}

#[test]
fn one_round_a_cell_decides_no_row_and_no_count_is_reported() {
    let results = concluded_from();
    let verdicts = verdicts(&results);
    assert_eq!((results.len(), verdicts.len()), (133, 133));
    assert!(verdicts.iter().all(|verdict| verdict.verdict == Judgement::Undecided));
    // The old conclusion counted these.
    let kept = verdicts.iter().filter(|verdict| verdict.ratio.value >= 0.95).count();
    assert!((60..=75).contains(&kept), "{kept}");
    let text = sentences(&results);
    assert!(text.contains("undecided in all 133 rows"), "{text}");
    assert!(!text.contains("decided rows"), "[SCO-1] {text}");
    assert!(conclusion::advice(&results, &judged(&results)).is_none(), "[SCO-2]");
}

#[test]
fn the_difference_between_two_equal_variants_is_the_noise_floor() {
    let mut resident = concluded_from();
    resident.retain(|it| it.row.state == CacheState::Pool && it.row.cache == CacheMode::Buffered);
    assert_eq!(resident.len(), 19);
    for result in &mut resident {
        // On resident pages os, hint and max are the same.
        let hint = result.row.variants.iter().position(|variant| *variant == HINT).unwrap();
        result.row.variants[hint] = Variant::OsAgain;
        result.measured[hint].cell = Variant::OsAgain;
    }
    let verdicts = verdicts(&resident);
    let again: Vec<&Verdict> = verdicts.iter().filter(|it| it.variant == "os-again").collect();
    assert_eq!(again.len(), 19);
    assert!(again.iter().all(|it| it.rival == "os" && it.verdict == Judgement::Undecided));
    let differing = again.iter().filter(|it| !(0.95..=1.05).contains(&it.ratio.value)).count();
    assert!(differing >= 9, "{differing} of 19 rows");
    // It has one round a row; that of three is a floor.
    assert_eq!(conclusion::floor(&resident), None);
}

#[test]
fn the_noise_floor_counts_slower_and_faster_alike_and_leaves_one_row_of_ten_out() {
    let rows = |parts: &[f64]| {
        let of = |part: &f64| {
            let rates = [(OS, about(100.0)), (Variant::OsAgain, about(100.0 * part))];
            result(Pattern::Uniform, &rates)
        };
        parts.iter().map(of).collect::<Vec<_>>()
    };
    let three = sentences(&rows(&[0.8, 1.1, 1.0]));
    assert!(three.starts_with("Noise floor 25.0 %") && three.contains("3 of 3 rows"), "{three}");
    let mut parts = [1.02; 10];
    parts[3] = 0.5;
    let ten = sentences(&rows(&parts));
    assert!(ten.starts_with("Noise floor 2.0 %") && ten.contains("9 of 10 rows"), "{ten}");
    assert!((conclusion::floor(&rows(&parts)).unwrap().0 - 0.02).abs() < 1e-9);
    assert_eq!(conclusion::floor(&[]), None);
}

#[test]
fn a_loss_that_is_smaller_than_the_noise_floor_is_undecided() {
    let verdict = |floor| {
        let rows = rows(&[0.8]);
        let judge = judge(&rows, 1, Floor(floor));
        conclusion::verdicts(&rows, &judge)[0].verdict
    };
    assert_eq!((verdict(0.1), verdict(0.3)), (Judgement::Misses, Judgement::Undecided));
}

/// Rows in which `adaptive` has these parts of the best other, surely or not.
fn rows(parts: &[f64]) -> Vec<RowResult> {
    let row = |(index, part): (usize, &f64)| {
        let own = if *part < 0.0 { vec![50.0, 150.0, 60.0, 140.0] } else { about(100.0 * part) };
        let rates = [(OS, about(20.0)), (ASYNC, about(100.0)), (ADAPTIVE, own)];
        result(Pattern::ALL[index].1, &rates)
    };
    parts.iter().enumerate().map(row).collect()
}

#[test]
fn of_adaptive_decided_rows_are_counted_and_misses_say_by_how_much() {
    assert_eq!(
        sentences(&rows(&[1.0, 1.1, 0.8, 0.9, 0.7, -1.0])),
        "adaptive reaches 95 % of the best other strategy in 2 of 5 decided rows; in 3 it misses that, by \
         20 % in the median and 30 % at worst (0.70 of async in interleaved-8 cold buffered); 1 more \
         rows are undecided."
    );
    assert_eq!(
        sentences(&rows(&[1.0, 1.0])),
        "adaptive reaches 95 % of the best other strategy in 2 of 2 decided rows."
    );
}

#[test]
fn another_strategy_is_advised_where_it_is_surely_faster_over_the_decided_rows() {
    let advice = |parts: &[f64]| {
        let rows = rows(parts);
        conclusion::advice(&rows, &judged(&rows))
    };
    let many = [0.8, 0.7, 0.8, 0.75, 0.8, 0.8, 0.75, 0.7, 0.8, 0.75, 0.8, 0.8, -1.0];
    assert!(advice(&[1.0; 6]).is_none());
    assert!(advice(&[0.8; 4]).is_none(), "too few rows");
    assert!(advice(&[0.7, 1.4, 0.7, 1.4, 1.0]).is_none(), "now this, now that");
    let advice = advice(&many).unwrap();
    assert_eq!((advice.setting.as_str(), advice.advised.as_str()), ("readahead", "async"));
    assert_eq!(advice.current.as_deref(), Some("adaptive"));
    assert!((1.25..1.4).contains(&advice.gain), "{advice:?}");
    assert!(advice.evidence.contains("12 decided rows"), "[SCO-2] {advice:?}");
}

#[test]
fn what_advice_for_each_block_does_to_plain_reads_is_said_if_it_is_clear() {
    let of = |advised: f64| {
        let names = [(Variant::Plain, 100.0), (Variant::WillNeed(8), advised)];
        let rates: Vec<_> = names.map(|(name, rate)| (name, about(rate))).to_vec();
        sentences(&[result(Pattern::Shuffled(4, 24), &rates)])
    };
    let start = "shuffled cold buffered: willneed-8, advice for each block, is";
    assert!(of(270.0).starts_with(&format!("{start} 2.70 times as fast as plain reads (2.")));
    assert!(of(80.0).starts_with(&format!("{start} 0.80 times as fast")));
    assert_eq!(of(100.0), "");
}

#[test]
fn a_record_has_its_cell_its_rounds_and_its_rank() {
    let row = result(Pattern::Uniform, &[(OS, vec![50.0, 40.0, 60.0]), (ASYNC, vec![200.0; 3])]);
    let slowdown = Some((ASYNC, 0.15));
    let records = Settings { inject_slowdown: slowdown, ..settings() }.records(&row);
    let cell = serde_json::json!({
        "pattern": "uniform", "strategy": "os", "cache_state": "cold", "cache": "buffered",
        "device_readahead_bytes": null,
    });
    assert_eq!(Value::Object(records[0].cell.clone()), cell);
    assert_eq!((records[0].metric("blocks_per_s"), records[0].rounds.len()), (Some(50.0), 3));
    assert_eq!(records[0].metric("ratio_to_best"), Some(0.25));
    assert_eq!(records[1].metric("ratio_to_best"), Some(1.0));
    assert_eq!(records[0].remarks, [""; 0]);
    assert_eq!(records[1].remarks, ["slowed down on purpose by 15 % of its time"]);
    let lost = settings().records(&RowResult::unmeasured(row.row, "tmpfs refuses"));
    assert!(lost[0].metrics["blocks_per_s"].is_null() && lost[0].rounds.is_empty());
    assert_eq!(lost[0].remarks, ["not measured: tmpfs refuses"]);
}

#[test]
fn the_section_has_the_matrix_with_its_marks() {
    let mut results = rows(&[0.8, 1.1]);
    results[1].measured[0].begins(&Coldness::Warm { pages: 3, of: 9 });
    let matrix = |results: &[RowResult]| {
        let section = settings().outcome(results, Vec::new(), Floor::default()).section;
        let [Part::Table(matrix)] = &section.parts[..] else { panic!("one table") };
        matrix.clone()
    };
    let undecided = matrix(&rows(&[-1.0]));
    assert_eq!(undecided.rows[0].cells[3].mark, Mark::Weak, "undecided");
    let matrix = matrix(&results);
    assert_eq!(matrix.columns, ["pattern", "os", "async", "adaptive"]);
    let row = |row: usize| {
        let cells = matrix.rows[row].cells[1..].iter();
        cells.map(|cell| (cell.text.as_str(), cell.mark)).collect::<Vec<_>>()
    };
    assert_eq!(row(0), [("0.20", Mark::Plain), ("1.00", Mark::Best), ("0.80", Mark::Bad)]);
    assert_eq!(row(1), [("?", Mark::Weak), ("0.90", Mark::Plain), ("1.00", Mark::Best)]);
    let notes = &matrix.rows[1].cells[1].notes;
    assert_eq!(*notes, ["not cold: 3 of 9 pages stayed in the page cache"]);
    assert_eq!(matrix.rows[0].group, "cold, buffered, kernel readahead unknown");
}
