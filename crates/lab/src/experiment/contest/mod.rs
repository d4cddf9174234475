//! A contest: several ways of reading, on the same blocks, from the same state of the caches.
//!
//! A row is what they compete on: a pattern, a state of the caches, a cache mode, the device's
//! readahead. In each round every row gets a new plan, and all its entrants read that plan one after
//! the other, in shuffled order, each from a state made anew; the rows are shuffled too. So a disk that
//! gets slower meanwhile favours nobody, and a row is compared within seconds. Worked example: `bitmap-10,
//! cold, direct` in round 2 gives 819 ascending blocks, which `async`, `os`, `adaptive` ... read in turn.
//!
//! Nothing but reading is measured: pools, threads and memory are there before the watch is started,
//! and what the kernel still reads ahead afterwards is waited for before the device's counters are
//! read.
//!
//! Invariants:  [CON-1] in a round all entrants of a row read the same plan
//!              [CON-2] the page cache is filled for all rows that want it full together, once in a
//!              round
//! Failure:     a block that is not the one asked for ends the run; a row that this system has not the
//!              means for is unmeasured and says why.

mod cache_state;
mod kernel;
mod pooled;
mod record;
mod setup;

use std::fmt;
use std::time::{Duration, Instant};

use forebay::ReadaheadStrategy;
use forebay_io::{CacheMode, Kind};

pub use cache_state::CacheState;
pub(super) use kernel::read_exactly;
pub(super) use pooled::{Pools, frames_most};
pub(super) use record::{Form, adaptive_misses, can_be, mean_ratio};
pub(super) use setup::{BLOCKS_MIN, Defaults, measurements};
pub(super) use setup::{Means, Setup};

use super::Bench;
use super::pattern::{Pattern, Shape};
use super::tally::{Measured, Tally, counted};
use crate::device_readahead::ReadaheadGuard;
use crate::facts::{CounterSource, Storage, Sysfs};
use crate::measure::Coldness;
use crate::{bad_input, interrupt};

/// How long the device may take to finish what the kernel has begun to read ahead.
const SETTLING_TIME_MAX: Duration = Duration::from_millis(20);

/// How the kernel is asked, without a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Reads and nothing else.
    Os,
    /// After FADV_RANDOM.
    Random,
    /// With FADV_WILLNEED for each block, so many blocks before it is read.
    WillNeed(u32),
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entrant {
    /// Plain reads of one block each, through one descriptor.
    Kernel(Manner),
    /// A stream, or several, of a pool.
    Pool(ReadaheadStrategy),
}

impl fmt::Display for Entrant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entrant::Kernel(Manner::Os) => out.pad("os"),
            Entrant::Kernel(Manner::Random) => out.pad("random"),
            Entrant::Kernel(Manner::WillNeed(distance)) => write!(out, "willneed-{distance}"),
            Entrant::Pool(strategy) => out.pad(strategy.name()),
        }
    }
}

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
    /// Measurements of each entrant in each row.
    pub(super) rounds: u32,
    /// Longest measurement; on a slow disk fewer blocks are read then.
    pub(super) cell_time_max: Duration,
    /// No round is begun that would probably end later than this; the first one always is.
    pub(super) time_max: Option<Duration>,
    pub(super) seed: u64,
}

impl Rules {
    /// Whether another round is likely to end in time. `begun`: rounds that took `elapsed`.
    fn another_round(&self, begun: u32, elapsed: Duration) -> bool {
        let in_time = |time_max: Duration| begun == 0 || elapsed + elapsed / begun <= time_max;
        begun < self.rounds && self.time_max.is_none_or(in_time)
    }
}

/// What came of a row.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) row: Row,
    /// While it was measured, in bytes; `None` where it cannot be told.
    pub(super) device_readahead_bytes: Option<u64>,
    /// One for each entrant, in their order.
    pub(super) tallies: Vec<Tally>,
    /// Whether time was up in some round before all was read, for each entrant.
    cut: Vec<bool>,
}

/// The device's readahead, for rows that want it changed and for those that do not.
#[derive(Debug)]
pub(super) struct DeviceReadahead {
    guard: Option<ReadaheadGuard>,
    /// As it is, in bytes.
    bytes: Option<u64>,
}

impl DeviceReadahead {
    /// Takes the right to change it if any of `asked` is to be set.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when it cannot be changed here.
    pub(super) fn new(storage: &Storage, asked: &[u64]) -> anyhow::Result<DeviceReadahead> {
        let device = storage.device.as_ref();
        let bytes = device.and_then(|device| device.readahead_bytes);
        if asked.is_empty() {
            return Ok(DeviceReadahead { guard: None, bytes });
        }
        let Some(device) = device else {
            bad_input!(
                "--device-readahead: {} has no device whose readahead could be set ({})",
                storage.directory,
                storage.device_remark
            );
        };
        let guard = Some(ReadaheadGuard::take(&Sysfs::system(), device)?);
        Ok(DeviceReadahead { guard, bytes })
    }

    /// Makes it what a row asks for.
    fn prepare(&mut self, asked: Option<u64>) -> anyhow::Result<Option<u64>> {
        if let (Some(guard), Some(bytes)) = (&self.guard, asked) {
            self.bytes = Some(guard.set(bytes)?);
        }
        Ok(self.bytes)
    }

    /// Puts it back.
    fn restore(self) -> anyhow::Result<()> {
        self.guard.map_or(Ok(()), ReadaheadGuard::restore)
    }
}

/// Holds a contest. `progress` is told each measurement before it begins.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn hold(
    bench: &Bench<'_>,
    rules: &Rules,
    rows: Vec<Row>,
    pools: &Pools<'_>,
    mut readahead: DeviceReadahead,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Standing>> {
    let mut standings: Vec<Standing> = rows.into_iter().map(Standing::new).collect();
    let held = rounds(bench, rules, &mut standings, pools, &mut readahead, progress);
    // Put back whatever happened; and if both failed, what went wrong first is told.
    let restored = readahead.restore();
    held.and(restored)?;
    Ok(standings)
}

fn rounds(
    bench: &Bench<'_>,
    rules: &Rules,
    standings: &mut [Standing],
    pools: &Pools<'_>,
    readahead: &mut DeviceReadahead,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(rules.seed);
    let begun = Instant::now();
    let mut round = 0;
    while rules.another_round(round, begun.elapsed()) {
        for index in row_order(standings, &mut random) {
            let standing = &mut standings[index];
            standing.device_readahead_bytes = readahead.prepare(standing.row.device_readahead)?;
            // [CON-1] One plan for all of them.
            let plan = standing.row.pattern.plan(&rules.shape, &mut random);
            let mut order: Vec<usize> = (0..standing.row.entrants.len()).collect();
            random.shuffle(&mut order);
            for entrant in order {
                interrupt::check()?;
                progress(&standing.label(entrant));
                standing.measure(entrant, bench, rules, pools, &plan)?;
            }
        }
        round += 1;
    }
    Ok(())
}

/// The rows in random order; but those that want the file in the page cache come together, since
/// others empty it.
fn row_order(standings: &[Standing], random: &mut fastrand::Rng) -> Vec<usize> {
    let fills = |index: &usize| standings[*index].row.state == CacheState::PageCache;
    let (mut full, mut order): (Vec<usize>, Vec<usize>) =
        (0..standings.len()).partition(|index| fills(index));
    random.shuffle(&mut full);
    random.shuffle(&mut order);
    let place = random.usize(0..=order.len());
    order.splice(place..place, full);
    let changes = order.windows(2).filter(|pair| fills(&pair[0]) != fills(&pair[1])).count();
    assert!(changes <= 2, "[CON-2] the page cache is filled once");
    order
}

impl Standing {
    fn new(row: Row) -> Standing {
        let entrants = row.entrants.len();
        let tallies = (0..entrants).map(|_| Tally::default()).collect();
        Standing { row, device_readahead_bytes: None, tallies, cut: vec![false; entrants] }
    }

    fn label(&self, entrant: usize) -> String {
        let row = &self.row;
        format!("{} {} {} {}", row.pattern, row.entrants[entrant], row.state, row.cache)
    }

    fn measure(
        &mut self,
        entrant: usize,
        bench: &Bench<'_>,
        rules: &Rules,
        pools: &Pools<'_>,
        plan: &super::pattern::Plan,
    ) -> anyhow::Result<()> {
        let row = &self.row;
        let (coldness, measured) = match row.entrants[entrant] {
            Entrant::Kernel(manner) => kernel::measure(bench, manner, plan, rules.cell_time_max)?,
            Entrant::Pool(strategy) => {
                let how = pooled::How { strategy, state: row.state, cache: row.cache };
                pools.measure(bench, how, plan, rules.cell_time_max)?
            }
        };
        if let Ok(measured) = &measured
            && measured.round.blocks < plan.blocks()
        {
            self.cut[entrant] = true;
        }
        self.tallies[entrant].take(coldness, measured)
    }
}

/// What one measurement came to: how cold it was, and its figures or why there are none.
type Attempt = (Coldness, anyhow::Result<Measured>);

/// As [`counted`], waiting for what the kernel still reads ahead.
fn counted_settled(
    counters: Option<&CounterSource>,
    work: impl FnOnce() -> anyhow::Result<super::tally::Round>,
) -> anyhow::Result<Measured> {
    counted(counters, work, || {
        let begun = Instant::now();
        let read = || counters.and_then(|source| source.read().ok()).map(|now| now.reads);
        let mut before = read();
        while before.is_some() && begun.elapsed() < SETTLING_TIME_MAX {
            std::thread::sleep(Duration::from_millis(1));
            let now = read();
            if now == before {
                break;
            }
            before = now;
        }
    })
}

/// `kind` and what a pool has to say about it, as a report has it.
fn backend_note(kind: Kind, notes: &[String]) -> crate::report::BackendNote {
    crate::report::BackendNote {
        backend: kind.to_string(),
        available: true,
        note: notes.join("; "),
    }
}

#[cfg(test)]
mod tests;
