//! Descent: optimistic, or with latches after too many disturbances.
//!
//! A descent holds no latch. At each node it searches in place by loads of single words, which may be garbage if
//! another thread is changing the page: [`Optimistic::inspect`] detects that when the search is over. Then it takes an
//! optimistic guard of the child and validates the node again: a node that is unchanged after its child's guard began
//! did lead to that child, and the child's guard detects any change of the child from then on.
//!
//! A writer descends in the same way, and latches only the last node. It may be too late: the node may have been split,
//! merged or freed in between. The writer need not read the parents again, because the node's own fences say which keys
//! belong to it ([DSC-2]).
//!
//! Invariants:  [DSC-1] nothing that was read optimistically is used before it is validated
//!              [DSC-2] the nodes of one level partition all keys: the node of a level that covers a key is the right
//!              one for it
//!              [DSC-3] latches are taken from the root down, and two nodes are latched at once only if they are parent
//!              and child, or children of one latched parent, from left to right
//! Failure:     a pool too small to keep a path in memory, or an endless series of writers, cannot starve a descent: it
//!              couples latches after `TRIES` disturbances.
//! Source:      optimistic lock coupling: Leis et al., The ART of Practical Synchronization (2016).

use std::ops::ControlFlow;

use forebay::{Block, Optimistic, PageMut, PageRef};

use crate::error::Result;
use crate::meta::{ROOT, damaged};
use crate::node::{NONSENSE, Node};
use crate::page::{Goal, Head, NODE, child, child_index, search};
use crate::tree::Tree;

/// Number of disturbed descents before latches are taken.
const TRIES: u32 = 8;

/// These bytes of each node are prefetched while its parent is validated: the header and the first 21 slots. Fetched one
/// after another they would be three waits for memory; with the prefetch, look-ups in memory took 0.76 of the time (when
/// slots had half their length, so that it covered a page of 4 KiB with records of 100 bytes).
const FIRST_BYTES: usize = 384;

pub(crate) const WRONG_LEVEL: &str = "it is not a node of its level";

impl Tree {
    /// Finds the node of `level` that `goal` belongs to, or the root if that is lower, and returns what `read` reads in
    /// it. `None` if another thread interfered: begin again.
    #[inline]
    fn glide<R>(
        &self,
        goal: Goal<'_>,
        level: u8,
        read: impl Fn(&Optimistic<'_>, Head) -> Option<R>,
    ) -> Result<Option<(Optimistic<'_>, R)>> {
        let mut guard = self.file().optimistic(ROOT)?;
        let mut expected = None;
        loop {
            // [DSC-1] Validate before requesting a block whose number may be garbage.
            let step = guard.inspect(|page| {
                let head = Head::of(page).filter(|head| head.kind == NODE).ok_or(WRONG_LEVEL)?;
                if expected.is_some_and(|level| head.level != level) {
                    return Err(WRONG_LEVEL);
                }
                if head.level <= level {
                    return read(page, head).map(ControlFlow::Break).ok_or(NONSENSE);
                }
                let below = child_index(page, head, goal).and_then(|at| child(page, at));
                below.map(|below| ControlFlow::Continue((below, head.level - 1))).ok_or(NONSENSE)
            });
            let Some(step) = step else { return Ok(None) };
            match step.map_err(|what| damaged(self.file(), guard.block(), what))? {
                ControlFlow::Break(found) => return Ok(Some((guard, found))),
                ControlFlow::Continue((below, level)) => {
                    let next = self.file().optimistic(below)?;
                    next.fetch_lines(0..FIRST_BYTES);
                    // [DSC-1] And again after the child's guard has begun.
                    if !guard.still_valid() {
                        return Ok(None);
                    }
                    (expected, guard) = (Some(level), next);
                }
            }
        }
    }

    /// Copies the value of `key` into `value`, replacing its contents. Returns false if the key does not exist.
    pub(crate) fn look_up(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        for _ in 0..TRIES {
            if let Some(found) = self.look_up_once(key, value)? {
                return Ok(found);
            }
        }
        let page = self.read_latched(Goal::Key(key), 0)?;
        let node = self.node(&page, page.block())?;
        value.clear();
        Ok(node.find(key).is_ok_and(|at| {
            value.extend_from_slice(node.value(at));
            true
        }))
    }

    #[inline]
    fn look_up_once(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<bool>> {
        let found = self.glide(Goal::Key(key), 0, |leaf, head| search(leaf, head, key))?;
        let Some((leaf, place)) = found else { return Ok(None) };
        let Ok((_, slot)) = place else {
            value.clear();
            return Ok(Some(false));
        };
        if slot.at() + slot.value_len() > self.page_bytes() {
            return Err(damaged(self.file(), leaf.block(), "a value is not in it"));
        }
        value.resize(slot.value_len(), 0);
        Ok(leaf.read(slot.at(), value).then_some(true))
    }

    /// The block of the node of `level` that `goal` belongs to, or of the root if that is lower; `None` after too many
    /// disturbances. By the time it is latched, it may be the wrong one.
    fn locate(&self, goal: Goal<'_>, level: u8) -> Result<Option<Block>> {
        for _ in 0..TRIES {
            if let Some((guard, ())) = self.glide(goal, level, |_, _| Some(()))? {
                return Ok(Some(guard.block()));
            }
        }
        Ok(None)
    }

    /// The node of `level` that `goal` belongs to, latched shared; the root if that is lower.
    pub(crate) fn read(&self, goal: Goal<'_>, level: u8) -> Result<PageRef<'_>> {
        for _ in 0..TRIES {
            let Some(block) = self.locate(goal, level)? else { break };
            let page = self.file().read(block)?;
            if self.is_the_one(&page, block, goal, level) {
                return Ok(page);
            }
        }
        self.read_latched(goal, level)
    }

    /// The node of `level` that `goal` belongs to, latched exclusively; the root if that is lower.
    pub(crate) fn write(&self, goal: Goal<'_>, level: u8) -> Result<PageMut<'_>> {
        for _ in 0..TRIES {
            let Some(block) = self.locate(goal, level)? else { break };
            let page = self.file().write(block)?;
            if self.is_the_one(&page, block, goal, level) {
                return Ok(page);
            }
        }
        self.write_latched(goal, level)
    }

    /// [DSC-2]
    fn is_the_one(&self, page: &[u8], block: Block, goal: Goal<'_>, level: u8) -> bool {
        Node::header(page).is_ok_and(|node| {
            let root_is_lower = block == ROOT && node.level() < level;
            root_is_lower || (node.level() == level && node.covers(goal))
        })
    }

    /// Like [`Tree::read`], by latch coupling.
    fn read_latched(&self, goal: Goal<'_>, level: u8) -> Result<PageRef<'_>> {
        let mut page = self.file().read(ROOT)?;
        loop {
            let node = self.node(&page, page.block())?;
            if node.level() <= level {
                self.check_fences(node, page.block(), goal)?;
                return Ok(page);
            }
            let (below, expected) = (node.child(node.child_index(goal)), node.level() - 1);
            if below == page.block() {
                return Err(damaged(self.file(), below, WRONG_LEVEL));
            }
            let next = self.file().read(below)?;
            if self.node(&next, below)?.level() != expected {
                return Err(damaged(self.file(), below, WRONG_LEVEL));
            }
            page = next;
        }
    }

    /// With latches held, a node that does not cover the key that led to it is damaged. Trusting it would lead in
    /// circles.
    fn check_fences(&self, node: Node<'_>, block: Block, goal: Goal<'_>) -> Result<()> {
        if node.covers(goal) {
            return Ok(());
        }
        Err(damaged(self.file(), block, "its fences are not what led to it"))
    }

    /// Like [`Tree::write`], by latch coupling.
    fn write_latched(&self, goal: Goal<'_>, level: u8) -> Result<PageMut<'_>> {
        loop {
            let parent = self.read_latched(goal, level + 1)?;
            let node = self.node(&parent, parent.block())?;
            if node.level() == level + 1 {
                let below = node.child(node.child_index(goal));
                if below == parent.block() {
                    return Err(damaged(self.file(), below, WRONG_LEVEL));
                }
                let page = self.file().write(below)?;
                let node = self.node(&page, below)?;
                if node.level() != level {
                    return Err(damaged(self.file(), below, WRONG_LEVEL));
                }
                self.check_fences(node, below, goal)?;
                return Ok(page);
            }
            // The root is not a parent here, but may have become one by the time it is latched.
            drop(parent);
            let page = self.file().write(ROOT)?;
            if self.node(&page, ROOT)?.level() <= level {
                return Ok(page);
            }
        }
    }

    /// The current level of the root.
    pub(crate) fn top(&self) -> Result<u8> {
        let head = self.file().inspect(ROOT, |root| Head::of(root))?;
        let node = head.filter(|head| head.kind == NODE);
        Ok(node.ok_or_else(|| damaged(self.file(), ROOT, WRONG_LEVEL))?.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::{BufferPool, Checksum, TornPages};

    /// A writer that is too late holds the latch of a leaf that was the right one when it searched: the leaf is checked
    /// against its key, its level, and the current use of the block.
    #[test]
    fn dsc_2_a_leaf_that_is_no_longer_the_one_for_a_key_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let builder = BufferPool::builder().frames(64).page_size(4096_u64);
        let builder = builder.checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
        let pool = builder.directory(directory.path()).build().unwrap();
        let tree = Tree::create(&pool, "tree").unwrap();
        for number in 0..500_u32 {
            tree.insert(&number.to_be_bytes(), &[7; 64]).unwrap();
        }
        let (low, high) = (0_u32.to_be_bytes(), 499_u32.to_be_bytes());
        let (low, high) = (Goal::Key(&low), Goal::Key(&high));
        let leaf = tree.locate(low, 0).unwrap().unwrap();
        let other = tree.locate(high, 0).unwrap().unwrap();
        let top = tree.top().unwrap();
        assert!(leaf != other && top == 1, "{leaf}, {other}, {top}");
        let page = tree.file().read(leaf).unwrap();
        assert!(tree.is_the_one(&page, leaf, low, 0));
        assert!(!tree.is_the_one(&page, leaf, high, 0), "split: the key is in the other one now");
        assert!(!tree.is_the_one(&page, leaf, low, 1), "freed, and used again in another level");
        assert!(!tree.is_the_one(&[0; 4096], leaf, low, 0), "freed");
        let root = tree.file().read(ROOT).unwrap();
        assert!(!tree.is_the_one(&root, ROOT, low, 0), "the root has grown");
        assert!(tree.is_the_one(&root, ROOT, low, 2), "a root that is lower is the one");
    }
}
