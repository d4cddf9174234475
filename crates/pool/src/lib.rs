//! A buffer manager for storage engines: a page cache that several threads share.
//!
//! A [`BufferPool`] keeps pages of files in a fixed amount of memory. It reads a page when a thread requests it, lets
//! threads latch it to read or to change it, and writes changed pages back when their frames are needed or the engine
//! requests it, never before the log that describes the changes. Pages are 4 to 64 KiB of plain bytes. The contents of
//! pages, the log's location and transactions are the engine's business, not the pool's.
//!
//! It is for authors of storage engines (a B-tree, a heap, a hash file) who want neither `mmap`, where the kernel
//! decides what is written when, nor to write another page cache. A program that only wants to store keys and values
//! needs an engine instead; `examples/kv.rs` is a very small one, and `examples/accounts.rs` one with a log, which recovers
//! from crashes. The crate `forebay-btree`, next to this one, is an index to learn from.
//!
//! # A tour
//!
//! ## A pool and a file
//!
//! A pool is built once, with the directories in which its files live (one [`Tablespace`] each). It
//! locks them: a second pool that writes there, in this process or another, is refused ([`Error::InUse`]). A
//! [`PagedFile`] is an array of blocks, each holding one page. It grows by [`PagedFile::extend`], and never
//! by a write past its end.
//!
//! ```
//! use forebay::{BufferPool, Checksum, FileOptions, Lsn, TornPages};
//!
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let directory = directory.path();
//! let pool = BufferPool::builder()
//!     .memory("16 MiB")
//!     .page_size("8 KiB")
//!     .directory(directory)
//!     .checksum(Checksum::Crc32c { offset: 0 }) // 4 bytes of each page are the pool's
//!     .torn_pages(TornPages::DoubleWrite) // what a power cut leaves half written is repaired
//!     .build()?;
//! let accounts = pool.open_file("accounts", &FileOptions::new().create(true))?;
//! assert_eq!(accounts.extend(100)?, 0..100); // blocks of zeroes
//!
//! let mut page = accounts.write(7)?; // read in if need be, pinned, latched exclusively
//! page[8..16].copy_from_slice(&500_u64.to_le_bytes());
//! page.mark_dirty(Lsn::NONE); // no log here: see below
//! drop(page);
//!
//! let page = accounts.read(7)?; // latched shared
//! assert_eq!(page[8..16], 500_u64.to_le_bytes());
//! drop(page);
//!
//! let page = accounts.append()?; // one block more, all zero, latched exclusively
//! assert_eq!(page.block(), 100);
//! drop(page);
//! pool.close()?; // writes what is dirty, syncs, and says so if that fails
//! # Ok(())
//! # }
//! ```
//!
//! Two choices have no default, and a pool is not built without them ([`Error::Unchosen`]): whether pages carry a
//! [`Checksum`], and what protects them from [being torn](TornPages). [`Checksum::Off`] and [`TornPages::Unprotected`]
//! are for data that can be recreated.
//!
//! [`PagedFile::init`] is [`PagedFile::write`] for a page whose old contents do not matter: it returns a page of zeroes
//! and reads nothing.
//!
//! ## Writing with a log
//!
//! An engine that must survive a crash describes each change in a log first. The pool enforces the order: before it
//! writes a page it calls the [`Wal`] to make the log durable up to the newest [`Lsn`] with which the page was marked
//! dirty. The pool keeps that number in memory only. An engine whose recovery needs to know which changes a page
//! already contains also stores the LSN in the page.
//!
//! ```
//! use std::error::Error;
//! use std::sync::{Arc, Mutex};
//!
//! use forebay::{BufferPool, Checksum, FileOptions, Lsn, TornPages, Wal};
//!
//! /// Records in memory, and how many of them are durable. An LSN counts records.
//! #[derive(Debug, Default)]
//! struct Log(Mutex<(Vec<String>, u64)>);
//!
//! impl Log {
//!     fn append(&self, record: &str) -> Lsn {
//!         let mut log = self.0.lock().expect("no thread panicked");
//!         log.0.push(record.to_owned());
//!         Lsn(log.0.len() as u64)
//!     }
//! }
//!
//! impl Wal for Log {
//!     fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
//!         let mut log = self.0.lock().map_err(|_| "the log is poisoned")?;
//!         log.1 = log.1.max(lsn.0); // a real log writes its records here and syncs its file
//!         Ok(())
//!     }
//!
//!     fn position(&self) -> Lsn {
//!         Lsn(self.0.lock().expect("no thread panicked").0.len() as u64)
//!     }
//!
//!     fn flushed(&self) -> Lsn {
//!         self.0.lock().map_or(Lsn::NONE, |log| Lsn(log.1))
//!     }
//! }
//!
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let directory = directory.path();
//! let log = Arc::new(Log::default());
//! let pool = BufferPool::builder()
//!     .frames(64)
//!     .directory(directory)
//!     .checksum(Checksum::Crc32c { offset: 8 })
//!     .torn_pages(TornPages::DoubleWrite)
//!     .wal(Arc::<Log>::clone(&log))
//!     .build()?;
//! let file = pool.open_file("accounts", &FileOptions::new().create(true))?;
//! file.extend(1)?;
//!
//! let mut page = file.write(0)?; // first the latch: records and changes come in one order
//! let lsn = log.append("account 3 has 500");
//! page[24..32].copy_from_slice(&500_u64.to_le_bytes());
//! page[0..8].copy_from_slice(&lsn.0.to_le_bytes()); // for the engine's own recovery
//! page.mark_dirty(lsn); // after the last change, before the guard goes
//! drop(page);
//!
//! assert_eq!(log.flushed(), Lsn::NONE);
//! file.flush_file()?;
//! assert_eq!(log.flushed(), lsn);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A page that was changed but not marked is still dirty when its guard is dropped, and is not written before the log
//! is durable up to its end at that moment ([`Wal::position`]). In a pool with a log this is counted
//! ([`unlogged_changes`](PoolStats::unlogged_changes)), because it is nearly always a mistake.
//!
//! ## Looking without holding
//!
//! Pages that are read often and rarely changed (the inner nodes of an index) need no latch to be read.
//! [`PagedFile::copy`] copies bytes out of a page, all from one state of it, and holds nothing afterwards.
//! [`PagedFile::inspect`] searches a page in place: the closure's result comes from one state of the page, and the
//! closure runs again if another thread has changed the page in the meantime. While it runs it may see inconsistent
//! bytes, so it reads with [`Optimistic::load`], which refuses offsets outside the page.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, Optimistic, TornPages::Unprotected};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let index = pool.open_file("index", &FileOptions::new().create(true))?;
//! # index.extend(1)?;
//! # let mut page = index.write(0)?;
//! # page[0..2].copy_from_slice(&2_u16.to_le_bytes());
//! # for (at, entry) in [10_u32, 1, 20, 2].into_iter().enumerate() {
//! #     page[2 + 4 * at..6 + 4 * at].copy_from_slice(&entry.to_le_bytes());
//! # }
//! # drop(page);
//! let mut first = [0; 4];
//! index.copy(0, 2, &mut first)?; // 4 bytes from byte 2 of block 0
//! assert_eq!(u32::from_le_bytes(first), 10);
//!
//! /// The child for `key`, in a page with a count and then as many keys and children; `None` if it makes no sense.
//! fn child(page: &Optimistic<'_>, key: u32) -> Option<u32> {
//!     let count = u16::from_le_bytes(page.load(0)?);
//!     let entry = |at| Some(u64::from_le_bytes(page.load(2 + 8 * usize::from(at))?));
//!     let keys = (0..count).map_while(entry).take_while(|entry| *entry as u32 <= key);
//!     keys.last().map(|entry| (entry >> 32) as u32)
//! }
//! assert_eq!(index.inspect(0, |page| child(page, 15))?, Some(1));
//!
//! let guard = index.optimistic(0)?; // the same by steps, for a way through several pages
//! assert_eq!(guard.inspect(|page| child(page, 20)), Some(Some(2)));
//! index.write(0)?[2] = 9; // another thread changes the page
//! assert_eq!(guard.inspect(|page| child(page, 20)), None); // begin again with a new guard
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A guard also ends when the page leaves its frame. A caller that loops over guards of several pages therefore limits
//! its tries and falls back to latches, as `copy` and `inspect` do. To go from a page to its child: find the child with
//! `inspect`, get a guard of the child, and then check that the page's guard is [still valid](Optimistic::still_valid).
//! If so, the page pointed to this child at that time, and the child's guard detects all later changes of the child.
//! `forebay-btree` descends its tree this way.
//!
//! ## Pins and latches
//!
//! A *pin* keeps a page in its frame and may be held for long; a *latch* keeps its contents from changing and
//! should be short. [`PageRef`] and [`PageMut`] have both, [`Pin`] only the first. They convert into
//! each other without another lookup.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, Lsn, TornPages::Unprotected, Upgrade};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let file = pool.open_file("tree", &FileOptions::new().create(true))?;
//! # file.extend(1)?;
//! let pin = file.pin(0)?; // stays in memory; others may change it
//! let page = pin.latch_shared()?;
//! if page[100] == 0 {
//!     // Shared to exclusive. If others read too, that waits for them, and one of them may come first.
//!     let (Upgrade::Unchanged(mut page) | Upgrade::Changed(mut page)) = page.upgrade()?;
//!     if page[100] == 0 {
//!         page[100] = 1;
//!         page.mark_dirty(Lsn::NONE);
//!     }
//!     let page = page.downgrade(); // exclusive to shared: no other writer comes between
//!     assert_eq!(page[100], 1);
//! }
//! assert!(pin.try_latch_exclusive()?.is_some()); // never waits
//! drop(pin); // a file does not close while its pages are in use
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Guards to keep
//!
//! A guard borrows its [`PagedFile`]. [`PageRef::into_owned`], and the same method of [`PageMut`] and [`Pin`], gives it
//! an owned handle, at the price of cloning one: the guard can then be stored next to the file, in a cursor, or sent to
//! a thread that outlives the caller's. All guards are `Send` and `Sync`, since a latch belongs to its guard and not to
//! a thread.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, TornPages::Unprotected};
//! use forebay::{PageRef, PagedFile};
//!
//! struct Cursor {
//!     file: PagedFile,
//!     page: PageRef<'static, PagedFile>,
//! }
//!
//! impl Cursor {
//!     fn turn(&mut self) -> forebay::Result<()> {
//!         self.page = self.file.read(self.page.block() + 1)?.into_owned();
//!         Ok(())
//!     }
//! }
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let file = pool.open_file("table", &FileOptions::new().create(true))?;
//! # file.extend(2)?;
//! # file.write(1)?[100] = 7;
//!
//! let page = file.read(0)?.into_owned();
//! let mut cursor = Cursor { file, page };
//! let thread = std::thread::spawn(move || cursor.turn().map(|()| cursor.page[100]));
//! assert_eq!(thread.join().expect("no panic")?, 7);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`PagedFile::into_stream`] does the same for a read stream and its pages.
//!
//! A stored guard is still a pin, and a latch that others wait for: `close` returns [`Error::Busy`] meanwhile. It also
//! keeps the pool alive, as any handle does.
//!
//! ## Scans that leave the rest alone
//!
//! A scan of a large file uses each page once. With its own [`AccessStrategy`] it cycles through a few frames (its
//! ring) and does not evict the pages that others use.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, StrategyKind, TornPages::Unprotected};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let file = pool.open_file("large", &FileOptions::new().create(true))?;
//! # file.extend(200)?;
//! let scan = pool.strategy(StrategyKind::BulkRead); // one for each scan
//! let mut sum = 0;
//! for block in 0..file.blocks() {
//!     let page = file.read_with(block, &scan)?;
//!     sum += u64::from(page[16]);
//! }
//! # assert_eq!(sum, 0);
//! let resident = (0..200).filter(|&block| file.is_resident(block)).count();
//! assert_eq!(Some(resident), scan.ring_frames()); // an eighth of this small pool
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Reading what comes next
//!
//! An engine usually knows which pages it will read: a scan reads all of them, an index or a bitmap has listed them.
//! [`PagedFile::scan`] and [`PagedFile::stream`] take this list and prefetch the pages, sorted and merged into few
//! large requests, whatever order the caller wants them in.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, Order, StreamOptions, TornPages::Unprotected};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(256).directory(directory.path()).build()?;
//! # let table = pool.open_file("table", &FileOptions::new().create(true))?;
//! # table.extend(100)?;
//! let mut sum = 0;
//! for page in table.scan(0..table.blocks()) {
//!     sum += u64::from(page?[16]);
//! }
//!
//! let bitmap = (0..100).filter(|block| block % 3 == 0); // in any order, with repeats, however long
//! let options = StreamOptions::new().order(Order::Any).expected_rows(10);
//! for row in table.stream_with(bitmap.map(|block| (block, block * 7)), &options).take(10) {
//!     let row = row?;
//!     assert_eq!(row.data, row.page.block() * 7); // what was named along with the block
//! }
//! # assert_eq!(sum, 0);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A list that is completely known and needed goes to [`PagedFile::read_many`]: pages in memory cost as much as a plain
//! read, and the others are read concurrently. [`PagedFile::prefetch`] only starts the reads of pages that will be
//! needed later, and holds nothing.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, TornPages::Unprotected};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(256).directory(directory.path()).build()?;
//! # let nodes = pool.open_file("nodes", &FileOptions::new().create(true))?;
//! # nodes.extend(100)?;
//! let neighbours = [41, 7, 40, 93];
//! assert_eq!(nodes.prefetch(&neighbours), 4); // in three requests, and no wait
//! let mut sum = 0;
//! for page in nodes.read_many(&neighbours) {
//!     sum += u64::from(page?[16]); // in the order of the list
//! }
//! # assert_eq!(sum, 0);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! There are six ways of reading ahead ([`ReadaheadStrategy`]), for a pool, a handle ([`PagedFile::with_readahead`]) or
//! a stream; the default chooses by measurement. Plain reads are observed too: when misses continue a sequence,
//! forward, backward or with a stride, the next blocks are read ahead. With a subscriber of the crate `tracing` for the
//! target `forebay::readahead` at level TRACE, each request, each hint and each returned block is an event, with its
//! reason. The subscriber must not use the pool: the thread that reports may be in the middle of a load.
//!
//! ## Futures
//!
//! [`PagedFile::read_async`] and [`PagedFile::write_async`] are `read` and `write` for tasks, and depend on no
//! executor. A page in memory whose latch is free is ready at the first poll. Whatever the task has to wait for (the
//! page's load, a latch, a frame, room in the queue), it leaves its waker and blocks no thread. `into_async` turns a
//! read stream into one for tasks (feature `futures`, on by default).
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, Lsn, TornPages::Unprotected};
//! use std::pin::{Pin, pin};
//! use std::sync::Arc;
//! use std::task::{Context, Poll, Wake};
//!
//! use futures_core::Stream;
//!
//! struct Unpark(std::thread::Thread); // the least that an executor does
//! impl Wake for Unpark {
//!     fn wake(self: Arc<Self>) {
//!         self.0.unpark();
//!     }
//! }
//!
//! fn block_on<T>(future: impl Future<Output = T>) -> T {
//!     let (waker, mut future) = (Arc::new(Unpark(std::thread::current())).into(), pin!(future));
//!     loop {
//!         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
//!             Poll::Ready(result) => return result,
//!             Poll::Pending => std::thread::park(),
//!         }
//!     }
//! }
//!
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! let file = pool.open_file("table", &FileOptions::new().create(true))?;
//! file.extend(20)?;
//! block_on(async {
//!     let mut page = file.write_async(3).await?;
//!     page[100] = 7;
//!     page.mark_dirty(Lsn::NONE);
//!     drop(page); // before the next `await`, if it need not be held across that
//!     assert_eq!(file.read_async(3).await?[100], 7);
//!
//!     let (mut pages, mut sum) = (file.scan(0..20).into_async(), 0);
//!     while let Some(page) = std::future::poll_fn(|it| Pin::new(&mut pages).poll_next(it)).await {
//!         sum += u32::from(page?[100]);
//!     }
//!     assert_eq!(sum, 7);
//!     Ok::<_, forebay::Error>(())
//! })?;
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! - **Who drives.** When the first task waits for a queue that no thread drives yet, the pool starts a thread for it;
//!   the thread sleeps while no task waits. Another thread finds frames for tasks, and writes dirty pages to free them.
//!   An engine that has its own event loop builds the pool without these threads ([`PoolBuilder::task_threads`]) and
//!   calls [`BufferPool::drive`] from its loop.
//! - **Guards may be held across `await`**, and sent to other threads. Two tasks that latch two pages in different
//!   orders wait for each other, as threads do. On an executor's thread, do not use calls that wait for a latch
//!   (`read`, `write`, `flush_file`, a stream's `next`): the task that holds it may be waiting for that very thread.
//! - **A future may be dropped** at any point: it leaves no pin and no latch, and no thread waits for it. A load that
//!   it began goes on, and the page is then in memory for the next caller. A future that is neither polled nor dropped
//!   keeps a pin, like any guard.
//! - A stream may write a dirty page of its ring in place, and flush the log for it, while it looks ahead.
//!
//! ## Checksums, and what to do about damage
//!
//! With [`Checksum::Crc32c`] the pool stores a checksum in four bytes of each page when it writes the page, and
//! verifies it when it reads the page. The four bytes belong to the pool: leave them free in the layout, and do not
//! read them, because a page in memory carries the checksum of its last read, if any. The checksum covers the block
//! number, so a page that was written to the wrong block of its file is detected too.
//!
//! ```
//! # use forebay::{BufferPool, Checksum, Error, FileOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let checksum = Checksum::Crc32c { offset: 0 };
//! # let builder = BufferPool::builder().frames(64).checksum(checksum).torn_pages(forebay::TornPages::Unprotected);
//! # let pool = builder.directory(directory.path()).build()?;
//! let file = pool.open_file("accounts", &FileOptions::new().create(true))?;
//! file.append()?[100] = 42;
//! let path = file.path().to_owned();
//! file.close()?;
//!
//! let mut bytes = std::fs::read(&path)?; // a disk that lost a bit
//! bytes[5000] ^= 1;
//! std::fs::write(&path, bytes)?;
//!
//! let file = pool.open_file("accounts", &FileOptions::new())?;
//! assert!(matches!(file.read(0), Err(Error::Corrupt { block: 0, .. })));
//! let (bytes, damage) = file.salvage(0)?; // as they are, for those who can make something of them
//! assert!(damage.is_some());
//! assert_eq!((bytes[100], bytes[5000]), (42, 1));
//!
//! let mut page = file.init(0)?; // and a new page in place of the damaged one
//! page[100] = bytes[100];
//! # drop(page);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`PageCodec`] is for transformations that the pool does not implement: encryption, another checksum, a tag. It is
//! set for the pool or for a file. It encodes each page in the copy that is written, and decodes it in its frame after
//! a read. The pool's checksum covers the encoded bytes, so torn pages are repaired without any key. A page that the
//! codec rejects is [`Error::Codec`].
//!
//! A page of zeroes passes, as a page that was never written since `extend`. An engine that writes every page before it
//! reads it sets [`ZeroPages::Refuse`], which also detects a lost first write.
//!
//! ## Reading while another pool writes
//!
//! One pool at a time writes in a directory. Others may read there, also in other processes, through a tablespace that
//! is [read-only](Tablespace::read_only): it takes no lock and cannot write. Its reader sees each page as it was on
//! disk when it was read, until [`PagedFile::refresh`] discards the cached pages.
//!
//! ```
//! # use forebay::{BufferPool, Checksum, Error, FileOptions, Tablespace};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let checksum = Checksum::Crc32c { offset: 0 };
//! # let builder = || BufferPool::builder().frames(64).checksum(checksum).torn_pages(forebay::TornPages::Unprotected);
//! # let pool = builder().directory(directory.path()).build()?;
//! # let table = pool.open_file("table", &FileOptions::new().create(true))?;
//! # table.append()?[100] = 1;
//! # table.flush_file()?;
//! let main = Tablespace::new("main", directory.path()).read_only(true);
//! let other = builder().tablespace(main).build()?; // while `pool` writes there
//! let copy = other.open_file("table", &FileOptions::new())?;
//! assert_eq!(copy.read(0)?[100], 1);
//! assert!(matches!(copy.write(0), Err(Error::ReadOnly { .. })));
//!
//! table.write(0)?[100] = 2;
//! table.append()?;
//! table.flush_file()?; // a reader sees what is on disk
//! assert_eq!((copy.read(0)?[100], copy.blocks()), (1, 1)); // as it was read
//! assert_eq!(copy.refresh()?, 2); // blocks
//! assert_eq!(copy.read(0)?[100], 2);
//! # other.close()?;
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Pages come from different moments: several of them together (a tree that splits) may be inconsistent, and the reader
//! must handle that. A checksum or a codec detects a page that is just being written.
//!
//! ## Backups
//!
//! [`PagedFile::backup`] returns pages as they would be written, each a consistent image, while other threads go on.
//! Together with the log from the redo point of a checkpoint before the backup to the LSN that it returns, they are a
//! complete database.
//!
//! ```
//! # use forebay::{BufferPool, CheckpointOptions, Checksum::Off, FileOptions, Lsn, TornPages::Unprotected};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let file = pool.open_file("table", &FileOptions::new().create(true))?;
//! # file.extend(3)?;
//! use std::os::unix::fs::FileExt;
//!
//! let redo = pool.checkpoint(CheckpointOptions::now())?.redo; // keep the log from here
//! let copy = std::fs::File::create(directory.path().join("table.backup"))?;
//! let write = |block, image: &[u8]| -> Result<(), Box<dyn std::error::Error>> {
//!     Ok(copy.write_all_at(image, u64::from(block) * image.len() as u64)?) // some may be left out
//! };
//! let end = file.backup(0..file.blocks(), write)?; // to here
//! # assert_eq!((redo, end, copy.metadata()?.len()), (Lsn::NONE, Lsn::NONE, 3 * 8192));
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Truncating and dropping
//!
//! Truncated pages are discarded at once, changed or not, and are never written. A thread that has such a page pinned
//! keeps the bytes, to no effect, until it drops its guard; a caller that requests the page afterwards gets an error.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, Error, Fate, FileOptions, TornPages::Unprotected};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! let file = pool.open_file("log of visits", &FileOptions::new().create(true))?;
//! file.extend(10)?;
//! let pin = file.pin(9)?;
//! file.truncate(5)?;
//! assert!(matches!(file.read(9), Err(Error::PastEnd { block: 9, blocks: 5, .. })));
//! assert!(matches!(pin.latch_shared(), Err(Error::Invalidated { how: Fate::Truncated, .. })));
//!
//! file.drop_file()?; // from the disk too
//! assert!(matches!(file.read(0), Err(Error::Invalidated { how: Fate::Dropped, .. })));
//! # drop(pin);
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! ## What it does and why it is slow
//!
//! Everything is counted, all the time, by access strategy. A [`Stats`] is a copy of the counts; the difference of two
//! covers the time between them.
//!
//! ```
//! # use forebay::{BufferPool, Checksum::Off, FileOptions, StrategyKind, TornPages::Unprotected, Wait};
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(64).directory(directory.path()).build()?;
//! # let file = pool.open_file("table", &FileOptions::new().create(true))?;
//! # file.extend(4)?;
//! let before = pool.stats();
//! let page = file.read(3)?;
//! let again = file.read(3)?;
//! let stats = pool.stats().since(&before);
//! assert_eq!(stats.strategy(StrategyKind::Normal).misses, 1);
//! assert_eq!(stats.hit_ratio(), Some(0.5));
//! assert_eq!(stats.wait(Wait::Read).count(), 1);
//!
//! let table = stats.to_string(); // for a terminal
//! assert!(table.contains("misses"));
//! let reasons = stats.explain(); // where threads waited, and what to change
//! assert!(reasons.starts_with("Threads waited"));
//! let metrics = pool.stats().prometheus(); // of the whole time: counters never go down
//! assert!(metrics.contains("forebay_misses_total{strategy=\"normal\"} 1"));
//!
//! let view = pool.view(); // frame by frame: which page, who has it, dirty or not
//! assert_eq!(view.len(), 1);
//! assert_eq!((&*view[0].name, view[0].block, view[0].pins), ("table", 3, 2));
//! # drop((page, again));
//! # pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`BufferPool::notes`] lists the features that are not available and why (io_uring, huge pages, registered memory),
//! and what is used instead.
//!
//! ## The end
//!
//! [`BufferPool::flush_and_sync`] and [`BufferPool::close`] make everything durable and report failures; the second
//! also closes the files and releases the directories. A pool that is not closed writes its dirty pages when its last
//! handle (and the last handle to its files) is dropped; but it does not sync and cannot report an error, and it writes
//! nothing while a panic unwinds. The thread that drops the last handle (or the last [guard with an owned
//! handle](crate#guards-to-keep)) waits for these writes, after the guard's latch is released. The exception is a
//! waker, which the pool calls in the middle of an operation: there, a new thread does the writes.
//!
//! # What it promises
//!
//! - **Nothing is lost silently.** A page that could not be written stays dirty, in its frame. A thread that needs a
//!   frame and can only get a dirty one receives the error of that write, though it requested another page.
//! - **Log before page.** No page is written before [`Wal::flush_to`] has returned for its newest
//!   change, marked or not. If the log fails, the page stays ([`Error::Log`]).
//! - **A failed sync is final.** What was written since the last good one may be lost, even if the next sync succeeds.
//!   So nothing is written or synced in that tablespace any more ([`Error::Failed`]); reading goes on while there are
//!   clean frames. Close the pool and recover.
//! - **Durable means synced.** [`PagedFile::flush_file`] writes; [`PagedFile::sync`] makes what has
//!   been written durable. Evictions and the cleaner only write.
//! - **One page, one read.** Threads that miss the same page wait for one read; if it fails, all of them receive the
//!   error. The failure of a read-ahead is not reported: a thread that needs one of its pages reads that page on its
//!   own, and receives the page's error.
//! - **No wait for a frame is endless.** When every frame is pinned, a thread gets [`Error::NoFreeFrame`] after
//!   [`PoolBuilder::frame_wait`].
//!
//! # What it does not do
//!
//! - It is not crash-safe on its own. The only order in which pages reach the disk is log before page. They are written
//!   one at a time, and a crash may leave one half written: its checksum detects this, and the method set with
//!   [`PoolBuilder::torn_pages`] repairs it. Without a log, the files are consistent on disk only after a successful
//!   [`BufferPool::close`] or [`BufferPool::flush_and_sync`] during which no thread changes anything.
//! - It undoes nothing. A thread that panics while it changes a page leaves the page in its current state, dirty, for
//!   others to read and to write. An engine that cannot tolerate that aborts on panic.
//! - It keeps no other process out of a file, except for the lock on the directory, which other pools respect.
//!
//! # Threads and deadlocks
//!
//! A pool, a file and an access strategy may be used from any thread. A guard may be sent to another thread. A latch
//! makes all other threads wait without a limit, so:
//!
//! - Do not request a page that the same thread has latched. Reading or [`copy`](PagedFile::copy)ing a page that the
//!   thread has latched exclusively, or writing one that it has latched at all, is a self-deadlock; reading one that it
//!   has latched shared is one when a writer waits in between. `init` and [`salvage`](PagedFile::salvage) latch too;
//!   `pin` does not.
//! - Latch pages in one order. Which one (from the root down, by block) is the engine's choice.
//! - Do not call `flush_file`, `flush_and_sync` or `close` with a page of such a file latched exclusively: they wait
//!   for a thread that changes a dirty page. (A shared latch does not block them, but `close` refuses while any page is
//!   in use.)
//! - Do not request a page while holding a lock that [`Wal::flush_to`] takes. A read may have to write another page
//!   first, and so to flush the log, on the same thread. For the same reason `flush_to` must not wait for a latch: its
//!   caller may hold it.
//! - A thread that holds pages while it requests more needs frames for all of them at once.
//!
//! The pool itself holds no latch while it writes a page: other threads can read and change the page during the write.
//!
//! # Children
//!
//! A pool belongs to the process that built it. In a child of `fork` none of its threads run, its locks are as some
//! thread of the parent held them, and its queues are the parent's. So in the child every operation that needs the
//! disk, or would change a file, returns [`Error::Forked`]; [`prefetch`](PagedFile::prefetch) does nothing; and
//! dropping the pool, its files and its guards does nothing to the parent, its files or its lock on the directory.
//! Pages that are in memory can be read, as they were when the child was created; the child's changes to them stay
//! private to it. A child may build another pool, for other directories.
//!
//! The parent's lock on its directories is not released before the child has executed another program or exited: the
//! child has a copy of the lock's descriptor. A child created directly with clone(2), bypassing the C library's `fork`,
//! is not detected.
//!
//! # Tuning
//!
//! - [`memory`](PoolBuilder::memory) is 128 MiB by default, for pages alone; see
//!   [`BufferPool::bookkeeping_bytes`] for the rest. It is the first thing to change. It must be
//!   more than all threads pin at once; a pool has 8 frames at least.
//! - [`page_size`](PoolBuilder::page_size) is 8 KiB, and fixed for the life of the files: they do
//!   not record it. Smaller pages waste less memory on random reads, larger ones need fewer
//!   requests.
//! - [`strategy_with_ring`](BufferPool::strategy_with_ring) sets the size of a ring, up to an
//!   eighth of the pool. The usual ring is 256 KiB for reading and cleaning up, and 16 MiB for
//!   writing, so that the log is flushed less often.
//! - [`Tablespace::cache`] chooses between the kernel's page cache and direct I/O. Direct files are fastest through
//!   streams and slow on single misses, for which there is no read-ahead; buffered files, the default, hide that. Where
//!   the kernel performs direct I/O through its page cache anyway, as it does for writes to btrfs files with checksums,
//!   [`BufferPool::notes`] says so.
//! - [`queue_depth`](PoolBuilder::queue_depth) and [`backend`](PoolBuilder::backend) affect read-ahead, flushing and
//!   cleaning; [`register_memory`](PoolBuilder::register_memory) affects the last two. A thread that misses a page
//!   reads it with a plain `preadv`.
//! - [`torn_pages`](PoolBuilder::torn_pages) must be chosen: see [`TornPages`] for what each costs.
//! - [`Tablespace::costs`] says what a request and a byte cost on the device; streams then know which gaps to read
//!   through from the first page on, instead of only after some reads.
//! - Descriptors (`ulimit -n`): one for each open file, and one more after its first sync where the
//!   backend is `uring` or `aio`, whose syncs the kernel runs in parallel; one for each read stream, of which a file
//!   keeps up to 8 for reuse; one for each directory and one or two for each queue. A call that lacks a descriptor
//!   fails with an error of kind [`Retry`](ErrorKind::Retry), and nothing is lost.
//! - Memory, page size, backend, queue depths, the wait for a frame, huge pages, readahead, costs and tablespaces can
//!   also come from a file ([`PoolBuilder::profile`]). Settings in code override it.
//!
//! Check [`Stats::explain`] before changing anything.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod api;
mod cache;
mod clock;
mod core;
mod error;
mod names;
mod observe;
mod readahead;
mod readahead_strategy;
mod shared;
mod store;
mod strategy_kind;
mod sync;
mod tag;
mod tasks;
mod wal;
mod writeback;

pub use crate::core::checkpoint::{Checkpoint, CheckpointOptions, Elevator};
pub use api::builder::PoolBuilder;
pub use api::guard::{Optimistic, PageMut, PageRef, Pin, TryUpgrade, Upgrade};
pub use api::options::{Order, StreamOptions};
pub use api::paged_file::PagedFile;
pub use api::pool::BufferPool;
pub use api::size::Size;
pub use api::stream::{ListedBlocks, ReadStream, StreamError, StreamStats, Streamed, Wanted};
pub use api::view::FrameView;
pub use cache::replacement::AccessStrategy;
pub use clock::Clock;
pub use error::{Error, ErrorKind, Fate};
pub use observe::checkpoint_report::{
    CheckpointReport, Phase, Progress, TablespaceReport, Trigger,
};
pub use observe::stats::{FileStats, PoolStats, Stats, StrategyStats, Wait, WaitTimes};
pub use readahead_strategy::ReadaheadStrategy;
pub use store::checksum::{Checksum, ZeroPages};
pub use store::codec::PageCodec;
pub use store::options::FileOptions;
pub use store::tablespace::Tablespace;
pub use store::torn::TornPages;
pub use strategy_kind::StrategyKind;
pub use tag::{Block, FileId, Lsn};
pub use wal::{PageImage, Wal};

/// The I/O layer. Some signatures here use its types, such as [`CacheMode`](io::CacheMode) and [`Prefer`](io::Prefer).
pub use forebay_io as io;
/// Costs of a device, as used in a profile and a tablespace.
pub use forebay_lookahead::DeviceCosts;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The examples of the README and of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/engines.md")]
struct Readme;
