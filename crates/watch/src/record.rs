//! Records: a process tree's accesses in a file, which can be replayed.
//!
//! The file begins with a line that names its version. Pieces follow, at least one per second. Each has its length with
//! a checksum of the length, the content, and the content's checksum. A piece holds the accesses since the previous
//! piece, and the names of files and devices that were found since. Each checksum continues from the previous one, so
//! that a missing or moved piece is detected as well as a changed one. The last piece is marked as the last.
//!
//! A piece is written by one call, and nothing is written twice: a watch that is killed leaves all pieces but the
//! unfinished one. Records are not synced, which would slow down the watched processes.
//!
//! Invariants:  [REC-1] reading any file ends, in memory bounded by the largest piece and by the possible numbers of
//!              files, devices and tasks
//!              [REC-2] a file not written by a watch is refused; of a truncated one, all whole pieces are read
//!              [REC-3] a record does not grow beyond its limit
//! Failure:     a record that can no longer be written ends there and stays readable; a damaged one is refused with the
//!              position of the damage.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::file_table::{DEVICES_MAX, FileTable};
use forebay_measure::bad_input;
use forebay_measure::output;
use forebay_measure::report::numbers;
use forebay_measure::units::shown_size;

/// The first line, with the version.
const MAGIC: &[u8; 16] = b"forebay watch 3\n";

/// The start of that line in every version.
const NAME: &[u8] = b"forebay watch ";

/// A piece is written as soon as it has this many accesses, of a few bytes each.
const PIECE_ACCESSES: usize = 1 << 14;

/// Maximum bytes of a piece.
const PIECE_MAX: u32 = 16 << 20;

/// Bytes of the limit that are reserved for the last piece.
const LAST_MAX: u64 = 64 << 10;

/// The smallest limit, in bytes.
pub(super) const LIMIT_MIN: u64 = 1 << 20;

/// Bytes before a piece, for its length and the checksum of that, and after it, for its checksum.
const HEAD: usize = 8;
const FOOT: usize = 4;

/// The accesses of a span of time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Piece {
    page_bytes: u64,
    /// In nanoseconds since the start of the watch.
    from_ns: u64,
    until_ns: u64,
    /// What is new since the previous piece.
    file_table: FileTable,
    end: Option<End>,
    /// Each with the time in ns since the previous one, or since the start of the piece.
    accesses: Vec<(u64, Access)>,
}

/// Why there are no more pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    /// The watch ended.
    Whole,
    /// The record reached its limit.
    Full,
}

/// Checks that a record can be written at `path`, and changes nothing there.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): it cannot, or something other than a regular file is there.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file()) {
        bad_input!("cannot write {0}: {0} is no file; name another", path.display());
    }
    output::check_file(path)
}

/// An unnamed file for a record that is not kept. It disappears however the process ends. It is not in /tmp, which may
/// be in memory and would leave less of it to the watched processes.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): no file can be created, or there is less space than `limit` bytes.
pub(super) fn nameless(limit: u64) -> anyhow::Result<File> {
    let directory = std::env::var_os("TMPDIR").filter(|it| !it.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let shown = directory.display();
    let room =
        rustix::fs::statvfs(&directory).map(|facts| facts.f_bavail.saturating_mul(facts.f_frsize));
    match (tempfile::tempfile_in(&directory), room) {
        (Ok(_), Ok(room)) if room < limit => bad_input!(
            "--predict needs room for a record of {}, and {shown} has {}: name a smaller --record-limit, or another \
             directory in TMPDIR",
            shown_size(limit),
            shown_size(room)
        ),
        (Ok(file), _) => Ok(file),
        (Err(error), _) => {
            bad_input!(
                "--predict makes a record in {shown}: {}; name another directory in TMPDIR",
                error.kind()
            )
        }
    }
}

/// A record that is being written.
#[derive(Debug)]
pub(super) struct Recorder {
    path: PathBuf,
    /// `None` once the record has ended early.
    file: Option<File>,
    chain: u32,
    limit: u64,
    written: u64,
    piece: Piece,
    last_ns: u64,
    /// As written to the file so far.
    file_table: FileTable,
    failed: Option<anyhow::Error>,
    accesses: u64,
}

impl Recorder {
    /// Creates the file. `limit`: maximum bytes of the file. `page_bytes`: page size of the page cache.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn create(path: &Path, limit: u64, page_bytes: u64) -> anyhow::Result<Recorder> {
        let cannot = || format!("cannot write {}", path.display());
        // Readable by this user only: others may not be allowed to know the names of files.
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let mut file = file.with_context(cannot)?;
        file.write_all(MAGIC).with_context(cannot)?;
        Ok(Recorder {
            path: path.to_owned(),
            file: Some(file),
            chain: 0,
            limit,
            written: MAGIC.len() as u64,
            piece: Piece { page_bytes, ..Piece::default() },
            last_ns: 0,
            file_table: FileTable::default(),
            failed: None,
            accesses: 0,
        })
    }

    /// Adds an access `at_ns` after the start.
    pub(super) fn add(&mut self, at_ns: u64, access: Access) {
        if self.file.is_none() {
            return;
        }
        let at_ns = at_ns.max(self.last_ns);
        self.piece.accesses.push((at_ns - self.last_ns, access));
        self.last_ns = at_ns;
        if self.piece.accesses.len() == PIECE_ACCESSES {
            self.write(at_ns, None, None);
        }
    }

    /// Writes the accesses that were added. `file_table`: the complete one.
    pub(super) fn flush(&mut self, until_ns: u64, file_table: &FileTable) {
        self.write(until_ns, Some(file_table), None);
    }

    /// Writes the last piece. Returns a sentence that describes the record.
    ///
    /// # Errors
    /// The record could not be written.
    pub(super) fn end(mut self, until_ns: u64, file_table: &FileTable) -> anyhow::Result<String> {
        self.write(until_ns, Some(file_table), Some(End::Whole));
        if let Some(error) = self.failed {
            return Err(error).with_context(|| {
                let whole = shown_size(self.written);
                format!(
                    "the record {} ended after {whole}, which can be replayed",
                    self.path.display()
                )
            });
        }
        let full =
            if self.file.is_none() { "; it reached --record-limit before the end" } else { "" };
        Ok(format!(
            "recorded {} reads, writes, syncs and requests in {}: {}{full}",
            numbers::grouped(self.accesses as f64),
            self.path.display(),
            shown_size(self.written)
        ))
    }

    /// Writes a piece. `file_table`: the complete one, if it may have changed.
    fn write(&mut self, until_ns: u64, file_table: Option<&FileTable>, end: Option<End>) {
        if self.file.is_none() {
            return;
        }
        let until_ns = until_ns.max(self.last_ns);
        self.piece.until_ns = until_ns;
        self.piece.end = end;
        if let Some(file_table) = file_table {
            self.piece.file_table = file_table.since(&self.file_table);
            self.file_table.clone_from(file_table);
        }
        if let Err(error) = self.write_piece() {
            (self.file, self.failed) = (None, Some(error));
        } else if self.piece.end == Some(End::Full) {
            self.file = None;
        }
        self.piece.accesses.clear();
        self.piece.file_table.files.clear();
        self.piece.file_table.devices.clear();
        self.piece.from_ns = until_ns;
        self.last_ns = until_ns;
    }

    fn write_piece(&mut self) -> anyhow::Result<()> {
        let (bytes, chain) = self.framed()?;
        if let Some(file) = &mut self.file {
            file.write_all(&bytes)?;
        }
        self.chain = chain;
        self.written += bytes.len() as u64;
        self.accesses += self.piece.accesses.len() as u64;
        Ok(())
    }

    /// The framed piece, without what exceeds the limit [REC-3], and its checksum.
    fn framed(&mut self) -> anyhow::Result<(Vec<u8>, u32)> {
        let framed = |piece: &Piece, chain: u32| {
            frame(&postcard::to_stdvec(piece).context("a piece of a record")?, chain)
        };
        let whole = framed(&self.piece, self.chain)?;
        let reserved = if self.piece.end.is_some() { 0 } else { LAST_MAX };
        if whole.0.len() as u64 + reserved <= self.limit.saturating_sub(self.written) {
            return Ok(whole);
        }
        self.piece.accesses.clear();
        self.piece.until_ns = self.piece.from_ns;
        self.piece.end = Some(End::Full);
        let last = framed(&self.piece, self.chain)?;
        if last.0.len() as u64 <= LAST_MAX {
            return Ok(last);
        }
        self.piece.file_table.files.clear();
        self.piece.file_table.devices.clear();
        framed(&self.piece, self.chain)
    }
}

/// `piece` between its head and foot, and its checksum. `chain`: the checksum of the previous piece.
fn frame(piece: &[u8], chain: u32) -> anyhow::Result<(Vec<u8>, u32)> {
    let length = u32::try_from(piece.len()).ok().filter(|&length| length <= PIECE_MAX);
    let length = length.context("a piece of a record is too long")?.to_le_bytes();
    let of_length = crc32c::crc32c_append(chain, &length);
    let chain = crc32c::crc32c_append(of_length, piece);
    Ok(([&length, &of_length.to_le_bytes(), piece, &chain.to_le_bytes()].concat(), chain))
}

/// A record that is being read.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    file: BufReader<File>,
    /// Page size of the page cache when the record was written.
    pub(super) page_bytes: u64,
    /// As it is at the end of the record.
    pub(super) file_table: FileTable,
    pub(super) until_ns: u64,
    /// Says that the record has no end, or reached its limit.
    pub(super) remark: Option<String>,
    /// Start and end of the piece that was read last.
    from: u64,
    at: u64,
    len: u64,
    /// The rest of the file is not a whole piece.
    is_cut: bool,
    chain: u32,
}

impl Record {
    /// Opens the record at `path`, and reads all of it once to validate it.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): it cannot be opened, is not a record, or is damaged.
    pub(super) fn open(path: &Path) -> anyhow::Result<Record> {
        let shown = path.display();
        // Without this, opening a pipe would wait for a writer.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
        let (facts, file) = match opened {
            Ok((facts, file)) if facts.is_file() => (facts, file),
            Ok(_) => bad_input!("{shown} is no file"),
            Err(error) => bad_input!("cannot read {shown}: {error}"),
        };
        let mut file = BufReader::new(file);
        let mut magic = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        if magic != MAGIC {
            let version = magic.strip_prefix(NAME).filter(|rest| rest.len() > 1);
            match version.map(|version| String::from_utf8_lossy(version).trim().to_owned()) {
                Some(version) if version.bytes().all(|byte| byte.is_ascii_digit()) => bad_input!(
                    "{shown} is a record of version {version}; this forebay reads version 3"
                ),
                _ => bad_input!("{shown} is no record of forebay watch"),
            }
        }
        let mut record = Record {
            path: path.to_owned(),
            file,
            page_bytes: 0,
            file_table: FileTable::default(),
            until_ns: 0,
            remark: None,
            from: 0,
            at: 0,
            len: facts.len(),
            is_cut: false,
            chain: 0,
        };
        record.rewind()?;
        let (mut file_table, mut end, mut devices) = (FileTable::default(), None, HashSet::new());
        while let Some(piece) = record.next()? {
            if end.is_some() || record.page_bytes != 0 && record.page_bytes != piece.page_bytes {
                return Err(record.damaged("it continues after its end"));
            }
            (record.page_bytes, end) = (piece.page_bytes, piece.end);
            record.until_ns = piece.until_ns;
            devices.extend(piece.accesses.iter().filter_map(|(_, access)| access.device()));
            file_table.add(piece.file_table);
            // [REC-1]
            if devices.len() > DEVICES_MAX || !file_table.is_possible() {
                return Err(record.damaged("it names more files or devices than there can be"));
            }
        }
        if record.page_bytes == 0 {
            bad_input!("{shown} is a truncated record without any data");
        }
        record.file_table = file_table;
        let seconds = numbers::seconds(record.until_ns as f64 / 1e9);
        record.remark = match end {
            Some(End::Whole) => None,
            Some(End::Full) => Some(format!(
                "the record reached its limit after {seconds}: what follows is missing"
            )),
            None => Some(format!(
                "the record is incomplete, as the watch was killed: it covers {seconds}"
            )),
        };
        record.rewind()?;
        Ok(record)
    }

    /// Goes back to the first piece.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn rewind(&mut self) -> anyhow::Result<()> {
        self.at = MAGIC.len() as u64;
        self.file.seek(SeekFrom::Start(self.at))?;
        (self.is_cut, self.chain) = (false, 0);
        Ok(())
    }

    /// The next piece; `None` after the last whole one.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): the record is damaged.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Piece>> {
        self.from = self.at;
        let head = if self.is_cut { None } else { self.head()? };
        self.is_cut = head.is_none();
        let Some(length) = head else { return Ok(None) };
        let mut bytes = vec![0; length + FOOT];
        self.bytes(&mut bytes)?;
        let (piece, foot) = bytes.split_at(length);
        self.chain = crc32c::crc32c_append(self.chain, piece);
        if foot != self.chain.to_le_bytes() {
            return Err(self.damaged("a checksum is wrong"));
        }
        self.at += (HEAD + length + FOOT) as u64;
        match postcard::take_from_bytes::<Piece>(piece) {
            Ok((piece, [])) if piece.is_possible() => Ok(Some(piece)),
            _ => Err(self.damaged("there are impossible values")),
        }
    }

    /// The length of the next piece in bytes, if the file contains all of it.
    fn head(&mut self) -> anyhow::Result<Option<usize>> {
        let left = self.len.saturating_sub(self.at);
        if left < (HEAD + FOOT) as u64 {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        self.bytes(&mut head)?;
        let [length, expected] =
            [0, 4].map(|at| [head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let chain = crc32c::crc32c_append(self.chain, &length);
        let length = u32::from_le_bytes(length);
        if expected != chain.to_le_bytes() || length > PIECE_MAX {
            // After a crash of the machine, a file may end in zeros that were never written.
            if head == [0; HEAD] && self.is_empty_from_here()? {
                return Ok(None);
            }
            return Err(self.damaged("a checksum is wrong"));
        }
        self.chain = chain;
        Ok(Some(length as usize).filter(|&length| (HEAD + length + FOOT) as u64 <= left))
    }

    fn is_empty_from_here(&mut self) -> anyhow::Result<bool> {
        let mut block = [0; 4096];
        loop {
            match self.file.read(&mut block)? {
                0 => return Ok(true),
                count if block[..count].iter().any(|&byte| byte != 0) => return Ok(false),
                _ => {}
            }
        }
    }

    fn bytes(&mut self, into: &mut [u8]) -> anyhow::Result<()> {
        match self.file.read_exact(into) {
            Ok(()) => Ok(()),
            Err(error) => bad_input!("cannot read {}: {error}", self.path.display()),
        }
    }

    fn damaged(&self, why: &str) -> anyhow::Error {
        forebay_measure::BadInput(format!(
            "{} is damaged: {why} in the piece at byte {}",
            self.path.display(),
            self.from
        ))
        .into()
    }
}

impl Piece {
    fn is_possible(&self) -> bool {
        self.page_bytes.is_power_of_two()
            && (1 << 12..=1 << 16).contains(&self.page_bytes)
            && self.from_ns <= self.until_ns
            && self.until_ns < 1 << 62
            && self
                .accesses
                .iter()
                .all(|(after_ns, access)| *after_ns <= self.until_ns && access.is_possible())
    }

    /// The accesses, with the time in ns since the start of the record.
    pub(super) fn accesses(&self) -> impl Iterator<Item = (u64, Access)> {
        let mut at_ns = self.from_ns;
        self.accesses.iter().map(move |&(after_ns, access)| {
            // In a record that was not written by a watch, the sum may be anything.
            at_ns = at_ns.saturating_add(after_ns).min(self.until_ns);
            (at_ns, access)
        })
    }

    pub(super) fn file_table(self) -> FileTable {
        self.file_table
    }
}

#[cfg(test)]
mod tests;
