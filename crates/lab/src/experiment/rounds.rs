//! Rounds: what experiments with typed cells have in common when they tell of their rounds.

use serde::Serialize;
use serde_json::Value;

use super::unique;
use crate::report::{Record, numbers};
use crate::statistics::{median, range};

/// Rounds further apart than this, the highest of the lowest, are told with their median.
const APART: f64 = 1.1;

/// The record of a cell. `failure`: why it could not be measured, from some round on; `rate`: a metric that is
/// null without any round.
pub(super) fn record(
    experiment: &str,
    cell: &impl Serialize,
    rounds: &[impl Serialize],
    remarks: &[String],
    failure: Option<&str>,
    rate: &str,
) -> Record {
    let mut record = Record::new(experiment, cell, rounds);
    record.metrics.insert("rounds".to_owned(), rounds.len().into());
    record.remarks = unique(remarks);
    if let Some(why) = failure {
        let after = match rounds.len() {
            0 => String::new(),
            rounds => format!(" after {rounds} rounds"),
        };
        record.metrics.entry(rate).or_insert(Value::Null);
        record.remarks.insert(0, format!("not measured{after}: {why}"));
    }
    record
}

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
