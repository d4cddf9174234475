//! `forebay watch`: what a process tree reads and writes, and which of its waits could have been avoided.
//!
//! Data flow: `target` finds or starts the process tree, `tracer` enables its kernel events, `ring` parses them,
//! `names` resolves files, `calls` turns events into accesses, and `observer` combines these. `stats` keeps the
//! counts, and `pattern` determines which reads could have been known. `summary` is the result, printed once or, on a
//! terminal, redrawn by `live`. `record` writes accesses to a file, `replay` feeds them back from it, and `predict`
//! repeats the reads with other strategies of reading ahead. `calls`, `stats` and `pattern` do not access the
//! system: the same events give the same statistics.
//!
//! Rejected: eBPF. It would count in the kernel and so cost less, but needs clang to build, and the kernel's type
//! information to run; the events in a ring need neither.
#![forbid(unsafe_code)]

mod access;
mod args;
mod calls;
mod event;
mod file_table;
mod live;
mod names;
mod observer;
mod pattern;
mod predict;
mod record;
mod relations;
mod replay;
mod ring;
mod stats;
mod summary;
mod target;
mod tracer;

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;

pub use args::WatchArgs;
use file_table::{FileName, FileTable};
use forebay_measure::bad_input;
use forebay_measure::interrupt;
use forebay_measure::output::{self, note};
use forebay_measure::start;
use live::Live;
use observer::Observer;
use record::Recorder;
use relations::Relations;
use replay::Player;
use stats::Stats;
use summary::{Summary, Totals};
use target::Target;
use tracer::Tracer;

/// Interval at which events are read: the buffers last for at least twice as long, at 50,000 requests a second.
const ROUND: Duration = Duration::from_millis(25);

/// Interval between updates, in nanoseconds of watched time.
const SHOWN_NS: u64 = 1_000_000_000;

/// Maximum updates per second of a live replay.
const SHOWN_MAX: f64 = 10.0;

/// Runs the command. `version`: the version of forebay, for `--json`.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), or a system error.
pub fn run(args: &WatchArgs, version: &'static str) -> anyhow::Result<()> {
    start::start()?;
    if let Some(path) = &args.json {
        output::check_file(path)?;
        if let Some(record) =
            args.record.iter().chain(&args.replay).find(|it| output::is_same(it, path))
        {
            bad_input!("--json would overwrite the record {}; name another file", record.display());
        }
    }
    match &args.replay {
        Some(path) => replayed(args, version, path),
        None => observed(args, version),
    }
}

/// Watches the running system.
fn observed(args: &WatchArgs, version: &'static str) -> anyhow::Result<()> {
    if let Some(path) = &args.record {
        record::check(path)?;
    }
    if args.record_limit < record::LIMIT_MIN {
        bad_input!("--record-limit: a record has room for 1MiB at least");
    }
    // Before tracing starts, which would include the server's reads for this query.
    let relations = args.dsn.as_deref().map_or(Ok(Relations::default()), Relations::ask)?;
    let is_live = std::io::stdout().is_terminal();
    let page_bytes = rustix::param::page_size() as u64;
    // An unnamed file disappears however the process ends.
    let nameless =
        (args.predict && args.record.is_none()).then(|| record::nameless(args.record_limit));
    let nameless = nameless.transpose()?;
    let nameless = nameless.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = args.record.clone().or(nameless.map(PathBuf::from));
    let tracer = Tracer::start()?;
    let mut target = Target::begin(args, &tracer, is_live)?;
    // Only now: if there is nothing to watch, an existing record must not be truncated.
    let recorder = |path: &PathBuf| Recorder::create(path, args.record_limit, page_bytes);
    let recorder = match path.as_ref().map(recorder).transpose() {
        Ok(recorder) => recorder,
        Err(error) => {
            target.end()?;
            return Err(error);
        }
    };
    let mut observer = Observer::new(tracer, relations, page_bytes);
    observer.tree.starter = target.starter();
    name_arguments(args, &mut observer);
    let mut view = View::new(version, page_bytes, SHOWN_NS);
    view.file_table.subject = match args {
        WatchArgs { pid: Some(pid), .. } => format!("process {pid}"),
        WatchArgs { service: Some(name), .. } => format!("service {name}"),
        // Without arguments: they may contain a password.
        WatchArgs { command, .. } => {
            command.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned())
        }
    };
    let mut watch = Watch { args, observer, recorder, view };
    let result = watch.until_the_end(&mut target, is_live);
    watch.view.live = None;
    let has_ended = !interrupt::is_requested() && target.has_ended()?;
    let (status, printed) = target.end()?;
    watch.round(true)?;
    result?;
    // Again now, for files that the command has created.
    name_arguments(args, &mut watch.observer);
    let now_ns = watch.observer.elapsed_ns();
    watch.fill();
    watch.view.file_table.files.values_mut().for_each(FileName::look_again);
    let Watch { observer, recorder, view, .. } = watch;
    let recorded = recorder.map(|recorder| recorder.end(now_ns, &view.file_table));
    observer.tracer.stop()?;
    let _ = std::io::stderr().write_all(&printed);
    let recorded = recorded.transpose();
    if let (Ok(Some(recorded)), Some(_)) = (&recorded, &args.record) {
        note(recorded);
    }
    view.end(now_ns, args, path.as_deref().filter(|_| recorded.is_ok()))?;
    recorded?;
    // If the watch ended first, it has ended the command, and the status is no failure of the command.
    match status.filter(|status| has_ended && !status.success()) {
        Some(status) => Err(CommandFailed(status).into()),
        None => Ok(()),
    }
}

/// Records the names of files among the command's arguments, and of their directories, as it may exit before its
/// descriptors can be looked up.
fn name_arguments(args: &WatchArgs, observer: &mut Observer) {
    for path in args.command.iter().filter_map(|word| std::fs::canonicalize(word).ok()) {
        for path in path.ancestors().take(2) {
            observer.tree.names.look(path);
        }
    }
}

/// The watched command has failed.
#[derive(Debug, thiserror::Error)]
#[error("the command ended with {0}")]
pub struct CommandFailed(ExitStatus);

impl CommandFailed {
    /// The command's exit code, or 128 plus the number of the signal that ended it, as shells have it.
    pub fn code(&self) -> u8 {
        let code = self.0.code().or_else(|| self.0.signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}

/// Replays the record at `path`.
fn replayed(args: &WatchArgs, version: &'static str, path: &Path) -> anyhow::Result<()> {
    let mut player = Player::open(path)?;
    let is_terminal = std::io::stdout().is_terminal();
    let speed = args.speed.unwrap_or(if is_terminal { Speed(Some(1.0)) } else { Speed(None) }).0;
    let is_live = is_terminal && speed.is_some();
    let steps = if is_live { (speed.unwrap_or(1.0) / SHOWN_MAX).ceil().max(1.0) } else { 1.0 };
    let mut view =
        View::new(version, player.record.page_bytes, SHOWN_NS.saturating_mul(steps as u64));
    view.file_table = player.record.file_table.clone();
    view.file_table.remarks.extend(player.record.remark.clone());
    let until_ns = player.record.until_ns;
    let begun = Instant::now();
    if is_live {
        view.begin_live()?;
    }
    while view.shown_ns < until_ns && !interrupt::is_requested() && !view.should_end() {
        let next_ns = player.shown_next(view.shown_ns, view.step_ns, !is_live)?;
        let due = speed.map(|speed| Duration::from_secs_f64(next_ns as f64 / 1e9 / speed));
        if let Some(wait) =
            due.map(|due| due.saturating_sub(begun.elapsed())).filter(|wait| !wait.is_zero())
        {
            std::thread::sleep(wait.min(ROUND));
            continue;
        }
        player.advance_to(next_ns, &mut view.stats, &mut view.file_table)?;
        view.show(next_ns)?;
    }
    view.live = None;
    let shown_ns = view.shown_ns;
    view.end(shown_ns, args, Some(path))
}

/// Replay speed, as a multiple of real time; `None`: as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed(pub Option<f64>);

/// A running watch.
struct Watch<'a> {
    args: &'a WatchArgs,
    observer: Observer,
    recorder: Option<Recorder>,
    view: View,
}

impl Watch<'_> {
    /// Watches until `target` has exited, the time is up, or the user ends it.
    fn until_the_end(&mut self, target: &mut Target, is_live: bool) -> anyhow::Result<()> {
        if is_live {
            self.view.begin_live()?;
        }
        // So that a watch that is killed early leaves a readable record, too.
        self.flush(0);
        loop {
            let now_ns = self.observer.elapsed_ns();
            let is_over = self.args.seconds.is_some_and(|seconds| now_ns / SHOWN_NS >= seconds);
            let is_last = is_over || target.has_ended()? || interrupt::is_requested();
            self.round(false)?;
            if is_last || self.view.should_end() {
                return Ok(());
            }
            if now_ns >= self.view.shown_ns + SHOWN_NS {
                self.fill();
                self.flush(now_ns);
                self.view.show(now_ns)?;
            }
            std::thread::sleep(ROUND);
        }
    }

    /// Processes the events since the last round.
    fn round(&mut self, is_last: bool) -> anyhow::Result<()> {
        let Watch { observer, recorder, view, .. } = self;
        observer.take(is_last, |(at_ns, access)| {
            view.stats.access(&access);
            if let Some(recorder) = recorder {
                recorder.add(at_ns, access);
            }
        })
    }

    /// Writes the accesses up to `now_ns` to the record.
    fn flush(&mut self, now_ns: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush(now_ns, &self.view.file_table);
        }
    }

    /// Updates the names of files and devices.
    fn fill(&mut self) {
        let View { stats, file_table, .. } = &mut self.view;
        self.observer.fill(file_table, stats.devices.keys().copied());
    }
}

/// The output of a watch or a replay.
struct View {
    version: &'static str,
    stats: Stats,
    file_table: FileTable,
    page_bytes: u64,
    live: Option<Live>,
    /// Time between two updates.
    step_ns: u64,
    shown_ns: u64,
    before: Totals,
    /// The reader of the printed lines has exited.
    is_unread: bool,
}

impl View {
    fn new(version: &'static str, page_bytes: u64, step_ns: u64) -> View {
        let (stats, file_table, before) = Default::default();
        View {
            version,
            stats,
            file_table,
            page_bytes,
            live: None,
            step_ns,
            shown_ns: 0,
            before,
            is_unread: false,
        }
    }

    /// Takes over the terminal.
    fn begin_live(&mut self) -> anyhow::Result<()> {
        self.live = Some(Live::begin()?);
        self.show(0)
    }

    /// Whether the user has ended the live view, or the reader of the printed lines has exited.
    fn should_end(&self) -> bool {
        self.is_unread || self.live.as_ref().is_some_and(|live| live.should_end().unwrap_or(true))
    }

    fn summary(&self, now_ns: u64) -> Summary {
        let seconds = now_ns as f64 / 1e9;
        let mut summary = Summary::of(&self.stats, &self.file_table, self.page_bytes, seconds);
        summary.forebay = self.version;
        summary
    }

    /// Shows the totals, and the change since the last update.
    fn show(&mut self, now_ns: u64) -> anyhow::Result<()> {
        let summary = self.summary(now_ns);
        let totals = summary.totals();
        let line = totals.since(std::mem::replace(&mut self.before, totals));
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.shown_ns, now_ns));
        match &mut self.live {
            Some(live) => {
                live.draw(&summary, &format!("last {:.1} s: {line}", passed_ns as f64 / 1e9))
            }
            None => {
                let mut stdout = std::io::stdout().lock();
                let printed = writeln!(stdout, "{:>5.0} s  {line}", summary.seconds);
                match printed.and_then(|()| stdout.flush()) {
                    // The reader has exited, such as `head`.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_unread = true,
                    printed => printed.context("cannot print")?,
                }
                Ok(())
            }
        }
    }

    /// Prints the result, and the prediction from the record at `path` if one is requested.
    fn end(&self, now_ns: u64, args: &WatchArgs, path: Option<&Path>) -> anyhow::Result<()> {
        let mut summary = self.summary(now_ns);
        output::print(&summary.drawn(output::look()))?;
        let predicted = path.filter(|_| args.predict).map(|path| predict::predict(args, path));
        if let Some(Ok(prediction)) = &predicted {
            output::print(&prediction.drawn(output::look()))?;
            summary.prediction = Some(prediction.clone());
        }
        if let Some(path) = &args.json {
            output::save(path, &(serde_json::to_string_pretty(&summary)? + "\n"))?;
        }
        predicted.transpose().map(drop)
    }
}
