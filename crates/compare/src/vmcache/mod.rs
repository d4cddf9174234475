//! B+trees compared with vmcache's: look-ups, as its `rndread`, or TPC-C, with the same rows, memory and threads.
//!
//! Look-ups: keys are the numbers from 0, eight bytes each, big endian; values have 120 bytes and begin with the key.
//! TPC-C: `forebay-tpcc`, without a log, as vmcache has none, and with one.
//!
//! Pages have 4 KiB and are read past the kernel's page cache; Forebay's have checksums. Each round measures all, one after
//! the other, in turns. Forebay's files are read into memory before the timed part, as much as fits. vmcache has no persistent
//! files: each of its measurements begins by inserting everything, and if the data did not fit into memory, its first
//! seconds are spent writing it out. A payment of its TPC-C looks rows up before it changes them, three look-ups more. `--settle` runs everything longer first, look-ups of Forebay excepted; the records have
//! what was written in each second.
//!
//! Failure:     a look-up that finds no value, or another key's, ends the run.
//! Source:      vmcache: Leis et al., Virtual-Memory Assisted Buffer Management (2023), its `rndread` and its TPC-C.

mod lookups;
mod program;
mod tpcc;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use forebay::BufferPool;
use forebay_measure::report::numbers;
use forebay_measure::statistics::{median, paired_ratio};
use forebay_measure::units::shown_size;
use serde::Serialize;

use crate::cli::Args;
use crate::output::{finish, version};
use crate::scratch::Scratch;
use forebay_measure::facts::{Host, Storage};
use forebay_measure::progress::Progress;
use forebay_measure::{bad_input, interrupt};

const SCHEMA: &str = "forebay-compare-vmcache/1";
const GIB: u64 = 1 << 30;
const MIB: f64 = (1 << 20) as f64;
const PAGE_BYTES: u64 = 4096;
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 120;

/// Maximum bytes that vmcache uses for an entry, inserted in order by several threads.
const ENTRY_BYTES_MAX: u64 = 200;

/// The same for a warehouse, with the orders of some minutes.
const WAREHOUSE_BYTES_MAX: u64 = 1 << 29;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Workload {
    Lookups { entries: u64 },
    Tpcc { warehouses: u32 },
}

impl Workload {
    /// Maximum size of its file.
    fn bytes_max(self) -> u64 {
        match self {
            Workload::Lookups { entries } => entries.saturating_mul(ENTRY_BYTES_MAX),
            Workload::Tpcc { warehouses } => u64::from(warehouses) * WAREHOUSE_BYTES_MAX,
        }
    }

    /// What is counted.
    fn name(self) -> &'static str {
        match self {
            Workload::Lookups { .. } => "look-ups",
            Workload::Tpcc { .. } => "transactions",
        }
    }
}

/// The settings of a measurement, checked.
#[derive(Debug, Clone, Serialize)]
struct Settings {
    workload: Workload,
    memory_bytes: u64,
    threads: Vec<u32>,
    /// Of a measurement.
    seconds: u64,
    /// Before those that count.
    settle_seconds: u64,
    rounds: u32,
    #[serde(skip)]
    program: PathBuf,
}

impl Settings {
    fn new(args: &Args, program: &Path) -> anyhow::Result<Settings> {
        if args.memory == 0 || !args.memory.is_multiple_of(GIB) {
            bad_input!(
                "--memory is {}: vmcache takes whole GiB, such as --memory 1GiB",
                shown_size(args.memory)
            );
        }
        let program = match program.canonicalize() {
            Ok(program) if program.is_file() => program,
            Ok(_) => bad_input!("--vmcache {} is no program", program.display()),
            Err(error) => bad_input!(
                "--vmcache {}: {error}; build it by `make` in its sources (it needs libaio-dev)",
                program.display()
            ),
        };
        Ok(Settings {
            workload: match args.tpcc {
                Some(warehouses) => Workload::Tpcc { warehouses },
                None => Workload::Lookups { entries: args.entries },
            },
            memory_bytes: args.memory,
            threads: args.threads.clone(),
            seconds: args.seconds.ceil() as u64,
            settle_seconds: args.settle,
            rounds: args.rounds,
            program,
        })
    }
}

/// The measured program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    Forebay,
    /// With a log.
    ForebayLog,
    Vmcache,
}

/// The result of one measurement, second by second; the settling seconds are first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Seconds {
    /// Look-ups, or transactions.
    done: Vec<u64>,
    read_mib: Vec<f64>,
    written_mib: Vec<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Measurement {
    threads: u32,
    round: u32,
    who: Who,
    /// Of the seconds that count.
    per_s: f64,
    seconds: Seconds,
}

/// All, with as many threads.
#[derive(Debug, Clone, Serialize)]
struct Row {
    threads: u32,
    forebay_per_s: Option<f64>,
    vmcache_per_s: Option<f64>,
    times_vmcache: Option<f64>,
    times_vmcache_low: Option<f64>,
    times_vmcache_high: Option<f64>,
    /// With a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_times_vmcache: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_times_vmcache_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_times_vmcache_high: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Report {
    schema: &'static str,
    forebay: String,
    command: String,
    started: String,
    host: Host,
    storage: Storage,
    settings: Settings,
    rows: Vec<Row>,
    measurements: Vec<Measurement>,
}

/// Runs the command line; `program` is vmcache's.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(crate) fn run(args: &Args, program: &Path) -> anyhow::Result<()> {
    let started = SystemTime::now();
    let settings = Settings::new(args, program)?;
    let each_bytes = settings.workload.bytes_max();
    let scratch = Scratch::create(&args.dir, &["forebay", "vmcache"], each_bytes)?;
    let measurements = measure_all(&settings, &scratch)?;
    scratch.remove()?;
    let report = Report {
        schema: SCHEMA,
        forebay: version(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        host: Host::read(),
        storage: Storage::read(&args.dir)?,
        rows: rows(&settings, &measurements),
        settings,
        measurements,
    };
    finish(&report, &draw(&report), args.json.as_deref())
}

fn measure_all(settings: &Settings, scratch: &Scratch) -> anyhow::Result<Vec<Measurement>> {
    let (ours, theirs) = (scratch.of("forebay"), scratch.of("vmcache"));
    let who: &[Who] = match settings.workload {
        Workload::Lookups { entries } => {
            lookups::load(&ours, settings, entries, &mut Progress::new(entries))?;
            &[Who::Forebay, Who::Vmcache]
        }
        Workload::Tpcc { warehouses } => {
            tpcc::load(&ours, warehouses, &mut Progress::new(warehouses.into()))?;
            &[Who::Forebay, Who::Vmcache, Who::ForebayLog]
        }
    };
    let cells = settings.threads.len() * who.len();
    let mut progress = Progress::new(u64::from(settings.rounds) * cells as u64);
    let mut measurements = Vec::new();
    for round in 0..settings.rounds {
        for &threads in &settings.threads {
            let mut who = who.to_vec();
            let first = round as usize % who.len();
            who.rotate_left(first);
            for who in who {
                interrupt::check()?;
                let name = settings.workload.name();
                let doing = format!("{name}, {threads} threads, {who:?}");
                progress.reach(measurements.len() as u64, &doing);
                let seconds = match (who, settings.workload) {
                    (Who::Vmcache, _) => program::measure(&theirs, settings, threads)?,
                    (_, Workload::Lookups { entries }) => {
                        lookups::measure(&ours, settings, entries, threads)?
                    }
                    (who, Workload::Tpcc { .. }) => {
                        tpcc::measure(&ours, settings, threads, who == Who::ForebayLog)?
                    }
                };
                let counted = &seconds.done[seconds.done.len() - settings.seconds as usize..];
                let per_s = counted.iter().sum::<u64>() as f64 / settings.seconds as f64;
                measurements.push(Measurement { threads, round, who, per_s, seconds });
            }
        }
    }
    Ok(measurements)
}

fn rows(settings: &Settings, measurements: &[Measurement]) -> Vec<Row> {
    let row = |&threads: &u32| {
        let of = |who| {
            let of = measurements.iter().filter(|one| one.threads == threads && one.who == who);
            of.map(|one| one.per_s).collect::<Vec<f64>>()
        };
        let (ours, theirs) = (of(Who::Forebay), of(Who::Vmcache));
        let times = paired_ratio(&ours, &theirs);
        let log = of(Who::ForebayLog);
        let log_times = paired_ratio(&log, &theirs);
        Row {
            threads,
            forebay_per_s: median(&ours),
            vmcache_per_s: median(&theirs),
            times_vmcache: times.map(|times| times.value),
            times_vmcache_low: times.map(|times| times.low),
            times_vmcache_high: times.map(|times| times.high),
            log_per_s: median(&log),
            log_times_vmcache: log_times.map(|times| times.value),
            log_times_vmcache_low: log_times.map(|times| times.low),
            log_times_vmcache_high: log_times.map(|times| times.high),
        }
    };
    settings.threads.iter().map(row).collect()
}

fn draw(report: &Report) -> String {
    let Settings { workload, memory_bytes, seconds, rounds, .. } = report.settings;
    let data = match workload {
        Workload::Lookups { entries } => format!("look-ups of {entries} entries"),
        Workload::Tpcc { warehouses } => format!("TPC-C with {warehouses} warehouses"),
    };
    let mut text = format!(
        "{data}, {} for pages of 4 KiB; {rounds} rounds of {seconds} s; forebay {}\n\n\
         threads  forebay/s  vmcache/s  times vmcache (low to high)\n",
        shown_size(memory_bytes),
        report.forebay
    );
    let number = |number: Option<f64>| number.map_or("-".to_owned(), numbers::number);
    for row in &report.rows {
        let [times, low, high] = [row.times_vmcache, row.times_vmcache_low, row.times_vmcache_high];
        let _ = writeln!(
            text,
            "{:7}  {:>9}  {:>9}  {} ({} to {})",
            row.threads,
            number(row.forebay_per_s),
            number(row.vmcache_per_s),
            number(times),
            number(low),
            number(high)
        );
        if row.log_per_s.is_some() {
            let times =
                [row.log_times_vmcache, row.log_times_vmcache_low, row.log_times_vmcache_high];
            let [times, low, high] = times.map(number);
            let _ = writeln!(
                text,
                " + log   {:>9}             {times} ({low} to {high})",
                number(row.log_per_s)
            );
        }
    }
    text
}

/// What a pool has read and written.
fn mib(pool: &BufferPool) -> [f64; 2] {
    let total = pool.stats().total();
    [total.read_bytes, total.written_bytes].map(|bytes| bytes as f64 / MIB)
}

/// The key of `number`, and in [`lookups`] the beginning of its value.
fn key(number: u64) -> [u8; KEY_BYTES] {
    number.to_be_bytes()
}

/// Sleeps until `until`, unless the user wants to stop.
fn rest(until: Instant) -> Result<(), interrupt::Interrupted> {
    const CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
    loop {
        interrupt::check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(CHECK_INTERVAL));
    }
}
