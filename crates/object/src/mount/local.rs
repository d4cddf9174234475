//! Local files: which of their pages are present, and which of these are dirty.
//!
//! A page is *present* when the local file has its bytes, and *dirty* when no object has them. A page that is not
//! present is in an object, or was never written and is zeros in both places.
//!
//! Invariants:  [LOC-1] a dirty page is present: only clean ones are dropped
//!              [LOC-2] no byte of a page is written while the page is copied for an object, so that none is torn there
//!              [LOC-3] a fetched page becomes present only if no page was dropped since the fetch began: otherwise it
//!              may have been present, changed and dropped meanwhile, or been cut off
//!              [LOC-4] a page that is written or cut in part is present meanwhile
//!              [LOC-5] a page that a failed write has left half done is put into no object: it is dropped if an object
//!              has it; otherwise it is put only after it has been written again
//! Concurrency: a file's `io` is shared by reads and writes of its bytes, and exclusive for copying and dropping pages
//!              and for changing its size; its `pages` is held for short look-ups only.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::{FileId, PageId};

/// Device and inode.
pub(super) type Number = (u64, u64);

pub(super) struct Locals {
    pub(super) page_bytes: u64,
    pages_max: u64,
    present: AtomicU64,
    dirty: AtomicU64,
    /// Pages that were copied for objects that are not known to be in the store.
    taken: AtomicU64,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_number: HashMap<Number, Arc<LocalFile>>,
    by_id: BTreeMap<FileId, Arc<LocalFile>>,
}

pub(super) struct LocalFile {
    pub(super) id: FileId,
    /// The mount's own descriptor.
    file: File,
    pub(super) io: RwLock<()>,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    present: Bits,
    dirty: Bits,
    /// Dirty pages that a failed write has left half done.
    broken: Bits,
    bytes: u64,
    removed: bool,
    /// How often pages were dropped.
    drops: u64,
}

impl Pages {
    /// For a page that would have to be fetched: the current number of drops.
    fn lacks(&self, block: u64, page_bytes: u64) -> Option<u64> {
        let is_there = !self.removed && block * page_bytes < self.bytes;
        (is_there && !self.present.has(block)).then_some(self.drops)
    }
}

/// A set of blocks.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, block: u64) -> bool {
        self.0.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Returns whether it is new.
    fn insert(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Returns whether it was there.
    fn remove(&mut self, block: u64) -> bool {
        let was = self.has(block);
        if was {
            self.0[(block / 64) as usize] &= !(1 << (block % 64));
        }
        was
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.0).flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}

impl Locals {
    pub(super) fn new(page_bytes: u64, pages_max: u64) -> Locals {
        Locals {
            page_bytes,
            pages_max,
            present: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            files: Mutex::default(),
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file of the tablespace, with no page present.
    pub(super) fn add(&self, id: FileId, file: File, bytes: u64) -> io::Result<()> {
        let facts = file.metadata()?;
        let pages = Mutex::new(Pages { bytes, ..Pages::default() });
        let local = Arc::new(LocalFile { id, file, io: RwLock::default(), pages });
        let mut files = self.files();
        // A number that is used again belonged to a removed file.
        files.by_number.insert((facts.dev(), facts.ino()), Arc::clone(&local));
        files.by_id.insert(id, local);
        Ok(())
    }

    pub(super) fn by_number(&self, number: Number) -> Option<Arc<LocalFile>> {
        self.files().by_number.get(&number).cloned()
    }

    pub(super) fn remove(&self, id: FileId) {
        let removed = {
            let mut files = self.files();
            let removed = files.by_id.remove(&id);
            // A caller that has the file open still reads and writes it through the system.
            files.by_number.retain(|_, local| local.id != id);
            removed
        };
        if let Some(local) = removed {
            let mut pages = local.pages();
            pages.removed = true;
            self.forget(&mut pages, 0);
        }
    }

    fn forget(&self, pages: &mut Pages, from: u64) {
        let Pages { present, dirty, broken, drops, .. } = pages;
        *drops += 1;
        let removed: Vec<u64> = broken.iter().filter(|it| *it >= from).collect();
        removed.iter().for_each(|block| _ = broken.remove(*block));
        for (bits, count) in [(present, &self.present), (dirty, &self.dirty)] {
            let removed: Vec<u64> = bits.iter().filter(|it| *it >= from).collect();
            for block in &removed {
                bits.remove(*block);
            }
            count.fetch_sub(removed.len() as u64, Ordering::Relaxed);
        }
    }

    /// The blocks that contain bytes of `range`.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.page_bytes..range.end.div_ceil(self.page_bytes)
    }

    /// Records that bytes `range` of a file were written locally; its size is at least `range.end`. Returns the size if
    /// it has changed.
    pub(super) fn written(&self, local: &LocalFile, range: &Range<u64>) -> Option<u64> {
        let mut pages = local.pages();
        if pages.removed || range.is_empty() {
            return None;
        }
        for block in self.blocks(range) {
            self.present.fetch_add(u64::from(pages.present.insert(block)), Ordering::Relaxed);
            self.dirty.fetch_add(u64::from(pages.dirty.insert(block)), Ordering::Relaxed);
            let (start, end) = (block * self.page_bytes, (block + 1) * self.page_bytes);
            if range.start <= start && range.end >= end.min(pages.bytes) {
                pages.broken.remove(block);
            }
        }
        let grown = range.end > pages.bytes;
        pages.bytes = pages.bytes.max(range.end);
        grown.then_some(range.end)
    }

    /// Marks a page as broken: a write has failed in the middle of it, so its contents are unknown ([LOC-5]).
    pub(super) fn broke(&self, local: &LocalFile, block: u64) {
        let mut pages = local.pages();
        if pages.removed {
            return;
        }
        // For copied pages it is unknown whether an object has them.
        let is_clean = !pages.dirty.has(block) && self.taken.load(Ordering::Relaxed) == 0;
        if is_clean && self.punch(local, block) {
            self.present.fetch_sub(u64::from(pages.present.remove(block)), Ordering::Relaxed);
            pages.drops += 1;
            return;
        }
        self.present.fetch_add(u64::from(pages.present.insert(block)), Ordering::Relaxed);
        self.dirty.fetch_add(u64::from(pages.dirty.insert(block)), Ordering::Relaxed);
        pages.broken.insert(block);
    }

    /// Whether a page must be fetched; if so, the number of drops to pass to `bring_in`.
    pub(super) fn lacks(&self, local: &LocalFile, block: u64) -> Option<u64> {
        local.pages().lacks(block, self.page_bytes)
    }

    /// Makes a fetched page present, if no page was dropped since `lacks` returned `drops` ([LOC-3]).
    pub(super) fn bring_in(
        &self,
        local: &LocalFile,
        block: u64,
        bytes: &[u8],
        drops: u64,
    ) -> io::Result<()> {
        let _alone = local.io.write().unwrap_or_else(PoisonError::into_inner);
        let mut pages = local.pages();
        if pages.lacks(block, self.page_bytes) != Some(drops) {
            return Ok(());
        }
        let start = block * self.page_bytes;
        let len = (pages.bytes - start).min(self.page_bytes) as usize;
        local.file.write_all_at(&bytes[..len], start)?;
        pages.present.insert(block);
        self.present.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Records a change of the size, under the exclusive `io`.
    pub(super) fn resized(&self, local: &LocalFile, bytes: u64) {
        let mut pages = local.pages();
        pages.bytes = bytes;
        self.forget(&mut pages, bytes.div_ceil(self.page_bytes));
    }

    /// All dirty pages, by file and block, except for the broken ones; and one of the broken ones.
    pub(super) fn dirty(&self) -> (Vec<PageId>, Option<PageId>) {
        let (mut dirty, mut broken) = (Vec::new(), None);
        for (id, local) in &self.files().by_id {
            let pages = local.pages();
            for block in pages.dirty.iter() {
                let page = PageId { file: *id, block: block as u32 };
                match pages.broken.has(block) {
                    true => broken = Some(page),
                    false => dirty.push(page),
                }
            }
        }
        (dirty, broken)
    }

    /// Copies the bytes of a page for an object; the page is clean then, unless it is written again ([LOC-2]).
    pub(super) fn take(&self, page: PageId, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        // A page that was cut or removed meanwhile is cut or removed in the store as well, whatever the object has.
        let Some(local) = self.files().by_id.get(&page.file).cloned() else {
            return Ok(());
        };
        let _alone = local.io.write().unwrap_or_else(PoisonError::into_inner);
        let block = u64::from(page.block);
        let bytes = {
            let mut pages = local.pages();
            if pages.broken.has(block) {
                return Err(broken(page)); // [LOC-5]
            }
            let was = pages.dirty.remove(block);
            assert!(!was || pages.present.has(block), "[LOC-1] {page} is dirty and not here");
            self.dirty.fetch_sub(u64::from(was), Ordering::Relaxed);
            self.taken.fetch_add(u64::from(was), Ordering::Relaxed);
            pages.bytes
        };
        let start = block * self.page_bytes;
        let len = bytes.saturating_sub(start).min(self.page_bytes) as usize;
        local.file.read_exact_at(&mut into[..len], start).map_err(|error| Error::Local {
            path: format!("the local copy of {page}"),
            what: error.to_string(),
        })
    }

    /// Records that the copied pages are in objects, or dirty again.
    pub(super) fn settled(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    pub(super) fn mark_dirty(&self, dirty: &[PageId]) {
        for page in dirty {
            let Some(local) = self.files().by_id.get(&page.file).cloned() else {
                continue;
            };
            let mut pages = local.pages();
            if pages.present.has(page.block.into()) {
                let new = pages.dirty.insert(page.block.into());
                self.dirty.fetch_add(u64::from(new), Ordering::Relaxed);
            }
        }
    }

    /// Whether the pages that are not certain to be in an object have reached their limit.
    pub(super) fn is_full(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        self.dirty.load(Ordering::Relaxed) + taken > self.pages_max / 2
    }

    /// Drops clean pages until half of the limit is left: the other half may become dirty before the next call.
    pub(super) fn shrink(&self) {
        if self.present.load(Ordering::Relaxed) <= self.pages_max / 2 {
            return;
        }
        let files: Vec<_> = self.files().by_id.values().cloned().collect();
        for local in files {
            let clean: Vec<u64> = {
                let pages = local.pages();
                pages.present.iter().filter(|block| !pages.dirty.has(*block)).collect()
            };
            for block in clean {
                if self.present.load(Ordering::Relaxed) <= self.pages_max / 2 {
                    return;
                }
                let _alone = local.io.write().unwrap_or_else(PoisonError::into_inner);
                let mut pages = local.pages();
                // If no hole can be punched the page stays, and remains valid.
                if !pages.dirty.has(block) && pages.present.has(block) && self.punch(&local, block)
                {
                    pages.present.remove(block);
                    pages.drops += 1;
                    self.present.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, local: &LocalFile, block: u64) -> bool {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&local.file, flags, block * self.page_bytes, self.page_bytes).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn punch(&self, _: &LocalFile, _: u64) -> bool {
        false
    }
}

/// The error for a page that cannot be staged ([LOC-5]).
pub(super) fn broken(page: PageId) -> Error {
    let what = "a write has failed in the middle of it; it has to be written again".to_owned();
    Error::Local { path: format!("the local copy of {page}"), what }
}

impl LocalFile {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, block: u64) -> bool {
        self.pages().present.has(block)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pages().bytes
    }

    pub(super) fn is_removed(&self) -> bool {
        self.pages().removed
    }

    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }
}
