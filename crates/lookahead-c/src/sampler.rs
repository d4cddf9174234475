//! [`Sampler`] for C, which keeps it by value: it is called for every row.

use std::time::Duration;

use forebay_lookahead::Sampler;

/// Returns a sampler that times all steps at first.
#[unsafe(no_mangle)]
pub extern "C" fn fbl_sampler_new() -> Sampler {
    Sampler::default()
}

/// Begins a step; returns whether to time it.
///
/// # Safety
/// `sampler` is null or was made by `fbl_sampler_new`, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_sampler_begin(sampler: *mut Sampler) -> bool {
    // SAFETY: as the caller promises.
    unsafe { sampler.as_mut() }.is_some_and(Sampler::begin)
}

/// Records that the current step has read something, which took `read_ns` nanoseconds; less than 0 if it was not timed.
///
/// # Safety
/// As for `fbl_sampler_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_sampler_read(sampler: *mut Sampler, read_ns: i64) {
    // SAFETY: as the caller promises.
    if let Some(sampler) = unsafe { sampler.as_mut() } {
        sampler.read(u64::try_from(read_ns).ok().map(Duration::from_nanos));
    }
}

/// Returns how many reads end a pause that begins now, in which no step need be observed; 0 if there is none.
///
/// # Safety
/// As for `fbl_sampler_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_sampler_pause(sampler: *const Sampler) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { sampler.as_ref() }.map_or(u32::MAX, Sampler::pause)
}

/// A pause has ended: times all steps until one reads something, or the sampler rests.
///
/// # Safety
/// As for `fbl_sampler_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fbl_sampler_resume(sampler: *mut Sampler) {
    // SAFETY: as the caller promises.
    if let Some(sampler) = unsafe { sampler.as_mut() } {
        sampler.resume();
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn it_pauses_where_nothing_is_read_and_where_there_is_none() {
        let mut sampler = fbl_sampler_new();
        // SAFETY: null is allowed, and `sampler` outlives the calls; one thread.
        unsafe {
            assert!(fbl_sampler_begin(&raw mut sampler));
            fbl_sampler_read(&raw mut sampler, 100_000);
            let timed = (0..1_000).filter(|_| fbl_sampler_begin(&raw mut sampler)).count();
            assert!(timed > 0 && fbl_sampler_pause(&raw const sampler) == 1);
            fbl_sampler_resume(&raw mut sampler);
            assert!(
                fbl_sampler_pause(&raw const sampler) == 0 && fbl_sampler_begin(&raw mut sampler)
            );
            assert!(!fbl_sampler_begin(ptr::null_mut()) && fbl_sampler_pause(ptr::null()) > 0);
            fbl_sampler_read(ptr::null_mut(), 1);
            fbl_sampler_resume(ptr::null_mut());
        }
    }
}
