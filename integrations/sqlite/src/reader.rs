//! Decides when the reads of one file are examined.
//!
//! Timing a read costs two clock readings, and parsing a page costs more. Where no read waits, neither is useful. A read
//! waited if it took long and its thread blocked: one that only lost the processor counts as one that took no time. An
//! idle reader times only a few reads, as a `Sampler` decides. After a read that waited, the reader times the next 16,
//! since any read may wait now and then. A second one among those activates the reader. While it is
//! active, each page read goes to the predictor, until 256 reads in a row neither waited nor were usefully predicted.
//! Then the reader discards what it has learnt: the file may have changed by the next time, and most of its interior
//! pages are in the kernel's memory if they are needed again.
//!
//! Invariants:  [RDR-1] an idle reader examines only the first byte of a page  [RDR-2] a file whose header is not
//!              SQLite's is ignored permanently
//! Concurrency: one owner.
//! Failure:     a failed allocation ends look-ahead for the file, until a pragma changes a setting.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use forebay_lookahead::{HINTS_MOST, HintCounts, Sampler, read_waited};

use crate::blocked::times_blocked;
use crate::hint::Descriptor;
use crate::memory::{Grow, Line, NoMemory, boxed, filled, text};
use crate::page::{Geometry, HEADER, Kind};
use crate::predictor::{Predictor, Scope};
use crate::tree_counts::{Counts, TreeCounts};
use crate::trees::{Pages, Trees};
use crate::wal::WalIndex;

/// The smallest page.
const PAGE_MIN: usize = 512;
/// Reads timed after one that waited.
const ALERT_READS: u32 = 16;
/// Unproductive reads in a row after which the reader becomes idle.
const UNPREDICTED_READS_MAX: u32 = 256;
/// Interior pages and index leaves read recently: one may lead to more rows than SQLite reads before the reader is
/// active.
const RECENT: usize = 8;
const RECENT_LEAVES: usize = 2;
const DISTANCE_MAX: u32 = 128;
const MEMORY: usize = 16 << 20;
const MEMORY_MIN: usize = 64 << 10;

/// What users may set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) scope: Scope,
    /// Pages.
    pub(crate) distance_max: u32,
    /// Bytes for what is kept about the file's trees.
    pub(crate) memory: usize,
}

impl Settings {
    pub(crate) const NAMES: [&CStr; 3] = [c"readahead", c"distance_max", c"memory"];

    pub(crate) fn new() -> Settings {
        Settings { scope: Scope::Full, distance_max: DISTANCE_MAX, memory: MEMORY }
    }

    /// Sets one by its name. If the value is invalid, returns a message that states the valid values.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "readahead" => {
                self.scope = match value {
                    "off" => Scope::Off,
                    "scan" => Scope::Scan,
                    "full" => Scope::Full,
                    _ => return Err("forebay_readahead is off, scan or full"),
                }
            }
            "distance_max" => {
                let pages = value.parse().ok().filter(|pages| (1..=HINTS_MOST).contains(pages));
                self.distance_max = pages.ok_or("forebay_distance_max is 1 to 1024 pages")?;
            }
            _ => {
                let bytes = value.parse().ok().filter(|bytes| *bytes >= MEMORY_MIN);
                self.memory = bytes.ok_or("forebay_memory is 65536 bytes or more")?;
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Line {
        match (name, self.scope) {
            ("readahead", Scope::Off) => Line::of("off"),
            ("readahead", Scope::Scan) => Line::of("scan"),
            ("readahead", Scope::Full) => Line::of("full"),
            ("distance_max", _) => Line::of(self.distance_max),
            _ => Line::of(self.memory),
        }
    }
}

#[derive(Debug)]
enum State {
    Idle(Sampler),
    /// The number of reads that are still timed.
    Alert(u32),
    /// The number of reads in a row that were neither slow nor usefully predicted.
    Active(u32, Box<Predictor>),
    /// The file is not SQLite's, look-ahead is off, or an allocation failed.
    LeftAlone,
}

/// The reads of one database file.
#[derive(Debug)]
pub(crate) struct Reader {
    descriptor: Descriptor,
    settings: Settings,
    state: State,
    /// Page numbers, and the index of the next entry to replace.
    recent: [u32; RECENT],
    recent_next: usize,
    /// The most recent one is first.
    recent_leaves: [u32; RECENT_LEAVES],
    /// The bytes by which SQLite detects that another process has changed the file.
    stamp: [u8; 16],
    pub(crate) wal: WalIndex,
    /// How often the thread had blocked by the last read that took long.
    times_blocked: Option<u64>,
    /// The kernel has no way to report which pages of this file it holds: ZFS, FUSE with `direct_io`.
    residency_unknown: bool,
    /// The salts of the log at the time the trees were learnt.
    salts: [u32; 2],
    /// Since the file was opened: how often the reader became active, and the page and wait counts up to the last time
    /// it became idle.
    wakes: u64,
    counts: HintCounts,
    #[cfg(test)]
    planted: Planted,
    /// Counts by tree while the reader is idle; and the reads of that time.
    tree_counts: TreeCounts,
    idle_counts: Counts,
}

/// What a test injects into the next reads.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// A panic: before a read, after a read that was not timed, after a timed read.
    PanicBefore,
    PanicWithoutTiming,
    PanicTimed,
    /// Each read waits for the disk.
    Waits,
}

#[cfg(test)]
thread_local! {
    /// Residency checks so far; one in `MISS_EACH` reports a miss.
    static LOOKS: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}
#[cfg(test)]
const MISS_EACH: u32 = 4;

#[cfg(test)]
fn is_planted_miss() -> bool {
    let looks = LOOKS.get();
    LOOKS.set(looks.map(|looks| looks + 1));
    looks.is_some_and(|looks| looks % MISS_EACH == MISS_EACH - 1)
}

/// The file, accessed through its descriptor, during one read of SQLite's.
struct Disk<'a> {
    descriptor: &'a Descriptor,
    wal: &'a WalIndex,
    page_size: u64,
    /// The kernel has no way to report which pages of this file it holds.
    residency_unknown: bool,
    /// One of our reads waited. SQLite holds a lock meanwhile, so it must not wait for another one.
    waited: bool,
}

impl Pages for Disk<'_> {
    fn read_cached(&mut self, page: u32, into: &mut [u8]) -> bool {
        #[cfg(test)]
        if is_planted_miss() {
            return false;
        }
        let offset = u64::from(page.saturating_sub(1)) * self.page_size;
        if page == 0 {
            return false;
        }
        if let Some(read) = self.descriptor.read_cached(offset, into) {
            return read;
        }
        let may_wait = self.residency_unknown || self.descriptor.is_resident(offset, into.len());
        if self.waited || !may_wait {
            return false;
        }
        let began = now();
        let read = self.descriptor.read(offset, into);
        self.waited = read_waited(began.elapsed());
        read
    }

    fn ask(&mut self, first: u32, count: u32) {
        let offset = u64::from(first.saturating_sub(1)) * self.page_size;
        self.descriptor.ask(offset, u64::from(count) * self.page_size);
    }

    fn elsewhere(&self, page: u32) -> bool {
        self.wal.holds(page)
    }
}

/// The only clock here: a VFS offers SQLite milliseconds, which are too coarse to time a read.
#[expect(clippy::disallowed_methods, reason = "SQLite has no clock to pass")]
fn now() -> Instant {
    Instant::now()
}

/// A page's number, from its offset.
fn number_of(offset: i64, size: usize) -> Option<u32> {
    u32::try_from(u64::try_from(offset).ok()? / size as u64 + 1).ok()
}

impl Reader {
    pub(crate) fn new(descriptor: Descriptor, settings: Settings) -> Reader {
        let mut reader = Reader {
            descriptor,
            settings,
            state: State::LeftAlone,
            recent: [0; RECENT],
            recent_next: 0,
            recent_leaves: [0; RECENT_LEAVES],
            stamp: [0; 16],
            wal: WalIndex::default(),
            times_blocked: times_blocked(),
            residency_unknown: false,
            salts: [0; 2],
            wakes: 0,
            counts: HintCounts::default(),
            #[cfg(test)]
            planted: Planted::Nothing,
            tree_counts: TreeCounts::default(),
            idle_counts: Counts::default(),
        };
        reader.sleep();
        reader
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.sleep();
    }

    /// The counts so far, as text.
    pub(crate) fn stats(&self) -> Line {
        let HintCounts { asked, useful, waited_ns, .. } = self.counts();
        let (wakes, waited_us) = (self.wakes, waited_ns / 1000);
        Line::of(format_args!("wakes={wakes} asked={asked} useful={useful} waited_us={waited_us}"))
    }

    /// The counts for each tree, and for the pages whose tree is not known.
    pub(crate) fn by_tree(&mut self) -> Result<Vec<(Option<String>, Counts)>, NoMemory> {
        let tree_counts = match &mut self.state {
            State::Active(_, predictor) => {
                predictor.settle();
                &mut predictor.tree_counts
            }
            _ => &mut self.tree_counts,
        };
        tree_counts.unknown().add(std::mem::take(&mut self.idle_counts));
        let mut trees = Vec::new();
        for (name, counts) in tree_counts.settled() {
            trees.grow((name.map(text).transpose()?, counts))?;
        }
        Ok(trees)
    }

    /// A read begins. Returns the time if the read must be timed.
    pub(crate) fn begins(&mut self) -> Option<Instant> {
        #[cfg(test)]
        assert!(self.planted != Planted::PanicBefore, "planted");
        match &mut self.state {
            State::LeftAlone => return None,
            State::Idle(sampler) => {
                let timed = sampler.begin();
                sampler.read(None);
                if !timed {
                    return None;
                }
            }
            State::Alert(_) | State::Active(..) => {}
        }
        Some(now())
    }

    /// A read that was not timed has succeeded.
    pub(crate) fn passed(&mut self, offset: i64, bytes: &[u8]) {
        #[cfg(test)]
        assert!(self.planted != Planted::PanicWithoutTiming, "planted");
        self.idle_counts.reads += u64::from(bytes.len() >= PAGE_MIN);
        self.track(offset, bytes);
    }

    fn track(&mut self, offset: i64, bytes: &[u8]) {
        if bytes.len() < PAGE_MIN {
            if offset == 24 && bytes.len() == self.stamp.len() {
                self.stamped(bytes);
            }
        } else if let Some(kind) = Kind::of(bytes[0])
            && let Some(number) = number_of(offset, bytes.len())
        {
            if kind.is_interior() {
                self.recent[self.recent_next % RECENT] = number;
                self.recent_next = (self.recent_next + 1) % RECENT;
            } else if kind == Kind::IndexLeaf {
                self.recent_leaves.rotate_right(1);
                self.recent_leaves[0] = number;
            }
        }
    }

    /// A timed read has succeeded.
    pub(crate) fn ended(
        &mut self,
        began: Instant,
        offset: i64,
        bytes: &[u8],
    ) -> Result<(), NoMemory> {
        let read = self.without_preemption(began.elapsed());
        #[cfg(test)]
        let read = if self.planted == Planted::Waits { Duration::from_millis(1) } else { read };
        self.track(offset, bytes);
        let part_of = self.part_of(offset, bytes.len());
        if (bytes.len() >= PAGE_MIN || part_of.is_some())
            && let Some(number) = number_of(offset, part_of.unwrap_or(bytes.len()))
        {
            self.timed(number, bytes, read, part_of.is_some())?;
        }
        Ok(())
    }

    /// How long a read took: no time if it took long although the thread has not blocked since the last such read.
    fn without_preemption(&mut self, read: Duration) -> Duration {
        if !read_waited(read) {
            return read;
        }
        let times = times_blocked();
        let before = std::mem::replace(&mut self.times_blocked, times);
        if times.is_some() && times == before { Duration::ZERO } else { read }
    }

    /// The page size, if these bytes are only the start of a page: from SQLite 3.45 on, a read of an overflow page
    /// covers only as much as the value needs.
    fn part_of(&self, offset: i64, size: usize) -> Option<usize> {
        let State::Active(_, predictor) = &self.state else { return None };
        let page_size = predictor.trees.geometry().page_size;
        let is_part = size < page_size as usize && offset > 0 && offset % i64::from(page_size) == 0;
        is_part.then_some(page_size as usize)
    }

    fn timed(
        &mut self,
        number: u32,
        bytes: &[u8],
        read: Duration,
        is_part: bool,
    ) -> Result<(), NoMemory> {
        #[cfg(test)]
        assert!(self.planted != Planted::PanicTimed, "planted");
        let waited = read_waited(read);
        if !matches!(self.state, State::Active(..)) {
            self.idle_counts.read(read, false);
        }
        match &mut self.state {
            State::LeftAlone => {}
            State::Idle(_) if waited => self.state = State::Alert(ALERT_READS),
            State::Idle(sampler) => sampler.read(Some(read)),
            State::Alert(_) if waited => self.wake(number, bytes.len())?,
            State::Alert(0) => self.sleep(),
            State::Alert(left) => *left -= 1,
            State::Active(unpredicted_reads, predictor) => {
                let page_size = predictor.trees.geometry().page_size;
                if bytes.len() != page_size as usize && !is_part {
                    // A VACUUM may give the file another page size.
                    self.idle_counts.read(read, false);
                    self.sleep();
                    return Ok(());
                }
                let salts = self.wal.salts();
                if salts != self.salts {
                    self.salts = salts;
                    predictor.forget(); // the file now has what the log held
                }
                let disk = &mut Disk {
                    descriptor: &self.descriptor,
                    wal: &self.wal,
                    page_size: page_size.into(),
                    residency_unknown: self.residency_unknown,
                    waited: false,
                };
                let predicted = predictor.on_read(number, bytes, read, disk)?;
                *unpredicted_reads = if waited || predicted { 0 } else { *unpredicted_reads + 1 };
                if *unpredicted_reads > UNPREDICTED_READS_MAX {
                    self.sleep();
                }
            }
        }
        Ok(())
    }

    /// SQLite writes a page. The write proceeds regardless of what is kept here.
    pub(crate) fn written(&mut self, offset: i64, size: usize) {
        if let State::Active(_, predictor) = &mut self.state
            && let Some(page) = (offset as u64).checked_div(size as u64)
            && let Ok(page) = u32::try_from(page + 1)
        {
            predictor.written(page);
        }
    }

    fn stamped(&mut self, stamp: &[u8]) {
        if self.stamp != stamp {
            self.stamp.copy_from_slice(stamp);
            self.forget();
        }
    }

    /// The file has changed.
    pub(crate) fn forget(&mut self) {
        if let State::Active(_, predictor) = &mut self.state {
            predictor.forget();
        }
    }

    /// Starts to examine reads. The last read was of a page of this size.
    fn wake(&mut self, number: u32, size: usize) -> Result<(), NoMemory> {
        let mut header = [0; HEADER];
        // The page that was just read is in the page cache, if there is one for this file.
        let offset = u64::from(number.saturating_sub(1)) * size as u64;
        self.residency_unknown = self.descriptor.read_cached(offset, &mut header).is_none()
            && !self.descriptor.is_resident(offset, HEADER);
        let (descriptor, wal) = (&self.descriptor, &self.wal);
        let (page_size, residency_unknown) = (size as u64, self.residency_unknown);
        let mut disk = Disk { descriptor, wal, page_size, residency_unknown, waited: false };
        if !disk.read_cached(1, &mut header) {
            disk.ask(1, 1); // SQLite read it long ago
            self.sleep();
            return Ok(());
        }
        let Some(geometry) = Geometry::read(&header) else {
            self.state = State::LeftAlone; // [RDR-2]
            return Ok(());
        };
        let trees = Trees::new(geometry, self.settings.memory)?;
        let Settings { scope, distance_max, .. } = self.settings;
        let mut predictor = boxed(Predictor::new(trees, scope, distance_max))?;
        let mut bytes = filled(0, geometry.page_size as usize)?;
        predictor.tree_counts = std::mem::take(&mut self.tree_counts);
        self.wakes += 1;
        self.salts = self.wal.salts();
        self.state = State::Active(0, predictor);
        let State::Active(_, predictor) = &mut self.state else { return Ok(()) };
        disk.page_size = geometry.page_size.into();
        for page in self.recent.into_iter().filter(|page| *page > 0) {
            crate::trees::available(predictor.trees.load(page, &mut disk))?;
        }
        for leaf in self.recent_leaves.into_iter().rev().filter(|leaf| *leaf > 0) {
            if disk.read_cached(leaf, &mut bytes) {
                predictor.read_before(leaf, &bytes, &mut disk)?;
            }
        }
        Ok(())
    }

    /// An allocation failed: ends look-ahead.
    pub(crate) fn give_up(&mut self) {
        self.sleep();
        self.state = State::LeftAlone;
    }

    fn sleep(&mut self) {
        self.counts = self.counts();
        if let State::Active(_, predictor) = &mut self.state {
            predictor.settle();
            predictor.tree_counts.forget();
            self.tree_counts = std::mem::take(&mut predictor.tree_counts);
        }
        self.state = match self.settings.scope {
            Scope::Off => State::LeftAlone,
            Scope::Scan | Scope::Full => State::Idle(Sampler::default()),
        };
    }

    /// Injects this into the next timed reads.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        LOOKS.set((planted == Planted::Waits).then_some(0));
        let without_timing = planted == Planted::PanicWithoutTiming;
        self.state =
            if without_timing { State::LeftAlone } else { State::Idle(Sampler::default()) };
    }

    fn counts(&self) -> HintCounts {
        let State::Active(_, predictor) = &self.state else { return self.counts };
        self.counts.and(predictor.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_micros(100);
    const FAST: Duration = Duration::from_micros(3);

    /// A reader of a file with this content.
    fn reader(content: &[u8]) -> (Reader, std::fs::File) {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, content).unwrap();
        (Reader::new(Descriptor::of(&file), Settings::new()), file)
    }

    /// A file of 100 empty pages, of which the first begins with SQLite's header.
    fn database() -> Vec<u8> {
        let mut content = vec![0; 100 * 4096];
        content[..18].copy_from_slice(b"SQLite format 3\0\x10\0");
        content
    }

    #[test]
    fn where_nothing_waits_few_reads_are_timed_and_none_is_looked_at() {
        let (mut reader, _file) = reader(&database());
        let mut timed = 0;
        for number in 1..10_000 {
            if reader.begins().is_some() {
                timed += 1;
                reader.timed(number, &[13; 4096], FAST, false).unwrap();
            }
            assert!(matches!(reader.state, State::Idle(_)), "[RDR-1]");
        }
        assert!((150..250).contains(&timed), "{timed}");
        // A read that waits now and then does not activate it.
        for number in 1..1_000 {
            reader
                .timed(number, &[13; 4096], if number % 40 == 0 { SLOW } else { FAST }, false)
                .unwrap();
            assert!(!matches!(reader.state, State::Active(..)));
        }
    }

    #[test]
    fn it_wakes_by_two_reads_that_wait_and_sleeps_when_nothing_comes_of_it() {
        let (mut reader, _file) = reader(&database());
        reader.timed(1, &[13; 4096], SLOW, false).unwrap();
        reader.timed(2, &[13; 4096], SLOW, false).unwrap();
        let active = matches!(reader.state, State::Active(..));
        if !active {
            return; // the kernel does not report residency on this filesystem
        }
        for number in 0..UNPREDICTED_READS_MAX + 2 {
            assert!(reader.begins().is_some(), "active, each read is timed");
            reader.timed(number % 90 + 1, &[13; 4096], FAST, false).unwrap();
        }
        assert!(matches!(reader.state, State::Idle(_)));
        assert!(reader.stats().as_str().starts_with("wakes=1 asked=0"), "{:?}", reader.stats());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_read_that_took_long_without_blocking_did_not_wait() {
        let (mut reader, _file) = reader(&database());
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(reader.without_preemption(SLOW), SLOW, "it may have waited");
        // A lock inside of the process, which any allocation may take, blocks now and then.
        assert!((0..1000).any(|_| reader.without_preemption(SLOW).is_zero()));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(reader.without_preemption(SLOW), SLOW);
        assert_eq!(reader.without_preemption(FAST), FAST);
    }

    #[test]
    fn a_part_of_a_page_is_a_read_of_that_page_and_a_page_of_another_size_is_not() {
        let (mut reader, _file) = reader(&database());
        for _ in 0..2 {
            reader.timed(1, &[13; 4096], SLOW, false).unwrap();
        }
        if !matches!(reader.state, State::Active(..)) {
            return; // the kernel does not report residency on this filesystem
        }
        for (offset, size) in [(5 * 4096, 100), (9 * 4096, 1024), (7 * 4096, 4095)] {
            reader.ended(now(), offset, &[0; 4096][..size]).unwrap();
            assert!(matches!(reader.state, State::Active(..)), "{size} bytes at {offset}");
        }
        reader.ended(now(), 24, &[1; 16]).unwrap();
        let reads: u64 = reader.by_tree().unwrap().iter().map(|(_, counts)| counts.reads).sum();
        assert_eq!(reads, 2 + 3, "three parts of pages, and not the header");
        for offset in [1024, 2 * 8192] {
            reader.timed(1, &[13; 4096], SLOW, false).unwrap();
            reader.timed(1, &[13; 4096], SLOW, false).unwrap();
            assert!(matches!(reader.state, State::Active(..)));
            reader
                .ended(now(), offset, &[0; 8192][..if offset == 1024 { 1024 } else { 8192 }])
                .unwrap();
            assert!(matches!(reader.state, State::Idle(_)), "at {offset}");
        }
    }

    #[test]
    fn what_is_known_is_forgotten_when_the_log_restarts() {
        let (mut reader, _file) = reader(&database());
        let set_salt = reader.wal.mapped_for_test();
        let mut interior = [0; 4096];
        (interior[0], interior[11]) = (5, 9); // no cell, and a last child
        let known = |reader: &Reader| match &reader.state {
            State::Active(_, predictor) => Some(predictor.trees.bytes()),
            _ => None,
        };
        for number in [2, 3, 4] {
            reader.timed(number, &interior, SLOW, false).unwrap();
        }
        let Some(before) = known(&reader) else {
            return; // the kernel does not report residency on this filesystem
        };
        assert!(before > 0);
        reader.timed(5, &[13; 4096], SLOW, false).unwrap();
        assert_eq!(known(&reader), Some(before));
        set_salt(2);
        reader.timed(5, &[13; 4096], SLOW, false).unwrap();
        assert_eq!(known(&reader), Some(0));
    }

    /// A hole in an in-memory file is not in the page cache, and reading it does not wait.
    #[test]
    fn where_nothing_says_what_is_in_memory_one_read_may_wait() {
        let name = "database";
        let memory = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(memory);
        file.set_len(100 * 4096).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &database()[..4096], 0).unwrap();
        let mut reader = Reader::new(Descriptor::of(&file), Settings::new());
        for number in [1, 50] {
            reader.timed(number, &[13; 4096], SLOW, false).unwrap();
        }
        assert!(matches!(reader.state, State::Active(..)));
        let says = reader.descriptor.read_cached(0, &mut [0]).is_some();
        assert_eq!(reader.residency_unknown, !says, "page 50 was read just now");
        let mut disk = Disk {
            descriptor: &reader.descriptor,
            wal: &reader.wal,
            page_size: 4096,
            residency_unknown: false,
            waited: false,
        };
        let into = &mut [0; 4096];
        assert!(disk.read_cached(1, into));
        assert_eq!(disk.read_cached(50, into), says, "it is not known to be there");
        // On a busy machine, the read of page 1 may have taken as long as one that waits.
        (disk.residency_unknown, disk.waited) = (true, false);
        assert!(disk.read_cached(50, into));
        disk.waited = true;
        assert_eq!((disk.read_cached(50, into), disk.read_cached(1, into)), (says, says));
    }

    #[test]
    fn what_is_not_sqlites_is_left_alone() {
        let (mut reader, _file) = reader(&[7; 8 * 4096]);
        for _ in 0..20 {
            reader.timed(1, &[7; 4096], SLOW, false).unwrap();
        }
        assert!(!matches!(reader.state, State::Active(..)) && reader.wakes == 0, "[RDR-2]");
        if matches!(reader.state, State::LeftAlone) {
            assert!(reader.begins().is_none(), "[RDR-2]");
        }
    }
}
