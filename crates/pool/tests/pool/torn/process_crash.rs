//! The process ends, is restarted, and then the power fails.

use std::sync::Arc;

use forebay::{BufferPool, FileOptions, Tablespace};
use forebay_sim::{Disk, DiskOptions, Image};

use super::double;
use crate::site::{Site, numbered, read, write};

fn open(disk: &Arc<Disk>) -> BufferPool {
    let main = Tablespace::new("main", disk.directory().join("main"))
        .io(disk.io(64).unwrap())
        .volume(disk.volume());
    double(Site::bare(64)).cleaner(false).tablespace(main).build().unwrap()
}

#[test]
fn dbr_3_what_looks_good_after_a_crash_of_the_process_is_durable_before_its_copies_go() {
    let disk = Disk::boot(&Image::empty(), DiskOptions::default()).unwrap();
    let pool = open(&disk);
    let file = numbered(&pool, "table", 20, 100);
    file.sync().unwrap();
    (0..20).for_each(|block| write(&file, block, 200 + u64::from(block)));
    file.flush_file().unwrap();
    drop((file, pool));
    // Everything is complete in the page cache, and nothing of it is synced.
    drop(open(&disk));

    let (journal, at) = (disk.journal(), disk.position());
    for seed in 0..40 {
        let disk = Disk::boot(&journal.crash(at, seed), DiskOptions::default()).unwrap();
        let pool = open(&disk);
        let file = pool.open_file("table", &FileOptions::new()).unwrap();
        for block in 0..20 {
            let number = read(&file, block);
            let either = [100, 200].map(|first| first + u64::from(block));
            assert!(either.contains(&number), "[DBR-3] crash {seed}, block {block}: {number}");
        }
    }
}
