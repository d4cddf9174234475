//! Experiment `checkpoint`: pages are changed in memory and written out, in several orders and at
//! several paces.
//!
//! Document 001 of the sources sorted a checkpoint's writes and found 10 % on one array, nothing on
//! another machine, and a doubt: of two tablespaces, one may starve. Here the same pages leave in each
//! order, one by one or coalesced, one at a time or many, and the time to the end of the sync
//! is taken. And what the checkpoint costs others: threads read at a steady rate through an interval, with
//! the checkpoint at once at its start, or spread over it. Rounds are added to what is undecided.
//!
//! Worked example: `clustered, arrival, combine off, direct, sync` writes 65,536 pages of 8 KiB one after
//! the other in 9.2 s; `balanced, combine on, uring` 8192 runs of 64 KiB, 32 at a time, in 1.7 s.
//!
//! Invariants:  [CKP-1] in a round every cell of a pattern writes the same pages, in shuffled order
//!              of cells, from an emptied page cache
//!              [CKP-2] a cell that was measured had its pages on the disk at the end: some are read back
//! Failure:     a page that comes back as another one ends the run; a cell that this system does not
//!              support, or has no time for, is unmeasured and says why.
//! Source:      document 001.

mod cell;
mod conclusion;
mod dirty;
mod foreground;
mod record;
mod resources;
mod section;
mod settings;
mod site;

use cell::{Cell, PAGE_BYTES};
pub use cell::{Dirty, NAME, Order};
pub use settings::Settings;

use super::driver::{RowSet, drive};
use super::samples::Missing;
use super::{Bench, Experiment, Measurements, Measuring, Outcome, WorkfileSpec, stopwatch};
use forebay_measure::workfile::Naming;
use record::{Round, Samples};
use resources::Resources;
use site::Site;

impl Experiment for Settings {
    fn workfile_spec(&self) -> WorkfileSpec {
        self.common.workfile_spec(self.size_bytes, PAGE_BYTES, Naming::Named)
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds.least)
    }

    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        let resources = Resources::probe(self, bench)?;
        Ok(Box::new(move |bench, progress| run(self, bench, resources, progress)))
    }
}

fn run<'s>(
    settings: &'s Settings,
    bench: &Bench<'_>,
    mut resources: Resources,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Measurements<'s>> {
    resources.second.as_mut().map_or(Ok(()), |workfile| workfile.fill(|_| ()))?;
    let mut measured: Vec<Samples> = settings.cells().into_iter().map(Samples::new).collect();
    for samples in &mut measured {
        samples.failure = resources.missing(samples.cell).map(str::to_owned);
    }
    let mut rows = Rows { settings, measured };
    let mut random = fastrand::Rng::with_seed(settings.common.seed);
    let mut sets = dirty::sets(settings, &mut random);
    let now = stopwatch();
    drive(&mut rows, settings.limits(), &mut random, &now, progress, |rows, index, turn| {
        let samples = &mut rows.measured[index];
        if turn.round == 0 && now() > settings.time_max() {
            let why = "no time: the cells before it took too long on this disk";
            return Err(Missing(why.to_owned()).into());
        }
        if turn.is_first {
            sets = dirty::sets(settings, turn.random); // [CKP-1]
        }
        let set = &sets[&samples.cell.dirty];
        Site::new(settings, bench, &resources, samples)?.measure(set, turn.random)
    })?;
    let backends = resources.first.backends;
    Ok(Measurements::new(move |_, floor| {
        let measured = rows.measured;
        let record = |samples: &Samples| {
            samples.record_with_readers(record::baseline(&measured, &samples.cell))
        };
        let records = measured.iter().map(record).collect();
        let section = section::draw(settings, &measured);
        Outcome { records, backends, section, ..conclusion::draw(settings, &measured, floor) }
    }))
}

/// The cells of a run; two that are compared are a series.
#[derive(Debug)]
struct Rows<'s> {
    settings: &'s Settings,
    measured: Vec<Samples>,
}

impl RowSet for Rows<'_> {
    type Cell = Cell;
    type Figures = Round;

    fn rows(&self) -> usize {
        self.measured.len()
    }

    fn row(&mut self, index: usize) -> &mut Samples {
        &mut self.measured[index]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        conclusion::series(self.settings, &self.measured)
    }

    fn open(&self) -> Vec<bool> {
        let open = conclusion::undecided(self.settings, &self.measured);
        let is_open = |row: &usize| open.contains(&self.measured[*row].cell);
        self.series().iter().map(|rows| rows.iter().any(is_open)).collect()
    }

    fn label(&self, index: usize) -> String {
        self.measured[index].cell.label()
    }

    /// In random order; but in the first round the essential ones are first, since time may not suffice for all.
    fn order(&self, due: &[&[usize]], random: &mut fastrand::Rng) -> Vec<usize> {
        let mut order = due.concat();
        random.shuffle(&mut order);
        let is_measured = |samples: &Samples| !samples.rounds.is_empty();
        if !self.measured.iter().any(is_measured) {
            // Stable: among themselves they stay in random order.
            order.sort_by_key(|&row| !self.settings.is_essential(&self.measured[row].cell));
        }
        order
    }
}

/// Draws conclusions from runs on disks on which all ways of writing are equal, except for the best in the first
/// pattern, which is this many times as fast.
#[cfg(test)]
pub(super) fn simulated() -> super::simulation::Simulated {
    let options = "--seed 1 --essential --patterns uniform,clustered --backends sync,uring";
    let settings = super::typed::<Settings>(options).checked().unwrap();
    Box::new(move |disk, best| {
        let measured = settings.cells().into_iter().map(Samples::new).collect();
        let mut rows = Rows { settings: &settings, measured };
        disk.simulate(&mut rows, settings.limits(), 1.0, |rows, index, rate| {
            let cell = rows.measured[index].cell;
            let is_first = cell.dirty == settings.patterns[0] && cell.cache == settings.caches[0];
            let is_it = is_first && settings.is_best(&cell) && !cell.is_timed();
            let seconds = 1.0 / (rate * if is_it { best } else { 1.0 });
            record::tests::round(seconds, cell.foreground.then_some(1e3 / rate))
        });
        conclusion::draw(&settings, &rows.measured, forebay_measure::statistics::Floor::default())
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    #[test]
    fn cells_of_a_pattern_share_their_pages_and_come_in_shuffled_order() {
        let settings = crate::experiment::typed::<Settings>("--quick --essential --seed 1");
        let settings = settings.checked().unwrap();
        let measured: Vec<Samples> = settings.cells().into_iter().map(Samples::new).collect();
        let mut rows = Rows { settings: &settings, measured };
        let mut random = fastrand::Rng::with_seed(1);
        let sets = dirty::sets(&settings, &mut random);
        for dirty in [Dirty::Uniform, Dirty::Clustered] {
            assert_eq!(sets[&dirty].len(), 4096, "[CKP-1] {dirty}");
        }
        let all: Vec<usize> = (0..rows.rows()).collect();
        let first = rows.order(&[&all], &mut random);
        let is_essential = |&index: &usize| settings.is_essential(&rows.measured[index].cell);
        let count = first.iter().filter(|index| is_essential(index)).count();
        assert!(first[..count].iter().all(is_essential), "while there is time");
        rows.measured[0] = record::tests::written(Dirty::Uniform, false, &[1.0]);
        for _ in 1..3 {
            let later = rows.order(&[&all], &mut random);
            assert_ne!(first, later, "[CKP-1]");
            let mut sorted = later.clone();
            sorted.sort_unstable();
            assert!(!later.is_sorted() && sorted == all, "[CKP-1]");
        }
    }

    #[test]
    fn an_order_is_read_back_from_its_name() {
        for order in Order::value_variants() {
            assert_eq!(Order::from_str(&order.to_string(), false), Ok(*order));
        }
    }
}
