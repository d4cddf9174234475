//! Evicts the pages that queries read before each of them runs: from the server's buffers, if it supports that, and
//! from the page cache.

use std::path::PathBuf;

use forebay_io::{Advice as Hint, File, OpenOptions};

use super::prove::{CACHED, Site};
use super::server::Table;
use forebay_measure::report::numbers;

impl Site<'_> {
    /// Whether the pages of `table` can be evicted from the page cache and from the server's buffers. A table of four
    /// times the size of the buffers needs no eviction there: its own reads soon displace its pages.
    pub(super) fn forgets(&self, table: &Table) -> bool {
        let buffers = self.server.setting("shared_buffers");
        let buffers = buffers.and_then(|it| it.value.parse::<u64>().ok());
        let is_forgotten =
            self.server.evicts_by.is_some() || buffers.is_some_and(|it| it * 4 <= table.blocks);
        self.drop_caches && is_forgotten && !self.segments(table.file.as_ref()).is_empty()
    }

    /// Evicts the pages of `table` and its index, or of all known tables for a query of the user: from the server's
    /// buffers, where it supports that, and from the page cache.
    pub(super) fn forget(&mut self, table: Option<&Table>) -> anyhow::Result<()> {
        let server = self.server;
        let tables: Vec<&Table> =
            table.map_or_else(|| server.tables.iter().collect(), |table| vec![table]);
        for table in tables {
            let indexes = table.index.iter().map(|index| (index.oid, &index.file));
            for (oid, file) in [(table.oid, &table.file)].into_iter().chain(indexes) {
                if let Some(evict) = self.evict(oid) {
                    self.connection.rows(&evict)?;
                }
                let segments = self.segments(file.as_ref());
                if segments.is_empty() {
                    self.remark(
                        "not cold: the server's files cannot be read, so the kernel's pages of them stay."
                            .to_owned(),
                    );
                }
                for path in segments {
                    let forgotten = File::open(&path, &OpenOptions::new().read_only(true))
                        .and_then(|file| file.advise(0..u64::MAX, Hint::DontNeed));
                    if let Err(error) = forgotten {
                        self.remark(format!("not cold: {error}."));
                    }
                }
            }
        }
        Ok(())
    }

    /// SQL that evicts a relation's pages from the server's buffers, where it supports that.
    fn evict(&self, oid: u32) -> Option<String> {
        let by = self.server.evicts_by.as_ref()?;
        Some(match self.server.major {
            18.. => format!("select {by}.pg_buffercache_evict_relation({oid}::regclass)"),
            _ => format!(
                "select count({by}.pg_buffercache_evict(bufferid)) from {by}.pg_buffercache \
                 where relfilenode = pg_relation_filenode({oid}) \
                 and reldatabase = (select oid from pg_database where datname = current_database())"
            ),
        })
    }

    /// The segment files of a relation; `file` is the first one, relative to the data directory.
    fn segments(&self, file: Option<&PathBuf>) -> Vec<PathBuf> {
        let directory = self.server.data_directory.as_ref().filter(|_| self.server.local);
        let Some((directory, file)) = directory.zip(file) else { return Vec::new() };
        let first = directory.join(file);
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", first.display()));
        std::iter::once(first.clone())
            .chain((1..).map(numbered))
            .take_while(|path| path.exists())
            .collect()
    }

    /// Reports if much of `table` stays in the page cache, because its reads then do not wait for a disk.
    pub(super) fn report_if_cached(&mut self, table: &Table) {
        let segments =
            if self.drop_caches { Vec::new() } else { self.segments(table.file.as_ref()) };
        let cached = |path: &PathBuf| {
            let file = File::open(path, &OpenOptions::new().read_only(true)).ok()?;
            let found = file.residency(0..u64::MAX).ok()?;
            Some((found.pages_resident, found.pages))
        };
        let sums =
            segments.iter().filter_map(cached).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let share = sums.0 as f64 / sums.1.max(1) as f64;
        if share > CACHED {
            self.from_memory = true;
            self.remark(format!(
                "{} % of {} is in the kernel's page cache, so this measures memory and not the disk; --drop-caches \
                 evicts it.",
                numbers::percent(share),
                table.name
            ));
        }
    }
}
