//! The table that ends a run of `forebay lab readahead`: readahead against readers, as document 002 has it.
//!
//! Figures are MB/s of all readers together, the best of each column in bold; the bars are those of the most
//! readers, to one scale within a group. The last row of a group is the ceiling: direct reads.
//!
//! ```text
//!  readahead  sectors  1 reader   8 readers
//!                          MB/s        MB/s
//!  own files, reads of 8 KiB, ext3
//!  4 KiB            8       290          38  ██
//!  6 MiB       12,288       309         304  ███████████████
//!  direct           –       640         610  ██████████████████████████████
//! ```
//!
//! Invariants:  [TRA-1] a figure that was not cold stands in parentheses and its bar is hollow

use comfy_table::Color;

use super::super::footnotes::Footnotes;
use super::super::readahead::{Cell, Curves, End, Panel, Row};
use super::super::standing::Standing;
use super::super::{Record, numbers};
use super::grid::{self, Column, Figure, Group, KEPT, Kind, Tone};
use super::text::{ascii, footnotes, push_wrapped};
use super::{Look, WIDTH_MIN};

/// Columns of readers that are drawn; more than anybody measures.
const READERS_MAX: usize = 24;

/// Draws the records of the experiment `readahead`, then what the ends of the disk give and the remarks.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn readahead_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Curves::group(records);
    if grouped.is_empty() && grouped.leftovers.is_empty() {
        return "No readahead was measured.\n".to_owned();
    }
    let mut notes = Footnotes::default();
    let mut readers: Vec<u64> = grouped.panels.iter().flat_map(Panel::readers).collect();
    readers.sort_unstable();
    readers.dedup();
    readers.truncate(READERS_MAX);
    let group = |panel: &Panel<'_>| {
        let rows = panel
            .rows
            .iter()
            .map(|row| (row.label(), row))
            .chain(panel.ceiling.iter().map(|row| ("direct".to_owned(), row)));
        let rows = rows.map(|(label, row)| figures(panel, label, row, &readers, &mut notes));
        Group { heading: panel.label.clone(), rows: rows.collect() }
    };
    let groups: Vec<Group> = grouped.panels.iter().map(group).collect();
    let mut text = grid::draw_and_tell(&columns(&readers), &groups, look);
    text.push_str(&ends(&grouped.ends, &mut notes, look));
    let mut cells = grouped
        .panels
        .iter()
        .flat_map(|panel| panel.rows.iter().chain(&panel.ceiling))
        .flat_map(|row| &row.cells);
    let some_not_cold = cells.any(|cell| cell.standing() == Standing::NotCold);
    text.push_str(&footnotes(&notes, some_not_cold, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

fn columns(readers: &[u64]) -> Vec<Column> {
    let mut columns = vec![
        Column::new(["readahead", ""], Kind::Name, KEPT),
        Column::new(["sectors", ""], Kind::Number, 200),
    ];
    for (index, &count) in readers.iter().enumerate() {
        let name = match count {
            1 => "1 reader".to_owned(),
            2..1000 => format!("{count} readers"),
            _ => format!("{} readers", numbers::compact(count as f64)),
        };
        // The most and the fewest are what a narrow terminal keeps.
        let worth = if index + 1 == readers.len() {
            KEPT
        } else if index == 0 {
            150
        } else {
            100
        };
        columns.push(Column::new([&name, "MB/s"], Kind::Number, worth));
    }
    columns.push(Column::new(["", ""], Kind::Bar, 50));
    columns
}

fn figures(
    panel: &Panel<'_>,
    label: String,
    row: &Row<'_>,
    readers: &[u64],
    notes: &mut Footnotes,
) -> Vec<Figure> {
    let is_ceiling = panel.ceiling.as_ref().is_some_and(|ceiling| std::ptr::eq(ceiling, row));
    let sectors = row.sectors().unwrap_or_else(|| "–".to_owned());
    let mut figures = vec![Figure::plain(label), Figure::plain(sectors)];
    for &count in readers {
        figures.push(match row.at(count) {
            Some(cell) => figure(cell, !is_ceiling && cell.cold_rate() == panel.best(count), notes),
            None => Figure::default(),
        });
    }
    let most = readers.last().and_then(|&count| row.at(count));
    let share = most.and_then(|cell| {
        let highest = panel.highest().filter(|highest| *highest > 0.0)?;
        Some((cell.rate()? / highest, cell.standing()))
    });
    let ink = if is_ceiling { Color::DarkCyan } else { Color::DarkYellow };
    let tone = Tone { colour: Some(ink), ..Tone::default() };
    figures.push(Figure { bar: share, tone, ..Figure::default() });
    figures
}

fn figure(cell: &Cell<'_>, is_best: bool, notes: &mut Footnotes) -> Figure {
    let rate = cell.rate().map_or("–".to_owned(), |rate| numbers::number(rate / 1e6));
    let text = match cell.standing() {
        Standing::NotCold => format!("({rate})"), // [TRA-1]
        Standing::Cold | Standing::Unmeasured => rate,
    };
    let marks = notes.marks(&cell.record.remarks);
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    let is_cold = cell.standing() == Standing::Cold;
    Figure {
        text,
        suffix,
        tone: Tone { colour: None, bold: is_best && is_cold, dim: !is_cold },
        bar: None,
    }
}

/// What each end of the disk gives, in one sentence.
fn ends(ends: &[End<'_>], notes: &mut Footnotes, look: Look) -> String {
    let told: Vec<String> = ends
        .iter()
        .map(|end| {
            let rate = end.cell.rate().map(|rate| format!("{} MB/s", numbers::number(rate / 1e6)));
            let marks = notes.marks(&end.cell.record.remarks);
            let marks = if marks.is_empty() { marks } else { format!(" [{marks}]") };
            format!("{} {}{marks}", end.position, rate.unwrap_or_else(|| "–".to_owned()))
        })
        .collect();
    let mut text = String::new();
    if !told.is_empty() {
        text.push('\n');
        let line = format!("The whole disk, read raw: {}.", told.join(", "));
        push_wrapped(&mut text, " ", &line, look.width);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{absurd_readaheads, readahead, readahead_end};
    use super::*;

    const PLAIN: Look = Look { width: 100, colour: false, ascii: false };

    fn realistic() -> Vec<Record> {
        let mut records = vec![
            readahead("own", 8, None, 640e6),
            readahead_end("begin", 642e6),
            readahead_end("end", 432e6),
        ];
        for (bytes, one, eight) in [(4096, 290e6, 38e6), (6 << 20, 309e6, 304e6)] {
            records.push(readahead("own", 8, Some(bytes), eight));
            records.push(readahead("own", 1, Some(bytes), one));
        }
        records
    }

    fn row<'t>(text: &'t str, start: &str) -> &'t str {
        text.lines().find(|line| line.trim_start().starts_with(start)).unwrap()
    }

    #[test]
    fn the_table_is_that_of_document_002() {
        let text = readahead_table(&realistic(), PLAIN);
        let words = |start| row(&text, start).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words("4 KiB")[..5], ["4", "KiB", "8", "290", "38.0"], "{text}");
        assert_eq!(words("6 MiB")[..5], ["6", "MiB", "12,288", "309", "304"], "{text}");
        assert_eq!(words("direct")[..3], ["direct", "–", "640"], "{text}");
        let length = |line: &str| line.chars().filter(|sign| *sign == '█').count();
        assert!(length(row(&text, "6 MiB")) > 4 * length(row(&text, "4 KiB")), "{text}");
        assert!(length(row(&text, "direct")) > length(row(&text, "6 MiB")), "{text}");
        assert!(
            text.contains(" The whole disk, read raw: begin 642 MB/s, end 432 MB/s.\n"),
            "{text}"
        );
    }

    #[test]
    fn a_figure_that_was_not_cold_is_set_apart() {
        let mut records = realistic();
        records[5].remarks.push("not cold: 1 of 2 pages stayed".into());
        let text = readahead_table(&records, PLAIN);
        let warm = row(&text, "6 MiB");
        assert!(warm.contains("(304)[1]") && warm.contains('░'), "[TRA-1] {text}");
        assert!(text.contains(" [1] not cold: 1 of 2 pages stayed\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_records() {
        let all = [realistic(), absurd_readaheads()].concat();
        for records in [realistic(), absurd_readaheads(), all] {
            for width in [10, WIDTH_MIN, 40, 60, 79, 80, 100, 250] {
                for ascii in [false, true] {
                    let text = readahead_table(&records, Look { width, ascii, colour: false });
                    for line in text.lines() {
                        let columns = line.chars().count();
                        assert!(columns <= width.max(WIDTH_MIN), "[TER-1] {width}: {line}");
                    }
                    assert!(!ascii || text.is_ascii(), "[TER-2] {text}");
                }
            }
        }
    }

    #[test]
    fn nothing_measured_is_said() {
        assert_eq!(readahead_table(&[], PLAIN), "No readahead was measured.\n");
    }
}
