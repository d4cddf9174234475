//! The oracle: records what was promised, and checks whether the recovered state keeps the promises.
//!
//! It knows nothing about pages, logs and recovery. It is notified of each operation twice: before it begins, and when
//! it was acknowledged. Each notification has a time stamp from the test's driver, so that the oracle can determine
//! what was promised at any moment of a run, such as that of a power cut.
//!
//! The recovered state must be exactly the state that results from the acknowledged operations, in the order of their
//! LSNs, together with a subset of those that were in progress: at most one of each worker, and the ledger says which.
//! So lost operations are detected, and operations executed twice or partially.
//!
//! Invariants:  every counter of every block is compared, and every file's length and tablespace

use std::collections::BTreeMap;
use std::fmt;

use forebay::Lsn;

use super::error::Error;
use super::op::{COUNTERS, Entry, FileName, Op, PageName, WORKERS};
use super::{Engine, page};

/// The whole contents of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Model {
    /// By worker, the serial number of its newest operation.
    pub(crate) ledger: [u64; WORKERS as usize],
    pub(crate) files: BTreeMap<FileName, Vec<[i64; COUNTERS]>>,
}

/// The current contents of a database, read page by page.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) model: Model,
    /// By worker, the LSN of its newest operation.
    pub(crate) lsns: [Lsn; WORKERS as usize],
}

/// How a promise was broken.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[derive(Debug)]
enum Event {
    Intended(Entry),
    Acknowledged { worker: u8, serial: u64, lsn: Lsn },
}

/// The events of a run, in the order of their notifications.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: Model,
    events: Vec<(u64, Event)>,
}

/// The required contents.
#[derive(Debug)]
pub(crate) struct Promise {
    before: Model,
    kept: Vec<(Lsn, Entry)>,
    /// By worker, the operation in progress.
    open: BTreeMap<u8, Entry>,
}

impl History {
    /// The history of a database that begins with the contents `before`.
    pub(crate) fn after(before: Model) -> History {
        History { before, events: Vec::new() }
    }

    /// Records that `entry` is about to begin, at moment `at`. It replaces an entry with the same number that was
    /// refused.
    pub(crate) fn intended(&mut self, at: u64, entry: Entry) {
        self.events.push((at, Event::Intended(entry)));
    }

    /// Records that the operation was acknowledged by moment `at`.
    pub(crate) fn acknowledged(&mut self, at: u64, worker: u8, serial: u64, lsn: Lsn) {
        self.events.push((at, Event::Acknowledged { worker, serial, lsn }));
    }

    /// Number of operations acknowledged by moment `at`.
    pub(crate) fn acknowledgements(&self, at: u64) -> usize {
        let acknowledged = |event: &Event| matches!(event, Event::Acknowledged { .. });
        self.events.iter().filter(|(when, event)| *when <= at && acknowledged(event)).count()
    }

    /// The promise at moment `at`.
    pub(crate) fn promised(&self, at: u64) -> Promise {
        let mut promise =
            Promise { before: self.before.clone(), kept: Vec::new(), open: BTreeMap::new() };
        for (_, event) in self.events.iter().filter(|(when, _)| *when <= at) {
            match event {
                Event::Intended(entry) => {
                    promise.open.insert(entry.worker, entry.clone());
                }
                Event::Acknowledged { worker, serial, lsn } => {
                    let entry = promise.open.remove(worker).filter(|it| it.serial == *serial);
                    let entry = entry.expect("what is acknowledged was intended");
                    promise.kept.push((*lsn, entry));
                }
            }
        }
        promise
    }
}

impl Promise {
    /// Checks that `found` keeps the promise.
    pub(crate) fn check(&self, found: &Found) -> Result<(), Broken> {
        let mut done: Vec<(Lsn, &Entry)> = self.kept.iter().map(|(lsn, it)| (*lsn, it)).collect();
        for worker in 0..WORKERS {
            let at = usize::from(worker);
            let newest = self.kept.iter().filter(|(_, it)| it.worker == worker);
            let promised = newest.map(|(_, it)| it.serial).max().unwrap_or(self.before.ledger[at]);
            let (serial, lsn) = (found.model.ledger[at], found.lsns[at]);
            if serial == promised {
                continue;
            }
            match self.open.get(&worker) {
                Some(entry) if entry.serial == serial && serial == promised + 1 => {
                    done.push((lsn, entry));
                }
                _ => {
                    return Err(Broken(format!(
                        "worker {worker} was promised operation {promised}, and the ledger has {serial}"
                    )));
                }
            }
        }
        done.sort_by_key(|(lsn, _)| *lsn);
        let mut expected = self.before.clone();
        for (lsn, entry) in done {
            expected.apply(entry).map_err(|why| Broken(format!("{entry:?} at {lsn}: {why}")))?;
        }
        expected.compare(&found.model)
    }
}

impl Model {
    fn apply(&mut self, entry: &Entry) -> Result<(), &'static str> {
        self.ledger[usize::from(entry.worker)] = entry.serial;
        let missing = "no such file at that time";
        match &entry.op {
            Op::Transfer(changes) => {
                for change in changes {
                    let blocks = self.files.get_mut(&change.file).ok_or(missing)?;
                    let block = blocks.get_mut(change.block as usize);
                    let counters = block.ok_or("no such block at that time")?;
                    counters[usize::from(change.counter)] += change.delta;
                }
            }
            Op::Create(file) => {
                let before = self.files.insert(*file, Vec::new());
                before.map_or(Ok(()), |_| Err("there was one already"))?;
            }
            Op::Extend { file, to, .. } | Op::Truncate { file, to } => {
                let blocks = self.files.get_mut(file).ok_or(missing)?;
                blocks.resize(*to as usize, [0; COUNTERS]);
            }
            Op::Drop(file) => drop(self.files.remove(file).ok_or(missing)?),
        }
        Ok(())
    }

    fn compare(&self, found: &Model) -> Result<(), Broken> {
        if self == found {
            return Ok(());
        }
        let (mine, its) = (self.shape(), found.shape());
        if mine != its {
            return Err(Broken(format!("there should be files {mine:?}, and there are {its:?}")));
        }
        for (file, blocks) in &self.files {
            for (block, (expected, found)) in (0..).zip(blocks.iter().zip(&found.files[file])) {
                if expected != found {
                    let page = PageName { file: Some(*file), block };
                    return Err(Broken(format!(
                        "{page} should say {expected:?}, and says {found:?}"
                    )));
                }
            }
        }
        Err(Broken(format!("the ledger should say {:?}, and says {:?}", self.ledger, found.ledger)))
    }

    fn shape(&self) -> Vec<(FileName, usize)> {
        self.files.iter().map(|(file, blocks)| (*file, blocks.len())).collect()
    }

    /// Number of blocks in all files.
    pub(crate) fn blocks(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

impl Found {
    /// Reads the whole contents of `engine`, through its pool.
    pub(crate) fn read(engine: &Engine) -> Result<Found, Error> {
        let mut found = Found { model: Model::default(), lsns: [Lsn::NONE; WORKERS as usize] };
        for worker in 0..WORKERS {
            let name = PageName::ledger(worker);
            let bytes = engine.meta.read(name.block)?;
            checked(&bytes, name)?;
            let at = usize::from(worker);
            (found.model.ledger[at], found.lsns[at]) = (page::serial(&bytes), page::lsn(&bytes));
        }
        for open in engine.files().iter().flatten() {
            let counters = |block| {
                let bytes = open.file.read(block)?;
                checked(&bytes, PageName { file: Some(open.name), block })?;
                Ok(page::counters(&bytes))
            };
            let blocks = (0..open.blocks).map(counters).collect::<Result<_, Error>>()?;
            found.model.files.insert(open.name, blocks);
        }
        Ok(found)
    }
}

fn checked(bytes: &[u8], name: PageName) -> Result<(), Error> {
    page::check(bytes, name).map_err(|damage| Error::Damaged { page: name, damage })
}
