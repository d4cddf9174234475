//! What the rounds of `checkpoint` say: what order and coalescing are worth, and what pacing is.
//!
//! There is no setting to advise: PostgreSQL spreads checkpoints over 0.9 of their interval since version
//! 14, and Forebay's defaults are what is measured to be best here.

use super::record::{Tally, baseline};
use super::{Cell, Dirty, NAME, Order, Settings};
use crate::report::{Conclusion, Verdict};
use crate::statistics::{Estimate, Judgement, ROUNDS_MIN, judge};

/// Two tablespaces end together when the first has taken this part of the second's time.
const TOGETHER: f64 = 0.9;

/// A comparison of two cells.
pub(super) struct Comparison<'t> {
    pub(super) entrant: &'t Tally,
    pub(super) rival: &'t Tally,
    /// How many times as well the entrant does, in `measure`.
    ratio: Estimate,
    rounds: usize,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The best way of writing against one write after another: the time to the end of the sync.
    Writing,
    /// A spread checkpoint against one at once: the 99th percentile of reads in the interval.
    Pacing,
}

impl Comparison<'_> {
    pub(super) fn is_undecided(&self) -> bool {
        self.judgement() == Judgement::Undecided
    }

    fn judgement(&self) -> Judgement {
        judge(self.ratio, self.rounds)
    }

    fn row(&self) -> String {
        let Cell { dirty, cache, .. } = self.entrant.cell;
        match self.what {
            What::Writing => format!("writing {dirty} {cache}"),
            What::Pacing => format!("reads beside {dirty} {cache}"),
        }
    }

    fn verdict(&self) -> Verdict {
        let names = match self.what {
            What::Writing => ["balanced, coalesced", "arrival, one by one"],
            What::Pacing => ["spread", "at once"],
        };
        let Estimate { value, low, high } = self.ratio;
        let [entrant, rival] = names.map(str::to_owned);
        let (experiment, row) = (NAME.to_owned(), self.row());
        Verdict {
            experiment,
            row,
            entrant,
            rival,
            ratio: value,
            low,
            high,
            verdict: self.judgement(),
        }
    }
}

/// Every comparison that the rounds allow so far.
pub(super) fn comparisons<'t>(settings: &Settings, tallies: &'t [Tally]) -> Vec<Comparison<'t>> {
    let best = tallies.iter().filter(|tally| settings.is_best(&tally.cell));
    best.filter_map(|entrant| {
        let cell = entrant.cell;
        let (rival, what) = match (cell.is_timed(), cell.paced && cell.foreground) {
            (false, _) => (baseline(tallies, &cell)?, What::Writing),
            (true, true) => {
                let at_once = Cell { paced: false, ..cell };
                (tallies.iter().find(|tally| tally.cell == at_once)?, What::Pacing)
            }
            (true, false) => return None,
        };
        let (of_rival, rounds) = entrant.ratio_to(rival, |round| match what {
            What::Writing => Some(round.seconds),
            What::Pacing => round.readers.as_ref()?.foreground_interval_us_p99,
        })?;
        Some(Comparison { entrant, rival, ratio: of_rival.inverse(), rounds, what })
    })
    .collect()
}

/// Verdicts and sentences, the most useful first.
pub(super) fn draw(settings: &Settings, tallies: &[Tally]) -> (Vec<Verdict>, Vec<Conclusion>) {
    let compared = comparisons(settings, tallies);
    let (enough, few): (Vec<_>, Vec<_>) =
        compared.iter().partition(|compared| compared.rounds >= ROUNDS_MIN);
    let mut told: Vec<String> = enough.into_iter().map(sentence).collect();
    if let Some(rounds) = few.iter().map(|compared| compared.rounds).max() {
        let rows: Vec<String> = few.iter().map(|compared| compared.row()).collect();
        told.push(format!("Undecided, as {rounds} rounds are too few: {}.", rows.join(", ")));
    }
    told.extend(settings.caches.iter().filter_map(|&cache| {
        let of = |order| {
            tallies.iter().filter(|tally| tally.cell.cache == cache).find(|tally| {
                let Cell { dirty, elevator, combine, .. } = tally.cell;
                dirty == Dirty::TwoTablespaces && elevator == order && combine && !tally.cell.is_timed()
            })
        };
        let share = |tally: &Tally| {
            tally.median(|round| match round.tablespace_seconds[..] {
                [a, b] => Some(a.min(b) / a.max(b)).filter(|share| share.is_finite()),
                _ => None,
            })
        };
        let (sorted, balanced) = (share(of(Order::Sorted)?)?, share(of(Order::Balanced)?)?);
        let lead = if balanced >= TOGETHER && sorted < TOGETHER {
            "Balance tablespaces"
        } else {
            "Of two tablespaces"
        };
        Some(format!(
            "{lead} ({cache}): one is done after {:.0} % of the other's time when balanced, after {:.0} % \
             when sorted.",
            balanced * 100.0,
            sorted * 100.0
        ))
    }));
    if told.is_empty() {
        told.push("No conclusion: nothing that could be compared was measured.".to_owned());
    }
    let conclusion = |sentence| Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    };
    (compared.iter().map(Comparison::verdict).collect(), told.into_iter().map(conclusion).collect())
}

fn sentence(compared: &Comparison<'_>) -> String {
    let Comparison { ratio, rounds, entrant, .. } = compared;
    let Cell { dirty, cache, .. } = entrant.cell;
    let Estimate { value, low, high } = ratio;
    let times = format!("{value:.2} times ({low:.2} to {high:.2}, {rounds} rounds)");
    match (compared.what, ratio.low > 1.0, ratio.high < 1.0) {
        (What::Writing, true, _) => format!(
            "A checkpoint in the disk's order with neighbours coalesced is {times} as fast as one page after \
             another ({dirty} pages, {cache})."
        ),
        (What::Writing, _, _) => format!(
            "Order and coalescing gain nothing that could be told from noise: {times} as fast as one page \
             after another ({dirty} pages, {cache})."
        ),
        (What::Pacing, true, _) => format!(
            "Spread checkpoints over their interval: the 99th percentile of reads beside one at once is \
             {times} as long ({cache})."
        ),
        (What::Pacing, _, true) => format!(
            "Spreading a checkpoint costs readers here: their 99th percentile beside one at once is only \
             {times} as long ({cache})."
        ),
        (What::Pacing, _, _) => format!(
            "Whether spreading a checkpoint helps readers is undecided: their 99th percentile beside one at \
             once is {times} as long ({cache})."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside, settings, written};
    use super::*;

    fn drawn(tallies: &[Tally]) -> (Vec<Verdict>, String) {
        let (verdicts, told) = draw(&settings(), tallies);
        let told: Vec<String> = told.into_iter().map(|it| it.sentence).collect();
        (verdicts, told.join("\n"))
    }

    #[test]
    fn order_and_coalescing_are_praised_where_they_surely_gain() {
        let (verdicts, told) = drawn(&[
            written(Dirty::Clustered, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Clustered, true, &[1.8, 2.0, 1.9]),
            written(Dirty::Uniform, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Uniform, true, &[7.0, 12.0, 9.5]),
        ]);
        assert!(told.contains("is 5.00 times (5.00 to 5.00, 3 rounds) as fast"), "{told}");
        assert!(told.contains("told from noise: 1.02 times"), "{told}");
        assert_eq!(verdicts[0].row, "writing clustered direct");
        assert_eq!(verdicts.len(), 2);
        assert!((verdicts[0].ratio - 5.0).abs() < 1e-9);
    }

    /// Once said of such rounds: "Spread checkpoints: 2.2 times ... at once 0.5 times", and
    /// checkpoint_completion_target 0.9 advised. Each cell was compared with a baseline of its own, 2,269
    /// and 242 us, by the 99th percentile of 214 reads.
    #[test]
    fn readers_beside_a_spread_checkpoint_are_compared_with_those_beside_one_at_once() {
        let told = drawn(&[beside(true, &[532.0]), beside(false, &[1135.0])]).1;
        assert_eq!(told, "Undecided, as 1 rounds are too few: reads beside uniform direct.");
        let rounds = [&[532.0, 1400.0, 900.0], &[1135.0, 600.0, 950.0]];
        let (verdicts, told) = drawn(&[beside(true, rounds[0]), beside(false, rounds[1])]);
        assert!(told.contains("is undecided"), "{told}");
        assert_eq!(
            (verdicts[0].entrant.as_str(), verdicts[0].rival.as_str()),
            ("spread", "at once")
        );
        assert_eq!(verdicts[0].verdict, Judgement::Undecided);
        let told = drawn(&[
            beside(true, &[500.0, 520.0, 480.0]),
            beside(false, &[5000.0, 5600.0, 4500.0]),
        ]);
        assert!(told.1.starts_with("Spread checkpoints over their interval"), "{}", told.1);
        let told = drawn(&[beside(true, &[900.0; 3]), beside(false, &[300.0; 3])]).1;
        assert!(told.contains("costs readers here"), "{told}");
    }

    #[test]
    fn tablespaces_that_end_together_are_told_from_those_that_do_not() {
        let two = |order, ends: [f64; 2]| {
            let mut tally = written(Dirty::TwoTablespaces, true, &[2.0]);
            tally.cell.elevator = order;
            tally.rounds[0].tablespace_seconds = ends.to_vec();
            tally
        };
        let told = drawn(&[two(Order::Sorted, [1.0, 2.0]), two(Order::Balanced, [1.45, 1.5])]).1;
        assert!(told.contains("Balance tablespaces (direct)"), "{told}");
        assert!(told.contains("97 % of the other's time when balanced, after 50 %"), "{told}");
        assert!(drawn(&[]).1.contains("No conclusion"));
    }
}
