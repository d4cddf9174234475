//! `forebay explain`: the requests that the running kernel really issues for a list of blocks.
//!
//! A reader names blocks; the requests that reach the disk are different, and depend on the strategy.
//! Here each strategy reads the same blocks from a new and therefore cold file on an emulated disk,
//! and the disk logs the requests that arrive. Nothing is computed from a model of the
//! kernel. Worked example: `1,3,2,6,4,9` with WILLNEED for each block makes six requests; a stream that
//! sorts and merges makes one or two.
//!
//! | part | its one idea |
//! |---|---|
//! | `pattern` | the blocks, from the command line |
//! | `site` | a file on a separate emulated disk, and its log |
//! | `read` | the blocks read as each strategy does it |
//! | `request` | the log in blocks: wanted, besides, again |
//! | `axis` | which blocks are drawn, with gaps left out, and in which columns |
//! | `strip` | the terminal |
//! | `svg`, `json` | files |
//!
//! Concurrency: one thread reads; the pool and the emulated disk have their own.
//! Failure:     any error ends the run; the disk is unmounted on every exit.
//! Source:      document 004 of the sources: 1, 3, 2, 6, 4, 9 is its example.

mod args;
mod axis;
mod json;
mod pattern;
mod read;
mod request;
mod site;
mod strip;
mod svg;

use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use forebay_io::CacheMode;
use serde::Serialize;

pub use args::ExplainArgs;
use forebay_measure::lists::unique;
use forebay_measure::progress::Progress;
use forebay_measure::report::numbers;
use forebay_measure::units::{shown_size, typed_size};
use forebay_measure::{interrupt, output};
use pattern::Pattern;
use request::Account;

/// Reads between two looks at how far a run is.
const PROGRESS_READS: usize = 16;

/// Letters of a pattern that are shown.
const PATTERN_SHOWN: usize = 80;

/// A way of reading the blocks of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Strategy {
    /// Plain reads of one block each; the kernel decides how far to read ahead.
    Os,
    /// The same after FADV_RANDOM: no readahead.
    Random,
    /// The same after FADV_SEQUENTIAL: twice the readahead.
    Max,
    /// The same, with FADV_WILLNEED for each block some blocks before it is read.
    WillNeed,
    /// A read stream of a Forebay pool, which knows the list and chooses on its own.
    Adaptive,
}

forebay_measure::shown_by_name!(Strategy);

/// Everything one run found out.
#[derive(Debug)]
struct Explained {
    args: ExplainArgs,
    pattern: Pattern,
    disk: Disk,
    /// In request order.
    results: Vec<StrategyResult>,
}

/// The emulated disk, and the kernel over it.
#[derive(Debug)]
struct Disk {
    /// The name of its profile.
    profile: String,
    /// The profile's sentence about itself.
    about: String,
    /// How far the kernel may read ahead there; `None` where that is unknown.
    readahead_bytes: Option<u64>,
    /// Name and release of the kernel.
    kernel: String,
}

/// The result of one strategy.
#[derive(Debug)]
struct StrategyResult {
    strategy: Strategy,
    /// The requests that the disk received.
    account: Account,
    /// From the first block to the last, in the time of the modelled device.
    seconds: f64,
    /// Reads that found all of their block in the page cache, already there or in flight; `None` for
    /// a pool.
    cached: Option<u64>,
    /// Remarks for the reader.
    remark: Option<String>,
}

/// `forebay explain`. `command`: the command line that repeats it.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub fn run(args: &ExplainArgs, command: &str) -> anyhow::Result<()> {
    let pattern = Pattern::parse(&args.pattern, args.seed)
        .map_err(|error| forebay_measure::BadInput(format!("{error:#}")))?;
    for path in [&args.json, &args.svg].into_iter().flatten() {
        output::check_file(path)?;
    }
    if let Some(directory) = &args.logs {
        let existing = directory.ancestors().find(|path| path.exists());
        output::check_directory(existing.unwrap_or(Path::new("")), directory)?;
    }
    let explained = explain(args.clone(), pattern)?;
    // Printed first, in case the files cannot be written: the run may have taken a minute.
    output::print(&strip::drawn(&explained, output::look()))?;
    if let Some(path) = &args.json {
        output::save(path, &json::text(&explained, command))?;
    }
    if let Some(path) = &args.svg {
        output::save(path, &svg::draw(&explained)?)?;
    }
    let files = [("requests:", &args.json), ("picture: ", &args.svg), ("logs:    ", &args.logs)];
    for (name, path) in files {
        if let Some(path) = path {
            output::print(&format!("{name} {}\n", path.display()))?;
        }
    }
    Ok(())
}

/// Runs every strategy, each on a separate disk.
fn explain(args: ExplainArgs, pattern: Pattern) -> anyhow::Result<Explained> {
    let strategies = unique(&args.strategy);
    let blocks = pattern.blocks.len();
    let mut progress = Progress::new((blocks * strategies.len()) as u64);
    let (mut results, mut disk) = (Vec::new(), None);
    for (index, &strategy) in strategies.iter().enumerate() {
        interrupt::check()?;
        let (on, result) = site::explain(&args, &pattern, strategy, |read| {
            if read % PROGRESS_READS == 0 {
                progress.reach((index * blocks + read) as u64, &strategy.to_string());
            }
        })?;
        disk = Some(on);
        results.push(result);
    }
    let disk = disk.context("there is no strategy to explain")?;
    Ok(Explained { args, pattern, disk, results })
}

impl Explained {
    /// The blocks read.
    fn title(&self) -> String {
        let Pattern { text, blocks, wanted, seed } = &self.pattern;
        let mut shown: String = text.chars().take(PATTERN_SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        let (reads, each) = (counted(blocks.len(), "block"), typed_size(self.args.block_size));
        let mut title = format!("{shown}: {reads} of {each}");
        if wanted.len() < blocks.len() {
            title += &format!(", {} of them different", shown_count(wanted.len()));
        }
        if let Some(seed) = seed {
            title += &format!(", seed {seed}");
        }
        title
    }

    /// Where it was read.
    fn place(&self) -> String {
        let Disk { profile, about, readahead_bytes, kernel } = &self.disk;
        let faster = match self.args.speed_up {
            1.0 => String::new(),
            times => format!(", run {} times faster", numbers::number(times)),
        };
        let readahead = readahead_bytes.map_or("unknown".to_owned(), typed_size);
        format!("on {profile} ({about}){faster}; readahead {readahead}, {kernel}")
    }

    /// A short description of a strategy.
    fn about(&self, strategy: Strategy) -> String {
        let reads = match strategy {
            Strategy::Os => "plain reads, the kernel decides",
            Strategy::Random => "plain reads after FADV_RANDOM",
            Strategy::Max => "plain reads after FADV_SEQUENTIAL",
            Strategy::WillNeed => {
                let distance = self.args.distance;
                return format!("plain reads, FADV_WILLNEED for the block {distance} further on");
            }
            Strategy::Adaptive if self.args.cache == CacheMode::Direct => {
                "a read stream of a Forebay pool, past the page cache"
            }
            Strategy::Adaptive => "a read stream of a Forebay pool",
        };
        reads.to_owned()
    }

    /// Its figures in one line.
    fn summary(&self, result: &StrategyResult) -> String {
        format!(
            "{}, {}, over-read {} %, {}",
            counted(result.account.requests.len(), "request"),
            shown_size(result.account.bytes),
            numbers::percent(self.over_read(result)),
            numbers::seconds(result.seconds)
        )
    }

    /// Bytes read unnecessarily, as a part of the necessary ones: 0 when each wanted block
    /// was read once and nothing else.
    fn over_read(&self, result: &StrategyResult) -> f64 {
        let needed = self.pattern.wanted.len() as u64 * self.args.block_size;
        result.account.bytes as f64 / needed as f64 - 1.0
    }

    /// What is drawn: all requested or read blocks.
    fn segments(&self) -> Vec<Range<u64>> {
        let asked = self.pattern.wanted.iter().map(|&block| u64::from(block)..u64::from(block) + 1);
        let read = self.results.iter().flat_map(|result| &result.account.requests);
        axis::segments(asked.chain(read.map(request::Request::blocks)))
    }
}

/// A whole number with its thousands grouped: `32,000`.
fn shown_count(count: usize) -> String {
    numbers::grouped(count as f64)
}

/// A count with its unit: `1 block`, `32,000 blocks`.
fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", shown_count(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod sample;
