//! A contest: several ways of reading, on the same blocks, from the same state of the caches.
//!
//! A row is what they compete on: a pattern, a state of the caches, a cache mode, the device's
//! readahead. In each round a row gets new plans, and all its entrants read these one after the other,
//! in shuffled order; the rows are shuffled too. So a disk that gets slower meanwhile favours nobody,
//! and a row is compared within seconds. An entrant reads until its time is up: plan after plan, each
//! from a fresh state of the caches. Worked example: `bitmap-10 cold direct` has 819 ascending blocks
//! in a plan; in a cell of 250 ms `async` reads twenty plans of round 2, `os` the first three of them.
//!
//! Every row is read in the first rounds; then only those go on whose outcome is still open
//! ([`schedule`]).
//!
//! Nothing but reading is measured: pools, threads and memory are there before the watch is started,
//! and what the kernel still reads ahead afterwards is waited for before the device's counters are
//! read.
//!
//! Invariants:  [CON-1] in a round all entrants of a row read the same plans
//!              [CON-2] the page cache is filled for all rows that want it full together, once in a
//!              round
//!              [CON-3] a measurement lasts its time, unless the plans are so small that it takes too many
//! Failure:     a block that is not the one asked for ends the run; a row that this system does not
//!              support is unmeasured and says why.

mod cache_state;
mod entrant;
mod kernel;
mod pooled;
mod schedule;
mod standing;

use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_io::CacheMode;

pub use cache_state::CacheState;
pub use entrant::Entrant;
pub(super) use kernel::read_exactly;
pub(super) use pooled::backend;
pub(super) use standing::{Comparison, Standing};

use super::Bench;
use super::pattern::{Pattern, Shape};
use super::tally::{self, Round, counted, emptied, one_round, shuffled};
use crate::bad_input;
use crate::device_readahead::ReadaheadGuard;
use crate::facts::{Storage, Sysfs};
use crate::workfile::Workfile;

/// How long the device may take to finish what the kernel has begun to read ahead.
const SETTLING_TIME_MAX: Duration = Duration::from_millis(20);

/// A plan that is begun may be read for at least this part of a cell's time, so that the last one is
/// not all beginning.
const LAST_PLAN_PART: u32 = 4;

/// An entrant and what its rounds gave.
type Tally = tally::Row<Entrant, Round>;

/// What entrants compete on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pattern: Pattern,
    pub(super) state: CacheState,
    pub(super) cache: CacheMode,
    /// To be set for it, in bytes; `None` leaves the device's readahead alone.
    pub(super) device_readahead: Option<u64>,
    pub(super) entrants: Vec<Entrant>,
}

/// How a contest is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) shape: Shape,
    /// Rounds of every row.
    pub(super) rounds: u32,
    /// How long a measurement lasts.
    pub(super) cell_time: Duration,
    /// Most plans of a measurement: before each one the state of the caches is restored.
    pub(super) plans_max: usize,
    /// Until then open rows get more rounds. `None`: so many rounds and no more.
    pub(super) time_max: Option<Duration>,
    /// Who is slowed down on purpose, and by which part of its time.
    pub(super) handicap: Option<(Entrant, f64)>,
    pub(super) seed: u64,
}

/// The right to change the device's readahead, if any of `asked` is to be set.
///
/// # Errors
/// [`BadInput`](crate::BadInput) when it cannot be changed here.
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

/// Holds a contest, except for entrants who cannot be measured. `progress` is told each measurement before it
/// begins.
///
/// # Errors
/// [`Interrupted`](crate::interrupt::Interrupted), or what went wrong.
pub(super) fn hold(
    bench: &Bench<'_>,
    rules: &Rules,
    standings: &mut [Standing],
    guard: Option<ReadaheadGuard>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    pooled::make_blank(bench.workfile, &rules.shape)?;
    let held = rounds(bench, rules, standings, guard.as_ref(), progress);
    // Put back whatever happened; and if both failed, what went wrong first is told.
    let restored = guard.map_or(Ok(()), ReadaheadGuard::restore);
    held.and(restored)
}

fn rounds(
    bench: &Bench<'_>,
    rules: &Rules,
    standings: &mut [Standing],
    guard: Option<&ReadaheadGuard>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(rules.seed);
    let begun = Instant::now();
    let found = bench.storage.device.as_ref().and_then(|device| device.readahead_bytes);
    loop {
        let due: Vec<_> = standings.iter().map(Standing::due).collect();
        let time = rules.time_max.map(|time_max| (time_max, begun.elapsed()));
        let next = schedule::next(&due, rules.rounds, time);
        if next.is_empty() {
            return Ok(());
        }
        for index in row_order(standings, next, &mut random) {
            let (standing, moment) = (&mut standings[index], Instant::now());
            standing.device_readahead_bytes = match guard.zip(standing.row.device_readahead) {
                Some((guard, bytes)) => Some(guard.set(bytes)?),
                None => found,
            };
            // [CON-1] The same plans for all of them.
            let seed = random.u64(..);
            let order = shuffled(&standing.tallies, &mut random);
            let row = &standing.row;
            let label = |entrant: &Entrant| format!("{entrant} {row}");
            one_round(&mut standing.tallies, order, progress, label, |tally| {
                measure(bench, rules, row, seed, tally)
            })?;
            standing.rounds += 1;
            standing.took += moment.elapsed();
        }
    }
}

/// The rows `next` in random order; but those that want the file in the page cache come together,
/// since others empty it.
fn row_order(standings: &[Standing], next: Vec<usize>, random: &mut fastrand::Rng) -> Vec<usize> {
    let fills = |index: &usize| standings[*index].row.state == CacheState::PageCache;
    let (mut full, mut order): (Vec<usize>, Vec<usize>) = next.into_iter().partition(fills);
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
    tally: &mut Tally,
) -> anyhow::Result<Round> {
    let entrant = tally.cell;
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
            CacheState::Cold => begin_cold(bench.workfile, row, tally)?,
            CacheState::PageCache => {
                tally.remarks.extend(cache_state::fill_page_cache(bench.workfile)?);
            }
            // Where the data come from before the watch is started does not matter.
            CacheState::Pool => {}
            CacheState::Quarter => drop(emptied(bench.workfile)?),
        }
        let mut round = match entrant.strategy() {
            Some(strategy) => pooled::measure(&mut pool, bench, row, strategy, &plan, time, tally)?,
            None => {
                counted_read(bench, row, || kernel::read(bench.workfile, entrant, &plan, time))?
            }
        };
        if let Some((slowed, part)) = rules.handicap
            && slowed == entrant
        {
            // So much more time that `part` of all of it is lost: a loss that has to be found.
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

/// Empties the page cache for a row that reads from the device.
fn begin_cold(workfile: &Workfile, row: &Row, tally: &mut Tally) -> anyhow::Result<()> {
    let coldness = emptied(workfile)?;
    if row.cache == CacheMode::Buffered {
        tally.begins(&coldness);
    }
    Ok(())
}

/// What `read` gives, and what the device did; waiting for what the kernel still reads ahead.
fn counted_read(
    bench: &Bench<'_>,
    row: &Row,
    read: impl FnOnce() -> anyhow::Result<Round>,
) -> anyhow::Result<Round> {
    let reads_device = row.state.reads_device();
    let settle = if reads_device { SETTLING_TIME_MAX } else { Duration::ZERO };
    let (round, device) = counted(bench.counters, settle, read)?;
    let blocks_needed = round.blocks_needed.filter(|_| reads_device);
    Ok(Round { device, blocks_needed, ..round })
}

#[cfg(test)]
mod tests;
