//! A backend that is killed while it looks ahead: after recovery, the indexes agree with the table, and rows that were
//! acknowledged are there.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Server, Session};
use rustix::process::{Pid, Signal, kill_process};

use crate::{PRELOADED, connect, serve_with};

const TABLES: &[&str] = &[
    "create extension amcheck",
    "create table parent (id int primary key, pad text)",
    "insert into parent select g, repeat('p', 300) from generate_series(1, 3000) g",
    "create table loaded (run int, key text primary key, parent int references parent)",
    "create index on loaded (parent, key)",
    "insert into loaded select 0, md5(g::text) || repeat('k', 150), g % 3000 + 1 from generate_series(1, 6000) g",
];
/// Rows of one command, whose number is in place of `?`.
const COMMANDS: &[&str] = &[
    "copy (select ?, md5((? * 10000 + g)::text) || repeat('k', 150), hashint4(g) & 2047 from generate_series(1, 1000) g
           where hashint4(g) & 2047 > 0) to program 'cat > rows'; copy loaded from program 'cat rows'",
    "insert into loaded select ?, md5((? * 10000 + g)::text) || repeat('k', 150), (hashint4(g) & 2047) + 1
         from generate_series(1, 1000) g",
];
const PATIENCE: Duration = Duration::from_secs(120);

/// A session, once the server has recovered.
fn recovered(server: &Server) -> Result<Session, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match server.connect("postgres", &[]) {
            Ok(session) => return Ok(session),
            Err(error) if Instant::now() > until => return Err(text(error)),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Runs commands until the process is killed, and reports each that is acknowledged. Returns the numbers of those that were acknowledged, and of the last one.
fn write_until_killed(session: &mut Session, first: u64, written: &Sender<()>) -> (Vec<u64>, u64) {
    let mut acknowledged = Vec::new();
    for number in first.. {
        let command = COMMANDS[number as usize % COMMANDS.len()];
        if session.run(&command.replace('?', &number.to_string())).error.is_some() {
            return (acknowledged, number);
        }
        acknowledged.push(number);
        written.send(()).ok();
    }
    unreachable!("the range has no end")
}

pub(crate) fn lose_nothing(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "2MB")?;
    let mut owner = connect(&server, &[])?;
    for sql in TABLES {
        must(&mut owner, sql)?;
    }
    let count = server.hint_count().map_err(text)?;
    let mut acknowledged = Vec::new();
    let mut next = 1;
    // The long step runs with 2,000 queries.
    let rounds = if case.queries < 1000 { 2 } else { 100 };
    for round in 0..rounds {
        let mut session = connect(&server, PRELOADED)?;
        let process = Pid::from_raw(session.process().cast_signed()).ok_or("no process")?;
        let after = Duration::from_micros(
            fastrand::Rng::with_seed(case.seed + round as u64).u64(20_000..900_000),
        );
        let (written, first) = mpsc::channel();
        let killer = thread::spawn(move || {
            // However slow the machine is, one command ends first.
            first.recv().ok();
            thread::sleep(after);
            kill_process(process, Signal::KILL)
        });
        let (done, last) = write_until_killed(&mut session, next, &written);
        drop(written);
        killer.join().map_err(|_| "the killer panicked")?.map_err(text)?;
        acknowledged.extend(done);
        next = last + 1;
        let mut owner = recovered(&server)?;
        let runs = must(&mut owner, "select distinct run from loaded where run > 0 order by run")?;
        let missing = acknowledged.iter().find(|run| !runs.contains(&run.to_string()));
        equal("a command that was acknowledged and is missing", missing, None)?;
        must(
            &mut owner,
            "select bt_index_check(indexrelid, true) from pg_index where indrelid = 'loaded'::regclass",
        )?;
    }
    let hints = count.now().map_err(text)?;
    if acknowledged.is_empty() || hints == 0 {
        return Err(format!("{} commands, {hints} blocks prefetched", acknowledged.len()));
    }
    Ok(())
}
