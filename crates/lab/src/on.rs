//! An emulated disk as the place to measure: `--emulate PROFILE`, perhaps with a filesystem over it.
//!
//! The emulation runs in a separate process and is mounted in a private directory; with `--fs` its file
//! `disk` is attached to a block device, formatted and mounted. Experiments receive the directory and need
//! not know the difference. Emulated time is switched off while working files are written and while everything
//! is unmounted; only measurements take the time of the device.
//!
//! Worked example: `forebay lab depth --emulate 7200rpm --fs ext4` mounts `/run/forebay/forebay-disk-a`, makes ext4
//! on `/dev/loop0` over its `disk`, and measures in `/run/forebay/forebay-mount-b`.
//!
//! Invariants:  [OND-1] the time is the device's when something is measured
//! Failure:     what this machine or user lacks is bad input, before anything is measured.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use forebay_emulate::profile::Profile;

use crate::emulate::{Emulated, EmulatedOptions, parse_speed_up};
use forebay_measure::bad_input;
use forebay_measure::facts;
use forebay_measure::filesystem::{Filesystem, Mounted};
use forebay_measure::interrupt::Cleanup;
use forebay_measure::undo_log::{self, Undo};
use forebay_measure::units::{parse_size, shown_size};
use forebay_measure::workfile;

/// Options to measure something else than the disk under `--dir`. They are accepted after the name of an
/// experiment as well as before it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Emulated disks")]
pub struct OnArgs {
    /// Measure on an emulated disk: a profile's name (see forebay emulate --list), or the path of a
    /// .toml file. --dir then says where its data goes if that does not fit into half of the memory
    #[arg(long, value_name = "PROFILE", global = true)]
    pub emulate: Option<String>,
    /// Make a filesystem on the emulated disk and measure on that; needs root
    #[arg(long, value_name = "FILESYSTEM", global = true)]
    pub fs: Option<Filesystem>,
    /// Size of the emulated disk, at most the profile's [default: the profile's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, global = true)]
    pub emulated_size: Option<u64>,
    /// Let the emulated disk's time run this many times as fast; times and rates are real ones
    #[arg(long, value_name = "N", value_parser = parse_speed_up, global = true)]
    pub speed_up: Option<f64>,
}

/// Prefix of the names of directories for data.
const PREFIX: &str = ".forebay-lab-";

/// Bytes that a filesystem writes in addition to the files: tables and a log.
const FILESYSTEM_BYTES: u64 = 256 << 20;

/// Experiments on an emulated disk.
#[derive(Debug)]
pub struct OnDisk {
    // In the order in which they are undone.
    hurry: Cleanup,
    mounted: Option<Mounted>,
    emulated: Emulated,
    data: Option<Undo>,
    bursts: bool,
}

impl OnDisk {
    /// Starts what `args` say, for experiments that write `needed_bytes` in all; `None` when they measure a
    /// real disk, and then `needed_bytes` is not called. `dir`: where the data goes if it does not fit into the memory.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): there is no such profile, or this machine or user lacks what it
    /// takes. Otherwise what went wrong.
    pub fn start(
        args: &OnArgs,
        dir: &Path,
        needed_bytes: impl FnOnce() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Option<OnDisk>> {
        let Some(spec) = &args.emulate else {
            if args.fs.is_some() || args.emulated_size.is_some() || args.speed_up.is_some() {
                bad_input!(
                    "--fs, --emulated-size and --speed-up are for emulated disks: name one with --emulate (see \
                     forebay emulate --list)"
                );
            }
            return Ok(None);
        };
        let profile =
            Profile::load(spec).map_err(|error| forebay_measure::BadInput(error.to_string()))?;
        let size_bytes = args.emulated_size.unwrap_or(profile.size_bytes);
        let written_bytes = written_bytes(needed_bytes()?, args.fs);
        if size_bytes < written_bytes {
            bad_input!(
                "--emulate {spec}: a disk of {} is too small, {} are needed; choose a smaller --size or a \
                 larger --emulated-size",
                shown_size(size_bytes),
                shown_size(written_bytes)
            );
        }
        let fits = facts::available_bytes().is_none_or(|available| written_bytes <= available / 2);
        let (data, kept) = if fits { None } else { Some(keep(dir, written_bytes)?) }.unzip();
        let options = EmulatedOptions {
            size_bytes: args.emulated_size,
            speed_up: args.speed_up,
            data: kept.as_ref().map(|kept| kept.join("disk")),
            ..EmulatedOptions::default()
        };
        let emulated = Emulated::start(spec, &options)?;
        emulated.control("timing off")?;
        let mounted =
            args.fs.map(|filesystem| Mounted::over(&emulated.disk(), filesystem)).transpose()?;
        let control = emulated.directory().join(".forebay/control");
        // Undone first: otherwise unmounting would take the time of a slow disk.
        let hurry = Cleanup::new(move || drop(std::fs::write(control, "timing off")));
        emulated.control("timing on")?;
        let bursts = profile.bursts();
        Ok(Some(OnDisk { hurry, mounted, emulated, data, bursts }))
    }

    /// The directory in which to measure.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.mounted.as_ref().map_or_else(|| self.emulated.directory(), Mounted::directory)
    }

    /// Spends the credits of a disk that is faster while they last: this many seconds of the device's time
    /// pass immediately, during which it is read at random, `bytes` at a time. False if it has no credits.
    ///
    /// # Errors
    /// The emulation has ended.
    pub fn spend_credits(&self, seconds: u32, bytes: u64) -> anyhow::Result<bool> {
        if self.bursts {
            self.emulated.control(&format!("load {seconds} {bytes}"))?;
        }
        Ok(self.bursts)
    }

    /// `error`, with its real cause added: a disk whose emulation has died fails every request, which is
    /// no sign of a bad device.
    pub fn with_cause(&self, error: anyhow::Error) -> anyhow::Error {
        match self.emulated.last_words() {
            Some(words) => {
                error.context(format!("the emulation has died ({words}), and so has its disk"))
            }
            None => error,
        }
    }

    /// Unmounts everything.
    ///
    /// # Errors
    /// The first thing that could not be undone.
    pub fn remove(self) -> anyhow::Result<()> {
        let OnDisk { hurry, mounted, emulated, data, .. } = self;
        drop(hurry);
        let unmounted = mounted.map_or(Ok(()), Mounted::remove);
        drop(emulated);
        let data = data.map_or(Ok(()), Undo::undo);
        unmounted.and(data)
    }
}

/// Runs `work` with the emulated time of `disk` switched off, if there is one.
///
/// # Errors
/// Those of `work`, or the emulation has ended.
pub fn without_timing<T>(
    disk: Option<&OnDisk>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(disk) = disk else { return work() };
    disk.emulated.control("timing off")?;
    let done = work()?;
    // Pending writes are no part of a measurement either.
    let directory = std::fs::File::open(disk.directory())?;
    facts::sync_filesystem(&directory).context("cannot sync the emulated disk")?;
    // [OND-1]
    disk.emulated.control("timing on")?;
    Ok(done)
}

/// Total bytes written to the disk for files of `needed_bytes`.
fn written_bytes(needed_bytes: u64, filesystem: Option<Filesystem>) -> u64 {
    // Btrfs never writes in place.
    let times = if filesystem == Some(Filesystem::Btrfs) { 3 } else { 1 };
    let tables = if filesystem.is_some() { FILESYSTEM_BYTES } else { 0 };
    needed_bytes.saturating_mul(times).saturating_add(needed_bytes / 4 + tables)
}

/// Makes a directory in `dir` for data of `written_bytes`, and returns it with the guard that removes it.
fn keep(dir: &Path, written_bytes: u64) -> anyhow::Result<(Undo, PathBuf)> {
    workfile::check_directory(dir, written_bytes)?;
    let own = std::fs::canonicalize(dir)?.join(undo_log::fresh_name(PREFIX));
    let undo = undo_log::make_directory(&own, true);
    Ok((undo.map_err(|error| workfile::cannot_create(dir, &error))?, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_does_not_fit_into_memory_has_a_directory_which_goes_with_it() {
        let scratch = tempfile::tempdir().unwrap();
        let (undo, own) = keep(scratch.path(), 1 << 20).unwrap();
        assert_eq!(own.parent(), Some(std::fs::canonicalize(scratch.path()).unwrap().as_path()));
        std::fs::write(own.join("disk"), "data").unwrap();
        undo.undo().unwrap();
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        let refused = keep(scratch.path(), 1 << 60).unwrap_err();
        assert!(refused.is::<forebay_measure::BadInput>(), "{refused}");
    }

    #[test]
    fn an_option_of_emulated_disks_without_an_emulated_disk_is_reported() {
        let start = |args: &OnArgs| OnDisk::start(args, Path::new("."), || Ok(1));
        assert!(start(&OnArgs::default()).unwrap().is_none());
        let args = OnArgs { fs: Some(Filesystem::Ext4), ..OnArgs::default() };
        let error = start(&args).unwrap_err();
        assert!(error.is::<forebay_measure::BadInput>());
        assert!(
            error.to_string().contains("--fs, --emulated-size and --speed-up are for"),
            "{error}"
        );
        let args = OnArgs { emulate: Some("no-such-disk".to_owned()), ..OnArgs::default() };
        assert!(start(&args).unwrap_err().is::<forebay_measure::BadInput>());
        let args = OnArgs {
            emulate: Some("instant".to_owned()),
            emulated_size: Some(1 << 10),
            ..OnArgs::default()
        };
        let error = OnDisk::start(&args, Path::new("."), || Ok(1 << 20)).unwrap_err();
        assert!(error.to_string().contains("too small"), "{error}");
    }
}
