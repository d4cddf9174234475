//! Parses a page of an SQLite b-tree: its kind, and its cells' children, rowids and records.
//!
//! The bytes may be anything that was in the file: damaged, encrypted, or not a b-tree page at all. So each offset is
//! checked against the page, and a field outside it is `None`. Worked example: an index on a text column of a table
//! with five rows is one leaf of five cells, each a record of two columns: the text and the rowid.
//!
//! Invariants:  [PAG-1] any bytes give an answer, without a panic, in a time bounded by their number [PAG-2] a page has
//!              at most one cell for each 4 of its bytes
//! Concurrency: none; functions of their arguments.
//! Failure:     `None`, for any fault.
//! Source:      sqlite.org/fileformat2.html.

/// The size of the file header at the start of page 1, before its b-tree.
pub(crate) const HEADER: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes that are zero in all formats so far. A program that encrypts the rest of a file may leave its first bytes
/// plain so that other programs recognise it (SQLCipher's `cipher_plaintext_header_size`).
const RESERVED: std::ops::Range<usize> = 72..92;
/// The minimum of usable bytes in a page.
const USABLE_MIN: u32 = 480;
/// Maximum columns of an index record: all cells of a hostile page may share one record with very many columns.
const INDEX_COLUMNS_MAX: usize = 256;
/// The minimum size of a cell and its pointer.
const CELL_MIN: usize = 4;

/// Sizes in a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) page_size: u32,
    /// The part of a page that is available for content, without the bytes reserved at its end.
    pub(crate) usable: u32,
}

impl Geometry {
    /// Parses the first 100 bytes of a file; `None` if they are not SQLite's.
    pub(crate) fn read(header: &[u8]) -> Option<Geometry> {
        if header.get(..16)? != MAGIC || header.get(RESERVED)?.iter().any(|byte| *byte != 0) {
            return None;
        }
        let page_size = match u16_at(header, 16)? {
            1 => 65_536,
            size => u32::from(size),
        };
        let usable = page_size.checked_sub(u32::from(*header.get(20)?))?;
        let fits = page_size.is_power_of_two() && page_size >= 512 && usable >= USABLE_MIN;
        fits.then_some(Geometry { page_size, usable })
    }
}

/// What a b-tree page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    IndexInterior,
    TableInterior,
    IndexLeaf,
    TableLeaf,
}

impl Kind {
    /// Decodes a page's first byte (on page 1, the first after the file header).
    pub(crate) fn of(first: u8) -> Option<Kind> {
        match first {
            2 => Some(Kind::IndexInterior),
            5 => Some(Kind::TableInterior),
            10 => Some(Kind::IndexLeaf),
            13 => Some(Kind::TableLeaf),
            _ => None,
        }
    }

    pub(crate) fn is_interior(self) -> bool {
        matches!(self, Kind::IndexInterior | Kind::TableInterior)
    }

    fn is_index(self) -> bool {
        matches!(self, Kind::IndexInterior | Kind::IndexLeaf)
    }
}

/// A page that looks like a b-tree page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    /// Without the reserved bytes.
    bytes: &'a [u8],
    kind: Kind,
    /// Where the cell pointers begin and end.
    pointers: (usize, usize),
}

impl<'a> Page<'a> {
    /// Parses the page with this number, counted from 1.
    pub(crate) fn read(bytes: &'a [u8], number: u32, geometry: Geometry) -> Option<Page<'a>> {
        let bytes = bytes.get(..geometry.usable as usize)?;
        let start = if number == 1 { HEADER } else { 0 };
        let kind = Kind::of(*bytes.get(start)?)?;
        let cells = usize::from(u16_at(bytes, start + 3)?);
        let first = start + if kind.is_interior() { 12 } else { 8 };
        // [PAG-2]
        let fits = first + 2 * cells <= bytes.len() && cells <= bytes.len() / CELL_MIN;
        fits.then_some(Page { bytes, kind, pointers: (first, first + 2 * cells) })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of cells; an interior page has one more child than cells.
    pub(crate) fn cells(&self) -> usize {
        (self.pointers.1 - self.pointers.0) / 2
    }

    /// An interior page's child, in order; the last one follows all cells.
    pub(crate) fn child(&self, at: usize) -> Option<u32> {
        if !self.kind.is_interior() {
            return None;
        }
        let child = if at == self.cells() {
            u32_at(self.bytes, self.pointers.0 - 4)
        } else {
            u32_at(self.cell(at)?, 0)
        };
        child.filter(|child| *child > 0)
    }

    /// The rowid in a table's cell: in a leaf, the row's; in an interior page, the largest one in the child of this
    /// number.
    pub(crate) fn rowid(&self, at: usize) -> Option<i64> {
        let cell = self.cell(at)?;
        let before = match self.kind {
            Kind::TableInterior => 4,
            Kind::TableLeaf => varint(cell)?.1,
            Kind::IndexInterior | Kind::IndexLeaf => return None,
        };
        Some(varint(cell.get(before..)?)?.0 as i64)
    }

    /// The key of a leaf's row: in a table the rowid, in an index the first column if it is an integer.
    pub(crate) fn key(&self, at: usize) -> Option<i64> {
        match self.kind {
            Kind::TableLeaf => self.rowid(at),
            Kind::IndexLeaf => self.record(at)?.first_integer(),
            Kind::TableInterior | Kind::IndexInterior => None,
        }
    }

    /// The places of the rows with this key, in a sorted leaf.
    pub(crate) fn places(&self, key: i64) -> impl Iterator<Item = usize> {
        let (mut first, mut end) = (0, self.cells());
        while first < end {
            let middle = first + (end - first) / 2;
            if self.key(middle).is_some_and(|it| it >= key) {
                end = middle;
            } else {
                first = middle + 1;
            }
        }
        (first..self.cells()).take_while(move |at| self.key(*at) == Some(key))
    }

    /// A cell's record, as far as it lies in this page.
    pub(crate) fn record(&self, at: usize) -> Option<Record<'a>> {
        let (payload, _, here) = self.payload(at)?;
        Some(Record { bytes: payload.get(..here)? })
    }

    /// The overflow pages of a cell's record, if it does not end in this page.
    pub(crate) fn overflow(&self, at: usize) -> Option<Overflow> {
        let (payload, size, here) = self.payload(at)?;
        let elsewhere = size.checked_sub(here).filter(|bytes| *bytes > 0)?;
        let first = u32_at(payload, here).filter(|first| *first > 0)?;
        // Each overflow page begins with the number of the next one.
        let pages = elsewhere.div_ceil(self.bytes.len() - 4).try_into().unwrap_or(u32::MAX);
        Some(Overflow { first, pages })
    }

    /// A cell from its record on, the record's size in bytes, and the number of those that lie in this page.
    fn payload(&self, at: usize) -> Option<(&'a [u8], usize, usize)> {
        let mut cell = self.cell(at)?;
        match self.kind {
            Kind::TableInterior => return None,
            Kind::IndexInterior => cell = cell.get(4..)?,
            Kind::IndexLeaf | Kind::TableLeaf => {}
        }
        let (size, used) = varint(cell)?;
        cell = cell.get(used..)?;
        if self.kind == Kind::TableLeaf {
            cell = cell.get(varint(cell)?.1..)?;
        }
        let size = usize::try_from(size).ok()?;
        Some((cell, size, self.payload_here(size)))
    }

    /// How many bytes of a payload of `size` bytes lie in the page rather than in overflow pages.
    fn payload_here(&self, size: usize) -> usize {
        let usable = self.bytes.len();
        let most = if self.kind.is_index() { (usable - 12) * 64 / 255 - 23 } else { usable - 35 };
        if size <= most {
            return size;
        }
        let least = (usable - 12) * 32 / 255 - 23;
        let here = least + (size - least) % (usable - 4);
        if here <= most { here } else { least }
    }

    fn cell(&self, at: usize) -> Option<&'a [u8]> {
        if at >= self.cells() {
            return None;
        }
        let place = usize::from(u16_at(self.bytes, self.pointers.0 + 2 * at)?);
        if place < self.pointers.1 { None } else { self.bytes.get(place..) }
    }
}

/// The overflow pages of a record, as its cell states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// The first page; each page names the next.
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

/// A record: columns, the last of which may lie in overflow pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
}

/// A column's value, as far as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Text(&'a [u8]),
    Other,
}

impl<'a> Record<'a> {
    /// The columns in order, as far as they lie in the page.
    pub(crate) fn columns(self) -> impl Iterator<Item = Value<'a>> {
        let fields = self.fields();
        fields.map_while(move |(kind, start, size)| {
            let bytes = self.bytes.get(start..start.checked_add(size)?)?;
            Some(value(kind, bytes))
        })
    }

    /// The first column, if it is an integer.
    pub(crate) fn first_integer(self) -> Option<i64> {
        match self.columns().next()? {
            Value::Integer(integer) => Some(integer),
            Value::Text(_) | Value::Other => None,
        }
    }

    /// The last column, if it is an integer: in an index, the row's rowid.
    pub(crate) fn last_integer(self) -> Option<i64> {
        let mut fields = self.fields();
        let (kind, start, size) = fields.by_ref().take(INDEX_COLUMNS_MAX).last()?;
        if fields.next().is_some() {
            return None;
        }
        match value(kind, self.bytes.get(start..start.checked_add(size)?)?) {
            Value::Integer(integer) => Some(integer),
            Value::Text(_) | Value::Other => None,
        }
    }

    /// The type, offset and size in bytes of each column, until the record's header ends.
    fn fields(self) -> impl Iterator<Item = (u64, usize, usize)> {
        let (size, used) = varint(self.bytes).unwrap_or((0, 0));
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(self.bytes.len());
        let mut header = self.bytes.get(used..size).unwrap_or(&[]);
        let mut start = size;
        std::iter::from_fn(move || {
            let (kind, used) = varint(header)?;
            header = &header[used..];
            let size = match kind {
                0 | 8 | 9 => 0,
                1..=4 => kind as usize,
                5 => 6,
                6 | 7 => 8,
                10 | 11 => return None, // never in a file
                _ => usize::try_from((kind - 12) / 2).ok()?,
            };
            let at = start;
            start = start.checked_add(size)?;
            Some((kind, at, size))
        })
    }
}

fn value(kind: u64, bytes: &[u8]) -> Value<'_> {
    match kind {
        8 | 9 => Value::Integer(kind as i64 - 8),
        1..=6 => {
            let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
            Value::Integer(bytes.iter().fold(sign, |all, byte| all << 8 | i64::from(*byte)))
        }
        _ if kind >= 13 && kind % 2 == 1 => Value::Text(bytes),
        _ => Value::Other,
    }
}

/// A varint of one to nine bytes, and its length in bytes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(9) {
        if at == 8 {
            return Some((number << 8 | u64::from(byte), 9));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

/// The number of the next overflow page, from the first bytes of an overflow page; 0 if it is the last one.
pub(crate) fn link_of(bytes: &[u8]) -> Option<u32> {
    u32_at(bytes, 0)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads every field of a page.
    fn exhaust(bytes: &[u8], number: u32, geometry: Geometry) -> usize {
        let Some(page) = Page::read(bytes, number, geometry) else { return 0 };
        assert!(page.cells() * CELL_MIN <= bytes.len(), "[PAG-2]");
        let mut found = 0;
        for at in 0..page.cells() + 2 {
            found += usize::from(page.child(at).is_some()) + usize::from(page.rowid(at).is_some());
            // A call may return all of the page's rows.
            let key = page.key(at).filter(|_| at % 251 == 0);
            found += key.map_or(0, |key| page.places(key).count());
            found += usize::from(page.overflow(at).is_some());
            if let Some(record) = page.record(at) {
                found += record.columns().count() + usize::from(record.last_integer().is_some());
            }
        }
        found
    }

    #[test]
    fn varints_have_one_to_nine_bytes() {
        assert_eq!(varint(&[0x7f]), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0xff; 8]), None);
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn columns_are_read_from_a_record() {
        let bytes = [7, 0, 1, 2, 9, 17, 1, 0xff, 0x12, 0x34, b'a', b'b', 5];
        let columns: Vec<_> = Record { bytes: &bytes }.columns().collect();
        let expected = [
            Value::Other,
            Value::Integer(-1),
            Value::Integer(0x1234),
            Value::Integer(1),
            Value::Text(b"ab"),
            Value::Integer(5),
        ];
        assert_eq!(columns, expected);
        assert_eq!(Record { bytes: &bytes }.last_integer(), Some(5));
        assert_eq!(Record { bytes: &bytes[..12] }.last_integer(), None, "it lies elsewhere");
    }

    #[test]
    fn a_header_that_is_not_sqlites_has_no_geometry() {
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        for (size, reserved, expected) in [
            ([0x10, 0], 0, Some((4096, 4096))),
            ([0, 1], 32, Some((65_536, 65_504))),
            ([2, 0], 32, Some((512, 480))),
            ([2, 0], 33, None),
            ([1, 0], 0, None),
            ([0x10, 1], 0, None),
            ([0x10, 0], 0, Some((4096, 4096))),
        ] {
            header[16..18].copy_from_slice(&size);
            header[20] = reserved;
            let geometry = Geometry::read(&header);
            assert_eq!(geometry.map(|it| (it.page_size, it.usable)), expected);
        }
        assert!(Geometry::read(&header).is_some());
        for encrypted in RESERVED {
            header[encrypted] = 1;
            assert_eq!(Geometry::read(&header), None, "byte {encrypted}");
            header[encrypted] = 0;
        }
        header[3] ^= 1;
        assert_eq!(Geometry::read(&header), None);
        assert_eq!(Geometry::read(&header[..50]), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_answered(
            size in 9_u32..=16,
            reserved in 0_u32..=32,
            number in 1_u32..3,
            kind in prop::sample::select(vec![2_u8, 5, 10, 13]),
            cells in any::<u16>(),
            seed in prop::collection::vec(any::<u8>(), 1..200),
        ) {
            let geometry = Geometry { page_size: 1 << size, usable: (1 << size) - reserved };
            let mut bytes: Vec<u8> =
                seed.iter().copied().cycle().take(geometry.page_size as usize).collect();
            let start = if number == 1 { HEADER } else { 0 };
            bytes[start] = kind;
            for cells in [cells, cells % 16] {
                bytes[start + 3..start + 5].copy_from_slice(&cells.to_be_bytes());
                exhaust(&bytes, number, geometry); // [PAG-1]
                exhaust(&bytes[..bytes.len() / 2], number, geometry);
            }
        }
    }
}
