//! Which read mode has won among streams of a tablespace: the starting mode of the next ones.

use forebay_lookahead::Side;

use crate::sync::{AtomicU32, Ordering};

/// Which mode has won among the scans of a tablespace, and among its other streams.
#[derive(Debug, Default)]
pub(crate) struct Winners([AtomicU32; 2]);

impl Winners {
    /// `None` before there was a trial.
    pub(crate) fn get(&self, scans: bool) -> Option<Side> {
        match self.0[usize::from(scans)].load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Side::First),
            _ => Some(Side::Second),
        }
    }

    pub(crate) fn set(&self, scans: bool, winner: Side) {
        self.0[usize::from(scans)].store(winner as u32 + 1, Ordering::Relaxed);
    }
}
