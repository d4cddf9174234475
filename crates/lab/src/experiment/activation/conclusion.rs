//! What the records of `activation` say, in sentences: the answer to document 002's question.
//!
//! Only cells in which all repetitions agree are spoken of.

use super::NAME;
use crate::report::{Conclusion, Record};
use crate::units::{shown_size, typed_size};

/// The conclusions.
pub(super) fn draw(records: &[Record]) -> Vec<Conclusion> {
    let told = [sequences(records), strides(records), two_streams(records)];
    let mut sentences: Vec<String> = told.into_iter().flatten().collect();
    if sentences.is_empty() {
        sentences.push(
            "No conclusion about when the kernel begins to read ahead: the repetitions do not agree."
                .to_owned(),
        );
    }
    let advice = |sentence| Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    };
    sentences.into_iter().map(advice).collect()
}

fn is_agreed(record: &Record) -> bool {
    let all = record.metric("repetitions").unwrap_or(0.0);
    all > 0.0 && record.metric("repetitions_agreeing") == Some(all) && !record.is_not_cold()
}

/// The record of a stream with the largest reads, told nothing, that all repetitions agree on.
fn of(records: &[Record], is: impl Fn(&Record) -> bool) -> Option<&Record> {
    records
        .iter()
        .filter(|record| record.cell_text("advice") == "normal" && is_agreed(record) && is(record))
        .max_by_key(|record| record.cell_number("request_bytes"))
}

fn is_sequence(record: &Record) -> bool {
    record.cell_number("stride_bytes") == record.cell_number("request_bytes")
        && record.cell_number("streams") == Some(1)
}

fn sequences(records: &[Record]) -> Option<String> {
    let at = |start: &str| {
        of(records, |record| is_sequence(record) && record.cell_text("start") == start)
    };
    let reads = |record: &Record| record.metric("reads_until_ahead");
    let told = |record: &Record| match reads(record) {
        Some(reads) => format!("with read {reads:.0}"),
        None => "never".to_owned(),
    };
    let middle = at("middle")?;
    let size = |key| middle.metric(key).map(|bytes| shown_size(bytes as u64));
    let begin = at("begin")
        .map_or(String::new(), |begin| format!(" ({} at the beginning of a file)", told(begin)));
    let grows = size("window_bytes_initial")
        .zip(size("window_bytes_max"))
        .map_or(String::new(), |(first, last)| {
            format!(", {first} first and then more each time, up to {last}")
        });
    Some(format!(
        "The kernel begins to read ahead {}{begin} of a sequence of {} reads{grows}.",
        told(middle),
        typed_size(middle.cell_number("request_bytes")?),
    ))
}

/// How much may be left out between two reads.
fn strides(records: &[Record]) -> Option<String> {
    let strided = records.iter().filter(|record| {
        let is_normal = record.cell_text("advice") == "normal";
        is_normal && record.cell_text("start") == "middle" && is_agreed(record)
    });
    let gaps: Vec<(u64, bool)> = strided
        .filter_map(|record| {
            let stride = record.cell_number("stride_bytes")?;
            let gap = stride.checked_sub(record.cell_number("request_bytes")?)?;
            (gap > 0).then_some((gap, record.metric("reads_until_ahead").is_some()))
        })
        .collect();
    let widest = gaps.iter().filter(|(_, ahead)| *ahead).map(|(gap, _)| *gap).max();
    let narrowest = gaps.iter().filter(|(_, ahead)| !*ahead).map(|(gap, _)| *gap).min();
    match (widest, narrowest) {
        (None, None) => None,
        (None, Some(not)) => Some(format!(
            "Reads that leave out {} between them are no sequence to it: it reads nothing ahead.",
            typed_size(not)
        )),
        (Some(still), None) => Some(format!(
            "Reads that leave out up to {} between them are read ahead for as well.",
            typed_size(still)
        )),
        (Some(still), Some(not)) if still < not => Some(format!(
            "Reads that leave out up to {} between them are still a sequence to it, those that leave out \
             {} are not.",
            typed_size(still),
            typed_size(not)
        )),
        // Sizes and strides say different things; the table has them.
        (Some(_), Some(_)) => None,
    }
}

fn two_streams(records: &[Record]) -> Option<String> {
    let through = |descriptors: &str| {
        of(records, |record| {
            record.cell_number("streams") == Some(2)
                && record.cell_text("descriptors") == descriptors
        })
    };
    let (one, own) = (through("one")?, through("own")?);
    let told = |record: &Record| {
        let reads = record.metric("reads_until_ahead");
        let window = record.metric("window_bytes_max").map(|bytes| shown_size(bytes as u64));
        match (reads, window) {
            (Some(reads), Some(window)) => format!("with read {reads:.0} of each, up to {window}"),
            _ => "never".to_owned(),
        }
    };
    Some(format!(
        "For two streams that take turns it begins {} through one descriptor, and {} through two.",
        told(one),
        told(own)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(start: &str, stride: u64, streams: (u64, &str), reads: Option<u32>) -> Record {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        Record {
            rounds: Vec::new(),
            experiment: NAME.to_owned(),
            cell: map(json!({
                "start": start, "advice": "normal", "request_bytes": 8192,
                "stride_bytes": 8192 * stride, "streams": streams.0, "descriptors": streams.1,
            })),
            metrics: map(json!({
                "reads_until_ahead": reads, "repetitions": 20, "repetitions_agreeing": 20,
                "window_bytes_initial": reads.map(|_| 32_768),
                "window_bytes_max": reads.map(|_| 131_072),
            })),
            remarks: Vec::new(),
        }
    }

    fn told(records: &[Record]) -> String {
        draw(records).into_iter().map(|advice| advice.sentence).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_question_of_document_002_is_answered() {
        let told = told(&[
            record("begin", 1, (1, "one"), Some(1)),
            record("middle", 1, (1, "one"), Some(2)),
            record("begin", 2, (1, "one"), Some(1)),
            record("middle", 2, (1, "one"), None),
            record("middle", 1, (2, "one"), Some(3)),
            record("middle", 1, (2, "own"), Some(2)),
        ]);
        let first = "begins to read ahead with read 2 (with read 1 at the beginning of a file) of a \
                     sequence of 8KiB reads, 32.0 KiB first and then more each time, up to 128.0 KiB.";
        assert!(told.contains(first), "{told}");
        assert!(told.contains("Reads that leave out 8KiB between them are no sequence"), "{told}");
        assert!(told.contains("begins with read 3 of each, up to 128.0 KiB through one"), "{told}");
    }

    #[test]
    fn how_much_may_be_left_out_is_told_from_both_sides() {
        let page = |reads| {
            let mut made = record("middle", 2, (1, "one"), reads);
            made.cell.insert("request_bytes".into(), json!(4096));
            made.cell.insert("stride_bytes".into(), json!(8192));
            made
        };
        let far = record("middle", 2, (1, "one"), None);
        let told = strides(&[page(Some(2)), far]).unwrap();
        let expected = "leave out up to 4KiB between them are still a sequence to it, those that leave out 8KiB are";
        assert!(told.contains(expected), "{told}");
        let odd = [page(None), record("middle", 2, (1, "one"), Some(2))];
        assert_eq!(strides(&odd), None);
    }

    #[test]
    fn what_repetitions_do_not_agree_on_is_not_told() {
        let mut unsure = record("middle", 1, (1, "one"), Some(2));
        unsure.metrics.insert("repetitions_agreeing".into(), json!(19));
        assert!(told(&[unsure]).contains("the repetitions do not agree"));
    }
}
