//! A backend between the queue and a real one, which simulates rare behaviour of devices.
//!
//! It shortens attempts before they start, and afterwards changes their result or holds it back. Everything happens
//! where the real backend delivers a result, so the real backend itself keeps the promise of `drive` (not to continue
//! sleeping once the condition is true). Therefore held or withheld transfers advance only with the next request.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use forebay_io::backend::{self, Backend, Driven, Next, Sink, Want};
use forebay_io::{Io, IoOptions, Kind, OsError};

pub(crate) use forebay_io::backend::Transfer;

/// Controls what happens to each transfer.
pub(crate) trait Script: Send + Sync + 'static {
    /// Sees every attempt before it starts.
    fn before(&self, _transfer: &mut Transfer) {}

    /// True to keep a transfer from the real backend for now.
    fn withhold(&self, _transfer: &Transfer) -> bool {
        false
    }

    /// Sees every attempt with its result.
    fn after(&self, _transfer: &Transfer, result: Attempt) -> Verdict {
        Verdict::Deliver(result)
    }
}

pub(crate) type Attempt = Result<u64, OsError>;

pub(crate) enum Verdict {
    /// Deliver this result.
    Deliver(Attempt),
    /// Hold it back until [`Rig::deliver_held`].
    Hold,
}

/// The test's view of a rigged backend.
pub(crate) struct Rig {
    queue: Arc<dyn Sink>,
    script: Box<dyn Script>,
    withheld: Mutex<Vec<Transfer>>,
    held: Mutex<Vec<(Transfer, Attempt)>>,
    starts_one: AtomicBool,
    delivers_held: AtomicBool,
    /// Number of threads inside a blocking `drive` now.
    driving: AtomicUsize,
    /// Number of times a thread went to sleep because another one drives.
    sent_to_sleep: AtomicUsize,
}

impl Rig {
    pub(crate) fn open(options: &IoOptions, kind: Kind, script: Box<dyn Script>) -> (Io, Arc<Rig>) {
        let shown = OnceLock::new();
        let io = Io::over(options.queue_depth, |queue| {
            let rig = Arc::new(Rig {
                queue,
                script,
                withheld: Mutex::default(),
                held: Mutex::default(),
                starts_one: AtomicBool::new(false),
                delivers_held: AtomicBool::new(false),
                driving: AtomicUsize::new(0),
                sent_to_sleep: AtomicUsize::new(0),
            });
            let sink: Arc<dyn Sink> = Arc::new(RigSink(Arc::clone(&rig)));
            let inner = backend::open_raw(kind, options, &sink)?;
            assert!(shown.set(Arc::clone(&rig)).is_ok(), "opened once");
            Ok(Box::new(RiggedBackend { inner, rig }))
        });
        (io.unwrap(), shown.into_inner().unwrap())
    }

    /// Starts the oldest withheld transfer together with the next request.
    pub(crate) fn start_withheld(&self) {
        self.starts_one.store(true, Ordering::SeqCst);
    }

    /// Delivers all held results together with the next completion.
    pub(crate) fn deliver_held(&self) {
        self.delivers_held.store(true, Ordering::SeqCst);
    }

    /// Number of results held back now.
    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Waits until `count` results are held back; another thread must drive.
    pub(crate) fn wait_held(&self, count: usize) {
        wait_for(|| self.held() == count);
    }

    pub(crate) fn wait_driving(&self, count: usize) {
        wait_for(|| self.driving.load(Ordering::SeqCst) == count);
    }

    pub(crate) fn wait_sent_to_sleep(&self, count: usize) {
        wait_for(|| self.sent_to_sleep.load(Ordering::SeqCst) >= count);
    }
}

/// Polls until `condition` is true; if it never is, the watchdog ends the test.
pub(crate) fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(1));
    }
}

struct RigSink(Arc<Rig>);

impl Sink for RigSink {
    fn finished(&self, transfer: Transfer, result: Attempt) -> Next {
        let rig = &self.0;
        if rig.delivers_held.swap(false, Ordering::SeqCst) {
            let held = std::mem::take(&mut *rig.held.lock().unwrap());
            for (transfer, result) in held {
                let next = rig.queue.finished(transfer, result);
                assert!(matches!(next, Next::Done), "only whole transfers are held back");
            }
        }
        match rig.script.after(&transfer, result) {
            Verdict::Hold => {
                rig.held.lock().unwrap().push((transfer, result));
                Next::Done
            }
            Verdict::Deliver(result) => match rig.queue.finished(transfer, result) {
                Next::Again(mut rest) => {
                    rig.script.before(&mut rest);
                    Next::Again(rest)
                }
                Next::Done => Next::Done,
            },
        }
    }
}

struct RiggedBackend {
    inner: Box<dyn Backend>,
    rig: Arc<Rig>,
}

impl Backend for RiggedBackend {
    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let rig = &self.rig;
        let mut withheld = rig.withheld.lock().unwrap();
        let mut starting = Vec::new();
        for transfer in transfers.drain(..) {
            let later = rig.script.withhold(&transfer);
            if later { &mut *withheld } else { &mut starting }.push(transfer);
        }
        if rig.starts_one.swap(false, Ordering::SeqCst) {
            starting.push(withheld.remove(0));
        }
        drop(withheld);
        starting.iter_mut().for_each(|transfer| rig.script.before(transfer));
        self.inner.start(&mut starting);
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        self.rig.driving.fetch_add(usize::from(want.block), Ordering::SeqCst);
        let driven = self.inner.drive(want);
        self.rig.driving.fetch_sub(usize::from(want.block), Ordering::SeqCst);
        if driven == Driven::OtherDrives {
            self.rig.sent_to_sleep.fetch_add(1, Ordering::SeqCst);
        }
        driven
    }
}

impl fmt::Debug for RiggedBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Rigged({:?})", self.inner)
    }
}
