//! Torn pages: crashes that leave pages partially written, with each kind of protection.
//!
//! A crash is derived from a running pool: its directory is copied, and in the copy every page that was written in
//! place and not synced since is torn, sector by sector between its durable and its written state. That is worse than
//! what most disks do, but allowed.

mod atomic;
mod checkpointed;
mod double_write;
mod failures;
mod images;
mod process_crash;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay::{BufferPool, PagedFile, PoolBuilder, ReadaheadStrategy, Tablespace, TornPages};
use forebay_io::Op;
use forebay_io::backend::Transfer;

use crate::disk::{Disk, Seen};
use crate::site::{PAGE, Site};

pub(crate) const SECTOR: usize = 512;

pub(crate) const DOUBLE_WRITE: &str = "forebay.doublewrite";

/// What a crash may tear: pages written in place and not synced since, with their earlier contents.
#[derive(Debug, Default)]
pub(crate) struct Unsynced(Mutex<BTreeMap<(PathBuf, u64), Vec<u8>>>);

impl Unsynced {
    /// Records a transfer that is about to be executed.
    fn note(&self, it: &Transfer) {
        let path = it.file().path().to_owned();
        if path.ends_with(DOUBLE_WRITE) {
            return;
        }
        let mut unsynced = self.0.lock().unwrap();
        match it.op() {
            Op::Write => {
                let pages = it.remaining() / PAGE as u64;
                for position in (0..pages).map(|page| it.position() + page * PAGE as u64) {
                    let before = || page_at(&path, position);
                    unsynced.entry((path.clone(), position)).or_insert_with(before);
                }
            }
            Op::Read => {}
            _ => unsynced.retain(|(of, _), _| *of != path),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The crash: a copy of `from` at `to`, where unsynced pages are torn according to `mix`.
    pub(crate) fn crash(&self, from: &Path, to: &Path, mut mix: impl FnMut() -> u8) {
        copy(from, to);
        for ((path, position), before) in &*self.0.lock().unwrap() {
            let file = to.join(path.strip_prefix(from).unwrap());
            tear(&file, *position, before, mix());
        }
    }
}

fn page_at(path: &Path, position: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    fs::File::open(path).unwrap().read_exact_at(&mut bytes, position).unwrap();
    bytes
}

/// Restores the sectors of `before` whose bit in `mask` is set.
pub(crate) fn tear(path: &Path, position: u64, before: &[u8], mask: u8) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    for (sector, bytes) in before.chunks(SECTOR).enumerate() {
        if mask & 1 << sector != 0 {
            file.write_all_at(bytes, position + (sector * SECTOR) as u64).unwrap();
        }
    }
}

/// Copies a directory of plain files, except the lock file.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "forebay.lock" {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A pool with double write over a disk that the test controls, and what a crash may tear.
pub(crate) fn rigged(site: &Site, frames: u64) -> (BufferPool, Arc<Disk>, Arc<Unsynced>) {
    let unsynced = Arc::new(Unsynced::default());
    let watcher = Arc::clone(&unsynced);
    let (io, disk) = Disk::watched(move |it| watcher.note(it));
    let main = Tablespace::new("main", site.path("main")).io(io);
    let pool = double(Site::bare(frames)).cleaner(false).readahead(ReadaheadStrategy::Os);
    (pool.tablespace(main).build().unwrap(), disk, unsynced)
}

pub(crate) fn double(pool: PoolBuilder) -> PoolBuilder {
    pool.torn_pages(TornPages::DoubleWrite)
}

/// Opens a pool over the files that a crash left.
pub(crate) fn reopen(directory: &Path) -> BufferPool {
    double(Site::bare(64)).directory(directory).build().unwrap()
}

/// The pool's note about repaired pages.
pub(crate) fn repaired(pool: &BufferPool) -> Option<String> {
    pool.notes().into_iter().find(|note| note.contains("repaired by double write"))
}

/// The file and byte offset of a page.
pub(crate) fn position(file: &PagedFile, block: u32) -> (PathBuf, u64) {
    (file.path().to_owned(), u64::from(block) * PAGE as u64)
}

/// Checks that no page was written in place before its copy and a sync of the copy.
#[track_caller]
pub(crate) fn assert_copies_come_first(seen: &[Seen]) {
    let (mut copied, mut durable) = (0, 0);
    for seen in seen {
        let pages = seen.len / PAGE as u64;
        match (seen.op, seen.path.ends_with(DOUBLE_WRITE)) {
            // The header of the file.
            (Op::Write, true) if seen.position == 0 => {}
            // One of the pages is the group's header.
            (Op::Write, true) => copied += pages - 1,
            (Op::SyncData, true) => durable = copied,
            (Op::Write, false) => {
                assert!(durable >= pages, "[DBW-1]");
                (durable, copied) = (durable - pages, copied - pages);
            }
            _ => {}
        }
    }
    assert_eq!(copied, 0);
}
