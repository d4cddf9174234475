//! The kinds of access strategy: what a caller is about to do with the requested pages.

use crate::names::names;

/// A caller's use of pages, which determines whose frames its pages may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum StrategyKind {
    /// Pages are likely to be needed again; they compete for the whole pool.
    #[default]
    Normal,
    /// Reads a lot once, through a private ring.
    BulkRead,
    /// Writes a lot once, through a private ring.
    BulkWrite,
    /// Goes through a file to clean it up, through a private ring.
    Maintenance,
}

names!(StrategyKind:
    Normal "normal", BulkRead "bulk_read", BulkWrite "bulk_write", Maintenance "maintenance"
);

impl StrategyKind {
    /// How many kinds there are.
    pub const COUNT: usize = 4;

    /// Position in [`StrategyKind::ALL`], from 0.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_at_its_index() {
        for (index, kind) in StrategyKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }

    #[test]
    fn names_can_stand_in_a_metric_label() {
        let names = StrategyKind::ALL.map(|kind| kind.to_string());
        assert_eq!(names, ["normal", "bulk_read", "bulk_write", "maintenance"]);
    }
}
