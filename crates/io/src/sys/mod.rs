//! What differs between operating systems, behind one set of functions.
//!
//! Linux in full; everywhere else, and on Linux with `--cfg forebay_portable`, what POSIX and
//! macOS offer. A thing that does not exist on a system is `Err(EOPNOTSUPP)` there, never a
//! pretended success.

#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
pub(crate) use portable::*;

mod answers;
mod file_size;
pub(crate) use answers::DirectSupport;
pub use file_size::survive_file_size_limit;
