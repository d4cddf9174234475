//! What is durable when, and what is kept here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{BufferPool, FileOptions, Tablespace};
use forebay_io::{Arena, File, OpenOptions, Request};
use forebay_object::object_store::memory::InMemory;
use forebay_object::{Bucket, Error, Mount, Options, Takeover};
use tokio::runtime::{Builder, Runtime};

use crate::place::mount;
use crate::site::{PAGE, Site, create, number_in, read, try_write, write};
use crate::store::{Faults, Handle, World};

fn pool(mount: &Mount, frames: u64) -> BufferPool {
    let main = Tablespace::new("main", mount.directory());
    let main = main.io(mount.io(64).unwrap()).volume(mount.volume()).costs(mount.costs());
    Site::bare(frames).tablespace(main).build().unwrap()
}

#[test]
fn what_was_synced_is_there_after_a_crash_and_what_was_not_is_not() {
    let site = Site::new();
    let store = Arc::new(InMemory::new());
    let (first, _) = mount(Arc::clone(&store), &site.path("main"), 64);
    let before = pool(&first, 16);
    let file = before.open_file("one", &create()).unwrap();
    file.extend(40).unwrap();
    (0..40).for_each(|block| write(&file, block, 100 + u64::from(block)));
    file.flush_file().unwrap();
    file.sync().unwrap();
    (0..40).for_each(|block| write(&file, block, 200 + u64::from(block)));
    file.flush_file().unwrap();

    // The machine is gone; another one takes over.
    let (second, bucket) = mount(Arc::clone(&store), &site.path("main"), 64);
    let after = pool(&second, 16);
    let found = after.open_file("one", &FileOptions::new()).unwrap();
    assert_eq!(found.blocks(), 40);
    (0..40).for_each(|block| assert_eq!(read(&found, block), 100 + u64::from(block)));
    let local = first.failure();
    assert!(local.is_none(), "{local:?}");
    assert!(file.sync().is_err(), "the old one is fenced");
    assert!(matches!(first.failure(), Some(Error::Fenced { epoch: 1, by: 2 })));

    // A reader elsewhere sees what was synced, too.
    let view = bucket.reader().unwrap().view();
    let mut page = vec![0; PAGE];
    view.read(view.file("one").unwrap(), 7, &mut page).unwrap();
    assert_eq!(number_in(&page), 107);
}

#[test]
fn a_pool_and_a_buffer_smaller_than_the_data_lose_nothing() {
    let site = Site::new();
    let store = Arc::new(InMemory::new());
    let (first, bucket) = mount(Arc::clone(&store), &site.path("main"), 64);
    let before = pool(&first, 16);
    let file = before.open_file("one", &create()).unwrap();
    file.extend(1000).unwrap();
    for round in 0..3 {
        for block in (0..1000).rev() {
            write(&file, block, round * 1000 + u64::from(block));
        }
        assert!((0..1000).all(|block| read(&file, block) == round * 1000 + u64::from(block)));
    }
    // More than the buffer holds is in objects by now, and no manifest names them.
    let reader = bucket.reader().unwrap().view();
    let mut page = vec![1; PAGE];
    reader.read(reader.file("one").unwrap(), 3, &mut page).unwrap();
    assert_eq!(number_in(&page), 0, "nothing was synced since the file was made");
    assert!(first.writer().space().live_bytes > 900 * PAGE as u64);
    file.sync().unwrap();
    before.close().unwrap();
    first.close().unwrap();
    let (second, elsewhere) = mount(store, &site.path("main"), 64);
    let after = pool(&second, 512);
    let found = after.open_file("one", &FileOptions::new()).unwrap();
    let before = elsewhere.stats();
    for page in found.scan(0..1000) {
        let page = page.unwrap();
        assert_eq!(number_in(&page), 2000 + u64::from(page.block()));
    }
    let (gets, pages) = (elsewhere.stats().gets - before.gets, elsewhere.stats().pages_read);
    assert!(gets * 2 <= 1000, "a scan reads neighbours together: {gets} requests, {pages} pages");
}

/// A buffer that is full of dirty pages, and a store that does not take them: the write says so, and the pages stay.
#[test]
fn a_full_buffer_over_a_store_that_is_gone_refuses_writes_and_keeps_what_it_has() {
    let site = Site::new();
    let (bucket, handle, _runtime) = faulty(Duration::from_millis(100));
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let mount = Mount::new(writer, &site.path("main"), 64 * PAGE as u64).unwrap();
    let pool = pool(&mount, 16);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(200).unwrap();
    handle.set_faults(Faults { unavailable: 1000, ..Faults::default() });
    let mut written = 0;
    let refused = loop {
        match try_write(&file, written, u64::from(written) + 7) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 200, "the buffer is bounded");
    };
    assert!(refused.to_string().contains("No space left"), "{refused}");
    assert!(mount.failure().is_some_and(|it| it.is_retryable()));
    handle.set_faults(Faults::default());
    (written..200).for_each(|block| write(&file, block, u64::from(block) + 7));
    file.flush_file().unwrap();
    file.sync().unwrap();
    let view = bucket.reader().unwrap().view();
    let mut bytes = vec![0; 200 * PAGE];
    view.read(view.file("one").unwrap(), 0, &mut bytes).unwrap();
    assert!((7..).zip(bytes.chunks(PAGE)).all(|(number, page)| number_in(page) == number));
}

/// Threads count in pages of their own, over a store that fails, is late and damages what it gives; whoever takes over finds
/// at least what had been counted before the last sync began, and no page torn.
#[test]
fn counters_survive_a_store_that_fails_now_and_then() {
    let site = Site::new();
    let (bucket, handle, runtime) = faulty(Duration::from_secs(20));
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    handle.set_faults(Faults {
        unavailable: 50,
        answer_lost: 20,
        late: 5,
        truncated: 20,
        damaged: 10,
        latency: (Duration::from_millis(1), Duration::from_millis(20)),
        ..Faults::default()
    });
    let mount = Mount::new(writer, &site.path("main"), 64 * PAGE as u64).unwrap();
    let pool = pool(&mount, 32);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(400).unwrap();
    let counted: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let mut promised = Vec::new();
    thread::scope(|scope| {
        for (own, counted) in (0..4_u32).zip(&counted) {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(own.into());
                let mut pages = [0_u64; 100];
                for count in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let at = rng.usize(0..100);
                    let block = own * 100 + at as u32;
                    assert_eq!(read(file, block), pages[at]);
                    pages[at] = count;
                    write(file, block, count);
                    counted.store(count, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..12 {
            thread::sleep(Duration::from_millis(20));
            let before = counted.iter().map(|it| it.load(Ordering::SeqCst)).collect();
            file.flush_file().unwrap();
            file.sync().unwrap();
            promised = before;
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(bucket.stats().retries > 10, "{:?}", bucket.stats());
    handle.set_faults(Faults::default());
    let options = Options { runtime: Some(runtime), ..Options::default() };
    let other = Bucket::new(Arc::clone(&handle) as Arc<_>, "space", options).unwrap();
    let taken_over = other.writer(Takeover::Force).unwrap();
    let view = taken_over.view();
    let mut bytes = vec![0; 400 * PAGE];
    view.read(view.file("one").unwrap(), 0, &mut bytes).unwrap();
    let found: Vec<u64> = bytes.chunks(PAGE).map(number_in).collect();
    for (found, promised) in found.chunks(100).zip(&promised) {
        let newest = found.iter().max().unwrap();
        assert!(*promised > 0 && newest >= promised, "{newest} of {promised}");
    }
}

/// A bucket on a store that fails when told, over threads and time that are real.
fn faulty(deadline: Duration) -> (Bucket, Arc<Handle>, Arc<Runtime>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = Arc::new(runtime.unwrap());
    let handle = World::new(&runtime).handle(Faults::default(), 1);
    let options = Options {
        object_bytes: 64 << 10,
        attempt_timeout: deadline / 2,
        deadline,
        runtime: Some(Arc::clone(&runtime)),
        ..Options::default()
    };
    let bucket = Bucket::new(Arc::clone(&handle) as Arc<_>, "space", options).unwrap();
    (bucket, handle, runtime)
}

/// Files that are cut, renamed and removed, and pages written in part, past the pool.
#[test]
fn files_are_files() {
    let site = Site::new();
    let store = Arc::new(InMemory::new());
    let (first, _) = mount(Arc::clone(&store), &site.path("main"), 64);
    let (volume, io) = (first.volume(), first.io(8).unwrap());
    let arena = Arena::new(4, 4 * PAGE).unwrap();
    let open = |name: &str| {
        let path = first.directory().join(name);
        volume.open(&path, &OpenOptions::new().create(true)).unwrap()
    };
    let put = |file: &File, at: u64, len: usize, byte: u8| {
        let mut lease = arena.take().unwrap();
        lease.truncate(len);
        lease.fill(byte);
        io.submit(Request::write(file, at, vec![lease])).wait().into_result().unwrap();
    };
    let one = open("one");
    put(&one, 0, 4 * PAGE, 1);
    put(&one, 4 * PAGE as u64, 100, 2);
    one.sync_data().unwrap();
    drop((one, io, volume));
    drop(first);

    // What is not here is fetched before a part of it is written or cut.
    let (second, _) = mount(Arc::clone(&store), &site.path("main"), 64);
    let (volume, io) = (second.volume(), second.io(8).unwrap());
    let path = second.directory().join("one");
    let one = volume.open(&path, &OpenOptions::new()).unwrap();
    assert_eq!(one.len().unwrap(), 4 * PAGE as u64 + 100);
    let mut lease = arena.take().unwrap();
    lease.truncate(10);
    lease.fill(9);
    let odd = PAGE as u64 + 50;
    io.submit(Request::write(&one, odd, vec![lease])).wait().into_result().unwrap();
    one.set_len(3 * PAGE as u64 + 7).unwrap();
    one.set_len(4 * PAGE as u64).unwrap();
    let other =
        volume.open(&second.directory().join("two"), &OpenOptions::new().create(true)).unwrap();
    volume.rename(&path, &second.directory().join("two")).unwrap();
    volume.sync_directory(second.directory()).unwrap();
    drop((one, other, io, volume));
    drop(second);

    let (third, bucket) = mount(store, &site.path("main"), 64);
    let (volume, io) = (third.volume(), third.io(8).unwrap());
    assert!(!volume.exists(&third.directory().join("one")).unwrap());
    let two = volume.open(&third.directory().join("two"), &OpenOptions::new()).unwrap();
    let mut expected = vec![1; 4 * PAGE];
    expected[PAGE + 50..PAGE + 60].fill(9);
    expected[3 * PAGE + 7..].fill(0);
    let lease = arena.take().unwrap();
    let read = io.submit(Request::read(&two, 0, vec![lease])).wait().into_result().unwrap();
    assert!(*read[0] == expected);
    let lease = arena.take().unwrap();
    let past = io.submit(Request::read(&two, PAGE as u64 + 1, vec![lease])).wait();
    let got = 3 * PAGE as u64 - 1;
    assert!(matches!(past.result, Err(forebay_io::Error::PastEnd { got: it, .. }) if it == got));
    assert_eq!(past.leases[0][..got as usize], expected[PAGE + 1..]);
    volume.remove(&third.directory().join("two")).unwrap();
    volume.sync_directory(third.directory()).unwrap();
    assert!(bucket.reader().unwrap().view().files().is_empty());
}

/// Threads write pages while others sync: what a sync leaves in the store is whole pages ([LOC-2]).
#[test]
fn no_page_is_torn_by_a_write_beside_a_sync() {
    let site = Site::new();
    let store = Arc::new(InMemory::new());
    let (mount, bucket) = mount(store, &site.path("main"), 64);
    let pool = pool(&mount, 16);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(8).unwrap();
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..300_u64 {
                    write(file, (round % 8) as u32, round * 2 + writer);
                    file.flush_file().unwrap();
                }
            });
        }
        for _ in 0..40 {
            file.sync().unwrap();
            let view = bucket.reader().unwrap().view();
            let mut bytes = vec![0; 8 * PAGE];
            view.read(view.file("one").unwrap(), 0, &mut bytes).unwrap();
            bytes.chunks(PAGE).for_each(|page| {
                number_in(page);
            });
        }
    });
}

#[test]
fn a_directory_that_is_not_a_mounts_is_left_alone() {
    let site = Site::new();
    let path = site.path("mine");
    std::fs::create_dir_all(path.join("files")).unwrap();
    std::fs::write(path.join("files/precious"), "x").unwrap();
    let bucket = || {
        let store = Arc::new(InMemory::new());
        let bucket = Bucket::new(store, "", Options::default());
        let bucket = bucket.unwrap();
        bucket.create(PAGE as u32).unwrap();
        bucket.writer(Takeover::Refuse).unwrap()
    };
    assert!(matches!(Mount::new(bucket(), &path, 1 << 20), Err(Error::Local { .. })));
    assert!(path.join("files/precious").exists());
    let other = site.path("other");
    let _first = Mount::new(bucket(), &other, 1 << 20).unwrap();
    assert!(matches!(Mount::new(bucket(), &other, 1 << 20), Err(Error::Local { .. })));
    assert!(matches!(Mount::new(bucket(), &site.path("small"), 4096), Err(Error::Setting { .. })));
}
