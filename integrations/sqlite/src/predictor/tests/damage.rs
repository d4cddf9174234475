//! Damaged and hostile files: whatever their pages contain, look-ahead ends soon and takes little memory.
//!
//! Files that SQLite has made, with pages of every kind, are damaged where it matters most: cell counts, cell offsets,
//! children, varints, whole pages swapped. They are read in the order of the undamaged file, so that look-ahead has
//! begun before it meets the damage. The pages that are most expensive to parse are built by hand.
//!
//! Runs for [FUZZ_SECONDS], starting with [FUZZ_SEED]; a failure prints the seed of its round.

use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::trees::NO_ROW;

const FUZZ_SECONDS: &str = "FOREBAY_SQLITE_FUZZ_SECONDS";
const FUZZ_SEED: &str = "FOREBAY_SQLITE_SEED";
/// Cache lookups and requests that one page read may cause.
const CALLS_MAX: u32 = 100_000;
/// Processor time that one page read may take in an unoptimised build.
const READ_TIME_MAX: Duration = Duration::from_millis(700);

/// A file that counts the calls to it.
struct Counted {
    bytes: Vec<u8>,
    page_size: usize,
    calls: u32,
}

impl Counted {
    fn page(&self, number: u32) -> Option<&[u8]> {
        let start = (number as usize).checked_sub(1)?.checked_mul(self.page_size)?;
        self.bytes.get(start..start + self.page_size)
    }

    fn called(&mut self) {
        self.calls += 1;
        assert!(self.calls < CALLS_MAX, "one page leads to no end of others");
    }

    /// Reports a page read, and checks its bounds.
    fn on_read(&mut self, predictor: &mut Predictor, number: u32, seed: u64) {
        let Some(bytes) = self.page(number).map(<[u8]>::to_vec) else { return };
        self.calls = 0;
        let began = processor_time();
        predictor.on_read(number, &bytes, SLOW, self).unwrap();
        let took = processor_time() - began;
        assert!(took < READ_TIME_MAX, "page {number} took {took:?} [PAG-1] [FOR-2], seed {seed}");
        assert!(predictor.trees.bytes() <= 1 << 20, "[TRE-1], seed {seed}");
    }
}

impl Pages for Counted {
    fn read_cached(&mut self, page: u32, into: &mut [u8]) -> bool {
        self.called();
        let Some(bytes) = self.page(page) else { return false };
        into.copy_from_slice(&bytes[..into.len()]);
        true
    }

    fn ask(&mut self, _first: u32, _count: u32) {
        self.called();
    }

    fn elsewhere(&self, _page: u32) -> bool {
        false
    }
}

/// This thread's processor time: other threads may keep the machine busy.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn predictor(file: &Counted) -> Predictor {
    let usable = file.page_size as u32 - u32::from(file.bytes[20]);
    let geometry = Geometry { page_size: file.page_size as u32, usable };
    Predictor::new(Trees::new(geometry, 1 << 20).unwrap(), Scope::Full, 64)
}

/// A file with all kinds of pages, and orders in which SQLite would read it.
fn made(page_size: u32, vacuum: &str) -> Option<(File, Vec<Vec<u32>>)> {
    let rows = if page_size > 4096 { 150 } else { 1_500 };
    let bytes = page_size / 6;
    let file = File::new(
        "damage",
        &format!(
            "pragma page_size={page_size};
             pragma auto_vacuum={vacuum};
             create table t(a integer primary key, k, b);
             create table j(a integer primary key, n, t_a);
             create table w(p, q, primary key (p, q)) without rowid;
             with recursive n(i) as (values (1) union all select i + 1 from n where i < {rows})
             insert into t select i * 7919 % 20011, i * 104729 % 10007,
                 zeroblob(case when i % 5 then {bytes} else 3 * {page_size} end) from n;
             create index by_k on t(k);
             create index by_b on t(b, k);
             insert into j select a, k, 1 + k % {rows} from t limit {rows} / 4;
             insert into w select printf('%d %.*c', k, {bytes} / 9, 'x'), a from t;
             delete from t where a % 7 = 3;"
        ),
    )?;
    let mut everything = File { there: (1..).take(100_000).collect(), ..file.copy() };
    let trees = file.predictor().trees.schema(&mut everything).unwrap().unwrap().to_vec();
    let pages = |tree: &Tree| {
        let mut leaves = Vec::new();
        walk(&file, tree.root, &mut leaves);
        leaves
    };
    let mut orders = Vec::new();
    for tree in &trees {
        let mut order = Vec::new();
        for (page, rows) in pages(tree).into_iter().take(400) {
            order.push(page);
            if Kind::of(file.page(page)[0]) == Some(Kind::TableLeaf) {
                order.extend(overflow::chains(&file, page).into_iter().flat_map(|(_, it)| it));
            }
            let Some(table) = tree.table else { continue };
            for row in rows.into_iter().filter(|row| *row != NO_ROW).take(20) {
                if orders.len() % 2 == 0 {
                    order.extend(down(&file, table, row));
                }
            }
        }
        orders.push(order.iter().rev().copied().collect());
        orders.push(order);
    }
    Some((file, orders))
}

/// SplitMix64. Source: Steele, Lea and Flood, 2014.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        let any = self.below(256) as u8;
        [0, 1, 0x7f, 0x80, 0x81, 0xff, any, any][self.below(8)]
    }
}

/// Damages a page where the effect is large.
fn damage(file: &mut Counted, page: usize, chance: &mut Chance) {
    let size = file.page_size;
    let pages = file.bytes.len() / size;
    let start = page * size;
    let head = start + if page == 0 { 100 } else { 0 };
    let bytes = &mut file.bytes;
    match chance.below(8) {
        0 => bytes[head] = [2, 5, 10, 13, 0, 255][chance.below(6)],
        1 => {
            let cells = [0, 1, size / 4, size / 2, 65_535, chance.below(size)][chance.below(6)];
            bytes[head + 3..head + 5].copy_from_slice(&(cells as u16).to_be_bytes());
        }
        2 => {
            // Cell offsets: all the same, or random.
            let place = chance.below(size);
            let end = head + 8 + 2 * chance.below((size - 110) / 2);
            for at in (head + 8 + 4 * chance.below(2)..end).step_by(2) {
                let place = if place.is_multiple_of(2) { place } else { chance.below(size) };
                bytes[at..at + 2].copy_from_slice(&(place as u16).to_be_bytes());
            }
        }
        3 => {
            // Page numbers such as children: loops, the page itself, none, far away.
            let child =
                [page as u32 + 1, 1, 0, u32::MAX, chance.below(pages) as u32 + 1][chance.below(5)];
            let at = if chance.below(2) == 0 { head + 8 } else { start + chance.below(size - 4) };
            bytes[at..at + 4].copy_from_slice(&child.to_be_bytes());
        }
        4 => {
            let other = chance.below(pages) * size;
            bytes.copy_within(other..other + size, start);
        }
        5 => {
            let (at, value) = (start + chance.below(size), chance.byte());
            let end = (at + chance.below(40)).min(start + size);
            bytes[at..end].fill(value);
        }
        _ => {
            for _ in 0..1 + chance.below(20) {
                bytes[start + chance.below(size)] = chance.byte();
            }
        }
    }
}

#[test]
fn files_damaged_anywhere_are_looked_ahead_of_within_bounds() {
    let number = |name, otherwise| std::env::var(name).map_or(otherwise, |it| it.parse().unwrap());
    let until = Duration::from_secs(number(FUZZ_SECONDS, 2));
    let mut files = Vec::new();
    for (page_size, vacuum) in
        [(512, "none"), (1024, "full"), (4096, "incremental"), (65_536, "none")]
    {
        let Some(made) = made(page_size, vacuum) else { return };
        files.push(made);
    }
    let first = number(FUZZ_SEED, 1) << 32;
    let (began, mut rounds, mut pages_read) = (processor_time(), 0_u64, 0_u64);
    while processor_time() - began < until {
        let seed = first + rounds;
        let mut chance = Chance(seed);
        let (file, orders) = &files[chance.below(files.len())];
        let mut file = Counted { bytes: file.bytes.clone(), page_size: file.page_size, calls: 0 };
        let mut predictor = predictor(&file);
        let pages = file.bytes.len() / file.page_size;
        if chance.below(8) == 0 {
            file.bytes.truncate(file.page_size * (1 + chance.below(pages)));
        }
        let pages = file.bytes.len() / file.page_size;
        let part = [0, 8, 40, 200][chance.below(4)];
        for _ in 0..part * pages / 100 + chance.below(3) {
            let page = if chance.below(20) == 0 { 0 } else { chance.below(pages) };
            damage(&mut file, page, &mut chance);
        }
        for _ in 0..1 + chance.below(3) {
            let order = &orders[chance.below(orders.len())];
            let from = chance.below(order.len());
            for &page in order[from..].iter().take(300) {
                let page =
                    if chance.below(40) == 0 { chance.below(pages) as u32 + 1 } else { page };
                file.on_read(&mut predictor, page, seed);
                pages_read += 1;
                // The page may change while it is read.
                if chance.below(30) == 0 {
                    damage(&mut file, page as usize % pages, &mut chance);
                }
            }
        }
        rounds += 1;
    }
    println!("{rounds} files, {pages_read} pages");
    assert!(rounds > 3, "{rounds}");
}

/// A leaf of 64 KiB with the maximum number of cells, all of them the same `cell`, at `place`.
fn repeated(kind: u8, cell: &[u8]) -> Vec<u8> {
    let (size, cells) = (65_536, 16_384_u16);
    let place = 8 + 2 * usize::from(cells);
    let mut page = vec![0; size];
    page[0] = kind;
    page[3..5].copy_from_slice(&cells.to_be_bytes());
    for at in (8..place).step_by(2) {
        page[at..at + 2].copy_from_slice(&(place as u16).to_be_bytes());
    }
    page[place..place + cell.len()].copy_from_slice(cell);
    page
}

fn hostile(pages: &[Vec<u8>]) -> Counted {
    Counted { bytes: pages.concat(), page_size: 65_536, calls: 0 }
}

/// A varint of three bytes.
fn three(number: u32) -> [u8; 3] {
    [number >> 14 | 0x80, number >> 7 & 0x7f | 0x80, number & 0x7f].map(|it| it as u8)
}

#[test]
fn an_index_leaf_of_rows_with_endless_columns_is_read_in_bounds() {
    let columns = 32_000;
    let cell = [&three(columns + 3)[..], &three(columns + 3), &vec![9; columns as usize]].concat();
    let leaf = repeated(10, &cell);
    let file = hostile(&[vec![0; 65_536], leaf.clone()]);
    let page = Page::read(&leaf, 2, predictor(&file).trees.geometry()).unwrap();
    let (began, mut rows) = (processor_time(), Vec::new());
    assert!(rows_of(&page, Link::Index, &mut rows).unwrap());
    assert!(processor_time() - began < READ_TIME_MAX, "{:?} [PAG-1]", processor_time() - began);
}

#[test]
fn a_schema_of_tables_with_endless_names_is_read_in_bounds() {
    for [name, table] in [[0, 30_000], [30_000, 0]] {
        let text = |size: u32| three(13 + 2 * size);
        let types = [&text(5)[..], &text(name), &text(table), &[1]].concat();
        let names = vec![b'n'; (name + table) as usize];
        let record = [&[types.len() as u8 + 1], &types[..], b"table", &names, &[2]].concat();
        let cell = [&three(record.len() as u32)[..], &[1], &record].concat();
        let mut file = hostile(&[schema_root(), repeated(13, &cell)]);
        let mut predictor = predictor(&file);
        let (began, before) = (processor_time(), memory_most());
        let trees = predictor.trees.schema(&mut file).unwrap().map(<[Tree]>::len);
        let (took, more) = (processor_time() - began, memory_most().saturating_sub(before));
        assert!(took < 4 * READ_TIME_MAX && more < 512 << 20, "{took:?}, {more} bytes [TRE-1]");
        assert_eq!(trees, Some(1), "the schema's own");
    }
}

#[test]
fn what_is_no_schema_is_looked_into_once() {
    // Leaves of an index, and bytes that are no page.
    for kind in [10, 77] {
        let mut file = hostile(&[schema_root(), repeated(kind, &[3, 2, 1, 1])]);
        let mut predictor = predictor(&file);
        assert_eq!(predictor.trees.schema(&mut file).unwrap().map(<[Tree]>::len), Some(1));
        let calls = file.calls;
        assert!(predictor.trees.schema(&mut file).unwrap().is_some());
        assert_eq!(file.calls, calls);
    }
}

/// Page 1, whose schema consists of page 2 many times.
fn schema_root() -> Vec<u8> {
    let mut root = vec![0; 65_536];
    root[100] = 5;
    root[103..105].copy_from_slice(&100_u16.to_be_bytes());
    let cells = 112 + 200_usize;
    for at in (112..cells).step_by(2) {
        root[at..at + 2].copy_from_slice(&(cells as u16).to_be_bytes());
    }
    root[108..112].copy_from_slice(&2_u32.to_be_bytes());
    root[cells..cells + 5].copy_from_slice(&[0, 0, 0, 2, 1]);
    root
}

/// The peak memory of this process, in bytes. The kernel estimates it: the next value may be a little smaller.
fn memory_most() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn many_rows_in_one_leaf_are_distinguished_in_bounds() {
    // An index leaf whose entries are all of row 1.
    let leaf = repeated(10, &[3, 2, 1, 1]);
    let mut file = hostile(&[vec![0; 65_536], leaf.clone()]);
    let mut trees = predictor(&file).trees;
    let page = Page::read(&leaf, 2, trees.geometry()).unwrap();
    let mut cursor = Cursor::new(Tree { root: 9, table: Some(2) }, Link::Index, Path::new());
    cursor.enter(&page).unwrap();
    let began = processor_time();
    for _ in 0..2 {
        cursor.on_row(2, &(1..=1), &mut trees, &mut file).unwrap();
    }
    assert!(processor_time() - began < READ_TIME_MAX, "{:?}", processor_time() - began);
}

#[test]
fn a_leaf_that_claims_all_rowids_is_looked_for_in_others_in_bounds() {
    // Root 2 has the interior pages 3 and 9; page 9 does not exist. Page 3 has leaf 4. Page 5 leads to rows below 9.
    let interior = |child: u32, rowid: u8, last: u32| {
        let mut page = vec![0; 65_536];
        page[0] = 5;
        page[3..5].copy_from_slice(&1_u16.to_be_bytes());
        page[8..12].copy_from_slice(&last.to_be_bytes());
        page[12..14].copy_from_slice(&14_u16.to_be_bytes());
        page[14..19].copy_from_slice(&[&child.to_be_bytes()[..], &[rowid]].concat());
        page
    };
    let mut leaf = repeated(13, &[2, 0]);
    leaf[8..10].copy_from_slice(&60_000_u16.to_be_bytes()); // the first rowid, 0; the last one:
    let end = 8 + 2 * 16_384;
    leaf[end - 2..end].copy_from_slice(&60_100_u16.to_be_bytes());
    leaf[60_100..60_110]
        .copy_from_slice(&[0, 0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let types = [&[17][..], &[1; 16]].concat();
    let record = [&types[..], &[77; 16]].concat();
    let outer = repeated(13, &[&[record.len() as u8, 1], &record[..]].concat());
    let page_1 = {
        let record = [&[5, 23, 13 + 2, 13 + 2, 1][..], b"table", b"t", b"t", &[2]].concat();
        let mut page = vec![0; 65_536];
        page[100] = 13;
        page[103..105].copy_from_slice(&1_u16.to_be_bytes());
        page[108..110].copy_from_slice(&200_u16.to_be_bytes());
        page[200..202].copy_from_slice(&[record.len() as u8, 1]);
        page[202..202 + record.len()].copy_from_slice(&record);
        page
    };
    let root = interior(3, 50, 9);
    let mut file = hostile(&[page_1, root, interior(4, 40, 9), leaf, outer]);
    let mut predictor = predictor(&file);
    assert!(predictor.trees.schema(&mut file).unwrap().unwrap().iter().any(|tree| tree.root == 2));
    for number in [5, 4] {
        file.on_read(&mut predictor, number, 0);
    }
    assert!(predictor.trees.path_to(2, 1, 4, &mut file).unwrap().is_some(), "the leaf is found");
}

#[test]
fn of_a_leaf_full_of_integers_a_part_is_kept() {
    let record = [&[17][..], &[1; 16], &[77; 16]].concat();
    let leaf = repeated(13, &[&[record.len() as u8, 1], &record[..]].concat());
    let page = Page::read(&leaf, 2, Geometry { page_size: 65_536, usable: 65_536 }).unwrap();
    let found = integers_of(&page).unwrap().len();
    assert!((INTEGERS_MAX..INTEGERS_MAX + 17).contains(&found), "{found}");
}
