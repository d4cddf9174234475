//! Workers: clients that request randomly chosen operations, one after another.
//!
//! The choice depends on a seed and on the current state. A witness is notified of each operation before it begins and
//! when it was acknowledged.

use fastrand::Rng;
use forebay::{Block, Lsn};

use super::Engine;
use super::error::Error;
use super::op::{COUNTERS, Change, Entry, FileName, Op};

/// Receives notifications of what is promised.
pub(crate) trait Witness: Sync {
    fn intended(&self, entry: &Entry);
    fn acknowledged(&self, worker: u8, serial: u64, lsn: Lsn);
}

/// The mix of operations: how large things grow, and how many of a hundred operations are on files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) files_most: usize,
    pub(crate) blocks_most: Block,
    /// Maximum number of blocks that an extension adds.
    pub(crate) extension_most: Block,
    pub(crate) on_files: u32,
    /// How many of a thousand operations follow after a file is closed and opened again.
    pub(crate) reopened: u32,
    pub(crate) spaces: u8,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            files_most: 6,
            blocks_most: 48,
            extension_most: 12,
            on_files: 8,
            reopened: 12,
            spaces: 2,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Worker {
    number: u8,
    serial: u64,
    random: Rng,
    mix: Mix,
}

impl Worker {
    /// Creates worker `number` of `engine`, which continues after its newest operation.
    pub(crate) fn new(engine: &Engine, number: u8, seed: u64, mix: Mix) -> Result<Worker, Error> {
        let random = Rng::with_seed(seed ^ (u64::from(number) << 56));
        Ok(Worker { number, serial: engine.serial(number)?, random, mix })
    }

    /// Executes one operation. Returns false if it was refused, because something had changed or there was no frame.
    pub(crate) fn step(&mut self, engine: &Engine, witness: &dyn Witness) -> Result<bool, Error> {
        self.reopen_some(engine)?;
        let Some(op) = self.choose(engine)? else {
            return Ok(false);
        };
        let entry = Entry { worker: self.number, serial: self.serial + 1, op };
        witness.intended(&entry);
        match engine.commit(&entry) {
            Ok(lsn) => {
                witness.acknowledged(self.number, entry.serial, lsn);
                self.serial = entry.serial;
                Ok(true)
            }
            Err(error) if error.is_retry() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn reopen_some(&mut self, engine: &Engine) -> Result<(), Error> {
        if self.random.u32(0..1000) >= self.mix.reopened {
            return Ok(());
        }
        let files = engine.catalog();
        if files.is_empty() {
            return Ok(());
        }
        match engine.reopen(files[self.random.usize(0..files.len())].0) {
            Err(error) if error.is_retry() => Ok(()),
            reopened => reopened,
        }
    }

    fn choose(&mut self, engine: &Engine) -> Result<Option<Op>, Error> {
        let files = engine.catalog();
        if self.random.u32(0..100) < self.mix.on_files || files.iter().all(|it| it.1 == 0) {
            return self.choose_on_files(engine, &files);
        }
        Ok(Some(Op::Transfer(self.transfer(&files))))
    }

    fn choose_on_files(
        &mut self,
        engine: &Engine,
        files: &[(FileName, Block)],
    ) -> Result<Option<Op>, Error> {
        let create = files.is_empty() || self.random.u32(0..6) == 0;
        if create && files.len() < self.mix.files_most {
            let space = self.random.u8(0..self.mix.spaces);
            return Ok(engine.next_name(space)?.map(Op::Create));
        }
        let (file, blocks) = files[self.random.usize(0..files.len())];
        Ok(Some(match self.random.u32(0..8) {
            0 => Op::Drop(file),
            1 | 2 if blocks > 0 => Op::Truncate { file, to: self.random.u32(0..blocks) },
            _ if blocks < self.mix.blocks_most => {
                let to = blocks + self.random.u32(1..=self.mix.extension_most);
                Op::Extend { file, from: blocks, to }
            }
            _ => Op::Truncate { file, to: self.random.u32(0..blocks) },
        }))
    }

    /// Changes to a few different counters, in blocks near and far.
    fn transfer(&mut self, files: &[(FileName, Block)]) -> Vec<Change> {
        let files: Vec<_> = files.iter().filter(|(_, blocks)| *blocks > 0).collect();
        let mut changes: Vec<Change> = Vec::new();
        let mut sum = 0;
        for _ in 0..self.random.usize(1..=4) {
            let (file, blocks) = *files[self.random.usize(0..files.len())];
            let (block, counter) = (self.random.u32(0..blocks), self.counter());
            let delta = self.random.i64(-1_000_000..1_000_000);
            sum += delta;
            changes.push(Change { file, block, counter, delta });
        }
        let (file, _) = *files[self.random.usize(0..files.len())];
        changes.push(Change { file, block: 0, counter: self.counter(), delta: -sum });
        changes
    }

    fn counter(&mut self) -> u8 {
        self.random.u8(0..COUNTERS as u8)
    }
}
