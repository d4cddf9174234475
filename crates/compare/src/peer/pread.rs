//! Bare `pread`: no cache at all, the least that a missing page can cost.
//!
//! There are two variants, on Forebay's own file: through the kernel's page cache and past it. Each thread
//! reads into a private buffer, folds the payload and discards it. No checksum is
//! verified. In the resident case `pread-buffered` shows what the kernel's page cache costs as a
//! buffer pool, and `pread-direct` has no memory for pages.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use forebay_io::{Arena, CacheMode, File, Lease, OpenOptions};

use super::{About, Peer, Site, forebay};
use crate::content::Content;

pub(super) const BUFFERED: &str = "pread-buffered";
pub(super) const DIRECT: &str = "pread-direct";

/// The maximum number of threads on the command line, and those that fill caches.
const THREADS_MAX: usize = 2048;

struct Pread {
    name: &'static str,
    file: File,
    page_bytes: usize,
    arena: Arc<Arena>,
    /// Buffers that no thread is reading into.
    spare: Mutex<Vec<Lease>>,
    content: Content,
}

impl Peer for Pread {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut page = spare.or_else(|| self.arena.take()).context("more threads than buffers")?;
        let offset = u64::from(block) * self.page_bytes as u64;
        let count = rustix::io::pread(self.file.descriptor(), &mut *page, offset)
            .with_context(|| format!("cannot read block {block}"))?;
        if count != self.page_bytes {
            bail!("block {block}: {count} of {} bytes", self.page_bytes);
        }
        let fold = self.content.fold(&page);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(page);
        Ok(fold)
    }
}

pub(super) fn open_buffered(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    open(site, BUFFERED, CacheMode::Buffered)
}

pub(super) fn open_direct(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    open(site, DIRECT, CacheMode::Direct)
}

fn open(
    site: &Site<'_>,
    name: &'static str,
    cache: CacheMode,
) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let options = OpenOptions::new().read_only(true).cache(cache).buffered_if_refused(true);
    let file = File::open(&site.directory.join(forebay::FILE), &options)?;
    let cache = match (cache, file.fallback()) {
        (CacheMode::Direct, Some(_)) => "buffered (this filesystem refuses direct)",
        (CacheMode::Direct, None) => "direct",
        (CacheMode::Buffered, _) => "buffered",
    };
    let about = About {
        peer: name,
        version: "-",
        cache,
        miss: "nothing is held",
        checksum: "none",
        frames: 0,
    };
    let page_bytes = site.settings.page_bytes;
    let arena = Arena::new(THREADS_MAX, page_bytes)?;
    let spare = Mutex::default();
    Ok((Box::new(Pread { name, file, page_bytes, arena, spare, content: site.content }), about))
}
