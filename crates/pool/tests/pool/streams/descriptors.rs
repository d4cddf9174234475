//! A stream's own descriptors read what the file contains now.

use forebay::{FileOptions, ReadaheadStrategy, StreamOptions, Tablespace};

use crate::site::{PAGE, SUMS, Site, create, number_in, numbered, write};

#[test]
fn blocks_that_were_cut_off_and_restored_are_read_again() {
    let site = Site::new();
    for readahead in ReadaheadStrategy::ALL {
        let main = Tablespace::new("main", site.path(&format!("main {readahead}")));
        let pool = Site::chosen().frames(16).page_size(PAGE).checksum(SUMS);
        let pool = pool.tablespace(main).build().unwrap();
        let file = numbered(&pool, "table", 8, 100);
        let far = pool.open_file("far", &create()).unwrap();
        far.extend(64).unwrap();
        // Pages of another file take every frame, so that later reads come from the disk.
        let forget = || {
            file.flush_file().unwrap();
            (0..64).chain(0..64).for_each(|block| drop(far.read(block).unwrap()));
        };
        forget();

        let (name, named) = std::sync::mpsc::channel();
        let options = StreamOptions::new().readahead(readahead).distance(1);
        let mut stream = file.stream_with(named, &options);
        let mut next = |block: u32| {
            name.send(block).unwrap();
            number_in(&stream.next().unwrap().unwrap())
        };
        assert_eq!(next(6), 106, "{readahead}");
        file.truncate(4).unwrap();
        file.extend(4).unwrap();
        write(&file, 6, 7);
        forget();
        assert_eq!(next(6), 7, "{readahead}");
    }
}

#[test]
fn prv_1_a_file_that_its_writer_has_replaced_is_read_again() {
    for readahead in ReadaheadStrategy::ALL {
        let site = Site::new();
        let pool = site.pool(16);
        numbered(&pool, "table", 8, 100);
        numbered(&pool, "new", 8, 200);
        pool.close().unwrap();
        let main = Tablespace::new("main", site.path("main")).read_only(true);
        let pool = Site::bare(16).tablespace(main).build().unwrap();
        let file = pool.open_file("table", &FileOptions::new().read_only(true)).unwrap();
        let (name, named) = std::sync::mpsc::channel();
        let options = StreamOptions::new().readahead(readahead).distance(1);
        let mut stream = file.stream_with(named, &options);
        let mut next = |block: u32| {
            name.send((block, ())).unwrap();
            number_in(&stream.next().unwrap().unwrap().page)
        };
        assert_eq!(next(6), 106, "{readahead}");
        std::fs::rename(site.path("main/new"), site.path("main/table")).unwrap();
        file.refresh().unwrap();
        assert_eq!(next(6), 206, "[PRV-1] {readahead}");
    }
}
