//! Readahead strategies: how the blocks of a stream are prefetched.

use std::str::FromStr;

use crate::error::Error;
use crate::names::names;

/// How blocks are requested before they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadaheadStrategy {
    /// Give no hints and read a block when it is needed: the kernel's own readahead, through a descriptor of the
    /// stream.
    Os,
    /// Hint by access strategy: no kernel readahead (RANDOM) for pages that compete for the whole pool, the default
    /// readahead (NORMAL) for scans. Document 000 of the sources.
    Hint,
    /// Make the kernel read ahead twice as far (SEQUENTIAL), for every access.
    Max,
    /// Make the kernel fetch upcoming blocks into its page cache (WILLNEED), sorted and merged.
    Prefetch,
    /// Read upcoming blocks directly into frames, sorted and merged, many requests at once.
    Async,
    /// Choose, and change the choice by measurement. Direct files are read as with `Async`. In the page cache, plain
    /// reads while the kernel has everything in memory; otherwise a trial of two modes, of which the cheaper is kept:
    /// for scans the kernel's own readahead, with large reads, against `Prefetch` (only for scans over eight times that
    /// readahead, so that little is read past their end), for others `Prefetch` against `Async`.
    #[default]
    Adaptive,
}

names!(ReadaheadStrategy:
    Os "os", Hint "hint", Max "max", Prefetch "prefetch", Async "async", Adaptive "adaptive"
);

impl ReadaheadStrategy {
    /// True if the blocks after a sequence of plain reads are read ahead.
    pub(crate) fn detects(self) -> bool {
        matches!(self, ReadaheadStrategy::Async | ReadaheadStrategy::Adaptive)
    }
}

pub(crate) const READAHEAD_NAMES: &str = "os, hint, max, prefetch, async or adaptive";

impl FromStr for ReadaheadStrategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<ReadaheadStrategy, Error> {
        let found = ReadaheadStrategy::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| Error::Setting {
            setting: "the readahead strategy",
            value: format!("{name:?}"),
            expected: format!("it should be {READAHEAD_NAMES}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_goes_by_its_name() {
        for strategy in ReadaheadStrategy::ALL {
            assert_eq!(strategy.to_string().parse::<ReadaheadStrategy>().unwrap(), strategy);
        }
        let message = "fast".parse::<ReadaheadStrategy>().unwrap_err().to_string();
        assert_eq!(
            message,
            format!("the readahead strategy is \"fast\": it should be {READAHEAD_NAMES}")
        );
    }
}
