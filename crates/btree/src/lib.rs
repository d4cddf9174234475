//! A B+tree on [Forebay's buffer pool](forebay): an example of a database engine's index, small enough to be read in
//! half an hour, and built as an engine would build it.
//!
//! ```
//! use std::ops::Bound;
//!
//! use forebay::{BufferPool, Checksum, TornPages};
//! use forebay_btree::{Direction, Tree};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let builder = BufferPool::builder().memory("4 MiB").checksum(Checksum::Crc32c { offset: 0 });
//! let builder = builder.torn_pages(TornPages::DoubleWrite);
//! let pool = builder.directory(directory.path()).build()?;
//! let tree = Tree::create(&pool, "words")?;
//! tree.bulk_load([("ape", "1"), ("bee", "2"), ("cat", "3")], 0.9)?;
//! assert!(tree.insert(b"dog", b"4")?); // true: the key is new
//! assert_eq!(tree.get(b"bee")?.as_deref(), Some(&b"2"[..]));
//! assert!(tree.remove(b"ape")?);
//!
//! let mut cursor = tree.range(Bound::Included(b"c"), Bound::Unbounded, Direction::Forward);
//! while let Some((key, value)) = cursor.next_entry()? {
//!     println!("{key:?}: {value:?}");
//! }
//! drop(cursor);
//! tree.checkpoint()?; // durable from here on, until the next change
//! tree.close()?;
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Reading order
//!
//! | module | main idea |
//! |---|---|
//! | `page` | a slot is one word, so that a search needs no latch and no copy of the page |
//! | `node` | a latched page: checked once as a whole, then changed in place |
//! | `descend` | the descent: optimistic guards, each node validated after its child's guard began |
//! | `tree` | insertion, look-up and removal; checkpoints |
//! | `restructure` | splits and merges as single steps under a latched parent |
//! | `cursor` | a copied leaf, the key at which the next one begins, and a stream of the pool for the leaves ahead |
//! | `bulk` | sorted entries, each page written once |
//! | `meta` | blocks in use, free blocks, and whether the file is clean |
//! | `check` | checks all invariants of a tree |
//! | `log` | records appended by all threads, made durable together |
//! | `record` | a change of a page: as the entry that changed, or as the whole page |
//! | `database` | several trees with a log: commits, checkpoints, recovery |
//!
//! # Which parts of the pool it uses
//!
//! - [`PagedFile::optimistic`](forebay::PagedFile::optimistic) for every look-up, and for every writer's descent;
//!   [`Optimistic::inspect`](forebay::Optimistic::inspect) and [`Optimistic::load`](forebay::Optimistic::load) for the
//!   search in a node, whose results are not used before they are validated;
//!   [`Optimistic::read`](forebay::Optimistic::read) for the value. A look-up writes to no shared memory, except for
//!   pages that were about to be evicted.
//! - [`PagedFile::write`](forebay::PagedFile::write) for the leaf that is changed: one latch for each insertion.
//! - [`PagedFile::stream`](forebay::PagedFile::stream) for a cursor's leaves: the iterator reads inner nodes, and the
//!   pool makes large requests from the blocks they list.
//! - [`PagedFile::init_with`](forebay::PagedFile::init_with) and a [`BulkWrite`](forebay::StrategyKind::BulkWrite) ring
//!   for bulk loads, so that a load does not evict all other pages.
//! - [`Checksum::Crc32c`](forebay::Checksum): a page that the disk has damaged is an [error](forebay::Error::Corrupt)
//!   before the tree sees it. A page with a valid checksum and inconsistent contents is [`Error::Damaged`], not a
//!   panic.
//!
//! # Guarantees
//!
//! - Look-ups, insertions and removals are atomic and may run in any number of threads. A look-up sees the last
//!   insertion before it.
//! - A cursor returns keys in strict order, each once. It returns all entries that exist the whole time; of the entries
//!   that change meanwhile, it may return some.
//! - **Without a log, durable means [`Tree::checkpoint`].** After a checkpoint, and until the next change, a crash
//!   leaves exactly the tree that it wrote. The first change after it marks the file on disk as changed before anything
//!   else is written. If a crash follows, [`Tree::open`] returns [`Error::Unclean`], and never a tree with only some of
//!   the changes.
//! - **With a log, durable means [`Database::flush`].** The trees of a [`Database`] log each change under the latch of its
//!   page, with the LSN in the page, and the pool writes the log before the page. Opening repeats what a crash has lost.
//!
//! # Limits
//!
//! Pages of 4 to 32 KiB; keys up to a sixteenth of a page and records up to a quarter ([`Tree::key_len_max`],
//! [`Tree::record_len_max`]): 512 bytes and 2 KiB with pages of 8 KiB. A thread holds at most five pages at once. Freed
//! blocks are reused, and never returned to the file system.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod bulk;
mod check;
mod cursor;
mod database;
mod descend;
mod error;
mod log;
mod meta;
mod node;
mod page;
mod record;
mod restructure;
mod tree;

pub use check::Census;
pub use cursor::{Cursor, Direction};
pub use database::{Database, Recovery};
pub use error::{Error, Result};
pub use tree::Tree;
