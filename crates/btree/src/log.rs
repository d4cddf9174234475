//! The log: records of changes, appended by all threads and made durable together.
//!
//! ```text
//! record: length of the body u32 | CRC-32C of the body and its position u32 | body
//! ```
//!
//! The LSN of a record is the position of its end in the file, so 0 is before all records. A checkpoint gives the space
//! before its redo point back to the file system; positions stay as they are. The redo point is in a file next to it.
//!
//! Invariants:  [LOG-1] a record is durable only if all records before it are
//! Concurrency: appending takes a lock for the time of one copy. A thread that needs a record to be durable writes all that
//!              is appended; the threads that wait for it meanwhile find theirs written.
//! Failure:     after a failed write or sync it is not known what is durable, and every later call fails.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay::{Lsn, Wal};

const FILE: &str = "log";
const REDO_FILE: &str = "log.redo";
const HEADER_BYTES: usize = 8;
const READ_BYTES: usize = 1 << 20;

/// The log, open for appending.
#[derive(Debug)]
pub(crate) struct Log {
    directory: PathBuf,
    file: File,
    tail: Mutex<Tail>,
    /// The right to write the tail, with the memory of the last one.
    writing: Mutex<Vec<u8>>,
    flushed: AtomicU64,
}

/// The records that are not written yet.
#[derive(Debug)]
struct Tail {
    start: u64,
    bytes: Vec<u8>,
    failed: bool,
}

impl Tail {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn check(&self) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write of the log failed; open it again"));
        }
        Ok(())
    }
}

impl Log {
    /// Opens the log in `directory`, or creates it; returns its redo point, or `None` if it is new, until [`Log::begin`]. What
    /// follows the last whole record is removed: it was never reported as durable.
    pub(crate) fn open(directory: &Path) -> io::Result<(Log, Option<Lsn>)> {
        let redo = read_redo(directory)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(redo.is_none()).truncate(false);
        let file = options.open(directory.join(FILE))?;
        if redo.is_none() && file.metadata()?.len() > 0 {
            let missing = format!("there is a log, but not its redo point: {REDO_FILE} is missing");
            return Err(io::Error::new(ErrorKind::InvalidData, missing));
        }
        let start = redo.unwrap_or(Lsn::NONE);
        let mut records = Records::new(&file, start)?;
        while records.next_record()?.is_some() {}
        let end = records.position;
        file.set_len(end)?;
        file.sync_all()?;
        let log = Log {
            directory: directory.to_owned(),
            file,
            tail: Mutex::new(Tail { start: end, bytes: Vec::new(), failed: false }),
            writing: Mutex::default(),
            flushed: AtomicU64::new(end),
        };
        Ok((log, redo))
    }

    /// Makes a new log one that exists.
    pub(crate) fn begin(&self) -> io::Result<()> {
        write_redo(&self.directory, Lsn::NONE)
    }

    /// The records after `redo`, in their order.
    pub(crate) fn records(&self, redo: Lsn) -> io::Result<Records> {
        Records::new(&self.file, redo)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a record with this body. It is durable after [`Log::flush`].
    pub(crate) fn append(&self, body: &[u8]) -> Lsn {
        let len = body.len() as u32;
        let sum = crc32c::crc32c(body);
        let mut tail = self.tail();
        let sum = with_position(sum, tail.end());
        tail.bytes.extend_from_slice(&len.to_le_bytes());
        tail.bytes.extend_from_slice(&sum.to_le_bytes());
        tail.bytes.extend_from_slice(body);
        Lsn(tail.end())
    }

    /// Makes all records up to `lsn` durable, and with them all that are appended.
    pub(crate) fn flush(&self, lsn: Lsn) -> io::Result<()> {
        if self.flushed() >= lsn {
            return Ok(());
        }
        let mut spare = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flushed() >= lsn {
            return Ok(());
        }
        let (start, bytes) = {
            let mut tail = self.tail();
            tail.check()?;
            let start = tail.start;
            let bytes = std::mem::replace(&mut tail.bytes, std::mem::take(&mut spare));
            tail.start += bytes.len() as u64;
            (start, bytes)
        };
        let written = self.file.write_all_at(&bytes, start).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.tail().failed = true;
            return Err(error);
        }
        self.flushed.store(start + bytes.len() as u64, Ordering::Release);
        *spare = bytes;
        spare.clear();
        Ok(())
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.flush(lsn)?)
    }

    fn position(&self) -> Lsn {
        Lsn(self.tail().end())
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::Acquire))
    }

    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        // Recovery reads the log from there, so it must not end before.
        self.flush(redo)?;
        write_redo(&self.directory, redo)?;
        #[cfg(target_os = "linux")]
        if redo.0 > 0 {
            use rustix::fs::{FallocateFlags, fallocate};
            // A file system without holes keeps the records.
            let _ = fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                0,
                redo.0,
            );
        }
        Ok(())
    }
}

/// The checksum of a record at `position` whose body has the checksum `body`: records that moved, or are left of another
/// log, do not have it.
fn with_position(body: u32, position: u64) -> u32 {
    crc32c::crc32c_append(body, &position.to_le_bytes())
}

/// Reads a log from a position to its end.
#[derive(Debug)]
pub(crate) struct Records {
    reader: BufReader<File>,
    position: u64,
    /// Length of the file when reading began.
    len: u64,
    body: Vec<u8>,
}

impl Records {
    fn new(file: &File, redo: Lsn) -> io::Result<Records> {
        let len = file.metadata()?.len();
        if len < redo.0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the log ends before its redo point",
            ));
        }
        // Both share one position, which `file` does not use: it is read and written at given positions.
        let mut reader = BufReader::with_capacity(READ_BYTES, file.try_clone()?);
        reader.seek(SeekFrom::Start(redo.0))?;
        Ok(Records { reader, position: redo.0, len, body: Vec::new() })
    }

    /// The next record and its LSN; `None` where no whole record follows.
    pub(crate) fn next_record(&mut self) -> io::Result<Option<(Lsn, &[u8])>> {
        let left = self.len - self.position;
        if left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.reader.read_exact(&mut header)?;
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (len, sum) = (number(0) as usize, number(4));
        // No record is empty, so zeroes are none.
        if len == 0 || len as u64 > left - HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.body.resize(len, 0);
        self.reader.read_exact(&mut self.body)?;
        if with_position(crc32c::crc32c(&self.body), self.position) != sum {
            return Ok(None);
        }
        self.position += (HEADER_BYTES + len) as u64;
        Ok(Some((Lsn(self.position), &self.body)))
    }
}

fn read_redo(directory: &Path) -> io::Result<Option<Lsn>> {
    match fs::read_to_string(directory.join(REDO_FILE)) {
        Ok(text) => {
            let redo = text.trim().parse().map_err(|_| {
                io::Error::new(ErrorKind::InvalidData, format!("{REDO_FILE} has no redo point"))
            })?;
            Ok(Some(Lsn(redo)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the redo point: after a crash it is the old one or the new one.
fn write_redo(directory: &Path, redo: Lsn) -> io::Result<()> {
    let new = directory.join("log.redo.new");
    let mut file = File::create(&new)?;
    writeln!(file, "{}", redo.0)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(REDO_FILE))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(log: &Log, redo: Lsn) -> Vec<Vec<u8>> {
        let mut records = log.records(redo).unwrap();
        let mut all = Vec::new();
        while let Some((_, body)) = records.next_record().unwrap() {
            all.push(body.to_vec());
        }
        all
    }

    #[test]
    fn log_1_what_is_flushed_is_found_and_a_torn_end_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (log, redo) = Log::open(directory.path()).unwrap();
        assert_eq!(redo, None);
        log.begin().unwrap();
        let first = log.append(b"first");
        let second = log.append(b"second");
        log.flush(first).unwrap();
        assert_eq!(log.flushed(), second, "a flush writes all that is appended");
        log.append(b"never written");
        drop(log);
        let path = directory.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            for flip in [false, true] {
                let mut bytes = whole[..cut].to_vec();
                if let Some(last) = bytes.last_mut().filter(|_| flip) {
                    *last ^= 1;
                }
                fs::write(&path, bytes).unwrap();
                let (log, redo) = Log::open(directory.path()).unwrap();
                assert_eq!(redo, Some(Lsn::NONE));
                let ends = [first, second].map(|end| end.0 as usize + usize::from(flip));
                let count = ends.iter().filter(|&&end| end <= cut).count();
                let expected = [&b"first"[..], b"second"];
                assert_eq!(bodies(&log, Lsn::NONE), expected[..count], "cut at {cut}, {flip}");
                // What is appended afterwards follows the last whole record.
                let end = log.append(b"new");
                log.flush(end).unwrap();
                assert_eq!(bodies(&log, Lsn::NONE).len(), count + 1);
            }
        }
    }

    #[test]
    fn a_redo_point_is_kept_and_records_before_it_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(directory.path()).unwrap();
        log.append(&[7; 100_000]);
        let redo = log.position();
        log.append(b"after");
        log.checkpointed(redo).unwrap();
        let end = log.position();
        log.flush(end).unwrap();
        drop(log);
        let (log, found) = Log::open(directory.path()).unwrap();
        assert_eq!((found, log.position()), (Some(redo), end));
        assert_eq!(bodies(&log, redo), [b"after"]);
        let path = directory.path().join(FILE);
        fs::write(&path, b"short").unwrap();
        let error = Log::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        fs::remove_file(directory.path().join(REDO_FILE)).unwrap();
        let error = Log::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"short", "nothing is removed");
    }
}
