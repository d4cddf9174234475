//! The environment of checkpoint tests: two tablespaces, each over a disk that the test controls, and a log.

use std::ops::Range;
use std::sync::Arc;

use forebay::{
    BufferPool, CheckpointOptions, CheckpointReport, Error, Lsn, PagedFile, ReadaheadStrategy,
    Tablespace, Wal,
};

use super::log::Log;
use crate::disk::Disk;
use crate::site::{Site, create, fill};

/// A pool with a log, two tablespaces over a disk each, and a file in each of them.
pub(super) struct Rig {
    pub(super) pool: BufferPool,
    pub(super) log: Arc<Log>,
    pub(super) disks: [Arc<Disk>; 2],
    pub(super) files: [PagedFile; 2],
}

pub(super) const NAMES: [&str; 2] = ["first", "second"];

impl Rig {
    pub(super) fn new(site: &Site, frames: u64, blocks: u32) -> Rig {
        Rig::with_log(site, frames, blocks, Log::default())
    }

    pub(super) fn with_log(site: &Site, frames: u64, blocks: u32, log: Log) -> Rig {
        let log = Arc::new(log);
        let ((first, first_disk), (second, second_disk)) = (Disk::open(), Disk::open());
        let mut builder = Site::bare(frames).cleaner(false).readahead(ReadaheadStrategy::Os);
        for (name, io) in NAMES.into_iter().zip([first, second]) {
            builder = builder.tablespace(Tablespace::new(name, site.path(name)).io(io));
        }
        let pool = builder.wal(Arc::clone(&log) as Arc<dyn Wal>).build().unwrap();
        let files = NAMES.map(|name| {
            let file = pool.open_file("table", &create().tablespace(name)).unwrap();
            file.extend(blocks).unwrap();
            file
        });
        pool.flush_and_sync().unwrap();
        Rig { pool, log, disks: [first_disk, second_disk], files }
    }

    /// Changes a block so that it consists of its new LSN.
    pub(super) fn change(&self, file: usize, block: u32) -> Lsn {
        change(&self.files[file], &self.log, block)
    }

    /// Changes some blocks; returns the number that each then contains.
    pub(super) fn change_all(&self, file: usize, blocks: Range<u32>) -> Vec<u64> {
        blocks.map(|block| self.change(file, block).0).collect()
    }

    pub(super) fn checkpoint(&self) -> Result<CheckpointReport, Error> {
        self.pool.checkpoint(CheckpointOptions::now())
    }

    pub(super) fn dirty_blocks(&self, file: usize) -> Vec<u32> {
        let id = self.files[file].id();
        let mut blocks: Vec<u32> = self
            .pool
            .view()
            .iter()
            .filter(|frame| frame.dirty && frame.file == id)
            .map(|frame| frame.block)
            .collect();
        blocks.sort_unstable();
        blocks
    }
}

pub(super) fn change(file: &PagedFile, log: &Log, block: u32) -> Lsn {
    let mut page = file.write(block).unwrap();
    let lsn = log.append();
    fill(&mut page, lsn.0);
    page.mark_dirty(lsn);
    lsn
}
