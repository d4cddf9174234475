//! The memory behind the frames: one mapping, with one page for each frame.
//!
//! The only module that turns a frame number into bytes. The state word determines who may access them, and when; the
//! types that prove it are the guards and [`Loading`].
//!
//! Invariants:  [MEM-3] no reference `&mut` exists to a page that another thread can reach, except for optimistic readers
//!              [MEM-4] an optimistic reader copies, and forms no reference to the page
//!              [MEM-5] a page begins at a multiple of 4096, the smallest page size
//! Concurrency: an optimistic reader may copy while a writer changes the page. Strictly by the
//!              memory model the writer's plain stores race with that copy, as in every sequence lock
//!              (Boehm, "Can seqlocks get along with programming language memory models?", 2012); the
//!              copy's loads are atomic and the copied bytes are discarded when the version has moved.
#![expect(unsafe_code, reason = "the memory of the frames, shared under their latches")]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use forebay_io::{Lease, Lender, Mapping};

use super::life::Loading;
use super::{Frame, FrameIndex, Frames};
use crate::error::Error;
use crate::sync;

/// Alignment of pages, in bytes.
const PAGE_ALIGNMENT: usize = 4096;

/// Pages in memory, by frame.
pub(crate) struct FrameMemory {
    /// The first byte of `mapping`.
    start: NonNull<u8>,
    page_bytes: usize,
    /// The largest number of frames.
    frames: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: `start` is only an address, of memory that `mapping` keeps; access goes through the
// word of a frame, see [MEM-3].
unsafe impl Send for FrameMemory {}
// SAFETY: as above.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Memory for `count` pages of `page_bytes` bytes, all zero, which can grow to `most` pages.
    pub(crate) fn new(
        count: usize,
        most: usize,
        page_bytes: usize,
    ) -> Result<Arc<FrameMemory>, Error> {
        let mapping = Arc::new(Mapping::reserve(most * page_bytes)?);
        mapping.commit(count * page_bytes)?;
        let start = mapping.start();
        assert!(
            start.addr().get().is_multiple_of(PAGE_ALIGNMENT),
            "[MEM-5] memory begins at {start:?}"
        );
        Ok(Arc::new(FrameMemory { start, page_bytes, frames: most, mapping }))
    }

    /// Makes memory available for `count` pages, if there was less.
    pub(crate) fn grow(&self, count: usize) -> Result<(), Error> {
        Ok(self.mapping.commit(count * self.page_bytes)?)
    }

    /// Returns the memory of `frames`, which are retired, to the system. Returns the number of bytes; 0 where the
    /// system refused.
    pub(crate) fn give_back(&self, frames: std::ops::Range<usize>) -> u64 {
        let bytes = frames.start * self.page_bytes..frames.end * self.page_bytes;
        // SAFETY: no thread uses a retired frame ([EXT-2]), and only this thread hands it out again. An optimistic
        // reader may copy from it, and discards the copy ([MEM-4]): no entry points there.
        match unsafe { self.mapping.give_back(bytes) } {
            Ok(bytes) => bytes as u64,
            Err(error) => {
                tracing::warn!(%error, "the memory of frames no longer used stays with the pool");
                0
            }
        }
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The first byte of the page in `frame`.
    #[inline]
    pub(crate) fn page(&self, frame: FrameIndex) -> NonNull<u8> {
        debug_assert!((frame as usize) < self.frames);
        // SAFETY: frame numbers come from `Frames`, which has the same number of frames, so the offset lies
        // inside the mapping.
        unsafe { self.start.add(frame as usize * self.page_bytes) }
    }

    /// All bytes of the page in `frame`: an address, no access.
    #[inline]
    pub(crate) fn page_bytes_at(&self, frame: FrameIndex) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.page(frame), self.page_bytes)
    }

    /// Prefetches into the processor's cache what a hit on `frame`, if it exists, accesses first.
    #[inline]
    pub(crate) fn cache_soon(&self, frames: &Frames, frame: FrameIndex) {
        if let Some(it) = frames.find(frame) {
            cache_line_soon(std::ptr::from_ref(it.word).cast());
            cache_line_soon(self.page(frame).as_ptr());
        }
    }

    /// Lends the page of a load to a transfer.
    pub(crate) fn lend(self: &Arc<Self>, loading: &mut Loading<'_>) -> Lease {
        assert!(!loading.leased, "[MEM-3] a page was lent twice");
        loading.leased = true;
        let lender = Arc::clone(self) as Arc<dyn Lender>;
        // SAFETY: the mapping is initialised and lives as long as the lender. A `Loading` is the only one of its frame,
        // and while `leased` is set no other code refers to the bytes: guards are refused by the word, and `bytes_mut` by
        // the flag ([MEM-3]). Optimistic readers may copy them, as a lease allows, through `copy_racing`; they discard
        // the copy because the version moved when the frame was emptied ([MEM-4]).
        unsafe { Lease::from_raw(self.page(loading.frame()), self.page_bytes, lender) }
    }

    /// Returns the page of a load from a transfer that has ended.
    pub(crate) fn take_back(&self, loading: &mut Loading<'_>, lease: Lease) {
        assert!(lease.as_ptr() == self.page(loading.frame()).as_ptr(), "[MEM-3] another's lease");
        drop(lease);
        loading.leased = false;
    }

    /// The bytes of a load that are not lent.
    pub(crate) fn bytes_mut<'l>(&'l self, loading: &'l mut Loading<'_>) -> &'l mut [u8] {
        assert!(!loading.leased, "[MEM-3] the page is lent to a transfer");
        // SAFETY: a `Loading` is the only one of its frame and is borrowed mutably for the same time;
        // the word refuses guards meanwhile, and optimistic readers form no reference ([MEM-3], [MEM-4]).
        unsafe {
            std::slice::from_raw_parts_mut(self.page(loading.frame()).as_ptr(), self.page_bytes)
        }
    }

    /// Copies bytes out of a page that may be changing. The copy is only meaningful if the frame's version proves
    /// afterwards that the page was not changing.
    ///
    /// # Panics
    /// The range extends past the end of the page.
    #[inline(always)]
    pub(crate) fn copy_out(&self, frame: FrameIndex, offset: usize, into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        let fits = end.is_some_and(|end| end <= self.page_bytes);
        assert!(fits, "bytes {offset}..+{} of a page of {}", into.len(), self.page_bytes);
        // SAFETY: checked above to lie within the page, which is mapped for as long as `self`.
        let from = unsafe { self.page(frame).add(offset) };
        copy_racing(from, into);
    }

    /// Prefetches the cache lines of `bytes` of a page while the caller goes on; the part past the end of the page is
    /// ignored.
    #[inline(always)]
    pub(crate) fn fetch_lines(&self, frame: FrameIndex, bytes: Range<usize>) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for offset in (bytes.start & !(CACHE_LINE_BYTES - 1)..bytes.end.min(self.page_bytes))
            .step_by(CACHE_LINE_BYTES)
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: within the page, which is mapped for as long as `self`; nothing is read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.page(frame).add(offset).as_ptr().cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (frame, bytes);
    }
}

/// The state of all frames: half a cache line for each with its word, tag, LSN and place in the free list; then the
/// versions, eight per line.
///
/// An optimistic reader loads only the version and writes nothing: so the closer together versions are, the more of
/// them stay in the processor's caches. A hit writes the word: eight words in a line would usually be in another core's
/// cache as soon as two threads hit pages at random. Figures are in docs/adr/0019-a-hit-in-fifty-instructions.md.
pub(super) struct Descriptors {
    count: usize,
    /// [`EACH`] for each frame.
    all: Words,
}

/// Atomics of a frame without its version.
const WORDS_TOGETHER: usize = 4;
const CACHE_LINE_BYTES: usize = 64;
/// Atomics of a frame.
const EACH: usize = 1 + WORDS_TOGETHER;
/// Memory of one frame without its page, in bytes.
pub(super) const DESCRIPTOR_BYTES: usize = EACH * size_of::<u64>();

impl Descriptors {
    /// Room for `count` frames: zeroes, which take memory once they are written to.
    pub(super) fn new(count: usize) -> Result<Descriptors, Error> {
        Ok(Descriptors { count, all: Words::new(EACH * count)? })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn at(&self, index: usize) -> &sync::AtomicU64 {
        debug_assert!(index < self.all.len());
        // SAFETY: all callers have checked that their frame is one of `count`, for each of which there are `EACH`.
        unsafe { self.all.get_unchecked(index) }
    }

    /// The word of that frame, if there is one.
    #[inline]
    pub(super) fn word(&self, frame: FrameIndex) -> Option<&sync::AtomicU64> {
        let frame = frame as usize;
        (frame < self.count).then(|| self.at(WORDS_TOGETHER * frame))
    }

    /// The version of that frame, if there is one.
    #[inline]
    pub(super) fn version(&self, frame: FrameIndex) -> Option<&sync::AtomicU64> {
        let frame = frame as usize;
        (frame < self.count).then(|| self.at(WORDS_TOGETHER * self.count + frame))
    }

    /// The next frame in the free list below that one, if that one exists.
    #[inline]
    pub(super) fn below(&self, frame: FrameIndex) -> Option<&sync::AtomicU64> {
        let frame = frame as usize;
        (frame < self.count).then(|| self.at(WORDS_TOGETHER * frame + 3))
    }

    /// The complete state of that frame, if it exists.
    #[inline]
    pub(super) fn get(&self, frame: FrameIndex) -> Option<Frame<'_>> {
        let (frame, count) = (frame as usize, self.count);
        (frame < count).then(|| Frame {
            word: self.at(WORDS_TOGETHER * frame),
            tag: self.at(WORDS_TOGETHER * frame + 1),
            lsn: self.at(WORDS_TOGETHER * frame + 2),
            version: self.at(WORDS_TOGETHER * count + frame),
        })
    }
}

/// Atomics on huge pages, where the system has them.
///
/// A hit on a cold page misses the address translation cache once for the page. With descriptors on small pages it
/// would miss twice: see docs/adr/0006-page-table.md for the cost.
#[cfg(not(any(loom, shuttle)))]
struct Words {
    /// The first of them, in `_mapping`.
    start: NonNull<AtomicU64>,
    count: usize,
    _mapping: Mapping,
}

// SAFETY: `start` is the address of atomics that `_mapping` keeps.
#[cfg(not(any(loom, shuttle)))]
unsafe impl Send for Words {}
// SAFETY: as above.
#[cfg(not(any(loom, shuttle)))]
unsafe impl Sync for Words {}

#[cfg(not(any(loom, shuttle)))]
impl Words {
    fn new(count: usize) -> Result<Words, Error> {
        let mapping = Mapping::new(count * size_of::<AtomicU64>())?;
        // The result does not matter: only speed depends on it.
        if let Err(error) = mapping.use_huge_pages() {
            tracing::debug!(%error, "no huge pages for frame descriptors");
        }
        let start = mapping.start().cast::<AtomicU64>();
        Ok(Words { start, count, _mapping: mapping })
    }
}

#[cfg(not(any(loom, shuttle)))]
impl std::ops::Deref for Words {
    type Target = [sync::AtomicU64];

    #[inline]
    fn deref(&self) -> &[sync::AtomicU64] {
        // SAFETY: the mapping holds that many, as it is zeroes at first, which are atomics, and aligned to the system's
        // page size; they are only ever shared, and need no drop. The mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// As the other one, in memory that loom or shuttle tracks.
#[cfg(any(loom, shuttle))]
struct Words(Box<[sync::AtomicU64]>);

#[cfg(any(loom, shuttle))]
impl Words {
    #[expect(clippy::unnecessary_wraps, reason = "the other one has a use for it")]
    fn new(count: usize) -> Result<Words, Error> {
        Ok(Words((0..count).map(|_| sync::AtomicU64::new(0)).collect()))
    }
}

#[cfg(any(loom, shuttle))]
impl std::ops::Deref for Words {
    type Target = [sync::AtomicU64];

    fn deref(&self) -> &[sync::AtomicU64] {
        &self.0
    }
}

impl Lender for FrameMemory {
    unsafe fn release(&self, _start: NonNull<u8>) {
        // The frame stays with its `Loading`, which receives the end in the answer.
    }
}

impl std::fmt::Debug for FrameMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FrameMemory")
            .field("frames", &self.frames)
            .field("page_bytes", &self.page_bytes)
            .finish()
    }
}

/// Longer copies than this use the processor's own copy instruction, where it has one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BY_WORDS_MAX: usize = 128;

/// Prefetches the cache line at `address`, where the target supports it.
#[inline]
fn cache_line_soon(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which reads nothing from the program's point of view, and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Copies from memory that another thread may be changing.
///
/// Short runs use atomic loads of whole words. Long ones, on x86-64, use the instruction `rep movsb`, which no compiler
/// splits or reasons about: it copies unspecified bytes during a race, as the atomic loads do, and is 1.5 times as fast
/// for a page of 8 KiB.
#[inline(always)]
fn copy_racing(from: NonNull<u8>, into: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if into.len() > BY_WORDS_MAX {
        // SAFETY: `copy_out` has checked the range, and `into` is as long; the direction flag is
        // clear, as the ABI wants it.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") into.len() => _,
                inout("rdi") into.as_mut_ptr() => _,
                inout("rsi") from.as_ptr() => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    copy_words(from, into);
}

#[inline(always)]
fn copy_words(from: NonNull<u8>, into: &mut [u8]) {
    const WORD_BYTES: usize = size_of::<u64>();
    let from = from.as_ptr();
    let whole = if from.cast::<u64>().is_aligned() { into.len() / WORD_BYTES } else { 0 };
    let (words, bytes) = into.split_at_mut(whole * WORD_BYTES);
    for (index, to) in words.chunks_exact_mut(WORD_BYTES).enumerate() {
        // SAFETY: `copy_out` has checked the range, and the address is a multiple of a word; an
        // atomic load may race with anything.
        let word = unsafe { AtomicU64::from_ptr(from.add(index * WORD_BYTES).cast()) };
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    for (index, to) in bytes.iter_mut().enumerate() {
        // SAFETY: as above; a byte is always aligned.
        let byte = unsafe { AtomicU8::from_ptr(from.add(whole * WORD_BYTES + index)) };
        *to = byte.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_range_is_copied_whole(offset in 0_usize..64, len in 0_usize..400) {
            let memory = FrameMemory::new(2, 2, 4096).unwrap();
            let source: Vec<u8> = (0..4096_usize).map(|at| (at * 7) as u8).collect();
            // SAFETY: no other thread has access to this memory.
            unsafe { memory.page(1).copy_from(NonNull::from(&source[..]).cast(), 4096) };
            let mut copy = vec![0; len];
            memory.copy_out(1, offset, &mut copy);
            prop_assert_eq!(&copy[..], &source[offset..offset + len]);
        }
    }

    #[test]
    #[should_panic(expected = "of a page of 4096")]
    fn a_copy_past_the_end_of_the_page_is_refused() {
        FrameMemory::new(2, 2, 4096).unwrap().copy_out(0, 4090, &mut [0; 7]);
    }
}
