//! Caches of values over `pread`: pages as shared bytes in a concurrent cache, as most Rust engines keep them.
//!
//! A miss allocates its page, and other threads that need the same page wait for that one read (the caches ensure
//! this). A hit clones an `Arc` and folds the page without any lock. Reads are buffered, advised RANDOM, like those of
//! the LRUs, and use the same file; there is no checksum. They are no buffer pools: a page in them cannot be changed,
//! and only its `Arc` pins it, which the memory limit does not count.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::Context;

use super::{About, Peer, Site, lru};
use crate::content::Content;

pub(super) const QUICK_CACHE: &str = "quick-cache";
pub(super) const MOKA: &str = "moka";

type Page = Arc<[u8]>;

/// The interface of such a cache.
trait Cache: Send + Sync + 'static {
    const NAME: &'static str;
    const VERSION: &'static str;

    fn new(pages: u32) -> Self;

    /// The page `block`; if it is missing, one of the threads that need it calls `read`.
    fn get(&self, block: u32, read: impl FnOnce() -> anyhow::Result<Page>) -> anyhow::Result<Page>;
}

impl Cache for quick_cache::sync::Cache<u32, Page> {
    const NAME: &'static str = QUICK_CACHE;
    const VERSION: &'static str = "quick_cache 0.6";

    fn new(pages: u32) -> Self {
        quick_cache::sync::Cache::new(pages as usize)
    }

    fn get(&self, block: u32, read: impl FnOnce() -> anyhow::Result<Page>) -> anyhow::Result<Page> {
        self.get_or_insert_with(&block, read)
    }
}

impl Cache for moka::sync::Cache<u32, Page> {
    const NAME: &'static str = MOKA;
    const VERSION: &'static str = "moka 0.12";

    fn new(pages: u32) -> Self {
        moka::sync::Cache::new(pages.into())
    }

    fn get(&self, block: u32, read: impl FnOnce() -> anyhow::Result<Page>) -> anyhow::Result<Page> {
        self.try_get_with(block, read).map_err(|error| anyhow::anyhow!("{error:#}"))
    }
}

struct Values<C> {
    pages: C,
    file: File,
    page_bytes: usize,
    content: Content,
}

impl<C: Cache> Peer for Values<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let page = self.pages.get(block, || {
            let mut page: Page = std::iter::repeat_n(0, self.page_bytes).collect();
            let bytes = Arc::get_mut(&mut page).context("a new page belongs to this thread")?;
            self.file
                .read_exact_at(bytes, u64::from(block) * self.page_bytes as u64)
                .with_context(|| format!("cannot read block {block}"))?;
            Ok(page)
        })?;
        Ok(self.content.fold(&page))
    }
}

pub(super) fn open_quick_cache(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    open::<quick_cache::sync::Cache<u32, Page>>(site)
}

pub(super) fn open_moka(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    open::<moka::sync::Cache<u32, Page>>(site)
}

fn open<C: Cache>(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let about = About {
        peer: C::NAME,
        version: C::VERSION,
        cache: "buffered",
        miss: "nothing is held; others that want the same page wait for its read",
        checksum: "none",
        frames: site.settings.frames,
    };
    let peer = Values {
        pages: C::new(site.settings.frames),
        file: lru::open_file(site)?,
        page_bytes: site.settings.page_bytes,
        content: site.content,
    };
    Ok((Box::new(peer), about))
}
