//! What the records of `interplay` say: whether advice for single blocks pays, and what does.

use super::NAME;
use crate::report::{Conclusion, Record};
use crate::units::shown_size;

/// A difference below this is none.
const CLEAR: f64 = 1.05;

/// The figures of one way of reading in one place.
#[derive(Debug, Clone, Copy)]
struct Figures {
    rate: f64,
    rate_min: f64,
    rate_max: f64,
    requests: Option<f64>,
}

impl Figures {
    fn of(record: &Record) -> Option<Figures> {
        if record.is_not_cold() {
            return None;
        }
        Some(Figures {
            rate: record.metric("blocks_per_s")?,
            rate_min: record.metric("blocks_per_s_min")?,
            rate_max: record.metric("blocks_per_s_max")?,
            requests: record.metric("device_requests"),
        })
    }

    /// How much faster this is than `other`; `None` if it is not clearly, or the rounds overlap.
    fn gain_over(&self, other: &Figures) -> Option<f64> {
        let gain = self.rate / other.rate;
        (gain >= CLEAR && self.rate_min > other.rate_max).then_some(gain)
    }

    fn requests(&self) -> String {
        self.requests.map_or_else(String::new, |requests| format!(" with {requests:.0} requests"))
    }
}

/// The conclusions, the most useful first. Of the three patterns, `shuffled` is the one that databases
/// have; advice rests on it.
pub(super) fn draw(records: &[Record]) -> Vec<Conclusion> {
    let mut readaheads: Vec<Option<u64>> = records.iter().map(readahead).collect();
    readaheads.sort_unstable();
    readaheads.dedup();
    let several = readaheads.len() > 1;
    let mut advice: Vec<Conclusion> = Vec::new();
    for bytes in readaheads {
        let place = match bytes {
            Some(bytes) if several => format!(" (device readahead {})", shown_size(bytes)),
            _ => String::new(),
        };
        let here: Vec<&Record> = records
            .iter()
            .filter(|record| {
                record.cell_text("pattern") == "shuffled" && readahead(record) == bytes
            })
            .collect();
        advice.extend(advised_pages(&here, &place));
        advice.extend(streams(&here, &place));
    }
    if advice.is_empty() {
        let why = if records.iter().any(Record::is_not_cold) {
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
        } else {
            "No conclusion: no way of reading is clearly faster."
        };
        advice.push(sentence(why.to_owned()));
    }
    advice
}

fn sentence(sentence: String) -> Conclusion {
    Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    }
}

fn readahead(record: &Record) -> Option<u64> {
    record.cell_number("device_readahead_bytes")
}

/// The fastest of those `records` whose strategy `is` picks.
fn fastest<'a>(records: &[&'a Record], is: impl Fn(&str) -> bool) -> Option<(&'a Record, Figures)> {
    let picked = records.iter().filter(|record| is(record.cell_text("strategy")));
    let figures = picked.filter_map(|record| Some((*record, Figures::of(record)?)));
    figures.max_by(|a, b| f64::total_cmp(&a.1.rate, &b.1.rate))
}

fn kernel_alone(records: &[&Record]) -> Option<Figures> {
    fastest(records, |strategy| strategy == "os").map(|(_, figures)| figures)
}

/// Whether WILLNEED page by page is worth its calls.
fn advised_pages(records: &[&Record], place: &str) -> Option<Conclusion> {
    let alone = kernel_alone(records)?;
    let (best, advised) = fastest(records, |strategy| strategy.starts_with("willneed-"))?;
    let best = best.cell_text("strategy");
    let (first, second) = (advised.requests(), alone.requests());
    if let Some(gain) = alone.gain_over(&advised) {
        return Some(sentence(format!(
            "Do not advise blocks one by one in clustered random reads{place}: the kernel alone{second} \
             is {gain:.1} times as fast as {best}, the best distance{first}."
        )));
    }
    let gain = advised.gain_over(&alone)?;
    Some(sentence(format!(
        "Conclusion for each block pays in clustered random reads{place}: {best}{first} is {gain:.1} times as \
         fast as the kernel alone{second}."
    )))
}

/// What streams gain over the kernel alone.
fn streams(records: &[&Record], place: &str) -> Option<Conclusion> {
    let alone = kernel_alone(records)?;
    let is_stream = |strategy: &str| {
        !(strategy == "os" || strategy == "random" || strategy.starts_with("willneed-"))
    };
    let (best, figures) = fastest(records, is_stream)?;
    let gain = figures.gain_over(&alone)?;
    Some(sentence(format!(
        "A stream reads clustered random blocks {gain:.1} times as fast as the kernel alone{place}: {} {}{} \
         against{}.",
        best.cell_text("strategy"),
        best.cell_text("cache"),
        figures.requests(),
        alone.requests().trim_start_matches(" with"),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(strategy: &str, rate: f64, spread: f64) -> Record {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        Record {
            rounds: Vec::new(),
            experiment: NAME.to_owned(),
            cell: map(json!({
                "pattern": "shuffled", "strategy": strategy, "cache": "buffered",
                "device_readahead_bytes": 131_072,
            })),
            metrics: map(json!({
                "blocks_per_s": rate, "blocks_per_s_min": rate * (1.0 - spread),
                "blocks_per_s_max": rate * (1.0 + spread), "device_requests": 10.0 * rate,
            })),
            remarks: Vec::new(),
        }
    }

    fn told(records: &[Record]) -> String {
        draw(records).into_iter().map(|advice| advice.sentence).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn advice_block_by_block_is_advised_against_where_the_kernel_alone_is_faster() {
        let records = [
            record("os", 100.0, 0.01),
            record("willneed-8", 60.0, 0.01),
            record("random", 9.0, 0.0),
        ];
        let told = told(&records);
        assert!(told.contains("Do not advise"), "{told}");
        assert!(told.contains("1.7 times as fast as willneed-8"), "{told}");
    }

    #[test]
    fn it_is_advised_for_where_it_pays_and_neither_where_rounds_overlap() {
        let pays = [record("os", 35.0, 0.01), record("willneed-32", 66.0, 0.01)];
        assert!(told(&pays).contains("Conclusion for each block pays"));
        let unclear = [record("os", 60.0, 0.2), record("willneed-32", 66.0, 0.2)];
        assert!(told(&unclear).contains("No conclusion"));
    }

    #[test]
    fn what_a_stream_gains_is_said_with_its_requests() {
        let records = [record("os", 35.0, 0.01), record("async", 140.0, 0.01)];
        let told = told(&records);
        assert!(told.contains("4.0 times as fast as the kernel alone"), "{told}");
        assert!(told.contains("async buffered with 1400 requests against 350 requests"), "{told}");
    }

    #[test]
    fn what_was_not_cold_is_no_evidence() {
        let mut warm = record("async", 1400.0, 0.0);
        warm.remarks.push("not cold: 3 of 9 pages stayed in the page cache".to_owned());
        let told = told(&[record("os", 35.0, 0.01), warm]);
        assert!(told.contains("the page cache could not be emptied"), "{told}");
    }
}
