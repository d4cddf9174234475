//! The summary on the terminal: where, what, the table, and what follows from it.

use std::fmt::Write;

use super::Report;
use super::checkpoint::{self, Checkpoints};
use super::interplay::{self, Panels};
use super::readahead::{self, Curves};
use super::strategies::{self, Maps};
use super::terminal::{
    Look, activation_table, checkpoint_table, interplay_table, mixture_table, readahead_table,
    strategies_table,
};
use super::{Record, activation, mixture};
use crate::units::shown_size;

/// The whole report as text for a terminal, ending in a line feed.
pub fn summary(report: &Report, look: Look) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", storage_line(report));
    let _ = writeln!(text, "{}", host_line(report));
    if !report.storage.device_remark.is_empty() {
        let _ = writeln!(text, "device: {}", report.storage.device_remark);
    }
    for note in report.backends.iter().filter(|note| !note.note.is_empty()) {
        let verdict = if note.available { "" } else { " not measured" };
        let line = format!("{}{verdict}: {}", note.backend, note.note);
        text.push_str(&wrapped("", &line, look.width));
    }
    let _ = writeln!(text);
    text.push_str(&tables(&report.records, look));
    let _ = writeln!(text);
    for finding in findings(&report.records) {
        text.push_str(&wrapped("* ", &finding, look.width));
    }
    for advice in &report.conclusions {
        text.push_str(&wrapped("* ", &advice.sentence, look.width));
    }
    let _ = writeln!(text, "\nto repeat: {}", report.command);
    if look.ascii {
        text = text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    }
    text
}

/// Draws the table of one experiment from all records.
type Draw = fn(&[Record], Look) -> String;

/// The experiments that have a table here, in the order of the report, and how it is drawn.
const OTHERS: [(&str, Draw); 6] = [
    (strategies::EXPERIMENT, strategies_table),
    (interplay::EXPERIMENT, interplay_table),
    (checkpoint::EXPERIMENT, checkpoint_table),
    (readahead::EXPERIMENT, readahead_table),
    (activation::EXPERIMENT, activation_table),
    (mixture::EXPERIMENT, mixture_table),
];

/// The tables of all experiments that were run.
fn tables(records: &[Record], look: Look) -> String {
    let has = |name: &str| records.iter().any(|record| record.experiment == name);
    let tables = OTHERS.iter().filter(|(name, _)| has(name)).map(|(_, draw)| draw(records, look));
    tables.collect::<Vec<_>>().join("\n")
}

/// One sentence for each of the experiments whose tables are larger than what they come to.
fn findings(records: &[Record]) -> Vec<String> {
    let mut findings = Vec::new();
    let maps = Maps::group(records);
    if !maps.maps.is_empty() {
        findings.push(format!("strategies: {}.", maps.verdict().sentence()));
    }
    let panels = Panels::group(records);
    if !panels.panels.is_empty() {
        findings.push(format!("interplay: {}.", panels.sentence()));
    }
    let checkpoints = Checkpoints::group(records);
    if !checkpoints.panels.is_empty() {
        findings.push(format!("checkpoint: {}.", checkpoints.sentence()));
    }
    let curves = Curves::group(records);
    if !curves.panels.is_empty() {
        findings.push(format!("readahead: {}.", curves.sentence()));
    }
    findings
}

fn storage_line(report: &Report) -> String {
    let storage = &report.storage;
    let mut line = format!(
        "{} on {}",
        storage.directory,
        storage.filesystem.as_deref().unwrap_or("an unknown filesystem")
    );
    if let Some(device) = &storage.device {
        let _ = write!(line, ", device {}", device.name);
        if let Some(model) = &device.model {
            let _ = write!(line, " ({model})");
        }
        if let Some(bytes) = device.readahead_bytes {
            let _ = write!(line, ", readahead {}", shown_size(bytes));
        }
        if let Some(scheduler) = &device.scheduler {
            let _ = write!(line, ", scheduler {scheduler}");
        }
    }
    line
}

fn host_line(report: &Report) -> String {
    let host = &report.host;
    let mut line = format!("{}, {} processors", host.kernel, host.cpus);
    if let Some(bytes) = host.memory_bytes {
        let _ = write!(line, ", {} memory", shown_size(bytes));
    }
    if let Some(hypervisor) = &host.virtualisation {
        let _ = write!(line, ", virtual ({hypervisor})");
    }
    if let Some(container) = &host.container {
        let _ = write!(line, ", in a container ({container})");
    }
    line
}

/// `text` in lines of at most `width` columns, the first after `bullet`, the others indented.
fn wrapped(bullet: &str, text: &str, width: usize) -> String {
    let indent = " ".repeat(bullet.len());
    let mut lines = String::from(bullet);
    let mut column = bullet.len();
    let mut at_start = true;
    for word in text.split(' ') {
        let len = word.chars().count();
        if !at_start && column + 1 + len > width {
            lines.push('\n');
            lines.push_str(&indent);
            column = indent.len();
            at_start = true;
        }
        if !at_start {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += len;
        at_start = false;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Conclusion, sample};

    #[test]
    fn the_summary_says_where_what_and_what_follows() {
        let mut report =
            sample::report(vec![sample::record("sync", "buffered", 0, Some(1e4), &[])]);
        report.conclusions.push(Conclusion {
            experiment: "depth".to_owned(),
            sentence: "Ask for 64 blocks ahead.".to_owned(),
            setting: String::new(),
            value: String::new(),
        });
        let look = Look { width: 80, colour: false, ascii: false };
        let text = summary(&report, look);
        assert!(text.contains(&report.storage.directory));
        assert!(text.contains(&report.command));
        assert!(text.contains("* Ask for 64 blocks ahead."));
        assert!(text.contains("uring not measured: io_uring_setup: EPERM"));
    }

    #[test]
    fn each_experiment_has_its_table_and_its_sentence() {
        let place = ("cold", "direct");
        let strategies = vec![
            sample::strategy("uniform", "async", place, Some(1000.0), &[]),
            sample::strategy("uniform", "adaptive", place, Some(910.0), &[]),
        ];
        let interplay = vec![
            sample::interplay("shuffled", "os", "buffered", Some(0), Some(100.0)),
            sample::interplay("shuffled", "adaptive", "direct", Some(0), Some(420.0)),
        ];
        let look = Look { width: 100, colour: false, ascii: false };
        let text = summary(&sample::report([strategies.clone(), interplay].concat()), look);
        assert!(text.contains("\n* strategies: adaptive keeps its bound"), "{text}");
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flowing.contains("in 0 of 1 rows; worst 0.910 of async (uniform, cold,"), "{text}");
        assert!(text.contains("\n* interplay: adaptive reads 4.20 times as fast"), "{text}");
        let text = summary(&sample::report(strategies), look);
        assert!(!text.contains("interplay"), "{text}");
    }

    #[test]
    fn long_sentences_are_wrapped_between_words() {
        assert_eq!(wrapped("* ", "one two three", 9), "* one two\n  three\n");
    }
}
