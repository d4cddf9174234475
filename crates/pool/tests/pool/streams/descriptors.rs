//! A stream's own descriptors refer to the current file, even if it has been replaced meanwhile.

use forebay::{ReadaheadStrategy, StreamOptions, Tablespace};

use crate::site::{PAGE, SUMS, Site, create, number_in, numbered, write};

#[test]
fn prv_1_a_segment_that_was_cut_off_and_was_restored_is_read_again() {
    let site = Site::new();
    for readahead in ReadaheadStrategy::ALL {
        let main = Tablespace::new("main", site.path(&format!("main {readahead}")));
        let main = main.segment_size(4 * PAGE as u64);
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
        let mut stream = file.stream_with(named, &options).unwrap();
        let mut next = |block: u32| {
            name.send(block).unwrap();
            number_in(&stream.next().unwrap().unwrap())
        };
        assert_eq!(next(6), 106, "{readahead}");
        file.truncate(4).unwrap();
        file.extend(4).unwrap();
        write(&file, 6, 7);
        forget();
        assert_eq!(next(6), 7, "[PRV-1] {readahead}");
    }
}
