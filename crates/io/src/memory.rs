//! Memory that requests own: arenas of aligned slots, and leases on them.
//!
//! The kernel writes into a buffer at any time. Rust's borrow checker cannot see that, so ownership must express it:
//! a [`Lease`] is moved into a request and comes back only when the transfer has ended. The lender is notified of the
//! end of a lease through [`Lender`]; [`Arena`] is the lender of this crate, and a page cache provides its own.
//!
//! Invariants:  [MEM-1] no two live leases overlap, and no other code writes to their bytes or holds a reference to
//!              them   [MEM-2] memory outlives its leases
//! Concurrency: an arena may be used from any thread; a lease belongs to one owner at a time.
//! Rejected:    `Box<[u8]>` per request: no alignment, one allocation per request, and no memory to register with
//!              io_uring.
#![expect(unsafe_code, reason = "memory that the kernel writes to")]

use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::error::Error;
use crate::os_error::OsError;

/// The owner of memory that it lends out as leases.
///
/// A lease may end on any thread, also while that thread drives a queue: an implementation must not panic, and must
/// not submit to or wait for an [`Io`](crate::Io).
pub trait Lender: Send + Sync {
    /// Takes the memory back; `start` is its first byte.
    ///
    /// # Safety
    /// Called only by the lease made with this lender and this `start`, once, when it ends.
    unsafe fn release(&self, start: NonNull<u8>);
}

/// The right to use a contiguous range of memory, given back when dropped.
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    lender: Arc<dyn Lender>,
}

// SAFETY: a lease is the only access to its bytes ([MEM-1]), so moving it to another thread moves that access with
// it; `lender` is Send + Sync by its trait.
unsafe impl Send for Lease {}
// SAFETY: `&Lease` gives only shared access to the bytes; `lender` is Send + Sync by its trait.
unsafe impl Sync for Lease {}

impl Lease {
    /// Creates a lease on `len` bytes from `start`; `lender` is notified when it ends.
    ///
    /// Until it ends, this crate and the holder of the lease may read the bytes, and write them through
    /// `DerefMut` or by the transfer of a read request, in any order and at any moment.
    ///
    /// # Safety
    /// The bytes are initialised and `len` is at most `isize::MAX`. Until `lender.release(start)`
    /// is called:
    /// - they stay mapped;
    /// - no other lease overlaps them;
    /// - no other code writes to them or has a reference to them (a shared reference is allowed while the lease is
    ///   only read: as part of a write request, or through `Deref`).
    ///
    /// Other code may still copy the bytes, by atomic loads from a raw pointer or by an instruction that is opaque to
    /// the compiler, if it discards the copy unless it can prove that nothing was written through the lease
    /// meanwhile. This is the reader's half of a sequence lock; strictly by the memory model, its loads race with the
    /// plain stores of the thread that fills the lease.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, lender: Arc<dyn Lender>) -> Lease {
        Lease { start, len, lender }
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Size, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the lease, for a request of less than a slot; it cannot grow again.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and initialised (anonymous maps are zeroed) while the lease lives ([MEM-2]),
        // and nothing writes to them meanwhile ([MEM-1]).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` is the only reference to the bytes ([MEM-1]); concurrent copiers
        // form no reference and discard their copy (`from_raw`).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: this is the lease that was made with `start`, and a value is dropped once.
        unsafe { self.lender.release(self.start) };
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lease({} bytes at {:p})", self.len, self.start)
    }
}

/// A mapping divided into slots of one size, each leased to one owner at a time.
///
/// The mapping is aligned to the system's page size and every slot to the largest power of two
/// that divides the slot size (or the system's page size, if that is less), which satisfies
/// direct I/O for slots of 512 bytes and more.
pub struct Arena {
    map: Arc<Mapping>,
    slot_bytes: usize,
    /// [MEM-1]: set from `take` to the release of the lease.
    leased: Box<[AtomicBool]>,
    /// Free slots, used as a stack so that the warmest memory is reused first.
    free: Mutex<Vec<usize>>,
}

impl Arena {
    /// Maps `slots` slots of `slot_bytes` bytes each, all zero.
    ///
    /// # Errors
    /// [`Error::Setting`] for a count or size of 0 or a size that overflows the address space,
    /// [`Error::Memory`] when the system cannot provide that much memory.
    pub fn new(slots: usize, slot_bytes: usize) -> Result<Arc<Arena>, Error> {
        let bad = |setting, value: usize, expected| Error::Setting {
            setting,
            value: value as u64,
            expected,
        };
        if slots == 0 {
            return Err(bad("slots of an arena", slots, "it should be at least 1"));
        }
        if slot_bytes == 0 {
            return Err(bad("slot size of an arena", slot_bytes, "it should be at least 1 byte"));
        }
        let len = slots
            .checked_mul(slot_bytes)
            .filter(|&len| isize::try_from(len).is_ok())
            .ok_or_else(|| bad("slots of an arena", slots, "that many do not fit in memory"))?;
        Ok(Arc::new(Arena {
            map: Arc::new(Mapping::new(len)?),
            slot_bytes,
            leased: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            free: Mutex::new((0..slots).rev().collect()),
        }))
    }

    /// Leases a free slot, or returns `None` when none is free.
    pub fn take(self: &Arc<Self>) -> Option<Lease> {
        let slot = self.free().pop()?;
        let was_leased = self.leased[slot].swap(true, Ordering::Acquire);
        assert!(!was_leased, "[MEM-1] slot {slot} was free and leased");
        // SAFETY: the slot lies inside the mapping, which lives as long as the arena, which the lease keeps alive
        // ([MEM-2]). The slot was free, so no other lease covers it, and an arena gives access only through leases
        // ([MEM-1]).
        unsafe {
            let start = self.map.start.add(slot * self.slot_bytes);
            Some(Lease::from_raw(start, self.slot_bytes, Arc::clone(self) as Arc<dyn Lender>))
        }
    }

    /// Leases `count` slots, or none when fewer are free.
    pub fn take_many(self: &Arc<Self>, count: usize) -> Option<Vec<Lease>> {
        let leases: Vec<Lease> = (0..count).map_while(|_| self.take()).collect();
        (leases.len() == count).then_some(leases)
    }

    /// Total number of slots.
    pub fn slots(&self) -> usize {
        self.leased.len()
    }

    /// Number of free slots.
    pub fn slots_free(&self) -> usize {
        self.free().len()
    }

    /// Size of a slot, in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The mapping that contains the slots.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        // A panic elsewhere cannot leave the list half changed: each change is one push or pop.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lender for Arena {
    unsafe fn release(&self, start: NonNull<u8>) {
        let slot = (start.as_ptr() as usize - self.map.addresses().start) / self.slot_bytes;
        let was_leased = self.leased[slot].swap(false, Ordering::Release);
        assert!(was_leased, "[MEM-1] slot {slot} was given back twice");
        self.free().push(slot);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Arena")
            .field("slots", &self.slots())
            .field("slots_free", &self.slots_free())
            .field("slot_bytes", &self.slot_bytes)
            .finish()
    }
}

/// Private memory of this process, unmapped when dropped: either anonymous and initially zero, or a private copy of a
/// file.
///
/// It returns addresses only and gives no access: a lender of parts of it guarantees [MEM-1].
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `start` is only an address; access goes through leases, whose lender makes sure that they do not overlap.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of `Mapping` touches the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, aligned to the system's page size.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system cannot provide that much memory.
    pub fn new(len: usize) -> Result<Mapping, Error> {
        Mapping::with(len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Reserves `len` bytes of address space for memory that [`Mapping::commit`] makes usable; until then it must not
    /// be touched and does not count as used. Does not use `MAP_NORESERVE`: committed memory would then never be
    /// counted either.
    ///
    /// # Errors
    /// [`Error::Memory`] when the process does not have that much address space.
    pub fn reserve(len: usize) -> Result<Mapping, Error> {
        Mapping::with(len, ProtFlags::empty())
    }

    fn with(len: usize, access: ProtFlags) -> Result<Mapping, Error> {
        // SAFETY: a fresh anonymous mapping at an address chosen by the kernel aliases nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        Mapping::from_mmap(start, len)
    }

    /// Maps the first `len` bytes of `file` for reading and writing; writes do not reach the file. The file must not
    /// be truncated or written to while it is mapped: reads are undefined then.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system cannot provide that much memory, or cannot map such a file.
    pub fn private(file: &fs::File, len: usize) -> Result<Mapping, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address chosen by the kernel aliases nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::PRIVATE, file, 0) };
        Mapping::from_mmap(start, len)
    }

    fn from_mmap(start: rustix::io::Result<*mut c_void>, len: usize) -> Result<Mapping, Error> {
        let source = match start.map(|start| NonNull::new(start.cast::<u8>())) {
            Ok(Some(start)) => return Ok(Mapping { start, len }),
            Ok(None) => OsError::ENOMEM,
            Err(error) => error.into(),
        };
        Err(Error::Memory { len: len as u64, source })
    }

    /// Makes the first `len` bytes readable and writable, as with [`Mapping::new`]. Bytes already committed keep
    /// their content.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system cannot provide that much memory.
    ///
    /// # Panics
    /// If `len` exceeds the size of the mapping.
    pub fn commit(&self, len: usize) -> Result<(), Error> {
        assert!(len <= self.len, "{len} bytes of a mapping of {}", self.len);
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range belongs to this mapping, and already committed bytes stay accessible.
        unsafe { mprotect(self.start.as_ptr().cast(), len, access) }
            .map_err(|error| Error::Memory { len: len as u64, source: error.into() })
    }

    /// Returns the memory of the whole system pages in `range` to the system. The addresses stay valid and read as
    /// zero, or as the file, until they are written. Returns the number of bytes released.
    ///
    /// # Errors
    /// The system's error: most often that the memory is locked.
    ///
    /// # Safety
    /// No lease covers any byte of `range`, no reference to one exists, and `range` lies in committed memory. Code
    /// that copies from it atomically at this moment must accept any content. References to atomics may exist if
    /// these atomics already have the value that this call gives them and nothing writes to them meanwhile.
    pub unsafe fn give_back(&self, range: Range<usize>) -> Result<usize, OsError> {
        assert!(range.end <= self.len, "bytes {range:?} of a mapping of {}", self.len);
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            let system_page = rustix::param::page_size();
            let start = range.start.next_multiple_of(system_page);
            let len = (range.end / system_page * system_page).saturating_sub(start);
            if len == 0 {
                return Ok(0);
            }
            // SAFETY: inside the mapping, as checked above; the caller guarantees that the range is unused.
            unsafe { madvise(self.start.add(start).as_ptr().cast(), len, Advice::LinuxDontNeed) }?;
            Ok(len)
        }
        #[cfg(not(target_os = "linux"))]
        {
            Err(OsError::EOPNOTSUPP)
        }
    }

    /// Requests huge pages for the mapping: fewer TLB misses, memory allocated 2 MiB at a time.
    ///
    /// # Errors
    /// The system's error: most often that it was built without transparent huge pages.
    pub fn use_huge_pages(&self) -> Result<(), OsError> {
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            let start = self.start.as_ptr().cast();
            // SAFETY: the range belongs to this mapping, and the advice changes no contents.
            unsafe { madvise(start, self.len, Advice::LinuxHugepage) }.map_err(OsError::from)
        }
        #[cfg(not(target_os = "linux"))]
        {
            Err(OsError::EOPNOTSUPP)
        }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Size, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address range of the mapping.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.len
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mapping({} bytes at {:p})", self.len, self.start)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a lender of parts of a mapping keeps it alive, so no lease is left ([MEM-2]).
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "[MEM-2] munmap of {} bytes: {unmapped:?}", self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_leased_to_one_owner_and_comes_back_when_dropped() {
        let arena = Arena::new(2, 4096).unwrap();
        let mut first = arena.take().unwrap();
        let second = arena.take().unwrap();
        assert!(arena.take().is_none());
        assert_ne!(first.as_ptr(), second.as_ptr());
        first.fill(1);
        assert!(second.iter().all(|&byte| byte == 0));
        let address = second.as_ptr();
        drop(second);
        assert_eq!(arena.take().unwrap().as_ptr(), address);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_given_back_reads_as_zero_and_the_rest_stays() {
        let page = rustix::param::page_size();
        let mapping = Mapping::reserve(1 << 30).unwrap();
        mapping.commit(2 * page).unwrap();
        mapping.commit(4 * page).unwrap();
        // SAFETY: committed, and not used by other code.
        let bytes = |at| unsafe { mapping.start().add(at).as_ptr().read_volatile() };
        // SAFETY: as above.
        unsafe { mapping.start().write_bytes(7, 4 * page) };
        // SAFETY: no reference exists.
        let given = unsafe { mapping.give_back(page - 1..3 * page) }.unwrap();
        assert_eq!(given, 2 * page);
        assert_eq!([page - 1, page, 3 * page - 1, 3 * page].map(bytes), [7, 0, 0, 7]);
        // SAFETY: as above.
        assert_eq!(unsafe { mapping.give_back(1..page - 1) }.unwrap(), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_given_back_of_a_private_copy_reads_as_the_file() {
        use std::io::Write as _;
        let page = rustix::param::page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 2 * page]).unwrap();
        let mapping = Mapping::private(&file, 2 * page).unwrap();
        // SAFETY: mapped, and not used by other code.
        let bytes = |at| unsafe { mapping.start().add(at).as_ptr().read_volatile() };
        // SAFETY: as above.
        unsafe { mapping.start().write_bytes(8, 2 * page) };
        // SAFETY: no reference exists.
        assert_eq!(unsafe { mapping.give_back(page..2 * page) }.unwrap(), page);
        assert_eq!([0, page - 1, page, 2 * page - 1].map(bytes), [8, 8, 7, 7]);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn more_than_the_system_has_can_be_set_aside_and_not_committed() {
        use std::io::Write as _;
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
        if overcommit.trim() == "1" {
            let reason = "vm.overcommit_memory is 1, so the system refuses no memory";
            println!("skipped: {reason}");
            if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
                let mut file =
                    fs::OpenOptions::new().append(true).create(true).open(skips).unwrap();
                file.write_all(format!("io: memory: {reason}\n").as_bytes()).unwrap();
            }
            return;
        }
        const LEN: usize = 1 << 45;
        let mapping = Mapping::reserve(LEN).unwrap();
        mapping.commit(1 << 20).unwrap();
        let committed = mapping.commit(LEN);
        assert!(matches!(committed, Err(Error::Memory { .. })), "{committed:?}");
    }

    #[test]
    fn a_lease_keeps_its_arena_alive() {
        let mut lease = Arena::new(1, 512).unwrap().take().unwrap();
        lease.fill(9);
        assert_eq!(lease[511], 9);
    }

    #[test]
    fn requesting_too_many_slots_takes_none() {
        let arena = Arena::new(3, 512).unwrap();
        assert!(arena.take_many(4).is_none());
        assert_eq!(arena.slots_free(), 3);
        assert_eq!(arena.take_many(3).unwrap().len(), 3);
    }

    #[test]
    fn impossible_sizes_are_refused_with_the_reason() {
        for (slots, bytes) in [(0, 1), (1, 0), (usize::MAX, 2)] {
            assert!(matches!(Arena::new(slots, bytes), Err(Error::Setting { .. })));
        }
    }

    #[test]
    fn slots_of_a_page_are_aligned_to_it() {
        let arena = Arena::new(5, 8192).unwrap();
        for lease in arena.take_many(5).unwrap() {
            assert_eq!(lease.as_ptr() as usize % 4096, 0);
        }
    }
}
