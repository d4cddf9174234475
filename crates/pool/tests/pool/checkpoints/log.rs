//! A log for checkpoints: it allocates positions, records the ends of checkpoints, and fails on command.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay::{Lsn, Wal};

/// The length of a record, if records were stored.
const RECORD_BYTES: u64 = 100;

type Ended = Box<dyn Fn(Lsn) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Log {
    end: AtomicU64,
    flushed: AtomicU64,
    /// The log cannot be flushed.
    pub(crate) refuses: AtomicBool,
    pub(crate) panics: AtomicBool,
    /// The log cannot even report its end.
    pub(crate) is_lost: AtomicBool,
    /// The log cannot record that a checkpoint has ended.
    pub(crate) forgets: AtomicBool,
    /// Its position is the largest number.
    pub(crate) position_unknown: AtomicBool,
    redo_points: Mutex<Vec<Lsn>>,
    ended: Option<Ended>,
}

impl Log {
    /// `ended` is called for every checkpoint that succeeded.
    pub(crate) fn watched(ended: impl Fn(Lsn) + Send + Sync + 'static) -> Log {
        Log { ended: Some(Box::new(ended)), ..Log::default() }
    }

    pub(crate) fn append(&self) -> Lsn {
        Lsn(self.end.fetch_add(RECORD_BYTES, Ordering::SeqCst) + RECORD_BYTES)
    }

    /// Removes the last record.
    pub(crate) fn go_back(&self) {
        self.end.fetch_sub(RECORD_BYTES, Ordering::SeqCst);
    }

    /// The redo points of all checkpoints that succeeded, in order.
    pub(crate) fn redo_points(&self) -> Vec<Lsn> {
        self.redo_points.lock().unwrap().clone()
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        assert!(!self.panics.load(Ordering::SeqCst), "the log panics, as the test wants it");
        if self.refuses.load(Ordering::SeqCst) {
            return Err("the log's disk has failed".into());
        }
        self.flushed.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::SeqCst))
    }

    fn position(&self) -> Lsn {
        if self.position_unknown.load(Ordering::SeqCst) {
            return Lsn(u64::MAX);
        }
        assert!(!self.is_lost.load(Ordering::SeqCst), "the log panics, as the test wants it");
        Lsn(self.end.load(Ordering::SeqCst))
    }

    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.forgets.load(Ordering::SeqCst) {
            return Err("the control file cannot be written".into());
        }
        if let Some(ended) = &self.ended {
            ended(redo);
        }
        self.redo_points.lock().unwrap().push(redo);
        Ok(())
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Log").field("end", &self.end).finish_non_exhaustive()
    }
}
