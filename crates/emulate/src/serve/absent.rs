//! For systems without a supported FUSE: the same interface, which returns an error.

use std::path::Path;

use super::{Error, Options};

/// A mounted emulation; none can exist here.
#[derive(Debug)]
pub enum Emulation {}

impl Emulation {
    /// Returns an error: there are no emulated disks here.
    ///
    /// # Errors
    /// [`Error::NotHere`], always.
    pub fn mount(_mount_point: &Path, _options: Options) -> Result<Emulation, Error> {
        Err(Error::NotHere)
    }
}
