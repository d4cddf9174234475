//! Faults: what a disk does besides what it is told.
//!
//! A rule looks at each operation before it is carried out and says what becomes of it. [`Faults`] is
//! a rule that tosses seeded dice; a test that wants one certain fault writes its own.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use forebay_io::OsError;

use crate::journal::Position;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// Bytes from a file; one attempt of a request.
    Read,
    /// Bytes to a file; one attempt of a request.
    Write,
    /// A sync of a file.
    Sync,
    /// Writeback of a range, started or awaited.
    Writeback,
    /// A change of a file's size, or reserving space.
    Resize,
    /// A new file.
    Create,
    /// A new directory.
    MakeDirectory,
    /// A name that goes.
    Remove,
    /// A name that changes.
    Rename,
    /// A sync of a directory.
    SyncDirectory,
}

/// An operation that a rule decides about.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Operation<'a> {
    /// What is to be done.
    pub what: What,
    /// The file or directory, by the path it was opened by or is named by.
    pub path: &'a Path,
    /// The first byte, of reads and writes.
    pub offset: u64,
    /// Bytes to move; of a resize the new size.
    pub len: u64,
    /// Entries in the journal so far.
    pub position: Position,
}

/// What becomes of an operation. A fault that makes no sense for an operation is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is carried out.
    None,
    /// It fails with this error, and nothing is done. A sync that fails drops what was written to the
    /// file and is not durable yet, as Linux does: reads see the old bytes then, and a sync that is
    /// tried again succeeds and has done nothing.
    Fail(OsError),
    /// A read or write moves at most so many bytes.
    Short(u64),
    /// It takes so much longer.
    Delay(Duration),
    /// A read gives the bytes from before the newest write there.
    Stale,
    /// A read gives the bytes of another place in the file.
    Misdirected,
    /// A write is acknowledged and not done.
    Lost,
}

/// How often faults happen by chance, each out of a thousand operations it makes sense for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail with EIO.
    pub read_errors: u32,
    /// Writes that fail with EIO.
    pub write_errors: u32,
    /// Writes, resizes and new names that find the disk full.
    pub full: u32,
    /// Syncs of files and directories that fail with EIO.
    pub sync_errors: u32,
    /// Reads and writes that move a part.
    pub short: u32,
    /// Reads and writes that are interrupted.
    pub interrupted: u32,
    /// Reads that give old bytes.
    pub stale: u32,
    /// Reads that give the bytes of another place.
    pub misdirected: u32,
    /// Writes that are acknowledged and not done.
    pub lost: u32,
    /// Operations that are delayed.
    pub delayed: u32,
    /// By at most how much.
    pub delay: Duration,
}

impl Faults {
    /// The rule that tosses these dice.
    pub fn rule(self, seed: u64) -> impl FnMut(&Operation<'_>) -> Fault + Send + 'static {
        let mut rng = Rng::with_seed(seed);
        move |operation| self.toss(operation, &mut rng)
    }

    fn toss(&self, operation: &Operation<'_>, rng: &mut Rng) -> Fault {
        let part = rng.u64(1..operation.len.max(2));
        let delay = Duration::from_nanos(rng.u64(0..=self.delay.as_nanos() as u64));
        let eio = Fault::Fail(OsError::EIO);
        let full = (self.full, Fault::Fail(OsError::ENOSPC));
        let short = (self.short, Fault::Short(part));
        let interrupted = (self.interrupted, Fault::Fail(OsError::EINTR));
        let delayed = (self.delayed, Fault::Delay(delay));
        let possible = match operation.what {
            What::Read => vec![
                (self.read_errors, eio),
                short,
                interrupted,
                (self.stale, Fault::Stale),
                (self.misdirected, Fault::Misdirected),
                delayed,
            ],
            What::Write => vec![
                (self.write_errors, eio),
                full,
                short,
                interrupted,
                (self.lost, Fault::Lost),
                delayed,
            ],
            What::Sync | What::SyncDirectory => vec![(self.sync_errors, eio), delayed],
            What::Resize | What::Create | What::MakeDirectory | What::Rename => {
                vec![full, delayed]
            }
            What::Remove | What::Writeback => vec![delayed],
        };
        let mut roll = rng.u32(0..1000);
        for (chance, fault) in possible {
            if roll < chance {
                return fault;
            }
            roll -= chance;
        }
        Fault::None
    }
}
