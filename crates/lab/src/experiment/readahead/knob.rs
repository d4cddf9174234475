//! The knob: by which means a readahead is set, and what the settings are.
//!
//! Root sets it where everybody's is set, at the device. Who may not do that can still choose between
//! three by advice on a descriptor: none (RANDOM), the device's (NORMAL) and twice that (SEQUENTIAL). A
//! file takes its readahead when it is opened, so a setting is made before files are opened, and advice
//! is given to each descriptor.
//!
//! Worked example: on a device at 128 KiB an ordinary user has `random` = 0, `normal` = 128 KiB and
//! `sequential` = 256 KiB, and root whatever is asked for.
//!
//! Invariants:  [KNB-1] a knob that was not turned by the device never writes to its file
//! Failure:     asked for by the device where that is not permitted, it says so before anything is
//!              measured; nobody falls back unasked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_io::{Advice, File, Hint, OpenOptions};

use crate::bad_input;
use crate::device_readahead::{ReadaheadGuard, read_kib};
use crate::facts::{Storage, Sysfs};

/// How the readahead is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Where it is set for everybody.
    Device,
    /// By advice for one descriptor.
    Descriptor,
}

impl By {
    /// Name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            By::Device => "device",
            By::Descriptor => "descriptor",
        }
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(name: &str) -> Result<By, String> {
        let found = [By::Device, By::Descriptor].into_iter().find(|by| by.name() == name.trim());
        found.ok_or_else(|| "there are device and descriptor".to_owned())
    }
}

/// One readahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment) enum Setting {
    /// This many bytes, for everybody who uses the device.
    Device(u64),
    /// Advice for one descriptor.
    Descriptor(Hint),
}

impl Setting {
    /// In bytes, where the device's own is `found`.
    pub(in crate::experiment) fn bytes(self, found: Option<u64>) -> Option<u64> {
        match self {
            Setting::Device(bytes) => Some(bytes),
            Setting::Descriptor(Hint::Random) => Some(0),
            Setting::Descriptor(Hint::Normal) => found,
            Setting::Descriptor(Hint::Sequential) => found.map(|bytes| bytes.saturating_mul(2)),
        }
    }

    pub(in crate::experiment) fn by(self) -> By {
        match self {
            Setting::Device(_) => By::Device,
            Setting::Descriptor(_) => By::Descriptor,
        }
    }

    /// The advice it consists of.
    pub(in crate::experiment) fn advice(self) -> Option<&'static str> {
        match self {
            Setting::Device(_) => None,
            Setting::Descriptor(Hint::Random) => Some("random"),
            Setting::Descriptor(Hint::Normal) => Some("normal"),
            Setting::Descriptor(Hint::Sequential) => Some("sequential"),
        }
    }

    /// Opens `path` for a reader under this setting.
    ///
    /// # Errors
    /// As [`File::open`] and [`File::advise`].
    pub(in crate::experiment) fn open(self, path: &Path) -> Result<File, forebay_io::Error> {
        let file = File::open(path, &OpenOptions::new().read_only(true))?;
        if let Setting::Descriptor(hint) = self
            && hint != Hint::Normal
        {
            file.advise(0..u64::MAX, Advice::from(hint))?;
        }
        Ok(file)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.advice()) {
            (Setting::Device(bytes), _) => {
                out.pad(&format!("readahead {}", crate::units::shown_size(*bytes)))
            }
            (Setting::Descriptor(_), advice) => out.pad(advice.unwrap_or("normal")),
        }
    }
}

/// What can be done about the readahead of a directory.
#[derive(Debug, Clone)]
pub(in crate::experiment) struct Knob {
    /// How it is varied.
    pub(in crate::experiment) by: By,
    /// The file it is set in.
    file: Result<PathBuf, String>,
    /// What is set there, in bytes.
    pub(in crate::experiment) found_bytes: Option<u64>,
    /// Why it is not varied by the device although nobody asked for another way.
    pub(in crate::experiment) why_not_device: Option<String>,
}

impl Knob {
    /// Looks at `directory`, without changing anything. `asked`: the way the user wants; `values`: whether
    /// the user named values, which takes the device.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when the device is asked for and cannot be had.
    pub(in crate::experiment) fn look(
        directory: &Path,
        asked: Option<By>,
        values: bool,
    ) -> anyhow::Result<Knob> {
        // A directory that is not there is told of by the run, in the same words as elsewhere.
        let found = Storage::read(directory)
            .and_then(|storage| Sysfs::system().readahead_file_of(&storage));
        Knob::over(found.map_err(|error| error.to_string()), asked, values)
    }

    fn over(
        file: Result<PathBuf, String>,
        asked: Option<By>,
        values: bool,
    ) -> anyhow::Result<Knob> {
        if asked == Some(By::Descriptor) && values {
            bad_input!(
                "--readahead takes --by device: a descriptor has random, normal and sequential only"
            );
        }
        let found_bytes =
            file.as_ref().ok().and_then(|file| read_kib(file).ok()).map(|kib| kib * 1024);
        let settable = file.clone().and_then(|file| {
            let opened = std::fs::OpenOptions::new().write(true).open(&file);
            opened.map(drop).map_err(|error| format!("{}: {error}", file.display()))
        });
        let by = match (asked, &settable) {
            (Some(By::Descriptor), _) | (None, Err(_)) if !values => By::Descriptor,
            (_, Ok(())) => By::Device,
            (_, Err(why)) => bad_input!(
                "the readahead cannot be set here ({why}); run as root on the machine itself, or vary it \
                 with --by descriptor and without --readahead"
            ),
        };
        let why_not_device = settable.err().filter(|_| asked.is_none());
        Ok(Knob { by, file, found_bytes, why_not_device })
    }

    /// The settings to measure: `asked`, or `defaults` and the one that was found, ascending.
    pub(in crate::experiment) fn settings(&self, asked: &[u64], defaults: &[u64]) -> Vec<Setting> {
        if self.by == By::Descriptor {
            return [Hint::Random, Hint::Normal, Hint::Sequential]
                .map(Setting::Descriptor)
                .to_vec();
        }
        let mut bytes: Vec<u64> = if asked.is_empty() {
            defaults.iter().copied().chain(self.found_bytes).collect()
        } else {
            asked.to_vec()
        };
        bytes.sort_unstable();
        bytes.dedup();
        bytes.into_iter().map(Setting::Device).collect()
    }

    /// Takes the right to set it, if it is set by the device.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when it cannot be set after all.
    pub(in crate::experiment) fn take(&self) -> anyhow::Result<Turned> {
        let guard = match (self.by, &self.file) {
            (By::Device, Ok(file)) => match ReadaheadGuard::at(file.clone()) {
                Ok(guard) => Some(guard),
                Err(error) => bad_input!("{error:#}; use --by descriptor"),
            },
            // [KNB-1]
            (By::Descriptor, _) | (By::Device, Err(_)) => None,
        };
        Ok(Turned { guard })
    }
}

/// A knob in hand, put back when it is dropped or, with what went wrong told, by `restore`.
#[derive(Debug)]
pub(in crate::experiment) struct Turned {
    guard: Option<ReadaheadGuard>,
}

impl Turned {
    /// Makes it so for files that are opened from now on. `Some` is what the kernel made of it, in bytes, if
    /// that is something else.
    ///
    /// # Errors
    /// What the system said.
    pub(in crate::experiment) fn set(&self, setting: Setting) -> anyhow::Result<Option<u64>> {
        match (&self.guard, setting) {
            (Some(guard), Setting::Device(bytes)) => {
                Ok(Some(guard.set(bytes)?).filter(|&made| made != bytes))
            }
            _ => Ok(None),
        }
    }

    /// Puts it back.
    ///
    /// # Errors
    /// That could not be done.
    pub(in crate::experiment) fn restore(self) -> anyhow::Result<()> {
        self.guard.map_or(Ok(()), ReadaheadGuard::restore)
    }
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
        let knob = Knob::over(Ok(file(&directory)), None, false).unwrap();
        assert_eq!((knob.by, knob.found_bytes), (By::Device, Some(128 << 10)));
        assert_eq!(knob.why_not_device, None);
        let none = Knob::over(Err("no bdi".to_owned()), None, false).unwrap();
        assert_eq!((none.by, none.found_bytes), (By::Descriptor, None));
        assert_eq!(none.why_not_device.as_deref(), Some("no bdi"));
        let chosen = Knob::over(Ok(file(&directory)), Some(By::Descriptor), false).unwrap();
        assert_eq!((chosen.by, chosen.why_not_device), (By::Descriptor, None));
    }

    #[test]
    fn what_cannot_be_had_is_told_and_not_replaced() {
        for (asked, values) in [(Some(By::Device), false), (None, true)] {
            let error = Knob::over(Err("no bdi".to_owned()), asked, values).unwrap_err();
            assert!(error.is::<crate::BadInput>());
            assert!(error.to_string().contains("no bdi"), "{error}");
        }
        let error = Knob::over(Err("no bdi".to_owned()), Some(By::Descriptor), true).unwrap_err();
        assert!(error.to_string().contains("--readahead"), "{error}");
    }

    #[test]
    fn the_value_found_is_among_the_settings_unless_others_are_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let knob = Knob::over(Ok(file(&directory)), None, false).unwrap();
        let bytes = |asked: &[u64]| -> Vec<u64> {
            let settings = knob.settings(asked, &[4096, 1 << 20]);
            settings.iter().filter_map(|setting| setting.bytes(None)).collect()
        };
        assert_eq!(bytes(&[]), [4096, 128 << 10, 1 << 20]);
        assert_eq!(bytes(&[1 << 20, 0, 1 << 20]), [0, 1 << 20]);
    }

    #[test]
    fn a_descriptor_has_none_the_devices_and_twice_that() {
        let knob = Knob::over(Err("no bdi".to_owned()), None, false).unwrap();
        let found = |bytes| {
            let settings = knob.settings(&[], &[4096]);
            settings.into_iter().map(|setting| setting.bytes(bytes)).collect::<Vec<_>>()
        };
        assert_eq!(found(Some(8192)), [Some(0), Some(8192), Some(16384)]);
        assert_eq!(found(None), [Some(0), None, None]);
    }

    #[test]
    fn a_turned_knob_goes_back_and_one_for_descriptors_touches_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        let knob = Knob::over(Ok(file.clone()), None, false).unwrap();
        let turned = knob.take().unwrap();
        assert_eq!(turned.set(Setting::Device(4096)).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), "4\n");
        turned.set(Setting::Device(0)).unwrap();
        turned.restore().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "128\n");

        let knob = Knob::over(Ok(file.clone()), Some(By::Descriptor), false).unwrap();
        // Whoever writes a number to it ends it with a line feed.
        fs::write(&file, "128").unwrap();
        let turned = knob.take().unwrap();
        turned.set(Setting::Descriptor(Hint::Random)).unwrap();
        turned.restore().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "128", "[KNB-1]");
    }
}
