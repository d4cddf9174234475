//! page-db 1.0.0, as its own documentation opens it.
//!
//! What its source says, file and line of `page-db-1.0.0/src`:
//!
//! - **Opening.** `BufferPool::open(path, page_size, frames)` (`pool.rs:127`) opens a `PageFile` and
//!   allocates all frames (`pool.rs:140`), each page aligned to its size (`page.rs:217`). The page
//!   size is a power of two from 4 KiB to 1 MiB (`page.rs:29-32,148`), 4 KiB unless asked
//!   otherwise (`page.rs:39`). Past that, nothing can be tuned.
//! - **Direct.** Files are opened with `O_DIRECT` unless `direct_io(false)` is set
//!   (`file.rs:37-45`, `sys.rs:103-110` of the Linux part); there is no fallback, a filesystem
//!   without it is an error. Writing the file here is buffered, which makes the same bytes sooner.
//! - **One mutex.** `BufferPool` is `Send + Sync`. `fetch` takes the pool's one mutex (`pool.rs:192`)
//!   for a hit as for a miss, and on a miss keeps it while the victim is written (`pool.rs:339`),
//!   while the page is read (`pool.rs:205`) and while its checksum is computed (`file.rs:216`).
//!   So one miss is under way at a time, and hits wait behind it. Its header says as much
//!   (`pool.rs:18-21`). `flush_all` keeps it for every dirty page (`pool.rs:265-271`), unsorted:
//!   in the order of a `HashMap`.
//! - **Hits.** A hit then clones an `Arc`, counts a pin and sets a bit (`pool.rs:194-199`); reading the
//!   page takes its `RwLock` (`pool.rs:398`). Dropping the guard counts both down, without the mutex.
//! - **Eviction** is the clock (`pool.rs:346-366`), though its README says LRU; with every frame
//!   pinned, `fetch` fails at once (`pool.rs:330-336`).
//! - **Checksum.** CRC-32C over the page except for its own four bytes (`page.rs:408-413`), by tables of
//!   eight bytes a step (`checksum.rs:61-80`), not the processor's instruction; checked with the
//!   page's id on every read from the file (`page.rs:333-373`), never on a hit.
//!
//! Not measured here; both seen while reading and then made to happen with a store that is slow:
//!
//! - **A change made while its page is being written is lost.** `write()` marks the page dirty before it
//!   has the page's lock (`pool.rs:410-415`), and a flush under way clears the mark when it is done
//!   (`pool.rs:317-319`). The change then stands in a clean page, which no checkpoint writes.
//! - **Two threads can wait for each other.** One holds `read()` of a dirty page and calls `fetch`; the
//!   other, in `flush_all`, holds the mutex and waits for that page (`pool.rs:317`).

use page_db::{BufferPool, PageError, PageFile, PageFileOptions, PageId, PageSize};

use super::{About, Peer, Site};
use crate::content::Content;
use forebay_measure::interrupt;

pub(super) const NAME: &str = "page-db";

const FILE: &str = "pages";

struct PageDb {
    pool: BufferPool<PageFile>,
    content: Content,
}

impl Peer for PageDb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, block: u32) -> anyhow::Result<u64> {
        let pinned = self.pool.fetch(PageId::new(u64::from(block)))?;
        let page = pinned.read();
        Ok(self.content.fold(page.payload()))
    }
}

pub(super) fn open(site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
    let (file, cache) = match open_file(site, true) {
        Err(PageError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidInput => {
            (open_file(site, false)?, "buffered (this filesystem refuses direct)")
        }
        direct => (direct?, "direct"),
    };
    let pool = BufferPool::new(file, site.settings.frames as usize);
    let about = About {
        peer: NAME,
        version: "1.0.0",
        cache,
        miss: "the pool's one mutex is held",
        checksum: "CRC-32C in software, and the block number",
        frames: site.settings.frames,
    };
    Ok((Box::new(PageDb { pool, content: site.content }), about))
}

pub(super) fn write(site: &Site<'_>, progress: &mut dyn FnMut(u32)) -> anyhow::Result<()> {
    let file = open_file(site, false)?;
    let mut page = file.allocate_page();
    for block in 0..site.settings.blocks {
        interrupt::check()?;
        site.content.write(block, page.payload_mut());
        file.write_page(PageId::new(u64::from(block)), &mut page)?;
        progress(block + 1);
    }
    Ok(file.sync()?)
}

fn open_file(site: &Site<'_>, direct: bool) -> Result<PageFile, PageError> {
    let options = PageFileOptions::new().page_size(PageSize::new(site.settings.page_bytes)?);
    options.direct_io(direct).open(site.directory.join(FILE))
}
