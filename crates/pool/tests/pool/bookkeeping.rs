//! The pool's own memory, in addition to the pages.

use crate::site::{Site, create};

#[test]
fn bookkeeping_takes_128_bytes_a_frame_and_8_a_page_of_file_touched() {
    let site = Site::new();
    let pool = site.builder(4096).build().unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(20_000).unwrap();
    let scan = pool.strategy(forebay::StrategyKind::BulkRead);
    (0..20_000).for_each(|block| drop(file.read_with(block, &scan).unwrap()));
    let bytes = pool.bookkeeping_bytes();
    assert!(bytes <= 128 * 4096 + 8 * 20_000, "[figure 6] {bytes}");
}

#[test]
fn a_file_that_is_closed_takes_nothing() {
    let site = Site::new();
    let pool = site.pool(64);
    let before = pool.bookkeeping_bytes();
    for turn in 0..10 {
        let file = pool.open_file(&format!("table {turn}"), &create()).unwrap();
        file.extend(1000).unwrap();
        (0..1000).for_each(|block| drop(file.read(block).unwrap()));
        if turn % 2 == 0 { file.close().unwrap() } else { file.drop_file().unwrap() }
    }
    assert_eq!(pool.bookkeeping_bytes(), before);
}
