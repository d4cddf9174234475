//! What is durable when, and what is kept locally. Over a store in memory, and over a real server.

use std::sync::Arc;
use std::thread;

use forebay::{BufferPool, FileOptions, Tablespace};
use forebay_io::{Arena, File, OpenOptions, Request};
use forebay_object::object_store::memory::InMemory;
use forebay_object::{Bucket, Error, Mount, Options, Takeover};

use crate::mounting::mount;
use crate::place::store;
use crate::site::{PAGE, Site, create, number_in, read, write};

pub(crate) fn pool(mount: &Mount, frames: u64) -> BufferPool {
    let main = Tablespace::new("main", mount.directory());
    let main = main.io(mount.io(64).unwrap()).volume(mount.volume()).costs(mount.costs());
    Site::bare(frames).tablespace(main).build().unwrap()
}

#[test]
fn what_was_synced_is_there_after_a_crash_and_what_was_not_is_not() {
    let site = Site::new();
    let Some(store) = store() else { return };
    let (first, _) = mount(Arc::clone(&store), &site.path("main"), 64);
    let before = pool(&first, 16);
    let file = before.open_file("one", &create()).unwrap();
    file.extend(40).unwrap();
    (0..40).for_each(|block| write(&file, block, 100 + u64::from(block)));
    file.flush_file().unwrap();
    file.sync().unwrap();
    (0..40).for_each(|block| write(&file, block, 200 + u64::from(block)));
    file.flush_file().unwrap();

    // The first machine is lost; another one takes over.
    let (second, bucket) = mount(Arc::clone(&store), &site.path("main"), 64);
    let after = pool(&second, 16);
    let found = after.open_file("one", &FileOptions::new()).unwrap();
    assert_eq!(found.blocks(), 40);
    (0..40).for_each(|block| assert_eq!(read(&found, block), 100 + u64::from(block)));
    let local = first.failure();
    assert!(local.is_none(), "{local:?}");
    assert!(file.sync().is_err(), "the old one is fenced");
    assert!(matches!(first.failure(), Some(Error::Fenced { epoch: 1, by: 2 })));

    // A reader on another machine sees the synced data, too.
    let view = bucket.reader().unwrap().view();
    let mut page = vec![0; PAGE];
    view.read(view.file("one").unwrap(), 7, &mut page).unwrap();
    assert_eq!(number_in(&page), 107);
}

/// Files that are cut, renamed and removed, and pages written in part, bypassing the pool.
#[test]
fn files_are_files() {
    let site = Site::new();
    let Some(store) = store() else { return };
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

    // Pages that are not present are fetched before a part of them is written or cut.
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

/// The pool identifies files by their local copies.
#[test]
fn a_file_is_one_by_all_its_names_and_gives_its_local_space_back_when_it_is_dropped() {
    let site = Site::new();
    let Some(store) = store() else { return };
    let (first, bucket) = mount(store, &site.path("main"), 64);
    let pool = pool(&first, 16);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(20).unwrap();
    (0..20).for_each(|block| write(&file, block, 100));
    file.flush_file().unwrap();
    let second = first.directory().join("linked");
    std::fs::hard_link(file.path(), &second).unwrap();
    assert_eq!(pool.open_file("linked", &FileOptions::new()).unwrap().id(), file.id());
    std::fs::remove_file(&second).unwrap();

    let local = std::fs::File::open(file.path()).unwrap();
    file.drop_file().unwrap();
    assert_eq!(local.metadata().unwrap().len(), 0);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(2).unwrap();
    write(&file, 1, 300);
    pool.close().unwrap();
    assert!(first.failure().is_none());
    let view = bucket.reader().unwrap().view();
    assert_eq!(view.files().iter().map(|it| it.bytes).collect::<Vec<_>>(), [2 * PAGE as u64]);
    let mut page = vec![0; PAGE];
    view.read(view.file("one").unwrap(), 1, &mut page).unwrap();
    assert_eq!(number_in(&page), 300);
}

/// Half of the pages that may be present are clean, the others dirty, whatever was written before.
#[cfg(target_os = "linux")]
#[test]
fn a_mount_takes_no_more_than_it_may() {
    use std::os::unix::fs::MetadataExt;
    let site = Site::new();
    let Some(store) = store() else { return };
    let (mount, _bucket) = mount(store, &site.path("main"), 64);
    let pool = pool(&mount, 16);
    let file = pool.open_file("one", &create()).unwrap();
    file.extend(200).unwrap();
    for block in 0..200 {
        write(&file, block, block.into());
        file.flush_file().unwrap();
        if block % 32 == 31 {
            file.sync().unwrap();
        }
        let blocks = mount.directory().join("one").metadata().unwrap().blocks();
        // Plus the space that the filesystem itself needs.
        assert!(blocks * 512 <= 68 * PAGE as u64, "{blocks} after {block}");
    }
}

/// Threads write pages while others sync: every sync leaves whole pages in the store ([LOC-2]).
#[test]
fn no_page_is_torn_by_a_write_during_a_sync() {
    let site = Site::new();
    let Some(store) = store() else { return };
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
        let bucket = Bucket::new(Arc::new(InMemory::new()), "", Options::default());
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

#[test]
fn a_name_in_the_store_leads_to_no_file_outside_of_the_mounts_directory() {
    let site = Site::new();
    let absolute = site.path("absolute");
    let outside = [("../out", &site.path("main/out")), (absolute.to_str().unwrap(), &absolute)];
    for (name, path) in outside {
        let bucket = Bucket::new(Arc::new(InMemory::new()), "", Options::default()).unwrap();
        bucket.create(PAGE as u32).unwrap();
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        writer.create_file(name).unwrap();
        let mounted = Mount::new(writer, &site.path("main"), 1 << 20);
        assert!(matches!(mounted, Err(Error::Local { .. })));
        assert!(!path.exists(), "{name}");
    }
}

/// Its fetches would wait for a thread to drive them, and reads for the fetches.
#[test]
fn a_runtime_that_runs_only_while_a_caller_waits_is_refused() {
    let site = Site::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = Options { runtime: Some(Arc::new(runtime)), ..Options::default() };
    let bucket = Bucket::new(Arc::new(InMemory::new()), "", options).unwrap();
    bucket.create(PAGE as u32).unwrap();
    let mounted = Mount::new(bucket.writer(Takeover::Refuse).unwrap(), &site.path("a"), 1 << 20);
    assert!(matches!(mounted, Err(Error::Setting { .. })));
}

#[test]
fn a_reader_elsewhere_is_mounted_at_its_version_and_changes_nothing() {
    let site = Site::new();
    let Some(store) = store() else { return };
    let (first, bucket) = mount(store, &site.path("main"), 64);
    let before = pool(&first, 16);
    let file = before.open_file("one", &create()).unwrap();
    file.extend(100).unwrap();
    (0..100).for_each(|block| write(&file, block, 7 + u64::from(block)));
    file.flush_file().unwrap();
    file.sync().unwrap();
    let second = Mount::read_only(bucket.reader().unwrap(), &site.path("elsewhere")).unwrap();
    (0..100).for_each(|block| write(&file, block, 1000));
    file.flush_file().unwrap();
    file.sync().unwrap();

    let elsewhere = pool(&second, 16);
    let found = elsewhere.open_file("one", &FileOptions::new()).unwrap();
    for page in found.scan(0..100) {
        let page = page.unwrap();
        assert_eq!(number_in(&page), 7 + u64::from(page.block()));
    }
    assert!(found.extend(1).is_err() && elsewhere.open_file("two", &create()).is_err());
    let path = second.directory().join("one");
    assert!(
        second.volume().remove(&path).is_err() && path.exists(),
        "refused before it is done here"
    );
    write(&found, 3, 5);
    let refused = found.flush_file().unwrap_err();
    assert!(refused.to_string().contains("Read-only"), "{refused}");
    drop((found, elsewhere));
    second.close().unwrap();
    let third = Mount::read_only(bucket.reader().unwrap(), &site.path("third")).unwrap();
    let again = pool(&third, 16);
    let found = again.open_file("one", &FileOptions::new()).unwrap();
    assert_eq!(read(&found, 99), 1000);
}
