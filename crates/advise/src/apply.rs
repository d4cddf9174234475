//! Sets settings on the server, and takes them back exactly.
//!
//! ALTER SYSTEM replaces postgresql.auto.conf atomically, and a reload puts it into effect. Before the first ALTER
//! SYSTEM, the file's entries, as the server parses them, are written to a state file and synced, together with the
//! values to set. Taking back restores the settings that --apply has set to the recorded values, or removes them; a
//! value that another session has set since then stays, even of one of these settings. Finally the entries are put back
//! into their earlier order, because an entry's line number in that file is part of pg_settings; this last step is best
//! effort.
//!
//! Invariants:  [APL-1] the state file is durable before anything is set, and is removed only after all is taken back
//!              [APL-2] an --apply that does not finish, because of an error or Ctrl-C, takes back what it has set
//!              [APL-3] nothing is set once taking back has begun
//!              [APL-4] the session that writes is connected to the intended server
//!              [APL-5] an entry that --apply has not set is never set to a value other than its present one
//! Concurrency: a second Ctrl-C takes back on another thread, through its own session; the lock around each change
//!              serializes the two threads.
//! Failure:     a kill leaves the state file; --rollback takes back from it, repeatedly if necessary.
//! Source:      PostgreSQL, guc.c: ALTER SYSTEM replaces all entries of a name, ignoring letter case, by one at the end
//!              of the file; of several entries the last takes effect. utility.c: a read-only transaction does not
//!              refuse ALTER SYSTEM.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use postgres::Client;
use serde::{Deserialize, Serialize};

use super::propose::overridden;
use super::server::Identity;
use forebay_measure::bad_input;
use forebay_measure::interrupt::{self, Cleanup};
use forebay_measure::output::note;
use forebay_measure::report::Advice;
use forebay_session::{Config, Refused, Row, rows, session};

/// Settings that are lists of names: ALTER SYSTEM takes each name as a separate word. Source: GUC_LIST_QUOTE in
/// PostgreSQL's guc_tables.c.
const LISTS: [&str; 7] = [
    "local_preload_libraries",
    "oauth_validator_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// How long a reload may take to come into effect.
const RELOAD: Duration = Duration::from_secs(10);

/// How long a restarted server may take until it accepts sessions.
const BACK: Duration = Duration::from_secs(30);

/// The schema of a state file.
const SCHEMA: &str = "forebay-advise-state/2";

/// An entry of postgresql.auto.conf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    value: String,
}

/// The entries before --apply, and those that it sets.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    schema: String,
    server: Identity,
    /// All entries of postgresql.auto.conf, in file order.
    before: Vec<Entry>,
    set: Vec<Entry>,
}

/// Path of the state file of `server`, in `directory` or else in the user's state directory.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) if there is no home directory.
pub(super) fn state_file(server: &Identity, directory: Option<&Path>) -> anyhow::Result<PathBuf> {
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

/// # Errors
/// [`BadInput`](forebay_measure::BadInput) if an earlier --apply is in effect.
pub(super) fn is_free(file: &Path) -> anyhow::Result<()> {
    remove_unfinished(file);
    if file.exists() {
        bad_input!(
            "an earlier --apply is recorded in {}: take it back with --rollback, or remove that file to keep what it has set",
            file.display()
        );
    }
    Ok(())
}

/// Sets `changes` permanently on `server`, provided that `then`, which runs once they are in effect, succeeds.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) if an earlier --apply is in effect, if the server is another one or has changed since
/// it was measured, or if its entries cannot be read; any other failure, after all was taken back.
pub(super) fn apply<T>(
    config: &Config,
    server: &Identity,
    file: &Path,
    changes: &[&Advice],
    then: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    is_free(file)?;
    let mut client = session(config)?;
    let here = Identity::read(&mut client)?;
    if let Some(how) = server.differs(&here) {
        bad_input!("the advice is of another server: {how}"); // [APL-4]
    }
    let before = match entries(&mut client) {
        Ok(entries) => entries,
        Err(error) if error.is::<Refused>() => {
            bad_input!(
                "--apply: this role may not see what is set in postgresql.auto.conf ({error}); connect as a superuser"
            )
        }
        Err(error) => return Err(error),
    };
    for change in changes {
        is_as_measured(&mut client, change)?;
    }
    let set: Vec<Entry> = changes
        .iter()
        .map(|change| Entry {
            name: change.setting.to_ascii_lowercase(),
            value: change.advised.clone(),
        })
        .collect();
    let state = State { schema: SCHEMA.to_owned(), server: here, before, set };
    let turn = Arc::new(Mutex::new(Turn { recorded: false, ended: false }));
    let guard = {
        let (turn, config, file) = (Arc::clone(&turn), config.clone(), file.to_owned());
        Cleanup::new(move || {
            let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut turn.ended, true)
                && turn.recorded
                && let Err(error) =
                    session_when_back(&config).and_then(|mut it| take_back(&mut it, &file))
            {
                forebay_measure::interrupt::left(&format!(
                    "not taken back: {error:#}; once the server can be reached: --rollback"
                ));
            }
        })
    };
    let done = set_all(&mut client, config, file, &state, &turn).and_then(|()| then());
    {
        let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The new settings may prevent new sessions, so the open one is tried first; the guard below opens a new one.
        turn.ended =
            turn.ended || !turn.recorded || done.is_ok() || take_back(&mut client, file).is_ok();
    }
    drop(guard); // [APL-2]
    done
}

/// A session, as soon as the server accepts one: it may be restarting.
fn session_when_back(config: &Config) -> anyhow::Result<Client> {
    let until = Instant::now() + BACK;
    let mut done = session(config);
    if let Err(error) = &done {
        note(&format!(
            "waiting {} s for the server, to take back what is set: {error:#}",
            BACK.as_secs()
        ));
    }
    while done.is_err() && Instant::now() < until {
        std::thread::sleep(BACK / 100);
        done = session(config);
    }
    done
}

/// Progress of an --apply, shared with its cleanup.
struct Turn {
    /// Whether the state file is written, so that there is something to take back.
    recorded: bool,
    /// Whether it has finished, or taking back has begun.
    ended: bool,
}

/// Writes `state` to `file`, sets its entries, and verifies that they are in effect.
fn set_all(
    client: &mut Client,
    config: &Config,
    file: &Path,
    state: &State,
    turn: &Mutex<Turn>,
) -> anyhow::Result<()> {
    interrupt::check()?;
    {
        let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(!turn.ended, "[APL-3]");
        write_durably(file, state)?; // [APL-1]
        turn.recorded = true;
    }
    for Entry { name, value } in &state.set {
        interrupt::check()?;
        let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(!turn.ended, "[APL-3]");
        rows(client, &alter(name, Some(value)))
            .with_context(|| format!("the server does not take {name} = {value}"))?;
    }
    wait_for_reload(client)?;
    for Entry { name, value } in &state.set {
        let taken = setting(client, name)?;
        anyhow::ensure!(
            taken.is_some_and(|(_, source)| source == "configuration file"),
            "the server does not take {name} = {value} from its files"
        );
    }
    if state.set.iter().any(|entry| entry.name.ends_with("_preload_libraries")) {
        session(config).context("no new session can be opened with these libraries")?;
    }
    interrupt::check()?;
    Ok(())
}

/// The value of a setting, and its source.
fn setting(client: &mut Client, name: &str) -> anyhow::Result<Option<(String, String)>> {
    let name = quoted(name);
    let found = rows(
        client,
        &format!("select setting, source from pg_settings where lower(name) = lower({name})"),
    )?;
    Ok(found.first().map(|row| (row.text(0).to_owned(), row.text(1).to_owned())))
}

/// Refuses a change that was not measured against the server's present value, or that would no longer take effect.
fn is_as_measured(client: &mut Client, change: &Advice) -> anyhow::Result<()> {
    let name = &change.setting;
    let Some((value, source)) = setting(client, name)? else {
        bad_input!("the server has no setting {name}");
    };
    let current = change.current.as_deref().unwrap_or("");
    if !is_same(name, current, &value) {
        bad_input!("{name} is '{value}' by now, and the advice is for '{current}': measure again");
    }
    if let Some(why) = overridden(&source) {
        bad_input!("{name} is not to be set: {why}");
    }
    Ok(())
}

/// Takes back what --apply has recorded in `file`.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) if nothing is recorded, or for another server; any other failure.
pub(super) fn rollback(config: &Config, file: &Path) -> anyhow::Result<()> {
    remove_unfinished(file);
    if !file.exists() {
        bad_input!(
            "nothing is recorded in {}: no --apply of this user's is in effect on this server",
            file.display()
        );
    }
    take_back(&mut session(config)?, file)
}

/// Takes back what `file` records. Idempotent, also after an interruption.
fn take_back(client: &mut Client, file: &Path) -> anyhow::Result<()> {
    let state = read(file)?;
    if let Some(how) = state.server.differs(&Identity::read(client)?) {
        bad_input!("{} is of another server: {how}", file.display()); // [APL-4]
    }
    let current = entries(client)?;
    let mut ours = Vec::new();
    for set in &state.set {
        let (now, before) = (find(&current, &set.name), find(&state.before, &set.name));
        if same(now, before) {
            ours.push(set);
        } else if same(now, Some(set)) {
            rows(client, &alter(&set.name, before.map(|it| it.value.as_str())))?;
            ours.push(set);
        } else {
            let now = now.map_or("no value".to_owned(), |it| format!("'{}'", it.value));
            note(&format!("{} is left as it is: since --apply it was changed to {now}", set.name));
        }
    }
    wait_for_reload(client)?;
    let current = entries(client)?;
    for set in ours {
        anyhow::ensure!(
            same(find(&current, &set.name), find(&state.before, &set.name)),
            "the server has not taken back {}",
            set.name
        );
    }
    if let Err(error) = put_in_order(client, &state.before, current) {
        note(&format!(
            "the entries of postgresql.auto.conf are not in the order in which they were: {error:#}"
        ));
    }
    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    sync_directory(file)
}

/// Puts the entries into the order of `before`, new ones after them. All keep their present values.
fn put_in_order(
    client: &mut Client,
    before: &[Entry],
    mut current: Vec<Entry>,
) -> anyhow::Result<()> {
    let wanted = in_order(before, &current);
    // ALTER SYSTEM moves an entry to the end, so all entries from the first misplaced one on are set again in order.
    let kept = current.iter().zip(&wanted).take_while(|(now, wanted)| now == wanted).count();
    if kept == wanted.len() {
        return Ok(());
    }
    // An entry may contain a password, which must not be logged. Only superusers may set these; for other roles this
    // fails.
    rows(
        client,
        "set log_statement = 'none'; set log_min_duration_statement = -1; set log_min_error_statement = 'panic'",
    )?;
    for entry in &wanted[kept..] {
        anyhow::ensure!(
            find(&current, &entry.name) == Some(entry),
            "another process is changing them" // [APL-5]
        );
        rows(client, &alter(&entry.name, Some(&entry.value)))
            .with_context(|| entry.name.clone())?;
        current = entries(client)?;
    }
    wait_for_reload(client)
}

/// The entries `current` in the order of `before`; new ones at the end.
fn in_order(before: &[Entry], current: &[Entry]) -> Vec<Entry> {
    let mut wanted: Vec<Entry> =
        before.iter().filter_map(|entry| find(current, &entry.name)).cloned().collect();
    wanted.extend(current.iter().filter(|entry| find(before, &entry.name).is_none()).cloned());
    wanted
}

fn find<'e>(entries: &'e [Entry], name: &str) -> Option<&'e Entry> {
    entries.iter().find(|entry| entry.name == name)
}

/// Whether two entries have the same value, or neither exists.
fn same(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(&one.name, &one.value, &other.value),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Whether two values of the setting `name` are the same; lists are compared word by word.
fn is_same(name: &str, one: &str, other: &str) -> bool {
    one == other || LISTS.contains(&name) && words(one) == words(other)
}

/// The ALTER SYSTEM statement that sets a value, or resets it.
fn alter(name: &str, value: Option<&str>) -> String {
    // A name may be two words joined by a dot.
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

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The names of a list, which are in double quotes where necessary.
pub(super) fn words(list: &str) -> Vec<String> {
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

/// The entries of postgresql.auto.conf, in file order; of several with one name the last, which takes effect.
fn entries(client: &mut Client) -> anyhow::Result<Vec<Entry>> {
    let found = rows(
        client,
        "select distinct on (lower(name)) lower(name), setting, sourceline from pg_file_settings \
         where sourcefile ~ '/postgresql\\.auto\\.conf$' and name is not null order by lower(name), sourceline desc",
    )?;
    let line = |row: &Row| row.number::<i64>(2);
    let mut found: Vec<&Row> = found.iter().collect();
    found.sort_by_key(|row| line(row));
    let entry = |row: &Row| Entry { name: row.text(0).to_owned(), value: row.text(1).to_owned() };
    Ok(found.into_iter().map(entry).collect())
}

/// Requests a reload and waits for it, because the server reads its files asynchronously.
fn wait_for_reload(client: &mut Client) -> anyhow::Result<()> {
    let until = Instant::now() + RELOAD;
    let loaded = |client: &mut Client| -> anyhow::Result<Option<String>> {
        Ok(rows(client, "select pg_conf_load_time()")?.first().and_then(|row| row.some(0)))
    };
    let before = loaded(client)?;
    rows(client, "select pg_reload_conf()")?;
    loop {
        if loaded(client)? != before {
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

/// Writes `state` under a temporary name, syncs and renames it, and syncs the directory.
fn write_durably(file: &Path, state: &State) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let kept = || -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut unfinished =
            tempfile::Builder::new().prefix(&unfinished(file)).tempfile_in(directory)?;
        unfinished.write_all(serde_json::to_string_pretty(state)?.as_bytes())?;
        unfinished.as_file().sync_all()?;
        unfinished.persist_noclobber(file)?;
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

/// Prefix of the name of a state file that is not complete; it differs from that of any other server.
fn unfinished(file: &Path) -> String {
    format!(".{}-", file.file_stem().unwrap_or_default().to_string_lossy())
}

/// Removes the incomplete state file of a process that was killed while writing it, before it had set anything. A
/// process that is writing its state at this moment no longer finds the file, and sets nothing.
fn remove_unfinished(file: &Path) {
    let prefix = unfinished(file);
    let entries = fs::read_dir(file.parent().unwrap_or(Path::new("."))).into_iter().flatten();
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // A file that cannot be removed only takes up space.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn sync_directory(file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("cannot sync {}", directory.display()))
}
