//! A record, played: into the account go what was done by and by, as if it happened now.

use std::path::Path;

use super::access::Access;
use super::account::Account;
use super::legend::Legend;
use super::record::Record;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) record: Record,
    /// Not played yet, of the piece at hand; the next comes last.
    waiting: Vec<(u64, Access)>,
    /// At the end of the piece at hand.
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

    /// Plays what was done until `until_ns` after the begin.
    ///
    /// # Errors
    /// As [`Record::next`].
    pub(super) fn play(
        &mut self,
        until_ns: u64,
        account: &mut Account,
        legend: &mut Legend,
    ) -> anyhow::Result<()> {
        loop {
            while let Some((_, access)) = self.waiting.pop_if(|(at_ns, _)| *at_ns <= until_ns) {
                account.access(&access);
            }
            if !self.waiting.is_empty() {
                break;
            }
            let Some(piece) = self.record.next()? else { break };
            self.waiting.extend(piece.accesses());
            self.waiting.reverse();
            self.processes = piece.legend().processes;
        }
        legend.processes = self.processes;
        Ok(())
    }
}
