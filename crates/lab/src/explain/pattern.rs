//! The pattern on the command line: which blocks are read, in which order.
//!
//! Items between commas are read one after the other: a block, a range (a descending one is read
//! backwards), something made (`random:100`), or a file with such items on its lines. Worked example:
//! `9,3-1,sequential:2@50` is 9, 3, 2, 1, 50, 51. The same text and seed always give the same blocks.
//!
//! Rejected:    the patterns of `forebay lab strategies` by name: they are made for a file of a given
//!              size, and move about in it from round to round.
//!
//! Invariants:  [EXP-1] a pattern has at least one block and at most [`BLOCKS_MAX`]
//! Failure:     an error names the item, and the file and line in which it stands.

use std::ops::RangeInclusive;

use anyhow::{Context, bail, ensure};

use forebay_measure::lists::sorted;

/// Maximum number of blocks of a pattern: as many requests as an emulated disk remembers.
const BLOCKS_MAX: usize = 1_000_000;

/// The blocks that `random` chooses from, unless the pattern says otherwise.
const RANDOM_SPAN: u32 = 131_072;

/// Minimum number of blocks between two ranges of `shuffled`: more than the kernel reads ahead.
const RANGES_DISTANCE_MIN: u32 = 1024;

/// Blocks in the order in which they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// As it was typed.
    pub(super) text: String,
    /// The blocks; never none.
    pub(super) blocks: Vec<u32>,
    /// The same in ascending order, each once.
    pub(super) wanted: Vec<u32>,
    /// The seed of the random parts, if there are any.
    pub(super) seed: Option<u64>,
}

impl Pattern {
    /// Parses `text`. `seed` is used for random items.
    ///
    /// # Errors
    /// A sentence that says which item is wrong, and what is expected there.
    pub(super) fn parse(text: &str, seed: u64) -> anyhow::Result<Pattern> {
        let random = fastrand::Rng::with_seed(seed);
        let mut made = Made { blocks: Vec::new(), random, drawn: false };
        for item in text.split(',') {
            match item.trim().strip_prefix('@') {
                Some(name) => made.file(name.trim())?,
                None => made.named("PATTERN", item)?,
            }
        }
        let Made { blocks, drawn, .. } = made;
        ensure!(!blocks.is_empty(), "PATTERN: there is no block in {text:?}");
        let wanted = sorted(&blocks);
        Ok(Pattern { text: text.to_owned(), blocks, wanted, seed: drawn.then_some(seed) })
    }
}

/// The items parsed so far.
struct Made {
    blocks: Vec<u32>,
    random: fastrand::Rng,
    /// Whether any block is from `random`.
    drawn: bool,
}

impl Made {
    /// Items on lines; text after a `#` is a comment.
    fn file(&mut self, name: &str) -> anyhow::Result<()> {
        let contents = std::fs::read_to_string(name)
            .with_context(|| format!("PATTERN: {name} cannot be read"))?;
        for (index, line) in contents.lines().enumerate() {
            let items = line.split('#').next().unwrap_or_default().split(',');
            // Lists that end in a comma are common, and the comma has no meaning.
            for item in items.filter(|item| !item.trim().is_empty()) {
                self.named(&format!("{name}, line {}", index + 1), item)?;
            }
        }
        Ok(())
    }

    /// Like [`Made::item`], but the error names the item and its `place`.
    fn named(&mut self, place: &str, item: &str) -> anyhow::Result<()> {
        let item = item.trim();
        self.item(item).with_context(|| format!("{place}: {item:?}"))
    }

    fn item(&mut self, item: &str) -> anyhow::Result<()> {
        match item.split_once(':') {
            Some(("sequential", rest)) => self.sequential(rest),
            Some(("random", rest)) => self.random(rest),
            Some(("shuffled", rest)) => self.shuffled(rest),
            Some(_) => bail!("there are sequential, random and shuffled"),
            None if item.starts_with('@') => bail!("a file of blocks cannot name another file"),
            None => self.range(item),
        }
    }

    /// `BLOCK` or `FIRST-LAST`
    fn range(&mut self, item: &str) -> anyhow::Result<()> {
        let Some((first, last)) = item.split_once('-') else {
            let block = number(item, "a block (7), a range (10-20) or sequential:100")?;
            return self.blocks_from(block, 1);
        };
        let (first, last) = (number(first, "the first block")?, number(last, "the last block")?);
        let begin = self.blocks.len();
        self.blocks_from(first.min(last), u64::from(first.abs_diff(last)) + 1)?;
        if first > last {
            self.blocks[begin..].reverse();
        }
        Ok(())
    }

    /// `COUNT[@START]`
    fn sequential(&mut self, rest: &str) -> anyhow::Result<()> {
        let (blocks, start) = with_start(rest)?;
        self.blocks_from(start, count(blocks, "the number of blocks")?.into())
    }

    /// `COUNT[/SPAN][@START]`: COUNT different blocks out of SPAN, in random order.
    fn random(&mut self, rest: &str) -> anyhow::Result<()> {
        let (rest, start) = with_start(rest)?;
        let (blocks, span) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
        let blocks = count(blocks, "the number of blocks")?;
        let span = match span {
            Some(span) => count(span, "the number of blocks to choose from")?,
            None => RANDOM_SPAN.max(blocks.saturating_mul(2)),
        };
        ensure!(blocks <= span, "only {span} blocks are there to choose from");
        self.check_room(u64::from(blocks))?;
        let mut chosen = self.random.choose_multiple(range(start, span.into())?, blocks as usize);
        self.random.shuffle(&mut chosen);
        self.blocks.extend(chosen);
        self.drawn = true;
        Ok(())
    }

    /// `RANGESxBLOCKS/WINDOW[@START]`: ranges read in turn, each in windows that are shuffled.
    fn shuffled(&mut self, rest: &str) -> anyhow::Result<()> {
        let (rest, start) = with_start(rest)?;
        let parts = rest.split_once('/').and_then(|(shape, window)| {
            let (ranges, blocks) = shape.split_once('x')?;
            Some((ranges, blocks, window))
        });
        let (ranges, blocks, window) =
            parts.context("expected RANGESxBLOCKS/WINDOW, such as 4x1000/24")?;
        let ranges = count(ranges, "the number of ranges")?;
        let blocks = count(blocks, "the number of blocks in a range")?;
        let window = count(window, "the number of blocks mixed up among themselves")?;
        self.check_room(u64::from(ranges) * u64::from(blocks))?;
        let gap = u64::from(blocks) + u64::from(blocks.max(RANGES_DISTANCE_MIN));
        let all = range(start, gap * u64::from(ranges))?;
        let mixed: Vec<Vec<u32>> = all
            .step_by(gap as usize)
            .map(|first| {
                let mut list: Vec<u32> = (first..first + blocks).collect();
                list.chunks_mut(window as usize).for_each(|window| self.random.shuffle(window));
                list
            })
            .collect();
        let turns = 0..blocks as usize;
        self.blocks.extend(turns.flat_map(|turn| mixed.iter().map(move |list| list[turn])));
        self.drawn |= window > 1;
        Ok(())
    }

    fn blocks_from(&mut self, start: u32, count: u64) -> anyhow::Result<()> {
        self.check_room(count)?;
        self.blocks.extend(range(start, count)?);
        Ok(())
    }

    /// Whether `count` more blocks fit [EXP-1].
    fn check_room(&self, count: u64) -> anyhow::Result<()> {
        let all = self.blocks.len() as u64 + count;
        ensure!(all <= BLOCKS_MAX as u64, "a pattern has at most {BLOCKS_MAX} blocks");
        Ok(())
    }
}

/// The text before `@START`, and START, or 0.
fn with_start(rest: &str) -> anyhow::Result<(&str, u32)> {
    match rest.split_once('@') {
        Some((rest, start)) => Ok((rest, number(start, "the first block")?)),
        None => Ok((rest, 0)),
    }
}

/// `count` blocks, which are at least one.
fn range(start: u32, count: u64) -> anyhow::Result<RangeInclusive<u32>> {
    let last = u32::try_from(u64::from(start) + count - 1).ok();
    let last = last.with_context(|| format!("its blocks go beyond {}", u32::MAX))?;
    Ok(start..=last)
}

fn number(text: &str, what: &str) -> anyhow::Result<u32> {
    let number = text.trim().parse().ok();
    number.with_context(|| format!("expected {what}; a number is at most {}", u32::MAX))
}

/// As [`number`], from 1.
fn count(text: &str, what: &str) -> anyhow::Result<u32> {
    let count = number(text, what)?;
    ensure!(count > 0, "{what} is at least 1");
    Ok(count)
}

#[cfg(test)]
mod tests;
