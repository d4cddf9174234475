//! The beginning and the end of a disk: read raw, past the page cache and every filesystem.
//!
//! The outer tracks of a rotating disk pass under the head twice as fast as the inner ones, so that two
//! files of one filesystem may differ by that much for no other reason than where they lie. The block
//! device is only ever opened for reading, which takes root; of an emulated disk that is mounted its file
//! `disk` is the whole address range.
//!
//! Failure:     a disk that cannot be told or opened leaves two records without figures, which say why.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::reader::{DIRECT_REQUEST_BYTES, Direct, direct_depth};
use crate::facts::{Storage, Sysfs};

/// Bytes read at each end, at most.
const END_BYTES_MAX: u64 = 1 << 30;

/// Of a small disk at most this part at each end.
const END_DIVISOR: u64 = 8;

/// Where on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Position {
    Begin,
    End,
}

/// A disk that can be read raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw {
    path: PathBuf,
    bytes: u64,
}

impl Raw {
    /// The disk under `storage`, or why it cannot be read.
    pub(super) fn find(storage: &Storage) -> Result<Raw, String> {
        let raw = match (&storage.device, emulated(storage)) {
            (Some(device), _) => {
                let found = Sysfs::system().whole_disk(device);
                let (path, bytes) = found.map_err(|error| error.to_string())?;
                Raw { path, bytes }
            }
            (None, Some(raw)) => raw,
            (None, None) => return Err(storage.device_remark.clone()),
        };
        match std::fs::File::open(&raw.path) {
            Ok(_) => Ok(raw),
            Err(error) => Err(format!("{}: {error}", raw.path.display())),
        }
    }

    /// What is read at `position`: whole requests.
    pub(super) fn range(&self, position: Position) -> Range<u64> {
        let most = (self.bytes / END_DIVISOR).min(END_BYTES_MAX);
        let length = most / DIRECT_REQUEST_BYTES * DIRECT_REQUEST_BYTES;
        match position {
            Position::Begin => 0..length,
            // Aligned for any disk: from a whole request on.
            Position::End => {
                let last = self.bytes / DIRECT_REQUEST_BYTES * DIRECT_REQUEST_BYTES;
                last - length..last
            }
        }
    }

    /// A reader of what is at `position`.
    ///
    /// # Errors
    /// Direct reads are refused.
    pub(super) fn open(&self, position: Position) -> Result<Direct<'static>, forebay_io::Error> {
        Direct::open(&self.path, self.range(position), None, direct_depth(1))
    }
}

/// Whether `storage` is a mount of an emulated disk.
pub(super) fn is_emulated(storage: &Storage) -> bool {
    let is_fuse = storage.filesystem.as_deref().is_some_and(|name| name.starts_with("fuse"));
    let profile = |mount: &str| Path::new(mount).join(".forebay/profile").exists();
    is_fuse && storage.mount_point.as_deref().is_some_and(profile)
}

/// The whole of an emulated disk, as a mount of one shows it.
fn emulated(storage: &Storage) -> Option<Raw> {
    let mount_point = storage.mount_point.as_deref().filter(|_| is_emulated(storage))?;
    let path = Path::new(mount_point).join("disk");
    let bytes = std::fs::metadata(&path).ok()?.len();
    Some(Raw { path, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_within_the_disk_and_apart() {
        for bytes in [8 << 20, 100 << 20, (4 << 40) + 512, 256 << 30] {
            let raw = Raw { path: "/dev/null".into(), bytes };
            let (begin, end) = (raw.range(Position::Begin), raw.range(Position::End));
            assert_eq!(begin.start, 0);
            assert!(begin.end <= end.start && end.end <= bytes, "{bytes}");
            assert!(bytes - end.end < DIRECT_REQUEST_BYTES, "the very end: {bytes}");
            assert_eq!(begin.end - begin.start, end.end - end.start);
            assert!(end.start.is_multiple_of(DIRECT_REQUEST_BYTES));
        }
    }

    #[test]
    fn a_mount_of_an_emulated_disk_is_told_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path();
        let mut storage = Storage {
            directory: mount.display().to_string(),
            filesystem: Some("fuse.forebay".to_owned()),
            emulated: None,
            mount_point: Some(mount.display().to_string()),
            mount_options: None,
            source: None,
            device: None,
            device_remark: "fuse has no device".to_owned(),
        };
        std::fs::write(mount.join("disk"), vec![0; 1 << 20]).unwrap();
        assert_eq!(Raw::find(&storage), Err("fuse has no device".to_owned()));
        std::fs::create_dir(mount.join(".forebay")).unwrap();
        std::fs::write(mount.join(".forebay/profile"), "{}").unwrap();
        let found = Raw::find(&storage).unwrap();
        assert_eq!(found, Raw { path: mount.join("disk"), bytes: 1 << 20 });
        storage.filesystem = Some("tmpfs".to_owned());
        assert!(Raw::find(&storage).is_err());
    }
}
