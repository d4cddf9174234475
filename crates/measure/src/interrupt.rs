//! Ctrl-C: noticed between two requests, so that the run unwinds in the ordinary way.
//!
//! A first signal asks the run to stop; it ends as after an error, everything that was changed is
//! restored, and the requests in flight are drained. A second one ends the process at once, except for
//! what has been registered as a [`Cleanup`]: a device's setting that must be restored, a
//! directory that must be removed. A kill cannot be caught; the working file of `depth` has no name and
//! is removed even then.
//!
//! Invariants:  [INT-1] a cleanup is done once, whether its guard or a second signal is first
//!              [INT-2] after a second signal nothing new is begun: a thread that asks first waits for the end
//! Concurrency: a separate thread handles signals; a thread that is second to a cleanup in progress
//!              waits for its end, so the process does not exit in the middle of one.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::output::note;

/// The run was interrupted by the user.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A second signal has arrived, and the process is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The outstanding cleanups, oldest first.
static CLEANUPS: Mutex<BTreeMap<u64, Work>> = Mutex::new(BTreeMap::new());

/// A cleanup could not be done.
static LEFT: AtomicBool = AtomicBool::new(false);

static NEXT_CLEANUP: AtomicU64 = AtomicU64::new(0);

type Work = Box<dyn FnOnce() + Send>;

fn cleanups() -> MutexGuard<'static, BTreeMap<u64, Work>> {
    CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that is done on every exit, also when a second signal ends the process at once.
#[derive(Debug)]
pub struct Cleanup {
    number: u64,
}

impl Cleanup {
    /// Runs `work` when this is dropped, or on a second signal, whichever is first. `work`
    /// must not make or drop a `Cleanup` itself.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Cleanup {
        let number = NEXT_CLEANUP.fetch_add(1, Ordering::Relaxed);
        cleanups().insert(number, Box::new(work));
        Cleanup { number }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // Under the lock: the process must not exit while this is half done.
        let mut cleanups = cleanups();
        // Absent when a second signal has done it.
        if let Some(work) = cleanups.remove(&self.number) {
            work();
        }
    }
}

/// Runs all remaining cleanups, the newest first, as drops would.
fn clean_up() {
    let mut cleanups = cleanups();
    while let Some((_, work)) = cleanups.pop_last() {
        work();
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP ask the run to stop; a second one ends it at once.
///
/// # Errors
/// The system refuses the handler.
pub fn install() -> anyhow::Result<()> {
    on_signals(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            ENDING.store(true, Ordering::SeqCst);
            clean_up();
            std::process::exit(130);
        }
    })
}

/// From now on a separate thread calls `handle` for each SIGINT, SIGTERM and SIGHUP. A SIGHUP that was ignored
/// when the process started stays ignored: `nohup` means that.
///
/// # Errors
/// When the system refuses the handler.
pub fn on_signals(mut handle: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let listen = || {
        // A byte for each signal, so that two signals are distinct.
        let (mut receiver, sender) = UnixStream::pair()?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal != SIGHUP || !is_ignored(signal, &status) {
                pipe::register(signal, sender.try_clone()?)?;
            }
        }
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while receiver.read_exact(&mut [0]).is_ok() {
                handle();
            }
        })
    };
    listen().map(drop).context("cannot listen for Ctrl-C")
}

/// Whether a process with this /proc/PID/status ignores `signal`; false without such a file.
fn is_ignored(signal: i32, status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether the user has asked to stop; does not wait, for callers that must finish something first.
pub fn is_requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Stops the run like a first Ctrl-C.
pub fn request() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Whether a second signal has arrived, and cleanups are running.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Does not return while a second signal ends the process ([INT-2]). For callers that are about to make something
/// that a cleanup may just have removed, or to end the process with another code.
pub fn wait_if_ending() {
    while is_ending() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Reports that a cleanup could not be done, and what is left.
pub fn left(what: &str) {
    LEFT.store(true, Ordering::SeqCst);
    note(what);
}

/// Whether all cleanups could be done so far.
pub fn is_clean() -> bool {
    !LEFT.load(Ordering::SeqCst)
}

/// `Err(Interrupted)` once the user has asked to stop.
///
/// # Errors
/// [`Interrupted`].
pub fn check() -> Result<(), Interrupted> {
    wait_if_ending();
    if is_requested() { Err(Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn what_is_ignored_is_read_from_the_mask() {
        let status = "Name:\tforebay\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(SIGHUP, status) && !is_ignored(SIGINT, status));
        assert!(!is_ignored(SIGHUP, "") && !is_ignored(SIGHUP, "SigIgn:\tx"));
    }

    #[test]
    fn a_thread_that_asks_after_a_second_signal_does_not_go_on() {
        let (say, said) = std::sync::mpsc::channel();
        ENDING.store(true, Ordering::SeqCst);
        let thread = std::thread::spawn(move || {
            let checked = check();
            say.send(()).unwrap();
            checked.is_ok()
        });
        let early = said.recv_timeout(std::time::Duration::from_millis(300));
        // For the other tests of this process; the real end does not need it.
        ENDING.store(false, Ordering::SeqCst);
        assert!(thread.join().unwrap());
        assert!(early.is_err(), "[INT-2]");
    }

    /// One test, since the whole process shares the list of cleanups.
    #[test]
    fn a_cleanup_is_done_once_by_its_guard_a_panic_or_a_second_signal() {
        let done = Arc::new(AtomicU32::new(0));
        let counting = || {
            let done = Arc::clone(&done);
            Cleanup::new(move || {
                done.fetch_add(1, Ordering::SeqCst);
            })
        };
        let count = || done.load(Ordering::SeqCst);
        drop(counting());
        assert_eq!(count(), 1, "[INT-1]");

        let cleanup = counting();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _cleanup = cleanup;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(count(), 2, "[INT-1]");

        let kept = counting();
        let number = kept.number;
        // As `clean_up`, except for the cleanups of other tests.
        let work = cleanups().remove(&number).unwrap();
        work();
        drop(kept);
        assert_eq!(count(), 3, "[INT-1]");
    }
}
