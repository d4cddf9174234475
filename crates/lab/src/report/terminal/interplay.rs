//! The table that ends a run of `forebay lab interplay`: each way of reading beside the kernel.
//!
//! Each pattern and kernel readahead is a group; the bars of one pattern share a scale, so that
//! its groups can be compared as well as the rows within one.
//!
//! ```text
//!                  cache     blocks/s   times  requests     bytes  over-  time
//!                                       alone                      read %
//!  shuffled, kernel readahead 128 KiB
//!  os              buffered    35,010    1.00    15,122   254 MiB     1.4  0.91 s  ████▊
//!  async           direct     147,200    4.20     6,644   250 MiB       0  0.22 s  ███████████████
//! ```
//!
//! Invariants:  [TIN-1] a figure that was not cold stands in parentheses and its bar is hollow

use comfy_table::Color;

use super::super::footnotes::Footnotes;
use super::super::interplay::{Cell, Panel, Panels};
use super::super::standing::Standing;
use super::super::{Record, numbers};
use super::grid::{self, Column, Figure, Group, KEPT, Kind, Tone};
use super::text::{ascii, footnotes};
use super::{Look, WIDTH_MIN};

/// Draws the records of the experiment `interplay`, then the remarks as footnotes.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn interplay_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Panels::group(records);
    if grouped.panels.is_empty() && grouped.leftovers.is_empty() {
        return "No interplay with the kernel's readahead was measured.\n".to_owned();
    }
    let mut notes = Footnotes::default();
    let groups: Vec<Group> = grouped
        .panels
        .iter()
        .map(|panel| {
            let highest = grouped.highest_rate(panel.pattern);
            let rows = panel.cells.iter().map(|cell| row(panel, cell, highest, &mut notes));
            Group { heading: panel.label(), rows: rows.collect() }
        })
        .collect();
    let mut text = grid::draw_and_tell(&columns(), &groups, look);
    let mut cells = grouped.panels.iter().flat_map(|panel| &panel.cells);
    let some_not_cold = cells.any(|cell| cell.standing() == Standing::NotCold);
    text.push_str(&footnotes(&notes, some_not_cold, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

fn columns() -> [Column; 9] {
    [
        Column::new(["", ""], Kind::Name, KEPT),
        Column::new(["cache", ""], Kind::Name, 6),
        Column::new(["blocks/s", ""], Kind::Number, KEPT),
        Column::new(["times", "alone"], Kind::Number, 7),
        Column::new(["requests", ""], Kind::Number, 5),
        Column::new(["bytes", ""], Kind::Number, 1),
        Column::new(["over-", "read %"], Kind::Number, 3),
        Column::new(["time", ""], Kind::Number, 2),
        Column::new(["", ""], Kind::Bar, 4),
    ]
}

fn row(
    panel: &Panel<'_>,
    cell: &Cell<'_>,
    highest: Option<f64>,
    notes: &mut Footnotes,
) -> Vec<Figure> {
    let metric = |key: &str| cell.record.metric(key);
    let dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let rate = dash(cell.rate().map(numbers::number));
    let rate = match cell.standing() {
        Standing::NotCold => format!("({rate})"), // [TIN-1]
        Standing::Cold | Standing::Unmeasured => rate,
    };
    let marks = notes.marks(&cell.record.remarks);
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    let share = cell.rate().zip(highest.filter(|highest| *highest > 0.0));
    let figures = [
        Figure::plain(cell.strategy.to_owned()),
        Figure::plain(cell.cache.to_owned()),
        Figure { suffix, ..Figure::plain(rate) },
        Figure::plain(dash(panel.times_alone(cell).map(numbers::number))),
        Figure::plain(dash(metric("device_requests").map(numbers::number))),
        Figure::plain(dash(metric("device_bytes").map(numbers::byte_count))),
        Figure::plain(dash(metric("over_read").map(numbers::percent))),
        Figure::plain(dash(metric("seconds").map(numbers::seconds))),
        Figure {
            bar: share.map(|(rate, highest)| (rate / highest, cell.standing())),
            ..Figure::default()
        },
    ];
    let tone =
        Tone { colour: None, bold: panel.is_best(cell), dim: cell.standing() != Standing::Cold };
    let ink = if cell.is_ours() { Color::DarkCyan } else { Color::DarkYellow };
    let mut figures = figures.map(|figure| Figure { tone, ..figure });
    if let Some(bar) = figures.last_mut() {
        bar.tone = Tone { colour: Some(ink), bold: false, ..tone };
    }
    figures.to_vec()
}

#[cfg(test)]
mod tests;
