//! The process that created a queue or a pool.
//!
//! A child of `fork` has copies of a queue's memory, but none of its threads. Locks are in the state that some thread
//! left them in, and the child has no share in what the kernel shares with the parent for io_uring and AIO. Using
//! such a copy fails at best. So queues, and pools over them, remember their process and refuse to work in another.
//!
//! A process is identified by the number of forks between it and the first process that had such an object: a handler
//! that `fork` calls in the child counts them. An id would take a system call of 50 to 250 ns for each page miss, and is
//! not unique: a child in a new PID namespace may have its parent's. A child that is created otherwise (directly by
//! clone(2)) is not detected.
//!
//! Source:      pthread_atfork(3); pid_namespaces(7).
#![expect(unsafe_code, reason = "the handler of fork, for which there is no safe interface")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks since the handler was registered.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that created an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn this() -> Owner {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler increments an atomic and does nothing else, which is allowed in any child.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            assert_eq!(
                refused, 0,
                "pthread_atfork fails only where there is no memory for a handler"
            );
        });
        Owner(GENERATION.load(Ordering::Relaxed))
    }

    /// True in that process, false in a child forked from it.
    #[inline]
    pub fn is_this(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

unsafe extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
