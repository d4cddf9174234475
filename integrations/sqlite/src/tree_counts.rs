//! Page counts of each b-tree, for `forebay_stats`.
//!
//! A read is credited to the tree for which its page was predicted, or to which the page was found to belong. Trees are
//! counted by root while the schema stays. Before the schema may change, counts move to the trees' names, by which they
//! are reported.
//!
//! Invariants:  [TAL-1] each page read is counted once, for a tree or for none  [TAL-2] at most `TREES_MAX` names and
//!              as many roots have their own counts; further ones count as pages of no known tree
//! Concurrency: one owner.
//! Failure:     without memory for a name, its counts are added to those of no tree.

use std::time::Duration;

use forebay_lookahead::read_waited;

use crate::memory::{Grow, Map, NoMemory, filled, insert, text};

const TREES_MAX: usize = 1024;
/// Pages whose tree is remembered; more than may be ahead of a cursor.
const OWNERS: usize = 4096;
/// No file has this page.
const NO_PAGE: u32 = 0;

/// Counts of one tree, or of the pages whose tree is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pages that SQLite read from the file.
    pub(crate) reads: u64,
    /// Pages requested, and those of them that SQLite then read.
    pub(crate) prefetched: u64,
    pub(crate) useful: u64,
    /// Reads that did not wait, of pages that were not requested.
    pub(crate) resident: u64,
    /// Reads that waited for a device, and their total time.
    pub(crate) waits: u64,
    pub(crate) wait_ns: u64,
}

impl Counts {
    /// A timed read; `asked` if its page was requested.
    pub(crate) fn read(&mut self, read: Duration, asked: bool) {
        self.reads += 1;
        self.useful += u64::from(asked);
        if read_waited(read) {
            self.waits += 1;
            self.wait_ns += read.as_nanos() as u64;
        } else if !asked {
            self.resident += 1;
        }
    }

    pub(crate) fn add(&mut self, more: Counts) {
        self.reads += more.reads;
        self.prefetched += more.prefetched;
        self.useful += more.useful;
        self.resident += more.resident;
        self.waits += more.waits;
        self.wait_ns += more.wait_ns;
    }
}

#[derive(Debug, Default)]
pub(crate) struct TreeCounts {
    /// Counts of no tree.
    unknown: Counts,
    /// Sorted by name.
    by_name: Vec<(String, Counts)>,
    by_root: Map<u32, Counts>,
    /// Pages and the roots of their trees, each at the page number modulo `OWNERS`. Empty until the first is known.
    owners: Vec<(u32, u32)>,
}

impl TreeCounts {
    /// This page belongs to the tree with this root.
    pub(crate) fn belongs(&mut self, page: u32, root: u32) -> Result<(), NoMemory> {
        if self.owners.is_empty() {
            self.owners = filled((NO_PAGE, 0), OWNERS)?;
        }
        self.owners[page as usize % OWNERS] = (page, root);
        Ok(())
    }

    pub(crate) fn asked(&mut self, page: u32) -> Result<(), NoMemory> {
        self.of(page)?.prefetched += 1;
        Ok(())
    }

    pub(crate) fn read(&mut self, page: u32, read: Duration, asked: bool) -> Result<(), NoMemory> {
        self.of(page)?.read(read, asked); // [TAL-1]
        Ok(())
    }

    /// Counts of no tree.
    pub(crate) fn unknown(&mut self) -> &mut Counts {
        &mut self.unknown
    }

    /// The root of a page's tree, if it was recorded recently.
    pub(crate) fn root_of(&self, page: u32) -> Option<u32> {
        let (owned, root) = *self.owners.get(page as usize % OWNERS)?;
        (owned == page).then_some(root)
    }

    fn of(&mut self, page: u32) -> Result<&mut Counts, NoMemory> {
        let Some(root) = self.root_of(page) else { return Ok(&mut self.unknown) };
        if !self.by_root.contains_key(&root) {
            // [TAL-2]
            if self.by_root.len() >= TREES_MAX {
                return Ok(&mut self.unknown);
            }
            insert(&mut self.by_root, root, Counts::default())?;
        }
        Ok(self.by_root.get_mut(&root).unwrap_or(&mut self.unknown))
    }

    /// Discards which pages belong to which tree, as that may change.
    pub(crate) fn forget(&mut self) {
        self.owners = Vec::new();
    }

    /// Moves the counts by root to the names that `name` returns.
    pub(crate) fn settle<'a>(&mut self, name: impl Fn(u32) -> Option<&'a str>) {
        for (root, counts) in self.by_root.drain() {
            let of_name = name(root).and_then(|name| named(&mut self.by_name, name));
            of_name.unwrap_or(&mut self.unknown).add(counts);
        }
    }

    /// The counts by name, of the last `settle`; `None` is for pages of no known tree.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (Option<&str>, Counts)> {
        let named = self.by_name.iter().map(|(name, counts)| (Some(name.as_str()), *counts));
        std::iter::once((None, self.unknown)).chain(named)
    }
}

/// The counts of a name, if it may have its own and there is memory for them.
fn named<'a>(by_name: &'a mut Vec<(String, Counts)>, name: &str) -> Option<&'a mut Counts> {
    let at = match by_name.binary_search_by(|(it, _)| it.as_str().cmp(name)) {
        Ok(at) => at,
        Err(_) if by_name.len() >= TREES_MAX => return None, // [TAL-2]
        Err(at) => {
            by_name.grow_at(at, (text(name).ok()?, Counts::default())).ok()?;
            at
        }
    };
    by_name.get_mut(at).map(|(_, counts)| counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_micros(100);
    const FAST: Duration = Duration::from_micros(3);

    fn all(tree_counts: &TreeCounts) -> Vec<(Option<&str>, Counts)> {
        tree_counts.settled().collect()
    }

    #[test]
    fn each_read_is_credited_to_its_tree_or_to_none() {
        let mut tree_counts = TreeCounts::default();
        tree_counts.belongs(7, 2).unwrap();
        tree_counts.belongs(8, 3).unwrap();
        tree_counts.asked(7).unwrap();
        tree_counts.read(7, FAST, true).unwrap();
        tree_counts.read(8, SLOW, false).unwrap();
        tree_counts.read(9, FAST, false).unwrap();
        tree_counts.read(7 + OWNERS as u32, FAST, false).unwrap(); // the slot that remembers page 7
        tree_counts.settle(|root| (root == 2).then_some("t"));
        let t = Counts { reads: 1, prefetched: 1, useful: 1, ..Counts::default() };
        let none = Counts { reads: 3, resident: 2, waits: 1, wait_ns: 100_000, ..t };
        let none = Counts { prefetched: 0, useful: 0, ..none };
        assert_eq!(all(&tree_counts), [(None, none), (Some("t"), t)], "[TAL-1]");
    }

    #[test]
    fn a_name_keeps_its_counts_when_its_root_moves() {
        let mut tree_counts = TreeCounts::default();
        for root in [2, 9] {
            tree_counts.belongs(20, root).unwrap();
            tree_counts.read(20, FAST, false).unwrap();
            tree_counts.settle(|_| Some("t"));
            tree_counts.read(20, FAST, false).unwrap(); // a query for the counts changes none of them
            tree_counts.settle(|_| Some("t"));
            tree_counts.forget();
            tree_counts.read(20, FAST, false).unwrap(); // its tree is unknown again
        }
        let reads: Vec<_> =
            all(&tree_counts).iter().map(|(name, counts)| (*name, counts.reads)).collect();
        assert_eq!(reads, [(None, 2), (Some("t"), 4)]);
    }

    #[test]
    fn trees_beyond_the_bound_are_counted_together() {
        let mut tree_counts = TreeCounts::default();
        let names: Vec<String> = (0..3 * TREES_MAX).map(|root| root.to_string()).collect();
        for root in 0..3 * TREES_MAX as u32 {
            tree_counts.belongs(5, root).unwrap();
            tree_counts.read(5, FAST, false).unwrap();
            assert!(tree_counts.by_root.len() <= TREES_MAX, "[TAL-2]");
            if root % 500 == 0 {
                tree_counts.settle(|root| Some(&names[root as usize]));
            }
        }
        tree_counts.settle(|root| Some(&names[root as usize]));
        assert!(tree_counts.by_name.len() <= TREES_MAX, "[TAL-2]");
        let reads: u64 = tree_counts.settled().map(|(_, counts)| counts.reads).sum();
        assert_eq!(reads, 3 * TREES_MAX as u64, "[TAL-1]");
    }
}
