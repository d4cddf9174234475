//! Reading while another process writes: none of the writer's files are touched, a torn page is never returned, and
//! pages are read again on request.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{
    BufferPool, CheckpointOptions, Error, Fate, FileOptions, PagedFile, ReadaheadStrategy,
    Tablespace, TornPages,
};
use forebay_io::Op;

use crate::disk::Disk;
use crate::site::{PAGE, Site, create, number_in, numbered, read, write};

/// Names the directory in which a test that runs as a child process writes.
const CHILD: &str = "FOREBAY_TEST_WRITER_DIRECTORY";

const BLOCKS: u32 = 64;

/// A pool that reads the files in `directory` of another pool.
fn reader(directory: impl Into<PathBuf>) -> BufferPool {
    let main = Tablespace::new("main", directory).read_only(true);
    Site::bare(16).tablespace(main).build().unwrap()
}

fn open(pool: &BufferPool, name: &str) -> PagedFile {
    pool.open_file(name, &FileOptions::new()).unwrap()
}

/// Names, sizes, contents and times of all files in a directory.
fn listing(directory: &Path) -> BTreeMap<PathBuf, (u64, Option<std::time::SystemTime>, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let facts = entries.map(|entry| {
        let (path, facts) = (entry.path(), entry.metadata().unwrap());
        (path.clone(), (facts.len(), facts.modified().ok(), fs::read(path).unwrap()))
    });
    facts.collect()
}

#[test]
fn a_reader_takes_no_lock_and_changes_nothing_and_says_so() {
    let site = Site::new();
    for torn_pages in [TornPages::Unprotected, TornPages::DoubleWrite] {
        let pool = site.builder(16).torn_pages(torn_pages).build().unwrap();
        drop(numbered(&pool, "table", 4, 50));
        pool.close().unwrap();
        drop(pool);
        fs::remove_file(site.path("main/forebay.lock")).unwrap();
        // Torn, as after a crash: only the writer may repair it.
        let torn = fs::File::options().write(true).open(site.path("main/table")).unwrap();
        torn.write_all_at(&[1; 512], 3 * PAGE as u64).unwrap();
        let before = listing(&site.path("main"));

        let pool = reader(site.path("main"));
        let file = open(&pool, "table");
        assert_eq!(read(&file, 2), 52);
        assert!(matches!(file.read(3), Err(Error::Corrupt { block: 3, .. })));
        let pin = file.pin(1).unwrap();
        let refusals = [
            file.write(0).map(drop),
            file.try_write(0).map(drop),
            file.init(0).map(drop),
            file.append().map(drop),
            file.extend(1).map(drop),
            file.truncate(1),
            file.drop_file(),
            pin.latch_exclusive().map(drop),
            pool.checkpoint(CheckpointOptions::now()).map(drop),
        ];
        for error in refusals.map(Result::unwrap_err) {
            assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
        }
        let refused = pool.open_file("new", &create()).unwrap_err();
        assert!(matches!(refused, Error::Setting { .. }), "{refused}");
        let refused = pool.open_file("new", &FileOptions::new()).unwrap_err();
        assert!(matches!(refused, Error::Io(forebay_io::Error::Open { .. })), "{refused}");
        drop(pin);
        // With separate descriptors.
        let of_kernel = file.with_readahead(ReadaheadStrategy::Os);
        let mut stream = of_kernel.scan(0..3);
        assert_eq!(stream.next().unwrap().unwrap().block(), 0);
        #[cfg(target_os = "linux")]
        for entry in fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap()) {
            // O_ACCMODE of the file descriptors in this test's directory.
            let in_site =
                fs::read_link(entry.path()).is_ok_and(|it| it.starts_with(site.path("main")));
            let facts = Path::new("/proc/self/fdinfo").join(entry.file_name());
            if in_site && entry.path() != Path::new(&format!("/proc/self/fd/{}", fd(&torn))) {
                let facts = fs::read_to_string(facts).unwrap();
                let flags = facts.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
                assert_eq!(u32::from_str_radix(flags.trim(), 8).unwrap() & 3, 0, "{facts}");
            }
        }
        drop(stream);
        pool.close().unwrap();
        assert_eq!(listing(&site.path("main")), before, "{torn_pages}");
        fs::remove_file(site.path("main/table")).unwrap();
    }
    let missing = Tablespace::new("main", site.path("missing")).read_only(true);
    assert!(Site::bare(16).tablespace(missing).build().is_err());
    assert!(!site.path("missing").exists());
}

#[cfg(target_os = "linux")]
fn fd(file: &fs::File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

#[test]
fn what_was_read_stays_until_it_is_refreshed_and_then_is_as_on_disk() {
    let site = Site::new();
    let main = || Tablespace::new("main", site.path("main"));
    let pool = Site::bare(64).tablespace(main()).build().unwrap();
    let written = numbered(&pool, "table", 10, 50);
    let refused = written.refresh().unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");

    let other = Site::bare(64).tablespace(main().read_only(true)).build().unwrap();
    let file = open(&other, "table");
    assert_eq!((0..10).map(|block| read(&file, block)).sum::<u64>(), (50..60).sum());
    (0..10).for_each(|block| write(&written, block, 90 + u64::from(block)));
    written.extend(7).unwrap();
    write(&written, 16, 200);
    written.flush_file().unwrap();
    let (guard, pin) = (file.read(1).unwrap(), file.pin(2).unwrap());
    let look = file.optimistic(3).unwrap();
    assert_eq!((read(&file, 4), file.blocks()), (54, 10));
    assert!(matches!(file.read(16), Err(Error::PastEnd { blocks: 10, .. })));

    // Pages in memory here may be older than any redo point of the writer.
    let backed_up = file.backup(0..10, |_, _| Ok::<_, Error>(()));
    assert!(matches!(backed_up, Err(Error::ReadOnly { .. })), "{backed_up:?}");
    assert!(matches!(file.sync(), Err(Error::ReadOnly { .. })));

    assert_eq!(file.refresh().unwrap(), 17);
    assert_eq!((0..10).map(|block| read(&file, block)).sum::<u64>(), (90..100).sum());
    assert_eq!((read(&file, 16), number_in(&guard)), (200, 51));
    assert!(!look.still_valid());
    let refused = pin.latch_shared().unwrap_err();
    assert!(
        matches!(refused, Error::Invalidated { how: Fate::Refreshed, .. })
            && !refused.is_retryable(),
        "{refused}"
    );
    drop((guard, pin));

    written.truncate(3).unwrap();
    assert_eq!(file.refresh().unwrap(), 3);
    assert!(matches!(file.read(3), Err(Error::PastEnd { blocks: 3, .. })));
    // Another file with the same name.
    assert_eq!(read(&file, 2), 92);
    written.drop_file().unwrap();
    assert!(matches!(file.refresh(), Err(Error::Io(_))));
    assert_eq!((file.blocks(), read(&file, 2)), (3, 92), "as it was");
    drop(numbered(&pool, "table", 5, 700));
    assert_eq!((file.refresh().unwrap(), read(&file, 4)), (5, 704));
    assert_eq!(other.stats().total().corrupt_pages, 0);
    file.close().unwrap();
    assert_eq!(other.stats().frames_free, 64);
}

#[test]
fn a_page_that_is_torn_for_a_moment_is_read_again_and_one_that_stays_torn_is_reported() {
    let site = Site::new();
    let pool = site.pool(16);
    drop(numbered(&pool, "table", 4, 50));
    pool.close().unwrap();
    let path = site.path("main/table");
    let good = fs::read(&path).unwrap();
    for (torn, ends_well) in [(0, true), (1, true), (8, true), (9, false), (100, false)] {
        // This many reads return a page whose second half is from another page.
        let (left, path, good) = (AtomicU32::new(torn), path.clone(), good.clone());
        let (io, disk) = Disk::watched(move |it| {
            let tear =
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
            let from = if tear.is_ok() { 2 * PAGE } else { PAGE };
            let bytes = &good[from + PAGE / 2..from + PAGE];
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(bytes, (PAGE + PAGE / 2) as u64).unwrap();
            assert_eq!(it.op(), Op::Read);
        });
        let main = Tablespace::new("main", site.path("main")).read_only(true).io(io);
        let pool = Site::bare(16).tablespace(main).build().unwrap();
        let file = open(&pool, "table");
        let answers = thread::scope(|scope| {
            let both = [0; 2].map(|_| scope.spawn(|| file.read(1).map(|page| number_in(&page))));
            both.map(|reader| reader.join().unwrap())
        });
        if ends_well {
            assert!(answers.iter().all(|it| matches!(it, Ok(51))), "{torn}: {answers:?}");
            assert_eq!(disk.count(Op::Read), torn as usize + 1);
        } else {
            assert!(
                answers.iter().any(|it| matches!(it, Err(Error::Corrupt { .. }))),
                "{answers:?}"
            );
            assert!(disk.count(Op::Read) <= 18, "{} reads", disk.count(Op::Read));
        }
        let stats = pool.stats().total();
        assert_eq!(stats.corrupt_pages > 0, !ends_well);
    }
}

/// The other process: writes as fast as it can until its input ends.
#[test]
fn write_if_child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let main = Tablespace::new("main", directory);
    let pool = Site::bare(32).page_size("64 KiB").tablespace(main).build().unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    let ended = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut number = 0;
    while !ended.is_finished() {
        number += 1;
        if file.blocks() < BLOCKS {
            drop(file.append().unwrap());
        }
        write(&file, fastrand::u32(..file.blocks()), number);
        if number % 8 == 0 {
            file.flush_file().unwrap();
        }
        if number % 100 == 0 {
            pool.checkpoint(CheckpointOptions::now()).unwrap();
        }
    }
    assert!(number > u64::from(BLOCKS), "{number} pages written");
    assert!((0..file.blocks()).all(|block| read(&file, block) <= number));
    pool.close().unwrap();
    std::process::exit(0);
}

#[test]
fn with_a_writer_in_another_process_no_torn_page_is_seen_and_the_writer_goes_on() {
    let site = Site::new();
    fs::create_dir(site.path("main")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "attached::write_if_child"])
        .env(CHILD, site.path("main"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let main = Tablespace::new("main", site.path("main")).read_only(true);
    let pool = Site::bare(16).page_size("64 KiB").tablespace(main).build().unwrap();
    let opened = || {
        assert!(child.try_wait().unwrap().is_none(), "the writer ended");
        thread::sleep(Duration::from_millis(1));
        pool.open_file("table", &FileOptions::new()).ok()
    };
    let file = std::iter::repeat_with(opened).flatten().next().unwrap();
    let mut newest = [0; BLOCKS as usize];
    let (start, mut seen, mut torn) = (Instant::now(), 0, 0);
    // If the kernel stops a writer in the middle of a page, the page stays torn for that time.
    while start.elapsed() < Duration::from_millis(600)
        || newest.contains(&0)
        || seen <= 100
        || torn >= seen / 10
    {
        let blocks = file.refresh().unwrap();
        let mut check = |block: u32, page: Result<u64, Error>| match page {
            Ok(number) => {
                // Each block's numbers must be read in the order in which the writer wrote them.
                assert!(number >= newest[block as usize], "block {block} went back");
                newest[block as usize] = number;
                seen += 1;
            }
            Err(Error::Corrupt { .. }) => torn += 1,
            Err(error) => panic!("{error}"),
        };
        for block in 0..blocks {
            check(block, file.read(block).map(|page| number_in(&page)));
        }
        file.refresh().unwrap();
        for (block, page) in (0..).zip(file.scan(0..blocks)) {
            let page = page.map(|page| number_in(&page));
            check(block, page.map_err(|error| error.error));
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "the writer fails");
    println!("{seen} pages seen, {torn} reported as torn");
    // The file it has left is consistent, and a new writer can open the directory.
    file.refresh().unwrap();
    (0..BLOCKS).for_each(|block| assert!(read(&file, block) >= newest[block as usize]));
    let main = Tablespace::new("main", site.path("main"));
    drop(Arc::new(Site::bare(16).page_size("64 KiB").tablespace(main).build().unwrap()));
}
