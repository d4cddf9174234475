//! Bytes and sizes after a power cut.

use std::collections::BTreeSet;

use forebay_io::{
    AtomicWrite, CacheMode, DirectFiles, Error, File, Op, OpenOptions, Preallocate, Request,
};
use forebay_sim::{DiskOptions, Image};

use crate::rig::{Rig, SECTOR, SEEDS, sectors};

/// The first byte of each sector of file `f`.
fn heads(image: &Image) -> Vec<u8> {
    image.file("f").unwrap().chunks(SECTOR).map(|sector| sector[0]).collect()
}

#[test]
fn crs_1_what_was_written_before_a_sync_began_is_in_every_image_after_it_ended() {
    for op in [Op::SyncData, Op::SyncAll] {
        for by_queue in [false, true] {
            let rig = Rig::new();
            let file = rig.file("f");
            rig.write(&file, 0, &sectors(b"abcd"));
            file.set_len(6 * SECTOR as u64).unwrap();
            let request = match op {
                Op::SyncData => Request::sync_data(&file),
                _ => Request::sync_all(&file),
            };
            match (by_queue, op) {
                (true, _) => rig.io.submit(request).wait().result.unwrap(),
                (false, Op::SyncData) => file.sync_data().unwrap(),
                (false, _) => file.sync_all().unwrap(),
            }
            // A later write must not revoke it.
            rig.write(&file, 2 * SECTOR as u64, &sectors(b"C"));
            for image in rig.crashes() {
                let heads = heads(&image);
                assert!(heads == b"abcd\0\0" || heads == b"abCd\0\0", "[CRS-1] {heads:?}");
            }
        }
    }
}

#[test]
fn of_two_unsynced_writes_every_subset_survives_sometimes() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"..."));
    file.sync_data().unwrap();
    rig.write(&file, 0, &sectors(b"a"));
    rig.write(&file, 2 * SECTOR as u64, &sectors(b"b"));
    let seen: BTreeSet<Vec<u8>> = rig.crashes().iter().map(heads).collect();
    let expected = [b"...", b"..b", b"a..", b"a.b"].map(|it| it.to_vec());
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn crs_2_writes_are_torn_between_sectors_and_nowhere_else() {
    for (sector_bytes, tears) in [(512, 7), (4096, 0)] {
        let options = DiskOptions { sector_bytes, ..DiskOptions::default() };
        let rig = Rig::boot(&Image::empty(), options);
        let file = rig.file("f");
        rig.write(&file, 0, &[b'.'; 4096]);
        file.sync_data().unwrap();
        rig.write(&file, 0, &[b'x'; 4096]);
        let mut torn_at = BTreeSet::new();
        for image in rig.crashes() {
            let bytes = image.file("f").unwrap();
            for (index, pair) in bytes.windows(2).enumerate() {
                if pair[0] != pair[1] {
                    assert!((index + 1).is_multiple_of(sector_bytes as usize), "[CRS-2] {index}");
                    torn_at.insert(index + 1);
                }
            }
        }
        assert_eq!(torn_at.len(), tears, "every seam is torn sometimes: {torn_at:?}");
    }
}

#[test]
fn an_earlier_write_may_outlive_a_later_one_to_the_same_sector() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"."));
    file.sync_data().unwrap();
    rig.write(&file, 0, &sectors(b"a"));
    rig.write(&file, 0, &sectors(b"b"));
    let seen: BTreeSet<Vec<u8>> = rig.crashes().iter().map(heads).collect();
    assert_eq!(seen, BTreeSet::from([b".", b"a", b"b"].map(|it| it.to_vec())));
}

#[test]
fn crs_2_a_sector_never_has_a_later_part_without_an_earlier_one() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &[b'a'; 100]);
    rig.write(&file, 100, &[b'b'; 100]);
    for image in rig.crashes() {
        let bytes = image.file("f").unwrap();
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        assert!(at(150) != b'b' || at(50) == b'a', "[CRS-2] {bytes:?}");
    }
}

#[test]
fn an_extension_is_lost_sometimes_without_a_sync_and_never_after_one() {
    type Extend = fn(&Rig, &File);
    let ways: [(&str, Extend); 3] = [
        ("set_len", |_, file| file.set_len(4096).unwrap()),
        ("preallocate", |_, file| match file.preallocate(0..4096, Preallocate::Extend) {
            // If space cannot be reserved, there is nothing else to lose.
            Err(Error::Unsupported { .. }) => file.set_len(4096).unwrap(),
            reserved => reserved.unwrap(),
        }),
        ("write", |rig, file| rig.write(file, 4096 - 512, &sectors(b"x"))),
    ];
    for (way, extend) in ways {
        let rig = Rig::new();
        let file = rig.file("f");
        extend(&rig, &file);
        let lens = |rig: &Rig| -> BTreeSet<usize> {
            rig.crashes().iter().map(|image| image.file("f").unwrap().len()).collect()
        };
        assert_eq!(lens(&rig), BTreeSet::from([0, 4096]), "{way}");
        file.sync_data().unwrap();
        assert_eq!(lens(&rig), BTreeSet::from([4096]), "{way}");
    }
}

#[test]
fn a_file_may_grow_without_the_bytes_that_made_it_grow() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"ab"));
    let seen: BTreeSet<Vec<u8>> = rig.crashes().iter().map(heads).collect();
    assert!(seen.contains(b"\0b".as_slice()) && seen.contains(b"\0\0".as_slice()), "{seen:?}");
}

#[test]
fn sizes_survive_in_order_and_a_lost_truncation_takes_later_bytes_with_it() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"abc"));
    file.sync_data().unwrap();
    file.set_len(SECTOR as u64).unwrap();
    rig.write(&file, SECTOR as u64, &sectors(b"xyz"));
    let seen: BTreeSet<Vec<u8>> = rig.crashes().iter().map(heads).collect();
    assert!(seen.contains(b"abc".as_slice()), "the truncation is lost sometimes: {seen:?}");
    assert!(seen.contains(b"a".as_slice()) && seen.contains(b"axyz".as_slice()), "{seen:?}");
    for heads in seen {
        let old = heads[1..].iter().any(|byte| b"bc".contains(byte));
        let new = heads[1..].iter().any(|byte| b"xyz".contains(byte));
        assert!(!(old && new), "blocks from before and after a truncation: {heads:?}");
    }
}

#[test]
fn a_write_that_takes_effect_while_a_sync_runs_is_not_covered_by_it() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let rig = Rig::boot(&Image::empty(), DiskOptions { seed, ..DiskOptions::default() });
        let file = rig.file("f");
        let sync = rig.io.submit(Request::sync_data(&file));
        let write = rig.io.submit(rig.writing(&file, 0, &sectors(b"x")));
        sync.wait().result.unwrap();
        // It may have taken effect after the sync ended, while it ran, or before it began.
        let effective = file.len().unwrap() > 0;
        let sometimes_lost = rig.crashes().iter().any(|image| heads(image).is_empty());
        lost += u32::from(effective && sometimes_lost);
        write.wait().result.unwrap();
        // A sync after the end of the write covers it.
        file.sync_data().unwrap();
        assert!(rig.crashes().iter().all(|image| heads(image) == b"x"), "[CRS-1]");
    }
    assert!(lost > 0, "a sync that ended after the write took effect did not cover it");
}

#[test]
fn crs_3_the_same_position_and_seed_give_the_same_image() {
    let rig = Rig::new();
    let file = rig.file("f");
    for round in 0..20 {
        rig.write(&file, u64::from(round % 5) * 700, &[round; 1500]);
    }
    let journal = rig.disk.journal();
    let mut replay = journal.replay();
    let mut images = BTreeSet::new();
    for at in 0..=journal.len() {
        replay.advance_to(at);
        for seed in 0..20 {
            let image = replay.crash(seed);
            assert_eq!(image, journal.crash(at, seed), "[CRS-3]");
            images.insert(image.file("f").map(<[u8]>::to_vec));
        }
    }
    assert!(images.len() > 100, "seeds make a difference: {}", images.len());
}

#[test]
fn what_is_booted_is_durable_and_what_everyone_sees_is_all_of_it() {
    let rig = Rig::new();
    rig.volume.make_directory(&rig.path("d/e")).unwrap();
    rig.write(&rig.open("d/e/f"), 0, &sectors(b"abc"));
    let journal = rig.disk.journal();
    let mut replay = journal.replay();
    replay.advance_to(journal.len());
    let seen = replay.seen();
    assert_eq!(seen, Image::read_from(rig.disk.directory()).unwrap());

    let again = Rig::boot(&seen, DiskOptions::default());
    assert_eq!(again.read(&again.open("d/e/f"), 0, 3 * SECTOR), sectors(b"abc"));
    assert!(again.crashes().iter().all(|image| *image == seen), "[CRS-1]");
}

/// The possible results of a page write over a page of dots, as the first bytes of its sectors.
fn page_after(atomic: bool) -> BTreeSet<Vec<u8>> {
    let whole = AtomicWrite { bytes_min: 512, bytes_max: 65_536, pieces_max: 1 };
    let direct = Some(DirectFiles { alignment: 512, atomic_write: Some(whole) });
    let rig = Rig::boot(&Image::empty(), DiskOptions { direct, ..DiskOptions::default() });
    let options = OpenOptions::new().create(true).cache(CacheMode::Direct);
    let file = rig.volume.open(&rig.path("f"), &options).unwrap();
    rig.volume.sync_directory(rig.disk.directory()).unwrap();
    assert_eq!((file.alignment().offset, file.atomic_write()), (512, Some(whole)));
    rig.write(&file, 0, &sectors(b"........"));
    file.sync_data().unwrap();
    let request = rig.writing(&file, 0, &sectors(b"xxxxxxxx"));
    let request = if atomic { request.atomic() } else { request };
    rig.io.submit(request).wait().result.unwrap();
    rig.crashes().iter().map(heads).collect()
}

#[test]
fn an_atomic_write_survives_whole_or_not_at_all_and_a_direct_one_in_part() {
    let all_or_nothing = BTreeSet::from([b"........", b"xxxxxxxx"].map(|it| it.to_vec()));
    assert_eq!(page_after(true), all_or_nothing);
    assert!(page_after(false).len() > 20);
}

#[test]
fn a_direct_file_wants_alignment_and_there_are_none_unless_the_disk_has_them() {
    let open = |direct| {
        let rig = Rig::boot(&Image::empty(), DiskOptions { direct, ..DiskOptions::default() });
        let options = OpenOptions::new().create(true).cache(CacheMode::Direct);
        let opened = rig.volume.open(&rig.path("f"), &options);
        opened.map(|file| rig.try_write(&file, 100, &sectors(b"x")))
    };
    assert!(matches!(open(None), Err(Error::DirectRefused { .. })));
    let direct = Some(DirectFiles { alignment: 512, atomic_write: None });
    assert!(matches!(open(direct), Ok(Err(Error::Misaligned { .. }))));
}
