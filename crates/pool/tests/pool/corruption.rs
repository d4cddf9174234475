//! Pages with wrong contents: the error reports their position and checksums, and the bytes are available to callers
//! that want to recover as much as possible.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use forebay::{Checksum, Error, FileOptions, PagedFile, ReadaheadStrategy, Tablespace, ZeroPages};
use forebay_sim::{Disk, DiskOptions, Fault, Image, What};

use crate::site::{PAGE, SUMS, Site, create, numbered, read, reopened, write};

/// The bytes of `block` on disk.
fn bytes_of(file: &PagedFile, block: u32) -> Vec<u8> {
    std::fs::read(file.path()).unwrap()[block as usize * PAGE..][..PAGE].to_vec()
}

fn overwrite(file: &PagedFile, block: u32, bytes: &[u8]) {
    let disk = OpenOptions::new().write(true).open(file.path()).unwrap();
    disk.write_all_at(bytes, u64::from(block) * PAGE as u64).unwrap();
}

/// Checks a corrupt page's error: the expected checksum, the actual one, and whether the page is all zeroes.
#[track_caller]
fn corrupt(file: &PagedFile, block: u32) -> (u32, u32, bool) {
    let errors = [
        file.read(block).unwrap_err(),
        file.write(block).unwrap_err(),
        file.copy(block, 0, &mut [0]).unwrap_err(),
    ];
    let mismatches = errors.map(|error| match error {
        Error::Corrupt { file: path, block: at, expected, found, all_zeroes } => {
            assert_eq!((&*path, at), (file.path(), block));
            (expected, found, all_zeroes)
        }
        other => panic!("{other}"),
    });
    assert!(mismatches.iter().all(|one| *one == mismatches[0]) && !file.is_resident(block));
    mismatches[0]
}

/// The checksum in a page, and the one it should have at `block`.
fn sums(page: &[u8], block: u32) -> (u32, u32) {
    let mut stamped = page.to_vec();
    SUMS.stamp(&mut stamped, block);
    let sum = |page: &[u8]| u32::from_le_bytes(*page.first_chunk().unwrap());
    (sum(&stamped), sum(page))
}

#[test]
fn a_flipped_bit_is_reported_with_both_sums_and_the_page_can_be_salvaged() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 30);
    let file = reopened(&pool, file);
    let mut bytes = bytes_of(&file, 2);
    bytes[1234] ^= 0x10;
    overwrite(&file, 2, &bytes);
    let (expected, found) = sums(&bytes, 2);
    assert_eq!(corrupt(&file, 2), (expected, found, false));
    assert_eq!(pool.stats().frames_free, 8, "[LOD-2]");
    assert_eq!(pool.stats().total().corrupt_pages, 3);

    let (saved, damage) = file.salvage(2).unwrap();
    assert_eq!(saved, bytes);
    let damage = damage.unwrap();
    let is_that = matches!(damage, Error::Corrupt { block: 2, expected: e, found: f, .. } if (e, f) == (expected, found));
    assert!(is_that, "{damage}");
    // The neighbours are valid, and the page itself is valid again after it has been written.
    assert_eq!((read(&file, 1), read(&file, 3)), (31, 33));
    drop(file.init(2).unwrap());
    write(&file, 2, 5);
    let file = reopened(&pool, file);
    assert_eq!(read(&file, 2), 5);
    assert!(file.salvage(2).unwrap().1.is_none());
}

#[test]
fn a_page_of_zeroes_passes_or_not_as_the_file_says() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = pool.open_file("table", &create().zero_pages(ZeroPages::Refuse)).unwrap();
    file.extend(2).unwrap();
    let (expected, _) = sums(&[0; PAGE], 1);
    assert_eq!(corrupt(&file, 1), (expected, 0, true));
    let damage = file.salvage(1).unwrap().1.unwrap();
    assert!(matches!(damage, Error::Corrupt { all_zeroes: true, .. }), "{damage}");
    // A page of zeroes that was written has a checksum.
    drop(file.init(1).unwrap());
    file.close().unwrap();
    let file = pool.open_file("table", &create().zero_pages(ZeroPages::Refuse)).unwrap();
    assert_eq!(read(&file, 1), 0);
    file.close().unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    assert_eq!(read(&file, 0), 0);
}

#[test]
fn a_page_that_was_written_to_the_wrong_block_shows() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 30);
    let file = reopened(&pool, file);
    let lost = bytes_of(&file, 1);
    overwrite(&file, 3, &lost);
    let (expected, found) = sums(&lost, 3);
    assert_eq!(corrupt(&file, 3), (expected, found, false));
    assert_eq!(read(&file, 1), 31);
}

#[test]
fn without_checksums_whatever_is_there_is_the_page() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let options = create().checksum(Checksum::Off);
    let file = pool.open_file("table", &options).unwrap();
    file.extend(1).unwrap();
    overwrite(&file, 0, &[0xee; PAGE]);
    assert!(file.read(0).unwrap().iter().all(|byte| *byte == 0xee));
    // The bytes of the checksum are not changed either.
    file.write(0).unwrap()[PAGE - 1] = 1;
    file.flush_file().unwrap();
    assert_eq!(bytes_of(&file, 0)[..8], [0xee; 8]);
}

#[test]
fn part_of_a_page_at_the_end_is_refused_or_left_unread() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    numbered(&pool, "table", 2, 30).close().unwrap();
    let disk = OpenOptions::new().write(true).open(site.path("main/table")).unwrap();
    disk.write_all_at(&[9; 100], 2 * PAGE as u64).unwrap();
    let error = pool.open_file("table", &FileOptions::new()).unwrap_err();
    let Error::PartialPage { len, page_bytes, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((len, page_bytes), (2 * PAGE as u64 + 100, PAGE as u64));
    let file = pool.open_file("table", &FileOptions::new().ignore_partial_page(true)).unwrap();
    assert_eq!((file.blocks(), read(&file, 1)), (2, 31));
    assert!(matches!(file.read(2), Err(Error::PastEnd { block: 2, blocks: 2, .. })));
}

#[test]
fn a_page_that_replaces_part_of_one_is_all_zero() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    numbered(&pool, "table", 2, 30).close().unwrap();
    let disk = OpenOptions::new().write(true).open(site.path("main/table")).unwrap();
    disk.write_all_at(&[9; 100], 2 * PAGE as u64).unwrap();
    let file = pool.open_file("table", &FileOptions::new().ignore_partial_page(true)).unwrap();
    assert_eq!(file.extend(1).unwrap(), 2..3);
    assert!(file.read(2).unwrap().iter().all(|byte| *byte == 0), "new blocks are zeroes");
}

#[test]
fn a_misdirected_read_is_reported_and_never_another_page() {
    let disk = Disk::boot(&Image::empty(), DiskOptions::default()).unwrap();
    let main = Tablespace::new("main", disk.directory().join("main"))
        .io(disk.io(64).unwrap())
        .volume(disk.volume());
    let pool = Site::bare(8).cleaner(false).readahead(ReadaheadStrategy::Os);
    let pool = pool.tablespace(main).build().unwrap();
    let file = numbered(&pool, "table", 30, 700);
    let file = reopened(&pool, file);
    disk.rule(|operation| match operation.what {
        What::Read => Fault::Misdirected,
        _ => Fault::None,
    });
    (0..30).for_each(|block| {
        corrupt(&file, block);
    });
    disk.heal();
    (0..30).for_each(|block| assert_eq!(read(&file, block), 700 + u64::from(block)));
}
