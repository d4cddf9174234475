//! Pages: their layout, and how an operation changes one.
//!
//! ```text
//! sector 0..8, of 512 bytes each:
//! 0          8      16                               32
//! checksum*  LSN    slot space . . serial block .    counter, or part of the catalog or the ledger
//! ```
//!
//! The checksum is the pool's (*: in sector 0 only). Every sector contains the LSN of the page's newest record, so a
//! page mixed from two of its states is detected even without a checksum. The page contains its own name, so a page
//! that was written in another page's block is detected as well.
//!
//! The catalog has two entries of 16 bytes in each sector: serial number, state, tablespace, blocks.
//!
//! Invariants:  a page contains its own name, and the same LSN in all sectors
//!              an operation is applied only to a page that has all earlier ones applied, and only once

use forebay::{Block, Lsn};

use super::error::Damage;
use super::op::{COUNTERS, Entry, FileName, Op, PageName, SLOTS};

/// Size of a page, in bytes.
pub(crate) const PAGE: usize = 4096;

const SECTOR: usize = PAGE / COUNTERS;
const LSN: usize = 8;
const NAME: usize = 16;
const NAME_BYTES: usize = 12;
const BODY: usize = 32;
const ENTRY_BYTES: usize = 16;

/// A slot of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot {
    /// Serial number of the slot's newest file; 0 before the first.
    pub(crate) serial: u32,
    /// That file's tablespace and length; `None` once it was dropped.
    pub(crate) live: Option<(u8, Block)>,
}

fn long(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

fn number(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"))
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The LSN of the newest record applied to the page.
pub(crate) fn lsn(page: &[u8]) -> Lsn {
    Lsn(long(page, LSN))
}

fn name_bytes(name: PageName) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    // No slot has this number: it distinguishes the meta file's pages from those of slot 0.
    let none = FileName { slot: u8::MAX, space: 0, serial: 0 };
    let file = name.file.unwrap_or(none);
    (bytes[0], bytes[1]) = (file.slot, file.space);
    put(&mut bytes, 4, &file.serial.to_le_bytes());
    put(&mut bytes, 8, &name.block.to_le_bytes());
    bytes
}

/// Checks that the page is `name`, or was never changed, and is not torn.
pub(crate) fn check(page: &[u8], name: PageName) -> Result<(), Damage> {
    let lsn = lsn(page);
    if (1..COUNTERS).any(|sector| long(page, sector * SECTOR + LSN) != lsn.0) {
        return Err(Damage::Torn);
    }
    let says = &page[NAME..NAME + NAME_BYTES];
    let untouched = lsn == Lsn::NONE && says.iter().all(|byte| *byte == 0);
    if untouched || says == name_bytes(name) { Ok(()) } else { Err(Damage::OtherPage) }
}

/// The counters in a page of data.
pub(crate) fn counters(page: &[u8]) -> [i64; COUNTERS] {
    std::array::from_fn(|at| long(page, at * SECTOR + BODY).cast_signed())
}

/// The serial number in a page of the ledger.
pub(crate) fn serial(page: &[u8]) -> u64 {
    long(page, BODY)
}

fn slot_at(slot: u8) -> usize {
    let slot = usize::from(slot);
    (slot % COUNTERS) * SECTOR + BODY + slot / COUNTERS * ENTRY_BYTES
}

/// An entry of the catalog.
pub(crate) fn slot(page: &[u8], slot: u8) -> Slot {
    let at = slot_at(slot);
    let live = (page[at + 4] == 1).then(|| (page[at + 5], number(page, at + 8)));
    Slot { serial: number(page, at), live }
}

fn put_slot(page: &mut [u8], number: u8, slot: Slot) {
    let at = slot_at(number);
    let (space, blocks) = slot.live.unwrap_or_default();
    put(page, at, &slot.serial.to_le_bytes());
    put(page, at + 4, &[u8::from(slot.live.is_some()), space]);
    put(page, at + 8, &blocks.to_le_bytes());
}

/// All entries of the catalog.
pub(crate) fn slots(page: &[u8]) -> Vec<Slot> {
    (0..SLOTS).map(|number| slot(page, number)).collect()
}

/// Checks that `entry` may be the next operation to change the page.
pub(crate) fn expects(page: &[u8], name: PageName, entry: &Entry) -> Result<(), Damage> {
    check(page, name)?;
    if name == PageName::ledger(entry.worker) {
        let next = serial(page) + 1 == entry.serial;
        return if next { Ok(()) } else { Err(Damage::OutOfTurn) };
    }
    let live = |file: &FileName, wanted: Option<Block>| {
        let slot = slot(page, file.slot);
        let (space, blocks) = slot.live.unwrap_or((u8::MAX, 0));
        slot.serial == file.serial
            && space == file.space
            && wanted.is_none_or(|wanted| wanted == blocks)
    };
    let fits = match &entry.op {
        Op::Transfer(_) => true,
        Op::Create(file) => {
            let slot = slot(page, file.slot);
            slot.live.is_none() && slot.serial + 1 == file.serial
        }
        Op::Extend { file, from, .. } => live(file, Some(*from)),
        Op::Truncate { file, .. } | Op::Drop(file) => live(file, None),
    };
    if fits { Ok(()) } else { Err(Damage::OutOfTurn) }
}

/// Applies `entry`, whose record is at `lsn`, to the page.
pub(crate) fn apply(page: &mut [u8], name: PageName, entry: &Entry, lsn: Lsn) {
    match &entry.op {
        _ if name == PageName::ledger(entry.worker) => {
            put(page, BODY, &entry.serial.to_le_bytes());
        }
        Op::Transfer(changes) => {
            let here = |it: &&super::op::Change| Some(it.file) == name.file;
            for change in changes.iter().filter(here).filter(|it| it.block == name.block) {
                let at = usize::from(change.counter) * SECTOR + BODY;
                let sum = long(page, at).cast_signed() + change.delta;
                put(page, at, &sum.to_le_bytes());
            }
        }
        Op::Create(file) => {
            let created = Slot { serial: file.serial, live: Some((file.space, 0)) };
            put_slot(page, file.slot, created);
        }
        Op::Extend { file, to, .. } | Op::Truncate { file, to } => {
            let resized = Slot { serial: file.serial, live: Some((file.space, *to)) };
            put_slot(page, file.slot, resized);
        }
        Op::Drop(file) => put_slot(page, file.slot, Slot { serial: file.serial, live: None }),
    }
    put(page, NAME, &name_bytes(name));
    for sector in 0..COUNTERS {
        put(page, sector * SECTOR + LSN, &lsn.0.to_le_bytes());
    }
}
