//! Log records: changes of pages, by whole pages or by entries, and commits.
//!
//! ```text
//! body:    1, changes | 2, bytes of the engine, for a commit
//! change:  tree u8 | block u32 | 1, hole start u16, hole end u16, the page without the hole
//!                              | 2, key, value      an entry is inserted or replaced
//!                              | 3, key, at u16, bytes   a part of a value
//!                              | 4, key             an entry is removed
//! key, value, bytes:  length u16 | bytes
//! ```
//!
//! An entry's change needs the page as it was, and an LSN in the page says whether it has been made already. A split or
//! a merge changes several pages in one record: recovery repeats all of it or nothing.
//!
//! Invariants:  [REC-1] repeating a change on the page as it was before gives the page as it was afterwards

use std::ops::Range;

use forebay::Block;

use crate::node::{Node, NodeMut};
use crate::page::{CHILD, COUNT_AT, HEADER, HEAP_AT, KIND_AT, NODE, SLOT, WORD};

const CHANGES: u8 = 1;
const COMMIT: u8 = 2;

const PAGE: u8 = 1;
const PUT: u8 = 2;
const PATCH: u8 = 3;
const REMOVE: u8 = 4;

/// Bytes of a page that is no node that may be other than zero.
const OTHER_BYTES: usize = HEADER + WORD;

/// A change of a page, already made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// It has other contents.
    Page,
    /// One entry has changed.
    Entry(Entry<'a>),
}

/// A change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// It was inserted, or has another value.
    Put { key: &'a [u8], value: &'a [u8] },
    /// Some bytes of its value were replaced, from byte `at`.
    Patch { key: &'a [u8], at: usize, bytes: &'a [u8] },
    /// It was removed.
    Remove { key: &'a [u8] },
}

/// Appends the beginning of a record of changes.
pub(crate) fn begin_changes(body: &mut Vec<u8>) {
    body.push(CHANGES);
}

/// Appends a commit.
pub(crate) fn put_commit(body: &mut Vec<u8>, bytes: &[u8]) {
    body.push(COMMIT);
    body.extend_from_slice(bytes);
}

/// Appends a change of a page.
pub(crate) fn put_change(
    body: &mut Vec<u8>,
    tree: u8,
    block: Block,
    page: &[u8],
    change: Change<'_>,
) {
    body.push(tree);
    body.extend(block.to_le_bytes());
    match change {
        Change::Page => {
            let hole = hole(page);
            body.push(PAGE);
            put_16(body, hole.start);
            put_16(body, hole.end);
            body.extend_from_slice(&page[..hole.start]);
            body.extend_from_slice(&page[hole.end..]);
        }
        Change::Entry(Entry::Put { key, value }) => {
            body.push(PUT);
            put_bytes(body, key);
            put_bytes(body, value);
        }
        Change::Entry(Entry::Patch { key, at, bytes }) => {
            body.push(PATCH);
            put_bytes(body, key);
            put_16(body, at);
            put_bytes(body, bytes);
        }
        Change::Entry(Entry::Remove { key }) => {
            body.push(REMOVE);
            put_bytes(body, key);
        }
    }
}

fn put_16(body: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("pages have at most 32 KiB");
    body.extend(number.to_le_bytes());
}

fn put_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    put_16(body, bytes.len());
    body.extend_from_slice(bytes);
}

/// The unused bytes in the middle of a page.
fn hole(page: &[u8]) -> Range<usize> {
    let at_16 = |at: usize| usize::from(u16::from_le_bytes([page[at], page[at + 1]]));
    if page[KIND_AT] == NODE {
        HEADER + SLOT * at_16(COUNT_AT)..at_16(HEAP_AT)
    } else {
        OTHER_BYTES..page.len()
    }
}

/// A record, as recovery reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Changes(Vec<Redo<'a>>),
    Commit(&'a [u8]),
}

/// A change to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redo<'a> {
    pub(crate) tree: u8,
    pub(crate) block: Block,
    pub(crate) what: What<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    /// The bytes before the hole, and those behind it.
    Page(&'a [u8], &'a [u8]),
    Entry(Entry<'a>),
}

/// Reads the body of a record of pages of `page_bytes`; `None` if it is none.
pub(crate) fn read(body: &[u8], page_bytes: usize) -> Option<Record<'_>> {
    let (&kind, rest) = body.split_first()?;
    match kind {
        COMMIT => Some(Record::Commit(rest)),
        CHANGES => {
            let (mut rest, mut changes) = (rest, Vec::new());
            while !rest.is_empty() {
                changes.push(take_change(&mut rest, page_bytes)?);
            }
            Some(Record::Changes(changes))
        }
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn take_16(rest: &mut &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(take(rest, 2)?.try_into().ok()?)))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_16(rest)?;
    take(rest, len)
}

fn take_change<'a>(rest: &mut &'a [u8], page_bytes: usize) -> Option<Redo<'a>> {
    let tree = take(rest, 1)?[0];
    let block = Block::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    let what = match take(rest, 1)?[0] {
        PAGE => {
            let (start, end) = (take_16(rest)?, take_16(rest)?);
            if start > end || end > page_bytes {
                return None;
            }
            What::Page(take(rest, start)?, take(rest, page_bytes - end)?)
        }
        PUT => What::Entry(Entry::Put { key: take_bytes(rest)?, value: take_bytes(rest)? }),
        PATCH => What::Entry(Entry::Patch {
            key: take_bytes(rest)?,
            at: take_16(rest)?,
            bytes: take_bytes(rest)?,
        }),
        REMOVE => What::Entry(Entry::Remove { key: take_bytes(rest)? }),
        _ => return None,
    };
    Some(Redo { tree, block, what })
}

/// Repeats a change on the page as it was before ([REC-1]).
///
/// # Errors
/// A description of why the page is not that.
pub(crate) fn repeat(page: &mut [u8], what: What<'_>) -> Result<(), &'static str> {
    let entry = match what {
        What::Page(before, behind) => {
            let hole_end = page.len() - behind.len();
            page[..before.len()].copy_from_slice(before);
            page[before.len()..hole_end].fill(0);
            page[hole_end..].copy_from_slice(behind);
            return Ok(());
        }
        What::Entry(entry) => entry,
    };
    let node = Node::new(page)?;
    match entry {
        Entry::Put { value, .. } if node.level() > 0 && value.len() != CHILD => {
            return Err("it has children, and the log puts something else into it");
        }
        Entry::Put { key, value } => match node.find(key) {
            Ok(at) if node.fits_instead(at, value) => {
                NodeMut::checked(page).replace(at, key, value)?;
            }
            Err(at) if node.fits(key, value.len()) => {
                NodeMut::checked(page).insert(at, key, value)?;
            }
            _ => return Err("it has no room for an entry that the log puts into it"),
        },
        Entry::Patch { key, at, bytes } => {
            let slot = node.find(key).map_err(|_| "it has not an entry that the log changes")?;
            let value = NodeMut::checked(page).into_value(slot);
            let part = value.get_mut(at..at + bytes.len());
            part.ok_or("an entry that the log changes is shorter")?.copy_from_slice(bytes);
        }
        Entry::Remove { key } => {
            let slot = node.find(key).map_err(|_| "it has not an entry that the log removes")?;
            NodeMut::checked(page).remove(slot);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Shape;
    use proptest::prelude::*;

    const PAGE_BYTES: usize = 4096;

    fn empty() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let shape = Shape { level: 0, lower: &[], upper: None, first_child: 0, prefix: &[] };
        NodeMut::lay_out(&mut page, shape).unwrap();
        page
    }

    /// Makes a change as a tree does, if the page has room and the key is there.
    fn make(page: &mut [u8], change: Entry<'_>) -> bool {
        let node = Node::new(page).unwrap();
        match change {
            Entry::Put { key, value } => match node.find(key) {
                Ok(at) if node.fits_instead(at, value) => {
                    NodeMut::checked(page).replace(at, key, value).unwrap();
                }
                Err(at) if node.fits(key, value.len()) => {
                    assert!(NodeMut::checked(page).insert(at, key, value).unwrap());
                }
                _ => return false,
            },
            Entry::Patch { key, at, bytes } => {
                let Ok(slot) = node.find(key) else { return false };
                let value = NodeMut::checked(page).into_value(slot);
                let Some(part) = value.get_mut(at..at + bytes.len()) else { return false };
                part.copy_from_slice(bytes);
            }
            Entry::Remove { key } => {
                let Ok(slot) = node.find(key) else { return false };
                NodeMut::checked(page).remove(slot);
            }
        }
        true
    }

    fn logged(page: &[u8], change: Change<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        begin_changes(&mut body);
        put_change(&mut body, 3, 77, page, change);
        body
    }

    /// Repeats the only change of a record.
    fn repeated(page: &mut [u8], body: &[u8]) {
        let Some(Record::Changes(changes)) = read(body, PAGE_BYTES) else { panic!("{body:?}") };
        let [Redo { tree: 3, block: 77, what }] = changes[..] else { panic!("{changes:?}") };
        repeat(page, what).unwrap();
    }

    proptest! {
        #[test]
        fn rec_1_a_repeated_change_gives_the_same_page(
            steps in prop::collection::vec((0_u8..4, 0_u16..60, 0_usize..300, any::<u8>()), 1..200),
        ) {
            let mut page = empty();
            for (kind, number, len, byte) in steps {
                let key = [&b"key"[..], &number.to_be_bytes()].concat();
                let bytes = vec![byte; len];
                let change = match kind {
                    0 | 1 => Entry::Put { key: &key, value: &bytes },
                    2 => Entry::Patch { key: &key, at: len / 2, bytes: &bytes[..len / 4] },
                    _ => Entry::Remove { key: &key },
                };
                let mut before = page.clone();
                if make(&mut page, change) {
                    repeated(&mut before, &logged(&page, Change::Entry(change)));
                    prop_assert!(before == page, "[REC-1] {:?}", change);
                }
            }
            // The whole page, in place of any other.
            let mut other = vec![0xaa; PAGE_BYTES];
            repeated(&mut other, &logged(&page, Change::Page));
            let hole = hole(&page);
            prop_assert_eq!(&other[..hole.start], &page[..hole.start]);
            prop_assert_eq!(&other[hole.end..], &page[hole.end..]);
            prop_assert!(other[hole].iter().all(|byte| *byte == 0));
        }

        #[test]
        fn a_damaged_record_is_none(body in prop::collection::vec(0_u8..6, 0..60), page in any::<bool>()) {
            let mut page = if page { empty() } else { vec![0; PAGE_BYTES] };
            if let Some(Record::Changes(changes)) = read(&body, PAGE_BYTES) {
                for change in changes {
                    // An error, or a change: not a panic.
                    let _ = repeat(&mut page, change.what);
                }
            }
        }
    }

    #[test]
    fn a_commit_is_read_as_it_was_written() {
        let mut body = Vec::new();
        put_commit(&mut body, b"bytes");
        assert_eq!(read(&body, PAGE_BYTES), Some(Record::Commit(b"bytes")));
        assert_eq!(read(&[], PAGE_BYTES), None);
        assert_eq!(read(&[9], PAGE_BYTES), None);
    }
}
