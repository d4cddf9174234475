//! `forebay advise postgres` on servers that the test starts: what it refuses, what it proves, and what it leaves
//! behind.
//!
//! Environment, in addition to that of the suite: `FOREBAY_ADVISE_INTERRUPTS`, the number of runs that are interrupted.

#![allow(clippy::unwrap_used)]

mod proving;
mod queries;
#[cfg(feature = "tls")]
mod tls;

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_postgres_harness::suite::{self, Case, Test, text};
use forebay_postgres_harness::{Disk, Server, Session};
use proving::{report, scans_cross, takes_too_long, what_does_not_help, what_helps, what_was_read};
use queries::{no_program_is_run, only_queries_that_read, reader};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const TESTS: &[Test] = &[
    ("bad_input_is_one_sentence_and_exit_code_2", bad_input),
    ("only_queries_that_read_are_run", only_queries_that_read),
    ("no_query_runs_a_program_by_any_way", no_program_is_run),
    ("what_helps_is_proved_set_and_taken_back", what_helps),
    ("what_does_not_help_is_not_proposed", what_does_not_help),
    ("the_planner_changes_where_scans_cross", scans_cross),
    ("what_the_server_has_read_is_reported", what_was_read),
    ("service_and_password_files_are_found", files_of_libpq),
    ("what_takes_too_long_with_the_new_setting_is_a_harm", takes_too_long),
    ("what_is_set_is_measured_again", measured_again),
    ("it_stops_when_others_suffer", stops_when_others_suffer),
    ("an_interrupted_run_leaves_every_setting_as_it_was", interrupted),
    ("taking_back_keeps_what_others_have_set", taking_back),
    ("taking_back_keeps_entries_that_are_there_twice", there_twice),
    ("another_server_is_left_alone", another_server),
    ("what_keeps_everybody_out_is_taken_back", keeps_out),
    #[cfg(feature = "tls")]
    ("tls_is_as_sslmode_says", tls::tls),
    ("what_drops_the_sessions_options_is_refused", drops_options),
];

/// 543 blocks whose order is not that of the key.
const TABLE: &str = "create table rows (id int, key int, note text);
    insert into rows select g, hashint4(g), repeat('x', 200) from generate_series(1, 19000) g;
    create index rows_key on rows (key);
    vacuum analyze rows";

/// Default number of interrupted runs.
const INTERRUPTS: u64 = 6;

fn main() -> ExitCode {
    suite::run("advise", Path::new(env!("CARGO_TARGET_TMPDIR")), TESTS)
}

/// A server with a table, a scratch directory, and a session.
struct Site {
    server: Server,
    session: Session,
    scratch: TempDir,
}

fn site(case: &Case, disk: Disk) -> Result<Site, String> {
    let server =
        Server::new(&case.installation, None, disk, &[("shared_buffers", "1MB")]).map_err(text)?;
    let session = server.connect("postgres", &[]).map_err(text)?;
    let scratch = tempfile::tempdir().map_err(text)?;
    let mut site = Site { server, session, scratch };
    for statement in TABLE.split(";\n") {
        site.rows(statement)?;
    }
    Ok(site)
}

impl Site {
    fn rows(&mut self, sql: &str) -> Result<Vec<String>, String> {
        self.session.rows(sql).map_err(|error| format!("{sql}: {error}"))
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        self.rows(&format!("alter system set {setting}"))?;
        self.reload()
    }

    fn reload(&mut self) -> Result<(), String> {
        let loaded = self.rows("select pg_conf_load_time()")?;
        self.rows("select pg_reload_conf()")?;
        let until = Instant::now() + Duration::from_secs(120);
        while self.rows("select pg_conf_load_time()")? == loaded {
            ensure(Instant::now() < until, "the server does not reload")?;
        }
        Ok(())
    }

    fn dsn(&self, role: &str, database: &str) -> String {
        let socket = self.server.data_directory().with_file_name("s");
        format!("host={} user={role} dbname={database}", socket.display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["advise", "postgres", "--state"]).arg(self.scratch.path().join("state"));
        command.args(["--dsn", &self.dsn("postgres", "postgres")]);
        command.args(arguments).stdin(Stdio::null()).current_dir(self.scratch.path());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG"))
        {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<Output, String> {
        self.command(arguments).output().map_err(text)
    }

    /// The command's standard output and standard error, if it ends with `code`.
    fn ends_with(&self, code: i32, arguments: &[&str]) -> Result<(String, String), String> {
        let Output { status, stdout, stderr } = self.run(arguments)?;
        let [printed, stderr] =
            [stdout, stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        if status.code() == Some(code) {
            return Ok((printed, stderr));
        }
        Err(format!("{arguments:?} ends with {status}, not {code}:\n{printed}\n{stderr}"))
    }

    /// All settings as a new session sees them, and the file that ALTER SYSTEM writes.
    fn settings(&self) -> Result<(Vec<String>, String), String> {
        let mut session = self.server.connect("postgres", &[]).map_err(text)?;
        let all = session.rows("select s::text from pg_settings s order by name").map_err(text)?;
        let file = self.server.data_directory().join("postgresql.auto.conf");
        Ok((all, fs::read_to_string(file).map_err(text)?))
    }

    fn is_as(&self, before: &(Vec<String>, String), when: &str) -> Result<(), String> {
        let now = self.settings()?;
        if let Some((now, before)) = now.0.iter().zip(&before.0).find(|(now, before)| now != before)
        {
            return Err(format!("{when}: {now}, and before {before}"));
        }
        if &now == before {
            Ok(())
        } else {
            Err(format!("{when}: {}\nand before\n{}", now.1, before.1))
        }
    }

    /// Number of state files. A process killed while it writes one, before anything is set, leaves it under a temporary
    /// name until the next start.
    fn states(&self) -> usize {
        self.left_in_state().filter(|path| path.extension().is_some()).count()
    }

    fn left_in_state(&self) -> impl Iterator<Item = PathBuf> {
        let names = fs::read_dir(self.scratch.path().join("state")).into_iter().flatten();
        names.flatten().map(|entry| entry.path())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

fn ensure(holds: bool, why: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

fn bad_input(case: &Case) -> Result<(), String> {
    let site = site(case, Disk::Real)?;
    let nowhere = format!("host={} user=postgres", site.scratch.path().display());
    let socket = site.server.data_directory().with_file_name("s");
    let at = |rest: &str| format!("host={} {rest}", socket.display());
    let (stranger, none) = (at("user=stranger dbname=postgres"), at("user=postgres dbname=none"));
    let tls = at("user=postgres sslmode=any");
    for (arguments, words) in [
        (&["--dsn", &nowhere][..], "cannot connect"),
        (&["--dsn", &stranger], "role \"stranger\" does not exist; name a role with user="),
        (&["--dsn", &none], "database \"none\" does not exist"),
        (&["--dsn", &tls], "it is disable, allow, prefer, require"),
        #[cfg(not(feature = "tls"))]
        (&["--dsn", "host=localhost sslmode=require"], "built without TLS"),
        (&["--dsn", "host"], "it looks like"),
        (&["--rollback"], "nothing is recorded"),
        (&["--from", "missing.json", "--apply"], "--from missing.json"),
        (&["--queries", "missing.sql"], "--queries missing.sql"),
        (&["--dsn", &nowhere, "--from", "missing.json", "--apply"], "--from missing.json"),
        (&["--dsn", &nowhere, "--queries", "missing.sql"], "--queries missing.sql"),
        (&["--json", "missing/advice.json"], "there is no directory"),
        (&["--html", "missing/advice.html"], "there is no directory"),
    ] {
        // clap refuses a second --dsn, so a --dsn in `arguments` replaces that of the site.
        let output = if arguments[0] == "--dsn" {
            let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
            command.args(["advise", "postgres"]).args(arguments).output().map_err(text)?
        } else {
            site.run(arguments)?
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure(
            output.status.code() == Some(2),
            format!("{arguments:?}: {} {stderr}", output.status),
        )?;
        ensure(
            stderr.contains(words) && stderr.lines().count() == 1,
            format!("{arguments:?}: {stderr}"),
        )?;
    }
    // Without a directory for the state, the command fails before it measures anything.
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["advise", "postgres", "--apply", "--dsn", &at("user=postgres dbname=postgres")]);
    let output = command.env_remove("HOME").env_remove("XDG_STATE_HOME").output().map_err(text)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(2) && stderr.contains("no HOME"), stderr)?;
    ensure(output.stdout.is_empty(), "it has looked at the server first")?;
    Ok(())
}

fn files_of_libpq(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    site.rows("alter role postgres password 'a:b'")?;
    let data = site.server.data_directory();
    fs::write(data.join("pg_hba.conf"), "local all all scram-sha-256\n").map_err(text)?;
    site.reload()?;
    let socket = data.with_file_name("s");
    let [service, passwords] = ["services", "passwords"].map(|name| site.path(name));
    let lines = format!("[here]\nhost={}\nuser=postgres\ndbname=postgres\n", socket.display());
    fs::write(&service, lines).map_err(text)?;
    let line = format!("nowhere:*:*:*:no\n{}:5432:postgres:postgres:a\\:b\n", socket.display());
    fs::write(&passwords, line).map_err(text)?;
    for (dsn, mode, words) in [
        ("service=here", 0o600, "nothing is recorded"),
        ("service=here user=stranger", 0o600, "requires a password"),
        ("service=here", 0o644, "others than its owner may read it"),
        ("service=there", 0o600, "there is no service there"),
    ] {
        fs::set_permissions(&passwords, Permissions::from_mode(mode)).map_err(text)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["advise", "postgres", "--rollback", "--dsn", dsn, "--state"]);
        command.arg(site.path("state")).env_remove("PGPASSWORD");
        command.env("PGSERVICEFILE", &service).env("PGPASSFILE", &passwords);
        let output = command.output().map_err(text)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure(
            output.status.code() == Some(2) && stderr.contains(words),
            format!("{dsn} {mode:o}: {} {stderr}", output.status),
        )?;
    }
    Ok(())
}

const EFFECTIVE: &str = "effective_io_concurrency";

/// Writes a file of proposals for `settings`, as a run on this server would write it.
fn proposals(site: &mut Site, settings: &[(&str, &str)]) -> Result<String, String> {
    let identity = site.rows(
        "select json_build_object('system_identifier', system_identifier::text, 'port', current_setting('port'), \
         'data_directory', current_setting('data_directory'), 'address', current_setting('unix_socket_directories'), \
         'standby', false) from pg_control_system()",
    )?;
    let identity: Value = serde_json::from_str(&identity[0]).map_err(text)?;
    let mut all: Vec<Value> = Vec::new();
    for (setting, advised) in settings {
        let current =
            site.rows(&format!("select setting from pg_settings where name = '{setting}'"))?;
        all.push(serde_json::json!({
            "tablespace": null, "proved": true, "not_applied": null, "experiment": "advise", "setting": setting,
            "applies_to": "PostgreSQL 14-18", "current": current[0], "advised": advised, "gain": 2.0, "gain_low": 1.9,
            "gain_high": 2.1, "confidence": "high", "evidence": "",
        }));
    }
    let server = serde_json::json!({"identity": identity});
    let whole =
        serde_json::json!({"schema": "forebay-advise/2", "server": server, "proposals": all});
    let path = site.path("proposals.json");
    fs::write(&path, whole.to_string()).map_err(text)?;
    Ok(path.to_str().unwrap().to_owned())
}

fn measured_again(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    site.set("effective_io_concurrency = 1")?;
    let before = site.settings()?;
    let queries = site.path("queries.sql");
    let file = proposals(&mut site, &[(EFFECTIVE, "128")])?;
    let from = ["--from", &file, "--apply", "--rounds", "3"];
    let reader = reader(&mut site)?;
    let given =
        [&from[..], &["--queries", queries.to_str().unwrap(), "--queries-dsn", &reader]].concat();
    // Pauses for `local` if SET LOCAL has set the value, and for `itself` if the value is in effect without it.
    let pauses = |local: &str, itself: &str| {
        format!(
            "select pg_sleep(case (select source from pg_settings where name = '{EFFECTIVE}') \
             when 'session' then {local} else {itself} end);\n"
        )
    };
    for (local, itself, words) in [
        // Much longer than what a busy machine adds.
        ("0.5", "0.05", "the gain is there"),
        ("0.6", "0.6", "the gain is not there; --rollback takes back"),
        ("0.05", "0.5", "line 1 is significantly slower; --rollback takes back"),
    ] {
        fs::write(&queries, pauses(local, itself)).map_err(text)?;
        let (printed, _) = site.ends_with(0, &given)?;
        let printed = printed.replace('\n', " ");
        ensure(printed.contains(words), format!("[PRV-5] {words}: {printed}"))?;
        ensure(site.settings()? != before, "nothing is set")?;
        site.ends_with(0, &["--rollback"])?;
        site.is_as(&before, words)?;
    }
    // However the command ends early, it takes back what it has set.
    fs::write(&queries, pauses("20", "20")).map_err(text)?;
    let ended = "the server has ended the session";
    for (code, how, words) in
        [(130, "Ctrl-C", "interrupted"), (1, "terminate", ended), (1, "restart", ended)]
    {
        let command = site.command(&given);
        let (ended, stderr) = while_it_measures(&mut site, command, |site, child| {
            ensure(site.settings()? != before, "nothing is set")?;
            match how {
                "Ctrl-C" => signal(child, Signal::INT),
                "terminate" => {
                    site.rows(&format!("select pg_terminate_backend(pid) {SLEEPING}"))?;
                }
                _ => {
                    site.server.restart(&[("shared_buffers", "1MB")]).map_err(text)?;
                    site.session = site.server.connect("postgres", &[]).map_err(text)?;
                }
            }
            Ok(())
        })?;
        ensure(
            ended == Some(code) && stderr.contains(words),
            format!("[APL-2] {how}: {ended:?}: {stderr}"),
        )?;
        site.is_as(&before, "[APL-2] ended while it measured again")?;
        ensure(site.states() == 0, "a state is left")?;
    }
    // A setting that no query uses is set anyway; one that the user's queries have proved needs these queries again.
    let mut by_queries: Value = report(Path::new(&file))?;
    by_queries["queries"] = "mine.sql".into();
    fs::write(&file, by_queries.to_string()).map_err(text)?;
    let (_, stderr) = site.ends_with(2, &from)?;
    ensure(stderr.contains("--queries mine.sql"), stderr)?;
    site.is_as(&before, "without its queries")?;
    let file = proposals(&mut site, &[("work_mem", "9MB")])?;
    let (printed, _) = site.ends_with(0, &["--from", &file, "--apply"])?;
    ensure(printed.contains("Not measured again: no query uses it"), printed)?;
    site.ends_with(0, &["--rollback"])?;
    site.is_as(&before, "after all")
}

/// The session of the command that measures with a query that sleeps.
const SLEEPING: &str =
    "from pg_stat_activity where application_name = 'forebay advise' and wait_event = 'PgSleep'";

/// Runs `command`, and `work` as soon as a query of the command runs; returns its exit code and its standard error.
fn while_it_measures(
    site: &mut Site,
    mut command: Command,
    work: impl FnOnce(&mut Site, &Child) -> Result<(), String>,
) -> Result<(Option<i32>, String), String> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(text)?;
    let until = Instant::now() + Duration::from_secs(120);
    while site.rows(&format!("select 1 {SLEEPING}"))?.is_empty() {
        ensure(Instant::now() < until, "it does not measure")?;
        std::thread::sleep(Duration::from_millis(20));
    }
    work(site, &child)?;
    let Output { status, stderr, .. } = child.wait_with_output().map_err(text)?;
    Ok((status.code(), String::from_utf8_lossy(&stderr).into_owned()))
}

fn stops_when_others_suffer(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    // The first reload reports the entries that the command line overrides.
    site.reload()?;
    let standby = standby(case, &site)?;
    let before = site.settings()?;
    let file = proposals(&mut site, &[(EFFECTIVE, "128")])?;
    let queries = site.path("queries.sql");
    let reader = reader(&mut site)?;
    let given = ["--queries", queries.to_str().unwrap(), "--queries-dsn", &reader];
    let apply = [&["--from", &file, "--apply"], &given[..]].concat();
    let others = |site: &Site, number: usize| -> Result<(), String> {
        for _ in 0..number {
            let mut session = site.server.connect("postgres", &[]).map_err(text)?;
            std::thread::spawn(move || session.rows("select pg_sleep(60)"));
        }
        Ok(())
    };
    // Load that was there before does not stop it.
    others(&site, 6)?;
    fs::write(&queries, "select pg_sleep(0.1);\n").map_err(text)?;
    site.ends_with(0, &apply)?;
    site.ends_with(0, &["--rollback"])?;
    fs::write(&queries, "select pg_sleep(20);\n").map_err(text)?;
    let command = site.command(&apply);
    let (code, stderr) = while_it_measures(&mut site, command, |site, _| {
        ensure(site.settings()? != before, "nothing is set")?;
        others(site, 18)
    })?;
    ensure(code == Some(1) && stderr.contains("other sessions are active"), stderr)?;
    site.is_as(&before, "stopped for the sessions of others")?;
    ensure(site.states() == 0, "a state is left")?;
    site.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'",
    )?;
    // A standby that does not replay, while nothing is set.
    let mut session = standby.connect("postgres", &[]).map_err(text)?;
    session.rows("select pg_wal_replay_pause()").map_err(text)?;
    let command = site.command(&given);
    let (code, stderr) = while_it_measures(&mut site, command, |site, _| {
        site.rows("create table much as select repeat('x', 1000) from generate_series(1, 30000)")
            .map(drop)
    })?;
    ensure(code == Some(1) && stderr.contains("a standby is"), stderr)?;
    site.is_as(&before, "stopped for a standby")
}

/// Makes a standby of the server of `site`.
fn standby(case: &Case, site: &Site) -> Result<Server, String> {
    let mut standby = Server::new(&case.installation, None, Disk::Real, &[]).map_err(text)?;
    standby.stop().map_err(text)?;
    let data = standby.data_directory();
    let own = data.with_file_name("own");
    fs::rename(&data, &own).map_err(text)?;
    let program = case.installation.pg_config.with_file_name("pg_basebackup");
    let mut copy = Command::new(program);
    copy.args(["-c", "fast", "-U", "postgres", "-D"]).arg(&data);
    let primary = site.server.data_directory().with_file_name("s").display().to_string();
    copy.args(["-h", &primary]);
    let mut follow = Command::new("touch");
    follow.arg(data.join("standby.signal"));
    let mut give = Command::new("chown");
    give.arg("-R").arg(format!("--reference={}", own.display())).arg(&data);
    for mut command in [copy, follow, give] {
        let output = command.output().map_err(text)?;
        ensure(output.status.success(), String::from_utf8_lossy(&output.stderr))?;
    }
    // pg_basebackup -R would write a primary_conninfo for its own libpq; the server's libpq may be older.
    let primary = format!("host={primary} user=postgres");
    standby.start(&[("primary_conninfo", &primary)]).map_err(text)?;
    Ok(standby)
}

/// Settings for the tests of taking back: some are in the file already, some are not; one is a list, empty before.
const CHANGES: &[(&str, &str)] = &[
    (EFFECTIVE, "128"),
    ("maintenance_io_concurrency", "77"),
    ("random_page_cost", "1.5"),
    ("session_preload_libraries", "auto_explain, pg_stat_statements"),
    ("work_mem", "5MB"),
    ("seq_page_cost", "0.9"),
];

fn prepare(site: &mut Site) -> Result<String, String> {
    site.set("work_mem = '7MB'")?;
    site.set("random_page_cost = 3.5")?;
    site.set("log_line_prefix = 'it''s \"%p\" '")?;
    site.set("temp_tablespaces = ''")?;
    site.set("search_path = \"$user\", public")?;
    site.set("seq_page_cost = 1.1")?;
    proposals(site, CHANGES)
}

fn interrupted(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    let file = prepare(&mut site)?;
    let before = site.settings()?;
    let apply = ["--from", &file, "--apply"];
    let number =
        std::env::var("FOREBAY_ADVISE_INTERRUPTS").map_or(INTERRUPTS, |it| it.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(case.seed);
    // The duration of a run that is not interrupted.
    let clock = Instant::now();
    site.ends_with(0, &apply)?;
    let whole = clock.elapsed();
    ensure(site.settings()? != before, "nothing was set")?;
    site.ends_with(0, &["--rollback"])?;
    site.is_as(&before, "after --rollback")?;
    let (mut early, mut late) = (0, 0);
    for run in 0..number {
        // Every fourth run only measures; half of the interrupted runs get a second signal.
        let arguments = if run % 4 == 3 { &["--rounds", "100"][..] } else { &apply };
        let mut child = site
            .command(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(text)?;
        // Early in the run, while it sets values, more often than later, while it measures again.
        std::thread::sleep(whole.mul_f64(random.f64().powi(2) * 1.1));
        let kill = random.bool();
        signal(&child, if kill { Signal::KILL } else { Signal::INT });
        if !kill && random.bool() {
            std::thread::sleep(Duration::from_millis(random.u64(0..20)));
            signal(&child, Signal::INT);
        }
        let when = format!(
            "run {run} of seed {}, {arguments:?}, {}",
            case.seed,
            if kill { "killed" } else { "interrupted" }
        );
        let status = child.wait().map_err(text)?;
        let is_done = status.success();
        // If the signal handler is not installed yet, the signal ends the process as any other.
        let is_early = status.signal() == Some(Signal::INT.as_raw());
        ensure(
            is_done || kill || is_early || status.code() == Some(130),
            format!("{when}: {status}"),
        )?;
        // An interrupted run has taken back what it set; a killed or completed run has left its state file.
        if is_done || kill {
            late += u32::from(is_done);
            if site.states() > 0 {
                site.ends_with(0, &["--rollback"]).map_err(|why| format!("{when}: {why}"))?;
                early += u32::from(kill);
            }
        }
        site.is_as(&before, &when)?;
        ensure(site.states() == 0, format!("{when}: a state is left"))?;
    }
    // The next start removes the incomplete state file of a killed process; that of another server stays.
    let state = site.scratch.path().join("state");
    let id = site.rows("select system_identifier from pg_control_system()")?.remove(0);
    let port = site.rows("show port")?.remove(0);
    fs::write(state.join(format!(".advise-{id}-{port}-Ab1")), "{").map_err(text)?;
    let other = state.join(format!(".advise-{id}-1{port}-Ab1"));
    fs::write(&other, "{").map_err(text)?;
    let (_, stderr) = site.ends_with(2, &["--rollback"])?;
    ensure(stderr.contains("nothing is recorded"), stderr)?;
    let left: Vec<PathBuf> = site.left_in_state().collect();
    ensure(left == [other], format!("{left:?} is left"))?;
    // No session of the command is left on the server.
    let until = Instant::now() + Duration::from_secs(120);
    let left = "select 1 from pg_stat_activity where application_name = 'forebay advise'";
    while !site.rows(left)?.is_empty() {
        ensure(Instant::now() < until, "a session is left")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    // Among many runs, some have completed, and some were killed with something to take back.
    ensure(
        number < 50 || (early > 0 && late > 0),
        format!("{number} runs: {late} done, {early} killed in time"),
    )?;
    Ok(())
}

fn taking_back(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    let file = prepare(&mut site)?;
    site.ends_with(0, &["--from", &file, "--apply"])?;
    // Meanwhile an administrator changes settings.
    site.set("log_line_prefix = '%t '")?;
    site.set("geqo_threshold = 9")?;
    site.set("session_preload_libraries = 'auto_explain'")?;
    site.rows("alter system reset seq_page_cost")?;
    let (_, stderr) = site.ends_with(0, &["--rollback"])?;
    let left = [
        "session_preload_libraries is left",
        "'auto_explain'",
        "seq_page_cost is left",
        "no value",
    ];
    ensure(left.iter().all(|words| stderr.contains(words)), stderr)?;
    let now = site.settings()?.1;
    let entries: Vec<&str> = now.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "work_mem = '7MB'",
        "random_page_cost = '3.5'",
        "log_line_prefix = '%t '",
        "temp_tablespaces = '\"\"'",
        "search_path = '\"$user\", public'",
        "geqo_threshold = '9'",
        "session_preload_libraries = 'auto_explain'",
    ];
    ensure(entries == expected, format!("{entries:#?}"))?;
    // A setting that has changed since it was measured is not set.
    let file = proposals(&mut site, &[("geqo_threshold", "10"), ("work_mem", "9MB")])?;
    site.set("work_mem = '6MB'")?;
    let before = site.settings()?;
    let (_, stderr) = site.ends_with(2, &["--from", &file, "--apply"])?;
    ensure(stderr.contains("work_mem is '6144' by now"), stderr)?;
    site.is_as(&before, "after a change by another role")?;
    // Nor is one that is overridden by now.
    let file = proposals(&mut site, &[("work_mem", "9MB")])?;
    site.rows("alter role postgres set work_mem = '6MB'")?;
    let (_, stderr) = site.ends_with(2, &["--from", &file, "--apply"])?;
    ensure(stderr.contains("its value comes from: user"), stderr)?;
    site.rows("alter role postgres reset work_mem")?;
    // If the server refuses a value, those set before it are taken back.
    let before = site.settings()?;
    let file = proposals(&mut site, &[("work_mem", "9MB"), (EFFECTIVE, "100000")])?;
    let (_, stderr) = site.ends_with(1, &["--from", &file, "--apply"])?;
    ensure(stderr.contains("effective_io_concurrency = 100000"), stderr)?;
    ensure(site.states() == 0, "a state is left")?;
    site.is_as(&before, "after a refusal")
}

fn there_twice(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    let path = site.server.data_directory().join("postgresql.auto.conf");
    let by_hand = "Log_Line_Prefix = 'a '\nwork_mem = 5MB\nCluster_Name = 'no'\nlog_line_prefix = 'b '\n\
                   geqo_threshold = 5\nWork_Mem = '6MB'\n";
    fs::write(&path, by_hand).map_err(text)?;
    site.reload()?;
    let file = proposals(&mut site, &[("work_mem", "9MB")])?;
    site.ends_with(0, &["--from", &file, "--apply"])?;
    // This moves the entry to the end, so that --rollback reorders those before it.
    site.rows("alter system set log_line_prefix = 'c '")?;
    let entries = fs::read_to_string(&path).map_err(text)? + "geqo_threshold = 6\n";
    fs::write(&path, entries).map_err(text)?;
    site.ends_with(0, &["--rollback"])?;
    let now = site.settings()?.1;
    let entries: Vec<&str> = now.lines().filter(|line| !line.starts_with('#')).collect();
    let value = |name: &str| {
        let named = |line: &&&str| line.to_lowercase().starts_with(name);
        entries.iter().rfind(named).and_then(|line| line.split('\'').nth(1))
    };
    let values = ["log_line_prefix", "work_mem", "cluster_name", "geqo_threshold"].map(value);
    ensure(
        values == [Some("c "), Some("6MB"), Some("no"), Some("6")],
        format!("[APL-5] {values:?}\n{now}"),
    )
}

fn another_server(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    site.set("work_mem = '7MB'")?;
    let file = proposals(&mut site, &[("work_mem", "9MB")])?;
    // Edits a file as if it were of another server, which differs in this field only.
    let others = |path: &Path, at: &str, field: &str, value: Value| -> Result<String, String> {
        let whole = fs::read_to_string(path).map_err(text)?;
        let mut edited: Value = serde_json::from_str(&whole).map_err(text)?;
        edited.pointer_mut(at).unwrap()[field] = value;
        fs::write(path, edited.to_string()).map_err(text)?;
        Ok(whole)
    };
    let before = site.settings()?;
    let fields = || {
        [
            ("standby", Value::Bool(true), "a standby"),
            ("data_directory", "/elsewhere".into(), "/elsewhere"),
            ("address", "192.0.2.1".into(), "192.0.2.1"),
        ]
    };
    for (field, value, words) in fields() {
        let whole = others(Path::new(&file), "/server/identity", field, value)?;
        let (_, stderr) = site.ends_with(2, &["--from", &file, "--apply"])?;
        ensure(
            stderr.contains("of another server") && stderr.contains(words),
            format!("[APL-4] {stderr}"),
        )?;
        fs::write(&file, whole).map_err(text)?;
    }
    site.is_as(&before, "after another server's advice")?;
    site.ends_with(0, &["--from", &file, "--apply"])?;
    let set = site.settings()?;
    let states = fs::read_dir(site.path("state")).map_err(text)?;
    let state = states.flatten().next().ok_or("there is no state")?.path();
    for (field, value, words) in fields() {
        let whole = others(&state, "/server", field, value)?;
        let (_, stderr) = site.ends_with(2, &["--rollback"])?;
        ensure(
            stderr.contains("of another server") && stderr.contains(words),
            format!("[APL-4] {stderr}"),
        )?;
        ensure(state.exists(), "[APL-4] the state is removed")?;
        site.is_as(&set, "after another server's --rollback")?;
        fs::write(&state, whole).map_err(text)?;
    }
    site.ends_with(0, &["--rollback"])?;
    site.is_as(&before, "after --rollback")
}

fn keeps_out(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    site.set("work_mem = '7MB'")?;
    let before = site.settings()?;
    let file =
        proposals(&mut site, &[("session_preload_libraries", "not_there"), ("work_mem", "9MB")])?;
    let (_, stderr) = site.ends_with(2, &["--from", &file, "--apply"])?;
    ensure(
        stderr.contains("no new session can be opened") && stderr.contains("not_there"),
        stderr,
    )?;
    ensure(site.states() == 0, "a state is left")?;
    site.is_as(&before, "after a library that is not there")
}

/// The reply of a pooler in its default configuration to a session with options, as PgBouncer 1.18 words it.
const POOLER: &[u8] = b"SERROR\0C08P01\0Munsupported startup parameter: options\0\0";

/// Forwards connections to the server without their startup options; refuses the first `refused` ones.
fn drop_options(listener: &UnixListener, server: &Path, mut refused: usize) -> std::io::Result<()> {
    loop {
        let mut client = listener.accept()?.0;
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut start = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut start)?;
        if refused > 0 {
            refused -= 1;
            client.write_all(b"E")?;
            client.write_all(&u32::try_from(POOLER.len() + 4).unwrap().to_be_bytes())?;
            client.write_all(POOLER)?;
            continue;
        }
        let words: Vec<&[u8]> = start[4..].split(|byte| *byte == 0).collect();
        let mut kept = start[..4].to_vec();
        for pair in words.chunks(2).filter(|pair| pair.len() == 2 && !pair[0].is_empty()) {
            if pair[0] != b"options" {
                kept.extend([pair[0], b"\0", pair[1], b"\0"].concat());
            }
        }
        kept.push(0);
        let mut upstream = UnixStream::connect(server)?;
        upstream.write_all(&u32::try_from(kept.len() + 4).unwrap().to_be_bytes())?;
        upstream.write_all(&kept)?;
        let (mut from, mut to) = (upstream.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut client, &mut upstream);
            upstream.shutdown(std::net::Shutdown::Both)
        });
    }
}

fn drops_options(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    let port = site.rows("show port")?.remove(0);
    let name = format!(".s.PGSQL.{port}");
    let server = site.server.data_directory().with_file_name("s").join(&name);
    let listener = UnixListener::bind(site.path(&name)).map_err(text)?;
    std::thread::spawn(move || drop_options(&listener, &server, 1));
    let dsn =
        format!("host={} port={port} user=postgres dbname=postgres", site.scratch.path().display());
    for (arguments, words) in [
        (
            &["--rounds", "3"][..],
            "that refuses the session's options (unsupported startup parameter: options)",
        ),
        (&["--rounds", "3"], "default_transaction_read_only is not on"),
        (&["--rollback"], "a connection pooler, such as PgBouncer, drops them"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["advise", "postgres", "--dsn", &dsn, "--state"]).arg(site.path("state"));
        let output = command.args(arguments).output().map_err(text)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure(
            output.status.code() == Some(2)
                && stderr.contains("connect to the server itself")
                && stderr.contains(words),
            format!("[CON-1] {}: {stderr}", output.status),
        )?;
    }
    Ok(())
}

fn signal(child: &Child, signal: Signal) {
    // The process may have exited already.
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}
