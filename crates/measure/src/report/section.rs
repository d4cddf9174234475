//! Sections: what an experiment shows, the same in the terminal and on the page.
//!
//! An experiment makes its section from its typed cells; how a table or a plot is drawn, as text or as
//! HTML and SVG, is decided in one place for all of them. A table is defined by its columns, each a name and a
//! function that makes a cell from the row's item.
//!
//! Invariants:  [TAB-1] every row has as many cells as the table has columns

use serde::Serialize;

use super::numbers;
use crate::lists::unique;
use crate::statistics::{median, range};

/// The section of one experiment.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The experiment's name, by which the page links to it.
    pub name: &'static str,
    /// The heading.
    pub title: String,
    /// The measurement and how to read it, in a sentence or two.
    pub about: String,
    /// The parts, in order.
    pub parts: Vec<Part>,
}

/// A piece of a section.
#[derive(Debug, Clone)]
pub enum Part {
    /// Figures.
    Table(Table),
    /// Curves.
    Plot(Plot),
}

/// A table: rows of cells under named columns, in groups.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Table {
    /// The title of the table, with the unit of its figures.
    pub caption: String,
    /// Names of the columns. The first names the rows, the others are figures.
    pub columns: Vec<String>,
    /// Rows, in order.
    pub rows: Vec<Row>,
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
    /// How much of the cell's background to fill, 0 to 1: a bar's length.
    pub share: Option<f64>,
    /// The mark of the figure.
    pub mark: Mark,
    /// Sentences below the table, each once even if several cells have it.
    pub notes: Vec<String>,
}

/// A column of a table with one row per `T`: its name, and its cell in such a row.
pub type Column<'c, T> = (&'c str, &'c dyn Fn(&T) -> TableCell);

/// The mark of a figure.
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
    /// Not comparable: not cold, or undecided.
    Weak,
}

/// Curves over one axis.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// Name of the horizontal axis, with its unit.
    pub x_name: String,
    /// Name of the vertical axis, with its unit.
    pub y_name: String,
    /// Labels of the horizontal axis. They are spaced by index, not by value: settings double
    /// from one to the next.
    pub ticks: Vec<String>,
    /// The curves.
    pub lines: Vec<Line>,
    /// A position worth attention, such as a knee, and its label.
    pub mark: Option<(Point, String)>,
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

/// A point of a curve, and the spread of the rounds there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The index of its tick.
    pub x: usize,
    /// The median of the rounds.
    pub y: f64,
    /// The slowest round.
    pub low: f64,
    /// The fastest round.
    pub high: f64,
}

impl Point {
    /// The result of `rounds` at tick `x`; `None` without rounds.
    pub fn of(x: usize, rounds: &[f64]) -> Option<Point> {
        let (low, high) = range(rounds);
        Some(Point { x, y: median(rounds)?, low, high })
    }
}

impl Table {
    /// A table without rows.
    pub fn new(
        caption: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// A table with a row for each of `items`, in the group that `group` names.
    pub fn of<'i, T: 'i>(
        caption: impl Into<String>,
        items: impl IntoIterator<Item = &'i T>,
        group: impl Fn(&T) -> String,
        columns: &[Column<'_, T>],
    ) -> Table {
        let mut table = Table::new(caption, columns.iter().map(|(name, _)| *name));
        for item in items {
            table.push(group(item), columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Its width differs from the table's.
    pub fn push(&mut self, group: String, cells: Vec<TableCell>) {
        assert_eq!(cells.len(), self.columns.len(), "[TAB-1]");
        self.rows.push(Row { group, cells });
    }

    /// Whether a column holds words, which begin at its left edge, and not figures, which end at its right one.
    pub fn is_words(&self, column: usize) -> bool {
        let figure =
            |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || "–-+<>(".contains(c));
        let texts = self.rows.iter().filter_map(|row| row.cells.get(column));
        let mut texts = texts.map(|cell| cell.text.as_str()).filter(|text| !text.is_empty());
        column == 0 || texts.any(|text| !figure(text))
    }

    /// The notes of all cells, each once, in the order of their numbers.
    pub fn notes(&self) -> Vec<&str> {
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        let notes = cells.flat_map(|cell| &cell.notes).map(String::as_str);
        unique(&notes.collect::<Vec<_>>())
    }
}

impl TableCell {
    /// A plain word.
    pub fn new(text: impl Into<String>) -> TableCell {
        TableCell { text: text.into(), ..TableCell::default() }
    }

    /// A measured number; a dash where it could not be measured.
    pub fn figure(value: Option<f64>) -> TableCell {
        TableCell::new(value.map_or_else(|| "–".to_owned(), numbers::number))
    }

    /// The same with `notes`, each once.
    #[must_use]
    pub fn with_notes(self, notes: &[String]) -> TableCell {
        TableCell { notes: unique(notes), ..self }
    }
}
