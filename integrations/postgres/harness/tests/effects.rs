//! Look-ahead has no effect but on time: not on locks, on functions, on counters, nor on other extensions.
//!
//! Reads wait on these servers, and each test compares a session with the extension and one without.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;

use forebay_postgres_harness::suite::{self, Case, Test, equal, must, text};
use forebay_postgres_harness::{Disk, Server, Session, Settings};

const TESTS: &[Test] = &[
    ("serializable_queries_lock_and_conflict_as_without_it", serializable),
    ("functions_see_the_settings_of_their_rows", functions_see_settings),
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

fn serve(case: &Case) -> Result<Server, String> {
    let extension = case.extension.as_ref().ok_or("the extension has no Makefile")?;
    // Row locks are not to become locks of whole relations.
    let settings = [
        ("shared_buffers", "1MB"),
        ("max_parallel_workers_per_gather", "0"),
        ("max_pred_locks_per_transaction", "4000"),
    ];
    let server = Server::new(&case.installation, Some(extension), Disk::Steady(60), &settings);
    let server = server.map_err(text)?;
    let mut session = connect(&server, &[])?;
    must(&mut session, TABLES)?;
    for table in ["orders", "items", "stock"] {
        must(&mut session, &format!("vacuum analyze {table}"))?;
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
    for query in [
        limited.clone(),
        format!("declare c cursor for {JOIN}; fetch 400 from c"),
        // Leaves that are in shared buffers are looked at ahead of a cursor.
        "select sum(id) from items; declare c cursor for select note from items where id > 0 order by id; fetch 800 from c"
            .to_owned(),
        JOIN.to_owned(),
    ] {
        let [stock, ours] = both(&server, &limited, |session| {
            must(session, "begin isolation level serializable")?;
            must(session, &query)?;
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
    session
        .rows(&function.replace("seen", "fixed").replace("stable", "immutable"))
        .map_err(text)?;
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
    let fixed = format!("{} limit 700", rows.replace("seen", "fixed"));
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
        let [stock, ours] = both(&server, &format!("set my.v = 'a'; {fixed}"), |session| {
            must(session, "set my.v = 'before'")?;
            let rows = must(session, &script)?;
            must(session, "rollback")?;
            Ok(rows)
        })?;
        equal(&script, ours, stock)?;
    }
    Ok(())
}
