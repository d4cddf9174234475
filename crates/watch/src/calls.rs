//! Calls: turns kernel events into accesses.
//!
//! A read is a system call from entry to exit, or a task's request for page cache pages outside of one. In between,
//! events report which pages of which file were requested, which were added to the page cache, which requests were
//! submitted to a device, and whether the task slept. Pages added without being requested were read ahead; a wait lasts
//! from the first sleep to the end of the call. Worked example: a read of page 4 that adds pages 4 to 35 and sleeps for
//! 90 us is one read, 31 pages read ahead, and a wait of 90 us.
//!
//! A call on a descriptor that was closed before it could be looked up has an unknown file. Its writes and syncs are
//! held until an event within another call on that descriptor names the file, at most for a second. Then those that
//! only a file allows are counted for [`CLOSED`]; a write without an offset may have been to a pipe, and is left out.
//!
//! Invariants:  [CAL-1] files, their keys, submitted requests, added pages and held accesses are bounded
//!              [CAL-2] whatever the events, only possible accesses result
//! Concurrency: one owner; events arrive in time order.
//! Failure:     none; a read of an unknown file is left out, a request for one is attributed to no file.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;

use super::access::{Access, FILES_MAX, READ_MAX, Read, ReadMode};
use super::event::{Call, Event, EventKind, FileKey, Transfer};

/// Maximum number of requests that are submitted by a task but not yet issued to a device.
const UNDER_WAY_MAX: usize = 1 << 16;

/// Maximum number of files kept that have two device numbers.
const SAME_MAX: usize = 1 << 16;

/// Maximum number of page cache additions kept per task: as many as the longest read needs.
const ADDED_MAX: usize = READ_MAX as usize;

/// The file that stands for all others.
pub(super) const OTHERS: FileKey = FileKey { device: 0, inode: 0 };

/// Stands for all files whose descriptors were closed before they could be looked up.
pub(super) const CLOSED: FileKey = FileKey::unknown(0);

/// Maximum number of accesses held until their file is known, and how long they are held.
const HELD_MAX: usize = 1 << 12;
const HELD_NS: u64 = 1_000_000_000;

/// A write or a sync of an unknown file.
#[derive(Debug, Clone, Copy)]
struct Held {
    at_ns: u64,
    key: FileKey,
    /// For the file with number 0.
    access: Access,
    /// Only a file allows it.
    is_of_file: bool,
}

/// State of a task.
#[derive(Debug, Default)]
struct Task {
    call: Option<Open>,
    /// Pages added since the call began or, outside of a call, since the last requested page.
    added: Vec<(FileKey, u64, u64)>,
    slept_ns: Option<u64>,
    /// Pages requested outside of a call, such as by a fault on a mapped file.
    fault: Option<(FileKey, (u64, u64))>,
    /// The file of the next request; `aside`: another file, such as filesystem metadata, and the bytes of its pages
    /// that were added in between and have no request yet.
    file: Option<FileKey>,
    aside: Option<(FileKey, u64)>,
    /// Requests submitted in this call.
    submitted: u64,
}

/// A system call that has not returned.
#[derive(Debug)]
struct Open {
    call: Call,
    at_ns: u64,
    file: Option<FileKey>,
    offset: Option<u64>,
    bytes: u64,
    asked: Option<(u64, u64)>,
}

/// A request that is submitted but not yet issued to its device.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    file: FileKey,
    sectors: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Calls {
    page_bytes: u64,
    /// Indexed by file number; the last may stand for all others.
    files: Vec<FileKey>,
    numbers: HashMap<FileKey, u32>,
    tasks: HashMap<u32, Task>,
    /// From a file's key in descriptors to its key in page cache events, where a filesystem has two device numbers.
    same: HashMap<FileKey, FileKey>,
    /// The reverse mapping; of several keys in descriptors, the last.
    called: HashMap<FileKey, FileKey>,
    under_way: BTreeMap<(u32, u64), UnderWay>,
    held: VecDeque<Held>,
    /// Accesses not yet consumed, with their times in ns.
    pub(super) done: Vec<(u64, Access)>,
    now_ns: u64,
}

impl Calls {
    /// `page_bytes`: page size of the page cache.
    pub(super) fn new(page_bytes: u64) -> Calls {
        Calls {
            page_bytes,
            files: Vec::new(),
            numbers: HashMap::default(),
            tasks: HashMap::default(),
            same: HashMap::default(),
            called: HashMap::default(),
            under_way: BTreeMap::new(),
            held: VecDeque::new(),
            done: Vec::new(),
            now_ns: 0,
        }
    }

    /// The files, indexed by number.
    pub(super) fn files(&self) -> &[FileKey] {
        &self.files
    }

    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    #[cfg(test)]
    pub(super) fn added(&self, task: u32) -> usize {
        self.tasks.get(&task).map_or(0, |task| task.added.len())
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    #[cfg(test)]
    pub(super) fn same(&self) -> usize {
        self.same.len()
    }

    /// The key of the file `key` in descriptors, if it differs.
    pub(super) fn called(&self, key: FileKey) -> Option<FileKey> {
        self.called.get(&key).copied()
    }

    /// Processes the next event.
    pub(super) fn event(&mut self, event: &Event) {
        let Event { at_ns, task: id, kind } = *event;
        self.now_ns = at_ns;
        while self.held.front().is_some_and(|held| held.at_ns + HELD_NS < at_ns) {
            self.give_up();
        }
        match kind {
            EventKind::Issue { device, sector, sectors, transfer } => {
                return self.issued(device, sector, sectors, transfer);
            }
            EventKind::Requeue { device, sectors, transfer } => {
                // Undone for the device only: the file keeps its count, and the next issue adds none to it.
                return self.done(Access::Requeue { device, bytes: bytes_of(sectors), transfer });
            }
            EventKind::Exec { before } => {
                if before != id {
                    self.exited(before);
                }
                return self.exited(id);
            }
            EventKind::TaskExited => return self.exited(id),
            EventKind::Enter { call, file, offset, bytes, .. } => {
                self.settle(id);
                let file = file.map(|file| *self.same.get(&file).unwrap_or(&file));
                let call = Some(Open { call, at_ns, file, offset, bytes, asked: None });
                let file = file.filter(|file| !file.is_unknown());
                self.tasks.insert(id, Task { file, call, ..Task::default() });
                return;
            }
            EventKind::Fault { .. } => self.settle(id),
            _ => {}
        }
        let task = match kind {
            EventKind::Added { .. }
            | EventKind::Requested { .. }
            | EventKind::Fault { .. }
            | EventKind::Named { .. } => self.tasks.entry(id).or_default(),
            // Ignored without a known task. A task still sleeps after its exit: a state created then would never be
            // removed.
            _ => match self.tasks.get_mut(&id) {
                Some(task) => task,
                None => return,
            },
        };
        match kind {
            EventKind::Exit { result } => {
                let task = std::mem::take(task);
                self.ended(id, &task, at_ns, result);
            }
            // An empty read would end before it begins.
            EventKind::Requested { file, first, last }
                if first <= last && last - first < READ_MAX =>
            {
                self.asked(id, file, (first, last));
            }
            EventKind::Added { file, first, pages } => {
                // [CAL-1] Some added pages are never requested, such as those that io_uring writes.
                if task.added.len() == ADDED_MAX {
                    task.added.clear();
                }
                let main = *task.file.get_or_insert(file);
                task.added.push((file, first, pages));
                let before = task.aside.map_or(0, |(_, bytes)| bytes);
                task.aside = (main != file).then_some((file, before + pages * self.page_bytes));
                // A write adds pages of its file, and reads those of the filesystem's own, which has no major number.
                let is_of_unknown = |open: &Open| {
                    open.call == Call::Write && open.file.is_some_and(FileKey::is_unknown)
                };
                if file.has_major() && task.call.as_ref().is_some_and(is_of_unknown) {
                    self.belongs(id, file);
                }
            }
            // A page that the kernel faults in within a call belongs to the call.
            EventKind::Fault { file, page } if task.call.is_none() => {
                task.file = Some(file);
                task.fault = Some((file, (page, page)));
            }
            EventKind::Named { file, offset } => {
                if let Some(open) = &mut task.call {
                    open.offset = open.offset.or(offset);
                }
                self.belongs(id, file);
            }
            EventKind::Slept => _ = task.slept_ns.get_or_insert(at_ns),
            EventKind::Submit { device, sector, sectors, transfer } => {
                task.submitted += 1;
                if sectors == 0 || transfer == Transfer::Other {
                    return;
                }
                let bytes = bytes_of(sectors);
                // A request no larger than these pages is for them: requests for the task's file are mostly larger.
                let aside = task.aside.filter(|(_, left)| bytes <= *left);
                task.aside = aside.map(|(file, left)| (file, left - bytes)).filter(|it| it.1 > 0);
                let file = aside.map(|(file, _)| file).or(task.file);
                if let Some(file) = file {
                    if self.under_way.len() >= UNDER_WAY_MAX {
                        self.under_way.clear(); // [CAL-1]
                    }
                    self.under_way.insert((device, sector), UnderWay { file, sectors });
                }
            }
            _ => {}
        }
    }

    fn exited(&mut self, id: u32) {
        self.settle(id);
        self.tasks.remove(&id);
        self.done(Access::Exited { task: id });
    }

    fn done(&mut self, access: Access) {
        // [CAL-2] No kernel reports the times and offsets that are dropped here.
        if access.is_possible() {
            self.done.push((self.now_ns, access));
        }
    }

    /// The number of `key`, assigned if it is new.
    fn number(&mut self, key: FileKey) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        // [CAL-1]
        let key = if self.files.len() < FILES_MAX as usize { key } else { OTHERS };
        *self.numbers.entry(key).or_insert_with(|| {
            self.files.push(key);
            self.files.len() as u32 - 1
        })
    }

    /// Attributes the current call of task `id`, and its next requests, to `file`.
    fn belongs(&mut self, id: u32, file: FileKey) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        (task.file, task.aside) = (Some(file), None);
        let Some(open) = &mut task.call else { return };
        let Some(before) = open.file.replace(file).filter(|before| *before != file) else { return };
        // Or the same inode under another device number, as with subvolumes and overlays.
        if !before.is_unknown() && before.inode != file.inode {
            return;
        }
        if self.same.len() >= SAME_MAX {
            (self.same, self.called) = Default::default(); // [CAL-1]
        }
        self.same.insert(before, file);
        if !before.is_unknown() {
            self.called.insert(file, before);
            return;
        }
        let (its, others): (VecDeque<_>, VecDeque<_>) =
            self.held.drain(..).partition(|it| it.key == before);
        self.held = others;
        its.into_iter().for_each(|held| self.release(held, file));
    }

    /// Holds the access of a call on an unknown file, which returned `result`.
    fn hold(&mut self, key: FileKey, open: &Open, at_ns: u64, result: i64) {
        let (access, is_of_file) = match open.call {
            Call::Write if result > 0 => {
                (Access::Write { file: 0, bytes: result as u64 }, open.offset.is_some())
            }
            Call::Sync if result == 0 => {
                let took_ns = at_ns.saturating_sub(open.at_ns);
                (Access::Sync { file: 0, took_ns }, true)
            }
            _ => return,
        };
        if self.held.len() >= HELD_MAX {
            self.give_up(); // [CAL-1]
        }
        self.held.push_back(Held { at_ns, key, access, is_of_file });
    }

    /// Emits the oldest held access without a known file.
    fn give_up(&mut self) {
        if let Some(held) = self.held.pop_front().filter(|held| held.is_of_file) {
            self.release(held, CLOSED);
        }
    }

    /// Emits a held access for the file `key`.
    fn release(&mut self, mut held: Held, key: FileKey) {
        let number = self.number(key);
        if let Access::Write { file, .. } | Access::Sync { file, .. } = &mut held.access {
            *file = number;
        }
        self.done(held.access);
    }

    fn asked(&mut self, id: u32, file: FileKey, pages: (u64, u64)) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match &mut task.call {
            Some(open) if open.call == Call::Read => {
                let before = open.asked.get_or_insert(pages);
                *before = (before.0.min(pages.0), before.1.max(pages.1));
                self.belongs(id, file);
            }
            // Page reads on behalf of a write or of advice.
            Some(_) => {}
            None => {
                task.fault = Some((file, pages));
                self.belongs(id, file);
                self.settle(id);
            }
        }
    }

    /// Emits the read that task `id` made outside of a call: the pages it requested, and those added since.
    fn settle(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.call.is_none()) else { return };
        let (added, wanted) = (std::mem::take(&mut task.added), task.fault.take());
        // Pages added without a read belong, for example, to a directory.
        let Some((key, pages)) = wanted else { return };
        self.ahead(&added, key, pages);
        let (file, more) = (self.number(key), pages.1.saturating_sub(pages.0));
        self.done(Access::Read(Read {
            task: id,
            file,
            first: pages.0,
            more,
            bytes: (more + 1) * self.page_bytes,
            took_ns: 0,
            waited_ns: None,
            missed: added.iter().any(|it| it.0 == key && overlap(it.1, it.2, pages)),
            mode: ReadMode::Unseen,
        }));
    }

    /// Ends all open reads: no more events follow.
    pub(super) fn end(&mut self) {
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|id| self.settle(id));
        (0..self.held.len()).for_each(|_| self.give_up());
    }

    /// Emits the access of a system call of task `id` that returned `result`.
    fn ended(&mut self, id: u32, task: &Task, at_ns: u64, result: i64) {
        let Some(open) = &task.call else { return };
        let Some(key) = open.file else { return };
        if key.is_unknown() {
            return self.hold(key, open, at_ns, result);
        }
        let bytes = u64::try_from(result).unwrap_or(0);
        let took_ns = at_ns.saturating_sub(open.at_ns);
        match open.call {
            Call::Read => self.read(id, task, open, key, (bytes, at_ns)),
            Call::Write if bytes > 0 => {
                let file = self.number(key);
                self.done(Access::Write { file, bytes });
            }
            Call::Write => {}
            Call::Sync => {
                let file = self.number(key);
                self.done(Access::Sync { file, took_ns });
            }
            Call::Advise(_) if result < 0 => {}
            Call::Advise(advice) => {
                let (file, offset) = (self.number(key), open.offset.unwrap_or(0));
                let pages = task.added.iter().filter(|it| it.0 == key).map(|it| it.2).sum();
                self.done(Access::Advise {
                    task: id,
                    file,
                    offset,
                    bytes: open.bytes,
                    advice,
                    pages,
                    took_ns,
                });
            }
        }
    }

    fn read(
        &mut self,
        id: u32,
        task: &Task,
        open: &Open,
        key: FileKey,
        (bytes, at_ns): (u64, u64),
    ) {
        let by_offset = open
            .offset
            .filter(|_| bytes > 0)
            .map(|offset| (offset / self.page_bytes, (offset + bytes - 1) / self.page_bytes));
        let asked = open.asked.or(by_offset);
        if let Some(pages) = asked {
            self.ahead(&task.added, key, pages);
        }
        if bytes == 0 {
            return;
        }
        let file = self.number(key);
        let Some(pages) = asked else { return self.done(Access::ReadAnywhere { file, bytes }) };
        // A direct read adds nothing to the page cache. `asked` alone is no proof, as not every kernel reports it.
        let is_direct =
            open.asked.is_none() && task.submitted > 0 && !task.added.iter().any(|it| it.0 == key);
        let taken_in = || task.added.iter().any(|it| it.0 == key && overlap(it.1, it.2, pages));
        self.done(Access::Read(Read {
            task: id,
            file,
            first: pages.0,
            more: pages.1.saturating_sub(pages.0),
            bytes,
            took_ns: at_ns.saturating_sub(open.at_ns),
            waited_ns: task.slept_ns.map(|since| at_ns.saturating_sub(since)),
            missed: is_direct || taken_in(),
            mode: if is_direct { ReadMode::Direct } else { ReadMode::Cached },
        }));
    }

    /// Emits the pages of `of` that were read ahead: those in `added` outside of the requested `low..=high`. Pages of
    /// other files are filesystem metadata.
    fn ahead(&mut self, added: &[(FileKey, u64, u64)], of: FileKey, (low, high): (u64, u64)) {
        for &(_, first, pages) in added.iter().filter(|(file, ..)| *file == of) {
            let file = self.number(of);
            let end = first + pages;
            let (before, behind) = (low.clamp(first, end), (high + 1).clamp(first, end));
            for (first, end) in [(first, before), (behind, end)] {
                if first < end {
                    self.done(Access::Ahead { file, first, pages: end - first });
                }
            }
        }
    }

    fn issued(&mut self, device: u32, sector: u64, sectors: u64, transfer: Transfer) {
        if transfer == Transfer::Other {
            return;
        }
        let bytes = bytes_of(sectors);
        // The submission in which the request begins; `behind`: this submission and those merged with it.
        let begun = self.under_way.range(..=(device, sector)).next_back();
        let begun = begun.filter(|((at, from), it)| *at == device && from + it.sectors > sector);
        let Some((&from, &UnderWay { file, .. })) = begun else {
            return self.done(Access::Request { device, bytes, transfer, file: None });
        };
        let behind: Vec<((u32, u64), UnderWay)> = self
            .under_way
            .range(from..(device, sector + sectors))
            .map(|(at, it)| (*at, *it))
            .collect();
        for (at, it) in behind {
            self.under_way.remove(&at);
            let (end, issued) = (at.1 + it.sectors, sector + sectors);
            if end > issued {
                // A request that is larger than the device accepts is split.
                self.under_way.insert((device, issued), UnderWay { sectors: end - issued, ..it });
            }
        }
        let file = Some(self.number(file));
        self.done(Access::Request { device, bytes, transfer, file });
    }
}

fn bytes_of(sectors: u64) -> u64 {
    sectors.saturating_mul(512)
}

/// Whether `first..first + count` and `low..=high` have a page in common.
fn overlap(first: u64, count: u64, (low, high): (u64, u64)) -> bool {
    first <= high && low < first + count
}
