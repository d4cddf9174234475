//! Judge: the comparisons of one experiment, decided with one error rate for all of them.
//!
//! An experiment compares dozens of pairs, and looks at them several times while rounds are added. At 95 % for each
//! comparison and look, every other run would report a difference where there is none. Here all intervals of an
//! experiment, at all looks, cover the truth together in 99 runs of 100, and those of a run of five experiments in 95.
//! So a decision at one look stays valid, and rounds may be added, or end with the time, whatever their results so far.
//!
//! Three rounds say little about how far rounds vary: their own variance may be near 0 by chance. So the variance of a
//! comparison is shrunk towards the mean of its series (of its experiment, if that is a pair), which weighs as much as
//! four rounds more: some cells of a series vary two or three times as much as others, which corresponds to a weight
//! of four.
//!
//! Worked example: 40 comparisons, three rounds, cells that vary by 5 %. The ratio of two cells has a standard error
//! of 4 %; with 6 degrees of freedom 10.6 such errors are exceeded in 1 of 48,000 cases. So 1.60 is a gain, and 1.40 is
//! undecided. After 24 rounds 1.13 is a gain.
//!
//! Invariants:  [JUD-1] all comparisons of an experiment, at all looks, are outside their intervals in at most
//!              [`ERROR`] of the runs, whatever ends the rounds
//!              [JUD-2] no interval is narrower than the noise floor, so nothing is decided that is smaller
//! Source:      O. J. Dunn, "Multiple Comparisons among Means", 1961; G. K. Smyth, "Linear Models and Empirical Bayes
//!              Methods for Assessing Differential Expression", 2004, for the variance (its moderated t).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Estimate, logs, logs_to_best, mean, paired_logs};

/// The part of the runs of an experiment that may report a difference that does not exist. Five experiments are a run
/// of the laboratory.
const ERROR: f64 = 0.01;

/// Maximum number of looks at the rounds of one series.
pub const LOOKS_MAX: u32 = 6;

/// The degrees of freedom of the experiment's own variance, relative to that of a comparison.
const PRIOR_FREEDOM: f64 = 4.0;

/// The difference between two equal variants: 0.05 is 5 %. 0 where it was not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Floor(pub f64);

/// Compares the rates of one experiment.
#[derive(Debug, Clone, Copy)]
pub struct Judge {
    /// Probability on each side of an interval.
    tail: f64,
    /// Variance of the logarithm of a ratio in one round, the mean of the pairs of a series or an experiment.
    variance: f64,
    /// Degrees of freedom that this rests on.
    freedom: f64,
    /// Smallest half width of an interval, in logarithms.
    width_min: f64,
}

impl Judge {
    /// For an experiment with at most this many `comparisons`, each at all its looks. `series`: rows that were measured
    /// side by side, each with its rates.
    pub fn new(series: &[Vec<Vec<f64>>], comparisons: usize, floor: Floor) -> Judge {
        let tail = ERROR / (2.0 * comparisons.max(1) as f64 * f64::from(LOOKS_MAX)); // [JUD-1]
        let judge = Judge { tail, variance: 0.0, freedom: 0.0, width_min: floor.0.ln_1p() };
        judge.with_variance(series)
    }

    /// The same for the `rows` of one series, by how far they vary; a pair varies as the experiment does.
    #[must_use]
    pub fn within(self, rows: &[Vec<f64>]) -> Judge {
        if rows.len() > 2 { self.with_variance(&[rows.to_vec()]) } else { self }
    }

    fn with_variance(self, series: &[Vec<Vec<f64>>]) -> Judge {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for rows in series {
            // A row that failed has fewer rounds, and says nothing about those that follow.
            let rounds = rows.iter().map(Vec::len).max().unwrap_or(0);
            let whole = rows.iter().filter(|row| row.len() == rounds);
            let rows: Vec<Vec<f64>> = whole.map(|row| logs(row)).collect();
            if rows.len() < 2 || rounds < 2 || rows.iter().flatten().any(|log| !log.is_finite()) {
                continue;
            }
            // The residual of a rate without its row's and its round's mean.
            let of_round = |round: usize| rows.iter().map(|row| row[round]).sum::<f64>();
            let of_rounds: Vec<f64> =
                (0..rounds).map(|round| of_round(round) / rows.len() as f64).collect();
            let all = mean(&of_rounds);
            for row in &rows {
                let own = mean(row) - all;
                let left = row.iter().zip(&of_rounds).map(|(log, of)| (log - of - own).powi(2));
                squares += left.sum::<f64>();
            }
            freedom += ((rows.len() - 1) * (rounds - 1)) as f64;
        }
        // A pair has the variances of both.
        let variance = if freedom > 0.0 { 2.0 * squares / freedom } else { 0.0 };
        Judge { variance, freedom, ..self }
    }

    /// The same for ratios that vary for a reason other than rounds, such as from pattern to pattern.
    #[must_use]
    pub fn without_prior(self) -> Judge {
        Judge { freedom: 0.0, ..self }
    }

    /// The ratio of `variant` to `rival`, by the rounds that both have.
    pub fn ratio(&self, variant: &[f64], rival: &[f64]) -> Option<Estimate> {
        self.estimate(&paired_logs(variant, rival))
    }

    /// The ratio of `variant` to the best of `rivals`, chosen as in [`ratio_to_best`](super::ratio_to_best). That
    /// decides whether it misses its bound. It does not decide a gain, for which the rival must be the same in all
    /// rounds: a rival that is chosen for each round is a little too slow.
    pub fn ratio_to_best<R: AsRef<[f64]>>(
        &self,
        variant: &[f64],
        rivals: &[R],
    ) -> Option<(usize, Estimate)> {
        let (best, logs) = logs_to_best(variant, rivals)?;
        Some((best, self.estimate(&logs)?))
    }

    /// The knee of `cells`, as in [`knee`](super::knee).
    pub fn knee<R: AsRef<[f64]>>(&self, cells: &[R]) -> Option<usize> {
        cells.iter().position(|cell| {
            self.ratio_to_best(cell.as_ref(), cells).is_some_and(|(_, it)| it.is_near_best())
        })
    }

    /// The ratio whose logarithm has these values in its rounds.
    fn estimate(&self, logs: &[f64]) -> Option<Estimate> {
        if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
            return None;
        }
        let (rounds, value) = (logs.len(), mean(logs));
        let half = self.half_width(logs, value).max(self.width_min); // [JUD-2]
        let [value, low, high] = [value, value - half, value + half].map(f64::exp);
        Some(Estimate { value, low, high, rounds })
    }

    /// 0 with one round, which is not enough for a verdict.
    fn half_width(&self, logs: &[f64], value: f64) -> f64 {
        let own = logs.len() as f64 - 1.0;
        // The comparison's own contribution to the mean of all is not counted twice.
        let prior = PRIOR_FREEDOM.min(self.freedom - own).max(0.0);
        let squares: f64 = logs.iter().map(|log| (log - value).powi(2)).sum();
        let variance = (prior * self.variance + squares) / (prior + own);
        if own < 1.0 || variance == 0.0 {
            return 0.0;
        }
        // Refused for a freedom of 0 only.
        let errors = StudentsT::new(0.0, 1.0, prior + own)
            .map_or(f64::INFINITY, |students| -students.inverse_cdf(self.tail));
        errors * (variance / logs.len() as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Judgement;

    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    /// `rows` rows of equal rates that vary by `noise`, all of them slowed down alike in a round.
    fn equals(random: &mut fastrand::Rng, rows: usize, rounds: usize, noise: f64) -> Vec<Vec<f64>> {
        let slow: Vec<f64> = (0..rounds).map(|_| 0.3 * normal(random)).collect();
        let row = |random: &mut fastrand::Rng| {
            slow.iter().map(|slow| (slow + noise * normal(random)).exp()).collect()
        };
        (0..rows).map(|_| row(random)).collect()
    }

    #[test]
    fn the_worked_example_is_right() {
        let wide = |rounds: usize| {
            let judge =
                Judge { tail: 0.01 / 480.0, variance: 0.005, freedom: 99.0, width_min: 0.0 };
            let deviation = (0.005_f64 * (rounds - 1) as f64 / rounds as f64).sqrt();
            let logs: Vec<f64> =
                (0..rounds).map(|at| if at % 2 == 0 { deviation } else { -deviation }).collect();
            judge.half_width(&logs, mean(&logs))
        };
        assert!((0.38..0.47).contains(&wide(3)), "{}", wide(3));
        assert!((0.06..0.08).contains(&wide(24)), "{}", wide(24));
    }

    /// In how many of 500 runs on a noisy disk one of seven equals is outside its interval at some look; `tail`
    /// replaces the one that follows from their number.
    fn outside(tail: Option<f64>) -> usize {
        let mut random = fastrand::Rng::with_seed(5);
        let is_outside = |_: &i32| {
            let rows = equals(&mut random, 8, 24, 0.5);
            [3, 6, 12, 24].into_iter().any(|rounds| {
                let rows: Vec<Vec<f64>> = rows.iter().map(|row| row[..rounds].to_vec()).collect();
                let judge = Judge::new(std::slice::from_ref(&rows), 7, Floor(0.0));
                let judge = Judge { tail: tail.unwrap_or(judge.tail), ..judge };
                rows[1..].iter().any(|row| judge.ratio(row, &rows[0]).unwrap().is_clear())
            })
        };
        (0..500).filter(is_outside).count()
    }

    #[test]
    fn jud_1_of_many_equals_hardly_any_run_has_one_outside_its_interval() {
        let at_once = outside(None);
        assert!(at_once <= 5, "[JUD-1] {at_once} of 500 runs");
        let each = outside(Some(0.025));
        assert!(each >= 150, "at 95 % for each comparison and look: {each} of 500 runs");
    }

    #[test]
    fn rounds_that_agree_by_chance_do_not_decide() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut rows = equals(&mut random, 8, 3, 0.2);
        rows[1] = rows[0].iter().map(|rate| rate * 0.8).collect();
        let judge = Judge::new(&[rows.clone()], 7, Floor(0.0));
        assert_eq!(judge.ratio(&rows[1], &rows[0]).unwrap().judgement(), Judgement::Undecided);
        let alone = judge.without_prior().ratio(&rows[1], &rows[0]).unwrap();
        assert_eq!(alone.judgement(), Judgement::Misses, "by their own variance");
    }

    #[test]
    fn a_row_that_failed_leaves_the_variance_of_the_others() {
        let mut random = fastrand::Rng::with_seed(3);
        let rows = equals(&mut random, 8, 6, 0.2);
        let with = |rounds: usize| {
            let rows = [&rows[..], &[vec![100.0; rounds]]].concat();
            Judge::new(&[rows], 7, Floor(0.0))
        };
        let expected = Judge::new(std::slice::from_ref(&rows), 7, Floor(0.0));
        for failed in [with(0), with(1), with(4)] {
            assert_eq!((failed.variance, failed.freedom), (expected.variance, expected.freedom));
        }
        assert!(expected.freedom > 0.0);
    }

    #[test]
    fn jud_2_nothing_smaller_than_the_noise_floor_is_decided() {
        let rows = [vec![100.0; 5], vec![118.0; 5]];
        let gain = |floor| {
            let judge = Judge::new(&[rows.to_vec()], 1, Floor(floor));
            judge.ratio(&rows[1], &rows[0]).unwrap()
        };
        assert!(gain(0.1).is_gain() && !gain(0.3).is_gain(), "[JUD-2]");
        assert!(gain(0.3).low < 1.0, "[JUD-2] and the interval shows it");
    }

    #[test]
    fn one_round_is_a_figure_and_no_verdict() {
        let judge = Judge::new(&[], 3, Floor(0.0));
        let ratio = judge.ratio(&[50.0], &[100.0]).unwrap();
        assert_eq!((ratio.value, ratio.judgement()), (0.5, Judgement::Undecided));
        assert_eq!(judge.ratio(&[], &[]), None);
        assert_eq!(judge.ratio(&[1.0, 0.0], &[1.0, 1.0]), None);
    }
}
