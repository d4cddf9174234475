//! Dirty extents: the contents of a write cache that are not on the medium yet.
//!
//! Extents that touch are merged, so that data written in small pieces leaves in large ones. Extents leave in
//! order of position, upwards from the last one and then from the start again.
//!
//! A flush needs to know whether anything older than itself is left. Each extent has the epoch of its
//! oldest part; a flush begins a new epoch.
//!
//! Invariants:  [DIR-1] extents neither overlap nor touch, and `bytes` is the sum of their lengths

use std::collections::BTreeMap;

/// A range of the address space that must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) epoch: u64,
}

impl Extent {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The dirty extents of a cache, in the caller's units.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// End and epoch by start.
    extents: BTreeMap<u64, (u64, u64)>,
    total: u64,
}

impl Dirty {
    /// The dirty amount.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether nothing is dirty.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Makes a range dirty. Returns the increase of the total: less than the range's length if part
    /// of it was dirty already.
    pub(crate) fn insert(&mut self, start: u64, end: u64, epoch: u64) -> u64 {
        let before = self.total;
        let mut merged = Extent { start, end, epoch };
        while let Some((&other_start, &(other_end, other_epoch))) =
            self.extents.range(..=merged.end).next_back()
        {
            if other_end < merged.start {
                break;
            }
            self.extents.remove(&other_start);
            self.total -= other_end - other_start;
            merged.start = merged.start.min(other_start);
            merged.end = merged.end.max(other_end);
            merged.epoch = merged.epoch.min(other_epoch);
        }
        self.extents.insert(merged.start, (merged.end, merged.epoch));
        self.total += merged.len();
        self.total - before
    }

    /// How much of a range is not dirty yet.
    pub(crate) fn missing(&self, start: u64, end: u64) -> u64 {
        let mut dirty = 0;
        for (&other_start, &(other_end, _)) in self.extents.range(..end).rev() {
            if other_end <= start {
                break;
            }
            dirty += other_end.min(end) - other_start.max(start);
        }
        (end - start) - dirty
    }

    /// At most `max` of the first extent at or after `from`, or of the first extent of all if there is none.
    pub(crate) fn next(&self, from: u64, max: u64) -> Option<Extent> {
        let after = self.extents.range(from..).next();
        let (&start, &(end, epoch)) = after.or_else(|| self.extents.first_key_value())?;
        Some(Extent { start, end: end.min(start + max), epoch })
    }

    /// Removes what [`Self::next`] returned.
    pub(crate) fn take(&mut self, extent: Extent) {
        let taken = self.extents.remove(&extent.start);
        let (end, epoch) = taken.expect("[DIR-1] what is taken out is there");
        assert!(extent.end <= end, "[DIR-1] no more is taken than is there");
        if extent.end < end {
            self.extents.insert(extent.end, (end, epoch));
        }
        self.total -= extent.len();
    }

    /// Whether an extent of an epoch before `epoch` is left.
    pub(crate) fn older_than(&self, epoch: u64) -> bool {
        self.extents.values().any(|&(_, of)| of < epoch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extents_are_what_a_set_of_units_would_be(
            steps in prop::collection::vec((0_u64..200, 1_u64..30, any::<bool>()), 1..60),
        ) {
            let (mut dirty, mut naive) = (Dirty::default(), BTreeSet::new());
            for (epoch, &(start, len, insert)) in steps.iter().enumerate() {
                let end = start + len;
                if insert {
                    let missing = (start..end).filter(|at| !naive.contains(at)).count() as u64;
                    prop_assert_eq!(dirty.missing(start, end), missing);
                    prop_assert_eq!(dirty.insert(start, end, epoch as u64), missing);
                    naive.extend(start..end);
                } else if let Some(extent) = dirty.next(start, len) {
                    let expected = naive.range(start..).next().or_else(|| naive.first());
                    // A first extent that began before `start` does not count as after it.
                    if naive.contains(&start) && start > 0 && naive.contains(&(start - 1)) {
                        prop_assert!(naive.contains(&extent.start));
                    } else {
                        prop_assert_eq!(Some(&extent.start), expected);
                    }
                    dirty.take(extent);
                    for at in extent.start..extent.end {
                        prop_assert!(naive.remove(&at));
                    }
                }
                prop_assert_eq!(dirty.total(), naive.len() as u64, "[DIR-1]");
                let runs = naive.iter().filter(|&&at| at == 0 || !naive.contains(&(at - 1)));
                // Taking a part of an extent leaves a rest that begins where the part ended.
                prop_assert_eq!(dirty.extents.len(), runs.count(), "[DIR-1]");
            }
        }
    }

    #[test]
    fn an_extent_is_as_old_as_its_oldest_part() {
        let mut dirty = Dirty::default();
        dirty.insert(10, 20, 1);
        dirty.insert(20, 30, 5);
        assert!(dirty.older_than(2));
        let extent = dirty.next(0, 100).unwrap();
        assert_eq!((extent.start, extent.end, extent.epoch), (10, 30, 1));
        dirty.take(extent);
        assert!(!dirty.older_than(9) && dirty.is_empty());
    }
}
