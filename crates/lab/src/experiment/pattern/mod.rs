//! Patterns: the orders in which an engine reads the blocks of a file.
//!
//! A pattern makes a [`Plan`]: which blocks, in which order, by how many streams at once. Every way of
//! reading that is compared in a round gets the same plan; the next round gets another one of the same
//! pattern, at another place in the file. Worked example: `shuffled` with 2 ranges of 4 blocks and windows of
//! 2 may read 1, 100, 0, 101, 3, 103, 2, 102.
//!
//! Invariants:  [PAT-1] every block of a plan is in the file   [PAT-2] a plan reads at least one block
//! Source:      documents 000 (access strategies) and 004 (locally random ranges; 1, 3, 2, 6, 4, 9;
//!              1, 1001, 2, 1002); the correlation of an index with its heap as PostgreSQL's
//!              `pg_stats.correlation` has it; Gray's zipfian of "Quickly generating billion-record
//!              synthetic databases" (1994), here by a table of sums.

mod lists;

pub(super) use lists::{Shape, Zipf};

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use lists::Lists;

/// Ranges and window of document 004's pattern, unless the user says otherwise.
const RANGES: u32 = 4;
const WINDOW: u32 = 24;

/// Maximum number of ranges of `shuffled`, each of which has a part of the file.
const RANGES_MAX: u32 = 64;

/// Blocks that a query with LIMIT 10 reads.
const LIMIT_BLOCKS: u32 = 10;

/// Blocks that such a query would read without its limit.
const UNLIMITED_BLOCKS: u32 = 1000;

/// `strided` reads one block in this many.
const STRIDE: u32 = 4;

/// An order in which blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// One scan.
    Sequential,
    /// From the last block to the first.
    Backward,
    /// One block in four, ascending.
    Strided,
    /// This many scans of different parts, advanced in turn.
    Interleaved(u32),
    /// Every block as likely as any other, with repetitions.
    Uniform,
    /// A few blocks very often, most of them almost never.
    Zipfian,
    /// This many ranges read in turn, each in an order that is random within a window of this many blocks.
    Shuffled(u32, u32),
    /// A table in the order of an index; this percentage of it is in the table's order.
    Index(u32),
    /// Ascending, this percentage of the blocks.
    Bitmap(u32),
    /// A scan and a stream of random blocks, advanced in turn.
    Mixed,
    /// Many short streams whose readers stop after ten blocks.
    Limit10,
    /// 1, 3, 2, 6, 4, 9 along the file.
    Neighbours,
    /// 1, 1001, 2, 1002 along the file, as one list.
    TwoStreams,
}

impl Pattern {
    /// All patterns with their names, in the order of tables.
    pub const ALL: [(&'static str, Pattern); 21] = [
        ("sequential", Pattern::Sequential),
        ("backward", Pattern::Backward),
        ("strided", Pattern::Strided),
        ("interleaved-2", Pattern::Interleaved(2)),
        ("interleaved-8", Pattern::Interleaved(8)),
        ("interleaved-32", Pattern::Interleaved(32)),
        ("uniform", Pattern::Uniform),
        ("zipfian", Pattern::Zipfian),
        ("shuffled", Pattern::Shuffled(RANGES, WINDOW)),
        ("index-0", Pattern::Index(0)),
        ("index-0.5", Pattern::Index(50)),
        ("index-0.9", Pattern::Index(90)),
        ("index-1", Pattern::Index(100)),
        ("bitmap-1", Pattern::Bitmap(1)),
        ("bitmap-10", Pattern::Bitmap(10)),
        ("bitmap-50", Pattern::Bitmap(50)),
        ("bitmap-90", Pattern::Bitmap(90)),
        ("mixed", Pattern::Mixed),
        ("limit-10", Pattern::Limit10),
        ("neighbours", Pattern::Neighbours),
        ("two-streams", Pattern::TwoStreams),
    ];

    /// Whether its plans are one list of blocks, or one range.
    pub(super) fn is_one_list(self) -> bool {
        !matches!(self, Pattern::Interleaved(_) | Pattern::Mixed | Pattern::Limit10)
    }

    /// A plan of this pattern. `shape.blocks` and `shape.file_blocks` are at least 64.
    pub(super) fn plan(self, shape: &Shape, random: &mut fastrand::Rng) -> Plan {
        let blocks = shape.blocks.min(shape.file_blocks);
        let mut lists = Lists { shape: *shape, random };
        let alone = |list: Vec<u32>| Plan::in_turn(vec![StreamPlan::list(list)]);
        let plan = match self {
            Pattern::Sequential => Plan::in_turn(vec![StreamPlan::scan(lists.place(blocks))]),
            Pattern::Backward => alone(lists.place(blocks).rev().collect()),
            Pattern::Strided => alone(lists.strided(STRIDE)),
            Pattern::Interleaved(streams) => {
                let scans = lists.parts(streams, blocks / streams);
                Plan::in_turn(scans.into_iter().map(StreamPlan::scan).collect())
            }
            Pattern::Uniform => alone(lists.uniform(blocks)),
            Pattern::Zipfian => alone(lists.zipfian(blocks)),
            Pattern::Shuffled(ranges, window) => alone(lists.shuffled(ranges, window)),
            Pattern::Index(percent) => alone(lists.index(percent)),
            Pattern::Bitmap(percent) => alone(lists.bitmap(percent)),
            Pattern::Mixed => {
                let scan = StreamPlan::scan(lists.place(blocks / 2));
                Plan::in_turn(vec![scan, StreamPlan::list(lists.uniform(blocks / 2))])
            }
            Pattern::Limit10 => limited(&mut lists, blocks),
            Pattern::Neighbours => alone(lists.neighbours()),
            Pattern::TwoStreams => alone(lists.two_streams()),
        };
        assert!(plan.blocks() > 0, "[PAT-2] {self}: {shape:?}");
        assert!(plan.last() < Some(shape.file_blocks), "[PAT-1] {self}: {shape:?}");
        plan
    }
}

/// Queries with a limit: every other one reads on from a random place, the rest random blocks.
fn limited(lists: &mut Lists<'_>, blocks: u32) -> Plan {
    let queries = (blocks / LIMIT_BLOCKS).max(1);
    let unlimited = UNLIMITED_BLOCKS.min(lists.shape.file_blocks);
    let streams = (0..queries).map(|query| {
        let stream = if query % 2 == 0 {
            StreamPlan::scan(lists.place(unlimited))
        } else {
            StreamPlan::list(lists.uniform(unlimited))
        };
        StreamPlan { limit: Some(LIMIT_BLOCKS as usize), ..stream }
    });
    Plan { streams: streams.collect(), at_once: 1 }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Pattern::ALL.iter().find(|(_, pattern)| pattern == self);
        match (named, self) {
            (Some((name, _)), _) => out.pad(name),
            (None, Pattern::Shuffled(ranges, window)) => write!(out, "shuffled-{ranges}x{window}"),
            (None, other) => write!(out, "{other:?}"),
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(name: &str) -> Result<Pattern, String> {
        let name = name.trim();
        if let Some((_, found)) = Pattern::ALL.into_iter().find(|(own, _)| *own == name) {
            return Ok(found);
        }
        let shuffled = name.strip_prefix("shuffled-").and_then(|text| text.split_once('x'));
        let shuffled = shuffled.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match shuffled {
            Some((ranges @ 1..=RANGES_MAX, window @ 1..)) => Ok(Pattern::Shuffled(ranges, window)),
            _ => {
                let names = Pattern::ALL.map(|(name, _)| name).join(", ");
                Err(format!("there are {names}, and shuffled-RANGESxWINDOW such as shuffled-8x48"))
            }
        }
    }
}

/// The blocks of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamPlan {
    pub(super) blocks: Vec<u32>,
    /// Whether they are a range that is announced as such.
    is_scan: bool,
    /// The reader stops after this many blocks, and has announced it.
    pub(super) limit: Option<usize>,
}

impl StreamPlan {
    fn scan(range: Range<u32>) -> StreamPlan {
        StreamPlan { blocks: range.collect(), is_scan: true, limit: None }
    }

    fn list(blocks: Vec<u32>) -> StreamPlan {
        StreamPlan { blocks, is_scan: false, limit: None }
    }

    /// Its range, if it is one.
    pub(super) fn scanned(&self) -> Option<Range<u32>> {
        let (first, last) = (self.blocks.first()?, self.blocks.last()?);
        self.is_scan.then_some(*first..last + 1)
    }

    /// Blocks that the reader reads.
    pub(super) fn taken(&self) -> &[u32] {
        &self.blocks[..self.limit.unwrap_or(self.blocks.len()).min(self.blocks.len())]
    }
}

/// The blocks of one measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) streams: Vec<StreamPlan>,
    /// Streams open at once, advanced in turn; when one ends, the next one replaces it.
    pub(super) at_once: usize,
}

impl Plan {
    fn in_turn(streams: Vec<StreamPlan>) -> Plan {
        Plan { at_once: streams.len(), streams }
    }

    /// Blocks that are read, the same one twice counting twice.
    pub(super) fn blocks(&self) -> u64 {
        self.streams.iter().map(|stream| stream.taken().len() as u64).sum()
    }

    /// The different blocks that are read, ascending.
    pub(super) fn distinct(&self) -> Vec<u32> {
        let mut blocks: Vec<u32> =
            self.streams.iter().flat_map(StreamPlan::taken).copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The highest block of any stream, read or not.
    fn last(&self) -> Option<u32> {
        self.streams.iter().flat_map(|stream| &stream.blocks).max().copied()
    }
}

#[cfg(test)]
mod tests;
