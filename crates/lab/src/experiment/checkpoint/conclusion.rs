//! Conclusions from the rounds of `checkpoint`: the gain by order and coalescing, and by pacing.
//!
//! There is no setting to advise: PostgreSQL spreads checkpoints over 0.9 of their interval since version
//! 14, and Forebay's defaults are those that are the best in these measurements.

use forebay_io::CacheMode;

use super::cell::{Cell, Dirty, NAME, Order};
use super::record::{Samples, baseline};
use super::settings::Settings;
use crate::experiment::Outcome;
use forebay_measure::report::{Conclusion, Verdict};
use forebay_measure::statistics::{Estimate, Floor, Judge, Judgement, ROUNDS_MIN};

/// The best way of writing compared with one write after another: the time to the end of the sync. Or a spread
/// checkpoint compared with one at once, if both are timed: the 99th percentile of reads in the interval.
struct Comparison<'t> {
    variant: &'t Samples,
    rival: &'t Samples,
    /// By what factor the variant is better.
    ratio: Estimate,
}

impl Comparison<'_> {
    /// Whether more rounds could decide it.
    fn is_undecided(&self) -> bool {
        let is_over = [self.variant, self.rival].iter().any(|samples| samples.failure.is_some());
        !is_over && self.ratio.judgement() == Judgement::Undecided
    }

    fn row(&self) -> String {
        let Cell { dirty, cache, paced, .. } = self.variant.cell;
        let what = if paced { "reads during" } else { "writing" };
        format!("{what} {dirty} {cache}")
    }

    fn verdict(&self) -> Verdict {
        let of = if self.variant.cell.paced {
            ["spread", "at once"]
        } else {
            ["balanced, coalesced", "arrival, one by one"]
        };
        Verdict::new(NAME, self.row(), of.map(str::to_owned), self.ratio)
    }

    fn sentence(&self) -> String {
        let Cell { dirty, cache, paced, .. } = self.variant.cell;
        let Estimate { value, low, high, rounds } = self.ratio;
        let times = format!("{value:.2} times ({low:.2} to {high:.2}, {rounds} rounds)");
        let clear = match (self.ratio.is_gain(), self.ratio.judgement()) {
            (true, _) => "a clear gain",
            (_, Judgement::Misses) => "a clear loss",
            _ => "no clear difference",
        };
        if paced {
            format!(
                "Reads during a checkpoint at once have a 99th percentile {times} as long as during one spread \
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
pub(super) fn undecided(settings: &Settings, measured: &[Samples]) -> Vec<Cell> {
    let all = comparisons(settings, measured, Floor::default());
    let open = all.into_iter().filter(Comparison::is_undecided);
    open.flat_map(|compared| [compared.variant.cell, compared.rival.cell]).collect()
}

/// The indexes of the cells that are compared, each variant with its rival.
fn pairs(settings: &Settings, measured: &[Samples]) -> Vec<[usize; 2]> {
    let rival = |variant: &Samples| {
        let cell = variant.cell;
        if !cell.is_timed() {
            return baseline(measured, &cell).map(|samples| samples.cell);
        }
        (cell.paced && cell.foreground).then_some(Cell { paced: false, ..cell })
    };
    let best = measured.iter().enumerate().filter(|(_, samples)| settings.is_best(&samples.cell));
    let pair = |(number, samples): (usize, &Samples)| {
        let rival = rival(samples).filter(|rival| *rival != samples.cell)?;
        Some([number, measured.iter().position(|samples| samples.cell == rival)?])
    };
    best.filter_map(pair).collect()
}

/// The series of a run: the compared cells together, and every other cell alone.
pub(super) fn series(settings: &Settings, measured: &[Samples]) -> Vec<Vec<usize>> {
    let mut series: Vec<Vec<usize>> =
        pairs(settings, measured).into_iter().map(Vec::from).collect();
    let is_alone = |number: &usize| !series.iter().flatten().any(|it| it == number);
    let alone: Vec<usize> = (0..measured.len()).filter(is_alone).collect();
    series.extend(alone.into_iter().map(|number| vec![number]));
    series
}

/// Every comparison that the rounds allow so far; none decides a difference smaller than `floor`.
fn comparisons<'t>(
    settings: &Settings,
    measured: &'t [Samples],
    floor: Floor,
) -> Vec<Comparison<'t>> {
    let figures = |samples: &Samples| {
        samples.figures(|round| match samples.cell.is_timed() {
            true => round.readers.as_ref()?.foreground_interval_us_p99,
            false => Some(round.seconds),
        })
    };
    let pairs = pairs(settings, measured).into_iter().filter_map(|pair| {
        let [variant, rival] = pair.map(|number| &measured[number]);
        Some((variant, rival, vec![figures(variant)?, figures(rival)?]))
    });
    let pairs: Vec<_> = pairs.collect();
    let rates: Vec<Vec<Vec<f64>>> = pairs.iter().map(|(.., rates)| rates.clone()).collect();
    let judge = Judge::new(&rates, pairs.len(), floor);
    let compared = |(variant, rival, rates): (&'t Samples, &'t Samples, Vec<Vec<f64>>)| {
        // Less is better, of seconds and of waits.
        let ratio = judge.ratio(&rates[1], &rates[0])?;
        Some(Comparison { variant, rival, ratio })
    };
    pairs.into_iter().filter_map(compared).collect()
}

/// Verdicts and sentences, the most useful first.
pub(super) fn draw(settings: &Settings, measured: &[Samples], floor: Floor) -> Outcome {
    let compared = comparisons(settings, measured, floor);
    let (enough, few): (Vec<_>, Vec<_>) =
        compared.iter().partition(|compared| compared.ratio.rounds >= ROUNDS_MIN);
    let (with_readers, writing): (Vec<_>, Vec<_>) =
        enough.into_iter().partition(|compared| compared.variant.cell.paced);
    let mut sentences: Vec<String> = with_readers.into_iter().map(Comparison::sentence).collect();
    if let Some(rounds) = few.iter().map(|compared| compared.ratio.rounds).max() {
        let rows: Vec<String> = few.iter().map(|compared| compared.row()).collect();
        sentences.push(format!("Undecided, as {rounds} rounds are too few: {}.", rows.join(", ")));
    }
    let tablespaces = settings.caches.iter().filter_map(|&cache| tablespaces(measured, cache));
    let engines: Vec<String> =
        writing.into_iter().map(Comparison::sentence).chain(tablespaces).collect();
    if sentences.is_empty() && engines.is_empty() {
        sentences.push("No conclusion: nothing that could be compared was measured.".to_owned());
    }
    let verdicts = compared.iter().map(Comparison::verdict).collect();
    let mut conclusions = Conclusion::all(NAME, sentences);
    // The best order matters only to engines; a server has no setting for it.
    conclusions.extend(Conclusion::for_engines(NAME, engines));
    Outcome { verdicts, conclusions, ..Outcome::default() }
}

/// Whether two tablespaces end together.
fn tablespaces(measured: &[Samples], cache: CacheMode) -> Option<String> {
    let percent = |order| {
        let samples = measured.iter().find(|samples| {
            let Cell { dirty, elevator, combine, .. } = samples.cell;
            let is_it = (dirty, elevator, combine) == (Dirty::TwoTablespaces, order, true);
            is_it && samples.cell.cache == cache && !samples.cell.is_timed()
        })?;
        samples.median(|round| match round.tablespace_seconds[..] {
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
    use super::super::record::tests::{settings, with_readers, written};
    use super::*;

    fn drawn(measured: &[Samples]) -> (Vec<Verdict>, String) {
        let found = draw(&settings(), measured, Floor::default());
        let sentences: Vec<String> = found.conclusions.into_iter().map(|it| it.sentence).collect();
        (found.verdicts, sentences.join("\n"))
    }

    #[test]
    fn order_and_coalescing_are_praised_where_they_surely_gain() {
        let (verdicts, text) = drawn(&[
            written(Dirty::Clustered, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Clustered, true, &[1.8, 2.0, 1.9]),
            written(Dirty::Uniform, false, &[9.0, 10.0, 9.5]),
            written(Dirty::Uniform, true, &[7.0, 12.0, 9.5]),
        ]);
        assert!(text.contains("is 5.00 times (") && text.contains(", 3 rounds) as fast"), "{text}");
        assert!(text.contains("(clustered pages, direct): a clear gain."), "{text}");
        assert!(text.contains("(uniform pages, direct): no clear difference."), "{text}");
        assert_eq!(verdicts[0].row, "writing clustered direct");
        assert_eq!(verdicts.len(), 2);
        assert!((verdicts[0].ratio.value - 5.0).abs() < 1e-9);
    }

    /// A run once said of such rounds: "Spread checkpoints: 2.2 times ... at once 0.5 times", and
    /// advised checkpoint_completion_target 0.9. Each cell was compared with a separate baseline, 2,269
    /// and 242 us, by the 99th percentile of 214 reads.
    #[test]
    fn readers_during_a_spread_checkpoint_are_compared_with_those_during_one_at_once() {
        let text = drawn(&[with_readers(true, &[532.0]), with_readers(false, &[1135.0])]).1;
        assert_eq!(text, "Undecided, as 1 rounds are too few: reads during uniform direct.");
        let rounds = [&[532.0, 1400.0, 900.0], &[1135.0, 600.0, 950.0]];
        let (verdicts, text) =
            drawn(&[with_readers(true, rounds[0]), with_readers(false, rounds[1])]);
        assert!(text.contains("no clear difference by spreading"), "{text}");
        assert_eq!(
            (verdicts[0].variant.as_str(), verdicts[0].rival.as_str()),
            ("spread", "at once")
        );
        assert_eq!(verdicts[0].verdict, Judgement::Undecided);
        let text = drawn(&[
            with_readers(true, &[500.0, 520.0, 480.0]),
            with_readers(false, &[5000.0, 5600.0, 4500.0]),
        ]);
        assert!(text.1.contains("a clear gain by spreading"), "{}", text.1);
        let text = drawn(&[with_readers(true, &[900.0; 3]), with_readers(false, &[300.0; 3])]).1;
        assert!(text.contains("a clear loss by spreading"), "{text}");
    }

    #[test]
    fn tablespaces_that_end_together_are_distinguished_from_others() {
        let two = |order, ends: [f64; 2]| {
            let mut samples = written(Dirty::TwoTablespaces, true, &[2.0]);
            samples.cell.elevator = order;
            samples.rounds[0].tablespace_seconds = ends.to_vec();
            samples
        };
        let text = drawn(&[two(Order::Sorted, [1.0, 2.0]), two(Order::Balanced, [1.45, 1.5])]).1;
        assert!(text.contains("97 % of the other's time when balanced, after 50 %"), "{text}");
        assert!(drawn(&[]).1.contains("No conclusion"));
    }
}
