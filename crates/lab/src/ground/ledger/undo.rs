//! One change undone: looked at first, then carried out, then told.
//!
//! The same is done by the run that made a change and, after a kill, by the next one, which may come
//! days later. In between others may have set the readahead, mounted something else, or used the same
//! loop device for a file of theirs. So nothing is undone unless it still looks as the run left it;
//! looking, deciding and doing are apart, so that deciding can be tested without a device.
//!
//! Invariants:  [UND-1] what was changed by somebody else meanwhile is left alone
//!              [UND-2] nothing is removed through a link, or beyond the filesystem it was made on
//! Concurrency: what is busy is tried again for a few seconds; a mount that stays busy is taken out of
//!              sight and goes when its last user does.
//! Failure:     told with the command that does it by hand.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::change::{Attached, Change};
use crate::experiment::quoted;
use crate::facts::{MountedHere, mounted_at, mounted_inside, user_of_anonymous};
use crate::ground::program::run;

/// How the names of directories that a run makes begin.
pub(crate) const OWN_PREFIXES: [&str; 2] = [".forebay-", "forebay-"];

/// How long what is busy is tried again, and how often.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// What came of undoing a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done: what, as a part of a sentence.
    Undone(String),
    /// There was nothing to undo.
    Nothing,
    /// It is no longer what the run left, and was not touched: what it is.
    NotOurs(String),
    /// It could not be done.
    Failed {
        /// What, and the reason.
        why: String,
        /// The command that does it.
        by_hand: String,
    },
}

/// What follows from how things look.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Undo,
    Nothing,
    NotOurs(String),
}

/// Undoes `change`, if it is still there and still ours.
pub(crate) fn undo(change: &Change) -> Verdict {
    match change {
        // [UND-1]: the mount that it was of has gone, and its number was given to another.
        Change::Readahead { file, of, .. } if stands_for(file) != *of => Verdict::Nothing,
        Change::Readahead { file, found_kib, set_kib, .. } => readahead(file, *found_kib, set_kib),
        Change::Mount { point, source } => mount(point, source),
        Change::Loop { backing_file, attached } => loops(backing_file, attached.as_ref()),
        Change::Directory { path, contents } => directory(path, *contents),
    }
}

fn readahead(file: &Path, found_kib: u64, set_kib: &[u64]) -> Verdict {
    let by_hand = || format!("echo {found_kib} > {}", shell(file));
    let failed = |error: io::Error| {
        let why = format!("{} cannot be set to {found_kib} KiB: {error}", file.display());
        Verdict::Failed { why, by_hand: by_hand() }
    };
    let seen = match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Verdict::Nothing,
        Err(error) => return failed(error),
    };
    match decide_readahead(found_kib, set_kib, seen) {
        Decision::Undo => match fs::write(file, format!("{found_kib}\n")) {
            Ok(()) => Verdict::Undone(format!("readahead of {} to {found_kib} KiB", holder(file))),
            Err(error) => failed(error),
        },
        Decision::Nothing => Verdict::Nothing,
        Decision::NotOurs(what) => {
            Verdict::NotOurs(format!("the readahead of {} {what}", holder(file)))
        }
    }
}

/// `seen`: what the file holds now.
fn decide_readahead(found_kib: u64, set_kib: &[u64], seen: Option<u64>) -> Decision {
    let Some(seen) = seen else {
        return Decision::NotOurs("is no number any more".to_owned());
    };
    // The kernel counts in pages and rounds down.
    let page_kib = (rustix::param::page_size() as u64 / 1024).max(1);
    let ours = set_kib.iter().any(|&kib| seen == kib || seen == kib / page_kib * page_kib);
    if seen == found_kib {
        Decision::Nothing
    } else if ours {
        Decision::Undo
    } else {
        let found = format!("is {seen} KiB now, set by somebody else; it was {found_kib} KiB");
        Decision::NotOurs(found)
    }
}

/// What `file` is of, where its name says only a number that is given again: a mount without a device, as
/// `/sys/class/bdi/0:51/read_ahead_kb` has it.
pub(super) fn stands_for(file: &Path) -> Option<String> {
    user_of_anonymous(file.parent()?.file_name()?.to_str()?)
}

/// Whose setting `file` is: `vda` of `/sys/block/vda/queue/read_ahead_kb`.
fn holder(file: &Path) -> String {
    let queue = OsStr::new("queue");
    let holder = file.parent().map(|parent| match parent.parent() {
        Some(above) if parent.file_name() == Some(queue) => above,
        _ => parent,
    });
    let name = holder.and_then(Path::file_name).unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

fn mount(point: &Path, source: &str) -> Verdict {
    let seen = match mounted_at(point) {
        Ok(seen) => seen,
        Err(error) => {
            let why = format!("the mounts of this system cannot be read: {error}");
            return Verdict::Failed { why, by_hand: format!("umount {}", shell(point)) };
        }
    };
    match decide_mount(source, seen.last()) {
        Decision::Undo => unmount(point),
        Decision::Nothing => Verdict::Nothing,
        Decision::NotOurs(what) => Verdict::NotOurs(format!("{} {what}", point.display())),
    }
}

/// `topmost`: what is seen at the mount point.
fn decide_mount(source: &str, topmost: Option<&MountedHere>) -> Decision {
    match topmost {
        None => Decision::Nothing,
        Some(seen) if seen.source == source || seen.filesystem == source => Decision::Undo,
        Some(seen) => Decision::NotOurs(format!("shows {} now", seen.source)),
    }
}

fn unmount(point: &Path) -> Verdict {
    let unmounted = format!("unmounted {}", point.display());
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    let done = patiently(|| match unmount_once(point, false) {
        Ok(()) => Some(()),
        // Not mounted any more.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(()),
        Err(error) => {
            last = error;
            None
        }
    });
    if done.is_some() {
        return Verdict::Undone(unmounted);
    }
    match unmount_once(point, true) {
        Ok(()) => Verdict::Undone(format!("{unmounted} (it was in use, and goes with its user)")),
        Err(_) => Verdict::Failed {
            why: format!("{} cannot be unmounted: {last}", point.display()),
            by_hand: format!("umount {}", shell(point)),
        },
    }
}

/// `lazily`: out of sight now, and gone when nobody uses it any more.
#[cfg(target_os = "linux")]
fn unmount_once(point: &Path, lazily: bool) -> io::Result<()> {
    use rustix::mount::UnmountFlags;
    let detach = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | detach) {
        Err(Errno::PERM) => {
            // Only FUSE lets an ordinary user mount, through a program that may.
            let how = if lazily { "-uz" } else { "-u" };
            run("fusermount3", &[OsStr::new(how), OsStr::new("--"), point.as_os_str()]).map(drop)
        }
        result => Ok(result?),
    }
}

#[cfg(not(target_os = "linux"))]
fn unmount_once(_point: &Path, _lazily: bool) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// A loop device as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenLoop {
    name: String,
    /// `None` when it is free.
    backing_file: Option<PathBuf>,
    sequence: Option<u64>,
}

impl SeenLoop {
    fn read(name: &str) -> SeenLoop {
        let directory = Path::new("/sys/block").join(name);
        let backing_file = fs::read(directory.join("loop/backing_file")).ok();
        let sequence = fs::read_to_string(directory.join("diskseq")).ok();
        SeenLoop {
            name: name.to_owned(),
            backing_file: backing_file
                .map(|bytes| PathBuf::from(OsStr::from_bytes(bytes.trim_ascii_end()))),
            sequence: sequence.and_then(|text| text.trim().parse().ok()),
        }
    }
}

impl Attached {
    /// The use that the device at `path`, such as `/dev/loop3`, has now.
    pub(crate) fn of(path: &str) -> Option<Attached> {
        let name = path.strip_prefix("/dev/")?;
        name.strip_prefix("loop")?.parse::<u32>().ok()?;
        let seen = SeenLoop::read(name);
        Some(Attached { name: seen.name, sequence: seen.sequence })
    }
}

/// The loop devices that show `file`, as they are now.
pub(crate) fn loops_over(file: &Path) -> Vec<Attached> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let seen = names.filter(|name| name.starts_with("loop")).map(|name| SeenLoop::read(&name));
    let over = seen.filter(|seen| seen.backing_file.as_deref() == Some(file));
    over.map(|seen| Attached { name: seen.name, sequence: seen.sequence }).collect()
}

fn loops(backing_file: &Path, attached: Option<&Attached>) -> Verdict {
    // Whoever was killed between attaching and noting which device it was: the file is of the run.
    let found;
    let attached = match attached {
        Some(attached) => std::slice::from_ref(attached),
        None => {
            found = loops_over(backing_file);
            &found[..]
        }
    };
    let mut verdict = Verdict::Nothing;
    for noted in attached {
        match decide_loop(backing_file, noted, &SeenLoop::read(&noted.name)) {
            Decision::Undo => verdict = detach(noted),
            Decision::Nothing => {}
            Decision::NotOurs(what) => verdict = Verdict::NotOurs(what),
        }
    }
    verdict
}

fn decide_loop(backing_file: &Path, noted: &Attached, seen: &SeenLoop) -> Decision {
    let Some(shown) = &seen.backing_file else { return Decision::Nothing };
    let same = match (noted.sequence, seen.sequence) {
        // The path alone may change: a filesystem that was unmounted lazily loses its own.
        (Some(noted), Some(seen)) => noted == seen,
        _ => shown == backing_file,
    };
    if same {
        return Decision::Undo;
    }
    Decision::NotOurs(format!("/dev/{} shows {} now", seen.name, shown.display()))
}

fn detach(noted: &Attached) -> Verdict {
    let device = format!("/dev/{}", noted.name);
    if let Err(error) = run("losetup", &[OsStr::new("--detach"), OsStr::new(&device)]) {
        let why = format!("{device} cannot be detached: {error}");
        return Verdict::Failed { why, by_hand: format!("losetup --detach {device}") };
    }
    // The kernel detaches when the last one who has it open closes it.
    let gone = patiently(|| {
        let seen = SeenLoop::read(&noted.name);
        let same = seen.backing_file.is_some() && seen.sequence == noted.sequence;
        (!same).then_some(())
    });
    let rest = if gone.is_some() { "" } else { " (it was in use, and goes with its user)" };
    Verdict::Undone(format!("detached {device}{rest}"))
}

/// A directory as it looks.
#[derive(Debug, Clone, Copy)]
struct SeenDirectory {
    is_directory: bool,
    uid: u32,
    /// It lies on the filesystem of the directory that it is in.
    same_filesystem: bool,
}

fn directory(path: &Path, contents: bool) -> Verdict {
    let what = if contents { "rm -r" } else { "rmdir" };
    let failed = |error: &io::Error| Verdict::Failed {
        why: format!("{} cannot be removed: {error}", path.display()),
        by_hand: format!("{what} {}", shell(path)),
    };
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    let verdict = patiently(|| match remove(path, contents) {
        Ok(verdict) => Some(verdict),
        Err(error) => {
            let number = error.raw_os_error().map(Errno::from_raw_os_error);
            let wait = match number {
                // Whatever was mounted there may be on its way out.
                Some(Errno::BUSY | Errno::NOTCONN) => true,
                // Others of this process make and remove files in it until it ends.
                Some(Errno::NOTEMPTY | Errno::NOENT) => contents,
                _ => false,
            };
            last = error;
            (!wait).then(|| failed(&last))
        }
    });
    verdict.unwrap_or_else(|| failed(&last))
}

fn remove(path: &Path, contents: bool) -> io::Result<Verdict> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::Nothing),
        facts => facts?,
    };
    let parent = path.parent().map(fs::symlink_metadata).transpose()?;
    let seen = SeenDirectory {
        is_directory: facts.is_dir(),
        uid: facts.uid(),
        same_filesystem: parent.is_some_and(|parent| parent.dev() == facts.dev()),
    };
    match decide_directory(path, rustix::process::geteuid().as_raw(), seen) {
        Decision::Undo => {}
        Decision::Nothing => return Ok(Verdict::Nothing),
        Decision::NotOurs(what) => {
            return Ok(Verdict::NotOurs(format!("{} {what}", path.display())));
        }
    }
    if !seen.same_filesystem {
        // [UND-2]: what is mounted there is not what was made.
        return Err(Errno::BUSY.into());
    }
    if contents && let Some(inside) = mounted_inside(path).unwrap_or_default().first() {
        // [UND-2]: nor is what somebody has mounted inside.
        return Ok(Verdict::Failed {
            why: format!(
                "{} is not removed: {} is mounted in it",
                path.display(),
                inside.display()
            ),
            by_hand: format!("umount {}, and start once more", shell(inside)),
        });
    }
    // Neither follows a link.
    let removed = if contents { fs::remove_dir_all(path) } else { fs::remove_dir(path) };
    removed?;
    Ok(Verdict::Undone(format!("removed {}", path.display())))
}

fn decide_directory(path: &Path, uid: u32, seen: SeenDirectory) -> Decision {
    let ours = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    };
    // Or a directory right in one of ours.
    if !ours(path) && !path.parent().is_some_and(ours) {
        return Decision::NotOurs("is not a name that a run gives".to_owned());
    }
    if !seen.is_directory {
        return Decision::NotOurs("is not a directory any more".to_owned());
    }
    if seen.uid != uid {
        return Decision::NotOurs(format!("belongs to user {} now", seen.uid));
    }
    Decision::Undo
}

/// Tries until there is an answer, or patience ends.
fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = attempt();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        std::thread::sleep(PAUSE);
    }
}

fn shell(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests;
