//! A session, and everything that a client can see of what a statement did.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use postgres::config::Config;
use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::{Error, Result};

/// A connection, and the process behind it.
pub struct Session {
    client: Client,
    notices: Receiver<String>,
    process: u32,
    config: Config,
}

/// What a client sees of one statement; two that are equal cannot be distinguished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Each row as text, its columns between bars, `~` for null, in the order of their arrival.
    pub rows: Vec<String>,
    /// The figure of each command tag.
    pub counts: Vec<u64>,
    /// Notices and warnings, in their order: `severity SQLSTATE: message`.
    pub notices: Vec<String>,
    /// SQLSTATE and message of the error that ended it.
    pub error: Option<(String, String)>,
}

/// How two outcomes differ first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Outcome {
    /// The first difference between this and `other`; rows as a set with repetitions where they have no `order`.
    ///
    /// # Errors
    /// They differ.
    pub fn same(&self, other: &Outcome, order: bool) -> std::result::Result<(), Difference> {
        let differ = |what: &str, left: &dyn fmt::Debug, right: &dyn fmt::Debug| {
            Err(Difference(format!("{what}: {left:?} and {right:?}")))
        };
        if self.error != other.error {
            return differ("error", &self.error, &other.error);
        }
        let sorted = |rows: &[String]| {
            let mut rows = rows.to_owned();
            if !order {
                rows.sort_unstable();
            }
            rows
        };
        let (left, right) = (sorted(&self.rows), sorted(&other.rows));
        for (index, (left, right)) in left.iter().zip(&right).enumerate() {
            if left != right {
                return differ(&format!("row {index}"), left, right);
            }
        }
        if left.len() != right.len() {
            return differ("number of rows", &left.len(), &right.len());
        }
        if self.counts != other.counts {
            return differ("command tag", &self.counts, &other.counts);
        }
        if self.notices != other.notices {
            return differ("notices", &self.notices, &other.notices);
        }
        Ok(())
    }

    /// The SQLSTATE of its error.
    pub fn code(&self) -> Option<&str> {
        self.error.as_ref().map(|(code, _)| code.as_str())
    }
}

impl Session {
    pub(crate) fn connect(config: &mut Config) -> Result<Session> {
        let (sender, notices) = channel();
        config.notice_callback(move |notice| {
            let code = notice.code().code();
            // No thread listens when the session has ended.
            let _ = sender.send(format!("{} {code}: {}", notice.severity(), notice.message()));
        });
        let mut client = config.connect(NoTls)?;
        let process = client.query_one("select pg_backend_pid()", &[])?.get::<_, i32>(0);
        Ok(Session { client, notices, process: process.unsigned_abs(), config: config.clone() })
    }

    /// Runs `sql`, one statement or several, and gathers what it does.
    pub fn run(&mut self, sql: &str) -> Outcome {
        let mut outcome = Outcome::default();
        match self.client.simple_query(sql) {
            Ok(messages) => {
                for message in messages {
                    outcome.add(&message);
                }
            }
            Err(error) => {
                outcome.error = Some(seen(&error));
                // An error is sent before its transaction is cleaned up; the next statement waits for that.
                let _ = self.client.simple_query("");
            }
        }
        outcome.notices = self.notices.try_iter().collect();
        outcome
    }

    /// Runs `query` by the extended protocol, a portal from which `step` rows are fetched at a time.
    ///
    /// Its rows are one text column: the harness knows no other type.
    pub fn run_in_steps(&mut self, query: &str, step: i32) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(error) = self.steps(query, step, &mut outcome) {
            outcome.error = Some(seen(&error));
        }
        outcome.notices = self.notices.try_iter().collect();
        outcome
    }

    fn steps(
        &mut self,
        query: &str,
        step: i32,
        outcome: &mut Outcome,
    ) -> std::result::Result<(), postgres::Error> {
        let mut transaction = self.client.transaction()?;
        let portal = transaction.bind(query, &[])?;
        loop {
            let rows = transaction.query_portal(&portal, step)?;
            outcome.counts.push(rows.len() as u64);
            if rows.is_empty() {
                break;
            }
            let text = |row: &postgres::Row| row.get::<_, Option<String>>(0);
            outcome.rows.extend(rows.iter().map(|row| text(row).unwrap_or_else(|| "~".to_owned())));
        }
        transaction.commit()
    }

    /// Runs `query` by the extended protocol: `first` rows of a portal, then `between`, then the portal's other rows.
    ///
    /// Its rows are one text column.
    ///
    /// # Errors
    /// One of the statements fails.
    pub fn run_around(&mut self, query: &str, first: i32, between: &str) -> Result<Vec<String>> {
        let mut transaction = self.client.transaction()?;
        let portal = transaction.bind(query, &[])?;
        let mut rows = transaction.query_portal(&portal, first)?;
        transaction.batch_execute(between)?;
        rows.extend(transaction.query_portal(&portal, 0)?);
        transaction.commit()?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Runs `sql`, which another connection cancels `after` a while if it has not ended by then. A cancel that comes too
    /// late meets an idle session, which ignores it.
    pub fn run_cancelled(&mut self, sql: &str, after: Duration) -> Outcome {
        let mut other = match self.config.connect(NoTls) {
            Ok(other) => other,
            Err(error) => return Outcome { error: Some(seen(&error)), ..Outcome::default() },
        };
        // Unlike a cancel request of the protocol, the signal has been sent when this returns.
        let cancel = format!("select pg_cancel_backend({})", self.process);
        std::thread::scope(|scope| {
            let (over, wait) = channel::<()>();
            scope.spawn(move || {
                if wait.recv_timeout(after).is_err() {
                    // The session itself may have ended.
                    let _ = other.simple_query(&cancel);
                }
            });
            let outcome = self.run(sql);
            let _ = over.send(());
            outcome
        })
    }

    /// Runs `sql`, which must succeed, and gives its rows.
    ///
    /// # Errors
    /// It fails.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<String>> {
        let mut outcome = Outcome::default();
        for message in self.client.simple_query(sql)? {
            outcome.add(&message);
        }
        Ok(outcome.rows)
    }

    /// The number of the server's process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Bytes of memory that the server's process has for itself, shared buffers left out.
    ///
    /// # Errors
    /// The process has ended, or another user's.
    pub fn private_memory(&self) -> Result<u64> {
        let path = PathBuf::from(format!("/proc/{}/status", self.process));
        let status = fs::read_to_string(&path).map_err(Error::file(&path))?;
        let figure = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = figure.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        let missing = || std::io::Error::other("no line RssAnon");
        kib.map(|it| it << 10).ok_or_else(missing).map_err(Error::file(&path))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Outcome {
    fn add(&mut self, message: &SimpleQueryMessage) {
        match message {
            SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|column| row.get(column).unwrap_or("~"));
                self.rows.push(columns.collect::<Vec<_>>().join("|"));
            }
            SimpleQueryMessage::CommandComplete(count) => self.counts.push(*count),
            _ => {}
        }
    }
}

fn seen(error: &postgres::Error) -> (String, String) {
    match error.as_db_error() {
        Some(db) => (db.code().code().to_owned(), db.message().to_owned()),
        None => ("connection".to_owned(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&str]) -> Outcome {
        Outcome { rows: rows.iter().map(ToString::to_string).collect(), ..Outcome::default() }
    }

    #[test]
    fn a_row_changed_missing_or_elsewhere_is_seen() {
        let first = rows(&["1|a", "2|b"]);
        for (other, words) in [
            (rows(&["1|a", "2|c"]), r#"row 1: "2|b" and "2|c""#),
            (rows(&["1|a"]), "number of rows: 2 and 1"),
            (rows(&["2|b", "1|a"]), r#"row 0: "1|a" and "2|b""#),
        ] {
            assert_eq!(first.same(&other, true).unwrap_err().to_string(), words);
        }
        assert_eq!(first.same(&rows(&["2|b", "1|a"]), false), Ok(()));
    }

    #[test]
    fn errors_tags_and_notices_count() {
        let plain = rows(&["1"]);
        let error = Outcome { error: Some(("22012".into(), "x".into())), ..plain.clone() };
        let tag = Outcome { counts: vec![1], ..plain.clone() };
        let notice = Outcome { notices: vec!["NOTICE 00000: x".into()], ..plain.clone() };
        for other in [error, tag, notice] {
            assert!(plain.same(&other, false).is_err());
        }
    }
}
