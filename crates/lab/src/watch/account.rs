//! The account: what a process tree reads and writes, file by file, from the events as they come.
//!
//! A read is a system call from its begin to its end, or what a task asked of the page cache outside of one. Between
//! begin and end the kernel says which pages of which file were asked for, which it took into the cache, what it handed
//! down to a device, and whether the task slept. Pages that were taken in and not asked for were read ahead; a wait
//! is from the first sleep to the end of the call. Worked example: a read of page 4 that takes in pages 4 to 35 and
//! sleeps for 90 us is one read, 31 pages read ahead, and a wait of 90 us; a read of page 5 is a hit, and 30 pages are
//! left that nobody has used.
//!
//! Invariants:  [ACC-1] what is avoidable of waiting is at most the waiting
//!              [ACC-2] pages that were never used are at most those read ahead
//!              [ACC-3] files, requests under way and pages remembered are bounded
//! Concurrency: one owner; events come in order of time.
//! Failure:     none; what cannot be told whose it is belongs to no file.

use std::collections::{BTreeMap, HashMap, VecDeque};

use forebay::{Action, Why};

use super::event::{Call, Event, FileKey, Transfer, What};
use super::foresight::{Foresight, Known};

/// Files that are told apart; more are one.
const FILES_MOST: usize = 4096;

/// Requests between a task and its device.
const UNDER_WAY_MOST: usize = 1 << 16;

/// Words of 64 pages that were read ahead of one file and not used: 1 TiB at 4 KiB and 50 MB of memory, if they are
/// whole. More are not counted as read ahead.
const AHEAD_MOST: usize = 1 << 20;

/// No read asks for so many pages: the kernel ends each at 2 GiB.
const READ_MOST: u64 = 1 << 20;

/// Letters kept of a file's strip.
const STRIP_MOST: usize = 256;

/// Powers of two that are told apart: up to 2 GiB, more than one call reads.
const SIZES: usize = 32;

/// The file that stands for all others.
const OTHERS: FileKey = FileKey { device: 0, inode: 0 };

/// Sizes by powers of two, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// How many had so many bits.
    counts: [u64; SIZES],
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Sizes {
    pub(super) fn add(&mut self, bytes: u64) {
        self.counts[(bytes.max(1).ilog2() as usize).min(SIZES - 1)] += 1;
        self.count += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: u64) {
        let same = &mut self.counts[(bytes.max(1).ilog2() as usize).min(SIZES - 1)];
        *same = same.saturating_sub(1);
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Each size that was seen, rounded down to a power of two, and how often.
    pub(super) fn seen(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..).map(|bits| 1 << bits).zip(self.counts).filter(|(_, count)| *count > 0)
    }
}

/// Times of one thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) longest_ns: u64,
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// What became of one file.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub(super) key: FileKey,
    /// As programs ask for them.
    pub(super) reads: Sizes,
    pub(super) writes: Sizes,
    /// As devices get them, from tasks of the tree.
    pub(super) requests: Sizes,
    pub(super) requests_written: Sizes,
    pub(super) hits: u64,
    pub(super) waits: Times,
    /// By [`Known`], in its order.
    pub(super) avoidable_ns: [u64; 3],
    pub(super) syncs: Times,
    /// Pages that nobody had asked for.
    pub(super) ahead_pages: u64,
    /// Pages that the program had the kernel read for later.
    pub(super) advised_pages: u64,
    pub(super) strip: VecDeque<char>,
    unused: Pages,
}

impl Figures {
    fn new(key: FileKey) -> Figures {
        Figures {
            key,
            reads: Sizes::default(),
            writes: Sizes::default(),
            requests: Sizes::default(),
            requests_written: Sizes::default(),
            hits: 0,
            waits: Times::default(),
            avoidable_ns: [0; 3],
            syncs: Times::default(),
            ahead_pages: 0,
            advised_pages: 0,
            strip: VecDeque::new(),
            unused: Pages::default(),
        }
    }

    /// Pages read ahead that nobody has used yet.
    pub(super) fn unused_pages(&self) -> u64 {
        self.unused.pages
    }

    fn read_ahead(&mut self, first: u64, pages: u64) {
        let added = self.unused.add(first, pages);
        self.ahead_pages += added;
    }

    fn letter(&mut self, action: Action, why: Why) {
        let Some(letter) = action.letter(why, false) else { return };
        // Many hits in a row say no more than two.
        if letter != '.' || !self.strip.iter().rev().take(2).eq(['.', '.'].iter()) {
            if self.strip.len() == STRIP_MOST {
                self.strip.pop_front();
            }
            self.strip.push_back(letter);
        }
    }
}

/// A set of pages.
#[derive(Debug, Clone, Default)]
struct Pages {
    words: HashMap<u64, u64>,
    pages: u64,
}

impl Pages {
    /// Calls `each` with the words of `first..first + pages`, and the bits of these.
    fn words(first: u64, pages: u64, mut each: impl FnMut(u64, u64)) {
        let end = first.saturating_add(pages);
        let mut at = first;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            each(at / 64, (u64::MAX >> (64 - bits)) << (at % 64));
            at += bits;
        }
    }

    /// Returns how many were not in it.
    fn add(&mut self, first: u64, pages: u64) -> u64 {
        let before = self.pages;
        Pages::words(first, pages, |word, bits| {
            if self.words.len() >= AHEAD_MOST && !self.words.contains_key(&word) {
                return; // [ACC-3]
            }
            let seen = self.words.entry(word).or_default();
            self.pages += u64::from((bits & !*seen).count_ones());
            *seen |= bits;
        });
        self.pages - before
    }

    fn remove(&mut self, first: u64, pages: u64) {
        if self.pages == 0 {
            return;
        }
        Pages::words(first, pages, |word, bits| {
            let Some(seen) = self.words.get_mut(&word) else { return };
            self.pages -= u64::from((bits & *seen).count_ones());
            *seen &= !bits;
            if *seen == 0 {
                self.words.remove(&word);
            }
        });
    }
}

/// Requests of one device, whoever's they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) read: Sizes,
    pub(super) written: Sizes,
    /// Those of the tree among them.
    pub(super) own_read: Sizes,
    pub(super) own_written: Sizes,
}

/// What a task is about.
#[derive(Debug, Default)]
struct Task {
    call: Option<Open>,
    /// Pages taken in since the call began, or since the last that was asked for outside of one.
    added: Vec<(FileKey, u64, u64)>,
    slept_ns: Option<u64>,
    /// A mapped page that was wanted, outside of a call.
    fault: Option<(FileKey, (u64, u64))>,
    /// Whose the next request is, and pages of another file, such as of the filesystem's own tables, in between.
    file: Option<FileKey>,
    aside: Option<(FileKey, u64)>,
    /// Requests handed down in this call.
    submitted: u64,
}

/// A system call that has not ended.
#[derive(Debug)]
struct Open {
    call: Call,
    at_ns: u64,
    file: Option<FileKey>,
    offset: Option<u64>,
    asked: Option<(u64, u64)>,
}

/// A request between a task and its device.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    file: FileKey,
    sectors: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Account {
    page_bytes: u64,
    files: Vec<Figures>,
    numbers: HashMap<FileKey, usize>,
    tasks: HashMap<u32, Task>,
    /// What descriptors are called where a filesystem has two names for a file, and what its pages are.
    same: HashMap<FileKey, FileKey>,
    foresight: Foresight,
    under_way: BTreeMap<(u32, u64), UnderWay>,
    pub(super) devices: BTreeMap<u32, Device>,
}

impl Account {
    /// `page_bytes`: of the page cache.
    pub(super) fn new(page_bytes: u64) -> Account {
        Account {
            page_bytes,
            files: Vec::new(),
            numbers: HashMap::new(),
            tasks: HashMap::new(),
            same: HashMap::new(),
            foresight: Foresight::default(),
            under_way: BTreeMap::new(),
            devices: BTreeMap::new(),
        }
    }

    /// Those that were read, written or synced, in the order in which they were met.
    pub(super) fn files(&self) -> impl Iterator<Item = &Figures> {
        self.files.iter().filter(|it| {
            it.reads.count + it.writes.count + it.syncs.count + it.requests.count + it.ahead_pages
                > 0
        })
    }

    /// What the file is called by its descriptors, if that is something else.
    pub(super) fn called(&self, key: FileKey) -> impl Iterator<Item = FileKey> {
        self.same.iter().filter(move |(_, it)| **it == key).map(|(called, _)| *called)
    }

    /// Something happened.
    pub(super) fn event(&mut self, event: &Event) {
        let Event { at_ns, task: id, what } = *event;
        match what {
            What::Issue { device, sector, sectors, transfer } => {
                return self.issued(device, sector, sectors, transfer);
            }
            What::Requeue { device, sectors, transfer } => {
                return self.requeued(device, sectors, transfer);
            }
            What::Exec => {
                self.settle(id);
                self.tasks.remove(&id);
                return self.foresight.forget(id);
            }
            What::Enter { call, file, offset, .. } => {
                self.settle(id);
                let file = file.map(|file| *self.same.get(&file).unwrap_or(&file));
                let call = Some(Open { call, at_ns, file, offset, asked: None });
                self.tasks.insert(id, Task { file, call, ..Task::default() });
                return;
            }
            What::Fault { .. } => self.settle(id),
            _ => {}
        }
        let task = self.tasks.entry(id).or_default();
        match what {
            What::Exit { result } => {
                let task = std::mem::take(task);
                self.ended(id, task, at_ns, result);
            }
            // An empty read would end before it begins.
            What::Asked { file, first, last } if first <= last && last - first < READ_MOST => {
                self.asked(id, file, (first, last));
            }
            What::Added { file, first, pages } => {
                let main = *task.file.get_or_insert(file);
                task.added.push((file, first, pages));
                let before = task.aside.map_or(0, |(_, pages)| pages);
                task.aside = (main != file).then_some((file, before + pages));
            }
            // What a call of the kernel's own touches is the call's.
            What::Fault { file, page } if task.call.is_none() => {
                task.file = Some(file);
                task.fault = Some((file, (page, page)));
            }
            What::Direct { file, offset } => {
                if let Some(open) = &mut task.call {
                    open.offset.get_or_insert(offset);
                }
                self.belongs(id, file);
            }
            What::Slept => _ = task.slept_ns.get_or_insert(at_ns),
            What::Submit { device, sector, sectors, transfer } => {
                task.submitted += 1;
                let bytes = sectors * 512;
                let file = match task.aside.take() {
                    // Whole pages of it: the file's own come in other numbers, mostly.
                    Some((file, pages)) if pages * self.page_bytes == bytes => Some(file),
                    _ => task.file,
                };
                if let (Some(file), true) = (file, sectors > 0 && transfer != Transfer::Other) {
                    if self.under_way.len() >= UNDER_WAY_MOST {
                        self.under_way.clear(); // [ACC-3]
                    }
                    self.under_way.insert((device, sector), UnderWay { file, sectors });
                }
            }
            _ => {}
        }
    }

    /// The figures of `key`.
    fn file(&mut self, key: FileKey) -> (usize, &mut Figures) {
        // [ACC-3]
        let key = if self.files.len() < FILES_MOST || self.numbers.contains_key(&key) {
            key
        } else {
            OTHERS
        };
        let next = self.files.len();
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.files.push(Figures::new(key));
        }
        (number, &mut self.files[number])
    }

    /// What the task `id` is about is `file`.
    fn belongs(&mut self, id: u32, file: FileKey) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.file = Some(file);
        if let Some(open) = &mut task.call {
            // The same inode, by another device number: subvolumes and overlays have such.
            if let Some(called) = open.file.filter(|it| *it != file && it.inode == file.inode) {
                self.same.insert(called, file);
            }
            open.file = Some(file);
        }
    }

    fn asked(&mut self, id: u32, file: FileKey, pages: (u64, u64)) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match &mut task.call {
            Some(open) if open.call == Call::Read => {
                let before = open.asked.get_or_insert(pages);
                *before = (before.0.min(pages.0), before.1.max(pages.1));
                self.belongs(id, file);
            }
            // Reads of what is to be written, and of what was advised.
            Some(_) => {}
            None => {
                task.fault = Some((file, pages));
                self.settle(id);
            }
        }
    }

    /// What the task `id` has read outside of a call is known now: what it wanted, and what was taken in since.
    fn settle(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.call.is_none()) else { return };
        let (added, wanted) = (std::mem::take(&mut task.added), task.fault.take());
        // Without a read they are a directory's, say, or advised.
        if let Some((file, pages)) = wanted {
            self.ahead(&added, file, pages);
            let missed = added.iter().any(|it| it.0 == file && overlap(it.1, it.2, pages));
            let bytes = (pages.1.saturating_sub(pages.0) + 1) * self.page_bytes;
            self.read(id, file, pages, bytes, None, missed);
        }
    }

    /// Nothing more will happen.
    pub(super) fn end(&mut self) {
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|id| self.settle(id));
    }

    /// A system call of the task `id` has ended.
    fn ended(&mut self, id: u32, task: Task, at_ns: u64, result: i64) {
        let Some(open) = task.call else { return };
        let Some(file) = open.file else { return };
        let bytes = u64::try_from(result).unwrap_or(0);
        match open.call {
            Call::Read => {
                let by_offset = open.offset.filter(|_| bytes > 0).map(|offset| {
                    (offset / self.page_bytes, (offset + bytes - 1) / self.page_bytes)
                });
                let asked = open.asked.or(by_offset);
                if let Some(pages) = asked {
                    self.ahead(&task.added, file, pages);
                }
                if bytes == 0 {
                    return;
                }
                // Past the page cache nothing is taken in.
                let is_direct = open.asked.is_none() && task.submitted > 0;
                let wait_ns = task.slept_ns.map(|since| at_ns.saturating_sub(since));
                let missed = is_direct
                    || asked.is_some_and(|pages| {
                        task.added.iter().any(|it| it.0 == file && overlap(it.1, it.2, pages))
                    });
                match asked {
                    Some(pages) => self.read(id, file, pages, bytes, wait_ns, missed),
                    None => self.file(file).1.reads.add(bytes),
                }
            }
            Call::Write if bytes > 0 => self.file(file).1.writes.add(bytes),
            Call::Write => {}
            Call::Sync => self.file(file).1.syncs.add(at_ns.saturating_sub(open.at_ns)),
            Call::Advise => {
                for (file, _, pages) in task.added {
                    self.file(file).1.advised_pages += pages;
                }
            }
        }
    }

    /// Pages were taken in for a read of `of` that asked for `low` to `high`: the others of that file were read ahead. Those
    /// of other files are the filesystem's own tables.
    fn ahead(&mut self, added: &[(FileKey, u64, u64)], of: FileKey, (low, high): (u64, u64)) {
        for &(_, first, pages) in added.iter().filter(|(file, ..)| *file == of) {
            let (_, figures) = self.file(of);
            let end = first + pages;
            let (before, behind) = (low.clamp(first, end), (high + 1).clamp(first, end));
            figures.read_ahead(first, before - first);
            figures.read_ahead(behind, end - behind);
        }
    }

    /// The task `id` has read `pages` of a file, and waited if it did. `missed`: the kernel had to read some of them.
    fn read(
        &mut self,
        id: u32,
        file: FileKey,
        pages: (u64, u64),
        bytes: u64,
        wait_ns: Option<u64>,
        missed: bool,
    ) {
        let (number, _) = self.file(file);
        let known = self.foresight.read(id, number, pages);
        let figures = &mut self.files[number];
        figures.reads.add(bytes);
        figures.unused.remove(pages.0, pages.1.saturating_sub(pages.0) + 1);
        if let Some(ns) = wait_ns {
            figures.waits.add(ns);
            if let Some(known) = known {
                figures.avoidable_ns[known as usize] += ns;
            }
        }
        match (missed, wait_ns) {
            (false, None) => {
                figures.hits += 1;
                figures.letter(Action::Deliver, Why::Hit);
            }
            (false, Some(_)) => figures.letter(Action::Deliver, Why::Late),
            (true, _) => figures.letter(
                Action::Request,
                match known {
                    Some(Known::Sequence) => Why::Sequential,
                    Some(Known::Stride) => Why::Strided,
                    Some(Known::Range) | None => Why::Random,
                },
            ),
        }
    }

    fn issued(&mut self, device: u32, sector: u64, sectors: u64, transfer: Transfer) {
        let bytes = sectors * 512;
        let of_device = self.devices.entry(device).or_default();
        match transfer {
            Transfer::Read => of_device.read.add(bytes),
            Transfer::Write => of_device.written.add(bytes),
            Transfer::Other => return,
        }
        // The one that the request begins in, and those merged with it.
        let begun = self.under_way.range(..=(device, sector)).next_back();
        let begun = begun.filter(|((at, from), it)| *at == device && from + it.sectors > sector);
        let Some((&from, &UnderWay { file, .. })) = begun else { return };
        match transfer {
            Transfer::Read => of_device.own_read.add(bytes),
            _ => of_device.own_written.add(bytes),
        }
        let behind: Vec<((u32, u64), UnderWay)> = self
            .under_way
            .range(from..(device, sector + sectors))
            .map(|(at, it)| (*at, *it))
            .collect();
        for (at, it) in behind {
            self.under_way.remove(&at);
            let (end, issued) = (at.1 + it.sectors, sector + sectors);
            if end > issued {
                // A request larger than the device takes is split.
                self.under_way.insert((device, issued), UnderWay { sectors: end - issued, ..it });
            }
        }
        let (_, figures) = self.file(file);
        match transfer {
            Transfer::Read => figures.requests.add(bytes),
            _ => figures.requests_written.add(bytes),
        }
    }

    /// The device was not given it after all, and will be given it again. Whose it is was counted with the first time.
    fn requeued(&mut self, device: u32, sectors: u64, transfer: Transfer) {
        let of_device = self.devices.entry(device).or_default();
        match transfer {
            Transfer::Read => of_device.read.take(sectors * 512),
            Transfer::Write => of_device.written.take(sectors * 512),
            Transfer::Other => {}
        }
    }
}

/// Whether `first..first + count` has a page of `pages`.
fn overlap(first: u64, count: u64, (low, high): (u64, u64)) -> bool {
    first <= high && low < first + count
}

#[cfg(test)]
mod tests;
