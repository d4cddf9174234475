//! The kernel's requests to the mount, and the components that answer them.
//!
//! [`Files`] answers requests about names, sizes and times at once; bytes ([`Contents`]) take the
//! model's time ([`Transfers`]).
//!
//! Concurrency: the kernel's requests may arrive on several threads; files are behind the lock of [`Contents`].

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::process::{getgid, getuid};

use super::contents::Contents;
use super::control::{ControlFile, ControlFiles, obey};
use super::nodes::{BLOCK_BYTES, Node, RESERVED, kind, own_attributes, to_fuse};
use super::opening::{Openings, fixed_size};
use super::transfers::Transfers;
use crate::files::{Attributes, Changes, FIRST_COOKIE, Files, Owner, Place, ROOT};
use crate::scheduler::{Date, today};

/// Largest request that FUSE makes by default: 256 pages.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of page-cache requests in progress; further ones wait in the kernel.
const BACKGROUND_MAX: u16 = 512;

/// Files change only through the kernel, so it may cache names and attributes for long.
const FOR_LONG: Duration = Duration::from_secs(3600);

/// Limits of the mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) size_bytes: u64,
    pub(super) place: Place,
    pub(super) readahead_bytes: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Filesystem {
    transfers: Arc<Transfers>,
    control: ControlFiles,
    limits: Limits,
    contents: Arc<Contents>,
    openings: Openings,
    owner: Owner,
    mounted: Date,
}

impl Filesystem {
    pub(super) fn new(
        transfers: Arc<Transfers>,
        control: ControlFiles,
        limits: Limits,
    ) -> Filesystem {
        let owner = Owner { user: getuid().as_raw(), group: getgid().as_raw() };
        // Root's mount is for all users, and its root directory has the mode of /tmp.
        let mode = if getuid().is_root() { 0o1777 } else { 0o755 };
        let files = Files::new(limits.size_bytes, limits.place, (owner, mode), RESERVED, today);
        let contents = Contents::new(files, Arc::clone(&transfers.store), limits.size_bytes);
        let contents = Arc::new(contents);
        Filesystem {
            transfers,
            control,
            limits,
            contents,
            openings: Openings::default(),
            owner,
            mounted: today(),
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Errno> {
        match node {
            Node::Placed(number) => Ok(self.contents.files().attributes(number)?),
            own => Ok(own_attributes(own, self.limits.size_bytes, self.owner, self.mounted)),
        }
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<Attributes, Errno> {
        let directory = Node::of(parent);
        match (Node::named(directory, name), directory) {
            (Some(own), _) => self.attributes(own),
            (None, Node::Placed(parent)) => Ok(self.contents.files_mut().look_up(parent, name)?),
            (None, _) => Err(Errno::ENOENT),
        }
    }

    /// The directory with the inode `number`, if names can be created in it.
    fn directory(number: INodeNo) -> Result<u64, Errno> {
        match Node::of(number) {
            Node::Placed(number) => Ok(number),
            Node::ControlDirectory => Err(Errno::EPERM),
            Node::Disk | Node::Control(_) => Err(Errno::ENOTDIR),
        }
    }

    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        directory: bool,
        mode: u32,
    ) -> Result<Attributes, Errno> {
        let parent = Filesystem::directory(parent)?;
        let owner = Owner { user: request.uid(), group: request.gid() };
        Ok(self.contents.files_mut().make(
            (parent, name),
            directory,
            (mode & 0o7777) as u16,
            owner,
        )?)
    }

    fn remove(&self, (parent, name): (INodeNo, &OsStr), directory: bool) -> Result<(), Errno> {
        let parent = Filesystem::directory(parent)?;
        let mut files = self.contents.files_mut();
        let freed = files.remove((parent, name), directory)?;
        self.contents.zero(freed)
    }

    fn list(&self, at: INodeNo, offset: u64, reply: &mut ReplyDirectory) -> Result<(), Errno> {
        let files = self.contents.files();
        let mut own_entries = Vec::new();
        let mut own = |number: u64, directory: bool, name: &'static str| {
            own_entries.push((own_entries.len() as u64 + 1, number, directory, OsStr::new(name)));
        };
        let mut placed = None;
        match Node::of(at) {
            Node::ControlDirectory => {
                own(Node::ControlDirectory.number(), true, ".");
                own(ROOT, true, "..");
                for file in ControlFile::ALL {
                    own(Node::Control(file).number(), false, file.name());
                }
            }
            Node::Placed(number) => {
                own(number, true, ".");
                own(files.parent(number), true, "..");
                if number == ROOT {
                    own(Node::Disk.number(), false, RESERVED[0]);
                    own(Node::ControlDirectory.number(), true, RESERVED[1]);
                }
                placed = Some(files.list(number, offset.max(FIRST_COOKIE - 1))?);
            }
            Node::Disk | Node::Control(_) => return Err(Errno::ENOTDIR),
        }
        let entries = own_entries.into_iter().chain(placed.into_iter().flatten());
        for (position, number, directory, name) in entries {
            if position > offset && reply.add(INodeNo(number), position, kind(directory), name) {
                break; // full
            }
        }
        Ok(())
    }
}

fn time(asked: Option<TimeOrNow>) -> Option<Date> {
    asked.map(|time| match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => today(),
    })
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn entry(result: Result<Attributes, Errno>, reply: ReplyEntry) {
    match result {
        Ok(attributes) => reply.entry(&FOR_LONG, &to_fuse(&attributes), Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn attributes(result: Result<Attributes, Errno>, reply: ReplyAttr) {
    match result {
        Ok(attributes) => reply.attr(&FOR_LONG, &to_fuse(&attributes)),
        Err(error) => reply.error(error),
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_MAX_PAGES,
        ];
        for one in wanted {
            // A kernel without this capability works, but slower.
            let _ = config.add_capabilities(one);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        if let Some(bytes) = self.limits.readahead_bytes
            && !getuid().is_root()
        {
            let asked = u32::try_from(bytes).unwrap_or(u32::MAX);
            if config.set_max_readahead(asked.max(1)).is_err() {
                return Err(io::Error::from_raw_os_error(Errno::EPERM.code()));
            }
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.look_up(parent, name), reply);
    }

    fn forget(&self, _request: &Request, at: INodeNo, count: u64) {
        if let Node::Placed(number) = Node::of(at) {
            let mut files = self.contents.files_mut();
            let freed = files.forget(number, count);
            // A forget has no reply to report an error in; bytes that are not zeroed now are when placed again.
            let _ = self.contents.zero(freed);
        }
    }

    fn getattr(&self, _request: &Request, at: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.attributes(Node::of(at)), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        at: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<Date>,
        _fh: Option<FileHandle>,
        _created: Option<Date>,
        _checked: Option<Date>,
        _backed_up: Option<Date>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = Node::of(at);
        if let Node::Placed(number) = node {
            let mode = mode.map(|mode| (mode & 0o7777) as u16);
            let (accessed, modified) = (time(accessed), time(modified));
            let changes = Changes { mode, user, group, accessed, modified, changed };
            return attributes(self.contents.change(number, size, changes), reply);
        }
        // A shell truncates the file that it writes to; the disk keeps its size and its owner.
        let resized = node == Node::Disk && size.is_some_and(|size| size != self.limits.size_bytes);
        if resized || mode.is_some() || user.is_some() || group.is_some() {
            return reply.error(Errno::EPERM);
        }
        attributes(self.attributes(node), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        const KIND: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        if mode & KIND != REGULAR {
            return reply.error(Errno::EPERM);
        }
        entry(self.make(request, (parent, name), false, mode), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        entry(self.make(request, (parent, name), true, mode), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(request, (parent, name), false, mode);
        let opened =
            made.and_then(|made| Ok(self.contents.files_mut().open(made.inode).map(|()| made)?));
        match opened {
            Ok(made) => {
                let (flags, handle) = self.openings.open(made.inode, OpenFlags(flags));
                reply.created(&FOR_LONG, &to_fuse(&made), Generation(0), handle, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.remove((parent, name), false), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.remove((parent, name), true), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let moved = || {
            let from = (Filesystem::directory(parent)?, name);
            let to = (Filesystem::directory(new_parent)?, new_name);
            let mut files = self.contents.files_mut();
            let freed = files.rename(from, to, replace)?;
            self.contents.zero(freed)
        };
        done(moved(), reply);
    }

    fn open(&self, _request: &Request, at: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match Node::of(at) {
            Node::Disk => reply.opened(FileHandle(0), fixed_size(flags)),
            Node::Control(file) => {
                let handle = self.control.open(file, &self.transfers.scheduler);
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            }
            Node::ControlDirectory => reply.error(Errno::EISDIR),
            Node::Placed(number) => match self.contents.files_mut().open(number) {
                Ok(()) => {
                    let (flags, handle) = self.openings.open(number, flags);
                    reply.opened(handle, flags);
                }
                Err(error) => reply.error(error.into()),
            },
        }
    }

    fn release(
        &self,
        _request: &Request,
        at: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match Node::of(at) {
            Node::Control(_) => self.control.close(fh.0),
            Node::Placed(number) => {
                self.openings.close(number, fh);
                let mut files = self.contents.files_mut();
                let freed = files.close(number);
                let _ = self.contents.zero(freed);
            }
            Node::Disk | Node::ControlDirectory => {}
        }
        reply.ok();
    }

    fn read(
        &self,
        request: &Request,
        at: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = Node::of(at);
        match node {
            Node::Disk | Node::Placed(_) => {
                match self.contents.read_span(node, offset, size.into()) {
                    Ok(span) if span.stretches.is_empty() => reply.data(&[]),
                    Ok(span) => {
                        let unique = request.unique().0;
                        self.transfers.read(unique, &self.contents, (node, &span), reply);
                    }
                    Err(error) => reply.error(error),
                }
            }
            Node::Control(file) => {
                let scheduler = &self.transfers.scheduler;
                reply.data(&self.control.read((file, fh.0), offset, size as usize, scheduler));
            }
            Node::ControlDirectory => reply.error(Errno::EISDIR),
        }
    }

    fn write(
        &self,
        request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let node = Node::of(at);
        match node {
            Node::Disk | Node::Placed(_) => {
                match self.contents.write_span(node, offset, data.len() as u64) {
                    Ok(span) if span.stretches.is_empty() => reply.error(Errno::ENOSPC),
                    Ok(span) => self.transfers.write(
                        request.unique().0,
                        &self.contents,
                        (node, &span),
                        &data[..span.len() as usize],
                        reply,
                    ),
                    Err(error) => reply.error(error),
                }
            }
            Node::Control(ControlFile::Control) => {
                let known = obey(data, &self.transfers.scheduler);
                if known { reply.written(data.len() as u32) } else { reply.error(Errno::EINVAL) }
            }
            Node::Control(_) | Node::ControlDirectory => reply.error(Errno::EBADF),
        }
    }

    fn fsync(
        &self,
        request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        match Node::of(at) {
            node @ (Node::Disk | Node::Placed(_)) => match self.contents.read_span(node, 0, 0) {
                Ok(span) => self.transfers.flush(request.unique().0, &span.file, reply),
                Err(error) => reply.error(error),
            },
            Node::Control(_) | Node::ControlDirectory => reply.ok(),
        }
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _at: INodeNo,
        _fh: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok(); // names cost no time
    }

    fn fallocate(
        &self,
        _request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = offset.checked_add(len).ok_or(Errno::EFBIG);
        done(end.and_then(|end| self.contents.allocate(Node::of(at), offset..end, mode)), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list(at, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _at: INodeNo, reply: ReplyStatfs) {
        let block = u64::from(BLOCK_BYTES);
        let free =
            self.contents.files().free_bytes().min(self.transfers.store.room_bytes()) / block;
        reply.statfs(
            self.limits.size_bytes / block,
            free,
            free,
            0,
            0,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }
}
