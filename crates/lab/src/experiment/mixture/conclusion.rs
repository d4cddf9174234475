//! What the records of `mixture` say: who loses more, and under which readahead.

use super::NAME;
use crate::report::{Conclusion, Record};
use crate::units::shown_size;

/// Losing less than this is not losing.
const CLEAR: f64 = 0.95;

/// The conclusions.
pub(super) fn draw(records: &[Record]) -> Vec<Conclusion> {
    let mut both: Vec<&Record> = records
        .iter()
        .filter(|record| record.cell_text("mix") == "both" && !record.is_not_cold())
        .filter(|record| {
            record.metric("stream_kept").is_some() && record.metric("random_kept").is_some()
        })
        .collect();
    both.sort_by_key(|record| record.cell_number("readahead_bytes"));
    let sentence = match both[..] {
        [] => "No conclusion about streams beside random readers: too little could be measured."
            .to_owned(),
        [only] => format!("Together {}.", told(only)),
        [least, .., most] => {
            format!("Together, {} {}; {} {}.", under(least), told(least), under(most), told(most))
        }
    };
    vec![Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    }]
}

fn under(record: &Record) -> String {
    let bytes = record.cell_number("readahead_bytes");
    let advice = record.cell_text("advice");
    match bytes {
        Some(0) => "without readahead".to_owned(),
        Some(bytes) => format!("under a readahead of {}", shown_size(bytes)),
        None => format!("under advice {advice}"),
    }
}

fn told(record: &Record) -> String {
    let kept = |kind: &str, key: &str| {
        let kept = record.metric(key).unwrap_or(1.0);
        if kept < CLEAR {
            format!("{kind} keep {:.0} %", kept * 100.0)
        } else {
            format!("{kind} lose nothing")
        }
    };
    format!(
        "{} and {} of what they had alone",
        kept("streams", "stream_kept"),
        kept("random readers", "random_kept")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(bytes: u64, streams: f64, random: f64) -> Record {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        Record {
            rounds: Vec::new(),
            experiment: NAME.to_owned(),
            cell: map(json!({ "mix": "both", "readahead_bytes": bytes })),
            metrics: map(json!({ "stream_kept": streams, "random_kept": random })),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn the_smallest_and_the_largest_readahead_are_told_with_what_each_kind_keeps() {
        let told = &draw(&[record(6 << 20, 0.8, 0.1), record(0, 0.4, 0.97)])[0].sentence;
        assert_eq!(
            told,
            "Together, without readahead streams keep 40 % and random readers lose nothing of what they \
             had alone; under a readahead of 6.0 MiB streams keep 80 % and random readers keep 10 % of \
             what they had alone."
        );
        assert!(draw(&[])[0].sentence.starts_with("No conclusion"));
    }
}
