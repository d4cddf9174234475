//! Conclusions from the rows of `strategies`: in how many `adaptive` keeps its bound, how much two equal
//! variants differ, what advice for each block does, and which strategy to set instead, if any.
//!
//! Invariants:  [SCO-1] of `adaptive` only decided rows are counted as kept or missed
//!              [SCO-2] another strategy is advised on decided rows alone

use forebay::ReadaheadStrategy;

use super::settings::NAME;
use crate::experiment::Variant;
use crate::experiment::comparison::{Comparison, RowResult};
use forebay_measure::report::{Advice, AppliesTo, Conclusion, Verdict};
use forebay_measure::statistics::{BOUND, Estimate, Floor, Judge, Judgement, ROUNDS_MIN, median};

/// Fewer rows than this are no evidence for a setting.
const ROWS_MIN: usize = 5;

/// The part of the rows of `os` compared with `os` that the noise floor covers.
const NOISE_PART: f64 = 0.9;

/// Compares `adaptive` with the best other stream in each row, and `os` with itself.
pub(super) fn verdicts(results: &[RowResult], judge: &Judge) -> Vec<Verdict> {
    let verdict = |result: &RowResult, Comparison { variant, rival, ratio, .. }| {
        let of = [variant, rival].map(|it: Variant| it.to_string());
        Verdict::new(NAME, result.row.to_string(), of, ratio)
    };
    let of_row = |result: &RowResult| {
        let both = result.adaptive(judge).into_iter().chain(again(result, judge));
        both.map(|it| verdict(result, it)).collect::<Vec<_>>()
    };
    results.iter().flat_map(of_row).collect()
}

/// The second `os` compared with the first.
fn again(result: &RowResult, judge: &Judge) -> Option<Comparison> {
    let is_os = |rival| rival == Variant::Stream(ReadaheadStrategy::Os);
    result.compare(judge, Variant::OsAgain, is_os)
}

/// The sentences, the most useful first.
pub(super) fn draw(results: &[RowResult], verdicts: &[Verdict], judge: &Judge) -> Vec<Conclusion> {
    let sentences = [adaptive(verdicts), noise(results).map(noise_sentence)].into_iter().flatten();
    let without = results.iter().flat_map(|result| without_pool(result, judge));
    Conclusion::for_engines(NAME, sentences.chain(without))
}

/// In how many rows `adaptive` keeps its bound, and by how much it misses it in others [SCO-1].
fn adaptive(verdicts: &[Verdict]) -> Option<String> {
    use Judgement::{Keeps, Misses, Undecided};
    let [keeps, misses, open] = [Keeps, Misses, Undecided].map(|judgement| {
        let is_it = |it: &&Verdict| it.verdict == judgement && it.variant == "adaptive";
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

fn noise(results: &[RowResult]) -> Option<Noise> {
    let judge = Judge::new(&[], 1, Floor::default());
    let again = results.iter().filter_map(|result| again(result, &judge));
    let enough = again.filter(|it| it.ratio.rounds >= ROUNDS_MIN);
    let mut differences: Vec<f64> = enough.map(|it| it.ratio.value.ln().abs().exp_m1()).collect();
    differences.sort_by(f64::total_cmp);
    let within = (NOISE_PART * differences.len() as f64).ceil() as usize;
    let floor = Floor(*differences.get(within.checked_sub(1)?)?);
    Some(Noise { floor, within, of: differences.len() })
}

/// The noise floor, where it was measured.
pub(super) fn floor(results: &[RowResult]) -> Option<Floor> {
    Some(noise(results)?.floor)
}

fn noise_sentence(Noise { floor, within, of }: Noise) -> String {
    format!(
        "Noise floor {:.1} %: os measured twice differs by no more in {within} of {of} rows. A smaller \
         difference of two figures says nothing, and no setting is advised for it.",
        100.0 * floor.0
    )
}

/// The effect of advice for each block, and of a stream, on the reads of the kernel alone.
fn without_pool(result: &RowResult, judge: &Judge) -> Vec<String> {
    let sentence = |what: &str, is_rival: &dyn Fn(Variant) -> bool| {
        let faster = result.compare(judge, Variant::Plain, is_rival);
        let faster = faster.filter(|it| it.ratio.inverse().is_gain());
        let slower = || result.compare_with_one(judge, Variant::Plain, is_rival);
        let slower = || slower().filter(|it| it.ratio.is_gain());
        let Comparison { rival, ratio, .. } = faster.or_else(slower)?;
        let Estimate { value, low, high, .. } = ratio.inverse();
        Some(format!(
            "{}: {rival}, {what}, is {value:.2} times as fast as plain reads ({low:.2} to {high:.2}).",
            result.row
        ))
    };
    let both = [
        sentence("advice for each block", &|rival| matches!(rival, Variant::WillNeed(_))),
        sentence("the best stream", &|rival| matches!(rival, Variant::Stream(_))),
    ];
    both.into_iter().flatten().collect()
}

/// A strategy that is surely faster over all decided rows than the default without a profile.
pub(super) fn advice(results: &[RowResult], judge: &Judge) -> Option<Advice> {
    let default = ReadaheadStrategy::default();
    let is_decided = |result: &&RowResult| {
        result.adaptive(judge).is_some_and(|it| it.ratio.judgement() != Judgement::Undecided) // [SCO-2]
    };
    let rows: Vec<&RowResult> = results.iter().filter(is_decided).collect();
    if rows.len() < ROWS_MIN {
        return None;
    }
    // Each row has the same weight, however many rounds it took.
    let mean = |rates: Vec<f64>| {
        (rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64).exp()
    };
    let of = |strategy| {
        let rates = rows.iter().map(|row| row.rates(Variant::Stream(strategy)).map(mean));
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
