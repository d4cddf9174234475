//! The files of the tables: made without a log, and opened with or without one.

use std::ops::Bound;
use std::path::Path;

use forebay::io::CacheMode;
use forebay::{BufferPool, Checksum, PoolBuilder, Tablespace, TornPages};
use forebay_btree::{Database, Direction, Error, Tree};

use crate::load;
use crate::schema::NAMES;

/// That of vmcache.
const PAGE_BYTES: u64 = 4096;

/// The open tables.
#[derive(Debug)]
pub enum Store {
    /// Without a log: changes are durable after [`Store::close`].
    Plain(BufferPool, Vec<Tree>),
    /// With a log, and pages protected from being torn.
    Logged(Database),
}

fn builder(directory: &Path, memory: u64, torn_pages: TornPages) -> PoolBuilder {
    let tablespace = Tablespace::new("main", directory).cache(CacheMode::Direct);
    let builder = BufferPool::builder().memory(memory).page_size(PAGE_BYTES);
    let builder = builder.tablespace(tablespace).torn_pages(torn_pages);
    builder.checksum(Checksum::Crc32c { offset: 0 })
}

impl Store {
    /// Makes the tables of `warehouses` warehouses in `directory`, by as many threads, with `memory` bytes for pages. `goes_on`
    /// gets the number of warehouses that are done; if it returns false, the tables are not complete, and neither is the result.
    ///
    /// # Errors
    /// Those of a tree and of the pool.
    pub fn create(
        directory: &Path,
        memory: u64,
        warehouses: u32,
        threads: u32,
        goes_on: impl Fn(u32) -> bool + Sync,
    ) -> Result<bool, Error> {
        let pool = builder(directory, memory, TornPages::Unprotected).build()?;
        let trees = NAMES.map(|name| Tree::create(&pool, name));
        let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
        let complete = load::load(&trees, warehouses, threads, goes_on)?;
        Store::Plain(pool, trees).close()?;
        Ok(complete)
    }

    /// Opens the tables with `memory` bytes for pages. With `checkpoint_log` they have a log from then on, with a checkpoint
    /// for so many bytes of it; what it has is recovered.
    ///
    /// # Errors
    /// Those of a tree and of the pool.
    pub fn open(
        directory: &Path,
        memory: u64,
        checkpoint_log: Option<u64>,
    ) -> Result<Store, Error> {
        let Some(checkpoint_log) = checkpoint_log else {
            let pool = builder(directory, memory, TornPages::Unprotected).build()?;
            let trees = NAMES.iter().map(|name| Tree::open(&pool, name));
            let trees = trees.collect::<Result<Vec<_>, _>>()?;
            return Ok(Store::Plain(pool, trees));
        };
        let builder = builder(directory, memory, TornPages::DoubleWrite);
        let builder = builder.checkpoint_log(checkpoint_log);
        Ok(Store::Logged(Database::open(builder, directory, &NAMES, |_| {})?))
    }

    /// The trees of all tables.
    pub fn trees(&self) -> &[Tree] {
        match self {
            Store::Plain(_, trees) => trees,
            Store::Logged(database) => database.trees(),
        }
    }

    /// The pool of the trees.
    pub fn pool(&self) -> &BufferPool {
        match self {
            Store::Plain(pool, _) => pool,
            Store::Logged(database) => database.pool(),
        }
    }

    /// The database, if there is a log.
    pub fn database(&self) -> Option<&Database> {
        match self {
            Store::Plain(..) => None,
            Store::Logged(database) => Some(database),
        }
    }

    /// Reads all tables, so that as much of them as fits is in memory.
    ///
    /// # Errors
    /// Those of a tree.
    pub fn warm(&self) -> Result<(), Error> {
        for tree in self.trees() {
            let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while cursor.next_entry()?.is_some() {}
        }
        Ok(())
    }

    /// Makes all changes durable and closes the tables.
    ///
    /// # Errors
    /// Those of a tree and of the pool.
    pub fn close(self) -> Result<(), Error> {
        match self {
            Store::Logged(database) => database.close(),
            Store::Plain(pool, trees) => {
                trees.into_iter().try_for_each(Tree::close)?;
                pool.close()?;
                Ok(())
            }
        }
    }
}
