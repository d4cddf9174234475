//! Grid: groups of rows under one header, in whatever width the terminal has.
//!
//! The tables of most experiments are laid out here. A terminal that is too narrow loses whole
//! columns, those of least worth first, because a figure that is cut or wrapped is read wrongly;
//! only the column of names is cut, and only when nothing else can go. Which columns went is
//! told to the caller, who tells the reader.
//!
//! ```text
//!             os   max  adaptive   best
//!                                 blocks/s       a wide terminal
//!  cold, direct
//!  uniform  0.25  0.31  0.98         67,000
//!
//!           max  adaptive                        a narrow one: `os` and `best` went
//! ```
//!
//! Invariants:  [GRD-1] no line is wider than the look's width
//!              [GRD-2] every column that is not drawn is handed back by name

use anstyle::{Color as AnsiColour, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Row, Table};

use super::super::standing::Standing;
use super::Look;
use super::text::{bar, cut, push_heading, push_line, push_wrapped};

/// Worth of a column that stays however narrow the terminal is.
pub(super) const KEPT: u8 = u8::MAX;

/// Least and most columns of text that bars get.
const BAR_MIN: usize = 8;
const BAR_MAX: usize = 40;

/// Fewest letters of a name.
const NAME_MIN: usize = 4;

/// Most letters of a suffix; all numbers of its footnotes rarely matter.
const SUFFIX_MAX: usize = 8;

/// What the figures of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words, to the left.
    Name,
    /// Numbers, to the right.
    Number,
    /// Bars, in whatever width the others leave.
    Bar,
}

/// A column, before it is known whether there is room for it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// What it is, then its unit or reference.
    pub(super) header: [String; 2],
    pub(super) kind: Kind,
    /// Columns of less worth go first; of equals the last. [`KEPT`]: never.
    pub(super) worth: u8,
}

impl Column {
    pub(super) fn new(header: [&str; 2], kind: Kind, worth: u8) -> Column {
        Column { header: header.map(|line| cut(line, 24)), kind, worth }
    }
}

/// How a figure is written when colour may be used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tone {
    pub(super) colour: Option<Color>,
    pub(super) bold: bool,
    pub(super) dim: bool,
}

/// One figure.
#[derive(Debug, Clone, Default)]
pub(super) struct Figure {
    pub(super) text: String,
    /// Signs after the figure, such as `[1]`, which leave figures aligned.
    pub(super) suffix: String,
    pub(super) tone: Tone,
    /// Share of one and standing, in a column of bars.
    pub(super) bar: Option<(f64, Standing)>,
}

impl Figure {
    pub(super) fn plain(text: String) -> Figure {
        Figure { text, ..Figure::default() }
    }
}

/// Rows under a heading of their own.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) heading: String,
    /// As many figures in each row as the grid has columns.
    pub(super) rows: Vec<Vec<Figure>>,
}

/// Draws `groups`; the second answer names the columns left out for want of room [GRD-2].
pub(super) fn draw(columns: &[Column], groups: &[Group], look: Look) -> (String, Vec<String>) {
    let layout = Layout::new(columns, groups, look.width);
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.force_no_tty(); // the caller knows what it writes to; stdout may not be it
    if look.colour {
        table.enforce_styling();
    }
    table.set_header(layout.kept.iter().map(|at| Cell::new(columns[*at].header.join("\n"))));
    for row in groups.iter().flat_map(|group| &group.rows) {
        table.add_row(layout.row(columns, row, look));
    }
    for (index, at) in layout.kept.iter().enumerate() {
        if let Some(drawn) = table.column_mut(index) {
            drawn.set_padding((layout.gap, 0));
            drawn.set_cell_alignment(match columns[*at].kind {
                Kind::Number => CellAlignment::Right,
                Kind::Name | Kind::Bar => CellAlignment::Left,
            });
        }
    }
    let mut drawn = table.lines().map(|line| line.trim_end().to_owned());
    let mut text = String::new();
    for line in drawn.by_ref().take(2).filter(|line| !line.is_empty()) {
        push_line(&mut text, &line);
    }
    for group in groups {
        push_heading(&mut text, &group.heading, Style::new().bold().fg_color(heading_ink()), look);
        for row in drawn.by_ref().take(group.rows.len()) {
            push_line(&mut text, &row);
        }
    }
    (text, layout.left_out)
}

/// [`draw`], and below it [`no_room`]; nothing without groups.
pub(super) fn draw_and_tell(columns: &[Column], groups: &[Group], look: Look) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let (mut text, left_out) = draw(columns, groups, look);
    if !left_out.is_empty() {
        text.push('\n');
        text.push_str(&no_room(&left_out, look));
    }
    text
}

/// Says which columns there was no room for, if there are any.
pub(super) fn no_room(left_out: &[String], look: Look) -> String {
    let mut text = String::new();
    if !left_out.is_empty() {
        let missing = format!("No room here for: {}.", left_out.join(", "));
        push_wrapped(&mut text, " ", &missing, look.width);
    }
    text
}

fn heading_ink() -> Option<AnsiColour> {
    Some(anstyle::AnsiColor::Cyan.into())
}

/// Which columns are drawn, and how wide.
struct Layout {
    /// Indices of the columns that are drawn.
    kept: Vec<usize>,
    /// Width of every column's figures without their suffixes.
    texts: Vec<usize>,
    suffixes: Vec<usize>,
    bar: usize,
    /// Blanks before each column.
    gap: u16,
    left_out: Vec<String>,
}

impl Layout {
    fn new(columns: &[Column], groups: &[Group], width: usize) -> Layout {
        let widest = |at: usize, of: fn(&Figure) -> &str| {
            let figures = groups.iter().flat_map(|group| &group.rows).filter_map(|row| row.get(at));
            figures.map(|figure| of(figure).chars().count()).max().unwrap_or(0)
        };
        let mut texts: Vec<usize> =
            (0..columns.len()).map(|at| widest(at, |figure| &figure.text)).collect();
        let suffixes: Vec<usize> = (0..columns.len())
            .map(|at| widest(at, |figure| &figure.suffix).min(SUFFIX_MAX))
            .collect();
        let header = |at: usize| columns[at].header.iter().map(|line| line.chars().count()).max();
        let needs = |texts: &[usize], at: usize| match columns[at].kind {
            Kind::Bar => BAR_MIN,
            Kind::Name | Kind::Number => (texts[at] + suffixes[at]).max(header(at).unwrap_or(0)),
        };
        let taken = |texts: &[usize], kept: &[usize], gap: usize| -> usize {
            kept.iter().map(|at| needs(texts, *at) + gap).sum()
        };
        let mut kept: Vec<usize> = (0..columns.len()).collect();
        let mut left_out = Vec::new();
        while taken(&texts, &kept, 1) > width {
            let expendable = kept.iter().rev().filter(|at| columns[**at].worth < KEPT);
            let Some(&at) = expendable.min_by_key(|at| columns[**at].worth) else { break };
            kept.retain(|index| *index != at);
            left_out.push(columns[at].header.join(" ").trim().to_owned()); // [GRD-2]
        }
        let over = taken(&texts, &kept, 1).saturating_sub(width);
        if let Some(&name) = kept.iter().find(|at| columns[**at].kind == Kind::Name) {
            texts[name] = texts[name].saturating_sub(over).max(NAME_MIN); // [GRD-1]
        }
        let gap = if taken(&texts, &kept, 2) <= width { 2 } else { 1 };
        let left = width.saturating_sub(taken(&texts, &kept, gap));
        let bar = (BAR_MIN + left).min(BAR_MAX);
        let gap = if gap == 2 { 2 } else { 1 };
        Layout { kept, texts, suffixes, bar, gap, left_out }
    }

    fn row(&self, columns: &[Column], figures: &[Figure], look: Look) -> Row {
        let mut row = Row::new();
        for at in &self.kept {
            let Some(figure) = figures.get(*at) else {
                row.add_cell(Cell::new(""));
                continue;
            };
            let (text, suffix) = (self.texts[*at], self.suffixes[*at]);
            let words = cut(&figure.text, text);
            let signs = cut(&figure.suffix, suffix);
            let drawn = match (columns[*at].kind, figure.bar) {
                (Kind::Bar, Some((share, standing))) => bar(share, standing, self.bar, look.ascii),
                (Kind::Bar, None) => String::new(),
                (Kind::Name, _) => format!("{words}{signs}"),
                (Kind::Number, _) => format!("{words:>text$}{signs:<suffix$}"),
            };
            let mut cell = Cell::new_owned(drawn);
            if look.colour {
                if let Some(colour) = figure.tone.colour {
                    cell = cell.fg(colour);
                }
                if figure.tone.bold {
                    cell = cell.add_attribute(Attribute::Bold);
                }
                if figure.tone.dim {
                    cell = cell.add_attribute(Attribute::Dim);
                }
            }
            row.add_cell(cell);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column::new(["pattern", ""], Kind::Name, KEPT),
            Column::new(["os", ""], Kind::Number, 1),
            Column::new(["adaptive", ""], Kind::Number, KEPT),
            Column::new(["best", "blocks/s"], Kind::Number, 0),
        ]
    }

    fn groups() -> Vec<Group> {
        let suffixed = Figure { suffix: "![1,2,3,4,5]".into(), ..Figure::plain("0.25".into()) };
        let row = ["a rather long pattern", "0.50", "1.00", "1,041,230"];
        let mut rows = vec![row.map(|text| Figure::plain(text.to_owned())).to_vec()];
        rows.push(vec![Figure::plain("uniform".into()), suffixed.clone(), suffixed]);
        vec![Group { heading: "cold, direct, kernel readahead 128 KiB".into(), rows }]
    }

    #[test]
    fn columns_go_by_worth_until_the_rest_fits() {
        let mut fewest = usize::MAX;
        for width in (30..120).rev() {
            let look = Look { width, colour: false, ascii: false };
            let (text, left_out) = draw(&columns(), &groups(), look);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "[GRD-1] {width}: {line}");
            }
            let drawn = 4 - left_out.len();
            assert!(drawn <= fewest, "narrower, but more columns: {text}");
            fewest = drawn;
            if left_out.len() == 1 {
                assert_eq!(left_out, ["best blocks/s"], "[GRD-2]");
            }
        }
        assert_eq!(fewest, 2);
    }

    #[test]
    fn figures_stay_aligned_under_suffixes() {
        let look = Look { width: 100, colour: false, ascii: false };
        let (text, _) = draw(&columns(), &groups(), look);
        let column = |figure: &str| {
            let line = text.lines().find(|line| line.contains(figure)).unwrap();
            line[..line.find(figure).unwrap()].chars().count()
        };
        assert_eq!(column("0.50"), column("0.25"), "{text}");
    }
}
