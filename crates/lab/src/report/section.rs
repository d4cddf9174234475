//! Sections: what an experiment shows, the same in the terminal and on the page.
//!
//! An experiment makes its section from its typed cells; how a table or a plot is drawn, as text or as
//! HTML and SVG, is decided in one place for all of them.

use serde::Serialize;

/// What one experiment shows.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The experiment's name, by which the page links to it.
    pub name: &'static str,
    /// The heading.
    pub title: String,
    /// What was measured and how to read it, in a sentence or two.
    pub about: String,
    /// What is shown, in order.
    pub parts: Vec<Part>,
    /// The plot that the first screen of the page shows, if this experiment has it.
    pub headline: Option<Plot>,
}

/// A piece of a section.
#[derive(Debug, Clone)]
pub enum Part {
    /// A sentence or a paragraph.
    Text(String),
    /// Figures.
    Table(Table),
    /// Curves.
    Plot(Plot),
}

/// A table: rows of cells under named columns, in groups.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Table {
    /// What the table shows, with the unit of its figures.
    pub caption: String,
    /// Names of the columns. The first names the rows, the others are figures.
    pub columns: Vec<String>,
    /// Rows, in order.
    pub rows: Vec<Row>,
    /// Sentences that cells refer to by [`TableCell::notes`].
    pub notes: Vec<String>,
}

/// A row of a table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Row {
    /// Written above the first row of each run of rows with the same one; empty for none.
    pub group: String,
    /// As many as the table has columns.
    pub cells: Vec<TableCell>,
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TableCell {
    /// The figure, ready to read; a dash where it could not be measured.
    pub text: String,
    /// What to fill the cell with behind the text, 0 to 1: a bar's length.
    pub share: Option<f64>,
    /// How the figure stands.
    pub mark: Mark,
    /// Numbers of notes of the table, from 0.
    pub notes: Vec<usize>,
}

/// How a figure stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As any other.
    #[default]
    Plain,
    /// The best of its row or table.
    Best,
    /// Surely worse than it should be.
    Bad,
    /// Not to be compared: not cold, or undecided.
    Weak,
}

/// Curves over one axis.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Name of the horizontal axis, with its unit.
    pub x_name: String,
    /// Name of the vertical axis, with its unit.
    pub y_name: String,
    /// Where the horizontal axis has a tick, and its label, ascending. Ticks are as far apart as they
    /// count, not by value: settings are doubled from one to the next.
    pub ticks: Vec<(f64, String)>,
    /// The curves.
    pub lines: Vec<Line>,
    /// Places worth looking at.
    pub marks: Vec<PlotMark>,
}

/// A curve.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Points in ascending order of x.
    pub points: Vec<Point>,
    /// Whether it is drawn dashed.
    pub dashed: bool,
}

/// A point of a curve, and how far the rounds were apart there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Must be a tick's.
    pub x: f64,
    /// The median of the rounds.
    pub y: f64,
    /// The slowest round.
    pub low: f64,
    /// The fastest round.
    pub high: f64,
}

/// A place worth looking at, such as a knee.
#[derive(Debug, Clone)]
pub struct PlotMark {
    /// The point.
    pub x: f64,
    /// The point.
    pub y: f64,
    /// What it is.
    pub text: String,
}

impl Table {
    /// Whether a column holds words, which begin at its left edge, and not figures, which end at its right one.
    pub fn is_words(&self, column: usize) -> bool {
        let figure =
            |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || "–-+<>(".contains(c));
        let texts = self.rows.iter().filter_map(|row| row.cells.get(column));
        let mut texts = texts.map(|cell| cell.text.as_str()).filter(|text| !text.is_empty());
        column == 0 || texts.any(|text| !figure(text))
    }

    /// Remembers `sentence` as a note, once, and gives its number.
    pub fn note(&mut self, sentence: &str) -> usize {
        self.notes.iter().position(|note| note == sentence).unwrap_or_else(|| {
            self.notes.push(sentence.to_owned());
            self.notes.len() - 1
        })
    }
}

impl TableCell {
    /// A plain figure or word.
    pub fn new(text: impl Into<String>) -> TableCell {
        TableCell { text: text.into(), ..TableCell::default() }
    }

    /// What could not be measured.
    pub fn missing() -> TableCell {
        TableCell::new("–")
    }
}
