//! Files and directories on an emulated disk: names that cost no time, and bytes that have a place.
//!
//! Each file's bytes are placed in the device's address space in long extents, so that a position in a file is
//! a position on the device, and the distance between two files is what it would be on a disk. `disk`, the file over
//! the whole address space, and the other files alias on purpose.
//!
//! Placed bytes read as zeros until they are written, and reading them takes the device's time from the start: a file
//! can be made by allocating it and read at once. Bytes that were never placed (a hole) read as zeros and take no time.
//!
//! Invariants:  [FIL-1] a name leads to an inode that exists; an inode without a name and without users does not exist
//!              [FIL-2] placed bytes beyond a file's end are zeros, so that growing the file shows no old data
//! Concurrency: one owner; the server keeps it behind a lock. Nothing here waits.
//! Failure:     [`FilesError`]; a refused operation changes nothing, except that space may already be allocated.

mod extents;
mod place;
mod space;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;

use extents::Extents;
pub(crate) use extents::Stretch;
pub use place::Place;
pub(crate) use space::Full;
use space::Space;

use crate::scheduler::Date;

/// Why an operation on files was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FilesError {
    #[error("there is no such file")]
    NotFound,
    #[error("there is such a file already")]
    Exists,
    #[error("it is not a directory")]
    NotADirectory,
    #[error("it is a directory")]
    IsADirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    #[error("the name belongs to the emulation")]
    Reserved,
    #[error("the emulated disk has no room left")]
    Full,
}

impl From<Full> for FilesError {
    fn from(_: Full) -> FilesError {
        FilesError::Full
    }
}

/// The root directory's inode.
pub(crate) const ROOT: u64 = 1;

/// Lower numbers are the server's own.
const FIRST_INODE: u64 = 64;

/// Lower positions in a directory are the server's own.
pub(crate) const FIRST_COOKIE: u64 = 16;

/// What `stat` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) inode: u64,
    pub(crate) directory: bool,
    pub(crate) size_bytes: u64,
    /// Bytes on the device.
    pub(crate) held_bytes: u64,
    pub(crate) links: u32,
    pub(crate) mode: u16,
    pub(crate) owner: Owner,
    pub(crate) times: Times,
}

/// The owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) accessed: Date,
    pub(crate) modified: Date,
    pub(crate) changed: Date,
}

/// Changes to attributes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u16>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) accessed: Option<Date>,
    pub(crate) modified: Option<Date>,
    pub(crate) changed: Option<Date>,
}

#[derive(Debug)]
struct Inode {
    what: What,
    mode: u16,
    owner: Owner,
    times: Times,
    /// Path below the root; for an unlinked file, its last path.
    path: Arc<str>,
    /// The directory of its name; none after its name was removed.
    parent: Option<u64>,
    /// How many references the kernel holds: lookups that it has not forgotten.
    lookups: u64,
    opens: u64,
}

#[derive(Debug)]
enum What {
    File { size_bytes: u64, extents: Extents },
    Directory { entries: BTreeMap<OsString, (u64, u64)>, by_cookie: BTreeMap<u64, OsString> },
}

impl What {
    fn directory() -> What {
        What::Directory { entries: BTreeMap::new(), by_cookie: BTreeMap::new() }
    }
}

/// How a file grows when bytes of it are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Places no more than the requested range.
    pub(crate) exact: bool,
    /// The file's size does not change.
    pub(crate) keep_size: bool,
}

impl Growth {
    /// For a write: with spare space for the next writes, and the file grows to the end of the write.
    pub(crate) const WRITE: Growth = Growth { exact: false, keep_size: false };
}

/// A span of a file: its path, and the places of its bytes.
pub(crate) type PlacedSpan = (Arc<str>, Vec<Stretch>);

/// The files of an emulated disk.
#[derive(Debug)]
pub(crate) struct Files {
    inodes: HashMap<u64, Inode>,
    space: Space,
    next_inode: u64,
    next_cookie: u64,
    /// Names in the root that belong to the server.
    reserved: &'static [&'static str],
    today: fn() -> Date,
}

impl Files {
    /// No files, on a device of `size_bytes`; the root directory belongs to `owner` and has `mode`.
    pub(crate) fn new(
        size_bytes: u64,
        place: Place,
        (owner, mode): (Owner, u16),
        reserved: &'static [&'static str],
        today: fn() -> Date,
    ) -> Files {
        let now = today();
        let times = Times { accessed: now, modified: now, changed: now };
        let (what, path) = (What::directory(), "".into());
        let root = Inode { what, mode, owner, times, path, parent: None, lookups: 1, opens: 0 };
        Files {
            inodes: HashMap::from([(ROOT, root)]),
            space: Space::new(size_bytes, place.start(size_bytes)),
            next_inode: FIRST_INODE,
            next_cookie: FIRST_COOKIE,
            reserved,
            today,
        }
    }

    /// Bytes that no file occupies.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.space.free_bytes()
    }

    fn inode(&self, number: u64) -> Result<&Inode, FilesError> {
        self.inodes.get(&number).ok_or(FilesError::NotFound)
    }

    fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, FilesError> {
        self.inodes.get_mut(&number).ok_or(FilesError::NotFound)
    }

    fn entries(&self, directory: u64) -> Result<&BTreeMap<OsString, (u64, u64)>, FilesError> {
        match &self.inode(directory)?.what {
            What::Directory { entries, .. } => Ok(entries),
            What::File { .. } => Err(FilesError::NotADirectory),
        }
    }

    fn child(&self, parent: u64, name: &OsStr) -> Result<u64, FilesError> {
        self.entries(parent)?.get(name).map(|(number, _)| *number).ok_or(FilesError::NotFound)
    }

    pub(crate) fn attributes(&self, number: u64) -> Result<Attributes, FilesError> {
        let inode = self.inode(number)?;
        let (directory, size_bytes, held_bytes) = match &inode.what {
            What::File { size_bytes, extents } => (false, *size_bytes, extents.bytes()),
            What::Directory { .. } => (true, 0, 0),
        };
        let named = inode.parent.is_some() || number == ROOT;
        Ok(Attributes {
            inode: number,
            directory,
            size_bytes,
            held_bytes,
            links: if !named { 0 } else { 1 + u32::from(directory) },
            mode: inode.mode,
            owner: inode.owner,
            times: inode.times,
        })
    }

    /// The inode of a name; the kernel gets one more reference to it.
    pub(crate) fn look_up(&mut self, parent: u64, name: &OsStr) -> Result<Attributes, FilesError> {
        let number = self.child(parent, name)?;
        self.inode_mut(number)?.lookups += 1;
        self.attributes(number)
    }

    /// The kernel has dropped `count` of its references to an inode.
    pub(crate) fn forget(&mut self, number: u64, count: u64) -> Vec<Range<u64>> {
        if let Ok(inode) = self.inode_mut(number) {
            inode.lookups = inode.lookups.saturating_sub(count);
        }
        self.drop_unused(number)
    }

    pub(crate) fn open(&mut self, number: u64) -> Result<(), FilesError> {
        let inode = self.inode_mut(number)?;
        inode.opens += 1;
        Ok(())
    }

    /// Removes one user. When the last user is removed, the space beyond the end is freed.
    pub(crate) fn close(&mut self, number: u64) -> Vec<Range<u64>> {
        let Some(inode) = self.inodes.get_mut(&number) else { return Vec::new() };
        inode.opens = inode.opens.saturating_sub(1);
        let mut freed = Vec::new();
        if let What::File { size_bytes, extents } = &mut inode.what
            && inode.opens == 0
        {
            freed = extents.remove(*size_bytes..u64::MAX, &mut self.space);
        }
        freed.extend(self.drop_unused(number));
        freed
    }

    /// Removes an inode that has no name and no users, and frees its space.
    fn drop_unused(&mut self, number: u64) -> Vec<Range<u64>> {
        let unused =
            |inode: &Inode| inode.parent.is_none() && inode.lookups == 0 && inode.opens == 0;
        if number == ROOT || !self.inodes.get(&number).is_some_and(unused) {
            return Vec::new();
        }
        match self.inodes.remove(&number).map(|inode| inode.what) {
            Some(What::File { mut extents, .. }) => extents.remove(0..u64::MAX, &mut self.space),
            Some(What::Directory { .. }) | None => Vec::new(),
        }
    }

    /// Makes a file or a directory. The kernel gets a reference to it.
    pub(crate) fn make(
        &mut self,
        (parent, name): (u64, &OsStr),
        directory: bool,
        mode: u16,
        owner: Owner,
    ) -> Result<Attributes, FilesError> {
        self.refuse_reserved(parent, name)?;
        if self.entries(parent)?.contains_key(name) {
            return Err(FilesError::Exists);
        }
        if self.inode(parent)?.parent.is_none() && parent != ROOT {
            return Err(FilesError::NotFound); // it was removed while a process used it
        }
        let number = self.next_inode;
        self.next_inode += 1;
        let what = match directory {
            true => What::directory(),
            false => What::File { size_bytes: 0, extents: Extents::default() },
        };
        let now = (self.today)();
        let times = Times { accessed: now, modified: now, changed: now };
        let path = self.path_in(parent, name);
        let parent_of = Some(parent);
        let inode =
            Inode { what, mode, owner, times, path, parent: parent_of, lookups: 1, opens: 0 };
        self.inodes.insert(number, inode);
        self.link(parent, name, number);
        self.attributes(number)
    }

    fn refuse_reserved(&self, parent: u64, name: &OsStr) -> Result<(), FilesError> {
        let reserved = parent == ROOT && self.reserved.iter().any(|known| name == *known);
        if reserved { Err(FilesError::Reserved) } else { Ok(()) }
    }

    fn path_in(&self, parent: u64, name: &OsStr) -> Arc<str> {
        let name = name.to_string_lossy();
        match self.inodes.get(&parent) {
            Some(directory) if parent != ROOT => format!("{}/{name}", directory.path).into(),
            _ => name.into(),
        }
    }

    fn link(&mut self, parent: u64, name: &OsStr, number: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        if let Some(inode) = self.inodes.get_mut(&parent)
            && let What::Directory { entries, by_cookie } = &mut inode.what
        {
            entries.insert(name.to_owned(), (number, cookie));
            by_cookie.insert(cookie, name.to_owned());
            inode.touch((self.today)());
        }
    }

    fn unlink(&mut self, parent: u64, name: &OsStr) {
        if let Some(inode) = self.inodes.get_mut(&parent)
            && let What::Directory { entries, by_cookie } = &mut inode.what
            && let Some((_, cookie)) = entries.remove(name)
        {
            by_cookie.remove(&cookie);
            inode.touch((self.today)());
        }
    }

    /// Removes a name. Frees the space of an inode without users: the ranges.
    pub(crate) fn remove(
        &mut self,
        (parent, name): (u64, &OsStr),
        directory: bool,
    ) -> Result<Vec<Range<u64>>, FilesError> {
        self.refuse_reserved(parent, name)?;
        let number = self.child(parent, name)?;
        self.refuse_removal(number, directory)?;
        self.unlink(parent, name);
        Ok(self.lose_name(number))
    }

    /// Whether `number` may lose its name to a removal of a directory, or of a file.
    fn refuse_removal(&self, number: u64, directory: bool) -> Result<(), FilesError> {
        match (&self.inode(number)?.what, directory) {
            (What::Directory { .. }, false) => Err(FilesError::IsADirectory),
            (What::File { .. }, true) => Err(FilesError::NotADirectory),
            (What::Directory { entries, .. }, true) if !entries.is_empty() => {
                Err(FilesError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    fn lose_name(&mut self, number: u64) -> Vec<Range<u64>> {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.parent = None;
        }
        self.drop_unused(number)
    }

    /// Moves a name; replaces an existing target if `replace`.
    pub(crate) fn rename(
        &mut self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        replace: bool,
    ) -> Result<Vec<Range<u64>>, FilesError> {
        self.refuse_reserved(parent, name)?;
        self.refuse_reserved(new_parent, new_name)?;
        let number = self.child(parent, name)?;
        let mut above = Some(new_parent);
        while let Some(one) = above {
            if one == number {
                return Err(FilesError::IntoItself);
            }
            above = self.inode(one)?.parent;
        }
        let mut freed = Vec::new();
        match self.child(new_parent, new_name) {
            Ok(_) if !replace => return Err(FilesError::Exists),
            Ok(same) if same == number => return Ok(freed),
            Ok(other) => {
                let directory = matches!(self.inode(number)?.what, What::Directory { .. });
                self.refuse_removal(other, directory)?;
                self.unlink(new_parent, new_name);
                freed = self.lose_name(other);
            }
            Err(FilesError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.unlink(parent, name);
        self.link(new_parent, new_name, number);
        let path = self.path_in(new_parent, new_name);
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.parent = Some(new_parent);
        }
        self.move_to(number, path);
        Ok(freed)
    }

    /// Records the new path of an inode, and of everything below it.
    fn move_to(&mut self, number: u64, path: Arc<str>) {
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        inode.path = path;
        if let What::Directory { entries, .. } = &inode.what {
            let children: Vec<_> =
                entries.iter().map(|(name, (child, _))| (name.clone(), *child)).collect();
            for (name, child) in children {
                let path = self.path_in(number, &name);
                self.move_to(child, path);
            }
        }
    }

    /// Entries of a directory after the position `cookie`: position, inode, whether it is a directory,
    /// name.
    pub(crate) fn list(
        &self,
        directory: u64,
        cookie: u64,
    ) -> Result<impl Iterator<Item = (u64, u64, bool, &OsStr)>, FilesError> {
        let What::Directory { entries, by_cookie } = &self.inode(directory)?.what else {
            return Err(FilesError::NotADirectory);
        };
        let after = by_cookie.range(cookie + 1..);
        Ok(after.filter_map(|(cookie, name)| {
            let (number, _) = entries.get(name)?;
            let directory = matches!(self.inodes.get(number)?.what, What::Directory { .. });
            Some((*cookie, *number, directory, name.as_os_str()))
        }))
    }

    /// The parent of a directory.
    pub(crate) fn parent(&self, directory: u64) -> u64 {
        self.inode(directory).ok().and_then(|inode| inode.parent).unwrap_or(ROOT)
    }

    pub(crate) fn change(&mut self, number: u64, changes: Changes) -> Result<(), FilesError> {
        let now = (self.today)();
        let inode = self.inode_mut(number)?;
        inode.mode = changes.mode.unwrap_or(inode.mode);
        inode.owner.user = changes.user.unwrap_or(inode.owner.user);
        inode.owner.group = changes.group.unwrap_or(inode.owner.group);
        let times = &mut inode.times;
        times.accessed = changes.accessed.unwrap_or(times.accessed);
        times.modified = changes.modified.unwrap_or(times.modified);
        times.changed = changes.changed.unwrap_or(now);
        Ok(())
    }

    /// Path of a file, and the places of its bytes from `range.start` to `range.end` or its own end.
    pub(crate) fn span(&self, number: u64, range: Range<u64>) -> Result<PlacedSpan, FilesError> {
        let inode = self.inode(number)?;
        let What::File { size_bytes, extents } = &inode.what else {
            return Err(FilesError::IsADirectory);
        };
        let end = range.end.min(*size_bytes);
        let empty = range.start >= end;
        let stretches = if empty { Vec::new() } else { extents.stretches(range.start..end) };
        Ok((Arc::clone(&inode.path), stretches))
    }

    /// Places `range` of a file, and no more than that if `exact`, and extends the file to its end unless `keep_size`.
    /// Adds the newly placed ranges of the device to `placed`, also when there was not room for all: the caller must
    /// zero them before any other thread reads them.
    pub(crate) fn place(
        &mut self,
        number: u64,
        range: Range<u64>,
        Growth { exact, keep_size }: Growth,
        placed: &mut Vec<Range<u64>>,
    ) -> Result<(), FilesError> {
        let inode = self.inodes.get_mut(&number).ok_or(FilesError::NotFound)?;
        let What::File { size_bytes, extents } = &mut inode.what else {
            return Err(FilesError::IsADirectory);
        };
        extents.place(range.clone(), exact, &mut self.space, placed)?;
        if !keep_size {
            *size_bytes = (*size_bytes).max(range.end);
        }
        Ok(())
    }

    /// Makes a file `new_bytes` long. Returns the ranges of the device that must be zeroed: the rest of the block of
    /// the new end, and the ranges that the file loses.
    pub(crate) fn resize(
        &mut self,
        number: u64,
        new_bytes: u64,
    ) -> Result<Vec<Range<u64>>, FilesError> {
        let inode = self.inodes.get_mut(&number).ok_or(FilesError::NotFound)?;
        let What::File { size_bytes, .. } = &mut inode.what else {
            return Err(FilesError::IsADirectory);
        };
        let shorter = new_bytes < *size_bytes;
        *size_bytes = new_bytes;
        inode.touch((self.today)());
        // [FIL-2] Bytes that had been placed beyond the old end were zeros, and stay zeros.
        if shorter { self.punch(number, new_bytes..u64::MAX) } else { Ok(Vec::new()) }
    }

    /// Makes a hole of `range`. Returns the ranges of the device that must be zeroed.
    pub(crate) fn punch(
        &mut self,
        number: u64,
        range: Range<u64>,
    ) -> Result<Vec<Range<u64>>, FilesError> {
        let inode = self.inodes.get_mut(&number).ok_or(FilesError::NotFound)?;
        let What::File { extents, .. } = &mut inode.what else {
            return Err(FilesError::IsADirectory);
        };
        let mut zeros = extents.remove(range.clone(), &mut self.space);
        // The remaining bytes are in the blocks at both ends, of which only a part is in the range.
        let first_end = range.start.next_multiple_of(space::BLOCK_BYTES).min(range.end);
        let last_start = (range.end - range.end % space::BLOCK_BYTES).max(first_end);
        for edge in [range.start..first_end, last_start..range.end] {
            let mut at = edge.start;
            while at < edge.end {
                let stretch = extents.stretches(at..edge.end)[0];
                zeros.extend(stretch.device_offset.map(|offset| offset..offset + stretch.len));
                at += stretch.len;
            }
        }
        Ok(zeros)
    }
}

impl Inode {
    fn touch(&mut self, now: Date) {
        self.times.modified = now;
        self.times.changed = now;
    }
}

#[cfg(test)]
mod tests;
