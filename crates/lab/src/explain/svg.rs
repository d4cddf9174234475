//! The picture as a file: one panel for each strategy, blocks across, requests down.
//!
//! The same columns and rows as the strip on the terminal, but more and finer ones; a template makes the
//! SVG of them. However many requests there are, a panel has at most [`ROWS_MAX`] rows, so that a picture
//! of a million requests has the size of one of a thousand. It is self-contained, follows the reader's
//! light or dark scheme, and says in words what it shows.
//!
//! Invariants:  [EXS-1] each request is in one row, in order of issue
//!              [EXS-2] nothing is drawn outside of the paper; text from outside is escaped
//! Source:      the colours are those of the report page, after Okabe and Ito.

use anyhow::Context;
use minijinja::{Environment, UndefinedBehavior, Value, context};

use super::axis::{Columns, most, round_step};
use super::request::{Request, Use, letter};
use super::{Explained, StrategyResult, shown_count};
use forebay_measure::report::terminal::text::cut;
use forebay_measure::units::shown_size;

/// Width of the paper.
const WIDTH: f64 = 960.0;

/// Where the sheets of the panels begin; to the left are the numbers of the requests.
const LEFT: f64 = 72.0;

/// Where they end.
const RIGHT: f64 = WIDTH - 24.0;

/// The margin between a sheet's edge and the drawing.
const MARGIN: f64 = 5.0;

/// Minimum and maximum width of a column.
const COLUMN: (f64, f64) = (2.0, 34.0);

/// Maximum number of rows of a panel, their maximum total height, and the maximum height of one.
const ROWS_MAX: usize = 180;
const HEIGHT_MAX: f64 = 360.0;
const ROW_MAX: f64 = 17.0;

/// A pattern of at most this many blocks shows the order of reading, if a column is as wide.
const ORDER_MAX: usize = 99;
const ORDER_COLUMN_MIN: f64 = 16.0;

/// Letters of a line of the head.
const LINE: usize = 118;

/// The picture as SVG.
///
/// # Errors
/// The template is invalid.
pub(super) fn draw(explained: &Explained) -> anyhow::Result<String> {
    let room = RIGHT - LEFT - 2.0 * MARGIN;
    let columns = Columns::fit(explained.segments(), (room / COLUMN.0) as usize);
    let column = (room / columns.width as f64).min(COLUMN.1);
    let sheet = Sheet { explained, columns, column };
    let mut top = 130.0;
    let mut panels = Vec::new();
    for result in &explained.results {
        let (panel, height) = sheet.panel(result, top);
        panels.push(panel);
        top += height + 36.0;
    }
    let summaries = explained.results.iter().map(|result| {
        let (strategy, about) = (result.strategy, explained.about(result.strategy));
        format!(" {strategy}, {about}: {}.", explained.summary(result))
    });
    let breaks = sheet.columns.breaks().map(|at| sheet.x(at) + column / 2.0);
    let picture = context! {
        title => printable(&explained.title()),
        place => cut(&printable(&explained.place()), LINE),
        summaries => summaries.collect::<String>(),
        width => WIDTH,
        height => top + 8.0,
        left => LEFT,
        right => RIGHT,
        breaks => breaks.collect::<Vec<f64>>(),
        labels => sheet.labels(),
        asked => sheet.strokes(&sheet.columns.asked(&explained.pattern), Use::Wanted, 112.0),
        order => sheet.order(),
        panels,
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // A name that ends in .xml turns escaping on [EXS-2].
    let drawn = environment.render_named_str("picture.xml", include_str!("svg.xml"), picture);
    Ok(drawn.context("drawing the picture")? + "\n")
}

struct Sheet<'a> {
    explained: &'a Explained,
    columns: Columns,
    /// Width of a column.
    column: f64,
}

impl Sheet<'_> {
    /// The left edge of a column.
    fn x(&self, column: usize) -> f64 {
        LEFT + MARGIN + column as f64 * self.column
    }

    /// The numbers of blocks.
    fn labels(&self) -> Vec<Value> {
        let wide = |label: &str| ((label.len() as f64 * 7.0 + 6.0) / self.column).ceil() as usize;
        let room = (WIDTH - self.x(0)) / self.column;
        let labels = self.columns.labels(room as usize, wide).into_iter();
        labels.map(|(column, text)| context! { x => self.x(column), text }).collect()
    }

    /// When each block is requested, for patterns short enough for that.
    fn order(&self) -> Vec<Value> {
        let blocks = &self.explained.pattern.blocks;
        if self.column < ORDER_COLUMN_MIN || blocks.len() > ORDER_MAX {
            return Vec::new();
        }
        let first = |(index, block): &(usize, &u32)| !blocks[..*index].contains(block);
        let places = blocks.iter().enumerate().filter(first).map(|(index, &block)| {
            let middle = self.x(self.columns.of(block.into())) + self.column / 2.0;
            context! { x => middle, number => index + 1 }
        });
        places.collect()
    }

    /// The reads of a strategy, with its first row below `top`, and their height.
    fn panel(&self, result: &StrategyResult, top: f64) -> (Value, f64) {
        let requests = &result.account.requests;
        let each = requests.len().div_ceil(ROWS_MAX).max(1);
        let count = requests.len().div_ceil(each).max(1);
        let row = (HEIGHT_MAX / count as f64).min(ROW_MAX);
        let height = row * count as f64 + 2.0 * MARGIN;
        let numbered = round_step((13.0 / row).ceil() as u64) as usize;
        let rows = requests.chunks(each).enumerate().map(|(index, requests)| {
            let first = index * each + 1;
            let number = format!("{} {}", shown_count(first), letter(requests));
            let y = top + MARGIN + (index as f64 + 0.5) * row;
            let counts = self.columns.counts(requests);
            let strokes = [("w", Use::Wanted), ("b", Use::Besides), ("a", Use::Again)];
            context! {
                y => y + 4.0,
                number => if index % numbered == 0 { number } else { String::new() },
                title => title(requests, first),
                strokes => strokes.map(|(class, purpose)| {
                    context! { class, path => self.strokes(&counts, purpose, y) }
                }),
            }
        });
        let panel = context! {
            strategy => result.strategy.to_string(),
            about => self.explained.about(result.strategy),
            summary => self.explained.summary(result),
            top,
            height,
            thick => if row < 4.0 { row } else { row * 0.72 },
            rows => rows.collect::<Vec<Value>>(),
        };
        (panel, height)
    }

    /// A path through the columns that are mostly for `purpose`, at the height `y`.
    fn strokes(&self, counts: &[[u64; 3]], purpose: Use, y: f64) -> String {
        let mut path = String::new();
        let mut column = 0;
        for alike in counts.chunk_by(|one, next| most(*one) == most(*next)) {
            if most(alike[0]) == Some(purpose) {
                let (x, long) = (self.x(column), alike.len() as f64 * self.column);
                path.push_str(&format!("M{x:.1} {y:.1}h{long:.1}"));
            }
            column += alike.len();
        }
        path
    }
}

/// A description of a row, shown under the pointer.
fn title(requests: &[Request], first: usize) -> String {
    match requests {
        [request] => {
            let (blocks, bytes) = (request.blocks(), request.bytes.end - request.bytes.start);
            let which = match (blocks.start, blocks.end - 1) {
                (one, last) if one == last => format!("block {one}"),
                (start, last) => format!("blocks {start}–{last}"),
            };
            format!("request {first}, {}: {which}, {}", letter(requests), shown_size(bytes))
        }
        _ => format!("requests {first}–{}", first + requests.len() - 1),
    }
}

/// Removes the characters that an XML document may not contain.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "")
}

#[cfg(test)]
mod tests;
