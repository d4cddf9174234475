//! Database files that SQLite has made, and the pages that it would read from them.
//!
//! Without the sqlite3 shell, tests print `skipped` and add that to the file named by FOREBAY_SKIPS.

use std::collections::{HashSet, VecDeque};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

use super::*;
use crate::page::{Geometry, Record};
use crate::trees::rows_of;

mod damage;
mod overflow;

const SLOW: Duration = Duration::from_micros(100);
const FAST: Duration = Duration::from_micros(3);
/// Maximum number of pages ahead.
const DISTANCE: usize = 64;
/// Pages in SQLite's cache.
const OWN_CACHE: usize = 60;

/// A file of which some pages are in the kernel's memory.
#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    page_size: usize,
    there: HashSet<u32>,
    asked: HashSet<u32>,
    in_log: HashSet<u32>,
}

impl File {
    /// The file that this SQL makes. Returns `None`, and counts a skip, if there is no shell.
    fn new(test: &str, sql: &str) -> Option<File> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        let made = Command::new("sqlite3").arg("-bail").arg(&path).arg(sql).output();
        let Ok(made) = made else {
            println!("skipped: {test}: no sqlite3 on PATH");
            if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
                let mut file = OpenOptions::new().append(true).create(true).open(skips).unwrap();
                file.write_all(format!("sqlite: {test}: no sqlite3 on PATH\n").as_bytes()).unwrap();
            }
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let bytes = std::fs::read(path).unwrap();
        let page_size = Geometry::read(&bytes).unwrap().page_size as usize;
        Some(File { bytes, page_size, ..File::default() })
    }

    fn predictor(&self) -> Predictor {
        let geometry = Geometry::read(&self.bytes).unwrap();
        Predictor::new(Trees::new(geometry, 1 << 20).unwrap(), Scope::Full, DISTANCE as u32)
    }

    fn page(&self, number: u32) -> &[u8] {
        let start = (number as usize - 1) * self.page_size;
        &self.bytes[start..start + self.page_size]
    }

    /// Simulates a consumer with its own cache that reads pages in this order. Returns the number of reads that waited,
    /// and of all reads.
    fn read(&mut self, predictor: &mut Predictor, order: &[u32]) -> (usize, usize) {
        let mut own = VecDeque::new();
        let (mut waits, mut reads) = (0, 0);
        for &number in order {
            if own.contains(&number) {
                continue;
            }
            own.push_back(number);
            if own.len() > OWN_CACHE {
                own.pop_front();
            }
            reads += 1;
            let read = if self.there.insert(number) { SLOW } else { FAST };
            waits += usize::from(read == SLOW);
            let bytes = self.page(number).to_vec();
            predictor.on_read(number, &bytes, read, self).unwrap();
        }
        (waits, reads)
    }
}

impl Pages for File {
    fn read_cached(&mut self, page: u32, into: &mut [u8]) -> bool {
        if self.there.contains(&page) {
            into.copy_from_slice(&self.page(page)[..into.len()]);
        }
        self.there.contains(&page)
    }

    fn elsewhere(&self, page: u32) -> bool {
        self.in_log.contains(&page)
    }

    fn ask(&mut self, first: u32, count: u32) {
        let end = (self.bytes.len() / self.page_size) as u32;
        for page in (first..first + count).filter(|page| (1..=end).contains(page)) {
            self.asked.insert(page);
            self.there.insert(page);
        }
    }
}

/// The pages of a tree in the order of a cursor over all of it, with the rows of its leaves.
fn walk(file: &File, page: u32, into: &mut Vec<(u32, Vec<i64>)>) {
    let geometry = Geometry::read(&file.bytes).unwrap();
    let read = Page::read(file.page(page), page, geometry).unwrap();
    let mut rows = Vec::new();
    match read.kind() {
        Kind::TableInterior | Kind::IndexInterior => {
            into.push((page, rows));
            for at in 0..=read.cells() {
                walk(file, read.child(at).unwrap(), into);
                if let Some(row) = read.record(at).and_then(Record::last_integer) {
                    into.push((page, vec![row]));
                }
            }
        }
        Kind::IndexLeaf => {
            assert!(rows_of(&read, Link::Index, &mut rows).unwrap());
            into.push((page, rows));
        }
        Kind::TableLeaf => {
            into.push((page, (0..read.cells()).map(|at| read.rowid(at).unwrap()).collect()));
        }
    }
}

/// The path down to a row: the pages that a look-up reads.
fn down(file: &File, root: u32, row: i64) -> Vec<u32> {
    let geometry = Geometry::read(&file.bytes).unwrap();
    let mut path = vec![root];
    loop {
        let number = path[path.len() - 1];
        let page = Page::read(file.page(number), number, geometry).unwrap();
        if page.kind() == Kind::TableLeaf {
            assert!((0..page.cells()).any(|at| page.rowid(at) == Some(row)), "row {row}");
            return path;
        }
        let slot = (0..page.cells()).position(|at| page.rowid(at).unwrap() >= row);
        path.push(page.child(slot.unwrap_or(page.cells())).unwrap());
    }
}

/// A table of 20,000 rows in pages of `page_size` bytes, with an index on a random column.
fn indexed(test: &str, page_size: u32) -> Option<File> {
    let payload = page_size / 5;
    File::new(
        test,
        &format!(
            "pragma page_size={page_size};
             create table other(a integer primary key, b);
             create table t(a integer primary key, k, b);
             with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
             insert into t select i, (i * i * 7919 + i * 104729) % 1000003, zeroblob({payload}) from n;
             create index by_k on t(k);
             insert into other select a, k from t limit 5000;"
        ),
    )
}

#[test]
fn schemas_whose_text_is_utf_16_are_understood() {
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let made = File::new(
            "schemas_whose_text_is_utf_16",
            &format!(
                "pragma encoding='{encoding}';
                 create table straße(a integer primary key, k, b);
                 with recursive n(i) as (values (1) union all select i + 1 from n where i < 5000)
                 insert into straße select i, (i * i * 7919 + i * 104729) % 1000003, zeroblob(800) from n;
                 create index bei_𝄞 on straße(k);"
            ),
        );
        let Some(mut file) = made else { return };
        let mut predictor = file.predictor();
        file.there.insert(1);
        let trees = predictor.trees.schema(&mut file).unwrap().unwrap().to_vec();
        let names: Vec<_> = trees.iter().map(|tree| predictor.trees.name(tree.root)).collect();
        assert_eq!(names, [Some("straße"), Some("bei_𝄞"), Some("sqlite_schema")], "{encoding}");
        assert_eq!(trees[1].table, Some(trees[0].root), "{encoding}");
    }
}

/// The pages that a range query through the index reads.
fn range(file: &File, predictor: &mut Predictor, forward: bool, rows: usize) -> Vec<u32> {
    let mut everything = File { there: (1..).take(100_000).collect(), ..file.copy() };
    let schema = predictor.trees.schema(&mut everything).unwrap().unwrap().to_vec();
    let index = schema.iter().find(|tree| tree.table.is_some()).unwrap();
    let mut leaves = Vec::new();
    walk(file, index.root, &mut leaves);
    let total: usize =
        leaves.iter().filter(|(_, rows)| rows.len() > 1).map(|(_, rows)| rows.len()).sum();
    assert!(total > 18_000, "{total} rows in leaves");
    if !forward {
        leaves.reverse();
        leaves.iter_mut().for_each(|(_, rows)| rows.reverse());
    }
    let mut order = vec![index.root];
    let mut taken = 0;
    for (page, of_leaf) in leaves {
        order.push(page);
        for row in of_leaf {
            order.extend(down(file, index.table.unwrap(), row));
            taken += 1;
            if taken == rows {
                return order;
            }
        }
    }
    order
}

impl File {
    fn copy(&self) -> File {
        File { bytes: self.bytes.clone(), page_size: self.page_size, ..File::default() }
    }
}

#[test]
fn the_rows_that_an_index_leads_to_are_predicted_in_both_directions() {
    for page_size in [512, 4096, 65_536] {
        for forward in [true, false] {
            let Some(mut file) = indexed("the_rows_that_an_index_leads_to", page_size) else {
                return;
            };
            let mut predictor = file.predictor();
            let order = range(&file, &mut predictor, forward, 5_000);
            let mut predictor = file.predictor();
            let (waits, reads) = file.read(&mut predictor, &order);
            let wanted: HashSet<u32> = order.iter().copied().collect();
            let unwanted = file.asked.difference(&wanted).count();
            assert!(
                waits * 6 < wanted.len(),
                "{page_size} {forward}: {waits} of {} waited",
                wanted.len()
            );
            assert!(
                unwanted * 50 <= wanted.len() + 64,
                "{page_size}: {unwanted} of {reads} unwanted"
            );
        }
    }
}

#[test]
fn pages_that_a_log_holds_are_not_prefetched() {
    let Some(mut file) = indexed("pages_that_a_log_holds", 4096) else { return };
    let mut predictor = file.predictor();
    let order = range(&file, &mut predictor, true, 5_000);
    let logged = |page: &u32| {
        page.is_multiple_of(3) && Kind::of(file.page(*page)[0]) == Some(Kind::TableLeaf)
    };
    let (logged, order): (Vec<u32>, Vec<u32>) = order.into_iter().partition(logged);
    file.in_log = logged.into_iter().collect();
    let mut predictor = file.predictor();
    let (waits, _) = file.read(&mut predictor, &order);
    let wanted: HashSet<u32> = order.iter().copied().collect();
    assert!(waits * 6 < wanted.len(), "{waits} of {} waited", wanted.len());
    assert_eq!(file.asked.intersection(&file.in_log).count(), 0);
}

#[test]
fn a_consumer_that_stops_after_ten_rows_has_at_most_ten_pages_prefetched() {
    let Some(mut file) = indexed("a_consumer_that_stops_after_ten_rows", 4096) else { return };
    let mut predictor = file.predictor();
    let order = range(&file, &mut predictor, true, 10);
    let mut predictor = file.predictor();
    file.read(&mut predictor, &order);
    assert!(file.asked.len() <= 10, "{:?}", file.asked);
}

#[test]
fn the_leaves_of_a_fragmented_table_are_predicted() {
    let made = File::new(
        "the_leaves_of_a_fragmented_table",
        "create table t(a integer primary key, b);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into t select i * 7919 % 20011, zeroblob(800) from n;",
    );
    let Some(mut file) = made else { return };
    let mut leaves = Vec::new();
    walk(&file, 2, &mut leaves);
    let order: Vec<u32> = leaves.iter().map(|(page, _)| *page).collect();
    let mut predictor = file.predictor();
    file.there.insert(1);
    let (waits, reads) = file.read(&mut predictor, &order);
    assert!(waits * 8 < reads, "{waits} of {reads} waited");
    let mut backward = file.copy();
    backward.there.insert(1);
    let order: Vec<u32> = order.into_iter().rev().filter(|page| *page != 2).collect();
    let mut predictor = file.predictor();
    backward.read(&mut predictor, &[2]);
    let (waits, reads) = backward.read(&mut predictor, &order);
    assert!(waits * 4 < reads, "{waits} of {reads} waited");
}

#[test]
fn what_is_read_at_random_is_left_alone() {
    let Some(mut file) = indexed("what_is_read_at_random", 4096) else { return };
    let mut predictor = file.predictor();
    let root = {
        let mut everything = File { there: (1..).take(100_000).collect(), ..file.copy() };
        let schema = predictor.trees.schema(&mut everything).unwrap().unwrap();
        schema.iter().find_map(|tree| tree.table).unwrap()
    };
    let rows = (0..2_000).map(|at| at * 7919 % 20_000 + 1);
    let order: Vec<u32> = rows.flat_map(|row| down(&file, root, row)).collect();
    let mut predictor = file.predictor();
    let (_, reads) = file.read(&mut predictor, &order);
    assert!(file.asked.len() * 50 < reads, "{} asked of {reads}", file.asked.len());
    assert!(predictor.cursors.len() <= CURSORS_MAX, "[FOR-1]");
}

/// Every page is damaged somewhere: each prediction ends, and soon.
#[test]
fn damaged_files_are_looked_ahead_of_without_harm() {
    let Some(file) = indexed("damaged_files", 512) else { return };
    let mut predictor = file.predictor();
    let order = range(&file, &mut predictor, true, 300);
    let mut state = 1_u64;
    for round in 0..40 {
        let mut damaged = file.copy();
        for page in 1..damaged.bytes.len() / 512 {
            for _ in 0..round / 8 + 1 {
                // Knuth's multiplier. The header, which identifies the file as SQLite's, stays.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let at =
                    page * 512 + (state >> 33) as usize % if round % 2 == 0 { 40 } else { 512 };
                damaged.bytes[at] = (state >> 24) as u8 % if round % 3 == 0 { 14 } else { 255 };
            }
        }
        let mut predictor = damaged.predictor();
        damaged.read(&mut predictor, &order); // [FOR-2] [TRE-2]
        assert!(damaged.asked.len() < 3_000, "{}", damaged.asked.len());
    }
}

#[test]
fn knowledge_stays_within_its_bound() {
    let Some(mut file) = indexed("knowledge_stays_within_its_bound", 512) else { return };
    let mut predictor = file.predictor();
    let order = range(&file, &mut predictor, true, 2_000);
    for bound in [2_000, 20_000] {
        let geometry = Geometry::read(&file.bytes).unwrap();
        let mut predictor = Predictor::new(Trees::new(geometry, bound).unwrap(), Scope::Full, 64);
        for chunk in order.chunks(50) {
            file.read(&mut predictor, chunk);
            assert!(predictor.trees.bytes() <= bound, "[TRE-1]");
        }
    }
}

/// A cursor over a growing index: its interior pages are written and read again repeatedly.
#[test]
fn pages_that_are_written_give_back_what_they_took_of_the_bound() {
    let Some(file) = indexed("pages_that_are_written_give_back", 4096) else { return };
    let geometry = Geometry::read(&file.bytes).unwrap();
    let bound = 200_000;
    let mut trees = Trees::new(geometry, bound).unwrap();
    let numbers = 1..=(file.bytes.len() / 4096) as u32;
    let read = |number| Page::read(file.page(number), number, geometry);
    let interiors =
        || numbers.clone().filter(|number| read(*number).is_some_and(|it| it.kind().is_interior()));
    let learn = |trees: &mut Trees| {
        interiors().for_each(|number| trees.learn(number, &read(number).unwrap()).unwrap());
        trees.bytes()
    };
    let all = learn(&mut trees);
    assert!(all > 10_000 && all < bound, "{all}");
    for _ in 0..50 {
        let written = interiors().next().unwrap();
        trees.forget_page(written);
        assert!(trees.bytes() < all, "[TRE-1]");
        assert_eq!(learn(&mut trees), all, "[TRE-1]");
    }
    interiors().for_each(|number| trees.forget_page(number));
    assert_eq!((trees.bytes(), trees.parents_len()), (0, 0), "[TRE-1]");
}

#[test]
fn the_rows_of_a_table_that_is_joined_by_rowid_are_predicted() {
    let made = File::new(
        "the_rows_of_a_table_that_is_joined",
        "create table j(a integer primary key, n, t_a);
         create table t(a integer primary key, b);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into t select i, zeroblob(1500) from n;
         insert into j select a, 7, a * 7919 % 20000 + 1 from t where a < 5000;",
    );
    let Some(mut file) = made else { return };
    let mut leaves = Vec::new();
    walk(&file, 2, &mut leaves);
    let mut order = Vec::new();
    for (page, rows) in leaves {
        order.push(page);
        for row in rows {
            order.extend(down(&file, 3, row * 7919 % 20_000 + 1));
        }
    }
    let mut predictor = file.predictor();
    file.there.insert(1);
    let (waits, reads) = file.read(&mut predictor, &order);
    assert!(waits * 8 < reads, "{waits} of {reads} waited");
}

#[test]
fn a_table_in_file_order_is_left_to_the_kernels_readahead() {
    let made = File::new(
        "a_table_in_file_order",
        "create table t(a integer primary key, b);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into t select i, zeroblob(800) from n;",
    );
    let Some(mut file) = made else { return };
    let mut leaves = Vec::new();
    walk(&file, 2, &mut leaves);
    let order: Vec<u32> = leaves.iter().map(|(page, _)| *page).collect();
    // With the kernel's readahead, one read in 64 waits.
    file.there = order.iter().copied().filter(|page| page % 64 > 0).chain([1]).collect();
    let mut predictor = file.predictor();
    file.read(&mut predictor, &order);
    assert!(file.asked.len() * 20 < order.len(), "{} of {}", file.asked.len(), order.len());
}

#[test]
fn rows_that_share_leaves_are_predicted_leaf_by_leaf() {
    for forward in [true, false] {
        let made = File::new(
            "rows_that_share_leaves",
            "create table t(a integer primary key, k, b);
             with recursive n(i) as (values (1) union all select i + 1 from n where i < 60000)
             insert into t select i, i / 80 * 7919 % 10007 * 100 + i % 80, zeroblob(30) from n;
             create index by_k on t(k);",
        );
        let Some(mut file) = made else { return };
        let mut predictor = file.predictor();
        let order = range(&file, &mut predictor, forward, 60_000);
        let mut predictor = file.predictor();
        let (waits, _) = file.read(&mut predictor, &order);
        let wanted = order.iter().collect::<HashSet<_>>().len();
        assert!(waits * 4 < wanted, "{forward}: {waits} of {wanted} waited");
    }
}

/// The path down an index, or a table without rowids, to the entry whose first column is this, and the key it leads to.
/// SQLite looks for the first such entry, so it goes down to a leaf even if an interior page has one.
fn down_index(file: &File, root: u32, key: i64) -> (Vec<u32>, i64) {
    let geometry = Geometry::read(&file.bytes).unwrap();
    let (mut path, mut found) = (vec![root], None);
    loop {
        let number = path[path.len() - 1];
        let page = Page::read(file.page(number), number, geometry).unwrap();
        let first = |at| page.record(at).unwrap().first_integer().unwrap();
        let slot = (0..page.cells()).position(|at| first(at) >= key).unwrap_or(page.cells());
        if slot < page.cells() && first(slot) == key {
            found = page.record(slot).unwrap().last_integer().or(found);
        }
        match page.child(slot) {
            Some(child) => path.push(child),
            None => return (path, found.unwrap_or(0)),
        }
    }
}

/// Counts the waits when SQLite goes through all rows of the table at `outer`, and from each to the pages that `led_to`
/// returns.
fn joined(file: &mut File, outer: u32, led_to: impl Fn(&File, i64) -> Vec<u32>) {
    let mut leaves = Vec::new();
    walk(file, outer, &mut leaves);
    let mut order = Vec::new();
    for (page, rows) in leaves {
        order.push(page);
        order.extend(rows.into_iter().flat_map(|row| led_to(file, row)));
    }
    let wanted: HashSet<u32> = order.iter().copied().collect();
    let mut predictor = file.predictor();
    file.there.insert(1);
    let (waits, _) = file.read(&mut predictor, &order);
    assert!(waits * 12 < wanted.len(), "{waits} of {} waited", wanted.len());
    let unwanted = file.asked.difference(&wanted).count();
    assert!(unwanted * 50 <= wanted.len() + 64, "{unwanted} of {} unwanted", wanted.len());
}

#[test]
fn a_join_through_another_tables_index_is_predicted_to_its_rows() {
    let made = File::new(
        "a_join_through_another_tables_index",
        "create table j(a integer primary key, n, t_k);
         create table t(a integer primary key, k, b);
         create index by_k on t(k);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into t select i, i * 7919 % 20011 * 3, zeroblob(1500) from n;
         insert into j select a, 7, (a * 104729 % 20000 + 1) * 7919 % 20011 * 3 from t where a < 5000;",
    );
    let Some(mut file) = made else { return };
    joined(&mut file, 2, |file, row| {
        let key = (row * 104_729 % 20_000 + 1) * 7919 % 20_011 * 3;
        let (mut path, rowid) = down_index(file, 4, key);
        path.extend(down(file, 3, rowid));
        path
    });
}

#[test]
fn a_join_of_three_tables_is_predicted_to_the_last() {
    let made = File::new(
        "a_join_of_three_tables",
        "create table j(a integer primary key, n, m_a);
         create table m(a integer primary key, b, t_a);
         create table t(a integer primary key, b);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into t select i, zeroblob(1500) from n;
         insert into m select a, zeroblob(900), a * 104729 % 20000 + 1 from t;
         insert into j select a, 7, a * 7919 % 20000 + 1 from t where a < 5000;",
    );
    let Some(mut file) = made else { return };
    joined(&mut file, 2, |file, row| {
        let middle = row * 7919 % 20_000 + 1;
        let mut path = down(file, 3, middle);
        path.extend(down(file, 4, middle * 104_729 % 20_000 + 1));
        path
    });
}

#[test]
fn a_join_with_a_table_without_rowids_is_predicted() {
    let made = File::new(
        "a_join_with_a_table_without_rowids",
        "create table j(a integer primary key, n, w_k);
         create table w(k integer primary key, b) without rowid;
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 20000)
         insert into w select i * 3, zeroblob(700) from n;
         insert into j select k, 7, (k * 7919 % 20000 + 1) * 3 from w where k < 15000;",
    );
    let Some(mut file) = made else { return };
    joined(&mut file, 2, |file, row| down_index(file, 3, (row * 7919 % 20_000 + 1) * 3).0);
}

/// A file that counts the examined pages.
struct Counting(File, u32);

impl Pages for Counting {
    fn read_cached(&mut self, page: u32, into: &mut [u8]) -> bool {
        self.1 += 1;
        self.0.read_cached(page, into)
    }

    fn elsewhere(&self, page: u32) -> bool {
        self.0.elsewhere(page)
    }

    fn ask(&mut self, first: u32, count: u32) {
        self.0.ask(first, count);
    }
}

#[test]
fn a_join_in_which_each_row_leads_to_many_known_ones_is_looked_at_in_parts() {
    let made = File::new(
        "a_join_in_which_each_row_leads_to_many",
        "create table j(a integer primary key, k);
         create table t(a integer primary key, k, m);
         create table s(a integer primary key, m);
         create index by_k on t(k);
         create index by_m on s(m);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 2000)
         insert into t select i, i % 10, i / 10 % 10 from n;
         insert into s select a, k from t;
         insert into j select a, k from t;",
    );
    let Some(mut file) = made else { return };
    file.there = (1..100).collect();
    let mut predictor = file.predictor();
    let mut first_path = Path::new();
    // For each tree, the leaf with the smallest key.
    for root in [6, 5, 4, 3, 2] {
        let mut pages = Vec::new();
        walk(&file, root, &mut pages);
        let leaf = pages.iter().find(|(_, rows)| rows.len() > 1).unwrap().0;
        first_path = predictor.trees.path_to(root, 0, leaf, &mut file).unwrap().unwrap();
    }
    let mut cursor = Cursor::new(Tree { root: 2, table: Some(5) }, Link::Column(1), first_path);
    cursor.looks_up = true;
    for (from, root, link) in [(5, 3, Link::Index), (3, 6, Link::Column(2)), (6, 4, Link::Index)] {
        assert!((0..3).any(|_| cursor.leads_on(from, Stage { root, link }).unwrap()), "known now");
    }
    predictor.begin(cursor).unwrap();
    let mut file = Counting(file, 0);
    let mut most = 0;
    for number in 1_000..1_100 {
        file.1 = 0;
        predictor.take(0, number, SLOW, &mut file).unwrap();
        most = most.max(file.1);
    }
    assert!((100..5_000).contains(&most), "{most} [FOR-2]");
}

#[test]
fn a_schema_and_small_tables_are_looked_into_once_page_by_page() {
    let tables: String =
        (0..60).map(|at| format!("create table t{at}(a, {});", "x".repeat(500))).collect();
    let made = File::new("a_schema_and_small_tables_are_looked_into_once", &tables);
    let Some(mut file) = made else { return };
    file.there = HashSet::new();
    let mut predictor = file.predictor();
    let mut file = Counting(file, 0);
    let mut calls = 0;
    while predictor.trees.schema(&mut file).unwrap().is_none() {
        calls += 1;
    }
    assert!(calls > 5 && file.1 == 2 * calls, "{} pages looked into, {calls} times", file.1);
    file.0.there = (1..100).collect();
    for expected in [60, 0] {
        file.1 = 0;
        assert!(predictor.locate(1, 99, &mut file).unwrap().is_none());
        assert!(file.1.abs_diff(expected) < 10, "{} of {expected}", file.1);
    }
}

#[test]
fn a_leaf_is_looked_for_and_pages_are_prefetched_in_trees_unknown_within_bounds() {
    let tables: String = (0..50)
        .map(|at| format!("create table t{at}(a); create index i{at} on t{at}(a);"))
        .collect();
    let sql = format!("pragma page_size=65536; {tables}");
    let Some(mut file) = File::new("a_leaf_is_looked_for_in_bounds", &sql) else { return };
    file.there = (1..200).collect();
    let mut predictor = file.predictor();
    assert!(predictor.trees.schema(&mut file).unwrap().is_some_and(|trees| trees.len() == 101));
    let mut file = Counting(file, 0);
    assert!(predictor.trees.index_path(999, &mut file).unwrap().is_none());
    assert_eq!(file.1, 16, "1 MiB");
    let mut asked = 0;
    for _ in 0..40 {
        file.0.there.clear();
        assert!(predictor.locate(1, 999, &mut file).unwrap().is_none());
        assert!(predictor.trees.index_path(999, &mut file).unwrap().is_none());
        asked += std::mem::take(&mut file.0.asked).len();
    }
    assert!((50..=256).contains(&asked), "{asked}");
    let page = file.0.page(2).to_vec();
    for _ in 0..2 {
        predictor.on_read(2, &page, FAST, &mut file).unwrap(); // this call counts them, once
    }
    predictor.settle();
    let counted: u64 = predictor.tree_counts.settled().map(|(_, counts)| counts.prefetched).sum();
    assert!(counted >= asked as u64 && counted <= asked as u64 + 4, "{counted} of {asked}");
    assert_eq!(predictor.counts().asked, counted);
}
