//! The server's log: what of it no test may cause.

use std::fs;

use crate::{Error, Result, Server};

/// A place in the log: what is before it is of no concern.
#[derive(Debug, Clone, Copy)]
pub struct Mark(pub(crate) usize);

impl Mark {
    /// The beginning of the log.
    pub const START: Mark = Mark(0);
}

/// A line of the log that should not be there, with what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding(pub String);

impl Server {
    /// The end of the log at this moment.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn mark_log(&self) -> Result<Mark> {
        Ok(Mark(self.log()?.len()))
    }

    /// What was logged since `mark` and is a fault of the server or of something loaded into it: crashes, internal
    /// and system errors, and warnings, which is how leaked pins, references and locks are reported.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn findings(&self, mark: Mark) -> Result<Vec<Finding>> {
        let log = self.log()?;
        Ok(findings(&log[mark.0..]))
    }

    /// The whole log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log(&self) -> Result<String> {
        let path = self.log_path();
        let bytes = fs::read(&path).map_err(Error::file(&path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// SQLSTATEs of warnings that a client's own statements cause: COMMIT or ROLLBACK outside of a transaction, SET LOCAL too.
const OF_CLIENTS: [&str; 2] = ["25P01", "25001"];

/// Internal errors that PostgreSQL has without us too: a scrollable cursor over LIMIT that is moved back (18.6, seed 2738510188 of the
/// scripts). That both sides have them is compared with the rest of a statement's outcome.
const OF_POSTGRES: [&str; 1] = ["LIMIT subplan failed to run backwards"];

fn findings(log: &str) -> Vec<Finding> {
    let lines: Vec<&str> = log.lines().collect();
    let bad = lines.iter().enumerate().filter(|(_, line)| is_bad(line));
    bad.map(|(index, _)| Finding(lines[index..lines.len().min(index + 4)].join("\n"))).collect()
}

fn is_bad(line: &str) -> bool {
    if line.contains("TRAP: ") || line.contains("was terminated by signal") {
        return true;
    }
    // What has no prefix is the rest of a line before, or a library's own words, such as malloc's.
    let Some((code, rest)) = line.split_once("] ").and_then(|(_, rest)| rest.split_once(' '))
    else {
        return line.contains("corrupt") || line.contains("invalid pointer");
    };
    let Some((severity, message)) = rest.split_once(":  ") else { return false };
    match severity {
        "PANIC" => true,
        // Ended by the harness or an administrator, or connecting while the server stops.
        "FATAL" => !matches!(code, "57P01" | "57P03"),
        "ERROR" => {
            ["XX", "58", "53"].iter().any(|class| code.starts_with(class))
                && !OF_POSTGRES.contains(&message)
        }
        "WARNING" => !OF_CLIENTS.contains(&code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_a_clients_own_errors_are_not() {
        let at = "2026-11-22 16:00:00.000 UTC [12] ";
        let line = |rest: &str| format!("{at}{rest}\n");
        let log = [
            line("00000 LOG:  database system is ready to accept connections"),
            line("22012 ERROR:  division by zero"),
            line("01000 WARNING:  buffer refcount leak: [005] (rel=base/5/1, refcount=1 1)"),
            line("XX000 ERROR:  cache lookup failed for relation 1"),
            line("XX000 ERROR:  LIMIT subplan failed to run backwards"),
            line("25P01 WARNING:  there is no transaction in progress"),
            line("57P01 FATAL:  terminating connection due to administrator command"),
            line("00000 LOG:  server process (PID 7) was terminated by signal 11"),
            line("08P01 FATAL:  invalid frontend message type 1"),
        ];
        let found = findings(&log.concat());
        let words: Vec<&str> = found.iter().map(|it| &it.0[at.len()..][..10]).collect();
        assert_eq!(words, ["01000 WARN", "XX000 ERRO", "00000 LOG:", "08P01 FATA"]);
    }
}
