//! The user's queries: what is refused before it runs, and that no query has rights other than to read.

use std::fs;
use std::path::Path;

use forebay_postgres_harness::Disk;
use forebay_postgres_harness::suite::{Case, text};

use crate::{Site, ensure, site};

/// Creates a role that may only read; returns the connection string for it.
pub(crate) fn reader(site: &mut Site) -> Result<String, String> {
    site.rows("create role forebay_reader login in role pg_read_all_data")?;
    Ok(site.dsn("forebay_reader", "postgres"))
}

pub(crate) fn only_queries_that_read(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    site.rows("create sequence numbers")?;
    // A function that shows what it does, two that hide it, and a view.
    site.rows("create function open() returns int language sql as 'insert into rows values (-1) returning 1'")?;
    site.rows(
        "create function hidden() returns int stable language plpgsql as \
         $$ begin execute 'insert into rows values (-2)'; return 1; end $$",
    )?;
    site.rows("create function counts() returns bigint stable language sql as $$ select nextval('numbers') $$")?;
    site.rows("create view through as select open() as it")?;
    let reader = reader(&mut site)?;
    // Privileges alone do not prevent it from writing.
    site.rows("grant all on rows, numbers to forebay_reader")?;
    let all = "select count(*), min(id), (select last_value from numbers) from rows";
    let (rows, settings) = (site.rows(all)?, site.settings()?);
    let queries = site.path("queries.sql");
    let file = queries.to_str().unwrap().to_owned();
    let given = ["--queries", &file, "--queries-dsn", &reader];
    for (sql, words) in [
        ("insert into rows values (0)", "the server refuses it"),
        (
            "with new as (insert into rows values (0) returning id) select * from new",
            "the server refuses it",
        ),
        ("delete from rows", "the server refuses it"),
        ("select 1; delete from rows", "the server refuses it"),
        ("commit", "the server refuses it"),
        ("create table copy as select * from rows", "the server refuses it"),
        ("select 1) q; delete from rows; select * from (select 1", "the server refuses it"),
        ("select * from rows where id < 3 for update", "locks rows"),
        ("select nextval('numbers')", "calls nextval"),
        ("select open()", "calls open"),
        ("select it from through", "calls open"),
        ("select set_config('default_transaction_read_only', 'off', false)", "calls set_config"),
        ("select pg_advisory_lock(1)", "calls pg_advisory_lock"),
        ("select $1::int", "parameters"),
        ("select nothing from rows", "does not exist"),
    ] {
        fs::write(&queries, format!("-- of a user\nselect 1;\n{sql};\n")).map_err(text)?;
        let (_, printed) = site.ends_with(2, &given)?;
        let place = "line 3";
        ensure(
            printed.contains(words) && printed.contains(place),
            format!("[QRY-1] {sql}: {printed}"),
        )?;
    }
    // The read-only transaction detects a false declaration; the other queries run.
    fs::write(&queries, "select hidden();\nselect counts();\nselect count(*) from rows;\n")
        .map_err(text)?;
    let (printed, _) = site.ends_with(0, &[&given[..], &["--rounds", "3"]].concat())?;
    for words in [
        "line 1 is left out: INSERT is not allowed",
        "line 2 is left out: cannot execute nextval()",
    ] {
        ensure(printed.contains(words), format!("{words}: {printed}"))?;
    }
    ensure(site.rows(all)? == rows, "[PRV-1] the table or the sequence has changed")?;
    site.is_as(&settings, "after queries")
}

/// Ways to call a function that runs a program, none of which shows it.
const WAYS: &str = r#"
create schema s;
create function s.run() returns int language plpgsql as
    $$ begin copy (select 1) to program 'cat > ran'; return 1; end $$;
create function s."a""b"() returns int language plpgsql as 'begin return s.run(); end';
create function s.random(int) returns int language plpgsql as 'begin return s.run(); end';
create function s.step(int, int) returns int language plpgsql volatile as 'begin return s.run(); end';
create aggregate s.collect(int) (sfunc = s.step, stype = int, initcond = '0');
create type s.box as (v int);
create function s.to_box(int) returns s.box language plpgsql volatile as 'begin return row(s.run())::s.box; end';
create cast (int as s.box) with function s.to_box(int);
create function s.same(int, int) returns bool language plpgsql volatile as 'begin return s.run() = 1; end';
create operator s.=== (leftarg = int, rightarg = int, function = s.same);
create function s.test(int) returns bool language plpgsql stable as 'begin return s.run() = 1; end';
create domain s.checked as int check (s.test(value));
create type s.pair as (a s.checked);
create function s.fixed() returns int language plpgsql immutable as 'begin return s.run(); end';
create view s.seen as select s.random(1) as it;
create view s.ruled as select 1 as it;
create or replace rule "_RETURN" as on select to s.ruled do instead select s.random(1) as it;
create table s.guarded as select 1 as it;
alter table s.guarded enable row level security;
create policy guard on s.guarded using (s.test(it));
create function public.format(text, name, name) returns text language plpgsql as
    $$ begin perform s.run(); return $1; end $$;
create function public.quote_ident(name) returns text language plpgsql as
    $$ begin perform s.run(); return $1; end $$;
grant usage on schema s to public"#;

/// Queries that are refused before they run, and why, in the order in which they are tried.
const REFUSED: [(&str, &str); 7] = [
    (r#"select s."a""b"()"#, "calls a\"b"),
    ("select s.random(1)", "calls random"),
    ("select s.collect(id) from rows where id < 2", "calls collect"),
    ("select it from s.seen", "calls random"),
    ("select it from s.ruled", "calls random"),
    // The server itself calls these: the first to plan the query, the second to parse it.
    ("select s.fixed()", "external program"),
    ("select '(1)'::s.pair", "external program"),
];

/// Queries that do not show what they call.
const LEFT_OUT: [&str; 4] = [
    "select id::s.box from rows where id < 2",
    "select id operator(s.===) 1 from rows where id < 2",
    "select id::s.checked from rows where id < 2",
    "select it from s.guarded",
];

pub(crate) fn no_program_is_run(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    for statement in WAYS.split(";\n") {
        site.rows(statement)?;
    }
    let reader = reader(&mut site)?;
    let ran = site.server.data_directory().join("ran");
    let queries = site.path("queries.sql");
    let file = queries.to_str().unwrap().to_owned();
    let write = |sql: &str| fs::write(&queries, format!("{sql};\n")).map_err(text);
    let has_run = |path: &Path| fs::remove_file(path).is_ok();
    // As a superuser each of them runs the program; a policy applies not to superusers, but to the owner of the table.
    site.rows("alter table s.guarded force row level security")?;
    site.rows("create role owner in role pg_execute_server_program")?;
    site.rows("grant all on schema s to owner")?;
    site.rows("alter table s.guarded owner to owner")?;
    for sql in REFUSED.map(|it| it.0).into_iter().chain(LEFT_OUT) {
        let as_owner = sql.contains("guarded");
        site.rows(if as_owner { "set role owner" } else { "reset role" })?;
        site.rows(sql)?;
        site.rows("reset role")?;
        ensure(has_run(&ran), format!("{sql} runs nothing"))?;
    }
    // So the command does not run them as a superuser, and they cannot replace functions that the command calls.
    site.rows("alter database postgres set search_path = public, pg_catalog")?;
    write(&REFUSED.map(|it| it.0).into_iter().chain(LEFT_OUT).collect::<Vec<_>>().join(";\n"))?;
    let (_, printed) = site.ends_with(2, &["--queries", &file])?;
    let words = "--queries: the role postgres is a superuser";
    ensure(printed.contains(words) && printed.contains("--queries-dsn"), printed)?;
    ensure(!has_run(&ran), "[QRY-1] one of the queries")?;
    // Nor does a query of the command read a table if that would run the program.
    site.rows("create index guard on rows (id) where s.fixed() = 1")?;
    site.rows("explain select from rows")?;
    ensure(has_run(&ran), "the index runs nothing")?;
    let (printed, _) = site.ends_with(0, &["--rounds", "3"])?;
    ensure(printed.contains("no setting was tried"), printed)?;
    ensure(!has_run(&ran), "an index of the table")?;
    site.rows("drop index guard")?;
    // The role that the queries run as may not run the program.
    let given = ["--queries", &file, "--queries-dsn", &reader, "--rounds", "3"];
    for (sql, words) in REFUSED {
        write(sql)?;
        let (_, printed) = site.ends_with(2, &given)?;
        ensure(printed.contains(words), format!("{sql}: {printed}"))?;
        ensure(!has_run(&ran), format!("[QRY-1] {sql}"))?;
    }
    write(&LEFT_OUT.join(";\n"))?;
    let (printed, _) = site.ends_with(0, &given)?;
    let printed = printed.replace("\n ", "");
    for line in 1..=LEFT_OUT.len() {
        let begins = format!("query in line {line} is left out: ");
        let why = printed.split_once(&begins).and_then(|(_, rest)| rest.split('*').next());
        ensure(why.is_some_and(|why| why.contains("external program")), printed.clone())?;
    }
    ensure(printed.contains("no setting was tried"), printed)?;
    ensure(!has_run(&ran), "[QRY-1] one of the others")?;
    // A role is refused however it got such rights.
    write("select 1")?;
    for (grant, words) in [
        (
            "grant pg_execute_server_program to forebay_reader",
            "has the rights of pg_execute_server_program",
        ),
        ("grant owner to forebay_reader", "has the rights of pg_execute_server_program"),
        ("grant postgres to forebay_reader", "has the rights of postgres"),
        ("alter role forebay_reader noinherit createrole", "may create roles"),
    ] {
        site.rows(grant)?;
        let (_, printed) = site.ends_with(2, &given)?;
        ensure(printed.contains(words), format!("{grant}: {printed}"))?;
        site.rows(&grant.replace("grant", "revoke").replace(" to ", " from "))?;
    }
    site.rows("alter role forebay_reader nocreaterole")?;
    site.rows("create database other")?;
    let other = site.dsn("forebay_reader", "other");
    let (_, printed) = site.ends_with(2, &["--queries", &file, "--queries-dsn", &other])?;
    ensure(printed.contains("another server or database"), printed)
}
