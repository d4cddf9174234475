//! How often this thread has blocked, which distinguishes a read that waited for the disk from one during which the
//! processor ran another thread.
//!
//! Both take long. But a thread that waits for a page gives up the processor itself, and the kernel counts that as a
//! voluntary context switch; a thread that is preempted, or whose virtual machine is, has none.
//!
//! Source:      getrusage(2) for `ru_nvcsw`; `__schedule` of the Linux kernel for what it counts.

#![expect(unsafe_code, reason = "getrusage is called through C")]

/// Voluntary context switches of this thread so far. `None` if the system does not count them: other systems than
/// Linux, and emulations of it, where a thread that lost the processor has no context switch of either kind.
#[cfg(target_os = "linux")]
pub(crate) fn times_blocked() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable and of the type that the call fills; zeros are valid values of its fields.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    let is_counted = usage.ru_nvcsw > 0 || usage.ru_nivcsw > 0;
    u64::try_from(usage.ru_nvcsw).ok().filter(|_| is_counted)
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn times_blocked() -> Option<u64> {
    None
}
