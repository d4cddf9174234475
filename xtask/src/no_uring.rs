//! A seccomp filter under which io_uring does not exist, or is forbidden.
//!
//! Container runtimes forbid io_uring (EPERM or ENOSYS from seccomp) and so does the sysctl
//! kernel.io_uring_disabled. The filter makes the three system calls fail in the same way. It is
//! inherited through fork and exec, needs no privilege (the kernel requires no_new_privs instead,
//! which seccompiler sets), and cannot be removed. `strace -e inject` was the other
//! candidate: it stops at every system call and needs ptrace, which containers may forbid.
//!
//! Limits: a set-user-ID program (sudo) under the filter stays an ordinary one, and a program of
//! another architecture (32-bit on 64-bit) is killed.
//! Failure: elsewhere than on Linux, and on kernels without seccomp, an error; never a run
//! without the filter.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};

/// The error of a blocked io_uring call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Errno {
    /// Forbidden, as by Docker's default profile
    #[value(name = "EPERM", alias = "eperm")]
    Eperm,
    /// Not there, as in an old kernel
    #[value(name = "ENOSYS", alias = "enosys")]
    Enosys,
}

/// Becomes `command` with io_uring blocked; returns only on failure.
///
/// # Errors
/// The filter is refused, or the command cannot be started.
pub(crate) fn replace_process(command: &[OsString], errno: Errno) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command given")?;
    block(errno)?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.to_string_lossy()))
}

/// Blocks io_uring in this thread, and in the processes it starts.
#[cfg(target_os = "linux")]
fn block(errno: Errno) -> Result<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    let number = match errno {
        Errno::Eperm => libc::EPERM,
        Errno::Enosys => libc::ENOSYS,
    };
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let filter = SeccompFilter::new(
        // No rule for a call means: with any arguments.
        calls.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(number.unsigned_abs()),
        TargetArch::try_from(std::env::consts::ARCH)
            .context("no seccomp filter for this processor")?,
    )
    .context("cannot describe the seccomp filter")?;
    let program = BpfProgram::try_from(filter).context("cannot compile the seccomp filter")?;
    seccompiler::apply_filter(&program)
        .context("the kernel refused the seccomp filter (is CONFIG_SECCOMP_FILTER on?)")
}

#[cfg(not(target_os = "linux"))]
fn block(_errno: Errno) -> Result<()> {
    anyhow::bail!("no-uring needs Linux: only Linux has io_uring and seccomp")
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn setup_errno_under(errno: Errno) -> Option<i32> {
        std::thread::spawn(move || {
            block(errno).unwrap();
            let refused = io_uring::IoUring::new(4).err();
            refused.and_then(|error| error.raw_os_error())
        })
        .join()
        .unwrap()
    }

    #[test]
    fn setup_fails_with_the_chosen_errno() {
        assert_eq!(setup_errno_under(Errno::Eperm), Some(libc::EPERM));
        assert_eq!(setup_errno_under(Errno::Enosys), Some(libc::ENOSYS));
    }
}
