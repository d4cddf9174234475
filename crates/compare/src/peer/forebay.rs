//! Forebay, as its own documentation opens it, with a checksum in every page.
//!
//! Two of them, on the same file: `forebay-buffered` reads through the kernel's page cache, which is
//! the default of a tablespace, and `forebay-direct` past it, as page-db does. Both check a CRC-32C
//! over the page and its block number on every miss, as page-db does and the LRUs do not; memory
//! is the frames, their bookkeeping comes on top, as it does for everyone. A read is
//! `PagedFile::read`: pinned and latched shared while its payload is folded.

use forebay::{BufferPool, Checksum, FileOptions, PagedFile, Tablespace, TornPages, ZeroPages};
use forebay_io::CacheMode;

use super::{About, Peer, Site};
use crate::content::Content;
use forebay_measure::interrupt;

pub(super) const BUFFERED: &str = "forebay-buffered";
pub(super) const DIRECT: &str = "forebay-direct";

pub(super) const FILE: &str = "pages";

/// Bytes of the checksum, which are the last of the page.
const CHECKSUM_BYTES: usize = 4;

struct Forebay {
    name: &'static str,
    file: PagedFile,
    content: Content,
}

impl Peer for Forebay {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let page = self.file.read(block)?;
        Ok(self.content.fold(&page))
    }
}

pub(super) fn open_buffered(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let (_, file) = open_file(site, CacheMode::Buffered, &FileOptions::new())?;
    Ok(peer(site, BUFFERED, file, "buffered"))
}

pub(super) fn open_direct(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let (file, cache) = match open_file(site, CacheMode::Direct, &FileOptions::new()) {
        Err(forebay::Error::Io(forebay_io::Error::DirectRefused { .. })) => {
            let (_, file) = open_file(site, CacheMode::Buffered, &FileOptions::new())?;
            (file, "buffered (this filesystem refuses direct)")
        }
        direct => (direct?.1, "direct"),
    };
    Ok(peer(site, DIRECT, file, cache))
}

fn peer(
    site: &Site<'_>,
    name: &'static str,
    file: PagedFile,
    cache: &'static str,
) -> (Box<dyn Peer>, About) {
    let about = About {
        peer: name,
        version: env!("CARGO_PKG_VERSION"),
        cache,
        miss: "nothing is held but the page's own frame; others wait for the same read",
        checksum: "CRC-32C, and the block number",
        frames: site.settings.frames,
    };
    (Box::new(Forebay { name, file, content: site.content }), about)
}

pub(super) fn write(site: &Site<'_>, progress: &mut dyn FnMut(u32)) -> anyhow::Result<()> {
    let (pool, file) = open_file(site, CacheMode::Buffered, &FileOptions::new().create_new(true))?;
    file.extend(site.settings.blocks)?;
    for block in 0..site.settings.blocks {
        interrupt::check()?;
        let mut page = file.init(block)?;
        site.content.write(block, &mut page);
        drop(page);
        progress(block + 1);
    }
    pool.close()?;
    Ok(())
}

fn open_file(
    site: &Site<'_>,
    cache: CacheMode,
    options: &FileOptions,
) -> Result<(BufferPool, PagedFile), forebay::Error> {
    let page_bytes = site.settings.page_bytes;
    let pool = BufferPool::builder()
        .memory(site.settings.memory_bytes)
        .page_size(page_bytes)
        .tablespace(Tablespace::new("main", site.directory).cache(cache))
        .checksum(Checksum::Crc32c { offset: page_bytes - CHECKSUM_BYTES })
        .torn_pages(TornPages::Unprotected) // as the peers
        .build()?;
    let options = options.clone().zero_pages(ZeroPages::Refuse);
    let file = pool.open_file(FILE, &options)?;
    Ok((pool, file))
}
