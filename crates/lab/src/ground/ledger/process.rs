//! Whether the process that wrote a ledger is still there.
//!
//! A ledger is locked by its process, and the kernel drops that lock however the process ends; whoever
//! gets the lock knows nearly enough. The number and start of the process are looked at as well,
//! for the moment between making a file and locking it.
//!
//! Invariants:  [PRO-1] a process that runs is never taken for dead
//! Source:      `proc_pid_stat(5)`.

use std::fs;

use super::change::Process;

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Running {
    /// In the kernel's ticks since it booted.
    started: u64,
    /// It has ended, and its parent has not taken note yet.
    ended: bool,
}

/// Reads one `stat` file; `None` when it has another form.
fn parse_stat(stat: &str) -> Option<Running> {
    // The name of the program may hold anything, also a parenthesis and a space.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    // Field 22; the state is field 3.
    let started = fields.nth(18)?.parse().ok()?;
    Some(Running { started, ended: matches!(state, "Z" | "X" | "x") })
}

/// What there is to see of process `pid`; `None` when it is not there.
fn look(pid: u32) -> Option<Option<Running>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Some(parse_stat(&stat)),
        // A system without `/proc` shows none: nothing is known.
        Err(_) => fs::metadata("/proc/self/stat").is_err().then_some(None),
    }
}

fn boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

/// This process.
pub(super) fn this() -> Process {
    let pid = std::process::id();
    let started = look(pid).flatten().map(|running| running.started);
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    Process { pid, started, boot: boot(), command: arguments.join(" ") }
}

/// True when `process` ran before the machine was started last: of what it changed only files are left.
pub(super) fn ran_before_boot(process: &Process) -> bool {
    process.boot.is_some() && boot().is_some() && process.boot != boot()
}

/// True when `process`, whose ledger is locked by nobody, has ended.
pub(super) fn has_ended(process: &Process) -> bool {
    ran_before_boot(process) || ended_as_seen(process, look(process.pid))
}

fn ended_as_seen(process: &Process, seen: Option<Option<Running>>) -> bool {
    match seen {
        None => true,
        // Nothing is known but that nobody holds the lock.
        Some(None) => false,
        Some(Some(running)) => {
            running.ended || process.started.is_some_and(|started| started != running.started)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_and_start_are_found_behind_any_name() {
        let stat = |name: &str, state: &str| {
            format!(
                "4711 ({name}) {state} 1 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 88123 1 2"
            )
        };
        let running = Running { started: 88_123, ended: false };
        assert_eq!(parse_stat(&stat("forebay", "S")), Some(running));
        assert_eq!(parse_stat(&stat("a) Z 1 (b", "R")), Some(running));
        let ended = Running { ended: true, ..running };
        assert_eq!(parse_stat(&stat("forebay", "Z")), Some(ended));
        assert_eq!(parse_stat("4711 (forebay) S 1"), None);
    }

    #[test]
    fn a_process_is_dead_when_it_is_gone_ended_or_another_one() {
        let process = Process { pid: 4711, started: Some(88), boot: None, command: String::new() };
        let seen = |started, ended| Some(Some(Running { started, ended }));
        assert!(ended_as_seen(&process, None));
        assert!(ended_as_seen(&process, seen(88, true)));
        assert!(ended_as_seen(&process, seen(89, false)), "the number was given again");
        assert!(!ended_as_seen(&process, seen(88, false)), "[PRO-1]");
        assert!(!ended_as_seen(&process, Some(None)), "[PRO-1]");
    }

    #[test]
    fn this_process_runs_and_did_not_in_another_boot() {
        let this = this();
        assert!(!has_ended(&this), "[PRO-1]");
        if this.boot.is_some() {
            let before = Process { boot: Some("another".to_owned()), ..this };
            assert!(has_ended(&before));
        }
    }
}
