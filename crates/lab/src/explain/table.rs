//! The table under the strips: what each strategy came to.
//!
//! Invariants:  [STP-4] as for the strips: no line is wider than asked for; ascii is ascii

use anstyle::Style;

use super::request::Account;
use super::{Picture, Told, shown_count, shown_time};
use crate::report::numbers;
use crate::report::terminal::text::{ascii, push_line, push_wrapped, styled};
use crate::report::terminal::{Look, WIDTH_MIN};
use crate::units::{shown_size, typed_size};

/// A column: its heading, and whether it is left out first where there is no room.
const COLUMNS: [(&str, u8); 8] = [
    ("strategy", 0),
    ("requests", 0),
    ("mean size", 2),
    ("read", 1),
    ("over-read", 0),
    ("S", 3),
    ("cached", 2),
    ("time", 0),
];

/// What was read, where, and how.
pub(super) fn heading(picture: &Picture<'_>, look: Look) -> String {
    let explained = picture.explained;
    let (pattern, disk) = (&explained.pattern, &explained.disk);
    let width = look.width.max(WIDTH_MIN);
    let mut text = String::new();
    let shown: String = pattern.text.chars().take(60).collect();
    let more = if pattern.text.chars().count() > 60 { "..." } else { "" };
    let seed = pattern.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let (reads, different) = (pattern.blocks.len(), picture.wanted.len());
    let repeated =
        if reads == different { String::new() } else { format!(", {different} of them different") };
    let plural = if reads == 1 { "" } else { "s" };
    let what = format!(
        "{shown}{more}: {} block{plural} of {}{repeated}{seed}",
        shown_count(reads as u64),
        typed_size(explained.block_bytes)
    );
    push_wrapped(&mut text, " ", &what, width);
    let readahead = match disk.readahead_bytes {
        Some(0) => "no readahead".to_owned(),
        Some(bytes) => format!("readahead {}", typed_size(bytes)),
        None => "readahead unknown".to_owned(),
    };
    let faster = match disk.speed_up {
        1.0 => String::new(),
        times => format!(", run {} times faster", numbers::number(times)),
    };
    let on = format!("on {} ({}){faster}; {readahead}, {}", disk.profile, disk.about, disk.kernel);
    push_wrapped(&mut text, " ", &on, width);
    text.push('\n');
    if look.ascii { ascii(&text) } else { text }
}

/// The figures of all strategies.
pub(super) fn figures(picture: &Picture<'_>, look: Look) -> String {
    let width = look.width.max(WIDTH_MIN);
    let mut rows = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    rows.extend(picture.told().map(|(told, account)| row(picture, told, account)));
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    // [STP-4] The least telling columns go first.
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    while kept.iter().map(|&column| widths[column] + 2).sum::<usize>() > width {
        match kept.iter().rev().max_by_key(|&&column| COLUMNS[column].1) {
            Some(&column) if kept.len() > 1 => kept.retain(|&other| other != column),
            _ => break,
        }
    }
    let mut text = "\n".to_owned();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for &column in &kept {
            let (cell, width) = (&row[column], widths[column]);
            let cell =
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            let style = match (index, column) {
                (0, _) => Style::new().dimmed(),
                (_, 0) => Style::new().bold(),
                _ => Style::new(),
            };
            line.push_str(if column == 0 { " " } else { "  " });
            line.push_str(&styled(&cell, style, look));
        }
        push_line(&mut text, &line);
    }
    text.push('\n');
    let meaning = "over-read: bytes that were read for nothing, against those that had to be read; \
                   S: requests that go on where the one before ended; cached: reads that found their \
                   block in the page cache, or on its way there; time: in that of the disk emulated.";
    push_wrapped(&mut text, " ", meaning, width);
    if look.ascii { ascii(&text) } else { text }
}

fn row(picture: &Picture<'_>, told: &Told, account: &Account) -> [String; COLUMNS.len()] {
    let count = told.requests.len() as u64;
    let dash = || "–".to_owned();
    let share = |of: u64| if count == 0 { dash() } else { percent(of as f64 / count as f64) };
    [
        told.strategy.to_string(),
        shown_count(count),
        account.bytes.checked_div(count).map_or_else(dash, shown_size),
        shown_size(account.bytes),
        percent(picture.over_read(account)),
        share(account.following),
        told.cached.map_or_else(dash, shown_count),
        shown_time(told.seconds),
    ]
}

fn percent(share: f64) -> String {
    format!("{} %", numbers::percent(share))
}
