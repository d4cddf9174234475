//! The recipient of predicted pages: bounded in pages and in look-ups.

use forebay_lookahead::Hints;

use crate::memory::NoMemory;
use crate::tree_counts::TreeCounts;

/// Receives the predicted pages.
pub(super) struct Recipient<'a> {
    pub(super) hints: &'a mut Hints,
    pub(super) tree_counts: &'a mut TreeCounts,
    pub(super) room: u32,
    pub(super) looks: u32,
}

impl Recipient<'_> {
    /// Adds a predicted page of the tree with this root, unless it is known already.
    pub(super) fn predict(&mut self, page: u32, root: u32, resident: bool) -> Result<(), NoMemory> {
        if self.room > 0 && !self.hints.contains(page) {
            self.tree_counts.belongs(page, root)?;
            self.hints.predict(page, resident);
            self.room -= 1;
        }
        Ok(())
    }

    /// Adds a predicted overflow page. `goes_on` says that the row has an overflow page before it.
    pub(super) fn predict_part(
        &mut self,
        page: u32,
        root: u32,
        goes_on: bool,
        in_order: bool,
    ) -> Result<(), NoMemory> {
        if !goes_on || in_order {
            return self.predict(page, root, in_order);
        }
        if self.room > 0 && !self.hints.contains(page) {
            self.tree_counts.belongs(page, root)?;
            self.hints.predict_part(page);
            self.room -= 1;
        }
        Ok(())
    }

    /// Uses up one look-up, if one is left and there is room for its result.
    pub(super) fn look(&mut self) -> bool {
        let goes_on = self.goes_on();
        self.looks -= u32::from(goes_on); // [FOR-2]
        goes_on
    }

    pub(super) fn goes_on(&self) -> bool {
        self.room > 0 && self.looks > 0
    }
}
