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
//! Failure:     an error repeats the line it was found in and points at the place.

use std::fmt;
use std::io;
use std::ops::Range;

/// The most blocks that a pattern may have: as many requests as an emulated disk remembers.
pub const BLOCKS_MAX: usize = 1_000_000;

/// The blocks that `random` chooses from, unless the pattern says otherwise.
const RANDOM_SPAN: u32 = 131_072;

/// The fewest blocks between two ranges of `shuffled`: more than the kernel reads ahead.
const RANGES_APART_MIN: u32 = 1024;

/// Characters of a line that an error repeats at most.
const SHOWN_MAX: usize = 64;

/// What an item may be.
const ITEMS: &str = "a block (7), a range (10-20), sequential:100, random:100, shuffled:4x1000/24 \
                     or @FILE";

/// Blocks in the order in which they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// As it was typed.
    pub text: String,
    /// The blocks; never none.
    pub blocks: Vec<u32>,
    /// What the random parts were made from, if there are any.
    pub seed: Option<u64>,
}

impl Pattern {
    /// Reads `text`. `seed` is used where something is random, `read` where a file is named.
    ///
    /// A text that is no pattern but the name of a file that can be read stands for that file.
    ///
    /// # Errors
    /// [`PatternError`], with the place.
    pub fn parse(
        text: &str,
        seed: u64,
        mut read: impl FnMut(&str) -> io::Result<String>,
    ) -> Result<Pattern, PatternError> {
        let mut made = Made::new(seed);
        let parsed = made.line(&Line { text, at: 0, file: None }, Some(&mut read));
        if let Err(error) = parsed {
            let Ok(contents) = read(text) else { return Err(error) };
            made = Made::new(seed);
            made.file(text, &contents)?;
        }
        let Made { blocks, drawn, .. } = made;
        if blocks.is_empty() {
            let expected = "there is no block in it".to_owned();
            return Err(PatternError::new(&Line { text, at: 0, file: None }, 0..0, expected));
        }
        assert!(blocks.len() <= BLOCKS_MAX, "[EXP-1] checked before each item is made");
        Ok(Pattern { text: text.to_owned(), blocks, seed: drawn.then_some(seed) })
    }

    /// The blocks in ascending order, each once.
    pub fn distinct(&self) -> Vec<u32> {
        let mut distinct = self.blocks.clone();
        distinct.sort_unstable();
        distinct.dedup();
        distinct
    }
}

/// Something that cannot be read as a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// What should be there, or why what is there cannot be.
    pub expected: String,
    /// The line it was found in.
    pub line: String,
    /// Where in that line, in characters; empty for a place between two.
    pub place: Range<usize>,
    /// The file and the number of the line, from 1, if it was not on the command line.
    pub file: Option<(String, usize)>,
}

impl PatternError {
    fn new(line: &Line<'_>, bytes: Range<usize>, expected: String) -> PatternError {
        let characters = |end: usize| line.text[..end].chars().count();
        PatternError {
            expected,
            line: line.text.to_owned(),
            place: characters(bytes.start)..characters(bytes.end),
            file: line.file.map(|name| (name.to_owned(), line.at)),
        }
    }
}

impl std::error::Error for PatternError {}

impl fmt::Display for PatternError {
    /// A sentence, the line or the part of it around the place, and a mark under the place.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some((name, line)) => writeln!(out, "{name}, line {line}: {}", self.expected)?,
            None => writeln!(out, "PATTERN: {}", self.expected)?,
        }
        let start = self.place.start.saturating_sub(SHOWN_MAX / 2);
        let end = self.line.chars().count().min(start + SHOWN_MAX);
        let shown: String = self.line.chars().skip(start).take(end - start).collect();
        let (before, after) = (if start > 0 { "..." } else { "" }, "...");
        let after = if end < self.line.chars().count() { after } else { "" };
        writeln!(out, "  {before}{shown}{after}")?;
        let marks = self.place.end.min(end).saturating_sub(self.place.start).max(1);
        let indent = before.len() + self.place.start - start;
        write!(out, "  {}{}", " ".repeat(indent), "^".repeat(marks))
    }
}

/// A line of items.
struct Line<'t> {
    text: &'t str,
    /// From 1, in a file.
    at: usize,
    file: Option<&'t str>,
}

/// An item in its line.
struct Item<'t> {
    line: &'t Line<'t>,
    text: &'t str,
    /// Of its first byte.
    start: usize,
}

impl<'t> Item<'t> {
    fn error(&self, expected: impl Into<String>) -> PatternError {
        PatternError::new(self.line, self.start..self.start + self.text.len(), expected.into())
    }

    /// `self.text[bytes]`, without blanks around it.
    fn part(&self, bytes: Range<usize>) -> Item<'t> {
        let text = &self.text[bytes.clone()];
        let blanks = text.len() - text.trim_start().len();
        Item { line: self.line, text: text.trim(), start: self.start + bytes.start + blanks }
    }

    /// What stands before and after the first `sign`.
    fn split(&self, sign: char) -> Option<(Item<'t>, Item<'t>)> {
        let at = self.text.find(sign)?;
        Some((self.part(0..at), self.part(at + sign.len_utf8()..self.text.len())))
    }

    fn number(&self, what: &str) -> Result<u32, PatternError> {
        let digits = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit());
        match self.text.parse() {
            Ok(number) if digits => Ok(number),
            _ if digits => Err(self.error(format!("{what} is at most {}", u32::MAX))),
            _ => Err(self.error(format!("expected {what}, a number"))),
        }
    }

    /// As [`Item::number`], from 1.
    fn count(&self, what: &str) -> Result<u32, PatternError> {
        match self.number(what)? {
            0 => Err(self.error(format!("{what} is at least 1"))),
            count => Ok(count),
        }
    }
}

/// What has been read so far.
struct Made {
    blocks: Vec<u32>,
    random: fastrand::Rng,
    /// Whether anything came from `random`.
    drawn: bool,
}

type ReadFile<'r> = &'r mut dyn FnMut(&str) -> io::Result<String>;

impl Made {
    fn new(seed: u64) -> Made {
        Made { blocks: Vec::new(), random: fastrand::Rng::with_seed(seed), drawn: false }
    }

    /// Reads the items of `line`; `read` is `None` where no files may be named.
    fn line(
        &mut self,
        line: &Line<'_>,
        mut read: Option<ReadFile<'_>>,
    ) -> Result<(), PatternError> {
        let mut start = 0;
        for text in line.text.split(',') {
            let item = Item { line, text, start };
            start += text.len() + 1;
            let item = item.part(0..text.len());
            match (item.text.strip_prefix('@'), &mut read) {
                (Some(name), Some(read)) => {
                    let contents = read(name.trim());
                    let contents =
                        contents.map_err(|error| item.error(format!("cannot be read: {error}")))?;
                    self.file(name.trim(), &contents)?;
                }
                (Some(_), None) => {
                    return Err(item.error("a file of blocks cannot name another file"));
                }
                (None, _) => self.item(&item)?,
            }
        }
        Ok(())
    }

    /// Items on lines; what follows a `#` is a remark.
    fn file(&mut self, name: &str, contents: &str) -> Result<(), PatternError> {
        for (index, text) in contents.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default();
            // Lists that end in a comma are common, and mean nothing by it.
            let text = text.trim_end().trim_end_matches(',');
            if !text.trim().is_empty() {
                self.line(&Line { text, at: index + 1, file: Some(name) }, None)?;
            }
        }
        Ok(())
    }

    fn item(&mut self, item: &Item<'_>) -> Result<(), PatternError> {
        if item.text.is_empty() {
            return Err(item.error(format!("nothing stands here; expected {ITEMS}")));
        }
        if let Some((name, rest)) = item.split(':') {
            return match name.text {
                "sequential" => self.sequential(item, &rest),
                "random" => self.random(item, &rest),
                "shuffled" => self.shuffled(item, &rest),
                _ => Err(name.error("there are sequential, random and shuffled")),
            };
        }
        if !item.text.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(item.error(format!("expected {ITEMS}")));
        }
        let (first, last) = match item.split('-') {
            Some((first, last)) => {
                (first.number("the first block")?, last.number("the last block")?)
            }
            None => {
                let block = item.number("a block")?;
                (block, block)
            }
        };
        self.room(item, u64::from(first.abs_diff(last)) + 1)?;
        if first <= last {
            self.blocks.extend(first..=last);
        } else {
            self.blocks.extend((last..=first).rev());
        }
        Ok(())
    }

    /// `COUNT[@START]`
    fn sequential(&mut self, item: &Item<'_>, rest: &Item<'_>) -> Result<(), PatternError> {
        let (count, start) = with_start(rest)?;
        let count = count.count("the number of blocks")?;
        self.room(item, u64::from(count))?;
        let range = range(item, start, u64::from(count))?;
        self.blocks.extend(range);
        Ok(())
    }

    /// `COUNT[/SPAN][@START]`: different blocks out of so many, in random order.
    fn random(&mut self, item: &Item<'_>, rest: &Item<'_>) -> Result<(), PatternError> {
        let (rest, start) = with_start(rest)?;
        let (count, span) = match rest.split('/') {
            Some((count, span)) => (count, Some(span)),
            None => (rest, None),
        };
        let blocks = count.count("the number of blocks")?;
        self.room(item, u64::from(blocks))?;
        let span = match span {
            Some(span) => span.count("the number of blocks to choose from")?,
            None => RANDOM_SPAN.max(blocks.saturating_mul(2)),
        };
        if blocks > span {
            return Err(count.error(format!("only {span} blocks are there to choose from")));
        }
        let range = range(item, start, u64::from(span))?;
        let mut chosen = self.random.choose_multiple(range, blocks as usize);
        self.random.shuffle(&mut chosen);
        self.blocks.extend(chosen);
        self.drawn = true;
        Ok(())
    }

    /// `RANGESxBLOCKS/WINDOW[@START]`: ranges read in turn, each in windows that are shuffled.
    fn shuffled(&mut self, item: &Item<'_>, rest: &Item<'_>) -> Result<(), PatternError> {
        let (rest, start) = with_start(rest)?;
        let shape = "expected RANGESxBLOCKS/WINDOW, such as 4x1000/24";
        let (ranges, window) = rest.split('/').ok_or_else(|| rest.error(shape))?;
        let (ranges, blocks) = ranges.split('x').ok_or_else(|| ranges.error(shape))?;
        let ranges = ranges.count("the number of ranges")?;
        let blocks = blocks.count("the number of blocks in a range")?;
        let window = window.count("the number of blocks mixed up among themselves")?;
        self.room(item, u64::from(ranges) * u64::from(blocks))?;
        let apart = u64::from(blocks) + u64::from(blocks.max(RANGES_APART_MIN));
        range(item, start, apart * u64::from(ranges))?;
        let mixed: Vec<Vec<u32>> = (0..ranges)
            .map(|index| {
                let first = start + index * apart as u32;
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

    /// Whether `count` more blocks may come.
    fn room(&self, item: &Item<'_>, count: u64) -> Result<(), PatternError> {
        if self.blocks.len() as u64 + count > BLOCKS_MAX as u64 {
            return Err(item.error(format!("a pattern has at most {BLOCKS_MAX} blocks")));
        }
        Ok(())
    }
}

/// What stands before `@START`, and START, or 0.
fn with_start<'t>(rest: &Item<'t>) -> Result<(Item<'t>, u32), PatternError> {
    match rest.split('@') {
        Some((rest, start)) => Ok((rest, start.number("the first block")?)),
        None => Ok((rest.part(0..rest.text.len()), 0)),
    }
}

fn range(item: &Item<'_>, start: u32, count: u64) -> Result<Range<u32>, PatternError> {
    match u32::try_from(u64::from(start) + count) {
        Ok(end) => Ok(start..end),
        Err(_) => Err(item.error(format!("its blocks go beyond {}", u32::MAX))),
    }
}

#[cfg(test)]
mod tests;
