//! Conclusions from the rounds of `checkpoint`: the gain by order and coalescing, and by pacing.
//!
//! There is no setting to advise: PostgreSQL spreads checkpoints over 0.9 of their interval since version
//! 14, and Forebay's defaults are those that are the best in these measurements.

use forebay_io::CacheMode;

use super::record::{Tally, baseline};
use super::{Cell, Dirty, NAME, Order, Settings};
use crate::experiment::Outcome;
use forebay_measure::report::{Conclusion, Verdict};
use forebay_measure::statistics::{Estimate, Floor, Judge, Judgement, ROUNDS_MIN};

/// The best way of writing compared with one write after another: the time to the end of the sync. Or a spread
/// checkpoint compared with one at once, if both are timed: the 99th percentile of reads in the interval.
struct Comparison<'t> {
    entrant: &'t Tally,
    rival: &'t Tally,
    /// By what factor the variant is better.
    ratio: Estimate,
}

impl Comparison<'_> {
    /// Whether more rounds could decide it.
    fn is_undecided(&self) -> bool {
        let is_over = [self.entrant, self.rival].iter().any(|tally| tally.failure.is_some());
        !is_over && self.ratio.judgement() == Judgement::Undecided
    }

    fn row(&self) -> String {
        let Cell { dirty, cache, paced, .. } = self.entrant.cell;
        let what = if paced { "reads beside" } else { "writing" };
        format!("{what} {dirty} {cache}")
    }

    fn verdict(&self) -> Verdict {
        let of = if self.entrant.cell.paced {
            ["spread", "at once"]
        } else {
            ["balanced, coalesced", "arrival, one by one"]
        };
        Verdict::new(NAME, self.row(), of.map(str::to_owned), self.ratio)
    }

    fn sentence(&self) -> String {
        let Cell { dirty, cache, paced, .. } = self.entrant.cell;
        let Estimate { value, low, high, rounds } = self.ratio;
        let times = format!("{value:.2} times ({low:.2} to {high:.2}, {rounds} rounds)");
        let clear = match (self.ratio.is_gain(), self.ratio.judgement()) {
            (true, _) => "a clear gain",
            (_, Judgement::Misses) => "a clear loss",
            _ => "no clear difference",
        };
        if paced {
            format!(
                "Reads beside a checkpoint at once have a 99th percentile {times} as long as beside one spread \
                 over its interval ({cache}): {clear} by spreading."
            )
        } else {
            format!(
                "A checkpoint in the disk's order with neighbours coalesced is {times} as fast as one page after \
                 another ({dirty} pages, {cache}): {clear}."
            )
        }
    }
}

/// Cells whose rounds so far do not decide their comparison.
pub(super) fn undecided(settings: &Settings, tallies: &[Tally]) -> Vec<Cell> {
    let all = comparisons(settings, tallies, Floor::default());
    let open = all.into_iter().filter(Comparison::is_undecided);
    open.flat_map(|compared| [compared.entrant.cell, compared.rival.cell]).collect()
}

/// The indexes of the tallies that are compared, each variant with its rival.
fn pairs(settings: &Settings, tallies: &[Tally]) -> Vec<[usize; 2]> {
    let rival = |entrant: &Tally| {
        let cell = entrant.cell;
        if !cell.is_timed() {
            return baseline(tallies, &cell).map(|tally| tally.cell);
        }
        (cell.paced && cell.foreground).then_some(Cell { paced: false, ..cell })
    };
    let best = tallies.iter().enumerate().filter(|(_, tally)| settings.is_best(&tally.cell));
    let pair = |(number, tally): (usize, &Tally)| {
        let rival = rival(tally).filter(|rival| *rival != tally.cell)?;
        Some([number, tallies.iter().position(|tally| tally.cell == rival)?])
    };
    best.filter_map(pair).collect()
}

/// The series of a run: the compared cells together, and every other cell alone.
pub(super) fn series(settings: &Settings, tallies: &[Tally]) -> Vec<Vec<usize>> {
    let mut series: Vec<Vec<usize>> = pairs(settings, tallies).into_iter().map(Vec::from).collect();
    let is_alone = |number: &usize| !series.iter().flatten().any(|it| it == number);
    let alone: Vec<usize> = (0..tallies.len()).filter(is_alone).collect();
    series.extend(alone.into_iter().map(|number| vec![number]));
    series
}

/// Every comparison that the rounds allow so far; none decides a difference smaller than `floor`.
fn comparisons<'t>(settings: &Settings, tallies: &'t [Tally], floor: Floor) -> Vec<Comparison<'t>> {
    let figures = |tally: &Tally| {
        tally.figures(|round| match tally.cell.is_timed() {
            true => round.readers.as_ref()?.foreground_interval_us_p99,
            false => Some(round.seconds),
        })
    };
    let pairs = pairs(settings, tallies).into_iter().filter_map(|pair| {
        let [entrant, rival] = pair.map(|number| &tallies[number]);
        Some((entrant, rival, vec![figures(entrant)?, figures(rival)?]))
    });
    let pairs: Vec<_> = pairs.collect();
    let rates: Vec<Vec<Vec<f64>>> = pairs.iter().map(|(.., rates)| rates.clone()).collect();
    let judge = Judge::new(&rates, pairs.len(), floor);
    let compared = |(entrant, rival, rates): (&'t Tally, &'t Tally, Vec<Vec<f64>>)| {
        // Less is better, of seconds and of waits.
        let ratio = judge.ratio(&rates[1], &rates[0])?;
        Some(Comparison { entrant, rival, ratio })
    };
    pairs.into_iter().filter_map(compared).collect()
}

/// Verdicts and sentences, the most useful first.
pub(super) fn draw(settings: &Settings, tallies: &[Tally], floor: Floor) -> Outcome {
    let compared = comparisons(settings, tallies, floor);
    let (enough, few): (Vec<_>, Vec<_>) =
        compared.iter().partition(|compared| compared.ratio.rounds >= ROUNDS_MIN);
    let (beside, writing): (Vec<_>, Vec<_>) =
        enough.into_iter().partition(|compared| compared.entrant.cell.paced);
    let mut told: Vec<String> = beside.into_iter().map(Comparison::sentence).collect();
    if let Some(rounds) = few.iter().map(|compared| compared.ratio.rounds).max() {
        let rows: Vec<String> = few.iter().map(|compared| compared.row()).collect();
        told.push(format!("Undecided, as {rounds} rounds are too few: {}.", rows.join(", ")));
    }
    let tablespaces = settings.caches.iter().filter_map(|&cache| tablespaces(tallies, cache));
    let engines: Vec<String> =
        writing.into_iter().map(Comparison::sentence).chain(tablespaces).collect();
    if told.is_empty() && engines.is_empty() {
        told.push("No conclusion: nothing that could be compared was measured.".to_owned());
    }
    let verdicts = compared.iter().map(Comparison::verdict).collect();
    let mut conclusions = Conclusion::all(NAME, told);
    // The best order matters only to engines; a server has no setting for it.
    conclusions.extend(Conclusion::for_engines(NAME, engines));
    Outcome { verdicts, conclusions, ..Outcome::default() }
}

/// Whether two tablespaces end together.
fn tablespaces(tallies: &[Tally], cache: CacheMode) -> Option<String> {
    let percent = |order| {
        let tally = tallies.iter().find(|tally| {
            let Cell { dirty, elevator, combine, .. } = tally.cell;
            let is_it = (dirty, elevator, combine) == (Dirty::TwoTablespaces, order, true);
            is_it && tally.cell.cache == cache && !tally.cell.is_timed()
        })?;
        tally.median(|round| match round.tablespace_seconds[..] {
            [a, b] => Some(100.0 * a.min(b) / a.max(b)).filter(|share| share.is_finite()),
            _ => None,
        })
    };
    let (sorted, balanced) = (percent(Order::Sorted)?, percent(Order::Balanced)?);
    Some(format!(
        "Of two tablespaces ({cache}) one is done after {balanced:.0} % of the other's time when balanced, after \
         {sorted:.0} % when sorted."
    ))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside, settings, written};
    use super::*;

    fn drawn(tallies: &[Tally]) -> (Vec<Verdict>, String) {
        let found = draw(&settings(), tallies, Floor::default());
        let told: Vec<String> = found.conclusions.into_iter().map(|it| it.sentence).collect();
        (found.verdicts, told.join("\n"))
    }

    #[test]
    fn order_and_coalescing_are_praised_where_they_surely_gain() {
        let (verdicts, told) = drawn(&[
            written(Dirty::Clustered, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Clustered, true, &[1.8, 2.0, 1.9]),
            written(Dirty::Uniform, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Uniform, true, &[7.0, 12.0, 9.5]),
        ]);
        assert!(told.contains("is 5.00 times (") && told.contains(", 3 rounds) as fast"), "{told}");
        assert!(told.contains("(clustered pages, direct): a clear gain."), "{told}");
        assert!(told.contains("(uniform pages, direct): no clear difference."), "{told}");
        assert_eq!(verdicts[0].row, "writing clustered direct");
        assert_eq!(verdicts.len(), 2);
        assert!((verdicts[0].ratio.value - 5.0).abs() < 1e-9);
    }

    /// A run once said of such rounds: "Spread checkpoints: 2.2 times ... at once 0.5 times", and
    /// advised checkpoint_completion_target 0.9. Each cell was compared with a separate baseline, 2,269
    /// and 242 us, by the 99th percentile of 214 reads.
    #[test]
    fn readers_beside_a_spread_checkpoint_are_compared_with_those_beside_one_at_once() {
        let told = drawn(&[beside(true, &[532.0]), beside(false, &[1135.0])]).1;
        assert_eq!(told, "Undecided, as 1 rounds are too few: reads beside uniform direct.");
        let rounds = [&[532.0, 1400.0, 900.0], &[1135.0, 600.0, 950.0]];
        let (verdicts, told) = drawn(&[beside(true, rounds[0]), beside(false, rounds[1])]);
        assert!(told.contains("no clear difference by spreading"), "{told}");
        assert_eq!(
            (verdicts[0].entrant.as_str(), verdicts[0].rival.as_str()),
            ("spread", "at once")
        );
        assert_eq!(verdicts[0].verdict, Judgement::Undecided);
        let told = drawn(&[
            beside(true, &[500.0, 520.0, 480.0]),
            beside(false, &[5000.0, 5600.0, 4500.0]),
        ]);
        assert!(told.1.contains("a clear gain by spreading"), "{}", told.1);
        let told = drawn(&[beside(true, &[900.0; 3]), beside(false, &[300.0; 3])]).1;
        assert!(told.contains("a clear loss by spreading"), "{told}");
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
        assert!(told.contains("97 % of the other's time when balanced, after 50 %"), "{told}");
        assert!(drawn(&[]).1.contains("No conclusion"));
    }
}
