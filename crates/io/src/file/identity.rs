//! The process-wide identity of an open file: its cache mode, and whether its syncs may report success.
//!
//! Linux reports a failed writeback once for each open file description, to whichever sync comes first; the next sync
//! succeeds although the bytes are lost. So a success proves something only if no concurrent sync on the same
//! description received a failure:
//!
//! - Blocking syncs run one at a time on the file's own descriptor, and a failure is latched before the next one may
//!   start.
//! - Syncs that the kernel runs asynchronously (uring, aio) may overlap. They use a separate descriptor, and a
//!   successful one is answered only when all syncs that overlapped it have ended.
//!
//! Invariants:  [SYN-1] a sync that overlaps a failing one does not succeed
//! Concurrency: any thread. `blocking` is held across a sync: it is the right to sync.
//! Source:      the kernel's Documentation/filesystems/vfs.rst on errseq_t.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::answer::SyncAnswer;
use crate::error::Error;
use crate::properties::CacheMode;

/// Device and inode number.
type Key = (u64, u64);

/// The files open in this process. Entries of closed files are removed when the next one is opened.
static OPEN_FILES: Mutex<BTreeMap<Key, Weak<Identity>>> = Mutex::new(BTreeMap::new());

/// One file, regardless of how often it is open.
pub(super) struct Identity {
    cache: CacheMode,
    /// The first failed sync ([FIL-2]).
    failed: OnceLock<Arc<Error>>,
    /// One caller has received `failed` as its own error; all others receive `Failed`.
    reported: AtomicBool,
    /// The right to sync on the file's own descriptor.
    blocking: Mutex<()>,
    overlapping: Mutex<Overlapping>,
}

/// Syncs that the kernel runs asynchronously.
#[derive(Default)]
struct Overlapping {
    /// Opened before the first of these syncs starts.
    descriptor: Option<Arc<OwnedFd>>,
    next: u64,
    /// A short list that keeps its memory: a single sync allocates nothing.
    running: Vec<u64>,
    held: Vec<Held>,
}

/// A sync that succeeded, unless an overlapping one fails.
struct Held {
    /// The overlapping syncs that have not ended.
    concurrent: Vec<u64>,
    answer: SyncAnswer,
}

/// A sync that the kernel runs asynchronously, from before its start until its file registers its end.
#[derive(Debug)]
pub(crate) struct RunningSync {
    id: u64,
    pub(crate) descriptor: Arc<OwnedFd>,
}

impl Identity {
    /// Finds or creates the identity of the file with number `key`, for use in mode `cache`.
    pub(super) fn claim(key: Key, cache: CacheMode, path: &Path) -> Result<Arc<Identity>, Error> {
        let mut open_files = lock(&OPEN_FILES);
        if let Some(identity) = open_files.get(&key).and_then(Weak::upgrade) {
            if identity.cache == cache {
                return Ok(identity);
            }
            return Err(Error::MixedModes {
                file: path.into(),
                open_as: identity.cache,
                asked: cache,
            });
        }
        open_files.retain(|_, identity| identity.strong_count() > 0);
        let identity = Arc::new(Identity::new(cache));
        open_files.insert(key, Arc::downgrade(&identity));
        Ok(identity)
    }

    fn new(cache: CacheMode) -> Identity {
        Identity {
            cache,
            failed: OnceLock::new(),
            reported: AtomicBool::new(false),
            blocking: Mutex::new(()),
            overlapping: Mutex::default(),
        }
    }

    /// The first failed sync, if there was one.
    pub(super) fn failed(&self) -> Option<Arc<Error>> {
        self.failed.get().cloned()
    }

    /// Latches `error` without reporting it.
    pub(super) fn latch(&self, error: Error) {
        // An earlier failure stays.
        let _ = self.failed.set(Arc::new(error));
    }

    /// The error that a failed sync reports: the first reporter receives the first failure itself, all others receive
    /// `Failed`. A sync that did not run latches nothing.
    pub(super) fn report(&self, error: Error) -> Error {
        if !has_run(&error) {
            return error;
        }
        self.latch(error.clone());
        let first = self.failed().unwrap_or_else(|| Arc::new(error));
        if self.reported.swap(true, Ordering::SeqCst) {
            Error::Failed { first }
        } else {
            Error::clone(&first)
        }
    }

    /// Waits for the right to sync on the file's own descriptor.
    pub(super) fn sync_alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.blocking)
    }

    /// Registers a sync that the kernel is about to run. `open` creates a descriptor for such syncs.
    pub(super) fn begin_sync(
        &self,
        open: impl FnOnce() -> Result<OwnedFd, Error>,
    ) -> Result<RunningSync, Error> {
        let mut overlapping = lock(&self.overlapping);
        let descriptor = match &overlapping.descriptor {
            Some(descriptor) => Arc::clone(descriptor),
            None => {
                // A new description does not report failures that were reported before. While no other sync runs, all
                // of those are latched.
                let _alone = self.sync_alone();
                let descriptor = Arc::new(open()?);
                overlapping.descriptor = Some(Arc::clone(&descriptor));
                descriptor
            }
        };
        let id = overlapping.next;
        overlapping.next += 1;
        overlapping.running.push(id);
        Ok(RunningSync { id, descriptor })
    }

    /// Registers the end of a sync and answers it, now or when all syncs that overlapped it have ended.
    pub(super) fn end_sync(
        &self,
        sync: &RunningSync,
        result: Result<(), Error>,
        answer: SyncAnswer,
    ) {
        let (own, ready) = {
            let mut overlapping = lock(&self.overlapping);
            let running = overlapping.running.iter().position(|id| *id == sync.id);
            let place = running.expect("[SYN-1] a sync ends once");
            overlapping.running.swap_remove(place);
            for held in &mut overlapping.held {
                held.concurrent.retain(|id| *id != sync.id);
            }
            if let Err(error) = &result
                && has_run(error)
            {
                self.latch(error.clone());
            }
            let failed = self.failed.get().is_some();
            let own = if failed || result.is_err() || overlapping.running.is_empty() {
                Some((answer, result.err()))
            } else {
                let concurrent = overlapping.running.clone();
                overlapping.held.push(Held { concurrent, answer });
                None
            };
            let is_ready = |held: &mut Held| failed || held.concurrent.is_empty();
            let ready: Vec<Held> = overlapping.held.extract_if(.., is_ready).collect();
            (own, ready)
        };
        // Answers wake threads and take other locks.
        let ready = ready.into_iter().map(|held| (held.answer, None));
        for (answer, error) in own.into_iter().chain(ready) {
            answer.deliver(match (error, self.failed()) {
                (Some(error), _) => Err(self.report(error)),
                (None, Some(first)) => Err(Error::Failed { first }),
                (None, None) => Ok(()),
            });
        }
    }
}

/// Whether a sync that ended in `error` reached the kernel, and may have consumed the report of a failed writeback.
fn has_run(error: &Error) -> bool {
    !matches!(error, Error::Unavailable { .. })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic in the middle of a change runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Completed, CountSyncs, Recipient};
    use crate::os_error::OsError;
    use std::sync::mpsc::{Receiver, channel};

    fn begin(identity: &Identity) -> RunningSync {
        let open = || Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        identity.begin_sync(open).unwrap()
    }

    fn end(
        identity: &Identity,
        sync: &RunningSync,
        result: Result<(), Error>,
    ) -> Receiver<Result<(), Error>> {
        let (sender, answer) = channel();
        let recipient = Recipient::Then(Box::new(move |done| sender.send(done.result).unwrap()));
        identity.end_sync(sync, result, SyncAnswer { queue: Arc::new(Uncounted), recipient });
        answer
    }

    struct Uncounted;

    impl CountSyncs for Uncounted {
        fn answer_sync(&self, recipient: Recipient, result: Result<(), Error>) {
            recipient.deliver(Completed { leases: Vec::new(), result });
        }
    }

    fn failure() -> Error {
        Error::Open { file: Path::new("file").into(), source: OsError::EIO }
    }

    #[test]
    fn syn_1_a_success_concurrent_with_a_failure_fails_whichever_is_first() {
        let identity = Identity::new(CacheMode::Buffered);
        let [first, second] = [begin(&identity), begin(&identity)];
        let succeeded = end(&identity, &first, Ok(()));
        assert!(succeeded.try_recv().is_err(), "[SYN-1] it does not know yet");
        let failed = end(&identity, &second, Err(failure()));
        assert!(matches!(failed.recv().unwrap(), Err(Error::Open { .. })));
        assert!(matches!(succeeded.recv().unwrap(), Err(Error::Failed { .. })), "[SYN-1]");

        let identity = Identity::new(CacheMode::Buffered);
        let [first, second] = [begin(&identity), begin(&identity)];
        drop(end(&identity, &first, Err(failure())));
        let succeeded = end(&identity, &second, Ok(()));
        assert!(matches!(succeeded.recv().unwrap(), Err(Error::Failed { .. })), "[SYN-1]");
    }

    #[test]
    fn a_success_waits_only_for_those_it_overlapped() {
        let identity = Identity::new(CacheMode::Buffered);
        let [first, second] = [begin(&identity), begin(&identity)];
        let one = end(&identity, &first, Ok(()));
        let third = begin(&identity);
        let two = end(&identity, &second, Ok(()));
        assert!(one.try_recv().unwrap().is_ok());
        assert!(two.try_recv().is_err(), "the third ran concurrently");
        assert!(end(&identity, &third, Ok(())).try_recv().unwrap().is_ok());
        assert!(two.try_recv().unwrap().is_ok());
    }
}
