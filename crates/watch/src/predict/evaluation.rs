//! The outcome: predictions from the rounds of all strategies.
//!
//! The waiting with a strategy is compared with that of the unchanged run in the same round, so that a disk that
//! becomes slower favours no strategy. If it is less, the recorded waiting is scaled by their ratio; if it is more, the
//! difference is added to the recorded waiting, since a ratio to little waiting would be noise. Worked example: 500 ms
//! of waiting were recorded; three rounds wait 520, 480 and 610 ms unchanged and 260, 250 and 300 ms without readahead:
//! a ratio of 0.50, so 250 ms. Another: 20 ms were recorded, and a round waits 10 ms unchanged and 300 ms without
//! advice: 310 ms, and not 600. The duration is predicted from the durations of the rounds in the same way.

use std::time::Duration;

use serde::Serialize;

use super::plan::Plan;
use super::replay::{ReadStrategy, ReplayResult};
use forebay_measure::report::terminal::text::{ascii, push_line, push_wrapped};
use forebay_measure::report::terminal::{self, Look};
use forebay_measure::report::{Table, TableCell, numbers};
use forebay_measure::statistics::{Estimate, ROUNDS_MIN, median, paired_ratio};

/// Conditions changed if the unchanged run waits more than this many times as long as recorded, or below the inverse.
const ALIKE: f64 = 1.5;

/// A difference in waiting of less than this part of the time that was repeated is neither a gain nor a loss.
const NEGLIGIBLE: f64 = 0.01;

/// Shorter waits count as this long, since logarithms are taken of them.
const LEAST: Duration = Duration::from_micros(1);

/// `seconds`, but at least [`LEAST`].
fn at_least(seconds: f64) -> f64 {
    seconds.max(LEAST.as_secs_f64())
}

/// The predictions, and what they are based on.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Prediction {
    /// The part that was repeated, in seconds of the record.
    from_seconds: f64,
    until_seconds: f64,
    reads: usize,
    tasks: usize,
    /// Waiting of reads in that part as recorded, in the whole record, and in that part when repeated unchanged.
    recorded_wait_seconds: f64,
    recorded_wait_seconds_in_all: f64,
    replayed_wait_seconds: f64,
    replayed_seconds: f64,
    pub(super) ways: Vec<Predicted>,
    pub(super) remarks: Vec<String>,
}

/// The prediction for one strategy.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Predicted {
    way: String,
    /// How long reads would wait in that part.
    pub(super) wait_seconds: f64,
    /// The ratio of that to the recorded waiting; `None` for the unchanged run, and with a single round.
    ratio: Option<Estimate>,
    /// How long that part would take.
    pub(super) seconds: f64,
    pub(super) verdict: &'static str,
    /// How long reads waited, and how long the run took, in each round, in seconds.
    rounds: Vec<(f64, f64)>,
}

/// A strategy, and its rounds.
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) strategy: ReadStrategy,
    pub(super) rounds: Vec<ReplayResult>,
}

impl Variant {
    pub(super) fn new(name: impl Into<String>, strategy: ReadStrategy) -> Variant {
        Variant { name: name.into(), strategy, rounds: Vec::new() }
    }

    /// The value `of` each round, in seconds, scaled up for rounds that were cut off.
    fn each(&self, of: fn(&ReplayResult) -> Duration) -> Vec<f64> {
        self.rounds.iter().map(|it| of(it).max(LEAST).as_secs_f64() / it.share).collect()
    }

    /// The expected seconds instead of the `recorded` ones, by the difference of each round from that of `as_it_is`.
    fn expected(
        &self,
        recorded: f64,
        as_it_is: &Variant,
        of: fn(&ReplayResult) -> Duration,
    ) -> Vec<f64> {
        let pairs = self.each(of).into_iter().zip(as_it_is.each(of));
        let expected = pairs.map(|(variant, as_it_is)| {
            if variant < as_it_is {
                recorded * variant / as_it_is
            } else {
                recorded + variant - as_it_is
            }
        });
        expected.collect()
    }
}

impl Prediction {
    pub(super) fn of(plan: &Plan, variants: &[Variant]) -> Prediction {
        let recorded = plan.waited_ns as f64 / 1e9;
        let seconds = (plan.until_ns - plan.from_ns) as f64 / 1e9;
        let as_it_is = &variants[0];
        let replayed = median(&as_it_is.each(|it| it.waited)).unwrap_or(0.0);
        let mut remarks = plan.remarks.clone();
        let factor = replayed / at_least(recorded);
        if !(1.0 / ALIKE..=ALIKE).contains(&factor) {
            remarks.push(format!(
                "repeated unchanged, reads waited {}, and {} when they were recorded: this prediction is about something \
                 else, such as another state of memory or a disk that others use",
                numbers::seconds(replayed),
                numbers::seconds(recorded)
            ));
        }
        let is_cut = |variant: &&Variant| variant.rounds.iter().any(|it| it.share < 1.0);
        for variant in variants.iter().filter(is_cut) {
            remarks.push(format!(
                "{}: cut off because it took too long; the rest is assumed to wait as much",
                variant.name
            ));
        }
        let ways = variants.iter().enumerate().map(|(at, variant)| {
            let of = |recorded: f64, of: fn(&ReplayResult) -> Duration| {
                let expected = variant.expected(recorded, as_it_is, of);
                paired_ratio(&expected, &vec![recorded; expected.len()])
            };
            let (least, seconds) = (at_least(recorded), at_least(seconds));
            let compared = of(least, |it| it.waited);
            // One round gives no interval.
            let ratio = compared.filter(|it| at > 0 && it.rounds > 1);
            let is_negligible =
                |ratio: &Estimate| (ratio.value - 1.0).abs() * least < NEGLIGIBLE * seconds;
            let verdict = match ratio {
                _ if at == 0 => "",
                Some(ratio) if ratio.rounds >= ROUNDS_MIN && is_negligible(&ratio) => "negligible",
                Some(ratio) if ratio.rounds >= ROUNDS_MIN && ratio.high < 1.0 => "gains",
                Some(ratio) if ratio.rounds >= ROUNDS_MIN && ratio.low > 1.0 => "loses",
                _ => "undecided",
            };
            let rounds =
                variant.rounds.iter().map(|it| (it.waited.as_secs_f64(), it.took.as_secs_f64()));
            let value = |ratio: Option<Estimate>| ratio.map_or(f64::NAN, |ratio| ratio.value);
            Predicted {
                way: variant.name.clone(),
                wait_seconds: least * value(compared),
                ratio,
                seconds: seconds * value(of(seconds, |it| it.took)),
                verdict,
                rounds: rounds.collect(),
            }
        });
        Prediction {
            from_seconds: plan.from_ns as f64 / 1e9,
            until_seconds: plan.until_ns as f64 / 1e9,
            reads: plan.steps(),
            tasks: plan.tasks.len(),
            recorded_wait_seconds: recorded,
            recorded_wait_seconds_in_all: plan.waited_in_all_ns as f64 / 1e9,
            replayed_wait_seconds: replayed,
            replayed_seconds: median(&as_it_is.each(|it| it.took)).unwrap_or(0.0),
            ways: ways.collect(),
            remarks,
        }
    }

    /// The prediction as text.
    pub(crate) fn drawn(&self, look: Look) -> String {
        let mut text = String::new();
        push_line(&mut text, "");
        let part = if self.recorded_wait_seconds < self.recorded_wait_seconds_in_all * 0.995 {
            format!(
                ", in which {} % of all waiting was",
                numbers::percent(self.recorded_wait_seconds / self.recorded_wait_seconds_in_all)
            )
        } else {
            String::new()
        };
        let sentence = format!(
            "{} steps of {} were read again{part}: reads waited {} when it was recorded, and {} now",
            numbers::grouped(self.reads as f64),
            numbers::seconds(self.until_seconds - self.from_seconds),
            numbers::seconds(self.recorded_wait_seconds),
            numbers::seconds(self.replayed_wait_seconds),
        );
        push_wrapped(&mut text, "prediction: ", &sentence, look.width);
        for remark in &self.remarks {
            push_wrapped(&mut text, "* ", remark, look.width);
        }
        push_line(&mut text, "");
        let mut table = Table::new("", ["way", "would wait", "between", "would take", "verdict"]);
        for way in &self.ways {
            let waits = |ratio: f64| numbers::seconds(ratio * at_least(self.recorded_wait_seconds));
            let between =
                |ratio: Estimate| format!("{} and {}", waits(ratio.low), waits(ratio.high));
            let cells = [
                way.way.clone(),
                numbers::seconds(way.wait_seconds),
                way.ratio.map_or_else(String::new, between),
                numbers::seconds(way.seconds),
                way.verdict.to_owned(),
            ];
            table.push(String::new(), cells.iter().map(TableCell::new).collect());
        }
        text.push_str(&terminal::drawn(&table, look));
        if look.ascii { ascii(&text) } else { text }
    }
}
