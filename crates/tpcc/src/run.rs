//! Terminals that execute transactions for some time, each in a thread, and group commit.
//!
//! With a log, a terminal appends its commit and goes on; one more thread makes all that is appended durable, once a
//! millisecond. A transaction counts when its commit is durable.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_btree::{Database, Error};

use crate::schema::Tables;
use crate::store::Store;
use crate::transactions::{Done, Terminal};

/// A terminal waits when it has this many transactions that are not durable.
const WAITING_MAX: usize = 10_000;
/// How long the thread of the log waits before it makes what is appended durable: longer is less work, and later commits.
const LOG_INTERVAL: Duration = Duration::from_millis(1);

/// Who runs, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Warehouses that are loaded.
    pub warehouses: u32,
    /// Terminals, a thread each.
    pub terminals: u32,
    /// The number of the first terminal: they must not be those of an earlier run on the same tables; at least 1.
    pub first_terminal: u32,
    /// Seconds.
    pub seconds: u32,
    /// Of all random numbers.
    pub seed: u64,
}

/// How far a run is.
pub trait Progress: Sync {
    /// A transaction is done, with a log durable.
    fn done(&self, done: Done) {
        let _ = done;
    }

    /// A second has passed, with so many transactions. Returns false to end the run.
    fn second(&self, transactions: u64) -> bool {
        let _ = transactions;
        true
    }
}

/// Runs terminals on the tables of `store`. Returns the number of transactions in each second.
///
/// # Errors
/// Those of a tree or of the log.
pub fn run(store: &Store, run: Run, progress: &impl Progress) -> Result<Vec<u64>, Error> {
    let database = store.database();
    let (ends, log_ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let (count, failed) = (AtomicU64::new(0), Mutex::new(None));
    let fail = |error| {
        *failed.lock().expect("nothing panics with it") = Some(error);
        ends.store(true, Ordering::Relaxed);
    };
    let terminal = |number: u32| {
        let tables = Tables(store.trees());
        let seed = run.seed ^ u64::from(number) << 32;
        let mut terminal = Terminal::new(tables, number, run.warehouses, seed);
        let mut waiting = VecDeque::new();
        let report = |done| {
            count.fetch_add(1, Ordering::Relaxed);
            progress.done(done);
        };
        while !ends.load(Ordering::Relaxed) {
            let done = terminal.execute()?;
            let Some(database) = database else {
                report(done);
                continue;
            };
            waiting.push_back((database.commit(&number.to_le_bytes()), done));
            if waiting.len() > WAITING_MAX {
                database.flush(waiting[0].0)?;
            }
            let durable = database.durable();
            while let Some((_, done)) = waiting.pop_front_if(|(lsn, _)| *lsn <= durable) {
                report(done);
            }
        }
        Ok(())
    };
    let keep_durable = |database: &Database| {
        while !log_ends.load(Ordering::Relaxed) {
            thread::sleep(LOG_INTERVAL);
            database.flush(database.log_bytes())?;
        }
        database.flush(database.log_bytes())?;
        Ok(())
    };
    let seconds = thread::scope(|scope| {
        let terminals: Vec<_> = (run.first_terminal..run.first_terminal + run.terminals)
            .map(|number| scope.spawn(move || terminal(number).unwrap_or_else(fail)))
            .collect();
        let log = database
            .map(|database| scope.spawn(move || keep_durable(database).unwrap_or_else(fail)));
        let mut seconds = Vec::new();
        let start = Instant::now();
        for second in 1..=run.seconds {
            let until = start + Duration::from_secs(second.into());
            thread::sleep(until.saturating_duration_since(Instant::now()));
            seconds.push(count.swap(0, Ordering::Relaxed));
            let goes_on = progress.second(*seconds.last().expect("one was pushed"));
            if !goes_on || ends.load(Ordering::Relaxed) {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        for terminal in terminals {
            terminal.join().expect("no terminal panics");
        }
        log_ends.store(true, Ordering::Relaxed);
        if let Some(log) = log {
            log.join().expect("the log's thread does not panic");
        }
        seconds
    });
    match failed.into_inner().expect("nothing panics with it") {
        Some(error) => Err(error),
        None => Ok(seconds),
    }
}
