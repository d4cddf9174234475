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

/// The records of heaps and indexes by the first transaction since `begin`, without positions and the numbers of files:
/// operation, place in the page, and blocks.
pub(crate) fn records(case: &Case, server: &Server, begin: &str) -> Result<Vec<String>, String> {
    let end = end(server)?;
    let mut dump = Command::new(case.installation.pg_config.with_file_name("pg_waldump"));
    dump.arg("--path").arg(server.data_directory().join("pg_wal")).args(["-s", begin, "-e", &end]);
    let output = dump.output().map_err(text)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut files = Vec::new();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let transaction = lines.lines().filter_map(transaction_of).find(|it| *it != "0");
    let own = lines.lines().filter(|line| transaction_of(line) == transaction);
    Ok(own.filter_map(|line| record(line, &mut files)).collect())
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
