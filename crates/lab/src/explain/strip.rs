//! The strip: blocks from left to right, requests from top to bottom, for the terminal.
//!
//! One scale of blocks for all strategies, so that they stand under each other. A row is one request
//! where there is room for that, between brackets where there is room for those; else it is several,
//! and a column several blocks, and the signs tell how much of them was read.
//!
//! ```text
//!  block      0   2   4   6   8   10
//!  asked        1 3 2 5   4     6
//!
//!  os: plain reads, the kernel decides
//!    1 R       [■ □ □ □]
//!    2 S               [■ ■ □ ■ □ □ □ □]
//! ```
//!
//! Invariants:  [STP-1] no line is wider than `width` (of at least `WIDTH_MIN`)
//!              [STP-2] without colour there is no escape, with `ascii` no other character
//!              [STP-3] each request is in one row, and all of its blocks are in it

use std::ops::Range;

use anstyle::{AnsiColor, Style};

use super::axis::{Axis, round_step};
use super::request::{Account, Run, Use};
use super::{Picture, Told, shown_count};
use crate::report::terminal::text::{ascii, cut, push_line, push_wrapped, styled};
use crate::report::terminal::{Look, WIDTH_MIN};

/// Rows of a strategy whose requests all get one.
const ROWS_SINGLE_MAX: usize = 24;

/// Rows of any other.
const ROWS_FOLDED: usize = 16;

/// Order of reading, for patterns short enough to have a sign for each.
const ORDER: &[u8] = b"123456789abcdefghijklmnopqrstuvwxyz";

/// Columns between the numbers of requests and the strip.
const GUTTER: usize = 4;

/// All strategies, one after the other, and a legend.
pub(super) fn strips(picture: &Picture<'_>, look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let counts = picture.told().map(|(told, _)| told.requests.len());
    let digits = shown_count(counts.max().unwrap_or(0) as u64).len().max(5);
    let columns = Columns::fit(&picture.axis, look.width - digits - GUTTER);
    let canvas = Canvas { picture, columns, digits, look };
    let mut text = String::new();
    canvas.head(&mut text);
    let mut used = Signs::default();
    for (told, account) in picture.told() {
        canvas.strategy(&mut text, told, account, &mut used);
    }
    canvas.legend(&mut text, &used);
    if look.ascii { ascii(&text) } else { text } // [STP-2]
}

/// Which column a block is in.
#[derive(Debug)]
struct Columns<'a> {
    axis: &'a Axis,
    /// Blocks in a column; 1 where blocks have room.
    blocks_each: u64,
    /// Columns of a block: 2 where there is room for brackets between blocks.
    cell: usize,
    /// The first column of each segment.
    starts: Vec<usize>,
    width: usize,
}

impl<'a> Columns<'a> {
    /// The widest that fits into `room`.
    fn fit(axis: &'a Axis, room: usize) -> Columns<'a> {
        let wide = Columns::new(axis, 1, 2);
        if wide.width <= room {
            return wide;
        }
        let segments = axis.segments.len();
        // A break before each segment but the first, and a column begun in each.
        let least = axis.blocks() / (room.saturating_sub(2 * segments).max(1) as u64 + 1);
        let mut blocks_each = least.max(1);
        loop {
            let columns = Columns::new(axis, blocks_each, 1);
            if columns.width <= room {
                return columns;
            }
            blocks_each += blocks_each.div_ceil(64);
        }
    }

    fn new(axis: &'a Axis, blocks_each: u64, cell: usize) -> Columns<'a> {
        let mut starts = Vec::with_capacity(axis.segments.len());
        let mut width = 0;
        for segment in &axis.segments {
            width += usize::from(!starts.is_empty()); // the break
            starts.push(width);
            let blocks = (segment.end - segment.start).div_ceil(blocks_each) as usize;
            // A bracket stands before the first block and after each.
            width += if cell == 2 { 2 * blocks + 1 } else { blocks };
        }
        Columns { axis, blocks_each, cell, starts, width }
    }

    fn of(&self, block: u64) -> usize {
        let segment = self.axis.segment(block);
        let within = (block - self.axis.segments[segment].start) / self.blocks_each;
        self.starts[segment] + within as usize * self.cell + (self.cell - 1)
    }

    fn brackets(&self) -> bool {
        self.cell == 2
    }
}

/// What stands in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sign {
    #[default]
    Blank,
    Break,
    Open,
    Close,
    /// One request ends and another begins.
    Both,
    /// A block, or the most of several.
    Read(Use),
    /// Wanted blocks, from 1 to 4 quarters of those in the column.
    Share(u8),
}

impl Sign {
    fn letter(self, ascii: bool) -> char {
        let (nice, plain) = match self {
            Sign::Blank => (' ', ' '),
            Sign::Break => ('┆', ':'),
            Sign::Open => ('[', '['),
            Sign::Close => (']', ']'),
            Sign::Both => ('|', '|'),
            Sign::Read(Use::Wanted) => ('■', '#'),
            Sign::Read(Use::Besides) => ('□', 'o'),
            Sign::Read(Use::Again) => ('▣', '@'),
            Sign::Share(1) => ('░', '.'),
            Sign::Share(2) => ('▒', '-'),
            Sign::Share(3) => ('▓', '+'),
            Sign::Share(_) => ('█', '#'),
        };
        if ascii { plain } else { nice }
    }

    fn style(self) -> Style {
        match self {
            Sign::Blank => Style::new(),
            Sign::Break | Sign::Open | Sign::Close | Sign::Both => Style::new().dimmed(),
            Sign::Read(Use::Wanted) | Sign::Share(_) => AnsiColor::Cyan.on_default(),
            Sign::Read(Use::Besides) => AnsiColor::Yellow.on_default(),
            Sign::Read(Use::Again) => AnsiColor::Red.on_default(),
        }
    }
}

/// Which signs the legend has to explain.
#[derive(Debug, Default)]
struct Signs {
    besides: bool,
    again: bool,
    /// The most requests in a row.
    row: usize,
}

impl Signs {
    fn see(&mut self, row: &[Sign]) {
        self.besides |= row.contains(&Sign::Read(Use::Besides));
        self.again |= row.contains(&Sign::Read(Use::Again));
    }
}

struct Canvas<'a> {
    picture: &'a Picture<'a>,
    columns: Columns<'a>,
    /// Of the largest number of a request.
    digits: usize,
    look: Look,
}

impl Canvas<'_> {
    /// The numbers of blocks, and which of them are read when.
    fn head(&self, text: &mut String) {
        let columns = &self.columns;
        let room = self.look.width - self.digits - GUTTER;
        let last = self.picture.axis.segments[self.picture.axis.segments.len() - 1].end;
        let longest = shown_count(last).len() as f64;
        let step = round_step((longest + 2.0) / columns.cell as f64 * columns.blocks_each as f64);
        let mut line = vec![' '; room];
        for block in self.picture.axis.labels(step) {
            let (column, label) = (columns.of(block), shown_count(block));
            let around = column.saturating_sub(1)..(column + label.len() + 1).min(room);
            if column + label.len() <= room && line[around].iter().all(|&sign| sign == ' ') {
                line.splice(column..column + label.len(), label.chars());
            }
        }
        let line: String = line.into_iter().collect();
        self.push(text, "block", ' ', &line);
        let order = &self.picture.explained.pattern.blocks;
        let asked = if columns.blocks_each == 1 && order.len() <= ORDER.len() {
            let mut asked = vec![' '; columns.width];
            for (&block, &sign) in order.iter().zip(ORDER).rev() {
                asked[columns.of(u64::from(block))] = char::from(sign);
            }
            styled(asked.iter().collect::<String>().trim_end(), Style::new().bold(), self.look)
        } else {
            let mut shares = vec![0_u64; columns.width];
            for &block in &self.picture.wanted {
                shares[columns.of(u64::from(block))] += 1;
            }
            let mut signs = self.blank();
            for (sign, share) in signs.iter_mut().zip(shares).filter(|(_, share)| *share > 0) {
                *sign = self.share(share);
            }
            self.signs(&signs)
        };
        self.push(text, "asked", ' ', &asked);
    }

    /// The sign for `blocks` wanted ones in a column.
    fn share(&self, blocks: u64) -> Sign {
        match (blocks, self.columns.blocks_each) {
            (0, _) => Sign::Blank,
            (_, 1) => Sign::Read(Use::Wanted),
            (blocks, each) => Sign::Share((blocks * 4).div_ceil(each).min(4) as u8),
        }
    }

    fn strategy(&self, text: &mut String, told: &Told, account: &Account, used: &mut Signs) {
        let heading = format!("{}: {}", told.strategy, self.picture.about(told.strategy));
        push_line(text, "");
        let heading = cut(&heading, self.look.width - 1);
        push_line(text, &format!(" {}", styled(&heading, Style::new().bold(), self.look)));
        let count = told.requests.len();
        if count == 0 {
            push_wrapped(text, "   ", "no request arrived at the disk", self.look.width);
        }
        let each = if count <= ROWS_SINGLE_MAX { 1 } else { count.div_ceil(ROWS_FOLDED) };
        used.row = used.row.max(each);
        for first in (0..count).step_by(each) {
            let requests = first..(first + each).min(count); // [STP-3]
            let row = self.row(&account.runs[requests.clone()]);
            used.see(&row);
            let line = self.signs(&row);
            let number = shown_count(first as u64 + 1);
            self.push(text, &number, follows(told, requests), &line);
        }
        for remark in &told.remarks {
            push_wrapped(text, "   ", remark, self.look.width);
        }
    }

    /// Some requests in one row.
    fn row(&self, requests: &[Vec<Run>]) -> Vec<Sign> {
        let columns = &self.columns;
        let mut row = self.blank();
        if columns.blocks_each > 1 {
            self.tally(requests, &mut row);
            return row;
        }
        for runs in requests {
            for run in runs {
                for block in run.blocks.clone() {
                    row[columns.of(block)] = Sign::Read(run.purpose);
                }
            }
            if let (Some(first), Some(last)) = (runs.first(), runs.last())
                && columns.brackets()
            {
                let open = &mut row[columns.of(first.blocks.start) - 1];
                *open = if *open == Sign::Close { Sign::Both } else { Sign::Open };
                let close = &mut row[columns.of(last.blocks.end - 1) + 1];
                *close = if *close == Sign::Open { Sign::Both } else { Sign::Close };
            }
        }
        row
    }

    /// A row with nothing in it but the breaks between segments.
    fn blank(&self) -> Vec<Sign> {
        let mut row = vec![Sign::Blank; self.columns.width];
        for &start in &self.columns.starts[1..] {
            row[start - 1] = Sign::Break;
        }
        row
    }

    /// As `row`, where a column is several blocks.
    fn tally(&self, requests: &[Vec<Run>], row: &mut [Sign]) {
        let (axis, each) = (self.columns.axis, self.columns.blocks_each);
        let mut tallies = vec![[0_u64; 3]; row.len()];
        for run in requests.iter().flatten() {
            let mut block = run.blocks.start;
            while block < run.blocks.end {
                let within = (block - axis.segments[axis.segment(block)].start) % each;
                let next = (block + each - within).min(run.blocks.end);
                tallies[self.columns.of(block)][run.purpose as usize] += next - block;
                block = next;
            }
        }
        for (sign, [wanted, besides, again]) in row.iter_mut().zip(tallies) {
            if wanted + besides + again == 0 {
                continue;
            }
            *sign = if wanted >= besides.max(again) {
                self.share(wanted)
            } else if besides >= again {
                Sign::Read(Use::Besides)
            } else {
                Sign::Read(Use::Again)
            };
        }
    }

    /// A row as text; neighbours of one style share their escapes.
    fn signs(&self, row: &[Sign]) -> String {
        let end = row.iter().rposition(|sign| *sign != Sign::Blank).map_or(0, |last| last + 1);
        let mut text = String::new();
        let mut rest = &row[..end];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|sign| sign.style() == first.style()).count();
            let letters: String =
                rest[..same].iter().map(|sign| sign.letter(self.look.ascii)).collect();
            text.push_str(&match first {
                Sign::Blank => letters,
                _ => styled(&letters, first.style(), self.look),
            });
            rest = &rest[same..];
        }
        text
    }

    /// A line: what it is, a letter, the strip.
    fn push(&self, text: &mut String, name: &str, letter: char, strip: &str) {
        let name = format!("{name:>digits$} {letter}", digits = self.digits);
        let name = styled(&name, Style::new().dimmed(), self.look);
        push_line(text, &format!(" {name} {strip}"));
    }

    fn legend(&self, text: &mut String, used: &Signs) {
        let sign = |sign: Sign| sign.letter(self.look.ascii);
        let mut parts = Vec::new();
        let wide = self.columns.blocks_each > 1;
        if wide {
            parts.push(format!(
                "a column is {} blocks; {}{}{}{} the part of them that was read and asked for, by \
                 quarters",
                shown_count(self.columns.blocks_each),
                sign(Sign::Share(1)),
                sign(Sign::Share(2)),
                sign(Sign::Share(3)),
                sign(Sign::Share(4)),
            ));
        } else {
            parts.push(format!("{} a block that was asked for", sign(Sign::Read(Use::Wanted))));
        }
        let mostly = if wide { "mostly " } else { "" };
        if used.besides {
            let sign = sign(Sign::Read(Use::Besides));
            parts.push(format!("{sign} {mostly}read though nobody asked"));
        }
        if used.again {
            parts.push(format!("{} {mostly}read once more", sign(Sign::Read(Use::Again))));
        }
        if self.columns.brackets() {
            parts.push("[..] a request".to_owned());
        }
        if used.row > 1 {
            parts.push("a row is several requests where there are many".to_owned());
        }
        parts.push("S goes on where the one before ended, R elsewhere".to_owned());
        push_line(text, "");
        push_wrapped(text, " ", &(parts.join("; ") + "."), self.look.width);
    }
}

/// `S` if most of `requests` go on where the one before ended, else `R`.
fn follows(told: &Told, requests: Range<usize>) -> char {
    let count = requests.len();
    let follow = requests
        .filter(|&at| {
            let before = at.checked_sub(1).map(|before| &told.requests[before]);
            told.requests[at].follows(before)
        })
        .count();
    if follow * 2 > count { 'S' } else { 'R' }
}

#[cfg(test)]
mod tests;
