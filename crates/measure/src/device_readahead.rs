//! The kernel's readahead of a device: set for a measurement, and always restored.
//!
//! One number in sysfs (`queue/read_ahead_kb`, of a filesystem without a device `read_ahead_kb` of its bdi)
//! decides how far the kernel reads ahead for all users of the device. An experiment that varies it first takes the
//! right to do so and records the value found; at the end it restores the value and releases the right. Worked
//! example: a run over `0,128KiB` on a device at 8192 KiB writes 0, 128, 0, 128 ... and in the end 8192.
//!
//! A file takes the device's value when it is opened and keeps it, so a value is set before the files
//! of a measurement are opened.
//!
//! Invariants:  [DRA-1] the value found is restored: at the end, on an error, a panic, both the first and
//!              the second Ctrl-C, and by the next start after a kill
//!              [DRA-2] two runs do not vary one device at a time: the second would take the first one's
//!              value for the one to restore
//! Failure:     a value that cannot be restored at the end is an error that names the file and the value.
//! Source:      the kernel's `Documentation/ABI/stable/sysfs-block`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::bad_input;
use crate::facts::{Device, Sysfs};
use crate::undo_log::{Change, Undo, holder_of_readahead};
use crate::units::parse_size;

/// The right to set a device's readahead, until it is dropped.
#[derive(Debug)]
pub struct ReadaheadGuard {
    file: PathBuf,
    /// Puts the value back.
    undo: Undo,
}

impl ReadaheadGuard {
    /// Records the value and checks that it can be changed.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when it cannot be read, or not be written by this user.
    pub fn take(sysfs: &Sysfs, device: &Device) -> anyhow::Result<ReadaheadGuard> {
        let taken = sysfs.readahead_file(device).and_then(ReadaheadGuard::at);
        taken.or_else(|error| {
            let hint = match error.is::<crate::BadInput>() {
                true => "",
                false => "; run as root on the machine itself, or leave it out",
            };
            bad_input!("--device-readahead: {error:#}{hint}")
        })
    }

    /// The same for a `file` that holds a readahead, such as one that
    /// [`Sysfs::readahead_file_of`](crate::facts::Sysfs::readahead_file_of) returns.
    ///
    /// # Errors
    /// It cannot be read, or not be written by this user. [`BadInput`](crate::BadInput) when another run
    /// is varying it.
    pub fn at(file: PathBuf) -> anyhow::Result<ReadaheadGuard> {
        if let Some(process) = holder_of_readahead(&file) {
            // [DRA-2]
            bad_input!("process {process} is varying {}; wait for its end", file.display());
        }
        let found_kib = read_kib(&file)?;
        // Write the same value again: a user who may not write gets the error before anything is measured.
        fs::write(&file, format!("{found_kib}\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let change = Change::readahead(&file, found_kib);
        let (undo, ()) = Undo::doing(change, || Ok(()))?;
        Ok(ReadaheadGuard { file, undo })
    }

    /// Sets the readahead to `bytes`, a multiple of 1024, for files that are opened from now on. Returns
    /// the value that the kernel has set, in bytes.
    ///
    /// # Errors
    /// The system's error, with the file.
    pub fn set(&self, bytes: u64) -> anyhow::Result<u64> {
        let write = || {
            fs::write(&self.file, format!("{}\n", bytes / 1024))
                .with_context(|| format!("cannot write {}", self.file.display()))
        };
        self.undo.further(|change| change.will_be_kib(bytes / 1024), write)?;
        let kib = read_kib(&self.file)?;
        // The kernel may have rounded it; that value is the run's own as well.
        self.undo.further(|change| change.will_be_kib(kib), || Ok(()))?;
        Ok(kib * 1024)
    }

    /// Restores the value found.
    ///
    /// # Errors
    /// It could not be restored: the error says what to write where.
    pub fn restore(self) -> anyhow::Result<()> {
        self.undo.undo().context("the device's readahead could not be put back")
    }
}

/// The number in `file`, in KiB.
///
/// # Errors
/// The file cannot be read, or has no number.
pub fn read_kib(file: &Path) -> anyhow::Result<u64> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.trim().parse().with_context(|| format!("{} holds no number", file.display()))
}

/// Parses one value of `--device-readahead`: a size as elsewhere, but also 0.
///
/// # Errors
/// A sentence that says what a valid value is.
pub fn parse_readahead(text: &str) -> Result<u64, String> {
    let bytes = match text.trim() {
        "0" => 0,
        text => parse_size(text).map_err(|_| "a readahead looks like 128KiB, 8MiB or 0")?,
    };
    if bytes.is_multiple_of(1024) {
        return Ok(bytes);
    }
    Err("the kernel counts its readahead in KiB: give a multiple, such as 128KiB, or 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FakeSys;

    /// A disk at 8192 KiB, and the file that says so.
    fn disk() -> (FakeSys, Device, PathBuf) {
        let sys = FakeSys::server();
        let device = sys.device(8, 1);
        let file = sys.sysfs().readahead_file(&device).unwrap();
        fs::write(&file, "8192\n").unwrap();
        (sys, device, file)
    }

    fn kib(file: &Path) -> u64 {
        read_kib(file).unwrap()
    }

    #[test]
    fn what_was_found_is_put_back_at_the_end_and_on_an_error() {
        let (sys, device, file) = disk();
        let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
        assert_eq!(guard.set(128 << 10).unwrap(), 128 << 10);
        assert_eq!(kib(&file), 128);
        assert_eq!(guard.set(0).unwrap(), 0);
        guard.restore().unwrap();
        assert_eq!(kib(&file), 8192, "[DRA-1]");

        let failing = || -> anyhow::Result<()> {
            let guard = ReadaheadGuard::take(&sys.sysfs(), &device)?;
            guard.set(0)?;
            anyhow::bail!("a measurement failed");
        };
        assert!(failing().is_err());
        assert_eq!(kib(&file), 8192, "[DRA-1]");
    }

    #[test]
    fn a_panic_puts_it_back_too() {
        let (sys, device, file) = disk();
        let sysfs = sys.sysfs();
        let watched = file.clone();
        let panicked = std::panic::catch_unwind(move || {
            let guard = ReadaheadGuard::take(&sysfs, &device).unwrap();
            guard.set(4096).unwrap();
            assert_eq!(kib(&watched), 4);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(kib(&file), 8192, "[DRA-1]");
    }

    #[test]
    fn a_device_that_another_run_varies_is_refused_until_that_run_has_ended() {
        let (sys, device, file) = disk();
        let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
        guard.set(0).unwrap();
        let error = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap_err();
        assert!(error.is::<crate::BadInput>(), "[DRA-2]");
        assert!(error.to_string().contains(&std::process::id().to_string()), "[DRA-2] {error}");
        guard.restore().unwrap();
        ReadaheadGuard::take(&sys.sysfs(), &device).unwrap().restore().unwrap();
        assert_eq!(kib(&file), 8192);
    }

    #[test]
    fn a_value_that_another_process_has_set_meanwhile_stays_and_is_reported() {
        let (sys, device, file) = disk();
        let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
        guard.set(0).unwrap();
        fs::write(&file, "512\n").unwrap();
        let error = format!("{:#}", guard.restore().unwrap_err());
        assert!(error.contains("512 KiB now") && error.contains("it was 8192 KiB"), "{error}");
        assert_eq!(kib(&file), 512);
    }

    #[test]
    fn a_value_is_logged_before_it_is_set() {
        let (sys, device, file) = disk();
        let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
        // Not written, as if the run were killed just before.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        guard.set(136 << 10).unwrap_err();
        let entries = crate::undo_log::entries_about(&file);
        assert!(entries.contains("136"), "[DRA-1] {entries}");
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "136\n").unwrap();
        guard.restore().unwrap();
        assert_eq!(kib(&file), 8192, "[DRA-1]");
    }

    #[test]
    fn a_value_that_cannot_be_set_or_restored_is_reported() {
        let (sys, device, file) = disk();
        let guard = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap();
        // A device that was taken out.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let error = format!("{:#}", guard.restore().unwrap_err());
        assert!(
            error.contains("by hand: echo 8192 > ") && error.contains("read_ahead_kb"),
            "{error}"
        );
        crate::undo_log::forget_entries_about(&file);
        let error = ReadaheadGuard::take(&sys.sysfs(), &device).unwrap_err();
        assert!(error.is::<crate::BadInput>());
        assert!(error.to_string().starts_with("--device-readahead: "), "{error}");
    }

    #[test]
    fn values_are_sizes_in_kib_and_0() {
        for (text, bytes) in [("0", 0), ("128KiB", 128 << 10), ("8m", 8 << 20)] {
            assert_eq!(parse_readahead(text), Ok(bytes));
            assert_eq!(parse_readahead(&crate::units::typed_size(bytes)), Ok(bytes));
        }
        assert!(parse_readahead("1000").unwrap_err().contains("KiB"));
    }
}
