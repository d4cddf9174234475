//! Device: what the disk does with plain requests, measured before any experiment.
//!
//! It measures random 8 KiB reads, alone and at the most useful concurrency, large sequential reads and writes, and
//! syncs. It bypasses the page cache where the filesystem permits; otherwise it empties the cache first and says so.
//!
//! A disk may be faster at first, while credits or a cache last. So the disk is kept busy before any measurement,
//! and if its rate falls later, only the time after the fall is reported. Worked example: windows of 3000,
//! 2990, 3010, then 301, 300, 299 reads/s are a burst from 3000 to 300, and the disk does 300. An emulated
//! disk that has credits spends them immediately, in emulated time
//! ([`OnDisk::spend_credits`](crate::on::OnDisk::spend_credits)).
//!
//! Invariants:  [DEV-1] no figure includes time before the last fall of the rate
//! Failure:     a remark reports what cannot be measured; only an interruption ends the run, or a working
//!              file that cannot be opened.

mod traffic;

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_io::{CacheMode, File, Hint, OpenOptions, Request};

use crate::experiment::Bench;
use crate::on;
use forebay_measure::coldness::{empty_cache, wait_histogram, wait_us};
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::report::{Burst, DeviceSummary, Figure};
use forebay_measure::statistics::{self, median, range};
use forebay_measure::units::parse_time;
use forebay_measure::workfile::{Naming, Workfile};
use traffic::{Traffic, Window};

const RANDOM_BYTES: u64 = 8 << 10;
/// With fewer different reads than this, reads would repeat within the windows and hit the disk's own cache.
const RANDOM_BLOCKS_MIN: u64 = 1024;
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// Requests in flight while the disk is kept busy, and in sequence.
const BUSY_DEPTH: u32 = 64;
const SEQUENTIAL_DEPTH: u32 = 4;

/// Concurrent requests of the reported random reads. The last value is measured only on a disk that exceeds
/// `FAST_PER_S` with the one before it.
const DEPTHS: [u32; 4] = [1, 16, BUSY_DEPTH, 256];
const BUSY_AT: usize = 2;
const FAST_PER_S: f64 = 20_000.0;

/// A rate has fallen if it stays below this part of its earlier level: more than the effect of neighbours on the same
/// machine on several windows in a row.
const FALL: f64 = 0.7;

/// Number of windows in a level, before and after a fall.
const LEVEL_WINDOWS: usize = 3;

/// Windows that a figure is of.
const ROUNDS: usize = 3;

/// Emulated seconds of load that spend the largest credits.
const LOAD_SECONDS: u32 = 3600;

/// How the disk itself is measured.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "The disk itself")]
pub struct DeviceArgs {
    /// Keep the disk busy for this long before it is measured (such as 30min), so that credits of a cloud
    /// volume are used up [default: two seconds, less for one experiment alone]
    #[arg(long, value_name = "TIME", value_parser = parse_time, global = true)]
    pub sustained: Option<Duration>,
    /// How long a window is.
    #[arg(skip = Duration::from_millis(250))]
    window: Duration,
}

impl DeviceArgs {
    /// A measurement in less than two seconds, compared with about eight on a fast disk.
    pub(crate) fn short(sustained: Option<Duration>) -> DeviceArgs {
        DeviceArgs { sustained, window: Duration::from_millis(40) }
    }

    /// How long the disk is kept busy, and at most while its rate is unsteady.
    fn busy(&self) -> Range<Duration> {
        let windows = |count| self.sustained.unwrap_or(self.window * count);
        windows(8)..windows(20)
    }
}

/// Measures the disk below the working file.
///
/// # Errors
/// [`Interrupted`]; or the working file cannot be opened.
pub(crate) fn measure(bench: &Bench<'_>, args: &DeviceArgs) -> anyhow::Result<DeviceSummary> {
    let mut summary = DeviceSummary::default();
    if bench.storage.filesystem.as_deref() == Some("tmpfs") {
        let remark = "tmpfs keeps its files in memory: these are no figures of a disk";
        summary.remarks.push(remark.to_owned());
    }
    let site = Site::open(bench, args, &mut summary.remarks)?;
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
    args: &'a DeviceArgs,
    file: File,
}

impl<'a> Site<'a> {
    /// Adds to `remarks` if reads may be served from the page cache.
    fn open(
        bench: &'a Bench<'a>,
        args: &'a DeviceArgs,
        remarks: &mut Vec<String>,
    ) -> anyhow::Result<Site<'a>> {
        let options = OpenOptions::new().read_only(true).hint(Hint::Random);
        let path = bench.workfile.path();
        let file = match File::open(path, &options.clone().cache(CacheMode::Direct)) {
            Ok(file) if u64::from(file.alignment().offset) <= RANDOM_BYTES => file,
            refused => {
                let why = match refused {
                    Ok(file) => format!("direct ones need {} bytes", file.alignment().offset),
                    Err(error) => error.to_string(),
                };
                remarks.push(format!("reads through the page cache, emptied before: {why}"));
                File::open(path, &options)?
            }
        };
        Ok(Site { bench, args, file })
    }

    /// Maximum reads of `requests` different ones in the next window. Past the page cache they
    /// may repeat; through it memory would answer repeated ones, as it would those already cached.
    fn most_reads(&self, requests: u64) -> anyhow::Result<u64> {
        if self.file.cache_mode() == CacheMode::Direct {
            return Ok(u64::MAX);
        }
        empty_cache(&self.file)?;
        Ok(requests)
    }

    fn random_reads(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let blocks = self.bench.workfile.size_bytes / RANDOM_BYTES;
        let mut order: Vec<u64> = (0..blocks).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut place = order.iter().map(|block| block * RANDOM_BYTES).cycle();
        let most_at_once = DEPTHS[BUSY_AT + 1];
        let mut traffic = Traffic::open(Request::read, &self.file, most_at_once, RANDOM_BYTES)?;
        let mut window = |depth: u32| -> anyhow::Result<Window> {
            interrupt::check()?;
            traffic.window(depth, self.most_reads(blocks)?, self.args.window, &mut place)
        };

        let (begun, limits) = (Instant::now(), self.args.busy());
        let mut busy: Vec<f64> = Vec::new();
        loop {
            busy.push(window(BUSY_DEPTH)?.per_s);
            let passed = begun.elapsed();
            let is_enough = passed >= limits.end || (passed >= limits.start && is_steady(&busy));
            if busy.len() >= 2 * LEVEL_WINDOWS && is_enough {
                break;
            }
        }
        let mut seconds = begun.elapsed().as_secs_f64();
        if let Some(disk) = self.bench.on
            && disk.spend_credits(LOAD_SECONDS, RANDOM_BYTES)?
        {
            seconds += f64::from(LOAD_SECONDS);
            for _ in 0..LEVEL_WINDOWS {
                busy.push(window(BUSY_DEPTH)?.per_s);
            }
        }
        anyhow::ensure!(blocks >= RANDOM_BLOCKS_MIN, "the working file is too small");

        let is_fast = busy.last().is_some_and(|&rate| rate > FAST_PER_S);
        let depths = if is_fast { &DEPTHS[..] } else { &DEPTHS[..=BUSY_AT] };
        let mut by_depth: Vec<Vec<Window>> = depths.iter().map(|_| Vec::new()).collect();
        let since_fall = loop {
            for (windows, &depth) in by_depth.iter_mut().zip(depths) {
                windows.push(window(depth)?);
            }
            let later = by_depth[BUSY_AT].iter().map(|window| window.per_s);
            let rates: Vec<f64> = busy.iter().copied().chain(later).collect();
            let fall = fall(&rates);
            let since = fall.map_or(0, |fall| fall.saturating_sub(busy.len()));
            if by_depth[0].len() - since >= ROUNDS {
                summary.burst = fall.map(|fall| Burst {
                    seconds,
                    start_per_s: median(&rates[..fall]).unwrap_or_default(),
                    end_per_s: median(&rates[fall..]).unwrap_or_default(),
                });
                break since;
            }
        };
        let counted: Vec<&[Window]> = by_depth.iter().map(|it| &it[since_fall..]).collect(); // [DEV-1]
        let rates: Vec<Vec<f64>> =
            counted.iter().map(|it| it.iter().map(|window| window.per_s).collect()).collect();
        let saturated = statistics::knee(&rates).unwrap_or(depths.len() - 1);
        summary.random_read_depth_1 = figure(counted[0], 1.0);
        summary.random_read_saturated = figure(counted[saturated], 1.0);
        summary.saturated_depth = Some(depths[saturated]);
        Ok(())
    }

    fn sequential_reads(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let size = self.bench.workfile.size_bytes / SEQUENTIAL_BYTES;
        anyhow::ensure!(size >= u64::from(SEQUENTIAL_DEPTH), "the working file is too small");
        let file = File::open(
            self.bench.workfile.path(),
            &OpenOptions::new().read_only(true).cache(self.file.cache_mode()),
        )?;
        let mut place = (0..size).map(|number| number * SEQUENTIAL_BYTES).cycle();
        let mut traffic = Traffic::open(Request::read, &file, SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES)?;
        if let Some(disk) = self.bench.on {
            disk.spend_credits(LOAD_SECONDS, SEQUENTIAL_BYTES)?;
        }
        let windows = rounds(|| {
            let most = self.most_reads(size)?;
            traffic.window(SEQUENTIAL_DEPTH, most, self.args.window, &mut place)
        })?;
        summary.sequential_read = figure(&windows, SEQUENTIAL_BYTES as f64);
        Ok(())
    }

    fn sequential_writes(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        // Within the free space that a working file leaves.
        let size = (self.bench.workfile.size_bytes / 8 / SEQUENTIAL_BYTES)
            .clamp(u64::from(SEQUENTIAL_DEPTH), 32);
        let directory = self.bench.storage.directory.as_ref();
        let made = Workfile::create(directory, 0, SEQUENTIAL_BYTES, 0, Naming::Nameless)?;
        let file = File::open(made.path(), &OpenOptions::new().cache(self.file.cache_mode()))?;
        let mut traffic = Traffic::open(Request::write, &file, SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES)?;
        let written = Cell::new(0_u64);
        let places = (0..size).map(|number| number * SEQUENTIAL_BYTES).cycle();
        let mut place = places.inspect(|_| written.set(written.get() + 1));
        let mut write = |most, time| {
            let window = traffic.window(SEQUENTIAL_DEPTH, most, time, &mut place)?;
            file.sync_data()?;
            Ok(window)
        };
        // A first pass allocates the space, which the others overwrite.
        on::without_timing(self.bench.on, || write(size, Duration::MAX))?;
        let windows = rounds(|| {
            written.set(0);
            let begun = Instant::now();
            let Window { waits, .. } = write(u64::MAX, self.args.window)?;
            // To the end of the sync.
            Ok(Window { per_s: written.get() as f64 / begun.elapsed().as_secs_f64(), waits })
        })?;
        summary.sequential_write = figure(&windows, SEQUENTIAL_BYTES as f64);
        Ok(())
    }

    fn syncs(&self, summary: &mut DeviceSummary) -> anyhow::Result<()> {
        let most = (self.bench.workfile.size_bytes / 16 / RANDOM_BYTES).clamp(64, 2048);
        let page = [0x5a_u8; RANDOM_BYTES as usize];
        let windows = rounds(|| {
            let mut file = tempfile::tempfile_in(&self.bench.storage.directory)?;
            let (begun, mut waits) = (Instant::now(), wait_histogram());
            while waits.len() < most && (waits.len() < 4 || begun.elapsed() < self.args.window) {
                let moment = Instant::now();
                std::io::Write::write_all(&mut file, &page)?;
                file.sync_data()?;
                waits.saturating_record(moment.elapsed().as_nanos() as u64);
            }
            Ok(Window { per_s: waits.len() as f64 / begun.elapsed().as_secs_f64(), waits })
        })?;
        summary.sync = figure(&windows, 1.0);
        Ok(())
    }
}

/// The number of windows that a figure covers.
fn rounds(mut window: impl FnMut() -> anyhow::Result<Window>) -> anyhow::Result<Vec<Window>> {
    let mut windows = Vec::new();
    while windows.len() < ROUNDS {
        interrupt::check()?;
        windows.push(window()?);
    }
    Ok(windows)
}

/// Whether the newest windows are alike.
fn is_steady(rates: &[f64]) -> bool {
    let newest = &rates[rates.len().saturating_sub(2 * LEVEL_WINDOWS)..];
    let (low, high) = range(newest);
    newest.len() >= 2 * LEVEL_WINDOWS && low >= high * FALL
}

/// The first window after the rate has fallen permanently: every later one is much slower than it was before. If
/// there are several such windows, the one with the deepest fall.
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

/// `scale`: counted units in a request.
fn figure(windows: &[Window], scale: f64) -> Option<Figure> {
    let rates: Vec<f64> = windows.iter().map(|window| window.per_s * scale).collect();
    let mut waits = wait_histogram();
    for window in windows {
        waits.add(&window.waits).ok()?;
    }
    let (per_s, (low, high)) = (median(&rates)?, range(&rates));
    let [wait_us_p50, wait_us_p99] = [0.5, 0.99].map(|quantile| wait_us(&waits, quantile));
    Some(Figure { per_s, low, high, rounds: rates.len(), wait_us_p50, wait_us_p99 })
}

#[cfg(test)]
mod tests;
