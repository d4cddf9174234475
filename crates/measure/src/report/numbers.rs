//! Numbers, as the tables and the page write them.
//!
//! Three or four digits are enough to compare and few enough to read; thousands are grouped, so
//! that 41,230 and 412,300 are easy to distinguish. What could not be measured is a dash.

use serde_json::Value;

use crate::statistics::{median, range};

/// If the highest round exceeds the lowest by more than this factor, both are shown with the median.
const SPREAD: f64 = 1.1;

/// A measured number: `41,230`, `873`, `12.4`, `0.873`.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e15.. => format!("{value:.1e}"), // no measurement, but a column must bear it
        100.0.. => grouped(value),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A whole number with its thousands grouped: `1,234,567`.
pub fn grouped(value: f64) -> String {
    let whole = value.round() as i64; // `as` saturates
    if whole.abs() < 1000 {
        return whole.to_string();
    }
    format!("{},{:03}", grouped((whole / 1000) as f64), whole.abs() % 1000)
}

/// A number of about four signs, for narrow cells: `873`, `41.2k`, `1.90M`.
pub fn compact(value: f64) -> String {
    match value.abs() {
        1e12.. => number(value),
        1e9.. => format!("{}G", number(value / 1e9)),
        1e6.. => format!("{}M", number(value / 1e6)),
        1e4.. => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// A share of one, in percent, without the sign: 0.034 is `3.4`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 10.0 || percent == 0.0 {
        format!("{percent:.0}")
    } else {
        format!("{percent:.1}")
    }
}

/// A length of time: `780 µs`, `2.10 ms`, `12.4 s`, `3 min 12 s`, `1 h 04 min`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64; // `as` saturates
    match seconds {
        0.0..0.000_999_5 => format!("{} µs", number(seconds * 1e6)),
        0.0..0.9995 => format!("{} ms", number(seconds * 1e3)),
        0.0..59.5 => format!("{} s", number(seconds)),
        0.0..3599.5 => format!("{} min {:02} s", whole / 60, whole % 60),
        0.0..f64::INFINITY => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        _ => "an unknown time".to_owned(),
    }
}

/// Any JSON value as a cell of a plain table; null is a dash.
pub fn value(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(digits) => match (digits.as_u64(), digits.as_f64()) {
            (Some(whole), _) if whole < 100 => whole.to_string(),
            (_, Some(float)) => number(float),
            _ => digits.to_string(),
        },
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The median of the rounds with its unit, and their range if they differ much.
pub fn of_rounds(rounds: &[f64], unit: &str) -> String {
    let Some(middle) = median(rounds) else { return "not measured".to_owned() };
    let (low, high) = range(rounds);
    let middle = number(middle);
    if high > low * SPREAD {
        let (low, high) = (number(low), number(high));
        format!("{middle} {unit} (rounds from {low} to {high})")
    } else {
        format!("{middle} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_group_thousands() {
        let written = [0.0, 0.000_04, 0.8731, 8.731, 87.31, 873.1, 87_310.4, 1_234_567.0];
        let written = written.map(number);
        assert_eq!(written, ["0", "4.0e-5", "0.873", "8.73", "87.3", "873", "87,310", "1,234,567"]);
        assert_eq!(number(-12_345.0), "-12,345");
        assert_eq!(number(f64::MAX), "1.8e308");
    }

    #[test]
    fn compact_numbers_fit_narrow_cells() {
        let written = [0.0, 873.0, 9_999.0, 41_230.0, 1_900_000.0, -2e9, 1e12].map(compact);
        let expected = ["0", "873", "9,999", "41.2k", "1.90M", "-2.00G", "1,000,000,000,000"];
        assert_eq!(written, expected);
    }

    #[test]
    fn null_is_a_dash_and_never_a_zero() {
        assert_eq!(value(&json!(null)), "–");
        assert_eq!(value(&json!(0)), "0");
        assert_eq!(value(&json!(64)), "64");
        assert_eq!(value(&json!(4096)), "4,096");
        assert_eq!(value(&json!([1, 2])), "[1,2]");
    }

    #[test]
    fn times_and_shares_are_short() {
        assert_eq!(seconds(12.44), "12.4 s");
        assert_eq!([0.00078, 0.0021].map(seconds), ["780 µs", "2.10 ms"]);
        assert_eq!(seconds(192.0), "3 min 12 s");
        assert_eq!(seconds(3840.0), "1 h 04 min");
        assert_eq!(seconds(f64::NAN), "an unknown time");
        assert_eq!(percent(0.0341), "3.4");
        assert_eq!(percent(0.16), "16");
    }
}
