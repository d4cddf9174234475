//! Rows of 5 to 200 KiB in tables that SQLite has made, and queries that read all, some or none of their overflow
//! pages.

use super::*;
use crate::page::Overflow;

/// A table of `rows` rows. They are in order or, if `mixed`, deleted and rewritten among each other, so that their
/// pages are scattered over the file. An index leads to the rows in another order.
fn long_rows(test: &str, page_size: u32, rows: u32, mixed: bool) -> Option<File> {
    let insert =
        "insert into t select i, i * 7919 % 10007, zeroblob(5120 + i * 104729 % 199680) from n";
    let mix = if mixed {
        format!(
            "delete from t where a % 3 = 1;
             {} where a * 7919 % 5 > 1 or a % 3 = 1;
             update t set b = zeroblob(5120 + a * 7907 % 199680) where a % 2;",
            numbered(rows, "insert or replace into t select i, i * 7919 % 10007, zeroblob(5120 + i * 91393 % 199680) from n where i % 3 = 1;
             update t set b = zeroblob(9000 + a * 104729 % 99680)")
        )
    } else {
        String::new()
    };
    File::new(
        test,
        &format!(
            "pragma page_size={page_size};
             create table t(a integer primary key, k, b);
             create index by_k on t(k);
             {};
             {mix}",
            numbered(rows, insert)
        ),
    )
}

fn numbered(rows: u32, then: &str) -> String {
    format!(
        "with recursive n(i) as (values (1) union all select i + 1 from n where i < {rows}) {then}"
    )
}

/// The overflow pages of a leaf's rows, by rowid.
pub(super) fn chains(file: &File, leaf: u32) -> Vec<(i64, Vec<u32>)> {
    let geometry = Geometry::read(&file.bytes).unwrap();
    let page = Page::read(file.page(leaf), leaf, geometry).unwrap();
    let chain = |at: usize| {
        let mut pages = Vec::new();
        let Some(Overflow { first, pages: count }) = page.overflow(at) else { return pages };
        let mut next = first;
        while next > 0 {
            pages.push(next);
            next = link_of(file.page(next)).unwrap();
        }
        assert_eq!(pages.len(), count as usize, "row {at} of {leaf}");
        pages
    };
    (0..page.cells()).map(|at| (page.rowid(at).unwrap(), chain(at))).collect()
}

/// The pages that a scan of table `t` reads; `which` returns the number of overflow pages read of each row.
fn scan(file: &File, forward: bool, which: impl Fn(i64) -> usize) -> Vec<u32> {
    let mut leaves = Vec::new();
    walk(file, 2, &mut leaves);
    if !forward {
        leaves.reverse();
    }
    let mut order = Vec::new();
    for (page, rows) in leaves {
        order.push(page);
        if rows.is_empty() {
            continue;
        }
        let mut chains = chains(file, page);
        if !forward {
            chains.reverse();
        }
        order.extend(chains.into_iter().flat_map(|(row, pages)| {
            let count = which(row);
            pages.into_iter().take(count)
        }));
    }
    order
}

/// The same for look-ups through the index.
fn look_ups(file: &File, which: impl Fn(i64) -> usize) -> Vec<u32> {
    let mut leaves = Vec::new();
    walk(file, 3, &mut leaves);
    let mut order = vec![3];
    for (page, rows) in leaves {
        order.push(page);
        for row in rows {
            let path = down(file, 2, row);
            let leaf = path[path.len() - 1];
            order.extend(path);
            let pages = chains(file, leaf).into_iter().find(|(it, _)| *it == row).unwrap().1;
            order.extend(pages.into_iter().take(which(row)));
        }
    }
    order
}

/// The number of pages that are read, of those that waited, and of requested pages that are not read.
struct Reading {
    wanted: usize,
    waits: usize,
    asked: usize,
    unwanted: usize,
}

fn read(file: &File, order: &[u32]) -> Reading {
    let mut file = file.copy();
    file.there.insert(1);
    let mut predictor = file.predictor();
    let (waits, _) = file.read(&mut predictor, order);
    let wanted: HashSet<u32> = order.iter().copied().collect();
    let unwanted = file.asked.difference(&wanted).count();
    Reading { wanted: wanted.len(), waits, asked: file.asked.len(), unwanted }
}

const ALL: fn(i64) -> usize = |_| usize::MAX;
const PAGE_SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

#[test]
fn long_rows_all_over_the_file_are_predicted_to_their_ends() {
    for page_size in PAGE_SIZES {
        let Some(file) = long_rows("long_rows_all_over_the_file", page_size, 250, true) else {
            return;
        };
        let orders = [scan(&file, true, ALL), scan(&file, false, ALL), look_ups(&file, ALL)];
        for (at, order) in orders.iter().enumerate() {
            let Reading { wanted, waits, unwanted, .. } = read(&file, order);
            assert!(waits * 10 < wanted, "{page_size}, {at}: {waits} of {wanted} waited");
            assert!(unwanted * 50 <= wanted, "{page_size}, {at}: {unwanted} of {wanted} unwanted");
        }
    }
}

#[test]
fn long_rows_in_one_piece_are_looked_up_by_guesses() {
    for page_size in PAGE_SIZES {
        let Some(file) = long_rows("long_rows_in_one_piece", page_size, 250, false) else { return };
        let Reading { wanted, waits, unwanted, .. } = read(&file, &look_ups(&file, ALL));
        assert!(waits * 5 < wanted, "{page_size}: {waits} of {wanted} waited");
        assert_eq!(unwanted, 0, "{page_size}");
    }
}

#[test]
fn long_rows_in_the_order_of_the_file_are_left_to_the_kernels_readahead() {
    for page_size in [512, 4096] {
        let Some(file) = long_rows("long_rows_in_the_order_of_the_file", page_size, 250, false)
        else {
            return;
        };
        let order = scan(&file, true, ALL);
        let Reading { wanted, asked, .. } = read(&file, &order);
        assert!(asked * 12 < wanted, "{page_size}: {asked} of {wanted} prefetched");
        assert!(wanted > 5_000, "{wanted}");
    }
}

#[test]
fn of_long_rows_no_more_is_prefetched_than_is_read() {
    for page_size in [512, 4096, 65_536] {
        for mixed in [false, true] {
            let Some(file) = long_rows("of_long_rows_no_more", page_size, 250, mixed) else {
                return;
            };
            let halves = |row: i64| if row * 7919 % 101 > 50 { usize::MAX } else { 0 };
            let some = |row: i64| (row * 7919 % 7) as usize;
            let then_none = |row: i64| if row < 120 { usize::MAX } else { 0 };
            let cases: [(&str, &dyn Fn(i64) -> usize); 5] = [
                ("none", &|_| 0),
                ("the first two pages", &|_| 2),
                ("every other row", &halves),
                ("some pages", &some),
                ("all, then none", &then_none),
            ];
            for (name, which) in cases {
                for order in [scan(&file, true, which), look_ups(&file, which)] {
                    let Reading { wanted, waits, unwanted, .. } = read(&file, &order);
                    let said =
                        format!("{page_size} {mixed} {name}: {unwanted} of {wanted} unwanted");
                    // When the query stops reading these pages, those ahead are requested already.
                    let ahead = if name == "all, then none" { DISTANCE } else { 2 };
                    assert!(unwanted <= wanted / 50 + ahead, "{said}");
                    assert!(name != "none" || unwanted == 0, "{said}");
                    if name == "the first two pages" {
                        // With pages of 64 KiB, many rows have no second overflow page.
                        let most = if page_size < 65_536 { wanted / 5 } else { wanted * 2 / 3 };
                        assert!(waits < most, "{said}, {waits} waited");
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_row_that_is_read_twice_is_looked_into_once() {
    let Some(file) = long_rows("a_long_row_that_is_read_twice", 32_768, 250, true) else { return };
    let (mut predictor, mut file) = (file.predictor(), Counting(file.copy(), 0));
    file.0.there.insert(1);
    let mut pages_of = std::collections::HashMap::new();
    let mut leaves = Vec::new();
    walk(&file.0, 2, &mut leaves);
    for (leaf, _) in leaves.iter().filter(|(_, rows)| !rows.is_empty()) {
        pages_of.extend(chains(&file.0, *leaf));
    }
    let mut rows = Vec::new();
    walk(&file.0, 3, &mut rows);
    let mut reads = 0;
    for (leaf, rows) in rows {
        let mut order = vec![leaf];
        for row in rows {
            order.extend(down(&file.0, 2, row));
            order.extend([&pages_of[&row][..], &pages_of[&row]].concat());
        }
        // Reads that bypass SQLite's own cache.
        for number in order {
            reads += 1;
            let read = if file.0.there.insert(number) { SLOW } else { FAST };
            let bytes = file.0.page(number).to_vec();
            predictor.on_read(number, &bytes, read, &mut file).unwrap();
        }
    }
    assert!(file.1 < reads, "{} pages looked into for {reads} reads", file.1);
}

#[test]
fn a_long_row_whose_next_page_a_log_holds_is_not_followed_in_the_file() {
    let Some(file) = long_rows("a_long_row_in_a_log", 4096, 250, true) else { return };
    let order = look_ups(&file, ALL);
    // The log holds the fifth and all later pages of some rows, with other links than those in the file.
    let (mut in_log, mut leaves) = (HashSet::new(), Vec::new());
    walk(&file, 2, &mut leaves);
    for (leaf, _) in leaves.iter().filter(|(_, rows)| !rows.is_empty()) {
        let some = chains(&file, *leaf).into_iter().filter(|(row, _)| row % 3 == 0);
        in_log.extend(some.flat_map(|(_, pages)| pages.into_iter().skip(4)));
    }
    let order: Vec<u32> = order.into_iter().filter(|page| !in_log.contains(page)).collect();
    let mut file = file.copy();
    (file.in_log, file.there) = (in_log, [1].into());
    let mut predictor = file.predictor();
    let (waits, reads) = file.read(&mut predictor, &order);
    assert_eq!(file.asked.intersection(&file.in_log).count(), 0);
    assert!(waits * 4 < reads, "{waits} of {reads} waited");
}
