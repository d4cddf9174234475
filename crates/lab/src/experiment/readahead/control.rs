//! The readahead control: how a readahead is set, and what the settings are.
//!
//! Root sets the device's readahead, which all programs share. Other users can still choose between
//! three values by advice on a descriptor: none (RANDOM), the device's (NORMAL) and twice that (SEQUENTIAL). A
//! file takes its readahead when it is opened, so a setting is made before files are opened, and advice
//! is given to each descriptor.
//!
//! Worked example: on a device at 128 KiB an ordinary user has `random` = 0, `normal` = 128 KiB and
//! `sequential` = 256 KiB, and root any requested value.
//!
//! Invariants:  [CTL-1] a control that does not set the device never writes to the device's file
//! Failure:     if the device was requested and that is not permitted, an error says so before anything is
//!              measured; there is no silent fallback.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use forebay_io::{File, Hint, OpenOptions};
use serde::Serialize;

use forebay_measure::bad_input;
use forebay_measure::device_readahead::{ReadaheadGuard, read_kib};
use forebay_measure::facts::{Storage, Sysfs};
use forebay_measure::units::shown_size;

/// How the readahead is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// For all users of the device: root sets what `blockdev --setra` sets (for a filesystem without a
    /// device, such as FUSE, the value in /sys/class/bdi), and the value found is restored at the end, also
    /// after Ctrl-C
    Device,
    /// By advice for one descriptor, which any user may give: FADV_RANDOM is no readahead, NORMAL the
    /// device's, SEQUENTIAL twice that
    Descriptor,
}

/// The advice for one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Fadvise {
    /// No advice.
    Normal,
    /// FADV_RANDOM.
    Random,
    /// FADV_SEQUENTIAL.
    Sequential,
}

/// One readahead, in the form of the records. If all fields are empty it is that of direct reads: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Readahead {
    /// As far as it is known.
    #[serde(rename = "readahead_bytes")]
    pub(super) bytes: Option<u64>,
    #[serde(rename = "readahead_by")]
    by: Option<By>,
    #[serde(rename = "advice")]
    pub(super) advice: Option<Fadvise>,
}

impl Readahead {
    /// This readahead for all users of the device.
    pub(super) fn device(bytes: u64) -> Readahead {
        Readahead { bytes: Some(bytes), by: Some(By::Device), advice: None }
    }

    /// The readahead of a descriptor with this advice, where the device's own is `found`.
    pub(super) fn descriptor(advice: Fadvise, found: Option<u64>) -> Readahead {
        let bytes = match advice {
            Fadvise::Random => Some(0),
            Fadvise::Normal => found,
            Fadvise::Sequential => found.map(|bytes| bytes.saturating_mul(2)),
        };
        Readahead { bytes, by: Some(By::Descriptor), advice: Some(advice) }
    }

    /// Opens `path` for a reader under this readahead, which has been set.
    ///
    /// # Errors
    /// As [`File::open`] and [`File::advise`].
    pub(super) fn open(self, path: &Path) -> Result<File, forebay_io::Error> {
        let hint = match self.advice {
            None | Some(Fadvise::Normal) => Hint::Normal,
            Some(Fadvise::Random) => Hint::Random,
            Some(Fadvise::Sequential) => Hint::Sequential,
        };
        File::open(path, &OpenOptions::new().read_only(true).hint(hint))
    }
}

/// `6 MiB`, `none (RANDOM)` or `direct`.
impl fmt::Display for Readahead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = match self.bytes {
            Some(0) => "none".to_owned(),
            Some(bytes) => shown_size(bytes).replace(".0 ", " "),
            None if self.by.is_none() => "direct".to_owned(),
            None => "unknown".to_owned(),
        };
        match self.advice {
            None => out.pad(&size),
            Some(advice) => out.pad(&format!("{size} ({})", format!("{advice:?}").to_uppercase())),
        }
    }
}

/// How the readahead of a directory can be set.
#[derive(Debug, Clone)]
pub(super) struct Control {
    /// The file it is set in, if it is varied by the device [CTL-1].
    pub(super) file: Option<PathBuf>,
    /// The device's value, in bytes.
    pub(super) found_bytes: Option<u64>,
    /// Why the device is not used although the user did not choose otherwise.
    pub(super) why_not_device: Option<String>,
}

impl Control {
    /// Examines `directory`, without changing anything. `asked`: what the user wants; `values`: whether
    /// the user named values, which requires the device.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when the device is requested and cannot be used.
    pub(super) fn look(
        directory: &Path,
        asked: Option<By>,
        values: bool,
    ) -> anyhow::Result<Control> {
        // The run reports a directory that does not exist, in the same words as elsewhere.
        let found = Storage::read(directory)
            .map_err(anyhow::Error::from)
            .and_then(|storage| Sysfs::system().readahead_file_of(&storage));
        Control::over(found.map_err(|error| format!("{error:#}")), asked, values)
    }

    fn over(
        file: Result<PathBuf, String>,
        asked: Option<By>,
        values: bool,
    ) -> anyhow::Result<Control> {
        if asked == Some(By::Descriptor) && values {
            bad_input!(
                "--readahead takes --set-via device: a descriptor has random, normal and sequential only"
            );
        }
        let found_bytes =
            file.as_ref().ok().and_then(|file| read_kib(file).ok()).map(|kib| kib * 1024);
        let settable = file.and_then(|file| {
            let opened = std::fs::OpenOptions::new().write(true).open(&file);
            opened.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(file)
        });
        let (file, why_not_device) = match (asked, settable) {
            (Some(By::Descriptor), _) => (None, None),
            (None, Err(why)) if !values => (None, Some(why)),
            (_, Ok(file)) => (Some(file), None),
            (_, Err(why)) => bad_input!(
                "the readahead cannot be set here ({why}); run as root on the machine itself, or vary it \
                 with --set-via descriptor and without --readahead"
            ),
        };
        Ok(Control { file, found_bytes, why_not_device })
    }

    /// The readaheads to measure: `asked`, or `defaults` and the one that was found, ascending.
    pub(super) fn readaheads(&self, asked: &[u64], defaults: &[u64]) -> Vec<Readahead> {
        if self.file.is_none() {
            return [Fadvise::Random, Fadvise::Normal, Fadvise::Sequential]
                .map(|advice| Readahead::descriptor(advice, self.found_bytes))
                .to_vec();
        }
        let found = self.found_bytes.filter(|_| asked.is_empty());
        let asked = if asked.is_empty() { defaults } else { asked };
        let bytes: BTreeSet<u64> = asked.iter().copied().chain(found).collect();
        bytes.into_iter().map(Readahead::device).collect()
    }

    /// Takes the right to set it, if it is set by the device [CTL-1]. Dropping the guard restores the value found.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when setting it fails.
    pub(super) fn take(&self) -> anyhow::Result<Turned> {
        match self.file.clone().map(ReadaheadGuard::at).transpose() {
            Ok(guard) => Ok(guard),
            Err(error) => bad_input!("{error:#}; use --set-via descriptor"),
        }
    }
}

/// The right to set the device's readahead, if that is how it is varied.
pub(super) type Turned = Option<ReadaheadGuard>;

/// Sets it for files that are opened from now on. Returns the kernel's value, as a remark, if
/// it differs.
///
/// # Errors
/// The system's error.
pub(super) fn set(turned: &Turned, readahead: Readahead) -> anyhow::Result<Option<String>> {
    let (Some(guard), Some(By::Device), Some(bytes)) = (turned, readahead.by, readahead.bytes)
    else {
        return Ok(None);
    };
    let made = Some(guard.set(bytes)?).filter(|&made| made != bytes);
    Ok(made.map(|made| format!("the kernel made {} of this readahead", shown_size(made))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(directory: &tempfile::TempDir) -> PathBuf {
        let file = directory.path().join("read_ahead_kb");
        fs::write(&file, "128\n").unwrap();
        file
    }

    #[test]
    fn by_the_device_where_that_is_permitted_and_by_descriptor_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::over(Ok(file(&directory)), None, false).unwrap();
        assert_eq!((control.file.is_some(), control.found_bytes), (true, Some(128 << 10)));
        assert_eq!(control.why_not_device, None);
        let none = Control::over(Err("no bdi".to_owned()), None, false).unwrap();
        assert_eq!((none.file, none.found_bytes), (None, None));
        assert_eq!(none.why_not_device.as_deref(), Some("no bdi"));
        let chosen = Control::over(Ok(file(&directory)), Some(By::Descriptor), false).unwrap();
        assert_eq!((chosen.file, chosen.why_not_device), (None, None));
    }

    #[test]
    fn a_value_that_cannot_be_set_is_reported_and_not_replaced() {
        for (asked, values) in [(Some(By::Device), false), (None, true)] {
            let error = Control::over(Err("no bdi".to_owned()), asked, values).unwrap_err();
            assert!(error.is::<forebay_measure::BadInput>());
            assert!(error.to_string().contains("no bdi"), "{error}");
        }
        let error =
            Control::over(Err("no bdi".to_owned()), Some(By::Descriptor), true).unwrap_err();
        assert!(error.to_string().contains("--readahead"), "{error}");
    }

    #[test]
    fn the_value_found_is_among_the_settings_unless_others_are_given() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::over(Ok(file(&directory)), None, false).unwrap();
        let bytes = |asked: &[u64]| -> Vec<u64> {
            let readaheads = control.readaheads(asked, &[4096, 1 << 20]);
            readaheads.iter().filter_map(|readahead| readahead.bytes).collect()
        };
        assert_eq!(bytes(&[]), [4096, 128 << 10, 1 << 20]);
        assert_eq!(bytes(&[1 << 20, 0, 1 << 20]), [0, 1 << 20]);
    }

    #[test]
    fn a_descriptor_has_none_the_devices_and_twice_that() {
        let directory = tempfile::tempdir().unwrap();
        for (file, found) in
            [(Ok(file(&directory)), Some(128 << 10)), (Err("no bdi".to_owned()), None)]
        {
            let control = Control::over(file, Some(By::Descriptor), false).unwrap();
            let readaheads = control.readaheads(&[], &[4096]);
            let bytes: Vec<Option<u64>> = readaheads.iter().map(|one| one.bytes).collect();
            assert_eq!(bytes, [Some(0), found, found.map(|bytes| 2 * bytes)]);
            assert_eq!(readaheads[0].to_string(), "none (RANDOM)");
        }
    }

    #[test]
    fn the_value_found_is_restored_and_a_control_for_descriptors_touches_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        let control = Control::over(Ok(file.clone()), None, false).unwrap();
        let turned = control.take().unwrap();
        assert_eq!(set(&turned, Readahead::device(4096)).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), "4\n");
        set(&turned, Readahead::device(0)).unwrap();
        turned.unwrap().restore().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "128\n");

        let control = Control::over(Ok(file.clone()), Some(By::Descriptor), false).unwrap();
        // A program that writes a number to it ends it with a line feed.
        fs::write(&file, "128").unwrap();
        let turned = control.take().unwrap();
        set(&turned, Readahead::descriptor(Fadvise::Random, None)).unwrap();
        assert!(turned.is_none());
        assert_eq!(fs::read_to_string(&file).unwrap(), "128", "[CTL-1]");
    }
}
