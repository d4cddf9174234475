//! quick_cache over `pread`: pages as shared bytes in a concurrent cache of values, as Rust engines mostly keep them.
//!
//! A miss allocates its page, and other threads that want the same page wait for that one read (the cache's
//! placeholders see to it). A hit clones an `Arc` and folds the page without any lock. Reads are buffered, advised
//! RANDOM, as the LRUs' are, and the file is theirs; there is no checksum. It is no buffer pool: a page cannot be
//! changed in it, nor pinned but by its `Arc`, which the memory does not count.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::Context;
use quick_cache::sync::Cache;

use super::{About, Peer, Site, lru};
use crate::content::Content;

pub(super) const NAME: &str = "quick-cache";

struct QuickCache {
    pages: Cache<u32, Arc<[u8]>>,
    file: File,
    page_bytes: usize,
    content: Content,
}

impl Peer for QuickCache {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let page = self.pages.get_or_insert_with(&block, || {
            let mut page: Arc<[u8]> = std::iter::repeat_n(0, self.page_bytes).collect();
            let bytes = Arc::get_mut(&mut page).context("a new page is nobody else's")?;
            self.file
                .read_exact_at(bytes, u64::from(block) * self.page_bytes as u64)
                .with_context(|| format!("cannot read block {block}"))?;
            anyhow::Ok(page)
        })?;
        Ok(self.content.fold(&page))
    }
}

pub(super) fn open(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let about = About {
        peer: NAME,
        version: "quick_cache 0.6",
        cache: "buffered",
        miss: "nothing is held; others that want the same page wait for its read",
        checksum: "none",
        frames: site.settings.frames,
    };
    let peer = QuickCache {
        pages: Cache::new(site.settings.frames as usize),
        file: lru::open_file(site)?,
        page_bytes: site.settings.page_bytes,
        content: site.content,
    };
    Ok((Box::new(peer), about))
}
