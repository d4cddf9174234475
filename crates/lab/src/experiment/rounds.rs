//! Rounds: what experiments with typed cells have in common when they tell of their rounds.

use crate::report::numbers;
use crate::statistics::{median, range};

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
