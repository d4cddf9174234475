//! The strip: blocks from left to right, requests from top to bottom, for the terminal.
//!
//! All strategies use one scale of blocks, so that they align vertically. A row is one request
//! if there is room; otherwise it is several, a column is several blocks, and the signs show how
//! much of them was read. A table with the results of each strategy follows.
//!
//! ```text
//! block 0   2   4   6   8   10
//! asked   1 3 2 5   4     6
//!
//! os: plain reads, the kernel decides
//!     1 R   ■ □ □ □
//!     2 S           ■ ■ □ ■ □ □ □ □
//! ```
//!
//! Invariants:  [STP-1] no line is wider than `width` (of at least `WIDTH_MIN`)
//!              [STP-2] without colour there is no escape, with `ascii` no other character
//!              [STP-3] each request is in one row, and all of its blocks are in it

use anstyle::{AnsiColor, Style};

use super::axis::{Columns, most};
use super::request::{Use, following, letter};
use super::{Explained, StrategyResult, shown_count};
use forebay_measure::report::terminal::text::{ascii, push_line, push_wrapped, styled, wrapped};
use forebay_measure::report::terminal::{self, Look, WIDTH_MIN};
use forebay_measure::report::{Table, TableCell, numbers};
use forebay_measure::units::shown_size;

/// Maximum rows of a strategy with one row for each request.
const ROWS_SINGLE_MAX: usize = 24;

/// Rows of any other.
const ROWS_FOLDED: usize = 16;

/// Order of reading, for patterns short enough to have a sign for each.
const ORDER: &[u8] = b"123456789abcdefghijklmnopqrstuvwxyz";

/// Columns between the numbers of requests and the strip.
const GUTTER: usize = 3;

/// What the table does not say on its own.
const MEANING: &str = "over-read: bytes that were read for nothing, against those that had to be read; \
    S: requests that go on where the one before ended, R elsewhere; cached: reads that found their \
    block in the page cache, or on its way there; time: in that of the disk emulated.";

/// All strategies, one after the other, and their results.
pub(super) fn drawn(explained: &Explained, look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let counts = explained.results.iter().map(|result| result.account.requests.len());
    let digits = shown_count(counts.max().unwrap_or(0)).len().max(5);
    let room = look.width - digits - GUTTER;
    let columns = Columns::fit(explained.segments(), room);
    let cell = if columns.width * 2 <= room { 2 } else { 1 };
    let strip = Strip { explained, columns, cell, room, digits, look };
    let mut text = String::new();
    push_wrapped(&mut text, "", &explained.title(), look.width);
    push_wrapped(&mut text, "", &explained.place(), look.width);
    push_line(&mut text, "");
    strip.head(&mut text);
    for result in &explained.results {
        strip.strategy(&mut text, result);
    }
    strip.legend(&mut text);
    text.push_str(&terminal::drawn(&figures(explained), look));
    push_line(&mut text, "");
    push_wrapped(&mut text, "", MEANING, look.width);
    if look.ascii { ascii(&text) } else { text } // [STP-2]
}

/// The sign for a block, or for the majority of several, by its [`Use`].
const SIGNS: [char; 3] = ['■', '□', '▣'];
const COLOURS: [AnsiColor; 3] = [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Red];

/// For wanted blocks, from 1 to 4 quarters of those in the column.
const QUARTERS: [char; 4] = ['░', '▒', '▓', '█'];

/// Between two segments.
const GAP: char = '┆';

struct Strip<'a> {
    explained: &'a Explained,
    columns: Columns,
    /// Characters of a column: 2 where there is room for one between blocks.
    cell: usize,
    room: usize,
    /// Of the largest number of a request.
    digits: usize,
    look: Look,
}

impl Strip<'_> {
    /// The numbers of blocks, and the order in which they are read.
    fn head(&self, text: &mut String) {
        let (columns, cell) = (&self.columns, self.cell);
        let mut line = vec![' '; self.room];
        let wide = |label: &str| (label.len() + 2).div_ceil(cell);
        for (column, label) in columns.labels((self.room + 2) / cell, wide) {
            line.splice(column * cell..column * cell + label.len(), label.chars());
        }
        self.push(text, "block", ' ', &line.into_iter().collect::<String>());
        let pattern = &self.explained.pattern;
        let mut cells = vec![(' ', Style::new()); columns.width];
        if columns.blocks_each == 1 && pattern.blocks.len() <= ORDER.len() {
            for (&block, &sign) in pattern.blocks.iter().zip(ORDER).rev() {
                cells[columns.of(block.into())] = (char::from(sign), Style::new().bold());
            }
        } else {
            cells = self.cells(&columns.asked(pattern));
        }
        self.push(text, "asked", ' ', &self.line(&cells));
    }

    fn strategy(&self, text: &mut String, result: &StrategyResult) {
        let heading = format!("{}: {}", result.strategy, self.explained.about(result.strategy));
        push_line(text, "");
        for line in wrapped(&heading, self.look.width) {
            push_line(text, &styled(&line, Style::new().bold(), self.look));
        }
        let requests = &result.account.requests;
        if requests.is_empty() {
            push_wrapped(text, "  ", "no request arrived at the disk", self.look.width);
        }
        let each = requests_each(requests.len());
        for (index, requests) in requests.chunks(each).enumerate() {
            let line = self.line(&self.cells(&self.columns.counts(requests))); // [STP-3]
            self.push(text, &shown_count(index * each + 1), letter(requests), &line);
        }
        if let Some(remark) = &result.remark {
            push_wrapped(text, "  ", remark, self.look.width);
        }
    }

    /// A sign with its style for each column.
    fn cells(&self, counts: &[[u64; 3]]) -> Vec<(char, Style)> {
        let each = self.columns.blocks_each;
        let mut cells: Vec<(char, Style)> = counts
            .iter()
            .map(|&counts| match most(counts) {
                None => (' ', Style::new()),
                Some(purpose) => {
                    let quarter = (counts[purpose as usize] * 4).div_ceil(each).clamp(1, 4);
                    let sign = match purpose {
                        Use::Wanted if each > 1 => QUARTERS[quarter as usize - 1],
                        _ => SIGNS[purpose as usize],
                    };
                    (sign, COLOURS[purpose as usize].on_default())
                }
            })
            .collect();
        for gap in self.columns.breaks() {
            cells[gap] = (GAP, Style::new().dimmed());
        }
        cells
    }

    /// As text; neighbours of one style share their escapes.
    fn line(&self, cells: &[(char, Style)]) -> String {
        let end = cells.iter().rposition(|(sign, _)| *sign != ' ').map_or(0, |last| last + 1);
        let alike = cells[..end].chunk_by(|(_, one), (_, next)| one == next);
        alike
            .map(|cells| {
                let signs =
                    cells.iter().map(|(sign, _)| format!("{sign:<width$}", width = self.cell));
                styled(&signs.collect::<String>(), cells[0].1, self.look)
            })
            .collect()
    }

    /// A line: a label, a letter, the strip.
    fn push(&self, text: &mut String, name: &str, letter: char, strip: &str) {
        let name = format!("{name:>digits$} {letter}", digits = self.digits);
        push_line(text, &format!("{} {strip}", styled(&name, Style::new().dimmed(), self.look)));
    }

    fn legend(&self, text: &mut String) {
        let [wanted, besides, again] = SIGNS;
        let mut legend = match self.columns.blocks_each {
            1 => {
                format!("{wanted} requested; {besides} read without a request; {again} read again")
            }
            each => format!(
                "a column is {} blocks; {} the part of them that was read and requested, by quarters; \
                 {besides} mostly read without a request; {again} mostly read again",
                numbers::grouped(each as f64),
                QUARTERS.iter().collect::<String>(),
            ),
        };
        let is_folded = |result: &StrategyResult| requests_each(result.account.requests.len()) > 1;
        if self.explained.results.iter().any(is_folded) {
            legend.push_str("; a row is several requests where there are many");
        }
        push_line(text, "");
        push_wrapped(text, "", &(legend + "."), self.look.width);
        push_line(text, "");
    }
}

/// How many requests a row has, if there are `count` in all.
fn requests_each(count: usize) -> usize {
    if count <= ROWS_SINGLE_MAX { 1 } else { count.div_ceil(ROWS_FOLDED) }
}

/// The figures of all strategies.
fn figures(explained: &Explained) -> Table {
    let columns = ["strategy", "requests", "mean size", "read", "over-read", "S", "cached", "time"];
    let dash = || "–".to_owned();
    let percent = |share: f64| format!("{} %", numbers::percent(share));
    let mut table = Table::new("", columns);
    for result in &explained.results {
        let requests = &result.account.requests;
        let (count, bytes) = (requests.len(), result.account.bytes);
        let following = following(requests) as f64 / count as f64;
        let cells = [
            result.strategy.to_string(),
            shown_count(count),
            bytes.checked_div(count as u64).map_or_else(dash, shown_size),
            shown_size(bytes),
            percent(explained.over_read(result)),
            if count == 0 { dash() } else { percent(following) },
            result.cached.map_or_else(dash, |cached| numbers::grouped(cached as f64)),
            numbers::seconds(result.seconds),
        ];
        table.push(String::new(), cells.map(TableCell::new).to_vec());
    }
    table
}

#[cfg(test)]
mod tests;
