//! Double write: a copy of each page in a separate file before the page is written in place.
//!
//! A power cut in the middle of a write leaves a page half new and half old. So every batch of pages is first written
//! to `forebay.doublewrite`, in one large write for each group, and synced there; only then is it written in place. At
//! any time one of the two is intact. When the tablespace is opened, before any of its files is, [`recover`] checks
//! each page that has a live slot, and repairs it from there if it fails its checksum.
//!
//! | step | module |
//! |---|---|
//! | groups are taken, in turn; if the ring is full, files are synced until there is room | `stage` |
//! | header and pages are written, directly from the write buffers | `stage` |
//! | the file is synced; threads that arrive meanwhile share the next sync | `stage` |
//! | the pages are written in place; the end of each is reported to its [`Slot`] | `write/out` |
//! | their file is synced, by any thread: the slots are free | [`ring`] |
//!
//! A thread that waits here for room waits for other threads' writes in place, so it must have none in
//! progress: such a thread calls with `Waiting::Never`.
//!
//! Invariants:  [DBW-1] no page is written in place before its copy is durable
//!              [DBW-2] one thread at a time syncs the file; the others wait for it, or for the next
//! Concurrency: any thread. No lock is held across I/O; the right to sync and the turn for room are.
//! Failure:     the batch's pages stay dirty. A failed sync fails the tablespace, as everywhere.
//! Memory:      64 headers, lists of slots: about 300 KiB per tablespace, reserved when it is opened.
//! Source:      InnoDB's doublewrite buffer; live tables instead of a fixed order are ours.

mod format;
mod recover;
mod ring;
mod stage;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use forebay_io::{Arena, Batch, Completed, File, Lease, OpenOptions, Preallocate, Request};

use super::opening::Opening;
use crate::error::Error;
use crate::tag::{Block, FileId};
use format::{HEADER_BYTES, Head};
use ring::{GROUP_PAGES_MAX, GROUPS, GroupRing};

pub(super) use format::NAME_BYTES_MAX;
pub(super) use recover::{Recovered, recover};
pub(super) use ring::Groups;

/// The name of the file in the tablespace's directory.
pub(crate) const NAME: &str = "forebay.doublewrite";

/// Slots per write buffer: a batch takes at most half of the buffers, so several fit.
const SLOTS_PER_BUFFER: usize = 4;

/// A tablespace's double-write file in use.
pub(crate) struct DoubleWrite {
    file: File,
    head: Head,
    state: Mutex<State>,
    /// Signalled when something about the ring, a turn or a sync has changed.
    changed: Condvar,
    /// Taken by the thread that has the group.
    writers: Box<[Mutex<Option<GroupWriter>>]>,
    /// Taken by the thread that syncs.
    sync_batch: Mutex<Option<Batch>>,
    /// Taken by the thread that makes room.
    room_batch: Mutex<Option<Batch>>,
}

struct State {
    ring: GroupRing,
    /// Threads take groups in the order of arrival.
    turn_next: u64,
    turn_now: u64,
    /// Batches written to the file so far, and how many of those a sync has made durable.
    written: u64,
    synced: u64,
    syncing: bool,
}

/// The resources for a group's write, reserved in advance.
struct GroupWriter {
    /// `None` while the write is in progress.
    header: Option<Lease>,
    leases: Vec<Lease>,
    batch: Batch,
}

/// The place of a page's copy, from when it is durable until the write in place has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    group: u8,
    slot: u8,
}

impl DoubleWrite {
    /// Creates the file, or continues with the one that [`recover`] has emptied.
    ///
    /// # Errors
    /// [`Error::Io`] with the filesystem's error.
    pub(super) fn open(opening: &Opening<'_>, recovered: &Recovered) -> Result<DoubleWrite, Error> {
        let slots = opening.write_buffers * SLOTS_PER_BUFFER;
        let group_pages = slots.div_ceil(GROUPS).clamp(1, GROUP_PAGES_MAX);
        let mut head = Head {
            page_bytes: opening.page_bytes as u32,
            header_bytes: HEADER_BYTES as u32,
            group_pages: group_pages as u32,
            first_number: 0,
        };
        let file = match recovered.reused(&mut head) {
            Some(file) => file,
            None => {
                recovered.remove(opening)?;
                make(opening, &mut head)?
            }
        };
        let headers = Arena::new(GROUPS, head.header_bytes as usize)?;
        let leases = headers.take_many(GROUPS).expect("all slots of a new arena are free");
        let writer = |header| GroupWriter {
            header: Some(header),
            leases: Vec::with_capacity(1 + group_pages),
            batch: opening.queue.batch(1),
        };
        let it = DoubleWrite {
            file,
            head,
            state: Mutex::new(State {
                ring: GroupRing::new(group_pages, recovered.next_number),
                turn_next: 0,
                turn_now: 0,
                written: 0,
                synced: 0,
                syncing: false,
            }),
            changed: Condvar::new(),
            writers: leases.into_iter().map(|header| Mutex::new(Some(writer(header)))).collect(),
            sync_batch: Mutex::new(Some(opening.sync_io.batch(1))),
            room_batch: Mutex::new(Some(opening.sync_io.batch(1))),
        };
        it.write_head(recovered.next_number)?;
        Ok(it)
    }

    /// The pool is closed, and no thread uses this any more: records that in the file, if every page is durable in its
    /// own file. Whatever happens to the files until they are opened again, they are not repaired from here.
    pub(super) fn rest(&self) -> Result<(), Error> {
        let (empty, next_number) = {
            let state = self.state();
            (state.ring.is_empty(), state.ring.next_number())
        };
        if empty { self.write_head(next_number) } else { Ok(()) }
    }

    /// Writes the head and syncs it: from then on groups with smaller numbers hold nothing.
    fn write_head(&self, first_number: u64) -> Result<(), Error> {
        let mut writer = self.writer(0);
        let mut header = writer.header.take().expect("nothing is written");
        Head { first_number, ..self.head }.encode(&mut header);
        writer.leases.push(header);
        let leases = std::mem::take(&mut writer.leases);
        let done = execute(&mut writer.batch, Request::write(&self.file, 0, leases));
        writer.leases = done.leases;
        writer.header = writer.leases.pop();
        self.put_back(0, writer);
        done.result?;
        Ok(self.sync_now()?)
    }

    /// The write in place of the page in `slot` has ended, when its file had `changes` changes.
    pub(super) fn slot_ended(&self, slot: Slot, changes: u64, written: bool) {
        let Slot { group, slot } = slot;
        self.change(|ring| ring.ended(group.into(), slot.into(), written, changes));
    }

    /// Syncs the file, as the only thread that does ([DBW-2]).
    fn sync_now(&self) -> Result<(), forebay_io::Error> {
        let batch = || self.sync_batch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mine = batch().take().expect("[DBW-2] one thread syncs at a time");
        let done = execute(&mut mine, Request::sync_data(&self.file));
        *batch() = Some(mine);
        done.result
    }

    /// A sync of `file` has succeeded that was submitted after `changes` changes of it.
    pub(super) fn synced(&self, file: FileId, changes: u64) {
        self.change(|ring| ring.synced(file, changes));
    }

    pub(super) fn awaits_sync(&self, file: FileId) -> bool {
        self.state().ring.awaits_sync(file)
    }

    /// The file is closed, durably, or removed.
    pub(super) fn forget(&self, file: FileId) {
        self.change(|ring| ring.forget(file));
    }

    pub(super) fn truncated(&self, file: FileId, blocks: Block, changes: u64) {
        self.change(|ring| ring.truncated(file, blocks, changes));
    }

    fn change(&self, change: impl FnOnce(&mut GroupRing)) {
        change(&mut self.state().ring);
        self.changed.notify_all();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let each = self.head.header_bytes as usize
            + (1 + self.group_pages()) * size_of::<Lease>()
            + size_of::<Mutex<Option<GroupWriter>>>();
        size_of::<DoubleWrite>() + GroupRing::MEMORY_BYTES + GROUPS * each
    }

    fn group_pages(&self) -> usize {
        self.head.group_pages as usize
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Only violated invariants panic under the lock, and the next thread detects them too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self, group: usize) -> GroupWriter {
        let mut writer = self.writers[group].lock().unwrap_or_else(PoisonError::into_inner);
        writer.take().expect("[DWR-1] a group has one user")
    }

    fn put_back(&self, group: usize, writer: GroupWriter) {
        *self.writers[group].lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }
}

fn wait<'a>(changed: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Executes one request of a batch that has no others.
fn execute(batch: &mut Batch, request: Request) -> Completed {
    batch.stage(request);
    batch.start();
    ended(batch)
}

/// The end of the one request of a batch.
fn ended(batch: &mut Batch) -> Completed {
    loop {
        if let Some((_, done)) = batch.take_ended() {
            return done;
        }
        batch.wait();
    }
}

/// Creates the file with the size that `head` specifies, all zero, and makes its name durable.
fn make(opening: &Opening<'_>, head: &mut Head) -> Result<File, Error> {
    let Opening { volume, directory, cache, .. } = *opening;
    let path = directory.join(NAME);
    let file = volume.open(&path, &OpenOptions::new().create_new(true).cache(cache))?;
    head.header_bytes = head.header_bytes.max(file.alignment().offset);
    let made = match file.preallocate(0..head.file_bytes(), Preallocate::Extend) {
        // No space can be reserved here, so a full disk shows at the first write.
        Err(forebay_io::Error::Unsupported { .. }) => file.set_len(head.file_bytes()),
        made => made,
    };
    let made = made.and_then(|()| file.sync_all()).and_then(|()| volume.sync_directory(directory));
    if let Err(error) = made {
        // It is of no use, and would only take up scarce space.
        let removed = volume.remove(&path);
        tracing::debug!(?removed, "removed a double-write file that could not be made");
        return Err(error.into());
    }
    Ok(file)
}

impl std::fmt::Debug for DoubleWrite {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DoubleWrite")
            .field("head", &self.head)
            .field("ring", &self.state().ring)
            .finish_non_exhaustive()
    }
}
