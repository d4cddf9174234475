//! Results of a row, and whether a variant is as fast as the best of the others.
//!
//! Rates are compared round by round, and only of variants that were measured in every round of the row
//! from the row's cache state: a variant that was not cold has no rates.

use forebay::ReadaheadStrategy;

use super::{Row, Samples, Variant};
use crate::experiment::samples::Round;
use forebay_measure::statistics::{Estimate, Floor, Judge, Judgement, median};

/// The result of a row.
#[derive(Debug)]
pub(in crate::experiment) struct RowResult {
    pub(in crate::experiment) row: Row,
    /// While it was measured, in bytes; `None` where it is unknown.
    pub(in crate::experiment) device_readahead_bytes: Option<u64>,
    /// One for each variant, in their order.
    pub(in crate::experiment) measured: Vec<Samples>,
}

/// A variant compared with a rival.
#[derive(Debug, Clone, Copy)]
pub(in crate::experiment) struct Comparison {
    pub(in crate::experiment) variant: Variant,
    pub(in crate::experiment) rival: Variant,
    /// Its rate divided by the rival's.
    pub(in crate::experiment) ratio: Estimate,
}

/// The judge of `results`, with `each` comparisons in each of them and nothing smaller than `floor`.
pub(in crate::experiment) fn judge(results: &[RowResult], each: usize, floor: Floor) -> Judge {
    let rates = |result: &RowResult| {
        result.row.variants.iter().filter_map(|&variant| result.rates(variant)).collect()
    };
    let rates: Vec<Vec<Vec<f64>>> = results.iter().map(rates).collect();
    Judge::new(&rates, results.len() * each, floor)
}

impl RowResult {
    pub(in crate::experiment) fn new(row: Row) -> RowResult {
        let measured = row.variants.iter().copied().map(Samples::new).collect();
        RowResult { row, device_readahead_bytes: None, measured }
    }

    /// Of a row that cannot be measured.
    pub(in crate::experiment) fn unmeasured(row: Row, why: &str) -> RowResult {
        let mut result = RowResult::new(row);
        result.measured.iter_mut().for_each(|samples| samples.failure = Some(why.to_owned()));
        result
    }

    /// Whether more rounds could show if `adaptive` is as fast as the best of the others.
    pub(super) fn is_open(&self, judge: &Judge) -> bool {
        self.adaptive(judge).is_some_and(|it| it.ratio.judgement() == Judgement::Undecided)
    }

    /// Blocks per second in each round; `None` if they cannot be compared with others.
    pub(in crate::experiment) fn rates(&self, variant: Variant) -> Option<Vec<f64>> {
        let samples = self.measured.iter().find(|samples| samples.cell == variant)?;
        let rounds = self.measured.iter().map(|samples| samples.rounds.len()).max();
        let is_whole = !samples.rounds.is_empty() && Some(samples.rounds.len()) == rounds;
        (is_whole && samples.cold).then(|| samples.rounds.iter().map(Round::rate).collect())
    }

    /// The median rate of each variant as a part of the highest of them, in their order.
    pub(in crate::experiment) fn ratios_to_best(&self) -> Vec<Option<f64>> {
        let rates = |&variant: &Variant| self.rates(variant).and_then(|rates| median(&rates));
        let rates: Vec<Option<f64>> = self.row.variants.iter().map(rates).collect();
        let best = rates.iter().flatten().copied().fold(0.0, f64::max);
        rates.into_iter().map(|rate| rate.map(|rate| rate / best)).collect()
    }

    /// Compares `variant` with the best of those `rivals` whose rates are known.
    pub(in crate::experiment) fn compare(
        &self,
        judge: &Judge,
        variant: Variant,
        rivals: impl Fn(Variant) -> bool,
    ) -> Option<Comparison> {
        let (own, others) = (self.rates(variant)?, self.rivals(variant, rivals));
        let judge = self.judge(judge);
        let rates: Vec<&Vec<f64>> = others.iter().map(|(_, rates)| rates).collect();
        // One round cannot choose a rival for another one; its result is never a verdict.
        let (best, ratio) = judge.ratio_to_best(&own, &rates).or_else(|| {
            let best = (0..rates.len()).max_by(|&a, &b| rates[a][0].total_cmp(&rates[b][0]))?;
            Some((best, judge.ratio(&own, rates[best])?))
        })?;
        Some(Comparison { variant, rival: others[best].0, ratio })
    }

    /// Compares `variant` with the one of the `rivals` that is the fastest over all rounds. Only this can show a gain:
    /// [`Judge::ratio_to_best`] chooses a rival for each round, which is a little too slow.
    pub(in crate::experiment) fn compare_with_one(
        &self,
        judge: &Judge,
        variant: Variant,
        rivals: impl Fn(Variant) -> bool,
    ) -> Option<Comparison> {
        let (own, others) = (self.rates(variant)?, self.rivals(variant, rivals));
        let mean = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).sum::<f64>();
        let best = others.iter().max_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?;
        let ratio = self.judge(judge).ratio(&own, &best.1)?;
        Some(Comparison { variant, rival: best.0, ratio })
    }

    /// The variants other than `variant` for which `rivals` is true and whose rates are known.
    fn rivals(
        &self,
        variant: Variant,
        rivals: impl Fn(Variant) -> bool,
    ) -> Vec<(Variant, Vec<f64>)> {
        let others = self.row.variants.iter().copied().filter(|&it| it != variant && rivals(it));
        others.filter_map(|it| Some((it, self.rates(it)?))).collect()
    }

    /// `judge` with the variance of this row.
    fn judge(&self, judge: &Judge) -> Judge {
        let all = self.row.variants.iter().filter_map(|&it| self.rates(it));
        judge.within(&all.collect::<Vec<_>>())
    }

    /// Compares `adaptive` with the best other stream.
    pub(in crate::experiment) fn adaptive(&self, judge: &Judge) -> Option<Comparison> {
        let is_stream = |variant| matches!(variant, Variant::Stream(_));
        self.compare(judge, Variant::Stream(ReadaheadStrategy::Adaptive), is_stream)
    }
}
