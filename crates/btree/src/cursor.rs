//! Cursors: the entries of a range, forward or backward, with the next leaves read ahead.
//!
//! A cursor copies a leaf under its latch and then holds no latch, so its owner may do anything between two entries,
//! including changing the tree. From the copy the cursor knows where the next leaf begins: at the upper fence; or,
//! backward, that it ends at the lower one. That key is all it needs to continue, whatever was split or merged
//! meanwhile; there are no links between leaves to maintain.
//!
//! A range that ends within one leaf makes no requests ahead. At the second leaf a cursor creates a stream of the pool:
//! its blocks come from [`Leaves`], which reads the lowest inner nodes and returns their children, up to the end of the
//! range. The stream requests them in large requests, as far ahead as is useful. A leaf from the stream is checked
//! before it is used: if it is not the one that covers the next key, the tree has changed since its parent was read,
//! and the cursor descends from the root and begins another stream.
//!
//! Invariants:  [CUR-1] keys are returned in strict order, each once
//!              [CUR-2] an entry that exists for the cursor's whole life is returned; one that is inserted or removed
//!              meanwhile may be returned or not
//!              [CUR-3] nothing beyond the range is requested, except for entries that share a leaf with its end
//! Concurrency: one owner. It holds pins of the pages that its stream has read, and no latch.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;

use forebay::{Block, ReadStream};

use crate::error::Result;
use crate::meta::damaged;
use crate::node::Node;
use crate::page::Goal;
use crate::tree::Tree;

/// The direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// In ascending key order.
    Forward,
    /// In descending key order.
    Backward,
}

/// Where the next leaf is.
#[derive(Debug, Clone)]
enum Edge {
    /// It contains this key, or would contain it.
    From(Vec<u8>),
    /// It contains the greatest key below this one.
    Below(Vec<u8>),
    /// It is the last leaf.
    Last,
}

impl Edge {
    fn goal(&self) -> Goal<'_> {
        match self {
            Edge::From(key) => Goal::Key(key),
            Edge::Below(key) => Goal::Below(key),
            Edge::Last => Goal::Last,
        }
    }
}

/// A range of keys, and the direction.
#[derive(Debug, Clone)]
struct Range {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
}

impl Range {
    /// `None` if the range is empty.
    fn start(&self) -> Option<Edge> {
        Some(match (self.direction, &self.lower, &self.upper) {
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key), _) => {
                Edge::From(key.clone())
            }
            (Direction::Forward, Bound::Unbounded, _) => Edge::From(Vec::new()),
            (Direction::Backward, _, Bound::Included(key)) => Edge::From(key.clone()),
            (Direction::Backward, _, Bound::Excluded(key)) if key.is_empty() => return None,
            (Direction::Backward, _, Bound::Excluded(key)) => Edge::Below(key.clone()),
            (Direction::Backward, _, Bound::Unbounded) => Edge::Last,
        })
    }

    /// Where the part after `node` begins, if some of it is in the range. `node`: a leaf, or an inner node that stands
    /// for all leaves below it.
    fn after(&self, node: Node<'_>) -> Option<Edge> {
        match self.direction {
            Direction::Forward => {
                let fence = node.upper()?;
                self.reaches_up_to(fence).then(|| Edge::From(fence.to_vec()))
            }
            Direction::Backward => {
                let fence = node.lower();
                (!fence.is_empty() && self.reaches_below(fence))
                    .then(|| Edge::Below(fence.to_vec()))
            }
        }
    }

    /// Whether `key` itself may be in the range, judged by the range's upper end.
    fn reaches_up_to(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether keys below `key` may be in the range, judged by its lower end.
    fn reaches_below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => lower.as_slice() < key,
            Bound::Unbounded => true,
        }
    }

    /// The slots of a leaf that are in the range.
    fn slots(&self, leaf: Node<'_>) -> std::ops::Range<usize> {
        let place = |key: &[u8], behind: bool| match leaf.find(key) {
            Ok(at) => at + usize::from(behind),
            Err(at) => at,
        };
        let start = match &self.lower {
            Bound::Included(key) => place(key, false),
            Bound::Excluded(key) => place(key, true),
            Bound::Unbounded => 0,
        };
        let end = match &self.upper {
            Bound::Included(key) => place(key, true),
            Bound::Excluded(key) => place(key, false),
            Bound::Unbounded => leaf.count(),
        };
        start..end
    }
}

/// An iterator over the entries of a range: see [`Tree::range`].
pub struct Cursor<'t> {
    tree: &'t Tree,
    range: Range,
    /// A copy of the current leaf.
    leaf: Vec<u8>,
    /// Its slots that have not been returned yet.
    slots: std::ops::Range<usize>,
    key: Vec<u8>,
    next: Option<Edge>,
    leaves_seen: u64,
    /// Leaves that a stream returned.
    streamed: u64,
    ahead: Option<ReadStream<'t, Leaves<'t>>>,
}

impl Tree {
    /// Creates a cursor over the keys between `lower` and `upper`, in `direction`.
    ///
    /// ```
    /// # use std::ops::Bound;
    /// # use forebay::BufferPool;
    /// # use forebay_btree::{Direction, Tree};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let builder = BufferPool::builder().frames(64).checksum(forebay::Checksum::Off);
    /// # let builder = builder.torn_pages(forebay::TornPages::Unprotected);
    /// # let pool = builder.directory(directory.path()).build()?;
    /// let tree = Tree::create(&pool, "fruit")?;
    /// for (name, color) in [("apple", "red"), ("lemon", "yellow"), ("plum", "blue")] {
    ///     tree.insert(name.as_bytes(), color.as_bytes())?;
    /// }
    /// let below_p = Bound::Excluded(&b"p"[..]);
    /// let mut cursor = tree.range(Bound::Unbounded, below_p, Direction::Backward);
    /// assert_eq!(cursor.next_entry()?, Some((&b"lemon"[..], &b"yellow"[..])));
    /// assert_eq!(cursor.next_entry()?, Some((&b"apple"[..], &b"red"[..])));
    /// assert_eq!(cursor.next_entry()?, None);
    /// # drop(cursor);
    /// # tree.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Cursor<'_> {
        let range =
            Range { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec), direction };
        Cursor {
            tree: self,
            next: range.start(),
            range,
            leaf: Vec::new(),
            slots: 0..0,
            key: Vec::new(),
            leaves_seen: 0,
            streamed: 0,
            ahead: None,
        }
    }
}

impl Cursor<'_> {
    /// Returns the next key and its value; `None` at the end of the range. They are copies and stay valid until the
    /// next call.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool), [`Error::Damaged`](crate::Error::Damaged): if called again, the cursor
    /// tries again.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            let slot = match self.range.direction {
                Direction::Forward => self.slots.next(),
                Direction::Backward => self.slots.next_back(),
            };
            if let Some(slot) = slot {
                let leaf = Node::trusted(&self.leaf);
                leaf.key_into(slot, &mut self.key);
                return Ok(Some((&self.key, leaf.value(slot))));
            }
            let Some(edge) = self.next.clone() else { return Ok(None) };
            self.turn(&edge)?;
        }
    }

    /// How many leaves this cursor has reached, and how many of them the pool had prefetched or cached.
    pub fn leaves(&self) -> (u64, u64) {
        (self.leaves_seen, self.streamed)
    }

    /// Moves to the leaf at `edge`.
    fn turn(&mut self, edge: &Edge) -> Result<()> {
        if self.ahead.is_none() && self.leaves_seen > 0 {
            let leaves = Leaves::new(self.tree, self.range.clone(), edge.clone());
            self.ahead = Some(self.tree.file_ahead().stream(leaves));
        }
        let page = self.ahead.as_mut().and_then(Iterator::next);
        // If an error of the stream persists, the descent returns it as well.
        if let Some(Ok(it)) = page
            && let Ok(node) = Node::new(&it)
            && node.level() == 0
            && node.covers(edge.goal())
        {
            self.streamed += 1;
            self.leaf.clear();
            self.leaf.extend_from_slice(&it);
        } else {
            self.ahead = None;
            let page = self.tree.read(edge.goal(), 0)?;
            self.tree.node(&page, page.block())?;
            self.leaf.clear();
            self.leaf.extend_from_slice(&page);
        }
        self.leaves_seen += 1;
        let leaf = Node::trusted(&self.leaf);
        let mut slots = self.range.slots(leaf);
        // If a merge has made the leaf larger, skip the entries already returned.
        match edge {
            Edge::From(key) if self.range.direction == Direction::Forward => {
                slots.start = slots.start.max(leaf.find(key).unwrap_or_else(|at| at));
            }
            Edge::Below(key) => {
                slots.end = slots.end.min(leaf.find(key).unwrap_or_else(|at| at));
            }
            _ => {}
        }
        self.slots = slots;
        self.next = self.range.after(leaf);
        Ok(())
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Cursor")
            .field("range", &self.range)
            .field("leaves_seen", &self.leaves_seen)
            .finish_non_exhaustive()
    }
}

/// The blocks of the leaves of a range, starting at an edge, as listed in the lowest inner nodes.
pub(crate) struct Leaves<'t> {
    tree: &'t Tree,
    range: Range,
    /// Where the next inner node is.
    next: Option<Edge>,
    blocks: VecDeque<Block>,
}

impl<'t> Leaves<'t> {
    fn new(tree: &'t Tree, range: Range, from: Edge) -> Leaves<'t> {
        Leaves { tree, range, next: Some(from), blocks: VecDeque::new() }
    }

    /// Adds the children of the inner node at `edge`.
    fn read(&mut self, edge: &Edge) -> Result<()> {
        let page = self.tree.read(edge.goal(), 1)?;
        let node = self.tree.node(&page, page.block())?;
        if node.level() != 1 {
            return Err(damaged(self.tree.file(), page.block(), "it has no leaves below it"));
        }
        let (first, count) = (node.child_index(edge.goal()), node.count());
        let mut fence = Vec::new();
        // [CUR-3]
        match self.range.direction {
            Direction::Forward => {
                self.blocks.push_back(node.child(first));
                for index in first + 1..=count {
                    node.key_into(index - 1, &mut fence);
                    if !self.range.reaches_up_to(&fence) {
                        return Ok(());
                    }
                    self.blocks.push_back(node.child(index));
                }
            }
            Direction::Backward => {
                for index in (0..=first).rev() {
                    self.blocks.push_back(node.child(index));
                    if index > 0 {
                        node.key_into(index - 1, &mut fence);
                        if !self.range.reaches_below(&fence) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        self.next = self.range.after(node);
        Ok(())
    }
}

impl Iterator for Leaves<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        while self.blocks.is_empty() {
            let edge = self.next.take()?;
            // The cursor gets the same error itself when it reaches this leaf.
            self.read(&edge).ok()?;
        }
        self.blocks.pop_front()
    }
}
