//! The way down: optimistic, and after too many disturbances by latches.
//!
//! A descent holds nothing. At each node it searches in place by loads of single words, which may be nonsense if
//! somebody is changing the page, gets an optimistic guard of the child, and only then validates the node: a node
//! that is unchanged after its child's guard began did lead to that child, and the child's guard tells of whatever
//! becomes of the child from then on.
//!
//! A writer goes down the same way, and latches the last node alone. It may come too late: the node was split,
//! merged or freed in between. It need not ask the parents about that, because the node's own fences say which
//! keys belong to it ([DSC-2]).
//!
//! Invariants:  [DSC-1] nothing that was read optimistically is acted on before it is validated
//!              [DSC-2] the nodes of one level share out all keys: one that covers a key, in its level, is the
//!              one for it     [DSC-3] latches are taken from the root down, and no two nodes are latched that
//!              are not parent and child, or children of one latched parent, from left to right
//! Failure:     a pool too small to keep a path in memory, or writers without end, cannot starve a descent: it
//!              couples latches after `TRIES` disturbances.
//! Source:      optimistic lock coupling: Leis et al., The ART of Practical Synchronization (2016).

use forebay::{Block, Optimistic, PageMut, PageRef};

use crate::error::Result;
use crate::meta::{ROOT, damaged};
use crate::node::Node;
use crate::page::{Goal, Head, NODE, Slot, child, child_index, search};
use crate::tree::Tree;

/// Disturbed descents before latches are taken.
const TRIES: u32 = 8;

/// Of each node these bytes are fetched while its parent is validated: the header, and the slots of a page of 4 KiB with
/// records of 100 bytes. One after the other they would be three waits for memory; with them look-ups in memory took 0.76
/// of the time.
const FIRST_BYTES: usize = 384;

pub(crate) const WRONG_LEVEL: &str = "it is not a node of its level";

/// What came of something optimistic.
enum Seen<T> {
    /// This, all from one state.
    So(T),
    /// Somebody came between: begin again.
    Disturbed,
}

/// Where a descent ended.
#[derive(Debug, Clone, Copy)]
struct Found<'t> {
    guard: Optimistic<'t>,
    head: Head,
    /// The level of the root.
    top: u8,
}

impl Tree {
    /// What is wrong with the page of `guard`, if nobody has disturbed it.
    #[cold]
    fn odd<T>(&self, guard: &Optimistic<'_>, what: &'static str) -> Result<Seen<T>> {
        if guard.still_valid() {
            return Err(damaged(self.file(), guard.block(), what));
        }
        Ok(Seen::Disturbed)
    }

    /// The node of `level` that `goal` belongs to, or the root if that is lower.
    #[inline]
    fn glide(&self, goal: Goal<'_>, level: u8) -> Result<Seen<Found<'_>>> {
        let mut guard = self.file().optimistic(ROOT)?;
        let mut expected = None;
        let mut top = 0;
        loop {
            let Some(head) = Head::of(&guard) else { return self.odd(&guard, WRONG_LEVEL) };
            if head.kind != NODE || expected.is_some_and(|level| head.level != level) {
                return self.odd(&guard, WRONG_LEVEL);
            }
            if expected.is_none() {
                top = head.level;
            }
            if head.level <= level {
                return Ok(Seen::So(Found { guard, head, top }));
            }
            let found = child_index(&guard, head, goal).and_then(|at| child(&guard, at));
            let Some(below) = found else { return self.odd(&guard, "its entries make no sense") };
            // [DSC-1] Before a block is asked for that may be nonsense, and after its guard has begun.
            if !guard.still_valid() {
                return Ok(Seen::Disturbed);
            }
            let next = self.file().optimistic(below)?;
            next.fetch_lines(0..FIRST_BYTES);
            if !guard.still_valid() {
                return Ok(Seen::Disturbed);
            }
            expected = Some(head.level - 1);
            guard = next;
        }
    }

    /// Copies the value of `key` into `value`, in place of what is there. False if there is none.
    pub(crate) fn look_up(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        for _ in 0..TRIES {
            if let Seen::So(found) = self.look_up_once(key, value)? {
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
    fn look_up_once(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Seen<bool>> {
        let Found { guard, head, .. } = match self.glide(Goal::Key(key), 0)? {
            Seen::So(found) => found,
            Seen::Disturbed => return Ok(Seen::Disturbed),
        };
        let slot: Slot = match search(&guard, head, key) {
            Some(Ok((_, slot))) => slot,
            Some(Err(_)) if guard.still_valid() => {
                value.clear();
                return Ok(Seen::So(false));
            }
            Some(Err(_)) => return Ok(Seen::Disturbed),
            None => return self.odd(&guard, "its entries make no sense"),
        };
        if slot.at() + slot.value_len() > self.page_bytes() {
            return self.odd(&guard, "a value is not in it");
        }
        value.resize(slot.value_len(), 0);
        let whole = guard.read(slot.at(), value);
        Ok(if whole { Seen::So(true) } else { Seen::Disturbed })
    }

    /// The block of the node of `level` that `goal` belongs to, or of the root if that is lower, and the root's
    /// level; `None` after too many disturbances. By the time it is latched, it may be the wrong one.
    fn locate(&self, goal: Goal<'_>, level: u8) -> Result<Option<(Block, u8)>> {
        for _ in 0..TRIES {
            if let Seen::So(found) = self.glide(goal, level)?
                && found.guard.still_valid()
            {
                return Ok(Some((found.guard.block(), found.top)));
            }
        }
        Ok(None)
    }

    /// The node of `level` that `goal` belongs to, to read; the root if that is lower.
    pub(crate) fn read(&self, goal: Goal<'_>, level: u8) -> Result<PageRef<'_>> {
        for _ in 0..TRIES {
            let Some((block, _)) = self.locate(goal, level)? else { break };
            let page = self.file().read(block)?;
            if self.is_the_one(&page, block, goal, level) {
                return Ok(page);
            }
        }
        self.read_latched(goal, level)
    }

    /// The node of `level` that `goal` belongs to, to change; the root if that is lower.
    pub(crate) fn write(&self, goal: Goal<'_>, level: u8) -> Result<PageMut<'_>> {
        for _ in 0..TRIES {
            let Some((block, _)) = self.locate(goal, level)? else { break };
            let page = self.file().write(block)?;
            if self.is_the_one(&page, block, goal, level) {
                return Ok(page);
            }
        }
        self.write_latched(goal, level)
    }

    /// [DSC-2]
    fn is_the_one(&self, page: &[u8], block: Block, goal: Goal<'_>, level: u8) -> bool {
        Node::new(page).is_ok_and(|node| {
            let root_is_lower = block == ROOT && node.level() < level;
            root_is_lower || (node.level() == level && node.covers(goal))
        })
    }

    /// As [`Tree::read`], latch by latch.
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

    /// By latches, a node that does not cover what led to it is damaged. Believed, it would lead in circles.
    fn check_fences(&self, node: Node<'_>, block: Block, goal: Goal<'_>) -> Result<()> {
        if node.covers(goal) {
            return Ok(());
        }
        Err(damaged(self.file(), block, "its fences are not what led to it"))
    }

    /// As [`Tree::write`], latch by latch.
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
            // The root is no parent. It may be one by the time that it is latched.
            drop(parent);
            let page = self.file().write(ROOT)?;
            if self.node(&page, ROOT)?.level() <= level {
                return Ok(page);
            }
        }
    }

    /// The level of the root now.
    pub(crate) fn top(&self) -> Result<u8> {
        if let Some((_, top)) = self.locate(Goal::Last, 0)? {
            return Ok(top);
        }
        let page = self.file().read(ROOT)?;
        Ok(self.node(&page, ROOT)?.level())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::BufferPool;

    /// A writer that comes too late has the latch of a leaf that was the one when it looked: what it finds there is
    /// held against its key, its level, and what the block is now.
    #[test]
    fn dsc_2_a_leaf_that_is_no_longer_the_one_for_a_key_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let builder = BufferPool::builder().frames(64).page_size(4096_u64);
        let pool = builder.directory(directory.path()).build().unwrap();
        let tree = Tree::create(&pool, "tree").unwrap();
        for number in 0..500_u32 {
            tree.insert(&number.to_be_bytes(), &[7; 64]).unwrap();
        }
        let (low, high) = (0_u32.to_be_bytes(), 499_u32.to_be_bytes());
        let (low, high) = (Goal::Key(&low), Goal::Key(&high));
        let (leaf, top) = tree.locate(low, 0).unwrap().unwrap();
        let (other, _) = tree.locate(high, 0).unwrap().unwrap();
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
