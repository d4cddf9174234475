//! The conclusions of `depth` from records, among them those that led to wrong statements.

use serde_json::Value;

use super::super::cell::sample::line;
use super::super::cell::{Cell, Figures, MAINTENANCE};
use super::*;
use forebay_measure::statistics::{Floor, Judgement};

fn settings() -> Settings {
    let settings: Settings = crate::experiment::typed("--quick --survey --seed 1");
    Settings { processors: 2, ..settings.checked().unwrap() }
}

fn found(rows: &[Row]) -> Outcome {
    draw(&settings(), &Line::all(rows, Floor::default()), rows)
}

fn advice<'a>(found: &'a Outcome, setting: &str, applies_to: AppliesTo) -> Option<&'a Advice> {
    found.advice.iter().find(|one| one.setting == setting && one.applies_to == applies_to)
}

fn advised(found: &Outcome, setting: &str, applies_to: AppliesTo) -> Option<String> {
    advice(found, setting, applies_to).map(|one| one.advised.clone())
}

/// The records of a virtual machine of 2 processors, of 2026-11-21. They were written before rounds were
/// kept, so that five rounds are made from the lowest, the median and the highest of each cell.
fn of_the_vm() -> Vec<Row> {
    let text = include_str!("../../../../../../results/2026-11-21-vm/depth.json");
    let report: Value = serde_json::from_str(text).unwrap();
    let records = report["records"].as_array().unwrap();
    let rows = records.iter().enumerate().map(|(number, record)| {
        let (cell, metrics) = (&record["cell"], &record["metrics"]);
        let cache = match cell["cache"].as_str().unwrap() {
            "direct" => CacheMode::Direct,
            _ => CacheMode::Buffered,
        };
        let backend = Some(cell["backend"].as_str().unwrap().parse().unwrap());
        let depth = cell["depth"].as_u64().unwrap() as u32;
        let rate = |key: &str| metrics[key].as_f64().unwrap();
        let (low, rate, high) =
            (rate("blocks_per_s_min"), rate("blocks_per_s"), rate("blocks_per_s_max"));
        let mut rates = [low, (low + rate) / 2.0, rate, f64::midpoint(rate, high), high];
        // It is not known which round was the slow one, and it was not the same one for all.
        fastrand::Rng::with_seed(number as u64).shuffle(&mut rates);
        let mut row = Row::new(Cell { backend, cache, depth, workers: None });
        let figures = |blocks_per_s| Figures { blocks_per_s, ..Figures::default() };
        row.rounds = rates.map(figures).to_vec();
        row
    });
    rows.collect()
}

#[test]
fn the_records_that_advised_32_workers_on_2_processors_advise_none() {
    let rows = of_the_vm();
    let found = found(&rows);
    // Each depth had as many threads as requests: that says nothing about three workers or eight.
    for advice in &found.advice {
        assert_ne!(advice.setting, "io_workers", "{advice:?}");
        assert_ne!(advice.applies_to, AppliesTo::Postgres18Worker, "{advice:?}");
    }
    assert!(!found.conclusions.iter().any(|one| one.sentence.contains("io_workers")));
    // A depth that is reported as good as the best must be so by the table's own figures.
    let lines = Line::all(&rows, Floor::default());
    for line in &lines {
        let (knee, best) = (line.near_best().unwrap(), line.fastest().unwrap());
        let share = knee.rate().unwrap() / best.rate().unwrap();
        assert!(share > 0.85, "{}: {share} at {}", line.label(), knee.cell.depth);
    }
    let depth =
        |applies_to| advised(&found, EFFECTIVE, applies_to).map(|it| it.parse::<u32>().unwrap());
    assert!(depth(AppliesTo::Postgres14To17).unwrap() > 16);
    let uring = depth(AppliesTo::Postgres18Uring);
    assert!(uring.is_none_or(|depth| depth > 32), "the best was beyond where lines were cut");
}

#[test]
fn what_is_within_5_percent_of_the_best_is_judged_by_every_depth_measured() {
    // The line of the issue: 21,170 with 16 in flight, 37,072 at best, and that beyond 32.
    let rates = [(3, 9000.0), (16, 21_170.0), (32, 21_900.0), (64, 33_000.0), (256, 37_072.0)];
    let rows = line(Kind::Threads, Some(3), &rates);
    let found = found(&rows);
    assert_eq!(advised(&found, EFFECTIVE, AppliesTo::Postgres18Worker).as_deref(), Some("256"));
    let advice = advice(&found, EFFECTIVE, AppliesTo::Postgres18Worker).unwrap();
    assert!((advice.gain - 37_072.0 / 21_170.0).abs() < 0.01, "{advice:?}");
    assert!(advice.evidence.contains("21,170"), "{advice:?}");
    assert!(
        !found.advice.iter().any(|one| one.setting == "io_workers"),
        "never measured with more"
    );
}

#[test]
fn a_headline_whose_rounds_differ_widely_says_so() {
    let mut rows = line(Kind::Uring, None, &[(0, 9000.0), (64, 37_072.0)]);
    for (round, rate) in rows[1].rounds.iter_mut().zip([18_628.0, 30e3, 37_072.0, 50e3, 60_641.0]) {
        round.blocks_per_s = rate;
    }
    let sentence = &found(&rows).conclusions[0].sentence;
    assert!(sentence.contains("37,072 blocks/s (rounds from 18,628 to 60,641)"), "{sentence}");
    let steady = line(Kind::Uring, None, &[(0, 9000.0), (64, 37_072.0)]);
    let sentence = &found(&steady).conclusions[0].sentence;
    assert!(!sentence.contains("rounds from"), "{sentence}");
}

#[test]
fn the_knee_is_advised_for_each_setting_against_its_own_default() {
    let rates = [(0, 100.0), (1, 100.0), (10, 260.0), (16, 300.0), (64, 490.0), (256, 500.0)];
    let rows = [line(Kind::Sync, None, &rates), line(Kind::Uring, None, &rates)].concat();
    let found = found(&rows);
    for (setting, applies_to, current, gain) in [
        (EFFECTIVE, AppliesTo::Postgres14To17, "1", 4.9),
        (MAINTENANCE, AppliesTo::Postgres14To17, "10", 490.0 / 260.0),
        (EFFECTIVE, AppliesTo::Postgres18Sync, "16", 490.0 / 300.0),
        (MAINTENANCE, AppliesTo::Postgres18Uring, "16", 490.0 / 300.0),
        (EFFECTIVE, AppliesTo::Postgres18Uring, "16", 490.0 / 300.0),
    ] {
        let advice = advice(&found, setting, applies_to).unwrap();
        assert_eq!((advice.advised.as_str(), advice.current.as_deref()), ("64", Some(current)));
        assert!((advice.gain - gain).abs() < 0.01, "{advice:?}");
    }
    assert!(advised(&found, EFFECTIVE, AppliesTo::Postgres18Worker).is_none());
}

#[test]
fn a_default_that_was_not_measured_or_is_the_knee_is_left_alone() {
    let rates = [(1, 100.0), (16, 300.0), (64, 301.0)];
    let knee_at_default = line(Kind::Uring, None, &rates);
    assert!(found(&knee_at_default).advice.is_empty());
    let without = line(Kind::Uring, None, &[(4, 100.0), (64, 300.0)]);
    assert!(found(&without).advice.is_empty(), "the rate at 16 is unknown");
    let mut few = line(Kind::Uring, None, &[(16, 100.0), (64, 300.0)]);
    few.iter_mut().for_each(|row| row.rounds.truncate(2));
    assert!(found(&few).advice.is_empty(), "two rounds");
}

#[test]
fn past_postgresqls_limit_only_what_was_measured_below_it_is_advised() {
    let rows = line(Kind::Uring, None, &[(16, 100.0), (512, 200.0), (2048, 300.0)]);
    let found = found(&rows);
    assert_eq!(advised(&found, EFFECTIVE, AppliesTo::Postgres18Uring).as_deref(), Some("512"));
}

#[test]
fn workers_are_advised_by_their_own_gain_and_only_as_many_as_were_measured_here() {
    let mut rows = line(Kind::Threads, Some(3), &[(16, 100.0), (64, 150.0), (256, 151.0)]);
    rows.extend(line(Kind::Threads, Some(4), &[(16, 120.0), (64, 170.0)]));
    rows.extend(line(Kind::Threads, Some(8), &[(16, 180.0), (64, 240.0)]));
    // On 2 processors, 32 workers are not considered.
    rows.extend(line(Kind::Threads, Some(32), &[(64, 900.0)]));
    let many = found(&rows);
    assert_eq!(advised(&many, EFFECTIVE, AppliesTo::Postgres18Worker).as_deref(), Some("64"));
    let advice = advice(&many, "io_workers", AppliesTo::Postgres18Worker).unwrap();
    assert_eq!((advice.advised.as_str(), advice.current.as_deref()), ("8", Some("3")));
    assert!((advice.gain - 1.6).abs() < 0.01, "at the depth that is advised: {advice:?}");
    assert!(advice.evidence.contains("at depth 64 on 2 processors"), "{advice:?}");
    let same = [
        line(Kind::Threads, Some(3), &[(16, 100.0)]),
        line(Kind::Threads, Some(8), &[(16, 102.0)]),
    ];
    assert!(found(&same.concat()).advice.is_empty(), "no gain, no advice");
}

#[test]
fn forebays_profile_is_advised_a_backend_or_a_depth_only_if_surely_faster() {
    let direct = |kind, rates: &[(u32, f64)]| {
        let mut rows = line(kind, None, rates);
        rows.iter_mut().for_each(|row| row.cell.cache = CacheMode::Direct);
        rows
    };
    let uring = direct(Kind::Uring, &[(0, 10.0), (64, 100.0), (256, 101.0), (1024, 130.0)]);
    let aio = direct(Kind::Aio, &[(0, 10.0), (64, 160.0)]);
    let both = found(&[uring.clone(), aio].concat());
    assert_eq!(advised(&both, "backend", AppliesTo::Profile).as_deref(), Some("aio"));
    assert_eq!(advised(&both, "queue_depth", AppliesTo::Profile).as_deref(), Some("1024"));
    let short = direct(Kind::Uring, &[(0, 10.0), (64, 100.0), (256, 70.0)]);
    assert!(found(&short).advice.is_empty(), "a queue is not made shorter");
    let slower = direct(Kind::Threads, &[(0, 10.0), (64, 90.0)]);
    assert_eq!(advised(&found(&[uring, slower].concat()), "backend", AppliesTo::Profile), None);
}

#[test]
fn there_is_no_winner_among_equals() {
    let sentence = |rows: &[Row]| found(rows).conclusions[0].sentence.clone();
    let mut rows = line(Kind::Uring, None, &[(0, 100.0), (64, 300.0), (256, 300.0)]);
    rows.extend(line(Kind::Sync, None, &[(0, 100.0), (64, 180.0)]));
    assert!(sentence(&rows).starts_with("The fastest way "), "{}", sentence(&rows));
    rows.extend(line(Kind::Threads, None, &[(0, 100.0), (64, 290.0)]));
    let sentence = sentence(&rows);
    assert!(
        sentence.starts_with("One of the fastest ways ")
            && sentence.contains("uring buffered: 300 ")
    );
    assert!(sentence.ends_with("; not significantly slower: threads buffered."), "{sentence}");
}

#[test]
fn a_gain_within_the_noise_is_no_advice() {
    let mut rows = line(Kind::Sync, None, &[(1, 100.0), (64, 130.0)]);
    for (round, rate) in rows[1].rounds.iter_mut().zip([60.0, 200.0, 90.0, 180.0, 80.0]) {
        round.blocks_per_s = rate;
    }
    let found = found(&rows);
    assert!(found.advice.is_empty(), "{:?}", found.advice);
    assert_eq!(found.verdicts.last().unwrap().verdict, Judgement::Undecided);
}

#[test]
fn a_warm_cell_is_no_evidence() {
    let mut rows = line(Kind::Sync, None, &[(1, 100.0), (64, 9000.0)]);
    rows[1].cold = false;
    assert!(found(&rows).advice.is_empty());
    rows[0].cold = false;
    assert!(found(&rows).conclusions[0].sentence.contains("could not be emptied"));
    assert!(found(&[]).conclusions[0].sentence.contains("nothing could be measured"));
}

#[test]
fn verdicts_stand_on_both_sides_of_the_knee() {
    let rows = line(Kind::Uring, None, &[(16, 300.0), (64, 490.0), (256, 500.0)]);
    let verdicts = found(&rows).verdicts;
    let results: Vec<_> = verdicts.iter().map(|one| (one.variant.as_str(), one.verdict)).collect();
    assert_eq!(results, [("depth 16", Judgement::Misses), ("depth 64", Judgement::Keeps)]);
    assert_eq!(
        (verdicts[1].row.as_str(), verdicts[1].rival.as_str()),
        ("uring buffered", "depth 256")
    );
}
