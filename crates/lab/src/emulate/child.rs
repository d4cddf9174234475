//! An emulated disk for an experiment: `forebay emulate` in a separate process, on a private mount point.
//!
//! The process is separate so that the cost of the emulation is not counted as the measured program's, and so
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
//! Invariants:  [EML-1] when an `Emulated` has been dropped, its process, its mount and its directory no longer exist
//! Failure:     the child unmounts when its standard input ends, so that nothing is left of it when this
//!              process is killed; when the child is killed, its guardian process unmounts and removes the directory;
//!              when the guardian is killed as well, the next start of the command does.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_emulate::Counters;
use forebay_emulate::log::LoggedRequest;
use forebay_emulate::serve::MountInfo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use forebay_measure::bad_input;
use forebay_measure::interrupt::Cleanup;
use forebay_measure::undo_log::{self, Change, Undo};

/// How many seconds a mount may take on a busy machine.
const MOUNT_SECONDS_MAX: i64 = 60;

/// How long the child may take to end before it is killed.
const END_MAX: Duration = Duration::from_secs(20);

/// Start of the names of the directories that are made for mounts.
const PREFIX: &str = "forebay-disk-";

/// The type of the mount.
const MOUNT_TYPE: &str = "fuse.forebay";

/// What to emulate, in addition to the profile.
#[derive(Debug, Clone, Default)]
pub struct EmulatedOptions {
    /// Size of the disk, if not the profile's.
    pub size_bytes: Option<u64>,
    /// Emulated seconds per real second, if not one.
    pub speed_up: Option<f64>,
    /// The file in which the data is kept, if not memory: sparse, and removed afterwards unless it existed
    /// before.
    pub data: Option<PathBuf>,
    /// Seed of the model's random numbers.
    pub seed: u64,
    /// The kernel's readahead for the mount, if not its default.
    pub readahead_bytes: Option<u64>,
    /// The `forebay` program, if not this one.
    pub program: Option<PathBuf>,
}

/// A mounted emulated disk; unmounted when dropped.
#[derive(Debug)]
pub struct Emulated {
    mount_point: PathBuf,
    /// What the child writes to standard error.
    errors: File,
    _out: BufReader<ChildStdout>,
    // In the order in which they are undone: the child's end undoes all of it, unless it was killed
    // together with its guardian.
    _end: Cleanup,
    _mount: Undo,
    _point: Undo,
}

impl Emulated {
    /// Mounts the profile `spec`: a shipped one's name, or a path of a .toml file.
    ///
    /// # Errors
    /// It cannot be mounted: the command's message.
    pub fn start(spec: &str, options: &EmulatedOptions) -> anyhow::Result<Emulated> {
        let (mount_point, point) = undo_log::make_mount_point(PREFIX)?;
        let change = Change::Mount { point: mount_point.clone(), source: MOUNT_TYPE.to_owned() };
        let (mount, ()) = Undo::doing(change, || Ok(()))?;
        let errors = tempfile::tempfile().context("cannot make a temporary file")?;
        let mut command = command(spec, &mount_point, options)?;
        let child = command.stderr(errors.try_clone()?).spawn();
        let mut child =
            child.with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let out = child.stdout.take().context("the child has no standard output")?;
        let end = Cleanup::new(move || ended(child));
        let limit = Timespec { tv_sec: MOUNT_SECONDS_MAX, tv_nsec: 0 };
        let mut watched = [PollFd::new(&out, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut watched, Some(&limit)))? == 0 {
            bail!("forebay emulate has not mounted {spec} within {MOUNT_SECONDS_MAX} seconds");
        }
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line)?;
        if !line.starts_with("mounted ") {
            out.read_to_string(&mut line)?; // to its end
            bad_input!("{}", words_in(&errors));
        }
        Ok(Emulated { mount_point, errors, _out: out, _end: end, _mount: mount, _point: point })
    }

    /// The mount: files made in it are on the emulated disk.
    pub fn directory(&self) -> &Path {
        &self.mount_point
    }

    /// The disk's whole address space, as one file.
    pub fn disk(&self) -> PathBuf {
        self.mount_point.join("disk")
    }

    /// The requests since the mount or the last `log clear`, the newest million, in order of arrival.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log(&self) -> anyhow::Result<Vec<LoggedRequest>> {
        let text = self.read_file("log")?;
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().context("cannot understand the emulated disk's log")
    }

    /// The counters since the mount.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let text = self.read_file("counters")?;
        serde_json::from_str(&text).context("cannot understand the emulated disk's counters")
    }

    /// The profile of the mounted disk.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn profile(&self) -> anyhow::Result<MountInfo> {
        let text = self.read_file("profile")?;
        serde_json::from_str(&text).context("cannot understand the emulated disk's profile")
    }

    /// What it wrote to standard error, if it has ended on its own; `None` while it answers.
    pub fn last_words(&self) -> Option<String> {
        self.counters().err().map(|_| words_in(&self.errors))
    }

    /// A file of the emulated disk about itself, as it is.
    pub(crate) fn read_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.mount_point.join(".forebay").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Sends a command, in the words that `forebay emulate --help` lists.
    ///
    /// # Errors
    /// The command cannot be sent.
    pub fn control(&self, words: &str) -> anyhow::Result<()> {
        let path = self.mount_point.join(".forebay/control");
        std::fs::write(&path, words).with_context(|| format!("cannot write to {}", path.display()))
    }
}

fn command(spec: &str, mount_point: &Path, options: &EmulatedOptions) -> anyhow::Result<Command> {
    let program = options.program.clone().map_or_else(std::env::current_exe, Ok);
    let program = program.context("cannot find this very program")?;
    let mut command = Command::new(program);
    command.args(["emulate", "--until-stdin-ends", "--outlive-parent"]);
    let numbers = [
        ("--seed", Some(options.seed.to_string())),
        ("--speed-up", options.speed_up.map(|factor| factor.to_string())),
        ("--size", options.size_bytes.map(|bytes| bytes.to_string())),
        ("--readahead", options.readahead_bytes.map(|bytes| bytes.to_string())),
    ];
    for (option, number) in numbers {
        command.args(number.map(|number| [option.to_owned(), number]).into_iter().flatten());
    }
    if let Some(path) = &options.data {
        command.arg("--data").arg(path);
    }
    command.arg("--").arg(spec).arg(mount_point);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A Ctrl-C is for the lab, which still has to read the requests in flight.
    command.process_group(0);
    Ok(command)
}

/// The beginning of a child's standard error.
fn words_in(errors: &File) -> String {
    // Read without moving the offset at which the child writes.
    let mut bytes = [0; 4096];
    let len = errors.read_at(&mut bytes, 0).unwrap_or(0);
    let words = String::from_utf8_lossy(&bytes[..len]);
    let words: Vec<&str> = words.trim().trim_start_matches("forebay: ").lines().take(2).collect();
    if words.is_empty() {
        "forebay emulate ended without a word".to_owned()
    } else {
        words.join(" ")
    }
}

/// Makes the child unmount and waits for it; one that does not end is killed, and its guardian unmounts.
fn ended(mut child: Child) {
    drop(child.stdin.take());
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
}
