//! Backups: untorn images, including changes that are only in memory, with a log that covers everything in them.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use forebay::{Block, Checksum, Error, FileOptions, Lsn, PageCodec, PagedFile, Wal, ZeroPages};

use crate::cipher::Cipher;
use crate::site::{Ends, SUMS, Site, create, fill, number_in, numbered, read, write};

/// A log that only records how far it is durable.
#[derive(Debug, Default)]
struct Log(AtomicU64, AtomicBool);

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if self.1.load(Ordering::SeqCst) {
            return Err("the log is full".into());
        }
        self.0.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn position(&self) -> Lsn {
        self.flushed()
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.0.load(Ordering::SeqCst))
    }
}

type Images = Vec<(Block, Vec<u8>)>;

/// The contents of a backup of all of `file`, block by block.
fn images(file: &PagedFile) -> Result<(Images, Lsn), Error> {
    let mut images = Vec::new();
    let end = file.backup(0..Block::MAX, |block, image| -> Result<(), Error> {
        images.push((block, image.to_vec()));
        Ok(())
    })?;
    Ok((images, end))
}

#[test]
fn bkp_2_a_backup_has_what_only_memory_has_and_its_log_is_durable() {
    let (site, log) = (Site::new(), Arc::new(Log::default()));
    let pool = site.builder(16).cleaner(false).wal(Arc::clone(&log) as Arc<dyn Wal>).build();
    let pool = pool.unwrap();
    let file = numbered(&pool, "table", 40, 50);
    for (block, lsn) in [(3, 700), (30, 800), (7, 750)] {
        let mut page = file.write(block).unwrap();
        fill(&mut page, lsn);
        page.mark_dirty(Lsn(lsn));
    }
    let (found, end) = images(&file).unwrap();
    assert!(end >= Lsn(800) && log.flushed() >= Lsn(800), "[BKP-2] {end}");
    assert_eq!(found.len(), 40);
    for (block, image) in found {
        let changed = [(3, 700), (30, 800), (7, 750)].into_iter().find(|it| it.0 == block);
        assert_eq!(number_in(&image), changed.map_or(50 + u64::from(block), |it| it.1));
        assert!(SUMS.matches(&image, block, ZeroPages::Refuse), "block {block}");
    }
    // Already written; for blocks that are not in the backup no log is needed.
    let end = file.backup(3..4, |_, _| Ok::<_, Error>(())).unwrap();
    assert!(end >= Lsn(700));

    let mut page = file.write(1).unwrap();
    page.mark_dirty(Lsn(900));
    drop(page);
    log.1.store(true, Ordering::SeqCst);
    assert!(matches!(images(&file), Err(Error::Log { lsn: Lsn(900), .. })), "[BKP-2]");
    log.1.store(false, Ordering::SeqCst);
}

#[test]
fn an_image_is_as_on_disk_and_its_taker_may_end_it_or_change_the_file() {
    let site = Site::new();
    let pool = site.pool(64);
    let codec = || Arc::new(Cipher(7)) as Arc<dyn PageCodec>;
    let options = create().codec(codec()).zero_pages(ZeroPages::Refuse);
    let file = pool.open_file("table", &options).unwrap();
    file.extend(12).unwrap();
    // Allocated and never written: a page of zeroes, which is not damage.
    (0..10).for_each(|block| {
        let mut page = file.init(block).unwrap();
        fill(&mut page, 50 + u64::from(block));
    });
    let (found, _) = images(&file).unwrap();
    assert_eq!(
        found.iter().map(|(block, _)| *block).collect::<Vec<_>>(),
        (0..12).collect::<Vec<_>>()
    );
    assert!(found[10..].iter().all(|(_, image)| image.iter().all(|&byte| byte == 0)));
    // Restored elsewhere, it can be read with the same codec.
    std::fs::create_dir(site.path("restored")).unwrap();
    let bytes: Vec<u8> = found.into_iter().flat_map(|(_, image)| image).collect();
    std::fs::write(site.path("restored/table"), bytes).unwrap();
    let other = Site::bare(64).directory(site.path("restored")).build().unwrap();
    let restored = other.open_file("table", &FileOptions::new().codec(codec())).unwrap();
    (0..10).for_each(|block| assert_eq!(read(&restored, block), 50 + u64::from(block)));
    assert!(restored.read(11).unwrap().iter().all(|&byte| byte == 0));

    // Blocks that are cut off or added meanwhile are left out; no latch is held while an image is processed.
    let mut seen = Vec::new();
    let done = file.backup(0..12, |block, _| {
        seen.push(block);
        if block == 2 {
            file.truncate(6)?;
            file.extend(1)?;
            drop(file.write(2)?);
        }
        Ok::<_, Error>(())
    });
    done.unwrap();
    assert!(seen.starts_with(&[0, 1, 2, 3, 4, 5]) && seen.len() <= 7, "{seen:?}");
    let ended = file.backup(1..5, |block, _| match block {
        3 => Err(Box::<dyn StdError>::from("enough")),
        _ => Ok(()),
    });
    assert_eq!(ended.unwrap_err().to_string(), "enough");
    assert!(pool.view().iter().all(|frame| frame.pins == 0));
}

/// Some codecs reject a page of zeroes, so none is called for one.
#[test]
fn a_block_that_was_never_written_is_an_image_of_zeroes_with_a_codec_too() {
    let site = Site::new();
    let pool = site.pool(16);
    for (name, checksum) in [("without", Checksum::Off), ("with", SUMS)] {
        let options = create().checksum(checksum).codec(Arc::new(Cipher(3)));
        let file = pool.open_file(name, &options.zero_pages(ZeroPages::Refuse)).unwrap();
        file.extend(3).unwrap();
        drop(file.init(0).unwrap());
        write(&file, 0, 40);
        let refused = file.read(1).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { block: 1, all_zeroes: true, .. }), "{refused}");
        let (found, _) = images(&file).unwrap();
        let zeroes = found.iter().map(|(_, image)| image.iter().all(|byte| *byte == 0));
        assert_eq!(zeroes.collect::<Vec<_>>(), [false, true, true], "{name}");
    }
}

#[test]
fn bkp_1_no_image_has_half_of_a_change() {
    let (site, done) = (Site::new(), AtomicBool::new(false));
    let pool = site.builder(16).build().unwrap();
    let file = numbered(&pool, "table", 40, 50);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::SeqCst) {
                    write(file, random.u32(..40), random.u64(..));
                }
            });
        }
        let _ends = Ends(&done);
        for _ in 0..20 {
            for (block, image) in images(&file).unwrap().0 {
                number_in(&image);
                assert!(SUMS.matches(&image, block, ZeroPages::Refuse), "[BKP-1]");
            }
        }
    });
}
