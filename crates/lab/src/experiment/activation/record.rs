//! Records of the experiment: what most repetitions of a cell show, and how many that are.
//!
//! `reads_until_ahead` is null where most repetitions saw nothing read ahead, and `repetitions_ahead` says in
//! how many something was. `windows_bytes` has what came with each read that brought anything, from the one
//! on at which it began.

use serde_json::{Map, Value, json};

use super::settings::Cell;
use super::trail::agreed;
use super::{NAME, Settings, Tally};
use crate::experiment::readahead::place;
use crate::experiment::unique;
use crate::facts::Storage;
use crate::report::Record;

/// Windows that are reported; they double, so that more are hardly ever seen.
const WINDOWS_MAX: usize = 64;

/// The records of all `cells`, in their order.
pub(super) fn records(
    settings: &Settings,
    storage: &Storage,
    cells: &[Cell],
    tallies: &[Tally],
) -> Vec<Record> {
    let pairs = cells.iter().zip(tallies);
    pairs.map(|(&cell, tally)| record(settings, storage, cell, tally)).collect()
}

fn record(settings: &Settings, storage: &Storage, cell: Cell, tally: &Tally) -> Record {
    let mut fields = object(json!({
        "start": cell.start.name(),
        "advice": cell.told.name(),
        "request_bytes": cell.request_bytes,
        "stride_bytes": cell.request_bytes * u64::from(cell.stride),
        "streams": cell.streams,
        "descriptors": cell.descriptors.name(),
        "readahead_bytes": settings.readahead_of(cell.told),
        "cache": "buffered",
    }));
    fields.extend(place(storage));
    Record {
        rounds: Vec::new(),
        experiment: NAME.to_owned(),
        cell: fields,
        metrics: metrics(tally),
        remarks: remarks(tally),
    }
}

fn metrics(tally: &Tally) -> Map<String, Value> {
    let (finding, agreeing, windows_agreeing) = agreed(&tally.findings);
    let ahead = tally.findings.iter().filter(|one| one.reads_until_ahead.is_some()).count();
    let windows = &finding.windows[..finding.windows.len().min(WINDOWS_MAX)];
    object(json!({
        "reads_until_ahead": finding.reads_until_ahead,
        "window_bytes_initial": windows.first(),
        "window_bytes_max": windows.iter().max(),
        "windows_bytes": windows,
        "repetitions": tally.findings.len(),
        "repetitions_agreeing": agreeing,
        "repetitions_agreeing_on_windows": windows_agreeing,
        "repetitions_ahead": ahead,
    }))
}

fn remarks(tally: &Tally) -> Vec<String> {
    let mut remarks = unique(&tally.remarks);
    let (finding, agreeing, _) = agreed(&tally.findings);
    let of = tally.findings.len() as u32;
    if agreeing < of {
        let mut seen: Vec<String> = tally
            .findings
            .iter()
            .map(|one| one.reads_until_ahead.map_or("never".to_owned(), |reads| reads.to_string()))
            .collect();
        seen.sort_unstable();
        remarks.push(format!(
            "the repetitions do not agree: it began at read {}",
            unique(&seen).join(", ")
        ));
    }
    if finding.reads_until_ahead.is_none() && agreeing == of && of > 0 {
        remarks.push("nothing was read ahead".to_owned());
    }
    remarks
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trail::Finding;
    use super::*;

    fn tally(found: &[(Option<u32>, &[u64])]) -> Tally {
        let finding = |&(reads_until_ahead, windows): &(Option<u32>, &[u64])| Finding {
            reads_until_ahead,
            windows: windows.to_vec(),
        };
        Tally { findings: found.iter().map(finding).collect(), remarks: Vec::new() }
    }

    #[test]
    fn what_most_saw_is_the_figure_and_the_others_are_told() {
        let windows: &[u64] = &[32, 64, 128, 128];
        let tally = tally(&[(Some(2), windows), (Some(3), &[32]), (Some(2), &[32, 64])]);
        let metrics = metrics(&tally);
        assert_eq!(metrics["reads_until_ahead"], 2);
        assert_eq!(
            (&metrics["repetitions"], &metrics["repetitions_agreeing"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(metrics["repetitions_ahead"], 3);
        assert_eq!(remarks(&tally), ["the repetitions do not agree: it began at read 2, 3"]);
    }

    #[test]
    fn windows_are_a_list_with_its_first_and_its_largest() {
        let windows: &[u64] = &[32, 64, 128, 96];
        let metrics = metrics(&tally(&[(Some(1), windows)]));
        assert_eq!(metrics["windows_bytes"], json!(windows));
        assert_eq!(
            (&metrics["window_bytes_initial"], &metrics["window_bytes_max"]),
            (&json!(32), &json!(128))
        );
        assert_eq!(metrics["repetitions_agreeing_on_windows"], 1);
    }

    #[test]
    fn nothing_ahead_is_null_and_said() {
        let tally = tally(&[(None, &[]), (None, &[])]);
        let metrics = metrics(&tally);
        assert!(metrics["reads_until_ahead"].is_null() && metrics["window_bytes_max"].is_null());
        assert_eq!(metrics["repetitions_ahead"], 0);
        assert_eq!(remarks(&tally), ["nothing was read ahead"]);
    }
}
