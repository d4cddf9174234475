//! What a command writes to the log, record by record.

use std::process::Command;

use forebay_postgres_harness::Server;
use forebay_postgres_harness::suite::{Case, equal, must, text};

use crate::connect;

/// The current end of the log.
pub(crate) fn end(server: &Server) -> Result<String, String> {
    let mut session = connect(server, &[])?;
    // Its commit flushes what a transaction that was rolled back has left.
    must(&mut session, "select pg_logical_emit_message(true, 'end', '')")?;
    Ok(must(&mut session, "select pg_current_wal_flush_lsn()")?.concat())
}

/// The records by the first transaction since `begin` about relations whose names match `relations`, without positions
/// and the numbers of files: operation, place in the page, and blocks.
pub(crate) fn records(
    case: &Case,
    server: &Server,
    begin: &str,
    relations: &str,
) -> Result<Vec<String>, String> {
    let end = end(server)?;
    let files =
        format!("select pg_relation_filenode(oid) from pg_class where relname ~ '{relations}'");
    let files = must(&mut connect(server, &[])?, &files)?;
    let mut dump = Command::new(case.installation.pg_config.with_file_name("pg_waldump"));
    dump.arg("--path").arg(server.data_directory().join("pg_wal")).args(["-s", begin, "-e", &end]);
    let output = dump.output().map_err(text)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut numbers = Vec::new();
    // A catalog's page is pruned by the first session that reads it.
    let is_listed = |line: &&str| {
        let file = line.split_once(" rel ").and_then(|(_, rest)| rest.split(' ').next());
        file.and_then(|file| file.rsplit('/').next())
            .is_some_and(|it| files.iter().any(|f| f == it))
    };
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let transaction = lines.lines().filter_map(transaction_of).find(|it| *it != "0");
    let own = lines.lines().filter(|line| transaction_of(line) == transaction).filter(is_listed);
    Ok(own.filter_map(|line| record(line, &mut numbers)).collect())
}

/// Compares stock with forebay until both are equal, three times at most: which pages a vacuum marks, and what the free
/// space map remembers, depends on what else is going on, and is visible in counters.
pub(crate) fn some_equal(mut compare: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let mut outcome = compare();
    for _ in 1..3 {
        if outcome.is_ok() {
            break;
        }
        outcome = compare();
    }
    outcome
}

/// Compares the records of two runs of a command.
pub(crate) fn same(what: &str, ours: &[String], stock: &[String]) -> Result<(), String> {
    let differs = stock.iter().zip(ours).find(|(stock, ours)| stock != ours);
    equal(what, (ours.len(), differs), (stock.len(), None))?;
    equal(what, ours.len() > 500, true)
}

/// The transaction of a record; 0 if it has none.
fn transaction_of(line: &str) -> Option<&str> {
    line.split_once(" tx:")?.1.split(',').next().map(str::trim)
}

fn record(line: &str, files: &mut Vec<String>) -> Option<String> {
    let (head, description) = line.split_once("desc: ")?;
    let manager = head.strip_prefix("rmgr: ")?.split_whitespace().next()?;
    if !["Heap", "Heap2", "Btree"].contains(&manager) {
        return None;
    }
    let operation = description.split_whitespace().next()?;
    let mut words = description.split([' ', ',']).filter(|word| !word.is_empty());
    let mut record = format!("{manager} {operation}");
    while let Some(word) = words.next() {
        match word {
            "rel" => {
                let file = words.next()?;
                let number = files.iter().position(|it| it == file).unwrap_or_else(|| {
                    files.push(file.to_owned());
                    files.len() - 1
                });
                record += &format!(" file {number}");
            }
            "off" | "off:" | "blk" => record += &format!(" {word} {}", words.next()?),
            "FPW" => record += " FPW",
            _ => {}
        }
    }
    Some(record)
}
