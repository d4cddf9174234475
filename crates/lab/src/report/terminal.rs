//! Terminal: the tables that end a run; here that of `forebay lab depth`.
//!
//! One table for all lines, so that its columns stand under each other and its bars share one
//! scale; each line of the experiment (backend and cache mode) is a group under its own heading.
//! A name column was the near alternative: at 80 columns it takes the place of the bars, and the
//! bars are what a reader sees first. A narrower terminal loses columns, least telling first.
//!
//! ```text
//!    depth  blocks/s  times    spread  ...
//!                     depth 0     ±%
//!  uring direct
//!        0     1,190        1     1.2  ... ▍
//!       64    41,230     34.6     2.0  ... █████████████
//! ```
//!
//! Invariants:  [TER-1] no line is wider than `width` (of at least [`WIDTH_MIN`])
//!              [TER-2] without colour there is no escape, with `ascii` no other character
//!              [TER-3] a figure that was not cold stands in parentheses and its bar is hollow

mod activation;
mod checkpoint;
mod grid;
mod mixture;
mod readahead;
pub(crate) mod text;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Row, Table};

use super::depth::{Cell as Point, Line, Lines};
use super::footnotes::Footnotes;
use super::standing::Standing;
use super::{Record, numbers};
use text::{ascii, bar, footnotes, push_line, push_wrapped, styled};

pub use activation::activation_table;
pub use checkpoint::checkpoint_table;
pub use mixture::mixture_table;
pub use readahead::readahead_table;

/// Columns of text below which a table of numbers is not worth drawing.
pub const WIDTH_MIN: usize = 30;

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal; fewer than [`WIDTH_MIN`] are taken as that.
    pub width: usize,
    /// True when escapes for colour and weight may be written.
    pub colour: bool,
    /// True when only ASCII may be written: bars of `#`, `us` for µs.
    pub ascii: bool,
}

/// The columns, in the order in which they are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Depth,
    Rate,
    Mark,
    Ratio,
    Spread,
    Requests,
    OverRead,
    WaitP50,
    WaitP99,
    Bar,
}

impl Column {
    const ALL: [Column; 10] = [
        Column::Depth,
        Column::Rate,
        Column::Mark,
        Column::Ratio,
        Column::Spread,
        Column::Requests,
        Column::OverRead,
        Column::WaitP50,
        Column::WaitP99,
        Column::Bar,
    ];

    /// Left out in this order while the bars do not fit.
    const EXPENDABLE: [Column; 6] = [
        Column::OverRead,
        Column::WaitP50,
        Column::Spread,
        Column::Requests,
        Column::WaitP99,
        Column::Ratio,
    ];

    /// Two lines: what it is, then its unit or reference.
    fn header(self) -> [&'static str; 2] {
        match self {
            Column::Depth => ["depth", ""],
            Column::Rate => ["blocks/s", ""],
            Column::Ratio => ["times", "depth 0"],
            Column::Spread => ["spread", "±%"],
            Column::Requests => ["requests", "/block"],
            Column::OverRead => ["over-", "read %"],
            Column::WaitP50 => ["wait µs", "p50"],
            Column::WaitP99 => ["wait µs", "p99"],
            Column::Mark | Column::Bar => ["", ""],
        }
    }

    fn alignment(self) -> CellAlignment {
        match self {
            Column::Mark | Column::Bar => CellAlignment::Left,
            _ => CellAlignment::Right,
        }
    }
}

/// One table row before it is laid out: a text for each column but the bar.
struct Figures {
    texts: Vec<(Column, String)>,
    standing: Standing,
    best: bool,
    /// Share of the highest rate of the table, for the bar.
    share: Option<f64>,
}

/// Draws the records of the experiment `depth`, one group of rows for each backend and cache
/// mode, then the remarks as footnotes and the shape of each line as a row of small bars.
///
/// Records of other experiments are passed over; without any of `depth` one sentence says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn depth_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Lines::group(records);
    let mut text = String::new();
    if grouped.lines.is_empty() {
        text.push_str("Nothing was measured at any depth.\n");
        return text;
    }
    let mut notes = Footnotes::default();
    text.push_str(&table(&grouped, &mut notes, look));
    text.push_str(&sparklines(&grouped, look));
    let mut cells = grouped.lines.iter().flat_map(|line| &line.cells);
    let some_not_cold = cells.any(|cell| cell.standing() == Standing::NotCold);
    text.push_str(&footnotes(&notes, some_not_cold, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text } // [TER-2]
}

/// The table of all lines, with a heading put in before each group.
fn table(grouped: &Lines<'_>, notes: &mut Footnotes, look: Look) -> String {
    let highest = grouped.highest_rate();
    let groups: Vec<(&Line<'_>, Vec<Figures>)> = grouped
        .lines
        .iter()
        .map(|line| {
            (line, line.cells.iter().map(|cell| figures(line, cell, highest, notes)).collect())
        })
        .collect();
    let all_figures = || groups.iter().flat_map(|(_, figures)| figures);
    let (columns, gap, bar_width) = layout(all_figures(), look.width);

    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.force_no_tty(); // the caller knows what it writes to; stdout may not be it
    if look.colour {
        table.enforce_styling();
    }
    table.set_header(columns.iter().map(|column| Cell::new(column.header().join("\n"))));
    for (line, rows) in &groups {
        for figures in rows {
            table.add_row(row(&columns, figures, bar_width, ink(line.backend).0, look));
        }
    }
    for (index, column) in columns.iter().enumerate() {
        if let Some(drawn) = table.column_mut(index) {
            drawn.set_padding((gap, 0));
            drawn.set_cell_alignment(column.alignment());
        }
    }
    let mut drawn = table.lines().map(|line| line.trim_end().to_owned());
    let mut text = String::new();
    for line in drawn.by_ref().take(2) {
        push_line(&mut text, &line);
    }
    for (line, rows) in &groups {
        let heading = Style::new().bold().fg_color(Some(ink(line.backend).1.into()));
        push_line(&mut text, &format!(" {}", styled(&line.label, heading, look)));
        for row in drawn.by_ref().take(rows.len()) {
            push_line(&mut text, &row);
        }
    }
    text
}

/// The texts of one cell.
fn figures(
    line: &Line<'_>,
    cell: &Point<'_>,
    highest: Option<f64>,
    notes: &mut Footnotes,
) -> Figures {
    let metric = |key: &str| cell.record.metric(key);
    let number = |value: Option<f64>| value.map_or("–".to_owned(), numbers::number);
    let percent = |value: Option<f64>| value.map_or("–".to_owned(), numbers::percent);
    let standing = cell.standing();
    let rate = match standing {
        Standing::NotCold => format!("({})", number(cell.rate())), // [TER-3]
        Standing::Cold | Standing::Unmeasured => number(cell.rate()),
    };
    let marks = notes.marks(&cell.record.remarks);
    let texts = vec![
        (Column::Depth, cell.depth.to_string()),
        (Column::Rate, rate),
        (Column::Mark, if marks.is_empty() { marks } else { format!("[{marks}]") }),
        (Column::Ratio, number(line.ratio(cell))),
        (Column::Spread, percent(cell.spread())),
        (Column::Requests, number(cell.requests_per_block())),
        (Column::OverRead, percent(metric("over_read"))),
        (Column::WaitP50, number(metric("wait_us_p50"))),
        (Column::WaitP99, number(metric("wait_us_p99"))),
    ];
    let share = match (cell.rate(), highest) {
        (Some(rate), Some(highest)) if highest > 0.0 => Some((rate / highest).clamp(0.0, 1.0)),
        _ => None,
    };
    let best = line.best().is_some_and(|best| best.depth == cell.depth);
    Figures { texts, standing, best, share }
}

/// Which columns fit into `width`, the gap before each, and the width left for the bars.
fn layout<'f>(rows: impl Iterator<Item = &'f Figures>, width: usize) -> (Vec<Column>, u16, usize) {
    const BAR_MIN: usize = 8;
    const BAR_MAX: usize = 40;
    let header_width = |column: Column| column.header().map(|part| part.chars().count());
    let mut widths: Vec<(Column, usize)> = Column::ALL
        .iter()
        .map(|column| (*column, header_width(*column).into_iter().max().unwrap_or(0)))
        .collect();
    for figures in rows {
        for ((_, text), (_, width)) in figures.texts.iter().zip(&mut widths) {
            *width = (*width).max(text.chars().count());
        }
    }
    // No footnotes, no column for their marks.
    widths.retain(|(column, width)| *column != Column::Mark || *width > 0);
    let taken = |widths: &[(Column, usize)], gap: usize| -> usize {
        widths.iter().map(|(_, width)| width + gap).sum()
    };
    for column in Column::EXPENDABLE {
        if taken(&widths, 1) + BAR_MIN <= width {
            break;
        }
        widths.retain(|(kept, _)| *kept != column);
    }
    let gap = if taken(&widths, 2) + BAR_MIN * 2 <= width { 2 } else { 1 };
    let left = width.saturating_sub(taken(&widths, gap));
    if left == 0 {
        widths.retain(|(column, _)| *column != Column::Bar);
    }
    let columns = widths.into_iter().map(|(column, _)| column).collect();
    (columns, if gap == 2 { 2 } else { 1 }, left.min(BAR_MAX))
}

/// One row of the table, with its bar.
fn row(columns: &[Column], figures: &Figures, bar_width: usize, ink: Color, look: Look) -> Row {
    let mut row = Row::new();
    for column in columns {
        let text = match figures.texts.iter().find(|(named, _)| named == column) {
            Some((_, text)) => text.clone(),
            None => figures
                .share
                .map_or(String::new(), |share| bar(share, figures.standing, bar_width, look.ascii)),
        };
        let mut cell = Cell::new_owned(text);
        if look.colour {
            if *column == Column::Bar {
                cell = cell.fg(ink);
            }
            if figures.standing != Standing::Cold {
                cell = cell.add_attribute(Attribute::Dim);
            } else if figures.best && *column != Column::Bar {
                cell = cell.add_attribute(Attribute::Bold);
            }
        }
        row.add_cell(cell);
    }
    row
}

/// One row of small bars for each line, each line to its own best, and what that best is.
fn sparklines(grouped: &Lines<'_>, look: Look) -> String {
    let depths = grouped.depths();
    let name_width = grouped.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in &grouped.lines {
        let shape: String = depths.iter().map(|depth| level(line, *depth, look.ascii)).collect();
        let best = match line.best() {
            Some(cell) => {
                let ratio = line.ratio(cell).filter(|_| cell.depth > 0);
                let times = ratio.map_or(String::new(), |ratio| {
                    format!(", {} times depth 0", numbers::number(ratio))
                });
                let rate = cell.rate().map_or(String::new(), numbers::number);
                format!("{rate} blocks/s at depth {}{times}", cell.depth)
            }
            None => "no cold figure".to_owned(),
        };
        let name = format!("{:name_width$}", line.label);
        let wide = 1 + name_width + 2 + depths.len() + 2 + best.chars().count() <= look.width;
        let ink = Style::new().fg_color(Some(ink(line.backend).1.into()));
        let drawn =
            format!(" {}  {}", styled(&name, Style::new().bold(), look), styled(&shape, ink, look));
        if wide {
            push_line(&mut text, &format!("{drawn}  {best}"));
        } else if 1 + name_width + 2 + depths.len() <= look.width {
            push_line(&mut text, &drawn);
            push_wrapped(&mut text, "   ", &best, look.width);
        } else {
            push_wrapped(&mut text, " ", &format!("{}: {best}", line.label), look.width);
        }
    }
    format!("\n Best of each line:\n{text}")
}

/// One character of a line's shape; a blank where there is no cold figure.
fn level(line: &Line<'_>, depth: u64, ascii: bool) -> char {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let levels = if ascii { ASCII } else { BLOCKS };
    let rate = line.at(depth).and_then(Point::cold_rate);
    match (rate, line.best().and_then(Point::cold_rate)) {
        (Some(rate), Some(best)) if best > 0.0 => {
            let index = (rate / best * 8.0).ceil() as usize;
            levels[index.clamp(1, 8) - 1]
        }
        _ => ' ',
    }
}

/// The colour of a backend, for the table library and for our own lines.
fn ink(backend: &str) -> (Color, AnsiColor) {
    match backend {
        "uring" => (Color::DarkCyan, AnsiColor::Cyan),
        "aio" => (Color::DarkGreen, AnsiColor::Green),
        "threads" => (Color::DarkYellow, AnsiColor::Yellow),
        "fio" => (Color::DarkMagenta, AnsiColor::Magenta),
        _ => (Color::DarkBlue, AnsiColor::Blue),
    }
}

#[cfg(test)]
mod tests;
