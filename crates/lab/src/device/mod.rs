//! Device: what the disk does with plain requests, measured before any experiment.
//!
//! Random reads of 8 KiB, alone and as many at once as help, large reads and writes in sequence, and syncs. Past
//! the page cache where the filesystem permits, else from an emptied one, and then that is said.
//!
//! A disk may be faster at first, while credits or a cache last. So it is kept busy before anything counts,
//! and if its rate falls at any time, only what came after the fall is told. Worked example: windows of 3000,
//! 2990, 3010, then 301, 300, 299 reads/s are a burst from 3000 to 300, and the disk does 300. An emulated
//! disk that has credits spends them at once, in its own time ([`OnDisk::load`](crate::ground::on::OnDisk::load)).
//!
//! Invariants:  [DEV-1] no figure is of a time before the last fall of the rate
//! Failure:     what cannot be measured is told in a remark; only an interruption ends the run.

mod traffic;

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use forebay_io::{CacheMode, File, Hint, OpenOptions};
use hdrhistogram::Histogram;

use crate::experiment::Bench;
use crate::interrupt::{self, Interrupted};
use crate::measure::empty_cache;
use crate::report::{Burst, DeviceSummary, Figure, numbers};
use crate::statistics::{self, median};
use traffic::{Kind, Traffic, Window, wait_histogram};

const RANDOM_BYTES: u64 = 8 << 10;
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// Requests under way while the disk is kept busy, and in sequence.
const BUSY_DEPTH: u32 = 64;
const SEQUENTIAL_DEPTH: u32 = 4;

/// A disk that does more than this with [`BUSY_DEPTH`] may do still more with [`DEEP`].
const FAST_PER_S: f64 = 20_000.0;
const DEEP: u32 = 256;

/// A rate has fallen if it stays below this part of what it was: beyond what neighbours on the same machine do
/// to several windows in a row.
const FALL: f64 = 0.7;

/// Windows that a level takes, before and after a fall.
const LEVEL_WINDOWS: usize = 3;

/// Emulated seconds of load in which the largest credits are spent.
const LOAD_SECONDS: u32 = 3600;

/// Waits that a 99th percentile takes.
const SAMPLES_MIN: u64 = 1000;

/// How the disk itself is measured.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "The disk itself")]
pub struct DeviceArgs {
    /// Keep the disk busy for so long before it is measured (such as 30min), so that credits of a cloud
    /// volume are used up [default: two seconds, less for one experiment alone]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, global = true)]
    pub sustained: Option<Duration>,
}

/// How much time is taken.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    window: Duration,
    rounds: usize,
    depths: &'static [u32],
    /// How long the disk is kept busy, and at most while its rate is unsteady.
    busy: Range<Duration>,
}

impl Effort {
    /// About eight seconds on a fast disk.
    pub(crate) fn full(args: DeviceArgs) -> Effort {
        Effort {
            window: Duration::from_millis(250),
            rounds: 3,
            depths: &[1, 16, BUSY_DEPTH],
            busy: args
                .sustained
                .map_or(Duration::from_secs(2)..Duration::from_secs(5), |it| it..it),
        }
    }

    /// Less than one.
    pub(crate) fn short(args: DeviceArgs) -> Effort {
        let (least, most) = (Duration::from_millis(120), Duration::from_millis(300));
        Effort {
            window: Duration::from_millis(40),
            rounds: 3,
            depths: &[1, BUSY_DEPTH],
            busy: args.sustained.map_or(least..most, |it| it..it),
        }
    }
}

/// Measures the disk below the working file.
///
/// # Errors
/// [`Interrupted`].
pub(crate) fn measure(bench: &Bench<'_>, effort: &Effort) -> anyhow::Result<DeviceSummary> {
    let mut summary = DeviceSummary::default();
    if bench.storage.filesystem.as_deref() == Some("tmpfs") {
        summary
            .remarks
            .push("tmpfs keeps its files in memory: these are no figures of a disk".into());
    }
    let site = match Site::open(bench, effort) {
        Ok(site) => site,
        Err(error) => {
            summary.remarks.push(format!("not measured: {error:#}"));
            return Ok(summary);
        }
    };
    summary.remarks.extend(site.remark.clone());
    let parts: [(&str, Part<'_>); 4] = [
        ("random reads", Site::random_reads),
        ("reads in sequence", Site::sequential_reads),
        ("writes in sequence", Site::sequential_writes),
        ("syncs", Site::syncs),
    ];
    for (what, part) in parts {
        interrupt::check()?;
        match part(&site, &mut summary) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => summary.remarks.push(format!("{what}: not measured: {error:#}")),
            Ok(()) => {}
        }
    }
    Ok(summary)
}

type Part<'s> = fn(&Site<'s>, &mut DeviceSummary) -> anyhow::Result<()>;

/// Where and how the disk is measured.
struct Site<'a> {
    bench: &'a Bench<'a>,
    effort: &'a Effort,
    cache: CacheMode,
    file: File,
    /// Whether reads can be of what is in the page cache, and why.
    remark: Option<String>,
}

impl<'a> Site<'a> {
    fn open(bench: &'a Bench<'a>, effort: &'a Effort) -> anyhow::Result<Site<'a>> {
        let options = OpenOptions::new().read_only(true).hint(Hint::Random);
        let path = bench.workfile.path();
        let direct = File::open(path, &options.clone().cache(CacheMode::Direct));
        let (file, remark) = match direct {
            Ok(file) if u64::from(file.alignment().offset) <= RANDOM_BYTES => (file, None),
            Ok(file) => {
                let needed = file.alignment().offset;
                let why = format!("reads through the page cache: direct ones need {needed} bytes");
                (File::open(path, &options)?, Some(why))
            }
            Err(error) => {
                let why = format!("reads through the page cache, emptied before: {error}");
                (File::open(path, &options)?, Some(why))
            }
        };
        let cache = file.cache_mode();
        Ok(Site { bench, effort, cache, file, remark })
    }

    /// Memory answers what is in the page cache.
    fn make_cold(&self) -> anyhow::Result<()> {
        if self.cache == CacheMode::Buffered {
            empty_cache(&self.file)?;
        }
        Ok(())
    }

    fn random_reads(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let blocks = self.bench.workfile.size_bytes() / RANDOM_BYTES;
        let mut order: Vec<u64> = (0..blocks).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut place = order.iter().map(|block| block * RANDOM_BYTES).cycle();
        let mut traffic = Traffic::open(Kind::Read, &self.file, DEEP, RANDOM_BYTES)?;
        let mut window = |depth: u32| -> anyhow::Result<Window> {
            interrupt::check()?;
            self.make_cold()?;
            // Past the page cache blocks may come again; through it they would come from there.
            let most = if self.cache == CacheMode::Direct { u64::MAX } else { blocks };
            traffic.window(depth, most, self.effort.window, &mut place)
        };

        let begun = Instant::now();
        let mut busy: Vec<f64> = Vec::new();
        loop {
            busy.push(window(BUSY_DEPTH)?.per_s);
            let passed = begun.elapsed();
            let unsteady = passed < self.effort.busy.end && !is_steady(&busy);
            if busy.len() >= 2 * LEVEL_WINDOWS && passed >= self.effort.busy.start && !unsteady {
                break;
            }
        }
        let mut seconds = begun.elapsed().as_secs_f64();
        if let Some(disk) = self.bench.on.filter(|disk| disk.bursts()) {
            disk.load(LOAD_SECONDS, RANDOM_BYTES)?;
            seconds += f64::from(LOAD_SECONDS);
            for _ in 0..LEVEL_WINDOWS {
                busy.push(window(BUSY_DEPTH)?.per_s);
            }
        }

        let mut depths = self.effort.depths.to_vec();
        depths.extend(busy.last().filter(|&&rate| rate > FAST_PER_S).map(|_| DEEP));
        let mut rounds: Vec<Vec<Window>> = Vec::new();
        let since_fall = loop {
            let round: anyhow::Result<Vec<Window>> =
                depths.iter().map(|&depth| window(depth)).collect();
            rounds.push(round?);
            let at_busy = depths.iter().position(|&depth| depth == BUSY_DEPTH).unwrap_or(0);
            let later = rounds.iter().map(|round| round[at_busy].per_s);
            let rates: Vec<f64> = busy.iter().copied().chain(later).collect();
            let fall = fall(&rates);
            let since = fall.map_or(0, |fall| fall.saturating_sub(busy.len()));
            if rounds.len() - since >= self.effort.rounds {
                summary.burst = fall.map(|fall| Burst {
                    seconds,
                    start_per_s: median(&rates[..fall]).unwrap_or_default(),
                    end_per_s: median(&rates[fall..]).unwrap_or_default(),
                });
                break since;
            }
        };
        let rounds = &rounds[since_fall..]; // [DEV-1]
        let by_depth: Vec<Vec<&Window>> =
            (0..depths.len()).map(|at| rounds.iter().map(|round| &round[at]).collect()).collect();
        let rates: Vec<Vec<f64>> =
            by_depth.iter().map(|it| it.iter().map(|window| window.per_s).collect()).collect();
        let knee = statistics::knee(&rates.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let saturated = knee.unwrap_or(depths.len() - 1);
        summary.random_read_depth_1 = figure(&by_depth[0]);
        summary.random_read_saturated = figure(&by_depth[saturated]);
        summary.saturated_depth = Some(depths[saturated]);
        Ok(())
    }

    fn sequential_reads(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let size = self.bench.workfile.size_bytes() / SEQUENTIAL_BYTES;
        anyhow::ensure!(size >= u64::from(SEQUENTIAL_DEPTH), "the working file is too small");
        let file = File::open(
            self.bench.workfile.path(),
            &OpenOptions::new().read_only(true).cache(self.cache),
        )?;
        let mut place = (0..size).map(|number| number * SEQUENTIAL_BYTES).cycle();
        let mut traffic = Traffic::open(Kind::Read, &file, SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES)?;
        if let Some(disk) = self.bench.on.filter(|disk| disk.bursts()) {
            disk.load(LOAD_SECONDS, SEQUENTIAL_BYTES)?;
        }
        let mut windows = Vec::new();
        for _ in 0..self.effort.rounds {
            interrupt::check()?;
            self.make_cold()?;
            let most = if self.cache == CacheMode::Direct { u64::MAX } else { size };
            windows.push(traffic.window(SEQUENTIAL_DEPTH, most, self.effort.window, &mut place)?);
        }
        summary.sequential_read = bytes_figure(&windows);
        Ok(())
    }

    fn sequential_writes(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        // Within the space that a working file leaves to spare.
        let size = (self.bench.workfile.size_bytes() / 8 / SEQUENTIAL_BYTES)
            .clamp(u64::from(SEQUENTIAL_DEPTH), 32);
        let named = tempfile::Builder::new()
            .prefix(".forebay-lab-")
            .tempfile_in(&self.bench.storage.directory)
            .context("cannot make a file")?;
        let file = File::open(named.path(), &OpenOptions::new().cache(self.cache))?;
        // Nothing is left of it, also after a kill.
        drop(named);
        let mut traffic = Traffic::open(Kind::Write, &file, SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES)?;
        let mut place = (0..size).map(|number| number * SEQUENTIAL_BYTES).cycle();
        // A first time for the room, which the others overwrite.
        self.bench.untimed(|| {
            traffic.through(SEQUENTIAL_DEPTH, size, &mut place)?;
            Ok(file.sync_data()?)
        })?;
        let mut windows = Vec::new();
        for _ in 0..self.effort.rounds {
            interrupt::check()?;
            let begun = Instant::now();
            let mut done = 0;
            let mut waits = wait_histogram();
            while done == 0 || begun.elapsed() < self.effort.window {
                waits.add(traffic.through(SEQUENTIAL_DEPTH, size, &mut place)?)?;
                done += size;
            }
            file.sync_data()?;
            windows.push(Window { per_s: done as f64 / begun.elapsed().as_secs_f64(), waits });
        }
        summary.sequential_write = bytes_figure(&windows);
        Ok(())
    }

    fn syncs(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let most = (self.bench.workfile.size_bytes() / 16 / RANDOM_BYTES).clamp(64, 2048);
        let mut windows = Vec::new();
        let page = [0x5a_u8; RANDOM_BYTES as usize];
        for _ in 0..self.effort.rounds {
            interrupt::check()?;
            let mut file = tempfile::tempfile_in(&self.bench.storage.directory)?;
            let (begun, mut waits) = (Instant::now(), wait_histogram());
            while waits.len() < most && (waits.len() < 4 || begun.elapsed() < self.effort.window) {
                let moment = Instant::now();
                std::io::Write::write_all(&mut file, &page)?;
                file.sync_data()?;
                waits.saturating_record(moment.elapsed().as_nanos() as u64);
            }
            let per_s = waits.len() as f64 / begun.elapsed().as_secs_f64();
            windows.push(Window { per_s, waits });
        }
        summary.sync = figure(&windows.iter().collect::<Vec<_>>());
        Ok(())
    }
}

/// Whether the newest windows are alike.
fn is_steady(rates: &[f64]) -> bool {
    let newest = &rates[rates.len().saturating_sub(2 * LEVEL_WINDOWS)..];
    let (low, high) = newest
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
    newest.len() >= 2 * LEVEL_WINDOWS && low >= high * FALL
}

/// The first window after the rate has fallen for good: every later one is much slower than it was before. Of
/// several such places the deepest.
fn fall(rates: &[f64]) -> Option<usize> {
    let part = |at: usize| {
        let (before, after) = rates.split_at(at);
        let before = median(before)?;
        let highest = after.iter().copied().fold(0.0, f64::max);
        (highest < before * FALL).then_some((at, median(after)? / before))
    };
    let places = LEVEL_WINDOWS..=rates.len().saturating_sub(LEVEL_WINDOWS);
    places.filter_map(part).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

fn figure(windows: &[&Window]) -> Option<Figure> {
    let rates: Vec<f64> = windows.iter().map(|window| window.per_s).collect();
    let mut waits = wait_histogram();
    for window in windows {
        waits.add(&window.waits).ok()?;
    }
    let us = |waits: &Histogram<u64>, quantile| waits.value_at_quantile(quantile) as f64 / 1e3;
    Some(Figure {
        per_s: median(&rates)?,
        low: rates.iter().copied().reduce(f64::min)?,
        high: rates.iter().copied().reduce(f64::max)?,
        rounds: rates.len(),
        wait_us_p50: (!waits.is_empty()).then(|| us(&waits, 0.5)),
        wait_us_p99: (waits.len() >= SAMPLES_MIN).then(|| us(&waits, 0.99)),
    })
}

/// Of large requests, in bytes a second.
fn bytes_figure(windows: &[Window]) -> Option<Figure> {
    let figure = figure(&windows.iter().collect::<Vec<_>>())?;
    let bytes = |per_s: f64| per_s * SEQUENTIAL_BYTES as f64;
    let Figure { per_s, low, high, .. } = figure;
    Some(Figure { per_s: bytes(per_s), low: bytes(low), high: bytes(high), ..figure })
}

/// What a burst comes to, in a sentence.
pub(crate) fn told(burst: &Burst) -> String {
    format!(
        "The disk is faster at first: {} random reads/s fell to {} after {} of load; the figures are those \
         after the fall.",
        numbers::number(burst.start_per_s),
        numbers::number(burst.end_per_s),
        numbers::seconds(burst.seconds)
    )
}

#[cfg(test)]
mod tests;
