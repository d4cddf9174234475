//! The differences between operating systems, behind one set of functions.
//!
//! Linux has all features; other systems, and Linux with `--cfg forebay_portable`, have what POSIX and macOS offer. A
//! feature that a system lacks returns `Err(EOPNOTSUPP)`, never a false success.

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
