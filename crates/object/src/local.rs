//! Files on a local disk: a locked directory, and its errors.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// Creates `directory` if it does not exist and locks the file `name` in it; `None` if that is locked.
pub(crate) fn lock(directory: &Path, name: &str) -> Result<Option<File>> {
    let path = directory.join(name);
    let opened = (|| {
        fs::create_dir_all(directory)?;
        OpenOptions::new().write(true).create(true).truncate(false).open(&path)
    })();
    let lock = opened.map_err(|error| local_error(&path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(local_error(&path, &error)),
    }
}

pub(crate) fn local_error(path: &Path, error: &io::Error) -> Error {
    Error::Local { path: path.display().to_string(), what: error.to_string() }
}
