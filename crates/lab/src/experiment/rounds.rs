//! Rounds: what experiments with typed cells have in common when they tell of their rounds.

use crate::report::numbers;
use crate::statistics::median;

/// Rounds further apart than this, the highest of the lowest, are told with their median.
const APART: f64 = 1.1;

/// The median of the rounds with its unit, and where they begin and end if they are far apart.
pub(super) fn told(rounds: &[f64], unit: &str) -> String {
    let Some(middle) = median(rounds) else { return "not measured".to_owned() };
    let (low, high) = range(rounds);
    let middle = numbers::number(middle);
    if high > low * APART {
        let (low, high) = (numbers::number(low), numbers::number(high));
        format!("{middle} {unit} (rounds from {low} to {high})")
    } else {
        format!("{middle} {unit}")
    }
}

/// The lowest and the highest.
pub(super) fn range(rounds: &[f64]) -> (f64, f64) {
    rounds.iter().fold((f64::INFINITY, 0.0), |(low, high), &it| (low.min(it), high.max(it)))
}

/// The rounds that both have: the first ones, which were measured side by side.
pub(super) fn side_by_side<'r>(a: &'r [f64], b: &'r [f64]) -> (&'r [f64], &'r [f64]) {
    let rounds = a.len().min(b.len());
    (&a[..rounds], &b[..rounds])
}
