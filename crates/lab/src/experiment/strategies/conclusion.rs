//! Conclusions from the rows of `strategies`: in how many `adaptive` keeps its bound, how much two equal
//! variants differ, what advice for each block does, and which strategy to set instead, if any.
//!
//! Invariants:  [SCO-1] of `adaptive` only decided rows are counted as kept or missed
//!              [SCO-2] another strategy is advised on decided rows alone

use forebay::ReadaheadStrategy;

use super::NAME;
use crate::experiment::Entrant;
use crate::experiment::contest::{Comparison, Standing};
use forebay_measure::report::{Advice, AppliesTo, Conclusion, Verdict};
use forebay_measure::statistics::{BOUND, Estimate, Floor, Judge, Judgement, ROUNDS_MIN, median};

/// Fewer rows than this are no evidence for a setting.
const ROWS_MIN: usize = 5;

/// The part of the rows of `os` compared with `os` that the noise floor covers.
const NOISE_PART: f64 = 0.9;

/// Compares `adaptive` with the best other stream in each row, and `os` with itself.
pub(super) fn verdicts(standings: &[Standing], judge: &Judge) -> Vec<Verdict> {
    let verdict = |standing: &Standing, Comparison { entrant, rival, ratio, .. }| {
        let of = [entrant, rival].map(|it: Entrant| it.to_string());
        Verdict::new(NAME, standing.row.to_string(), of, ratio)
    };
    let of_row = |standing: &Standing| {
        let both = standing.adaptive(judge).into_iter().chain(again(standing, judge));
        both.map(|it| verdict(standing, it)).collect::<Vec<_>>()
    };
    standings.iter().flat_map(of_row).collect()
}

/// The second `os` compared with the first.
fn again(standing: &Standing, judge: &Judge) -> Option<Comparison> {
    let is_os = |rival| rival == Entrant::Stream(ReadaheadStrategy::Os);
    standing.compare(judge, Entrant::OsAgain, is_os)
}

/// The sentences, the most useful first.
pub(super) fn draw(standings: &[Standing], verdicts: &[Verdict], judge: &Judge) -> Vec<Conclusion> {
    let sentences = [adaptive(verdicts), noise(standings).map(told)].into_iter().flatten();
    let without = standings.iter().flat_map(|standing| without_pool(standing, judge));
    Conclusion::for_engines(NAME, sentences.chain(without))
}

/// In how many rows `adaptive` keeps its bound, and by how much it misses it in others [SCO-1].
fn adaptive(verdicts: &[Verdict]) -> Option<String> {
    use Judgement::{Keeps, Misses, Undecided};
    let [keeps, misses, open] = [Keeps, Misses, Undecided].map(|judgement| {
        let is_it = |it: &&Verdict| it.verdict == judgement && it.entrant == "adaptive";
        verdicts.iter().filter(is_it).collect::<Vec<_>>()
    });
    let (decided, percent) = (keeps.len() + misses.len(), BOUND * 100.0);
    let what = format!("{percent:.0} % of the best other strategy");
    if decided == 0 {
        return (!open.is_empty()).then(|| {
            format!(
                "Whether adaptive reaches {what} is undecided in all {} rows: too few rounds, or too much \
                 noise.",
                open.len()
            )
        });
    }
    let mut sentence =
        format!("adaptive reaches {what} in {} of {decided} decided rows", keeps.len());
    let worst = misses.iter().min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
    if let Some(Verdict { row, rival, ratio, .. }) = worst {
        let ratios: Vec<f64> = misses.iter().map(|miss| miss.ratio.value).collect();
        sentence.push_str(&format!(
            "; in {} it misses that, by {:.0} % in the median and {:.0} % at worst ({:.2} of {rival} in {row})",
            misses.len(),
            100.0 * (1.0 - median(&ratios).unwrap_or(1.0)),
            100.0 * (1.0 - ratio.value),
            ratio.value,
        ));
    }
    if !open.is_empty() {
        sentence.push_str(&format!("; {} more rows are undecided", open.len()));
    }
    Some(sentence + ".")
}

/// The difference between `os` and `os` again.
#[derive(Debug, Clone, Copy)]
struct Noise {
    floor: Floor,
    /// Rows in which it was no more, and their total.
    within: usize,
    of: usize,
}

fn noise(standings: &[Standing]) -> Option<Noise> {
    let judge = Judge::new(&[], 1, Floor::default());
    let again = standings.iter().filter_map(|standing| again(standing, &judge));
    let enough = again.filter(|it| it.ratio.rounds >= ROUNDS_MIN);
    let mut apart: Vec<f64> = enough.map(|it| it.ratio.value.ln().abs().exp_m1()).collect();
    apart.sort_by(f64::total_cmp);
    let within = (NOISE_PART * apart.len() as f64).ceil() as usize;
    let floor = Floor(*apart.get(within.checked_sub(1)?)?);
    Some(Noise { floor, within, of: apart.len() })
}

/// The noise floor, where it was measured.
pub(super) fn floor(standings: &[Standing]) -> Option<Floor> {
    Some(noise(standings)?.floor)
}

fn told(Noise { floor, within, of }: Noise) -> String {
    format!(
        "Noise floor {:.1} %: os measured twice comes no further apart in {within} of {of} rows. A smaller \
         difference of two figures says nothing, and no setting is advised for it.",
        100.0 * floor.0
    )
}

/// The effect of advice for each block, and of a stream, on the reads of the kernel alone.
fn without_pool(standing: &Standing, judge: &Judge) -> Vec<String> {
    let told = |what: &str, is_rival: &dyn Fn(Entrant) -> bool| {
        let faster = standing.compare(judge, Entrant::Plain, is_rival);
        let faster = faster.filter(|it| it.ratio.inverse().is_gain());
        let slower = || standing.compare_with_one(judge, Entrant::Plain, is_rival);
        let slower = || slower().filter(|it| it.ratio.is_gain());
        let Comparison { rival, ratio, .. } = faster.or_else(slower)?;
        let Estimate { value, low, high, .. } = ratio.inverse();
        Some(format!(
            "{}: {rival}, {what}, is {value:.2} times as fast as plain reads ({low:.2} to {high:.2}).",
            standing.row
        ))
    };
    let both = [
        told("advice for each block", &|rival| matches!(rival, Entrant::WillNeed(_))),
        told("the best stream", &|rival| matches!(rival, Entrant::Stream(_))),
    ];
    both.into_iter().flatten().collect()
}

/// A strategy that is surely faster over all decided rows than the default without a profile.
pub(super) fn advice(standings: &[Standing], judge: &Judge) -> Option<Advice> {
    let default = ReadaheadStrategy::default();
    let is_decided = |standing: &&Standing| {
        standing.adaptive(judge).is_some_and(|it| it.ratio.judgement() != Judgement::Undecided) // [SCO-2]
    };
    let rows: Vec<&Standing> = standings.iter().filter(is_decided).collect();
    if rows.len() < ROWS_MIN {
        return None;
    }
    // Each row has the same weight, however many rounds it took.
    let mean = |rates: Vec<f64>| {
        (rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64).exp()
    };
    let of = |strategy| {
        let rates = rows.iter().map(|row| row.rates(Entrant::Stream(strategy)).map(mean));
        rates.collect::<Option<Vec<f64>>>()
    };
    let others = ReadaheadStrategy::ALL.into_iter().filter(|strategy| *strategy != default);
    let others: Vec<(ReadaheadStrategy, Vec<f64>)> =
        others.filter_map(|strategy| Some((strategy, of(strategy)?))).collect();
    let rates: Vec<&Vec<f64>> = others.iter().map(|(_, rates)| rates).collect();
    // Rows differ for another reason than rounds do.
    let (best, ratio) = judge.without_prior().ratio_to_best(&of(default)?, &rates)?;
    let best = others[best].0.name();
    Advice::worth_it(
        NAME,
        (AppliesTo::Profile, "readahead"),
        [default.name().to_owned(), best.to_owned()],
        ratio.inverse(),
        format!(
            "blocks read a second in the geometric mean of {} decided rows, {best} against {}",
            rows.len(),
            default.name()
        ),
    )
}
