//! Files that another program truncates while they are open: the corruption is reported, and never hidden.

use std::fs::{self, OpenOptions};
use std::path::Path;

use forebay::{CheckpointOptions, Error, ErrorKind, PagedFile, Tablespace, TornPages};
use forebay_io::Op;

use crate::disk::Fault;
use crate::site::{PAGE, Site, create, numbered, on_disk, read, reopened, write};

const BLOCKS: u32 = 300;

/// Like `truncate -s`.
fn cut(path: &Path, blocks: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(blocks * PAGE as u64).unwrap();
}

#[track_caller]
fn assert_shortened<T: std::fmt::Debug>(result: Result<T, Error>, path: &Path) {
    let error = result.unwrap_err();
    let Error::Shortened { file, len, expected, read_only: false } = &error else {
        panic!("[LEN-3] {error}");
    };
    assert_eq!((&**file, error.kind()), (path, ErrorKind::Data));
    assert_eq!(*len, fs::metadata(path).unwrap().len());
    assert!(expected > len, "[LEN-3] {error}");
    let text = error.to_string();
    assert!(text.contains("is corrupt") && text.contains("backup"), "{text}");
    assert!(!text.contains("extend") && !text.contains("drop"), "it would lose the rest: {text}");
}

#[test]
fn len_3_a_file_that_was_cut_by_others_is_corrupt_and_is_never_made_longer() {
    let site = Site::new();
    let pool = Site::bare(16).directory(site.path("main")).cleaner(false).build().unwrap();
    let file = reopened(&pool, numbered(&pool, "table", BLOCKS - 1, 1000));
    // Space is reserved past the end; closing releases it.
    drop(file.append().unwrap());
    file.flush_file().unwrap();
    let path = file.path().to_owned();
    cut(&path, 10);
    let end = 10;

    assert_eq!(read(&file, end - 1), 1000 + u64::from(end - 1));
    assert_shortened(file.read(end + 5), &path);
    assert_shortened(file.write(end + 5), &path);
    assert_shortened(file.salvage(end + 5), &path);
    assert_shortened(file.backup(0..BLOCKS, |_, _| Ok::<_, Error>(())), &path);
    let mut streamed = file.scan(end + 4..end + 7);
    let results = std::iter::from_fn(|| streamed.next()).map(|it| it.map(drop));
    results.for_each(|result| assert_shortened(result.map_err(|failed| failed.error), &path));
    drop(streamed);
    assert_shortened(pollster::block_on(file.read_async(end + 5)), &path);

    assert_shortened(file.extend(1), &path);
    assert_shortened(file.append(), &path);
    assert_shortened(file.truncate(end + 20), &path);
    // Nor by the page that is in memory.
    drop(file.init(BLOCKS - 1).unwrap());
    assert_shortened(file.flush_file(), &path);
    let Err(Error::Checkpoint { failed, .. }) = pool.checkpoint(CheckpointOptions::now()) else {
        panic!("[LEN-3] a checkpoint");
    };
    assert_shortened::<()>(Err(failed[0].1.clone()), &path);
    let stats = pool.stats();
    assert_eq!((stats.frames_dirty, file.blocks()), (1, BLOCKS), "[OUT-2]");
    drop((file, pool));
    assert_eq!(fs::metadata(&path).unwrap().len(), 10 * PAGE as u64, "[LEN-3]");
}

/// A page that is not written in place needs no slot in the double-write file, which would run out of them.
#[test]
fn the_pages_of_a_file_that_was_cut_do_not_use_up_double_write() {
    let site = Site::new();
    let builder = Site::bare(400).torn_pages(TornPages::DoubleWrite).directory(site.path("main"));
    let pool = builder.cleaner(false).build().unwrap();
    let cut_file = numbered(&pool, "cut", BLOCKS, 1000);
    let file = numbered(&pool, "table", 4, 10);
    cut(cut_file.path(), 10);
    for block in 10..BLOCKS {
        write(&cut_file, block, 7);
        assert_shortened(cut_file.evict(block), cut_file.path());
    }
    write(&file, 3, 50);
    file.flush_file().unwrap();
    assert_eq!(on_disk(&file, 3), 50);
}

/// The pool's own truncation is not a loss, even if it happens between the two reads of `salvage`.
#[test]
fn salvage_does_not_take_the_pools_truncation_for_a_loss() {
    let site = Site::new();
    let (pool, disk) = site.rigged(16);
    let file = reopened(&pool, numbered(&pool, "table", 4, 10));
    let mut bytes = fs::read(file.path()).unwrap();
    bytes[2 * PAGE + 100] ^= 1;
    fs::write(file.path(), bytes).unwrap();
    let (truncated, mut reads) = (file.clone(), 0);
    disk.rule(move |it| {
        reads += u32::from(it.op() == Op::Read);
        if reads == 2 {
            truncated.truncate(1).unwrap();
        }
        Fault::None
    });
    let error = file.salvage(2).unwrap_err();
    disk.heal();
    assert!(matches!(error, Error::PastEnd { .. }), "{error}");
}

/// After the damaged part is truncated, the file is usable again.
#[test]
fn a_file_that_was_cut_by_others_can_be_truncated_to_what_is_left() {
    let site = Site::new();
    let pool = site.pool(16);
    let file = numbered(&pool, "table", BLOCKS, 1000);
    cut(file.path(), 10);
    assert_shortened(file.extend(1), file.path());
    file.truncate(8).unwrap();
    assert_eq!(file.extend(4).unwrap(), 8..12);
    write(&file, 11, 7);
    let file = reopened(&pool, file);
    assert_eq!([7, 8, 11].map(|block| read(&file, block)), [1007, 0, 7]);
}

#[test]
fn a_reader_whose_writer_has_truncated_the_file_is_advised_to_refresh() {
    let site = Site::new();
    let pool = site.pool(16);
    let written = numbered(&pool, "table", BLOCKS, 1000);
    let main = Tablespace::new("main", site.path("main")).read_only(true);
    let other = Site::bare(16).tablespace(main).build().unwrap();
    let file: PagedFile = other.open_file("table", &create().create(false)).unwrap();
    written.truncate(10).unwrap();
    let error = file.read(200).unwrap_err();
    assert!(matches!(error, Error::Shortened { read_only: true, .. }), "{error}");
    assert!(error.to_string().contains("call `refresh`"), "{error}");
    assert_eq!((file.refresh().unwrap(), read(&file, 9)), (10, 1009));
}
