//! Names: which file a descriptor refers to, and the names of files and devices.
//!
//! Kernel events only contain numbers; /proc has the rest while the process exists. A descriptor is looked up when it
//! is first used, and again after it was closed; descriptors are forgotten with their process. A descriptor that is
//! closed before it is looked up stands for an unknown file; later events may show which file it was. Files that are
//! only mapped, or read by io_uring, are searched for among the open and mapped files of the process tree.
//!
//! Invariants:  [NAM-1] only tasks and processes that have not exited are kept
//!              [NAM-2] paths are bounded, and so are the descriptors of each process

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use rustix::fs::{major, minor};

use super::event::{Event, EventKind, FileKey, MINOR_BITS};

/// Maximum number of paths kept, more than there are files counted separately.
const PATHS_MAX: usize = 1 << 16;

/// Maximum number of descriptors kept of a process: its calls may name any number, even of no open descriptor.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// A process of the tree.
#[derive(Debug, Default)]
struct Process {
    /// How many of its tasks were seen and have not exited.
    tasks: usize,
    /// Its first task has exited. Until then the process exists, even if no other task of it was seen.
    is_ending: bool,
    descriptors: HashMap<i32, Option<FileKey>>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The process of each task.
    tasks: HashMap<u32, u32>,
    processes: HashMap<u32, Process>,
    /// Processes so far, including those that have exited.
    count: usize,
    paths: HashMap<FileKey, PathBuf>,
    /// Block devices opened as files, by device number: their pages are in a kernel inode with this number.
    raw: HashMap<u64, PathBuf>,
    /// The whole disk of each partition, and of each whole disk.
    disks: HashMap<u32, u32>,
    /// For each disk, whether it is built from other disks.
    stacked: HashMap<u32, bool>,
    /// Searched for once, and not again.
    unknown: HashSet<FileKey>,
    /// How many descriptors were closed when they were looked up.
    closed_count: u64,
    /// What the current search has not found, the processes that it has not finished, and how many files of the last of
    /// these it has examined.
    wanted: HashSet<FileKey>,
    unsearched: Vec<u32>,
    examined: usize,
    /// By process: descriptors that this batch of events closes, and when, in ns.
    closing: HashMap<u32, Vec<(RangeInclusive<i32>, u64)>>,
}

fn kernel_device(device: u64) -> u32 {
    major(device) << MINOR_BITS | minor(device)
}

/// The device's directory in sysfs.
fn shown(device: u32) -> PathBuf {
    let (major, minor) = (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

impl Names {
    /// The file or directory that `descriptor` of the process of `task` referred to at `at_ns`, an unknown file if it
    /// has been closed since; `None` if it was something else, such as a pipe.
    pub(super) fn file(&mut self, task: u32, descriptor: i32, at_ns: u64) -> Option<FileKey> {
        let (process, known) = self.process(task);
        if descriptor < 0 {
            return None;
        }
        if let Some(file) = known.descriptors.get(&descriptor) {
            return *file;
        }
        let mut closing = self.closing.get(&process).into_iter().flatten();
        // If a file is open there now, it was opened later.
        let is_closed =
            closing.any(|(closed, closed_ns)| closed.contains(&descriptor) && *closed_ns > at_ns);
        // Either task may have exited before the other.
        let mut paths = [process, task]
            .map(|id| PathBuf::from(format!("/proc/{id}/fd/{descriptor}")))
            .into_iter();
        let found = if is_closed { None } else { paths.find_map(|path| self.inspect(&path)) };
        let file = found.unwrap_or_else(|| {
            self.closed_count += 1;
            Some(FileKey::unknown(self.closed_count))
        });
        let known = &mut self.process(task).1.descriptors;
        if known.len() >= DESCRIPTORS_MAX {
            known.clear(); // [NAM-2]
        }
        known.insert(descriptor, file);
        file
    }

    /// The process of `task` and its number; a task that was not seen before is added.
    fn process(&mut self, task: u32) -> (u32, &mut Process) {
        let before = self.tasks.get(&task).copied();
        let number = before.unwrap_or_else(|| process_of(task));
        let count = &mut self.count;
        let process = self.processes.entry(number).or_insert_with(|| {
            *count += 1;
            Process::default()
        });
        if before.is_none() {
            self.tasks.insert(task, number);
            process.tasks += 1;
        }
        (number, process)
    }

    /// Announces `events`, including those that are not processed yet: they may close descriptors.
    pub(super) fn announce<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        self.closing.clear();
        // Tasks are not added yet: these events may start and end them.
        let mut processes = HashMap::default();
        for &Event { at_ns, task, kind } in events {
            if !matches!(kind, EventKind::Closed { .. } | EventKind::Started { .. }) {
                continue;
            }
            let seen = || self.tasks.get(&task).copied().unwrap_or_else(|| process_of(task));
            let process = *processes.entry(task).or_insert_with(seen);
            if let EventKind::Closed { first, last } = kind {
                self.closing.entry(process).or_default().push((first..=last, at_ns));
            } else if let EventKind::Started { other, is_thread } = kind {
                processes.insert(other, if is_thread { process } else { other });
            }
        }
    }

    /// The file or directory at `path`, which may be a link in /proc. Remembers its name.
    pub(super) fn look(&mut self, path: &Path) -> Option<FileKey> {
        self.inspect(path).flatten()
    }

    /// The same; `None` if nothing is there.
    fn inspect(&mut self, path: &Path) -> Option<Option<FileKey>> {
        let facts = fs::metadata(path).ok()?;
        let called = match fs::read_link(path) {
            Ok(called) => Some(called),
            // The process has exited since the line above.
            Err(_) if path.starts_with("/proc") => None,
            Err(_) => Some(path.to_owned()),
        };
        if facts.file_type().is_block_device() {
            self.raw.extend(called.map(|called| (kernel_device(facts.rdev()).into(), called)));
            return Some(None);
        }
        // Directories can be synced.
        if !facts.is_file() && !facts.is_dir() {
            return Some(None);
        }
        let key = FileKey { device: kernel_device(facts.dev()), inode: facts.ino() };
        if self.paths.len() >= PATHS_MAX {
            self.paths.clear(); // [NAM-2] `file_table` has the paths that were shown.
        }
        self.paths.extend(called.map(|called| (key, called)));
        Some(Some(key))
    }

    /// Forgets `descriptors`, which may refer to other files from now on.
    pub(super) fn closed(&mut self, task: u32, descriptors: &RangeInclusive<i32>) {
        let known = &mut self.process(task).1.descriptors;
        if descriptors.start() == descriptors.end() {
            known.remove(descriptors.start());
        } else {
            known.retain(|descriptor, _| !descriptors.contains(descriptor));
        }
    }

    /// The process of `task`, which had the number `before`, executes another program: descriptors were closed.
    pub(super) fn executed(&mut self, task: u32, before: u32) {
        let number = process_of(task);
        if self.tasks.get(&task).is_some_and(|before| *before != number) {
            self.ended(task);
        }
        let (_, process) = self.process(task);
        process.is_ending = false;
        process.descriptors.clear();
        if before != task {
            self.ended(before);
        }
    }

    /// `task` has started `other`. `is_thread`: in its own process.
    pub(super) fn started(&mut self, task: u32, other: u32, is_thread: bool) {
        self.ended(other);
        if is_thread {
            let (number, process) = self.process(task);
            process.tasks += 1;
            self.tasks.insert(other, number);
        }
    }

    /// Forgets `task`, and its process with all descriptors if this was the last one [NAM-1].
    pub(super) fn ended(&mut self, task: u32) {
        let before = self.tasks.remove(&task);
        let number = before.unwrap_or(task);
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.tasks -= usize::from(before.is_some());
        process.is_ending |= number == task;
        if process.is_ending && process.tasks == 0 {
            self.processes.remove(&number);
        }
    }

    /// Forgets all descriptors, as lost events may have closed some.
    pub(super) fn forget_descriptors(&mut self) {
        self.processes.values_mut().for_each(|process| process.descriptors.clear());
    }

    /// The tasks that have exited, although no event said so.
    pub(super) fn exited(&self) -> Vec<u32> {
        let has_ended = |task: &u32| !Path::new(&format!("/proc/{task}")).exists();
        self.tasks.keys().copied().filter(has_ended).collect()
    }

    /// The path of `key`. `called`: its key in descriptors, if that differs.
    pub(super) fn path(&self, key: FileKey, called: Option<FileKey>) -> Option<PathBuf> {
        let path = self.paths.get(&key).or_else(|| self.paths.get(&called?));
        path.or_else(|| self.raw.get(&key.inode).filter(|_| !key.has_major())).cloned()
    }

    /// Searches the open and mapped files of the process tree for files without a name. It examines at most `most`
    /// files, as no events are read until it returns; the next call continues.
    pub(super) fn search(&mut self, wanted: impl Iterator<Item = FileKey>, mut most: usize) {
        if self.wanted.is_empty() || self.unsearched.is_empty() {
            let is_new = |key: &FileKey| !self.paths.contains_key(key) && self.unknown.insert(*key);
            self.wanted = wanted.filter(is_new).collect();
            (self.unsearched, self.examined) = (self.processes.keys().copied().collect(), 0);
        }
        while let Some(process) = self.unsearched.last() {
            let entries =
                ["fd", "map_files"].map(|it| fs::read_dir(format!("/proc/{process}/{it}")));
            for entry in entries.into_iter().flatten().flatten().flatten().skip(self.examined) {
                if self.wanted.is_empty() || most == 0 {
                    return;
                }
                (most, self.examined) = (most - 1, self.examined + 1);
                if let Some(found) = self.look(&entry.path()) {
                    self.wanted.remove(&found);
                }
            }
            (_, self.examined) = (self.unsearched.pop(), 0);
        }
    }

    /// A name for a file without a path.
    pub(super) fn nameless(&mut self, key: FileKey) -> String {
        if key.is_unknown() {
            return "(closed too early to be named)".to_owned();
        }
        // Pages of a block device itself, in which filesystems keep their metadata.
        if !key.has_major() && shown(key.inode as u32).exists() {
            return format!("({}, the filesystem's own)", self.disk_name(key.inode as u32));
        }
        match key.inode {
            0 => "(all other files)".to_owned(),
            inode => format!("inode {inode} of {}", self.disk_name(key.device)),
        }
    }

    /// Records that a task of the process tree was seen.
    pub(super) fn met(&mut self, task: u32) {
        self.process(task);
    }

    /// The disk that `device` is, or is a partition of.
    pub(super) fn disk(&mut self, device: u32) -> u32 {
        *self.disks.entry(device).or_insert_with(|| {
            let path = shown(device);
            if !path.join("partition").exists() {
                return device;
            }
            let whole = fs::canonicalize(path)
                .ok()
                .and_then(|path| fs::read_to_string(path.parent()?.join("dev")).ok());
            let numbers = whole.as_deref().and_then(|text| text.trim().split_once(':'));
            let parsed = numbers.and_then(|(major, minor)| {
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            parsed.map_or(device, |(major, minor)| major << MINOR_BITS | minor)
        })
    }

    /// Whether `disk` is built from other disks, such as by LVM, and only submits requests to these.
    pub(super) fn is_stacked(&mut self, disk: u32) -> bool {
        *self.stacked.entry(disk).or_insert_with(|| is_stacked(&shown(disk)))
    }

    /// The kernel's name of a device, such as `vda`.
    pub(super) fn disk_name(&self, device: u32) -> String {
        let path = fs::canonicalize(shown(device)).unwrap_or_default();
        path.file_name().map_or_else(
            || format!("{}:{}", device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1)),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How many processes were seen so far.
    pub(super) fn processes(&self) -> usize {
        self.count
    }
}

/// Whether the disk with the sysfs directory `path` is built from other disks, and has no request queue itself.
fn is_stacked(path: &Path) -> bool {
    let mut below = fs::read_dir(path.join("slaves")).into_iter().flatten();
    below.next().is_some() && !path.join("mq").exists()
}

/// The process that `task` is a thread of; `task` itself if it has exited.
pub(super) fn process_of(task: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(task)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_without_a_name_is_looked_for_among_so_many() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let facts = file.as_file().metadata().unwrap();
        let key = FileKey { device: kernel_device(facts.dev()), inode: facts.ino() };
        for (most, is_found) in [(0, false), (usize::MAX, true)] {
            let mut names = Names::default();
            names.met(std::process::id());
            names.search([key].into_iter(), most);
            assert_eq!(names.path(key, None).is_some(), is_found);
        }
    }

    #[test]
    fn a_search_that_examines_few_files_at_once_goes_on_where_it_was() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let facts = file.as_file().metadata().unwrap();
        let key = FileKey { device: kernel_device(facts.dev()), inode: facts.ino() };
        let mut names = Names::default();
        names.met(std::process::id());
        let is_found = |names: &Names| names.path(key, None).is_some();
        let searches = (0..10_000).take_while(|_| {
            names.search([key].into_iter(), 1);
            !is_found(&names)
        });
        assert!((1..9_999).contains(&searches.count()));
    }

    #[test]
    fn a_disk_made_of_others_is_known_by_them() {
        let disk = tempfile::tempdir().unwrap();
        for (entry, expected) in
            [("queue", false), ("slaves", false), ("slaves/vda", true), ("mq", false)]
        {
            fs::create_dir(disk.path().join(entry)).unwrap();
            assert_eq!(is_stacked(disk.path()), expected, "{entry}");
        }
    }

    #[test]
    fn a_process_that_names_any_descriptors_has_few_kept() {
        let mut names = Names::default();
        let process = std::process::id();
        let count = DESCRIPTORS_MAX as i32 + 9;
        (0..count).for_each(|at| _ = names.file(process, 1 << 30 | at, 0));
        assert_eq!(names.processes[&process].descriptors.len(), 9, "[NAM-2]");
    }

    #[test]
    fn descriptors_go_with_the_last_task_of_their_process() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let process = std::process::id();
        let mut names = Names::default();
        assert!(names.file(own, file.as_raw_fd(), 0).is_some());
        // The first task exists, though it was not seen: the descriptors are valid.
        names.ended(own);
        assert_eq!((names.tasks.len(), names.processes[&process].descriptors.len()), (0, 1));
        // The first task may exit before others do.
        names.met(own);
        names.met(process);
        names.ended(process);
        assert_eq!(names.processes[&process].descriptors.len(), 1);
        names.ended(own);
        assert!(names.tasks.is_empty() && names.processes.is_empty(), "[NAM-1]");
        assert_eq!(names.processes(), 1);
    }
}
