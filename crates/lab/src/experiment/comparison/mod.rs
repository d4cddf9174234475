//! A comparison: several ways of reading, on the same blocks, from the same state of the caches.
//!
//! A row is the condition under which variants are compared: a pattern, a state of the caches, a cache mode, the
//! device's readahead. In each round a row gets new plans, and all its variants read these one after the other,
//! in shuffled order; the rows are shuffled too. So a disk that gets slower meanwhile favours no variant,
//! and a row is compared within seconds. A variant reads until its time is up: plan after plan, each
//! from a fresh state of the caches. Worked example: `bitmap-10 cold direct` has 819 ascending blocks
//! in a plan; in a cell of 250 ms `async` reads twenty plans of round 2, `os` the first three of them.
//!
//! Every row is a series: all are read in the first rounds; after that only rows whose outcome is still open continue
//! ([`schedule`](super::schedule)).
//!
//! Only the reads are measured: pools, threads and memory exist before the watch is started,
//! and the measurement waits for the rest of the kernel's readahead before it reads the device's
//! counters.
//!
//! Invariants:  [CON-1] in a round all variants of a row read the same plans
//!              [CON-2] the page cache is filled for all rows that want it full together, once in a
//!              round
//!              [CON-3] a measurement lasts its time, unless the plans are so small that it takes too many
//! Failure:     a block other than the requested one ends the run; a row that this system does not
//!              support is unmeasured and says why.

mod cache_state;
mod kernel;
mod pooled;
mod row;
mod row_result;
mod variant;

use std::time::{Duration, Instant};

use anyhow::Context;

pub use cache_state::CacheState;
pub(super) use kernel::read_exactly;
pub(super) use pooled::backend;
pub(super) use row::{Row, Samples, begin_cold, counted_read};
pub(super) use row_result::{Comparison, RowResult, judge};
pub use variant::Variant;

use super::driver::{RowSet, drive};
use super::pattern::Shape;
use super::samples::{Round, emptied};
use super::schedule::Limits;
use super::{Bench, stopwatch};
use forebay_measure::bad_input;
use forebay_measure::device_readahead::ReadaheadGuard;
use forebay_measure::facts::{Storage, Sysfs};
use forebay_measure::statistics::Floor;

/// A started plan may be read for at least this part of a cell's time, so that the last one does not consist
/// only of its beginning.
const LAST_PLAN_PART: u32 = 4;

/// The rules of a comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) shape: Shape,
    /// How long there are rounds.
    pub(super) limits: Limits,
    /// How long a measurement lasts.
    pub(super) cell_time: Duration,
    /// Maximum number of plans of a measurement: before each one the state of the caches is restored.
    pub(super) plans_max: usize,
    /// Comparisons of a row.
    pub(super) judged: usize,
    /// The variant that is slowed down on purpose, and by which part of its time.
    pub(super) slowdown: Option<(Variant, f64)>,
    pub(super) seed: u64,
}

/// The guard that changes the device's readahead, if `asked` names any values.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) when it cannot be changed here.
pub(super) fn readahead_guard(
    storage: &Storage,
    asked: &[u64],
) -> anyhow::Result<Option<ReadaheadGuard>> {
    match &storage.device {
        _ if asked.is_empty() => Ok(None),
        Some(device) => ReadaheadGuard::take(&Sysfs::system(), device).map(Some),
        None => bad_input!(
            "--device-readahead: {} has no device whose readahead could be set ({})",
            storage.directory,
            storage.device_remark
        ),
    }
}

/// Runs a comparison, except for variants that cannot be measured. `progress` receives the name of each measurement
/// before it begins.
///
/// # Errors
/// [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub(super) fn hold(
    bench: &Bench<'_>,
    rules: &Rules,
    results: &mut [RowResult],
    guard: Option<ReadaheadGuard>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    pooled::make_blank(bench.workfile, &rules.shape)?;
    let held = rounds(bench, rules, results, guard.as_ref(), progress);
    // Restore it on success and on error; if both failed, report the first error.
    let restored = guard.map_or(Ok(()), ReadaheadGuard::restore);
    held.and(restored)
}

fn rounds(
    bench: &Bench<'_>,
    rules: &Rules,
    results: &mut [RowResult],
    guard: Option<&ReadaheadGuard>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(rules.seed);
    let found = bench.storage.device.as_ref().and_then(|device| device.readahead_bytes);
    let mut seed = (None, 0);
    let mut rows = Rows { results, judged: rules.judged };
    drive(&mut rows, rules.limits, &mut random, &stopwatch(), progress, |rows, index, turn| {
        let (result, variant) = rows.place(index);
        // [CON-1] The same plans for all variants of a row in a round, which are measured one after the other.
        if seed.0 != Some((result, turn.round)) {
            seed = (Some((result, turn.round)), turn.random.u64(..));
            let result = &mut rows.results[result];
            result.device_readahead_bytes = match guard.zip(result.row.device_readahead) {
                Some((guard, bytes)) => Some(guard.set(bytes)?),
                None => found,
            };
        }
        let result = &mut rows.results[result];
        measure(bench, rules, &result.row, seed.1, &mut result.measured[variant])
    })
}

/// The rows of a comparison, each with its variants.
pub(super) struct Rows<'s> {
    pub(super) results: &'s mut [RowResult],
    /// Comparisons of a row.
    pub(super) judged: usize,
}

impl Rows<'_> {
    /// The row and the variant in it that have this number.
    fn place(&self, mut index: usize) -> (usize, usize) {
        for (number, result) in self.results.iter().enumerate() {
            match index.checked_sub(result.measured.len()) {
                Some(rest) => index = rest,
                None => return (number, index),
            }
        }
        panic!("[CON-1] there is no such variant")
    }
}

impl RowSet for Rows<'_> {
    type Cell = Variant;
    type Figures = Round;

    fn rows(&self) -> usize {
        self.results.iter().map(|result| result.measured.len()).sum()
    }

    fn row(&mut self, index: usize) -> &mut Samples {
        let (result, variant) = self.place(index);
        &mut self.results[result].measured[variant]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        let mut next = 0;
        let series = |result: &RowResult| {
            let first = next;
            next += result.measured.len();
            (first..next).collect()
        };
        self.results.iter().map(series).collect()
    }

    fn open(&self) -> Vec<bool> {
        let judge = judge(self.results, self.judged, Floor::default());
        self.results.iter().map(|result| result.is_open(&judge)).collect()
    }

    fn label(&self, index: usize) -> String {
        let (result, variant) = self.place(index);
        let result = &self.results[result];
        format!("{} {}", result.measured[variant].cell, result.row)
    }

    fn order(&self, due: &[&[usize]], random: &mut fastrand::Rng) -> Vec<usize> {
        let rows = row_order(self.results, due, random);
        let variants = |row: &[usize]| {
            let mut variants = row.to_vec();
            random.shuffle(&mut variants);
            variants
        };
        rows.into_iter().flat_map(variants).collect()
    }
}

/// The rows that are `due`, each by its numbers, in random order; but those that need the file in the page cache are
/// adjacent, since others empty it.
fn row_order<'d>(
    results: &[RowResult],
    due: &[&'d [usize]],
    random: &mut fastrand::Rng,
) -> Vec<&'d [usize]> {
    let mut first = 0;
    let states: Vec<(usize, CacheState)> = results
        .iter()
        .map(|result| {
            first += result.measured.len();
            (first, result.row.state)
        })
        .collect();
    let fills = |row: &&[usize]| {
        let state = states.iter().find(|(end, _)| row.first() < Some(end)).map(|it| it.1);
        state == Some(CacheState::PageCache)
    };
    let (mut full, mut order): (Vec<&[usize]>, Vec<&[usize]>) =
        due.iter().copied().partition(fills);
    random.shuffle(&mut full);
    random.shuffle(&mut order);
    let place = random.usize(0..=order.len());
    order.splice(place..place, full);
    let changes = order.windows(2).filter(|pair| fills(&pair[0]) != fills(&pair[1])).count();
    assert!(changes <= 2, "[CON-2] the page cache is filled once");
    order
}

/// One measurement: plan after plan, as they follow from `seed`, until its time is up.
fn measure(
    bench: &Bench<'_>,
    rules: &Rules,
    row: &Row,
    seed: u64,
    samples: &mut Samples,
) -> anyhow::Result<Round> {
    let variant = samples.cell;
    let mut shape = rules.shape;
    if row.state == CacheState::Pool {
        shape.blocks = shape.blocks.min(pooled::RESIDENT_BLOCKS_MAX);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut all, mut pool): (Option<Round>, _) = (None, None);
    for _ in 0..rules.plans_max {
        let plan = row.pattern.plan(&shape, &mut random);
        let read = all.as_ref().map_or(0.0, |all| all.seconds);
        let left = rules.cell_time.saturating_sub(Duration::from_secs_f64(read)); // [CON-3]
        let time = left.max(rules.cell_time / LAST_PLAN_PART);
        // Before a pool has the file: one mode at a time.
        match row.state {
            CacheState::Cold => begin_cold(bench.workfile, row, samples)?,
            CacheState::PageCache => {
                samples.remarks.extend(cache_state::fill_page_cache(bench.workfile)?);
            }
            // The source of the data before the watch is started does not matter.
            CacheState::Pool => {}
            CacheState::Quarter => drop(emptied(bench.workfile)?),
        }
        let mut round = match variant.strategy() {
            Some(strategy) => {
                pooled::measure(&mut pool, bench, row, strategy, &plan, time, samples)?
            }
            None => {
                counted_read(bench, row, || kernel::read(bench.workfile, variant, &plan, time))?
            }
        };
        if let Some((slowed, part)) = rules.slowdown
            && slowed == variant
        {
            // The additional time that makes `part` of the total lost: a loss that the comparison must find.
            let moment = Instant::now();
            std::thread::sleep(Duration::from_secs_f64(round.seconds * part / (1.0 - part)));
            round.seconds += moment.elapsed().as_secs_f64();
        }
        let is_cut = round.blocks < plan.blocks();
        let sum = match all {
            None => round,
            Some(all) => all.plus(&round),
        };
        let is_over = sum.seconds >= rules.cell_time.as_secs_f64();
        all = Some(sum);
        if is_cut || is_over || row.state == CacheState::Pool {
            break;
        }
    }
    all.context("a measurement takes a plan")
}

#[cfg(test)]
mod tests;
