//! The ring: what each slot of the double-write file holds, and when it may be reused.
//!
//! The file is divided into [`GROUPS`] groups of slots, a slot for a page. A batch of pages takes whole groups. A slot
//! is *live* from then on until its page is safe in its own file, so that recovery no longer needs the slot:
//!
//! 1. the page's write in place has succeeded,
//! 2. and its file was synced by a sync that started after all writes of the group had ended.
//!
//! A write in place that failed may have torn the page, and it is unknown when the page is written again. Its slot
//! stays live until a newer slot holds the same page, or until the file is removed. Its neighbours in the group do not
//! stay with it: live slots are tracked individually.
//!
//! Groups are reused in no fixed order, so an old copy of a page may outlive a newer one in the file. Each header
//! therefore carries the [`Table`] of all live slots at the time of its writing, and recovery uses the newest header: a
//! slot that is not in its table holds nothing.
//!
//! Worked example, two groups: page 5 goes to group 0 (number 10), is written, and its file is synced.
//! Page 5 changes and goes to group 1 (number 11): the header there says "11 is live, 10 is not".
//!
//! Invariants:  [DWR-1] a slot is not reused before its page is durable in its own file
//!              [DWR-2] of one page's slots that are not durable yet, all are live, or the newest
//! Concurrency: one owner, which locks.

use crate::tag::{Block, FileId};

/// Groups in a file, and bits in a [`Groups`].
pub(super) const GROUPS: usize = 64;

/// Most slots in a group: bits in a mask.
pub(super) const GROUP_PAGES_MAX: usize = 64;

/// Failed writes keep at most this many groups: the rest is for retrying them.
const FAILED_GROUPS_MAX: usize = GROUPS / 2;

/// A set of groups, a bit for each. A batch fills them in the order of their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::store::torn) struct Groups(u64);

impl Groups {
    pub(super) fn add(&mut self, others: Groups) {
        self.0 |= others.0;
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..GROUPS).filter(move |group| self.0 & 1 << group != 0)
    }

    pub(super) fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// The newest header's entry for every group: its number, and which of its slots are live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table(pub(super) [(u64, u64); GROUPS]);

#[derive(Clone, Copy)]
struct Group {
    /// Larger than the numbers of all groups taken before.
    number: u64,
    file: FileId,
    blocks: [Block; GROUP_PAGES_MAX],
    live: u64,
    /// Live slots whose write in place has not ended.
    pending: u64,
    /// Live slots whose write in place has failed.
    failed: u64,
    /// The number of the file's changes when the last write in place had succeeded, or later.
    ended: u64,
}

const EMPTY: Group = Group {
    number: 0,
    file: FileId(0),
    blocks: [0; GROUP_PAGES_MAX],
    live: 0,
    pending: 0,
    failed: 0,
    ended: 0,
};

impl Group {
    /// The slots of a mask, each as its bit, with the blocks that they hold.
    fn blocks_of(&self, mask: u64) -> impl Iterator<Item = (u64, Block)> + use<> {
        let slots = (0..GROUP_PAGES_MAX).map(|slot| 1 << slot).zip(self.blocks);
        slots.filter(move |(bit, _)| mask & bit != 0)
    }

    /// A sync could make some of its pages durable.
    fn awaits_sync(&self) -> bool {
        self.pending == 0 && self.live & !self.failed != 0
    }
}

/// The reason why a batch cannot get its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A sync of this file would free some.
    Sync(FileId),
    /// Writes in place have to end first.
    Writes,
    /// Too many are held by pages whose writes in place have failed.
    Failures,
}

pub(super) struct GroupRing {
    groups: Box<[Group; GROUPS]>,
    group_pages: usize,
    next_number: u64,
    /// Where the search for free groups continues.
    hand: usize,
}

impl GroupRing {
    pub(super) const MEMORY_BYTES: usize = size_of::<GroupRing>() + GROUPS * size_of::<Group>();

    pub(super) fn new(group_pages: usize, first_number: u64) -> GroupRing {
        assert!((1..=GROUP_PAGES_MAX).contains(&group_pages), "[DWR-1] {group_pages} slots");
        let groups = Box::new([EMPTY; GROUPS]);
        GroupRing { groups, group_pages, next_number: first_number, hand: 0 }
    }

    /// Takes groups for a batch of pages of `file`; their slots are live from now on.
    pub(super) fn take(
        &mut self,
        file: FileId,
        blocks: impl ExactSizeIterator<Item = Block> + Clone,
    ) -> Result<Groups, Obstacle> {
        let needed = blocks.len().div_ceil(self.group_pages);
        assert!((1..=GROUPS / 2).contains(&needed), "[DWR-1] a batch of {} pages", blocks.len());
        let failed = self.groups.iter().filter(|group| group.failed != 0).count();
        if failed + needed > FAILED_GROUPS_MAX && !self.retries(file, &blocks) {
            return Err(self.obstacle());
        }
        let free = (0..GROUPS).map(|step| (self.hand + step) % GROUPS);
        let free = free.filter(|group| self.groups[*group].live == 0);
        let taken = free.take(needed).fold(0, |taken, group| taken | 1_u64 << group);
        let taken = Groups(taken);
        if taken.count() < needed {
            return Err(self.obstacle());
        }
        let mut blocks = blocks;
        for at in taken.iter() {
            let group = &mut self.groups[at];
            let count = blocks.len().min(self.group_pages);
            assert!(group.live == 0, "[DWR-1] group {at} is in use");
            let live = u64::MAX >> (GROUP_PAGES_MAX - count);
            *group = Group { number: self.next_number, file, live, pending: live, ..EMPTY };
            group.blocks.iter_mut().zip(blocks.by_ref().take(count)).for_each(|(to, it)| *to = it);
            self.next_number += 1;
            self.hand = at + 1;
        }
        Ok(taken)
    }

    /// True when a write of one of these pages has failed before.
    fn retries(&self, file: FileId, blocks: &(impl Iterator<Item = Block> + Clone)) -> bool {
        let of_file = self.groups.iter().filter(|group| group.file == file && group.failed != 0);
        of_file
            .flat_map(|group| group.blocks_of(group.failed))
            .any(|(_, failed)| blocks.clone().any(|block| block == failed))
    }

    fn obstacle(&self) -> Obstacle {
        let ended = self.groups.iter().filter(|group| group.awaits_sync());
        if let Some(oldest) = ended.min_by_key(|group| group.number) {
            return Obstacle::Sync(oldest.file);
        }
        let writes = self.groups.iter().any(|group| group.pending != 0);
        if writes { Obstacle::Writes } else { Obstacle::Failures }
    }

    /// Slots kept because a write in place has failed.
    pub(super) fn failed_pages(&self) -> u32 {
        self.groups.iter().map(|group| group.failed.count_ones()).sum()
    }

    /// True when no slot is live.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.live == 0)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(super) fn table(&self) -> Table {
        Table(self.groups.each_ref().map(|group| (group.number, group.live)))
    }

    /// The batch never became durable here, so none of it is written in place: its groups are free.
    pub(super) fn release(&mut self, groups: Groups) {
        for group in groups.iter() {
            let it = &mut self.groups[group];
            assert!(
                it.pending == it.live,
                "[DWR-1] a page was written before its copy was durable"
            );
            (it.live, it.pending) = (0, 0);
        }
    }

    /// The fate of the batch is unknown: its groups are not reused.
    pub(super) fn lose(&mut self, groups: Groups) {
        for group in groups.iter() {
            let it = &mut self.groups[group];
            (it.failed, it.pending) = (it.live, 0);
        }
    }

    /// The batch is durable here: older slots of its pages, kept because a write in place has failed, are no longer
    /// needed ([DWR-2]).
    pub(super) fn protected(&mut self, groups: Groups) {
        if self.groups.iter().any(|group| group.failed != 0) {
            for group in groups.iter() {
                self.supersede(group, self.groups[group].live, |older| older.failed);
            }
        }
    }

    /// Frees the copies in groups older than `newer` of the pages in its `slots`, among those slots that `which`
    /// returns.
    fn supersede(&mut self, newer: usize, slots: u64, which: fn(&Group) -> u64) {
        let newer = self.groups[newer];
        for older in self.groups.iter_mut() {
            let among = which(older);
            if among == 0 || older.file != newer.file || older.number >= newer.number {
                continue;
            }
            for (bit, block) in older.blocks_of(among) {
                if newer.blocks_of(slots).any(|(_, it)| it == block) {
                    older.live &= !bit;
                    older.failed &= !bit;
                }
            }
        }
    }

    /// The write in place of the page in `slot` of `group` has ended, successfully or not. `changes`: the number of its
    /// file's changes, this one included.
    pub(super) fn ended(&mut self, group: usize, slot: u32, written: bool, changes: u64) {
        let (it, bit) = (&mut self.groups[group], 1 << slot);
        assert!(it.pending & bit != 0, "[DWR-1] the end of a write that was not under way");
        it.pending &= !bit;
        if written {
            it.ended = it.ended.max(changes);
        } else {
            it.failed |= bit;
        }
    }

    /// A sync of `file` has succeeded that was submitted after `changes` changes of it.
    pub(super) fn synced(&mut self, file: FileId, changes: u64) {
        let mut durable = [0; GROUPS];
        for (group, durable) in self.groups.iter_mut().zip(&mut durable) {
            if group.file == file && group.awaits_sync() && group.ended <= changes {
                *durable = group.live & !group.failed;
                group.live &= group.failed;
            }
        }
        // [DWR-2] A group that waits for other pages may hold older copies of these.
        for (group, durable) in (0..).zip(durable).filter(|(_, durable)| *durable != 0) {
            self.supersede(group, durable, |older| older.live & !older.pending);
        }
    }

    /// True when a sync of `file` would free groups.
    pub(super) fn awaits_sync(&self, file: FileId) -> bool {
        self.groups.iter().any(|group| group.file == file && group.awaits_sync())
    }

    /// The file is removed, and its pages with it.
    pub(super) fn forget(&mut self, file: FileId) {
        for group in self.groups.iter_mut().filter(|group| group.file == file) {
            assert!(group.pending == 0, "[DWR-1] a file went while its pages were written");
            (group.live, group.failed) = (0, 0);
        }
    }

    /// The file was truncated to `blocks` blocks, which the next sync makes durable: failed writes beyond that no
    /// longer matter.
    pub(super) fn truncated(&mut self, file: FileId, blocks: Block, changes: u64) {
        for group in self.groups.iter_mut().filter(|group| group.file == file) {
            let failed = group.blocks_of(group.failed).filter(|(_, block)| *block >= blocks);
            let beyond = failed.fold(0, |bits, (bit, _)| bits | bit);
            if beyond != 0 {
                group.failed &= !beyond;
                group.ended = group.ended.max(changes);
            }
        }
    }
}

impl std::fmt::Debug for GroupRing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let live = self.groups.iter().filter(|group| group.live != 0).count();
        out.debug_struct("GroupRing")
            .field("live", &live)
            .field("next_number", &self.next_number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
