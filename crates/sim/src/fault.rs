//! Faults: unrequested behaviour of a disk.
//!
//! A rule examines each operation before it is executed and decides its outcome. [`Faults`] is a rule with seeded
//! random choices; a test that needs a specific fault provides its own rule.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use forebay_io::OsError;

use crate::journal::Position;

/// An operation that is about to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// Reads bytes from a file; one attempt of a request.
    Read,
    /// Writes bytes to a file; one attempt of a request.
    Write,
    /// A sync of a file.
    Sync,
    /// Writeback of a range, started or awaited.
    Writeback,
    /// A change of a file's size, or a reservation of space.
    Resize,
    /// Creation of a file.
    Create,
    /// Creation of a directory.
    MakeDirectory,
    /// Removal of a name.
    Remove,
    /// A rename.
    Rename,
    /// A sync of a directory.
    SyncDirectory,
}

/// An operation whose outcome a rule decides.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Operation<'a> {
    /// The kind of operation.
    pub what: What,
    /// The file or directory, by the path used to open or name it.
    pub path: &'a Path,
    /// First byte, for reads and writes.
    pub offset: u64,
    /// Bytes to move; for a resize, the new size.
    pub len: u64,
    /// Number of entries in the journal so far.
    pub position: Position,
}

/// The outcome of an operation. A fault that does not apply to an operation has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is executed.
    None,
    /// It fails with this error and has no effect. A failed sync drops the writes to the file that are not durable yet,
    /// as Linux does: reads then return the old bytes, and a repeated sync succeeds without doing anything.
    Fail(OsError),
    /// A read or write moves at most this many bytes.
    Short(u64),
    /// It is delayed by this time.
    Delay(Duration),
    /// A read returns the bytes from before the newest write there.
    Stale,
    /// A read returns the bytes of another place in the file.
    Misdirected,
    /// A write is acknowledged but not executed.
    Lost,
}

/// How often faults happen at random, each per thousand operations that it applies to.
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
    /// Reads and writes that move only a part.
    pub short: u32,
    /// Reads and writes that are interrupted.
    pub interrupted: u32,
    /// Reads that return old bytes.
    pub stale: u32,
    /// Reads that return the bytes of another place.
    pub misdirected: u32,
    /// Writes that are acknowledged but not executed.
    pub lost: u32,
    /// Operations that are delayed.
    pub delayed: u32,
    /// Maximum delay.
    pub delay: Duration,
}

impl Faults {
    /// The rule that makes these random choices.
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
