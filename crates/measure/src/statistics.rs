//! Statistics: what rounds that were measured side by side say, and with what confidence.
//!
//! A cell is measured in several rounds, and in one round all cells that are compared are measured
//! shortly after each other, on the same blocks. So they are compared round by round: the ratio in each
//! round, and of these ratios the geometric mean. A disk that was slow in one round was slow for both.
//! The interval is computed by resampling the rounds. Worked example: 90 against 100, 190 against 200 and
//! 47 against 50 blocks/s are 0.90, 0.95 and 0.94 of the rival, 0.93 on average, 0.90 to 0.95.
//!
//! The rival is often "the best of the others". If it is chosen by the rounds in which it is then compared, the best
//! of five is the luckiest of five, and a variant that truly ties with them loses to it. So the rival of
//! a round is chosen by all the other rounds.
//!
//! The experiments of the laboratory make many comparisons, and look at them more than once: theirs are made by a
//! [`Judge`].
//!
//! Rounds of two runs have nothing in common: what slowed one run did not slow the other.
//! They are compared by their means, each side is resampled separately, and the interval is wider because of that.
//!
//! Invariants:  [STA-1] no verdict but `undecided` from fewer than three rounds
//!              [STA-2] the rounds by which a rival is chosen are not those it is compared in
//!              [STA-3] the same rounds give the same interval: resampling has a fixed seed
//! Source:      B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", 1993, for the percentile
//!              interval; T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, for
//!              widening it where samples are few (the expanded percentile interval).

mod judge;

pub use judge::{Floor, Judge, LOOKS_MAX};

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::statistics::{Data, Median};

/// A variant keeps its bound if it reaches this part of its rival.
pub const BOUND: f64 = 0.95;

/// A knee surely reaches this part of the best: a real reader loses something else than the measured one, and
/// must keep its bound as well.
const NEAR: f64 = 0.975;

/// Minimum number of rounds for a verdict or an advice.
pub const ROUNDS_MIN: usize = 3;

/// Number of resamples. Source: Efron and Tibshirani recommend 1,000 to 2,000.
const RESAMPLES: usize = 2000;

/// The coverage of an interval; with fewer than six rounds the coverage is lower, as an interval
/// cannot be wider than the spread of the rounds (88 % from four rounds, 75 % from three).
const COVERAGE: f64 = 0.95;

/// A ratio, and the interval that covers the truth in 95 of 100 cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best guess.
    #[serde(rename = "ratio")]
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The number of rounds; 0 once it was written and read.
    #[serde(skip)]
    pub rounds: usize,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    /// Surely at least [`BOUND`] of the rival.
    Keeps,
    /// Surely less.
    Misses,
    /// The rounds do not decide it.
    Undecided,
}

impl Estimate {
    /// The inverse: the ratio of `b` to `a`, from the ratio of `a` to `b`.
    #[must_use]
    pub fn inverse(self) -> Estimate {
        let Estimate { value, low, high, rounds } = self;
        Estimate { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low, rounds }
    }

    /// Whether this ratio to the best reaches [`BOUND`], and its interval reaches it or lies above 0.975.
    fn is_near_best(&self) -> bool {
        self.value >= BOUND && (self.high >= 1.0 || self.low >= NEAR)
    }

    /// Whether it is surely a gain that is worth a change: compared with it, the other one misses its bound.
    pub fn is_gain(&self) -> bool {
        self.inverse().judgement() == Judgement::Misses
    }

    /// True if the interval lies on one side of 1.
    pub fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// Whether a variant with this ratio to its rival keeps its bound.
    pub fn judgement(&self) -> Judgement {
        match self {
            Estimate { rounds, .. } if *rounds < ROUNDS_MIN => Judgement::Undecided, // [STA-1]
            Estimate { low, .. } if *low >= BOUND => Judgement::Keeps,
            Estimate { high, .. } if *high < BOUND => Judgement::Misses,
            _ => Judgement::Undecided,
        }
    }
}

/// The median: the middle one, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Data::new(values.to_vec()).median())
}

/// The lowest and the highest one.
pub fn range(values: &[f64]) -> (f64, f64) {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    values.iter().fold(ends, |(low, high), &it| (low.min(it), high.max(it)))
}

/// The ratio of `variant` to `rival`, whose rounds of one number were measured side by side: the geometric mean of
/// the ratios of the rounds that both have. `None` unless there is one, and all are above 0.
pub fn paired_ratio(variant: &[f64], rival: &[f64]) -> Option<Estimate> {
    geometric_mean(&paired_logs(variant, rival))
}

/// The logarithms of those ratios.
fn paired_logs(variant: &[f64], rival: &[f64]) -> Vec<f64> {
    variant.iter().zip(rival).map(|(ours, theirs)| (ours / theirs).ln()).collect()
}

/// The ratio of `variant` to the best of `rivals`, by the rounds that all of them have. The best of
/// each round is chosen by the other rounds [STA-2]. Also returns the index of the rival that was most often the best.
pub fn ratio_to_best<R: AsRef<[f64]>>(variant: &[f64], rivals: &[R]) -> Option<(usize, Estimate)> {
    let (best, logs) = logs_to_best(variant, rivals)?;
    Some((best, geometric_mean(&logs)?))
}

/// The logarithms of those ratios, one for each round.
fn logs_to_best<R: AsRef<[f64]>>(variant: &[f64], rivals: &[R]) -> Option<(usize, Vec<f64>)> {
    let fewest = rivals.iter().map(|rival| rival.as_ref().len()).min()?;
    let rounds = fewest.min(variant.len());
    if rounds < 2 {
        return None;
    }
    let variant = logs(variant);
    let rivals: Vec<Vec<f64>> = rivals.iter().map(|it| logs(&it.as_ref()[..rounds])).collect();
    let sums: Vec<f64> = rivals.iter().map(|rival| rival.iter().sum()).collect();
    let mut chosen = vec![0; rivals.len()];
    let ratios = (0..rounds).map(|round| {
        let without = |rival: usize| sums[rival] - rivals[rival][round];
        let best = (0..rivals.len()).max_by(|&a, &b| without(a).total_cmp(&without(b)));
        let best = best.unwrap_or(0);
        chosen[best] += 1;
        variant[round] - rivals[best][round]
    });
    let ratios = ratios.collect();
    let most = (0..chosen.len()).rev().max_by_key(|&rival| chosen[rival])?;
    Some((most, ratios))
}

/// The knee: of `cells`, in ascending order of a setting, each with its rates in the same rounds, the first
/// that is near the best. `None` without a cell or a second round.
pub fn knee<R: AsRef<[f64]>>(cells: &[R]) -> Option<usize> {
    cells.iter().position(|cell| {
        ratio_to_best(cell.as_ref(), cells).is_some_and(|(_, ratio)| ratio.is_near_best())
    })
}

/// The ratio of `ours` to `theirs`, measured in different runs: the ratio of their geometric means. `None` unless
/// both have a round and all are above 0.
pub fn unpaired_ratio(ours: &[f64], theirs: &[f64]) -> Option<Estimate> {
    let (ours, theirs) = (logs(ours), logs(theirs));
    // The side with fewer rounds is the one that widens the interval.
    let rounds = ours.len().min(theirs.len());
    if rounds == 0 || ours.iter().chain(&theirs).any(|log| !log.is_finite()) {
        return None;
    }
    let value = mean(&ours) - mean(&theirs);
    Some(resampled(value, rounds, |random| drawn_mean(&ours, random) - drawn_mean(&theirs, random)))
}

/// The geometric mean of ratios from their logarithms, with its interval.
fn geometric_mean(logs: &[f64]) -> Option<Estimate> {
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    Some(resampled(mean(logs), logs.len(), |random| drawn_mean(logs, random)))
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.ln()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of `values` resampled with repetition, as many as there are.
fn drawn_mean(values: &[f64], random: &mut fastrand::Rng) -> f64 {
    let drawn = (0..values.len()).map(|_| values[random.usize(..values.len())]);
    drawn.sum::<f64>() / values.len() as f64
}

/// The ratio whose logarithm is `value`, with the interval from the resamples of `draw`, for this many rounds.
fn resampled(
    value: f64,
    rounds: usize,
    mut draw: impl FnMut(&mut fastrand::Rng) -> f64,
) -> Estimate {
    let mut random = fastrand::Rng::with_seed(0); // [STA-3]
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| draw(&mut random)).collect();
    means.sort_by(f64::total_cmp);
    let outside = tail(rounds);
    let at = |share: f64| means[(share * (RESAMPLES - 1) as f64).round() as usize];
    let [value, low, high] = [value, at(outside), at(1.0 - outside)].map(f64::exp);
    Estimate { value, low, high, rounds }
}

/// The share of resampled means to leave out on each side. Fewer rounds vary less among themselves than
/// the truth does, so less is left out than the 2.5 % of many rounds (Hesterberg 2015, section 5.3).
fn tail(rounds: usize) -> f64 {
    let freedom = rounds.saturating_sub(1).max(1) as f64;
    let tail = (1.0 - COVERAGE) / 2.0;
    // Refused for a freedom of 0 only.
    StudentsT::new(0.0, 1.0, freedom).map_or(0.0, |students| {
        let widened = students.inverse_cdf(tail) * (rounds as f64 / freedom).sqrt();
        Normal::standard().cdf(widened)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates around `middle` with a standard deviation of the part `noise`.
    fn rates(random: &mut fastrand::Rng, rounds: usize, middle: f64, noise: f64) -> Vec<f64> {
        // The sum of twelve uniform numbers is as good as normal here.
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        (0..rounds).map(|_| middle * (noise * normal(random)).exp()).collect()
    }

    /// How many of 100 rows, each of six variants, get each judgement on the first of them.
    fn judged(rounds: usize, first: f64, noise: f64) -> [usize; 3] {
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = [0; 3];
        for _ in 0..100 {
            let variant = rates(&mut random, rounds, first, noise);
            let rivals: Vec<_> = (0..5).map(|_| rates(&mut random, rounds, 1.0, noise)).collect();
            let rivals: Vec<&[f64]> = rivals.iter().map(Vec::as_slice).collect();
            let (_, ratio) = ratio_to_best(&variant, &rivals).unwrap();
            counts[ratio.judgement() as usize] += 1;
        }
        counts
    }

    #[test]
    fn sta_2_who_truly_ties_with_five_rivals_hardly_ever_misses() {
        for (rounds, noise) in [(3, 0.05), (5, 0.1), (5, 0.3), (12, 0.1)] {
            let [keeps, misses, undecided] = judged(rounds, 1.0, noise);
            assert!(misses <= 5, "[STA-2] {rounds} {noise}: {keeps} {misses} {undecided}");
        }
        // With enough rounds a tie is seen as one.
        assert!(judged(48, 1.0, 0.05)[0] > 90);
    }

    #[test]
    fn a_loss_of_fifteen_in_a_hundred_is_found() {
        for (rounds, noise) in [(5, 0.02), (12, 0.05), (40, 0.1)] {
            let [keeps, misses, undecided] = judged(rounds, 0.85, noise);
            assert!(misses >= 90, "{rounds} {noise}: {keeps} {misses} {undecided}");
        }
    }

    #[test]
    fn an_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        // With few rounds the interval is at most from the lowest to the highest, so its coverage is below nominal.
        for (rounds, least) in [(4, 415), (6, 450), (10, 460), (30, 460)] {
            let covers = (0..500).filter(|_| {
                let [a, b] = [0.9, 1.0].map(|it| rates(&mut random, rounds, it, 0.1));
                let ratio = paired_ratio(&a, &b).unwrap();
                (ratio.low..=ratio.high).contains(&0.9)
            });
            let covers = covers.count();
            assert!((least..=495).contains(&covers), "{rounds} rounds: {covers} of 500");
        }
    }

    #[test]
    fn an_interval_of_two_runs_covers_the_truth_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(5);
        for (ours, theirs, least) in [(3, 3, 210), (3, 12, 200), (5, 5, 230), (12, 12, 230)] {
            let covers = (0..250).filter(|_| {
                let a = rates(&mut random, ours, 0.9, 0.1);
                let b = rates(&mut random, theirs, 1.0, 0.1);
                let ratio = unpaired_ratio(&a, &b).unwrap();
                (ratio.low..=ratio.high).contains(&0.9)
            });
            let covers = covers.count();
            assert!((least..=250).contains(&covers), "{ours} {theirs} rounds: {covers} of 250");
        }
    }

    #[test]
    fn rounds_of_two_runs_are_not_taken_for_pairs() {
        let (slow, fast) = ([90.0, 9.0, 900.0], [100.0, 10.0, 1000.0]);
        assert!(paired_ratio(&slow, &fast).unwrap().is_clear());
        let ratio = unpaired_ratio(&slow, &fast).unwrap();
        assert!(!ratio.is_clear() && (ratio.value - 0.9).abs() < 1e-9, "{ratio:?}");
        let clear = unpaired_ratio(&[48.0, 50.0, 52.0, 51.0], &[99.0, 100.0, 102.0]).unwrap();
        assert!(clear.high < 0.55 && clear.low > 0.45, "{clear:?}");
        assert_eq!(unpaired_ratio(&[], &[1.0]), None);
        assert_eq!(unpaired_ratio(&[0.0, 1.0], &[1.0]), None);
    }

    #[test]
    fn what_slows_both_in_a_round_does_not_show() {
        let ratio = paired_ratio(&[90.0, 9.0, 900.0], &[100.0, 10.0, 1000.0]).unwrap();
        assert!((ratio.high - ratio.low) < 1e-9 && (ratio.value - 0.9).abs() < 1e-9, "{ratio:?}");
        assert_eq!((ratio.rounds, ratio.judgement()), (3, Judgement::Misses));
        assert_eq!(Estimate { rounds: 2, ..ratio }.judgement(), Judgement::Undecided, "[STA-1]");
        assert_eq!(
            Some(ratio),
            paired_ratio(&[90.0, 9.0, 900.0], &[100.0, 10.0, 1000.0]),
            "[STA-3]"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        assert_eq!(paired_ratio(&[1.0], &[1.0, 2.0]), paired_ratio(&[1.0], &[1.0]));
        assert_eq!(paired_ratio(&[], &[]), None);
        assert_eq!(paired_ratio(&[1.0, 0.0], &[1.0, 1.0]), None);
        assert_eq!(ratio_to_best(&[1.0], &[[1.0]]), None);
        assert_eq!(median(&[]), None);
        assert_eq!((median(&[3.0, 1.0]), median(&[5.0, 1.0, 2.0])), (Some(2.0), Some(2.0)));
    }

    #[test]
    fn the_knee_is_where_the_best_is_reached() {
        let of = |curve: &[f64]| {
            let cells: Vec<Vec<f64>> =
                curve.iter().map(|rate| [0.99, 1.0, 1.01].map(|it| it * rate).to_vec()).collect();
            knee(&cells.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        assert_eq!(of(&[10.0, 30.0, 58.9, 60.0, 59.0]), Some(2));
        assert_eq!(of(&[10.0, 30.0, 58.0, 60.0, 59.0]), Some(3), "surely 3 % less");
        assert_eq!(of(&[10.0, 10.0, 10.0]), Some(0));
        assert_eq!(of(&[]), None);
    }
}
