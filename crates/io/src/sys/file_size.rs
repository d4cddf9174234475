//! Surviving the limit on file sizes (`ulimit -f`).
//!
//! A write, a truncation or a reservation past the limit sends SIGXFSZ, which ends the process. Only if the signal is
//! handled or ignored does the call fail with EFBIG. So if a program has left the signal at its default, it gets a
//! handler that does nothing. Ignoring the signal would also work, but programs that this process executes would
//! inherit that; they do not inherit a handler.
//!
//! Source:      setrlimit(2), signal(7), execve(2).
#![expect(unsafe_code, reason = "signal handlers, for which there is no safe interface")]

use std::sync::Once;

/// Makes the file size limit end a call with EFBIG instead of the process with SIGXFSZ, unless the program has its own
/// handler. Takes effect once per process; [`File::open`](crate::File::open) calls it for files that it opens for
/// writing.
pub fn survive_file_size_limit() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: a signal action of zeroes is valid: no flags, an empty mask, the default handler.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is changed; the current action is written to `before`.
        let found = unsafe { libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut before) };
        if found != 0 || before.sa_sigaction != libc::SIG_DFL {
            return;
        }
        // The rest of `before` is the default: no flags but this one, an empty mask.
        before.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        before.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler accesses nothing, so it may run at any moment on any thread.
        let set =
            unsafe { libc::sigaction(libc::SIGXFSZ, &raw const before, std::ptr::null_mut()) };
        tracing::debug!(set, "SIGXFSZ has a handler that does nothing");
    });
}

extern "C" fn nothing(_signal: libc::c_int) {}
