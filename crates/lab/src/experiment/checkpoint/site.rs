//! Site: a pool with the files of one cell, its pages changed and written out.
//!
//! Every measurement has its own pool, slightly larger than the set of dirty pages, so that
//! no page is evicted before the checkpoint; no background cleaner runs. Pages are made rather than read, since their
//! old contents do not matter: all of a page is random, except for the start, which holds the page's number
//! and the tick of the change.
//!
//! A cell with readers or pacing lasts an interval: first, with readers, an idle time, in which they show their
//! latency without a checkpoint; then pages are changed and written out, at once at the beginning of the
//! interval or spread over it. Worked example: 10 s, unpaced: 5 s idle, pages changed, 2 s of writing,
//! 8 s idle.
//!
//! Invariants:  [SIT-1] when a checkpoint begins, exactly the pages of the set are dirty, and resident
//!              [SIT-2] a site that ends early writes nothing more: its files are dropped with their contents
//! Concurrency: the checkpoint runs on one of the pool's threads; the thread that waits for it checks for Ctrl-C.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use forebay::{
    BufferPool, CheckpointOptions, Checksum, Elevator, FileOptions, Lsn, PagedFile, Tablespace,
    TornPages,
};
use forebay_io::{CacheMode, Kind, Prefer};

use super::cell::{Dirty, Order, PAGE_BYTES};
use super::dirty::Place;
use super::foreground::{self, Demand};
use super::record::{Readers, Round, Samples, Written};
use super::resources::Resources;
use super::settings::Settings;
use crate::experiment::Bench;
use crate::experiment::samples::emptied;
use forebay_measure::interrupt;
use forebay_measure::workfile::Workfile;

/// Frames beyond the dirty ones: for rings of readers.
const SPARE_FRAMES: u64 = 2048;

/// An idle time before the checkpoint of a cell with readers, as a part of an interval: one in this many.
const IDLE_PARTS: u32 = 2;

/// Between two looks for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Pages that are read back, of all that were written.
const PAGES_CHECKED: usize = 64;

/// A pool and its files, for one measurement.
#[derive(Debug)]
pub(super) struct Site<'a> {
    settings: &'a Settings,
    bench: &'a Bench<'a>,
    resources: &'a Resources,
    row: &'a mut Samples,
    pool: BufferPool,
    files: Vec<PagedFile>,
    workfiles: Vec<&'a Workfile>,
    random: fastrand::Rng,
    /// The beginning of the pages of the last round, mixed with the block.
    tick: u64,
    closed: bool,
}

impl<'a> Site<'a> {
    /// # Errors
    /// No such pool is available, or the page cache cannot be emptied.
    pub(super) fn new(
        settings: &'a Settings,
        bench: &'a Bench<'a>,
        resources: &'a Resources,
        row: &'a mut Samples,
    ) -> anyhow::Result<Site<'a>> {
        let cell = row.cell;
        let second = resources.second.as_ref().filter(|_| cell.dirty == Dirty::TwoTablespaces);
        let workfiles: Vec<&Workfile> = std::iter::once(bench.workfile).chain(second).collect();
        let mut builder = BufferPool::builder()
            .checksum(Checksum::Off)
            .torn_pages(TornPages::Unprotected)
            .frames(u64::from(settings.dirty_pages()) + SPARE_FRAMES)
            .page_size(PAGE_BYTES)
            .backend(Prefer::Only(cell.backend))
            .cleaner(false);
        for (name, workfile) in ["main", "second"].into_iter().zip(&workfiles) {
            let coldness = emptied(workfile)?;
            if cell.foreground && cell.cache == CacheMode::Buffered {
                row.begins(&coldness);
            }
            let (directory, _) = workfile.named().context("a pool opens its files by name")?;
            builder = builder.tablespace(Tablespace::new(name, directory).cache(cell.cache));
        }
        let pool = builder.build()?;
        let mut files = Vec::new();
        for (tablespace, workfile) in ["main", "second"].into_iter().zip(&workfiles) {
            let (_, name) = workfile.named().context("a pool opens its files by name")?;
            files.push(pool.open_file(name, &FileOptions::new().tablespace(tablespace))?);
        }
        Ok(Site {
            settings,
            bench,
            resources,
            row,
            pool,
            files,
            workfiles,
            random: fastrand::Rng::with_seed(settings.common.seed ^ 0x5eed),
            tick: 0,
            closed: false,
        })
    }

    /// Changes `set` and writes it out, with concurrent readers if the cell has any.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what went wrong.
    pub(super) fn measure(
        &mut self,
        set: &[Place],
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<Round> {
        let (settings, cell) = (self.settings, self.row.cell);
        let (written, readers) = if cell.foreground {
            let demand = Demand::new(settings, set, random);
            // Readers read the clean pages of the first tablespace's file.
            let (pool, file) = (self.pool.clone(), self.files[0].clone());
            let (written, samples) = foreground::with_readers(&pool, &file, &demand, || {
                rest_until(Instant::now() + settings.interval / IDLE_PARTS)?;
                self.changed_and_written(set)
            })?;
            let readers = Readers::new(settings.interval, written.span, &samples);
            (written, Some(readers))
        } else {
            (self.changed_and_written(set)?, None)
        };
        self.check(set)?;
        let by_others = written.report.pages_by_others;
        if by_others > 0 {
            let remark = "pages were written by others than the checkpoint";
            self.row.remarks.push(format!("{by_others} {remark}"));
        }
        Ok(Round::new(settings, cell, &written, readers))
    }

    fn changed_and_written(&mut self, set: &[Place]) -> anyhow::Result<Written> {
        self.change(set)?;
        let (begun, interval) = (Instant::now(), self.settings.interval);
        let written = self.write(match self.row.cell.paced {
            true => CheckpointOptions::spread(interval),
            false => CheckpointOptions::now(),
        })?;
        if self.row.cell.is_timed() {
            rest_until(begun + interval)?;
        }
        Ok(written)
    }

    /// Changes every page of `set`.
    fn change(&mut self, set: &[Place]) -> anyhow::Result<()> {
        self.tick = self.random.u64(..);
        for (index, &(side, block)) in set.iter().enumerate() {
            let mut page = self.files[side].init(block)?;
            self.random.fill(&mut page);
            page[..8].copy_from_slice(&self.stamp(side, block));
            page.mark_dirty(Lsn::NONE);
            if index % 1024 == 0 {
                interrupt::check()?;
            }
        }
        let dirty = self.pool.stats().frames_dirty;
        ensure!(dirty == set.len() as u64, "[SIT-1] {dirty} of {} pages are dirty", set.len());
        Ok(())
    }

    fn stamp(&self, side: usize, block: u32) -> [u8; 8] {
        (self.tick ^ (u64::from(block) << 8) ^ side as u64).to_le_bytes()
    }

    /// Writes out the dirty pages, in the mode of the cell and at the pace of `options`.
    fn write(&self, options: CheckpointOptions) -> anyhow::Result<Written> {
        let cell = self.row.cell;
        let depth = if cell.backend == Kind::Sync { 1 } else { self.settings.depth as usize };
        let options = match cell.elevator {
            Order::Arrival => options.elevator(Elevator::Arrival),
            Order::Sorted => options.elevator(Elevator::Sorted),
            Order::Balanced => options.elevator(Elevator::Balanced),
        };
        let options = options.combine(cell.combine).depth(depth);
        let counters = || self.resources.counters(self.bench, cell.dirty);
        let before = counters();
        let begun = Instant::now();
        let checkpoint = self.pool.start_checkpoint(options)?;
        let report = std::thread::scope(|scope| {
            let report = scope.spawn(|| checkpoint.wait());
            while !report.is_finished() {
                if interrupt::check().is_err() {
                    // Without its pages it has no work left, once it does not rest.
                    self.scrap();
                    checkpoint.hurry();
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            report.join()
        });
        interrupt::check()?;
        let report = report.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let ended = begun + report.total.min(begun.elapsed());
        let device = before.zip(counters()).map(|(before, after)| after.since(&before));
        Ok(Written { report, device, span: (begun, ended) })
    }

    /// Closes the pool and reads some pages of `set` back, past it.
    fn check(&mut self, set: &[Place]) -> anyhow::Result<()> {
        self.closed = true;
        self.pool.close()?;
        for _ in 0..PAGES_CHECKED.min(set.len()) {
            let (side, block) = set[self.random.usize(..set.len())];
            let file = std::fs::File::open(self.workfiles[side].path())?;
            let mut start = [0; 8];
            file.read_exact_at(&mut start, u64::from(block) * PAGE_BYTES)?;
            ensure!(
                start == self.stamp(side, block),
                "[CKP-2] block {block} was written by a checkpoint and has other contents"
            );
        }
        Ok(())
    }

    /// Discards the dirty pages, together with the files.
    fn scrap(&self) {
        for file in &self.files {
            // Dropped already, or it cannot be dropped: an error path has no way to report a second error.
            let _ = file.drop_file();
        }
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.scrap(); // [SIT-2] or the pool would write all of it
        }
    }
}

/// Sleeps, but not past Ctrl-C.
fn rest_until(moment: Instant) -> Result<(), interrupt::Interrupted> {
    while let Some(left) = moment.checked_duration_since(Instant::now()) {
        interrupt::check()?;
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
    interrupt::check()
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;
    use forebay_measure::facts::Storage;
    use forebay_measure::workfile::Naming;

    /// A directory with a working file of 1 MiB, and everything else that a site needs.
    struct WorkfileSpec {
        settings: Settings,
        workfile: Workfile,
        storage: Storage,
        _directory: tempfile::TempDir,
    }

    impl WorkfileSpec {
        fn new() -> WorkfileSpec {
            let directory = tempfile::tempdir_in(".").unwrap();
            let options = "--quick --essential --seed 7 --size 1MiB";
            let mut settings = crate::experiment::typed::<Settings>(options).checked().unwrap();
            directory.path().clone_into(&mut settings.common.dir);
            let path = directory.path();
            let mut workfile =
                Workfile::create(path, 1 << 20, PAGE_BYTES, 7, Naming::Named).unwrap();
            workfile.fill(|_| ()).unwrap();
            let storage = Storage::read(path).unwrap();
            WorkfileSpec { settings, workfile, storage, _directory: directory }
        }

        fn bench(&self) -> Bench<'_> {
            Bench { workfile: &self.workfile, storage: &self.storage, counters: None, on: None }
        }

        fn stamp_on_disk(&self, file: &std::fs::File, block: u32) -> [u8; 8] {
            let mut start = [0; 8];
            file.read_exact_at(&mut start, u64::from(block) * PAGE_BYTES).unwrap();
            start
        }
    }

    fn row() -> Samples {
        Samples::new(Cell {
            dirty: Dirty::Uniform,
            elevator: Order::Balanced,
            combine: true,
            cache: CacheMode::Buffered,
            backend: Kind::Sync,
            paced: false,
            foreground: false,
        })
    }

    /// Two of them are neighbours in the disk's order, none in the order of the frames.
    const SET: [Place; 4] = [(0, 3), (0, 90), (0, 5), (0, 91)];

    #[test]
    fn exactly_the_pages_of_the_set_are_dirty_and_written() {
        let workfile_spec = WorkfileSpec::new();
        let bench = workfile_spec.bench();
        let resources = Resources::probe(&workfile_spec.settings, &bench).unwrap();
        let mut row = row();
        let mut site = Site::new(&workfile_spec.settings, &bench, &resources, &mut row).unwrap();
        site.change(&SET).unwrap();
        assert_eq!(site.pool.stats().frames_dirty, 4, "[SIT-1]");
        let taken = site.write(CheckpointOptions::now()).unwrap();
        assert_eq!((taken.report.pages, taken.report.requests), (4, 3), "90 and 91 together");
        site.check(&SET).unwrap();
        let file = std::fs::File::open(workfile_spec.workfile.path()).unwrap();
        assert_eq!(workfile_spec.stamp_on_disk(&file, 3), site.stamp(0, 3));
        assert_eq!(
            workfile_spec.stamp_on_disk(&file, 4),
            workfile_spec.workfile.stamp(4),
            "left alone"
        );
    }

    #[test]
    fn each_write_mode_is_the_one_that_the_cell_names() {
        for (elevator, combine, requests) in [
            (Order::Arrival, true, 4),
            (Order::Sorted, true, 3),
            (Order::Balanced, true, 3),
            (Order::Balanced, false, 4),
        ] {
            let workfile_spec = WorkfileSpec::new();
            let bench = workfile_spec.bench();
            let resources = Resources::probe(&workfile_spec.settings, &bench).unwrap();
            let mut row = row();
            (row.cell.elevator, row.cell.combine) = (elevator, combine);
            let mut site =
                Site::new(&workfile_spec.settings, &bench, &resources, &mut row).unwrap();
            let report = site.changed_and_written(&SET).unwrap().report;
            assert_eq!((report.requests, report.elevator), (requests, &*elevator.to_string()));
            let round = site.measure(&SET, &mut fastrand::Rng::with_seed(1)).unwrap();
            assert_eq!(round.requests, requests, "{}", site.row.cell.label());
        }
    }

    #[test]
    fn a_page_that_did_not_reach_the_disk_is_found_out() {
        let workfile_spec = WorkfileSpec::new();
        let bench = workfile_spec.bench();
        let resources = Resources::probe(&workfile_spec.settings, &bench).unwrap();
        let mut row = row();
        let mut site = Site::new(&workfile_spec.settings, &bench, &resources, &mut row).unwrap();
        site.change(&SET).unwrap();
        site.write(CheckpointOptions::now()).unwrap();
        let file =
            std::fs::OpenOptions::new().write(true).open(workfile_spec.workfile.path()).unwrap();
        for (_, block) in SET {
            file.write_all_at(&workfile_spec.workfile.stamp(1), u64::from(block) * PAGE_BYTES)
                .unwrap();
        }
        let error = site.check(&SET).unwrap_err();
        assert!(error.to_string().contains("[CKP-2]"), "{error}");
    }

    #[test]
    fn a_site_that_ends_early_writes_nothing_more() {
        let workfile_spec = WorkfileSpec::new();
        let bench = workfile_spec.bench();
        let resources = Resources::probe(&workfile_spec.settings, &bench).unwrap();
        let file = std::fs::File::open(workfile_spec.workfile.path()).unwrap();
        let mut row = row();
        let mut site = Site::new(&workfile_spec.settings, &bench, &resources, &mut row).unwrap();
        site.change(&SET).unwrap();
        drop(site);
        // A file that is dropped is cut off before it loses its name, and stays so unless something is written.
        assert_eq!(file.metadata().unwrap().len(), 0, "[SIT-2]");
        assert!(!workfile_spec.workfile.path().exists(), "[SIT-2] it went with what was in it");
    }
}
