//! Comparisons on small files: which blocks are read and counted, and how rates are compared.

use clap::ValueEnum;
use forebay::ReadaheadStrategy;

use super::*;
use crate::experiment::Pattern;
use forebay_io::CacheMode;
use forebay_measure::coldness::Coldness;
use forebay_measure::facts::FakeSys;
use forebay_measure::statistics::{Floor, Judge, Judgement};
use forebay_measure::workfile::{Naming, Workfile};

const SHAPE: Shape = Shape { file_blocks: 512, blocks: 128 };

/// This many rounds and no more.
const fn limits(first: u32) -> Limits {
    Limits { first, first_time: Duration::MAX, time: Duration::ZERO }
}

const RULES: Rules = Rules {
    shape: SHAPE,
    limits: limits(2),
    cell_time: Duration::from_millis(20),
    plans_max: 1000,
    judged: 1,
    slowdown: None,
    seed: 7,
};

/// Each measurement is one plan, read whole.
const ONE_PLAN: Rules = Rules { cell_time: Duration::from_secs(10), plans_max: 1, ..RULES };

const OS: Variant = Variant::Stream(ReadaheadStrategy::Os);
const ASYNC: Variant = Variant::Stream(ReadaheadStrategy::Async);
const ADAPTIVE: Variant = Variant::Stream(ReadaheadStrategy::Adaptive);

fn row(pattern: Pattern, state: CacheState, variants: Vec<Variant>) -> Row {
    Row { pattern, state, cache: CacheMode::Buffered, device_readahead: None, variants }
}

/// A directory on a disk (where the build is), not on a tmpfs.
fn filled(directory: &tempfile::TempDir) -> Workfile {
    let naming = Naming::Named;
    let mut workfile = Workfile::create(directory.path(), 512 * 8192, 8192, 7, naming).unwrap();
    workfile.fill(|_| ()).unwrap();
    workfile
}

fn held(rules: &Rules, rows: Vec<Row>) -> anyhow::Result<Vec<RowResult>> {
    let directory = tempfile::tempdir_in(".")?;
    let workfile = filled(&directory);
    let storage = Storage::read(directory.path())?;
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let mut results: Vec<RowResult> = rows.into_iter().map(RowResult::new).collect();
    hold(&bench, rules, &mut results, None, &mut |_| ())?;
    Ok(results)
}

#[test]
fn every_pattern_in_every_state_is_read_whole_by_every_variant() {
    let patterns = [Pattern::Sequential, Pattern::Interleaved(8), Pattern::Limit10, Pattern::Mixed];
    let variants = || ReadaheadStrategy::ALL.into_iter().map(Variant::Stream).collect();
    let mut results = Vec::new();
    for &state in CacheState::value_variants() {
        let rows = patterns.map(|pattern| row(pattern, state, variants())).to_vec();
        let rules = if state == CacheState::Pool { RULES } else { ONE_PLAN };
        results.extend(held(&Rules { limits: limits(1), ..rules }, rows).unwrap());
    }
    for result in &results {
        let state = result.row.state;
        // Queries with a limit read ten blocks each.
        let blocks = if result.row.pattern == Pattern::Limit10 { 120 } else { 128 };
        for (variant, samples) in result.row.variants.iter().zip(&result.measured) {
            let name = format!("{variant} {}", result.row);
            let round = &samples.rounds[0];
            // Repeatedly where they are resident, until time is up.
            let whole = match state {
                CacheState::Pool => round.blocks > blocks || round.seconds >= 0.02,
                _ => round.blocks == blocks,
            };
            assert!(whole, "{name}: {} in {} s", round.blocks, round.seconds);
            assert_eq!(round.blocks_needed.is_some(), state.reads_device(), "{name}");
            assert_eq!(round.wait_ns.is_some(), state != CacheState::Pool, "{name}");
            if state != CacheState::PageCache || cfg!(target_os = "linux") {
                // Warming a pool ends with its time, which is short on a busy machine.
                let is_short = |it: &String| it.ends_with("blocks were in the pool");
                let is_right = match state {
                    CacheState::Pool => samples.remarks.iter().all(is_short),
                    _ => samples.remarks.is_empty(),
                };
                assert!(is_right, "not as it should be: {:?}", samples.remarks);
            }
        }
    }
}

#[test]
fn a_measurement_lasts_its_time_and_is_cold_from_plan_to_plan() {
    let rules = Rules { cell_time: Duration::from_millis(60), limits: limits(1), ..RULES };
    let variants = vec![ASYNC, Variant::Plain];
    // No block twice, so a file that is not cold would need fewer reads.
    let results = held(&rules, vec![row(Pattern::Backward, CacheState::Cold, variants)]).unwrap();
    for samples in &results[0].measured {
        let round = &samples.rounds[0];
        assert!(round.seconds >= 0.06, "[CON-3] {} s", round.seconds);
        assert_eq!(round.blocks_needed, Some(round.blocks));
        assert_eq!(round.wait_ns.as_ref().unwrap().len(), round.blocks);
    }
    let few =
        Rules { plans_max: 2, cell_time: Duration::from_secs(10), limits: limits(1), ..RULES };
    let row = row(Pattern::Backward, CacheState::Cold, vec![ASYNC]);
    assert_eq!(held(&few, vec![row]).unwrap()[0].measured[0].rounds[0].blocks, 256);
}

#[test]
fn a_cold_pool_is_empty_though_its_memory_was_used_a_quarter_has_a_part_and_pool_has_all() {
    let samples = |state| {
        let variants = vec![ASYNC];
        // More blocks than the smallest pool has frames, or a ring.
        let shape = Shape { blocks: 400, ..SHAPE };
        let rules = Rules { shape, limits: limits(1), ..ONE_PLAN };
        let mut results = held(&rules, vec![row(Pattern::Sequential, state, variants)]).unwrap();
        results.remove(0).measured.remove(0)
    };
    assert_eq!(samples(CacheState::Cold).rounds[0].blocks_needed, Some(400));
    let needed = samples(CacheState::Quarter).rounds[0].blocks_needed.unwrap();
    assert!((1..400).contains(&needed), "{needed}");
    assert_eq!(samples(CacheState::Pool).notes(), [""; 0]);
}

#[test]
fn all_variants_of_a_row_read_the_same_plan() {
    let variants = vec![Variant::Plain, Variant::WillNeed(8), OS, ADAPTIVE];
    let row = row(Pattern::Uniform, CacheState::Cold, variants);
    let results = held(&ONE_PLAN, vec![row]).unwrap();
    // The number of different blocks drawn is random, and so identifies a plan.
    let marks = |samples: &Samples| {
        samples.rounds.iter().map(|round| round.blocks_needed).collect::<Vec<_>>()
    };
    let first = marks(&results[0].measured[0]);
    assert_ne!(first[0], first[1], "another plan in the next round");
    assert!(results[0].measured.iter().all(|samples| marks(samples) == first), "[CON-1]");
}

#[test]
fn an_injected_slowdown_takes_its_part_of_one_variants_time() {
    let rules = Rules { slowdown: Some((OS, 0.5)), limits: limits(1), ..RULES };
    let row = row(Pattern::Sequential, CacheState::Pool, vec![OS, ASYNC]);
    let results = held(&rules, vec![row]).unwrap();
    let seconds = |index: usize| results[0].measured[index].rounds[0].seconds;
    assert!(seconds(0) >= 0.04, "20 ms of reading and as much of nothing: {}", seconds(0));
}

#[test]
fn open_rows_are_measured_until_there_is_no_more_time() {
    // Whether one of two equal variants reaches the other stays undecided for long.
    let rules = Rules { limits: Limits { time: Duration::from_secs(4), ..limits(1) }, ..RULES };
    let rows = vec![
        row(Pattern::Sequential, CacheState::Pool, vec![OS, ADAPTIVE]),
        row(Pattern::Sequential, CacheState::Pool, vec![OS, ASYNC]),
    ];
    let begun = Instant::now();
    let results = held(&rules, rows).unwrap();
    let rounds = |result: &RowResult| result.measured[0].rounds.len();
    assert_eq!(rounds(&results[1]), 1, "there is nothing to decide");
    let adaptive = adaptive(&results[0]);
    assert!(rounds(&results[0]) > 1, "one round decides nothing");
    assert!(
        adaptive.ratio.judgement() != Judgement::Undecided
            || begun.elapsed() > Duration::from_secs(2),
        "open after {} rounds in {:?}",
        rounds(&results[0]),
        begun.elapsed()
    );
}

/// A fake device at 8192 KiB, the file with this value, and the right to change it.
fn made_up_device() -> (FakeSys, std::path::PathBuf, ReadaheadGuard) {
    let sys = FakeSys::server();
    let device = sys.device(8, 0);
    let file = sys.sysfs().readahead_file(&device).unwrap();
    std::fs::write(&file, "8192\n").unwrap();
    let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
    (sys, file, guard)
}

#[test]
fn each_row_has_its_own_readahead_of_the_device_and_the_old_one_is_put_back_whatever_happens() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let workfile = filled(&directory);
    let storage = Storage::read(directory.path()).unwrap();
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let rows = || {
        let readahead = [Some(0), Some(131_072)].into_iter();
        let variants = vec![Variant::Plain];
        let row = row(Pattern::Sequential, CacheState::Cold, variants);
        let rows = readahead.map(|device_readahead| Row { device_readahead, ..row.clone() });
        rows.map(RowResult::new).collect::<Vec<RowResult>>()
    };
    let found = |file: &std::path::Path| std::fs::read_to_string(file).unwrap().trim().to_owned();

    let (_sys, file, guard) = made_up_device();
    let mut results = rows();
    hold(&bench, &ONE_PLAN, &mut results, Some(guard), &mut |_| ()).unwrap();
    let set: Vec<_> = results.iter().map(|result| result.device_readahead_bytes).collect();
    assert_eq!(set, [Some(0), Some(131_072)]);
    assert_eq!(found(&file), "8192");

    std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap().set_len(0).unwrap();
    let (_sys, file, guard) = made_up_device();
    assert!(hold(&bench, &RULES, &mut rows(), Some(guard), &mut |_| ()).is_err());
    assert_eq!(found(&file), "8192");
}

#[test]
fn the_kernel_alone_reads_the_same_blocks_in_all_its_manners() {
    let variants =
        vec![Variant::Plain, Variant::Random, Variant::WillNeed(1), Variant::WillNeed(1000)];
    for (state, needed) in [(CacheState::Cold, Some(128)), (CacheState::PageCache, None)] {
        let results =
            held(&ONE_PLAN, vec![row(Pattern::TwoStreams, state, variants.clone())]).unwrap();
        for samples in &results[0].measured {
            let rounds = samples.rounds.iter();
            let blocks: Vec<_> = rounds.map(|round| (round.blocks, round.blocks_needed)).collect();
            assert_eq!(blocks, [(128, needed), (128, needed)]);
        }
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
    for variant in [Variant::Plain, ASYNC] {
        let mut rows = [RowResult::new(row(Pattern::Backward, CacheState::Cold, vec![variant]))];
        let error = hold(&bench, &RULES, &mut rows, None, &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("[PLD-1]"), "{error}");
    }
}

#[test]
fn rows_that_fill_the_page_cache_come_together() {
    let states = CacheState::value_variants().iter().copied().cycle().take(20);
    let rows = states.map(|state| row(Pattern::Uniform, state, vec![OS]));
    let results: Vec<RowResult> = rows.map(RowResult::new).collect();
    let mut random = fastrand::Rng::with_seed(3);
    let all: Vec<[usize; 1]> = (0..20).map(|index| [index]).collect();
    let due: Vec<&[usize]> = all.iter().map(<[usize; 1]>::as_slice).collect();
    for _ in 0..50 {
        let mut order = row_order(&results, &due, &mut random).concat();
        let places: Vec<usize> = (0..order.len())
            .filter(|&at| results[order[at]].row.state == CacheState::PageCache)
            .collect();
        assert_eq!(places[places.len() - 1] - places[0] + 1, places.len(), "[CON-2]");
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>(), "every row once");
    }
}

/// A row whose variants have read at these rates, in blocks per second, one for each round.
fn result(state: CacheState, rates: &[(Variant, &[f64])], coldness: &Coldness) -> RowResult {
    let variants = rates.iter().map(|(variant, _)| *variant).collect();
    let mut result = RowResult::new(row(Pattern::Uniform, state, variants));
    for (samples, (_, rates)) in result.measured.iter_mut().zip(rates) {
        *samples = samples.clone().with_rates(rates);
        samples.begins(coldness);
    }
    result
}

fn judge_of(result: &RowResult) -> Judge {
    judge(std::slice::from_ref(result), 1, Floor::default())
}

fn adaptive(result: &RowResult) -> Comparison {
    result.adaptive(&judge_of(result)).unwrap()
}

#[test]
fn adaptive_is_compared_with_the_best_other_stream_and_a_row_is_open_while_it_is_undecided() {
    let of = |adaptive: &[f64]| {
        let others = [100.0, 101.0, 102.0, 100.0].map(|rate| [rate, 900.0, rate / 2.0]);
        let by = |index: usize| others.map(|rates| rates[index]);
        let rates: [(Variant, &[f64]); 4] =
            [(OS, &by(2)), (Variant::Plain, &by(1)), (ASYNC, &by(0)), (ADAPTIVE, adaptive)];
        let result = result(CacheState::Cold, &rates, &Coldness::Cold);
        let adaptive = self::adaptive(&result);
        assert_eq!(adaptive.rival, ASYNC, "plain reads are no stream");
        let is_undecided = adaptive.ratio.judgement() == Judgement::Undecided;
        assert_eq!(result.is_open(&judge_of(&result)), is_undecided);
        adaptive.ratio.judgement()
    };
    assert_eq!(of(&[99.0, 100.0, 101.0, 99.0]), Judgement::Keeps);
    assert_eq!(of(&[85.0, 86.0, 87.0, 85.0]), Judgement::Misses);
    assert_eq!(of(&[85.0, 120.0, 70.0, 130.0]), Judgement::Undecided);
}

#[test]
fn what_was_not_cold_is_never_compared() {
    let rates: [(Variant, &[f64]); 2] = [(OS, &[50.0; 3]), (ADAPTIVE, &[10.0; 3])];
    let warm = Coldness::Warm { pages: 3, of: 9 };
    let cold = result(CacheState::Cold, &rates, &warm);
    assert!(cold.adaptive(&judge_of(&cold)).is_none() && cold.ratios_to_best() == [None, None]);
    assert_eq!(cold.measured[0].notes(), ["not cold: 3 of 9 pages stayed in the page cache"]);
}

#[test]
fn a_variant_that_lacks_a_round_is_not_compared_and_says_why() {
    let rates: [(Variant, &[f64]); 2] = [(OS, &[50.0; 3]), (ADAPTIVE, &[50.0; 2])];
    let mut result = result(CacheState::Cold, &rates, &Coldness::Cold);
    result.measured[1].failure = Some("no aio".to_owned());
    assert_eq!(result.ratios_to_best(), [Some(1.0), None]);
    assert_eq!(result.measured[1].notes(), ["not measured after 2 rounds: no aio"]);
    let unmeasured = RowResult::unmeasured(result.row, "tmpfs refuses");
    assert_eq!(unmeasured.measured[0].notes(), ["not measured: tmpfs refuses"]);
    assert!(!unmeasured.is_open(&judge_of(&unmeasured)));
}
