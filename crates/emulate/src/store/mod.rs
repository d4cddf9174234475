//! The store: what has been written to an emulated disk, by position on it.
//!
//! An emulated disk of a terabyte occupies only what was written to it. There are two kinds: memory, in chunks that
//! are allocated when something other than zeros is written to them, and a sparse file. A store has no notion of time
//! or files; those belong to the [model](crate::model) and `crate::files`.
//!
//! Invariants:  [STO-1] a read returns what was written last, and zeros where nothing was written
//!              [STO-2] allocated memory never exceeds its limit; writes beyond it are refused in whole chunks,
//!              and a write of which a part was refused says so
//!              [STO-3] a file keeps the data of one store at a time
//! Concurrency: any number of callers. A read concurrent with a write of the same bytes may see some of each, as on
//!              a disk; a chunk (64 KiB) is read or written as one.
//! Failure:     typed; a refused write may have happened in part.

mod file;
mod memory;

use std::path::Path;

pub use memory::CHUNK_BYTES;

/// A store could not execute an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The limit on memory is reached.
    #[error(
        "the emulated disk holds all the {limit_bytes} bytes of memory it may; give it more, or a file \
         to keep its data in"
    )]
    Full {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// The data file failed.
    #[error("the file that keeps the emulated disk's data cannot be used: {0}")]
    Io(#[from] std::io::Error),
}

/// Stores the bytes of an emulated disk.
#[derive(Debug)]
pub struct Store {
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Memory(memory::Memory),
    File(file::Sparse),
}

impl Store {
    /// In memory, up to `limit_bytes`.
    pub fn memory(limit_bytes: u64) -> Store {
        Store { kept: Kept::Memory(memory::Memory::new(limit_bytes)) }
    }

    /// In the file at `path`, for a disk of `size_bytes`. An existing file keeps its contents; one that
    /// has to be made is unlinked at once, and is removed together with the store.
    ///
    /// # Errors
    /// [`StoreError::Io`] when it cannot be opened, made, or made as long as the disk, when it keeps another store's
    /// data, and when it is a device.
    pub fn file(path: &Path, size_bytes: u64) -> Result<Store, StoreError> {
        Ok(Store { kept: Kept::File(file::Sparse::open(path, size_bytes)?) })
    }

    /// Bytes that can still be written to unwritten places; for a file, the free space of its filesystem.
    pub fn room_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Memory(memory) => memory.room_bytes(),
            Kept::File(file) => file.room_bytes(),
        }
    }

    /// Reads the bytes at `at`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), StoreError> {
        match &self.kept {
            Kept::Memory(memory) => memory.read(at, into),
            Kept::File(file) => file.read(at, into)?,
        }
        Ok(())
    }

    /// Writes the bytes at `at`.
    ///
    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::Io`].
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), StoreError> {
        match &self.kept {
            Kept::Memory(memory) => memory.write(at, from),
            Kept::File(file) => Ok(file.write(at, from)?),
        }
    }

    /// Makes `len` bytes at `at` read as zeros, and frees the memory or space that held them.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn discard(&self, at: u64, len: u64) -> Result<(), StoreError> {
        match &self.kept {
            Kept::Memory(memory) => memory.discard(at, len),
            Kept::File(file) => file.discard(at, len)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: u64 = 4 << 20;

    /// Both kinds of store, each empty.
    fn stores(directory: &Path) -> [(&'static str, Store); 2] {
        let file = Store::file(&directory.join("data"), SIZE_BYTES).unwrap();
        [("memory", Store::memory(SIZE_BYTES)), ("file", file)]
    }

    #[test]
    fn a_store_reads_as_a_plain_array_does_after_any_writes_and_discards() {
        let directory = tempfile::tempdir().unwrap();
        for (name, store) in stores(directory.path()) {
            let mut random = fastrand::Rng::with_seed(7);
            let mut model = vec![0_u8; SIZE_BYTES as usize];
            for round in 0..600 {
                let at = random.usize(..model.len());
                let len = random.usize(..=(model.len() - at).min(200_000));
                let range = at..at + len;
                match random.u8(..4) {
                    0 => {
                        store.discard(at as u64, len as u64).unwrap();
                        model[range].fill(0);
                    }
                    1 => {
                        store.write(at as u64, &vec![0; len]).unwrap();
                        model[range].fill(0);
                    }
                    2 => {
                        random.fill(&mut model[range.clone()]);
                        store.write(at as u64, &model[range]).unwrap();
                    }
                    _ => {
                        let mut found = vec![0xEE; len];
                        store.read(at as u64, &mut found).unwrap();
                        assert!(found == model[range], "[STO-1] {name}, round {round}, {at}+{len}");
                    }
                }
            }
            let mut found = vec![0xEE; model.len()];
            store.read(0, &mut found).unwrap();
            assert!(found == model, "[STO-1] {name}");
        }
    }
}
