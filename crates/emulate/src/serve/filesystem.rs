//! What the kernel asks of the mount, and who answers.
//!
//! Names, sizes and times are answered at once; bytes take the model's time ([`Transfers`]).

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::process::{getgid, getuid};

use super::control::{ControlFile, ControlFiles, obey};
use super::transfers::{Span, Stretch, Transfers, errno};

/// Largest request that FUSE makes by default: 256 pages.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests of the page cache that may be under way; more wait in the kernel.
const BACKGROUND_MAX: u16 = 512;

/// Nothing changes behind the kernel's back, so that it may keep what it was told.
const FOR_LONG: Duration = Duration::from_secs(3600);

const BLOCK_BYTES: u32 = 4096;

const ROOT: u64 = 1;
const DISK: u64 = 2;
const CONTROL_DIRECTORY: u64 = 3;
/// The first of the control files, in the order of [`ControlFile::ALL`].
const CONTROL_FILES: u64 = 4;

/// Numbers that bound the mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) size_bytes: u64,
    pub(super) readahead_bytes: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Filesystem {
    transfers: Arc<Transfers>,
    control: ControlFiles,
    limits: Limits,
    disk: Arc<str>,
    user: u32,
    group: u32,
    mounted: SystemTime,
}

/// What a number of an inode means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Root,
    Disk,
    ControlDirectory,
    Control(ControlFile),
}

fn node(number: INodeNo) -> Option<Node> {
    match number.0 {
        ROOT => Some(Node::Root),
        DISK => Some(Node::Disk),
        CONTROL_DIRECTORY => Some(Node::ControlDirectory),
        other => {
            let index = other.checked_sub(CONTROL_FILES)?;
            Some(Node::Control(*ControlFile::ALL.get(index as usize)?))
        }
    }
}

fn number(node: Node) -> u64 {
    match node {
        Node::Root => ROOT,
        Node::Disk => DISK,
        Node::ControlDirectory => CONTROL_DIRECTORY,
        Node::Control(file) => {
            let index = ControlFile::ALL.iter().position(|one| *one == file);
            CONTROL_FILES + index.unwrap_or_default() as u64
        }
    }
}

impl Filesystem {
    pub(super) fn new(
        transfers: Arc<Transfers>,
        control: ControlFiles,
        limits: Limits,
    ) -> Filesystem {
        Filesystem {
            transfers,
            control,
            limits,
            disk: "disk".into(),
            user: getuid().as_raw(),
            group: getgid().as_raw(),
            mounted: SystemTime::now(),
        }
    }

    fn attributes(&self, node: Node) -> FileAttr {
        let (kind, perm, size) = match node {
            Node::Root => (FileType::Directory, 0o755, 0),
            Node::Disk => (FileType::RegularFile, 0o600, self.limits.size_bytes),
            Node::ControlDirectory => (FileType::Directory, 0o700, 0),
            Node::Control(_) => (FileType::RegularFile, 0o600, 0),
        };
        FileAttr {
            ino: INodeNo(number(node)),
            size,
            blocks: size / 512,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// What is listed in a directory.
    fn entries(&self, directory: Node) -> Option<Vec<(Node, &'static str)>> {
        match directory {
            Node::Root => Some(vec![
                (Node::Root, "."),
                (Node::Root, ".."),
                (Node::Disk, "disk"),
                (Node::ControlDirectory, ".forebay"),
            ]),
            Node::ControlDirectory => {
                let mut entries = vec![(directory, "."), (Node::Root, "..")];
                entries.extend(ControlFile::ALL.map(|file| (Node::Control(file), file.name())));
                Some(entries)
            }
            Node::Disk | Node::Control(_) => None,
        }
    }

    /// The part of `disk` from `offset`, at most `len` long.
    fn disk_span(&self, offset: u64, len: u64) -> Span<'_> {
        let len = len.min(self.limits.size_bytes.saturating_sub(offset));
        let whole = Stretch { len, device_offset: Some(offset) };
        let stretches = if len == 0 { Vec::new() } else { vec![whole] };
        Span { file: &self.disk, offset, stretches }
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_MAX_PAGES,
        ];
        for one in wanted {
            // A kernel without it works, only slower.
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
        let entries = node(parent).and_then(|directory| self.entries(directory));
        let Some(entries) = entries else { return reply.error(Errno::ENOTDIR) };
        match entries.iter().skip(2).find(|(_, known)| *known == name) {
            Some((node, _)) => reply.entry(&FOR_LONG, &self.attributes(*node), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, at: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match node(at) {
            Some(node) => reply.attr(&FOR_LONG, &self.attributes(node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        at: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _created: Option<SystemTime>,
        _checked: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(node) = node(at) else { return reply.error(Errno::ENOENT) };
        if mode.is_some() || user.is_some() || group.is_some() {
            return reply.error(Errno::EPERM);
        }
        // A shell truncates what it writes to; the disk keeps its size.
        if size.is_some() && node == Node::Disk && size != Some(self.limits.size_bytes) {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&FOR_LONG, &self.attributes(node));
    }

    fn open(&self, _request: &Request, at: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match node(at) {
            Some(Node::Disk) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Some(Node::Control(file)) => {
                let handle = self.control.open(file, &self.transfers.clockwork);
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            }
            Some(Node::Root | Node::ControlDirectory) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::ENOENT),
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
        if let Some(Node::Control(_)) = node(at) {
            self.control.close(fh.0);
        }
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        at: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match node(at) {
            Some(Node::Disk) => {
                let span = self.disk_span(offset, size.into());
                if span.stretches.is_empty() {
                    reply.data(&[])
                } else {
                    self.transfers.read(&span, reply)
                }
            }
            Some(Node::Control(file)) => {
                let which = (file, fh.0);
                let clockwork = &self.transfers.clockwork;
                reply.data(&self.control.read(which, offset, size as usize, clockwork));
            }
            Some(Node::Root | Node::ControlDirectory) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn write(
        &self,
        _request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match node(at) {
            Some(Node::Disk) => {
                let span = self.disk_span(offset, data.len() as u64);
                let len = span.stretches.first().map_or(0, |stretch| stretch.len as usize);
                if len == 0 {
                    return reply.error(Errno::ENOSPC);
                }
                self.transfers.write(&span, &data[..len], reply);
            }
            Some(Node::Control(ControlFile::Control)) => {
                let known = obey(data, &self.transfers.clockwork);
                if known { reply.written(data.len() as u32) } else { reply.error(Errno::EINVAL) }
            }
            Some(_) => reply.error(Errno::EBADF),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        match node(at) {
            Some(Node::Disk) => self.transfers.flush(&self.disk, reply),
            _ => reply.ok(),
        }
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
        const KEEP_SIZE: i32 = 1;
        const PUNCH_HOLE: i32 = 2;
        const ZERO_RANGE: i32 = 16;
        let Some(Node::Disk) = node(at) else { return reply.error(Errno::EOPNOTSUPP) };
        let end = offset.checked_add(len).filter(|end| *end <= self.limits.size_bytes);
        let Some(_) = end else { return reply.error(Errno::EFBIG) };
        match mode & !KEEP_SIZE {
            0 => reply.ok(),
            // What a loop device makes of a discard, and of zeros. Neither takes a device any time.
            PUNCH_HOLE | ZERO_RANGE => match self.transfers.store.discard(offset, len) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        at: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = node(at).and_then(|directory| self.entries(directory));
        let Some(entries) = entries else { return reply.error(Errno::ENOTDIR) };
        for (index, (node, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            let kind = self.attributes(node).kind;
            if reply.add(INodeNo(number(node)), index as u64 + 1, kind, name) {
                break; // full
            }
        }
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _at: INodeNo,
        _fh: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _at: INodeNo, reply: ReplyStatfs) {
        let blocks = self.limits.size_bytes / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
