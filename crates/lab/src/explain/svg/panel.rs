//! A panel: the requests of one strategy, each for itself or as a raster.

use std::ops::Range;

use super::super::axis::round_step;
use super::super::request::{Account, Run, Use};
use super::super::{Picture, Told, shown_count};
use super::{LEFT, RIGHT, Scale, THIN, escaped, summary, write};
use crate::units::shown_size;

/// The highest that the rows of a panel are together.
const HEIGHT_MAX: f64 = 360.0;

/// The highest that a row is.
const ROW_MAX: f64 = 17.0;

/// Requests that are each drawn for themselves, at most.
const SINGLE_MAX: usize = 360;

/// A request that is narrower has no edge.
const EDGE_MIN: f64 = 6.0;

/// Width and height of a cell of a raster.
const CELL: f64 = 2.0;

/// Between a panel's edge and its first row.
const INSET: f64 = 5.0;

/// Draws the panel from `y` on, and gives where it ends.
pub(super) fn draw(
    body: &mut String,
    picture: &Picture<'_>,
    scale: &Scale<'_>,
    told: &Told,
    account: &Account,
    y: f64,
) -> f64 {
    let count = told.requests.len();
    let row = (HEIGHT_MAX / count.max(1) as f64).min(ROW_MAX);
    let (top, height) = (y + 22.0, row * count.max(1) as f64 + 2.0 * INSET);
    let (strategy, about) = (told.strategy, picture.about(told.strategy));
    let summary = escaped(&summary(picture, told, account));
    write(
        body,
        format_args!(
            "<g role=\"group\" aria-label=\"{strategy}: {summary}\">\n\
         <text x=\"24\" y=\"{:.1}\"><tspan class=\"name\">{strategy}</tspan> \
         <tspan class=\"soft\" dx=\"6\">{about}</tspan></text>\n\
         <text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{summary}</text>\n\
         <rect class=\"sheet\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>\n",
            y + 14.0,
            y + 14.0,
            RIGHT - LEFT,
        ),
    );
    for x in scale.cuts() {
        write(body, format_args!("<path class=\"cut\" d=\"M{x:.1} {top:.1}v{height:.1}\"/>\n"));
    }
    let rows = Rows { scale, told, account, top: top + INSET, row };
    rows.numbers(body);
    if count <= SINGLE_MAX {
        rows.singly(body, picture.explained.block_bytes);
    } else {
        rows.raster(body);
    }
    body.push_str("</g>\n");
    top + height + 14.0
}

struct Rows<'a> {
    scale: &'a Scale<'a>,
    told: &'a Told,
    account: &'a Account,
    /// Of the first row.
    top: f64,
    /// Height of a row.
    row: f64,
}

impl Rows<'_> {
    /// The numbers of the requests, and whether each goes on where the one before ended.
    fn numbers(&self, body: &mut String) {
        let requests = &self.told.requests;
        let step = round_step(13.0 / self.row) as usize;
        body.push_str("<g class=\"soft\" text-anchor=\"end\" aria-hidden=\"true\">\n");
        for at in 0..requests.len() {
            let near_first = at as f64 * self.row < 12.0;
            if at > 0 && ((at + 1) % step > 0 || near_first) {
                continue;
            }
            let y = self.top + (at as f64 + 0.5) * self.row + 4.0;
            let number = shown_count(at as u64 + 1);
            let letter = if step == 1 { format!(" {}", self.letter(at)) } else { String::new() };
            let x = LEFT - 8.0;
            write(body, format_args!("<text x=\"{x}\" y=\"{y:.1}\">{number}{letter}</text>\n"));
        }
        body.push_str("</g>\n");
    }

    fn letter(&self, at: usize) -> char {
        let before = at.checked_sub(1).map(|before| &self.told.requests[before]);
        if self.told.requests[at].follows(before) { 'S' } else { 'R' }
    }

    /// A group for each request [EXS-1].
    fn singly(&self, body: &mut String, block_bytes: u64) {
        let height = (self.row * 0.72).max(0.9);
        for (at, (request, runs)) in self.told.requests.iter().zip(&self.account.runs).enumerate() {
            let y = self.top + (at as f64 + 0.5) * self.row - height / 2.0;
            let blocks = request.blocks(block_bytes);
            let (first, last) = (blocks.start, blocks.end - 1);
            let named = if first == last {
                format!("block {first}")
            } else {
                format!("blocks {first}–{last}")
            };
            write(
                body,
                format_args!(
                    "<g class=\"r\"><title>request {}, {}: {named}, {}</title>",
                    at + 1,
                    self.letter(at),
                    shown_size(request.len)
                ),
            );
            self.bar(body, &blocks, runs, y, height);
            body.push_str("</g>\n");
        }
    }

    /// A request with its blocks in it; one that is too narrow for an edge is what it was read for.
    fn bar(&self, body: &mut String, blocks: &Range<u64>, runs: &[Run], y: f64, height: f64) {
        let x = self.scale.x(blocks.start);
        let width = self.scale.x(blocks.end - 1) + self.scale.block - x;
        if width < EDGE_MIN || height < 2.0 {
            let class = match runs.iter().map(|run| run.purpose).min() {
                Some(Use::Wanted) => "w",
                Some(Use::Again) => "a",
                _ => "b",
            };
            return rectangle(body, class, x, y, width.max(THIN), height);
        }
        rectangle(body, "q", x + 0.5, y, width - 1.0, height);
        // Within the request's edge, so that two requests side by side stay two.
        let inset = if height < 6.0 { 0.0 } else { 2.0 };
        for run in runs.iter().filter(|run| run.purpose != Use::Besides) {
            let class = if run.purpose == Use::Wanted { "w" } else { "a" };
            let start = self.scale.x(run.blocks.start).max(x + 2.0);
            let end = self.scale.x(run.blocks.end - 1) + self.scale.block;
            let end = end.min(x + width - 2.0);
            let thick = (end - start).max(THIN);
            rectangle(
                body,
                class,
                start.min(x + width - THIN),
                y + inset,
                thick,
                height - 2.0 * inset,
            );
        }
    }

    /// Cells that show what they mostly are.
    fn raster(&self, body: &mut String) {
        let left = self.scale.starts[0];
        let width = ((self.scale.end() - left) / CELL).ceil() as usize + 1;
        let height = (HEIGHT_MAX / CELL) as usize;
        let mut tallies = vec![[0.0_f64; 3]; width * height];
        for (at, runs) in self.account.runs.iter().enumerate() {
            let row = at * height / self.account.runs.len();
            for run in runs {
                self.tally(run, left, &mut tallies[row * width..(row + 1) * width]);
            }
        }
        for (purpose, class) in [(Use::Besides, "rb"), (Use::Wanted, "rw"), (Use::Again, "ra")] {
            let mut path = String::new();
            for (row, cells) in tallies.chunks(width).enumerate() {
                let y = self.top + (row as f64 + 0.5) * CELL;
                let mut column = 0;
                while column < width {
                    let same =
                        cells[column..].iter().take_while(|cell| most(cell) == Some(purpose));
                    let same = same.count();
                    if same > 0 {
                        let x = left + column as f64 * CELL;
                        write(&mut path, format_args!("M{x:.0} {y:.0}h{}", same as f64 * CELL));
                    }
                    column += same.max(1);
                }
            }
            if !path.is_empty() {
                write(
                    body,
                    format_args!(
                        "<path class=\"{class}\" stroke-width=\"{CELL}\" d=\"{path}\"/>\n"
                    ),
                );
            }
        }
    }

    /// Adds the blocks of `run` to the cells of its row.
    fn tally(&self, run: &Run, left: f64, cells: &mut [[f64; 3]]) {
        let start = self.scale.x(run.blocks.start) - left;
        let end = self.scale.x(run.blocks.end - 1) + self.scale.block - left;
        let first = (start / CELL) as usize;
        let last = ((end / CELL).ceil() as usize).max(first + 1).min(cells.len());
        let part = (run.blocks.end - run.blocks.start) as f64 / (last - first) as f64;
        for cell in &mut cells[first..last] {
            cell[run.purpose as usize] += part;
        }
    }
}

fn rectangle(body: &mut String, class: &str, x: f64, y: f64, width: f64, height: f64) {
    write(
        body,
        format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" \
         height=\"{height:.2}\"/>"
        ),
    );
}

/// What most blocks of a cell are; wanted where that is even.
fn most(cell: &[f64; 3]) -> Option<Use> {
    let [wanted, besides, again] = *cell;
    if wanted + besides + again == 0.0 {
        None
    } else if wanted >= besides && wanted >= again {
        Some(Use::Wanted)
    } else if besides >= again {
        Some(Use::Besides)
    } else {
        Some(Use::Again)
    }
}
