//! Where there is no FUSE that we use: the same words, and an error.

use std::path::Path;

use super::{Error, Options};

/// A mounted emulation; none can exist here.
#[derive(Debug)]
pub enum Emulation {}

impl Emulation {
    /// Says that this cannot be done here.
    ///
    /// # Errors
    /// [`Error::NotHere`], always.
    pub fn mount(_mount_point: &Path, _options: Options) -> Result<Emulation, Error> {
        Err(Error::NotHere)
    }
}
