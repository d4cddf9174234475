//! `forebay-lookahead` for C: hints and trials for a consumer, in memory that the caller provides.
//!
//! The process that links this library belongs to another program, usually a database server. So nothing here
//! allocates, a panic does not cross the C interface (hints then stay idle permanently, a trial uses its first mode,
//! and the caller sees nothing else), and a handle is plain memory: there is nothing to free.
//!
//! The header, include/forebay_lookahead.h, is generated from this file; a test checks that the two match.
//!
//! Failure:     none is reported. After a panic, and for a null handle, every call returns "nothing to do".

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![expect(unsafe_code, reason = "a C ABI takes pointers")]

mod sampler;
mod trial;

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use forebay_lookahead::{HintCounts, Hints, Limits, Run, Takes, read_waited};

pub use sampler::*;
pub use trial::*;

/// The hints for one consumer of one file: `fbl_hints_size()` bytes aligned to 8, made by `fbl_hints_init`.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct FblHints {
    _opaque: [u8; 0],
}

/// The contents of a caller's memory.
struct Handle<T> {
    what: T,
    /// A call has panicked: the value is never used again.
    broken: bool,
}

/// Whether a read that took this long, in nanoseconds, was a read from a device: a reader without hints then creates
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn fbl_read_waited(read_ns: i64) -> bool {
    u64::try_from(read_ns).is_ok_and(|ns| read_waited(Duration::from_nanos(ns)))
}

/// Size of one consumer's hints, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fbl_hints_size() -> usize {
    size_of::<Handle<Hints>>()
}

/// Creates hints in `memory`: idle until a read waits. They look ahead by at most `most` blocks (and never by more than
/// 1024); `takes_all` if the consumer will certainly take all predicted blocks. A request covers at most
/// `combine_blocks` blocks, and reads through gaps of up to `gap_blocks`, for at most `over_read_percent` unneeded
/// blocks for each hundred wanted ones.
///
/// Returns null, and creates nothing, if `memory` is null.
///
/// # Safety
/// `memory` is null, or `fbl_hints_size()` writable bytes aligned to 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_init(
    memory: *mut u8,
    most: u32,
    takes_all: bool,
    combine_blocks: u32,
    gap_blocks: u32,
    over_read_percent: u32,
) -> *mut FblHints {
    let takes = if takes_all { Takes::All } else { Takes::MayStop };
    let limits = Limits { combine_blocks: combine_blocks.max(1), gap_blocks, over_read_percent };
    // SAFETY: the caller's memory is as large as fbl_hints_size() says, and aligned (contract above).
    unsafe { place(memory, || Hints::new(most, takes, limits)) }.cast()
}

/// Whether hints are idle because no read waits: the caller need not predict anything.
///
/// # Safety
/// `hints` is null or was made by `fbl_hints_init`, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_is_idle(hints: *mut FblHints) -> bool {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), true, |hints: &mut Hints| hints.is_idle()) }
}

/// How many more blocks to predict now; 0 until a whole batch of them is worthwhile.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_available(hints: *mut FblHints) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), 0, |hints: &mut Hints| hints.available()) }
}

/// Predicted blocks that the consumer has not reached.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_ahead(hints: *mut FblHints) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), 0, |hints: &mut Hints| hints.ahead()) }
}

/// Sets another maximum for the look-ahead, in blocks: at least 1, and at most 1024.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_set_most(hints: *mut FblHints, most: u32) {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), (), |hints: &mut Hints| hints.set_most(most)) }
}

/// Whether this block was predicted recently: there is nothing to do for it.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_contains(hints: *mut FblHints, block: u32) -> bool {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), true, |hints: &mut Hints| hints.contains(block)) }
}

/// Predicts a block that is not yet known: the next one in the order of use. `resident` if the consumer has it in its
/// own cache.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_predict(hints: *mut FblHints, block: u32, resident: bool) {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), (), |hints: &mut Hints| hints.predict(block, resident)) }
}

/// Sets `*runs` to the requests to make now, in ascending order; returns how many. They stay valid until the next call
/// with these hints.
///
/// # Safety
/// As for `fbl_hints_is_idle`; `runs` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_take_runs(hints: *mut FblHints, runs: *mut *const Run) -> usize {
    // SAFETY: as the caller promises.
    let (first, count) = unsafe {
        with(hints.cast(), (ptr::null(), 0), |hints: &mut Hints| {
            let due = hints.take_runs();
            (due.as_ptr(), due.len())
        })
    };
    // SAFETY: `runs` can be written (contract above).
    unsafe { runs.write(first) };
    count
}

/// Records that the consumer reached a block, and that reading it took `read_ns` nanoseconds; less than 0 if the
/// consumer had it in its own cache.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_on_read(hints: *mut FblHints, block: u32, read_ns: i64) {
    let read = u64::try_from(read_ns).ok().map(Duration::from_nanos);
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), (), |hints: &mut Hints| hints.on_read(block, read)) }
}

/// Records that the consumer jumped elsewhere: the predicted blocks are not the ones it will take next.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_jump(hints: *mut FblHints) {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), (), |hints: &mut Hints| hints.jump()) }
}

/// The counts of the blocks predicted so far.
///
/// # Safety
/// As for `fbl_hints_is_idle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_hints_counts(hints: *mut FblHints) -> HintCounts {
    // SAFETY: as the caller promises.
    unsafe { with(hints.cast(), HintCounts::default(), |hints: &mut Hints| hints.counts()) }
}

/// Creates a value in the caller's memory; returns null, and creates nothing, if `memory` is null.
///
/// # Safety
/// `memory` is null, or as many writable bytes as a `Handle<T>` takes, aligned to 8.
unsafe fn place<T>(memory: *mut u8, make: impl FnOnce() -> T) -> *mut u8 {
    const { assert!(align_of::<Handle<T>>() <= 8) };
    // SAFETY: the caller's memory is large enough, aligned, and its own (contract above).
    if let Some(place) = unsafe { memory.cast::<MaybeUninit<Handle<T>>>().as_mut() } {
        place.write(Handle { what: make(), broken: false });
    }
    memory
}

/// Calls `what` with the value of a handle; returns `otherwise` if there is none, or it is broken.
///
/// # Safety
/// `handle` is null or was made by `place` for the same `T`, and no other thread uses it.
unsafe fn with<T, R>(handle: *mut u8, otherwise: R, what: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: `place` has written a whole Handle there, and only one thread uses it (contract above).
    let Some(handle) = (unsafe { handle.cast::<Handle<T>>().as_mut() }) else { return otherwise };
    if handle.broken {
        return otherwise;
    }
    // A value that a panic leaves half changed is never used again.
    match catch_unwind(AssertUnwindSafe(|| what(&mut handle.what))) {
        Ok(answer) => answer,
        Err(_) => {
            handle.broken = true;
            otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Vec<u64> {
        vec![0; fbl_hints_size().div_ceil(8)]
    }

    #[test]
    fn a_consumer_that_waits_gets_requests() {
        let mut memory = memory();
        // SAFETY: the vector has the required size, is aligned to 8, and outlives the handle; one thread.
        unsafe {
            let hints = fbl_hints_init(memory.as_mut_ptr().cast(), 64, true, 16, 2, 25);
            assert!(fbl_hints_is_idle(hints));
            fbl_hints_on_read(hints, 5, 100_000);
            fbl_hints_on_read(hints, 6, -1);
            assert_eq!(fbl_hints_available(hints), 2);
            assert!(!fbl_hints_contains(hints, 10));
            fbl_hints_predict(hints, 11, false);
            fbl_hints_predict(hints, 10, false);
            assert!(fbl_hints_contains(hints, 10));
            assert_eq!(fbl_hints_ahead(hints), 2);
            let mut runs = ptr::null();
            assert_eq!(fbl_hints_take_runs(hints, &raw mut runs), 1);
            assert_eq!(*runs, Run { first: 10, blocks: 2, wanted: 2 });
            fbl_hints_jump(hints);
            assert_eq!(fbl_hints_counts(hints).asked, 2);
        }
    }

    #[test]
    fn without_hints_there_is_nothing_to_do() {
        let mut runs = ptr::null();
        // SAFETY: null is allowed everywhere, and `runs` can be written.
        unsafe {
            let none = fbl_hints_init(ptr::null_mut(), 64, true, 16, 2, 25);
            assert!(none.is_null() && fbl_hints_is_idle(none) && fbl_hints_contains(none, 1));
            assert_eq!(
                (fbl_hints_available(none), fbl_hints_take_runs(none, &raw mut runs)),
                (0, 0)
            );
        }
    }

    #[test]
    fn a_panic_ends_at_the_border_and_leaves_them_idle() {
        let mut memory = memory();
        // SAFETY: as above.
        unsafe {
            let hints = fbl_hints_init(memory.as_mut_ptr().cast(), 64, true, 16, 2, 25);
            fbl_hints_on_read(hints, 5, 100_000);
            assert_eq!(with(hints.cast(), 3, |_: &mut Hints| panic!("planted")), 3);
            assert!(fbl_hints_is_idle(hints));
            assert_eq!(fbl_hints_available(hints), 0);
        }
    }
}
