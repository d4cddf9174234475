//! Files with several names, with changed names, and without a name: one file has one cache.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use forebay::{BufferPool, Error, FileOptions, PagedFile, StreamOptions, Tablespace};

use crate::site::{PAGE, Site, create, number_in, numbered, on_disk, read, write};

fn open(pool: &BufferPool, name: &str) -> Result<PagedFile, Error> {
    pool.open_file(name, &FileOptions::new())
}

#[track_caller]
fn assert_detached<T: std::fmt::Debug>(result: Result<T, Error>, other: bool) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Detached { replaced, .. } if replaced == other), "{error}");
    assert!(error.to_string().contains("copy it with `backup`"), "{error}");
}

#[test]
fn reg_1_a_file_has_one_cache_under_all_of_its_names() {
    let site = Site::new();
    let spaces = ["main", "other"].map(|name| Tablespace::new(name, site.path(name)));
    let [main, other] = spaces;
    let pool = Site::bare(16).tablespace(main).tablespace(other).build().unwrap();
    let file = numbered(&pool, "table", 1, 10);
    let path = |name: &str| site.path("main").join(name);
    fs::hard_link(path("table"), path("linked")).unwrap();
    symlink(path("table"), path("symbolic")).unwrap();
    let named: Vec<_> =
        ["linked", "symbolic", "./linked"].map(|name| open(&pool, name).unwrap()).into();
    for (number, second) in (20..).zip(&named) {
        assert_eq!(second.id(), file.id(), "[REG-1]");
        write(second, 0, number);
        write(&file, 0, read(&file, 0) + 100);
        assert_eq!(read(second, 0), number + 100, "[REG-1] an update was lost");
    }
    assert_eq!(pool.view().len(), 1, "[REG-1]");
    fs::hard_link(path("table"), site.path("other/table")).unwrap();
    let elsewhere = pool.open_file("table", &create().tablespace("other"));
    assert!(matches!(elsewhere, Err(Error::OpenOtherwise { what: "tablespace", .. })));

    file.close().unwrap();
    let file = open(&pool, "linked").unwrap();
    assert_eq!((file.path(), read(&file, 0)), (&*path("linked"), 122));
    assert_eq!(open(&pool, "table").unwrap().id(), file.id(), "[REG-1]");
}

#[test]
fn reg_1_a_file_that_was_renamed_is_the_same_file() {
    let site = Site::new();
    let pool = site.pool(16);
    let file = numbered(&pool, "table", 2, 10);
    let (before, after) = (site.path("main/table"), site.path("main/renamed"));
    fs::rename(&before, &after).unwrap();
    write(&file, 1, 50);
    let renamed = open(&pool, "renamed").unwrap();
    assert_eq!((renamed.id(), read(&renamed, 1)), (file.id(), 50), "[REG-1]");
    assert_detached(pool.open_file("table", &create()), false);
    assert!(!before.exists());
    renamed.flush_file().unwrap();
    assert_eq!(fs::read(&after).unwrap()[PAGE + 8], 50);
    file.close().unwrap();
    assert_eq!(pool.open_file("table", &create()).unwrap().blocks(), 0);
    assert_eq!(read(&open(&pool, "renamed").unwrap(), 1), 50);
}

#[test]
fn reg_3_a_file_that_was_removed_and_made_again_is_not_taken_for_the_open_one() {
    let site = Site::new();
    let pool = site.pool(16);
    let file = numbered(&pool, "table", 4, 10);
    fs::remove_file(file.path()).unwrap();
    fs::write(file.path(), vec![0; PAGE]).unwrap();
    for options in [FileOptions::new(), create(), FileOptions::new().create_new(true)] {
        assert_detached(pool.open_file("table", &options), true);
    }
    // The new file is not touched.
    assert_detached(file.drop_file(), true);
    assert_eq!(fs::read(file.path()).unwrap().len(), PAGE);
    let mut saved = Vec::new();
    file.backup(0..4, |_, image| {
        saved.push(number_in(image));
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(saved, [10, 11, 12, 13]);
    file.close().unwrap();
    let file = open(&pool, "table").unwrap();
    assert_eq!((file.blocks(), read(&file, 0)), (1, 0));
}

#[test]
fn a_reader_follows_a_file_that_its_writer_has_made_again() {
    let site = Site::new();
    let (pool, other) = writer_and_reader(&site);
    let written = numbered(&pool, "table", 2, 10);
    let file = open(&other, "table").unwrap();
    written.drop_file().unwrap();
    numbered(&pool, "table", 3, 30).close().unwrap();
    let error = open(&other, "table").unwrap_err();
    assert!(matches!(error, Error::Detached { replaced: true, read_only: true, .. }), "{error}");
    assert!(error.to_string().contains("`refresh`"), "{error}");
    assert_eq!(file.refresh().unwrap(), 3);
    let again = open(&other, "table").unwrap();
    assert_eq!((again.id(), read(&again, 2)), (file.id(), 32));
}

/// Two pools on one directory: one writes, the other reads.
fn writer_and_reader(site: &Site) -> (BufferPool, BufferPool) {
    let main = Tablespace::new("main", site.path("main")).read_only(true);
    (site.pool(16), Site::bare(16).tablespace(main).build().unwrap())
}

#[test]
fn reg_3_a_detached_file_without_a_handle_can_be_refreshed_or_closed() {
    let site = Site::new();
    let (writer, reader) = writer_and_reader(&site);
    numbered(&writer, "table", 2, 10).close().unwrap();
    for pool in [&writer, &reader] {
        drop(open(pool, "table").unwrap());
    }
    let path = site.path("main/table");
    fs::copy(&path, site.path("main/copy")).unwrap();
    fs::rename(site.path("main/copy"), &path).unwrap();
    assert_detached(open(&writer, "table"), true);
    let [file] = <[_; 1]>::try_from(writer.open_files()).unwrap();
    assert_eq!((file.path(), read(&file, 1)), (&*path, 11));
    file.close().unwrap();
    assert!(writer.open_files().is_empty());
    write(&open(&writer, "table").unwrap(), 1, 30);

    assert!(matches!(open(&reader, "table"), Err(Error::Detached { .. })), "[REG-3]");
    writer.flush_and_sync().unwrap();
    reader.open_files()[0].refresh().unwrap();
    assert_eq!(read(&open(&reader, "table").unwrap(), 1), 30);
}

#[test]
fn reg_1_a_refresh_does_not_make_two_caches_of_one_file() {
    let site = Site::new();
    let (writer, reader) = writer_and_reader(&site);
    for (name, first) in [("one", 10), ("two", 20)] {
        numbered(&writer, name, 2, first).close().unwrap();
    }
    let [one, two] = ["one", "two"].map(|name| open(&reader, name).unwrap());
    let path = |name: &str| site.path("main").join(name);
    for (from, to) in [("one", "was"), ("two", "one"), ("was", "two")] {
        fs::rename(path(from), path(to)).unwrap();
    }
    for file in [&one, &two] {
        let error = file.refresh().unwrap_err();
        assert!(matches!(error, Error::OpenOtherwise { what: "name", .. }), "[REG-1] {error}");
    }
    assert_eq!((read(&one, 0), read(&two, 0)), (10, 20));
    two.close().unwrap();
    one.refresh().unwrap();
    let two = open(&reader, "two").unwrap();
    assert_eq!((read(&one, 0), read(&two, 0)), (20, 10));
}

#[test]
fn after_a_refresh_another_name_of_the_previous_file_opens_that() {
    let site = Site::new();
    let (writer, reader) = writer_and_reader(&site);
    let written = numbered(&writer, "table", 2, 10);
    let path = |name: &str| site.path("main").join(name);
    fs::hard_link(path("table"), path("snapshot")).unwrap();
    let file = open(&reader, "table").unwrap();
    assert_eq!(open(&reader, "snapshot").unwrap().id(), file.id(), "[REG-1]");
    written.drop_file().unwrap();
    numbered(&writer, "table", 2, 30).close().unwrap();
    file.refresh().unwrap();
    let snapshot = open(&reader, "snapshot").unwrap();
    assert_eq!((read(&file, 0), read(&snapshot, 0)), (30, 10));
    file.close().unwrap();
    assert_eq!(open(&reader, "snapshot").unwrap().id(), snapshot.id(), "[REG-1]");
}

/// Regardless of what keeps it open: handles, streams with separate descriptors, other processes.
#[test]
fn what_is_dropped_gives_its_space_back_though_it_is_open() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = numbered(&pool, "table", 20, 10);
    file.sync().unwrap();
    let open = fs::File::open(file.path()).unwrap();
    let os = StreamOptions::new().readahead(forebay::ReadaheadStrategy::Os);
    let mut stream = file.stream_with((0..20).map(|block| (block, ())), &os);
    (0..18).for_each(|_| drop(stream.next().unwrap().unwrap()));
    let takes = |file: &fs::File| file.metadata().unwrap().blocks() > 0;
    assert!(takes(&open));
    file.drop_file().unwrap();
    assert!(!takes(&open), "its space is in use while it is open");
    assert!(matches!(file.read(0), Err(Error::Invalidated { .. })));
}

#[test]
fn a_dropped_file_that_has_another_name_is_whole_under_that() {
    let site = Site::new();
    let pool = site.pool(16);
    let file = numbered(&pool, "table", 4, 10);
    fs::hard_link(file.path(), site.path("snapshot")).unwrap();
    assert_eq!(on_disk(&file, 3), 13);
    let before = fs::read(file.path()).unwrap();
    file.drop_file().unwrap();
    assert!(!file.path().exists());
    assert_eq!(fs::read(site.path("snapshot")).unwrap(), before);
}
