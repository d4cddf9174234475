//! [`Trial`] for C: which of two read modes costs less.

use std::time::Duration;

use forebay_lookahead::{Side, Trial};

use crate::{Handle, place, with};

/// The trial of two read modes: `fbl_trial_size()` bytes aligned to 8, made by `fbl_trial_init`.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct FblTrial {
    _opaque: [u8; 0],
}

/// Size of a trial, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fbl_trial_size() -> usize {
    size_of::<Handle<Trial>>()
}

/// Creates a trial in `memory`, which begins with the first mode. If a block costs more than `waiting_ns` nanoseconds
/// in that mode, the second is tried early.
///
/// Returns null, and creates nothing, if `memory` is null.
///
/// # Safety
/// `memory` is null, or `fbl_trial_size()` writable bytes aligned to 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_trial_init(memory: *mut u8, waiting_ns: u64) -> *mut FblTrial {
    // SAFETY: as the caller promises.
    unsafe { place(memory, || Trial::new(None, Some(Duration::from_nanos(waiting_ns)))) }.cast()
}

/// Whether to read in the second mode now.
///
/// # Safety
/// `trial` is null or was made by `fbl_trial_init`, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_trial_second(trial: *mut FblTrial) -> bool {
    // SAFETY: as the caller promises.
    unsafe { with(trial.cast(), false, |trial: &mut Trial| trial.side() == Side::Second) }
}

/// Whether the mode has not proved itself yet: a caller that measures a part of its reads measures all until it has.
///
/// # Safety
/// As for `fbl_trial_second`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_trial_undecided(trial: *mut FblTrial) -> bool {
    // SAFETY: as the caller promises.
    unsafe { with(trial.cast(), false, |trial: &mut Trial| trial.is_undecided()) }
}

/// Records that reading `blocks` took `spent_ns` nanoseconds. If the mode changes now, the next `known` blocks still
/// count for the old one.
///
/// # Safety
/// As for `fbl_trial_second`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_trial_spent(
    trial: *mut FblTrial,
    blocks: u32,
    spent_ns: u64,
    known: u32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        with(trial.cast(), (), |trial: &mut Trial| {
            trial.spent(blocks, Duration::from_nanos(spent_ns), known);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 2,560 blocks are read in the second mode, if a block costs this many nanoseconds in each.
    fn second_of(first_ns: u64, second_ns: u64) -> u32 {
        let mut memory: Vec<u64> = vec![0; fbl_trial_size().div_ceil(8)];
        // SAFETY: the vector has the required size, is aligned to 8, and outlives the trial; one thread.
        unsafe {
            let trial = fbl_trial_init(memory.as_mut_ptr().cast(), 16_000);
            assert!(!fbl_trial_second(trial));
            (0..160)
                .map(|_| {
                    let second = fbl_trial_second(trial);
                    let each = if second { second_ns } else { first_ns };
                    fbl_trial_spent(trial, 16, 16 * each, 32);
                    if second { 16 } else { 0 }
                })
                .sum()
        }
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        assert!(second_of(100_000, 10_000) > 2300, "tried early, and better");
        assert!(second_of(10_000, 100_000) < 128, "tried late, and given up");
    }

    #[test]
    fn without_a_trial_the_first_way_is_taken() {
        // SAFETY: null is allowed everywhere.
        unsafe {
            let none = fbl_trial_init(std::ptr::null_mut(), 0);
            fbl_trial_spent(none, 1 << 20, 1, 0);
            assert!(none.is_null() && !fbl_trial_second(none));
        }
    }
}
