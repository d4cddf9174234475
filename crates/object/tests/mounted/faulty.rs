//! Mounts over a store that fails, is late and returns damaged bytes, and over one with many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{BufferPool, FileOptions, PagedFile};
use forebay_object::object_store::memory::InMemory;
use forebay_object::{Bucket, Mount, Options, Takeover};
use tokio::runtime::{Builder, Runtime};

use crate::mounting::mount;
use crate::mounts::pool;
use crate::site::{PAGE, Site, create, number_in, read, try_write, write};
use crate::store::{Faults, Handle, World};

/// The buffer is full of dirty pages and the store does not accept them: the write fails, and the pages stay.
#[test]
fn a_full_buffer_over_an_unreachable_store_refuses_writes_and_keeps_what_it_has() {
    let site = Site::new();
    let Small { file, mount, bucket, handle, .. } = &small(&site, Duration::from_millis(100));
    handle.set_faults(Faults { unavailable: 1000, ..Faults::default() });
    let mut written = 0;
    let refused = loop {
        match try_write(file, written, u64::from(written) + 7) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 200, "the buffer is bounded");
    };
    assert!(refused.to_string().contains("No space left"), "{refused}");
    assert!(mount.failure().is_some_and(|it| it.is_retryable()));
    handle.set_faults(Faults::default());
    (written..200).for_each(|block| write(file, block, u64::from(block) + 7));
    file.flush_file().unwrap();
    file.sync().unwrap();
    let view = bucket.reader().unwrap().view();
    let mut bytes = vec![0; 200 * PAGE];
    view.read(view.file("one").unwrap(), 0, &mut bytes).unwrap();
    assert!((7..).zip(bytes.chunks(PAGE)).all(|(number, page)| number_in(page) == number));
}

/// While pages are being put to a store that does not answer, other pages cannot fill the disk: those count too.
#[test]
fn a_buffer_is_as_full_with_pages_on_their_way() {
    let site = Site::new();
    let Small { file, handle, .. } = &small(&site, Duration::from_secs(1));
    file.sync().unwrap();
    (0..24).for_each(|block| write(file, block, 7));
    file.flush_file().unwrap();
    let before = handle.world.events().len();
    handle.die_after(1, true);
    thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync());
        while handle.world.events().len() == before {
            thread::yield_now();
        }
        // At most 32 in the buffer, of which 24 are being put, and 16 in the pool's memory.
        let written = (24..200).take_while(|block| try_write(file, *block, 7).is_ok()).count();
        assert!(written <= 28, "{written} pages");
        sync.join().unwrap().unwrap_err();
    });
}

/// Threads count in their own pages, over a store that fails, is late and returns damaged bytes; the next writer
/// finds at least the counts from before the last sync began, and no torn page.
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

/// 200 pages over a buffer of 64 of them and a pool of 16, on a store whose faults are set later.
struct Small {
    file: PagedFile,
    _pool: BufferPool,
    mount: Mount,
    bucket: Bucket,
    handle: Arc<Handle>,
    _runtime: Arc<Runtime>,
}

fn small(site: &Site, deadline: Duration) -> Small {
    let (bucket, handle, runtime) = faulty(deadline);
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let mount = Mount::new(writer, &site.path("main"), 64 * PAGE as u64).unwrap();
    let pool = pool(&mount, 16);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(200).unwrap();
    Small { file, _pool: pool, mount, bucket, handle, _runtime: runtime }
}

/// A bucket on a store whose faults the test sets, with real threads and real time.
pub(crate) fn faulty(deadline: Duration) -> (Bucket, Arc<Handle>, Arc<Runtime>) {
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

/// Makes more requests than a real server answers in a few seconds.
#[test]
fn a_pool_and_a_buffer_smaller_than_the_data_lose_nothing() {
    let site = Site::new();
    let store = Arc::new(InMemory::new());
    let (first, bucket) = mount(Arc::clone(&store) as Arc<_>, &site.path("main"), 64);
    let before = pool(&first, 16);
    let file = before.open_file("one", &create()).unwrap();
    file.extend(1000).unwrap();
    for round in 0..3 {
        for block in (0..1000).rev() {
            write(&file, block, round * 1000 + u64::from(block));
        }
        assert!((0..1000).all(|block| read(&file, block) == round * 1000 + u64::from(block)));
    }
    // More pages than the buffer holds are in objects by now, and no manifest names them.
    let reader = bucket.reader().unwrap().view();
    let mut page = vec![1; PAGE];
    reader.read(reader.file("one").unwrap(), 3, &mut page).unwrap();
    assert_eq!(number_in(&page), 0, "nothing was synced since the file was made");
    assert!(first.writer().unwrap().space().live_bytes > 900 * PAGE as u64);
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

/// As if the credentials were being renewed: otherwise the pool's file would fail permanently.
#[test]
fn a_sync_waits_for_credentials_that_are_refused_for_a_while() {
    let site = Site::new();
    let Small { file, handle, .. } = &small(&site, Duration::from_secs(60));
    let commit = || {
        file.flush_file().unwrap();
        file.sync().unwrap();
    };
    write(file, 1, 1);
    commit();
    handle.set_faults(Faults { denied: true, ..Faults::default() });
    thread::scope(|scope| {
        scope.spawn(|| {
            while handle.denied() < 5 {
                thread::sleep(Duration::from_millis(1));
            }
            handle.set_faults(Faults::default());
        });
        write(file, 1, 2);
        commit();
    });
    write(file, 1, 3);
    commit();
}

#[test]
fn a_mount_measures_what_a_request_takes_by_default() {
    let site = Site::new();
    let (bucket, handle, runtime) = faulty(Duration::from_secs(20));
    bucket.create(PAGE as u32).unwrap();
    // Not the default costs of a store that was not measured.
    let latency = (Duration::from_millis(60), Duration::ZERO);
    handle.set_faults(Faults { latency, ..Faults::default() });
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let mount = Mount::new(writer, &site.path("main"), 64 * PAGE as u64).unwrap();
    let request = mount.costs().request.as_millis();
    assert!((60..200).contains(&request), "{request} ms");
    // Bytes cost nothing here, and no store is that fast.
    assert!(mount.costs().mebibyte >= Duration::from_micros(80), "{:?}", mount.costs());
    drop(mount);
    let costs = forebay_lookahead::DeviceCosts::default();
    let options = Options { costs: Some(costs), runtime: Some(runtime), ..Options::default() };
    let configured = Bucket::new(handle, "space", options).unwrap();
    let before = configured.stats();
    let mount = Mount::read_only(configured.reader().unwrap(), &site.path("other")).unwrap();
    assert_eq!((mount.costs(), configured.stats().puts - before.puts), (costs, 2), "two leases");
}
