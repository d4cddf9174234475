//! With the extension nothing is different: scripts from a seed, executed with and without it.
//!
//! Scripts that may change things run in two databases made from one template, which have the same history, so that
//! rows come in the same order; while others write, both sides read one database under one snapshot, rows compared as
//! a set with repetitions. Each chapter of scripts has its own seed and databases: a difference is found again
//! by its chapter alone. The data is several times the shared buffers, so that pages are read, evicted and read again.
//!
//! The server's log must stay clean, no page may stay pinned, and a backend that scans must not grow.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod grammar;
mod memory;
mod pair;
mod planted;
mod readers;
mod scripts;

use std::path::Path;
use std::process::ExitCode;

use forebay_postgres_harness::suite::{self, Case, Test, text};
use forebay_postgres_harness::{Disk, Mark, Server};

use pair::{Counts, Load, Pair, connect, must};
use scripts::Scripts;

/// A device, as far as the extension can see: a read from the page cache takes a few microseconds.
const SLOW: Disk = Disk::Slow(30);

/// Scripts that share databases, and a seed.
const CHAPTER: usize = 125;

const TESTS: &[Test] = &[
    ("scripts_do_the_same_with_and_without_it", scripts_do_the_same),
    ("readers_see_the_same_while_others_write", readers::see_the_same),
    ("a_hundred_thousand_scans_need_no_more_memory", memory::does_not_grow),
    ("a_planted_difference_is_found", planted::is_found),
];

fn main() -> ExitCode {
    suite::run("differential", Path::new(env!("CARGO_TARGET_TMPDIR")), TESTS)
}

/// A server for `case`, with the template in it.
pub(crate) fn serve(case: &Case) -> Result<Server, String> {
    let mut settings = vec![
        ("shared_buffers", "2MB"),
        ("max_wal_size", "256MB"),
        // Where one scan has stopped, the next would begin: another order for one of two databases.
        ("synchronize_seqscans", "off"),
        ("max_parallel_workers", "4"),
        // Rows that sort alike come as workers bring them: scripts that allow it enable workers.
        ("max_parallel_workers_per_gather", "0"),
        ("deadlock_timeout", "100ms"),
    ];
    if case.installation.major >= 18 && case.seed % 2 == 1 {
        settings.push(("io_method", "sync"));
    }
    let server =
        Server::new(&case.installation, case.extension.as_ref(), SLOW, &settings).map_err(text)?;
    pair::make_world(&server)?;
    Ok(server)
}

/// How sessions of the chapter that starts with `seed` get the extension.
pub(crate) fn load(case: &Case, seed: u64) -> Load {
    match (&case.extension, seed % 2) {
        (None, _) => Load::Nothing,
        (Some(_), 0) => Load::Preloaded,
        (Some(_), _) => Load::ByHand,
    }
}

fn scripts_do_the_same(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    // A quarter of them are for readers with concurrent writers.
    let mut left = case.queries.div_ceil(4) * 3;
    let mut seed = case.seed;
    let mut counts = Counts::default();
    while left > 0 {
        let count = left.min(CHAPTER);
        let compared = chapter(&server, case, seed, count).map_err(|why| {
            let version = &case.installation.version;
            format!(
                "{version}, FOREBAY_PG_SEED={seed} FOREBAY_PG_QUERIES={}: {why}",
                CHAPTER.div_ceil(3) * 4
            )
        })?;
        counts.add(compared);
        seed += 1;
        left -= count;
    }
    eprintln!("{}: {counts:?}", case.installation.version);
    if case.extension.is_some() && counts.gained < 5 * case.queries as u64 {
        return Err(format!("{} blocks hinted: it has hardly looked ahead", counts.gained));
    }
    Ok(())
}

/// Runs `count` scripts from `seed`.
pub(crate) fn chapter(
    server: &Server,
    case: &Case,
    seed: u64,
    count: usize,
) -> Result<Counts, String> {
    let mark = server.mark_log().map_err(text)?;
    let mut pair = Pair::new(server, load(case, seed), seed)?;
    let mut scripts = Scripts::new(seed, server.major(), pair::collations(server)?);
    for index in 0..count {
        let script = scripts.next();
        pair.run(&script).map_err(|why| format!("script {index}: {why}"))?;
    }
    pair.check_tables()?;
    no_pins(server)?;
    clean_log(server, mark)?;
    Ok(pair.counts)
}

/// Says what the server had to say since `mark` that it should not have.
pub(crate) fn clean_log(server: &Server, mark: Mark) -> Result<(), String> {
    let findings = server.findings(mark).map_err(text)?;
    match findings.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("{} findings in the log, the first:\n{}", findings.len(), first.0))
        }
    }
}

/// Says which pages are pinned though no statement runs.
pub(crate) fn no_pins(server: &Server) -> Result<(), String> {
    let mut session = connect(server, "postgres", Load::Nothing)?;
    must(&mut session, "create extension if not exists pg_buffercache")?;
    let sql = "select count(*) from pg_buffercache where pinning_backends > 0 and reldatabase <> \
               (select oid from pg_database where datname = current_database()) and reldatabase <> 0";
    let pinned = session.rows(sql).map_err(text)?;
    if pinned == ["0"] {
        Ok(())
    } else {
        Err(format!("pinned pages with no statement running: {pinned:?}"))
    }
}
