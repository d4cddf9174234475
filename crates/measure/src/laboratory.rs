//! The measurement of a disk, as another program requests it.

use std::path::PathBuf;
use std::time::Duration;

use crate::report::Report;

/// How one disk is measured.
#[derive(Debug, Clone)]
pub struct DiskRun {
    /// An existing directory on it.
    pub directory: PathBuf,
    /// The I/O backends that the server can use, comma-separated.
    pub backends: String,
    /// Whether checkpoints are also measured with concurrent readers.
    pub readers: bool,
    /// How long the disk is kept busy first.
    pub sustained: Option<Duration>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Measures disks.
pub trait Laboratory {
    /// The space that the measurement takes, in bytes.
    ///
    /// # Errors
    /// A setting is not valid.
    fn space_bytes(&self, run: &DiskRun) -> anyhow::Result<u64>;

    /// Measures the disk. Returns its report.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) if there is not enough space, or an interruption.
    fn measure(&self, run: &DiskRun) -> anyhow::Result<Report>;
}
