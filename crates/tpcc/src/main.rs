//! `forebay-tpcc`: TPC-C on Forebay's B+tree.
//!
//! ```sh
//! cargo run --release -p forebay-tpcc -- load /tmp/tpcc --warehouses 20
//! cargo run --release -p forebay-tpcc -- run /tmp/tpcc --memory 1GiB --seconds 30
//! cargo run --release -p forebay-tpcc -- run /tmp/tpcc --memory 1GiB --seconds 30 --log   # may be killed at any time
//! cargo run --release -p forebay-tpcc -- check /tmp/tpcc
//! ```
//!
//! Exit codes: 0 done; 1 something failed, or the tables are not consistent; 2 bad input; 130 interrupted.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use forebay_btree::Database;
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::output::note;
use forebay_measure::units::{parse_size, shown_size};
use forebay_measure::{BadInput, bad_input};
use forebay_tpcc::{Done, NAMES, Progress, Run, Store};

/// TPC-C on Forebay's B+tree
#[derive(Debug, Parser)]
#[command(name = "forebay-tpcc", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the tables, without a log
    Load(Load),
    /// Execute transactions
    Run(RunArgs),
    /// Check that the tables are consistent, after recovering them if they have a log
    Check(Place),
}

#[derive(Debug, Args)]
struct Place {
    /// Directory of the tables
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GiB")]
    memory: u64,
}

#[derive(Debug, Args)]
struct Load {
    #[command(flatten)]
    place: Place,
    /// Warehouses, of about 100 MB each
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warehouses: u32,
    /// Threads
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    place: Place,
    /// Terminals, each with a thread
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    terminals: u32,
    /// Duration
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Log all changes, protect pages from being torn, and count a transaction when its commit is durable. The tables have a log
    /// from then on
    #[arg(long)]
    log: bool,
    /// Take a checkpoint when the log has grown by this much
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GiB", requires = "log")]
    checkpoint_log: u64,
    /// Read as much into memory as fits first
    #[arg(long)]
    warm: bool,
    /// Print each order and payment when it is durable: for tests that kill this program
    #[arg(long)]
    acknowledge: bool,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let result = interrupt::install().and_then(|()| match command {
        Command::Load(args) => load(&args),
        Command::Run(args) => run(&args),
        Command::Check(place) => check(&place),
    });
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        note("interrupted");
        return ExitCode::from(130);
    }
    note(&format!("{error:#}"));
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}

fn has_log(directory: &Path) -> bool {
    directory.join("log").exists()
}

fn check_tables(directory: &Path) -> anyhow::Result<()> {
    if !directory.join(NAMES[0]).exists() {
        bad_input!("{} has no tables: `forebay-tpcc load` makes them", directory.display());
    }
    Ok(())
}

fn load(args: &Load) -> anyhow::Result<()> {
    let directory = &args.place.directory;
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    if directory.join(NAMES[0]).exists() {
        bad_input!("{} has tables already: name another directory", directory.display());
    }
    let start = Instant::now();
    let goes_on = |done| {
        note(&format!("{done} of {} warehouses", args.warehouses));
        interrupt::check().is_ok()
    };
    let (memory, warehouses) = (args.place.memory, args.warehouses);
    let complete = Store::create(directory, memory, warehouses, args.threads, goes_on);
    if !matches!(complete, Ok(true)) {
        for name in NAMES.iter().filter(|name| directory.join(name).exists()) {
            fs::remove_file(directory.join(name))?;
        }
        complete?;
        interrupt::check()?;
    }
    note(&format!("loaded in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

fn open(place: &Place, checkpoint_log: Option<u64>) -> anyhow::Result<Store> {
    let start = Instant::now();
    let store = Store::open(&place.directory, place.memory, checkpoint_log)?;
    let recovery = store.database().map(Database::recovery).unwrap_or_default();
    if recovery.records > 0 {
        note(&format!(
            "recovered {} records, {} changes of pages, in {:.1} s",
            recovery.records,
            recovery.applied,
            start.elapsed().as_secs_f64()
        ));
    }
    Ok(store)
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
    let place = &args.place;
    check_tables(&place.directory)?;
    if has_log(&place.directory) && !args.log {
        bad_input!("{} has a log: run with --log", place.directory.display());
    }
    let store = open(place, args.log.then_some(args.checkpoint_log))?;
    execute(args, &store)?;
    let written = shown_size(store.pool().stats().total().written_bytes);
    match store.database() {
        Some(database) => {
            note(&format!(
                "{} of log, {written} of pages written",
                shown_size(database.log_bytes())
            ));
        }
        None => note(&format!("{written} of pages written")),
    }
    store.close()?;
    interrupt::check()?;
    Ok(())
}

/// What the terminals report.
struct Report {
    acknowledge: bool,
}

impl Progress for Report {
    fn done(&self, done: Done) {
        if !self.acknowledge {
            return;
        }
        let mut out = std::io::stdout().lock();
        // A test that does not read any more has killed this process, or is about to.
        let _ = match done {
            Done::Order([warehouse, district, number]) => {
                writeln!(out, "order {warehouse} {district} {number}")
            }
            Done::Payment([terminal, number]) => writeln!(out, "payment {terminal} {number}"),
            Done::Other => Ok(()),
        };
    }

    fn second(&self, transactions: u64) -> bool {
        note(&format!("{transactions} transactions/s"));
        interrupt::check().is_ok()
    }
}

fn execute(args: &RunArgs, store: &Store) -> anyhow::Result<()> {
    let (warehouses, first_terminal) = forebay_tpcc::found(store.trees())?;
    if args.warm {
        store.warm()?;
    }
    let RunArgs { terminals, seconds, seed, .. } = *args;
    let run = Run { warehouses, terminals, first_terminal, seconds, seed };
    let report = Report { acknowledge: args.acknowledge };
    let seconds = forebay_tpcc::run(store, run, &report)?;
    let total: u64 = seconds.iter().sum();
    note(&format!("{:.0} transactions/s on average", total as f64 / seconds.len().max(1) as f64));
    Ok(())
}

fn check(place: &Place) -> anyhow::Result<()> {
    check_tables(&place.directory)?;
    let store = open(place, has_log(&place.directory).then_some(u64::MAX))?;
    let (warehouses, _) = forebay_tpcc::found(store.trees())?;
    let problem = forebay_tpcc::check(store.trees(), warehouses)?;
    store.close()?;
    ensure!(problem.is_none(), "{}", problem.unwrap_or_default());
    note(&format!("the tables are consistent; warehouses: {warehouses}"));
    Ok(())
}
