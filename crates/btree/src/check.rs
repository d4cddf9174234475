//! A check of the whole tree: whether it keeps its invariants, and what it consists of.

use forebay::Block;

use crate::error::Result;
use crate::meta::{self, META_BLOCK, ROOT, damaged};
use crate::tree::Tree;

/// Counts of a tree's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Levels, leaves included.
    pub levels: u32,
    /// Pages with entries.
    pub leaves: u64,
    /// Pages above the leaves.
    pub inner: u64,
    /// Free pages, available for reuse.
    pub free: u64,
    /// Keys with their values.
    pub entries: u64,
    /// Bytes in use in the leaves, their headers included.
    pub leaf_bytes: u64,
}

/// A node to visit.
struct Visit {
    block: Block,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Tree {
    /// Reads every page and checks that the levels, fences and keys of all of them are consistent, and that every block
    /// in use occurs once. Changes wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) for the first inconsistency; [`Error::Pool`](crate::Error::Pool).
    pub fn check(&self) -> Result<Census> {
        let _alone = self.alone();
        let (used, mut free) = meta::counts(self.file())?;
        let mut seen = vec![false; used as usize];
        let mut visit = |block: Block| match seen.get_mut(block as usize) {
            Some(seen) if !*seen => {
                *seen = true;
                Ok(())
            }
            _ => Err(damaged(self.file(), block, "it is there twice, or not in use")),
        };
        visit(META_BLOCK)?;
        let mut census = Census::default();
        while free != 0 {
            visit(free)?;
            census.free += 1;
            free = meta::next_free(self.file(), free)?;
        }
        let top = self.top()?;
        census.levels = u32::from(top) + 1;
        let mut left = vec![Visit { block: ROOT, level: top, lower: Vec::new(), upper: None }];
        while let Some(it) = left.pop() {
            visit(it.block)?;
            self.visit(&it, &mut left, &mut census)?;
        }
        match seen.iter().position(|seen| !seen) {
            Some(block) => Err(damaged(self.file(), block as Block, "nothing leads to it")),
            None => Ok(census),
        }
    }

    fn visit(&self, it: &Visit, left: &mut Vec<Visit>, census: &mut Census) -> Result<()> {
        let page = self.file().read(it.block)?;
        let node = self.node(&page, it.block)?;
        let broken = |what| Err(damaged(self.file(), it.block, what));
        if node.level() != it.level {
            return broken("it is not of its level");
        }
        if node.lower() != it.lower || node.upper() != it.upper.as_deref() {
            return broken("its fences are not those of its parent's entries");
        }
        let keys: Vec<Vec<u8>> = (0..node.count()).map(|at| node.key(at)).collect();
        if !keys.is_sorted_by(|one, next| one < next) {
            return broken("its keys do not ascend");
        }
        let above = node.upper();
        let ends = [keys.first(), keys.last()];
        if ends.into_iter().flatten().any(|key| {
            key.as_slice() < node.lower() || above.is_some_and(|upper| key.as_slice() >= upper)
        }) {
            return broken("it has a key that is not between its fences");
        }
        if node.level() == 0 {
            census.leaves += 1;
            census.entries += keys.len() as u64;
            census.leaf_bytes += node.used() as u64;
            return Ok(());
        }
        census.inner += 1;
        for index in 0..=keys.len() {
            let lower = index.checked_sub(1).map_or(&it.lower, |before| &keys[before]).clone();
            let upper = keys.get(index).or(it.upper.as_ref()).cloned();
            left.push(Visit { block: node.child(index), level: it.level - 1, lower, upper });
        }
        Ok(())
    }
}
