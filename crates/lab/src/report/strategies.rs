//! Records of the experiment `strategies`, as maps of patterns against readahead strategies.
//!
//! A map is everything of a cell but pattern and strategy: `cold, direct, kernel readahead
//! 128 KiB`. Within a map each row is one pattern, and each figure of a row is a share of the
//! best cold rate of that row, so that patterns of very different speed can be looked at
//! together. The share is worked out here from the rates, although records carry one: a figure
//! that was not cold must not be the best of its row, and only the reader of all records knows.
//!
//! Worked example: rates 100, 400 and 380 of `os`, `async` and `adaptive` are 0.25, 1.00 and
//! 0.95; `adaptive` keeps its bound of 0.95 there, and with 370 it would be listed as a loss.
//!
//! Invariants:  [STR-1] every record is in exactly one map or among the leftovers
//!              [STR-2] the best of a row is a cold figure, and no share of a cold figure is over 1
//!              [STR-3] a mean is over the same patterns for every strategy of its map
//! Source:      Kondo's table of 2013, access strategies against caches, is the shape.

use super::labels::{self, rank};
use super::standing::{self, Standing};
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "strategies";

/// The strategy that is to be nearly as good as the best of the others in every row.
pub(crate) const ADAPTIVE: &str = "adaptive";

/// Share of the best other strategy that `adaptive` is to reach when the disk answers.
const BOUND: f64 = 0.95;

/// The same when memory answers, and nothing is left to win by reading ahead.
const BOUND_IN_MEMORY: f64 = 0.97;

/// Said when no row has figures of `adaptive` and of another strategy.
const NOTHING_TO_COMPARE: &str = "adaptive could be compared with another strategy nowhere";

/// Cache states in which memory answers.
const IN_MEMORY: [&str; 2] = ["page-cache", "pool"];

const STATES: [&str; 4] = ["cold", "quarter", "page-cache", "pool"];
const CACHES: [&str; 2] = ["buffered", "direct"];
const STRATEGIES: [&str; 6] = ["os", "hint", "max", "prefetch", "async", ADAPTIVE];
const PATTERNS: [&str; 19] = [
    "sequential",
    "backward",
    "strided",
    "interleaved-2",
    "interleaved-8",
    "interleaved-32",
    "uniform",
    "zipfian",
    "shuffled",
    "index-0",
    "index-0.5",
    "index-0.9",
    "index-1",
    "bitmap-1",
    "bitmap-10",
    "bitmap-50",
    "bitmap-90",
    "mixed",
    "limit-10",
];

/// One pattern read with one strategy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) strategy: &'a str,
    /// The record it comes from.
    pub(crate) record: &'a Record,
}

impl Cell<'_> {
    /// Blocks per second, as measured, whatever they are worth.
    pub(crate) fn rate(&self) -> Option<f64> {
        standing::rate(self.record)
    }

    /// Blocks per second if they may be ranked.
    pub(crate) fn cold_rate(&self) -> Option<f64> {
        standing::cold_rate(self.record)
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::of(self.record)
    }
}

/// One pattern of a map.
#[derive(Debug, Clone)]
pub(crate) struct Row<'a> {
    pub(crate) pattern: &'a str,
    /// In the order in which the records came, each strategy once.
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Row<'a> {
    pub(crate) fn at(&self, strategy: &str) -> Option<&Cell<'a>> {
        self.cells.iter().find(|cell| cell.strategy == strategy)
    }

    /// The cell with the highest cold rate; of equals the first.
    pub(crate) fn best(&self) -> Option<&Cell<'a>> {
        fastest(self.cells.iter())
    }

    /// A cell's rate as a share of the best cold rate of the row; over 1 only if it is not cold.
    pub(crate) fn share(&self, cell: &Cell<'_>) -> Option<f64> {
        let best = self.best()?.cold_rate().filter(|best| *best > 0.0)?;
        let share = cell.rate()? / best;
        assert!(share <= 1.0 || cell.cold_rate().is_none(), "[STR-2] {}: {share}", self.pattern);
        Some(share)
    }

    /// The share of a cell that may be ranked.
    pub(crate) fn cold_share(&self, strategy: &str) -> Option<f64> {
        let cell = self.at(strategy).filter(|cell| cell.standing() == Standing::Cold)?;
        self.share(cell)
    }

    /// How `adaptive` compares with the best of the others; `None` where either was not measured.
    pub(crate) fn contest(&self, bound: f64) -> Option<Contest<'a>> {
        let adaptive = *self.at(ADAPTIVE)?;
        let rival = *fastest(self.cells.iter().filter(|cell| cell.strategy != ADAPTIVE))?;
        let share = adaptive.cold_rate()? / rival.cold_rate().filter(|rate| *rate > 0.0)?;
        Some(Contest { pattern: self.pattern, adaptive, rival, share, bound })
    }
}

fn fastest<'c, 'a: 'c>(cells: impl Iterator<Item = &'c Cell<'a>>) -> Option<&'c Cell<'a>> {
    let mut best: Option<(&Cell<'a>, f64)> = None;
    for cell in cells {
        if let Some(rate) = cell.cold_rate()
            && best.is_none_or(|(_, highest)| rate > highest)
        {
            best = Some((cell, rate));
        }
    }
    best.map(|(cell, _)| cell)
}

/// `adaptive` beside the best other strategy of one row.
#[derive(Debug, Clone)]
pub(crate) struct Contest<'a> {
    pub(crate) pattern: &'a str,
    pub(crate) adaptive: Cell<'a>,
    /// The fastest of the others.
    pub(crate) rival: Cell<'a>,
    /// Rate of `adaptive` as a share of its rival's; over 1 where it wins.
    pub(crate) share: f64,
    /// What that share is to be at least.
    pub(crate) bound: f64,
}

impl Contest<'_> {
    pub(crate) fn is_lost(&self) -> bool {
        self.share < self.bound
    }

    /// True when the fastest round of `adaptive` was no slower than its rival's slowest one, so
    /// that the loss may be noise; `None` when the rounds are not known.
    pub(crate) fn overlaps(&self) -> Option<bool> {
        let fastest = self.adaptive.record.metric("blocks_per_s_max")?;
        Some(fastest >= self.rival.record.metric("blocks_per_s_min")?)
    }

    /// `0.913 of async: 38,020 against 41,640 blocks/s`, and whether that may be noise.
    pub(crate) fn told(&self) -> String {
        let rate = |cell: &Cell<'_>| cell.rate().map_or("–".to_owned(), numbers::number);
        let noise = match self.overlaps() {
            Some(true) => "; their rounds overlap",
            Some(false) | None => "",
        };
        format!(
            "{} of {}: {} against {} blocks/s{noise}",
            numbers::number(self.share),
            self.rival.strategy,
            rate(&self.adaptive),
            rate(&self.rival)
        )
    }
}

/// All patterns and strategies measured under one cache mode, cache state and readahead.
#[derive(Debug, Clone)]
pub(crate) struct Map<'a> {
    /// What its cells have in common: `cold, direct, kernel readahead 128 KiB`.
    pub(crate) label: String,
    /// In the order of the known patterns; others follow as they were met.
    pub(crate) rows: Vec<Row<'a>>,
    /// See [`BOUND`].
    pub(crate) bound: f64,
    order: (usize, usize, Option<u64>),
}

impl<'a> Map<'a> {
    fn new(label: String, record: &Record) -> Map<'a> {
        let state = record.cell_text("cache_state");
        let order = (
            rank(&STATES, state),
            rank(&CACHES, record.cell_text("cache")),
            labels::readahead_bytes(record),
        );
        let bound = if IN_MEMORY.contains(&state) { BOUND_IN_MEMORY } else { BOUND };
        Map { label, rows: Vec::new(), bound, order }
    }

    /// True if some row of the map has a cell of `strategy`, measured or not.
    pub(crate) fn has(&self, strategy: &str) -> bool {
        self.rows.iter().any(|row| row.at(strategy).is_some())
    }

    /// The geometric mean of each strategy's shares over the patterns that every strategy of
    /// the map has a cold figure for, and how many those are; a strategy without any cold
    /// figure is left aside and has no mean [STR-3].
    pub(crate) fn means(&self, strategies: &[&str]) -> (Vec<Option<f64>>, usize) {
        let is_measured = |name: &&str| self.rows.iter().any(|row| row.cold_share(name).is_some());
        let measured: Vec<&str> = strategies.iter().copied().filter(is_measured).collect();
        let is_shared = |row: &&Row<'_>| measured.iter().all(|name| row.cold_share(name).is_some());
        let shared: Vec<&Row<'_>> = self.rows.iter().filter(is_shared).collect();
        let mean = |name: &&str| -> Option<f64> {
            let shares: Vec<f64> = shared.iter().filter_map(|row| row.cold_share(name)).collect();
            if shares.is_empty() || shares.len() < shared.len() {
                return None;
            }
            let logarithms: f64 = shares.iter().map(|share| share.ln()).sum();
            Some((logarithms / shares.len() as f64).exp())
        };
        (strategies.iter().map(mean).collect(), shared.len())
    }
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Maps<'a> {
    /// Cold first, memory last; buffered before direct; less readahead before more.
    pub(crate) maps: Vec<Map<'a>>,
    /// Every strategy that some map has, the known ones first.
    pub(crate) strategies: Vec<&'a str>,
    /// Records that name no pattern or no strategy, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Maps<'a> {
    /// Groups the records of the experiment `strategies`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Maps<'a> {
        let mut grouped = Maps::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        grouped.maps.sort_by_key(|map| map.order);
        for map in &mut grouped.maps {
            map.rows.sort_by_key(|row| rank(&PATTERNS, row.pattern));
        }
        grouped.strategies.sort_by_key(|name| rank(&STRATEGIES, name));
        grouped
    }

    fn place(&mut self, record: &'a Record) {
        let (pattern, strategy) = (record.cell_text("pattern"), record.cell_text("strategy"));
        if pattern.is_empty() || strategy.is_empty() {
            self.leftovers.push(record);
            return;
        }
        let label = labels::place(record, &["cache_state", "cache"], &["pattern", "strategy"]);
        let index = self.maps.iter().position(|map| map.label == label).unwrap_or_else(|| {
            self.maps.push(Map::new(label, record));
            self.maps.len() - 1
        });
        let rows = &mut self.maps[index].rows;
        let row = rows.iter().position(|row| row.pattern == pattern).unwrap_or_else(|| {
            rows.push(Row { pattern, cells: Vec::new() });
            rows.len() - 1
        });
        let row = &mut rows[row];
        if row.at(strategy).is_some() {
            self.leftovers.push(record); // [STR-1]
            return;
        }
        row.cells.push(Cell { strategy, record });
        if !self.strategies.contains(&strategy) {
            self.strategies.push(strategy);
        }
    }

    /// How `adaptive` did everywhere.
    pub(crate) fn verdict(&self) -> Verdict<'_, 'a> {
        let mut verdict = Verdict { contests: Vec::new(), unjudged: 0 };
        for map in &self.maps {
            for row in &map.rows {
                match row.contest(map.bound) {
                    Some(contest) => verdict.contests.push((map, contest)),
                    None => verdict.unjudged += 1,
                }
            }
        }
        verdict
    }
}

/// Every row in which `adaptive` could be compared with the best of the others.
#[derive(Debug)]
pub(crate) struct Verdict<'g, 'a> {
    contests: Vec<(&'g Map<'a>, Contest<'a>)>,
    /// Rows without a figure of `adaptive` or of any other strategy.
    unjudged: usize,
}

impl<'g, 'a> Verdict<'g, 'a> {
    /// The rows in which it misses its bound, the worst first.
    pub(crate) fn losses(&self) -> Vec<(&'g Map<'a>, &Contest<'a>)> {
        let lost = self.contests.iter().filter(|(_, contest)| contest.is_lost());
        let mut losses: Vec<_> = lost.map(|(map, contest)| (*map, contest)).collect();
        losses.sort_by(|(_, one), (_, other)| one.share.total_cmp(&other.share));
        losses
    }

    /// What stands where losses would be listed, when there are none.
    pub(crate) fn none_lost(&self) -> String {
        match self.contests.len() {
            0 => NOTHING_TO_COMPARE.to_owned(),
            judged => format!("adaptive loses in none of {judged} rows"),
        }
    }

    /// One sentence: in how many rows the bound is kept, and which one is the worst.
    pub(crate) fn sentence(&self) -> String {
        let judged = self.contests.len();
        let Some((map, worst)) =
            self.contests.iter().min_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))
        else {
            return NOTHING_TO_COMPARE.to_owned();
        };
        let kept = judged - self.losses().len();
        let unjudged = match self.unjudged {
            0 => String::new(),
            count => format!("; {count} more had nothing to compare"),
        };
        format!(
            "adaptive keeps its bound, {BOUND} of the best other strategy ({BOUND_IN_MEMORY} where \
             memory answers), in {kept} of {judged} rows{unjudged}; worst {} of {} ({}, {})",
            numbers::number(worst.share),
            worst.rival.strategy,
            worst.pattern,
            map.label
        )
    }
}

/// The remarks of a cell that its table prints as footnotes. In a row that `adaptive` loses,
/// a remark of its own about that would say once more what the list of losses says.
pub(crate) fn remarks(cell: &Cell<'_>, is_lost: bool) -> Vec<String> {
    let is_said = |remark: &str| is_lost && remark.starts_with(ADAPTIVE);
    cell.record.remarks.iter().filter(|remark| !is_said(remark)).cloned().collect()
}

/// A share with two digits, rounded down, so that 1.00 is the best and nothing else.
pub(crate) fn share_text(share: f64) -> String {
    let floored = (share * 100.0 + 1e-9).floor() / 100.0;
    if share > 0.0 && floored == 0.0 {
        "<.01".to_owned()
    } else if floored < 100.0 {
        format!("{floored:.2}")
    } else {
        numbers::number(share)
    }
}

/// Shares from which on a step of the scale of colours begins; the last step is the best.
pub(crate) const STEPS: [f64; 6] = [0.0, 0.25, 0.5, 0.7, 0.85, 0.95];

/// The step of the scale that a share is on, from 1 to 6.
pub(crate) fn step(share: f64) -> usize {
    STEPS.iter().filter(|start| share >= **start).count().max(1)
}

#[cfg(test)]
mod tests;
