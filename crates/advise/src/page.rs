//! The page of a run: its findings, drawn as the laboratory draws its own reports.
//!
//! It is a report of the laboratory, so that the same templates apply. Its settings are those that are proved; the
//! others are separate, among the details.
//!
//! Invariants:  [PAG-1] the settings worth changing include nothing that was not proved on the server
//!              [PAG-2] the page does not say how the server was reached, which may include a password

use serde_json::Value;

use super::server::{DEFAULT_TABLESPACE, Server, Setting, Tablespace};
use super::{Findings, Proposal, view};
use crate::args::PostgresArgs;
use forebay_measure::facts::{Host, Storage};
use forebay_measure::lists::unique;
use forebay_measure::report::html::{self, Kind};
use forebay_measure::report::{
    self, Advice, Conclusion, Line, Part, Plot, Point, Record, Report, Section, Snippet, Table,
    TableCell, tables,
};

/// The whole page.
///
/// # Errors
/// As [`html::render`].
pub(super) fn page(findings: &Findings<'_>, args: &PostgresArgs) -> anyhow::Result<String> {
    let server = findings.server;
    let (proved, unproved): (Vec<&Proposal>, _) =
        findings.proposals.iter().partition(|it| it.proved);
    let text = view::statements(&findings.proposals);
    let about = "Paste it into psql, or have it set by --apply, which --rollback takes back.";
    let snippet = Snippet { file: "ALTER SYSTEM", about: about.to_owned(), text };
    let kind = Kind {
        command: "forebay advise",
        details: "In detail",
        snippets: Some(snippet).filter(|it| !it.text.is_empty()).into_iter().collect(),
    };
    let main = server.tablespace(DEFAULT_TABLESPACE).and_then(|it| it.storage.clone());
    let elsewhere = || Host { name: "a server elsewhere".to_owned(), ..Host::default() };
    let unseen =
        || Storage { directory: format!("database {}", server.database), ..Storage::default() };
    let after = findings.after.as_ref();
    let records = after.into_iter().flat_map(|it| &it.records);
    let records = findings.records.iter().chain(records);
    let of_disks = findings.disks.iter().flat_map(|disk| &disk.records);
    let sentences = [view::lead(server)].into_iter().chain(after.map(view::again));
    let remarks = after.into_iter().flat_map(|it| &it.remarks);
    let remarks = findings.remarks.iter().chain(remarks).chain(&server.missing).cloned();
    let report = Report {
        schema: report::SCHEMA.to_owned(),
        forebay: findings.forebay.to_owned(),
        command: command(server, args),
        started: findings.started.clone(),
        seconds: findings.seconds,
        host: if server.local { Host::read() } else { elsewhere() },
        storage: main.unwrap_or_else(unseen),
        backends: findings.disks.first().map_or_else(Vec::new, |disk| disk.backends.clone()),
        device: findings.disks.first().and_then(|disk| disk.device.clone()),
        records: records.chain(of_disks).cloned().collect(),
        verdicts: findings.verdicts.clone(),
        advice: proved.into_iter().map(advice).collect(), // [PAG-1]
        conclusions: Conclusion::all("advise", sentences.chain(remarks)),
    };
    let sections =
        [tried(&findings.records), unproved_part(&unproved), seen(server, findings.reads.lines())];
    html::render(&kind, &report, &sections)
}

/// The command that repeats the run, provided that PGHOST and the like lead to the same server [PAG-2].
fn command(server: &Server, args: &PostgresArgs) -> String {
    let (rounds, seed) = (args.rounds.to_string(), args.seed.to_string());
    let dsn = format!("port={} dbname={}", server.identity.port, server.database);
    let mut words = vec!["forebay", "advise", "postgres", "--dsn", &dsn, "--rounds", &rounds];
    let queries = args.queries.as_ref().map(|path| path.display().to_string());
    if let Some(queries) = &queries {
        words.extend(["--queries", queries]);
    }
    if args.drop_caches {
        words.push("--drop-caches");
    }
    words.extend(["--seed", &seed]);
    shlex::try_join(words).unwrap_or_default()
}

/// With the tablespace in the setting's name, if it is not for the whole server.
fn advice(proposal: &Proposal) -> Advice {
    let mut advice = proposal.advice.clone();
    if let Some(name) = &proposal.tablespace {
        advice.setting += &format!(" of tablespace {name}");
    }
    advice
}

/// The search: the rates of each query under each value, one plot per setting.
fn tried(records: &[Record]) -> Section {
    let searched: Vec<&Record> =
        records.iter().filter(|it| word(it, "phase") == Some("search")).collect();
    let settings = searched.iter().flat_map(|it| it.cell.keys());
    let settings = settings.filter(|it| !["phase", "query"].contains(&it.as_str()));
    let settings = unique(&settings.cloned().collect::<Vec<_>>());
    let plots = settings.iter().map(|setting| search_of(setting, &searched));
    // The settings that force a scan for a crossing have one value, and make no line.
    let plots = plots.filter(|it| it.ticks.len() > 1);
    let parts: Vec<Part> = plots.map(Part::Plot).collect();
    Section {
        name: if parts.is_empty() { "" } else { html::HEADLINES[1] },
        title: "What was tried".to_owned(),
        about: "By these rounds the value was chosen that the proof, in other rounds, then compares with the \
                present one."
            .to_owned(),
        parts,
    }
}

fn word<'r>(record: &'r Record, key: &str) -> Option<&'r str> {
    record.cell.get(key).and_then(Value::as_str)
}

fn search_of(setting: &str, searched: &[&Record]) -> Plot {
    let searched: Vec<&Record> =
        searched.iter().copied().filter(|it| it.cell.contains_key(setting)).collect();
    let mut values =
        unique(&searched.iter().filter_map(|it| word(it, setting)).collect::<Vec<_>>());
    // Names of libraries keep the order in which they were tried.
    values.sort_by_key(|value| value.parse::<u64>().unwrap_or(0));
    let names = unique(&searched.iter().filter_map(|it| word(it, "query")).collect::<Vec<_>>());
    let point = |record: &&Record| {
        let x = values.iter().position(|value| Some(*value) == word(record, setting))?;
        let rates: Vec<f64> =
            record.rounds.iter().filter_map(|it| it.get("per_s")?.as_f64()).collect();
        Point::of(x, &rates)
    };
    let line = |name: &&str| {
        let of_one = searched.iter().filter(|record| word(record, "query") == Some(*name));
        let mut points: Vec<Point> = of_one.filter_map(point).collect();
        points.sort_by_key(|point| point.x);
        Line { name: (*name).to_owned(), points, dashed: false }
    };
    Plot {
        title: "What was tried".to_owned(),
        x_name: setting.to_owned(),
        y_name: "rows a second, or runs of a query of one's own".to_owned(),
        ticks: values.iter().map(ToString::to_string).collect(),
        lines: names.iter().map(line).collect(),
        mark: None,
    }
}

/// Proposals that were measured, but that no query could prove.
fn unproved_part(unproved: &[&Proposal]) -> Section {
    let mut table = tables::settings(&unproved.iter().map(|it| advice(it)).collect::<Vec<_>>());
    table.caption = "Never set by --apply.".to_owned();
    Section {
        name: if unproved.is_empty() { "" } else { "unproved" },
        title: "Not proved on this server".to_owned(),
        about: "What the measurement of the disk says and no read-only query can show.".to_owned(),
        parts: vec![Part::Table(table)],
    }
}

/// The server: its settings, its tablespaces, and its own statistics of reads.
fn seen(server: &Server, reads: Vec<String>) -> Section {
    let cell = |text: &str| TableCell::new(text);
    let settings = Table::of(
        "Settings as a new session has them.",
        &server.settings,
        |_| String::new(),
        &[
            ("setting", &|it: &Setting| cell(&it.name)),
            ("value", &|it| cell(&view::value(it))),
            ("from", &|it| cell(&it.source)),
        ],
    );
    let place = |it: &Tablespace| it.directory.as_ref().map(|path| path.display().to_string());
    let device = |it: &Tablespace| Some(it.storage.as_ref()?.device.as_ref()?.name.clone());
    let known = |text: Option<String>| cell(text.as_deref().unwrap_or("unknown"));
    let tablespaces = Table::of(
        "Tablespaces.",
        &server.tablespaces,
        |_| String::new(),
        &[
            ("tablespace", &|it: &Tablespace| cell(&it.name)),
            ("directory", &|it| known(place(it))),
            ("device", &|it| known(device(it))),
        ],
    );
    Section {
        name: "server",
        title: "The server".to_owned(),
        about: [view::lead(server).trim_end_matches('.').to_owned()]
            .into_iter()
            .chain(reads)
            .collect::<Vec<_>>()
            .join("; "),
        parts: vec![Part::Table(settings), Part::Table(tablespaces)],
    }
}
