//! The state of a tablespace in a checkpoint: its progress, its errors, and writeback for its kernel.

use std::ops::Range;
use std::time::Duration;

use forebay_io::{CacheMode, File};

use super::in_flight::Syncing;
use crate::error::Error;
use crate::observe::checkpoint_report::TablespaceReport;
use crate::tag::FileId;

/// Failed writes after which nothing more is tried: a removed device may take seconds for each.
const FAILURES_MAX: u32 = 16;

/// Bytes written to a buffered file before the kernel is asked to write them to the device: enough for requests of the
/// largest size, little enough that the sync at the end finds almost nothing. Source: PostgreSQL's
/// checkpoint_flush_after, 256 KiB; ours is larger because runs overlap in flight.
const WRITEBACK_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct TablespaceState {
    pub(super) report: TablespaceReport,
    /// The first error here.
    pub(super) error: Option<Error>,
    failures: u32,
    /// A part of a file that was written and not passed to the kernel's writeback yet.
    written: Option<(File, Range<u64>)>,
    buffered: bool,
    /// The file last checked for a sync.
    pub(super) synced_to: Option<FileId>,
    pub(super) syncing: Option<Syncing>,
    pub(super) all_synced: bool,
}

impl TablespaceState {
    pub(super) fn new(report: TablespaceReport, cache: CacheMode) -> TablespaceState {
        TablespaceState {
            report,
            error: None,
            failures: 0,
            written: None,
            buffered: cache == CacheMode::Buffered,
            synced_to: None,
            syncing: None,
            all_synced: false,
        }
    }

    /// True if nothing more is written here.
    pub(super) fn is_lost(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    pub(super) fn failed(&mut self, error: Error) {
        // Latched: no write in this tablespace can succeed any more.
        let last = matches!(error, Error::Failed { .. });
        self.failures = if last { FAILURES_MAX } else { self.failures + 1 };
        tracing::warn!(tablespace = %self.report.name, %error, "a checkpoint cannot write");
        self.error.get_or_insert(error);
    }

    /// `range` of `on_disk` has been written, at the checkpoint's `now`.
    pub(super) fn wrote(&mut self, pages: usize, on_disk: &File, range: Range<u64>, now: Duration) {
        self.report.pages += pages as u64;
        self.report.requests += 1;
        self.report.bytes += range.end - range.start;
        self.report.writes_ended = now;
        if !self.buffered {
            return;
        }
        match &mut self.written {
            Some((file, written))
                if file.is_of(on_disk)
                    && range.start <= written.end + WRITEBACK_BYTES
                    && written.start <= range.end + WRITEBACK_BYTES =>
            {
                *written = written.start.min(range.start)..written.end.max(range.end);
                if written.end - written.start >= WRITEBACK_BYTES {
                    self.start_writeback();
                }
            }
            _ => {
                self.start_writeback();
                self.written = Some((on_disk.clone(), range));
            }
        }
    }

    /// Makes the kernel begin to write what it was given; the sync then finds it written.
    pub(super) fn start_writeback(&mut self) {
        let Some((file, range)) = self.written.take() else { return };
        match file.start_writeback(range) {
            Ok(()) => {}
            Err(forebay_io::Error::Unsupported { .. }) => self.buffered = false,
            // The sync reports the error.
            Err(error) => tracing::warn!(%error, "writeback could not be started"),
        }
    }
}
