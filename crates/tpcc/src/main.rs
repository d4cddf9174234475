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

use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use forebay::io::CacheMode;
use forebay::{BufferPool, Checksum, PoolBuilder, Tablespace, TornPages};
use forebay_btree::{Database, Direction, Tree};
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::output::note;
use forebay_measure::units::parse_size;
use forebay_measure::{BadInput, bad_input};
use forebay_tpcc::{Done, NAMES, Progress, Run};

const PAGE_BYTES: u64 = 4096;

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
    let result = match Cli::parse().command {
        Command::Load(args) => load(&args),
        Command::Run(args) => run(&args),
        Command::Check(place) => check(&place),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        note("interrupted");
        return ExitCode::from(130);
    }
    note(&format!("{error:#}"));
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}

/// `tablespace` has the tables' files; with a log, the database names it.
fn builder(place: &Place, torn_pages: TornPages) -> PoolBuilder {
    let builder = BufferPool::builder().memory(place.memory).page_size(PAGE_BYTES);
    builder.checksum(Checksum::Crc32c { offset: 0 }).torn_pages(torn_pages)
}

fn tablespace(place: &Place) -> Tablespace {
    Tablespace::new("main", &place.directory).cache(CacheMode::Direct)
}

fn has_log(directory: &Path) -> bool {
    directory.join("log.redo").exists()
}

fn load(args: &Load) -> anyhow::Result<()> {
    let directory = &args.place.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    if directory.join(NAMES[0]).exists() {
        bad_input!("{} has tables already: name another directory", directory.display());
    }
    let pool = builder(&args.place, TornPages::Unprotected).tablespace(tablespace(&args.place));
    let pool = pool.build()?;
    let trees = NAMES.map(|name| Tree::create(&pool, name));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    forebay_tpcc::load(&trees, args.warehouses, args.threads, |done| {
        note(&format!("{done} of {} warehouses", args.warehouses));
    })?;
    trees.into_iter().try_for_each(Tree::close)?;
    pool.close()?;
    note(&format!("loaded in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

fn open(place: &Place) -> anyhow::Result<(BufferPool, Vec<Tree>)> {
    let pool = builder(place, TornPages::Unprotected).tablespace(tablespace(place)).build()?;
    let trees = NAMES.iter().map(|name| Tree::open(&pool, name)).collect::<Result<Vec<_>, _>>()?;
    Ok((pool, trees))
}

fn open_logged(place: &Place, checkpoint_log: u64) -> anyhow::Result<Database> {
    let builder = builder(place, TornPages::DoubleWrite).checkpoint_log(checkpoint_log);
    let start = Instant::now();
    let builder = builder.tablespace(tablespace(place));
    let database = Database::open(builder, &place.directory, &NAMES, |_| {})?;
    let recovery = database.recovery();
    if recovery.records > 0 {
        note(&format!(
            "recovered {} records, {} changes of pages, in {:.1} s",
            recovery.records,
            recovery.applied,
            start.elapsed().as_secs_f64()
        ));
    }
    Ok(database)
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
    let place = &args.place;
    if !place.directory.join(NAMES[0]).exists() {
        bad_input!("{} has no tables: `forebay-tpcc load` makes them", place.directory.display());
    }
    if has_log(&place.directory) && !args.log {
        bad_input!("{} has a log: run with --log", place.directory.display());
    }
    if args.log {
        let database = open_logged(place, args.checkpoint_log)?;
        execute(args, database.trees(), Some(&database))?;
        let written = database.pool().stats().total().written_bytes;
        note(&format!("{} bytes of log, {written} of pages", database.log_bytes()));
        database.close()?;
    } else {
        let (pool, trees) = open(place)?;
        execute(args, &trees, None)?;
        note(&format!("{} bytes of pages written", pool.stats().total().written_bytes));
        trees.into_iter().try_for_each(Tree::close)?;
        pool.close()?;
    }
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

fn execute(args: &RunArgs, trees: &[Tree], database: Option<&Database>) -> anyhow::Result<()> {
    let (warehouses, first_terminal) = forebay_tpcc::found(trees)?;
    if args.warm {
        for tree in trees {
            let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while cursor.next_entry()?.is_some() {}
        }
    }
    let RunArgs { terminals, seconds, seed, .. } = *args;
    let run = Run { warehouses, terminals, first_terminal, seconds, seed };
    let report = Report { acknowledge: args.acknowledge };
    let seconds = forebay_tpcc::run(trees, database, run, &report)?;
    let total: u64 = seconds.iter().sum();
    note(&format!("{:.0} transactions/s on average", total as f64 / seconds.len().max(1) as f64));
    Ok(())
}

fn check(place: &Place) -> anyhow::Result<()> {
    let consistent = |trees: &[Tree]| {
        let (warehouses, _) = forebay_tpcc::found(trees)?;
        let problem = forebay_tpcc::check(trees, warehouses)?;
        ensure!(problem.is_none(), "{}", problem.unwrap_or_default());
        note(&format!("{warehouses} warehouses are consistent"));
        anyhow::Ok(())
    };
    if has_log(&place.directory) {
        let database = open_logged(place, u64::MAX)?;
        consistent(database.trees())?;
        database.close()?;
    } else {
        let (pool, trees) = open(place)?;
        consistent(&trees)?;
        drop(trees);
        pool.close()?;
    }
    Ok(())
}
