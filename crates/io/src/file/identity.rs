//! Which file an open file is, process-wide: its cache mode, and what its syncs may claim.
//!
//! Linux reports a failed writeback once for each open file description, to whichever sync asks
//! first; the next one succeeds although the bytes are gone. So a success proves something only
//! if no sync that ran at the same time on the same description was told of a failure:
//!
//! - Syncs that block their thread run one at a time on the file's own descriptor, and a failure
//!   is latched before the next one may start.
//! - Syncs that the kernel runs (uring, aio) may overlap. They have a descriptor of their own, and
//!   one that succeeds is answered only when all that overlapped it have ended.
//!
//! Invariants:  [SYN-1] a sync that ran beside a failing one does not succeed
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

/// The files open in this process. Entries of closed files are swept when the next one is opened.
static OPEN_FILES: Mutex<BTreeMap<Key, Weak<Identity>>> = Mutex::new(BTreeMap::new());

/// One file, however often it is open.
pub(super) struct Identity {
    cache: CacheMode,
    /// The first failed sync ([FIL-2]).
    failed: OnceLock<Arc<Error>>,
    /// Somebody has been given `failed` as its own error; all others get `Failed`.
    reported: AtomicBool,
    /// The right to sync on the file's own descriptor.
    blocking: Mutex<()>,
    overlapping: Mutex<Overlapping>,
}

/// Syncs that the kernel runs.
#[derive(Default)]
struct Overlapping {
    /// Opened for the first of them, before it starts.
    descriptor: Option<Arc<OwnedFd>>,
    next: u64,
    /// Few, and a list keeps its memory: a sync by itself allocates nothing.
    running: Vec<u64>,
    held: Vec<Held>,
}

/// A sync that succeeded, as far as it knows.
struct Held {
    /// Those that ran beside it and have not ended.
    beside: Vec<u64>,
    answer: SyncAnswer,
}

/// A sync that the kernel runs, from before its start until its end is told to its file.
#[derive(Debug)]
pub(crate) struct RunningSync {
    id: u64,
    pub(crate) descriptor: Arc<OwnedFd>,
}

impl Identity {
    /// Finds or makes the identity of the file of number `key`, about to be used in mode `cache`.
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
        // If there is a first one already, it stays.
        let _ = self.failed.set(Arc::new(error));
    }

    /// What a failed sync is told: the first failure as it is, everyone else that it came first. One that did not run
    /// latches nothing.
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

    /// Notes a sync that the kernel is about to run. `open` makes a descriptor for such syncs.
    pub(super) fn begin_sync(
        &self,
        open: impl FnOnce() -> Result<OwnedFd, Error>,
    ) -> Result<RunningSync, Error> {
        let mut overlapping = lock(&self.overlapping);
        let descriptor = match &overlapping.descriptor {
            Some(descriptor) => Arc::clone(descriptor),
            None => {
                // A new description knows nothing of failures that were told before. While no
                // other sync runs, all of those are latched.
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

    /// Notes the end of a sync and answers it, now or when those beside it have ended.
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
                held.beside.retain(|id| *id != sync.id);
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
                let beside = overlapping.running.clone();
                overlapping.held.push(Held { beside, answer });
                None
            };
            let is_ready = |held: &mut Held| failed || held.beside.is_empty();
            let ready: Vec<Held> = overlapping.held.extract_if(.., is_ready).collect();
            (own, ready)
        };
        // Answers wake threads and take locks of their own.
        let ready = ready.into_iter().map(|held| (held.answer, None));
        for (answer, error) in own.into_iter().chain(ready) {
            answer.tell(match (error, self.failed()) {
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
    // No code that can panic half-way through a change runs under these locks.
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
        let (told, answer) = channel();
        let recipient = Recipient::Then(Box::new(move |done| told.send(done.result).unwrap()));
        identity.end_sync(sync, result, SyncAnswer { queue: Arc::new(Uncounted), recipient });
        answer
    }

    struct Uncounted;

    impl CountSyncs for Uncounted {
        fn answer_sync(&self, recipient: Recipient, result: Result<(), Error>) {
            recipient.tell(Completed { leases: Vec::new(), result });
        }
    }

    fn failure() -> Error {
        Error::Open { file: Path::new("file").into(), source: OsError::EIO }
    }

    #[test]
    fn syn_1_a_success_beside_a_failure_fails_whichever_is_told_first() {
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
        assert!(two.try_recv().is_err(), "the third ran beside it");
        assert!(end(&identity, &third, Ok(())).try_recv().unwrap().is_ok());
        assert!(two.try_recv().unwrap().is_ok());
    }
}
