//! A plain `Mutex<LruCache>` over `pread`: the cache that one writes in an afternoon.
//!
//! There are two variants. `lru-locked` keeps the mutex while it reads a missing page, as the plain one does.
//! `lru-unlocked` releases it meanwhile: misses overlap, at the price that two threads which miss
//! the same page read it twice, that the slower one replaces what the faster one put there, and that
//! writes through it would lose changes. It is no buffer pool (no pins, no
//! dirty pages) and shows how far the locking alone goes.
//!
//! Both read buffered, so they use the kernel's page cache in addition to their memory; the file is
//! advised RANDOM, so that the kernel reads only the requested pages. Neither has a checksum.
//! Both reuse the buffer of the page they evict; a hit folds the page under the lock.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use lru::LruCache;

use super::{About, Peer, Site};
use crate::content::Content;
use forebay_measure::interrupt;

pub(super) const LOCKED: &str = "lru-locked";
pub(super) const UNLOCKED: &str = "lru-unlocked";

const FILE: &str = "pages";

/// The common part of both.
struct Lru {
    pages: Mutex<LruCache<u32, Box<[u8]>>>,
    file: File,
    page_bytes: usize,
    content: Content,
}

impl Lru {
    fn open(site: &Site<'_>) -> anyhow::Result<Lru> {
        let frames = NonZeroUsize::new(site.settings.frames as usize).context("no memory")?;
        Ok(Lru {
            pages: Mutex::new(LruCache::new(frames)),
            file: open_file(site)?,
            page_bytes: site.settings.page_bytes,
            content: site.content,
        })
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<u32, Box<[u8]>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_page(&self, block: u32, page: &mut [u8]) -> anyhow::Result<()> {
        self.file
            .read_exact_at(page, u64::from(block) * self.page_bytes as u64)
            .with_context(|| format!("cannot read block {block}"))
    }

    fn fresh(&self) -> Box<[u8]> {
        vec![0; self.page_bytes].into_boxed_slice()
    }
}

/// The plain file, advised RANDOM.
pub(super) fn open_file(site: &Site<'_>) -> anyhow::Result<File> {
    let file = File::open(site.directory.join(FILE)).context("cannot open the plain file")?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)
        .context("cannot advise the plain file")?;
    Ok(file)
}

/// The buffer of the page to be evicted, once the cache is full.
fn evicted(pages: &mut LruCache<u32, Box<[u8]>>) -> Option<Box<[u8]>> {
    if pages.len() < pages.cap().get() {
        return None;
    }
    pages.pop_lru().map(|(_, page)| page)
}

struct Locked(Lru);

impl Peer for Locked {
    fn name(&self) -> &'static str {
        LOCKED
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let mut pages = self.0.lock();
        if let Some(page) = pages.get(&block) {
            return Ok(self.0.content.fold(page));
        }
        let mut page = evicted(&mut pages).unwrap_or_else(|| self.0.fresh());
        self.0.read_page(block, &mut page)?;
        let fold = self.0.content.fold(&page);
        pages.put(block, page);
        Ok(fold)
    }
}

struct Unlocked(Lru);

impl Peer for Unlocked {
    fn name(&self) -> &'static str {
        UNLOCKED
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let mut pages = self.0.lock();
        if let Some(page) = pages.get(&block) {
            return Ok(self.0.content.fold(page));
        }
        let reused = evicted(&mut pages);
        drop(pages);
        let mut page = reused.unwrap_or_else(|| self.0.fresh());
        self.0.read_page(block, &mut page)?;
        let fold = self.0.content.fold(&page);
        self.0.lock().put(block, page);
        Ok(fold)
    }
}

pub(super) fn open_locked(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let about = about(site, LOCKED, "the mutex is held");
    Ok((Box::new(Locked(Lru::open(site)?)), about))
}

pub(super) fn open_unlocked(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let about = about(site, UNLOCKED, "nothing is held; two threads may read the same page");
    Ok((Box::new(Unlocked(Lru::open(site)?)), about))
}

fn about(site: &Site<'_>, peer: &'static str, miss: &'static str) -> About {
    About {
        peer,
        version: "lru 0.19",
        cache: "buffered",
        miss,
        checksum: "none",
        frames: site.settings.frames,
    }
}

pub(super) fn write(site: &Site<'_>, progress: &mut dyn FnMut(u32)) -> anyhow::Result<()> {
    let path = site.directory.join(FILE);
    let cannot = || format!("cannot write {}", path.display());
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).with_context(cannot)?);
    let mut page = vec![0; site.settings.page_bytes];
    for block in 0..site.settings.blocks {
        interrupt::check()?;
        site.content.write(block, &mut page);
        file.write_all(&page).with_context(cannot)?;
        progress(block + 1);
    }
    file.flush().with_context(cannot)?;
    file.get_ref().sync_all().with_context(cannot)
}
