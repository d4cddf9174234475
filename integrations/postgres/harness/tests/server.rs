//! What an administrator does with the extension, and what a session sees of it, on every version here.
//!
//! Reads wait on these servers, and hints are counted, so that each test knows whether the extension has acted.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use forebay_postgres_harness::suite::{self, Case, Test, equal, must, text};
use forebay_postgres_harness::{Disk, Extension, Server, Session, Settings};

const TESTS: &[Test] = &[
    ("it_is_installed_used_and_dropped", it_is_installed_used_and_dropped),
    ("installcheck_passes_where_reads_wait", installcheck_passes),
    ("it_is_loaded_in_each_of_three_ways", it_is_loaded_in_each_of_three_ways),
    ("anyone_may_change_its_settings", anyone_may_change_its_settings),
    ("off_or_without_concurrency_it_prefetches_nothing", off_it_prefetches_nothing),
    ("an_open_cursor_survives_what_happens_to_its_index", an_open_cursor_survives),
    ("no_pin_and_no_lock_is_kept_between_calls", nothing_is_kept_between_calls),
    ("the_view_counts_scans_of_the_server_or_the_session", the_view_counts_scans),
    ("rows_in_memory_are_counted_one_by_one", rows_in_memory),
    ("a_session_that_ends_leaves_no_count_behind", a_session_that_ends),
    ("an_index_without_room_is_counted_among_others", an_index_without_room_is_counted),
    ("explain_or_the_log_shows_each_scan", explain_or_the_log_shows),
    ("an_unknown_server_version_is_refused_by_a_sentence", an_unknown_version_is_refused),
    ("the_cost_of_a_query_is_that_of_its_plan", cost_of_a_query),
    ("objects_of_another_server_are_neither_used_nor_installed", objects_of_another_server),
];

/// An index whose order is not the heap's.
const TABLE: &str = "create table rows (id int, key int, note text);
    insert into rows select g, hashint4(g), repeat('x', 200) from generate_series(1, 10000) g;
    create index rows_key on rows (key)";
/// All rows of a part of it.
const SCAN: &str = "select id from rows where key > 0 order by key";
/// How sessions of a test are to scan.
const BY_INDEX: &str =
    "set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off";
const PRELOADED: Settings<'_> = &[("session_preload_libraries", "forebay")];

fn main() -> ExitCode {
    suite::run("server", Path::new(env!("CARGO_TARGET_TMPDIR")), TESTS)
}

/// A server, and its extension; an error where there is none yet, for nothing here can be tested without.
fn serve(case: &Case, settings: Settings<'_>) -> Result<Server, String> {
    let extension = extension(case)?;
    let settings = [&[("shared_buffers", "1MB")], settings].concat();
    let disk = Disk::Slow(60);
    let server = Server::new(&case.installation, Some(extension), disk, &settings).map_err(text)?;
    must(&mut connect(&server, &[])?, TABLE)?;
    must(&mut connect(&server, &[])?, "vacuum analyze rows; create extension pg_buffercache")?;
    Ok(server)
}

fn extension(case: &Case) -> Result<&Extension, String> {
    case.extension.as_ref().ok_or_else(|| "the extension has no Makefile".to_owned())
}

fn connect(server: &Server, settings: Settings<'_>) -> Result<Session, String> {
    server.connect("postgres", settings).map_err(text)
}

/// Rows of the scan, and how many hints it took.
fn scan(server: &Server, session: &mut Session) -> Result<(Vec<String>, u64), String> {
    let count = server.hint_count().map_err(text)?;
    let before = count.now().map_err(text)?;
    must(session, BY_INDEX)?;
    let rows = must(session, SCAN)?;
    Ok((rows, count.now().map_err(text)? - before))
}

fn clean(server: &Server) -> Result<(), String> {
    let log = server.log().map_err(text)?;
    let findings = server.findings(forebay_postgres_harness::Mark::START).map_err(text)?;
    if findings.is_empty() { Ok(()) } else { Err(format!("in the log: {findings:?}\n{log}")) }
}

fn it_is_installed_used_and_dropped(case: &Case) -> Result<(), String> {
    let server = serve(case, &[])?;
    let mut session = connect(&server, PRELOADED)?;
    let objects = "select count(*) from pg_depend where refclassid = 'pg_extension'::regclass and deptype = 'e' \
                   and refobjid = (select oid from pg_extension where extname = 'forebay')";
    // Trusted: a user who may create in the database may create it.
    must(&mut session, "create role owner login; grant create on database postgres to owner")?;
    let mut owner = server.connect_as("owner", "postgres", &[]).map_err(text)?;
    must(&mut owner, "create extension forebay")?;
    must(&mut session, objects)?;
    let (rows, hints) = scan(&server, &mut session)?;
    if hints == 0 || rows.is_empty() {
        return Err(format!("{hints} hints for {} rows", rows.len()));
    }
    must(&mut owner, "drop extension forebay")?;
    equal("objects that are left", must(&mut session, objects)?, vec!["0".to_owned()])?;
    must(&mut owner, "create extension forebay; drop extension forebay")?;
    clean(&server)
}

/// Few buffers, so that the scripts' scans do look ahead.
fn installcheck_passes(case: &Case) -> Result<(), String> {
    let extension = extension(case)?;
    let settings = [("shared_buffers", "2MB"), ("shared_preload_libraries", "forebay")];
    let disk = Disk::Slow(30);
    let server = Server::new(&case.installation, Some(extension), disk, &settings);
    let server = server.map_err(text)?;
    let mut command = extension.make(&case.installation.pg_config);
    command.arg("installcheck").env("PGHOST", server.socket_directory()).env("PGUSER", "postgres");
    command.env_remove("PGPORT");
    let said = command.output().map_err(text)?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned());
    }
    match server.hint_count().map_err(text)?.now().map_err(text)? {
        0 => Err("no script's scan has a hint".to_owned()),
        _ => Ok(()),
    }
}

fn it_is_loaded_in_each_of_three_ways(case: &Case) -> Result<(), String> {
    let mut server = serve(case, &[])?;
    let (expected, none) = scan(&server, &mut connect(&server, &[])?)?;
    equal("hints without it", none, 0)?;
    let asks = |server: &Server, session: &mut Session, how: &str| {
        equal(how, must(session, "show forebay.enabled")?, vec!["on".to_owned()])?;
        let (rows, hints) = scan(server, session)?;
        equal(how, &rows, &expected)?;
        if hints == 0 { Err(format!("{how}: no hint")) } else { Ok(()) }
    };
    let mut by_hand = connect(&server, &[])?;
    must(&mut by_hand, "load 'forebay'")?;
    asks(&server, &mut by_hand, "by LOAD")?;
    // In the middle of a transaction, with an open cursor, from its next query on.
    let mut late = connect(&server, &[])?;
    must(
        &mut late,
        "begin; declare c cursor for select id from rows where key > 0 order by key; fetch 5 from c; load 'forebay'",
    )?;
    must(&mut late, "fetch 500 from c")?;
    asks(&server, &mut late, "by LOAD in a transaction")?;
    asks(&server, &mut connect(&server, PRELOADED)?, "by session_preload_libraries")?;
    must(&mut by_hand, "create role preloaded login superuser")?;
    must(&mut by_hand, "alter role preloaded set session_preload_libraries = 'forebay'")?;
    let mut preloaded = server.connect_as("preloaded", "postgres", &[]).map_err(text)?;
    asks(&server, &mut preloaded, "by a role's setting")?;
    drop((by_hand, late, preloaded));
    server
        .restart(&[("shared_buffers", "1MB"), ("shared_preload_libraries", "forebay")])
        .map_err(text)?;
    asks(&server, &mut connect(&server, &[])?, "by shared_preload_libraries")?;
    // Again is harmless.
    asks(&server, &mut connect(&server, PRELOADED)?, "by both")?;
    clean(&server)
}

fn anyone_may_change_its_settings(case: &Case) -> Result<(), String> {
    let server = serve(case, &[("session_preload_libraries", "forebay")])?;
    must(
        &mut connect(&server, &[])?,
        "create role ordinary login; grant select on rows to ordinary",
    )?;
    let mut session = server.connect_as("ordinary", "postgres", &[]).map_err(text)?;
    for (name, value) in [("forebay.enabled", "off"), ("forebay.distance_max", "7")] {
        let show = format!("show {name}");
        let first = must(&mut session, &show)?;
        must(&mut session, &format!("begin; set local {name} = {value}"))?;
        equal(name, must(&mut session, &show)?, vec![value.to_owned()])?;
        must(&mut session, "rollback")?;
        equal(name, must(&mut session, &show)?, first.clone())?;
        must(&mut session, &format!("set {name} = {value}; reset {name}"))?;
        equal(name, must(&mut session, &show)?, first)?;
        must(&mut session, &format!("alter role ordinary set {name} = {value}"))?;
        let mut next = server.connect_as("ordinary", "postgres", &[]).map_err(text)?;
        equal(name, must(&mut next, &show)?, vec![value.to_owned()])?;
        must(&mut session, &format!("alter role ordinary reset {name}"))?;
    }
    equal("too much", session.run("set forebay.distance_max = -1").code(), Some("22023"))?;
    equal(
        "a setting that is none",
        session.run("set forebay.nothing = 1").code(),
        expected_unknown(case),
    )?;
    let (_, hints) = scan(&server, &mut session)?;
    if hints == 0 {
        return Err("an ordinary role's scan has no hint".to_owned());
    }
    clean(&server)
}

/// Before 15, a prefix cannot be reserved.
fn expected_unknown(case: &Case) -> Option<&'static str> {
    (case.installation.major >= 15).then_some("42602")
}

fn off_it_prefetches_nothing(case: &Case) -> Result<(), String> {
    let server = serve(case, &[])?;
    let (expected, _) = scan(&server, &mut connect(&server, &[])?)?;
    let mut session = connect(&server, PRELOADED)?;
    let plan = |session: &mut Session| must(session, &format!("{BY_INDEX}; explain {SCAN}"));
    let stock = plan(&mut connect(&server, &[])?)?;
    equal("the plan, on", plan(&mut session)?, stock.clone())?;
    for sql in [
        "set forebay.enabled = off",
        "reset forebay.enabled; set effective_io_concurrency = 0",
        "reset effective_io_concurrency; set forebay.distance_max = 0; set forebay.enabled = off",
    ] {
        must(&mut session, sql)?;
        let (rows, hints) = scan(&server, &mut session)?;
        equal(sql, hints, 0)?;
        equal(sql, &rows, &expected)?;
        equal(sql, plan(&mut session)?, stock.clone())?;
    }
    must(&mut session, "reset all")?;
    let (rows, hints) = scan(&server, &mut session)?;
    equal("on again", rows, expected)?;
    if hints == 0 { Err("on again: no hint".to_owned()) } else { clean(&server) }
}

fn an_open_cursor_survives(case: &Case) -> Result<(), String> {
    let server = serve(case, &[])?;
    let (expected, _) = scan(&server, &mut connect(&server, &[])?)?;
    let mut session = connect(&server, PRELOADED)?;
    let mut other = connect(&server, &[])?;
    must(&mut other, "set lock_timeout = '50ms'")?;
    must(&mut session, BY_INDEX)?;
    let open = format!("begin; declare c no scroll cursor for {SCAN}");
    let concurrent = [
        "grant select on rows to public",
        "analyze rows",
        "alter index rows_key set (fillfactor = 90)",
        "alter table rows alter column note set statistics 10",
        "comment on index rows_key is 'other'",
        "create statistics rows_both on id, key from rows",
        "drop statistics rows_both",
    ];
    for own in [false, true] {
        must(&mut session, &open)?;
        let mut rows = Vec::new();
        for sql in concurrent {
            rows.extend(must(&mut session, "fetch 300 from c")?);
            if own {
                // Some of them it refuses itself, with its own cursor open.
                must(&mut session, "savepoint s")?;
                match session.run(sql).code() {
                    None => must(&mut session, "release s")?,
                    Some("55006") => must(&mut session, "rollback to s")?,
                    other => return Err(format!("{sql}: {other:?}")),
                };
            } else {
                must(&mut other, sql)?;
            }
        }
        rows.extend(must(&mut session, "fetch all from c")?);
        equal("the cursor's rows", &rows, &expected)?;
        must(&mut session, "rollback")?;
    }
    must(&mut session, &open)?;
    let mut rows = must(&mut session, "fetch 1000 from c")?;
    equal("drop with an open cursor", other.run("drop index rows_key").code(), Some("55P03"))?;
    must(&mut session, "savepoint s")?;
    equal("drop below it", session.run("drop index rows_key").code(), Some("55006"))?;
    must(&mut session, "rollback to s")?;
    rows.extend(must(&mut session, "fetch all from c")?);
    equal("the cursor's rows", &rows, &expected)?;
    must(&mut session, "commit")?;
    // What was recorded of an index is removed with it, and recorded again with another.
    let mut sorted = expected.clone();
    sorted.sort();
    for sql in [
        "drop index rows_key",
        "create index rows_key on rows (key)",
        "reindex index rows_key",
        "cluster rows using rows_key",
    ] {
        must(&mut other, sql)?;
        let (mut rows, _) = scan(&server, &mut session)?;
        rows.sort();
        equal(sql, &rows, &sorted)?;
    }
    clean(&server)
}

fn nothing_is_kept_between_calls(case: &Case) -> Result<(), String> {
    let server = serve(case, &[])?;
    let mut watcher = connect(&server, &[])?;
    let mut seen = Vec::new();
    for settings in [&[], PRELOADED] {
        let mut session = connect(&server, settings)?;
        must(&mut session, BY_INDEX)?;
        let process = session.process();
        let held = |watcher: &mut Session| {
            let pins = "select count(*) from pg_buffercache where pinning_backends > 0 \
                        and relfilenode in (pg_relation_filenode('rows'), pg_relation_filenode('rows_key'))";
            let locks = format!(
                "select mode, relation::regclass, count(*) from pg_locks where pid = {process} and locktype <> 'virtualxid' group by 1, 2 order by 1, 2"
            );
            Ok::<_, String>([must(watcher, pins)?, must(watcher, &locks)?])
        };
        let nothing = [vec!["0".to_owned()], vec![]];
        let mut open = Vec::new();
        must(&mut session, &format!("begin; declare c cursor for {SCAN}"))?;
        for _ in 0..4 {
            must(&mut session, "fetch 500 from c")?;
            open.push(held(&mut watcher)?);
        }
        equal("after an error", session.run("select 1 / 0").code(), Some("22012"))?;
        must(&mut session, "rollback")?;
        equal("after an error", held(&mut watcher)?, nothing.clone())?;
        must(&mut session, "set statement_timeout = 20")?;
        let cut = format!("select sum(pg_column_size(pg_sleep(0.0005))) from ({SCAN}) q");
        equal("a timeout", session.run(&cut).code(), Some("57014"))?;
        equal("after a timeout", held(&mut watcher)?, nothing.clone())?;
        must(&mut session, "reset statement_timeout")?;
        must(&mut session, SCAN)?;
        equal("idle", held(&mut watcher)?, nothing)?;
        seen.push(open);
    }
    equal("pins and locks of an open cursor, without and with it", &seen[0], &seen[1])?;
    clean(&server)
}

/// What the view says of the table's index: scans, rows, and whether the rest is plausible.
const COUNTED: &str = "select scans, rows, prefetched > 0 and useful <= prefetched and \
    wasted = prefetched - useful and waited_ms > 0 from forebay_stat_indexes where indexrelname = 'rows_key'";

fn the_view_counts_scans(case: &Case) -> Result<(), String> {
    for shared in [false, true] {
        let how = if shared { "shared_preload_libraries" } else { "session_preload_libraries" };
        let server = serve(case, &[(how, "forebay")])?;
        let mut session = connect(&server, &[])?;
        must(&mut session, "create extension forebay")?;
        equal("before", must(&mut session, COUNTED)?, Vec::new())?;
        let rows = scan(&server, &mut session)?.0.len() as u64;
        equal("one scan", must(&mut session, COUNTED)?, vec![format!("1|{rows}|t")])?;
        // An error at the last row ends it.
        let fails = format!("select 1 / (row_number() over () - {rows}) from ({SCAN}) q");
        equal("an error", session.run(&fails).code(), Some("22012"))?;
        equal("after it", must(&mut session, COUNTED)?, vec![format!("2|{}|t", 2 * rows)])?;
        must(
            &mut session,
            &format!("begin; declare c cursor for {SCAN}; move 10 from c; rollback"),
        )?;
        let all = vec![format!("3|{}|t", 2 * rows + 10)];
        equal("after a cursor", must(&mut session, COUNTED)?, all.clone())?;

        must(&mut session, "create role ordinary login")?;
        let mut ordinary = server.connect_as("ordinary", "postgres", &[]).map_err(text)?;
        equal(how, must(&mut ordinary, COUNTED)?, Vec::new())?;
        must(&mut session, "grant select on rows to ordinary")?;
        equal(how, must(&mut ordinary, COUNTED)?, if shared { all } else { Vec::new() })?;
        let reset = "select forebay_stat_reset()";
        equal("a reset", ordinary.run(reset).code(), Some("42501"))?;
        must(&mut session, reset)?;
        equal("after a reset", must(&mut session, COUNTED)?, Vec::new())?;
        scan(&server, &mut session)?;
        equal("again", must(&mut session, COUNTED)?, vec![format!("1|{rows}|t")])?;
        // From 18 on the server looks ahead of bitmap scans.
        if case.installation.major < 18 {
            must(&mut session, reset)?;
            must(&mut session, "set enable_bitmapscan = on; set enable_indexscan = off")?;
            must(&mut session, "select id from rows where key > 0 and note > ''")?;
            equal("a bitmap", must(&mut session, COUNTED)?, vec![format!("1|{rows}|t")])?;
        }
        must(&mut session, "drop index rows_key")?;
        let named = "select count(*) from forebay_stat_indexes() where indexrelid is not null \
                     and not exists (select from pg_class where oid = indexrelid)";
        equal("dropped", must(&mut session, named)?, vec!["0".to_owned()])?;
        clean(&server)?;
    }
    Ok(())
}

/// Where nothing is read for long, little is done for a row; the scan's end must not count as one.
fn rows_in_memory(case: &Case) -> Result<(), String> {
    let server = serve(case, PRELOADED)?;
    let mut session = connect(&server, &[])?;
    must(
        &mut session,
        "create table few as select g id from generate_series(1, 3000) g;
         create index few_key on few (hashint4(id)); vacuum analyze few; create extension forebay",
    )?;
    must(&mut session, BY_INDEX)?;
    let (mut scans, mut rows) = (0, 0);
    // The first has to read the table.
    for bounds in ["(0)", "(0)", "(0), (1000), (7), (2147483647), (9)", "(0)"] {
        let query = format!(
            "select sum((select count(id) from few where hashint4(id) > bound)) from (values {bounds}) o (bound)"
        );
        scans += bounds.split("), ").count();
        rows += must(&mut session, &query)?.join("").parse::<u64>().map_err(text)?;
        let sql = "select scans, rows from forebay_stat_indexes where indexrelname = 'few_key'";
        equal(&query, must(&mut session, sql)?, vec![format!("{scans}|{rows}")])?;
    }
    clean(&server)
}

/// Scans that have not waited are added to the server's counters in groups.
fn a_session_that_ends(case: &Case) -> Result<(), String> {
    let server = serve(case, &[("shared_preload_libraries", "forebay")])?;
    let mut watcher = connect(&server, &[])?;
    must(&mut watcher, "create extension forebay")?;
    let counted = "select scans from forebay_stat_indexes where indexrelname = 'rows_key'";
    for scans in [3, 150] {
        let mut session = connect(&server, &[])?;
        must(&mut session, BY_INDEX)?;
        for _ in 0..scans {
            must(&mut session, "select id from rows where key = hashint4(7)")?;
        }
        let seen = must(&mut watcher, counted)?.join("").parse::<u64>().unwrap_or(0);
        if seen > scans || scans - seen >= 64 {
            return Err(format!("{seen} of {scans} scans are in the view"));
        }
        let ended = format!(
            "select from pg_stat_activity where pid = {} having count(*) = 0",
            session.process()
        );
        drop(session);
        while must(&mut watcher, &ended)?.is_empty() {}
        equal("scans", must(&mut watcher, counted)?, vec![scans.to_string()])?;
        must(&mut watcher, "select forebay_stat_reset()")?;
    }
    clean(&server)
}

fn an_index_without_room_is_counted(case: &Case) -> Result<(), String> {
    for how in ["shared_preload_libraries", "session_preload_libraries"] {
        let server = serve(case, &[(how, "forebay"), ("forebay.stat_indexes_max", "100")])?;
        let mut session = connect(&server, &[])?;
        must(&mut session, &format!("create extension forebay; {BY_INDEX}"))?;
        for number in 0..110 {
            let table = format!("few{number}");
            let make = "as select g as id from generate_series(1, 3) g";
            must(
                &mut session,
                &format!("create table {table} {make}; create index on {table} (id)"),
            )?;
            must(&mut session, &format!("select count(*) from {table} where id > 0"))?;
        }
        let sums = "select sum(rows) filter (where indexrelname like 'few%') < 330, \
                    sum(rows) filter (where indexrelname like 'few%' or indexrelid is null) >= 330, \
                    count(*) <= 101 from forebay_stat_indexes";
        equal(how, must(&mut session, sums)?, vec!["t|t|t".to_owned()])?;
        clean(&server)?;
    }
    Ok(())
}

fn explain_or_the_log_shows(case: &Case) -> Result<(), String> {
    let server = serve(case, &[("session_preload_libraries", "forebay")])?;
    let mut session = connect(&server, &[("client_min_messages", "debug1")])?;
    must(&mut session, BY_INDEX)?;
    let notices = session.run(SCAN).notices;
    let shows = |line: &String| line.contains("forebay: index \"rows_key\": rows=");
    equal("lines of a scan", notices.iter().filter(|line| shows(line)).count(), 1)?;
    let option = session.run(&format!("explain (forebay) {SCAN}"));
    if case.installation.major < 18 {
        return equal("before 18", option.code(), Some("42601"));
    }
    equal("what did not run", option.code(), Some("22023"))?;
    let plan = must(&mut session, &format!("explain (analyze, forebay) {SCAN}"))?.join("\n");
    let json =
        must(&mut session, &format!("explain (analyze, forebay, format json) {SCAN}"))?.join("");
    if !plan.contains("Forebay: prefetched=") || !json.contains("\"Forebay\": {") {
        return Err(format!("{plan}\n{json}"));
    }
    let without = must(&mut session, &format!("explain analyze {SCAN}"))?.join("\n");
    if without.contains("Forebay") { Err(without) } else { clean(&server) }
}

/// A server of next year, according to its headers, does not compile.
fn an_unknown_version_is_refused(case: &Case) -> Result<(), String> {
    let extension = extension(case)?;
    let scratch = tempfile::tempdir().map_err(text)?;
    let compile = |version: &str| {
        let header = format!(
            "#include_next <postgres.h>\n#undef PG_VERSION_NUM\n#define PG_VERSION_NUM {version}\n"
        );
        fs::write(scratch.path().join("postgres.h"), header).map_err(text)?;
        let source = extension.sources.join("src");
        let crates = extension.sources.join("../../crates");
        let mut command = Command::new("cc");
        command.arg("-fsyntax-only").arg("-I").arg(scratch.path()).arg("-I").arg(&source);
        command.arg("-I").arg(crates.join("lookahead-c/include"));
        command.arg("-I").arg(&case.installation.headers).arg(source.join("forebay.c"));
        let said = command.output().map_err(text)?;
        Ok::<_, String>((said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned()))
    };
    let known = format!("{}0000", case.installation.major);
    equal("this server", compile(&known)?, (true, String::new()))?;
    for version in ["130022", "200000"] {
        let (compiles, words) = compile(version)?;
        if compiles || !words.contains("forebay knows PostgreSQL 14 to 19") {
            return Err(format!("{version}: {words}"));
        }
    }
    Ok(())
}

/// A pg_config that says another version of this server: its objects are its own, and what they make is not installed.
fn objects_of_another_server(case: &Case) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(text)?;
    let (build, variables) = (scratch.path().join("here"), vec!["COPT=-O0".to_owned()]);
    let extension = Extension { build, variables, ..extension(case)?.clone() };
    fs::create_dir(&extension.build).map_err(text)?;
    let (real, other) = (&case.installation.pg_config, scratch.path().join("pg_config"));
    let next = case.installation.major + 1;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo PostgreSQL {next}.1\nexec {} \"$@\"\n",
        real.display()
    );
    fs::write(&other, script).map_err(text)?;
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).map_err(text)?;
    let root = scratch.path().join("root");
    let make = |pg_config: &Path, target: &str| {
        let mut command = extension.make(pg_config);
        command.arg(target).arg(format!("DESTDIR={}", root.display()));
        let said = command.output().map_err(text)?;
        let words = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        Ok::<_, String>((said.status.success(), words))
    };
    for pg_config in [real, &other] {
        let (made, words) = make(pg_config, "all")?;
        let linked = words.contains("-o forebay.so ");
        equal(&words, (made, words.matches(" -c -o ").count() > 0, linked), (true, true, true))?;
    }
    let (installed, words) = make(&other, "install")?;
    let refusal = format!("was not built for PostgreSQL {next}");
    equal(&words, (installed, words.contains(&refusal)), (false, true))?;
    let (installed, words) = make(real, "install")?;
    equal(&words, (installed, words.contains(" -c -o ")), (true, false))
}

/// Counted in basic blocks, with nothing waiting: other queries add nothing, and a plan four times as large four times.
fn cost_of_a_query(case: &Case) -> Result<(), String> {
    let extension = extension(case)?.counted();
    let server = Server::new(&case.installation, Some(&extension), Disk::Steady(0), PRELOADED);
    let server = server.map_err(text)?;
    let mut session = connect(&server, &[])?;
    must(&mut session, &format!("{TABLE}; vacuum analyze rows; {BY_INDEX}"))?;
    let partition = "create table parts (id int) partition by range (id);
        do $$ begin for i in 0..119 loop
            execute format('create table parts%s partition of parts for values from (%s) to (%s)', i, i, i + 1);
        end loop; end $$;
        create index on parts (id); analyze parts";
    session.rows(partition).map_err(text)?;
    let count = server.hint_count().map_err(text)?;
    let work = |session: &mut Session, sql: &str| {
        // Once before, which fills the relation cache.
        must(session, sql)?;
        let before = count.work().map_err(text)?;
        must(session, sql)?;
        Ok::<_, String>(count.work().map_err(text)? - before)
    };
    let partitions =
        |count: usize| format!("select count(*) from parts where id >= 0 and id < {count}");
    let subplans = |count: usize| {
        let one = |at| format!("(select max(id) from rows where key = hashint4({at}))");
        format!("select {}", (0..count).map(one).collect::<Vec<_>>().join(", "))
    };
    for query in [&partitions as &dyn Fn(usize) -> String, &subplans] {
        let [few, many] = [work(&mut session, &query(30))?, work(&mut session, &query(120))?];
        if few == 0 || many > few * 5 {
            return Err(format!("{}: {few} steps for 30, {many} for 120", query(1)));
        }
    }

    let by_bitmap = "set enable_indexscan = off; set enable_bitmapscan = on";
    let query = "select id from rows where key = hashint4(7)";
    for (number, settings) in ["", by_bitmap].into_iter().enumerate() {
        must(&mut session, &format!("begin; {settings}"))?;
        let alone = work(&mut session, query)?;
        // Every other cursor is begun.
        let open = format!(
            "do $$ begin for i in 1..500 loop
                execute format('declare c{number}_%s cursor for select id from rows where key > %s', i, i);
                if i % 2 = 0 then execute format('move 1 in c{number}_%s', i); end if;
            end loop; end $$"
        );
        session.rows(&open).map_err(text)?;
        let loaded = work(&mut session, query)?;
        // Less than a step for each. From 18 on, the server looks ahead in bitmap scans.
        if loaded > alone + 500 || (alone == 0 && settings.is_empty()) {
            return Err(format!("{settings}: {alone} steps alone, {loaded} with 500 cursors"));
        }
        must(&mut session, "commit")?;
    }
    clean(&server)
}
