//! Double write: a page that is torn in its file is repaired when the pool is opened.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use forebay::{Error, FileOptions, Lsn, Tablespace, TornPages};
use forebay_io::{Op, OsError};

use super::{
    DOUBLE_WRITE, Unsynced, assert_copies_come_first, copy, double, position, reopen, repaired,
    rigged, tear,
};
use crate::disk::{Disk, Fault, Seen};
use crate::site::{PAGE, SUMS, Site, create, fill, numbered, read, try_write, wait_until, write};

/// Every subset of a page's eight sectors, one per block, except none and all.
#[test]
fn a_page_torn_in_any_way_is_whole_after_opening() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 512);
    let file = numbered(&pool, "table", 256, 1000);
    file.sync().unwrap();
    (0..256).for_each(|block| write(&file, block, 2000 + u64::from(block)));
    file.flush_file().unwrap();
    assert_eq!(unsynced.count(), 256);
    let mut mask = 0_u8;
    unsynced.crash(&site.path("main"), &site.path("crashed"), || {
        mask = mask.wrapping_add(1);
        mask
    });
    let pool = reopen(&site.path("crashed"));
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    let mut old = 0;
    for block in 0..256 {
        let number = read(&file, block);
        old += u32::from(number == 1000 + u64::from(block));
        assert!(number == 2000 + u64::from(block) || number == 1000 + u64::from(block));
    }
    assert_eq!(old, 1, "only the page of which no sector was written");
    assert!(repaired(&pool).unwrap().ends_with("double write: 254"), "{:?}", pool.notes());
}

/// The long run: pages go through eight frames, and now and then the power fails.
#[test]
fn whatever_is_torn_in_a_crash_is_whole_and_no_older_than_what_was_durable() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 8);
    let names = ["one", "two"];
    let files = names.map(|name| numbered(&pool, name, 150, 0));
    files.iter().for_each(|file| file.sync().unwrap());
    let mut random = fastrand::Rng::with_seed(11);
    let mut durable = [[0_u64; 150]; 2];
    let mut newest = [[0_u64; 150]; 2];
    (0..2).for_each(|of| (0..150).for_each(|block| durable[of][block] = block as u64));
    for step in 1..3000_u64 {
        let (of, block) = (usize::from(random.u8(..4) == 0), random.usize(..150));
        newest[of][block] = step * 1000;
        write(&files[of], block as u32, step * 1000);
        match random.u32(..60) {
            0 => {
                files[of].flush_file().unwrap();
                files[of].sync().unwrap();
                (0..150).for_each(|at| durable[of][at] = durable[of][at].max(newest[of][at]));
            }
            1 => drop(files[of].flush_file().unwrap()),
            2 => {
                let crashed = site.path(&format!("crashed {step}"));
                unsynced.crash(&site.path("main"), &crashed, || random.u8(..));
                let pool = reopen(&crashed);
                for (of, name) in names.iter().enumerate() {
                    let file = pool.open_file(name, &FileOptions::new()).unwrap();
                    for block in 0..150 {
                        let number = read(&file, block);
                        let (least, most) =
                            (durable[of][block as usize], newest[of][block as usize]);
                        assert!(
                            (least..=most.max(least)).contains(&number),
                            "[DWR-1] step {step}, {name}, {block}: {number}, not {least} to {most}"
                        );
                    }
                }
                drop(pool);
                fs::remove_dir_all(&crashed).unwrap();
            }
            _ => {}
        }
    }
}

#[test]
fn of_two_copies_of_a_page_the_newer_whole_one_is_taken() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 4, 10);
    file.sync().unwrap();
    for number in [20, 30] {
        (0..4).for_each(|block| write(&file, block, number));
        file.flush_file().unwrap();
    }
    let crashed = site.path("crashed");
    unsynced.crash(&site.path("main"), &crashed, || 0b1010_0110);
    // For block 1 the newer copy is torn as well, for block 2 both are; for block 3 the header of the newer one has
    // reached the disk, and its slot has a valid but much older page.
    let page = |number, block| {
        let mut page = vec![0; PAGE];
        fill(&mut page, number);
        SUMS.stamp(&mut page, block);
        page
    };
    let mut bytes = fs::read(crashed.join(DOUBLE_WRITE)).unwrap();
    let slot = |number, block| {
        let it = page(number, block);
        let at = bytes.chunks(PAGE).position(|slot| *slot == it[..]).expect("its copy");
        at * PAGE..(at + 1) * PAGE
    };
    let torn = [slot(30, 1), slot(20, 2), slot(30, 2)];
    let stale = slot(30, 3);
    torn.into_iter().for_each(|slot| bytes[slot.start + 700] ^= 1);
    bytes[stale].copy_from_slice(&page(5, 3));
    fs::write(crashed.join(DOUBLE_WRITE), bytes).unwrap();
    let pool = reopen(&crashed);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!([0, 1, 3].map(|block| read(&file, block)), [30, 20, 20], "[DBR-2]");
    assert!(matches!(file.read(2), Err(Error::Corrupt { block: 2, .. })));
    assert!(pool.notes().iter().any(|note| note.contains("double-write file: 1;")));
}

/// A page whose write failed keeps its group. The other pages in the group are durable, and no longer live.
#[test]
fn a_durable_copy_next_to_that_of_a_failed_write_is_never_taken() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let [file, other] = ["table", "other"].map(|name| numbered(&pool, name, 100, 10));
    pool.flush_and_sync().unwrap();
    disk.rule(|it| {
        let fails = it.op() == Op::Write && it.file().path().ends_with("table");
        let fails = fails && it.position() == 2 * PAGE as u64;
        if fails { Fault::Fail(OsError::EIO) } else { Fault::None }
    });
    write(&file, 0, 77);
    write(&file, 2, 77);
    file.flush_file().unwrap_err();
    file.sync().unwrap();
    for round in 0..100_u64 {
        write(&other, 50, round);
        other.flush_file().unwrap();
    }
    assert_corrupt_after_crash(&site, &file);
}

/// In a batch of two groups the second has reached the disk, and the first still has its previous contents: an old copy
/// of a page that is durable in a newer version.
#[test]
fn a_copy_in_a_group_that_was_reused_and_not_written_is_never_taken() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let file = numbered(&pool, "table", 100, 10);
    let (first, group) = (PAGE as u64, 3 * PAGE as u64);
    let mut next = 0;
    // Until the last group has been written: the first one is next.
    let mut go_round = || loop {
        next = 10 + (next + 1) % 80;
        write(&file, next, 5);
        file.flush_file().unwrap();
        file.sync().unwrap();
        let seen = disk.seen();
        let of_copies = |it: &&Seen| it.op == Op::Write && it.path.ends_with(DOUBLE_WRITE);
        let last = seen.iter().rev().find(of_copies).unwrap().position;
        if last == first + 63 * group {
            break;
        }
    };
    go_round();
    let change = |number| {
        write(&file, 0, number);
        file.flush_file().unwrap();
        file.sync().unwrap();
    };
    change(77);
    let old = fs::read(site.path("main").join(DOUBLE_WRITE)).unwrap();
    change(88);
    go_round();
    (1..4).for_each(|block| write(&file, block, 99));
    file.flush_file().unwrap();
    let path = site.path("main").join(DOUBLE_WRITE);
    let copies = fs::OpenOptions::new().write(true).open(path).unwrap();
    copies.write_all_at(&old[PAGE..4 * PAGE], first).unwrap();
    assert_corrupt_after_crash(&site, &file);
}

/// Page 0, which is durable, is damaged while the power is off: there is no copy to repair it from.
#[track_caller]
fn assert_corrupt_after_crash(site: &Site, file: &forebay::PagedFile) {
    copy(&site.path("main"), &site.path("crashed"));
    let (_, at) = position(file, 0);
    tear(&site.path("crashed/table"), at + 512, &[9; 512], 1);
    let pool = reopen(&site.path("crashed"));
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    let error = file.read(0).unwrap_err();
    assert!(matches!(error, Error::Corrupt { block: 0, .. }), "[DWR-2] {error}");
}

#[test]
fn a_file_that_was_dropped_and_made_again_gets_nothing_of_the_old_one() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 8, 10);
    file.drop_file().unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(8).unwrap();
    file.sync().unwrap();
    // According to the newest header, copies of the old pages are live.
    copy(&site.path("main"), &site.path("crashed early"));
    let early = reopen(&site.path("crashed early"));
    let early = early.open_file("table", &FileOptions::new()).unwrap();
    assert!((0..8).all(|block| read(&early, block) == 0), "[DBR-1]");
    // Two pages of the new file are written and torn; the others are as created.
    write(&file, 2, 100);
    write(&file, 3, 100);
    file.flush_file().unwrap();
    let crashed = site.path("crashed");
    unsynced.crash(&site.path("main"), &crashed, || 0b0000_1111);
    let pool = reopen(&crashed);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    let numbers: Vec<u64> = (0..8).map(|block| read(&file, block)).collect();
    assert_eq!(numbers, [0, 0, 100, 100, 0, 0, 0, 0], "[DBR-1]");
}

#[test]
fn pages_beyond_a_truncation_stay_removed() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 8, 10);
    file.truncate(3).unwrap();
    let crashed = site.path("crashed");
    unsynced.0.lock().unwrap().retain(|(_, position), _| *position < 3 * PAGE as u64);
    unsynced.crash(&site.path("main"), &crashed, || 0b0101_0101);
    let pool = reopen(&crashed);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!((file.blocks(), read(&file, 2)), (3, 12), "[DBR-1]");
    pool.close().unwrap();
}

#[test]
fn whatever_protects_pages_from_now_on_those_torn_before_are_repaired() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 4, 10);
    file.sync().unwrap();
    write(&file, 1, 99);
    file.flush_file().unwrap();
    let crashed = site.path("crashed");
    unsynced.crash(&site.path("main"), &crashed, || 0b0011_0000);
    let pool = Site::bare(64).directory(&crashed).build().unwrap();
    assert!(repaired(&pool).is_some());
    assert!(!crashed.join(DOUBLE_WRITE).exists(), "it would report pages that it knows nothing of");
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(read(&file, 1), 99);
    assert!(pool.notes().iter().any(|note| note.contains("unprotected")), "{:?}", pool.notes());
}

#[test]
fn after_a_good_close_nothing_is_taken_from_the_copies() {
    let site = Site::new();
    let pool = double(site.builder(64)).build().unwrap();
    let file = numbered(&pool, "table", 4, 10);
    let (path, at) = position(&file, 2);
    pool.close().unwrap();
    // Another program changes the file between two runs, and damages it.
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(&[1; 50], at + 600)
        .unwrap();
    let pool = double(site.builder(64)).build().unwrap();
    assert_eq!(repaired(&pool), None);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert!(matches!(file.read(2), Err(Error::Corrupt { block: 2, .. })));
}

#[test]
fn a_pool_of_another_size_recreates_the_file() {
    let site = Site::new();
    let mut bytes = Vec::new();
    for frames in [8, 4096, 8, 4096] {
        let pool = double(site.builder(frames)).build().unwrap();
        let file = pool.open_file("table", &create()).unwrap();
        file.extend(1).unwrap();
        write(&file, 0, frames);
        pool.close().unwrap();
        bytes.push(fs::metadata(site.path("main").join(DOUBLE_WRITE)).unwrap().len());
    }
    assert!(bytes[0] < 1 << 20 && bytes[1] > 8 << 20, "{bytes:?}");
    assert_eq!(bytes[..2], bytes[2..]);
}

#[test]
fn no_page_is_written_in_place_before_its_copy_is_synced() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 16);
    let file = numbered(&pool, "table", 60, 0);
    let mut random = fastrand::Rng::with_seed(5);
    (0..300).for_each(|step| try_write(&file, random.u32(..60), step).unwrap());
    file.flush_file().unwrap();
    assert_copies_come_first(&disk.seen());
}

#[test]
fn copies_written_while_the_file_is_being_synced_wait_for_the_next_sync() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let files = ["one", "two"].map(|name| numbered(&pool, name, 2, 0));
    let of_copies = |it: &Seen| it.path.ends_with(DOUBLE_WRITE) && it.op == Op::Write;
    let written = || disk.seen().iter().filter(|it| of_copies(it)).count();
    let before = written();
    files.iter().for_each(|file| write(file, 1, 9));
    let gate = disk.hold(Op::SyncData);
    thread::scope(|scope| {
        let first = scope.spawn(|| files[0].flush_file());
        gate.wait_for(1);
        let second = scope.spawn(|| files[1].flush_file());
        wait_until("the second one's copy", || written() == before + 2);
        gate.open();
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_copies_come_first(&disk.seen());
}

#[test]
fn many_threads_share_syncs_and_a_small_ring() {
    let site = Site::new();
    let pool = double(site.builder(32)).frame_wait(std::time::Duration::from_secs(20));
    let pool = pool.build().unwrap();
    let files = ["a", "b", "c"].map(|name| numbered(&pool, name, 100, 0));
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let files = &files;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..400 {
                    let file = &files[random.usize(..3)];
                    let mut page = file.write(random.u32(..100)).unwrap();
                    let number = random.u64(..);
                    fill(&mut page, number);
                    page.mark_dirty(Lsn::NONE);
                    drop(page);
                    if random.u8(..) < 4 {
                        file.flush_file().unwrap();
                    }
                }
            });
        }
    });
    files.iter().for_each(|file| (0..100).for_each(|block| _ = read(file, block)));
    pool.close().unwrap();
}

#[test]
fn a_file_without_checksums_is_refused_unless_it_is_only_read() {
    let site = Site::new();
    let pool = double(site.builder(64)).build().unwrap();
    let bare = || create().checksum(forebay::Checksum::Off);
    let error = pool.open_file("table", &bare()).unwrap_err();
    assert!(error.to_string().contains("the checksum is off"), "{error}");
    assert!(!site.path("main/table").exists());
    fs::write(site.path("main/table"), vec![7; PAGE]).unwrap();
    let file = pool.open_file("table", &bare().create(false).read_only(true)).unwrap();
    assert_eq!(read(&file, 0), 0x0707_0707_0707_0707);
    let error = pool.open_file(DOUBLE_WRITE, &create()).unwrap_err();
    assert!(error.to_string().contains("file of the pool's own"), "{error}");
}

#[test]
fn what_double_write_takes_is_stated() {
    let site = Site::new();
    let plain = site.pool(4096).bookkeeping_bytes();
    let pool = double(site.builder(4096)).build().unwrap();
    let more = pool.bookkeeping_bytes() - plain;
    assert!((256 << 10..600 << 10).contains(&more), "{more}");
    let pool_without = Site::bare(4096).directory(site.path("other"));
    let pool_without = pool_without.torn_pages(TornPages::Unprotected).build().unwrap();
    assert_eq!(pool_without.bookkeeping_bytes(), plain);
}

/// Also if only the process has died: its writes may still be torn on their way to the disk.
#[test]
fn files_are_synced_before_the_copies_of_their_pages_are_given_up() {
    let site = Site::new();
    for torn in [false, true] {
        let main = site.path(&format!("main {torn}"));
        let unsynced = Arc::new(Unsynced::default());
        let watcher = Arc::clone(&unsynced);
        let (io, _disk) = Disk::watched(move |it| watcher.note(it));
        let space = Tablespace::new("main", &main).io(io);
        let pool = double(Site::bare(64)).cleaner(false).tablespace(space).build().unwrap();
        let file = numbered(&pool, "table", 4, 10);
        file.sync().unwrap();
        write(&file, 1, 99);
        file.flush_file().unwrap();
        let crashed = site.path(&format!("crashed {torn}"));
        unsynced.crash(&main, &crashed, || if torn { 0b0011_0000 } else { 0 });
        let (io, disk) = Disk::open();
        let main = Tablespace::new("main", &crashed).io(io);
        let pool = double(Site::bare(64)).tablespace(main).build().unwrap();
        assert_eq!(repaired(&pool).is_some(), torn);
        let changes = disk.seen().into_iter().filter(|it| it.op != Op::Read);
        let changes: Vec<(Op, bool)> =
            changes.map(|it| (it.op, it.path.ends_with(DOUBLE_WRITE))).collect();
        let all = [(Op::Write, false), (Op::SyncData, false), (Op::Write, true)];
        assert_eq!(changes[..3 - usize::from(!torn)], all[usize::from(!torn)..], "[DBR-3]");
    }
}
