//! The log hook: no page is written before the log that explains it.
//!
//! The pool knows LSNs and nothing else of a log. Before it writes a page it asks the log to be
//! durable up to the page's newest change; if the log says no, the page stays dirty in memory.

use std::error::Error;
use std::fmt;

use crate::tag::Lsn;

/// A write-ahead log, as far as a pool needs one.
///
/// Called from any thread that needs a frame, from the cleaner and from checkpoints; never with a
/// latch taken by the pool itself, but perhaps with latches of the engine's: the calling thread may
/// be about to read one page with another one latched. An implementation must not use the pool that calls it: the caller
/// may be the only one who could free the frame it would wait for.
pub trait Wal: fmt::Debug + Send + Sync {
    /// Makes the log durable at least up to and including `lsn`.
    ///
    /// # Errors
    /// Whatever keeps the log from it. The page is then not written.
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The newest record so far: every record appended after this call has a larger LSN. A checkpoint
    /// takes it for its redo point: recovery has to do again what was logged after it. The difference of
    /// two is taken for bytes of log. Default: [`Wal::flushed`].
    fn position(&self) -> Lsn {
        self.flushed()
    }

    /// A checkpoint has ended well: every change logged up to `redo` is in the files, and durable. To be
    /// made durable itself (in a control file, say) before this returns; only then may the log up to
    /// `redo` go. Called by the checkpoint thread, one call at a time. Default: nothing.
    ///
    /// # Errors
    /// Whatever keeps it from being durable. Then the checkpoint has failed.
    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = redo;
        Ok(())
    }

    /// How far the log is durable already. Cheap: a bulk read asks before it decides whether to
    /// reuse a dirty frame of its ring.
    fn flushed(&self) -> Lsn;
}
