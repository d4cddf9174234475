//! Contests on small files: what is counted, ranked and said.

use super::*;
use crate::experiment::pattern::{RANGES, WINDOW};
use crate::experiment::tally::Round;
use crate::facts::FakeSys;
use crate::report::Record;
use crate::workfile::{Naming, Workfile};
use record::Form;

const SHAPE: Shape = Shape { file_blocks: 512, blocks: 128, ranges: RANGES, window: WINDOW };

const FORM: Form = Form { experiment: "strategies", with_state: true, block_bytes: 8192 };

const RULES: Rules = Rules {
    shape: SHAPE,
    rounds: 2,
    cell_time_max: Duration::from_secs(10),
    time_max: None,
    seed: 7,
};

fn pool(strategy: ReadaheadStrategy) -> Entrant {
    Entrant::Pool(strategy)
}

fn row(pattern: Pattern, state: CacheState, entrants: Vec<Entrant>) -> Row {
    Row { pattern, state, cache: CacheMode::Buffered, device_readahead: None, entrants }
}

/// A directory on a disk (where the build is), not on a tmpfs.
fn filled(directory: &tempfile::TempDir) -> Workfile {
    let naming = Naming::Named;
    let mut workfile = Workfile::create(directory.path(), 512 * 8192, 8192, 7, naming).unwrap();
    workfile.fill(|_| ()).unwrap();
    workfile
}

fn held(rules: &Rules, rows: Vec<Row>) -> anyhow::Result<Vec<Standing>> {
    let directory = tempfile::tempdir_in(".")?;
    let workfile = filled(&directory);
    let storage = Storage::read(directory.path())?;
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let pools = Pools::new(&workfile, frames_most(&rules.shape))?;
    let readahead = DeviceReadahead::new(&storage, &[])?;
    hold(&bench, rules, rows, &pools, readahead, &mut |_| ())
}

#[test]
fn every_pattern_in_every_state_is_read_whole_by_every_entrant() {
    let mut rows = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Interleaved(8), Pattern::Limit10, Pattern::Mixed]
    {
        for state in CacheState::ALL {
            let entrants = ReadaheadStrategy::ALL.into_iter().map(Entrant::Pool).collect();
            rows.push(row(pattern, state, entrants));
        }
    }
    let standings = held(&Rules { rounds: 1, ..RULES }, rows).unwrap();
    for standing in &standings {
        let state = standing.row.state;
        // Queries with a limit take ten blocks each.
        let blocks = if standing.row.pattern == Pattern::Limit10 { 120 } else { 128 };
        for (entrant, tally) in standing.row.entrants.iter().zip(&standing.tallies) {
            let name = format!("{} {entrant} {state}", standing.row.pattern);
            let round = &tally.rounds[0];
            // Again and again where they are resident.
            let whole = match state {
                CacheState::Pool => round.blocks.is_multiple_of(blocks),
                _ => round.blocks == blocks,
            };
            assert!(whole, "{name}: {}", round.blocks);
            assert_eq!(round.blocks_needed.is_some(), state.reads_device(), "{name}");
            assert_eq!(round.wait_ns.is_some(), state != CacheState::Pool, "{name}");
            if state != CacheState::PageCache || cfg!(target_os = "linux") {
                assert!(tally.notes.is_empty(), "the state is as it should be: {:?}", tally.notes);
            }
        }
    }
}

#[test]
fn a_cold_pool_is_empty_though_its_memory_was_used_a_quarter_has_a_part_and_pool_has_all() {
    let tally = |state| {
        let entrants = vec![pool(ReadaheadStrategy::Async)];
        // More blocks than the smallest pool has frames, or a ring.
        let shape = Shape { blocks: 400, ..SHAPE };
        let rules = Rules { shape, rounds: 1, ..RULES };
        let mut standings = held(&rules, vec![row(Pattern::Sequential, state, entrants)]).unwrap();
        standings.remove(0).tallies.remove(0)
    };
    assert_eq!(tally(CacheState::Cold).rounds[0].blocks_needed, Some(400));
    let needed = tally(CacheState::Quarter).rounds[0].blocks_needed.unwrap();
    assert!((1..400).contains(&needed), "{needed}");
    assert_eq!(tally(CacheState::Pool).notes, [""; 0]);
}

#[test]
fn all_entrants_of_a_row_read_the_same_plan() {
    let entrants = vec![
        Entrant::Kernel(Manner::Os),
        Entrant::Kernel(Manner::WillNeed(8)),
        pool(ReadaheadStrategy::Os),
        pool(ReadaheadStrategy::Adaptive),
    ];
    let standings = held(&RULES, vec![row(Pattern::Zipfian, CacheState::Cold, entrants)]).unwrap();
    // How many different blocks are drawn is chance, and so the mark of a plan.
    let marks =
        |tally: &Tally| tally.rounds.iter().map(|round| round.blocks_needed).collect::<Vec<_>>();
    let first = marks(&standings[0].tallies[0]);
    assert_ne!(first[0], first[1], "another plan in the next round");
    assert!(standings[0].tallies.iter().all(|tally| marks(tally) == first), "[CON-1]");
}

#[test]
fn when_time_is_up_reading_stops_and_the_record_says_so() {
    let entrants = vec![Entrant::Kernel(Manner::Os), pool(ReadaheadStrategy::Async)];
    let rules = Rules { cell_time_max: Duration::ZERO, rounds: 1, ..RULES };
    let standings =
        held(&rules, vec![row(Pattern::Sequential, CacheState::Cold, entrants)]).unwrap();
    for record in FORM.records(&rules, &standings) {
        assert!(record.metric("blocks").unwrap() < 128.0);
        assert!(record.remarks.iter().any(|remark| remark.starts_with("stopped reading after")));
    }
}

/// A made-up device at 8192 KiB, the file that says so, and the right to change it.
fn made_up_device() -> (FakeSys, std::path::PathBuf, DeviceReadahead) {
    let sys = FakeSys::server();
    let device = sys.device(8, 0);
    let file = sys.sysfs().readahead_file(&device).unwrap();
    std::fs::write(&file, "8192\n").unwrap();
    let guard = Some(ReadaheadGuard::take(&sys.sysfs(), &device).unwrap());
    (sys, file, DeviceReadahead { guard, bytes: None })
}

#[test]
fn each_row_has_its_own_readahead_of_the_device_and_the_old_one_is_put_back_whatever_happens() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let workfile = filled(&directory);
    let storage = Storage::read(directory.path()).unwrap();
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let pools = Pools::new(&workfile, frames_most(&SHAPE)).unwrap();
    let rows = || {
        let readahead = [Some(0), Some(131_072)].into_iter();
        let entrants = vec![Entrant::Kernel(Manner::Os)];
        let row = row(Pattern::Sequential, CacheState::Cold, entrants);
        readahead.map(|device_readahead| Row { device_readahead, ..row.clone() }).collect()
    };
    let found = |file: &std::path::Path| std::fs::read_to_string(file).unwrap().trim().to_owned();

    let (_sys, file, readahead) = made_up_device();
    let standings = hold(&bench, &RULES, rows(), &pools, readahead, &mut |_| ()).unwrap();
    let set: Vec<_> = standings.iter().map(|standing| standing.device_readahead_bytes).collect();
    assert_eq!(set, [Some(0), Some(131_072)]);
    assert_eq!(found(&file), "8192", "[DRA-1]");

    std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap().set_len(0).unwrap();
    let (_sys, file, readahead) = made_up_device();
    assert!(hold(&bench, &RULES, rows(), &pools, readahead, &mut |_| ()).is_err());
    assert_eq!(found(&file), "8192", "[DRA-1]");
}

#[test]
fn the_kernel_alone_reads_the_same_blocks_in_all_its_manners() {
    let manners = [Manner::Os, Manner::Random, Manner::WillNeed(1), Manner::WillNeed(1000)];
    let entrants: Vec<Entrant> = manners.into_iter().map(Entrant::Kernel).collect();
    let standings =
        held(&RULES, vec![row(Pattern::TwoStreams, CacheState::Cold, entrants)]).unwrap();
    for tally in &standings[0].tallies {
        let blocks: Vec<_> =
            tally.rounds.iter().map(|round| (round.blocks, round.blocks_needed)).collect();
        assert_eq!(blocks, [(128, Some(128)), (128, Some(128))]);
    }
}

#[test]
fn a_foreign_block_ends_the_run() {
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir_in(".").unwrap();
    let workfile = filled(&directory);
    let file = std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap();
    for block in 0..512 {
        file.write_all_at(&[0xff; 8], block * 8192).unwrap();
    }
    let storage = Storage::read(directory.path()).unwrap();
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let pools = Pools::new(&workfile, frames_most(&SHAPE)).unwrap();
    for entrant in [Entrant::Kernel(Manner::Os), pool(ReadaheadStrategy::Async)] {
        let rows = vec![row(Pattern::Backward, CacheState::Cold, vec![entrant])];
        let readahead = DeviceReadahead::new(&storage, &[]).unwrap();
        let error = hold(&bench, &RULES, rows, &pools, readahead, &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("[PLD-1]"), "{error}");
    }
}

#[test]
fn rows_that_fill_the_page_cache_come_together() {
    let states = CacheState::ALL.into_iter().cycle().take(20);
    let rows = states.map(|state| row(Pattern::Uniform, state, Vec::new()));
    let standings: Vec<Standing> = rows.map(Standing::new).collect();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..50 {
        let mut order = row_order(&standings, &mut random);
        let places: Vec<usize> = (0..order.len())
            .filter(|&at| standings[order[at]].row.state == CacheState::PageCache)
            .collect();
        assert_eq!(places[places.len() - 1] - places[0] + 1, places.len(), "[CON-2]");
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>(), "every row once");
    }
}

#[test]
fn a_round_that_would_end_too_late_is_not_begun_but_the_first_always_is() {
    let second = Duration::from_secs(1);
    let rules = Rules { rounds: 3, time_max: Some(10 * second), ..RULES };
    assert!(rules.another_round(0, Duration::ZERO));
    assert!(Rules { time_max: Some(Duration::ZERO), ..rules }.another_round(0, Duration::ZERO));
    assert!(rules.another_round(1, 5 * second));
    assert!(!rules.another_round(1, 6 * second));
    assert!(!rules.another_round(3, Duration::ZERO));
    assert!(Rules { time_max: None, ..rules }.another_round(2, 1000 * second));
}

/// A standing whose entrants have read at these rates, in blocks per second.
fn standing(
    state: CacheState,
    rates: &[(ReadaheadStrategy, f64)],
    coldness: &Coldness,
) -> Standing {
    let entrants = rates.iter().map(|(strategy, _)| pool(*strategy)).collect();
    let mut standing = Standing::new(row(Pattern::Uniform, state, entrants));
    standing.device_readahead_bytes = Some(131_072);
    for (tally, (_, rate)) in standing.tallies.iter_mut().zip(rates) {
        for _ in 0..RULES.rounds {
            let (blocks, seconds) = (100, 100.0 / rate);
            let (blocks_needed, processor_seconds) = (Some(blocks), 0.1);
            let round = Round { blocks, blocks_needed, seconds, processor_seconds, wait_ns: None };
            let measured = Measured { round, device: None, notes: Vec::new() };
            tally.take(coldness.clone(), Ok(measured)).unwrap();
        }
    }
    standing
}

fn records(
    state: CacheState,
    rates: &[(ReadaheadStrategy, f64)],
    coldness: &Coldness,
) -> Vec<Record> {
    FORM.records(&RULES, &[standing(state, rates, coldness)])
}

#[test]
fn the_best_of_a_row_has_1_and_the_others_their_part_of_it() {
    let rates = [(ReadaheadStrategy::Os, 50.0), (ReadaheadStrategy::Async, 200.0)];
    let records = records(CacheState::Cold, &rates, &Coldness::Cold);
    let ratios: Vec<_> = records.iter().map(|record| record.metric("ratio_to_best")).collect();
    assert_eq!(ratios, [Some(0.25), Some(1.0)], "[REC-1]");
    let cell = serde_json::to_value(&records[0].cell).unwrap();
    let expected = serde_json::json!({
        "pattern": "uniform", "strategy": "os", "cache_state": "cold", "cache": "buffered",
        "device_readahead_bytes": 131_072,
    });
    assert_eq!(cell, expected);
}

#[test]
fn adaptive_is_told_where_it_misses_its_bound_and_only_there() {
    use ReadaheadStrategy::{Adaptive, Async};
    let misses = |state, rate| {
        let rates = [(Async, 100.0), (Adaptive, rate)];
        let records = records(state, &rates, &Coldness::Cold);
        assert!(!record::adaptive_misses(&records[0]));
        record::adaptive_misses(&records[1])
    };
    assert!(misses(CacheState::Cold, 94.0));
    assert!(!misses(CacheState::Cold, 96.0));
    assert!(misses(CacheState::Pool, 96.0));
    assert!(!misses(CacheState::Pool, 98.0));
    let rates = [(Async, 100.0), (Adaptive, 50.0)];
    let told = &records(CacheState::Cold, &rates, &Coldness::Cold)[1].remarks;
    assert_eq!(told, &["adaptive reaches 0.50 of async, less than the 0.95 it should"]);
}

#[test]
fn what_was_not_cold_is_never_ranked_and_where_nothing_is_read_nothing_need_be_cold() {
    let rates = [(ReadaheadStrategy::Os, 50.0), (ReadaheadStrategy::Adaptive, 10.0)];
    let warm = Coldness::Warm { pages: 3, of: 9 };
    let cold = records(CacheState::Cold, &rates, &warm);
    assert!(cold.iter().all(Record::is_not_cold));
    assert!(cold.iter().all(|record| record.metric("ratio_to_best").is_none()));
    assert!(!record::adaptive_misses(&cold[1]));
    let resident = records(CacheState::Pool, &rates, &warm);
    assert!(resident.iter().all(|record| !record.is_not_cold()));
}

#[test]
fn a_row_without_the_means_is_unmeasured_and_says_why() {
    let entrants = vec![pool(ReadaheadStrategy::Async)];
    let row = Row { cache: CacheMode::Direct, ..row(Pattern::Uniform, CacheState::Cold, entrants) };
    let records = FORM.unmeasured(&row, None, "tmpfs refuses direct I/O");
    assert_eq!(records.len(), 1);
    assert!(records[0].metric("blocks_per_s").is_none());
    assert_eq!(records[0].remarks, ["not measured: tmpfs refuses direct I/O"]);
}
