//! Scratch: the directory of the working files, removed when the run ends, and their page cache.
//!
//! DONTNEED drops clean pages only, so files are synced first, and it skips pages that
//! are referenced at that moment, so it is called twice. Its success is verified:
//! the counters report what was read from the device ([`counters`](crate::counters)).

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use forebay_measure::units::shown_size;
use tempfile::TempDir;

use forebay_measure::bad_input;
use forebay_measure::interrupt::Cleanup;

/// Space that must stay free beyond the files, as a part of their size.
const MARGIN_DIVISOR: u64 = 10;

/// The directory, with others below it.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    /// A second Ctrl-C does not wait for the end of the run.
    _cleanup: Cleanup,
}

impl Scratch {
    /// Makes it in `within`, with `directories` below it for files of `each_bytes` each.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) if it cannot be made or the files do not fit.
    pub(crate) fn create(
        within: &Path,
        directories: &[&str],
        each_bytes: u64,
    ) -> anyhow::Result<Scratch> {
        let needed = each_bytes.saturating_mul(directories.len() as u64);
        let needed = needed.saturating_add(needed / MARGIN_DIVISOR);
        let filesystem = match rustix::fs::statvfs(within) {
            Ok(filesystem) => filesystem,
            Err(error) => {
                let error = std::io::Error::from(error);
                bad_input!("{}: {error}; name a directory with --dir", within.display())
            }
        };
        let free = filesystem.f_bavail.saturating_mul(filesystem.f_frsize);
        if free < needed {
            bad_input!(
                "{} has {} free, but {} files of {} need {}; choose a smaller --file-size (or --entries) or \
                 another --dir",
                within.display(),
                shown_size(free),
                directories.len(),
                shown_size(each_bytes),
                shown_size(needed)
            );
        }
        let directory =
            match tempfile::Builder::new().prefix(".forebay-compare-").tempdir_in(within) {
                Ok(directory) => directory,
                Err(error) => bad_input!("{error}; name another directory with --dir"),
            };
        let path = directory.path().to_owned();
        let cleanup = Cleanup::new(move || drop(fs::remove_dir_all(&path)));
        let scratch = Scratch { directory, _cleanup: cleanup };
        for name in directories {
            let path = scratch.of(name);
            fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        Ok(scratch)
    }

    /// The directory `name`.
    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Drops the files in the directory `name` from the kernel's page cache, as far as the system does that.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn empty_cache(&self, name: &str) -> anyhow::Result<()> {
        empty_cache_below(&self.of(name))
    }

    /// Removes everything.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        let path = self.directory.path().display().to_string();
        self.directory.close().with_context(|| format!("cannot remove {path}"))
    }
}

fn empty_cache_below(directory: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot empty the page cache of {}", directory.display());
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.is_dir() {
            empty_cache_below(&path)?;
            continue;
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            // A peer may create and remove files.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(cannot),
        };
        for _ in 0..2 {
            file.sync_data().with_context(cannot)?;
            #[cfg(target_os = "linux")]
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .with_context(cannot)?;
        }
    }
    Ok(())
}
