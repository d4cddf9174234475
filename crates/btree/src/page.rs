//! The page layout, and the search in a page, which needs no latch.
//!
//! ```text
//! 0         4     5      6      8     10      12         14         16          20          24           32   40
//! checksum  kind  level  count  heap  wasted  prefix at  prefix len lower fence upper fence first child  LSN  slots -> free <- cells
//! ```
//!
//! A slot is two words: the first eight bytes of the key, so that a search that runs while other threads may change the page
//! reads them in one load, and a place:
//!
//! ```text
//! 63 inner | 62 where its cell is, in words 48 | 47 length of the key 32 | 31 length of the value, or the child 0
//! ```
//!
//! The value of an inner node's entry is the block of a child, which is in the slot: a descent seldom reads a cell.
//!
//! The common prefix of all keys of a page is stored once; in the following, a key means the part after the prefix. The
//! first eight bytes of a key are in the slot, and decide nearly every comparison; the rest of it is in the cell, after
//! the value. Cells begin at whole words, because the pool's optimistic reads copy words fastest.
//!
//! The highest bit of the prefix's length says that the fences have that prefix too, and so all keys that belong to the node: a
//! descent does not compare it.
//!
//! With keys of several ascending numbers, a page without a prefix would have the same head in every slot, and a search
//! would visit the cell of each key that it compares.
//!
//! Invariants:  [PGE-1] slots ascend by key   [PGE-2] every load is checked to lie in the page, because bytes that were
//!              read without a latch may have any value until they are validated
//! Source:      the head in the slot and the prefix: Graefe, Modern B-Tree Techniques (2011), 3.5 and 3.8.

use std::cmp::Ordering;

use forebay::{Block, Optimistic};

pub(crate) const META: u8 = 1;
pub(crate) const NODE: u8 = 2;
pub(crate) const FREE: u8 = 3;

/// Number of bytes before the slots.
pub(crate) const HEADER: usize = 40;
pub(crate) const WORD: usize = 8;

pub(crate) const KIND_AT: usize = 4;
pub(crate) const LEVEL_AT: usize = 5;
pub(crate) const COUNT_AT: usize = 6;
pub(crate) const HEAP_AT: usize = 8;
pub(crate) const WASTED_AT: usize = 10;
pub(crate) const PREFIX_AT: usize = 12;
pub(crate) const LOWER_AT: usize = 16;
pub(crate) const UPPER_AT: usize = 20;
pub(crate) const LINK_AT: usize = 24;
/// The LSN of the last change, in every kind of page; 0 without a log.
pub(crate) const LSN_AT: usize = 32;

/// In the length of the prefix: the fences have it too.
pub(crate) const COVERS: usize = 1 << 15;

/// Number of bytes of a slot.
pub(crate) const SLOT: usize = 2 * WORD;
/// Number of bytes of a key that are in its slot.
pub(crate) const HEAD: usize = WORD;
/// Number of bytes of a child's block number: the value of an inner node's entry.
pub(crate) const CHILD: usize = 4;

/// In a slot's place: it is one of an inner node.
const INNER: u64 = 1 << 63;

/// A page's bytes, read by whole words, while other threads may be changing them.
pub(crate) trait Words {
    /// The word at byte `at`, a multiple of eight; `None` past the end of the page.
    fn word(&self, at: usize) -> Option<u64>;
}

impl Words for [u8] {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.get(at..at.checked_add(WORD)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl Words for Optimistic<'_> {
    #[inline(always)]
    fn word(&self, at: usize) -> Option<u64> {
        self.load(at).map(u64::from_le_bytes)
    }
}

/// One entry of a page: where its cell is, and how its key begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    head: u64,
    place: u64,
}

impl Slot {
    /// The slot of a leaf's entry whose key, after the prefix, is `key`.
    pub(crate) fn new(key: &[u8], at: usize, value_len: usize) -> Slot {
        Slot::with(key, at, value_len as u64)
    }

    /// The slot of an inner node's entry.
    pub(crate) fn inner(key: &[u8], at: usize, child: Block) -> Slot {
        let slot = Slot::with(key, at, u64::from(child));
        Slot { place: slot.place | INNER, ..slot }
    }

    fn with(key: &[u8], at: usize, low: u64) -> Slot {
        debug_assert!(at.is_multiple_of(WORD) && at < 1 << 18 && key.len() < 1 << 16);
        Slot { head: head_of(key), place: (at as u64 / 8) << 48 | (key.len() as u64) << 32 | low }
    }

    /// Slot `index` of a page; `None` past the end of the page.
    #[inline]
    pub(crate) fn of<W: Words + ?Sized>(page: &W, index: usize) -> Option<Slot> {
        let at = HEADER + SLOT * index;
        Some(Slot { head: page.word(at)?, place: page.word(at + WORD)? })
    }

    /// The slot's bytes.
    pub(crate) fn bytes(self) -> [u8; SLOT] {
        (u128::from(self.place) << 64 | u128::from(self.head)).to_le_bytes()
    }

    /// The first bytes of the key, padded with zeros.
    pub(crate) fn head(self) -> [u8; HEAD] {
        self.head.to_be_bytes()
    }

    /// The byte at which the cell begins, with the value.
    pub(crate) fn at(self) -> usize {
        (self.place >> 48 & 0x7fff) as usize * WORD
    }

    /// Length of the key after the prefix.
    pub(crate) fn key_len(self) -> usize {
        (self.place >> 32 & 0xffff) as usize
    }

    /// Length of the value in the cell: 0 in an inner node.
    pub(crate) fn value_len(self) -> usize {
        if self.child().is_some() { 0 } else { self.place as u32 as usize }
    }

    /// The child of an inner node's entry.
    #[inline]
    pub(crate) fn child(self) -> Option<Block> {
        (self.place & INNER != 0).then_some(self.place as Block)
    }

    /// Length of the part of the key that is in the cell.
    pub(crate) fn tail_len(self) -> usize {
        self.key_len().saturating_sub(HEAD)
    }

    /// Length of the cell.
    pub(crate) fn cell_len(self) -> usize {
        cell_len(self.key_len(), self.value_len())
    }

    /// How this key compares to `key`, which has the same head.
    #[inline]
    fn compare_rest<W: Words + ?Sized>(self, page: &W, key: &[u8]) -> Option<Ordering> {
        // Heads are padded with zeros, so a short key is a prefix of the other one.
        if self.key_len() <= HEAD || key.len() <= HEAD {
            return Some(self.key_len().cmp(&key.len()));
        }
        compare(page, self.at() + self.value_len(), self.tail_len(), &key[HEAD..])
    }
}

/// Length of the cell for a key with `key_len` bytes after the prefix.
pub(crate) fn cell_len(key_len: usize, value_len: usize) -> usize {
    (value_len + key_len.saturating_sub(HEAD)).next_multiple_of(WORD)
}

fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let short = key.iter().fold(0, |head, &byte| head << 8 | u64::from(byte));
    short.unbounded_shl(8 * (HEAD - key.len()) as u32)
}

/// What a search needs to know about a page: two words of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) level: u8,
    pub(crate) count: usize,
    prefix_at: usize,
    prefix_len: usize,
    /// All keys that belong to the node have the prefix, and the search is for one of them.
    covers: bool,
}

impl Head {
    #[inline]
    pub(crate) fn of<W: Words + ?Sized>(page: &W) -> Option<Head> {
        let first = page.word(0)?.to_le_bytes();
        let second = page.word(HEAP_AT)?;
        Some(Head {
            kind: first[KIND_AT],
            level: first[LEVEL_AT],
            count: usize::from(u16::from_le_bytes([first[COUNT_AT], first[COUNT_AT + 1]])),
            prefix_at: (second >> 32 & 0xffff) as usize,
            prefix_len: (second >> 48) as usize & !COVERS,
            covers: (second >> 48) as usize & COVERS != 0,
        })
    }
}

impl Head {
    /// For a search for a key that may not belong to the node.
    pub(crate) fn for_any_key(self) -> Head {
        Head { covers: false, ..self }
    }
}

/// The target of a search: a key's position, or the last position before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'k> {
    /// The key itself.
    Key(&'k [u8]),
    /// The greatest key below this one.
    Below(&'k [u8]),
    /// The greatest key of all.
    Last,
}

/// The slot of `key`, or the index of the slot before which it belongs. It must be a key that belongs to this node, except
/// after [`Head::for_any_key`]. `None` if the page is inconsistent: it is
/// damaged, or being changed.
#[inline]
pub(crate) fn search<W: Words + ?Sized>(
    page: &W,
    head: Head,
    key: &[u8],
) -> Option<Result<(usize, Slot), usize>> {
    let mut rest = key;
    if head.covers {
        rest = key.get(head.prefix_len..)?;
    } else if head.prefix_len > 0 {
        let shared = key.len().min(head.prefix_len);
        match compare(page, head.prefix_at, head.prefix_len, &key[..shared])? {
            Ordering::Less => return Some(Err(head.count)),
            Ordering::Greater => return Some(Err(0)),
            Ordering::Equal => rest = &key[shared..],
        }
    }
    let wanted = head_of(rest);
    let (mut low, mut high) = (0, head.count);
    while low < high {
        let middle = low.midpoint(high);
        let mut order = page.word(HEADER + SLOT * middle)?.cmp(&wanted);
        if order.is_eq() {
            let slot = Slot::of(page, middle)?;
            order = slot.compare_rest(page, rest)?;
            if order.is_eq() {
                return Some(Ok((middle, slot)));
            }
        }
        if order.is_lt() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(Err(low))
}

/// Which child of an inner page leads to `goal`, from 0 to the number of slots.
#[inline]
pub(crate) fn child_index<W: Words + ?Sized>(
    page: &W,
    head: Head,
    goal: Goal<'_>,
) -> Option<usize> {
    Some(match goal {
        Goal::Last => head.count,
        Goal::Key(key) => search(page, head, key)?.map_or_else(|at| at, |(at, _)| at + 1),
        Goal::Below(key) => search(page, head, key)?.map_or_else(|at| at, |(at, _)| at),
    })
}

/// The block of child `index` of an inner page.
#[inline]
pub(crate) fn child<W: Words + ?Sized>(page: &W, index: usize) -> Option<Block> {
    let Some(slot) = index.checked_sub(1) else {
        return Some(page.word(LINK_AT)? as Block);
    };
    Slot::of(page, slot)?.child()
}

/// How the `len` bytes at `at` compare to `with`.
fn compare<W: Words + ?Sized>(page: &W, at: usize, len: usize, with: &[u8]) -> Option<Ordering> {
    let common = len.min(with.len());
    for (step, with) in with[..common].chunks(WORD).enumerate() {
        let mut there = [0; WORD];
        there[..with.len()].copy_from_slice(with);
        let here = bytes_at(page, at + step * WORD, with.len())?;
        match here.cmp(&u64::from_be_bytes(there)) {
            Ordering::Equal => {}
            ordering => return Some(ordering),
        }
    }
    Some(len.cmp(&with.len()))
}

/// The `len` bytes at `at`, 1 to 8, big-endian, padded with zeros.
fn bytes_at<W: Words + ?Sized>(page: &W, at: usize, len: usize) -> Option<u64> {
    let (start, skip) = (at / WORD * WORD, at % WORD);
    let mut word = page.word(start)? >> (8 * skip);
    if skip + len > WORD {
        word |= page.word(start + WORD)? << (64 - 8 * skip);
    }
    let whole = word.swap_bytes();
    Some(if len < WORD { whole & !(u64::MAX >> (8 * len)) } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_compare_as_slices_do(
            page in prop::collection::vec(0_u8..3, 64),
            at in 0_usize..40,
            len in 0_usize..24,
            with in prop::collection::vec(0_u8..3, 0..24),
        ) {
            let here = &page[at..at + len];
            prop_assert_eq!(compare(&page[..], at, len, &with), Some(here.cmp(&with[..])));
        }

        #[test]
        fn a_slot_keeps_what_it_is_given(
            key in prop::collection::vec(any::<u8>(), 0..600),
            words in 0_usize..8192,
            block: Block,
            value_len in 0_usize..8192,
        ) {
            let slot = Slot::new(&key, words * WORD, value_len);
            prop_assert_eq!((slot.at(), slot.key_len(), slot.value_len()), (words * WORD, key.len(), value_len));
            let mut page = [0; HEADER + SLOT];
            page[HEADER..].copy_from_slice(&slot.bytes());
            prop_assert_eq!(Slot::of(&page[..], 0), Some(slot));
            let inner = Slot::inner(&key, words * WORD, block);
            prop_assert_eq!((inner.at(), inner.key_len(), inner.value_len()), (words * WORD, key.len(), 0));
            prop_assert_eq!((slot.child(), inner.child()), (None, Some(block)));
            prop_assert!(key.iter().chain([0; HEAD].iter()).take(HEAD).eq(slot.head().iter()));
        }
    }

    #[test]
    fn pge_2_no_load_leaves_the_page() {
        let page = [0xff; 64];
        assert_eq!(page[..].word(64), None);
        assert_eq!(page[..].word(usize::MAX - 7), None);
        let head = Head::of(&page[..]).unwrap();
        assert_eq!(search(&page[..], head, &[0xff; 70_000]), None, "[PGE-2]");
        assert_eq!(child(&page[..], 9), None, "[PGE-2]");
    }
}
