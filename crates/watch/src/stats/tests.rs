//! The statistics, and the calls that they are computed from: worked examples, and properties that hold for any events.

use proptest::prelude::*;

use super::super::access::{FILES_MAX, ReadMode};
use super::super::calls::Calls;
use super::super::event::{Call, Event, EventKind, FileKey};
use super::*;

const PAGE: u64 = 4096;
const FILE: FileKey = FileKey { device: 254 << 20, inode: 7 };
const OTHER: FileKey = FileKey { device: 254 << 20, inode: 8 };
const DISK: u32 = 254 << 20;

/// Events of one task, in order.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
    at_ns: u64,
}

impl Story {
    fn then(&mut self, ns: u64, kind: EventKind) -> &mut Story {
        self.at_ns += ns;
        self.events.push(Event { at_ns: self.at_ns, task: 1, kind });
        self
    }

    fn enter(&mut self, call: Call, offset: u64, bytes: u64) -> &mut Story {
        let (file, offset) = (Some(FILE), Some(offset));
        self.then(1, EventKind::Enter { call, descriptor: 3, file, offset, bytes })
    }

    /// A read of `pages` pages, for which the kernel adds `added` to the page cache and the task waits for `wait_ns`.
    fn read(&mut self, first: u64, pages: u64, added: &[(u64, u64)], wait_ns: u64) -> &mut Story {
        self.enter(Call::Read, first * PAGE, pages * PAGE);
        for &(first, pages) in added {
            self.then(0, EventKind::Added { file: FILE, first, pages });
        }
        if let (Some(&(first, _)), sectors) = (added.first(), added.iter().map(|it| it.1 * 8).sum())
        {
            let (device, sector, transfer) = (DISK, first * 8, Transfer::Read);
            self.then(0, EventKind::Submit { device, sector, sectors, transfer });
            self.then(0, EventKind::Issue { device, sector, sectors, transfer });
        }
        if wait_ns > 0 {
            self.then(0, EventKind::Slept);
        }
        self.then(wait_ns, EventKind::Requested { file: FILE, first, last: first + pages - 1 });
        self.then(0, EventKind::Exit { result: (pages * PAGE) as i64 })
    }

    fn calls(&self) -> Calls {
        let mut calls = Calls::new(PAGE);
        self.events.iter().for_each(|event| calls.event(event));
        calls.end();
        calls
    }

    fn stats_of(&self) -> Stats {
        stats_of(&self.calls())
    }
}

fn stats_of(calls: &Calls) -> Stats {
    let mut stats = Stats::default();
    calls.done.iter().for_each(|(_, access)| stats.access(access));
    stats
}

fn only(stats: &Stats) -> FileStats {
    let mut files = stats.files().map(|(_, file)| file);
    let file = files.next().expect("one file").clone();
    assert!(files.next().is_none(), "one file");
    file
}

fn strip(file: &FileStats) -> String {
    file.strip.iter().collect()
}

#[test]
fn a_read_that_reads_ahead_waits_and_the_next_ones_hit() {
    let mut story = Story::default();
    story.read(4, 1, &[(4, 32)], 90_000).read(5, 1, &[], 0).read(6, 2, &[], 0).read(
        40,
        1,
        &[(40, 1)],
        70_000,
    );
    let stats = story.stats_of();
    let file = only(&stats);
    assert_eq!((file.reads.count, file.reads.bytes, file.hits), (4, 5 * PAGE, 2));
    assert_eq!((file.ahead_pages, file.unused_pages()), (31, 28), "pages 5, 6 and 7 were used");
    assert_eq!(
        (file.waits.count, file.waits.total_ns, file.waits.longest_ns),
        (2, 160_000, 90_000)
    );
    assert_eq!((file.requests.count, file.requests.bytes), (2, 33 * PAGE));
    assert_eq!(strip(&file), "R..R");
    assert_eq!(file.avoidable_ns, [0; 3], "neither wait could be known of");
    let device = &stats.devices[&DISK];
    assert_eq!((device.read.count, device.own_read.count), (2, 2));
}

#[test]
fn a_wait_in_a_sequence_is_avoidable_and_a_block_that_is_on_its_way_arrived_late() {
    let mut story = Story::default();
    story.read(0, 2, &[(0, 2)], 50_000).read(2, 2, &[(2, 2)], 60_000).read(4, 2, &[], 40_000);
    let file = only(&story.stats_of());
    assert_eq!(file.avoidable_ns[Pattern::Sequence as usize], 100_000);
    assert_eq!(file.waits.total_ns, 150_000);
    assert_eq!((strip(&file).as_str(), file.hits), ("RS!", 0));
}

#[test]
fn many_hits_in_a_row_are_two_letters() {
    let mut story = Story::default();
    story.read(0, 8, &[(0, 8)], 1000);
    (0..8).for_each(|page| _ = story.read(page, 1, &[], 0));
    story.read(90, 1, &[(90, 1)], 1000);
    let file = only(&story.stats_of());
    assert_eq!((strip(&file).as_str(), file.hits), ("R..R", 8));
}

#[test]
fn what_a_program_asks_to_be_read_for_later_is_not_the_kernels_guess() {
    let mut story = Story::default();
    story
        .enter(Call::Advise(3), 0, 8 * PAGE)
        .then(0, EventKind::Added { file: FILE, first: 0, pages: 8 });
    story.then(0, EventKind::Exit { result: 0 }).read(3, 1, &[], 0);
    let file = only(&story.stats_of());
    assert_eq!((file.advised_pages, file.ahead_pages, file.hits), (8, 0, 1));
}

#[test]
fn advice_that_the_kernel_refuses_was_not_given() {
    let mut story = Story::default();
    story.enter(Call::Advise(9), 0, PAGE).then(0, EventKind::Exit { result: -22 });
    assert_eq!(story.calls().done, []);
}

#[test]
fn pages_taken_in_to_be_written_are_not_read_ahead() {
    let mut story = Story::default();
    story.enter(Call::Write, 0, PAGE).then(0, EventKind::Added { file: FILE, first: 0, pages: 1 });
    story.then(0, EventKind::Exit { result: PAGE as i64 }).enter(Call::Sync, 0, 0);
    story.then(2_000_000, EventKind::Exit { result: 0 });
    let file = only(&story.stats_of());
    assert_eq!((file.writes.count, file.writes.bytes, file.ahead_pages), (1, PAGE, 0));
    assert_eq!((file.syncs.count, file.syncs.total_ns), (1, 2_000_000));
}

#[test]
fn reads_past_the_page_cache_go_by_their_offsets() {
    let mut story = Story::default();
    for block in [5, 6, 9] {
        let (device, sector, transfer) = (DISK, 1000 + block * 16, Transfer::Read);
        // The second read is at the file's position, which only the filesystem's event reports.
        let (file, offset) = (Some(FILE), (block != 6).then_some(block * 8192));
        story.then(
            1,
            EventKind::Enter { call: Call::Read, descriptor: 3, file, offset, bytes: 8192 },
        );
        story.then(0, EventKind::Named { file: FILE, offset: Some(block * 8192) });
        story.then(0, EventKind::Submit { device, sector, sectors: 16, transfer });
        story.then(0, EventKind::Issue { device, sector, sectors: 16, transfer });
        story.then(0, EventKind::Slept).then(80_000, EventKind::Exit { result: 8192 });
    }
    let file = only(&story.stats_of());
    assert_eq!((file.reads.bytes, file.requests.bytes, file.waits.count), (3 * 8192, 3 * 8192, 3));
    assert_eq!((strip(&file).as_str(), file.avoidable_ns), ("RSR", [80_000, 0, 0]));
}

#[test]
fn a_read_that_takes_pages_in_is_not_direct_where_the_kernel_does_not_say_what_was_asked() {
    let (device, sector, sectors, transfer) = (DISK, 8, 8, Transfer::Read);
    for (added, expected) in
        [(Some(FILE), ReadMode::Cached), (Some(OTHER), ReadMode::Direct), (None, ReadMode::Direct)]
    {
        let mut story = Story::default();
        story.enter(Call::Read, PAGE, PAGE);
        if let Some(file) = added {
            story.then(0, EventKind::Added { file, first: 1, pages: 1 });
        }
        story.then(0, EventKind::Submit { device, sector, sectors, transfer });
        story.then(0, EventKind::Slept).then(9000, EventKind::Exit { result: PAGE as i64 });
        let calls = story.calls();
        let ways = calls.done.iter().filter_map(|(_, access)| match access {
            Access::Read(read) => Some((read.mode, read.missed)),
            _ => None,
        });
        assert_eq!(ways.collect::<Vec<_>>(), [(expected, true)]);
    }
}

#[test]
fn of_a_task_that_has_ended_nothing_is_kept() {
    let mut story = Story::default();
    story.then(1, EventKind::Fault { file: FILE, page: 9 }).then(1, EventKind::TaskExited);
    let (device, sector, sectors, transfer) = (DISK, 8, 8, Transfer::Read);
    story
        .then(1, EventKind::Submit { device, sector, sectors, transfer })
        .then(1, EventKind::Slept);
    let calls = story.calls();
    assert_eq!(calls.tasks(), 0);
    assert!(matches!(calls.done[..], [(_, Access::Read(_)), (_, Access::Exited { task: 1 })]));
}

#[test]
fn a_mapped_page_counts_as_a_read_and_the_kernels_guess_around_it_as_read_ahead() {
    let mut story = Story::default();
    story.then(1, EventKind::Fault { file: FILE, page: 9 });
    story.then(1, EventKind::Added { file: FILE, first: 8, pages: 4 });
    story.then(1, EventKind::Fault { file: FILE, page: 10 });
    let file = only(&story.stats_of());
    assert_eq!((file.reads.count, file.hits), (2, 1));
    assert_eq!((file.ahead_pages, file.unused_pages()), (3, 2));
}

#[test]
fn a_request_of_the_filesystems_own_tables_is_not_the_files() {
    let tables = FileKey { device: 3, inode: DISK.into() };
    let mut story = Story::default();
    story.enter(Call::Read, 0, PAGE).then(0, EventKind::Added { file: FILE, first: 0, pages: 4 });
    for (added, sector, sectors) in [(Some(tables), 9000, 8), (None, 80, 32)] {
        if let Some(file) = added {
            story.then(0, EventKind::Added { file, first: 500, pages: 1 });
        }
        // First to a device that is built from this one.
        let (device, transfer) = (DISK + 1, Transfer::Other);
        story.then(0, EventKind::Submit { device, sector, sectors, transfer });
        let (device, transfer) = (DISK, Transfer::Read);
        story.then(0, EventKind::Submit { device, sector, sectors, transfer });
        story.then(0, EventKind::Issue { device, sector, sectors, transfer });
    }
    story
        .then(0, EventKind::Requested { file: FILE, first: 0, last: 0 })
        .then(0, EventKind::Exit { result: 4096 });
    let calls = story.calls();
    let bytes: BTreeMap<_, _> = stats_of(&calls)
        .files()
        .map(|(number, file)| (calls.files()[number as usize], file.requests.bytes))
        .collect();
    assert_eq!(bytes, [(FILE, 4 * PAGE), (tables, PAGE)].into());
}

#[test]
fn requests_for_one_file_after_another_that_io_uring_reads_are_each_files() {
    let (device, sectors, transfer) = (DISK, 128, Transfer::Read);
    let mut story = Story::default();
    for (file, place) in [(FILE, 0), (OTHER, 1000), (OTHER, 2000), (FILE, 3000)] {
        story.then(1, EventKind::Added { file, first: place, pages: 32 });
        for sector in [place, place + sectors] {
            story.then(0, EventKind::Submit { device, sector, sectors, transfer });
            story.then(0, EventKind::Issue { device, sector, sectors, transfer });
        }
        story.then(1, EventKind::Requested { file, first: place, last: place });
    }
    let stats = story.stats_of();
    let bytes: Vec<u64> = stats.files().map(|(_, file)| file.requests.bytes).collect();
    assert_eq!(bytes, [64 * PAGE; 2]);
}

#[test]
fn merged_and_split_requests_are_counted_as_the_device_gets_them() {
    let mut story = Story::default();
    let submit = |sector, sectors| EventKind::Submit {
        device: DISK,
        sector,
        sectors,
        transfer: Transfer::Read,
    };
    let issue = |sector, sectors| EventKind::Issue {
        device: DISK,
        sector,
        sectors,
        transfer: Transfer::Read,
    };
    story.enter(Call::Read, 0, 1 << 20);
    // Two merged submissions; later another process reads part of the same range.
    story.then(0, submit(0, 8)).then(0, submit(8, 8)).then(0, issue(0, 16)).then(0, issue(8, 8));
    story.then(0, submit(100, 64)).then(0, issue(100, 32)).then(0, issue(132, 32));
    // A request of another process, and one that the device requeues.
    story.then(0, issue(132, 32)).then(0, submit(500, 8)).then(0, issue(500, 8));
    story
        .then(0, EventKind::Requeue { device: DISK, sectors: 8, transfer: Transfer::Read })
        .then(0, issue(500, 8));
    let stats = story.stats_of();
    let device = &stats.devices[&DISK];
    assert_eq!((device.read.count, device.read.bytes), (6, (16 + 8 + 96 + 8) * 512));
    assert_eq!((device.own_read.count, device.own_read.bytes), (4, (16 + 64 + 8) * 512));
    assert_eq!(only(&stats).requests, device.own_read);
}

#[test]
fn one_file_by_two_numbers_is_one() {
    let called = FileKey { device: 99, ..FILE };
    let mut story = Story::default();
    for first in [0, 1] {
        let (file, offset) = (Some(called), Some(first * PAGE));
        story.then(
            1,
            EventKind::Enter { call: Call::Read, descriptor: 3, file, offset, bytes: PAGE },
        );
        story
            .then(1, EventKind::Requested { file: FILE, first, last: first })
            .then(1, EventKind::Exit { result: 4096 });
    }
    let (file, offset) = (Some(called), Some(0));
    story.then(1, EventKind::Enter { call: Call::Write, descriptor: 3, file, offset, bytes: 5 });
    story.then(1, EventKind::Exit { result: 5 });
    let calls = story.calls();
    let file = only(&stats_of(&calls));
    assert_eq!((calls.files(), file.reads.count, file.writes.bytes), (&[FILE][..], 2, 5));
    assert_eq!(calls.called(FILE), Some(called));
}

#[test]
fn numbers_of_the_same_files_are_bounded() {
    let mut story = Story::default();
    for inode in 0..(1 << 16) + 9 {
        let (called, file) = (FileKey { device: 99, inode }, FileKey { inode, ..FILE });
        let call = Call::Read;
        let enter = EventKind::Enter {
            call,
            descriptor: 3,
            file: Some(called),
            offset: Some(0),
            bytes: PAGE,
        };
        story.then(1, enter).then(1, EventKind::Requested { file, first: 0, last: 0 });
    }
    assert_eq!(story.calls().same(), 9, "[CAL-1]");
}

#[test]
fn what_no_call_moves_is_not_possible() {
    for (bytes, is_possible) in [(1 << 31, true), ((1 << 33) - 1, true), (1 << 33, false)] {
        assert_eq!(Access::Write { file: 0, bytes }.is_possible(), is_possible, "[ACS-1]");
    }
    assert!(!Access::Write { file: FILES_MAX + 1, bytes: 1 }.is_possible());
    for (task, is_possible) in [((1 << 22) - 1, true), (1 << 22, false)] {
        assert_eq!(Access::Exited { task }.is_possible(), is_possible);
    }
}

#[test]
fn files_and_requests_under_way_are_bounded() {
    let mut story = Story::default();
    for inode in 0..5000 {
        let file = Some(FileKey { inode, ..FILE });
        story.then(
            1,
            EventKind::Enter { call: Call::Write, descriptor: 3, file, offset: None, bytes: 1 },
        );
        for sector in 0..20 {
            let (sector, transfer) = (inode * 1000 + sector * 8, Transfer::Write);
            story.then(0, EventKind::Submit { device: DISK, sector, sectors: 8, transfer });
        }
        story.then(1, EventKind::Exit { result: 1 });
    }
    let calls = story.calls();
    assert_eq!(calls.files().len(), FILES_MAX as usize + 1, "[CAL-1]");
    assert!(calls.under_way() <= 1 << 16, "[CAL-1]");
    let stats = stats_of(&calls);
    let (_, others) = stats.files().last().unwrap();
    assert_eq!(others.writes.count, 5000 - u64::from(FILES_MAX));
}

#[test]
fn pages_that_are_never_requested_are_bounded() {
    let mut calls = Calls::new(PAGE);
    for first in 0..(1 << 20) + 9 {
        let kind = EventKind::Added { file: FILE, first, pages: 1 };
        calls.event(&Event { at_ns: first, task: 1, kind });
    }
    assert_eq!(calls.added(1), 9, "[CAL-1]");
}

/// Any events, on few tasks, files and offsets, so that they interact.
fn any_event() -> impl Strategy<Value = EventKind> {
    let file = || prop::sample::select(vec![FILE, OTHER]);
    let call = prop::sample::select(vec![Call::Read, Call::Write, Call::Sync, Call::Advise(3)]);
    let transfer = || prop::sample::select(vec![Transfer::Read, Transfer::Write, Transfer::Other]);
    prop_oneof![
        (call, prop::option::of(file()), prop::option::of(0..1u64 << 20), any::<u64>()).prop_map(
            |(call, file, offset, bytes)| EventKind::Enter {
                call,
                descriptor: 3,
                file,
                offset,
                bytes
            }
        ),
        (-1..1i64 << 17).prop_map(|result| EventKind::Exit { result }),
        (1u32..4).prop_map(|before| EventKind::Exec { before }),
        Just(EventKind::TaskExited),
        (file(), 0..300u64, 0..40u64).prop_map(|(file, first, more)| EventKind::Requested {
            file,
            first,
            last: first + more
        }),
        (file(), 0..300u64, 0..5u32).prop_map(|(file, first, order)| EventKind::Added {
            file,
            first,
            pages: 1 << order
        }),
        (file(), 0..300u64).prop_map(|(file, page)| EventKind::Fault { file, page }),
        (file(), proptest::option::of(0..1u64 << 20))
            .prop_map(|(file, offset)| EventKind::Named { file, offset }),
        file().prop_map(|file| EventKind::Requested { file, first: 0, last: u64::MAX }),
        Just(EventKind::Slept),
        (0..500u64, 0..64u64, transfer()).prop_map(|(sector, sectors, transfer)| {
            EventKind::Submit { device: DISK, sector, sectors, transfer }
        }),
        (0..500u64, 0..64u64, transfer()).prop_map(|(sector, sectors, transfer)| {
            EventKind::Issue { device: DISK, sector, sectors, transfer }
        }),
        (0..64u64, transfer()).prop_map(|(sectors, transfer)| EventKind::Requeue {
            device: DISK,
            sectors,
            transfer
        }),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_figures_make_sense(
        events in prop::collection::vec((any_event(), 1u32..4, 0u64..1000), 0..300),
    ) {
        let mut calls = Calls::new(PAGE);
        let mut at_ns = 0;
        for (kind, task, ns) in events {
            at_ns += ns;
            calls.event(&Event { at_ns, task, kind });
        }
        calls.end();
        prop_assert!(calls.done.iter().all(|(_, access)| access.is_possible()), "[CAL-2]");
        let stats = stats_of(&calls);
        for (_, file) in stats.files() {
            prop_assert!(file.avoidable_ns.iter().sum::<u64>() <= file.waits.total_ns, "[ACC-1]");
            prop_assert!(file.unused_pages() <= file.ahead_pages, "[ACC-2]");
            prop_assert!(file.hits + file.waits.count <= file.reads.count);
            prop_assert!(file.waits.total_ns <= at_ns * 3, "three tasks wait no longer than all of the time");
            prop_assert!(file.strip.len() <= STRIP_MAX, "[ACC-3]");
        }
        prop_assert!(calls.files().len() <= 2);
    }

    #[test]
    fn pages_are_a_set(
        steps in prop::collection::vec((any::<bool>(), 0u64..500, 0u64..200), 0..60),
    ) {
        let (mut pages, mut naive) = (Pages::default(), std::collections::BTreeSet::new());
        for (is_added, first, count) in steps {
            if is_added {
                let before = naive.len();
                naive.extend(first..first + count);
                prop_assert_eq!(pages.add(first, count, 100), (naive.len() - before) as u64);
            } else {
                pages.remove(first, count);
                naive.retain(|page| !(first..first + count).contains(page));
            }
            prop_assert_eq!(pages.pages, naive.len() as u64);
            let held: u32 = pages.words.values().map(|word| word.count_ones()).sum();
            prop_assert_eq!(u64::from(held), pages.pages);
        }
    }
}

#[test]
fn pages_remembered_are_bounded_over_all_files() {
    let mut stats = Stats::default();
    let ahead = |file, first, pages| Access::Ahead { file, first, pages };
    let words = |stats: &Stats| stats.files.iter().map(|it| it.unused.words.len()).sum::<usize>();
    for (file, first) in (0..9).flat_map(|file| (0..12).map(move |at| (file, at << 20))) {
        stats.access(&ahead(file, first, 1 << 20));
    }
    assert_eq!(words(&stats), AHEAD_MAX, "[ACC-3]");
    let (more, mode) = (64 * 64 - 1, ReadMode::Cached);
    let (bytes, took_ns, waited_ns, missed) = (4096 * 64 * 64, 0, None, false);
    stats.access(&Access::Read(Read {
        task: 1,
        file: 2,
        first: 0,
        more,
        bytes,
        took_ns,
        waited_ns,
        missed,
        mode,
    }));
    assert_eq!((words(&stats), stats.ahead_words), (AHEAD_MAX - 64, AHEAD_MAX - 64));
    stats.access(&ahead(8, 1 << 30, 1 << 20));
    assert_eq!((words(&stats), stats.ahead_words), (AHEAD_MAX, AHEAD_MAX), "[ACC-3]");
}
