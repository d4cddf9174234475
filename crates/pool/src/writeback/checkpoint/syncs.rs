//! The syncs of a checkpoint: every file that was changed since its last sync, once.
//!
//! This includes files of which this checkpoint has written nothing: the cleaner may have, or a thread that needed a
//! frame, or the file was extended. Each tablespace syncs one file after the other, the tablespaces in parallel. Where
//! the checkpoint is paced, so are its syncs: each is followed by a rest of the same length, if the remaining time
//! allows it, because a sync disturbs the disk's other users most.
//!
//! Invariants:  [CKS-1] a file counts as synced only when a sync has succeeded that was submitted after the write
//! Failure:     a failed sync latches its tablespace ([TBS-1](crate::tablespace)).

use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{InFlight, Syncing, UnderWay};
use super::tablespace_state::TablespaceState;
use crate::cache::Disk as _;
use crate::core::Core;
use crate::core::checkpoint::RequestQueue;
use crate::error::Error;
use crate::observe::stats::{PoolEvent, Wait};
use crate::store::file::FileCore;

/// Statistics of the syncs of one checkpoint.
#[derive(Debug, Default)]
pub(super) struct SyncTimes {
    pub(super) files: u32,
    pub(super) longest: Duration,
    pub(super) sum: Duration,
}

pub(super) struct Syncs<'s, 'c> {
    pub(super) core: &'c Core,
    pub(super) in_flight: &'s mut InFlight<'c>,
    pub(super) tablespaces: &'s mut [TablespaceState],
    /// When the checkpoint started.
    pub(super) started: Duration,
    /// When it should have ended, if it is paced.
    pub(super) due: Option<Duration>,
    pub(super) times: SyncTimes,
}

impl Syncs<'_, '_> {
    pub(super) fn run(&mut self, checkpoints: &RequestQueue) {
        loop {
            for tablespace in 0..self.tablespaces.len() {
                self.go_on(tablespace);
            }
            self.in_flight.start();
            if self.in_flight.is_empty() {
                if self
                    .tablespaces
                    .iter()
                    .all(|tablespace| tablespace.all_synced || tablespace.is_lost())
                {
                    return;
                }
                continue;
            }
            self.core.waiting(Wait::Sync, || self.in_flight.wait());
            let before = self.times.sum;
            while let Some((ended, result)) = self.in_flight.take_ended() {
                if let UnderWay::Sync { tablespace } = ended {
                    self.ended(tablespace, result, checkpoints);
                }
            }
            self.rest(self.times.sum.saturating_sub(before), checkpoints);
        }
    }

    /// Submits the sync of the tablespace's next file, if none is in progress.
    fn go_on(&mut self, number: usize) {
        if self.tablespaces[number].syncing.is_none() {
            self.begin_next(number);
        }
        let Some(syncing) = &mut self.tablespaces[number].syncing else { return };
        if !syncing.submitted && self.in_flight.has_room(number, 0) {
            syncing.submitted = true;
            self.in_flight.stage_sync(number, &syncing.file.on_disk());
        }
    }

    /// Finds the next file of a tablespace that has to be synced.
    fn begin_next(&mut self, number: usize) {
        let tablespace = &mut self.tablespaces[number];
        let space = &self.core.spaces[number];
        let here = |file: &FileCore| Arc::ptr_eq(&file.space, space) && !file.is_read_only();
        while !tablespace.all_synced && !tablespace.is_lost() {
            let Some(file) = self.core.files.next_after(tablespace.synced_to, here) else {
                tablespace.all_synced = true;
                return;
            };
            tablespace.synced_to = Some(file.id);
            if let Err(error) = space.check_sound() {
                tablespace.failed(error);
                return;
            }
            #[cfg(forebay_bug)]
            if forebay_io::bug::is_planted("skip_sync") {
                continue;
            }
            // After the redo point the log would not record the truncation ([LEN-2]): this includes a truncation in
            // progress.
            file.wait_resized();
            if let Err(error) = file.settle_length()
                && !matches!(error, Error::Invalidated { .. })
            {
                tablespace.failed(error);
                continue;
            }
            // [CKS-1]
            if let Some(changes) = file.unsynced() {
                let started = self.core.clock.now();
                tablespace.syncing = Some(Syncing { file, changes, submitted: false, started });
                return;
            }
        }
    }

    /// A file's sync has ended.
    fn ended(
        &mut self,
        number: usize,
        result: Result<(), forebay_io::Error>,
        checkpoints: &RequestQueue,
    ) {
        let tablespace = &mut self.tablespaces[number];
        self.core.counters.count_pool(PoolEvent::Syncs);
        let Some(syncing) = tablespace.syncing.take() else { return };
        let now = self.core.clock.now();
        match result {
            Ok(()) => {
                let took = now.saturating_sub(syncing.started);
                syncing.file.synced(syncing.changes);
                self.times.files += 1;
                self.times.sum += took;
                self.times.longest = self.times.longest.max(took);
                checkpoints.synced_one();
            }
            Err(error) => {
                self.core.counters.count_pool(PoolEvent::SyncErrors);
                // A file that was dropped meanwhile has nothing left to lose, but a failed sync of it reports on the
                // device anyway.
                let error = self.core.spaces[number].sync_failed(error);
                tablespace.failed(error);
            }
        }
        tablespace.report.ended = now.saturating_sub(self.started);
    }

    /// Leaves the disk idle for the time that it was just kept busy, if there is time.
    fn rest(&self, busy: Duration, checkpoints: &RequestQueue) {
        let (Some(due), true) = (self.due, self.in_flight.is_empty()) else { return };
        let now = self.core.clock.now();
        let left = due.saturating_sub(now);
        if !busy.is_zero()
            && !left.is_zero()
            && self.tablespaces.iter().any(|tablespace| !tablespace.all_synced)
        {
            checkpoints.rest(now + busy.min(left / 4));
        }
    }
}
