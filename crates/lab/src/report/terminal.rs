//! Terminal: what ends a run, in a page of text.
//!
//! Where it was measured, what the disk does, the one table that people come for (settings to change), and
//! what follows from the experiments, a line or two each. Everything else is for the page. One
//! experiment alone also shows its first table. A table that is wider than the terminal goes on below, with
//! its first column again; leaving columns out was the alternative, and hid figures.
//!
//! Invariants:  [TER-1] no line is wider than `width` (of at least [`WIDTH_MIN`]), but the command
//!              [TER-2] without colour there is no escape, with `ascii` no other character
//!              [TER-3] however much was measured, all of it is at most [`LINES_MAX`] lines

pub(crate) mod text;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement};

use super::{Mark, Part, Report, Section, Table, TableCell, tables};
use crate::units::shown_size;
use text::{ascii, cut, push_line, push_wrapped, styled, wrapped};

/// Columns of text below which a table of numbers is not worth drawing.
pub const WIDTH_MIN: usize = 30;

/// Most lines of a whole run, with [`LINES_OF_FILES`] that say where its files are.
pub const LINES_MAX: usize = 60;

/// Lines that the caller adds: records, report, settings to paste.
pub const LINES_OF_FILES: usize = 3;

/// Most lines of each part, so that one of them does not push out the others; together with a blank line
/// before each they are [`LINES_MAX`].
const PLACE_LINES: usize = 4;
const DEVICE_LINES: usize = 9;
const SETTINGS_LINES: usize = 17;
const CONCLUSION_LINES: usize = 15;
const COUNT_LINES: usize = 4;
const COMMAND_LINES: usize = 3;

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal; fewer than [`WIDTH_MIN`] are taken as that.
    pub width: usize,
    /// True when escapes for colour and weight may be written.
    pub colour: bool,
    /// True when only ASCII may be written: `us` for µs.
    pub ascii: bool,
}

/// The whole report as text for a terminal, ending in a line feed. `sections`: what its experiments show.
pub fn summary(report: &Report, sections: &[Section], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    // One experiment alone has room for whole sentences.
    let is_alone = sections.len() == 1;
    let lines = if is_alone { usize::MAX } else { 2 };
    let sentences = |sentences: &[String]| {
        let mut text = String::new();
        for sentence in sentences {
            push_shortened(&mut text, "* ", sentence, lines, look.width);
        }
        text
    };
    let device = report.device.as_ref().map_or(String::new(), |device| {
        let table = tables::device(device);
        let drawn = if table.rows.is_empty() { String::new() } else { drawn(&table, look) };
        drawn + &sentences(&tables::device_remarks(device))
    });
    let settings = if report.advice.is_empty() {
        "No setting is worth changing, by what was measured.\n".to_owned()
    } else {
        drawn(&tables::settings_in_groups(&report.advice), look)
    };
    let conclusions: Vec<String> =
        report.conclusions.iter().map(|conclusion| conclusion.sentence.clone()).collect();
    // Not wrapped, so that it can be copied; the terminal needs so many lines for it.
    let command = format!("to repeat: {}", report.command);
    let is_short = command.chars().count().div_ceil(look.width) <= COMMAND_LINES;
    let command = if is_alone || is_short { &command } else { "to repeat: see the report" };

    let mut text = capped(&place(report, look), PLACE_LINES, look);
    for (part, lines) in [
        (device, DEVICE_LINES),
        (settings, SETTINGS_LINES),
        (first_table(sections, look), usize::MAX),
        (sentences(&conclusions), CONCLUSION_LINES),
        (sentences(&tables::verdict_counts(&report.verdicts)), COUNT_LINES),
    ] {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(&capped(&part, lines, look));
        }
    }
    text.push('\n');
    push_line(&mut text, command);
    if look.ascii { ascii(&text) } else { text } // [TER-2]
}

/// The first table of an experiment that ran alone.
fn first_table(sections: &[Section], look: Look) -> String {
    let [section] = sections else { return String::new() };
    let table = section.parts.iter().find_map(|part| match part {
        Part::Table(table) => Some(table),
        _ => None,
    });
    table.map_or(String::new(), |table| {
        let mut text = String::new();
        push_wrapped(&mut text, "", &table.caption, look.width);
        text + &drawn(table, look)
    })
}

/// Where it was measured, and which backends were not.
fn place(report: &Report, look: Look) -> String {
    let (storage, host) = (&report.storage, &report.host);
    let filesystem = storage.filesystem.as_deref().unwrap_or("an unknown filesystem");
    let mut disk = format!("{} on {filesystem}", storage.directory);
    if let Some(device) = &storage.device {
        disk += &format!(", device {}", device.name);
        disk +=
            &device.model.as_ref().map_or(String::new(), |model| format!(" ({})", model.trim()));
        let readahead = device.readahead_bytes.map(shown_size);
        disk += &readahead.map_or(String::new(), |size| format!(", readahead {size}"));
        let scheduler = device.scheduler.as_ref();
        disk += &scheduler.map_or(String::new(), |name| format!(", scheduler {name}"));
    }
    let mut machine = format!("{}, {} processors", host.kernel, host.cpus);
    let memory = host.memory_bytes.map(shown_size);
    machine += &memory.map_or(String::new(), |size| format!(", {size} memory"));
    let known = |name: &str, what: &Option<String>| {
        what.as_ref().map_or(String::new(), |what| format!(", {name} ({what})"))
    };
    machine += &known("virtual", &host.virtualisation);
    machine += &known("in a container", &host.container);
    let mut text = String::new();
    let missing = report.backends.iter().filter(|note| !note.available);
    let missing = missing.map(|note| format!("{} not measured: {}", note.backend, note.note));
    let remark = Some(storage.device_remark.clone()).filter(|remark| !remark.is_empty());
    for line in [disk, machine].into_iter().chain(missing).chain(remark) {
        push_shortened(&mut text, "", &line, 2, look.width);
    }
    text
}

/// Adds `sentence` in at most so many lines; what is left out of it is in the report.
fn push_shortened(text: &mut String, lead: &str, sentence: &str, lines: usize, width: usize) {
    let all = wrapped(lead, sentence, width);
    for (index, line) in all.iter().take(lines).enumerate() {
        let is_cut = index + 1 == lines && all.len() > lines;
        push_line(text, &if is_cut { cut(&format!("{line} …"), width) } else { line.clone() });
    }
}

/// At most `lines` lines of `text`, the last of which says what is missing [TER-3].
fn capped(text: &str, lines: usize, look: Look) -> String {
    let count = text.lines().count();
    if count <= lines {
        return text.to_owned();
    }
    let mut kept: String = text.split_inclusive('\n').take(lines - 1).collect();
    push_line(
        &mut kept,
        &cut(&format!("… {} more lines in the report", count - lines + 1), look.width),
    );
    kept
}

/// `table` as text with its notes, without its caption. What is wider than the terminal goes on below.
pub(crate) fn drawn(table: &Table, look: Look) -> String {
    let full = |cell: &TableCell| {
        let notes: Vec<String> = cell.notes.iter().map(|note| (note + 1).to_string()).collect();
        let marks =
            if notes.is_empty() { String::new() } else { format!(" [{}]", notes.join(",")) };
        cell.text.clone() + &marks
    };
    let widest = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
        let widths = cells.map(|cell| full(cell).chars().count());
        widths.chain([table.columns[column].chars().count()]).max().unwrap_or(0)
    };
    // Names take what figures leave, at least half of the width; a figure at most the other half.
    let half = look.width / 2;
    let figures: usize = (1..table.columns.len()).map(|column| 2 + widest(column)).sum();
    let names = look.width.saturating_sub(figures).max(half);
    let room = |column: usize| if column == 0 { names } else { look.width - half - 2 };
    let text_of = |column: usize, cell: &TableCell| cut(&full(cell), room(column));
    let width = |column: usize| widest(column).min(room(column));
    let mut text = String::new();
    let mut left = (1..table.columns.len()).peekable();
    loop {
        let (mut columns, mut taken) = (vec![0], width(0));
        // [TER-1]
        while let Some(column) =
            left.next_if(|&column| taken + 2 + width(column) <= look.width || columns.len() == 1)
        {
            taken += 2 + width(column);
            columns.push(column);
        }
        push_block(&mut text, table, &columns, &text_of, look);
        if left.peek().is_none() {
            break;
        }
        text.push('\n');
    }
    for (index, note) in table.notes.iter().enumerate() {
        push_wrapped(&mut text, &format!(" [{}] ", index + 1), note, look.width);
    }
    text
}

/// Adds `columns` of `table`, with a heading before each group.
fn push_block(
    text: &mut String,
    table: &Table,
    columns: &[usize],
    text_of: &dyn Fn(usize, &TableCell) -> String,
    look: Look,
) {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(comfy_table::presets::NOTHING);
    drawn.set_content_arrangement(ContentArrangement::Disabled);
    drawn.force_no_tty(); // the caller knows what it writes to; stdout may not be it
    if look.colour {
        drawn.enforce_styling();
    }
    let styled_cell = |column: usize, cell: &TableCell| {
        let written = Cell::new_owned(text_of(column, cell));
        match cell.mark {
            _ if !look.colour => written,
            Mark::Plain => written,
            Mark::Best => written.add_attribute(Attribute::Bold),
            Mark::Bad => written.fg(Color::Red),
            Mark::Weak => written.add_attribute(Attribute::Dim),
        }
    };
    drawn.set_header(columns.iter().map(|&column| {
        let name = table.columns[column].clone();
        styled_cell(column, &TableCell { mark: Mark::Weak, ..TableCell::new(name) })
    }));
    let empty = TableCell::default();
    for row in &table.rows {
        let cells = columns.iter().map(|&column| (column, row.cells.get(column).unwrap_or(&empty)));
        drawn.add_row(cells.map(|(column, cell)| styled_cell(column, cell)));
    }
    for (index, &column) in columns.iter().enumerate() {
        if let Some(drawn) = drawn.column_mut(index) {
            drawn.set_padding((if index == 0 { 0 } else { 2 }, 0));
            if !table.is_words(column) {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut lines = drawn.lines();
    lines.by_ref().take(1).for_each(|line| push_line(text, &line));
    let mut group = "";
    for (line, row) in lines.zip(&table.rows) {
        if row.group != group {
            group = &row.group;
            let style = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
            push_line(text, &styled(&cut(group, look.width), style, look));
        }
        push_line(text, &line);
    }
}

#[cfg(test)]
mod tests;
