//! The picture as a file: one panel for each strategy, blocks across, requests down.
//!
//! The same picture as the strip on the terminal, where there are pixels instead of columns: a
//! request is a pale rectangle, the blocks in it that were asked for are dark. A panel with more
//! requests than it has room for is a raster instead, whose cells show what they mostly are; so a
//! picture of a million requests has the size of one of a thousand. It is self-contained, follows the
//! reader's light or dark scheme, and says in words what it shows.
//!
//! Invariants:  [EXS-1] a panel that is not a raster has a group for each request, in order of issue
//!              [EXS-2] nothing is drawn outside of the paper; text from outside is escaped
//! Source:      the colours are those of the report page, after Okabe and Ito.

mod panel;

use std::fmt::Write;

use super::axis::{Axis, round_step};
use super::{Picture, shown_count, shown_time};
use crate::report::numbers;
use crate::units::{shown_size, typed_size};

/// Width of the paper.
const WIDTH: f64 = 960.0;

/// Where the sheets of the panels begin; to the left are the numbers of the requests.
const LEFT: f64 = 72.0;

/// Where they end.
const RIGHT: f64 = WIDTH - 24.0;

/// Between a sheet's edge and its blocks.
const MARGIN: f64 = 4.0;

/// Between two segments of the axis.
const BREAK: f64 = 14.0;

/// The widest that a block is drawn.
const BLOCK_MAX: f64 = 34.0;

/// The narrowest that anything is drawn.
const THIN: f64 = 1.5;

/// Letters of a line of the head.
const LINE: usize = 118;

const STYLE: &str = "\
.paper{fill:#fbfbf9}.sheet{fill:#fff;stroke:#dde1e1}text{fill:#1c2429;font-size:12px}\
.soft,.soft text{fill:#566168}.name{font-weight:650;font-size:14px}.grid{stroke:#e8ebeb}\
.cut{stroke:#a2adb4;stroke-dasharray:2 3}.q{fill:#f6e3cd;stroke:#c75300;stroke-width:.8}\
.b{fill:#f0b27a}.w{fill:#0067a8}.a{fill:#a8397f}.rw{stroke:#0067a8}.rb{stroke:#f0b27a}.ra{stroke:#a8397f}\
@media (prefers-color-scheme:dark){.paper{fill:#14181c}.sheet{fill:#1a2026;stroke:#303941}\
text{fill:#e4e8ea}.soft,.soft text{fill:#a2adb4}.grid{stroke:#262e35}.cut{stroke:#566168}\
.q{fill:#4a3018;stroke:#f09a3e}.b{fill:#8a5a28}.w{fill:#5db8f0}.a{fill:#e98cc2}.rw{stroke:#5db8f0}\
.rb{stroke:#8a5a28}.ra{stroke:#e98cc2}}";

/// The picture as SVG.
pub(super) fn draw(picture: &Picture<'_>) -> String {
    let scale = Scale::of(&picture.axis);
    let mut body = String::new();
    let mut y = head(&mut body, picture);
    y = axis(&mut body, picture, &scale, y);
    for (told, account) in picture.told() {
        y = panel::draw(&mut body, picture, &scale, told, account, y);
    }
    let height = legend(&mut body, y);
    let mut text = String::new();
    write(
        &mut text,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif\">\n\
         <title id=\"title\">{}</title>\n<desc id=\"desc\">{}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n",
            escaped(&title(picture)),
            escaped(&description(picture)),
        ),
    );
    text
}

/// Writing to a string cannot fail.
fn write(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

/// Where a block stands: segments side by side, all to one scale.
#[derive(Debug)]
struct Scale<'a> {
    axis: &'a Axis,
    /// Width of a block.
    block: f64,
    /// The left edge of each segment.
    starts: Vec<f64>,
}

impl<'a> Scale<'a> {
    fn of(axis: &'a Axis) -> Scale<'a> {
        let cuts = (axis.segments.len() - 1) as f64 * BREAK;
        let room = RIGHT - LEFT - 2.0 * MARGIN - cuts;
        let block = (room / axis.blocks() as f64).min(BLOCK_MAX);
        let mut starts = Vec::with_capacity(axis.segments.len());
        let mut x = LEFT + MARGIN;
        for segment in &axis.segments {
            starts.push(x);
            x += (segment.end - segment.start) as f64 * block + BREAK;
        }
        Scale { axis, block, starts }
    }

    /// The left edge of `block`.
    fn x(&self, block: u64) -> f64 {
        let segment = self.axis.segment(block);
        let within = block - self.axis.segments[segment].start;
        self.starts[segment] + within as f64 * self.block
    }

    /// The right edge of all blocks.
    fn end(&self) -> f64 {
        let last = self.axis.segments.len() - 1;
        let segment = &self.axis.segments[last];
        self.starts[last] + (segment.end - segment.start) as f64 * self.block
    }

    /// The middle of each break.
    fn cuts(&self) -> impl Iterator<Item = f64> {
        self.starts[1..].iter().map(|start| start - BREAK / 2.0)
    }
}

fn title(picture: &Picture<'_>) -> String {
    let explained = picture.explained;
    let pattern = &explained.pattern;
    let seed = pattern.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    format!(
        "{}: {} block{} of {}{seed}",
        shortened(&pattern.text, 80),
        shown_count(pattern.blocks.len() as u64),
        if pattern.blocks.len() == 1 { "" } else { "s" },
        typed_size(explained.block_bytes)
    )
}

fn description(picture: &Picture<'_>) -> String {
    let mut text = String::from(
        "The requests that reached the disk, for each strategy from top to bottom in order of \
         issue, over the blocks of the file.",
    );
    for (told, account) in picture.told() {
        let (strategy, about) = (told.strategy, picture.about(told.strategy));
        let summary = summary(picture, told, account);
        write(&mut text, format_args!(" {strategy}, {about}: {summary}."));
    }
    text
}

fn summary(picture: &Picture<'_>, told: &super::Told, account: &super::request::Account) -> String {
    format!(
        "{} request{}, {}, over-read {} %, {}",
        shown_count(told.requests.len() as u64),
        if told.requests.len() == 1 { "" } else { "s" },
        shown_size(account.bytes),
        numbers::percent(picture.over_read(account)),
        shown_time(told.seconds)
    )
}

/// What was read, where and how; gives the height used.
fn head(body: &mut String, picture: &Picture<'_>) -> f64 {
    let disk = &picture.explained.disk;
    let readahead = disk.readahead_bytes.map_or("unknown".to_owned(), typed_size);
    let lines = [
        format!("on {} ({})", disk.profile, disk.about),
        format!(
            "readahead {readahead}; {}; each strategy from a cold page cache; {}",
            disk.kernel,
            match disk.speed_up {
                1.0 => "times are those of the disk emulated".to_owned(),
                times => format!(
                    "times are those of the disk emulated, which ran {} times faster",
                    numbers::number(times)
                ),
            }
        ),
    ];
    let title = escaped(&title(picture));
    write(body, format_args!("<text class=\"name\" x=\"24\" y=\"30\">{title}</text>\n"));
    let mut y = 30.0;
    for line in lines {
        y += 18.0;
        let line = escaped(&shortened(&line, LINE));
        write(body, format_args!("<text class=\"soft\" x=\"24\" y=\"{y}\">{line}</text>\n"));
    }
    y + 22.0
}

/// The numbers of blocks, and a mark for each that was asked for.
fn axis(body: &mut String, picture: &Picture<'_>, scale: &Scale<'_>, y: f64) -> f64 {
    let (labels, marks) = (y + 10.0, y + 30.0);
    write(body, format_args!("<g class=\"soft\" aria-hidden=\"true\">\n"));
    write(body, format_args!("<text x=\"24\" y=\"{labels}\">block</text>\n"));
    let step = round_step(64.0 / scale.block);
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for block in picture.axis.labels(step) {
        let label = shown_count(block);
        let width = label.len() as f64 * 7.0 + 6.0;
        // The last segment may be narrower than its label.
        let x = scale.x(block).min(WIDTH - width);
        let end = x + width;
        if taken.iter().all(|&(from, to)| end <= from || x >= to) {
            taken.push((x, end));
            write(body, format_args!("<text x=\"{x:.1}\" y=\"{labels}\">{label}</text>\n"));
        }
    }
    write(body, format_args!("<text x=\"24\" y=\"{}\">asked</text>\n</g>\n", marks + 9.0));
    let order = &picture.explained.pattern.blocks;
    if order.len() < 100 && scale.block >= 16.0 {
        write(body, format_args!("<g text-anchor=\"middle\" font-weight=\"650\">\n"));
        for (index, &block) in order.iter().enumerate() {
            if order[..index].contains(&block) {
                continue;
            }
            let x = scale.x(u64::from(block)) + scale.block / 2.0;
            let number = index + 1;
            write(body, format_args!("<text x=\"{x:.1}\" y=\"{}\">{number}</text>\n", marks + 9.0));
        }
        body.push_str("</g>\n");
    } else {
        let mut path = String::new();
        let mut last = f64::MIN;
        for &block in &picture.wanted {
            let x = scale.x(u64::from(block));
            if x - last >= 0.5 {
                write(&mut path, format_args!("M{x:.1} {marks}v10"));
                last = x;
            }
        }
        let width = scale.block.clamp(0.8, THIN);
        write(
            body,
            format_args!("<path class=\"rw\" stroke-width=\"{width:.2}\" d=\"{path}\"/>\n"),
        );
    }
    marks + 26.0
}

/// What the colours mean; gives the height of the paper.
fn legend(body: &mut String, y: f64) -> f64 {
    let y = y + 8.0;
    let mut x = 24.0;
    for (class, meaning) in [
        ("w", "asked for"),
        ("q", "read though nobody asked; the edge is the request's"),
        ("a", "read once more"),
    ] {
        let text = x + 18.0;
        write(
            body,
            format_args!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\"/>\
             <text class=\"soft\" x=\"{text}\" y=\"{}\">{meaning}</text>\n",
                y - 10.0,
                y
            ),
        );
        x = text + meaning.len() as f64 * 6.2 + 22.0;
    }
    write(
        body,
        format_args!(
            "<text class=\"soft\" x=\"{x}\" y=\"{y}\">S goes on where the one before ended, R \
         elsewhere</text>\n"
        ),
    );
    y + 22.0
}

/// The first `most` letters.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// As text of an XML document; what such a document may not hold at all is left out.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() => {}
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
