//! The ring compared with a naive model of the disk: in every case, recovery would use the right copies.

use std::collections::HashMap;

use super::*;

type Page = (u32, Block);

/// Number, file, and the versions of blocks.
type Held = (u64, FileId, Vec<(Block, u64)>);

/// The file, its changes so far, and the versions that it makes durable.
type Sync = (u32, u64, Vec<(Page, u64)>);

/// The state of one page on disk, as versions.
#[derive(Debug, Clone, Copy, Default)]
struct OnDisk {
    /// The version that survives a crash.
    durable: u64,
    /// The version last put in a slot, whose write in place has ended or was tried.
    newest: u64,
    under_way: bool,
    failed: bool,
}

struct Model {
    ring: GroupRing,
    group_pages: usize,
    /// What each group of the file holds.
    slots: Vec<Held>,
    table: Table,
    pages: HashMap<Page, OnDisk>,
    /// Group, slot, page.
    writes: Vec<(usize, u32, Page)>,
    /// In progress.
    syncs: Vec<Sync>,
    version: u64,
    changes: u64,
}

impl Model {
    fn new(group_pages: usize) -> Model {
        Model {
            ring: GroupRing::new(group_pages, 1),
            group_pages,
            slots: vec![(0, FileId(0), Vec::new()); GROUPS],
            table: Table([(0, 0); GROUPS]),
            pages: HashMap::new(),
            writes: Vec::new(),
            syncs: Vec::new(),
            version: 0,
            changes: 0,
        }
    }

    fn write(&mut self, random: &mut fastrand::Rng) {
        let file = random.u32(..3);
        let mut blocks: Vec<Block> = (0..random.usize(1..12)).map(|_| random.u32(..40)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !self.pages.get(&(file, *block)).is_some_and(|it| it.under_way));
        if blocks.is_empty() {
            return;
        }
        let groups = match self.ring.take(FileId(file), blocks.iter().copied()) {
            Ok(groups) => groups,
            Err(Obstacle::Sync(file)) => return self.begin_sync(file.0),
            Err(Obstacle::Writes | Obstacle::Failures) => return,
        };
        if random.u8(..) < 20 {
            return self.ring.release(groups);
        }
        self.table = self.ring.table();
        for (group, blocks) in groups.iter().zip(blocks.chunks(self.group_pages)) {
            let mut held = Vec::new();
            for (slot, block) in (0..).zip(blocks) {
                self.version += 1;
                held.push((*block, self.version));
                let page = self.pages.entry((file, *block)).or_default();
                (page.newest, page.under_way, page.failed) = (self.version, true, false);
                self.writes.push((group, slot, (file, *block)));
            }
            self.slots[group] = (self.table.0[group].0, FileId(file), held);
        }
        self.ring.protected(groups);
    }

    fn end_write(&mut self, random: &mut fastrand::Rng, fails: u8) {
        if self.writes.is_empty() {
            return;
        }
        let (group, slot, page) = self.writes.swap_remove(random.usize(..self.writes.len()));
        let written = random.u8(..) >= fails;
        self.changes += 1;
        self.ring.ended(group, slot, written, self.changes);
        let page = self.pages.get_mut(&page).unwrap();
        (page.under_way, page.failed) = (false, !written);
    }

    fn begin_sync(&mut self, file: u32) {
        let ended = |it: &OnDisk| !it.under_way && !it.failed;
        let of_file = self.pages.iter().filter(|((of, _), it)| *of == file && ended(it));
        let pages = of_file.map(|(page, it)| (*page, it.newest)).collect();
        self.syncs.push((file, self.changes, pages));
    }

    fn end_sync(&mut self, random: &mut fastrand::Rng) {
        if self.syncs.is_empty() {
            return;
        }
        let (file, covered, pages) = self.syncs.swap_remove(random.usize(..self.syncs.len()));
        self.ring.synced(FileId(file), covered);
        for (page, version) in pages {
            let page = self.pages.get_mut(&page).unwrap();
            page.durable = page.durable.max(version);
        }
    }

    /// The copies that recovery would use.
    fn taken(&self) -> HashMap<Page, u64> {
        let mut taken = HashMap::new();
        for ((number, file, held), (newest, live)) in self.slots.iter().zip(self.table.0) {
            for (slot, (block, version)) in held.iter().enumerate() {
                if *number == newest && live & 1 << slot != 0 {
                    let it = taken.entry((file.0, *block)).or_default();
                    *it = (*version).max(*it);
                }
            }
        }
        taken
    }

    fn check(&self) {
        let taken = self.taken();
        for (page, it) in &self.pages {
            let taken = taken.get(page);
            if it.durable < it.newest {
                assert_eq!(taken, Some(&it.newest), "[DWR-1] {page:?} may be torn: {it:?}");
            } else {
                let right = taken.is_none_or(|taken| *taken == it.durable);
                assert!(right, "[DWR-2] {page:?} {it:?}: {taken:?}");
            }
        }
    }
}

#[test]
fn dwr_1_dwr_2_what_recovery_would_take_is_the_newest_of_what_may_be_torn() {
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let fails = if seed % 2 == 0 { 0 } else { 15 };
        let mut model = Model::new([1, 3, 8, 64][seed as usize % 4]);
        for _ in 0..1000 {
            match random.u8(..10) {
                0..=4 => model.write(&mut random),
                5..=7 => (0..4).for_each(|_| model.end_write(&mut random, fails)),
                8 => model.begin_sync(random.u32(..3)),
                _ => model.end_sync(&mut random),
            }
            model.check();
        }
        assert!(model.ring.next_number() > 200, "seed {seed}: it stood still");
    }
}

#[test]
fn dwr_1_a_group_is_free_when_its_file_was_synced_after_its_last_write() {
    let mut ring = GroupRing::new(2, 1);
    let file = FileId(7);
    let groups = ring.take(file, [1, 2, 3].into_iter()).unwrap();
    assert_eq!(groups.count(), 2);
    ring.protected(groups);
    ring.ended(0, 0, true, 1);
    ring.ended(0, 1, true, 2);
    ring.ended(1, 0, true, 3);
    ring.synced(file, 1);
    assert_eq!(ring.table().0[0].1, 3, "[DWR-1] that sync began too early");
    ring.synced(FileId(8), 3);
    assert!(ring.awaits_sync(file), "[DWR-1] another file");
    ring.synced(file, 2);
    assert_eq!((ring.table().0[0].1, ring.table().0[1].1), (0, 1), "[DWR-1]");
    ring.synced(file, 3);
    assert!(ring.is_empty(), "[DWR-1]");
}

#[test]
fn a_full_ring_says_what_it_waits_for() {
    let mut ring = GroupRing::new(1, 1);
    let all = |ring: &mut GroupRing| {
        (0..GROUPS as u32)
            .map(|at| ring.take(FileId(at % 3), [at].into_iter()).unwrap())
            .collect::<Vec<_>>()
    };
    let groups = all(&mut ring);
    let next = |ring: &mut GroupRing| ring.take(FileId(0), [99].into_iter());
    assert_eq!(next(&mut ring), Err(Obstacle::Writes));
    groups.iter().for_each(|group| ring.protected(*group));
    ring.ended(5, 0, true, 1);
    assert_eq!(next(&mut ring), Err(Obstacle::Sync(FileId(2))));
    ring.synced(FileId(2), 1);
    assert_eq!(next(&mut ring).unwrap().iter().collect::<Vec<_>>(), [5]);
    ring.forget(FileId(9));
    (0..GROUPS).for_each(|group| ring.ended(group, 0, false, 1));
    assert_eq!(next(&mut ring), Err(Obstacle::Failures));
    assert_eq!(ring.failed_pages(), 64);
    // Truncated, and the truncation synced.
    ring.truncated(FileId(1), 4, 9);
    assert_eq!(next(&mut ring), Err(Obstacle::Sync(FileId(1))));
    ring.forget(FileId(2));
    assert!(next(&mut ring).is_ok());
}

#[test]
fn a_page_whose_write_failed_may_be_tried_again_when_others_may_not_be_tried() {
    let mut ring = GroupRing::new(1, 1);
    let file = FileId(0);
    for block in 0..40 {
        match ring.take(file, [block].into_iter()) {
            Ok(groups) => {
                ring.protected(groups);
                groups.iter().for_each(|group| ring.ended(group, 0, false, 1));
            }
            Err(obstacle) => assert_eq!((obstacle, block >= 32), (Obstacle::Failures, true)),
        }
    }
    for _ in 0..200 {
        let groups = ring.take(file, [31].into_iter()).unwrap();
        ring.protected(groups);
        groups.iter().for_each(|group| ring.ended(group, 0, false, 1));
        assert_eq!(ring.failed_pages(), 32, "a page is kept once");
    }
}
