//! Operations: the requests of clients, and the contents of log records.
//!
//! An operation is one record, so it is in the log completely or not at all. It changes several pages: those of its
//! counters or its catalog entry, and its worker's page in the ledger, where the operation's serial number is stored.
//! So the pages themselves show whether an operation was executed.
//!
//! Invariants:  an encoded record decodes to the same record, and any shorter prefix to nothing

use std::fmt;

use forebay::{Block, Lsn};

/// Number of counters in a page of data: one in each sector, so that the loss of any sector is detected.
pub(crate) const COUNTERS: usize = 8;

/// Number of workers that have a page in the ledger.
pub(crate) const WORKERS: u8 = 8;

/// Maximum number of files.
pub(crate) const SLOTS: u8 = 16;

/// A file of counters. A name is used only once: the serial number of a slot only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileName {
    /// Index in the catalog.
    pub(crate) slot: u8,
    /// Number of the tablespace.
    pub(crate) space: u8,
    /// How many files the slot has had, including this one.
    pub(crate) serial: u32,
}

impl FileName {
    /// The file's name in its tablespace.
    pub(crate) fn on_disk(self) -> String {
        format!("f{}-{}", self.slot, self.serial)
    }

    /// The file with that name in tablespace `space`, if the name has the engine's form.
    pub(crate) fn parse(space: u8, name: &str) -> Option<FileName> {
        let (slot, serial) = name.strip_prefix('f')?.split_once('-')?;
        let file = FileName { slot: slot.parse().ok()?, space, serial: serial.parse().ok()? };
        (file.on_disk() == name).then_some(file)
    }
}

/// A page; of the meta file if `file` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageName {
    pub(crate) file: Option<FileName>,
    pub(crate) block: Block,
}

impl PageName {
    pub(crate) const CATALOG: PageName = PageName { file: None, block: 0 };

    pub(crate) fn ledger(worker: u8) -> PageName {
        PageName { file: None, block: 1 + Block::from(worker) }
    }
}

impl fmt::Display for PageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            None => write!(out, "block {} of the meta file", self.block),
            Some(file) => {
                let (name, space) = (file.on_disk(), file.space);
                write!(out, "block {} of {name} in tablespace {space}", self.block)
            }
        }
    }
}

/// One counter, and the change of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) file: FileName,
    pub(crate) block: Block,
    pub(crate) counter: u8,
    pub(crate) delta: i64,
}

/// The requests to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// Changes counters, whose deltas add up to zero.
    Transfer(Vec<Change>),
    Create(FileName),
    /// Adds blocks `from..to`, all zero.
    Extend {
        file: FileName,
        from: Block,
        to: Block,
    },
    Truncate {
        file: FileName,
        to: Block,
    },
    Drop(FileName),
}

/// An operation, with its worker and serial number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) worker: u8,
    /// The number of the operation among the worker's, from 1.
    pub(crate) serial: u64,
    pub(crate) op: Op,
}

/// The contents of one log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(Entry),
    /// A page as it was about to be written.
    Image {
        page: PageName,
        bytes: Vec<u8>,
    },
}

impl Entry {
    /// The pages that the operation changes, each once, in the order in which they are latched.
    pub(crate) fn pages(&self) -> Vec<PageName> {
        let mut pages = vec![PageName::ledger(self.worker)];
        match &self.op {
            Op::Transfer(changes) => {
                let of = |it: &Change| PageName { file: Some(it.file), block: it.block };
                pages.extend(changes.iter().map(of));
            }
            _ => pages.push(PageName::CATALOG),
        }
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

const TRANSFER: u8 = 1;
const CREATE: u8 = 2;
const EXTEND: u8 = 3;
const TRUNCATE: u8 = 4;
const DROP: u8 = 5;
const IMAGE: u8 = 6;

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Record::Entry(entry) => entry.encode(&mut out),
            Record::Image { page, bytes } => {
                out.push(IMAGE);
                out.push(u8::from(page.file.is_some()));
                let none = FileName { slot: 0, space: 0, serial: 0 };
                put_file(&mut out, page.file.unwrap_or(none));
                out.extend(page.block.to_le_bytes());
                out.extend((bytes.len() as u32).to_le_bytes());
                out.extend(bytes);
            }
        }
        out
    }

    /// Returns `None` if the bytes are not a record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let record = match from.byte()? {
            IMAGE => {
                let named = from.byte()? == 1;
                let file = from.file()?;
                let block = from.number()?;
                let len = from.number()? as usize;
                let page = PageName { file: named.then_some(file), block };
                Record::Image { page, bytes: from.bytes(len)?.to_vec() }
            }
            kind => Record::Entry(Entry::decode(kind, &mut from)?),
        };
        from.0.is_empty().then_some(record)
    }
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match &self.op {
            Op::Transfer(_) => TRANSFER,
            Op::Create(_) => CREATE,
            Op::Extend { .. } => EXTEND,
            Op::Truncate { .. } => TRUNCATE,
            Op::Drop(_) => DROP,
        });
        out.push(self.worker);
        out.extend(self.serial.to_le_bytes());
        match &self.op {
            Op::Transfer(changes) => {
                out.extend((changes.len() as u32).to_le_bytes());
                for change in changes {
                    put_file(out, change.file);
                    out.extend(change.block.to_le_bytes());
                    out.push(change.counter);
                    out.extend(change.delta.to_le_bytes());
                }
            }
            Op::Create(file) | Op::Drop(file) => put_file(out, *file),
            Op::Extend { file, from, to } => {
                put_file(out, *file);
                out.extend(from.to_le_bytes());
                out.extend(to.to_le_bytes());
            }
            Op::Truncate { file, to } => {
                put_file(out, *file);
                out.extend(to.to_le_bytes());
            }
        }
    }

    fn decode(kind: u8, from: &mut Reader<'_>) -> Option<Entry> {
        let (worker, serial) = (from.byte()?, from.long()?);
        let op = match kind {
            TRANSFER => {
                let count = from.number()?;
                let changes = (0..count).map(|_| from.change()).collect::<Option<_>>();
                Op::Transfer(changes?)
            }
            CREATE => Op::Create(from.file()?),
            EXTEND => Op::Extend { file: from.file()?, from: from.number()?, to: from.number()? },
            TRUNCATE => Op::Truncate { file: from.file()?, to: from.number()? },
            DROP => Op::Drop(from.file()?),
            _ => return None,
        };
        Some(Entry { worker, serial, op })
    }
}

fn put_file(out: &mut Vec<u8>, file: FileName) {
    out.push(file.slot);
    out.push(file.space);
    out.extend(file.serial.to_le_bytes());
}

/// The rest of the bytes that are being decoded.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(crate) fn lsn(&mut self) -> Option<Lsn> {
        self.long().map(Lsn)
    }

    fn file(&mut self) -> Option<FileName> {
        Some(FileName { slot: self.byte()?, space: self.byte()?, serial: self.number()? })
    }

    fn change(&mut self) -> Option<Change> {
        Some(Change {
            file: self.file()?,
            block: self.number()?,
            counter: self.byte()?,
            delta: self.long()?.cast_signed(),
        })
    }
}
