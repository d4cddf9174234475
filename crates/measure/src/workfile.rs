//! The working file: real, incompressible data on the disk under test, removed afterwards.
//!
//! Where the system allows it (Linux), the file loses its name as soon as it exists and is
//! reached through this process's descriptor table: nothing is left behind however the process
//! ends. A pool opens files by name, inside a directory that it locks; for that, and on other systems, the file
//! gets a hidden directory and keeps its name, and both are removed on every exit: by this
//! process, or after a kill by the next start.
//!
//! Every block carries its own number, so that a measurement can verify that it read the requested
//! block.

use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::interrupt;
use crate::undo_log::{self, Undo};
use crate::units::shown_size;
use crate::{bad_input, facts};

/// Bytes written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Space that must stay free beyond the file, as a part of its size: one fifth.
const MARGIN_DIVISOR: u64 = 5;

/// Prefix of every name that a run makes in the measured directory.
const PREFIX: &str = ".forebay-lab-";

/// Name of a working file that keeps one.
const NAME: &str = "blocks";

/// Whether a working file keeps a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// No name where the system allows that: the file is removed even after a kill.
    Nameless,
    /// In a separate directory, for a pool to open.
    Named,
}

/// Checks that `directory` can hold a file of `size_bytes` without filling the disk.
///
/// # Errors
/// [`BadInput`](crate::BadInput) if it is no directory, or lacks the space.
pub fn check_directory(directory: &Path, size_bytes: u64) -> anyhow::Result<()> {
    if !directory.is_dir() {
        bad_input!("{} is not a directory; name an existing one with --dir", directory.display());
    }
    let free = facts::free_bytes(directory)
        .with_context(|| format!("cannot determine the free space of {}", directory.display()))?;
    let needed = size_bytes.saturating_add(size_bytes / MARGIN_DIVISOR);
    if free < needed {
        bad_input!(
            "{} has {} free, but a working file of {} needs {} (its size and 20 % to spare); \
             choose a smaller --size or another --dir",
            directory.display(),
            shown_size(free),
            shown_size(size_bytes),
            shown_size(needed)
        );
    }
    Ok(())
}

/// A file full of numbered blocks of random bytes.
#[derive(Debug)]
pub struct Workfile {
    /// Keeps the file open; its own offset and mode are not used for measuring.
    keep: std::fs::File,
    path: PathBuf,
    /// In bytes.
    pub size_bytes: u64,
    /// In bytes.
    pub block_bytes: u64,
    seed: u64,
    /// Removes its own directory, with the file in it, if it has one.
    own: Option<Undo>,
}

impl Workfile {
    /// Makes the file in `directory`, empty. See [`Workfile::fill`].
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) if the directory cannot be written to or is too small.
    pub fn create(
        directory: &Path,
        size_bytes: u64,
        block_bytes: u64,
        seed: u64,
        naming: Naming,
    ) -> anyhow::Result<Workfile> {
        check_directory(directory, size_bytes)?;
        let nameless = match naming {
            Naming::Nameless => nameless(directory)?,
            Naming::Named => None,
        };
        let (keep, path, own) = if let Some((keep, path)) = nameless {
            (keep, path, None)
        } else {
            let own = directory.join(undo_log::fresh_name(PREFIX));
            let undo = undo_log::make_directory(&own, true);
            let undo = undo.map_err(|error| cannot_create(directory, &error))?;
            let path = own.join(NAME);
            let keep = std::fs::File::create_new(&path);
            (keep.map_err(|error| cannot_create(directory, error))?, path, Some(undo))
        };
        Ok(Workfile { keep, path, size_bytes, block_bytes, seed, own })
    }

    /// Writes the contents and syncs them. `progress` receives the bytes written so far.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted); otherwise what the system said.
    pub fn fill(&mut self, mut progress: impl FnMut(u64)) -> anyhow::Result<()> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let chunk_bytes = CHUNK_BYTES.max(self.block_bytes as usize);
        let mut chunk = vec![0; chunk_bytes];
        let mut written = 0;
        while written < self.size_bytes {
            interrupt::check()?;
            random.fill(&mut chunk);
            let here = (self.size_bytes - written).min(chunk_bytes as u64) as usize;
            for (index, block) in chunk.chunks_mut(self.block_bytes as usize).enumerate() {
                let number = written / self.block_bytes + index as u64;
                block[..8].copy_from_slice(&self.stamp(number));
            }
            self.keep.write_all(&chunk[..here]).with_context(|| {
                format!("cannot write {} of working file", shown_size(self.size_bytes))
            })?;
            written += here as u64;
            progress(written);
        }
        self.keep.sync_all().context("cannot sync the working file")?;
        Ok(())
    }

    /// The first bytes of block `number`.
    pub fn stamp(&self, number: u64) -> [u8; 8] {
        (number ^ self.seed.rotate_left(32)).to_le_bytes()
    }

    /// A path by which this process and its children can open it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory and the name in there, if it has them, as one made [`Naming::Named`] does.
    pub fn named(&self) -> Option<(&Path, &'static str)> {
        // The caller is about to open a pool there, which makes the directory if it was removed.
        interrupt::wait_if_ending();
        let _ = self.own.as_ref()?;
        Some((self.path.parent()?, NAME))
    }

    /// Whole blocks in the file.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / self.block_bytes
    }
}

/// Makes a file in `directory` that loses its name immediately; `None` where the system does not support it.
fn nameless(directory: &Path) -> anyhow::Result<Option<(std::fs::File, PathBuf)>> {
    let temporary = tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory);
    // tempfile repeats the path in its message; the kind alone reads better.
    let temporary = temporary.map_err(|error| cannot_create(directory, error.kind()))?;
    let (keep, name) = temporary.into_parts();
    let unnamed: PathBuf = format!("/proc/{}/fd/{}", std::process::id(), keep.as_raw_fd()).into();
    name.close().context("cannot unlink the working file")?;
    Ok(unnamed.exists().then_some((keep, unnamed)))
}

/// Bad input: no file can be made in `directory`.
pub fn cannot_create(directory: &Path, why: impl Display) -> anyhow::Error {
    let directory = directory.display();
    crate::BadInput(format!("cannot make a file in {directory}: {why}; choose another --dir"))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_file_has_the_size_and_stamps_promised_and_leaves_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut reported = 0;
        let mut workfile =
            Workfile::create(directory.path(), 3 << 20, 8192, 7, Naming::Nameless).unwrap();
        workfile.fill(|bytes| reported = bytes).unwrap();
        assert_eq!(reported, 3 << 20);
        assert_eq!(workfile.blocks(), 384);
        let file = std::fs::File::open(workfile.path()).unwrap();
        let mut start = [0; 8];
        file.read_exact_at(&mut start, 383 * 8192).unwrap();
        assert_eq!(start, workfile.stamp(383));
        if cfg!(target_os = "linux") {
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        drop((workfile, file));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_larger_than_the_free_space_is_refused_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            Workfile::create(directory.path(), 1 << 60, 8192, 7, Naming::Nameless).unwrap_err();
        assert!(error.is::<crate::BadInput>());
        assert!(error.to_string().contains("--size"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_named_file_has_its_own_directory_which_is_removed_with_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let naming = Naming::Named;
        let mut workfile = Workfile::create(directory.path(), 1 << 20, 8192, 7, naming).unwrap();
        workfile.fill(|_| ()).unwrap();
        let (own, name) = workfile.named().unwrap();
        assert_ne!(own, directory.path());
        assert_eq!(std::fs::metadata(own.join(name)).unwrap().len(), 1 << 20);
        std::fs::write(own.join("forebay.lock"), "as a pool leaves it").unwrap();
        drop(workfile);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
