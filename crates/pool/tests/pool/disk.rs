//! A simulated disk that fails, fills up, is slow or blocks on command.
//!
//! It is a backend around `sync`, where each thread executes its own transfers. The test's rule is applied before a
//! transfer starts, on the thread that submits it: so a transfer that is held back blocks only that thread, and one
//! that fails moves no byte.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_io::backend::{self, Backend, Driven, Next, Sink, Transfer, Want};
use forebay_io::{Io, IoOptions, Kind, Op, OsError};

/// Maximum time for which a gate stays shut.
const PATIENCE: Duration = Duration::from_secs(250);

/// The outcome of a transfer attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It fails, and nothing is moved.
    Fail(OsError),
    /// At most this many bytes are moved.
    Short(u64),
}

/// An attempt that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) op: Op,
    pub(crate) path: PathBuf,
    pub(crate) position: u64,
    pub(crate) len: u64,
}

type Rule = Box<dyn FnMut(&Transfer) -> Fault + Send>;
type Watcher = Box<dyn Fn(&Transfer) + Send + Sync>;

/// The test's control of the disk.
pub(crate) struct Disk {
    rule: Mutex<Rule>,
    gate: Mutex<Option<(Op, Arc<Gate>)>>,
    watcher: Watcher,
    seen: Mutex<Vec<Seen>>,
}

impl Disk {
    /// A disk without faults, and the queue over it.
    pub(crate) fn open() -> (Io, Arc<Disk>) {
        Disk::watched(|_| {})
    }

    /// As [`Disk::open`]; `watcher` sees every attempt before it starts.
    pub(crate) fn watched(watcher: impl Fn(&Transfer) + Send + Sync + 'static) -> (Io, Arc<Disk>) {
        let disk = Arc::new(Disk {
            rule: Mutex::new(Box::new(|_| Fault::None)),
            gate: Mutex::new(None),
            watcher: Box::new(watcher),
            seen: Mutex::default(),
        });
        let io = disk.around(|options, sink| backend::open_raw(Kind::Sync, options, sink));
        (io, disk)
    }

    /// A queue over another backend, whose transfers follow the rules as well.
    pub(crate) fn around(
        self: &Arc<Self>,
        inner: impl FnOnce(&IoOptions, &Arc<dyn Sink>) -> forebay_io::Result<Box<dyn Backend>>,
    ) -> Io {
        let options = IoOptions { queue_depth: 1024, ..IoOptions::default() };
        let io = Io::over(options.queue_depth, |queue| {
            let sink: Arc<dyn Sink> = Arc::new(DiskSink { queue, disk: Arc::clone(self) });
            let inner = inner(&options, &sink)?;
            Ok(Box::new(FaultyBackend { inner, sink, disk: Arc::clone(self) }))
        });
        io.unwrap()
    }

    /// From now on `rule` decides.
    pub(crate) fn rule(&self, rule: impl FnMut(&Transfer) -> Fault + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Makes every `op` fail with `error`.
    pub(crate) fn fail(&self, op: Op, error: OsError) {
        self.rule(move |it| if it.op() == op { Fault::Fail(error) } else { Fault::None });
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        self.rule(|_| Fault::None);
    }

    /// Makes every `op` wait at the gate until it is opened.
    pub(crate) fn hold(&self, op: Op) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        *self.gate.lock().unwrap() = Some((op, Arc::clone(&gate)));
        gate
    }

    /// The attempts started so far, oldest first.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many attempts of `op` were started so far.
    pub(crate) fn count(&self, op: Op) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.op == op).count()
    }

    fn before(&self, transfer: &mut Transfer) -> Result<(), OsError> {
        self.seen.lock().unwrap().push(Seen {
            op: transfer.op(),
            path: transfer.file().path().to_owned(),
            position: transfer.position(),
            len: transfer.remaining(),
        });
        let gate = self.gate.lock().unwrap().clone();
        if let Some((op, gate)) = gate
            && op == transfer.op()
        {
            gate.pass();
        }
        let fault = (self.rule.lock().unwrap())(transfer);
        match fault {
            Fault::Fail(error) => return Err(error),
            Fault::Short(bytes) => transfer.limit(bytes),
            Fault::None => {}
        }
        (self.watcher)(transfer);
        Ok(())
    }
}

/// The place where transfers wait.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        let (_open, waited) =
            self.opened.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
        // The test that should have opened it has failed, and waits for this thread.
        assert!(!waited.timed_out(), "no thread opened the gate");
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Waits until `count` transfers have arrived.
    pub(crate) fn wait_for(&self, count: usize) {
        crate::site::wait_until("a transfer to be held back", || self.arrived() >= count);
    }

    pub(crate) fn arrived(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

struct DiskSink {
    queue: Arc<dyn Sink>,
    disk: Arc<Disk>,
}

impl Sink for DiskSink {
    fn finished(&self, transfer: Transfer, result: Result<u64, OsError>) -> Next {
        match self.queue.finished(transfer, result) {
            Next::Again(mut rest) => match self.disk.before(&mut rest) {
                Ok(()) => Next::Again(rest),
                Err(error) => self.queue.finished(rest, Err(error)),
            },
            Next::Done => Next::Done,
        }
    }
}

struct FaultyBackend {
    inner: Box<dyn Backend>,
    sink: Arc<dyn Sink>,
    disk: Arc<Disk>,
}

impl Backend for FaultyBackend {
    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let mut starting = Vec::new();
        for mut transfer in transfers.drain(..) {
            match self.disk.before(&mut transfer) {
                Ok(()) => starting.push(transfer),
                Err(error) => {
                    let next = self.sink.finished(transfer, Err(error));
                    assert!(matches!(next, Next::Done), "a fault that is tried again");
                }
            }
        }
        self.inner.start(&mut starting);
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        self.inner.drive(want)
    }
}

impl fmt::Debug for FaultyBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Faulty({:?})", self.inner)
    }
}
