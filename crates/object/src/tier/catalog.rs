//! What is in the tier, and what is evicted for new pages.
//!
//! Segments are evicted as a whole, the oldest first; a segment with a hit since is spared once. Pages of a
//! request for many pages, as scans make them, fill empty space and replace segments without hits, but
//! no others: a page of such a request is worth a thousandth of a request, a page that was fetched alone a whole
//! one. So a scan does not wipe the tier, and one larger than the tier finds the same part of its pages each time. When
//! 64 times the size of the tier was turned away, earlier hits no longer count, so that nothing is kept forever.
//!
//! Invariants:  [TIR-1] all segments together take no more than the configured bytes

use std::collections::{HashMap, VecDeque};

use forebay_io::File;

use super::segment::{Row, Segment, SlotKey, Spot};

/// How many times the tier's size is turned away before hits are forgotten.
const REFUSED_MOST: u64 = 64;

#[derive(Debug)]
pub(super) struct Catalog {
    /// By the object's stamp, then by slot.
    index: HashMap<u64, Vec<(u32, Spot)>>,
    /// In the order of eviction.
    segments: VecDeque<Segment>,
    /// Maximum bytes of a segment.
    pub(super) segment_bytes: u64,
    /// Maximum bytes of all segments: as configured, or fewer if the disk has less space.
    limit: u64,
    /// The number of the next segment. Numbers are not reused, since there may be hits in the earlier segment.
    next: u32,
    /// Bytes turned away.
    refused: u64,
}

impl Catalog {
    pub(super) fn new(segment_bytes: u64, limit: u64) -> Catalog {
        let (index, segments) = (HashMap::new(), VecDeque::new());
        Catalog { index, segments, segment_bytes, limit, next: 0, refused: 0 }
    }

    pub(super) fn find(&self, key: SlotKey) -> Option<Spot> {
        let slots = self.index.get(&key.stamp)?;
        let at = slots.binary_search_by_key(&key.slot, |it| it.0).ok()?;
        Some(slots[at].1)
    }

    pub(super) fn insert(&mut self, key: SlotKey, spot: Spot) {
        let slots = self.index.entry(key.stamp).or_default();
        match slots.binary_search_by_key(&key.slot, |it| it.0) {
            Ok(at) => slots[at].1 = spot,
            Err(at) => slots.insert(at, (key.slot, spot)),
        }
    }

    /// Removes a slot, if it is still there.
    pub(super) fn remove(&mut self, key: SlotKey, spot: Spot) {
        if let Some(slots) = self.index.get_mut(&key.stamp) {
            slots.retain(|it| *it != (key.slot, spot));
        }
    }

    /// Records a hit in a segment, and returns its file.
    pub(super) fn used(&mut self, number: u32) -> Option<File> {
        let segment = self.segments.iter_mut().find(|it| it.number == number)?;
        segment.used = true;
        Some(segment.file.clone())
    }

    /// The segment being filled: the newest, if it has room for a slot of `bytes`.
    pub(super) fn open(&mut self, bytes: u64) -> Option<&mut Segment> {
        let most = self.segment_bytes;
        let newest = self.segments.iter_mut().max_by_key(|it| it.number)?;
        (newest.taken < newest.rows && newest.end + bytes <= most).then_some(newest)
    }

    /// Adopts an existing segment, if it fits in addition to the newer ones.
    pub(super) fn take_up(&mut self, segment: Segment, rows: Vec<Row>) -> bool {
        self.segments.push_front(segment);
        let fits = self.reserved() <= self.limit;
        if fits {
            rows.into_iter().for_each(|(key, spot)| self.insert(key, spot));
        } else {
            self.segments.pop_front();
        }
        fits
    }

    /// Adds slots to a segment, unless it was evicted.
    pub(super) fn filled(&mut self, number: u32, slots: &[Row], bytes: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|it| it.number == number) {
            segment.taken += slots.len() as u32;
            segment.end += bytes;
            slots.iter().for_each(|(key, spot)| self.insert(*key, *spot));
        }
    }

    /// Closes a segment for further slots; up to `bytes` more may have been written into it.
    pub(super) fn seal(&mut self, number: u32, bytes: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|it| it.number == number) {
            segment.taken = segment.rows;
            segment.end += bytes;
        }
    }

    /// Adds a segment after room was made for it; not if the catalog was cleared meanwhile.
    pub(super) fn add(&mut self, segment: Segment) -> bool {
        if self.is_off() {
            return false;
        }
        self.segments.push_back(segment);
        assert!(self.reserved() <= self.limit, "[TIR-1] {} bytes", self.reserved());
        true
    }

    /// Numbers new segments from the one after `number`.
    pub(super) fn begin_after(&mut self, number: u32) {
        self.next = number.saturating_add(1);
    }

    pub(super) fn next_number(&mut self) -> u32 {
        let number = self.next;
        self.begin_after(number);
        number
    }

    /// Makes room for one more segment, for a page that arrived in a request for `many` pages or alone. Returns the
    /// evicted segments, and whether there is room then.
    pub(super) fn make_room(&mut self, many: bool) -> (Vec<u32>, bool) {
        let bytes = self.segment_bytes;
        let mut evicted = Vec::new();
        let mut spared = self.segments.len();
        while self.reserved() + bytes > self.limit {
            let Some(mut oldest) = self.segments.pop_front() else { break };
            if oldest.used && many {
                self.segments.push_front(oldest);
                break;
            }
            if oldest.used && spared > 0 {
                spared -= 1;
                oldest.used = false;
                self.segments.push_back(oldest);
                continue;
            }
            evicted.push(oldest);
        }
        (self.forget(evicted), self.reserved() + bytes <= self.limit)
    }

    fn forget(&mut self, evicted: Vec<Segment>) -> Vec<u32> {
        let evicted: Vec<u32> = evicted.into_iter().map(|it| it.number).collect();
        if !evicted.is_empty() {
            self.index.retain(|_, slots| {
                slots.retain(|(_, spot)| !evicted.contains(&spot.segment));
                !slots.is_empty()
            });
        }
        evicted
    }

    /// Records that `bytes` of large requests were turned away.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.refused += bytes;
        if self.refused > REFUSED_MOST * self.limit {
            self.refused = 0;
            self.segments.iter_mut().for_each(|it| it.used = false);
        }
    }

    /// The disk is full: reduces the limit by one segment, but never below one. Returns the evicted segments.
    pub(super) fn shrink(&mut self) -> Vec<u32> {
        let evicted = self.pop_oldest().into_iter().collect();
        let segments = self.segments.len().max(1) as u64;
        self.limit = self.limit.min(segments * self.segment_bytes);
        self.forget(evicted)
    }

    /// A segment could not be deleted, and keeps its space. Returns the segments that are evicted instead.
    pub(super) fn lose(&mut self) -> Vec<u32> {
        self.limit = self.limit.saturating_sub(self.segment_bytes);
        if self.is_off() {
            self.clear();
        }
        let mut evicted = Vec::new();
        while self.reserved() > self.limit {
            evicted.extend(self.pop_oldest());
        }
        self.forget(evicted)
    }

    /// Removes the oldest segment, except for the newest.
    fn pop_oldest(&mut self) -> Option<Segment> {
        let newest = self.segments.iter().map(|it| it.number).max();
        let at = self.segments.iter().position(|it| Some(it.number) != newest);
        self.segments.remove(at.unwrap_or(0))
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        *self = Catalog::new(self.segment_bytes, 0);
    }

    /// Whether the tier is off: it was cleared, or the disk has no space for a segment.
    pub(super) fn is_off(&self) -> bool {
        self.limit < self.segment_bytes
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|it| it.end).sum()
    }

    /// The same, including what the newest may still take.
    fn reserved(&self) -> u64 {
        let open = self.segments.iter().max_by_key(|it| it.number);
        let rest = open.map_or(0, |it| self.segment_bytes.saturating_sub(it.end));
        self.bytes() + rest
    }
}
