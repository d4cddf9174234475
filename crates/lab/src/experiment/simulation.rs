//! Simulated runs: what the experiments report on a disk without any differences, or with a planted loss.
//!
//! Everything is as in a real run, its settings, the driver, the schedule and the conclusions, except for the
//! measurements, which are drawn at random, and the clock, which advances by the time that each would take.
//!
//! The noise is that of a real disk, a virtual one of 2026-11-22 (`lab.json` in results): the rates of a cell vary by
//! 5 % from round to round in the median, those of one cell in three by less than 3.5 or more than 7 %, one measurement
//! in fifty loses another 20 %, and all cells of a round are faster or slower by 15 % than those of another round.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::driver::{RowSet, Turn, drive};
use super::schedule::Limits;
use super::{Outcome, checkpoint, depth, readahead, strategies, sync};
use forebay_measure::report::{Advice, Verdict};
use forebay_measure::statistics::Judgement;

/// The median variation of the rates of a cell.
const NOISE: f64 = 0.05;

/// How much that variation differs from cell to cell, as the standard deviation of its logarithm.
const UNEVENNESS: f64 = 0.35;

/// How often a measurement stalls, and the part of its rate that remains.
const STALLS: f64 = 0.02;
const STALLED: f64 = 0.8;

/// The common variation of all cells of a round.
const DRIFT: f64 = 0.15;

/// A disk, and a clock.
pub(super) struct Disk {
    random: fastrand::Rng,
    clock: Rc<Cell<Duration>>,
    noise: f64,
    /// Of each cell, by its number.
    deviations: Vec<f64>,
    drift: f64,
}

impl Disk {
    fn new(seed: u64, noise: f64) -> Disk {
        let random = fastrand::Rng::with_seed(seed);
        Disk { random, clock: Rc::default(), noise, deviations: Vec::new(), drift: 1.0 }
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.random.f64(), self.random.f64());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// The result of a measurement of the cell `index`, divided by the result without noise.
    fn rate(&mut self, index: usize, turn: &Turn<'_>) -> f64 {
        while self.deviations.len() <= index {
            let deviation = self.noise * (UNEVENNESS * self.normal()).exp();
            self.deviations.push(deviation);
        }
        if turn.is_first {
            self.drift = (DRIFT * self.normal()).exp();
        }
        let stall = if self.random.f64() < STALLS { STALLED } else { 1.0 };
        let deviation = self.deviations[index];
        self.drift * stall * (deviation * self.normal()).exp()
    }

    /// Measures `set`; each measurement takes this many `seconds`, and returns the `figures` that follow from a rate.
    pub(super) fn simulate<S: RowSet>(
        &mut self,
        set: &mut S,
        limits: Limits,
        seconds: f64,
        figures: impl Fn(&mut S, usize, f64) -> S::Figures,
    ) {
        let clock = Rc::clone(&self.clock);
        let mut random = fastrand::Rng::with_seed(self.random.u64(..));
        let now = || clock.get();
        let measured = drive(set, limits, &mut random, &now, &mut |_| (), |set, index, turn| {
            clock.set(clock.get() + Duration::from_secs_f64(seconds));
            let rate = self.rate(index, &turn);
            Ok(figures(set, index, rate))
        });
        measured.unwrap();
    }
}

/// Runs an experiment on a disk on which one variant reaches this part of the others, and draws conclusions.
pub(super) type Simulated = Box<dyn Fn(&mut Disk, f64) -> Outcome>;

/// An experiment, by its name.
struct Simulation {
    name: &'static str,
    run: Simulated,
    /// Whether the report blames the variant that [`Simulated`] makes slower.
    finds_loss: fn(&Outcome) -> bool,
}

fn experiments() -> [Simulation; 5] {
    let new = |name, run, finds_loss| Simulation { name, run, finds_loss };
    [
        new(depth::NAME, depth::simulated("--backends uring --cache buffered"), |it| {
            advises(it, "effective_io_concurrency", "16")
        }),
        new(sync::NAME, sync::simulated(), |it| advises(it, "wal_sync_method", "fdatasync")),
        new(strategies::NAME, strategies::simulated(), |it| misses(it, "adaptive")),
        new(checkpoint::NAME, checkpoint::simulated(), |it| misses(it, "balanced, coalesced")),
        new(readahead::NAME, readahead::simulated(), |it| advises(it, "read_ahead_kb", "128")),
    ]
}

/// Whether the report advises to change `setting` from `current`.
fn advises(outcome: &Outcome, setting: &str, current: &str) -> bool {
    let is_it = |it: &Advice| it.setting == setting && it.current.as_deref() == Some(current);
    outcome.advice.iter().any(is_it)
}

/// Whether the report says that `variant` is slower than its rival.
fn misses(outcome: &Outcome, variant: &str) -> bool {
    let is_it = |it: &Verdict| it.variant == variant && it.verdict == Judgement::Misses;
    outcome.verdicts.iter().any(is_it)
}

/// Whether the report says that something is faster or slower than something else.
fn reports_a_difference(outcome: &Outcome) -> bool {
    let misses = outcome.verdicts.iter().any(|it| it.verdict == Judgement::Misses);
    let says = |words: &str| outcome.conclusions.iter().any(|it| it.sentence.contains(words));
    misses
        || !outcome.advice.is_empty()
        || says("a clear gain")
        || says("a clear loss")
        || says("×")
        || says("times as fast")
}

/// In how many of `runs` each experiment reports what `counts`, and in how many any of them does.
fn reports(
    experiments: &[Simulation],
    (runs, noise, part): (u64, f64, f64),
    counts: impl Fn(&Simulation, &Outcome) -> bool,
) -> (Vec<(&'static str, usize)>, usize) {
    let mut each: Vec<(&str, usize)> = experiments.iter().map(|it| (it.name, 0)).collect();
    let mut any = 0;
    for run in 0..runs {
        let mut is_reported = false;
        for (number, experiment) in experiments.iter().enumerate() {
            let outcome = (experiment.run)(&mut Disk::new(run * 5 + number as u64, noise), part);
            if counts(experiment, &outcome) {
                each[number].1 += 1;
                is_reported = true;
            }
        }
        any += usize::from(is_reported);
    }
    (each, any)
}

/// The false reports of `runs` without any difference.
fn false_reports(experiments: &[Simulation], runs: u64, noise: f64) -> (String, usize) {
    let any = |_: &Simulation, outcome: &Outcome| reports_a_difference(outcome);
    let (each, any) = reports(experiments, (runs, noise, 1.0), any);
    (format!("{any} of {runs}: {each:?}"), any)
}

#[test]
fn of_500_runs_with_nothing_to_find_at_most_5_in_100_report_a_difference() {
    let mut experiments = experiments();
    // More comparisons, with fewer rounds for each.
    experiments[0].run = depth::simulated("--backends uring,threads --cache buffered,direct");
    let (text, any) = false_reports(&experiments, 500, NOISE);
    assert!(any <= 25, "{text}");
}

#[test]
fn of_100_runs_with_six_times_the_noise_at_most_5_report_a_difference() {
    let (text, any) = false_reports(&experiments(), 100, 6.0 * NOISE);
    assert!(any <= 5, "{text}");
}

#[test]
fn a_planted_loss_of_15_in_100_is_found_in_90_of_100_runs() {
    let found = |experiment: &Simulation, outcome: &Outcome| (experiment.finds_loss)(outcome);
    let (each, _) = reports(&experiments(), (100, NOISE, 0.85), found);
    assert!(each.iter().all(|(_, found)| *found >= 90), "{each:?}");
}
