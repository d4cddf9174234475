//! Lives: from one power cut to the next.
//!
//! An engine opens the existing database, works, and takes checkpoints and flushes files now and then. Some time later,
//! or after a disk failure, it is abandoned and opened again on the same disk, as after a crash of the process alone:
//! the contents of the page cache still exist then, durable or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use forebay::{CheckpointOptions, Elevator, Lsn};
use forebay_sim::{Disk, Image, Journal};

use crate::engine::op::{Entry, WORKERS};
use crate::engine::oracle::{Found, History, Model};
use crate::engine::worker::{Mix, Witness, Worker};
use crate::engine::{Engine, Error, Settings};
use crate::variant::Variant;

/// Operations in a life, of all threads together.
const OPERATIONS: u32 = 150;

/// Number of openings that the disk may fail before its faults stop.
const OPENINGS_FAILED_MAX: u32 = 4;

/// The start of a life.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) image: Image,
    /// What recovery finds in the image.
    pub(crate) model: Model,
}

/// The record of a life, for the checks afterwards.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) journal: Journal,
    pub(crate) history: History,
    pub(crate) openings: u32,
}

/// Records what is promised, and at which position of the disk's journal.
struct Recorder {
    disk: Arc<Disk>,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    history: History,
    /// By worker, the serial number of the operation that has not been acknowledged.
    open: BTreeMap<u8, u64>,
}

impl Recorder {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After recovery the outcome of the operations in progress is known.
    fn settle(&self, found: &Found) {
        let mut record = self.record();
        for (worker, serial) in std::mem::take(&mut record.open) {
            let at = usize::from(worker);
            if found.model.ledger[at] == serial {
                record.history.acknowledged(self.disk.position(), worker, serial, found.lsns[at]);
            }
        }
    }
}

impl Witness for Recorder {
    fn intended(&self, entry: &Entry) {
        let mut record = self.record();
        record.open.insert(entry.worker, entry.serial);
        record.history.intended(self.disk.position(), entry.clone());
    }

    fn acknowledged(&self, worker: u8, serial: u64, lsn: Lsn) {
        let mut record = self.record();
        record.open.remove(&worker);
        record.history.acknowledged(self.disk.position(), worker, serial, lsn);
    }
}

/// Runs until the work is done.
pub(crate) fn live(variant: &Variant, start: &Start, seed: u64) -> Result<Life, Error> {
    let disk = Disk::boot(&start.image, variant.disk(seed)).expect("a scratch directory");
    let record = Record { history: History::after(start.model.clone()), open: BTreeMap::new() };
    let recorder = Recorder { disk: Arc::clone(&disk), record: Mutex::new(record) };
    let mut random = Rng::with_seed(seed);
    let (mut left, mut openings) = (OPERATIONS, 0);
    while left > 0 {
        let engine = open(variant, &disk, &mut random)?;
        recorder.settle(&Found::read(&engine)?);
        variant.spoil(&disk, random.u64(..));
        let mut session = random.u32(1..=OPERATIONS).min(left);
        left -= session;
        let worked = work(variant, &engine, &recorder, &mut session, random.u64(..));
        left += session;
        if variant.faults.is_none() {
            worked?;
        }
        openings += 1;
    }
    let journal = disk.journal();
    let record = recorder.record.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Life { journal, history: record.history, openings })
}

/// Opens the engine on a disk that may fail a few times. Afterwards the disk has no faults.
fn open(variant: &Variant, disk: &Arc<Disk>, random: &mut Rng) -> Result<Engine, Error> {
    // A checkpoint right at the start finds pages that only the page cache has, and no dirty ones.
    let checkpoint_at_open = random.bool();
    let settings = || Ok::<_, Error>(Settings { checkpoint_at_open, ..variant.settings(disk)? });
    for _ in 0..OPENINGS_FAILED_MAX {
        variant.spoil(disk, random.u64(..));
        let opened = Engine::open(&settings()?);
        if opened.is_ok() || variant.faults.is_none() {
            disk.heal();
            return opened;
        }
    }
    disk.heal();
    Engine::open(&settings()?)
}

fn work(
    variant: &Variant,
    engine: &Engine,
    recorder: &Recorder,
    left: &mut u32,
    seed: u64,
) -> Result<(), Error> {
    let threads = variant.threads;
    if threads == 1 {
        return work_alone(engine, recorder, left, seed);
    }
    let share = *left / u32::from(threads);
    *left = 0;
    thread::scope(|scope| {
        let workers = (0..threads).map(|number| {
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed ^ u64::from(number));
                let mut worker = Worker::new(engine, number, seed, Mix::default())?;
                for _ in 0..share {
                    worker.step(engine, recorder)?;
                    housekeeping(engine, &mut random)?;
                }
                Ok(())
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().try_for_each(|it| it.join().expect("no worker panics"))
    })
}

fn work_alone(
    engine: &Engine,
    recorder: &Recorder,
    left: &mut u32,
    seed: u64,
) -> Result<(), Error> {
    let mut random = Rng::with_seed(seed);
    let workers = (0..WORKERS).map(|it| Worker::new(engine, it, random.u64(..), Mix::default()));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    while *left > 0 {
        *left -= 1;
        let worker = random.usize(0..workers.len());
        workers[worker].step(engine, recorder)?;
        housekeeping(engine, &mut random)?;
    }
    Ok(())
}

/// A checkpoint with random options.
fn checkpoint(random: &mut Rng) -> CheckpointOptions {
    let options = match random.u32(0..4) {
        0 => CheckpointOptions::spread(Duration::from_micros(random.u64(0..3000))),
        _ => CheckpointOptions::now(),
    };
    let options = options.combine(random.bool()).depth(random.usize(1..=16));
    match random.u32(0..4) {
        0 => options.elevator(Elevator::Arrival),
        1 => options.elevator(Elevator::Sorted),
        _ => options,
    }
}

/// Occasionally a checkpoint, or a flush of one file.
fn housekeeping(engine: &Engine, random: &mut Rng) -> Result<(), Error> {
    match random.u32(0..100) {
        0..4 => engine.checkpoint_with(checkpoint(random)).map(drop),
        4..8 => {
            let files = engine.catalog();
            match files.get(random.usize(0..files.len().max(1))) {
                Some((name, _)) => match engine.flush_file(*name) {
                    Err(error) if !error.is_retry() => Err(error),
                    _ => Ok(()),
                },
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
