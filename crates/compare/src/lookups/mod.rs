//! Look-ups of a B+tree, compared with vmcache's `rndread`, for the same keys, values, memory and threads.
//!
//! Keys are the numbers from 0, eight bytes each, big endian; values have 120 bytes and begin with the key. Pages
//! have 4 KiB and are read past the kernel's page cache. Each round measures both, one after the other, in turns.
//! Forebay's side is `forebay-btree`: loaded once, sorted, its pages full and with checksums, and read into memory
//! before the timed part. vmcache has no persistent files: each of its measurements begins by inserting everything, and
//! if the data did not fit into memory, its first seconds are spent writing it out. `--settle` runs it longer first;
//! the records have what it wrote in each second.
//!
//! Failure:     a look-up that finds no value, or another key's, ends the run.
//! Source:      vmcache: Leis et al., Virtual-Memory Assisted Buffer Management (2023), and its `rndread`.

mod tree;
mod vmcache;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

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

const SCHEMA: &str = "forebay-compare-lookups/1";
const GIB: u64 = 1 << 30;
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 120;

/// Maximum bytes that vmcache uses for an entry, inserted in order by several threads.
const ENTRY_BYTES_MAX: u64 = 200;

/// The settings of a measurement, checked.
#[derive(Debug, Clone, Serialize)]
struct Settings {
    entries: u64,
    memory_bytes: u64,
    threads: Vec<u32>,
    /// Of a measurement.
    seconds: u64,
    /// Before each of vmcache's.
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
            entries: args.entries,
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
#[serde(rename_all = "lowercase")]
enum Who {
    Forebay,
    Vmcache,
}

/// The result of one measurement, second by second; the settling seconds are first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Seconds {
    lookups: Vec<u64>,
    read_mib: Vec<f64>,
    written_mib: Vec<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Measurement {
    threads: u32,
    round: u32,
    who: Who,
    /// Of the seconds that count.
    lookups_per_s: f64,
    seconds: Seconds,
}

/// Both, with as many threads.
#[derive(Debug, Clone, Serialize)]
struct Row {
    threads: u32,
    forebay_per_s: Option<f64>,
    vmcache_per_s: Option<f64>,
    times_vmcache: Option<f64>,
    times_vmcache_low: Option<f64>,
    times_vmcache_high: Option<f64>,
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
    let each_bytes = settings.entries.saturating_mul(ENTRY_BYTES_MAX);
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
    tree::load(&ours, settings, &mut Progress::new(settings.entries))?;
    let mut progress =
        Progress::new(u64::from(settings.rounds) * settings.threads.len() as u64 * 2);
    let mut measurements = Vec::new();
    for round in 0..settings.rounds {
        for &threads in &settings.threads {
            let mut both = [Who::Forebay, Who::Vmcache];
            both.rotate_left(round as usize % 2);
            for who in both {
                interrupt::check()?;
                let doing = format!("look-ups, {threads} threads, {who:?}");
                progress.reach(measurements.len() as u64, &doing);
                let seconds = match who {
                    Who::Forebay => tree::measure(&ours, settings, threads)?,
                    Who::Vmcache => vmcache::measure(&theirs, settings, threads)?,
                };
                let counted = &seconds.lookups[seconds.lookups.len() - settings.seconds as usize..];
                let lookups_per_s = counted.iter().sum::<u64>() as f64 / settings.seconds as f64;
                measurements.push(Measurement { threads, round, who, lookups_per_s, seconds });
            }
        }
    }
    Ok(measurements)
}

fn rows(settings: &Settings, measurements: &[Measurement]) -> Vec<Row> {
    let row = |&threads: &u32| {
        let of = |who| {
            let of = measurements.iter().filter(|one| one.threads == threads && one.who == who);
            of.map(|one| one.lookups_per_s).collect::<Vec<f64>>()
        };
        let (ours, theirs) = (of(Who::Forebay), of(Who::Vmcache));
        let times = paired_ratio(&ours, &theirs);
        Row {
            threads,
            forebay_per_s: median(&ours),
            vmcache_per_s: median(&theirs),
            times_vmcache: times.map(|times| times.value),
            times_vmcache_low: times.map(|times| times.low),
            times_vmcache_high: times.map(|times| times.high),
        }
    };
    settings.threads.iter().map(row).collect()
}

fn draw(report: &Report) -> String {
    let Settings { entries, memory_bytes, seconds, rounds, .. } = report.settings;
    let mut text = format!(
        "{entries} entries, {} for pages of 4 KiB; {rounds} rounds of {seconds} s; forebay {}\n\n\
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
    }
    text
}

/// The key of `number`, and in [`tree`] the beginning of its value.
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
