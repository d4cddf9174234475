//! The environment of a claim: a backend and cache mode, a directory, files, memory and a seed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use forebay_io::{
    Arena, CacheMode, Completed, Error, File, Io, IoOptions, Kind, Lease, OpenOptions, Prefer,
};
use tempfile::TempDir;

use crate::rig::{Rig, Script};

/// One backend in one cache mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) cache: CacheMode,
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.kind, self.cache)
    }
}

impl Cell {
    /// Every combination in the contract: all but aio on buffered files.
    pub(crate) fn all() -> Vec<Cell> {
        let modes = [CacheMode::Buffered, CacheMode::Direct];
        let cells = Kind::ALL.iter().flat_map(|&kind| modes.map(|cache| Cell { kind, cache }));
        cells.filter(|cell| cell.kind.serves(cell.cache)).collect()
    }

    pub(crate) fn parse(text: &str) -> Option<Cell> {
        Cell::all().into_iter().find(|cell| cell.to_string() == text)
    }

    pub(crate) fn is_direct(self) -> bool {
        self.cache == CacheMode::Direct
    }

    /// The reason, if this combination cannot be tested on this machine.
    pub(crate) fn refusal(self) -> Option<String> {
        static REFUSALS: OnceLock<Vec<(Cell, Option<String>)>> = OnceLock::new();
        let refusals = REFUSALS
            .get_or_init(|| Cell::all().into_iter().map(|cell| (cell, cell.probe())).collect());
        refusals.iter().find(|(cell, _)| *cell == self).and_then(|(_, refusal)| refusal.clone())
    }

    fn probe(self) -> Option<String> {
        if self.is_direct() {
            let directory = scratch();
            match File::open(&directory.path().join("probe"), &self.creating()) {
                Err(Error::DirectRefused { filesystem, why, .. }) => {
                    return Some(format!("{filesystem} refuses direct I/O: {why}"));
                }
                opened => drop(opened.unwrap()),
            }
        }
        match Io::open(&self.options(4)) {
            // These two must always work: all other backends fall back to them.
            Err(error) if matches!(self.kind, Kind::Threads | Kind::Sync) => panic!("{error}"),
            Err(error @ Error::Unavailable { .. }) => Some(error.to_string()),
            opened => {
                drop(opened.unwrap());
                None
            }
        }
    }

    pub(crate) fn options(self, queue_depth: usize) -> IoOptions {
        IoOptions {
            prefer: Prefer::Only(self.kind),
            cache: self.cache,
            queue_depth,
            workers: 8,
            register: None,
            advise: true,
        }
    }

    pub(crate) fn opening(self) -> OpenOptions {
        OpenOptions::new().cache(self.cache)
    }

    fn creating(self) -> OpenOptions {
        self.opening().create(true)
    }
}

/// The environment of one trial, removed at its end.
pub(crate) struct Bench {
    pub(crate) cell: Cell,
    pub(crate) seed: u64,
    directory: TempDir,
}

impl Bench {
    pub(crate) fn new(cell: Cell, seed: u64) -> Bench {
        Bench { cell, seed, directory: scratch() }
    }

    pub(crate) fn rng(&self) -> Rng {
        Rng::with_seed(self.seed)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Creates a file with these bytes, opened in the mode of the cell.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> File {
        std::fs::write(self.path(name), bytes).unwrap();
        File::open(&self.path(name), &self.cell.opening()).unwrap()
    }

    /// Creates an empty file, opened in the mode of the cell.
    pub(crate) fn empty_file(&self, name: &str) -> File {
        self.file(name, &[])
    }

    /// The bytes of a file, read without this crate.
    pub(crate) fn contents(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn io(&self, queue_depth: usize) -> Io {
        Io::open(&self.cell.options(queue_depth)).unwrap()
    }

    /// A queue over the cell's backend, with `script` between the two.
    pub(crate) fn rigged(&self, queue_depth: usize, script: impl Script) -> (Io, Arc<Rig>) {
        Rig::open(&self.cell.options(queue_depth), self.cell.kind, Box::new(script))
    }
}

/// The smallest unit of offsets, lengths and addresses on `file`, in bytes.
pub(crate) fn unit(file: &File) -> usize {
    let alignment = file.alignment();
    alignment.offset.max(alignment.memory) as usize
}

/// One lease of `len` bytes, on separate memory that is aligned to a page.
pub(crate) fn lease(len: usize) -> Lease {
    Arena::new(1, len).unwrap().take().unwrap()
}

/// One lease that contains these bytes.
pub(crate) fn lease_of(bytes: &[u8]) -> Lease {
    let mut lease = lease(bytes.len());
    lease.copy_from_slice(bytes);
    lease
}

/// `len` random bytes, different for every place and seed.
pub(crate) fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// The bytes of all leases, in order; the request must have succeeded.
pub(crate) fn bytes_of(completed: Completed) -> Vec<u8> {
    completed.result.unwrap();
    completed.leases.iter().flat_map(|lease| lease.iter().copied()).collect()
}

/// Panics with the first difference instead of two screens of bytes.
pub(crate) fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if found != expected {
        let at = found.iter().zip(expected).position(|(one, other)| one != other).unwrap();
        panic!("{what}: byte {at} is {} and should be {}", found[at], expected[at]);
    }
}

/// A private directory, on a real filesystem if possible.
pub(crate) fn scratch() -> TempDir {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("forebay-conformance-");
        builder
    };
    if let Some(parent) = std::env::var_os("FOREBAY_TEST_DIR") {
        return builder().tempdir_in(&parent).expect("FOREBAY_TEST_DIR should be writable");
    }
    // An ordinary user may have no access to Cargo's directory.
    builder().tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| builder().tempdir()).unwrap()
}
