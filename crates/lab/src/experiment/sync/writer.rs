//! One measurement: writers that write and sync, one after the other, until the time is up.
//!
//! Failure:     a method that this system or filesystem does not have is [`Missing`]; anything else that goes
//!              wrong ends the run.

use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_io::Arena;
use hdrhistogram::Histogram;

use super::cell::{Cell, Figures, Method, Place};
use crate::experiment::samples::Missing;
use forebay_measure::coldness::{wait_histogram, wait_us};
use forebay_measure::workfile::Workfile;

/// The part of a file that one writer has, or that several share.
pub(super) struct Part {
    file: File,
    /// First byte, and the first after the part.
    bytes: Range<u64>,
    /// Writes so far; after the part's end they continue at its beginning, unless the file grows: then the
    /// measurement ends there.
    next: AtomicU64,
}

impl Part {
    /// Opens `file` for the method of `cell`.
    ///
    /// # Errors
    /// [`Missing`], or any other failure.
    pub(super) fn new(file: &Workfile, bytes: Range<u64>, cell: Cell) -> anyhow::Result<Part> {
        let mut options = File::options();
        options.write(true);
        let opened = with_flags(&mut options, cell.method).and_then(|()| options.open(file.path()));
        let file = opened.map_err(|why| refused(cell.method, why, "cannot open the file"))?;
        Ok(Part { file, bytes, next: AtomicU64::new(0) })
    }
}

#[cfg(target_os = "linux")]
fn with_flags(options: &mut std::fs::OpenOptions, method: Method) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = match method {
        Method::Fdatasync | Method::Fsync | Method::RwfDsync => OFlags::empty(),
        Method::ODsync => OFlags::DSYNC,
        Method::OSync => OFlags::SYNC,
        Method::ODirectODsync => OFlags::DSYNC | OFlags::DIRECT,
    };
    options.custom_flags(flags.bits() as i32);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn with_flags(_: &mut std::fs::OpenOptions, method: Method) -> std::io::Result<()> {
    match method {
        Method::Fdatasync | Method::Fsync => Ok(()),
        _ => Err(ErrorKind::Unsupported.into()),
    }
}

fn refused(method: Method, why: std::io::Error, what: &'static str) -> anyhow::Error {
    match why.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported => {
            Missing(format!("{method} is refused here: {why}")).into()
        }
        _ => anyhow::Error::new(why).context(what),
    }
}

/// Lets all writers write to `parts` for `time`, concurrently; several of them share one if there are fewer parts.
///
/// # Errors
/// [`Missing`], or any other failure.
pub(super) fn measure(cell: Cell, parts: &[Part], time: Duration) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let write = |part| write_until(cell, part, begun + time);
    let all: anyhow::Result<Vec<Histogram<u64>>> = std::thread::scope(|scope| {
        let parts = parts.iter().cycle().take(cell.writers as usize);
        let writers: Vec<_> = parts.map(|part| scope.spawn(move || write(part))).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer panicked")).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut latencies = wait_histogram();
    for one in all? {
        latencies.add(one).expect("all histograms are made alike");
    }
    let syncs = latencies.len();
    Ok(Figures {
        seconds,
        syncs,
        syncs_per_s: syncs as f64 / seconds,
        latency_us_p50: latencies.value_at_quantile(0.5) as f64 / 1e3,
        latency_us_p99: wait_us(&latencies, 0.99),
    })
}

/// One writer. Writes at least once.
fn write_until(cell: Cell, part: &Part, end: Instant) -> anyhow::Result<Histogram<u64>> {
    let mut latencies = wait_histogram();
    // Aligned, for direct writes.
    let mut memory = Arena::new(1, cell.bytes as usize)?.take().context("no memory")?;
    fastrand::fill(&mut memory);
    let room = (part.bytes.end - part.bytes.start) / cell.bytes;
    loop {
        let moment = Instant::now();
        let count = part.next.fetch_add(1, Ordering::Relaxed);
        let is_full = cell.place == Place::Appended && count >= room;
        if is_full || (moment >= end && !latencies.is_empty()) {
            return Ok(latencies);
        }
        let offset = part.bytes.start + count % room * cell.bytes;
        write_durably(&part.file, cell.method, &memory, offset)?;
        latencies.saturating_record(moment.elapsed().as_nanos() as u64);
    }
}

fn write_durably(file: &File, method: Method, bytes: &[u8], offset: u64) -> anyhow::Result<()> {
    let written = match method {
        Method::RwfDsync => write_each_durably(file, bytes, offset),
        _ => file.write_all_at(bytes, offset),
    };
    written.map_err(|error| refused(method, error, "cannot write"))?;
    match method {
        Method::Fdatasync => file.sync_data().context("cannot sync"),
        Method::Fsync => file.sync_all().context("cannot sync"),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn write_each_durably(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    use rustix::io::{ReadWriteFlags, pwritev2, retry_on_intr};

    let write = || pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC);
    // The rest of a short write would need a second sync, which would distort the measurement.
    if retry_on_intr(write)? == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

#[cfg(not(target_os = "linux"))]
fn write_each_durably(_: &File, _: &[u8], _: u64) -> std::io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(120);
    use forebay_measure::workfile::Naming;

    fn cell(method: Method, place: Place, writers: u32) -> Cell {
        Cell { bytes: 8192, place, method, writers }
    }

    fn workfile(directory: &tempfile::TempDir, bytes: u64) -> Workfile {
        let naming = Naming::Nameless;
        let mut file = Workfile::create(directory.path(), bytes, 8192, 7, naming).unwrap();
        file.fill(|_| ()).unwrap();
        file
    }

    #[test]
    fn every_method_writes_where_it_should_and_no_further() {
        let directory = tempfile::tempdir_in(".").unwrap();
        for method in Method::ALL {
            let file = workfile(&directory, 64 << 10);
            let before = std::fs::read(file.path()).unwrap();
            let cell = cell(method, Place::Overwritten, 1);
            let measured = Part::new(&file, 16 << 10..32 << 10, cell)
                .and_then(|part| measure(cell, &[part], TIME));
            let figures = match measured {
                Ok(figures) => figures,
                Err(error) if error.is::<Missing>() => continue,
                Err(error) => panic!("{method:?}: {error}"),
            };
            assert!(figures.syncs > 0 && figures.seconds >= TIME.as_secs_f64(), "{figures:?}");
            let after = std::fs::read(file.path()).unwrap();
            assert_eq!(after.len(), 64 << 10, "{method:?}");
            let (begin, end) = (16 << 10, 32 << 10);
            assert!(before[..begin] == after[..begin] && before[end..] == after[end..]);
            assert_ne!(before[begin..begin + 8192], after[begin..begin + 8192], "{method:?}");
        }
    }

    #[test]
    fn appending_ends_where_there_is_no_more_room() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let file = workfile(&directory, 0);
        let cell = cell(Method::Fdatasync, Place::Appended, 2);
        let shared = Part::new(&file, 0..80 << 10, cell).unwrap();
        let figures = measure(cell, &[shared], Duration::from_secs(3600)).unwrap();
        let len = std::fs::metadata(file.path()).unwrap().len();
        assert_eq!((figures.syncs, len), (10, 80 << 10));
        assert_eq!(figures.latency_us_p99, None, "of a few");
    }
}
