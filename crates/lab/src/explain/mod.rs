//! `forebay explain`: the very requests that the running kernel issues for a list of blocks.
//!
//! A reader names blocks; what reaches the disk is something else, and which depends on who reads.
//! Here each strategy reads the same blocks from a new and therefore cold file on an emulated disk,
//! and the requests are those that arrived there. Nothing is computed from what kernels are thought
//! to do. Worked example: `1,3,2,6,4,9` with WILLNEED for each block makes six requests; a stream that
//! sorts and merges makes one or two.
//!
//! | part | its one idea |
//! |---|---|
//! | `pattern` | the blocks, from the command line |
//! | `settings` | the arguments, checked |
//! | `site` | a file on an emulated disk of its own, and its log |
//! | `read` | the blocks read as each strategy does it |
//! | `request` | the log in blocks: wanted, besides, again |
//! | `axis` | which blocks are drawn, with gaps left out |
//! | `strip`, `table` | the terminal |
//! | `svg`, `json` | files |
//!
//! Concurrency: one thread reads; the pool and the emulated disk have their own.
//! Failure:     whatever goes wrong ends the run; the disk is unmounted on every way out.
//! Source:      document 004 of the sources: 1, 3, 2, 6, 4, 9 is its example.

mod axis;
mod json;
mod pattern;
mod read;
mod request;
mod settings;
mod site;
mod strategy;
mod strip;
mod svg;
mod table;

use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use forebay_io::CacheMode;

use crate::cli::ExplainArgs;
use crate::progress::Progress;
use crate::report::numbers;
use crate::{interrupt, output};
use axis::Axis;
use request::Account;
use settings::Settings;
use site::Site;

pub use pattern::{BLOCKS_MAX, Pattern, PatternError};
pub use request::Request;
pub use strategy::Strategy;

/// Reads between two looks at how far a run is.
const PROGRESS_READS: usize = 16;

/// Everything one run found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// What was read.
    pub pattern: Pattern,
    /// Size of a block.
    pub block_bytes: u64,
    /// Where.
    pub disk: Disk,
    /// How many blocks ahead WILLNEED was.
    pub distance: u32,
    /// How the pool read.
    pub cache: CacheMode,
    /// What each strategy came to, in the order asked for.
    pub told: Vec<Told>,
    /// The command that does it again.
    pub command: String,
}

/// The emulated disk, and the kernel over it.
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    /// The name of its profile.
    pub profile: String,
    /// The profile's sentence about itself.
    pub about: String,
    /// How many times faster than the modelled device it ran.
    pub speed_up: f64,
    /// How far the kernel may read ahead there; `None` where that cannot be told.
    pub readahead_bytes: Option<u64>,
    /// Name and release of the kernel.
    pub kernel: String,
}

/// What came of one strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Which.
    pub strategy: Strategy,
    /// What arrived at the disk, in order of issue.
    pub requests: Vec<Request>,
    /// From the first block to the last, in the time of the modelled device.
    pub seconds: f64,
    /// Reads that found all of their block in the page cache, there already or on its way; `None` for
    /// a pool, whose reads do not wait for the block in hand.
    pub cached: Option<u64>,
    /// What else has to be known.
    pub remarks: Vec<String>,
}

/// `forebay explain`. `program`: the path or name by which this program was called.
///
/// # Errors
/// [`BadInput`](crate::BadInput), [`Interrupted`](crate::interrupt::Interrupted), or what went wrong.
pub(crate) fn run(args: &ExplainArgs, program: &str) -> anyhow::Result<()> {
    let settings = Settings::new(args)?;
    let explained = explain(&settings, program)?;
    let picture = Picture::new(&explained);
    let written = write_files(&picture, &settings);
    let look = output::look();
    let mut text = table::heading(&picture, look);
    text.push_str(&strip::strips(&picture, look));
    text.push_str(&table::figures(&picture, look));
    let files = [
        ("requests:", &settings.json),
        ("picture: ", &settings.svg),
        ("logs:    ", &settings.logs),
    ];
    for (name, path) in files.iter().filter(|_| written.is_ok()) {
        if let Some(path) = path {
            text.push_str(&format!("{name} {}\n", path.display()));
        }
    }
    // The summary also if the files could not be written: it may have taken a minute.
    output::print(&text)?;
    written
}

/// Has every strategy read, each on a disk of its own.
fn explain(settings: &Settings, program: &str) -> anyhow::Result<Explained> {
    let blocks = settings.pattern.blocks.len();
    let reads = (blocks * settings.strategies.len()) as u64;
    let mut progress = Progress::new(reads);
    let (mut told, mut disk) = (Vec::new(), None);
    for (index, &strategy) in settings.strategies.iter().enumerate() {
        interrupt::check()?;
        let site = Site::open(settings)?;
        if disk.is_none() {
            disk = Some(site.disk(settings)?);
        }
        let before = (index * blocks) as u64;
        told.push(site.explain(strategy, settings, |read| {
            if read % PROGRESS_READS == 0 {
                progress.reach(before + read as u64, strategy.name());
            }
        })?);
    }
    drop(progress);
    let disk = disk.context("there is no strategy to explain")?;
    Ok(Explained {
        pattern: settings.pattern.clone(),
        block_bytes: settings.block_bytes,
        disk,
        distance: settings.distance,
        cache: settings.cache,
        told,
        command: settings.command(program),
    })
}

fn write_files(picture: &Picture<'_>, settings: &Settings) -> anyhow::Result<()> {
    let save = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &settings.json {
        save(path, json::text(picture))?;
    }
    if let Some(path) = &settings.svg {
        save(path, svg::draw(picture))?;
    }
    Ok(())
}

/// A run with all that is computed from it once, for those who draw it.
#[derive(Debug)]
struct Picture<'e> {
    explained: &'e Explained,
    /// The blocks of the pattern, ascending, each once.
    wanted: Vec<u32>,
    /// One for each strategy.
    accounts: Vec<Account>,
    axis: Axis,
}

impl<'e> Picture<'e> {
    fn new(explained: &'e Explained) -> Picture<'e> {
        let (wanted, block_bytes) = (explained.pattern.distinct(), explained.block_bytes);
        let accounts: Vec<Account> = explained
            .told
            .iter()
            .map(|told| Account::of(&told.requests, &wanted, block_bytes))
            .collect();
        let requests = explained.told.iter().flat_map(|told| &told.requests);
        let read = requests.map(|request| request.blocks(block_bytes));
        let asked = wanted.iter().map(|&block| u64::from(block)..u64::from(block) + 1);
        let axis = Axis::of(asked.chain(read).collect::<Vec<Range<u64>>>());
        Picture { explained, wanted, accounts, axis }
    }

    /// Each strategy with its account.
    fn told(&self) -> impl Iterator<Item = (&'e Told, &Account)> {
        self.explained.told.iter().zip(&self.accounts)
    }

    /// What a strategy does, in a few words.
    fn about(&self, strategy: Strategy) -> String {
        match (strategy, self.explained.distance, self.explained.cache) {
            (Strategy::Os, ..) => "plain reads, the kernel decides".into(),
            (Strategy::Random, ..) => "plain reads after FADV_RANDOM".into(),
            (Strategy::Max, ..) => "plain reads after FADV_SEQUENTIAL".into(),
            (Strategy::WillNeed, 1, _) => "plain reads, FADV_WILLNEED for each block before".into(),
            (Strategy::WillNeed, distance, _) => {
                format!("plain reads, FADV_WILLNEED for each block {distance} blocks before")
            }
            (Strategy::Adaptive, _, CacheMode::Buffered) => {
                "a read stream of a Forebay pool".into()
            }
            (Strategy::Adaptive, _, CacheMode::Direct) => {
                "a read stream of a Forebay pool, past the page cache".into()
            }
        }
    }

    fn over_read(&self, account: &Account) -> f64 {
        account.over_read(&self.wanted, self.explained.block_bytes)
    }
}

/// A whole number with its thousands grouped: `32,000`.
fn shown_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time that may be short: `12.3 ms`.
fn shown_time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.000_999_5 => format!("{} µs", numbers::number(seconds * 1e6)),
        _ if seconds < 0.9995 => format!("{} ms", numbers::number(seconds * 1e3)),
        _ => numbers::seconds(seconds),
    }
}

#[cfg(test)]
mod sample;
