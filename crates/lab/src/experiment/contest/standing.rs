//! Standings: what came of a row, and whether an entrant is as fast as the best of the others.
//!
//! Rates are compared round by round, and only of entrants that were measured in every round of the row
//! from the state that it asks for: what was not cold has no rates.

use std::fmt;
use std::time::Duration;

use forebay::ReadaheadStrategy;

use super::schedule::Due;
use super::{Entrant, Row, Tally};
use crate::experiment::tally::Round;
use crate::statistics::{Estimate, Judgement, median, paired_ratio, ratio_to_best};
use crate::units::typed_size;

/// By how much wider an interval is for a row to be closed before time is up. Source: S. J. Pocock, "Group
/// Sequential Methods", 1977: 2.36 instead of 1.96 standard errors for four looks; bootstrap intervals of
/// few rounds are a little narrow.
const WIDENING: f64 = 1.3;

/// What came of a row.
#[derive(Debug)]
pub(in crate::experiment) struct Standing {
    pub(in crate::experiment) row: Row,
    /// While it was measured, in bytes; `None` where it cannot be told.
    pub(in crate::experiment) device_readahead_bytes: Option<u64>,
    /// One for each entrant, in their order.
    pub(in crate::experiment) tallies: Vec<Tally>,
    /// Rounds that ended, and what they took.
    pub(in crate::experiment) rounds: u32,
    pub(super) took: Duration,
}

/// An entrant beside a rival.
#[derive(Debug, Clone, Copy)]
pub(in crate::experiment) struct Comparison {
    pub(in crate::experiment) entrant: Entrant,
    pub(in crate::experiment) rival: Entrant,
    /// What its rate is of the rival's.
    pub(in crate::experiment) ratio: Estimate,
}

/// An interval so much wider, in logarithms, that a few looks at growing rounds are as rarely wrong as one.
fn widened(Estimate { value, low, high, rounds }: Estimate) -> Estimate {
    let wider = |end: f64| value * (end / value).powf(WIDENING);
    Estimate { value, low: wider(low), high: wider(high), rounds }
}

impl Standing {
    pub(in crate::experiment) fn new(row: Row) -> Standing {
        let tallies = row.entrants.iter().copied().map(Tally::new).collect();
        Standing { row, device_readahead_bytes: None, tallies, rounds: 0, took: Duration::ZERO }
    }

    /// Of a row that cannot be measured.
    pub(in crate::experiment) fn unmeasured(row: Row, why: &str) -> Standing {
        let mut standing = Standing::new(row);
        standing.tallies.iter_mut().for_each(|tally| tally.failure = Some(why.to_owned()));
        standing
    }

    pub(super) fn due(&self) -> Due {
        let surely = |it: Comparison| widened(it.ratio).judgement();
        let is_open = self.adaptive().is_some_and(|it| surely(it) == Judgement::Undecided);
        Due { rounds: self.rounds, is_open, cost: self.took / self.rounds.max(1) }
    }

    /// Blocks per second in each round; `None` if they cannot be compared with others.
    pub(in crate::experiment) fn rates(&self, entrant: Entrant) -> Option<Vec<f64>> {
        let tally = self.tallies.iter().find(|tally| tally.cell == entrant)?;
        let is_whole = self.rounds > 0 && tally.rounds.len() == self.rounds as usize;
        (is_whole && tally.cold).then(|| tally.rounds.iter().map(Round::rate).collect())
    }

    /// The median rate of each entrant as a part of the highest of them, in their order.
    pub(in crate::experiment) fn ratios_to_best(&self) -> Vec<Option<f64>> {
        let rates = |&entrant: &Entrant| self.rates(entrant).and_then(|rates| median(&rates));
        let rates: Vec<Option<f64>> = self.row.entrants.iter().map(rates).collect();
        let best = rates.iter().flatten().copied().fold(0.0, f64::max);
        rates.into_iter().map(|rate| rate.map(|rate| rate / best)).collect()
    }

    /// `entrant` beside the best of those `rivals` whose rates are known.
    pub(in crate::experiment) fn compare(
        &self,
        entrant: Entrant,
        rivals: impl Fn(Entrant) -> bool,
    ) -> Option<Comparison> {
        let own = self.rates(entrant)?;
        let others = self.row.entrants.iter().copied().filter(|&it| it != entrant && rivals(it));
        let others: Vec<(Entrant, Vec<f64>)> =
            others.filter_map(|it| Some((it, self.rates(it)?))).collect();
        let rates: Vec<&Vec<f64>> = others.iter().map(|(_, rates)| rates).collect();
        // One round cannot choose a rival for another one; what it tells is never a verdict.
        let (best, ratio) = ratio_to_best(&own, &rates).or_else(|| {
            let best = (0..rates.len()).max_by(|&a, &b| rates[a][0].total_cmp(&rates[b][0]))?;
            Some((best, paired_ratio(&own, rates[best])?))
        })?;
        Some(Comparison { entrant, rival: others[best].0, ratio })
    }

    /// `adaptive` beside the best other stream.
    pub(in crate::experiment) fn adaptive(&self) -> Option<Comparison> {
        let is_stream = |entrant| matches!(entrant, Entrant::Stream(_));
        self.compare(Entrant::Stream(ReadaheadStrategy::Adaptive), is_stream)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.pattern, self.state, self.cache)?;
        match self.device_readahead {
            Some(bytes) => write!(out, " {}", typed_size(bytes)),
            None => Ok(()),
        }
    }
}
