//! Records of the experiment `interplay`, as one panel for each pattern and kernel readahead.
//!
//! The question of a panel is what each way of reading makes of the kernel's own readahead, so
//! every figure is also given as a multiple of the kernel left alone: strategy `os`, through the
//! page cache, under the same readahead. Where that was not measured, or was not cold, there is
//! no multiple; the slowest of the others would have been a baseline too, but another one in
//! each panel.
//!
//! Worked example: 35,000 blocks/s of `os` and 147,000 of `async direct` under a readahead of
//! 128 KiB are 1 and 4.20 times the kernel alone.
//!
//! Invariants:  [INT-1] every record is in exactly one panel or among the leftovers
//!              [INT-2] neither the kernel alone nor the best of a panel is a figure that was not cold
//! Source:      the discussion of 2012 on page-by-page WILLNEED against kernel readahead is the shape.

use super::labels::{self, rank};
use super::standing::{self, Standing};
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "interplay";

/// The kernel left alone: one read for each block through one descriptor.
const KERNEL_ALONE: &str = "os";

/// The strategy whose result the summary tells.
const ADAPTIVE: &str = "adaptive";

/// Strategies that are plain system calls; all others go through the pool.
const PLAIN: [&str; 2] = [KERNEL_ALONE, "random"];
const WILLNEED: &str = "willneed-";
const OURS: [&str; 5] = ["hint", "max", "prefetch", "async", ADAPTIVE];
const PATTERNS: [&str; 3] = ["shuffled", "neighbours", "two-streams"];
const CACHES: [&str; 2] = ["buffered", "direct"];

/// One strategy in one cache mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) strategy: &'a str,
    /// `buffered` or `direct`.
    pub(crate) cache: &'a str,
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

    /// False for plain system calls, without Forebay.
    pub(crate) fn is_ours(&self) -> bool {
        !PLAIN.contains(&self.strategy) && !self.strategy.starts_with(WILLNEED)
    }

    /// Plain calls first, WILLNEED by its distance, then ours; unheard-of names come last.
    fn order(&self) -> (usize, u64, usize) {
        let distance = self.strategy.strip_prefix(WILLNEED);
        let family = match distance {
            Some(_) => PLAIN.len(),
            None if self.is_ours() => PLAIN.len() + 1 + rank(&OURS, self.strategy),
            None => rank(&PLAIN, self.strategy),
        };
        let distance = distance.and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
        (family, distance, rank(&CACHES, self.cache))
    }
}

/// All strategies measured on one pattern under one kernel readahead.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) pattern: &'a str,
    /// What its cells have in common besides: `kernel readahead 128 KiB`.
    pub(crate) place: String,
    pub(crate) cells: Vec<Cell<'a>>,
    readahead_bytes: Option<u64>,
}

impl<'a> Panel<'a> {
    /// `shuffled, kernel readahead 128 KiB`.
    pub(crate) fn label(&self) -> String {
        format!("{}, {}", self.pattern, self.place)
    }

    /// The cell with the highest cold rate; of equals the first.
    pub(crate) fn best(&self) -> Option<&Cell<'a>> {
        let mut best: Option<(&Cell<'a>, f64)> = None;
        for cell in &self.cells {
            if let Some(rate) = cell.cold_rate()
                && best.is_none_or(|(_, highest)| rate > highest)
            {
                best = Some((cell, rate));
            }
        }
        best.map(|(cell, _)| cell)
    }

    pub(crate) fn is_best(&self, cell: &Cell<'_>) -> bool {
        self.best().is_some_and(|best| std::ptr::eq(best.record, cell.record))
    }

    /// Cold rate of the kernel alone. Cells are sorted, so through the page cache if that was
    /// measured.
    fn kernel_alone(&self) -> Option<f64> {
        let alone = self.cells.iter().find(|cell| cell.strategy == KERNEL_ALONE)?;
        alone.cold_rate().filter(|rate| *rate > 0.0)
    }

    /// How many times the rate of the kernel alone a cell reaches; `None` without either figure.
    pub(crate) fn times_alone(&self, cell: &Cell<'_>) -> Option<f64> {
        Some(cell.cold_rate()? / self.kernel_alone()?)
    }

    /// What `adaptive` reaches at best, and in which cell.
    fn adaptive(&self) -> Option<(&Cell<'a>, f64)> {
        let cells = self.cells.iter().filter(|cell| cell.strategy == ADAPTIVE);
        let rated = cells.filter_map(|cell| Some((cell, self.times_alone(cell)?)));
        rated.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panels<'a> {
    /// By pattern, then by readahead.
    pub(crate) panels: Vec<Panel<'a>>,
    /// Records that name no pattern or no strategy, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Panels<'a> {
    /// Groups the records of the experiment `interplay`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Panels<'a> {
        let mut grouped = Panels::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        let met = grouped.patterns();
        grouped.panels.sort_by_key(|panel| {
            let known = rank(&PATTERNS, panel.pattern);
            (known, rank(&met, panel.pattern), panel.readahead_bytes)
        });
        for panel in &mut grouped.panels {
            panel.cells.sort_by_key(Cell::order);
        }
        grouped
    }

    fn place(&mut self, record: &'a Record) {
        let (pattern, strategy) = (record.cell_text("pattern"), record.cell_text("strategy"));
        if pattern.is_empty() || strategy.is_empty() {
            self.leftovers.push(record);
            return;
        }
        let place = labels::place(record, &[], &["pattern", "strategy", "cache"]);
        let is_here = |panel: &Panel<'_>| panel.pattern == pattern && panel.place == place;
        let index = self.panels.iter().position(is_here).unwrap_or_else(|| {
            let readahead_bytes = labels::readahead_bytes(record);
            self.panels.push(Panel { pattern, place, cells: Vec::new(), readahead_bytes });
            self.panels.len() - 1
        });
        let cells = &mut self.panels[index].cells;
        let cell = Cell { strategy, cache: record.cell_text("cache"), record };
        if cells.iter().any(|seen| seen.strategy == cell.strategy && seen.cache == cell.cache) {
            self.leftovers.push(record); // [INT-1]
        } else {
            cells.push(cell);
        }
    }

    /// The patterns, each once, in the order of the panels.
    pub(crate) fn patterns(&self) -> Vec<&'a str> {
        let mut patterns = Vec::new();
        for panel in &self.panels {
            if !patterns.contains(&panel.pattern) {
                patterns.push(panel.pattern);
            }
        }
        patterns
    }

    /// The highest cold rate of all panels of a pattern, for bars drawn to one scale.
    pub(crate) fn highest_rate(&self, pattern: &str) -> Option<f64> {
        let panels = self.panels.iter().filter(|panel| panel.pattern == pattern);
        panels.filter_map(Panel::best).filter_map(Cell::cold_rate).reduce(f64::max)
    }

    /// One sentence: what `adaptive` makes of the kernel's readahead, from worst to best.
    pub(crate) fn sentence(&self) -> String {
        let rated = self.panels.iter().filter_map(|panel| Some((panel, panel.adaptive()?.1)));
        let mut rated: Vec<(&Panel<'_>, f64)> = rated.collect();
        rated.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        match rated.as_slice() {
            [] => "adaptive could be compared with the kernel alone nowhere".to_owned(),
            [(panel, times)] => format!(
                "adaptive reads {} times as fast as the kernel alone ({})",
                numbers::number(*times),
                panel.label()
            ),
            [(worst, least), .., (best, most)] => format!(
                "adaptive reads from {} ({}) to {} ({}) times as fast as the kernel alone",
                numbers::number(*least),
                worst.label(),
                numbers::number(*most),
                best.label()
            ),
        }
    }
}

#[cfg(test)]
mod tests;
