//! The local tier: its contents after a restart or a crash, its size, and a disk that is full, fails, hangs, or
//! whose files are damaged or deleted during use: slower, reported, never wrong.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use forebay_io::{Arena, Op, OsError, Request};
use forebay_object::object_store::memory::InMemory;
use forebay_object::{Bucket, Error, FileId, Mount, Options, Stats, Takeover, Tier, View};

use crate::disk::{Disk, Fault};
use crate::pages::{PAGE, commit, pages, state_in, states};
use crate::site::Site;

const MIB: u64 = 1 << 20;

fn tier(directory: &Path) -> Tier {
    Tier { directory: directory.to_owned(), bytes: MIB, io: None }
}

fn try_bucket(store: &Arc<InMemory>, tier: Tier) -> forebay_object::Result<Bucket> {
    let costs = Some(forebay::DeviceCosts::default());
    let options = Options { object_bytes: 64 << 10, costs, tier: Some(tier), ..Options::default() };
    Bucket::new(Arc::clone(store) as Arc<_>, "space", options)
}

fn bucket(store: &Arc<InMemory>, tier: Tier) -> Bucket {
    try_bucket(store, tier).unwrap()
}

/// A tablespace with one file of `blocks` pages, all in state 1.
fn created(blocks: u32) -> (Arc<InMemory>, FileId) {
    created_with(blocks, 1, None)
}

fn created_with(blocks: u32, state: u64, seed: Option<u64>) -> (Arc<InMemory>, FileId) {
    let store = Arc::new(InMemory::new());
    let options = Options { object_bytes: 64 << 10, seed, ..Options::default() };
    let bucket = Bucket::new(Arc::clone(&store) as Arc<_>, "space", options).unwrap();
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, u64::from(blocks) * PAGE as u64).unwrap();
    commit(&writer, &pages(file, 0..blocks), state).unwrap();
    writer.close().unwrap();
    (store, file)
}

/// Reads pages one by one; all are in `state`.
fn read(view: &View, file: FileId, blocks: impl IntoIterator<Item = u32>, state: u64) {
    for page in pages(file, blocks) {
        view.read_pages(&[page], &mut |page, bytes| assert_eq!(state_in(page, bytes), state))
            .unwrap();
    }
}

/// The requests of `work` to the store and the tier.
fn spent(bucket: &Bucket, work: impl FnOnce()) -> Stats {
    let before = bucket.stats();
    work();
    let mut stats = bucket.stats();
    stats.gets -= before.gets;
    stats.tier_hits -= before.tier_hits;
    stats.tier_misses -= before.tier_misses;
    stats.tier_damaged -= before.tier_damaged;
    stats
}

/// Waits until it holds: fetched pages reach the tier a little later.
fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not come about");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Reads pages one by one until all of them are in the tier.
fn warm(bucket: &Bucket, view: &View, file: FileId, blocks: std::ops::Range<u32>) {
    eventually(|| spent(bucket, || read(view, file, blocks.clone(), 1)).gets == 0);
}

fn bytes_in(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap();
    files.map(|it| it.unwrap().metadata().map_or(0, |it| it.len())).sum()
}

fn segments(directory: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|it| it.unwrap().path());
    paths.filter(|it| it.extension().is_some_and(|it| it == "segment")).collect()
}

#[test]
fn what_was_fetched_once_is_read_here_also_after_a_restart_and_below_a_mount() {
    let site = Site::new();
    let (store, file) = created(2000);
    let first = bucket(&store, tier(&site.path("tier")));
    warm(&first, &first.reader().unwrap().view(), file, 0..300);
    drop(first);
    // More slots reach the same segment.
    let second = bucket(&store, tier(&site.path("tier")));
    let view = second.reader().unwrap().view();
    let stats = spent(&second, || read(&view, file, 0..300, 1));
    assert_eq!((stats.gets, stats.tier_hits, stats.tier_damaged), (0, 300, 0));
    warm(&second, &view, file, 300..400);
    drop((view, second));
    let third = bucket(&store, tier(&site.path("tier")));
    let mount = Mount::read_only(third.reader().unwrap(), &site.path("mount")).unwrap();
    let path = mount.directory().join("table");
    let table = mount.volume().open(&path, &forebay_io::OpenOptions::new()).unwrap();
    let lease = Arena::new(1, 400 * PAGE).unwrap().take().unwrap();
    let stats = spent(&third, || {
        let request = Request::read(&table, 0, vec![lease]);
        let read = mount.io(8).unwrap().submit(request).wait().into_result().unwrap();
        for (page, bytes) in pages(file, 0..400).into_iter().zip(read[0].chunks(PAGE)) {
            assert_eq!(state_in(page, bytes), 1);
        }
    });
    assert_eq!((stats.gets, stats.tier_hits, stats.tier_failures), (0, 400, 0));
}

/// Objects are immutable: a page that was written again is in another object.
#[test]
fn a_page_that_was_written_again_is_fetched_again() {
    let site = Site::new();
    let (store, file) = created(200);
    let bucket = bucket(&store, tier(&site.path("tier")));
    let reader = bucket.reader().unwrap();
    let old = reader.view();
    warm(&bucket, &old, file, 0..100);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    commit(&writer, &pages(file, 0..50), 2).unwrap();
    assert!(reader.refresh().unwrap());
    let stats = spent(&bucket, || {
        read(&reader.view(), file, 0..50, 2);
        read(&reader.view(), file, 50..100, 1);
        read(&old, file, 0..100, 1);
        read(&writer.view(), file, 0..50, 2);
    });
    assert!(stats.tier_hits >= 150 && stats.gets <= 100, "{stats:?}");
    assert_eq!(stats.tier_damaged, 0);
}

/// The same names, epochs and numbers, as after a bucket was emptied or restored.
#[test]
fn another_tablespace_in_the_same_place_finds_nothing_of_the_first() {
    let site = Site::new();
    // The stamps differ even if the engine seeds its random numbers.
    fastrand::seed(7);
    let (store, file) = created(100);
    let first = bucket(&store, tier(&site.path("tier")));
    warm(&first, &first.reader().unwrap().view(), file, 0..100);
    drop(first);
    fastrand::seed(7);
    let (store, file) = created_with(100, 9, None);
    let second = bucket(&store, tier(&site.path("tier")));
    let view = second.reader().unwrap().view();
    let stats = spent(&second, || read(&view, file, 0..100, 9));
    assert_eq!((stats.tier_hits, stats.tier_damaged), (0, 0));
}

#[test]
fn it_takes_no_more_than_it_may_and_a_scan_does_not_wipe_it() {
    let site = Site::new();
    let (store, file) = created(12_000);
    let bucket = bucket(&store, tier(&site.path("tier")));
    let view = bucket.reader().unwrap().view();
    warm(&bucket, &view, file, 0..1000);
    let stats = spent(&bucket, || {
        assert!(states(&view, file, 12_000).unwrap().iter().all(|it| *it == 1));
        // Six times as large as the tier; the part of it that is there is found.
        assert!(states(&view, file, 12_000).unwrap().iter().all(|it| *it == 1));
    });
    assert!(stats.gets < 250 && stats.tier_hits > 1000, "{stats:?}");
    assert!(bytes_in(&site.path("tier")) <= MIB, "[TIR-1]");
    let stats = spent(&bucket, || read(&view, file, 0..1000, 1));
    assert_eq!((stats.gets, stats.tier_hits), (0, 1000), "a scan has pushed them out");
    // Single pages do evict others.
    for block in (1000..12_000).step_by(2) {
        read(&view, file, [block], 1);
        assert!(block % 64 > 0 || bytes_in(&site.path("tier")) <= MIB, "[TIR-1]");
    }
    let stats = spent(&bucket, || read(&view, file, 0..1000, 1));
    assert!(stats.gets > 500, "{stats:?}");
    let stats = bucket.stats();
    assert!(stats.tier_bytes <= MIB && stats.tier_bytes > MIB / 2 && stats.tier_failures == 0);
    drop((view, bucket));
    // With a smaller limit than before, the newest stay.
    let path = site.path("tier");
    let more = self::bucket(&store, Tier { bytes: 4 * MIB, ..tier(&path) });
    let view = more.reader().unwrap().view();
    assert!(states(&view, file, 12_000).is_ok());
    eventually(|| more.stats().tier_bytes > 3 * MIB);
    drop((view, more));
    let less = self::bucket(&store, tier(&path));
    assert!(bytes_in(&path) <= MIB && less.stats().tier_bytes > MIB / 2, "[TIR-1]");
}

/// Pages in the tier that would split one request to the store into many.
#[test]
fn a_request_is_never_more_requests_for_the_tier() {
    let site = Site::new();
    let (store, file) = created(120);
    let bucket = bucket(&store, tier(&site.path("tier")));
    let view = bucket.reader().unwrap().view();
    eventually(|| spent(&bucket, || read(&view, file, (0..100).step_by(2), 1)).gets == 0);
    let stats = spent(&bucket, || assert_eq!(states(&view, file, 100).unwrap(), [1; 100]));
    assert_eq!(stats.gets, 1, "{stats:?}");
    // If one request is left, the rest is read from the tier.
    eventually(|| spent(&bucket, || assert!(states(&view, file, 100).is_ok())).gets == 0);
    let stats = spent(&bucket, || assert_eq!(states(&view, file, 120).unwrap(), [1; 120]));
    assert_eq!((stats.gets, stats.tier_hits, stats.tier_misses), (1, 100, 20));
}

#[test]
fn damaged_files_are_fetched_again_and_reported() {
    let (store, file) = created(1200);
    for seed in 0..6 {
        let site = Site::new();
        let mut rng = Rng::with_seed(seed);
        let open = seed % 2 == 0;
        let path = site.path("tier");
        let opened = || {
            let bucket = bucket(&store, tier(&path));
            let view = bucket.reader().unwrap().view();
            (bucket, view)
        };
        let (bucket, view) = opened();
        warm(&bucket, &view, file, 0..600);
        let still = open.then_some((bucket, view));
        for path in segments(&path) {
            let segment = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let len = segment.metadata().unwrap().len();
            match seed / 2 % 3 {
                0 => (0..200).for_each(|_| {
                    let (mut byte, at) = ([0], rng.u64(0..len));
                    segment.read_exact_at(&mut byte, at).unwrap();
                    segment.write_all_at(&[byte[0] ^ 1 << rng.u32(0..8)], at).unwrap();
                }),
                1 => segment.set_len(rng.u64(0..len)).unwrap(),
                _ => segment.write_all_at(&vec![0; len as usize / 2], rng.u64(0..len / 2)).unwrap(),
            }
        }
        let (bucket, view) = still.unwrap_or_else(opened);
        read(&view, file, 0..1200, 1);
        let stats = bucket.stats();
        assert!(stats.tier_damaged > 0, "[TIR-2] seed {seed}: {stats:?}");
        eventually(|| spent(&bucket, || read(&view, file, 0..600, 1)).gets == 0);
    }
}

#[test]
fn files_that_are_deleted_under_way_are_missed_and_reported() {
    let site = Site::new();
    let (store, file) = created(6000);
    let path = site.path("tier");
    let bucket = bucket(&store, tier(&path));
    let view = bucket.reader().unwrap().view();
    warm(&bucket, &view, file, 0..300);
    fs::remove_dir_all(&path).unwrap();
    read(&view, file, 0..3000, 1);
    eventually(|| {
        read(&view, file, 3000..3300, 1);
        bucket.stats().tier_failures > 0
    });
    assert!(matches!(bucket.tier_failure(), Some(Error::Local { .. })));
    read(&view, file, 0..6000, 1);
    drop((view, bucket));
    let bucket = self::bucket(&store, tier(&path));
    warm(&bucket, &bucket.reader().unwrap().view(), file, 0..300);
    assert!(bucket.tier_failure().is_none());
}

/// A tier whose directory was deleted leaves the new files of another tier there alone.
#[test]
fn a_directory_that_was_replaced_is_the_others() {
    let site = Site::new();
    let (store, file) = created(2000);
    let path = site.path("tier");
    let first = bucket(&store, tier(&path));
    warm(&first, &first.reader().unwrap().view(), file, 0..300);
    fs::remove_dir_all(&path).unwrap();
    let second = bucket(&store, tier(&path));
    let view = second.reader().unwrap().view();
    warm(&second, &view, file, 0..100);
    let there = segments(&path);
    eventually(|| {
        read(&first.reader().unwrap().view(), file, 300..2000, 1);
        first.tier_failure().is_some_and(|it| it.to_string().contains("deleted or replaced"))
    });
    assert_eq!(segments(&path), there);
    let stats = spent(&second, || read(&view, file, 0..100, 1));
    assert_eq!((stats.gets, stats.tier_hits), (0, 100));
}

/// Reads and writes fail, all of them or some, with any error; now and then one is short.
#[test]
fn a_failing_disk_makes_reads_slower_and_is_reported() {
    for (seed, of_hundred) in [(1, 100), (2, 100), (3, 30), (4, 5)] {
        let site = Site::new();
        let (store, file) = created(3000);
        let (io, disk) = Disk::open();
        let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
        let reader = bucket.reader().unwrap();
        let view = reader.view();
        warm(&bucket, &view, file, 0..500);
        let mut rng = Rng::with_seed(seed);
        let op = if seed == 1 { Op::Read } else { Op::Write };
        disk.rule(move |it| match (it.op() == op || seed > 2, rng.u32(0..100) < of_hundred) {
            (true, true) if rng.u32(0..4) == 0 && it.remaining() > 1 => {
                Fault::Short(it.remaining() / 2)
            }
            (true, true) => Fault::Fail(OsError::EIO),
            _ => Fault::None,
        });
        for round in 0..2 {
            read(&view, file, (0..3000).step_by(1 + round), 1);
        }
        eventually(|| bucket.stats().tier_failures > 0);
        let failure = bucket.tier_failure().unwrap().to_string();
        assert!(failure.contains("check the device"), "{failure}");
        let mount = Mount::read_only(bucket.reader().unwrap(), &site.path("mount")).unwrap();
        assert!(mount.io(8).unwrap().notes().iter().any(|it| it.contains("the local tier")));
        if of_hundred == 100 {
            read(&view, file, 0..1000, 1);
            eventually(|| {
                read(&view, file, 2000..3000, 1);
                bucket.tier_failure().unwrap().to_string().contains("is off until")
            });
            let stats = spent(&bucket, || read(&view, file, 0..100, 1));
            assert_eq!((stats.gets, stats.tier_hits, stats.tier_bytes), (100, 0, 0));
        }
    }
}

/// Files that cannot be read or deleted are reported, and the rest is adopted; after eight failures the rest waits.
#[test]
fn it_opens_over_a_failing_disk() {
    let site = Site::new();
    let (store, file) = created(200);
    let path = site.path("tier");
    let first = bucket(&store, tier(&path));
    warm(&first, &first.reader().unwrap().view(), file, 0..100);
    drop(first);
    // Only after the last write of the first tier has ended.
    drop(bucket(&store, tier(&path)));
    let segment = |number: u32| path.join(format!("{number:08x}.segment"));
    for number in (0..segments(&path).len() as u32).rev() {
        fs::rename(segment(number), segment(number + 1)).unwrap();
    }
    for (failing, off) in [(vec![0], false), ((20..28).collect(), true), (vec![], false)] {
        failing.iter().for_each(|it| fs::create_dir(segment(*it)).unwrap());
        let bucket = bucket(&store, tier(&path));
        let failure = bucket.tier_failure().map(|it| it.to_string());
        assert_eq!(failure.is_some(), !failing.is_empty(), "{failure:?}");
        assert_eq!(failure.is_some_and(|it| it.contains("is off until")), off);
        let view = bucket.reader().unwrap().view();
        let stats = spent(&bucket, || read(&view, file, 0..100, 1));
        assert_eq!(stats.tier_hits, if off { 0 } else { 100 }, "{failing:?}");
        failing.iter().for_each(|it| fs::remove_dir(segment(*it)).unwrap());
    }
}

/// Pages that are fetched again while the disk writes their first copies are written once.
#[test]
fn a_page_that_is_fetched_again_is_written_once() {
    let bytes = |holds: bool| {
        let site = Site::new();
        let (store, file) = created(600);
        let free = Arc::new(AtomicBool::new(!holds));
        let is_free = Arc::clone(&free);
        let (io, _disk) = Disk::watched(move |it| {
            if it.op() == Op::Write {
                eventually(|| is_free.load(Ordering::SeqCst));
            }
        });
        let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
        let view = bucket.reader().unwrap().view();
        for _ in 0..if holds { 5 } else { 1 } {
            read(&view, file, 0..50, 1);
        }
        free.store(true, Ordering::SeqCst);
        warm(&bucket, &view, file, 0..50);
        bucket.stats().tier_bytes
    };
    assert_eq!(bytes(true), bytes(false));
}

/// A segment that is being made when the tier goes off is not left behind.
#[test]
fn it_goes_off_while_a_segment_is_made() {
    let site = Site::new();
    let (store, file) = created(600);
    let path = site.path("tier");
    let (off, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_off, is_seen) = (Arc::clone(&off), Arc::clone(&seen));
    let (io, disk) = Disk::watched(move |it| {
        if it.op() == Op::Write && it.file().path().ends_with("00000001.segment") {
            is_seen.store(true, Ordering::SeqCst);
            eventually(|| is_off.load(Ordering::SeqCst));
        }
    });
    let bucket = bucket(&store, Tier { io: Some(io), ..tier(&path) });
    let view = bucket.reader().unwrap().view();
    warm(&bucket, &view, file, 0..50);
    read(&view, file, 50..600, 1);
    eventually(|| seen.load(Ordering::SeqCst));
    disk.fail(Op::Read, OsError::EIO);
    read(&view, file, 0..100, 1);
    assert!(bucket.tier_failure().unwrap().to_string().contains("is off until"));
    off.store(true, Ordering::SeqCst);
    eventually(|| segments(&path).len() == 1);
}

/// Neither a segment that could not be made nor a disk that was full once stops later segments.
#[test]
fn a_failure_is_not_the_end_of_a_young_tier() {
    for (header, error, mut times) in
        [(true, OsError::EIO, 3), (true, OsError::ENOSPC, 1), (false, OsError::ENOSPC, 1)]
    {
        let site = Site::new();
        let (store, file) = created(200);
        let (io, disk) = Disk::open();
        let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
        disk.rule(move |it| match it.op() == Op::Write && header == (it.position() == 0) {
            true if times > 0 => {
                times -= 1;
                Fault::Fail(error)
            }
            _ => Fault::None,
        });
        warm(&bucket, &bucket.reader().unwrap().view(), file, 0..50);
        assert!(bucket.tier_failure().is_some_and(|it| !it.to_string().contains("is off")));
        assert_eq!(segments(&site.path("tier")).len(), 1);
    }
}

/// Slots whose rows could not be written are in the file anyway.
#[test]
fn what_a_failed_write_has_left_counts() {
    let site = Site::new();
    let (store, file) = created(6000);
    let (io, disk) = Disk::open();
    let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
    let mut row_writes = 0;
    disk.rule(move |it| {
        row_writes += u32::from(it.op() == Op::Write && (1..4096).contains(&it.position()));
        let fails = it.op() == Op::Write && it.position() == 32 && row_writes % 4 > 0;
        if fails { Fault::Fail(OsError::EIO) } else { Fault::None }
    });
    let view = bucket.reader().unwrap().view();
    for _ in 0..3 {
        assert!(states(&view, file, 6000).unwrap().iter().all(|it| *it == 1));
        assert!(bytes_in(&site.path("tier")) <= MIB, "[TIR-1]");
    }
    assert!(bucket.stats().tier_failures > 8);
}

/// A disk that never answers: reads wait for it once, or a few times, and then no more.
#[test]
fn a_disk_that_hangs_is_waited_for_a_moment() {
    let site = Site::new();
    let (store, file) = created(200);
    let (io, disk) = Disk::open();
    let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
    let view = bucket.reader().unwrap().view();
    warm(&bucket, &view, file, 0..100);
    let gate = disk.hold(Op::Read);
    let begun = Instant::now();
    thread::scope(|scope| {
        for block in 0..100 {
            let view = &view;
            scope.spawn(move || read(view, file, [block], 1));
        }
    });
    let (took, stats) = (begun.elapsed(), bucket.stats());
    gate.open();
    assert!((Duration::from_secs(2)..Duration::from_secs(60)).contains(&took), "{took:?}");
    assert!(stats.tier_failures >= 4, "{stats:?}");
}

/// A write that hangs blocks no reader, and the next slot to be admitted reports it.
#[test]
fn a_write_that_hangs_is_reported() {
    let site = Site::new();
    let (store, file) = created(200);
    let (io, disk) = Disk::open();
    let bucket = bucket(&store, Tier { io: Some(io), ..tier(&site.path("tier")) });
    let view = bucket.reader().unwrap().view();
    let gate = disk.hold(Op::Write);
    read(&view, file, [100], 1);
    gate.wait_for(1);
    thread::sleep(Duration::from_millis(2100));
    read(&view, file, [101], 1);
    let failure = bucket.tier_failure().unwrap().to_string();
    gate.open();
    assert!(failure.contains("a write took longer"), "{failure}");
}

#[test]
fn a_full_disk_leaves_it_smaller() {
    let site = Site::new();
    let (store, file) = created(6000);
    let (io, disk) = Disk::open();
    let path = site.path("tier");
    let bucket = bucket(&store, Tier { io: Some(io), ..tier(&path) });
    let view = bucket.reader().unwrap().view();
    let watched = path.clone();
    disk.rule(move |it| match it.op() {
        Op::Write if bytes_in(&watched) + it.remaining() > MIB / 2 => Fault::Fail(OsError::ENOSPC),
        _ => Fault::None,
    });
    read(&view, file, 0..4000, 1);
    eventually(|| bucket.stats().tier_failures > 0);
    assert!(bucket.tier_failure().unwrap().to_string().contains("no space"));
    warm(&bucket, &view, file, 4000..4200);
    let stats = bucket.stats();
    assert!((MIB / 4..=MIB / 2).contains(&stats.tier_bytes), "{stats:?}");
    assert_eq!(stats.tier_damaged, 0);
}

/// A filesystem that is unmounted with the test, whatever still has files open there.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The same on a filesystem that is really full. Only root can make one.
#[test]
fn a_full_filesystem_leaves_it_smaller() {
    let site = Site::new();
    let path = site.path("small");
    fs::create_dir_all(&path).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=512k", "none"]).arg(&path).stderr(Stdio::null());
    let mounted = mount.status().is_ok_and(|it| it.success());
    let _mounted = mounted.then(|| Mounted(path.clone()));
    if !mounted {
        println!("no tmpfs can be mounted: skipped");
        return;
    }
    let (store, file) = created(3000);
    let bucket = bucket(&store, tier(&path.join("tier")));
    let view = bucket.reader().unwrap().view();
    eventually(|| {
        read(&view, file, 0..3000, 1);
        bucket.tier_failure().is_some_and(|it| it.to_string().contains("no space"))
    });
    warm(&bucket, &view, file, 0..200);
    let stats = bucket.stats();
    assert!((MIB / 8..=MIB / 2).contains(&stats.tier_bytes), "{stats:?}");
}

#[test]
fn its_directory_is_its_alone() {
    let site = Site::new();
    let (store, _) = created(10);
    let first = bucket(&store, tier(&site.path("tier")));
    let refused = try_bucket(&store, tier(&site.path("tier"))).unwrap_err();
    assert!(matches!(&refused, Error::Local { what, .. } if what.contains("another bucket")));
    drop(first);
    bucket(&store, tier(&site.path("tier")));
    fs::create_dir_all(site.path("mine")).unwrap();
    fs::write(site.path("mine").join("00000000.segment"), "precious").unwrap();
    assert!(matches!(try_bucket(&store, tier(&site.path("mine"))), Err(Error::Local { .. })));
    assert!(site.path("mine").join("00000000.segment").exists());
    let small = Tier { bytes: MIB - 1, ..tier(&site.path("small")) };
    assert!(matches!(try_bucket(&store, small), Err(Error::Setting { .. })));
}

/// The environment variable with the directory, for the process that will be killed.
const DIRECTORY: &str = "FOREBAY_OBJECT_TIER";

#[test]
#[ignore = "the process that the other test starts and kills"]
fn reads_until_it_is_killed() {
    let directory = std::env::var(DIRECTORY).unwrap();
    // With this seed objects have the same stamps in both processes.
    let (store, file) = created_with(4000, 1, Some(7));
    let bucket = bucket(&store, tier(Path::new(&directory)));
    let view = bucket.reader().unwrap().view();
    let mut rng = Rng::new();
    loop {
        read(&view, file, (0..100).map(|_| rng.u32(0..4000)), 1);
    }
}

#[test]
fn a_killed_process_leaves_a_tier_that_serves() {
    let site = Site::new();
    let path = site.path("tier");
    let (store, file) = created_with(4000, 1, Some(7));
    let mut rng = Rng::with_seed(1);
    let mut found = 0;
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tier::reads_until_it_is_killed", "--ignored"])
            .env(DIRECTORY, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually(|| path.exists() && bytes_in(&path) >= MIB / 2);
        thread::sleep(Duration::from_millis(rng.u64(0..300)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(bytes_in(&path) <= MIB, "[TIR-1]");
        let bucket = bucket(&store, tier(&path));
        let view = bucket.reader().unwrap().view();
        let stats = spent(&bucket, || read(&view, file, 0..4000, 1));
        // The process was killed, the system was not: everything that it has written is there.
        assert_eq!((stats.tier_damaged, stats.tier_failures), (0, 0), "{stats:?}");
        found += stats.tier_hits;
    }
    assert!(found > 400, "{found}");
}
