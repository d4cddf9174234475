//! Readers with concurrent writers: both sides under one snapshot, in one database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastrand::Rng;
use forebay_postgres_harness::suite::{Case, text};
use forebay_postgres_harness::{Server, Session};

use crate::pair::{Load, Pair, connect, make_database, must};
use crate::scripts::Scripts;
use crate::{clean_log, load, no_pins, serve};

const DATABASE: &str = "shared";
/// Scripts under one snapshot: old enough for many of its rows to be dead to everyone else.
const SNAPSHOT: usize = 12;
const WRITERS: u64 = 2;

pub(crate) fn see_the_same(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    make_database(&server, DATABASE)?;
    let mark = server.mark_log().map_err(text)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        let writers: Vec<_> = (0..WRITERS)
            .map(|it| scope.spawn(move || write(server, case.seed ^ (it + 1), stop)))
            .collect();
        let read = read(server, case);
        stop.store(true, Ordering::Relaxed);
        let mut changes = 0;
        for writer in writers {
            changes += writer.join().map_err(|_| "a writer panicked".to_owned())??;
        }
        read?;
        if changes == 0 { Err("no writer changed anything".to_owned()) } else { Ok(()) }
    })
    .map_err(|why: String| format!("FOREBAY_PG_SEED={}: {why}", case.seed))?;
    no_pins(&server)?;
    clean_log(&server, mark)
}

fn read(server: &Server, case: &Case) -> Result<(), String> {
    let load = load(case, case.seed);
    let mut pair = Pair::within(server, [DATABASE; 2], load, case.seed)?;
    let mut scripts = Scripts::new(case.seed, server.major(), Vec::new());
    let mut cuts = 0;
    for index in 0..case.queries.div_ceil(4) {
        if index % SNAPSHOT == 0 {
            under_one_snapshot(&mut pair)?;
        }
        if index % 4 == 3 {
            cuts += usize::from(pair.cut(&scripts.cut())?);
        }
        pair.read(&scripts.reader()).map_err(|why| format!("reader {index}: {why}"))?;
    }
    eprintln!("{}: {cuts} statements were cut; {:?}", server.major(), pair.counts);
    pair.sessions.iter_mut().try_for_each(|session| must(session, "rollback"))
}

fn under_one_snapshot(pair: &mut Pair) -> Result<(), String> {
    let [stock, ours] = &mut pair.sessions;
    for session in [&mut *stock, &mut *ours] {
        session.run("rollback");
        must(session, "begin isolation level repeatable read")?;
    }
    let snapshot = stock.rows("select pg_export_snapshot()").map_err(text)?;
    must(ours, &format!("set transaction snapshot '{}'", snapshot.join("")))
}

/// Changes rows, and now and then indexes, until it is stopped; says how many statements succeeded.
fn write(server: &Server, seed: u64, stop: &AtomicBool) -> Result<usize, String> {
    let mut session = connect(server, DATABASE, Load::Nothing)?;
    // A definition waits for readers, and everyone behind it would, too.
    must(&mut session, "set lock_timeout = '20ms'")?;
    let mut rng = Rng::with_seed(seed);
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let sql = change(&mut rng);
        done += usize::from(attempt(&mut session, &sql)?);
    }
    Ok(done)
}

/// # Errors
/// It fails for another reason than what others do to the same rows and tables.
fn attempt(session: &mut Session, sql: &str) -> Result<bool, String> {
    let outcome = session.run(sql);
    match outcome.code() {
        None => Ok(true),
        // Deadlock, lock timeout, key there or not, index being dropped or there already, no row for a check.
        Some("40P01" | "55P03" | "23505" | "42P07" | "42704" | "40001" | "42P01" | "XX000")
            if !crashed(&outcome.error) =>
        {
            // What began a transaction has not ended it.
            session.run("rollback");
            Ok(false)
        }
        Some(_) => Err(format!("a writer's `{sql}`: {:?}", outcome.error)),
    }
}

fn crashed(error: &Option<(String, String)>) -> bool {
    error.as_ref().is_some_and(|(code, message)| code == "XX000" && !message.contains("concurrent"))
}

fn change(rng: &mut Rng) -> String {
    let id = rng.u16(1..16000);
    let a = id % 400;
    match rng.u8(..40) {
        0 => "vacuum item".to_owned(),
        1 => "vacuum child".to_owned(),
        2 => "analyze".to_owned(),
        3 => "create index extra_a on item (a, id)".to_owned(),
        4 => "drop index extra_a".to_owned(),
        5 => "create index concurrently extra_k on child (k, item)".to_owned(),
        6 => "drop index extra_k".to_owned(),
        7 => "reindex index child_item".to_owned(),
        8..=14 => format!("update item set a = (a + 1) % 400 where id between {id} and {id} + 20"),
        15..=19 => format!("update item set note = note where a = {a}"),
        20..=24 => format!("delete from child where item = {id}"),
        25..=29 => {
            format!("update child set k = (k + 7) % 1000 where item between {id} and {id} + 9")
        }
        30..=33 => format!(
            "insert into child select {id} * 100 + g + 100000, {id} + g, g, 1, null, '' from generate_series(1, 20) g on conflict do nothing"
        ),
        34 | 35 => format!(
            "begin; delete from item where id = {id}; insert into item (id, a, b, c, note) values ({id}, {a}, 3, 'again', ''); commit"
        ),
        36 | 37 => format!("begin; update item set b = 1 where a = {a}; rollback"),
        _ => format!("update part set k = (k + 350) % 1000 where id = {}", id % 9000),
    }
}
