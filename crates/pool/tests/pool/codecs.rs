//! Codecs: no plain page is ever on disk, pages are read as they were written, and a codec that panics leaves no page
//! in an intermediate state.

use std::error::Error as StdError;
use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use forebay::{
    Block, BufferPool, CheckpointOptions, Checksum, Error, FileOptions, Lsn, PageCodec, PageImage,
    PagedFile, ReadaheadStrategy, Tablespace, TornPages, Wal,
};
use forebay_io::Op;

use crate::cipher::Cipher;
use crate::disk::Disk;
use crate::site::{PAGE, Site, create, number_in, read, write};
use crate::torn;

/// The contents of pages begin with this; codecs and checksums produce these bytes only by an improbable coincidence.
const SECRET: u64 = 0x5ec2_e7c0_ffee_d000;

fn is_plain(bytes: &[u8]) -> bool {
    let secret = SECRET.to_le_bytes();
    bytes.chunks_exact(8).any(|word| word[2..] == secret[2..])
}

fn cipher(key: u64) -> Arc<dyn PageCodec> {
    Arc::new(Cipher(key))
}

/// A file encoded by `codec`; block n contains [`SECRET`] + n, and is on disk.
fn secrets(pool: &BufferPool, name: &str, blocks: Block, codec: Arc<dyn PageCodec>) -> PagedFile {
    let file = pool.open_file(name, &create().codec(codec)).unwrap();
    file.extend(blocks).unwrap();
    (0..blocks).for_each(|block| write(&file, block, SECRET + u64::from(block)));
    file.flush_file().unwrap();
    file
}

/// A log that keeps the images it receives.
#[derive(Debug, Default)]
struct Images(Mutex<Vec<(Block, Vec<u8>)>>, AtomicU64);

impl Wal for Images {
    fn flush_to(&self, _: Lsn) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }

    fn position(&self) -> Lsn {
        self.flushed()
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.1.load(Ordering::SeqCst))
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Box<dyn StdError + Send + Sync>> {
        self.0.lock().unwrap().push((image.block, image.bytes.to_vec()));
        Ok(Lsn(self.1.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

#[test]
fn cod_1_whatever_way_a_page_leaves_by_it_is_encoded() {
    for torn_pages in [TornPages::Unprotected, TornPages::DoubleWrite, TornPages::Images] {
        let (site, plain) = (Site::new(), Arc::new(AtomicU64::new(0)));
        let found = Arc::clone(&plain);
        let (io, disk) = Disk::watched(move |it| {
            let writes = it.op() == Op::Write && it.slices().iter().any(|it| is_plain(it));
            found.fetch_add(u64::from(writes), Ordering::SeqCst);
        });
        let log = Arc::new(Images::default());
        let main = Tablespace::new("main", site.path("main")).io(io);
        let pool = Site::bare(16).tablespace(main).torn_pages(torn_pages).codec(cipher(7));
        let pool = pool.wal(Arc::clone(&log) as Arc<dyn Wal>).build().unwrap();
        let file = pool.open_file("table", &create()).unwrap();
        file.extend(100).unwrap();
        // Written by threads that need a frame, and by the cleaner; on request; by a checkpoint; when the pool is
        // closed.
        (0..100).for_each(|block| write(&file, block, SECRET + u64::from(block)));
        assert_eq!((0..100).map(|it| read(&file, it) - SECRET).sum::<u64>(), 99 * 50);
        (0..3).for_each(|block| write(&file, block, SECRET + 200));
        file.flush_file().unwrap();
        write(&file, 3, SECRET + 200);
        assert!(file.evict(3).unwrap());
        (4..8).for_each(|block| write(&file, block, SECRET + 200));
        pool.checkpoint(CheckpointOptions::now()).unwrap();
        (8..10).for_each(|block| write(&file, block, SECRET + 200));
        pool.close().unwrap();

        assert_eq!(plain.load(Ordering::SeqCst), 0, "[COD-1] {torn_pages}");
        assert!(disk.count(Op::Write) > 50, "{torn_pages}");
        for entry in fs::read_dir(site.path("main")).unwrap() {
            let path = entry.unwrap().path();
            assert!(!is_plain(&fs::read(&path).unwrap()), "[COD-1] {torn_pages}: {path:?}");
        }
        let images = log.0.lock().unwrap();
        assert_eq!(images.is_empty(), torn_pages != TornPages::Images);
        for (block, bytes) in &*images {
            let mut bytes = bytes.clone();
            assert!(!is_plain(&bytes), "[COD-1] an image of block {block}");
            Cipher(7).decode("table", *block, &mut bytes).unwrap();
            assert!((SECRET..=SECRET + 200).contains(&number_in(&bytes)));
        }
    }
}

/// Every kind of read refuses the block, and no page stays in memory.
#[track_caller]
fn assert_refused(pool: &BufferPool, file: &PagedFile, block: Block) {
    let errors = [
        file.read(block).unwrap_err(),
        file.write(block).unwrap_err(),
        file.pin(block).unwrap_err(),
        file.copy(block, 0, &mut [0]).unwrap_err(),
        file.optimistic(block).map(drop).unwrap_err(),
        file.salvage(block).unwrap().1.unwrap(),
    ];
    for error in errors {
        let Error::Codec { file: path, block: at, .. } = error else { panic!("[COD-2] {error}") };
        assert_eq!((&*path, at), (file.path(), block));
    }
    let streamed: Vec<_> = file.scan(0..file.blocks()).collect();
    assert!(streamed[block as usize].is_err(), "[COD-2]");
    drop(streamed);
    assert!(!file.is_resident(block), "[COD-2]");
    assert!(pool.view().iter().all(|frame| frame.pins == 0), "[COD-2]");
}

#[test]
fn cod_2_a_page_of_another_place_or_key_is_refused_by_every_way_in() {
    // If the pool's checksum accepts the block, the codec still detects the wrong file.
    for (checksum, from, to) in [(Checksum::Off, 2, 5), (Checksum::Crc32c { offset: 0 }, 5, 5)] {
        let site = Site::new();
        let pool = site.builder(64).checksum(checksum).build().unwrap();
        let codec = cipher(7);
        let [one, other] = ["one", "other"].map(|it| secrets(&pool, it, 20, Arc::clone(&codec)));
        let paths = [&one, &other].map(|file| file.path().to_owned());
        one.close().unwrap();
        other.close().unwrap();
        let [one, other] =
            paths.map(|it| fs::File::options().read(true).write(true).open(it).unwrap());
        let mut bytes = vec![0; PAGE];
        other.read_exact_at(&mut bytes, from * PAGE as u64).unwrap();
        one.write_all_at(&bytes, to * PAGE as u64).unwrap();

        let file = pool.open_file("one", &FileOptions::new().codec(Arc::clone(&codec))).unwrap();
        assert_refused(&pool, &file, to as Block);
        assert_eq!(file.salvage(to as Block).unwrap().0, bytes, "as it is on disk");
        assert_eq!(read(&file, 6), SECRET + 6);
        let refused = pool.open_file("one", &FileOptions::new().codec(cipher(7))).unwrap_err();
        assert!(matches!(refused, Error::OpenOtherwise { what: "codec", .. }), "{refused}");
        file.close().unwrap();
        let file = pool.open_file("one", &FileOptions::new().codec(cipher(8))).unwrap();
        (0..20).for_each(|block| assert_refused(&pool, &file, block));
    }
}

#[test]
fn a_page_that_was_torn_is_repaired_before_its_codec_is_known() {
    let site = Site::new();
    let (pool, _disk, unsynced) = torn::rigged(&site, 64);
    let file = secrets(&pool, "table", 40, cipher(7));
    file.sync().unwrap();
    (0..40).for_each(|block| write(&file, block, SECRET + 100 + u64::from(block)));
    file.flush_file().unwrap();
    unsynced.crash(&site.path("main"), &site.path("crashed"), || fastrand::u8(1..));
    let pool = torn::reopen(&site.path("crashed"));
    assert!(torn::repaired(&pool).is_some(), "{:?}", pool.notes());
    let file = pool.open_file("table", &FileOptions::new().codec(cipher(7))).unwrap();
    for block in 0..40 {
        let number = read(&file, block) - u64::from(block);
        assert!([SECRET, SECRET + 100].contains(&number), "block {block}: {number:#x}");
    }
}

/// A cipher that panics at its n-th use from now on; 0: never.
#[derive(Debug)]
struct Fragile(Cipher, AtomicI64);

impl Fragile {
    fn new() -> Arc<Fragile> {
        Arc::new(Fragile(Cipher(7), AtomicI64::new(0)))
    }

    fn use_up(&self) {
        assert!(
            self.1.fetch_sub(1, Ordering::SeqCst) != 1,
            "the codec panics, as the test wants it"
        );
    }
}

impl PageCodec for Fragile {
    fn encode(&self, file: &str, block: Block, page: &mut [u8]) {
        self.use_up();
        self.0.encode(file, block, page);
    }

    fn decode(
        &self,
        file: &str,
        block: Block,
        page: &mut [u8],
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.use_up();
        self.0.decode(file, block, page)
    }
}

#[test]
fn cod_2_a_panic_while_a_page_is_decoded_keeps_no_thread_from_it() {
    let (site, codec) = (Site::new(), Fragile::new());
    let pool = site.builder(64).cleaner(false).build().unwrap();
    let options = FileOptions::new().codec(Arc::clone(&codec) as Arc<dyn PageCodec>);
    let mut file = secrets(&pool, "table", 40, Arc::clone(&codec) as Arc<dyn PageCodec>);
    let ways: [fn(&PagedFile) -> usize; 2] = [
        |file| read(file, 11) as usize,
        |file| file.stream(0..40).map(|page| page.unwrap().block() as usize).sum(),
    ];
    for way in ways {
        // Every page that is read ahead, and then those whose read failed because of a panic.
        for uses in 1.. {
            file.close().unwrap();
            file = pool.open_file("table", &options).unwrap();
            codec.1.store(uses, Ordering::SeqCst);
            let done = catch_unwind(AssertUnwindSafe(|| way(&file)));
            let left = codec.1.swap(0, Ordering::SeqCst);
            let all = || (0..40).map(|block| read(&file, block) - SECRET).sum::<u64>();
            let other = thread::scope(|scope| scope.spawn(all).join().unwrap());
            assert_eq!(other, 39 * 20, "[COD-2] after {uses} uses");
            if left > 0 {
                assert!(done.is_ok() && uses > 1);
                break;
            }
        }
    }
    file.close().unwrap();
    assert_eq!(pool.stats().frames_free, pool.stats().frames, "[COD-2] frames are lost");
}

#[test]
fn cod_1_a_panic_while_a_page_is_encoded_leaves_it_dirty_and_writable() {
    let (site, codec) = (Site::new(), Fragile::new());
    let pool = site.builder(64).cleaner(false).readahead(ReadaheadStrategy::Os).build().unwrap();
    let file = secrets(&pool, "table", 20, Arc::clone(&codec) as Arc<dyn PageCodec>);
    let ways: [fn(&BufferPool, &PagedFile) -> bool; 3] = [
        |_, file| file.flush_file().is_ok(),
        |_, file| (0..20).all(|block| file.evict(block).is_ok()),
        // The panic is caught in the checkpoint: callers receive this error.
        |pool, _| match pool.checkpoint(CheckpointOptions::now()) {
            Ok(_) => true,
            Err(Error::CheckpointPanicked) => false,
            Err(other) => panic!("{other}"),
        },
    ];
    for (way, uses) in ways.into_iter().flat_map(|way| [1, 2, 15].map(|uses| (way, uses))) {
        (0..20).for_each(|block| write(&file, block, SECRET + 300 + u64::from(block)));
        codec.1.store(uses, Ordering::SeqCst);
        let done = catch_unwind(AssertUnwindSafe(|| way(&pool, &file)));
        assert!(!done.unwrap_or(false), "[COD-1] use {uses}");
        codec.1.store(0, Ordering::SeqCst);
        assert!(file.flush_file().unwrap() > 0, "[COD-1] what was not written is still dirty");
        assert_eq!(file.flush_file().unwrap(), 0);
        let frames = pool.view();
        assert!(frames.iter().all(|it| it.pins == 0 && !it.dirty), "[COD-1] {frames:?}");
        (0..20).for_each(|block| assert!(file.evict(block).is_ok() && !file.is_resident(block)));
        (0..20).for_each(|block| assert_eq!(read(&file, block), SECRET + 300 + u64::from(block)));
    }
    file.close().unwrap();
    assert_eq!(pool.stats().frames_free, pool.stats().frames);
}
