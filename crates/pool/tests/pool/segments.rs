//! Files in segments: every block has one place, and the seams do not show.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forebay::{BufferPool, CheckpointOptions, Error, FileOptions, PagedFile, Tablespace};
use forebay_io::Op;

use crate::disk::Disk;
use crate::site::{PAGE, Site, create, numbered, read, write};

fn pool_of_segments(site: &Site, pages: usize) -> BufferPool {
    let main = Tablespace::new("main", site.path("main")).segment_size(pages * PAGE);
    Site::bare(32).tablespace(main).build().unwrap()
}

fn segments_on_disk(site: &Site) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(site.path("main")).unwrap().map(Result::unwrap);
    let mut sizes: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .filter(|(name, _)| name != "forebay.lock")
        .map(|(name, len)| (name, len / PAGE as u64))
        .collect();
    sizes.sort();
    sizes
}

#[test]
fn a_block_keeps_its_place_as_the_file_grows_shrinks_and_is_opened_again() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 3);
    let file = numbered(&pool, "t", 2, 0);
    for blocks in [3, 4, 7, 9, 10] {
        let from = file.extend(blocks - file.blocks()).unwrap().start;
        (from..blocks).for_each(|block| write(&file, block, u64::from(block)));
        file.flush_file().unwrap();
        for block in 0..blocks {
            let name = if block < 3 { "t".to_owned() } else { format!("t.{}", block / 3) };
            let bytes = std::fs::read(site.path("main").join(name)).unwrap();
            let page = &bytes[block as usize % 3 * PAGE..][..PAGE];
            assert_eq!(crate::site::number_in(page), u64::from(block), "[SEG-1]");
        }
    }
    file.truncate(6).unwrap();
    assert_eq!(segments_on_disk(&site), [("t".to_owned(), 3), ("t.1".to_owned(), 3)], "[SEG-1]");
    file.close().unwrap();
    let file = pool.open_file("t", &FileOptions::new()).unwrap();
    assert_eq!(file.blocks(), 6, "[SEG-1]");
    assert!((0..6).all(|block| read(&file, block) == u64::from(block)), "[SEG-1]");
    file.drop_file().unwrap();
    assert_eq!(segments_on_disk(&site), []);
}

#[test]
fn a_file_that_grew_block_by_block_takes_no_more_space_than_its_blocks_once_it_is_closed() {
    let site = Site::new();
    let beyond = |path: &Path| {
        let facts = std::fs::metadata(path).unwrap();
        (facts.blocks() * 512).saturating_sub(facts.len())
    };
    // Room for what the filesystem itself needs to find the blocks.
    let most = 128 << 10;
    let pool = site.pool(64);
    let files = ["closed", "dropped with its pool"].map(|name| {
        let file = pool.open_file(name, &create()).unwrap();
        (0..2500).for_each(|_| drop(file.append().unwrap()));
        file
    });
    files[0].close().unwrap();
    let paths = files.each_ref().map(|file| file.path().to_owned());
    let dropped_before = beyond(&paths[1]);
    drop((files, pool));
    assert!(beyond(&paths[0]) < most, "[SEG-2] {paths:?}");
    assert!(beyond(&paths[1]) < most, "[SEG-2] {paths:?}, {dropped_before} before");
}

#[test]
fn a_write_stops_at_the_end_of_its_segment() {
    let site = Site::new();
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).segment_size(4 * PAGE).io(io);
    let pool = Site::bare(64).cleaner(false).tablespace(main).build().unwrap();
    numbered(&pool, "t", 10, 0);
    let seen = disk.seen().into_iter().filter(|seen| seen.op == Op::Write);
    let written: Vec<u64> = seen.map(|seen| seen.len / PAGE as u64).collect();
    assert_eq!(written, [4, 4, 2]);
}

#[test]
fn a_truncation_that_fails_half_way_leaves_no_old_pages_for_a_longer_file() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    let file = numbered(&pool, "t", 10, 100);
    // A directory in place of the last segment cannot be removed, so the first is not cut.
    std::fs::remove_file(site.path("main/t.2")).unwrap();
    std::fs::create_dir(site.path("main/t.2")).unwrap();
    file.truncate(2).unwrap_err();
    assert_eq!(file.blocks(), 2);
    std::fs::remove_dir(site.path("main/t.2")).unwrap();
    file.extend(4).unwrap();
    assert_eq!([0, 1, 2, 5].map(|block| read(&file, block)), [100, 101, 0, 0], "[RSZ-1]");
}

/// A truncation that failed is made up for, by itself or before anything says that the file's length is durable; nothing does as long
/// as it fails.
#[test]
fn seg_3_what_a_failed_truncation_left_does_not_come_back_with_the_file() {
    type Ends = fn(&BufferPool, &PagedFile) -> Result<(), Error>;
    let ends: [(&str, Ends); 5] = [
        ("truncated again", |_, file| file.truncate(2)),
        ("synced", |_, file| file.sync()),
        ("closed", |_, file| file.close()),
        ("all synced", |pool, _| pool.flush_and_sync().map(drop)),
        ("checkpoint", |pool, file| {
            let done = pool.checkpoint(CheckpointOptions::now()).map(drop);
            // Which makes nothing up.
            done.or_else(|error| file.sync().and(Err(error)))
        }),
    ];
    for (case, end) in ends {
        let site = Site::new();
        let pool = pool_of_segments(&site, 4);
        let file = numbered(&pool, "t", 10, 100);
        // A directory in place of the last segment cannot be removed, so the first is not cut.
        std::fs::remove_file(site.path("main/t.2")).unwrap();
        std::fs::create_dir(site.path("main/t.2")).unwrap();
        file.truncate(2).unwrap_err();
        end(&pool, &file).expect_err(case);
        std::fs::remove_dir(site.path("main/t.2")).unwrap();
        match end(&pool, &file) {
            Err(Error::Checkpoint { .. }) => end(&pool, &file).unwrap(),
            ended => ended.unwrap(),
        }
        drop(file);
        pool.close().unwrap();
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        assert_eq!(file.blocks(), 2, "[SEG-3] {case}");
    }
}

/// Of the removals of a truncation a power cut may leave any: here that of `t.2` is lost.
#[test]
fn seg_3_segments_behind_a_hole_do_not_come_back() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    numbered(&pool, "t", 12, 100);
    pool.close().unwrap();
    std::fs::remove_file(site.path("main/t.1")).unwrap();
    for (count, blocks) in [(2, 6), (2, 8), (4, 12)] {
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        file.extend(count).unwrap();
        pool.close().unwrap();
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        assert_eq!(file.blocks(), blocks, "[SEG-3]");
        let expected = (0..blocks).map(|at| if at < 4 { 100 + u64::from(at) } else { 0 });
        assert!((0..blocks).map(|block| read(&file, block)).eq(expected), "[SEG-3]");
        pool.close().unwrap();
    }
}

#[test]
fn two_names_of_one_file_are_one_file_or_refused() {
    let site = Site::new();
    std::fs::create_dir_all(site.path("main/d")).unwrap();
    let pool = site.pool(16);
    let file = pool.open_file("d/t", &create()).unwrap();
    file.extend(1).unwrap();
    write(&file, 0, 5);
    for name in ["d//t", "d/./t"] {
        if let Ok(other) = pool.open_file(name, &FileOptions::new()) {
            assert_eq!((other.id(), read(&other, 0)), (file.id(), 5), "{name} is the same file");
        }
    }
}

#[test]
fn a_segment_is_not_opened_as_a_file_of_its_own() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    let file = numbered(&pool, "t", 6, 0);
    write(&file, 5, 50);
    if let Ok(other) = pool.open_file("t.1", &create()) {
        assert_ne!(other.blocks(), 2, "the second segment of `t`, with pages of its own");
    }
}
