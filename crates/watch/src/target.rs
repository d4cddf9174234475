//! The target of a watch: a command that it starts, a process, or a service, each with all its descendants.
//!
//! Once the kernel has the list of existing tasks, it adds their descendants to it. A command is started by a thread
//! that is already followed, so that none of its events is missed; the thread then exits.
//!
//! Concurrency: while the live view has the terminal, one thread per stream reads a command's output until its end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::names::process_of;
use super::tracer::Tracer;
use crate::args::WatchArgs;
use forebay_measure::bad_input;
use forebay_measure::interrupt;

/// Bytes of each output stream of a command that are kept while the live view has the terminal.
const PRINTED_MAX: usize = 64 << 10;

/// How long a command may take to exit after SIGTERM.
const ENDING: Duration = Duration::from_secs(5);

/// Maximum number of searches for tasks to follow: a task started during one search is found by the next, or followed
/// by the kernel.
const LOOKS_MAX: usize = 4;

/// The directory of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Suffixes of systemd units that have processes.
const UNITS: [&str; 6] = [".service", ".slice", ".scope", ".socket", ".mount", ".swap"];

/// The last bytes read from an output stream of a command.
type Printed = Arc<Mutex<VecDeque<u8>>>;

/// See the module's description.
#[derive(Debug)]
pub(super) enum Target {
    Command {
        child: Child,
        printed: Vec<Printed>,
        /// The thread of this process that started the command.
        starter: u32,
    },
    /// Its pidfd, if the kernel supports these, and its number.
    Process(Option<OwnedFd>, u32),
    /// The directory of its control group.
    Service(PathBuf),
}

impl Target {
    /// Finds or starts the target, and makes `tracer` follow it. `live`: the live view uses the terminal.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): there is no such process, service or command.
    pub(super) fn begin(args: &WatchArgs, tracer: &Tracer, live: bool) -> anyhow::Result<Target> {
        if let Some(pid) = args.pid {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                bad_input!("there is no process {pid}");
            }
            let pid = process_of(pid);
            // Not by its number, which may be reused after the exit; also, /proc shows the process until its parent
            // reaps it.
            let end =
                Pid::from_raw(pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            follow(tracer, || vec![pid])?;
            return Ok(Target::Process(end, pid));
        }
        if let Some(name) = &args.service {
            let unit = unit(name);
            let Some(group) = group(Path::new(GROUPS), &unit) else {
                bad_input!(
                    "there is no service {unit} with processes under {GROUPS}; `systemctl status {name}` says more, \
                     and --pid takes its main process"
                );
            };
            follow(tracer, || processes_of(&group))?;
            return Ok(Target::Service(group));
        }
        start(&args.command, tracer, live)
    }

    /// The task that is followed but is not part of the target.
    pub(super) fn starter(&self) -> Option<u32> {
        if let Target::Command { starter, .. } = self { Some(*starter) } else { None }
    }

    /// Whether the target has exited.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(match self {
            Target::Command { child, .. } => child.try_wait()?.is_some(),
            Target::Process(Some(end), _) => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut [PollFd::new(&*end, PollFlags::IN)], Some(&now))? > 0
            }
            Target::Process(None, pid) => !Path::new(&format!("/proc/{pid}")).exists(),
            Target::Service(group) => processes_of(group).is_empty(),
        })
    }

    /// Ends a command that the watch started, if it still runs. Returns its exit status, and the end of its output.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn end(self) -> anyhow::Result<(Option<ExitStatus>, Vec<u8>)> {
        let Target::Command { mut child, printed, .. } = self else {
            return Ok((None, Vec::new()));
        };
        let begun = Instant::now();
        let mut asked = None;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let signal = if begun.elapsed() < ENDING { Signal::TERM } else { Signal::KILL };
            if asked != Some(signal) {
                kill_process(Pid::from_child(&child), signal)?;
                asked = Some(signal);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        // The command's children may keep the pipe open: do not wait for them.
        std::thread::sleep(Duration::from_millis(if printed.is_empty() { 0 } else { 20 }));
        let last = printed.iter().flat_map(|it| std::mem::take(&mut *locked(it))).collect();
        Ok((Some(status), last))
    }
}

/// Starts `words` so that the command is followed from its first instruction on.
fn start(words: &[OsString], tracer: &Tracer, live: bool) -> anyhow::Result<Target> {
    let Some((program, rest)) = words.split_first() else {
        bad_input!(
            "name what to watch: --pid P, --service NAME, or a command; forebay watch --help has examples"
        );
    };
    let shown = program.display();
    let mut command = Command::new(program);
    command.args(rest);
    if live {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let spawned = std::thread::scope(|scope| {
        let starter = scope.spawn(|| -> anyhow::Result<(u32, std::io::Result<Child>)> {
            let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            tracer.follow(&[own])?;
            Ok((own, command.spawn()))
        });
        starter.join().map_err(|_| anyhow::anyhow!("the thread that starts {shown} failed"))?
    });
    let (starter, mut child) = match spawned? {
        (_, Err(error))
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
        {
            bad_input!("{shown} cannot be started: {error}")
        }
        (starter, child) => (starter, child.with_context(|| format!("{shown} cannot be started"))?),
    };
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let printed = out.map(kept).into_iter().chain(errors.map(kept)).collect();
    Ok(Target::Command { child, printed, starter })
}

fn locked(printed: &Printed) -> MutexGuard<'_, VecDeque<u8>> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads all of `from` in a thread, and keeps the last [`PRINTED_MAX`] bytes.
fn kept(mut from: impl Read + Send + 'static) -> Printed {
    let kept = Printed::default();
    let last = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let mut last = locked(&last);
            last.extend(&buffer[..count]);
            let more = last.len().saturating_sub(PRINTED_MAX);
            last.drain(..more);
        }
    });
    kept
}

/// Makes `tracer` follow the processes `roots`, and all their descendants.
fn follow(tracer: &Tracer, roots: impl Fn() -> Vec<u32>) -> anyhow::Result<()> {
    let tasks = || {
        // Ctrl-C before the start: nothing to follow.
        if interrupt::is_requested() {
            return Vec::new();
        }
        let tasks_of = |process| numbers(Path::new(&format!("/proc/{process}/task")));
        below(&roots()).into_iter().flat_map(tasks_of).collect()
    };
    follow_new(tasks, |new| tracer.follow(new))
}

/// Calls `follow` with the tasks that `tasks` finds, each once, until it finds no new ones.
fn follow_new(
    tasks: impl Fn() -> Vec<u32>,
    mut follow: impl FnMut(&[u32]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut followed = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let new: Vec<u32> = tasks().into_iter().filter(|task| followed.insert(*task)).collect();
        if new.is_empty() {
            break;
        }
        follow(&new)?;
    }
    Ok(())
}

/// The processes `roots` and all their descendants, without this process.
fn below(roots: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in numbers(Path::new("/proc")) {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // From the right, as the name in parentheses may contain anything.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut found, mut at) = (roots.to_vec(), 0);
    while let Some(process) = found.get(at) {
        found.extend(children.remove(process).unwrap_or_default());
        at += 1;
    }
    found.retain(|process| *process != std::process::id());
    found
}

/// The numbers among the names in `directory`.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The unit that systemd derives from `name`, which may contain dots.
fn unit(name: &str) -> String {
    let is_whole = UNITS.iter().any(|suffix| name.ends_with(suffix));
    if is_whole { name.to_owned() } else { format!("{name}.service") }
}

/// The control group of `unit` below `directory`, if it contains processes.
fn group(directory: &Path, unit: &str) -> Option<PathBuf> {
    let own = directory.join(unit);
    if !processes_of(&own).is_empty() {
        return Some(own);
    }
    let entries = fs::read_dir(directory).ok()?.flatten();
    let mut directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    directories.find_map(|entry| group(&entry.path(), unit))
}

/// The processes of a control group and of the groups below it.
fn processes_of(group: &Path) -> Vec<u32> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<u32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            found.extend(processes_of(&entry.path()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_watch_does_not_watch_itself() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs();
        let found = below(&[parent]);
        assert!(found.contains(&parent) && !found.contains(&std::process::id()), "{found:?}");
    }

    #[test]
    fn a_service_may_have_dots_in_its_name() {
        for (name, expected) in [
            ("postgresql@9.6-main", "postgresql@9.6-main.service"),
            ("postgresql@15-main", "postgresql@15-main.service"),
            ("cron.service", "cron.service"),
            ("user-1000.slice", "user-1000.slice"),
        ] {
            assert_eq!(unit(name), expected);
        }
    }

    #[test]
    fn what_a_command_printed_is_kept_though_its_child_could_print_more() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo said; sleep 5 &"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = kept(child.stdout.take().unwrap());
        while locked(&printed).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_, last) =
            Target::Command { child, printed: vec![printed], starter: 0 }.end().unwrap();
        assert_eq!(last, b"said\n");
    }

    #[test]
    fn tasks_are_followed_once_until_no_new_ones_are_found() {
        for (last, expected) in
            [(2, vec![vec![0], vec![1], vec![2]]), (99, vec![vec![0], vec![1], vec![2], vec![3]])]
        {
            let (count, mut calls) = (Cell::new(0), Vec::new());
            let tasks = || {
                count.set(count.get() + 1);
                (0..count.get().min(last + 1)).collect()
            };
            let follow = |new: &[u32]| {
                calls.push(new.to_vec());
                Ok(())
            };
            follow_new(tasks, follow).unwrap();
            assert_eq!(calls, expected);
        }
    }
}
