//! The printed report: the server, what was tried, and what to paste.
//!
//! Invariants:  [VEW-1] the text to paste sets only what is proved; the rest is a comment
//!              [VEW-2] no text from the server ends a comment or a string

use std::path::Path;

use super::apply::words;
use super::prove::After;
use super::reads::Reads;
use super::server::{EFFECTIVE, MAINTENANCE, Server, Setting, Table};
use super::{Findings, Proposal};
use forebay_measure::output::{printable, printable_line};
use forebay_measure::report::Advice;
use forebay_measure::report::numbers;
use forebay_measure::report::tables;
use forebay_measure::report::terminal::text::push_wrapped;
use forebay_measure::report::terminal::{Look, drawn};
use forebay_measure::statistics::BOUND;
use forebay_measure::units::shown_size;

/// The server, in a few lines.
pub(super) fn server(server: &Server, reads: &Reads, look: Look) -> String {
    let mut text = String::new();
    push_wrapped(&mut text, "", &printable_line(&lead(server)), look.width);
    for tablespace in &server.tablespaces {
        let Some((storage, directory)) =
            tablespace.storage.as_ref().zip(tablespace.directory.as_ref())
        else {
            continue;
        };
        let device = storage.device.as_ref();
        let device = device.map_or_else(
            || storage.device_remark.clone(),
            |device| {
                let readahead = device
                    .readahead_bytes
                    .map(|bytes| format!(", readahead {}", shown_size(bytes)));
                let scheduler = device.scheduler.as_ref().map(|name| format!(", scheduler {name}"));
                [Some(format!("device {}", device.name)), readahead, scheduler]
                    .into_iter()
                    .flatten()
                    .collect()
            },
        );
        let filesystem = storage.filesystem.as_deref().unwrap_or("an unknown filesystem");
        let line =
            format!("{}: {} on {filesystem}, {device}", tablespace.name, directory.display());
        push_wrapped(&mut text, "  ", &printable_line(&line), look.width);
    }
    let shown =
        [EFFECTIVE, MAINTENANCE, "io_method", "io_workers", "random_page_cost", "shared_buffers"];
    let text_of =
        |setting: &Setting| format!("{} = {} ({})", setting.name, value(setting), setting.source);
    let settings: Vec<String> =
        shown.iter().filter_map(|name| server.setting(name)).map(text_of).collect();
    push_wrapped(&mut text, "  ", &settings.join(", "), look.width);
    if !server.tables.is_empty() {
        let tables: Vec<String> = server.tables.iter().take(5).map(relation).collect();
        let line = format!("largest tables: {}", tables.join(", "));
        push_wrapped(&mut text, "  ", &line, look.width);
    }
    for line in reads.lines() {
        push_wrapped(&mut text, "  ", &printable_line(&line), look.width);
    }
    for missing in &server.missing {
        push_wrapped(&mut text, "* ", &printable_line(missing), look.width);
    }
    text
}

fn relation(table: &Table) -> String {
    let index = table.index.as_ref();
    let index = index.map_or_else(String::new, |index| format!(", by {}", index.column));
    printable_line(&format!("{} ({}{index})", table.name, shown_size(table.blocks * 8192)))
}

/// The server in one sentence.
pub(super) fn lead(server: &Server) -> String {
    let memory = match (server.memory_bytes, server.memory_limit_bytes) {
        (Some(all), Some(limit)) if limit < all => {
            format!(", {} of memory of which it may take {}", shown_size(all), shown_size(limit))
        }
        (Some(all), _) => format!(", {} of memory", shown_size(all)),
        _ => String::new(),
    };
    let what = if server.standby { "standby" } else { "server" };
    format!(
        "PostgreSQL {}, {what} on port {}, database {}{memory}.",
        server.version, server.identity.port, server.database
    )
}

pub(super) fn value(setting: &Setting) -> String {
    match (setting.unit.as_str(), setting.value.parse::<u64>()) {
        ("8kB", Ok(blocks)) => shown_size(blocks * 8192),
        (unit, _) => format!("{}{unit}", setting.value),
    }
}

/// What was tried, the result, and what to paste.
pub(super) fn findings(findings: &Findings, look: Look) -> String {
    let mut verdicts = findings.verdicts.clone();
    for verdict in &mut verdicts {
        // The change heads the group, instead of the experiment's name, which is the same for all.
        verdict.row = printable_line(&verdict.row);
        verdict.experiment = format!("{} in place of {}", verdict.variant, verdict.rival);
    }
    let mut table = tables::verdicts(&verdicts);
    for row in &mut table.rows {
        row.cells.drain(1..3);
    }
    table.columns.drain(1..3);
    let wrapped = |lead: &str, sentences: &mut dyn Iterator<Item = String>| {
        let mut text = String::new();
        sentences.for_each(|it| push_wrapped(&mut text, lead, &printable_line(&it), look.width));
        text
    };
    let (proved, unproved): (Vec<&Proposal>, _) =
        findings.proposals.iter().partition(|it| it.proved);
    let parts = [
        match drawn(&table, look) {
            drawn if drawn.is_empty() => drawn,
            drawn => format!(
                "Speed with the new setting relative to the old one (1 = equal):\n{drawn}\
                 keeps: at least {BOUND}; misses: less; undecided: more rounds would be needed\n"
            ),
        },
        wrapped("* ", &mut findings.remarks.iter().cloned()),
        wrapped("", &mut proved.into_iter().map(evidence)),
        to_paste(&findings.proposals, !findings.records.is_empty()),
        wrapped("* ", &mut unproved.into_iter().map(evidence)),
    ];
    parts.iter().filter(|part| !part.is_empty()).map(|part| format!("\n{part}")).collect()
}

pub(super) fn evidence(proposal: &Proposal) -> String {
    let Advice {
        setting, current, advised, gain, gain_low, gain_high, confidence, evidence, ..
    } = &proposal.advice;
    let place = proposal
        .tablespace
        .as_ref()
        .map_or_else(String::new, |name| format!(" of tablespace {name}"));
    let current = current.as_deref().filter(|it| !it.is_empty()).unwrap_or("nothing");
    let times = tables::times(*gain, *gain_low, *gain_high);
    let evidence = evidence.trim_end_matches('.');
    let not = proposal
        .not_applied
        .as_ref()
        .map_or_else(String::new, |why| format!(" Not set by --apply: {why}."));
    format!(
        "{setting}{place}: {advised} in place of {current}: {times}, confidence {confidence}. {evidence}.{not}"
    )
}

/// SQL that sets what is proposed [VEW-1]; empty if nothing is.
pub(super) fn statements(proposals: &[Proposal]) -> String {
    let sql = |proposal: &Proposal| {
        let Advice { setting, current, advised, gain, gain_low, gain_high, .. } = &proposal.advice;
        // A list of libraries consists of plain words and commas, which need no further quotes.
        let is_plain = |letter: char| letter.is_alphanumeric() || " ,._-$/".contains(letter);
        if !advised.chars().all(is_plain) || !setting.chars().all(|it| is_plain(it) && it != ',') {
            return None; // [VEW-2]
        }
        let value = words(advised).iter().map(|word| format!("'{word}'")).collect::<Vec<_>>();
        let value = value.join(", ");
        let set = match &proposal.tablespace {
            None => format!("ALTER SYSTEM SET {setting} = {value};"),
            Some(name) => format!("ALTER TABLESPACE {name} SET ({setting} = {advised});"),
        };
        let was: String = current
            .iter()
            .flat_map(|it| it.chars())
            .map(|it| if it.is_control() { ' ' } else { it })
            .collect();
        let [gain, low, high] = [gain, gain_low, gain_high].map(|it| numbers::number(*it));
        Some(format!("{set}  -- was '{was}'; {gain} times as fast ({low} to {high})\n"))
    };
    // A setting that ALTER SYSTEM would not change, or would also change elsewhere, is reported with the reason.
    let counts = |it: &&Proposal| it.tablespace.is_some() || it.not_applied.is_none();
    let wanted = proposals.iter().filter(|it| it.proved).filter(counts);
    let statements: String = wanted.filter_map(sql).collect();
    let reload = if statements.is_empty() { "" } else { "SELECT pg_reload_conf();\n" };
    statements + reload
}

/// What to paste; `is_tried`: at least one query has run.
fn to_paste(proposals: &[Proposal], is_tried: bool) -> String {
    let statements = statements(proposals);
    if statements.is_empty() {
        let why = match (proposals.iter().any(|it| it.proved), is_tried) {
            (true, _) => "what gains cannot be set in this way, as said above",
            (false, true) => "no setting that was tried gains significantly on this server",
            (false, false) => "no setting was tried, as no query could be run",
        };
        return format!("Nothing is proposed: {why}.\n");
    }
    format!(
        "To paste into psql, or set by --apply and take back by --rollback:\n\n{}",
        printable(&statements)
    )
}

/// What was set, and the result of measuring again.
pub(super) fn applied(
    changes: &[&Advice],
    file: &Path,
    after: Option<&After>,
    look: Look,
) -> String {
    let line = |it: &&Advice| format!("  {} = {}\n", it.setting, it.advised);
    let lines: String = changes.iter().map(line).collect();
    let mut text = format!(
        "Set, and in effect for new sessions:\n{lines}What was set before is in {}; --rollback takes it back.\n",
        file.display()
    );
    let line = after.map_or_else(|| "Not measured again: no query uses it.".to_owned(), again);
    push_wrapped(&mut text, "", &printable_line(&line), look.width);
    for remark in after.map_or(&[][..], |after| &after.remarks) {
        push_wrapped(&mut text, "* ", &printable_line(remark), look.width);
    }
    text
}

/// The result of measuring again.
pub(super) fn again(after: &After) -> String {
    let Some(gain) = after.gain else {
        return "Not measured again: no query could be run.".to_owned();
    };
    let times = tables::times(gain.value, gain.low, gain.high);
    let is_there = match (after.is_there(), after.harmed()) {
        (true, _) => "the gain is there".to_owned(),
        (false, None) if after.from_memory => {
            "this says nothing about the disk, because the data was in memory; use --drop-caches to measure it"
                .to_owned()
        }
        (false, None) => "the gain is not there; --rollback takes back what is set".to_owned(),
        (false, Some(row)) => {
            format!("{row} is significantly slower; --rollback takes back what is set")
        }
    };
    format!("Measured again in a new session: {times}: {is_there}. {}", after.evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_measure::report::sample;
    use forebay_measure::statistics::Estimate;

    fn proposal(setting: &str, advised: &str, proved: bool) -> Proposal {
        let advice = Advice {
            setting: setting.to_owned(),
            current: Some("1\n; drop".to_owned()),
            advised: advised.to_owned(),
            ..sample::advice()[0].clone()
        };
        Proposal { tablespace: None, proved, not_applied: None, advice }
    }

    #[test]
    fn vew_1_only_what_is_proved_is_shown_to_paste() {
        let text =
            to_paste(&[proposal(EFFECTIVE, "64", true), proposal(MAINTENANCE, "64", false)], true);
        assert!(
            text.contains("\nALTER SYSTEM SET effective_io_concurrency = '64';  -- was '1 ; drop'"),
            "[VEW-2] {text}"
        );
        assert!(!text.contains(MAINTENANCE), "[VEW-1] {text}");
        assert!(
            to_paste(&[proposal(MAINTENANCE, "64", false)], true).starts_with("Nothing"),
            "[VEW-1]"
        );
        for list in ["auto_explain, forebay", "auto_explain,forebay"] {
            let text = to_paste(&[proposal("session_preload_libraries", list, true)], true);
            assert!(text.contains("= 'auto_explain', 'forebay';"), "{text}");
        }
        assert!(to_paste(&[], true).contains("no setting that was tried gains"));
        assert!(to_paste(&[], false).contains("no setting was tried"));
        let mut hidden = proposal(EFFECTIVE, "64", true);
        hidden.not_applied = Some("its value comes from: command line".to_owned());
        let text = to_paste(&[hidden], true);
        assert!(text.starts_with("Nothing") && text.contains("cannot be set"), "{text}");
    }

    #[test]
    fn what_was_read_from_memory_is_no_reason_to_take_anything_back() {
        let after = |from_memory| After {
            gain: Some(Estimate { value: 0.98, low: 0.96, high: 1.0, rounds: 20 }),
            evidence: "it was so.".to_owned(),
            verdicts: Vec::new(),
            records: Vec::new(),
            remarks: Vec::new(),
            from_memory,
        };
        assert!(again(&after(false)).contains("--rollback takes back"));
        let text = again(&after(true));
        assert!(text.contains("in memory") && !text.contains("--rollback"), "{text}");
    }

    #[test]
    fn names_that_a_terminal_would_obey_are_escaped() {
        let name = "\"a\u{1b}[2J\u{200f}\nb\"".to_owned();
        let table = Table { name, blocks: 1, ..Table::default() };
        assert_eq!(relation(&table), "\"a\\u{1b}[2J\\u{200f}\\nb\" (8.0 KiB)");
        let mut hostile = proposal(EFFECTIVE, "64", true);
        hostile.tablespace = Some(table.name);
        let text = to_paste(&[hostile], true);
        assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text}");
    }

    #[test]
    fn vew_2_hostile_text_is_not_pasted() {
        assert!(
            to_paste(&[proposal(EFFECTIVE, "64'; drop table t; --", true)], true)
                .starts_with("Nothing"),
            "[VEW-2]"
        );
        let mut of_tablespace = proposal(EFFECTIVE, "64", true);
        of_tablespace.tablespace = Some("fast".to_owned());
        let text = to_paste(&[of_tablespace], true);
        assert!(
            text.contains("ALTER TABLESPACE fast SET (effective_io_concurrency = 64);"),
            "{text}"
        );
    }
}
