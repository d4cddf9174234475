//! Cache states: the contents of memory when a measurement begins.

use std::io::Read;

use anyhow::Context;
use clap::ValueEnum;
use forebay_io::{CacheMode, File, OpenOptions};
use serde::Serialize;

use forebay_measure::interrupt;
use forebay_measure::workfile::Workfile;

/// Bytes read at a time to fill the page cache.
const CHUNK_BYTES: usize = 1 << 20;

/// The contents of memory when a measurement begins. "The data" are the blocks that the pattern reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Empty: a new pool and an emptied page cache.
    Cold,
    /// A new pool, and the whole file in the page cache.
    PageCache,
    /// All of the data in the pool.
    Pool,
    /// A pool of a quarter of the data's size, after one pass of the same pattern; an emptied page cache.
    Quarter,
}

impl CacheState {
    /// Whether `cache` mode supports it.
    pub(in crate::experiment) fn can_be(self, cache: CacheMode) -> bool {
        !(self == CacheState::PageCache && cache == CacheMode::Direct)
    }

    /// Whether blocks are read from the device, so that the contents of the page cache matter.
    pub(in crate::experiment) fn reads_device(self) -> bool {
        matches!(self, CacheState::Cold | CacheState::Quarter)
    }
}

forebay_measure::shown_by_name!(CacheState);

/// Reads the whole of `workfile` into the page cache. `Some` reports what did not stay there.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted); a read that failed.
pub(super) fn fill_page_cache(workfile: &Workfile) -> anyhow::Result<Option<String>> {
    let file = File::open(workfile.path(), &OpenOptions::new().read_only(true))?;
    let missing = || match file.residency(0..u64::MAX) {
        Ok(residency) if residency.pages_resident == residency.pages => Ok(None),
        Ok(residency) => Ok(Some(format!(
            "the page cache holds {} of {} pages of the file",
            residency.pages_resident, residency.pages
        ))),
        Err(error @ forebay_io::Error::Unsupported { .. }) => {
            Ok(Some(format!("not certain to be in the page cache: {error}")))
        }
        Err(error) => Err(error),
    };
    if missing()?.is_none() {
        return Ok(None);
    }
    let mut plain = std::fs::File::open(workfile.path()).context("opening the working file")?;
    let mut chunk = vec![0; CHUNK_BYTES];
    while plain.read(&mut chunk).context("reading the working file")? > 0 {
        interrupt::check()?;
    }
    Ok(missing()?)
}
