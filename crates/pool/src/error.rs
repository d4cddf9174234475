//! Errors of a pool, and what the caller can do about them.
//!
//! Four kinds, as everywhere in Forebay: *retry* ([`Error::NoFreeFrame`], [`Error::MemoryInUse`], [`Error::Busy`]),
//! *data* ([`Error::Corrupt`], [`Error::Codec`], [`Error::PastEnd`], [`Error::Invalidated`]), *device* ([`Error::Io`]) and
//! *latched* ([`Error::Failed`]); in addition, a request may be invalid. [`Error::kind`] returns the kind. Errors are
//! cheap to clone: every thread that waited for a failed read receives its error.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::OsError;

use crate::tag::{Block, Lsn};

/// All errors of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every frame was pinned for the whole of the wait.
    #[error(
        "no free frame: {pinned} of {capacity} are pinned and none became free within {waited:?}; \
         hold fewer pages at a time, make the pool larger, or look at who pins them in \
         `BufferPool::view`"
    )]
    NoFreeFrame {
        /// Frames that are pinned, or busy with I/O.
        pinned: usize,
        /// Frames in all.
        capacity: usize,
        /// How long the thread waited.
        waited: Duration,
    },
    /// The pool's memory cannot shrink while pages in the part to be released are pinned, by guards or by the
    /// look-ahead of streams, or busy with I/O. Its size is unchanged.
    #[error(
        "the pool's memory could not be made smaller: {pages} pages in the part to return are pinned or busy with \
         I/O, and none of them became free within {waited:?}; let go of pages, drop idle read streams and try again, \
         request less of it, or look at who pins them in `BufferPool::view`"
    )]
    MemoryInUse {
        /// Pages that are pinned, or busy with I/O.
        pages: usize,
        /// How long the call waited for them.
        waited: Duration,
    },
    /// The file cannot be closed while its pages are in use. It stays open.
    #[error(
        "{} could not be closed: {pages} of its pages are pinned, or were changed meanwhile; let go \
         of them and close it again",
        file.display()
    )]
    Busy {
        /// The file.
        file: Arc<Path>,
        /// The number of pages in use.
        pages: usize,
    },
    /// A page's checksum does not match its bytes.
    #[error("block {block} of {} is corrupt: {}", file.display(), corrupt(*expected, *found, *all_zeroes))]
    Corrupt {
        /// The file.
        file: Arc<Path>,
        /// The block.
        block: Block,
        /// The checksum computed from the page's bytes and block number.
        expected: u32,
        /// The checksum stored in the page.
        found: u32,
        /// True when every byte of the page is zero: it was never written, or its write was lost.
        all_zeroes: bool,
    },
    /// The file's codec rejected the bytes that were read.
    #[error(
        "block {block} of {} was refused by the file's codec: {source}; open it with the codec and the key \
         that it was written with, restore it from the log or a backup, or read it with `salvage`",
        file.display()
    )]
    Codec {
        /// The file.
        file: Arc<Path>,
        /// The block.
        block: Block,
        /// The codec's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The block is not in the file.
    #[error(
        "block {block} is past the end of {}, which has {blocks} blocks; `extend` makes new ones, but what the \
         file had before comes back only from the log or a backup",
        file.display()
    )]
    PastEnd {
        /// The file.
        file: Arc<Path>,
        /// The requested block.
        block: Block,
        /// Blocks in the file.
        blocks: Block,
    },
    /// The page was dropped or truncated, or its file was closed.
    #[error(
        "{} was {how}, and with it the requested page or file; {}",
        file.display(),
        how.advice()
    )]
    Invalidated {
        /// The file.
        file: Arc<Path>,
        /// The reason.
        how: Fate,
    },
    /// The I/O layer failed: the device, the filesystem, or the request itself.
    #[error(transparent)]
    Io(#[from] forebay_io::Error),
    /// A sync failed earlier. What was written since the last good one may be lost, so nothing
    /// more is written to this tablespace.
    #[error(
        "an earlier sync in tablespace `{tablespace}` failed ({first}), so nothing more is \
         written or synced there; close the pool, check the device, and recover from the log or \
         a backup"
    )]
    Failed {
        /// The tablespace.
        tablespace: Arc<str>,
        /// The first failure.
        first: Arc<forebay_io::Error>,
    },
    /// The log could not be flushed as far as a page needs before it may be written. The page
    /// stays dirty.
    #[error("the log could not be flushed up to {lsn}: {source}; the page stays dirty")]
    Log {
        /// The LSN that the page needs.
        lsn: Lsn,
        /// The log's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// [`Wal::position`](crate::Wal::position) is behind its value at an earlier checkpoint: recovery from there would
    /// redo changes that are older than the pages. The redo point has not moved.
    #[error(
        "the log's position went back from {from} to {to}; the redo point stays where it was: keep the log, and find \
         out why `Wal::position` fell"
    )]
    LogWentBack {
        /// The earlier position of the log.
        from: Lsn,
        /// The position that it reports now.
        to: Lsn,
    },
    /// A checkpoint could not write or sync everything. The redo point has not moved; pages that could not be written
    /// are still dirty, and the next checkpoint tries again.
    #[error(
        "the checkpoint failed in {}; the redo point stays where it was: keep the log, mend the cause \
         and take another checkpoint",
        in_tablespaces(failed)
    )]
    Checkpoint {
        /// The tablespaces with errors, each with its first error.
        failed: Vec<(Arc<str>, Error)>,
        /// The work that was done nevertheless.
        report: Arc<crate::CheckpointReport>,
    },
    /// The log or a codec panicked in a checkpoint. The redo point has not moved.
    #[error("the log or a codec panicked in the checkpoint; the redo point stays where it was")]
    CheckpointPanicked,
    /// Too many writes in place have failed, so there is no room for more copies. The pages stay dirty.
    #[error(
        "the double-write file of tablespace `{tablespace}` is held by {pages} pages whose writes \
         have failed; remove the cause of those failures and flush again, or close the pool and recover"
    )]
    Unprotected {
        /// The tablespace.
        tablespace: Arc<str>,
        /// The number of pages.
        pages: u32,
    },
    /// The double-write file is invalid: it is damaged, or was written by another version. A page torn by the last
    /// crash cannot be repaired without it.
    #[error(
        "{} is damaged or of another version; open it with that version, or remove it and have the \
         pages that the last crash may have torn restored from the log or a backup",
        file.display()
    )]
    DoubleWrite {
        /// The double-write file.
        file: Arc<Path>,
    },
    /// The image of a page could not be written to the log before the page is written. The page stays dirty.
    #[error(
        "the image of block {block} of {} could not be put in the log: {source}; the page stays dirty",
        file.display()
    )]
    Image {
        /// The file.
        file: Arc<Path>,
        /// The block.
        block: Block,
        /// The log's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// Another pool, in this or another process, has this directory.
    #[error(
        "{} is in use by another pool ({holder}); close that one first, or choose another \
         directory",
        directory.display()
    )]
    InUse {
        /// The directory.
        directory: Arc<Path>,
        /// The other pool's process, as far as it is known.
        holder: String,
    },
    /// The pool was built without a choice that has no default.
    #[error("{}", choices(*checksum, *torn_pages))]
    Unchosen {
        /// Whether pages carry checksums was not chosen.
        checksum: bool,
        /// The protection from torn pages was not chosen.
        torn_pages: bool,
    },
    /// A setting is invalid.
    #[error("{setting} is {value}: {expected}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        expected: String,
    },
    /// The profile could not be read or understood.
    #[error("cannot use the profile {}: {why}", file.display())]
    Profile {
        /// The profile file.
        file: Arc<Path>,
        /// The reason, with its line.
        why: String,
    },
    /// The pool was built by the process that this one was forked from. Nothing was done.
    #[error(
        "the pool belongs to the process that this one was forked from; build one in this process, for other \
         directories, or let the parent do it"
    )]
    Forked,
    /// The pool was closed.
    #[error("the pool was closed; build another one")]
    Closed,
    /// There is no tablespace of this name.
    #[error("there is no tablespace `{name}`; name one that the pool was built with")]
    NoTablespace {
        /// The requested name.
        name: String,
    },
    /// The file was opened read-only.
    #[error("{} was opened read-only; open it for writing to change its pages", file.display())]
    ReadOnly {
        /// The file.
        file: Arc<Path>,
    },
    /// The file is already open, with other options.
    #[error(
        "{} is open already with another {what}; close it first, or open it with the same",
        file.display()
    )]
    OpenOtherwise {
        /// The file.
        file: Arc<Path>,
        /// The option that differs.
        what: &'static str,
    },
    /// The file is shorter on disk than the pool expects. The pool neither extends it nor
    /// writes past its end: zeroes would replace its lost blocks.
    #[error("{}", shortened(file, *len, *expected, *read_only))]
    Shortened {
        /// The file.
        file: Arc<Path>,
        /// Its size, in bytes.
        len: u64,
        /// The size that the pool expects at least, in bytes.
        expected: u64,
        /// It is open for reading, so its writer may have truncated it.
        read_only: bool,
    },
    /// The file is open, and its name no longer refers to it: it was removed or replaced.
    #[error(
        "{} is open, but {}; {}",
        file.display(),
        if *replaced { "its name leads to another file now" } else { "its name was removed" },
        detached(*read_only)
    )]
    Detached {
        /// The name.
        file: Arc<Path>,
        /// Another file has that name.
        replaced: bool,
        /// It is open for reading, so its writer may have replaced it.
        read_only: bool,
    },
    /// The size of the file on disk is not that of a file of whole pages.
    #[error(
        "{} has {len} bytes, which is not a whole number of pages of {page_bytes}; check the page \
         size, restore it from the log or a backup, or open it with `ignore_partial_page` if nothing is \
         lost with its last bytes",
        file.display()
    )]
    PartialPage {
        /// The file.
        file: Arc<Path>,
        /// Its size, in bytes.
        len: u64,
        /// The pool's page size, in bytes.
        page_bytes: u64,
    },
}

/// The kind of reaction that an error requires of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something was short or in use: the same call may succeed later, or once space is available.
    Retry,
    /// The file lacks the requested data, or has it damaged: make another call, or repair it.
    Data,
    /// The disk or the log failed. Nothing is lost in memory; the cause must be repaired.
    Device,
    /// An earlier failure is final for the tablespace: close the pool and recover.
    Latched,
    /// The call or a setting is invalid: a bug of the caller, or a matter for the administrator.
    Usage,
}

impl Error {
    /// Returns the kind of reaction that this error requires.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoFreeFrame { .. } | Error::MemoryInUse { .. } | Error::Busy { .. } => {
                ErrorKind::Retry
            }
            Error::Corrupt { .. }
            | Error::Codec { .. }
            | Error::PastEnd { .. }
            | Error::Invalidated { .. }
            | Error::Shortened { .. }
            | Error::Detached { .. }
            | Error::PartialPage { .. } => ErrorKind::Data,
            Error::Failed { .. } => ErrorKind::Latched,
            Error::Io(error) => of_io(error),
            // A retry repeats the whole checkpoint, so the worst error in it counts.
            Error::Checkpoint { failed, .. } => {
                let kinds = failed.iter().map(|(_, error)| error.kind());
                kinds.max_by_key(|kind| *kind as u8).unwrap_or(ErrorKind::Device)
            }
            Error::Log { .. }
            | Error::Image { .. }
            | Error::Unprotected { .. }
            | Error::DoubleWrite { .. } => ErrorKind::Device,
            Error::CheckpointPanicked
            | Error::LogWentBack { .. }
            | Error::InUse { .. }
            | Error::Unchosen { .. }
            | Error::Setting { .. }
            | Error::Profile { .. }
            | Error::Forked
            | Error::Closed
            | Error::NoTablespace { .. }
            | Error::ReadOnly { .. }
            | Error::OpenOtherwise { .. } => ErrorKind::Usage,
        }
    }

    /// True if the page's contents are not what was written to its place.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::Codec { .. })
    }

    /// True if the page must be looked up again: this frame no longer has it.
    pub(crate) fn is_refreshed(&self) -> bool {
        matches!(self, Error::Invalidated { how: Fate::Refreshed, .. })
    }

    /// Returns true when the same call may succeed later without a repair.
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Retry
    }
}

fn of_io(error: &forebay_io::Error) -> ErrorKind {
    use forebay_io::Error as Io;
    match error {
        _ if error.is_failed_sync() => ErrorKind::Latched,
        _ if error.os_error().is_some_and(OsError::is_shortage) => ErrorKind::Retry,
        Io::NoSpace { .. } | Io::Memlock { .. } | Io::Memory { .. } => ErrorKind::Retry,
        Io::PastEnd { .. } => ErrorKind::Data,
        Io::TooLarge { .. }
        | Io::Misaligned { .. }
        | Io::DirectRefused { .. }
        | Io::MixedModes { .. }
        | Io::Permission { .. }
        | Io::Setting { .. }
        | Io::Unavailable { .. }
        | Io::Unsupported { .. }
        | Io::Forked
        | Io::Closed => ErrorKind::Usage,
        _ => ErrorKind::Device,
    }
}

/// Why a page or a file no longer exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The file was dropped.
    Dropped,
    /// The file was truncated to fewer blocks.
    Truncated,
    /// The file was closed.
    Closed,
    /// The file was refreshed ([`PagedFile::refresh`](crate::PagedFile::refresh)).
    Refreshed,
}

impl Fate {
    fn advice(self) -> &'static str {
        match self {
            Fate::Dropped => "it cannot be had back",
            Fate::Truncated => "what was beyond its new end cannot be had back",
            Fate::Closed => "open it again",
            Fate::Refreshed => "release it and request the page again",
        }
    }
}

impl std::fmt::Display for Fate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Fate::Dropped => "dropped",
            Fate::Truncated => "truncated",
            Fate::Closed => "closed",
            Fate::Refreshed => "refreshed",
        })
    }
}

fn in_tablespaces(failed: &[(Arc<str>, Error)]) -> String {
    let each = failed.iter().map(|(name, error)| format!("tablespace `{name}` ({error})"));
    each.collect::<Vec<_>>().join(" and ")
}

fn choices(checksum: bool, torn_pages: bool) -> String {
    let checksum = checksum.then_some(
        "choose a checksum with `PoolBuilder::checksum`: `Checksum::Crc32c` (a damaged page is an error; the \
         pool needs 4 bytes of each page) or `Checksum::Off` (damaged pages are not noticed)",
    );
    let torn_pages = torn_pages.then_some(
        "choose a protection from torn pages with `PoolBuilder::torn_pages`: `TornPages::DoubleWrite` (the pool \
         repairs them; each page is written twice), `TornPages::Images` (recovery repairs them from the log), \
         `TornPages::Atomic` (the disk writes pages whole) or `TornPages::Unprotected` (a power cut may destroy \
         pages)",
    );
    checksum.into_iter().chain(torn_pages).collect::<Vec<_>>().join("; ")
}

fn shortened(file: &Path, len: u64, expected: u64, read_only: bool) -> String {
    let file = file.display();
    if read_only {
        return format!(
            "{file} has {len} bytes, and had {expected} or more when it was opened; call `refresh` if its writer has \
             truncated it, or restore it from the log or a backup"
        );
    }
    format!(
        "{file} is corrupt: it has {len} bytes of {expected} or more, so another program has truncated it, or the \
         filesystem has lost its end; copy what is left, then restore it from the log or a backup"
    )
}

fn detached(read_only: bool) -> &'static str {
    if read_only {
        return "call `refresh` to follow the name, or close it";
    }
    "what the pool has would go with its last handle: open it by its new name if it has one, or copy it with `backup` \
     if it is needed, and close it"
}

fn corrupt(expected: u32, found: u32, all_zeroes: bool) -> String {
    let advice = "restore it from the log or a backup, or read it with `salvage`";
    if all_zeroes {
        return format!("it is all zeroes, as if never written; {advice}");
    }
    format!("its bytes give checksum {expected:#010x}, but it carries {found:#010x}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_io::{Action, Error as Io, Op};

    #[test]
    fn an_error_says_whether_the_same_call_may_succeed_later() {
        let file: Arc<Path> = Path::new("t").into();
        let io = |op: Op, source: OsError| {
            Error::Io(Io::Io {
                op: Action::Request(op),
                file: file.clone(),
                offset: 0,
                len: 1,
                source,
            })
        };
        let open = |source| Error::Io(Io::Open { file: file.clone(), source });
        let no_space = Error::Io(Io::NoSpace {
            op: Action::Request(Op::Write),
            file: file.clone(),
            offset: 0,
            len: 1,
            source: OsError::ENOSPC,
        });
        let no_frame = Error::NoFreeFrame { pinned: 8, capacity: 8, waited: Duration::ZERO };
        for (error, kind) in [
            (no_frame, ErrorKind::Retry),
            (no_space, ErrorKind::Retry),
            (Error::PastEnd { file: file.clone(), block: 1, blocks: 1 }, ErrorKind::Data),
            (io(Op::Read, OsError::EIO), ErrorKind::Device),
            (io(Op::Read, OsError::ENOMEM), ErrorKind::Retry),
            (io(Op::SyncData, OsError::ENOMEM), ErrorKind::Latched),
            (open(OsError::EMFILE), ErrorKind::Retry),
            (open(OsError::ENFILE), ErrorKind::Retry),
            (io(Op::SyncData, OsError::EIO), ErrorKind::Latched),
            (Error::ReadOnly { file: file.clone() }, ErrorKind::Usage),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.is_retryable(), kind == ErrorKind::Retry, "{error}");
        }
    }
}
