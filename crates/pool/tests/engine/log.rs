//! The log: a sequence of records, and the hook by which the pool waits for them.
//!
//! ```text
//! record: length of the body, u32; checksum over the record's place, the length and the body, u32; body
//! ```
//!
//! An LSN is the byte offset at which a record ends. Records stay in memory until a flush writes and syncs them.
//! Reading ends at the first incomplete record: anything after it was never durable. That part is cut off before
//! anything is appended, so that it cannot be joined to later records.
//!
//! Invariants:  the records read are a prefix of those appended, up to the last flush at least
//! Concurrency: any thread appends; one thread at a time flushes.
//! Failure:     a write that failed may be retried; after a failed sync the file is latched as failed.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay::{Lsn, PageImage, Wal};
use forebay_io::File;

use super::control::Control;
use super::disk::Disk;
use super::error::Error;
use super::op::Record;

const HEADER_BYTES: usize = 8;

/// Maximum length of a record: a larger length field is invalid.
const BODY_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Log {
    disk: Disk,
    file: File,
    tail: Mutex<Tail>,
    /// The right to write the tail.
    flushing: Mutex<()>,
    flushed: AtomicU64,
    control: Mutex<Control>,
}

/// Records that are not on disk yet.
#[derive(Debug, Default)]
struct Tail {
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A record, and the LSN at which it ends.
pub(crate) type Placed = (Lsn, Record);

/// An opened log: the records after the redo point, if there is a redo point.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) redo: Option<Lsn>,
    pub(crate) records: Vec<Placed>,
}

impl Log {
    /// Opens or creates the log and the control file in `directory`, and cuts off an incomplete end.
    pub(crate) fn open(disk: &Disk, directory: &Path) -> Result<Opened, Error> {
        disk.make_directory(directory)?;
        let file = disk.file(&directory.join("log"))?;
        let control = Control::open(disk, &directory.join("control"))?;
        // Each time: the process that created the files may have been interrupted before this.
        disk.sync_directory(directory)?;
        let redo = control.redo();
        let from = redo.unwrap_or(Lsn::NONE).0;
        let bytes = disk.read(&file, from)?;
        // Without a redo point nothing was ever promised: the log starts empty.
        let records = redo.map_or(Vec::new(), |_| read(&bytes, from));
        let end = records.last().map_or(from, |(lsn, _)| lsn.0);
        let len = file.len()?;
        if len < from {
            return Err(Error::LogLost { redo: Lsn(from), end: Lsn(len) });
        }
        file.set_len(end)?;
        file.sync_all()?;
        let log = Log {
            disk: disk.clone(),
            file,
            tail: Mutex::new(Tail { start: end, bytes: Vec::new() }),
            flushing: Mutex::new(()),
            flushed: AtomicU64::new(end),
            control: Mutex::new(control),
        };
        Ok(Opened { log, redo, records })
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // Consistent after any panic: each change is one append or one exchange.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a record and returns its LSN. It is durable after a flush.
    pub(crate) fn append(&self, record: &Record) -> Lsn {
        let body = record.encode();
        assert!(body.len() <= BODY_BYTES_MAX, "a record of {} bytes", body.len());
        let mut tail = self.tail();
        let start = tail.end();
        tail.bytes.extend((body.len() as u32).to_le_bytes());
        tail.bytes.extend(checksum(start, &body).to_le_bytes());
        tail.bytes.extend(body);
        Lsn(tail.end())
    }

    /// The newest record appended.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.tail().end())
    }

    /// Makes the log durable at least up to `lsn`.
    pub(crate) fn flush(&self, lsn: Lsn) -> forebay_io::Result<()> {
        let _right = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flushed.load(Ordering::SeqCst) >= lsn.0 {
            return Ok(());
        }
        let (start, bytes) = {
            let tail = self.tail();
            (tail.start, tail.bytes.clone())
        };
        self.disk.write(&self.file, start, &bytes)?;
        self.disk.sync(&self.file)?;
        let mut tail = self.tail();
        tail.start += bytes.len() as u64;
        tail.bytes.drain(..bytes.len());
        self.flushed.store(tail.start, Ordering::SeqCst);
        Ok(())
    }

    /// Sets the position `redo`, where recovery begins.
    pub(crate) fn set_redo(&self, redo: Lsn) -> forebay_io::Result<()> {
        self.flush(redo)?;
        self.control.lock().unwrap_or_else(PoisonError::into_inner).set(redo)
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(self.flush(lsn)?)
    }

    fn position(&self) -> Lsn {
        self.end()
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Box<dyn StdError + Send + Sync>> {
        let page = super::page_name(image.tablespace, image.file, image.block);
        let page = page.ok_or("an image of a page that is none of the engine's")?;
        Ok(self.append(&Record::Image { page, bytes: image.bytes.to_vec() }))
    }

    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(self.set_redo(redo)?)
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::SeqCst))
    }
}

fn checksum(start: u64, body: &[u8]) -> u32 {
    let place = crc32c::crc32c(&start.to_le_bytes());
    let len = crc32c::crc32c_append(place, &(body.len() as u32).to_le_bytes());
    crc32c::crc32c_append(len, body)
}

/// The records in `bytes`, which are at byte `from` of the log, up to the first incomplete one.
pub(crate) fn read(bytes: &[u8], from: u64) -> Vec<Placed> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some((len, record)) = one(&bytes[at..], from + at as u64) {
        at += len;
        records.push((Lsn(from + at as u64), record));
    }
    records
}

/// The record at the start of `bytes`, with its length.
fn one(bytes: &[u8], start: u64) -> Option<(usize, Record)> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let len = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(header[4..].try_into().ok()?);
    let body = rest.get(..len).filter(|_| len <= BODY_BYTES_MAX)?;
    if checksum(start, body) != sum {
        return None;
    }
    Some((HEADER_BYTES + len, Record::decode(body)?))
}
