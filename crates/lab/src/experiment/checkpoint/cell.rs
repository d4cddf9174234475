//! Cells: what is measured side by side.

use clap::ValueEnum;
use forebay_io::{CacheMode, Kind};
use serde::Serialize;

use crate::experiment::{POOL_BLOCK_BYTES, by_name};

/// The name of this experiment in records.
pub const NAME: &str = "checkpoint";

/// Size of a page, in bytes.
pub(super) const PAGE_BYTES: u64 = POOL_BLOCK_BYTES;

/// In which order pages leave, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In the order of their frames.
    Arrival,
    /// By position, one tablespace after the other.
    Sorted,
    /// By position, all tablespaces at once.
    Balanced,
}

forebay_measure::shown_by_name!(Order);

/// One measured combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    pub(super) dirty: Dirty,
    pub(super) elevator: Order,
    pub(super) combine: bool,
    #[serde(serialize_with = "by_name")]
    pub(super) cache: CacheMode,
    #[serde(serialize_with = "by_name")]
    pub(super) backend: Kind,
    pub(super) paced: bool,
    pub(super) foreground: bool,
}

impl Cell {
    pub(super) fn pages(&self) -> String {
        format!("{} pages, {}", self.dirty, self.cache)
    }

    pub(super) fn write_mode(&self) -> String {
        let combine = if self.combine { "coalesced" } else { "one by one" };
        let pace = match (self.is_timed(), self.paced) {
            (false, _) => "",
            (true, true) => ", spread",
            (true, false) => ", at once",
        };
        format!("{}, {combine}, {}{pace}", self.elevator, self.backend)
    }

    pub(super) fn label(&self) -> String {
        let readers = if self.foreground { ", with readers" } else { "" };
        format!("{}, {}{readers}", self.pages(), self.write_mode())
    }

    /// Whether it is one synchronous write after another: the baseline for the others of its pattern and cache
    /// mode.
    pub(super) fn is_baseline(&self) -> bool {
        let is_slowest = self.elevator == Order::Arrival && !self.combine;
        is_slowest && self.backend == Kind::Sync && !self.is_timed()
    }

    /// Whether it lasts a few intervals, and not until the disk has finished.
    pub(super) fn is_timed(&self) -> bool {
        self.paced || self.foreground
    }
}

/// Which pages are dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Dirty {
    /// Anywhere in the file.
    Uniform,
    /// Runs of eight neighbours, anywhere.
    Clustered,
    /// Dense in a few places, sparse in the others.
    Zipfian,
    /// Uniformly in the files of two tablespaces, half of the pages in each.
    TwoTablespaces,
}

forebay_measure::shown_by_name!(Dirty);
