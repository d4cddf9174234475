//! Part `activation`: after how many reads the kernel begins to read ahead, and how that grows.
//!
//! Document 002 of the sources left it open: "Readahead does not activate for pure random requests. The
//! question is, when does it?" Here a fresh descriptor reads one block after the other, from the beginning
//! of a file and from its middle, in steps of one and of several blocks, under each kind of advice; after
//! each read the page cache shows what the kernel has read beyond it. Two streams that take turns show whether
//! the kernel can distinguish them through one descriptor, and through two.
//!
//! Each cell is repeated, every time from an emptied page cache and (except for the beginning, of which there is
//! one) in another part of the file. `reads_until_ahead` is null where most repetitions saw nothing read
//! ahead; `windows_bytes` has the bytes added by each read that added any, from the first one that read
//! ahead. Its figures are those of the most common repetition, and the report says how many agree.
//!
//! Failure:     where residency cannot be seen nothing is measured, and the report says so.
//! Source:      document 002; the kernel's `mm/readahead.c` is what is observed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use forebay_io::File;
use serde::Serialize;

use super::control::{Fadvise, Readahead};
use super::files::emptied;
use super::settings::{Files, NAME, PLACE_BYTES, Part, Settings};
use super::watch::{Finding, Stream, follow};
use crate::experiment::driver::{AllAlike, drive};
use crate::experiment::samples::{Missing, Row};
use crate::experiment::schedule::Limits;
use crate::experiment::{Bench, stopwatch};
use forebay_measure::coldness::Coldness;
use forebay_measure::lists::unique;
use forebay_measure::report::{Record, fields};
use forebay_measure::units::{shown_size, typed_size};
use forebay_measure::workfile::Workfile;

/// A cell and its repetitions.
pub(super) type Cell = Row<Activation, Finding>;

/// Maximum bytes read until a window of the full size has occurred three times: this many times that size.
const WINDOWS_IN_SPAN: u64 = 6;

/// Minimum bytes examined beyond a read, and minimum bytes read in all.
const SPAN_BYTES_MIN: u64 = 4 << 20;

/// Maximum number of reported windows; they double, so that more are almost never seen.
const WINDOWS_MAX: usize = 64;

/// Where in the file a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Start {
    /// At byte 0, where the kernel expects a sequence.
    Begin,
    /// Anywhere else.
    Middle,
}

/// One condition to examine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Activation {
    pub(super) start: Start,
    #[serde(flatten)]
    pub(super) readahead: Readahead,
    pub(super) request_bytes: u64,
    /// From the start of a read to the start of the next.
    pub(super) stride_bytes: u64,
    /// 1, or 2 that take turns.
    pub(super) streams: u32,
    /// Through which two streams read.
    descriptors: Files,
}

impl Activation {
    /// Where it begins and how it reads.
    fn with_readahead(&self) -> String {
        format!("{}, {}", self.label(), self.readahead)
    }

    pub(super) fn label(&self) -> String {
        let start = if self.start == Start::Begin { "begin" } else { "middle" };
        let reads = match (self.streams, self.descriptors) {
            (2, Files::One) => "two streams, one descriptor".to_owned(),
            (2, Files::Own) => "two streams, own descriptors".to_owned(),
            _ if self.gap_bytes() > 0 => format!("leaving out {}", typed_size(self.gap_bytes())),
            _ => "one after the other".to_owned(),
        };
        format!("{start}, {reads}")
    }

    /// Between two reads.
    fn gap_bytes(&self) -> u64 {
        self.stride_bytes - self.request_bytes
    }

    /// The maximum length of a stream, in bytes.
    fn span_bytes(&self, size_bytes: u64) -> u64 {
        let full = self.readahead.bytes.unwrap_or(0);
        // Half of a half: two streams fit, and repetitions can use other places.
        full.saturating_mul(WINDOWS_IN_SPAN).max(SPAN_BYTES_MIN).min(size_bytes / 4)
    }

    /// The part of the file in which each stream begins and which is examined.
    fn parts(&self, size_bytes: u64, random: &mut fastrand::Rng) -> Vec<Range<u64>> {
        let (streams, span_bytes) = (u64::from(self.streams), self.span_bytes(size_bytes));
        let room = size_bytes / streams;
        let places = (room.saturating_sub(span_bytes) / PLACE_BYTES).max(2);
        let place = match self.start {
            Start::Begin => 0,
            Start::Middle => random.u64(1..places) * PLACE_BYTES,
        };
        let ahead = self.readahead.bytes.unwrap_or(0).saturating_mul(2).max(SPAN_BYTES_MIN);
        let len = span_bytes.saturating_add(ahead).min(room);
        let starts = (0..streams).map(|stream| place + stream * room);
        starts.map(|start| start..(start + len).min(size_bytes)).collect()
    }
}

/// All cells to measure, in the order of the report.
pub(super) fn cells(settings: &Settings) -> Vec<Activation> {
    let args = &settings.args;
    let mut cells = Vec::new();
    if !settings.has(Part::Activation) {
        return cells;
    }
    for request_bytes in settings.requests(Part::Activation) {
        let mut cell = |start, advice, stride: u32, streams, descriptors| {
            cells.push(Activation {
                start,
                readahead: Readahead::descriptor(advice, settings.control.found_bytes),
                request_bytes,
                stride_bytes: request_bytes * u64::from(stride),
                streams,
                descriptors,
            });
        };
        for start in [Start::Begin, Start::Middle] {
            for &stride in &args.strides {
                // Advice concerns sequences; strides only test the kernel's own detection.
                let hints =
                    args.hints.iter().filter(|&&advice| stride == 1 || advice == Fadvise::Normal);
                hints.for_each(|&advice| cell(start, advice, stride, 1, Files::One));
            }
        }
        if args.hints.contains(&Fadvise::Normal) {
            cell(Start::Middle, Fadvise::Normal, 1, 2, Files::One);
            cell(Start::Middle, Fadvise::Normal, 1, 2, Files::Own);
        }
    }
    cells
}

/// Measures all cells, under the device's original readahead.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn measure(
    settings: &Settings,
    bench: &Bench<'_>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Cell>> {
    let mut cells = AllAlike::new(cells(settings), Activation::with_readahead);
    let mut random = fastrand::Rng::with_seed(settings.args.common.seed);
    let first = settings.args.repetitions;
    let limits = Limits { first, first_time: Duration::MAX, time: Duration::ZERO };
    drive(&mut cells, limits, &mut random, &stopwatch(), progress, |cells, index, turn| {
        let coldness = emptied(bench.workfile)?;
        if let Coldness::Unknown { why } = coldness {
            return Err(Missing(why).into());
        }
        let row = &mut cells.rows[index];
        row.begins(&coldness);
        repetition(&row.cell, bench.workfile, turn.random)
    })?;
    Ok(cells.rows)
}

/// Reads `cell` once, from an emptied page cache.
fn repetition(
    cell: &Activation,
    workfile: &Workfile,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Finding> {
    let open = || cell.readahead.open(workfile.path());
    let (first, second) = (open()?, open()?);
    let files: [&File; 2] = match cell.descriptors {
        Files::One => [&first, &first],
        Files::Own => [&first, &second],
    };
    let parts = cell.parts(workfile.size_bytes, random).into_iter();
    let mut streams: Vec<Stream<'_>> =
        parts.zip(files).map(|(part, file)| Stream::new(file, part)).collect();
    let ends = cell.span_bytes(workfile.size_bytes).saturating_sub(cell.request_bytes);
    let offsets = (0..=ends).step_by(cell.stride_bytes as usize);
    follow(workfile, &mut streams, cell.request_bytes, offsets)?;
    // Of two streams, the one that waited longer; one that never saw readahead counts as the longest.
    let findings = streams.into_iter().map(|stream| stream.finding);
    let reads = |finding: &Finding| finding.reads_until_ahead.unwrap_or(u32::MAX);
    Ok(findings.max_by_key(reads).unwrap_or_default())
}

/// The result of most repetitions of a cell, and their number.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) reads_until_ahead: Option<u32>,
    window_bytes_initial: Option<u64>,
    window_bytes_max: Option<u64>,
    pub(super) windows_bytes: Vec<u64>,
    pub(super) repetitions: u32,
    pub(super) repetitions_agreeing: u32,
}

/// The most common of `items`, the least on a tie, and its count.
fn most_common<T: Ord>(items: impl Iterator<Item = T>) -> Option<(T, u32)> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_insert(0) += 1);
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

impl Cell {
    pub(super) fn summary(&self) -> Summary {
        let reads = most_common(self.rounds.iter().map(|one| one.reads_until_ahead));
        let (reads_until_ahead, repetitions_agreeing) = reads.unwrap_or_default();
        let agreeing = self.rounds.iter().filter(|one| one.reads_until_ahead == reads_until_ahead);
        let windows = most_common(agreeing.map(|one| &one.windows_bytes));
        let mut windows_bytes = windows.map(|(windows, _)| windows.clone()).unwrap_or_default();
        windows_bytes.truncate(WINDOWS_MAX);
        Summary {
            reads_until_ahead,
            window_bytes_initial: windows_bytes.first().copied(),
            window_bytes_max: windows_bytes.iter().max().copied(),
            windows_bytes,
            repetitions: self.rounds.len() as u32,
            repetitions_agreeing,
        }
    }

    /// Remarks for the reader on its figures.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = self.notes();
        let summary = self.summary();
        if summary.repetitions_agreeing < summary.repetitions {
            let seen = self.rounds.iter().map(|one| one.reads_until_ahead);
            let mut seen: Vec<String> = seen
                .map(|reads| reads.map_or("never".to_owned(), |reads| reads.to_string()))
                .collect();
            seen.sort_unstable();
            let seen = unique(&seen).join(", ");
            remarks.push(format!("the repetitions do not agree: it began at read {seen}"));
        } else if summary.repetitions > 0 && summary.reads_until_ahead.is_none() {
            remarks.push("nothing was read ahead".to_owned());
        }
        remarks
    }
}

/// The record of a cell.
pub(super) fn record(cell: &Cell) -> Record {
    let mut record = cell.record(NAME, "reads_until_ahead");
    record.metrics.extend(fields(&cell.summary()));
    record.remarks = cell.remarks();
    record
}

/// The conclusion: the answer to document 002's question, from the largest reads in sequence in which all
/// repetitions agree. `None` if no such cell was measured.
pub(super) fn sentence(cells: &[Cell]) -> Option<String> {
    let first = cells.first()?;
    let at = |start: Start| {
        let sequences = cells.iter().filter(|Row { cell, .. }| {
            let is_sequence = cell.gap_bytes() == 0 && cell.streams == 1;
            is_sequence && cell.start == start && cell.readahead.advice == Some(Fadvise::Normal)
        });
        let agreed = sequences.filter(|row| {
            let agreeing = row.summary().repetitions_agreeing as usize;
            agreeing > 0 && agreeing == row.rounds.len() && row.cold
        });
        agreed.max_by_key(|row| row.cell.request_bytes)
    };
    let begins = |cell: &Cell| match cell.summary().reads_until_ahead {
        Some(reads) => format!("with read {reads}"),
        None => "never".to_owned(),
    };
    let Some(middle) = at(Start::Middle) else {
        return Some(match &first.failure {
            Some(why) => format!("Not measured: when the kernel begins to read ahead ({why})."),
            None => "No conclusion about when the kernel begins to read ahead: the repetitions do not agree."
                .to_owned(),
        });
    };
    let begin = at(Start::Begin)
        .map_or(String::new(), |begin| format!(" ({} at the beginning of a file)", begins(begin)));
    let Summary { window_bytes_initial, window_bytes_max, .. } = middle.summary();
    let grows =
        window_bytes_initial.zip(window_bytes_max).map_or(String::new(), |(first, last)| {
            let (first, last) = (shown_size(first), shown_size(last));
            format!(", {first} first and then more each time, up to {last}")
        });
    Some(format!(
        "The kernel begins to read ahead {}{begin} of a sequence of {} reads{grows}.",
        begins(middle),
        typed_size(middle.cell.request_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::view;
    use super::*;
    use serde_json::json;

    fn settings() -> Settings {
        let options = "--quick --files own --set-via descriptor --request 4KiB,8KiB";
        Settings::new(crate::experiment::typed(options)).unwrap()
    }

    #[test]
    fn advice_is_for_sequences_and_there_is_none_for_two_streams() {
        let cells = cells(&settings());
        // For each of two sizes: both starts with three hints and one stride, and two streams twice.
        assert_eq!(cells.len(), 2 * (2 * (3 + 1) + 2));
        let strided = cells.iter().filter(|cell| cell.stride_bytes > cell.request_bytes);
        assert!(strided.clone().count() > 0);
        let has_no_advice = |cell: &Activation| cell.readahead.advice == Some(Fadvise::Normal);
        assert!(strided.clone().all(|cell| has_no_advice(cell) && cell.streams == 1));
    }

    #[test]
    fn every_stream_stays_in_the_file_and_away_from_the_other() {
        let settings = settings();
        let mut random = fastrand::Rng::with_seed(1);
        for cell in cells(&settings) {
            let span_bytes = cell.span_bytes(settings.size_bytes);
            for _ in 0..50 {
                let parts = cell.parts(settings.size_bytes, &mut random);
                assert_eq!(parts.len(), cell.streams as usize);
                assert_eq!(parts[0].start == 0, cell.start == Start::Begin);
                assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
                for part in parts {
                    assert!(part.end <= settings.size_bytes);
                    assert!(part.start + span_bytes <= part.end);
                }
            }
        }
    }

    /// A cell of reads of 8 KiB that saw `found` in its repetitions; `stride` in reads.
    fn cell(
        start: Start,
        stride: u64,
        (streams, descriptors): (u32, Files),
        found: &[(Option<u32>, &[u64])],
    ) -> Cell {
        let mut cell = Cell::new(Activation {
            start,
            readahead: Readahead::descriptor(Fadvise::Normal, Some(131_072)),
            request_bytes: 8192,
            stride_bytes: 8192 * stride,
            streams,
            descriptors,
        });
        let finding = |&(reads_until_ahead, windows): &(Option<u32>, &[u64])| Finding {
            reads_until_ahead,
            windows_bytes: windows.to_vec(),
        };
        cell.rounds.extend(found.iter().map(finding));
        cell
    }

    const SEQUENCE: (u32, Files) = (1, Files::One);
    const GROWING: &[u64] = &[32_768, 65_536, 131_072, 131_072];

    fn began(start: Start, stride: u64, streams: (u32, Files), reads: Option<u32>) -> Cell {
        cell(start, stride, streams, &[(reads, if reads.is_some() { GROWING } else { &[] }); 3])
    }

    #[test]
    fn what_most_saw_is_the_figure_and_the_others_are_reported() {
        let found: [(Option<u32>, &[u64]); 3] =
            [(Some(2), &[32, 64, 128, 96]), (Some(3), &[32]), (Some(2), &[32, 64, 128, 96])];
        let made = record(&cell(Start::Middle, 1, SEQUENCE, &found));
        let metrics = &made.metrics;
        assert_eq!(
            (&metrics["reads_until_ahead"], &metrics["repetitions"]),
            (&json!(2), &json!(3))
        );
        assert_eq!(metrics["repetitions_agreeing"], 2);
        assert_eq!(metrics["windows_bytes"], json!([32, 64, 128, 96]));
        assert_eq!(metrics["window_bytes_initial"], 32);
        assert_eq!(metrics["window_bytes_max"], 128);
        assert_eq!(made.remarks, ["the repetitions do not agree: it began at read 2, 3"]);
        assert_eq!((&made.rounds[1]["reads_until_ahead"], made.rounds.len()), (&json!(3), 3));
        let sequence = began(Start::Middle, 1, SEQUENCE, Some(2));
        let strided = began(Start::Begin, 2, SEQUENCE, None);
        let table = view::activation(&[sequence, strided]);
        let texts = |row: usize| -> Vec<&str> {
            table.rows[row].cells.iter().map(|cell| cell.text.as_str()).collect()
        };
        let windows = "32 KiB, 64 KiB, 128 KiB, 128 KiB";
        assert_eq!(
            texts(0),
            ["middle, one after the other", "128 KiB (NORMAL)", "read 2", "3 of 3", windows]
        );
        assert_eq!(texts(1)[..3], ["begin, leaving out 8KiB", "128 KiB (NORMAL)", "never"]);
        assert_eq!(table.notes(), ["nothing was read ahead"]);
        assert_eq!(made.cell_text("advice"), "normal");
    }

    #[test]
    fn nothing_ahead_is_null_and_said() {
        let made = record(&cell(Start::Middle, 1, SEQUENCE, &[(None, &[]), (None, &[])]));
        assert!(made.metrics["reads_until_ahead"].is_null());
        assert!(made.metrics["window_bytes_max"].is_null());
        assert_eq!(made.remarks, ["nothing was read ahead"]);
    }

    #[test]
    fn the_question_of_document_002_is_answered() {
        let text = sentence(&[
            began(Start::Begin, 1, SEQUENCE, Some(1)),
            began(Start::Middle, 1, SEQUENCE, Some(2)),
            began(Start::Middle, 2, SEQUENCE, None),
            began(Start::Middle, 1, (2, Files::One), Some(3)),
        ]);
        assert_eq!(
            text.as_deref(),
            Some(
                "The kernel begins to read ahead with read 2 (with read 1 at the beginning of a file) of a \
                 sequence of 8KiB reads, 32.0 KiB first and then more each time, up to 128.0 KiB."
            )
        );
    }

    #[test]
    fn what_repetitions_do_not_agree_on_is_not_reported() {
        let found = [(Some(2), GROWING), (Some(2), GROWING), (Some(3), GROWING)];
        let unsure = sentence(&[cell(Start::Middle, 1, SEQUENCE, &found)]).unwrap();
        assert!(unsure.contains("the repetitions do not agree"), "{unsure}");
        let mut blind = cell(Start::Middle, 1, SEQUENCE, &[]);
        blind.failure = Some("no mincore".to_owned());
        assert!(sentence(&[blind]).unwrap().contains("no mincore"));
        assert_eq!(sentence(&[]), None);
    }
}
