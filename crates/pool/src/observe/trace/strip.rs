//! The strip: a trace at a glance, a letter for each request.
//!
//! A line for each stream, wrapped to the terminal's width. Worked example: plain reads that find a
//! sequence, and a stream that merges two requests and finds a block in memory, are
//! ```text
//! plain reads  RRRSSSSS
//! stream 1     MM.M
//! ```
//! S says "in sequence" in either of two ways: look-ahead took the blocks for part of a sequence
//! (forward, backward, strided or by context), or they begin where this stream's last request in
//! the file ended, whatever they were asked for. A letter is a request rather than a block: a scan
//! in few large requests is a short strip, and that is what one wants to see. Hints, which read
//! nothing into frames, are in lower case. Blocks handed over draw nothing unless they were late.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Action, TraceEvent, Why};
use crate::tag::FileId;

/// No strip is narrower than this, in characters: labels and legend need room.
const COLUMNS_MIN: usize = 40;

/// Between a label and its letters, and between two parts of the legend.
const SPACE: &str = "  ";

const RESET: &str = "\x1b[0m";

/// Letter, colour (as an ANSI escape sequence) and meaning.
const LEGEND: [(char, &str, &str); 7] = [
    ('S', "\x1b[32m", "sequential"),
    ('R', "\x1b[31m", "random"),
    ('M', "\x1b[36m", "merged"),
    ('G', "\x1b[33m", "gap read through"),
    ('J', "\x1b[35m", "joined a read"),
    ('.', "\x1b[2m", "hit"),
    ('!', "\x1b[1;31m", "came late"),
];

/// Draws `events`, the oldest first, in lines of at most `columns` characters.
pub(super) fn draw(events: &[TraceEvent], dropped: u64, columns: usize, color: bool) -> String {
    let columns = columns.max(COLUMNS_MIN);
    let streams = letters(events);
    let mut text = String::new();
    if streams.is_empty() {
        text.push_str("No look-ahead was recorded.\n");
    }
    let width = streams.keys().map(|stream| label(*stream).len()).max().unwrap_or(0);
    for (stream, letters) in &streams {
        let mut name = label(*stream);
        for line in letters.chunks(columns - width - SPACE.len()) {
            let _ = write!(text, "{name:width$}{SPACE}");
            paint(&mut text, line, color);
            text.push('\n');
            name.clear(); // The lines after the first one carry no label.
        }
    }
    if !streams.is_empty() {
        legend(&mut text, columns, color);
    }
    if dropped > 0 {
        let _ = writeln!(text, "{dropped} older events overwritten");
    }
    text
}

fn label(stream: u32) -> String {
    match stream {
        0 => "plain reads".to_owned(),
        number => format!("stream {number}"),
    }
}

/// The letters of each stream, in the order of its events.
fn letters(events: &[TraceEvent]) -> BTreeMap<u32, Vec<char>> {
    let mut streams: BTreeMap<u32, Vec<char>> = BTreeMap::new();
    let mut ends: BTreeMap<(u32, FileId), u64> = BTreeMap::new();
    for event in events {
        let mut goes_on = false;
        if event.action != Action::Deliver {
            let (start, blocks) = (u64::from(event.first), u64::from(event.blocks));
            let end = ends.insert((event.stream, event.file), start + blocks);
            goes_on = end == Some(start);
        }
        if let Some(letter) = event.action.letter(event.why, goes_on) {
            streams.entry(event.stream).or_default().push(letter);
        }
    }
    streams
}

impl Action {
    /// The letter of a strip for this done for `why`, if there is one. `goes_on`: it begins where the request before
    /// it ended.
    pub const fn letter(self, why: Why, goes_on: bool) -> Option<char> {
        let letter = match why {
            Why::Hit => '.',
            Why::Late => '!',
            _ if matches!(self, Action::Deliver) => return None,
            Why::Joined => 'J',
            Why::Gap => 'G',
            Why::Merged => 'M',
            Why::Sequential | Why::Backward | Why::Strided | Why::Context => 'S',
            Why::Random | Why::Single if goes_on => 'S',
            Why::Random | Why::Single => 'R',
        };
        let is_hint = matches!(self, Action::Hint);
        Some(if is_hint { letter.to_ascii_lowercase() } else { letter })
    }
}

/// Adds letters, each run of one letter in its colour.
fn paint(text: &mut String, letters: &[char], color: bool) {
    for run in letters.chunk_by(|one, next| one == next) {
        let legend = LEGEND.iter().find(|(letter, ..)| *letter == run[0].to_ascii_uppercase());
        let code = legend.filter(|_| color).map(|(_, code, _)| *code);
        text.push_str(code.unwrap_or(""));
        text.extend(run);
        text.push_str(code.map_or("", |_| RESET));
    }
}

fn legend(text: &mut String, columns: usize, color: bool) {
    let mut used = 0;
    let mut part = |text: &mut String, letter: &[char], meaning: &str| {
        let width = letter.len() + usize::from(!letter.is_empty()) + meaning.len();
        if used > 0 && used + SPACE.len() + width > columns {
            text.push('\n');
            used = 0;
        } else if used > 0 {
            text.push_str(SPACE);
            used += SPACE.len();
        }
        paint(text, letter, color);
        text.push_str(if letter.is_empty() { "" } else { " " });
        text.push_str(meaning);
        used += width;
    };
    for (letter, _, meaning) in LEGEND {
        part(text, &[letter], meaning);
    }
    part(text, &[], "(small: only a hint)");
    text.push('\n');
}
