//! Settings set on the server, and taken back exactly.
//!
//! ALTER SYSTEM writes postgresql.auto.conf, whole and at once, and a reload makes it count. Before the first one, the
//! file's entries as the server reads them are written to a state file and synced, with what is about to be
//! set. Taking back means: our settings as they were there, or gone, and the entries in the order in which they
//! were, for a setting's line in that file is part of pg_settings. What somebody else has set there since stays.
//!
//! Invariants:  [APL-1] the state file is durable before anything is set, and goes only after all is taken back
//!              [APL-2] an --apply that does not come to its end, by an error or Ctrl-C, takes back what it has set
//!              [APL-3] nothing is set once taking back has begun
//! Concurrency: a second Ctrl-C takes back on another thread, by a session of its own; the lock around each
//!              change keeps the two apart.
//! Failure:     a kill leaves the state file, by which --rollback, as often as it takes, takes back.
//! Source:      PostgreSQL, guc.c: ALTER SYSTEM replaces an entry by one at the end of the file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use postgres::config::Config;
use postgres::{Client, NoTls};
use serde::{Deserialize, Serialize};

use super::connection::{Connection, Row, SESSION};
use super::server::Server;
use crate::bad_input;
use crate::interrupt::{self, Cleanup};
use crate::output::tell;

/// Settings that are lists of names: each name is a word of its own to ALTER SYSTEM. Source: GUC_LIST_QUOTE in
/// PostgreSQL's guc_tables.c.
const LISTS: [&str; 6] = [
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// How long a reload may take to count.
const RELOAD: Duration = Duration::from_secs(10);

/// The schema of a state file.
const SCHEMA: &str = "forebay-advise-state/1";

/// An entry of postgresql.auto.conf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    value: String,
}

/// A session that may change settings.
fn writing(config: &Config) -> anyhow::Result<Client> {
    let mut client = config.connect(NoTls)?;
    client.batch_execute(SESSION)?;
    Ok(client)
}

/// What there was before, and what is set.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    schema: String,
    system_identifier: String,
    port: String,
    /// All entries of postgresql.auto.conf, in their order.
    before: Vec<Entry>,
    set: Vec<Entry>,
}

/// Where the state of `server` is kept.
///
/// # Errors
/// There is no home directory.
pub(super) fn state_file(server: &Server, directory: Option<&Path>) -> anyhow::Result<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let standard = || {
        let state =
            variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
        state.map(|state| state.join("forebay"))
    };
    let Some(directory) = directory.map(Path::to_owned).or_else(standard) else {
        bad_input!("there is no HOME to keep the state in; name a directory with --state");
    };
    Ok(directory.join(format!("advise-{}-{}.json", server.system_identifier, server.port)))
}

/// Sets `changes`, each a name and a value, for good. Returns what can only count after a restart.
///
/// # Errors
/// [`BadInput`](crate::BadInput) where something is applied already, or entries cannot be seen; else what went wrong,
/// after all was taken back.
pub(super) fn apply(
    connection: &mut Connection,
    config: &Config,
    server: &Server,
    file: &Path,
    changes: &[(String, String)],
) -> anyhow::Result<()> {
    if file.exists() {
        bad_input!(
            "an earlier --apply is noted in {}: take it back with --rollback, or remove that file to keep what it has set",
            file.display()
        );
    }
    let before = match connection.rows(ENTRIES) {
        Ok(rows) => rows.iter().map(entry).collect(),
        Err(error) if error.is::<super::connection::Refused>() => {
            bad_input!(
                "--apply: this role may not see what is set in postgresql.auto.conf ({error}); connect as a superuser"
            )
        }
        Err(error) => return Err(error),
    };
    let set: Vec<Entry> = changes
        .iter()
        .map(|(name, value)| Entry { name: name.clone(), value: value.clone() })
        .collect();
    let state = State {
        schema: SCHEMA.to_owned(),
        system_identifier: server.system_identifier.clone(),
        port: server.port.clone(),
        before,
        set,
    };
    write_durably(file, &state)?; // [APL-1]
    let turn = Arc::new(Mutex::new(Turn { ended: false }));
    let guard = {
        let (turn, config, file) = (Arc::clone(&turn), config.clone(), file.to_owned());
        Cleanup::new(move || {
            let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut turn.ended, true)
                && let Err(error) = take_back(&config, &file)
            {
                tell(&format!(
                    "not taken back: {error:#}; once the server can be reached: --rollback"
                ));
            }
        })
    };
    let done = (|| {
        let mut client = writing(config)?;
        for Entry { name, value } in &state.set {
            interrupt::check()?;
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            anyhow::ensure!(!turn.ended, "[APL-3]");
            client
                .batch_execute(&alter(name, Some(value)))
                .with_context(|| format!("the server does not take {name} = {value}"))?;
        }
        client.batch_execute("select pg_reload_conf()")?;
        counts(&mut client, &state.set)?;
        interrupt::check()?;
        anyhow::Ok(())
    })();
    if done.is_ok() {
        turn.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    }
    drop(guard); // [APL-2]
    done
}

/// Whether taking back, or the end, has come.
struct Turn {
    ended: bool,
}

/// Takes back what --apply has noted in `file`.
///
/// # Errors
/// [`BadInput`](crate::BadInput) where nothing is noted; else what went wrong.
pub(super) fn rollback(config: &Config, server: &Server, file: &Path) -> anyhow::Result<()> {
    if !file.exists() {
        bad_input!(
            "nothing is noted in {}: no --apply of this user's is in effect on this server",
            file.display()
        );
    }
    let state = read(file)?;
    if (&state.system_identifier, &state.port) != (&server.system_identifier, &server.port) {
        bad_input!("{} is of another server", file.display());
    }
    take_back(config, file)
}

/// Takes back what `file` has noted. As good a second time, also from the middle.
fn take_back(config: &Config, file: &Path) -> anyhow::Result<()> {
    let state = read(file)?;
    let mut client = writing(config)?;
    let current = entries(&mut client)?;
    for statement in steps(&state, &current) {
        client.batch_execute(&statement)?;
    }
    client.batch_execute("select pg_reload_conf()")?;
    let ours = |entry: &&Entry| state.set.iter().any(|set| set.name == entry.name);
    let wanted: Vec<Entry> = state.before.iter().filter(ours).cloned().collect();
    anyhow::ensure!(
        entries(&mut client)?.iter().filter(ours).eq(&wanted),
        "the server has not taken it back"
    );
    wait_for_reload(&mut client)?;
    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    sync_directory(file)
}

/// The statements that lead from the entries `current` to those before, with what others have set since.
fn steps(state: &State, current: &[Entry]) -> Vec<String> {
    let is_ours = |entry: &Entry| state.set.iter().any(|set| set.name == entry.name);
    // As before, with others' values of now, and with what others have added at the end.
    let mut wanted: Vec<Entry> = Vec::new();
    for entry in &state.before {
        if is_ours(entry) {
            wanted.push(entry.clone());
        } else {
            wanted.extend(current.iter().find(|now| now.name == entry.name).cloned());
        }
    }
    let is_new =
        |entry: &&Entry| !is_ours(entry) && wanted.iter().all(|other| other.name != entry.name);
    let new: Vec<Entry> = current.iter().filter(is_new).cloned().collect();
    wanted.extend(new);
    let mut statements: Vec<String> = Vec::new();
    let gone = |entry: &&Entry| wanted.iter().all(|other| other.name != entry.name);
    statements.extend(current.iter().filter(gone).map(|entry| alter(&entry.name, None)));
    // Who is set goes to the end: from the first entry that is not in its place on, all are set in their order.
    let left: Vec<&Entry> = current.iter().filter(|entry| !gone(entry)).collect();
    let kept = left.iter().zip(&wanted).take_while(|(now, wanted)| *now == wanted).count();
    statements.extend(wanted[kept..].iter().map(|entry| alter(&entry.name, Some(&entry.value))));
    statements
}

/// ALTER SYSTEM, to a value or to none.
fn alter(name: &str, value: Option<&str>) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    // A name may have a dot between two words.
    let name = name
        .split('.')
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")))
        .collect::<Vec<_>>()
        .join(".");
    let is_list = LISTS.contains(&name.trim_matches('"'));
    match value {
        None => format!("alter system reset {name}"),
        Some(value) if is_list && !value.is_empty() => {
            let words: Vec<String> = words(value).iter().map(|word| quoted(word)).collect();
            format!("alter system set {name} = {}", words.join(", "))
        }
        Some(value) => format!("alter system set {name} = {}", quoted(value)),
    }
}

/// The names of a list, which are between double quotes where they need be.
fn words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in list.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => words.push(String::new()),
            ' ' | '\t' if !quoted => {}
            letter => words.last_mut().expect("there is always one").push(letter),
        }
    }
    words
}

/// The entries of postgresql.auto.conf, in their order.
const ENTRIES: &str = "select name, setting from pg_file_settings where sourcefile ~ '/postgresql\\.auto\\.conf$' order by sourceline";

fn entry(row: &Row) -> Entry {
    Entry { name: row.text(0).to_owned(), value: row.text(1).to_owned() }
}

fn entries(client: &mut Client) -> anyhow::Result<Vec<Entry>> {
    let rows = client.query(ENTRIES, &[])?;
    Ok(rows
        .iter()
        .map(|row| Entry {
            name: row.get(0),
            value: row.get::<_, Option<String>>(1).unwrap_or_default(),
        })
        .collect())
}

/// Waits until what was `set` counts.
fn counts(client: &mut Client, set: &[Entry]) -> anyhow::Result<()> {
    wait_for_reload(client)?;
    for Entry { name, value } in set {
        let row = client.query_one(
            "select exists (select from pg_settings where name = $1 and source = 'configuration file')",
            &[name],
        )?;
        let taken: bool = row.get(0);
        anyhow::ensure!(taken, "the server does not take {name} = {value} from its files");
    }
    Ok(())
}

/// Waits until the server has read its files again, which it does a moment after it was asked.
fn wait_for_reload(client: &mut Client) -> anyhow::Result<()> {
    let until = Instant::now() + RELOAD;
    let before: String = client.query_one("select pg_conf_load_time()::text", &[])?.get(0);
    client.batch_execute("select pg_reload_conf()")?;
    loop {
        let now: String = client.query_one("select pg_conf_load_time()::text", &[])?.get(0);
        if now != before {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < until,
            "the server does not reload its settings: look into its log"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(file: &Path) -> anyhow::Result<State> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    match serde_json::from_str::<State>(&text) {
        Ok(state) if state.schema == SCHEMA => Ok(state),
        _ => bad_input!("{} is no state of this version's", file.display()),
    }
}

/// Writes `state`, under another name first, and syncs it with its directory.
fn write_durably(file: &Path, state: &State) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let kept = || -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut unnamed = tempfile::NamedTempFile::new_in(directory)?;
        unnamed.write_all(serde_json::to_string_pretty(state)?.as_bytes())?;
        unnamed.as_file().sync_all()?;
        unnamed.persist(file)?;
        Ok(())
    };
    if let Err(error) = kept() {
        bad_input!(
            "cannot keep the state in {}: {error}; name another directory with --state",
            directory.display()
        );
    }
    sync_directory(file)
}

fn sync_directory(file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("cannot sync {}", directory.display()))
}
