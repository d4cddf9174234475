//! Replay: feeds a record's accesses to the statistics step by step, as if they happened now.

use std::path::Path;

use super::access::Access;
use super::file_table::FileTable;
use super::record::Record;
use super::stats::Stats;

/// A longer time without accesses may be skipped.
const IDLE_NS: u64 = 60_000_000_000;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) record: Record,
    /// Accesses of the current piece that were not replayed yet, in reverse order.
    waiting: Vec<(u64, Access)>,
    /// Number of processes at the end of the current piece.
    processes: usize,
}

impl Player {
    /// Opens the record at `path`.
    ///
    /// # Errors
    /// As [`Record::open`].
    pub(super) fn open(path: &Path) -> anyhow::Result<Player> {
        Ok(Player { record: Record::open(path)?, waiting: Vec::new(), processes: 0 })
    }

    /// Replays the accesses up to `until_ns` after the start.
    ///
    /// # Errors
    /// As [`Record::next`].
    pub(super) fn advance_to(
        &mut self,
        until_ns: u64,
        stats: &mut Stats,
        file_table: &mut FileTable,
    ) -> anyhow::Result<()> {
        while self.next_ns()?.is_some_and(|at_ns| at_ns <= until_ns) {
            self.waiting.pop().iter().for_each(|(_, access)| stats.access(access));
        }
        file_table.processes = self.processes;
        Ok(())
    }

    /// The time of the next update after `from_ns`: a step later, or the end of the record. With `skips`, long times
    /// without accesses take one update, as they may last for years.
    ///
    /// # Errors
    /// As [`Record::next`].
    pub(super) fn shown_next(
        &mut self,
        from_ns: u64,
        step_ns: u64,
        skips: bool,
    ) -> anyhow::Result<u64> {
        let until_ns = self.record.until_ns;
        let idle_ns = self.next_ns()?.unwrap_or(until_ns).saturating_sub(from_ns);
        let skipped_ns = if skips && idle_ns > IDLE_NS { idle_ns / step_ns * step_ns } else { 0 };
        Ok(from_ns.saturating_add(skipped_ns.max(step_ns)).min(until_ns))
    }

    /// The time of the next access; `None` after the last.
    ///
    /// # Errors
    /// As [`Record::next`].
    fn next_ns(&mut self) -> anyhow::Result<Option<u64>> {
        while self.waiting.is_empty() {
            let Some(piece) = self.record.next()? else { return Ok(None) };
            self.waiting.extend(piece.accesses());
            self.waiting.reverse();
            self.processes = piece.file_table().processes;
        }
        Ok(self.waiting.last().map(|&(at_ns, _)| at_ns))
    }
}
