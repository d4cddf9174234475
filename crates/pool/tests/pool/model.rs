//! Random operations, compared with a model that is three lists of numbers.
//!
//! Whatever happens (evictions, failing disks, files closed, dropped, reopened, a new pool over the same directories),
//! a page has its latest contents, and every error has a known cause. On failure proptest prints the steps, reduced as
//! far as they still fail.

use std::sync::Arc;

use forebay::{
    BufferPool, Checksum, Error, Fate, FileOptions, PagedFile, StrategyKind, StreamOptions,
};
use forebay_io::{Op, OsError};
use proptest::prelude::*;

use crate::disk::{Disk, Fault};
use crate::place::tablespaces;
use crate::site::{PAGE, SUMS, Site, number_in, set};

const FILES: [(&str, &str); 3] = [("one", "main"), ("two", "main"), ("one", "cut")];
const BLOCKS_MAX: u32 = 40;

/// One step. Blocks may lie slightly past the end.
#[derive(Debug, Clone)]
enum Step {
    Read(u32),
    Copy(u32),
    Optimistic(u32),
    Salvage(u32),
    /// In the order of the list, or in any order; blocks may occur twice.
    Many(Vec<u32>, bool),
    Prefetch(Vec<u32>),
    Write(u32),
    Init(u32),
    Append,
    Extend(u32),
    Truncate(u32),
    Drop,
    Close,
    Flush,
    Sync,
    FlushAll,
    Reopen,
    /// After `after` more attempts of reading or writing, the next `count` fail.
    Break {
        writes: bool,
        after: u32,
        count: u32,
    },
    Heal,
    /// Pins the page, runs the steps, latches and changes the page.
    Pinned(u32, Vec<Order>),
}

/// A step on a file, with a strategy.
#[derive(Debug, Clone)]
struct Order {
    file: usize,
    strategy: usize,
    step: Step,
}

fn block() -> impl Strategy<Value = u32> {
    0..BLOCKS_MAX + 2
}

/// Steps that are also possible while a page is pinned.
fn simple_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => block().prop_map(Step::Read),
        4 => block().prop_map(Step::Copy),
        2 => block().prop_map(Step::Optimistic),
        1 => block().prop_map(Step::Salvage),
        4 => (prop::collection::vec(block(), 0..30), any::<bool>())
            .prop_map(|(blocks, any)| Step::Many(blocks, any)),
        4 => prop::collection::vec(block(), 0..12).prop_map(Step::Prefetch),
        16 => block().prop_map(Step::Write),
        4 => block().prop_map(Step::Init),
        4 => Just(Step::Append),
        4 => (0_u32..12).prop_map(Step::Extend),
        2 => block().prop_map(Step::Truncate),
        1 => Just(Step::Drop),
        1 => Just(Step::Close),
        2 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => Just(Step::FlushAll),
        2 => (any::<bool>(), 0_u32..6, 1_u32..10)
            .prop_map(|(writes, after, count)| Step::Break { writes, after, count }),
        2 => Just(Step::Heal),
    ]
}

fn order(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Order> {
    (0..FILES.len(), 0..StrategyKind::COUNT, step).prop_map(|(file, strategy, step)| Order {
        file,
        strategy,
        step,
    })
}

fn orders() -> impl Strategy<Value = Vec<Order>> {
    let pinned = (block(), prop::collection::vec(order(simple_step()), 0..6))
        .prop_map(|(block, steps)| Step::Pinned(block, steps));
    let step = prop_oneof![40 => simple_step(), 4 => pinned, 1 => Just(Step::Reopen)];
    prop::collection::vec(order(step), 1..120)
}

struct Trial {
    site: Site,
    frames: u64,
    cleaner: bool,
    sums: Checksum,
    pool: Option<(BufferPool, Arc<Disk>)>,
    handles: [Option<PagedFile>; 3],
    rings: Vec<forebay::AccessStrategy>,
    /// The expected contents of every page of every file; `None` for a file that does not exist.
    model: [Option<Vec<u64>>; 3],
    broken: bool,
    /// File and block of the page that the current step has pinned.
    pinned: Option<(usize, u32)>,
    next: u64,
}

impl Trial {
    fn new(frames: u64, cleaner: bool, sums: bool) -> Trial {
        let mut trial = Trial {
            site: Site::new(),
            frames,
            cleaner,
            sums: if sums { SUMS } else { Checksum::Off },
            pool: None,
            handles: [None, None, None],
            rings: Vec::new(),
            model: [None, None, None],
            broken: false,
            pinned: None,
            next: 0,
        };
        trial.open_pool();
        trial
    }

    fn open_pool(&mut self) {
        let (disk, main, other) = tablespaces(&self.site);
        let builder = Site::bare(self.frames).cleaner(self.cleaner).checksum(self.sums);
        let pool = builder.tablespace(main).tablespace(other).build().unwrap();
        self.rings = StrategyKind::ALL.map(|kind| pool.strategy(kind)).into();
        self.pool = Some((pool, disk));
    }

    fn pool(&self) -> &BufferPool {
        &self.pool.as_ref().unwrap().0
    }

    fn disk(&self) -> &Disk {
        &self.pool.as_ref().unwrap().1
    }

    /// Returns the file; opens or creates it if necessary.
    fn file(&mut self, file: usize) -> PagedFile {
        if let Some(open) = &self.handles[file] {
            return open.clone();
        }
        let (name, space) = FILES[file];
        let is_new = self.model[file].is_none();
        let options = FileOptions::new().tablespace(space).create_new(is_new);
        let open = self.pool().open_file(name, &options).unwrap();
        let pages = self.model[file].get_or_insert_default();
        assert_eq!(open.blocks() as usize, pages.len());
        self.handles[file] = Some(open.clone());
        open
    }

    /// Only an error of the broken disk itself may prevent access to an existing page.
    #[track_caller]
    fn explain(&self, error: &Error) {
        let known =
            crate::site::is_io(error, OsError::EIO) || crate::site::is_io(error, OsError::ENOSPC);
        assert!(self.broken && known, "{error}");
    }

    /// Whether `asked` is a page of the file; checks the error otherwise.
    #[track_caller]
    fn had<T>(&self, file: usize, block: u32, asked: Result<T, Error>) -> Option<T> {
        let blocks = self.model[file].as_ref().unwrap().len() as u32;
        match asked {
            Ok(page) => {
                assert!(block < blocks, "block {block} of {blocks}");
                Some(page)
            }
            Err(Error::PastEnd { block: found, blocks: of, .. }) => {
                assert!(block >= blocks && found == block && of == blocks);
                None
            }
            Err(error) => {
                self.explain(&error);
                None
            }
        }
    }

    fn expected(&self, file: usize, block: u32) -> u64 {
        self.model[file].as_ref().unwrap()[block as usize]
    }

    fn new_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn step(&mut self, order: &Order) {
        let (at, ring) = (order.file, order.strategy);
        match &order.step {
            Step::Reopen => return self.reopen(),
            Step::Break { writes, after, count } => {
                return self.break_disk(*writes, *after, *count);
            }
            Step::Heal => return self.heal(),
            Step::FlushAll => {
                if let Err(error) = self.pool().flush_and_sync() {
                    self.explain(&error);
                }
                return;
            }
            _ => {}
        }
        let file = self.file(at);
        match &order.step {
            Step::Read(block) => {
                let asked = file.read_with(*block, &self.rings[ring]);
                if let Some(page) = self.had(at, *block, asked) {
                    assert_eq!(number_in(&page), self.expected(at, *block));
                }
            }
            Step::Copy(block) => {
                let mut page = vec![0; PAGE];
                let asked = file.copy(*block, 0, &mut page);
                if self.had(at, *block, asked).is_some() {
                    assert_eq!(number_in(&page), self.expected(at, *block));
                }
            }
            Step::Optimistic(block) => {
                let mut page = vec![0; PAGE];
                let asked = file.optimistic(*block).map(|guard| guard.read(0, &mut page));
                if self.had(at, *block, asked) == Some(true) {
                    assert_eq!(number_in(&page), self.expected(at, *block));
                }
            }
            Step::Salvage(block) => {
                let asked = file.salvage(*block);
                if let Some((bytes, _)) = self.had(at, *block, asked) {
                    assert_eq!(number_in(&bytes), self.expected(at, *block));
                }
            }
            Step::Many(blocks, any) => self.many(at, ring, &file, blocks, *any),
            Step::Prefetch(blocks) => {
                let room = self.frames / 4;
                assert!(u64::from(file.prefetch(blocks)) <= room, "[BUD-1]");
            }
            Step::Write(block) | Step::Init(block) => {
                let number = self.new_number();
                let asked = match order.step {
                    Step::Init(_) => file.init_with(*block, &self.rings[ring]),
                    _ => file.write_with(*block, &self.rings[ring]),
                };
                if let Some(mut page) = self.had(at, *block, asked) {
                    let was = if matches!(order.step, Step::Init(_)) {
                        0
                    } else {
                        self.expected(at, *block)
                    };
                    assert_eq!(number_in(&page), was);
                    set(&mut page, number);
                    self.model[at].as_mut().unwrap()[*block as usize] = number;
                }
            }
            Step::Pinned(block, steps) => self.pinned(at, ring, *block, &file, steps),
            step => self.resize(at, step, &file),
        }
    }

    fn many(&mut self, at: usize, ring: usize, file: &PagedFile, blocks: &[u32], any: bool) {
        let order = if any { forebay::Order::Any } else { forebay::Order::InOrder };
        let options = StreamOptions::new().order(order).access(self.rings[ring].kind());
        let named: Vec<(u32, usize)> = blocks.iter().copied().zip(0..).collect();
        let mut places = Vec::new();
        for page in file.read_many_with(&named, &options) {
            let (block, place, asked) = match page {
                Ok(page) => (page.page.block(), page.data, Ok(number_in(&page))),
                Err(failed) => (failed.block, failed.data, Err(failed.error)),
            };
            assert_eq!(block, blocks[place], "[RS-2]");
            places.push(place);
            if let Some(number) = self.had(at, block, asked) {
                assert_eq!(number, self.expected(at, block));
            }
        }
        if any {
            places.sort_unstable();
        }
        assert!(places.into_iter().eq(0..blocks.len()), "[RS-2] each once");
    }

    fn resize(&mut self, at: usize, step: &Step, file: &PagedFile) {
        let len = self.model[at].as_ref().unwrap().len() as u32;
        match step {
            Step::Append if len < BLOCKS_MAX => {
                let number = self.new_number();
                match file.append() {
                    Ok(mut page) => {
                        assert_eq!((page.block(), number_in(&page)), (len, 0));
                        set(&mut page, number);
                        self.model[at].as_mut().unwrap().push(number);
                    }
                    // There was no frame for it, and the file's length is unchanged.
                    Err(error) => self.explain(&error),
                }
            }
            Step::Extend(count) if len + count <= BLOCKS_MAX => {
                assert_eq!(file.extend(*count).unwrap(), len..len + count);
                self.model[at].as_mut().unwrap().resize((len + count) as usize, 0);
            }
            Step::Truncate(blocks) => {
                file.truncate(*blocks).unwrap();
                self.model[at].as_mut().unwrap().truncate(*blocks as usize);
            }
            Step::Drop => {
                file.drop_file().unwrap();
                assert!(matches!(file.read(0), Err(Error::Invalidated { how: Fate::Dropped, .. })));
                (self.model[at], self.handles[at]) = (None, None);
            }
            Step::Close => match file.clone().close() {
                Ok(()) => self.handles[at] = None,
                Err(Error::Busy { pages, .. }) => {
                    assert!(pages == 1 && self.pinned.is_some_and(|(file, _)| file == at));
                }
                Err(error) => self.explain(&error),
            },
            Step::Flush => {
                if let Err(error) = file.flush_file() {
                    self.explain(&error);
                }
            }
            Step::Sync => file.sync().unwrap(),
            _ => {}
        }
    }

    fn pinned(&mut self, at: usize, ring: usize, block: u32, file: &PagedFile, steps: &[Order]) {
        let asked = file.pin_with(block, &self.rings[ring]);
        let Some(pin) = self.had(at, block, asked) else {
            return;
        };
        self.pinned = Some((at, block));
        let was = self.expected(at, block);
        let mut stays = true;
        for order in steps {
            let blocks = |trial: &Trial| trial.model[at].as_ref().map_or(0, Vec::len) as u32;
            self.step(order);
            self.agree();
            // Once cut off, the page stays unreadable, even if the block exists again.
            let dropped = order.file == at && matches!(order.step, Step::Drop);
            stays &= blocks(self) > block && !dropped;
        }
        self.pinned = None;
        let number = self.new_number();
        match pin.into_exclusive() {
            Ok(mut page) => {
                assert!(stays);
                let expected = self.expected(at, block);
                assert_eq!(number_in(&page), expected, "was {was} when it was pinned");
                set(&mut page, number);
                self.model[at].as_mut().unwrap()[block as usize] = number;
            }
            Err(Error::Invalidated { .. }) => assert!(!stays),
            Err(error) => panic!("{error}"),
        }
    }

    fn break_disk(&mut self, writes: bool, mut after: u32, mut count: u32) {
        let (op, error) = match writes {
            true => (Op::Write, OsError::ENOSPC),
            false => (Op::Read, OsError::EIO),
        };
        self.broken = true;
        self.disk().rule(move |it| {
            if it.op() != op || count == 0 {
                return Fault::None;
            }
            if after > 0 {
                after -= 1;
                return Fault::None;
            }
            count -= 1;
            Fault::Fail(error)
        });
    }

    fn heal(&mut self) {
        self.broken = false;
        self.disk().heal();
    }

    /// Closes the pool and opens another one over the same directories.
    fn reopen(&mut self) {
        self.heal();
        self.handles = [None, None, None];
        let (pool, _) = self.pool.take().unwrap();
        pool.close().unwrap();
        self.open_pool();
    }

    /// Checks that every page in memory has the expected contents and that no page is pinned unexpectedly.
    fn agree(&self) {
        for (file, pages) in self.handles.iter().zip(&self.model) {
            let (Some(file), Some(pages)) = (file, pages) else {
                continue;
            };
            assert_eq!(file.blocks() as usize, pages.len());
            let mut page = vec![0; PAGE];
            for (block, number) in (0..).zip(pages) {
                if file.is_resident(block) {
                    file.copy(block, 0, &mut page).unwrap();
                    assert_eq!(
                        number_in(&page),
                        *number,
                        "block {block} of {}",
                        file.path().display()
                    );
                }
            }
        }
        if !self.cleaner {
            let pins: u64 = self.pool().view().iter().map(|frame| frame.pins).sum();
            assert_eq!(pins, u64::from(self.pinned.is_some()));
            let stats = self.pool().stats();
            assert_eq!(stats.frames_free as usize + self.pool().view().len(), self.frames as usize);
        }
    }

    /// Checks that everything is on disk after closing.
    fn end(&mut self) {
        self.reopen();
        for (at, (name, space)) in FILES.into_iter().enumerate() {
            let Some(pages) = self.model[at].clone() else {
                let options = FileOptions::new().tablespace(space);
                assert!(self.pool().open_file(name, &options).is_err(), "{name} was dropped");
                continue;
            };
            let file = self.file(at);
            for (block, number) in (0..).zip(pages) {
                assert_eq!(number_in(&file.read(block).unwrap()), number, "block {block}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_page_says_what_was_last_put_there(
        frames in 8_u64..=24,
        cleaner in any::<bool>(),
        sums in any::<bool>(),
        orders in orders(),
    ) {
        let mut trial = Trial::new(frames, cleaner, sums);
        for order in &orders {
            trial.step(order);
            trial.agree();
        }
        trial.end();
    }
}
