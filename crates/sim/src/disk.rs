//! The disk: real files in a scratch directory, and a journal of the changes to them.
//!
//! The files are the visible state, like the page cache; the journal knows which part of it is durable. So the disk
//! needs no model of a filesystem to serve reads, and its users have real descriptors, sizes and locks.
//!
//! Invariants:  [DSK-1] a change of a file and its entry in the journal are one step
//! Concurrency: any thread. `state` is held while bytes are moved, so that the journal's order is the order of effects;
//!              it is not held while a rule decides or during a delay.
//! Failure:     an error of the scratch directory itself: `boot` returns it; afterwards it is a panic.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use forebay_io::backend::{Transfer, attempt};
use forebay_io::{DirectFiles, File, Interpose, Op, OsError, Volume};
use tempfile::TempDir;

use crate::fault::{Fault, Operation, What};
use crate::image::Image;
use crate::journal::{ContentEvent, Entry, Journal, Node, Origin, Position, ROOT};

/// The preferred place of scratch directories: files there are in memory.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// Properties of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// Determines the order in which requests are executed.
    pub seed: u64,
    /// Number of bytes that a power cut never splits. Default: 512; disks of 4096 exist.
    pub sector_bytes: u32,
    /// Whether requests that are in the queue together are executed in any order. Default: yes.
    pub reorder: bool,
    /// Properties of files that are opened direct. Default: none can be, as in the scratch directory.
    pub direct: Option<DirectFiles>,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions { seed: 0, sector_bytes: 512, reorder: true, direct: None }
    }
}

type Rule = Box<dyn FnMut(&Operation<'_>) -> Fault + Send>;

/// A simulated disk. Access its files only through [`Disk::volume`] and [`Disk::io`].
pub struct Disk {
    pub(crate) options: DiskOptions,
    /// The real path of the scratch directory.
    root: PathBuf,
    state: Mutex<State>,
    rule: Mutex<Rule>,
    /// Removed with its files when the disk is dropped.
    _scratch: TempDir,
}

pub(crate) struct State {
    pub(crate) journal: Journal,
    /// Nodes by device and inode: of existing files, and of files that are still open.
    by_number: HashMap<(u64, u64), Node>,
    /// The names in each directory.
    names: HashMap<Node, BTreeMap<OsString, Node>>,
    next: u32,
    /// Syncs in flight in a queue, by the thread that executes them: the position at which they began.
    begun: HashMap<(ThreadId, Node), Position>,
}

impl Disk {
    /// Boots a disk that contains `image`.
    ///
    /// # Errors
    /// The system's error when the scratch directory cannot be created or filled.
    pub fn boot(image: &Image, options: DiskOptions) -> io::Result<Arc<Disk>> {
        let scratch = match tempfile::tempdir_in(MEMORY_DIRECTORY) {
            Ok(scratch) => scratch,
            Err(_) => tempfile::tempdir()?,
        };
        let root = scratch.path().canonicalize()?;
        image.write_to(&root)?;
        let journal = Journal::new(image, u64::from(options.sector_bytes.max(1)));
        let mut state = State {
            next: journal.origins.len() as u32,
            journal,
            by_number: HashMap::new(),
            names: HashMap::new(),
            begun: HashMap::new(),
        };
        state.find(ROOT, &root)?;
        Ok(Arc::new(Disk {
            options,
            root,
            state: Mutex::new(state),
            rule: Mutex::new(Box::new(|_| Fault::None)),
            _scratch: scratch,
        }))
    }

    /// The root directory of the disk, as a real path.
    pub fn directory(&self) -> &Path {
        &self.root
    }

    /// The volume, for names and sizes.
    pub fn volume(self: &Arc<Self>) -> Volume {
        Volume::over(Arc::clone(self) as Arc<dyn Interpose>)
    }

    /// From now on `rule` decides the outcome of each operation. It must not use the disk.
    pub fn rule(&self, rule: impl FnMut(&Operation<'_>) -> Fault + Send + 'static) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// Stops all faults.
    pub fn heal(&self) {
        self.rule(|_| Fault::None);
    }

    /// Number of entries in the journal so far. A promise that was given by now holds for every power cut at this
    /// position or later.
    pub fn position(&self) -> Position {
        self.state().journal.len()
    }

    /// The journal so far.
    pub fn journal(&self) -> Journal {
        self.state().journal.clone()
    }

    pub(crate) fn direct(&self) -> Option<DirectFiles> {
        self.options.direct
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held is a failed test; the later state need not be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the rule, and waits for delays.
    pub(crate) fn fault(&self, what: What, path: &Path, offset: u64, len: u64) -> Fault {
        let position = self.position();
        let operation = Operation { what, path, offset, len, position };
        let fault = (self.rule.lock().unwrap_or_else(PoisonError::into_inner))(&operation);
        if let Fault::Delay(delay) = fault {
            thread::sleep(delay);
        }
        fault
    }

    /// Executes one attempt of a transfer. For a sync, `since` is where it began.
    pub(crate) fn attempt(
        &self,
        transfer: &mut Transfer,
        since: Option<Position>,
    ) -> Result<u64, OsError> {
        let what = match transfer.op() {
            Op::Read => What::Read,
            Op::Write => What::Write,
            Op::SyncData | Op::SyncAll => return self.sync_by_queue(transfer, since),
        };
        let file = transfer.file().clone();
        let fault = self.fault(what, file.path(), transfer.position(), transfer.remaining());
        match fault {
            Fault::Fail(error) => return Err(error),
            Fault::Short(bytes) => transfer.limit(bytes),
            Fault::Lost if what == What::Write => return Ok(transfer.remaining()),
            _ => {}
        }
        let mut state = self.state();
        let node = state.node(&file);
        if what == What::Write {
            return state.write(node, transfer);
        }
        let moved = attempt(transfer)?;
        match fault {
            Fault::Stale => state.make_stale(node, transfer, moved),
            Fault::Misdirected => state.misdirect(node, transfer, moved),
            _ => {}
        }
        Ok(moved)
    }

    fn sync_by_queue(
        &self,
        transfer: &mut Transfer,
        since: Option<Position>,
    ) -> Result<u64, OsError> {
        if let Some(since) = since {
            let mut state = self.state();
            let node = state.node(transfer.file());
            state.begun.insert((thread::current().id(), node), since);
        }
        // The sync returns to this disk as a change of its file, after the file's own latch has been checked.
        let synced = attempt(transfer);
        let mut state = self.state();
        let node = state.node(transfer.file());
        state.begun.remove(&(thread::current().id(), node));
        synced
    }

    /// A sync of `file`, through the queue or directly.
    pub(crate) fn sync(&self, file: &File) -> Result<(), OsError> {
        let (node, since) = {
            let mut state = self.state();
            let node = state.node(file);
            let begun = state.begun.remove(&(thread::current().id(), node));
            (node, begun.unwrap_or(state.journal.len()))
        };
        // Writes that take effect meanwhile are not covered.
        let fault = self.fault(What::Sync, file.path(), 0, 0);
        thread::yield_now();
        let mut state = self.state();
        match fault {
            Fault::Fail(error) => {
                let interrupted = [OsError::EINTR, OsError::EAGAIN, OsError::ECANCELED];
                if !interrupted.contains(&error) {
                    state.journal.entries.push(Entry::Dropped { node, since });
                    state.show_what_is_left(node, file);
                }
                Err(error)
            }
            _ => {
                state.journal.entries.push(Entry::Synced { node, since });
                Ok(())
            }
        }
    }

    /// The directory that contains the name `path`, and the name.
    pub(crate) fn place(&self, state: &State, path: &Path) -> Result<(Node, OsString), OsError> {
        let name = path.file_name().ok_or(OsError::EINVAL)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        Ok((self.directory_node(state, above.unwrap_or(Path::new(".")))?, name.to_owned()))
    }

    /// The node of the directory `path`.
    pub(crate) fn directory_node(&self, state: &State, path: &Path) -> Result<Node, OsError> {
        let real = path.canonicalize()?;
        // EXDEV: it is on another disk.
        let inside = real.strip_prefix(&self.root).map_err(|_| OsError::from_raw(18))?;
        let down = |node: Node, name: &OsStr| state.names.get(&node)?.get(name).copied();
        let node = inside.iter().try_fold(ROOT, down);
        Ok(node.unwrap_or_else(|| panic!("{} was made past the disk's volume", path.display())))
    }
}

impl State {
    /// Records the numbers and names of `directory` and its contents, which have just been written.
    fn find(&mut self, node: Node, directory: &Path) -> io::Result<()> {
        let Origin::Directory(names) = self.journal.origins[node.0 as usize].clone() else {
            return Ok(());
        };
        for (name, inner) in &names {
            let path = directory.join(name);
            match &self.journal.origins[inner.0 as usize] {
                Origin::Directory(_) => self.find(*inner, &path)?,
                Origin::File(_) => self.note_number(*inner, &path)?,
            }
        }
        self.names.insert(node, names);
        Ok(())
    }

    fn note_number(&mut self, node: Node, path: &Path) -> io::Result<()> {
        let facts = std::fs::metadata(path)?;
        // A reused number belonged to a removed file ([JRN-1]).
        self.by_number.insert((facts.dev(), facts.ino()), node);
        Ok(())
    }

    /// Registers a new file or directory at `path`.
    pub(crate) fn born(&mut self, path: &Path, is_directory: bool) -> io::Result<Node> {
        let node = Node(self.next);
        self.next += 1;
        if is_directory {
            self.names.insert(node, BTreeMap::new());
        } else {
            self.note_number(node, path)?;
        }
        Ok(node)
    }

    pub(crate) fn entries_of(&mut self, directory: Node) -> &mut BTreeMap<OsString, Node> {
        self.names.entry(directory).or_default()
    }

    pub(crate) fn node(&self, file: &File) -> Node {
        let known = self.by_number.get(&file.number()).copied();
        known.unwrap_or_else(|| panic!("{} was made past the disk's volume", file.path().display()))
    }

    pub(crate) fn note(&mut self, node: Node, event: ContentEvent) {
        self.journal.entries.push(Entry::Content { node, event });
    }

    fn write(&mut self, node: Node, transfer: &mut Transfer) -> Result<u64, OsError> {
        let offset = transfer.position();
        let mut bytes = Vec::with_capacity(transfer.remaining() as usize);
        for slice in transfer.slices() {
            bytes.extend_from_slice(&slice);
        }
        let moved = attempt(transfer)?;
        bytes.truncate(moved as usize);
        let atomic = transfer.is_atomic();
        self.note(node, ContentEvent::Write { offset, bytes: bytes.into(), atomic });
        Ok(moved)
    }

    /// Replaces the bytes of a read with those from before the newest write there.
    fn make_stale(&self, node: Node, transfer: &mut Transfer, moved: u64) {
        let range = transfer.position()..transfer.position() + moved;
        let mut past = self.journal.clone();
        let newest = past.entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Content { node: it, event } if *it == node => match event {
                ContentEvent::Write { offset, bytes, .. } => {
                    let end = *offset + bytes.len() as u64;
                    (*offset < range.end && end > range.start).then_some((event, end))
                }
                _ => None,
            },
            _ => None,
        });
        if let Some((event, len)) = newest {
            *event = ContentEvent::Grow { len };
            fill(transfer, &seen(&past, node), range.start);
        }
    }

    /// Replaces the bytes of a read with those of an adjacent place.
    fn misdirect(&self, node: Node, transfer: &mut Transfer, moved: u64) {
        let (at, step) = (transfer.position(), moved.max(1));
        let other = if at >= step { at - step } else { at + step };
        fill(transfer, &seen(&self.journal, node), other);
    }

    /// After a failed sync: dropped writes are no longer visible.
    fn show_what_is_left(&self, node: Node, file: &File) {
        let left = seen(&self.journal, node);
        let copy = file.descriptor().try_clone_to_owned().map(std::fs::File::from);
        let shown = copy.and_then(|copy| copy.write_all_at(&left, 0));
        shown.expect("[DSK-1] the scratch file shows what the journal says");
    }
}

/// The visible bytes of `node` at the end of a journal.
fn seen(journal: &Journal, node: Node) -> Vec<u8> {
    let mut replay = journal.replay();
    replay.advance_to(journal.len());
    replay.file(node).map(|(seen, _)| seen).unwrap_or_default()
}

/// Fills a read with `content` from `offset` on, and with zeroes past its end.
fn fill(transfer: &mut Transfer, content: &[u8], offset: u64) {
    let mut rest = content.get(offset as usize..).unwrap_or_default();
    for mut slice in transfer.slices_mut() {
        let here = rest.len().min(slice.len());
        slice[..here].copy_from_slice(&rest[..here]);
        slice[here..].fill(0);
        rest = &rest[here..];
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Disk")
            .field("options", &self.options)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
