//! Latched pages: checked, then read and changed in place.
//!
//! [`Node::new`] checks a page as a whole. To change one entry, it is enough to check the header and that entry; a page is
//! checked as a whole before it is laid out again.
//!
//! Invariants:  [NOD-1] the cells lie between `heap` and the end of the page, and their bytes and `wasted` add up to
//!              exactly that space, so that laying a page out again never overflows it
//!              [NOD-2] `lower <= key < upper` for every key; the fences are bytes of their own cells
//!              [NOD-3] an entry that fits is inserted completely; one that does not leaves the page as it was

use forebay::Block;

use crate::page::{
    CHILD, COUNT_AT, COVERS, Goal, HEAD, HEADER, HEAP_AT, Head, KIND_AT, LEVEL_AT, LINK_AT,
    LOWER_AT, NODE, PREFIX_AT, SLOT, Slot, UPPER_AT, WASTED_AT, WORD, cell_len, child, child_index,
    search,
};

pub(crate) const NONSENSE: &str = "its entries make no sense";

/// Inner nodes have at least two children, usually many more.
const LEVEL_MAX: u8 = 32;

/// A checked node: every slot, cell and fence lies where it may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Checks a page.
    ///
    /// # Errors
    /// A description of what is wrong with it.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Node<'a>, &'static str> {
        let node = Node::header(bytes)?;
        let cells = [PREFIX_AT, LOWER_AT, UPPER_AT].map(|at| node.cell_place(at).1);
        let mut used: usize = cells.into_iter().map(|len| len.next_multiple_of(WORD)).sum();
        for slot in node.slots() {
            node.check_entry(slot)?;
            used += slot.cell_len();
        }
        // [NOD-1]
        if node.at_16(HEAP_AT) + used + node.at_16(WASTED_AT) != bytes.len() {
            return Err("its cells do not add up");
        }
        Ok(node)
    }

    /// The same, without the entries: for [`Node::level`], [`Node::count`], [`Node::covers`], [`Node::used`] and
    /// [`Node::look_up`].
    pub(crate) fn header(bytes: &'a [u8]) -> Result<Node<'a>, &'static str> {
        let node = Node { bytes };
        if bytes[KIND_AT] != NODE {
            return Err("it is no node");
        }
        if node.level() > LEVEL_MAX {
            return Err("no tree has so many levels");
        }
        let heap = node.at_16(HEAP_AT);
        let slots_end = HEADER + SLOT * node.count();
        if heap > bytes.len() || !heap.is_multiple_of(WORD) || slots_end > heap {
            return Err("its slots and cells overlap");
        }
        if heap + node.at_16(WASTED_AT) > bytes.len() {
            return Err("it wastes more than it has");
        }
        for at in [PREFIX_AT, LOWER_AT, UPPER_AT] {
            let (start, len) = node.cell_place(at);
            if len > 0 && (start < heap || start + len > bytes.len()) {
                return Err("its prefix or a fence is not in it");
            }
        }
        Ok(node)
    }

    /// A node in a copy of a page that [`Node::new`] has checked.
    pub(crate) fn trusted(bytes: &'a [u8]) -> Node<'a> {
        Node { bytes }
    }

    fn at_16(self, at: usize) -> usize {
        at_16(self.bytes, at)
    }

    fn check_entry(self, slot: Slot) -> Result<(), &'static str> {
        if slot.child().is_some() != (self.level() > 0) {
            return Err("a leaf has a child, or an inner node none");
        }
        if slot.at() < self.at_16(HEAP_AT) || slot.at() + slot.cell_len() > self.bytes.len() {
            return Err("a cell is not in it");
        }
        Ok(())
    }

    /// 0 for a leaf.
    pub(crate) fn level(self) -> u8 {
        self.bytes[LEVEL_AT]
    }

    pub(crate) fn count(self) -> usize {
        self.at_16(COUNT_AT)
    }

    pub(crate) fn slots(self) -> impl Iterator<Item = Slot> + 'a {
        (0..self.count()).map(move |index| self.slot(index))
    }

    fn slot(self, index: usize) -> Slot {
        assert!(index < self.count(), "slot {index} of {}", self.count());
        Slot::of(self.bytes, index).expect("[NOD-1] slots lie in the page")
    }

    /// Where the prefix or a fence is, and its length.
    fn cell_place(self, at: usize) -> (usize, usize) {
        (self.at_16(at), self.at_16(at + 2) & !COVERS)
    }

    fn cell(self, at: usize) -> &'a [u8] {
        let (start, len) = self.cell_place(at);
        if len == 0 { &[] } else { &self.bytes[start..start + len] }
    }

    /// The common prefix of all keys.
    pub(crate) fn prefix(self) -> &'a [u8] {
        self.cell(PREFIX_AT)
    }

    /// The lowest key that belongs to this node.
    pub(crate) fn lower(self) -> &'a [u8] {
        self.cell(LOWER_AT)
    }

    /// Keys from this one on belong to the nodes to the right; `None` at the tree's right edge.
    pub(crate) fn upper(self) -> Option<&'a [u8]> {
        // A fence above some key is not empty.
        Some(self.cell(UPPER_AT)).filter(|fence| !fence.is_empty())
    }

    /// Whether the entry that `goal` looks for belongs to this node.
    pub(crate) fn covers(self, goal: Goal<'_>) -> bool {
        let upper = self.upper();
        match goal {
            Goal::Key(key) => self.lower() <= key && upper.is_none_or(|upper| key < upper),
            Goal::Below(key) => self.lower() < key && upper.is_none_or(|upper| key <= upper),
            Goal::Last => upper.is_none(),
        }
    }

    /// The value of slot `index`: in an inner node, a child.
    pub(crate) fn value(self, index: usize) -> &'a [u8] {
        let slot = self.slot(index);
        if slot.child().is_some() {
            return &self.bytes[HEADER + SLOT * index + WORD..][..CHILD];
        }
        &self.bytes[slot.at()..slot.at() + slot.value_len()]
    }

    /// Copies the key of slot `index` into `key`, replacing its contents.
    pub(crate) fn key_into(self, index: usize, key: &mut Vec<u8>) {
        let slot = self.slot(index);
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(&slot.head()[..slot.key_len().min(HEAD)]);
        let tail = slot.at() + slot.value_len();
        key.extend_from_slice(&self.bytes[tail..tail + slot.tail_len()]);
    }

    pub(crate) fn key(self, index: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(index, &mut key);
        key
    }

    /// The slot of `key`, or the index at which it would be inserted.
    pub(crate) fn find(self, key: &[u8]) -> Result<usize, usize> {
        let found = search(self.bytes, self.head(), key).expect("[NOD-1] a checked page");
        found.map(|(at, _)| at)
    }

    /// Like [`Node::find`], in a node whose header is checked; checks the entry that it finds.
    ///
    /// # Errors
    /// A description of what is wrong with the page.
    pub(crate) fn look_up(self, key: &[u8]) -> Result<Result<usize, usize>, &'static str> {
        let found = search(self.bytes, self.head(), key).ok_or(NONSENSE)?;
        found.map_or_else(|at| Ok(Err(at)), |(at, slot)| self.check_entry(slot).map(|()| Ok(at)))
    }

    /// For searches for any key, also for one without the prefix.
    fn head(self) -> Head {
        Head::of(self.bytes).expect("a page has two words").for_any_key()
    }

    /// Which child leads to `goal`, from 0 to the number of slots.
    pub(crate) fn child_index(self, goal: Goal<'_>) -> usize {
        child_index(self.bytes, self.head(), goal).expect("[NOD-1] a checked page")
    }

    /// The block of child `index`.
    pub(crate) fn child(self, index: usize) -> Block {
        child(self.bytes, index).expect("[NOD-1] a checked page")
    }

    /// Bytes in use, without the bytes that laying the page out again would recover.
    pub(crate) fn used(self) -> usize {
        HEADER + SLOT * self.count() + self.bytes.len()
            - self.at_16(HEAP_AT)
            - self.at_16(WASTED_AT)
    }

    /// Length of the cell for an entry. A child is in the slot.
    fn cell_len(self, key_len: usize, value_len: usize) -> usize {
        cell_len(key_len, if self.level() == 0 { value_len } else { 0 })
    }

    /// Whether an entry whose key is not in this node fits.
    pub(crate) fn fits(self, key: &[u8], value_len: usize) -> bool {
        let prefix = common(self.prefix(), key);
        let mut used = self.used();
        if prefix < self.prefix().len() {
            used = self.used_with_prefix(prefix);
        }
        used + SLOT + self.cell_len(key.len() - prefix, value_len) <= self.bytes.len()
    }

    /// Whether `value` can replace the value of slot `index`.
    pub(crate) fn fits_instead(self, index: usize, value: &[u8]) -> bool {
        let slot = self.slot(index);
        let used = self.used() - slot.cell_len() + self.cell_len(slot.key_len(), value.len());
        used <= self.bytes.len()
    }

    /// Bytes in use if only the first `prefix` bytes of the prefix were the prefix.
    fn used_with_prefix(self, prefix: usize) -> usize {
        let more = self.prefix().len() - prefix;
        let cells = self.slots().map(|slot| cell_len(slot.key_len() + more, slot.value_len()));
        let fences = [self.lower().len(), self.cell(UPPER_AT).len(), prefix];
        let fences = fences.into_iter().map(|len| len.next_multiple_of(WORD));
        HEADER + SLOT * self.count() + cells.chain(fences).sum::<usize>()
    }

    /// Where to split a node into two, about equal halves by bytes: the first slot of the right one. An inner node's
    /// slot there moves up. `None` if there are fewer than two entries to divide, which can only happen with fences
    /// that are longer than any key.
    pub(crate) fn middle(self) -> Option<usize> {
        let last = self.count().checked_sub(1).filter(|&last| last > 0)?;
        let half = self.slots().map(|slot| SLOT + slot.cell_len()).sum::<usize>() / 2;
        let mut sum = 0;
        let cut = self.slots().position(|slot| {
            sum += SLOT + slot.cell_len();
            sum >= half
        });
        let cut = cut.map_or(1, |at| at + usize::from(self.level() == 0));
        Some(cut.clamp(1, last))
    }
}

/// The length of the common prefix of two keys.
pub(crate) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The shortest key above `low` and not above `high`, for a fence between two leaves.
pub(crate) fn separator<'h>(low: &[u8], high: &'h [u8]) -> &'h [u8] {
    // If the page's keys do not ascend, any result will do.
    high.get(..=common(low, high)).unwrap_or(high)
}

fn at_16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn put_16(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).expect("pages have at most 32 KiB");
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The properties of a node other than its entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) level: u8,
    pub(crate) lower: &'a [u8],
    pub(crate) upper: Option<&'a [u8]>,
    /// For an inner node: the child for keys below the first slot's.
    pub(crate) first_child: Block,
    /// The common prefix of its keys.
    pub(crate) prefix: &'a [u8],
}

/// A node that is being changed. Its page was checked, at least its header and the entry to change, or laid out again.
#[derive(Debug)]
pub(crate) struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// A node that was checked under the latch held now.
    pub(crate) fn checked(bytes: &'a mut [u8]) -> NodeMut<'a> {
        NodeMut { bytes }
    }

    /// Creates a node without entries, replacing the page's contents. `None` if not even the fences fit.
    pub(crate) fn lay_out(bytes: &'a mut [u8], shape: Shape<'_>) -> Option<NodeMut<'a>> {
        bytes[..HEADER].fill(0);
        let end = bytes.len();
        let mut node = NodeMut { bytes };
        node.bytes[KIND_AT] = NODE;
        node.bytes[LEVEL_AT] = shape.level;
        node.bytes[LINK_AT..LINK_AT + 4].copy_from_slice(&shape.first_child.to_le_bytes());
        put_16(node.bytes, HEAP_AT, end);
        let upper = shape.upper.unwrap_or_default();
        for (at, bytes) in [(PREFIX_AT, shape.prefix), (LOWER_AT, shape.lower), (UPPER_AT, upper)] {
            let start = node.allocate(bytes.len())?;
            node.bytes[start..start + bytes.len()].copy_from_slice(bytes);
            put_16(node.bytes, at, start);
            let covers = at == PREFIX_AT
                && shape.upper.is_some_and(|upper| common(shape.lower, upper) >= bytes.len());
            put_16(node.bytes, at + 2, bytes.len() | if covers { COVERS } else { 0 });
        }
        Some(node)
    }

    pub(crate) fn as_node(&self) -> Node<'_> {
        Node { bytes: self.bytes }
    }

    /// Allocates space for a cell, if there is enough between slots and cells.
    fn allocate(&mut self, len: usize) -> Option<usize> {
        let slots_end = HEADER + SLOT * self.as_node().count();
        let start = at_16(self.bytes, HEAP_AT).checked_sub(len.next_multiple_of(WORD))?;
        if start < slots_end {
            return None;
        }
        put_16(self.bytes, HEAP_AT, start);
        Some(start)
    }

    /// Inserts an entry as slot `index`, if it fits. Its key begins with the node's prefix.
    fn put(&mut self, index: usize, key: &[u8], value: &[u8]) -> bool {
        let prefix = self.as_node().prefix().len();
        let Some(key) = key.get(prefix..) else { return false };
        let count = self.as_node().count();
        let slots_end = HEADER + SLOT * (count + 1);
        // A child is in the slot.
        let child = (self.as_node().level() > 0).then(|| value.try_into().expect("a child"));
        let in_cell = if child.is_some() { &[] } else { value };
        let len = cell_len(key.len(), in_cell.len());
        if at_16(self.bytes, HEAP_AT) < slots_end + len {
            return false;
        }
        let at = self.allocate(len).expect("[NOD-3] there is room");
        let tail = at + in_cell.len();
        self.bytes[at..tail].copy_from_slice(in_cell);
        if let Some(rest) = key.get(HEAD..) {
            self.bytes[tail..tail + rest.len()].copy_from_slice(rest);
        }
        let place = HEADER + SLOT * index;
        self.bytes.copy_within(place..slots_end - SLOT, place + SLOT);
        let slot = match child {
            Some(child) => Slot::inner(key, at, Block::from_le_bytes(child)),
            None => Slot::new(key, at, value.len()),
        };
        self.bytes[place..place + SLOT].copy_from_slice(&slot.bytes());
        put_16(self.bytes, COUNT_AT, count + 1);
        true
    }

    /// Appends an entry, if it fits.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.put(self.as_node().count(), key, value)
    }

    /// Inserts an entry as slot `index`; lays the page out again if necessary. Returns false if it does not fit.
    ///
    /// # Errors
    /// A description of why the page cannot be laid out again.
    pub(crate) fn insert(
        &mut self,
        index: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, &'static str> {
        let shared = common(self.as_node().prefix(), key);
        if shared == self.as_node().prefix().len() && self.put(index, key, value) {
            return Ok(true);
        }
        let old = self.bytes.to_vec();
        let old = Node::new(&old)?;
        if !old.fits(key, value.len()) {
            return Ok(false);
        }
        let prefix = if old.count() == 0 { key } else { &old.prefix()[..shared] };
        let shape = Shape { prefix, ..shape_of(old) };
        let done = self.fill(shape, old, 0..old.count()) && self.put(index, key, value);
        if !done {
            // Next to long fences, the first entry's own prefix saves nothing.
            let shape = Shape { prefix: &old.prefix()[..shared], ..shape };
            let done = self.fill(shape, old, 0..old.count()) && self.put(index, key, value);
            assert!(done, "[NOD-3] what fits is put in");
        }
        Ok(true)
    }

    /// Lays the page out with the entries `range` of `from`. Returns false if they do not fit.
    pub(crate) fn fill(
        &mut self,
        shape: Shape<'_>,
        from: Node<'_>,
        range: std::ops::Range<usize>,
    ) -> bool {
        match NodeMut::lay_out(self.bytes, shape) {
            Some(mut node) => node.extend(from, range),
            None => false,
        }
    }

    /// Appends the entries `range` of `from`.
    pub(crate) fn extend(&mut self, from: Node<'_>, range: std::ops::Range<usize>) -> bool {
        let mut key = Vec::new();
        range.into_iter().all(|index| {
            from.key_into(index, &mut key);
            self.push(&key, from.value(index))
        })
    }

    /// Removes slot `index`.
    pub(crate) fn remove(&mut self, index: usize) {
        let (slot, count) = (self.as_node().slot(index), self.as_node().count());
        let wasted = self.as_node().at_16(WASTED_AT) + slot.cell_len();
        put_16(self.bytes, WASTED_AT, wasted);
        let place = HEADER + SLOT * index;
        self.bytes.copy_within(place + SLOT..HEADER + SLOT * count, place);
        put_16(self.bytes, COUNT_AT, count - 1);
    }

    /// The value of slot `index`.
    pub(crate) fn into_value(self, index: usize) -> &'a mut [u8] {
        let slot = self.as_node().slot(index);
        &mut self.bytes[slot.at()..slot.at() + slot.value_len()]
    }

    /// Replaces the value of slot `index` with `value`, which must fit.
    ///
    /// # Errors
    /// As [`NodeMut::insert`]; the page is as it was.
    pub(crate) fn replace(
        &mut self,
        index: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), &'static str> {
        let slot = self.as_node().slot(index);
        if slot.value_len() == value.len() {
            self.bytes[slot.at()..slot.at() + value.len()].copy_from_slice(value);
            return Ok(());
        }
        Node::new(self.bytes)?;
        self.remove(index);
        assert!(self.insert(index, key, value)?, "[NOD-3] what fits instead is put in");
        Ok(())
    }
}

/// The properties of `node` other than its entries.
pub(crate) fn shape_of(node: Node<'_>) -> Shape<'_> {
    Shape {
        level: node.level(),
        lower: node.lower(),
        upper: node.upper(),
        first_child: if node.level() == 0 { 0 } else { node.child(0) },
        prefix: node.prefix(),
    }
}

/// The common prefix of the keys in `range`.
pub(crate) fn prefix_of(node: Node<'_>, range: std::ops::Range<usize>) -> Vec<u8> {
    if range.is_empty() {
        return Vec::new();
    }
    let (mut first, last) = (node.key(range.start), node.key(range.end - 1));
    first.truncate(common(&first, &last));
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In a page that is damaged anywhere, one entry is changed, or the damage is found: nothing panics.
        #[test]
        fn changes_of_one_entry_survive_a_damaged_page(
            entries in prop::collection::btree_map(0_u16..400, 0_usize..60, 0..60),
            damage in prop::collection::vec((0_usize..1024, any::<u8>()), 0..6),
            number in 0_u16..400,
            len in 0_usize..300,
        ) {
            // Some keys have a tail, which is compared too.
            let key = |number: u16| {
                let end = if number.is_multiple_of(2) { &b"a longer end"[..] } else { b"" };
                [&number.to_be_bytes(), end].concat()
            };
            let mut page = vec![0; 1024];
            let shape = Shape { level: 0, lower: &[], upper: None, first_child: 0, prefix: &[] };
            let mut node = NodeMut::lay_out(&mut page, shape).unwrap();
            let numbers: Vec<u16> = entries.keys().copied().chain([number]).collect();
            for (number, len) in entries {
                let Err(at) = node.as_node().find(&key(number)) else { continue };
                let _ = node.insert(at, &key(number), &vec![7; len]);
            }
            for (at, byte) in damage {
                page[at] = byte;
            }
            let value = vec![8; len];
            for (number, change) in numbers.into_iter().flat_map(|it| [(it, 0), (it, 1), (it, 2)]) {
                let mut page = page.clone();
                let leaf = Node::header(&page).ok().filter(|node| node.level() == 0);
                let Some(node) = leaf else { continue };
                let Ok(found) = node.look_up(&key(number)) else { continue };
                let fits = match found {
                    Ok(at) => node.fits_instead(at, &value),
                    Err(_) => node.fits(&key(number), len),
                };
                let mut node = NodeMut::checked(&mut page);
                match (found, change) {
                    (Ok(at), 0) => node.remove(at),
                    (Ok(at), 1) => node.into_value(at).fill(9),
                    (Ok(at), _) if fits => drop(node.replace(at, &key(number), &value)),
                    (Err(at), _) if fits => drop(node.insert(at, &key(number), &value)),
                    _ => {}
                }
            }
        }
    }
}
