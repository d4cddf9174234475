//! Splits and merges: one step each, under the latches of a parent and its children.
//!
//! A writer whose leaf is full releases it and splits it: the parent is found by the same descent as the leaf, and
//! latched before the leaf. A parent that has no space for the new fence is split first, by the same step one level up,
//! and then everything is checked again. So no thread ever holds a whole path; a split of a leaf disturbs readers in
//! one inner node, not in the root.
//!
//! ```text
//!        parent  [ .. c | h .. ]                  parent  [ .. c | f | h .. ]
//!                     |              becomes                  |    |
//!        child   [c .. d e f g )                  child  [c d e)  [f g h)  new
//! ```
//!
//! Removals merge lazily: a node that becomes less than a quarter full, or empty, is joined with a neighbour below the
//! same parent if both fit into one page, and its block is freed. Otherwise it stays, until it is empty.
//!
//! Invariants:  [RST-1] after each step, and whenever no latch is held, the nodes of a level partition all keys, and
//!              each parent's entries are its children's fences
//! Concurrency: as in [`crate::descend`]; the meta page's latch comes last.

use forebay::{Block, PageMut};

use crate::descend::WRONG_LEVEL;
use crate::error::Result;
use crate::meta::{self, ROOT, damaged};
use crate::node::{Node, NodeMut, Shape, common, prefix_of, separator, shape_of};
use crate::page::{CHILD, Goal};
use crate::record::{Change, Entry};
use crate::tree::{ENDLESS, ROUNDS_MAX, Tree};

const TWICE: &str = "its entries name a page that is latched already";

/// A node split in two: the pages' bytes, and the fence between them.
struct Halves {
    left: Vec<u8>,
    right: Vec<u8>,
    fence: Vec<u8>,
}

impl Tree {
    /// Splits the node of `level` that `key` belongs to, until `room` returns true for it.
    pub(crate) fn split(
        &self,
        level: u8,
        key: &[u8],
        room: &dyn Fn(Node<'_>) -> bool,
    ) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let mut parent = self.write(Goal::Key(key), level + 1)?;
            let above = self.node(&parent, parent.block())?;
            if above.level() <= level {
                // The root itself, or the tree has lost levels meanwhile.
                if above.level() < level || room(above) {
                    return Ok(());
                }
                self.split_root(parent, key)?;
                continue;
            }
            let index = above.child_index(Goal::Key(key));
            let mut page = self.child(parent.block(), above.child(index))?;
            let node = self.child_node(&page, level)?;
            if room(node) {
                return Ok(());
            }
            let halves = self.cut(node, key, &page)?;
            if !above.fits(&halves.fence, CHILD) {
                drop((page, parent));
                let fence = &halves.fence;
                self.split(level + 1, fence, &|above| above.fits(fence, CHILD))?;
                continue;
            }
            let mut meta = meta::latch(self.file())?;
            let mut right = meta::allocate(self.file(), &mut meta)?;
            right.copy_from_slice(&halves.right);
            page.copy_from_slice(&halves.left);
            let child = right.block().to_le_bytes();
            let done = NodeMut::checked(&mut parent).insert(index, &halves.fence, &child);
            assert_eq!(done, Ok(true), "[NOD-3] there was room for the fence");
            let fence = Change::Entry(Entry::Put { key: &halves.fence, value: &child });
            self.note(&mut [
                (&mut right, Change::Page),
                (&mut page, Change::Page),
                (&mut parent, fence),
                (&mut meta, Change::Page),
            ]);
        }
        Err(damaged(self.file(), ROOT, ENDLESS))
    }

    /// The root stays in its block, and its two halves become its children.
    fn split_root<'t>(&'t self, mut root: PageMut<'t>, key: &[u8]) -> Result<()> {
        let node = self.node(&root, ROOT)?;
        let level = node.level() + 1;
        let halves = self.cut(node, key, &root)?;
        let mut meta = meta::latch(self.file())?;
        let mut left = meta::allocate(self.file(), &mut meta)?;
        left.copy_from_slice(&halves.left);
        let mut right = meta::allocate(self.file(), &mut meta)?;
        right.copy_from_slice(&halves.right);
        let shape =
            Shape { level, lower: &[], upper: None, first_child: left.block(), prefix: &[] };
        let done = NodeMut::lay_out(&mut root, shape)
            .is_some_and(|mut node| node.push(&halves.fence, &right.block().to_le_bytes()));
        assert!(done, "[NOD-3] one entry fits");
        let pages = [&mut root, &mut left, &mut right, &mut meta];
        self.note(&mut pages.map(|page| (page, Change::Page)));
        Ok(())
    }

    /// Divides `node`, which has no space for `key`.
    fn cut(&self, node: Node<'_>, key: &[u8], page: &PageMut<'_>) -> Result<Halves> {
        let (leaf, count) = (node.level() == 0, node.count());
        // Keys inserted in ascending order leave full pages behind.
        let ascending = leaf && node.upper().is_none() && node.find(key) == Err(count);
        let cuts = [Some(count).filter(|_| ascending && count > 0), node.middle()];
        let mut halves = cuts.into_iter().flatten().filter_map(|cut| {
            let fence = match (leaf, cut < count) {
                (false, _) => node.key(cut),
                (true, true) => separator(&node.key(cut - 1), &node.key(cut)).to_vec(),
                (true, false) => separator(&node.key(cut - 1), key).to_vec(),
            };
            let mut halves =
                Halves { left: vec![0; page.len()], right: vec![0; page.len()], fence };
            let (left, right) = (0..cut, cut + usize::from(!leaf)..count);
            let prefix = prefix_of(node, left.clone());
            let shape = Shape { upper: Some(&halves.fence), prefix: &prefix, ..shape_of(node) };
            let fits = NodeMut::lay_out(&mut halves.left, shape)
                .is_some_and(|mut half| half.extend(node, left));
            let prefix = prefix_of(node, right.clone());
            let first_child = if leaf { 0 } else { node.child(cut + 1) };
            let shape =
                Shape { lower: &halves.fence, prefix: &prefix, first_child, ..shape_of(node) };
            let fits = fits
                && NodeMut::lay_out(&mut halves.right, shape)
                    .is_some_and(|mut half| half.extend(node, right));
            fits.then_some(halves)
        });
        let broken = || damaged(self.file(), page.block(), "it is full and cannot be split");
        halves.next().ok_or_else(broken)
    }

    /// Joins the node of `level` that `key` belongs to with a neighbour, if it is sparse and both fit into a page.
    /// Returns true if any nodes were joined.
    pub(crate) fn merge(&self, level: u8, key: &[u8]) -> Result<bool> {
        let mut parent = self.write(Goal::Key(key), level + 1)?;
        let above = self.node(&parent, parent.block())?;
        if above.level() <= level {
            return self.lower_root(parent);
        }
        let Some(last) = above.count().checked_sub(1) else {
            // An only child; its parent has neighbours, or is the root.
            drop(parent);
            return Ok(self.merge(level + 1, key)? && self.merge(level, key)?);
        };
        let index = above.child_index(Goal::Key(key));
        // With its right neighbour; the last child with its left one.
        let at = index.min(last);
        let mut left_page = self.child(parent.block(), above.child(at))?;
        let mut right_page = self.child(left_page.block(), above.child(at + 1))?;
        let left = self.child_node(&left_page, level)?;
        let right = self.child_node(&right_page, level)?;
        if !self.is_sparse(if index == at { left } else { right }) {
            return Ok(false);
        }
        let mut joined = vec![0; self.page_bytes()];
        let fence = above.key(at);
        if !join(&mut joined, left, &fence, right) {
            return Ok(false);
        }
        let mut meta = meta::latch(self.file())?;
        left_page.copy_from_slice(&joined);
        NodeMut::checked(&mut parent).remove(at);
        meta::free(&mut meta, &mut right_page);
        self.note(&mut [
            (&mut left_page, Change::Page),
            (&mut parent, Change::Entry(Entry::Remove { key: &fence })),
            (&mut right_page, Change::Page),
            (&mut meta, Change::Page),
        ]);
        drop((left_page, right_page, meta));
        let sparse = self.is_sparse(self.node(&parent, parent.block())?);
        drop(parent);
        if sparse {
            self.merge(level + 1, key)?;
        }
        Ok(true)
    }

    /// Replaces a root that has an only child with that child.
    fn lower_root<'t>(&'t self, mut root: PageMut<'t>) -> Result<bool> {
        let mut lowered = false;
        loop {
            let node = self.node(&root, ROOT)?;
            if node.level() == 0 || node.count() > 0 {
                return Ok(lowered);
            }
            let mut page = self.child(ROOT, node.child(0))?;
            self.child_node(&page, node.level() - 1)?;
            let mut meta = meta::latch(self.file())?;
            root.copy_from_slice(&page);
            meta::free(&mut meta, &mut page);
            self.note(&mut [&mut root, &mut page, &mut meta].map(|page| (page, Change::Page)));
            lowered = true;
        }
    }

    /// Latches a child of a latched parent. `held`: a block that is already latched and cannot be the child.
    fn child(&self, held: Block, block: Block) -> Result<PageMut<'_>> {
        // [DSC-3] The thread would wait for itself.
        if block == held || block == ROOT {
            return Err(damaged(self.file(), held, TWICE));
        }
        Ok(self.file().write(block)?)
    }

    /// The node of `level` in a latched child.
    fn child_node<'a>(&self, page: &'a PageMut<'_>, level: u8) -> Result<Node<'a>> {
        let node = self.node(page, page.block())?;
        if node.level() != level {
            return Err(damaged(self.file(), page.block(), WRONG_LEVEL));
        }
        Ok(node)
    }
}

/// Lays out all of `left` and `right` in `page`, if they fit.
fn join(page: &mut [u8], left: Node<'_>, fence: &[u8], right: Node<'_>) -> bool {
    let leaf = left.level() == 0;
    let first = if left.count() > 0 { left.key(0) } else { fence.to_vec() };
    let last = if right.count() > 0 { right.key(right.count() - 1) } else { fence.to_vec() };
    let prefix = match (leaf, left.count(), right.count()) {
        (true, 0, 0) => &[],
        (true, 0, _) => right.prefix(),
        (true, _, 0) => left.prefix(),
        _ => &first[..common(&first, &last)],
    };
    let shape = Shape { upper: right.upper(), prefix, ..shape_of(left) };
    let Some(mut node) = NodeMut::lay_out(page, shape) else { return false };
    node.extend(left, 0..left.count())
        && (leaf || node.push(fence, &right.child(0).to_le_bytes()))
        && node.extend(right, 0..right.count())
}
