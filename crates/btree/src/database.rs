//! Several trees with a log: changes are durable when their records are, and a crash is recovered from.
//!
//! Each change of a page is logged under its latch, with the LSN in the page, so that no page is written before its
//! records ([`forebay::Wal`]). Opening repeats all changes after the redo point that the pages do not contain. A
//! transaction is durable once its commit is; [`Database::flush`] makes it so together with all others that are
//! committed by then.
//!
//! Nothing is undone: there are no rollbacks, and no isolation beyond that of the trees' operations. After a crash, a
//! transaction whose commit was not durable may be found in part.
//!
//! Invariants:  [DAT-1] after recovery the trees contain every change whose record is in the log, and no other
//! Failure:     recovery may be interrupted and repeated: it logs nothing, and moves the redo point when it is done.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use forebay::{BufferPool, CheckpointOptions, Lsn, PoolBuilder, Wal};

use crate::error::{Error, Result};
use crate::log::Log;
use crate::meta::damaged;
use crate::page::LSN_AT;
use crate::record::{self, Record, Redo, What};
use crate::tree::Tree;

/// Trees that share a pool and a log.
pub struct Database {
    pool: BufferPool,
    log: Arc<Log>,
    trees: Vec<Tree>,
    recovery: Recovery,
}

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The redo point: an LSN.
    pub redo: u64,
    /// Records after it.
    pub records: u64,
    /// Changes of pages that the pages did not contain.
    pub applied: u64,
}

impl Database {
    /// Opens the trees `names` and recovers them from the log in `log_directory`. If there is no log yet, creates it, and the
    /// trees that do not exist. `committed` gets the bytes of each commit after the redo point, in the order of the log.
    /// `builder` has all settings of the pool but its log; it must protect pages from being [torn](forebay::TornPages), if a
    /// power cut can tear them.
    ///
    /// # Errors
    /// [`Error::Log`], [`Error::Damaged`], [`Error::NotATree`], [`Error::Unclean`], [`Error::Pool`].
    ///
    /// # Panics
    /// There are more than 255 trees.
    pub fn open(
        builder: PoolBuilder,
        log_directory: &Path,
        names: &[&str],
        mut committed: impl FnMut(&[u8]),
    ) -> Result<Database> {
        let (log, redo) = Log::open(log_directory)?;
        let log = Arc::new(log);
        let wal: Arc<dyn Wal> = Arc::<Log>::clone(&log);
        let pool = builder.wal(wal).build()?;
        let open = |(id, name): (usize, &&str)| {
            let id = u8::try_from(id).expect("at most 255 trees");
            Tree::open_logged(&pool, name, &log, id, redo.is_none())
        };
        let trees = names.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        // From here on no tree may be missing, and no tree's log.
        if redo.is_none() {
            log.begin()?;
        }
        trees.iter().try_for_each(Tree::mark_logged)?;
        let redo = redo.unwrap_or(Lsn::NONE);
        let recovery = Recovery { redo: redo.0, ..Recovery::default() };
        let mut database = Database { pool, log, trees, recovery };
        database.recover(redo, &mut committed)?;
        database.checkpoint()?;
        Ok(database)
    }

    fn recover(&mut self, redo: Lsn, committed: &mut impl FnMut(&[u8])) -> Result<()> {
        let page_bytes = self.pool.page_bytes();
        let mut records = self.log.records(redo)?;
        while let Some((lsn, body)) = records.next_record()? {
            self.recovery.records += 1;
            match record::read(body, page_bytes).ok_or(Error::LogRecord { lsn: lsn.0 })? {
                Record::Commit(bytes) => committed(bytes),
                Record::Changes(changes) => {
                    for change in &changes {
                        let tree = self.trees.get(usize::from(change.tree));
                        let tree = tree.ok_or(Error::LogRecord { lsn: lsn.0 })?;
                        self.recovery.applied += u64::from(repeat(tree, lsn, change)?);
                    }
                }
            }
        }
        self.trees.iter().try_for_each(Tree::check_meta)
    }

    /// The trees, in the order of their names.
    pub fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// The pool of the trees.
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// What opening had to recover.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Commits what the calling thread has changed: appends a record with `bytes`, and returns its LSN, in bytes of log.
    /// Never waits for the disk.
    pub fn commit(&self, bytes: &[u8]) -> u64 {
        let mut body = Vec::with_capacity(1 + bytes.len());
        record::put_commit(&mut body, bytes);
        self.log.append(&body).0
    }

    /// Waits until the commit that returned `lsn` is durable.
    ///
    /// # Errors
    /// [`Error::Log`]: nothing is durable any more.
    pub fn flush(&self, lsn: u64) -> Result<()> {
        Ok(self.log.flush(Lsn(lsn))?)
    }

    /// Commits with at most this LSN are durable.
    pub fn durable(&self) -> u64 {
        self.log.flushed().0
    }

    /// Bytes appended to the log since it was created.
    pub fn log_bytes(&self) -> u64 {
        self.log.position().0
    }

    /// Takes a checkpoint: recovery begins at its redo point.
    ///
    /// # Errors
    /// [`Error::Pool`].
    pub fn checkpoint(&self) -> Result<()> {
        self.pool.checkpoint(CheckpointOptions::now())?;
        Ok(())
    }

    /// Takes a checkpoint and closes the pool.
    ///
    /// # Errors
    /// As [`Database::checkpoint`], and [`forebay::Error::Busy`] while a cursor is reading ahead.
    pub fn close(self) -> Result<()> {
        self.checkpoint()?;
        let Database { pool, trees, .. } = self;
        drop(trees);
        pool.close()?;
        Ok(())
    }
}

/// Repeats a change, unless the page contains it. Returns whether it did not.
fn repeat(tree: &Tree, lsn: Lsn, change: &Redo<'_>) -> Result<bool> {
    let (file, block) = (tree.file(), change.block);
    if block >= file.blocks() {
        file.extend(block + 1 - file.blocks())?;
    }
    let mut page = match change.what {
        // Whatever was there: all later changes follow in the log.
        What::Page(..) => file.init(block)?,
        What::Entry(_) => file.write(block)?,
    };
    if page[LSN_AT..].first_chunk().is_some_and(|found| u64::from_le_bytes(*found) >= lsn.0) {
        return Ok(false);
    }
    record::repeat(&mut page, change.what).map_err(|what| damaged(file, block, what))?;
    tree.mark(&mut page, lsn);
    Ok(true)
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database")
            .field("trees", &self.trees)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
