//! A disk with a queue, and short helpers for tests.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Arena, Error, File, Io, OpenOptions, Request, Volume};
use forebay_sim::{Disk, DiskOptions, Image};

/// Number of seeds to try where a property must always hold, or must occur.
pub(crate) const SEEDS: u64 = 300;

pub(crate) const SECTOR: usize = 512;

pub(crate) struct Rig {
    pub(crate) disk: Arc<Disk>,
    pub(crate) volume: Volume,
    pub(crate) io: Io,
    arena: Arc<Arena>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::boot(&Image::empty(), DiskOptions::default())
    }

    pub(crate) fn boot(image: &Image, options: DiskOptions) -> Rig {
        let disk = Disk::boot(image, options).unwrap();
        let (volume, io) = (disk.volume(), disk.io(16).unwrap());
        Rig { disk, volume, io, arena: Arena::new(16, 64 * SECTOR).unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.disk.directory().join(name)
    }

    pub(crate) fn open(&self, name: &str) -> File {
        self.volume.open(&self.path(name), &OpenOptions::new().create(true)).unwrap()
    }

    /// Creates a file whose name is durable.
    pub(crate) fn file(&self, name: &str) -> File {
        let file = self.open(name);
        self.volume.sync_directory(self.disk.directory()).unwrap();
        file
    }

    /// A request to write `bytes`.
    pub(crate) fn writing(&self, file: &File, offset: u64, bytes: &[u8]) -> Request {
        let mut lease = self.arena.take().unwrap();
        lease.truncate(bytes.len());
        lease.copy_from_slice(bytes);
        Request::write(file, offset, vec![lease])
    }

    pub(crate) fn try_write(&self, file: &File, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.io.submit(self.writing(file, offset, bytes)).wait().result
    }

    pub(crate) fn write(&self, file: &File, offset: u64, bytes: &[u8]) {
        self.try_write(file, offset, bytes).unwrap();
    }

    pub(crate) fn read(&self, file: &File, offset: u64, len: usize) -> Vec<u8> {
        let mut lease = self.arena.take().unwrap();
        lease.truncate(len);
        let leases = self.io.submit(Request::read(file, offset, vec![lease])).wait();
        leases.into_result().unwrap()[0].to_vec()
    }

    /// Possible states after a power cut now, one for each of many seeds.
    pub(crate) fn crashes(&self) -> Vec<Image> {
        let (journal, at) = (self.disk.journal(), self.disk.position());
        (0..SEEDS).map(|seed| journal.crash(at, seed)).collect()
    }
}

/// One sector for each byte of `of`, filled with that byte.
pub(crate) fn sectors(of: &[u8]) -> Vec<u8> {
    of.iter().flat_map(|byte| [*byte; SECTOR]).collect()
}
