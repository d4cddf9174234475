//! A disk over any backend that records its requests, fails on command, and holds back reads.
//!
//! Unlike with the gate of [`Disk`](crate::disk::Disk), no thread waits for a read that is held back: for all callers
//! it is in flight, and does not complete. [`Dam::open`] releases all of them, together with its own request, so that
//! the threads that drive the queue or sleep notice it.

use std::fmt;
use std::sync::{Arc, Mutex};

use forebay_io::backend::{self, Backend, Driven, Next, Sink, Transfer, Want};
use forebay_io::{Arena, CacheMode, File, Io, IoOptions, Kind, Op, OpenOptions, OsError, Prefer};

use crate::disk::{Fault, Seen};
use crate::site::Site;

type Rule = Box<dyn FnMut(&Transfer) -> Fault + Send>;
type Which = Box<dyn Fn(&Transfer) -> bool + Send>;

/// The test's control of the disk.
pub(crate) struct Dam {
    io: Io,
    /// The file that the request of [`Dam::open`] reads.
    nudge: File,
    river: Arc<River>,
}

/// The state shared by the test's control and the backend.
struct River {
    rule: Mutex<Rule>,
    kept_back: Mutex<Option<Which>>,
    waiting: Mutex<Vec<Transfer>>,
    seen: Mutex<Vec<Seen>>,
}

impl Dam {
    /// A disk over `kind`, for files of `cache`; or the reason why that does not work here.
    pub(crate) fn over(site: &Site, kind: Kind, cache: CacheMode) -> Result<Dam, String> {
        let river = Arc::new(River {
            rule: Mutex::new(Box::new(|_| Fault::None)),
            kept_back: Mutex::new(None),
            waiting: Mutex::default(),
            seen: Mutex::default(),
        });
        let prefer = Prefer::Only(kind);
        let options = IoOptions { prefer, cache, workers: 4, ..IoOptions::default() };
        let io = Io::over(options.queue_depth, |queue| {
            let sink: Arc<dyn Sink> = Arc::new(DamSink { queue, river: Arc::clone(&river) });
            let inner = backend::open_raw(kind, &options, &sink)?;
            Ok(Box::new(DamBackend { inner, sink, river: Arc::clone(&river) }))
        });
        let path = site.path(&format!("nudge {kind} {cache}"));
        std::fs::write(&path, [0; 4096]).unwrap();
        let nudge = File::open(&path, &OpenOptions::new().cache(cache));
        let io = io.map_err(|error| error.to_string())?;
        Ok(Dam { io, nudge: nudge.map_err(|error| error.to_string())?, river })
    }

    pub(crate) fn io(&self) -> Io {
        self.io.clone()
    }

    /// From now on `rule` decides the outcome of each attempt.
    pub(crate) fn rule(&self, rule: impl FnMut(&Transfer) -> Fault + Send + 'static) {
        *self.river.rule.lock().unwrap() = Box::new(rule);
    }

    /// From now on, reads for which `which` is true do not complete.
    pub(crate) fn keep_back(&self, which: impl Fn(&Transfer) -> bool + Send + 'static) {
        *self.river.kept_back.lock().unwrap() = Some(Box::new(which));
    }

    /// From now on, reads of any block but the first do not complete.
    pub(crate) fn keep_back_all_but_first(&self) {
        self.keep_back(|it| it.position() > 0);
    }

    /// Number of reads that are held back now.
    pub(crate) fn waiting(&self) -> usize {
        self.river.waiting.lock().unwrap().len()
    }

    /// Releases all reads.
    pub(crate) fn open(&self) {
        *self.river.kept_back.lock().unwrap() = None;
        let lease = Arena::new(1, 4096).unwrap().take();
        let request = forebay_io::Request::read(&self.nudge, 0, lease.into_iter().collect());
        self.io.submit(request).wait().result.unwrap();
    }

    /// The reads started so far, the oldest first, except for those of [`Dam::open`].
    pub(crate) fn reads(&self) -> Vec<Seen> {
        let seen = self.river.seen.lock().unwrap();
        let of_pool = |it: &&Seen| it.op == Op::Read && it.path != self.nudge.path();
        seen.iter().filter(of_pool).cloned().collect()
    }

    /// Clears the list of attempts started so far.
    pub(crate) fn forget(&self) {
        self.river.seen.lock().unwrap().clear();
    }

    /// The blocks of `page_bytes` that were read so far, ascending, including gaps, each as often as it was read.
    pub(crate) fn blocks_read(&self, page_bytes: usize) -> Vec<u64> {
        let page = page_bytes as u64;
        let blocks = |it: &Seen| it.position / page..(it.position + it.len).div_ceil(page);
        let mut blocks: Vec<u64> = self.reads().iter().flat_map(blocks).collect();
        blocks.sort_unstable();
        blocks
    }
}

impl Drop for Dam {
    fn drop(&mut self) {
        if self.waiting() > 0 {
            self.open();
        }
    }
}

impl River {
    fn before(&self, transfer: &mut Transfer) -> Result<(), OsError> {
        self.seen.lock().unwrap().push(Seen {
            op: transfer.op(),
            path: transfer.file().path().to_owned(),
            position: transfer.position(),
            len: transfer.remaining(),
        });
        match (self.rule.lock().unwrap())(transfer) {
            Fault::Fail(error) => Err(error),
            Fault::Short(bytes) => {
                transfer.limit(bytes);
                Ok(())
            }
            Fault::None => Ok(()),
        }
    }

    fn keeps_back(&self, transfer: &Transfer) -> bool {
        let kept_back = self.kept_back.lock().unwrap();
        transfer.op() == Op::Read && kept_back.as_ref().is_some_and(|which| which(transfer))
    }
}

struct DamSink {
    queue: Arc<dyn Sink>,
    river: Arc<River>,
}

impl Sink for DamSink {
    fn finished(&self, transfer: Transfer, result: Result<u64, OsError>) -> Next {
        match self.queue.finished(transfer, result) {
            Next::Again(mut rest) => match self.river.before(&mut rest) {
                Ok(()) => Next::Again(rest),
                Err(error) => self.queue.finished(rest, Err(error)),
            },
            Next::Done => Next::Done,
        }
    }
}

struct DamBackend {
    inner: Box<dyn Backend>,
    sink: Arc<dyn Sink>,
    river: Arc<River>,
}

impl Backend for DamBackend {
    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let mut waiting = self.river.waiting.lock().unwrap();
        if self.river.kept_back.lock().unwrap().is_none() {
            transfers.append(&mut waiting);
        }
        let (later, now) = transfers.drain(..).partition(|it| self.river.keeps_back(it));
        let (mut later, now): (Vec<_>, Vec<_>) = (later, now);
        waiting.append(&mut later);
        drop(waiting);
        let mut starting = Vec::new();
        for mut transfer in now {
            match self.river.before(&mut transfer) {
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

impl fmt::Debug for DamBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Dam({:?})", self.inner)
    }
}
