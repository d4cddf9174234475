//! One measurement: writers that write and sync, one after the other, until the time is up.
//!
//! Failure:     a method that this system or filesystem does not have is [`Refused`]; anything else that goes
//!              wrong ends the run.

use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_io::Arena;
use hdrhistogram::Histogram;

use super::cell::{Cell, Figures, Method};
use crate::experiment::tally::wait_histogram;

/// A cell lasts so long.
pub(super) const CELL_TIME: Duration = Duration::from_millis(250);

/// Latencies that a 99th percentile takes.
const SAMPLES_MIN: u64 = 1000;

/// A method that does not exist here.
#[derive(Debug, thiserror::Error)]
#[error("{method} is refused here: {why}")]
pub(super) struct Refused {
    method: &'static str,
    why: std::io::Error,
}

/// A file and the part of it that one writer has.
pub(super) struct Part<'a> {
    pub(super) file: &'a File,
    /// First byte, and the first after the part.
    pub(super) bytes: std::ops::Range<u64>,
    /// Where the next write goes, for all who share it; the part's beginning comes after its end.
    pub(super) next: &'a AtomicU64,
    /// Whether the measurement ends at the part's end.
    pub(super) once: bool,
}

/// Opens the file at `path` for `method`.
///
/// # Errors
/// [`Refused`], or what else went wrong.
pub(super) fn open(path: &Path, method: Method) -> anyhow::Result<File> {
    let mut options = File::options();
    options.write(true);
    if let Err(why) = with_flags(&mut options, method) {
        return Err(Refused { method: method.name(), why }.into());
    }
    options.open(path).map_err(|error| as_refusal(method, error, "cannot open the file"))
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

fn as_refusal(method: Method, why: std::io::Error, what: &'static str) -> anyhow::Error {
    match why.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported => {
            Refused { method: method.name(), why }.into()
        }
        _ => anyhow::Error::new(why).context(what),
    }
}

/// Has every part written to at once.
///
/// # Errors
/// [`Refused`], or what else went wrong.
pub(super) fn measure(cell: Cell, parts: &[Part<'_>]) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let write = |part| write_until(cell, part, begun + CELL_TIME);
    let all: anyhow::Result<Vec<Histogram<u64>>> = std::thread::scope(|scope| {
        let writers: Vec<_> = parts.iter().map(|part| scope.spawn(move || write(part))).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer panicked")).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut latencies = wait_histogram();
    for one in all? {
        latencies.add(one).expect("all histograms are made alike");
    }
    let syncs = latencies.len();
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Figures {
        seconds,
        syncs,
        syncs_per_s: syncs as f64 / seconds,
        latency_us_p50: us(0.5),
        latency_us_p99: (syncs >= SAMPLES_MIN).then(|| us(0.99)),
    })
}

/// One writer. Writes at least once.
fn write_until(cell: Cell, part: &Part<'_>, end: Instant) -> anyhow::Result<Histogram<u64>> {
    let mut latencies = wait_histogram();
    // Aligned, for direct writes.
    let mut memory = Arena::new(1, cell.bytes as usize)?.take().context("no memory")?;
    fastrand::fill(&mut memory);
    let room = (part.bytes.end - part.bytes.start) / cell.bytes;
    loop {
        let moment = Instant::now();
        let count = part.next.fetch_add(1, Ordering::Relaxed);
        if (part.once && count >= room) || (moment >= end && !latencies.is_empty()) {
            return Ok(latencies);
        }
        let offset = part.bytes.start + count % room * cell.bytes;
        write_durably(part.file, cell.method, &memory, offset)?;
        latencies.saturating_record(moment.elapsed().as_nanos() as u64);
    }
}

fn write_durably(file: &File, method: Method, bytes: &[u8], offset: u64) -> anyhow::Result<()> {
    let written = match method {
        Method::RwfDsync => write_each_durably(file, bytes, offset),
        _ => file.write_all_at(bytes, offset),
    };
    written.map_err(|error| as_refusal(method, error, "cannot write"))?;
    match method {
        Method::Fdatasync => file.sync_data().context("cannot sync"),
        Method::Fsync => file.sync_all().context("cannot sync"),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn write_each_durably(file: &File, mut bytes: &[u8], mut offset: u64) -> std::io::Result<()> {
    use rustix::io::{ReadWriteFlags, pwritev2};

    while !bytes.is_empty() {
        match pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn write_each_durably(_: &File, _: &[u8], _: u64) -> std::io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Files, Place};
    use super::*;

    fn cell(method: Method, bytes: u64) -> Cell {
        Cell { bytes, place: Place::Overwritten, method, writers: 1, files: Files::One }
    }

    #[test]
    fn every_method_writes_where_it_should_and_no_further() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        for method in Method::ALL {
            std::fs::write(&path, vec![0; 64 << 10]).unwrap();
            let file = match open(&path, method) {
                Ok(file) => file,
                Err(error) if error.is::<Refused>() => continue,
                Err(error) => panic!("{method:?}: {error}"),
            };
            let next = AtomicU64::new(0);
            let part = Part { file: &file, bytes: 16 << 10..32 << 10, next: &next, once: false };
            let figures = match measure(cell(method, 8192), &[part]) {
                Ok(figures) => figures,
                Err(error) if error.is::<Refused>() => continue,
                Err(error) => panic!("{method:?}: {error}"),
            };
            assert!(figures.syncs > 0 && figures.seconds >= 0.25, "{figures:?}");
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 64 << 10, "{method:?}");
            let untouched = |range: &[u8]| range.iter().all(|&byte| byte == 0);
            assert!(untouched(&bytes[..16 << 10]) && untouched(&bytes[32 << 10..]), "{method:?}");
            assert!(!untouched(&bytes[16 << 10..24 << 10]), "{method:?}");
        }
    }

    #[test]
    fn appending_ends_where_there_is_no_more_room() {
        let file = tempfile::tempfile_in(".").unwrap();
        let next = AtomicU64::new(0);
        let part = || Part { file: &file, bytes: 0..80 << 10, next: &next, once: true };
        let figures = measure(cell(Method::Fdatasync, 8192), &[part(), part()]).unwrap();
        if figures.seconds < 0.25 {
            assert_eq!((figures.syncs, file.metadata().unwrap().len()), (10, 80 << 10));
        }
        assert_eq!(figures.latency_us_p99, None, "of a few");
    }
}
