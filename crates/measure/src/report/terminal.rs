//! Terminal: the final output of a run, in a page of text.
//!
//! It shows the place of the measurement, the disk's performance, the one table that most users need (settings to
//! change), and the conclusions from the experiments, in whole sentences. Everything else is on the page. One
//! experiment alone also shows its first table, and the conclusions for authors of engines. A table that is wider than
//! the terminal continues below, with its first column again; leaving columns out was the alternative, and hid figures.
//! Nothing is truncated: text that is too wide is wrapped, and items that are too many are counted.
//!
//! Invariants:  [TER-1] no line is wider than `width` (of at least [`WIDTH_MIN`]), but the command
//!              [TER-2] without colour there is no escape, with `ascii` no other character
//!              [TER-3] however much was measured, all of it is at most [`LINES_MAX`] lines

pub mod text;

use anstyle::{AnsiColor, Style};

use super::{Mark, Part, Report, Section, Table, TableCell, tables};
use crate::facts::Device;
use crate::units::shown_size;
pub use text::Look;
use text::{ascii, push_line, push_wrapped, styled, wrapped};

/// Columns of text below which a table of numbers is not worth drawing.
pub const WIDTH_MIN: usize = 30;

/// Maximum lines of a whole run, with [`LINES_OF_FILES`] that say where its files are.
pub const LINES_MAX: usize = 60;

/// Lines that the caller adds: records, report, settings to paste.
pub const LINES_OF_FILES: usize = 3;

/// Maximum lines of each part, so that one of them does not displace the others; together with a blank line
/// before each they are [`LINES_MAX`].
const PLACE_LINES: usize = 6;
const DEVICE_LINES: usize = 9;
const SETTINGS_LINES: usize = 17;
const CONCLUSION_LINES: usize = 18;
const COMMAND_LINES: usize = 3;

/// The whole report as text for a terminal, ending in a line feed. `sections`: those of its experiments.
pub fn summary(report: &Report, sections: &[Section], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let is_alone = sections.len() == 1;
    let most = |lines: usize| if is_alone { usize::MAX } else { lines };
    let device = report.device.as_ref().map_or(String::new(), |device| {
        let table = capped(&drawn(&tables::device(device), look), most(DEVICE_LINES - 1), look);
        let left = most(DEVICE_LINES) - table.lines().count();
        table + &listed("* ", &device.remarks, left, look)
    });
    let settings = if report.advice.is_empty() {
        "No setting is worth changing, by what was measured.\n".to_owned()
    } else {
        capped(
            &drawn(&tables::settings_in_groups(&report.advice), look),
            most(SETTINGS_LINES),
            look,
        )
    };
    let shown = report.conclusions.iter().filter(|it| is_alone || !it.for_engines);
    let conclusions: Vec<String> = shown.map(|it| it.sentence.clone()).collect();
    let counts = if is_alone { tables::verdict_counts(&report.verdicts) } else { Vec::new() };
    // Not wrapped, so that it can be copied; it takes as many lines as the terminal needs.
    let command = format!("to repeat: {}", report.command);
    let is_short = command.chars().count().div_ceil(look.width) <= COMMAND_LINES;
    let command = if is_alone || is_short { &command } else { "to repeat: see the report" };

    let mut text = listed("", &place(report), most(PLACE_LINES), look);
    for part in [
        device,
        settings,
        first_table(sections, look),
        listed("* ", &conclusions, most(CONCLUSION_LINES), look),
        listed("* ", &counts, usize::MAX, look),
    ] {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(&part);
        }
    }
    text.push('\n');
    push_line(&mut text, command);
    if look.ascii { ascii(&text) } else { text } // [TER-2]
}

/// The first table of an experiment that ran alone.
fn first_table(sections: &[Section], look: Look) -> String {
    let [section] = sections else { return String::new() };
    let mut text = String::new();
    if let Some(Part::Table(table)) = section.parts.iter().find(|it| matches!(it, Part::Table(_))) {
        push_wrapped(&mut text, "", &table.caption, look.width);
        text += &drawn(table, look);
    }
    text
}

/// A device with its model: `nvme0n1 (Elastic Block Volume)`.
pub fn device_name(device: &Device) -> String {
    let model = device.model.as_ref().map(|model| format!(" ({})", model.trim()));
    device.name.clone() + &model.unwrap_or_default()
}

/// The place of the measurement, and the backends that were not measured.
fn place(report: &Report) -> Vec<String> {
    let (storage, host) = (&report.storage, &report.host);
    let device = storage.device.as_ref();
    let readahead = device.and_then(|device| device.readahead_bytes).map(shown_size);
    let disk = [
        Some(format!(
            "{} on {}",
            storage.directory,
            storage.filesystem.as_deref().unwrap_or("an unknown filesystem")
        )),
        device.map(|device| format!("device {}", device_name(device))),
        readahead.map(|size| format!("readahead {size}")),
        device.and_then(|it| it.scheduler.as_ref()).map(|name| format!("scheduler {name}")),
    ];
    let machine = [
        Some(host.kernel.clone()),
        Some(format!("{} processors", host.cpus)),
        host.memory_bytes.map(|bytes| format!("{} memory", shown_size(bytes))),
        host.virtualisation.as_ref().map(|what| format!("virtual ({what})")),
        host.container.as_ref().map(|what| format!("in a container ({what})")),
    ];
    let line = |facts: &[Option<String>]| {
        facts.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let missing = report.backends.iter().filter(|note| !note.available);
    let missing = missing.map(|note| format!("{} not measured: {}", note.backend, note.note));
    let remark = Some(storage.device_remark.clone()).filter(|remark| !remark.is_empty());
    [line(&disk), line(&machine)].into_iter().chain(missing).chain(remark).collect()
}

/// As many whole `sentences` as fit into `lines` lines, each after `lead`; the last line says how many are left out.
fn listed(lead: &str, sentences: &[String], lines: usize, look: Look) -> String {
    let wrapped = |sentence: &String| {
        let mut text = String::new();
        push_wrapped(&mut text, lead, sentence, look.width);
        text
    };
    let all: Vec<String> = sentences.iter().map(wrapped).collect();
    let count = |texts: &[String]| texts.iter().map(|text| text.lines().count()).sum::<usize>();
    if count(&all) <= lines {
        return all.concat();
    }
    let fits = |kept: &usize| count(&all[..*kept]) < lines;
    let kept = (0..all.len()).rev().find(fits).unwrap_or(0);
    format!("{}… {} more in the report\n", all[..kept].concat(), all.len() - kept)
}

/// At most `lines` lines of `text`, the last of which says what is missing [TER-3].
fn capped(text: &str, lines: usize, look: Look) -> String {
    let count = text.lines().count();
    if count <= lines {
        return text.to_owned();
    }
    let mut kept: String = text.split_inclusive('\n').take(lines - 1).collect();
    let missing = format!("… {} more lines in the report", count - lines + 1);
    push_wrapped(&mut kept, "", &missing, look.width);
    kept
}

/// `table` as text with its notes, without its caption; empty for one without rows. Columns beyond the
/// terminal's width continue below.
pub fn drawn(table: &Table, look: Look) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let notes = table.notes();
    let full = |cell: &TableCell| {
        let number = |note: &String| notes.iter().position(|it| it == note).map_or(0, |it| it + 1);
        let numbers: Vec<String> = cell.notes.iter().map(|note| number(note).to_string()).collect();
        let marks =
            if numbers.is_empty() { String::new() } else { format!(" [{}]", numbers.join(",")) };
        cell.text.clone() + &marks
    };
    let width = |column: usize| {
        let cells = table.rows.iter().map(|row| full(&row.cells[column]).chars().count());
        let widest = cells.chain([table.columns[column].chars().count()]).max().unwrap_or(0);
        // A name takes at most half of the width, a figure the rest.
        widest.min(if column == 0 { look.width / 2 } else { (look.width - 3) / 2 })
    };
    let columns: Vec<_> = (0..table.columns.len()).map(|column| (column, width(column))).collect();
    let mut text = String::new();
    let mut left = &columns[1..];
    loop {
        let (_, mut taken) = columns[0];
        let fits = left.iter().take_while(|(_, width)| {
            taken += 2 + width;
            taken <= look.width // [TER-1]
        });
        let (here, below) = left.split_at(fits.count().max(1).min(left.len()));
        push_block(&mut text, table, &[&columns[..1], here].concat(), &full, look);
        left = below;
        if left.is_empty() {
            break;
        }
        text.push('\n');
    }
    for (index, note) in notes.iter().enumerate() {
        push_wrapped(&mut text, &format!(" [{}] ", index + 1), note, look.width);
    }
    text
}

/// Adds `columns` of `table`, each a number and a width, with a heading before each group.
fn push_block(
    text: &mut String,
    table: &Table,
    columns: &[(usize, usize)],
    full: &dyn Fn(&TableCell) -> String,
    look: Look,
) {
    // Text wider than its column continues in the next line of the row.
    let push = |text: &mut String, cell: &dyn Fn(usize) -> (String, Style)| {
        let cells: Vec<(Vec<String>, Style)> = columns
            .iter()
            .map(|&(column, width)| {
                let (text, style) = cell(column);
                (wrapped(&text, width), style)
            })
            .collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        for number in 0..height {
            let cells = columns.iter().zip(&cells).map(|(&(column, width), (lines, style))| {
                let text = lines.get(number).map_or("", String::as_str);
                let text = match table.is_words(column) {
                    true => format!("{text:<width$}"),
                    false => format!("{text:>width$}"),
                };
                styled(&text, *style, look)
            });
            push_line(text, &cells.collect::<Vec<_>>().join("  "));
        }
    };
    push(text, &|column| (table.columns[column].clone(), Style::new().dimmed()));
    let mut group = "";
    for row in &table.rows {
        if row.group != group {
            group = &row.group;
            let style = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
            for line in wrapped(group, look.width) {
                push_line(text, &styled(&line, style, look));
            }
        }
        let cell = |column: usize| {
            let cell = &row.cells[column]; // [TAB-1]
            let style = match cell.mark {
                Mark::Plain => Style::new(),
                Mark::Best => Style::new().bold(),
                Mark::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())),
                Mark::Weak => Style::new().dimmed(),
            };
            (full(cell), style)
        };
        push(text, &cell);
    }
}

#[cfg(test)]
mod tests;
