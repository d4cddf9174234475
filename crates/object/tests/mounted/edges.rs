//! Pages that are written and cut in part, while other pages are fetched and dropped.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{env, thread};

use forebay_io::{Arena, File, Io, OpenOptions, Request, Volume};
use forebay_object::{Bucket, Mount, Takeover};
use tokio::runtime::Runtime;

use crate::faulty::faulty;
use crate::site::{PAGE, Site};
use crate::store::Handle;

/// A file of 100 pages of ones in the store, and a mount of at most 64 pages that has none of them locally.
struct Far {
    one: File,
    io: Io,
    volume: Volume,
    arena: Arc<Arena>,
    mount: Mount,
    bucket: Bucket,
    handle: Arc<Handle>,
    runtime: Arc<Runtime>,
}

fn far(site: &Site) -> Far {
    let (bucket, handle, runtime) = faulty(Duration::from_secs(20));
    bucket.create(PAGE as u32).unwrap();
    let first = mounted(site, "first", bucket, handle, runtime, true);
    (0..100).for_each(|block| first.put(block * PAGE, PAGE, 1));
    first.again(site, "second")
}

fn mounted(
    site: &Site,
    name: &str,
    bucket: Bucket,
    handle: Arc<Handle>,
    runtime: Arc<Runtime>,
    create: bool,
) -> Far {
    let writer = bucket.writer(Takeover::Force).unwrap();
    let mount = Mount::new(writer, &site.path(name), 64 * PAGE as u64).unwrap();
    let (volume, io) = (mount.volume(), mount.io(8).unwrap());
    let path = mount.directory().join("one");
    let one = volume.open(&path, &OpenOptions::new().create(create)).unwrap();
    let arena = Arena::new(8, PAGE).unwrap();
    Far { one, io, volume, arena, mount, bucket, handle, runtime }
}

impl Far {
    fn put(&self, at: usize, len: usize, byte: u8) {
        self.try_put(at, len, byte).unwrap();
    }

    fn try_put(&self, at: usize, len: usize, byte: u8) -> Result<(), forebay_io::Error> {
        let mut lease = self.arena.take().unwrap();
        lease.truncate(len);
        lease.fill(byte);
        let written = self.io.submit(Request::write(&self.one, at as u64, vec![lease])).wait();
        written.into_result().map(drop)
    }

    /// The mount's contents of a page.
    fn here(&self, block: usize) -> Vec<u8> {
        let lease = self.arena.take().unwrap();
        let read = self.io.submit(Request::read(&self.one, (block * PAGE) as u64, vec![lease]));
        read.wait().into_result().unwrap()[0].to_vec()
    }

    /// Syncs, and mounts again.
    fn again(self, site: &Site, name: &str) -> Far {
        self.one.sync_data().unwrap();
        self.crashed(site, name)
    }

    fn crashed(self, site: &Site, name: &str) -> Far {
        let Far { bucket, handle, runtime, .. } = self;
        mounted(site, name, bucket, handle, runtime, false)
    }

    /// Syncs, and compares a page as a reader on another machine sees it.
    #[track_caller]
    fn page(&self, block: u32) -> Vec<u8> {
        self.one.sync_data().unwrap();
        let view = self.bucket.reader().unwrap().view();
        let mut page = vec![0; PAGE];
        view.read(view.file("one").unwrap(), block, &mut page).unwrap();
        page
    }
}

/// A page of ones with these bytes in it.
fn ones_with(parts: &[(usize, usize, u8)]) -> Vec<u8> {
    let mut page = vec![1; PAGE];
    parts.iter().for_each(|(at, len, byte)| page[*at..at + len].fill(*byte));
    page
}

/// While a page is fetched because a part of it is written, another part is written, put into the store, and dropped.
#[test]
fn loc_3_a_page_that_was_here_meanwhile_is_fetched_again() {
    let site = Site::new();
    let far = far(&site);
    let (asked, is_asked) = channel();
    let (done, is_done) = channel::<()>();
    far.handle.at_next_get(move || {
        asked.send(()).unwrap();
        is_done.recv().unwrap();
    });
    thread::scope(|scope| {
        scope.spawn(|| far.put(3 * PAGE + 100, 10, 8));
        is_asked.recv().unwrap();
        far.put(3 * PAGE + 200, 10, 9);
        (10..50).for_each(|block| far.put(block * PAGE, PAGE, 2));
        far.one.sync_data().unwrap();
        done.send(()).unwrap();
    });
    assert!(far.page(3) == ones_with(&[(100, 10, 8), (200, 10, 9)]), "[LOC-3]");
}

/// To make room for a write all clean pages are dropped, except the one that the write is in.
#[test]
fn loc_4_a_page_that_is_written_in_part_stays_while_room_is_made() {
    let site = Site::new();
    let far = far(&site);
    // As many as may be dirty, and one more: the next write makes room.
    (10..43).for_each(|block| far.put(block * PAGE, PAGE, 2));
    far.put(3 * PAGE + 100, 10, 9);
    assert!(far.page(3) == ones_with(&[(100, 10, 9)]), "[LOC-4]");
}

/// The size reaches the store without the page that it cuts: growing the file does not restore the bytes cut off.
#[test]
fn what_was_cut_off_a_page_does_not_come_back() {
    let by_size: fn(&Far) = |far| far.one.set_len(5 * PAGE as u64).unwrap();
    let by_writing: fn(&Far) = |far| far.put(4 * PAGE, PAGE, 2);
    for grows in [by_size, by_writing] {
        let site = Site::new();
        let far = far(&site);
        far.one.set_len(3 * PAGE as u64 + 7).unwrap();
        far.mount.writer().unwrap().publish().unwrap();
        let far = far.crashed(&site, "third");
        assert_eq!(far.one.len().unwrap(), 3 * PAGE as u64 + 7);
        grows(&far);
        assert!(far.page(3) == ones_with(&[(7, PAGE - 7, 0)]));
    }
}

/// A file that could not be made leaves nothing that would be mistaken for it.
#[test]
fn a_file_that_is_not_the_tablespaces_is_not_opened() {
    let site = Site::new();
    let far = far(&site);
    let path = far.mount.directory().join("x");
    far.mount.writer().unwrap().create_file("x").unwrap();
    for _ in 0..2 {
        far.volume.open(&path, &OpenOptions::new().create(true)).unwrap_err();
        assert!(!path.exists());
    }
}

/// Names are made and removed concurrently; an open file belongs, or belonged, to the tablespace.
#[test]
fn names_change_here_as_they_change_in_the_tablespace() {
    let site = Site::new();
    let far = far(&site);
    let path = far.mount.directory().join("x");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    // The slower thread finds it removed, or still there.
                    let _ = far.volume.open(&path, &OpenOptions::new().create(true));
                    let _ = far.volume.remove(&path);
                }
            });
        }
    });
    let view = far.mount.writer().unwrap().view();
    assert_eq!(view.file("x").is_some(), path.exists());
    assert_eq!(far.mount.failure().map(|it| it.to_string()), None);
}

/// A caller with an open file that is being removed continues with the system's copy of it.
#[test]
fn a_file_changes_its_size_while_it_is_removed() {
    let site = Site::new();
    let far = far(&site);
    let path = far.mount.directory().join("x");
    for round in 0..300 {
        let file = far.volume.open(&path, &OpenOptions::new().create(true)).unwrap();
        file.set_len(3 * PAGE as u64).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| far.volume.remove(&path).unwrap());
            for len in [2 * PAGE as u64 + 7, 9, 5 * PAGE as u64] {
                file.set_len(len + round % 5).unwrap();
            }
        });
        assert_eq!(far.mount.failure().map(|it| it.to_string()), None);
    }
}

/// Pages are read while they are written, and become present between two checks.
#[test]
fn obk_1_a_read_ends_whose_pages_come_in_meanwhile() {
    let site = Site::new();
    let mut far = far(&site);
    for round in 0..40 {
        let at = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for block in 0..100 {
                    at.store(block, Ordering::SeqCst);
                    far.put(block * PAGE, PAGE, 1);
                }
                at.store(100, Ordering::SeqCst);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while let block @ 0..100 = at.load(Ordering::SeqCst) {
                        assert!(far.here(block) == ones_with(&[]));
                    }
                });
            }
        });
        far = far.again(&site, &format!("again {round}"));
    }
}

/// Limits the size of files here, whatever they have already.
#[cfg(target_os = "linux")]
fn limit_files(bytes: Option<usize>) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Fsize);
    let current = bytes.map_or(limit.maximum, |bytes| Some(bytes as u64));
    setrlimit(Resource::Fsize, Rlimit { current, ..limit }).unwrap();
}

/// The local disk fails in the middle of a page.
#[test]
#[cfg(target_os = "linux")]
fn loc_5_a_page_that_is_written_in_half_comes_into_no_object() {
    const CHILD: &str = "FOREBAY_TEST_OF_HALF_A_PAGE";
    if env::var_os(CHILD).is_none() {
        // A limit applies to a whole process, and a shell can ignore the signal that comes with it.
        let name = "edges::loc_5_a_page_that_is_written_in_half_comes_into_no_object";
        let script = format!("trap '' XFSZ; exec \"$0\" --exact {name}");
        let mut child = Command::new("sh");
        child.arg("-c").arg(script).arg(env::current_exe().unwrap()).env(CHILD, "1");
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        return;
    }
    let site = Site::new();
    let far = far(&site);
    let fails = |block: usize| {
        limit_files(Some(block * PAGE + PAGE / 2));
        far.try_put(block * PAGE, PAGE, 9).unwrap_err();
        limit_files(None);
    };
    // A clean page is unchanged; so is one that was never present.
    far.put(5 * PAGE, PAGE, 2);
    far.one.sync_data().unwrap();
    for (block, before) in [(5, 2), (6, 1)] {
        fails(block);
        assert!(far.here(block).iter().all(|it| *it == before), "[LOC-5] {block}");
        assert!(far.page(block as u32).iter().all(|it| *it == before), "[LOC-5] {block}");
    }
    // A dirty page must be written again; until then there is no whole page to make durable.
    far.put(7 * PAGE, PAGE, 2);
    fails(7);
    // It does not prevent other pages from being put when the buffer is full.
    (10..90).for_each(|block| far.put(block * PAGE, PAGE, 2));
    far.put(7 * PAGE, PAGE, 3);
    assert!(far.page(7).iter().all(|it| *it == 3), "[LOC-5]");
    far.put(8 * PAGE, PAGE, 2);
    fails(8);
    far.one.sync_data().unwrap_err();
    let view = far.bucket.reader().unwrap().view();
    let mut page = vec![0; PAGE];
    view.read(view.file("one").unwrap(), 8, &mut page).unwrap();
    assert!(page.iter().all(|it| *it == 1), "[LOC-5]");
}
