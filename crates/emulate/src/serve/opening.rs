//! How a file is opened: through the page cache, or bypassing it.
//!
//! A process that opens a file for direct transfers may write from several threads at once, as to a disk. That needs
//! `FOPEN_DIRECT_IO`, without which FUSE serializes direct writers. When a read through such a handle returns short,
//! the kernel takes that as the file's end and does not consult its own idea of the size. But with a write-back cache
//! the server learns of a file's growth only when the pages are written back: a direct read of a hole before them
//! would see the end of the file. So such a handle and a writer through the cache are never open together. The second
//! one is opened in the mode of the first: a direct reader through the cache, where the kernel performs direct
//! transfers anyway and extends short answers to its own size; a writer bypassing the cache, whose writes have
//! reached the server when they return.
//!
//! Invariants:  [OPN-1] while a file is open for reads that bypass the cache, no handle writes it through the cache
//! Concurrency: one lock, held for a few instructions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::{FileHandle, FopenFlags, OpenFlags};
use rustix::fs::OFlags;

/// Open handles of a file that must not coexist with those of another kind.
#[derive(Debug, Clone, Copy, Default)]
struct Users {
    cached_writers: u64,
    direct_readers: u64,
}

/// The open handles, by file.
#[derive(Debug, Default)]
pub(super) struct Openings {
    by_inode: Mutex<HashMap<u64, Users>>,
}

/// A handle that may coexist with all others.
const HARMLESS: FileHandle = FileHandle(0);
const CACHED_WRITER: FileHandle = FileHandle(1);
const DIRECT_READER: FileHandle = FileHandle(2);

/// The page cache keeps a file's pages when the file is opened again.
const CACHED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;
const DIRECT: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE
    .union(FopenFlags::FOPEN_DIRECT_IO)
    .union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// For a file whose size never changes.
pub(super) fn fixed_size(flags: OpenFlags) -> FopenFlags {
    if is_direct(flags) { DIRECT } else { CACHED }
}

fn is_direct(flags: OpenFlags) -> bool {
    flags.0 & OFlags::DIRECT.bits() as i32 != 0
}

impl Openings {
    fn by_inode(&self) -> MutexGuard<'_, HashMap<u64, Users>> {
        self.by_inode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `inode` is opened. Return the handle with [`Openings::close`].
    pub(super) fn open(&self, inode: u64, flags: OpenFlags) -> (FopenFlags, FileHandle) {
        let mode = flags.0 & OFlags::RWMODE.bits() as i32;
        let reads = mode != OFlags::WRONLY.bits() as i32;
        let writes = mode != OFlags::RDONLY.bits() as i32;
        let mut by_inode = self.by_inode();
        let users = by_inode.get(&inode).copied().unwrap_or_default();
        let past_the_cache = match is_direct(flags) {
            true => !reads || users.cached_writers == 0,
            false => writes && users.direct_readers > 0,
        };
        let (opened, handle) = match past_the_cache {
            true => (DIRECT, if reads { DIRECT_READER } else { HARMLESS }),
            // Even for a direct handle: fcntl(2) can clear its direct flag.
            false => (CACHED, if writes { CACHED_WRITER } else { HARMLESS }),
        };
        if handle != HARMLESS {
            let users = by_inode.entry(inode).or_default();
            users.cached_writers += u64::from(handle == CACHED_WRITER);
            users.direct_readers += u64::from(handle == DIRECT_READER);
            let is_exclusive = users.cached_writers == 0 || users.direct_readers == 0;
            assert!(is_exclusive, "[OPN-1] {users:?} of inode {inode}");
        }
        (opened, handle)
    }

    /// Records that a handle of `inode` is closed.
    pub(super) fn close(&self, inode: u64, handle: FileHandle) {
        let mut by_inode = self.by_inode();
        let Some(users) = by_inode.get_mut(&inode) else { return };
        users.cached_writers -= u64::from(handle == CACHED_WRITER);
        users.direct_readers -= u64::from(handle == DIRECT_READER);
        if users.cached_writers + users.direct_readers == 0 {
            by_inode.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(flags: OFlags) -> OpenFlags {
        OpenFlags(flags.bits() as i32)
    }

    #[test]
    fn readers_past_the_cache_and_writers_through_it_do_not_meet_in_any_order() {
        let mut random = fastrand::Rng::with_seed(3);
        let modes = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR];
        let openings = Openings::default();
        let mut open = Vec::new();
        for _ in 0..10_000 {
            if random.u8(..5) < 2 && !open.is_empty() {
                let (inode, _, _, handle) = open.swap_remove(random.usize(..open.len()));
                openings.close(inode, handle);
            } else if open.len() < 12 {
                let (inode, direct) = (random.u64(..3), random.bool());
                let mode = modes[random.usize(..3)];
                let asked = if direct { mode | OFlags::DIRECT } else { mode };
                let (opened, handle) = openings.open(inode, flags(asked));
                open.push((inode, mode, opened.contains(FopenFlags::FOPEN_DIRECT_IO), handle));
            }
            for inode in 0..3 {
                let of_it = || open.iter().filter(|one| one.0 == inode);
                let read_past = of_it().any(|one| one.2 && one.1 != OFlags::WRONLY);
                let write_through = of_it().any(|one| !one.2 && one.1 != OFlags::RDONLY);
                assert!(!(read_past && write_through), "[OPN-1] {open:?}");
            }
        }
        for (inode, _, _, handle) in open {
            openings.close(inode, handle);
        }
        assert!(openings.by_inode().is_empty());
    }

    #[test]
    fn the_only_user_of_a_file_gets_what_it_requests() {
        let openings = Openings::default();
        for mode in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            for (asked, given) in [(mode, CACHED), (mode | OFlags::DIRECT, DIRECT)] {
                let (opened, handle) = openings.open(7, flags(asked));
                assert_eq!(opened, given, "{asked:?}");
                openings.close(7, handle);
            }
        }
    }
}
