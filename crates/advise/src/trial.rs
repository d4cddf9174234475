//! Evaluates the rounds of a search or a proof, and decides whether there are more: pure logic.
//!
//! A search has a ladder of values ("arms") and finds which is as good as the best; a proof has two and finds the gain
//! of the second. Both continue while that is undecided, and `prove` runs the queries. Worked example: 16, 64, 256 and
//! 1000 give 10, 19, 20 and 20 rows a second. After three rounds 16 is significantly far from the best and is dropped;
//! after some more 256, the first to reach 0.99 of the best, is chosen.
//!
//! Invariants:  [PRV-4] a gain is that of all queries together that can use the setting: among several, one gains by
//!              chance
//!              [PRV-6] the chosen value is near the best for each query, if any is: in a mean of several, those that
//!              gain nothing hide what one still gains
//!              [PRV-7] of two rounds, each of two arms comes first in one
//!              [PRV-8] whether a proof continues is decided once: decided after each round, and stopped at a gain, it
//!              finds twice as many false gains
//!              [PRV-9] a value that is significantly far from the best for a query gets no more rounds of a search,
//!              unless every value is far for some query

use std::collections::BTreeSet;

use serde::Serialize;

use super::query::Query;
use forebay_measure::statistics::{BOUND, Judgement, paired_ratio, ratio_to_best};

/// An arm whose whole interval is below this part of the best is far from it. Lower than `BOUND`, because it is checked
/// after each round [PRV-8], and a dropped arm does not come back.
const FAR: f64 = 0.85;

/// An arm that reaches this part of the best in the rounds of a search is as good. In 400 simulated searches, with a
/// noise of 10 % and 5 or 12 rounds, of values that truly give 0.5, 0.8, 0.94, 0.97 and 1, the smallest value chosen
/// this way has a mean of 0.987 and 0.992 of the best, and is below 0.95 in 7 and 2 of 100; the smallest whose interval
/// reaches the best has 0.976 and 0.977, and is below in 27 and 23.
const AS_GOOD: f64 = 0.99;

/// One run of a query.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Run {
    pub(super) per_s: f64,
    pub(super) seconds: f64,
    pub(super) rows: f64,
    pub(super) blocks_read: f64,
    pub(super) blocks_hit: f64,
}

/// Why queries are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Search,
    Proof,
    /// After --apply.
    After,
}

forebay_measure::shown_by_name!(Phase);

/// A query and its runs: for each arm, one per round.
pub(super) struct Trial<'q> {
    pub(super) query: &'q mut Query,
    pub(super) runs: Vec<Vec<Run>>,
    /// The arms that are still tried, in the order of the last round.
    pub(super) order: Vec<usize>,
    pub(super) left_out: bool,
    /// Set if the query takes too long with the new setting only: an upper bound of its speed, relative to the old one.
    pub(super) harm: Option<f64>,
}

impl<'q> Trial<'q> {
    pub(super) fn new(query: &'q mut Query, arms: usize) -> Trial<'q> {
        let (runs, order) = (vec![Vec::new(); arms], (0..arms).collect());
        Trial { query, runs, order, left_out: false, harm: None }
    }

    /// Its result.
    pub(super) fn ended(self) -> Rates<'q> {
        Rates { arms: self.arms(), of_arms: self.rates(), query: self.query, harm: self.harm }
    }

    /// The arms that are still tried.
    pub(super) fn arms(&self) -> Vec<usize> {
        let mut arms = self.order.clone();
        arms.sort_unstable();
        arms
    }

    /// The rates of these arms, per round.
    pub(super) fn rates(&self) -> Vec<Vec<f64>> {
        let of = |arm: usize| self.runs[arm].iter().map(|run| run.per_s).collect();
        self.arms().into_iter().map(of).collect()
    }

    /// The share of blocks, over all runs, that the server had in its buffers.
    pub(super) fn buffered(&self) -> f64 {
        let of = |blocks: fn(&Run) -> f64| self.runs.iter().flatten().map(blocks).sum::<f64>();
        let (hit, read) = (of(|run| run.blocks_hit), of(|run| run.blocks_read));
        hit / (hit + read).max(1.0)
    }

    /// Whether more rounds may change the decision: in a search whether an arm is near the best, in a proof whether the
    /// second is no slower than the first, and, if it seems faster, whether it is.
    pub(super) fn is_open(&self, phase: Phase) -> bool {
        let rates = self.rates();
        let is_unclear = |arm: &Vec<f64>| {
            ratio_to_best(arm, &rates)
                .is_none_or(|(_, ratio)| ratio.judgement() == Judgement::Undecided)
        };
        let is_open = match phase {
            Phase::Search => rates.iter().any(is_unclear),
            Phase::Proof | Phase::After => paired_ratio(&rates[1], &rates[0]).is_none_or(|ratio| {
                let may_gain = ratio.value > 1.0 / BOUND && ratio.low <= 1.0;
                ratio.judgement() != Judgement::Keeps || may_gain
            }),
        };
        !self.left_out && is_open
    }
}

/// The rates of a query: for each arm that was tried to the end, one per round.
pub(super) struct Rates<'q> {
    pub(super) query: &'q Query,
    pub(super) arms: Vec<usize>,
    pub(super) of_arms: Vec<Vec<f64>>,
    pub(super) harm: Option<f64>,
}

/// Whether there is another round after `round` rounds, at least `fewest` in all: in a search while it is undecided, in
/// a proof until the end if it is undecided after the fewest. Of comparisons of equals with a noise of 10 to 30 %, 3 to
/// 5 in 100 then seem a gain, and 5 to 10 if each round is checked; of gains of a tenth at 10 %, 95 in 100 are found
/// and not 85 (6,000 and 2,000 simulated; 5 to 20 rounds).
pub(super) fn goes_on(
    phase: Phase,
    round: u32,
    fewest: u32,
    is_open: impl FnOnce() -> bool,
) -> bool {
    round < fewest || phase != Phase::Search && round > fewest || is_open() // [PRV-8]
}

/// The `order` of arms in the next round. The second arm finds in the server's buffers what the first has read. So
/// every other round is reversed; otherwise all of a few rounds might favour one arm by chance [PRV-7].
pub(super) fn turn(order: &mut [usize], rounds_before: u32, random: &mut fastrand::Rng) {
    match rounds_before % 2 {
        0 => random.shuffle(order),
        _ => order.reverse(),
    }
}

/// Drops the arms that are significantly far from the best for some query, unless all of them are [PRV-9].
pub(super) fn narrow(trials: &mut [Trial<'_>]) {
    let mut far = BTreeSet::new();
    for trial in trials.iter().filter(|trial| !trial.left_out) {
        let rates = trial.rates();
        let is_far = |rates_of: &&Vec<f64>| {
            ratio_to_best(rates_of, &rates).is_some_and(|(_, ratio)| ratio.high < FAR)
        };
        far.extend(
            trial.arms().into_iter().zip(&rates).filter(|(_, of)| is_far(of)).map(|it| it.0),
        );
    }
    for trial in trials {
        if far.len() < trial.order.len() {
            trial.order.retain(|arm| !far.contains(arm));
        }
    }
}

/// The positions of the arms that are as good as the best: of those near the best for each query, or of all if none is,
/// those that reach [`AS_GOOD`] of the best of them for all queries together [PRV-6].
pub(super) fn good(found: &[&Rates<'_>]) -> Vec<usize> {
    let together = together(found);
    let is_near = |arm: &usize| {
        let ratio = |rates: &&Rates<'_>| ratio_to_best(&rates.of_arms[*arm], &rates.of_arms);
        found.iter().all(|rates| ratio(rates).is_some_and(|(_, ratio)| ratio.value >= BOUND))
    };
    let all = 0..together.len();
    let mut arms: Vec<usize> = all.clone().filter(is_near).collect();
    if arms.is_empty() {
        arms.extend(all);
    }
    let mean = |arm: usize| together[arm].iter().map(|rate| rate.ln()).sum::<f64>();
    let best = arms.iter().copied().max_by(|&a, &b| mean(a).total_cmp(&mean(b)));
    let ratio = |arm: usize| paired_ratio(&together[arm], &together[best?]);
    arms.retain(|&arm| ratio(arm).is_some_and(|ratio| ratio.value >= AS_GOOD));
    arms
}

/// For each arm the geometric mean of all queries' rates, per round, so that each query counts the same [PRV-4].
pub(super) fn together(found: &[&Rates<'_>]) -> Vec<Vec<f64>> {
    let arms = found.first().map_or(0, |rates| rates.of_arms.len());
    let rounds = found.iter().map(|rates| rates.of_arms[0].len()).min().unwrap_or(0);
    let mean = |arm: usize, round: usize| {
        let logs = found.iter().map(|rates| rates.of_arms[arm][round].ln());
        (logs.sum::<f64>() / found.len() as f64).exp()
    };
    (0..arms).map(|arm| (0..rounds).map(|round| mean(arm, round)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{self, Shape};

    #[test]
    fn prv_4_one_query_of_many_that_gains_by_chance_is_no_gain() {
        let query = Query::made(Shape::Bitmap, &query::sample::table()).unwrap();
        let rates = |gain: f64| Rates {
            query: &query,
            arms: vec![0, 1],
            of_arms: vec![vec![10.0; 3], vec![10.0 * gain; 3]],
            harm: None,
        };
        let all = [rates(1.1), rates(0.96), rates(0.98), rates(0.99)];
        let gain = |all: &[&Rates<'_>]| {
            let arms = together(all);
            paired_ratio(&arms[1], &arms[0]).unwrap().value
        };
        assert!((gain(&[&all[0]]) - 1.1).abs() < 1e-9);
        assert!(gain(&all.iter().collect::<Vec<_>>()) < 1.01, "[PRV-4]");
        assert!(together(&[]).is_empty());
    }

    #[test]
    fn prv_7_of_two_rounds_each_arm_comes_first_in_one() {
        let (mut order, mut random) = (vec![0, 1], fastrand::Rng::with_seed(1));
        let firsts: Vec<usize> = (0..20)
            .map(|round| {
                turn(&mut order, round, &mut random);
                order[0]
            })
            .collect();
        assert!(firsts.chunks(2).all(|pair| pair[0] != pair[1]), "[PRV-7] {firsts:?}");
        assert!(firsts.chunks(2).any(|pair| pair[0] == 1), "{firsts:?}");
        assert!(firsts.chunks(2).any(|pair| pair[0] == 0), "{firsts:?}");
    }

    #[test]
    fn prv_8_whether_a_proof_goes_on_is_asked_once() {
        let made = |phase, is_open: &dyn Fn(u32) -> bool| {
            let asked = std::cell::Cell::new(0);
            let is_open = |round| {
                asked.set(asked.get() + 1);
                is_open(round)
            };
            let rounds = (0..20).take_while(|&round| goes_on(phase, round, 5, || is_open(round)));
            (rounds.count(), asked.get())
        };
        for phase in [Phase::Proof, Phase::After] {
            assert_eq!(made(phase, &|round| round < 7), (20, 1), "[PRV-8]");
            assert_eq!(made(phase, &|_| false), (5, 1));
        }
        assert_eq!(made(Phase::Search, &|round| round < 7), (7, 3));
    }

    #[test]
    fn prv_9_what_is_surely_far_from_the_best_is_not_tried_any_more() {
        let query = Query::made(Shape::Bitmap, &query::sample::table()).unwrap();
        let narrowed = |all: &[[f64; 3]]| {
            let mut queries = vec![query.clone(); all.len()];
            let mut trials: Vec<Trial<'_>> = queries.iter_mut().zip(all).map(trial_of).collect();
            narrow(&mut trials);
            let arms: BTreeSet<Vec<usize>> = trials.iter().map(Trial::arms).collect();
            assert_eq!(arms.len(), 1, "all queries try the same arms");
            arms.into_iter().next().unwrap()
        };
        assert_eq!(narrowed(&[[10.0, 20.0, 19.5]]), [1, 2], "[PRV-9]");
        assert_eq!(narrowed(&[[10.0, 20.0, 19.5], [10.0, 10.0, 5.0]]), [1]);
        assert_eq!(narrowed(&[[10.0, 20.0, 19.5], [20.0, 10.0, 10.0]]), [0, 1, 2]);
    }

    /// A trial of three rounds in which each arm has a constant rate.
    fn trial_of<'q>((query, of_arms): (&'q mut Query, &[f64; 3])) -> Trial<'q> {
        let run =
            |per_s| Run { per_s, seconds: 1.0, rows: per_s, blocks_read: 0.0, blocks_hit: 0.0 };
        let runs = of_arms.map(|rate| vec![run(rate); 3]).to_vec();
        Trial { runs, order: vec![2, 0, 1], ..Trial::new(query, 3) }
    }

    #[test]
    fn prv_6_a_value_is_right_for_each_query_where_one_is() {
        let query = Query::made(Shape::Bitmap, &query::sample::table()).unwrap();
        let rates = |of_arms: [f64; 3]| Rates {
            query: &query,
            arms: vec![0, 1, 2],
            of_arms: of_arms.map(|rate| vec![rate; 3]).to_vec(),
            harm: None,
        };
        let [flat, gains, harmed] = [[10.0; 3], [10.0, 19.0, 21.0], [10.0, 9.9, 5.0]].map(rates);
        assert_eq!(good(&[&flat]), [0, 1, 2]);
        assert_eq!(good(&[&flat, &gains]), [2], "[PRV-6] together 19 are 0.95 of 21");
        assert_eq!(good(&[&harmed, &gains]), [1], "none is right for both");
        assert!(good(&[]).is_empty());
    }
}
