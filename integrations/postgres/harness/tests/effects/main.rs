//! Look-ahead has no effect but on time: not on locks, on functions, on counters, nor on other extensions.
//!
//! Reads wait on these servers, and each test compares a session with the extension and one without.

#![allow(clippy::unwrap_used)]

mod damage;
mod foreign_keys;
mod instructions;
mod kills;
mod layout;
mod scans;
mod wal;
mod writes;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use forebay_postgres_harness::suite::{self, Case, Test, equal, must, text};
use forebay_postgres_harness::{Disk, Extension, Server, Session, Settings};

const TESTS: &[Test] = &[
    ("serializable_queries_lock_and_conflict_as_without_it", serializable),
    ("functions_see_the_settings_of_their_rows", functions_see_settings),
    ("counters_of_blocks_are_those_of_stock", counters),
    ("a_run_condition_ends_a_scan_as_a_limit_does", run_condition),
    ("the_right_side_of_except_ends_with_the_left", except),
    ("catalogs_are_left_to_the_server", catalogs),
    ("other_extensions_see_every_call_of_a_node", wrappers),
    ("writes_do_the_same_and_prefetch_leaves", writes::do_the_same),
    ("foreign_keys_do_the_same_and_prefetch", foreign_keys::do_the_same),
    ("hash_gist_and_spgist_scans_do_the_same_and_prefetch", scans::of_other_indexes),
    ("joins_with_partitions_do_the_same_and_prefetch", scans::of_partitions),
    ("look_ahead_that_is_dear_pauses", scans::pause_when_dear),
    ("a_dense_scan_tries_to_pause", scans::try_to_pause_when_dense),
    ("a_scan_whose_blocks_ascend_tries_to_pause", scans::try_to_pause_where_blocks_ascend),
    ("index_scans_read_through_gaps", scans::read_through_gaps),
    ("a_scan_that_begins_idle_is_woken", scans::wake),
    ("scans_rest_while_reads_are_quick", scans::rest_while_reads_are_quick),
    ("index_only_scans_leave_visible_rows", scans::leave_visible_rows),
    ("values_in_a_toast_table_are_the_same_and_prefetched", scans::of_values),
    ("a_killed_command_leaves_indexes_whole", kills::lose_nothing),
    ("damage_behind_a_limit_is_not_met", damage::is_left),
    ("queries_in_memory_cost_a_hundredth_more", instructions::are_few),
    ("another_scan_state_is_refused_by_one_message", layout::is_refused),
];

/// Orders have a page each, with room for an update, in the order of their index; their items lie anywhere.
const TABLES: &str = "create table orders (id int, item int, pad text) with (fillfactor = 50);
    alter table orders alter pad set storage plain;
    insert into orders select g, hashint4(g) & 16383, repeat('x', 3500) from generate_series(1, 900) g;
    create index orders_id on orders (id);
    create table items (id int, note text);
    insert into items select g, repeat('y', 200) from generate_series(0, 16383) g order by hashint4(g + 7);
    create index items_id on items (id);
    create table stock (id int primary key, amount int);
    insert into stock values (1, 0)";
/// A nested loop over both, in the order of the orders.
const JOIN: &str = "select o.id, i.note from orders o join items i on i.id = o.item order by o.id";
const PLAN: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
    set enable_hashjoin = off; set enable_mergejoin = off; set enable_material = off; set enable_memoize = off";
const PRELOADED: Settings<'_> = &[("session_preload_libraries", "forebay")];

fn main() -> ExitCode {
    suite::run("effects", Path::new(env!("CARGO_TARGET_TMPDIR")), TESTS)
}

/// The extension, built with variables for make, in a directory of that name.
fn variant(case: &Case, name: &str, variables: &[&str]) -> Result<Extension, String> {
    let extension = case.extension.clone().ok_or("the extension has no Makefile")?;
    let build =
        extension.build.with_file_name(format!("forebay-{name}-{}", case.installation.major));
    let variables = variables.iter().map(ToString::to_string).collect();
    Ok(Extension { build, variables, ..extension })
}

fn serve(case: &Case) -> Result<Server, String> {
    serve_with(case, case.extension.as_ref().ok_or("the extension has no Makefile")?, "1MB")
}

fn serve_with(case: &Case, extension: &Extension, buffers: &str) -> Result<Server, String> {
    serve_on(Disk::Steady(60), case, extension, buffers)
}

fn serve_on(
    disk: Disk,
    case: &Case,
    extension: &Extension,
    buffers: &str,
) -> Result<Server, String> {
    // Row locks are not to become locks of whole relations.
    let settings = [
        ("shared_buffers", buffers),
        ("max_parallel_workers_per_gather", "0"),
        ("max_pred_locks_per_transaction", "4000"),
        // A checkpoint decides which pages are written to the log whole.
        ("checkpoint_timeout", "1h"),
    ];
    let server = Server::new(&case.installation, Some(extension), disk, &settings);
    let server = server.map_err(text)?;
    let mut session = connect(&server, &[])?;
    let _quick = server.quick_reads().map_err(text)?;
    must(&mut session, TABLES)?;
    for sql in ["vacuum analyze orders", "vacuum analyze items", "create extension forebay"] {
        must(&mut session, sql)?;
    }
    Ok(server)
}

/// A session in which [`JOIN`] is a nested loop over two index scans.
fn connect(server: &Server, settings: Settings<'_>) -> Result<Session, String> {
    let mut session = server.connect("postgres", settings).map_err(text)?;
    must(&mut session, PLAN)?;
    Ok(session)
}

/// What `act` returns without the extension and with it. In its session `control` is looked ahead of.
fn both<T>(
    server: &Server,
    control: &str,
    act: impl Fn(&mut Session) -> Result<T, String>,
) -> Result<[T; 2], String> {
    let stock = act(&mut connect(server, &[])?)?;
    let count = server.hint_count().map_err(text)?;
    let mut session = connect(server, PRELOADED)?;
    let before = count.now().map_err(text)?;
    must(&mut session, control)?;
    if count.now().map_err(text)? < before + 10 {
        return Err(format!("no look-ahead: {control}"));
    }
    Ok([stock, act(&mut session)?])
}

fn serializable(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let limited = format!("{JOIN} limit 400");
    let locks = "select relation::regclass, page, tuple from pg_locks where mode = 'SIReadLock' order by 1, 2, 3";
    let cursor =
        "declare c cursor for select note from items where id > 0 order by id; fetch 1080 from c";
    for (query, next) in [
        (limited.clone(), None),
        (format!("declare c cursor for {JOIN}; fetch 400 from c"), None),
        (JOIN.to_owned(), None),
        // A leaf that is in shared buffers is looked at ahead of the cursor, 18 rows before it comes there.
        (cursor.to_owned(), Some("fetch 10 from c")),
    ] {
        let [stock, ours] = both(&server, &limited, |session| {
            must(session, "begin isolation level serializable")?;
            must(session, &query)?;
            if let Some(next) = next {
                must(&mut connect(&server, &[])?, "select note from items where id = 1200")?;
                must(session, next)?;
            }
            let locks = must(session, locks)?;
            must(session, "commit")?;
            Ok(locks)
        })?;
        if stock.is_empty() || stock != ours {
            return Err(format!("{query}: {} locks, not {}", ours.len(), stock.len()));
        }
    }
    // Two transactions, each of which reads what the other writes if the rows that come next are read.
    let conflict = both(&server, &limited, |session| {
        let mut other = connect(&server, &[])?;
        must(session, &format!("begin isolation level serializable; {limited}"))?;
        must(&mut other, "begin isolation level serializable; select amount from stock")?;
        must(&mut other, "update orders set pad = pad where id between 402 and 440")?;
        must(session, "update stock set amount = amount + 1")?;
        Ok([session, &mut other].map(|it| it.run("commit").code().map(str::to_owned)))
    })?;
    equal("commits", conflict, [[None, None], [None, None]])
}

fn functions_see_settings(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let mut session = connect(&server, &[])?;
    must(&mut session, "set my.v = 'before'")?;
    let function = "create function seen(int) returns text language plpgsql stable leakproof as
        $$ begin return current_setting('my.v'); end $$";
    session.rows(function).map_err(text)?;
    for (from, to, name) in
        [("stable", "immutable", "fixed"), ("begin", "begin raise notice 'a row';", "observed")]
    {
        session.rows(&function.replace("seen", name).replace(from, to)).map_err(text)?;
    }
    let rows = "select o.id, o.v from (select id, item, seen(id) as v from orders order by id offset 0) o \
                join items i on i.id = o.item";
    session
        .rows(&format!("create function lazily() returns setof text language sql stable as $$ select v from ({rows}) q $$"))
        .map_err(text)?;
    session
        .rows(&format!(
            "create function by_loop() returns setof text language plpgsql as $$ declare one record; begin
             for one in {rows} loop return next one.v; perform set_config('my.v', one.id::text, false); end loop; end $$"
        ))
        .map_err(text)?;
    let fixed = format!("set my.v = 'a'; {} limit 700", rows.replace("seen", "fixed"));
    for script in [
        format!(
            "begin; declare c cursor for {rows}; move 700 from c; set my.v = 'after'; fetch 30 from c"
        ),
        // Each row is computed when the one before it has been returned, and has changed the setting.
        "begin; select v, set_config('my.v', n::text, false) from \
         (select lazily() as v, generate_series(1, 900) as n) q"
            .to_owned(),
        "begin; select by_loop()".to_owned(),
    ] {
        let [stock, ours] = both(&server, &fixed, |session| {
            must(session, "set my.v = 'before'")?;
            let rows = must(session, &script)?;
            must(session, "rollback")?;
            Ok(rows)
        })?;
        equal(&script, ours, stock)?;
    }
    let by_portal = both(&server, &fixed, |session| {
        must(session, "set my.v = 'before'")?;
        let query = rows.replace("o.id, o.v", "o.v");
        session.run_around(&query, 700, "set my.v = 'after'").map_err(text)
    })?;
    equal("a portal", &by_portal[1], &by_portal[0])?;
    let notices = |session: &mut Session| {
        must(session, "set my.v = 'a'")?;
        let outcome = session.run(&format!("{} limit 700", rows.replace("seen", "observed")));
        if outcome.error.is_some() {
            Err(format!("{outcome:?}"))
        } else {
            Ok(outcome.notices.len())
        }
    };
    let written = both(&server, &fixed, notices)?;
    equal("notices", written, [700, 700])
}

/// Hits and reads of all of a plan, as `explain (analyze, buffers)` shows them.
fn buffers(plan: &[String]) -> [u64; 2] {
    let line = plan.iter().find(|line| line.contains("Buffers: shared")).map_or("", String::as_str);
    ["hit=", "read="].map(|name| {
        let figure = line.split_once(name).map_or("", |(_, rest)| rest);
        figure.split(' ').next().unwrap_or_default().parse().unwrap_or(0)
    })
}

fn counters(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let figures = "select sum(pg_stat_get_xact_blocks_fetched(oid)), sum(pg_stat_get_xact_blocks_hit(oid)) \
                   from pg_class where relname in ('orders', 'orders_id', 'items', 'items_id')";
    let control = format!("{JOIN} limit 400");
    let count = server.hint_count().map_err(text)?;
    for (query, lost_max) in [
        (JOIN, 10),
        ("select o.id, i.id from orders o join items i on i.id = o.item order by o.id", 10),
        // A leaf that was read ahead is evicted before the scan reaches it.
        ("select note from items where id > 12000 order by id desc", 50),
        (
            "select id from items where id = any (array(select hashint4(g) & 16383 from generate_series(1, 500) g))",
            10,
        ),
    ] {
        let [stock, ours] = both(&server, &control, |session| {
            let explain = format!("explain (analyze, buffers, costs off, timing off) {query}");
            let plan = must(session, &explain)?;
            must(session, "begin")?;
            let numbers = |session: &mut Session| {
                let row = must(session, figures)?.join("");
                let numbers = row.split('|').map(|it| it.parse::<u64>().map_err(text));
                numbers.collect::<Result<Vec<u64>, String>>()
            };
            let (before, device) = (numbers(session)?, count.reads().map_err(text)?);
            must(session, query)?;
            let (after, device) = (numbers(session)?, count.reads().map_err(text)? - device);
            must(session, "commit")?;
            let [fetched, hits] = [0, 1].map(|at| after[at] - before[at]);
            // What is counted as read was, and the rest of what was is small: catalogs, say.
            let lost = device.checked_sub(fetched - hits).filter(|lost| *lost <= lost_max);
            lost.ok_or(format!("{query}: {} reads counted of {device}", fetched - hits))?;
            Ok([buffers(&plan).iter().sum(), fetched])
        })?;
        equal(query, ours, stock)?;
    }
    Ok(())
}

/// Rows of the index that scans have returned, and blocks prefetched in vain.
const WASTED: &str =
    "select rows, wasted from forebay_stat_indexes where indexrelname = 'items_id'";

fn run_condition(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let mut session = connect(&server, PRELOADED)?;
    let query = "select note from (select note, row_number() over (order by id) as n from items) q where n <= 600";
    let plan = must(&mut session, &format!("explain {query}"))?.join("\n");
    if case.installation.major < 15 {
        return equal(&plan, plan.contains("Run Condition"), false);
    }
    equal(&plan, plan.contains("Run Condition") && plan.contains("Index Scan"), true)?;
    equal("rows", must(&mut session, query)?.len(), 600)?;
    let counts = must(&mut session, WASTED)?.join("");
    let (rows, wasted) = counts.split_once('|').ok_or("the scan is not counted")?;
    let [rows, wasted] = [rows, wasted].map(|it| it.parse::<u64>().unwrap());
    if wasted <= rows / 10 { Ok(()) } else { Err(format!("{wasted} wasted for {rows} rows")) }
}

/// From 18 on EXCEPT does not read its right side to the end, unless it hashes.
fn except(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let mut session = connect(&server, PRELOADED)?;
    // Not vacuumed, so that the scan reads the heap too.
    let table = "create table late as select id, note from items order by hashint4(id);
        create index late_id on late (id); analyze late; set enable_hashagg = off";
    must(&mut session, table)?;
    let query = "select id from items where id < 600 except select id from late where id >= 0";
    let plan = must(&mut session, &format!("explain {query}"))?.join("\n");
    if case.installation.major < 18 {
        return Ok(());
    }
    equal(
        &plan,
        plan.contains("SetOp Except") && plan.matches("Index Only Scan").count() == 2,
        true,
    )?;
    equal("rows", must(&mut session, query)?.len(), 0)?;
    let counts = must(&mut session, &WASTED.replace("items_id", "late_id"))?.join("");
    let (rows, wasted) = counts.split_once('|').ok_or("the scan is not counted")?;
    let [rows, wasted] = [rows, wasted].map(|it| it.parse::<u64>().unwrap());
    if case.installation.major < 18 {
        return equal("rows", rows, 16_384);
    }
    // At most one block in ten that the right side has read.
    if rows < 700 && wasted <= 60 {
        Ok(())
    } else {
        Err(format!("{wasted} wasted for {rows} rows"))
    }
}

fn catalogs(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let mut session = connect(&server, PRELOADED)?;
    let query = "select relname from pg_class where oid = 'orders'::regclass";
    let plan = must(&mut session, &format!("explain {query}"))?.join("\n");
    equal(&plan, plan.contains("Index Scan"), true)?;
    must(&mut session, query)?;
    must(&mut session, "select note from items where id = 1")?;
    let seen = "select schemaname, relname from forebay_stat_indexes";
    equal("seen", must(&mut session, seen)?, vec!["public|items".to_owned()])
}

/// Builds the extension of wrapper.c for a server, and returns its path.
fn build_wrapper(case: &Case, server: &Server) -> Result<String, String> {
    let directory = server.data_directory();
    let (source, library) = (directory.join("wrapper.c"), directory.join("wrapper.so"));
    fs::write(&source, include_str!("wrapper.c")).map_err(text)?;
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let said = compile.arg("-I").arg(&case.installation.headers).output().map_err(text)?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.success() { Ok(library.display().to_string()) } else { Err(words) }
}

fn wrappers(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    let wrapper = build_wrapper(case, &server)?;
    let function = "create function calls() returns bigint language c";
    must(&mut connect(&server, &[])?, &format!("{function} as '{wrapper}', 'wrapper_calls'"))?;
    let bitmap = "set enable_indexscan = off; set enable_bitmapscan = on; \
                  select note from items where id < 200";
    let count = server.hint_count().map_err(text)?;
    for way in [1, 2] {
        let mut seen = Vec::new();
        for libraries in [vec![&wrapper[..]], vec![&wrapper, "forebay"], vec!["forebay", &wrapper]]
        {
            let mut session = connect(&server, &[])?;
            for library in &libraries {
                must(&mut session, &format!("load '{library}'"))?;
            }
            let mut calls = Vec::new();
            for query in
                [bitmap, "set enable_indexscan = on; set enable_bitmapscan = off", JOIN, JOIN]
            {
                must(&mut session, &format!("set wrapper.way = {way}"))?;
                must(&mut session, query)?;
                must(&mut session, "set wrapper.way = 0")?;
                calls.push(must(&mut session, "select calls()")?);
            }
            seen.push(calls);
            // What was around the first node of its kind is not taken for the server's own.
            let before = count.now().map_err(text)?;
            must(&mut session, bitmap)?;
            let hints = count.now().map_err(text)? - before;
            if case.installation.major < 18 && libraries.len() > 1 && hints < 50 {
                return Err(format!("{libraries:?}: {hints} hints for a bitmap scan"));
            }
        }
        equal("loaded before forebay", &seen[1], &seen[0])?;
        equal("loaded after it", &seen[2], &seen[0])?;
    }
    Ok(())
}
