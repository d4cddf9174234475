//! A row: the condition under which variants are compared, and how each of its measurements begins.

use std::fmt;
use std::time::Duration;

use forebay_io::CacheMode;

use super::{CacheState, Variant};
use crate::experiment::Bench;
use crate::experiment::pattern::Pattern;
use crate::experiment::samples::{self, Round, counted, emptied};
use forebay_measure::units::typed_size;
use forebay_measure::workfile::Workfile;

/// How long the device may take to finish what the kernel has begun to read ahead.
const SETTLING_TIME_MAX: Duration = Duration::from_millis(20);

/// A variant and the results of its rounds.
pub(in crate::experiment) type Samples = samples::Row<Variant, Round>;

/// The condition under which variants are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::experiment) struct Row {
    pub(in crate::experiment) pattern: Pattern,
    pub(in crate::experiment) state: CacheState,
    pub(in crate::experiment) cache: CacheMode,
    /// The value to set for it, in bytes; `None` leaves the device's readahead alone.
    pub(in crate::experiment) device_readahead: Option<u64>,
    pub(in crate::experiment) variants: Vec<Variant>,
}

impl Row {
    /// Whether `variant` supports the pattern and mode of this row: without a pool only one list through the page cache.
    pub(in crate::experiment) fn supports(&self, variant: Variant) -> bool {
        variant.strategy().is_some()
            || self.cache == CacheMode::Buffered
                && matches!(self.state, CacheState::Cold | CacheState::PageCache)
                && self.pattern.is_one_list()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.pattern, self.state, self.cache)?;
        match self.device_readahead {
            Some(bytes) => write!(out, " {}", typed_size(bytes)),
            None => Ok(()),
        }
    }
}

/// Empties the page cache for a row that reads from the device.
pub(in crate::experiment) fn begin_cold(
    workfile: &Workfile,
    row: &Row,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let coldness = emptied(workfile)?;
    if row.cache == CacheMode::Buffered {
        samples.begins(&coldness);
    }
    Ok(())
}

/// Returns the result of `read`, and what the device did; waits until the kernel has finished its readahead.
pub(in crate::experiment) fn counted_read(
    bench: &Bench<'_>,
    row: &Row,
    read: impl FnOnce() -> anyhow::Result<Round>,
) -> anyhow::Result<Round> {
    let reads_device = row.state.reads_device();
    let settle = if reads_device { SETTLING_TIME_MAX } else { Duration::ZERO };
    let (round, device) = counted(bench.counters, settle, read)?;
    let blocks_needed = round.blocks_needed.filter(|_| reads_device);
    Ok(Round { device, blocks_needed, ..round })
}
