//! Undoes one change: checks first, then undoes, then reports.
//!
//! Both the run that made a change and, after a kill, the next run use this; the next run may start
//! days later. In between others may have set the readahead, mounted something else, or used the same
//! loop device for one of their files. So nothing is undone unless the state is still as the run left it.
//!
//! Invariants:  [UND-1] what another process has changed meanwhile is left alone
//!              [UND-2] nothing is removed through a link, or beyond the filesystem it was made on
//! Concurrency: what is busy is retried for a few seconds; a mount that stays busy is detached
//!              lazily and ends with its last user.
//! Failure:     reported with the command that undoes it by hand.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::io::Errno;

use super::log::{Change, stands_for};
use crate::facts::{Mount, mounts};
use crate::program::run;
use crate::retry::retry_with_backoff;
use crate::shell::quoted;
use crate::tracefs::Tracefs;

/// Prefixes of the names of directories that a run makes.
pub(crate) const OWN_PREFIXES: [&str; 2] = [".forebay-", "forebay-"];

/// Added to the report of a change that is undone later.
const IN_USE: &str = " (it was in use, and goes with its user)";

/// The result of undoing a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done: a description, as a part of a sentence.
    Undone(String),
    /// There was nothing to undo.
    Nothing,
    /// The state is no longer as the run left it, and was not touched: the current state.
    NotOurs(String),
    /// It could not be done: the change and the cause, and the command that does it.
    Failed(String),
}

/// Undoes `change`, if it is still there and still ours.
pub(crate) fn undo(change: &Change) -> Verdict {
    let shell = |path: &Path| quoted(&path.display().to_string());
    let (verdict, by_hand) = match change {
        // [UND-1]: its mount no longer exists, and another mount has its number.
        Change::Readahead { file, of, .. } if stands_for(file) != *of => return Verdict::Nothing,
        Change::Readahead { file, found_kib, set_kib, .. } => {
            (readahead(file, *found_kib, set_kib), format!("echo {found_kib} > {}", shell(file)))
        }
        Change::Mount { point, source } => {
            (mount(point, source), format!("umount {}", shell(point)))
        }
        Change::Loop { backing_file, sequence } => {
            // At most one exists: no second device is made for a file.
            let Some(device) = loops_over(backing_file, *sequence).pop() else {
                return Verdict::Nothing;
            };
            (detach(&device), format!("losetup --detach /dev/{}", device.name))
        }
        Change::Directory { path, contents } => {
            let command = if *contents { "rm -r" } else { "rmdir" };
            (directory(path, *contents), format!("{command} {}", shell(path)))
        }
        Change::TraceInstance { name } => {
            let path = Path::new("/sys/kernel/tracing/instances").join(name);
            (trace_instance(name), format!("rmdir {}", shell(&path)))
        }
    };
    verdict.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}; by hand: {by_hand}")))
}

fn readahead(file: &Path, found_kib: u64, set_kib: &[u64]) -> anyhow::Result<Verdict> {
    let failed = || format!("{} cannot be set to {found_kib} KiB", file.display());
    let seen = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::Nothing),
        seen => seen.with_context(failed)?,
    };
    let seen = seen.trim();
    // The owner of the setting: `vda` of `/sys/block/vda/queue/read_ahead_kb`.
    let holder = file.iter().rev().skip(1).find(|part| *part != "queue").unwrap_or_default();
    let holder = holder.display();
    // The kernel counts in pages and rounds down.
    let page_kib = (rustix::param::page_size() as u64 / 1024).max(1);
    let in_pages = |kib: u64| kib / page_kib * page_kib;
    match seen.parse::<u64>() {
        Ok(seen) if seen == found_kib => Ok(Verdict::Nothing),
        Ok(seen) if set_kib.iter().any(|&kib| [kib, in_pages(kib)].contains(&seen)) => {
            fs::write(file, format!("{found_kib}\n")).with_context(failed)?;
            Ok(Verdict::Undone(format!("readahead of {holder} to {found_kib} KiB")))
        }
        _ => Ok(Verdict::NotOurs(format!(
            "the readahead of {holder} is {seen} KiB now, set by another process; it was {found_kib} KiB"
        ))),
    }
}

fn mount(point: &Path, source: &str) -> anyhow::Result<Verdict> {
    let mounts = mounts().context("the mounts of this system cannot be read")?;
    let shown = point.display();
    // Listed in the order in which they were made: the last one is visible.
    match mounts.iter().rfind(|mount| mount.mount_point == point) {
        None => return Ok(Verdict::Nothing),
        Some(topmost) if !shows(topmost, source) => {
            return Ok(Verdict::NotOurs(format!("{shown} shows {} now", topmost.source)));
        }
        Some(_) => {}
    }
    let Err(error) = retry_with_backoff(|| unmount(point, false), |_| true) else {
        return Ok(Verdict::Undone(format!("unmounted {shown}")));
    };
    match unmount(point, true) {
        Ok(()) => Ok(Verdict::Undone(format!("unmounted {shown}{IN_USE}"))),
        Err(_) => Err(error.context(format!("{shown} cannot be unmounted"))),
    }
}

fn shows(mount: &Mount, source: &str) -> bool {
    mount.source == source || mount.filesystem == source
}

/// `lazily`: detached now, and unmounted when its last user ends.
#[cfg(target_os = "linux")]
fn unmount(point: &Path, lazily: bool) -> anyhow::Result<()> {
    use rustix::mount::UnmountFlags;
    let detach = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | detach) {
        // Only FUSE lets an ordinary user mount, through a privileged program.
        Err(Errno::PERM) => {
            let how = if lazily { "-uz" } else { "-u" };
            run("fusermount3", &[OsStr::new(how), OsStr::new("--"), point.as_os_str()]).map(drop)
        }
        // Not mounted any more.
        Err(Errno::INVAL) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(not(target_os = "linux"))]
fn unmount(_point: &Path, _lazily: bool) -> anyhow::Result<()> {
    anyhow::bail!("not on this system")
}

/// A loop device in use, as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// Kernel name, such as `loop3`.
    pub name: String,
    backing_file: PathBuf,
    /// The kernel's number of this use of the device.
    pub sequence: Option<u64>,
}

impl Loop {
    fn read(name: String) -> Option<Loop> {
        let directory = Path::new("/sys/block").join(&name);
        let backing_file = fs::read(directory.join("loop/backing_file")).ok()?;
        let backing_file = PathBuf::from(OsStr::from_bytes(backing_file.trim_ascii_end()));
        let sequence = fs::read_to_string(directory.join("diskseq")).ok();
        let sequence = sequence.and_then(|text| text.trim().parse().ok());
        Some(Loop { name, backing_file, sequence })
    }

    fn is(&self, backing_file: &Path, sequence: Option<u64>) -> bool {
        match (sequence, self.sequence) {
            // The path alone may change: a filesystem that was unmounted lazily loses its own.
            (Some(entry), Some(seen)) => entry == seen,
            _ => self.backing_file == backing_file,
        }
    }
}

/// The loop devices backed by `file`, or those of the use `sequence`, if that is known.
pub fn loops_over(file: &Path, sequence: Option<u64>) -> Vec<Loop> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let loops = names.filter(|name| name.starts_with("loop")).filter_map(Loop::read);
    loops.filter(|one| one.is(file, sequence)).collect()
}

fn detach(entry: &Loop) -> anyhow::Result<Verdict> {
    let device = format!("/dev/{}", entry.name);
    run("losetup", &[OsStr::new("--detach"), OsStr::new(&device)])
        .with_context(|| format!("{device} cannot be detached"))?;
    // The kernel detaches when the last process that has it open closes it.
    let is_detached = || match Loop::read(entry.name.clone()) {
        Some(seen) if seen.sequence == entry.sequence => Err(IN_USE),
        _ => Ok(""),
    };
    let rest = retry_with_backoff(is_detached, |_| true).unwrap_or_else(|in_use| in_use);
    Ok(Verdict::Undone(format!("detached {device}{rest}")))
}

fn trace_instance(name: &str) -> anyhow::Result<Verdict> {
    if !name.starts_with(OWN_PREFIXES[1]) || name.contains('/') {
        return Ok(Verdict::NotOurs(format!("{name} is not a name that a run gives")));
    }
    // A process that has read from it may be about to close it.
    let tracefs = Tracefs::open()?;
    let is_removed = retry_with_backoff(|| tracefs.remove(name), |_| true)?;
    Ok(if is_removed {
        Verdict::Undone(format!("removed the trace instance {name}"))
    } else {
        Verdict::Nothing
    })
}

fn directory(path: &Path, contents: bool) -> anyhow::Result<Verdict> {
    let passes = |error: &io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // A mount there may be about to end.
        Some(Errno::BUSY | Errno::NOTCONN) => true,
        // Other threads of this process make and remove files in it until it ends.
        Some(Errno::NOTEMPTY | Errno::NOENT) => contents,
        _ => false,
    };
    retry_with_backoff(|| remove(path, contents), passes)
        .with_context(|| format!("{} cannot be removed", path.display()))
}

fn remove(path: &Path, contents: bool) -> io::Result<Verdict> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::Nothing),
        facts => facts?,
    };
    if let Some(why) = foreign(path, &facts, rustix::process::geteuid().as_raw()) {
        return Ok(Verdict::NotOurs(format!("{} {why}", path.display())));
    }
    let parent = path.parent().map(fs::symlink_metadata).transpose()?;
    if parent.is_none_or(|parent| parent.dev() != facts.dev()) {
        // [UND-2]: a mount there is not what the run made.
        return Err(Errno::BUSY.into());
    }
    let mounts = if contents { mounts().unwrap_or_default() } else { Vec::new() };
    let mut points = mounts.iter().map(|mount| &mount.mount_point);
    if let Some(inside) = points.find(|point| *point != path && point.starts_with(path)) {
        // [UND-2]: nor a mount that another process has made inside.
        let (path, inside) = (path.display(), quoted(&inside.display().to_string()));
        return Ok(Verdict::Failed(format!(
            "{path} is not removed: {inside} is mounted in it; by hand: umount {inside}, and start once \
             more"
        )));
    }
    // Neither follows a link.
    let remove = if contents { fs::remove_dir_all } else { fs::remove_dir };
    remove(path)?;
    Ok(Verdict::Undone(format!("removed {}", path.display())))
}

/// The reason if `path` is not a directory that a run of user `uid` has made.
fn foreign(path: &Path, facts: &fs::Metadata, uid: u32) -> Option<String> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    if !OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes())) {
        return Some("is not a name that a run gives".to_owned());
    }
    if !facts.is_dir() {
        return Some("is not a directory any more".to_owned());
    }
    (facts.uid() != uid).then(|| format!("belongs to user {} now", facts.uid()))
}

#[cfg(test)]
mod tests;
