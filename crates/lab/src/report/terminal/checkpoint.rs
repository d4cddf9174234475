//! The tables that end a run of `forebay lab checkpoint`: ways of writing, and what readers felt.
//!
//! Bars are pages a second, to one scale within a pattern and cache mode. What readers felt over time is
//! a row of small bars, the longest read of each slot: a checkpoint written at once shows as a tooth.
//!
//! ```text
//!                     backend    time  of one   requests   bytes   sync
//!                                      by one              each
//!  clustered, direct
//!  arrival            sync      9.20 s  1.00      65,539  8.0 KiB  0 s     ██
//!  balanced, combined uring     1.70 s  0.185      8,195   64 KiB  0.02 s  ███████████████
//! ```
//!
//! Invariants:  [TCK-1] the small bars of one group share a scale

use comfy_table::Color;

use super::super::checkpoint::{Checkpoints, Panel, Way};
use super::super::footnotes::Footnotes;
use super::super::standing::Standing;
use super::super::{Record, numbers};
use super::grid::{self, Column, Figure, Group, KEPT, Kind, Tone};
use super::text::{ascii, footnotes, push_line, push_wrapped};
use super::{Look, WIDTH_MIN};

/// Draws the records of the experiment `checkpoint`, then the remarks as footnotes.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn checkpoint_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Checkpoints::group(records);
    if grouped.is_empty() && grouped.leftovers.is_empty() {
        return "No checkpoint was measured.\n".to_owned();
    }
    let mut notes = Footnotes::default();
    let mut text = String::new();
    let several = grouped.has_tablespaces();
    for (columns, panels, row) in [
        (&writing_columns(several)[..], &grouped.panels, writing as RowOf),
        (&reading_columns()[..], &grouped.beside, reading as RowOf),
    ] {
        if !text.is_empty() && !panels.is_empty() {
            text.push('\n');
        }
        text.push_str(&table(columns, panels, row, &mut notes, look));
    }
    for panel in &grouped.beside {
        text.push_str(&teeth(panel, look));
    }
    text.push_str(&footnotes(&notes, false, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

type RowOf = fn(&Panel<'_>, &Way<'_>, &mut Footnotes) -> Vec<Figure>;

/// One table of all `panels`; a row has at least as many figures as there are `columns`.
fn table(
    columns: &[Column],
    panels: &[Panel<'_>],
    row: RowOf,
    notes: &mut Footnotes,
    look: Look,
) -> String {
    if panels.is_empty() {
        return String::new();
    }
    let groups = panels.iter().map(|panel| Group {
        heading: panel.label.clone(),
        rows: panel.ways.iter().map(|way| row(panel, way, notes)).collect(),
    });
    let groups: Vec<Group> = groups.collect();
    grid::draw_and_tell(columns, &groups, look)
}

/// `several`: whether there is more than one tablespace, which takes a column more.
fn writing_columns(several: bool) -> Vec<Column> {
    let mut columns = vec![
        Column::new(["", ""], Kind::Name, KEPT),
        Column::new(["backend", ""], Kind::Name, 6),
        Column::new(["time", ""], Kind::Number, KEPT),
        Column::new(["of one", "by one"], Kind::Number, 7),
        Column::new(["requests", ""], Kind::Number, 5),
        Column::new(["bytes", "each"], Kind::Number, 3),
        Column::new(["sync", ""], Kind::Number, 2),
        Column::new(["", ""], Kind::Bar, 4),
    ];
    if several {
        columns.push(Column::new(["writes of", "each ended"], Kind::Name, 1));
    }
    columns
}

fn reading_columns() -> [Column; 10] {
    [
        Column::new(["", ""], Kind::Name, KEPT),
        Column::new(["backend", ""], Kind::Name, 3),
        Column::new(["readers", ""], Kind::Name, 2),
        Column::new(["read µs", "p50"], Kind::Number, 4),
        Column::new(["read µs", "p99"], Kind::Number, KEPT),
        Column::new(["times", "before"], Kind::Number, 7),
        Column::new(["read µs", "p99.9"], Kind::Number, 5),
        Column::new(["read µs", "most"], Kind::Number, 4),
        Column::new(["slip", "%"], Kind::Number, 6),
        Column::new(["time", ""], Kind::Number, 3),
    ]
}

fn dash(text: Option<String>) -> Figure {
    Figure::plain(text.unwrap_or_else(|| "–".to_owned()))
}

fn writing(panel: &Panel<'_>, way: &Way<'_>, notes: &mut Footnotes) -> Vec<Figure> {
    let rate = way.metric("pages_per_s").zip(panel.highest_rate().filter(|most| *most > 0.0));
    let marks = notes.marks(&way.record.remarks);
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    let measured = way.seconds().is_some();
    let figures = [
        Figure::plain(way.order()),
        Figure::plain(way.backend.to_owned()),
        Figure { suffix, ..dash(way.seconds().map(numbers::seconds)) },
        dash(way.metric("ratio_to_arrival").map(numbers::number)),
        dash(way.metric("device_requests").or(way.metric("requests")).map(numbers::number)),
        dash(way.metric("bytes_per_request").map(numbers::byte_count)),
        dash(way.metric("sync_seconds").map(numbers::seconds)),
        Figure {
            bar: rate.filter(|_| measured).map(|(rate, most)| (rate / most, Standing::Cold)),
            ..Figure::default()
        },
        Figure::plain(way.tablespaces().unwrap_or_default()),
    ];
    let tone = Tone { colour: None, bold: panel.is_best(way), dim: !measured };
    let mut figures = figures.map(|figure| Figure { tone, ..figure });
    if let Some(bar) = figures.iter_mut().find(|figure| figure.bar.is_some()) {
        bar.tone = Tone { colour: Some(Color::DarkCyan), bold: false, ..tone };
    }
    figures.to_vec()
}

fn reading(_panel: &Panel<'_>, way: &Way<'_>, notes: &mut Footnotes) -> Vec<Figure> {
    let marks = notes.marks(&way.record.remarks);
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    let number = |key: &str| dash(way.metric(key).map(numbers::number));
    let figures = [
        Figure::plain(format!("{}: {}", way.pace(), way.order())),
        Figure::plain(way.backend.to_owned()),
        Figure::plain(if way.foreground { "yes" } else { "no" }.to_owned()),
        number("foreground_us_p50"),
        Figure { suffix, ..number("foreground_us_p99") },
        dash(way.times_before().map(numbers::number)),
        number("foreground_us_p999"),
        number("foreground_us_max"),
        dash(way.metric("slip").map(numbers::percent)),
        dash(way.seconds().map(numbers::seconds)),
    ];
    let tone = Tone { dim: way.seconds().is_none(), ..Tone::default() };
    figures.map(|figure| Figure { tone, ..figure }).to_vec()
}

/// The longest read of each slot as a row of small bars, for every way of a group that had readers.
fn teeth(panel: &Panel<'_>, look: Look) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let levels = if look.ascii { ASCII } else { BLOCKS };
    let series: Vec<(&Way<'_>, Vec<Option<f64>>)> =
        panel.ways.iter().map(|way| (way, way.over_time())).collect();
    let most = series.iter().flat_map(|(_, points)| points.iter().flatten()).copied();
    let Some(most) = most.reduce(f64::max).filter(|most| *most > 0.0) else {
        return String::new();
    };
    let slot = series.first().map_or(1.0, |(way, _)| way.slot_seconds());
    let mut text = String::from("\n");
    let heading = format!(
        "{}: the longest read of each {}, up to {} ms",
        panel.label,
        numbers::seconds(slot),
        numbers::number(most)
    );
    push_wrapped(&mut text, " ", &heading, look.width);
    for (way, points) in series.iter().filter(|(_, points)| !points.is_empty()) {
        let name = format!(" {:8}", way.pace());
        let room = look.width.saturating_sub(name.chars().count() + 1).max(1);
        // Several slots in one sign where there are too many, the worst of them shown.
        let each = points.len().div_ceil(room);
        let sign = |slots: &[Option<f64>]| {
            let level = |ms: f64| levels[((ms / most * 8.0).ceil() as usize).clamp(1, 8) - 1]; // [TCK-1]
            slots.iter().flatten().copied().reduce(f64::max).map_or(' ', level)
        };
        let drawn: String = points.chunks(each).map(sign).collect();
        push_line(&mut text, &format!("{name} {drawn}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{absurd_checkpoints, beside, checkpoint};
    use super::*;

    const PLAIN: Look = Look { width: 100, colour: false, ascii: false };

    fn realistic() -> Vec<Record> {
        let place = ("clustered", "direct");
        let mut lost = checkpoint(place, ("sorted", true, "aio"), 1.0, 0.1);
        for value in lost.metrics.values_mut() {
            *value = serde_json::Value::Null;
        }
        lost.remarks.push("not measured: no aio here".into());
        vec![
            checkpoint(place, ("arrival", false, "sync"), 9.2, 1.0),
            checkpoint(place, ("balanced", true, "uring"), 1.7, 0.185),
            lost,
            beside("direct", false, 9.0),
            beside("direct", true, 1.25),
        ]
    }

    fn row<'t>(text: &'t str, start: &str) -> &'t str {
        text.lines().find(|line| line.trim_start().starts_with(start)).unwrap()
    }

    #[test]
    fn each_way_stands_beside_one_write_after_another() {
        let text = checkpoint_table(&realistic(), PLAIN);
        let words = |start| row(&text, start).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words("arrival")[..6], ["arrival", "sync", "9.20", "s", "1.00", "65,539"]);
        let best = words("balanced, combined");
        assert_eq!(best[2..9], ["uring", "1.70", "s", "0.185", "8,195", "64.0", "KiB"], "{text}");
        let length = |line: &str| line.chars().filter(|sign| *sign == '█').count();
        assert!(length(row(&text, "balanced")) > 4 * length(row(&text, "arrival")), "{text}");
        assert!(row(&text, "sorted").contains("–[1]"), "{text}");
        assert!(text.contains(" [1] not measured: no aio here\n"), "{text}");
    }

    #[test]
    fn two_tablespaces_are_told_apart_and_take_a_column_only_where_there_are_two() {
        let mut records = realistic();
        assert!(!checkpoint_table(&records, PLAIN).contains("each ended"));
        let mut two =
            checkpoint(("two-tablespaces", "direct"), ("sorted", true, "uring"), 2.0, 0.4);
        two.metrics.insert("tablespace_seconds".into(), serde_json::json!([1.0, 1.96]));
        records.push(two);
        let text = checkpoint_table(&records, Look { width: 120, ..PLAIN });
        assert!(text.contains("each ended") && text.contains("1.00 s, 1.96 s"), "{text}");
    }

    #[test]
    fn what_readers_felt_is_beside_what_they_felt_before_and_seen_over_time() {
        let text = checkpoint_table(&realistic(), PLAIN);
        let at_once = row(&text, "at once: balanced");
        assert!(at_once.contains("3,600") && at_once.contains("9.00"), "{at_once}");
        let spread = row(&text, "spread: balanced");
        assert!(spread.contains("500") && spread.contains("1.25") && spread.contains(" 0.4 "));
        let teeth = text.lines().filter(|line| line.contains('▁')).collect::<Vec<_>>();
        assert_eq!(teeth.len(), 2, "{text}");
        assert_eq!(teeth[0].matches('█').count(), 2, "[TCK-1] two teeth: {text}");
        assert!(!teeth[1].contains('█'), "[TCK-1] {text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_records() {
        let all = [realistic(), absurd_checkpoints()].concat();
        for records in [realistic(), absurd_checkpoints(), all] {
            for width in [10, WIDTH_MIN, 40, 60, 79, 80, 100, 250] {
                let text = checkpoint_table(&records, Look { width, ..PLAIN });
                for line in text.lines() {
                    let columns = line.chars().count();
                    assert!(columns <= width.max(WIDTH_MIN), "[TER-1] {width}: {columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn colour_and_signs_are_written_only_when_asked_for() {
        assert!(!checkpoint_table(&realistic(), PLAIN).contains('\u{1b}'), "[TER-2]");
        assert!(checkpoint_table(&realistic(), Look { colour: true, ..PLAIN }).contains("\u{1b}["));
        for records in [realistic(), absurd_checkpoints()] {
            let text = checkpoint_table(&records, Look { ascii: true, ..PLAIN });
            assert!(text.is_ascii(), "[TER-2] {text}");
        }
    }

    #[test]
    fn nothing_measured_is_said() {
        assert_eq!(checkpoint_table(&[], PLAIN), "No checkpoint was measured.\n");
    }
}
