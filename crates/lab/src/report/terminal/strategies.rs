//! The table that ends a run of `forebay lab strategies`: shares of the best of each row.
//!
//! All maps stand in one grid, so that a pattern can be followed down the page from the cold
//! cache to the warm one. The rate that a row's shares are of stands at its end where there is
//! room; everything else about a cell is on the page and in the JSON.
//!
//! ```text
//!                       os   hint    max  prefetch  async  adaptive      best
//!                                                                    blocks/s
//!  cold, direct, kernel readahead 128 KiB
//!  uniform            0.23   0.23   0.22      0.71   1.00      0.98    67,120
//!  bitmap-10          0.31   0.30   0.31      0.86   1.00     0.91!    58,003
//! ```
//!
//! Invariants:  [TST-1] a row that `adaptive` loses is marked there and listed below
//!              [TST-2] a figure that was not cold stands in parentheses, and no row has it as best

use comfy_table::Color;

use super::super::footnotes::Footnotes;
use super::super::standing::Standing;
use super::super::strategies::{ADAPTIVE, Cell, Map, Maps, Row, remarks, share_text, step};
use super::super::{Record, numbers};
use super::grid::{self, Column, Figure, Group, KEPT, Kind, Tone};
use super::text::{ascii, footnotes, push_line, push_wrapped};
use super::{Look, WIDTH_MIN};

/// Draws the records of the experiment `strategies`, then where `adaptive` loses, then the
/// remarks as footnotes.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn strategies_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Maps::group(records);
    if grouped.maps.is_empty() && grouped.leftovers.is_empty() {
        return "No strategy was measured.\n".to_owned();
    }
    let mut notes = Footnotes::default();
    let columns = columns(&grouped);
    let groups: Vec<Group> =
        grouped.maps.iter().map(|map| group(map, &grouped.strategies, &mut notes)).collect();
    let (mut text, left_out) = grid::draw(&columns, &groups, look);
    text.push('\n');
    let key = "Shares of the best of each row; ! marks a row in which adaptive misses its bound.";
    push_wrapped(&mut text, " ", key, look.width);
    text.push_str(&grid::no_room(&left_out, look));
    text.push_str(&losses(&grouped, look));
    let mut cells = grouped.maps.iter().flat_map(|map| &map.rows).flat_map(|row| &row.cells);
    let some_not_cold = cells.any(|cell| cell.standing() == Standing::NotCold);
    text.push_str(&footnotes(&notes, some_not_cold, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

fn columns(grouped: &Maps<'_>) -> Vec<Column> {
    let mut columns = vec![Column::new(["", ""], Kind::Name, KEPT)];
    for (index, name) in grouped.strategies.iter().enumerate() {
        // Unheard-of strategies come last and go first.
        let worth = if *name == ADAPTIVE { KEPT } else { 100_u8.saturating_sub(index as u8) };
        columns.push(Column::new([name, ""], Kind::Number, worth));
    }
    columns.push(Column::new(["best", "blocks/s"], Kind::Number, 0));
    columns
}

fn group(map: &Map<'_>, strategies: &[&str], notes: &mut Footnotes) -> Group {
    let mut rows: Vec<Vec<Figure>> =
        map.rows.iter().map(|row| figures(map, row, strategies, notes)).collect();
    let (means, patterns) = map.means(strategies);
    if patterns > 1 {
        let mut mean = vec![Figure::plain("geometric mean".to_owned())];
        for (name, share) in strategies.iter().zip(means) {
            let text = match share {
                Some(share) => share_text(share),
                None if map.has(name) => "–".to_owned(),
                None => String::new(),
            };
            mean.push(Figure { tone: share.map_or(Tone::default(), tone), ..Figure::plain(text) });
        }
        mean.push(Figure::default());
        rows.push(mean);
    }
    Group { heading: map.label.clone(), rows }
}

fn figures(
    map: &Map<'_>,
    row: &Row<'_>,
    strategies: &[&str],
    notes: &mut Footnotes,
) -> Vec<Figure> {
    let mut figures = vec![Figure::plain(row.pattern.to_owned())];
    for strategy in strategies {
        figures.push(match row.at(strategy) {
            Some(cell) => figure(map, row, cell, notes),
            None => Figure::default(),
        });
    }
    let best = row.best().and_then(Cell::cold_rate).map_or("–".to_owned(), numbers::number);
    figures.push(Figure { tone: Tone { dim: true, ..Tone::default() }, ..Figure::plain(best) });
    figures
}

fn figure(map: &Map<'_>, row: &Row<'_>, cell: &Cell<'_>, notes: &mut Footnotes) -> Figure {
    let share = row.share(cell);
    let text = share.map_or("–".to_owned(), share_text);
    let is_best = row.best().is_some_and(|best| std::ptr::eq(best.record, cell.record));
    let (text, tone) = match cell.standing() {
        Standing::Cold => {
            let tone = Tone { bold: is_best, ..share.map_or(Tone::default(), tone) };
            (text, tone)
        }
        Standing::NotCold => (format!("({text})"), Tone { dim: true, ..Tone::default() }), // [TST-2]
        Standing::Unmeasured => (text, Tone { dim: true, ..Tone::default() }),
    };
    let is_lost = row
        .contest(map.bound)
        .is_some_and(|contest| cell.strategy == ADAPTIVE && contest.is_lost());
    let marks = notes.marks(&remarks(cell, is_lost));
    let lost = if is_lost { "!" } else { "" }; // [TST-1]
    let suffix = if marks.is_empty() { lost.to_owned() } else { format!("{lost}[{marks}]") };
    Figure { text, suffix, tone, bar: None }
}

/// The scale of the page in the few colours of a terminal: only its ends are coloured.
fn tone(share: f64) -> Tone {
    let colour = match step(share) {
        6 => Some(Color::DarkCyan),
        1 | 2 => Some(Color::DarkYellow),
        _ => None,
    };
    Tone { colour, ..Tone::default() }
}

/// The rows that `adaptive` loses, the worst first, or that there are none.
fn losses(grouped: &Maps<'_>, look: Look) -> String {
    let verdict = grouped.verdict();
    let mut text = String::from("\n");
    let losses = verdict.losses();
    if losses.is_empty() {
        push_wrapped(&mut text, " ", &format!("{}.", verdict.none_lost()), look.width);
        return text;
    }
    push_line(&mut text, " Where adaptive loses:");
    for (map, lost) in losses {
        let line = format!("{} ({}): {}", lost.pattern, map.label, lost.told());
        push_wrapped(&mut text, "   ", &line, look.width);
    }
    text
}

#[cfg(test)]
mod tests;
