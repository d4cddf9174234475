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
type Named = (&'static str, Simulated);

fn experiments() -> [Named; 5] {
    [
        (depth::NAME, depth::simulated("--backends uring --cache buffered")),
        (sync::NAME, sync::simulated()),
        (strategies::NAME, strategies::simulated()),
        (checkpoint::NAME, checkpoint::simulated()),
        (readahead::NAME, readahead::simulated()),
    ]
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

/// In how many of `runs` each experiment reports a difference, and in how many any of them does.
fn reports(
    experiments: &[Named],
    runs: u64,
    noise: f64,
    part: f64,
) -> (Vec<(&'static str, usize)>, usize) {
    let mut each: Vec<(&str, usize)> = experiments.iter().map(|(name, _)| (*name, 0)).collect();
    let mut any = 0;
    for run in 0..runs {
        let mut is_reported = false;
        for (number, (_, simulated)) in experiments.iter().enumerate() {
            let outcome = simulated(&mut Disk::new(run * 5 + number as u64, noise), part);
            if reports_a_difference(&outcome) {
                each[number].1 += 1;
                is_reported = true;
            }
        }
        any += usize::from(is_reported);
    }
    (each, any)
}

#[test]
fn of_500_runs_with_nothing_to_find_at_most_5_in_100_report_a_difference() {
    let mut experiments = experiments();
    // More comparisons, with fewer rounds for each.
    experiments[0].1 = depth::simulated("--backends uring,threads --cache buffered,direct");
    let (each, any) = reports(&experiments, 500, NOISE, 1.0);
    assert!(any <= 25, "{any} of 500: {each:?}");
}

#[test]
fn so_is_it_on_a_disk_with_six_times_the_noise() {
    let (each, any) = reports(&experiments(), 100, 6.0 * NOISE, 1.0);
    assert!(any <= 5, "{any} of 100: {each:?}");
}

#[test]
fn a_planted_loss_of_15_in_100_is_found_in_90_of_100_runs() {
    let (each, _) = reports(&experiments(), 100, NOISE, 0.85);
    assert!(each.iter().all(|(_, found)| *found >= 90), "{each:?}");
}
