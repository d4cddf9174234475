//! The process that something belongs to.
//!
//! A child of `fork` has copies of a queue's memory, but none of its threads, locks as some thread held them then, and, of
//! io_uring and AIO, no part in what the kernel shares with the parent. What it does with such a copy is at best in vain.
//! So queues, and pools over them, remember the number of their process and refuse another.
//!
//! Asking for that number is a system call of 50 to 250 ns, too much for each page that is missed. It is remembered, and
//! forgotten by a handler that `fork` calls in the child. A child made otherwise (by clone(2) itself) is not noticed.
//!
//! Source:      pthread_atfork(3); glibc remembered the number in the same way up to 2.24.
#![expect(unsafe_code, reason = "the handler of fork, for which there is no safe interface")]

use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of this process; 0: not asked for since it was forked.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The process that made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn this() -> Owner {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler stores to an atomic and does nothing else, which a child of any process may do.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
            assert_eq!(
                refused, 0,
                "pthread_atfork fails only where there is no memory for a handler"
            );
        });
        Owner(number())
    }

    /// True in the process that it is, false in a child that was forked from it.
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
