//! State after a power cut: one choice among all legal states.
//!
//! Everything that a sync covered is durable, see [`replay`](crate::replay). For everything else:
//!
//! - **Bytes.** Of each write any set of its sectors survives. A sector is never torn: it has its old content, or the
//!   content after some write, including earlier writes to the same sector. So writes may be lost, be torn, or be lost
//!   while earlier ones survive.
//! - **Sizes.** The size changes of each file survive in order: the first few, and not the rest. A sector past the
//!   surviving size is lost with the size. If a truncation is lost, later writes past its new end are lost too. The
//!   part that a file gained without a surviving write is zero. (The size is one field of an inode, and journaled
//!   there, as in ext4, xfs and btrfs. Stale bytes of other files are not modelled.)
//! - **Names.** Of the changes in each directory any set survives, each completely: a renamed file has its old name or
//!   its new one, never both or none.
//!
//! A uniform choice would hardly ever produce the extremes. So each cut has a mood: nothing pending survives, or
//! everything, or everything up to some moment and nothing after, or each change at random.
//!
//! Invariants:  [CRS-1] durable state is in every image
//!              [CRS-2] a sector has the content of its last sync, or of a later write
//!              [CRS-3] the same position and seed give the same image
//! Source:      redb's and SQLite's crash tests for sectors; "All File Systems Are Not Created Equal" (Pillai and
//!              others, OSDI 2014) for names and sizes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;

use fastrand::Rng;

use crate::journal::{ContentEvent, Node, Position};
use crate::state::{Content, Names, apply_content, apply_name, grow};

/// A source of choices.
#[derive(Debug)]
pub(crate) struct Choice {
    rng: Rng,
    mood: Mood,
    sector_bytes: u64,
}

/// Which changes tend to survive.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Nothing,
    Everything,
    /// Everything before this position, nothing after it, and a part of a write exactly here.
    Until(Position),
    Anything,
}

/// The part of one write that survives.
enum Survives {
    Nothing,
    Whole,
    /// This many sectors from the first one on.
    First(u64),
    /// All but this many sectors from the first one on.
    AllBut(u64),
    /// Each sector at random.
    Tossed,
}

impl Choice {
    /// Choices for a cut; `pending` ranges from the oldest event that is not durable to the cut.
    pub(crate) fn new(seed: u64, sector_bytes: u64, pending: Range<Position>) -> Choice {
        let mut rng = Rng::with_seed(seed);
        let mood = match rng.u8(0..8) {
            0 => Mood::Nothing,
            1 => Mood::Everything,
            2 | 3 => Mood::Until(rng.u64(pending.start..=pending.end)),
            _ => Mood::Anything,
        };
        Choice { rng, mood, sector_bytes }
    }

    pub(crate) fn everything(sector_bytes: u64) -> Choice {
        Choice { rng: Rng::with_seed(0), mood: Mood::Everything, sector_bytes }
    }

    /// The mood for one file or directory: under `Anything`, some lose or keep everything.
    fn mood_of_one(&mut self) -> Mood {
        match self.mood {
            Mood::Anything => match self.rng.u8(0..6) {
                0 => Mood::Nothing,
                1 => Mood::Everything,
                _ => Mood::Anything,
            },
            mood => mood,
        }
    }

    /// The names in a directory after the cut.
    pub(crate) fn names(&mut self, names: &Names) -> BTreeMap<OsString, Node> {
        let mood = self.mood_of_one();
        let mut surviving = names.durable.clone();
        for (position, event) in &names.pending {
            let survives = match mood {
                Mood::Nothing => false,
                Mood::Everything => true,
                Mood::Until(end) => *position < end,
                Mood::Anything => self.rng.bool(),
            };
            if survives {
                apply_name(&mut surviving, event);
            }
        }
        surviving
    }

    /// The bytes of a file after the cut.
    pub(crate) fn content(&mut self, content: &Content) -> Vec<u8> {
        let mood = self.mood_of_one();
        let pending = &content.pending;
        let mut bytes = content.durable.clone();
        if pending.is_empty() {
            return bytes;
        }
        // The visible state: a sector is written with its content there, including all earlier changes.
        let mut cache = bytes.clone();
        // The number of pending events whose size changes survive; writes also change the size.
        let sized = match mood {
            Mood::Nothing => 0,
            Mood::Everything => pending.len(),
            Mood::Until(end) => pending.partition_point(|(position, _)| *position <= end),
            Mood::Anything => self.rng.usize(0..=pending.len()),
        };
        // Writes past the new end of a lost truncation go to blocks that the file does not have after the cut.
        let mut reach = u64::MAX;
        for (index, (position, event)) in pending.iter().enumerate() {
            apply_content(&mut cache, event);
            match event {
                ContentEvent::Resize { len } if index >= sized => reach = reach.min(*len),
                ContentEvent::Resize { len } => bytes.resize(*len as usize, 0),
                ContentEvent::Grow { len } if index < sized => grow(&mut bytes, *len),
                ContentEvent::Grow { .. } => {}
                ContentEvent::Write { offset, bytes: written, atomic } => {
                    let range = *offset..*offset + written.len() as u64;
                    if index < sized {
                        grow(&mut bytes, range.end);
                    }
                    let survives = match self.fate_of_write(mood, *position, &range) {
                        torn if *atomic && !matches!(torn, Survives::Nothing) => Survives::Whole,
                        fate => fate,
                    };
                    self.write_sectors(&mut bytes, &cache, &range, reach, &survives);
                }
            }
        }
        bytes
    }

    fn fate_of_write(&mut self, mood: Mood, position: Position, range: &Range<u64>) -> Survives {
        let torn = match mood {
            Mood::Nothing => return Survives::Nothing,
            Mood::Everything => return Survives::Whole,
            Mood::Until(end) if position < end => return Survives::Whole,
            Mood::Until(end) if position > end => return Survives::Nothing,
            Mood::Until(_) => self.rng.u8(0..3),
            Mood::Anything => match self.rng.u8(0..9) {
                0..3 => return Survives::Nothing,
                3..6 => return Survives::Whole,
                torn => torn - 6,
            },
        };
        let sectors = range.end.div_ceil(self.sector_bytes) - range.start / self.sector_bytes;
        match torn {
            0 => Survives::First(self.rng.u64(0..=sectors)),
            1 => Survives::AllBut(self.rng.u64(0..=sectors)),
            _ => Survives::Tossed,
        }
    }

    /// Writes the surviving sectors of `range` that begin before `reach`, with their content in the cache, up to the
    /// end of `content`.
    fn write_sectors(
        &mut self,
        content: &mut [u8],
        cache: &[u8],
        range: &Range<u64>,
        reach: u64,
        survives: &Survives,
    ) {
        let first = range.start / self.sector_bytes;
        for sector in first..range.end.div_ceil(self.sector_bytes) {
            let here = match survives {
                Survives::Nothing => false,
                Survives::Whole => true,
                Survives::First(sectors) => sector - first < *sectors,
                Survives::AllBut(sectors) => sector - first >= *sectors,
                Survives::Tossed => self.rng.bool(),
            };
            let start = sector * self.sector_bytes;
            let end = (start + self.sector_bytes).min(content.len() as u64);
            if here && start < end.min(reach) {
                let (start, end) = (start as usize, end as usize);
                // Past the end of the file the cache has zeroes.
                let filled = end.min(cache.len());
                content[start..filled].copy_from_slice(&cache[start..filled]);
                content[filled..end].fill(0);
            }
        }
    }
}
