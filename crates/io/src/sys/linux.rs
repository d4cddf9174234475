//! Linux: its features beyond POSIX, through rustix where possible and libc otherwise.
//!
//! Source: the manual pages posix_fadvise(2), sync_file_range(2), statx(2), mincore(2),
//! fallocate(2), pwritev2(2); cachestat from linux/mman.h (system call 451, Linux 6.5).
#![expect(unsafe_code, reason = "system calls that no crate wraps, and memory mapped to ask about")]

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::{ReadWriteFlags, pread, pwrite, pwritev2};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::answers::{CachedPages, DirectSupport};
use crate::os_error::OsError;
use crate::properties::{Advice, AtomicWrite, ThroughCache};

const SYS_CACHESTAT: libc::c_long = 451;

/// Pages examined by one `mincore`: 1 GiB of 4 KiB pages.
const MINCORE_PAGES_MAX: usize = 1 << 18;

pub(crate) fn sync_data(file: BorrowedFd<'_>) -> Result<(), OsError> {
    Ok(fs::fdatasync(file)?)
}

pub(crate) fn sync_all(file: BorrowedFd<'_>) -> Result<(), OsError> {
    Ok(fs::fsync(file)?)
}

pub(crate) fn preallocate(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    keep_size: bool,
) -> Result<(), OsError> {
    let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    Ok(fs::fallocate(file, flags, range.start, range.end - range.start)?)
}

pub(crate) fn advise(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    advice: Advice,
) -> Result<(), OsError> {
    let advice = match advice {
        Advice::Normal => fs::Advice::Normal,
        Advice::Random => fs::Advice::Random,
        Advice::Sequential => fs::Advice::Sequential,
        Advice::WillNeed => fs::Advice::WillNeed,
        Advice::DontNeed => fs::Advice::DontNeed,
    };
    // A length of 0 would mean "to the end of the file"; an empty range means nothing here.
    match NonZeroU64::new(range.end.saturating_sub(range.start)) {
        Some(len) => Ok(fs::fadvise(file, range.start, Some(len), advice)?),
        None => Ok(()),
    }
}

pub(crate) fn start_writeback(file: BorrowedFd<'_>, range: Range<u64>) -> Result<(), OsError> {
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

pub(crate) fn wait_writeback(file: BorrowedFd<'_>, range: Range<u64>) -> Result<(), OsError> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(file, range, flags)
}

fn sync_file_range(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    flags: libc::c_uint,
) -> Result<(), OsError> {
    let (start, len) = (range.start, range.end.saturating_sub(range.start));
    if len == 0 {
        return Ok(()); // 0 would mean "to the end of the file"
    }
    let (Ok(start), Ok(len)) = (i64::try_from(start), i64::try_from(len)) else {
        return Err(OsError::EFBIG);
    };
    // SAFETY: the call takes numbers only, and the descriptor is open.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), start, len, flags) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// Switches `file` to direct I/O.
pub(crate) fn set_direct(file: BorrowedFd<'_>) -> Result<(), OsError> {
    let flags = fs::fcntl_getfl(file)?;
    Ok(fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

pub(crate) fn direct_support(file: BorrowedFd<'_>) -> DirectSupport {
    if matches!(filesystem_name(file), "tmpfs" | "ramfs") {
        // Linux 6.6 and newer accept O_DIRECT there and go through the page cache anyway.
        return DirectSupport::No("its files are their own page cache");
    }
    let asked = StatxFlags::DIOALIGN;
    match fs::statx(file, c"", AtFlags::EMPTY_PATH, asked) {
        Ok(facts) if facts.stx_mask & asked.bits() != 0 => {
            match (facts.stx_dio_mem_align, facts.stx_dio_offset_align) {
                (0, _) | (_, 0) => DirectSupport::No("statx says that it has none"),
                (memory, offset) => DirectSupport::Aligned { memory, offset },
            }
        }
        _ => DirectSupport::Unknown,
    }
}

/// What the filesystem and its device report about atomic writes.
pub(crate) fn atomic_write(file: BorrowedFd<'_>) -> Option<AtomicWrite> {
    let asked = StatxFlags::from_bits_retain(libc::STATX_WRITE_ATOMIC);
    let facts = fs::statx(file, c"", AtFlags::EMPTY_PATH, asked).ok()?;
    let is_known = facts.stx_mask & asked.bits() != 0;
    let it = AtomicWrite {
        bytes_min: facts.stx_atomic_write_unit_min,
        bytes_max: facts.stx_atomic_write_unit_max,
        pieces_max: facts.stx_atomic_write_segments_max,
    };
    (is_known && it.bytes_min > 0 && it.bytes_max >= it.bytes_min && it.pieces_max > 0)
        .then_some(it)
}

/// Writes in one piece, or fails.
pub(crate) fn write_atomic(
    file: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    position: u64,
) -> Result<usize, OsError> {
    let flags = ReadWriteFlags::from_bits_retain(libc::RWF_ATOMIC as u32);
    Ok(pwritev2(file, slices, position, flags)?)
}

/// A second descriptor of the same file with its own readahead state.
pub(crate) fn reopen(file: BorrowedFd<'_>) -> Result<OwnedFd, OsError> {
    let flags = fs::fcntl_getfl(file)?;
    let kept = OFlags::RDONLY | OFlags::WRONLY | OFlags::RDWR | OFlags::DIRECT;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::open(path, (flags & kept) | OFlags::CLOEXEC, fs::Mode::empty())?)
}

pub(crate) fn filesystem_name(file: BorrowedFd<'_>) -> &'static str {
    // The numbers are those of linux/magic.h and of the filesystems' own headers.
    match fs::fstatfs(file).map(|facts| facts.f_type) {
        Ok(0xEF53) => "ext4",
        Ok(0x5846_5342) => "xfs",
        Ok(0x9123_683E) => "btrfs",
        Ok(0x0102_1994) => "tmpfs",
        Ok(0x8584_58F6) => "ramfs",
        Ok(0x794C_7630) => "overlayfs",
        Ok(0x6969) => "nfs",
        Ok(0x6573_5546) => "fuse",
        Ok(0x0102_1997) => "9p",
        Ok(0x2FC1_2FC1) => "zfs",
        Ok(0xF2F5_2010) => "f2fs",
        Ok(0xCA45_1A4E) => "bcachefs",
        Ok(_) => "this filesystem",
        Err(_) => "the filesystem",
    }
}

/// The kernel's readahead in bytes, as set for the device.
pub(crate) fn kernel_readahead(file: BorrowedFd<'_>) -> Option<u64> {
    let device = fs::fstat(file).ok()?.st_dev;
    let number = format!("{}:{}", fs::major(device), fs::minor(device));
    // The first path applies to a filesystem without a block device, the last to the disk of a partition.
    let places = [
        format!("/sys/class/bdi/{number}/read_ahead_kb"),
        format!("/sys/dev/block/{number}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{number}/../queue/read_ahead_kb"),
    ];
    let text = places.iter().find_map(|place| std::fs::read_to_string(place).ok())?;
    Some(text.trim().parse::<u64>().ok()? * 1024)
}

/// Which direct I/O goes through the page cache on files created in `directory`: probed on a nameless file of the size
/// of `memory`, which is aligned.
///
/// A kernel that executes a direct write through its page cache drops the pages again once they are written. But it
/// cannot drop a mapped page, while a write that bypasses the cache removes the page before and after, mapped or not.
pub(crate) fn through_cache(directory: &Path, memory: &mut [u8]) -> Result<ThroughCache, OsError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::open(directory, flags, fs::Mode::RUSR | fs::Mode::WUSR)?;
    let (file, bytes) = (file.as_fd(), memory.len());
    // btrfs reads through its page cache into memory that it would have to fault in.
    memory.fill(1);
    let in_cache = || Ok(residency(file, 0..bytes as u64, page_bytes())?.resident > 0);
    fs::ftruncate(file, bytes as u64)?;
    set_direct(file)?;
    // SAFETY: a fresh mapping at an address chosen by the kernel, as long as the file, which no other code uses.
    let map =
        unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping's first byte is a byte of the file. The read loads its page.
    let _page = unsafe { map.cast::<u8>().read_volatile() };
    let written = match in_cache() {
        // Without a cached page the probe shows nothing.
        Ok(false) => Err(OsError::EOPNOTSUPP),
        Ok(true) => pwrite(file, memory, 0).map_err(OsError::from).and_then(|_| in_cache()),
        Err(error) => Err(error),
    };
    // SAFETY: the mapping made above, not used again.
    unsafe { munmap(map, bytes)? };
    let writes = written?;
    sync_data(file)?;
    advise(file, 0..bytes as u64, Advice::DontNeed)?;
    if in_cache()? {
        return Err(OsError::EOPNOTSUPP);
    }
    pread(file, memory, 0)?;
    Ok(ThroughCache { reads: in_cache()?, writes })
}

/// Pages of `range` in the page cache. `range` is within the file.
pub(crate) fn residency(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    page_bytes: u64,
) -> Result<CachedPages, OsError> {
    static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);
    if range.is_empty() {
        return Ok(CachedPages { resident: 0, dirty: Some(0) });
    }
    if !NO_CACHESTAT.load(Ordering::Relaxed) {
        match cachestat(file, range.clone()) {
            Err(OsError::ENOSYS) => NO_CACHESTAT.store(true, Ordering::Relaxed),
            // Not supported for this file, or a filter returns this error: the older call may be allowed.
            Err(OsError::EOPNOTSUPP | OsError::EPERM) => {}
            answer => return answer,
        }
    }
    mincore(file, range, page_bytes)
}

fn cachestat(file: BorrowedFd<'_>, range: Range<u64>) -> Result<CachedPages, OsError> {
    /// `struct cachestat_range`.
    #[repr(C)]
    struct AskedRange {
        offset: u64,
        len: u64,
    }
    /// `struct cachestat`.
    #[repr(C)]
    #[derive(Default)]
    struct Answer {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let mut asked = AskedRange { offset: range.start, len: range.end - range.start };
    let mut answer = Answer::default();
    // SAFETY: the kernel reads one range and writes one answer, both in its own layout, and both outlive the call.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw mut asked,
            &raw mut answer,
            0 as libc::c_uint,
        )
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(CachedPages { resident: answer.cached, dirty: Some(answer.dirty) })
}

/// The older way: map the file, query which pages are in memory, unmap.
fn mincore(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    page_bytes: u64,
) -> Result<CachedPages, OsError> {
    let mut resident = 0;
    let window = MINCORE_PAGES_MAX as u64 * page_bytes;
    let mut start = range.start - range.start % page_bytes;
    while start < range.end {
        let bytes = usize::try_from((range.end - start).min(window)).map_err(|_| OsError::EFBIG)?;
        let mut pages = vec![0_u8; bytes.div_ceil(page_bytes as usize)];
        // SAFETY: a fresh mapping at an address chosen by the kernel; nothing reads through it, so it does not matter
        // if the file shrinks meanwhile.
        let map = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, start)?
        };
        // SAFETY: `map` is mapped for `bytes` bytes and `pages` has a byte for each of its pages.
        let done = unsafe { libc::mincore(map, bytes, pages.as_mut_ptr()) };
        let error = std::io::Error::last_os_error();
        // SAFETY: the mapping made above, not used again.
        unsafe { munmap(map, bytes)? };
        if done != 0 {
            return Err(error.into());
        }
        resident += pages.iter().filter(|&&page| page & 1 != 0).count() as u64;
        start += bytes as u64;
    }
    Ok(CachedPages { resident, dirty: None })
}

/// Size of a page of the page cache, in bytes.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Device and inode number: equal for two descriptors of one file.
pub(crate) fn identity(file: impl AsFd) -> Result<(u64, u64), OsError> {
    let facts = fs::fstat(file)?;
    Ok((facts.st_dev, facts.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn cachestat_and_mincore_agree() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 40_960]).unwrap();
        let by_mincore = mincore(file.as_fd(), 0..40_960, page_bytes()).unwrap();
        assert_eq!(by_mincore.resident, 40_960 / page_bytes());
        match cachestat(file.as_fd(), 0..40_960) {
            Ok(pages) => assert_eq!(pages.resident, by_mincore.resident),
            Err(error) => assert_eq!(error, OsError::ENOSYS),
        }
    }

    #[test]
    fn an_empty_range_is_nothing_rather_than_the_whole_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 40_960]).unwrap();
        sync_data(file.as_fd()).unwrap();
        advise(file.as_fd(), 0..0, Advice::DontNeed).unwrap();
        let pages = residency(file.as_fd(), 0..40_960, page_bytes()).unwrap();
        assert_eq!(pages.resident, 40_960 / page_bytes());
    }
}
