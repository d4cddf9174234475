//! `forebay advise postgres`: settings for a running server, measured, proved on it, set and taken back.
//!
//! A run: `libpq` connects to the server, `server` inspects it, `disks` measures the disks under its tablespaces if the
//! user agrees, `propose` tries the resulting values with the queries of `query` or those that `given` accepts,
//! compared as `prove` describes, and `view` shows the result. Only `apply` changes anything, and only on request.
//!
//! Invariants:  [ADP-1] what was not proved on the server is reported, and never set
#![forbid(unsafe_code)]

mod apply;
mod args;
mod cold;
mod costs;
mod counts;
mod disks;
mod given;
mod load;
mod methods;
mod page;
mod propose;
mod prove;
mod query;
mod reads;
mod server;
mod trial;
mod view;

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

pub use args::AdviseArgs;
use args::{PostgresArgs, Product};
use counts::Counts;
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::output::{self, note};
use forebay_measure::report::{Advice, Record, Report, Verdict};
use forebay_measure::start;
use forebay_measure::{Laboratory, bad_input};
use forebay_session::{Config, Connection};
use load::Load;
use prove::After;
use query::Query;
use reads::Reads;
use server::{Identity, Server};

/// The application name of the sessions.
const APPLICATION: &str = "forebay advise";

/// The schema of `--json`.
const SCHEMA: &str = "forebay-advise/2";

/// The results of a run.
#[derive(Debug, Serialize)]
struct Findings<'s> {
    schema: &'static str,
    /// Version of forebay.
    forebay: &'static str,
    /// Start of the run, RFC 3339, UTC.
    started: String,
    seconds: f64,
    server: &'s Server,
    reads: Reads,
    counts: Counts,
    proposals: Vec<Proposal>,
    /// Every comparison of a proof, new value with old.
    verdicts: Vec<Verdict>,
    records: Vec<Record>,
    /// Where scans of a table cross, for each disk where this was measured.
    crossings: Vec<costs::Crossing>,
    /// The laboratory's reports of the disks.
    disks: Vec<Report>,
    /// What was tried and is not proposed, what was left out, and why.
    remarks: Vec<String>,
    /// The file of the user's queries, if there is one.
    queries: Option<PathBuf>,
    /// The result of measuring again after --apply.
    after: Option<After>,
}

/// The part of the findings that `--from` reads.
#[derive(Debug, Deserialize)]
struct Earlier {
    schema: String,
    server: Measured,
    proposals: Vec<Proposal>,
    #[serde(default)]
    crossings: Vec<costs::Crossing>,
    queries: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    identity: Identity,
}

/// A setting to change.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Proposal {
    /// The tablespace that the setting belongs to, quoted; none for the whole server.
    tablespace: Option<String>,
    /// Whether queries on this server have proved it.
    proved: bool,
    /// Why `--apply` does not set it.
    not_applied: Option<String>,
    #[serde(flatten)]
    advice: Advice,
}

/// Runs the command; `laboratory` measures the disks. `version`: the version of forebay, for `--json`.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`interrupt::Interrupted`], or any other failure.
pub fn run(
    args: &AdviseArgs,
    version: &'static str,
    laboratory: &dyn Laboratory,
) -> anyhow::Result<()> {
    let Product::Postgres(args) = &args.product;
    let mut load = None;
    let done = execute(&Given { args, version, laboratory }, &mut load);
    let why = load.as_ref().and_then(Load::stopped);
    match (done, why) {
        (Err(error), Some(why)) if error.is::<Interrupted>() => {
            let left =
                if interrupt::is_clean() { ", and everything is as it was before" } else { "" };
            anyhow::bail!("stopped{left}: {why}")
        }
        (done, _) => done,
    }
}

/// What the caller passes.
#[derive(Clone, Copy)]
struct Given<'a> {
    args: &'a PostgresArgs,
    version: &'static str,
    laboratory: &'a dyn Laboratory,
}

fn execute(given: &Given<'_>, load: &mut Option<Load>) -> anyhow::Result<()> {
    let args = given.args;
    start::start()?;
    for path in [&args.json, &args.html].into_iter().flatten() {
        output::check_file(path)?;
    }
    let earlier = args.from.as_deref().map(Earlier::read).transpose()?;
    let queries = args.queries.as_deref().map(given::File::read).transpose()?;
    let config = forebay_session::config(args.dsn.as_deref(), APPLICATION)?;
    if args.rollback {
        // Taking back must work even if the server cannot be inspected.
        let identity = Identity::read(&mut forebay_session::session(&config)?)?;
        apply::rollback(&config, &apply::state_file(&identity, args.state.as_deref())?)?;
        return output::print("What --apply has set is taken back.\n");
    }
    let mut connection = Connection::open(&config)?;
    let server = Server::read(&mut connection, &config, args.data_dir.as_deref())?;
    let identity = server.identity.clone();
    if !args.apply {
        return measured(given, &config, connection, &server, queries.as_ref(), load).map(drop);
    }
    let file = apply::state_file(&identity, args.state.as_deref())?;
    apply::is_free(&file)?;
    let (proposals, crossings, queries, mut findings) = match earlier {
        Some(earlier) => {
            let earlier = earlier.of(&identity)?;
            if let (None, Some(path)) = (&queries, &earlier.queries) {
                bad_input!(
                    "it was proved by your queries, which measure it again: name them with --queries {}",
                    path.display()
                );
            }
            let queries = queries
                .map(|file| file.checked(&mut given::session(args, &config, &mut connection)?));
            let queries = queries.transpose()?;
            (earlier.proposals, earlier.crossings, queries, None)
        }
        None => {
            let (findings, made) =
                measured(given, &config, connection, &server, queries.as_ref(), load)?;
            let (proposals, crossings) = (findings.proposals.clone(), findings.crossings.clone());
            (proposals, crossings, Some(made), Some(findings))
        }
    };
    let changes: Vec<&Advice> = proposals
        .iter()
        .filter(|it| it.proved && it.tablespace.is_none() && it.not_applied.is_none()) // [ADP-1]
        .map(|it| &it.advice)
        .collect();
    if changes.is_empty() {
        return output::print(
            "Nothing is set: no proposal is proved and can be set by ALTER SYSTEM.\n",
        );
    }
    let after = apply::apply(&config, &identity, &file, &changes, || {
        note("set, and in effect for new sessions: measuring again in one");
        propose::after(args, &config, &server, (&changes, &crossings), queries, load)
    })?;
    output::print(&view::applied(&changes, &file, after.as_ref(), output::look()))?;
    if let Some(findings) = &mut findings {
        findings.after = after;
        findings.save(args)?;
    }
    Ok(())
}

/// Inspects, measures, proves, and reports the result.
fn measured<'s>(
    all: &Given<'_>,
    config: &Config,
    mut connection: Connection,
    server: &'s Server,
    queries: Option<&given::File>,
    load: &mut Option<Load>,
) -> anyhow::Result<(Findings<'s>, Vec<Query>)> {
    let (args, clock, started) = (all.args, Instant::now(), SystemTime::now());
    let reads = Reads::read(&mut connection, server)?;
    let counts = Counts::read(&mut connection, server)?;
    output::print(&view::server(server, &reads, output::look()))?;
    let given = queries.map(|file| {
        let mut session = given::session(args, config, &mut connection)?;
        let queries = file.checked(&mut session)?;
        anyhow::Ok((session, queries))
    });
    let given = given.transpose()?;
    *load = server.sees_load.then(|| Load::watch(config)).transpose()?;
    let mut disks = disks::of(server);
    let mut remarks = Vec::new();
    for disk in &mut disks {
        remarks.extend(disk.measure(server, args, all.laboratory)?);
        interrupt::check()?;
    }
    remarks.extend(counts.remarks(server, &disks));
    let found = propose::all(args, config, (connection, given), server, &disks)?;
    remarks.extend(found.remarks);
    let findings = Findings {
        schema: SCHEMA,
        forebay: all.version,
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        proposals: found.proposals,
        verdicts: found.verdicts,
        records: found.records,
        crossings: found.crossings,
        disks: disks.into_iter().filter_map(|disk| disk.report).collect(),
        server,
        reads,
        counts,
        remarks,
        queries: args.queries.clone(),
        after: None,
    };
    // The findings are printed even if they could not be written, because they took a minute to measure.
    let saved = findings.save(args);
    output::print(&view::findings(&findings, output::look()))?;
    saved?;
    for path in [&args.json, &args.html].into_iter().flatten() {
        note(&format!("everything that was found is in {}", path.display()));
    }
    Ok((findings, found.queries))
}

impl Findings<'_> {
    /// Writes the requested files.
    fn save(&self, args: &PostgresArgs) -> anyhow::Result<()> {
        if let Some(path) = &args.json {
            output::save(path, &(serde_json::to_string_pretty(self)? + "\n"))?;
        }
        if let Some(path) = &args.html {
            output::save(path, &page::page(self, args)?)?;
        }
        Ok(())
    }
}

impl Earlier {
    fn read(path: &Path) -> anyhow::Result<Earlier> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => bad_input!("--from {}: {error}", path.display()),
        };
        match serde_json::from_str::<Earlier>(&text) {
            Ok(earlier) if earlier.schema == SCHEMA => Ok(earlier),
            Ok(_) => {
                bad_input!("--from {}: it is of another version of this command", path.display())
            }
            Err(error) => {
                bad_input!("--from {}: no file of --json of this command: {error}", path.display())
            }
        }
    }

    /// Checks that it was measured on `server`.
    fn of(self, server: &Identity) -> anyhow::Result<Earlier> {
        if let Some(how) = self.server.identity.differs(server) {
            bad_input!("--from: the advice is of another server: {how}");
        }
        Ok(self)
    }
}
