//! A site: a new file on an emulated disk of its own, and what that disk was asked for.
//!
//! Each strategy gets a disk of its own, because disks remember: the place of a head, a track in a
//! buffer, the credit of a volume. The file has its place on the disk and was never written, so
//! nothing of it can be in the page cache. What was asked for is what the disk's own log says, and
//! nothing else; a pool's lock file is another file there and left out, and the log begins when the
//! reader is ready. The order of issue is that of the kernel's numbers: two requests that are issued
//! at once may be taken in by two threads of the disk and arrive the other way round.
//!
//! The log is read when nothing is under way any more. The kernel keeps a page locked while it is
//! being read, and to punch a hole into a file waits for the locks of all its pages there: so the whole
//! file is made a hole first. Rejected: to wait for the log to stand still, which on a busy machine it does
//! anyway; to cut the file off at 0, since a read that the disk takes in after that is beyond the file's
//! end and never logged.
//!
//! Invariants:  [EXP-7] the requests of a strategy cover all blocks of the pattern
//! Failure:     the disk is unmounted when the site is dropped, whatever happened.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::read::{Reader, Reading};
use super::request::Account;
use super::settings::Settings;
use super::{Disk, Request, Strategy, Told};
use crate::bad_input;
use crate::emulate::{Emulated, EmulatedOptions};
use crate::units::shown_size;

/// The directory on the disk that a pool takes for its own.
const DIRECTORY: &str = "explain";

/// The file in it.
const FILE: &str = "blocks";

/// A disk and a file on it.
#[derive(Debug)]
pub(super) struct Site {
    file: fs::File,
    directory: PathBuf,
    emulated: Emulated,
}

impl Site {
    /// Mounts a disk and makes the file.
    ///
    /// # Errors
    /// What there is not here (FUSE), or a file that does not fit on the disk.
    pub(super) fn open(settings: &Settings) -> anyhow::Result<Site> {
        let options = EmulatedOptions {
            speed_up: Some(settings.speed_up),
            seed: settings.seed,
            readahead_bytes: settings.readahead_bytes,
            ..EmulatedOptions::default()
        };
        let emulated = Emulated::start(&settings.profile, &options)?;
        let directory = emulated.directory().join(DIRECTORY);
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(FILE);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        if let Err(error) = place(&file, settings.file_bytes()) {
            let (size, profile) = (shown_size(settings.file_bytes()), &settings.profile);
            bad_input!(
                "a file of {size} does not fit on the disk {profile} ({error}); choose lower blocks, \
                 or another --profile"
            );
        }
        Ok(Site { file, directory, emulated })
    }

    /// The disk, and the kernel over it.
    pub(super) fn disk(&self, settings: &Settings) -> anyhow::Result<Disk> {
        let profile = self.emulated.profile()?;
        let system = rustix::system::uname();
        let name = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Ok(Disk {
            profile: profile.name,
            about: profile.about,
            speed_up: settings.speed_up,
            readahead_bytes: readahead_bytes(self.emulated.directory()),
            kernel: format!("{} {}", name(system.sysname()), name(system.release())),
        })
    }

    /// Has `strategy` read the pattern. `progress` is told the blocks read, now and then.
    ///
    /// # Errors
    /// [`Interrupted`](crate::interrupt::Interrupted), or what went wrong.
    pub(super) fn explain(
        self,
        strategy: Strategy,
        settings: &Settings,
        progress: impl FnMut(usize),
    ) -> anyhow::Result<Told> {
        let reader = Reader::open(strategy, &self.directory, FILE, settings)?;
        self.emulated.clear_log()?;
        let (blocks, block_bytes) = (&settings.pattern.blocks, settings.block_bytes);
        let reading = reader.read(blocks, block_bytes, progress)?;
        drop(reader);
        wait_for_reads(&self.file, settings.file_bytes())
            .context("cannot punch a hole into the file on the emulated disk")?;
        let log = self.emulated.directory().join(".forebay/log");
        let log = fs::read_to_string(log).context("cannot read the emulated disk's log")?;
        if let Some(directory) = &settings.logs {
            keep_log(directory, strategy, &log)?;
        }
        let requests = requests(&log).context("cannot understand the emulated disk's log")?;
        check(&requests, &settings.pattern.distinct(), block_bytes)
            .with_context(|| format!("what {strategy} read cannot be explained"))?;
        let Reading { elapsed, cached, remarks } = reading;
        let seconds = Duration::as_secs_f64(&elapsed) * settings.speed_up;
        Ok(Told { strategy, requests, seconds, cached, remarks })
    }
}

/// Gives all of a file its place on the disk, and no contents: without a place it would be a hole,
/// which costs no time.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn place(file: &fs::File, bytes: u64) -> std::io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

/// Makes all of a file a hole, which ends when no page of it is being read any more.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn wait_for_reads(file: &fs::File, bytes: u64) -> std::io::Result<()> {
    use rustix::fs::FallocateFlags;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, hole, 0, bytes)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn place(file: &fs::File, bytes: u64) -> std::io::Result<()> {
    file.set_len(bytes)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn wait_for_reads(_file: &fs::File, _bytes: u64) -> std::io::Result<()> {
    Ok(())
}

/// What is needed of a line of the log.
#[derive(Debug, Deserialize)]
struct Line {
    /// The kernel's number, ascending in order of issue.
    #[serde(default)]
    number: u64,
    op: String,
    file: String,
    offset: u64,
    len: u64,
}

/// The reads of the file, in order of issue.
fn requests(log: &str) -> serde_json::Result<Vec<Request>> {
    let lines: serde_json::Result<Vec<Line>> = log.lines().map(serde_json::from_str).collect();
    let mut lines = lines?;
    lines.retain(|line| line.op == "read" && Path::new(&line.file).ends_with(FILE));
    // Stable: without numbers the order of arrival has to do.
    lines.sort_by_key(|line| line.number);
    Ok(lines.iter().map(|line| Request { offset: line.offset, len: line.len }).collect())
}

/// Whether every block of `wanted` came from the disk [EXP-7].
fn check(requests: &[Request], wanted: &[u32], block_bytes: u64) -> anyhow::Result<()> {
    let read = Account::of(requests, wanted, block_bytes).wanted_bytes;
    ensure!(
        read == wanted.len() as u64 * block_bytes,
        "the disk was asked for {} of {} blocks: its log is not whole, or the file was not cold",
        read / block_bytes,
        wanted.len()
    );
    Ok(())
}

/// The log as the disk gives it, line for line.
fn keep_log(directory: &Path, strategy: Strategy, log: &str) -> anyhow::Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let path = directory.join(format!("{strategy}.jsonl"));
    fs::write(&path, log).with_context(|| format!("cannot write {}", path.display()))
}

/// The kernel's setting for what is mounted there.
#[cfg(target_os = "linux")]
fn readahead_bytes(mounted: &Path) -> Option<u64> {
    let device = rustix::fs::stat(mounted).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok()?;
    text.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(not(target_os = "linux"))]
fn readahead_bytes(_mounted: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reads_of_the_file_are_taken_from_a_log_in_order_of_issue() {
        let log = r#"{"us":9.5,"number":46,"op":"read","file":"explain/blocks","offset":8192,"len":4096,"device_offset":8192,"service_us":null,"replied_us":null}
{"us":9.8,"number":50,"op":"write","file":"explain/blocks","offset":0,"len":4096}
{"us":9.9,"number":54,"op":"read","file":"explain/blocks","offset":16384,"len":8192}
{"us":10.5,"number":48,"op":"read","file":"explain/blocks","offset":0,"len":512}
{"us":11.0,"number":56,"op":"read","file":"explain/forebay.lock","offset":0,"len":512}
"#;
        let reads: Vec<(u64, u64)> =
            requests(log).unwrap().iter().map(|read| (read.offset, read.len)).collect();
        assert_eq!(reads, [(8192, 4096), (0, 512), (16_384, 8192)]);
        assert!(requests("{").is_err());
    }

    #[test]
    fn requests_that_leave_out_a_block_of_the_pattern_are_no_explanation() {
        let request =
            |first: u64, blocks: u64| Request { offset: first * 8192, len: blocks * 8192 };
        let whole = [request(1, 1), request(3, 4), request(9, 1), request(2, 1)];
        check(&whole, &[1, 2, 3, 4, 6, 9], 8192).expect("[EXP-7]");
        let told = check(&whole[..3], &[1, 2, 3, 4, 6, 9], 8192).expect_err("[EXP-7]").to_string();
        assert!(told.contains("5 of 6 blocks"), "{told}");
    }
}
