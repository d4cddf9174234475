//! Staging pages into the double-write file: room is reserved, groups are written, the file is synced.

use std::sync::{Arc, PoisonError};

use forebay_io::{Completed, Op, Request};

use super::format::{Entry, GroupHeader};
use super::ring::{Groups, Obstacle, Table};
use super::{DoubleWrite, GroupWriter, Slot, ended, execute, wait};
use crate::error::Error;
use crate::observe::stats::{PoolEvent, Wait};
use crate::store::checksum::Checksum;
use crate::store::file::FileCore;
use crate::store::tablespace::Space;
use crate::store::torn::protect::Waiting;
use crate::store::{PageCopy, Store};

impl DoubleWrite {
    /// Stores copies of pages of one file here and assigns a slot to each; adds their groups to `staged`, which
    /// [`DoubleWrite::make_durable`] makes durable together. False when there is no room and the caller must not wait
    /// for it.
    ///
    /// # Errors
    /// The error of a write, or of the sync of a file to make room; [`Error::Unprotected`].
    pub(in crate::store::torn) fn stage(
        &self,
        store: &Store,
        file: &FileCore,
        copies: &mut [PageCopy<'_>],
        waiting: Waiting,
        staged: &mut Groups,
    ) -> Result<bool, Error> {
        let Some((reserved, table)) = self.reserve(store, file, copies, waiting)? else {
            return Ok(false);
        };
        store.waiting(Wait::Write, || self.write(file, copies, reserved.groups, &table))?;
        let groups = reserved.into_groups();
        for (group, copies) in groups.iter().zip(copies.chunks_mut(self.group_pages())) {
            for (slot, copy) in (0..).zip(copies) {
                copy.put_in_slot(Slot { group: group as u8, slot });
            }
        }
        staged.add(groups);
        Ok(true)
    }

    /// Makes durable what has been written to these groups.
    ///
    /// # Errors
    /// [`Error::Failed`]: the tablespace has failed.
    pub(in crate::store::torn) fn make_durable(
        &self,
        store: &Store,
        space: &Space,
        groups: Groups,
    ) -> Result<(), Error> {
        if groups.count() > 0 {
            store.waiting(Wait::Sync, || self.sync(space))?;
            self.state().ring.protected(groups);
        }
        Ok(())
    }

    /// Takes groups for a batch, syncing files while there are none. Returns them, and the table for their headers.
    fn reserve(
        &self,
        store: &Store,
        file: &FileCore,
        copies: &[PageCopy<'_>],
        waiting: Waiting,
    ) -> Result<Option<(Reserved<'_>, Table)>, Error> {
        let Some(_turn) = self.turn(waiting) else {
            return Ok(None);
        };
        loop {
            let mut state = self.state();
            let obstacle = loop {
                let blocks = copies.iter().map(PageCopy::block);
                match state.ring.take(file.id, blocks) {
                    Ok(groups) => {
                        let table = state.ring.table();
                        return Ok(Some((Reserved { of: self, groups }, table)));
                    }
                    Err(Obstacle::Writes) if waiting == Waiting::ForWrites => {
                        state = wait(&self.changed, state);
                    }
                    Err(obstacle) => break obstacle,
                }
            };
            let pages = state.ring.failed_pages();
            drop(state);
            match obstacle {
                Obstacle::Sync(id) => match store.files.get(id) {
                    Some(file) => store.waiting(Wait::Sync, || self.sync_file(store, &file))?,
                    None => self.forget(id),
                },
                Obstacle::Writes => return Ok(None),
                Obstacle::Failures => {
                    let tablespace = Arc::clone(&file.space.name);
                    return Err(Error::Unprotected { tablespace, pages });
                }
            }
        }
    }

    /// Syncs a file to make room, as the only thread that does: it has the turn. As `Core::sync_file`, but without
    /// allocating memory.
    fn sync_file(&self, store: &Store, file: &FileCore) -> Result<(), Error> {
        file.space.check_sound()?;
        let changes = file.changes();
        let place = || self.room_batch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = place().take().expect("[DWR-1] one thread makes room at a time");
        store.counters.count_pool(PoolEvent::Syncs);
        let done = execute(&mut batch, Request::sync_data(&file.on_disk()));
        *place() = Some(batch);
        if let Err(error) = done.result {
            store.counters.count_pool(PoolEvent::SyncErrors);
            return Err(file.space.sync_failed(error));
        }
        file.synced(changes);
        Ok(())
    }

    /// Waits for the right to take groups. `None` when other threads are first and the caller must not wait.
    fn turn(&self, waiting: Waiting) -> Option<Turn<'_>> {
        let mut state = self.state();
        let mine = state.turn_next;
        if state.turn_now != mine && waiting == Waiting::Never {
            return None;
        }
        state.turn_next += 1;
        while state.turn_now != mine {
            state = wait(&self.changed, state);
        }
        Some(Turn(self))
    }

    /// Writes each group's header and pages in one request.
    fn write(
        &self,
        file: &FileCore,
        copies: &mut [PageCopy<'_>],
        groups: Groups,
        table: &Table,
    ) -> Result<(), Error> {
        for (group, copies) in groups.iter().zip(copies.chunks_mut(self.group_pages())) {
            let mut writer = self.writer(group);
            let request = self.request(file, copies, group, table, &mut writer);
            writer.batch.stage(request);
            writer.batch.start();
            self.put_back(group, writer);
        }
        let mut result = Ok(());
        for (group, copies) in groups.iter().zip(copies.chunks_mut(self.group_pages())) {
            let mut writer = self.writer(group);
            let Completed { mut leases, result: written } = ended(&mut writer.batch);
            for (copy, lease) in copies.iter_mut().zip(leases.drain(1..)) {
                copy.give_back(lease);
            }
            writer.header = leases.pop();
            writer.leases = leases;
            self.put_back(group, writer);
            let written = written.map_err(|error| file.space.failure(Op::Write, error));
            result = result.and(written);
        }
        result
    }

    fn request(
        &self,
        file: &FileCore,
        copies: &mut [PageCopy<'_>],
        group: usize,
        table: &Table,
        writer: &mut GroupWriter,
    ) -> Request {
        let Checksum::Crc32c { offset } = file.checksum else {
            panic!("[DBW-1] a page without a checksum cannot be distinguished from a torn one");
        };
        let it = GroupHeader {
            group: group as u32,
            number: table.0[group].0,
            checksum_offset: offset as u32,
            segment_bytes: 0,
            table: *table,
            name: &*file.name,
        };
        let entries = copies.iter().map(|copy| {
            let sum = *copy.bytes()[offset..].first_chunk().expect("[CHK-1] checked at opening");
            Entry { block: copy.block(), sum: u32::from_le_bytes(sum) }
        });
        let mut header = writer.header.take().expect("[DWR-1] a group has one user");
        it.encode(entries, &mut header);
        let mut leases = std::mem::take(&mut writer.leases);
        leases.push(header);
        leases.extend(copies.iter_mut().map(PageCopy::lend));
        Request::write(&self.file, self.head.group_offset(group), leases)
    }

    /// Returns when a sync that started after this thread's writes has succeeded: its own or another's.
    fn sync(&self, space: &Space) -> Result<(), Error> {
        let mut state = self.state();
        state.written += 1;
        let mine = state.written;
        while state.synced < mine {
            if state.syncing {
                state = wait(&self.changed, state);
                continue;
            }
            state.syncing = true;
            let covered = state.written;
            drop(state);
            let done = self.sync_now();
            state = self.state();
            let alone = std::mem::take(&mut state.syncing);
            assert!(alone, "[DBW-2] two threads sync the double-write file at once");
            self.changed.notify_all();
            match done {
                Ok(()) => state.synced = state.synced.max(covered),
                Err(error) => return Err(space.sync_failed(error)),
            }
        }
        Ok(())
    }
}

/// Groups that are taken and whose pages are not durable in them yet; returned when dropped.
struct Reserved<'a> {
    of: &'a DoubleWrite,
    groups: Groups,
}

impl Reserved<'_> {
    fn into_groups(self) -> Groups {
        let groups = self.groups;
        std::mem::forget(self);
        groups
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        // After a panic the kernel may still be writing there: then the groups must not be reused.
        let lost = std::thread::panicking();
        self.of
            .change(|ring| if lost { ring.lose(self.groups) } else { ring.release(self.groups) });
    }
}

/// The right to take groups.
struct Turn<'a>(&'a DoubleWrite);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().turn_now += 1;
        self.0.changed.notify_all();
    }
}
