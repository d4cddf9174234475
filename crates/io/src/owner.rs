//! The process that created a queue or a pool.
//!
//! A child of `fork` has copies of a queue's memory, but none of its threads. Locks are in the state that some thread
//! left them in, and the child has no share in what the kernel shares with the parent for io_uring and AIO. Using
//! such a copy fails at best. So queues, and pools over them, remember the id of their process and refuse to work in
//! another.
//!
//! Getting that id is a system call of 50 to 250 ns, too much for each page miss. So it is cached, and a handler that
//! `fork` calls in the child clears the cache. A child that is created otherwise (directly by clone(2)) is not
//! detected.
//!
//! Source:      pthread_atfork(3); glibc cached the id in the same way up to 2.24.
#![expect(unsafe_code, reason = "the handler of fork, for which there is no safe interface")]

use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The id of this process; 0: not queried since the fork.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The process that created an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn this() -> Owner {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler stores to an atomic and does nothing else, which is allowed in any child.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
            assert_eq!(
                refused, 0,
                "pthread_atfork fails only where there is no memory for a handler"
            );
        });
        Owner(number())
    }

    /// True in that process, false in a child forked from it.
    #[inline]
    pub fn is_this(self) -> bool {
        self.0 == number()
    }
}

#[inline]
fn number() -> u32 {
    match NUMBER.load(Ordering::Relaxed) {
        0 => ask(),
        number => number,
    }
}

#[cold]
fn ask() -> u32 {
    let number = process::id();
    NUMBER.store(number, Ordering::Relaxed);
    number
}

unsafe extern "C" fn forget() {
    NUMBER.store(0, Ordering::Relaxed);
}
