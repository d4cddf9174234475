//! The window: the blocks that a stream knows and has not returned yet.
//!
//! Blocks are added at the back as the caller's iterator names them and leave at the front, or, when any order will do,
//! wherever one is ready. The stream's information about each is its *state*; a pin in a state belongs to the stream,
//! which has to release it.
//!
//! Invariants:  [WIN-1] a block leaves only after its state was decided on

use std::collections::VecDeque;

use crate::cache::frame::FrameIndex;
use crate::tag::Block;

/// The progress of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Just named.
    Named,
    /// Pinned in this frame: resident, or being read.
    Pinned {
        frame: FrameIndex,
        /// It was not in memory when it was named, and this stream requested it.
        asked: bool,
    },
    /// To be read when it is its turn.
    Later,
}

/// One block, with the caller's data.
#[derive(Debug)]
pub(super) struct Item<D> {
    pub(super) block: Block,
    pub(super) data: D,
    pub(super) state: State,
}

/// The blocks known, oldest first.
#[derive(Debug)]
pub(super) struct Window<D> {
    items: VecDeque<Item<D>>,
    /// Items from here on are `Named`.
    named: usize,
}

impl<D> Window<D> {
    pub(super) fn new() -> Window<D> {
        Window { items: VecDeque::new(), named: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds a block.
    pub(super) fn push(&mut self, block: Block, data: D) {
        self.items.push_back(Item { block, data, state: State::Named });
    }

    /// Blocks that were named since this was last called: the caller decides on the state of each.
    pub(super) fn newly_named(&mut self) -> impl Iterator<Item = &mut Item<D>> {
        let from = std::mem::replace(&mut self.named, self.items.len());
        self.items.range_mut(from..)
    }

    /// True if there are blocks that have not been decided on.
    pub(super) fn has_named(&self) -> bool {
        self.named < self.items.len()
    }

    /// True when each block named since the last decision is beyond the one before it: such a caller does not return to
    /// blocks that it passes.
    pub(super) fn ascends(&self) -> bool {
        let from = self.named.saturating_sub(1);
        let blocks = self.items.range(from..).map(|item| item.block);
        blocks.is_sorted()
    }

    /// The blocks that [`Window::newly_named`] would return, ascending, each once.
    pub(super) fn named_sorted(&self, into: &mut Vec<Block>) {
        into.clear();
        into.extend(self.items.range(self.named..).map(|item| item.block));
        into.sort_unstable();
        into.dedup();
    }

    /// Sorts the blocks named since the last decision: for streams that need not keep an order.
    pub(super) fn sort_named(&mut self) {
        let named = self.named;
        self.items.make_contiguous()[named..].sort_by_key(|item| item.block);
    }

    /// The state of the block at `place`; 0 is the oldest.
    pub(super) fn state(&self, place: usize) -> Option<State> {
        self.items.get(place).map(|item| item.state)
    }

    /// Every block, to update its state.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Item<D>> {
        self.items.iter_mut()
    }

    /// The place of the first block for which `ready` is true.
    pub(super) fn position(&self, ready: impl FnMut(&Item<D>) -> bool) -> Option<usize> {
        self.items.iter().position(ready)
    }

    /// Takes the block at `place`; an older one moves to its place.
    pub(super) fn take(&mut self, place: usize) -> Option<Item<D>> {
        if self.items.is_empty() {
            return None;
        }
        assert!(place < self.named, "[WIN-1] a block leaves before it was decided on");
        self.named -= 1;
        self.items.swap_remove_front(place)
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.named = 0;
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_decided_on_once_and_leaves_in_order() {
        let mut window = Window::new();
        [5, 3, 5].into_iter().for_each(|block| window.push(block, ()));
        let mut sorted = Vec::new();
        window.named_sorted(&mut sorted);
        assert_eq!(sorted, [3, 5]);
        assert_eq!(window.newly_named().count(), 3);
        assert_eq!(window.newly_named().count(), 0);
        window.push(9, ());
        assert_eq!(window.newly_named().map(|item| item.block).collect::<Vec<_>>(), [9]);
        let order: Vec<_> = std::iter::from_fn(|| window.take(0)).map(|item| item.block).collect();
        assert_eq!(order, [5, 3, 5, 9]);
    }

    #[test]
    #[should_panic(expected = "[WIN-1]")]
    fn win_1_an_undecided_block_cannot_leave() {
        let mut window = Window::new();
        window.push(1, ());
        window.newly_named().for_each(drop);
        window.push(2, ());
        window.take(1);
    }
}
