//! An emulated disk for an experiment: `forebay emulate` in a process of its own, on a private mount point.
//!
//! A process of its own, so that what the emulation costs is not counted as the measured program's, and so
//! that a lab that waits for a read never waits for itself.
//!
//! Worked example:
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use forebay_lab::emulate::{Emulated, EmulatedOptions};
//! let disk = Emulated::start("raid10-12", &EmulatedOptions::default())?;
//! let first = std::fs::File::open(disk.disk())?;
//! assert!(disk.log()?.is_empty());
//! # Ok(()) }
//! ```
//!
//! Invariants:  [EML-1] when an `Emulated` has been dropped, its process, its mount and its directory are gone
//! Failure:     the child unmounts when its standard input ends, so that nothing is left of it when this
//!              process is killed; when the child is killed, a guardian of its own unmounts and removes;
//!              when that is killed as well, the next start of the command does.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use forebay_emulate::log::LoggedRequest;
use forebay_emulate::serve::Told;
use forebay_emulate::{Counters, Place};

use crate::ground::ledger::{self, Change, Undo};
use crate::interrupt::Cleanup;

/// How long a mount may take on a crowded machine.
const MOUNT_MAX: Duration = Duration::from_secs(60);

/// How long the child may take to end before it is killed, and its guardian after that.
const END_MAX: Duration = Duration::from_secs(20);

/// How long a dead child's last words may take.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// Start of the names of the directories that are made for mounts.
const PREFIX: &str = "forebay-disk-";

/// Where root's directories are made.
const OF_ROOT: &str = "/run/forebay";

/// The type of the mount.
const MOUNT_TYPE: &str = "fuse.forebay";

/// What to emulate, beside the profile.
#[derive(Debug, Clone)]
pub struct EmulatedOptions {
    /// Size of the disk, if not the profile's.
    pub size_bytes: Option<u64>,
    /// Where files beside `disk` are placed.
    pub place: Place,
    /// Emulated seconds in a real one.
    pub speed_up: f64,
    /// Where the data is kept.
    pub data: EmulatedData,
    /// Seed of what is random in the model.
    pub seed: u64,
    /// The kernel's readahead for the mount, if not its default.
    pub readahead_bytes: Option<u64>,
    /// The `forebay` program; else the one that FOREBAY_EXE names, else this very program.
    pub program: Option<PathBuf>,
}

/// Where an emulated disk's bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmulatedData {
    /// In its process's memory, at most half of what is available.
    Memory,
    /// In a sparse file, which is gone afterwards unless it was there before.
    File(PathBuf),
}

impl Default for EmulatedOptions {
    fn default() -> EmulatedOptions {
        EmulatedOptions {
            size_bytes: None,
            place: Place::default(),
            speed_up: 1.0,
            data: EmulatedData::Memory,
            seed: 0,
            readahead_bytes: None,
            program: None,
        }
    }
}

/// A mounted emulated disk; unmounted when dropped.
#[derive(Debug)]
pub struct Emulated {
    mount_point: PathBuf,
    said: Mutex<Receiver<Said>>,
    #[expect(dead_code, reason = "ends the child when dropped")]
    end: Cleanup,
    #[expect(dead_code, reason = "what the child has left is undone when dropped")]
    noted: Noted,
}

/// What is in the ledger, in the order in which it is undone. The child does all of it; this is for the
/// case that it was killed together with its guardian.
#[derive(Debug)]
struct Noted {
    _mount: Undo,
    _inner: Undo,
    _outer: Undo,
}

impl Emulated {
    /// Mounts the profile `spec`: a shipped one's name, or a path of a .toml file.
    ///
    /// # Errors
    /// When it cannot be mounted: what the command said.
    pub fn start(spec: &str, options: &EmulatedOptions) -> anyhow::Result<Emulated> {
        let (around, outer) = private_directory()?;
        let mount_point = around.join("mnt");
        let inner =
            ledger::make_directory(&mount_point, false).context("cannot make a mount point")?;
        let change = Change::Mount { point: mount_point.clone(), source: MOUNT_TYPE.to_owned() };
        let (mount, ()) = Undo::doing(change, |_| Ok(()))?;
        let noted = Noted { _mount: mount, _inner: inner, _outer: outer };
        let mut command = command(spec, &mount_point, &around, options)?;
        let child = command.spawn();
        let child =
            child.with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let mut running = Running { child, around };
        let lines = running.lines();
        let end = Cleanup::new(move || running.end());
        match lines.recv_timeout(MOUNT_MAX) {
            Ok(Said::Out(line)) if line.starts_with("mounted ") => {
                Ok(Emulated { mount_point, said: Mutex::new(lines), end, noted })
            }
            Ok(Said::Out(line)) => bail!("forebay emulate says {line:?}"),
            Ok(Said::Failed(told)) if told.trim().is_empty() => {
                bail!("forebay emulate ended without a word")
            }
            Ok(Said::Failed(told)) => {
                let told = told.trim().trim_start_matches("forebay: ").to_owned();
                Err(crate::BadInput(told).into())
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(anyhow!("forebay emulate has not mounted {spec} within {MOUNT_MAX:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => bail!("forebay emulate ended without a word"),
        }
    }

    /// The mount: files made in there are on the emulated disk.
    pub fn directory(&self) -> &Path {
        &self.mount_point
    }

    /// The disk's whole address space, as one file.
    pub fn disk(&self) -> PathBuf {
        self.mount_point.join("disk")
    }

    /// The requests since the mount or the last [`Emulated::clear_log`], the newest million, in order of arrival.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> anyhow::Result<Vec<LoggedRequest>> {
        let text = self.told("log")?;
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().context("cannot understand the emulated disk's log")
    }

    /// Forgets the requests so far.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn clear_log(&self) -> anyhow::Result<()> {
        self.control("log clear")
    }

    /// Switched off, every request ends at once.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn timing(&self, on: bool) -> anyhow::Result<()> {
        self.control(if on { "timing on" } else { "timing off" })
    }

    /// So many seconds of the device's time pass at once, in which it is read at random, `bytes` at a time.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn load(&self, seconds: u32, bytes: u64) -> anyhow::Result<()> {
        self.control(&format!("load {seconds} {bytes}"))
    }

    /// What has happened since the mount.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let text = self.told("counters")?;
        serde_json::from_str(&text).context("cannot understand the emulated disk's counters")
    }

    /// What is mounted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn profile(&self) -> anyhow::Result<Told> {
        let text = self.told("profile")?;
        serde_json::from_str(&text).context("cannot understand the emulated disk's profile")
    }

    /// What it wrote to standard error, if it has ended by itself; `None` while it answers.
    pub fn last_words(&self) -> Option<String> {
        if self.counters().is_ok() {
            return None;
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + LAST_WORDS_MAX;
        loop {
            match said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Said::Out(_)) => {}
                Ok(Said::Failed(words)) if words.trim().is_empty() => break,
                Ok(Said::Failed(words)) => {
                    return Some(words.trim().lines().take(2).collect::<Vec<_>>().join(" "));
                }
                Err(_) => break,
            }
        }
        Some("without a word".to_owned())
    }

    fn told(&self, name: &str) -> anyhow::Result<String> {
        let path = self.mount_point.join(".forebay").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn control(&self, words: &str) -> anyhow::Result<()> {
        let path = self.mount_point.join(".forebay/control");
        std::fs::write(&path, words).with_context(|| format!("cannot write to {}", path.display()))
    }
}

/// A directory that only this user can enter: in there, whoever may use the mount is the kernel's affair.
fn private_directory() -> anyhow::Result<(PathBuf, Undo)> {
    let uid = rustix::process::geteuid().as_raw();
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let first = match named("TMPDIR").filter(|path| belongs_to(path, uid)) {
        // Whoever names a place wants it.
        Some(place) => Some(place),
        None => first_candidate(named("XDG_RUNTIME_DIR"), uid),
    };
    if uid == 0 {
        // Perhaps it is there already, or /run is not to be written to.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(OF_ROOT);
    }
    let first = first.filter(|path| belongs_to(path, uid));
    let mut result = None;
    for candidate in first.into_iter().chain([std::env::temp_dir()]) {
        let made = std::fs::canonicalize(&candidate).map_err(anyhow::Error::from);
        let made = made.map(|within| within.join(ledger::fresh_name(PREFIX)));
        match made.and_then(|path| Ok((ledger::make_directory(&path, false)?, path))) {
            Ok((undo, path)) => return Ok((path, undo)),
            Err(error) => result = Some(error),
        }
    }
    let error = result.unwrap_or_else(|| anyhow!("there is none"));
    Err(error.context("cannot make a directory for a mount"))
}

/// Where a directory is made before any other place is tried. Root's is the same however root came to be it: sudo
/// leaves the variables of the user, who could exchange what root makes in a directory of theirs.
fn first_candidate(of_session: Option<PathBuf>, uid: u32) -> Option<PathBuf> {
    match uid {
        0 => Some(PathBuf::from(OF_ROOT)),
        _ => of_session.filter(|path| path.is_absolute()),
    }
}

/// True for a directory, not a link to one, that belongs to `uid`, and in which nobody else can do anything.
fn belongs_to(path: &Path, uid: u32) -> bool {
    let facts = std::fs::symlink_metadata(path);
    facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == uid && facts.mode() & 0o022 == 0)
}

fn command(
    spec: &str,
    mount_point: &Path,
    around: &Path,
    options: &EmulatedOptions,
) -> anyhow::Result<Command> {
    let named =
        options.program.clone().or_else(|| std::env::var_os("FOREBAY_EXE").map(PathBuf::from));
    let program = match named {
        Some(program) => program,
        None => std::env::current_exe().context("cannot find this very program")?,
    };
    let mut command = Command::new(program);
    command.args(["emulate", "--until-stdin-ends", "--outlive-parent"]);
    command.arg("--remove").arg(around);
    command.arg("--place").arg(options.place.name());
    command.arg("--speed-up").arg(options.speed_up.to_string());
    command.arg("--seed").arg(options.seed.to_string());
    if let Some(bytes) = options.size_bytes {
        command.arg("--size").arg(bytes.to_string());
    }
    if let Some(bytes) = options.readahead_bytes {
        command.arg("--readahead").arg(bytes.to_string());
    }
    if let EmulatedData::File(path) = &options.data {
        command.arg("--data").arg(path);
    }
    command.arg("--").arg(spec).arg(mount_point);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A Ctrl-C is for the lab, which still has to read what is under way.
    command.process_group(0);
    Ok(command)
}

/// What the child says.
#[derive(Debug)]
enum Said {
    Out(String),
    /// It ended, and this is what it wrote to standard error.
    Failed(String),
}

#[derive(Debug)]
struct Running {
    child: Child,
    around: PathBuf,
}

impl Running {
    /// The child's lines; they are read to the end, so that it can always write.
    fn lines(&mut self) -> Receiver<Said> {
        let (say, said) = channel();
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        std::thread::spawn(move || {
            for line in
                out.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok))
            {
                let _ = say.send(Said::Out(line));
            }
            let mut told = String::new();
            let _ = err.map(|mut err| err.read_to_string(&mut told));
            let _ = say.send(Said::Failed(told));
        });
        said
    }

    /// Has the child unmount and waits for it; a child that does not end is killed, and its guardian unmounts.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let asked = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && asked.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its guardian may still be at it, or it never came to mount.
        while self.around.exists() && asked.elapsed() < 2 * END_MAX {
            let _ = std::fs::remove_dir(self.around.join("mnt"));
            let _ = std::fs::remove_dir(&self.around);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_makes_no_mount_point_in_a_directory_of_somebody_else() {
        let of_user = || Some(PathBuf::from("/run/user/1000"));
        assert_eq!(first_candidate(of_user(), 0), Some(PathBuf::from("/run/forebay")));
        assert_eq!(first_candidate(of_user(), 1000), of_user());
        assert_eq!(first_candidate(Some("here".into()), 1000), None);

        let directory = tempfile::tempdir().unwrap();
        let uid = std::fs::metadata(directory.path()).unwrap().uid();
        assert!(belongs_to(directory.path(), uid));
        assert!(!belongs_to(directory.path(), uid + 1));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert!(!belongs_to(&link, uid), "it can be made to point elsewhere");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).unwrap();
        assert!(!belongs_to(directory.path(), uid), "anybody can exchange what is in there");
    }
}
