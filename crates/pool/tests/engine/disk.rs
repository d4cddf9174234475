//! Access to the engine's own files: the log and the control file, by the same I/O layer as the pages.
//!
//! Everything that the engine does to a disk goes through this module or through the pool, so that a simulated disk
//! sees all of it.

use std::path::Path;
use std::sync::Arc;

use forebay_io::{Arena, File, Io, IoOptions, Kind, OpenOptions, Prefer, Request, Result, Volume};

/// Number of bytes in one request.
const REQUEST_BYTES: usize = 16 << 10;

/// A volume, a queue, and memory for transfers.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    volume: Volume,
    io: Io,
    arena: Arc<Arena>,
}

impl Disk {
    /// Files of `volume`, through `io` or by plain system calls.
    pub(crate) fn open(volume: &Volume, io: Option<&Io>) -> Result<Disk> {
        let io = match io {
            Some(io) => io.clone(),
            None => {
                Io::open(&IoOptions { prefer: Prefer::Only(Kind::Sync), ..IoOptions::default() })?
            }
        };
        Ok(Disk { volume: volume.clone(), io, arena: Arena::new(4, REQUEST_BYTES)? })
    }

    /// Opens the file at `path`, and creates it if it does not exist.
    pub(crate) fn file(&self, path: &Path) -> Result<File> {
        self.volume.open(path, &OpenOptions::new().create(true))
    }

    pub(crate) fn make_directory(&self, directory: &Path) -> Result<()> {
        self.volume.make_directory(directory)
    }

    pub(crate) fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.volume.sync_directory(directory)
    }

    /// Writes `bytes` at byte `offset`.
    pub(crate) fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
        for (chunk, at) in bytes.chunks(REQUEST_BYTES).zip((offset..).step_by(REQUEST_BYTES)) {
            let mut lease = self.lease();
            lease.truncate(chunk.len());
            lease.copy_from_slice(chunk);
            self.io.submit(Request::write(file, at, vec![lease])).wait().into_result()?;
        }
        Ok(())
    }

    /// Reads everything from byte `offset` on.
    pub(crate) fn read(&self, file: &File, offset: u64) -> Result<Vec<u8>> {
        let (mut at, end) = (offset, file.len()?);
        let mut bytes = Vec::with_capacity(end.saturating_sub(at) as usize);
        while at < end {
            let mut lease = self.lease();
            lease.truncate((end - at) as usize);
            let read = Request::read(file, at, vec![lease]);
            let leases = self.io.submit(read).wait().into_result()?;
            bytes.extend_from_slice(&leases[0]);
            at += leases[0].len() as u64;
        }
        Ok(bytes)
    }

    pub(crate) fn sync(&self, file: &File) -> Result<()> {
        self.io.submit(Request::sync_data(file)).wait().into_result().map(drop)
    }

    fn lease(&self) -> forebay_io::Lease {
        // One for the log and one for the control file at a time, each under its own lock.
        self.arena.take().expect("four slots for two users")
    }
}
