//! Measuring: an empty page cache, a stopwatch with processor time, and wait times.

use std::time::{Duration, Instant};

use forebay_io::{Advice, Error, File};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// The number of attempts at emptying.
const EMPTYING_TRIES: u32 = 4;

/// With fewer waits than this the 99th percentile is one of the ten longest, and so random.
const WAITS_FOR_P99: u64 = 1000;

/// Whether a measurement started without any of the file in the page cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coldness {
    /// It did, according to residency.
    Cold,
    /// This many pages of the file stayed in the cache.
    Warm {
        /// Pages that stayed.
        pages: u64,
        /// Pages of the file.
        of: u64,
    },
    /// The system cannot empty the cache or cannot show that it is empty.
    Unknown {
        /// What is missing.
        why: String,
    },
}

impl Coldness {
    /// A remark for the reader, if there is one.
    pub fn remark(&self) -> Option<String> {
        match self {
            Coldness::Cold => None,
            Coldness::Warm { pages, of } => {
                Some(format!("not cold: {pages} of {of} pages stayed in the page cache"))
            }
            Coldness::Unknown { why } => Some(format!("not cold for certain: {why}")),
        }
    }
}

/// Empties the page cache of `file`, which must be synced, and checks whether that worked.
///
/// DONTNEED skips pages that are being written, mapped, or temporarily referenced, so it
/// is tried a few times. Root is not needed.
///
/// # Errors
/// What the system says, other than that it cannot do such a thing.
pub fn empty_cache(file: &File) -> Result<Coldness, Error> {
    match emptied(file) {
        Err(error @ Error::Unsupported { .. }) => Ok(Coldness::Unknown { why: error.to_string() }),
        result => result,
    }
}

fn emptied(file: &File) -> Result<Coldness, Error> {
    let mut coldness = Coldness::Cold;
    for _ in 0..EMPTYING_TRIES {
        file.advise(0..u64::MAX, Advice::DontNeed)?;
        let residency = file.residency(0..u64::MAX)?;
        if residency.pages_resident == 0 {
            return Ok(Coldness::Cold);
        }
        coldness = Coldness::Warm { pages: residency.pages_resident, of: residency.pages };
        file.sync_data()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(coldness)
}

/// Wall-clock and processor time since a moment.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    wall: Instant,
    processor: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch { wall: Instant::now(), processor: processor_time() }
    }

    /// Wall-clock time since the start.
    pub fn elapsed(&self) -> Duration {
        self.wall.elapsed()
    }

    /// Processor time of all threads of this process since the start.
    pub fn processor_elapsed(&self) -> Duration {
        processor_time().saturating_sub(self.processor)
    }
}

fn processor_time() -> Duration {
    // Fails only for clocks that do not exist; this one always exists.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// For waits in nanoseconds, up to an hour, in steps of 0.1 %.
pub fn wait_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the histogram's bounds are valid")
}

/// The value that this share of `waits` does not exceed, in microseconds; `None` if there are too few waits.
pub fn wait_us(waits: &Histogram<u64>, quantile: f64) -> Option<f64> {
    let fewest = if quantile == 0.99 { WAITS_FOR_P99 } else { 1 };
    (waits.len() >= fewest).then(|| waits.value_at_quantile(quantile) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_io::OpenOptions;

    #[test]
    fn a_dirty_file_is_synced_until_its_cache_is_empty() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path, &OpenOptions::new()).unwrap();
        match empty_cache(&file).unwrap() {
            Coldness::Cold => {
                assert_eq!(file.residency(0..u64::MAX).unwrap().pages_resident, 0);
            }
            // A filesystem that is its own page cache, or a system without these calls.
            other => assert!(other.remark().is_some()),
        }
    }
}
