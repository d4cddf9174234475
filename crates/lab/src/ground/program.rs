//! Programs of the system: found where it keeps its own tools, and heard out when they fail.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};

/// Runs a program of the system, and gives what it printed.
///
/// # Errors
/// It is missing (with the Debian package that brings it), or it failed: what it said.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // For the words of its messages, and for tools that are in no user's path.
    command.env("LC_ALL", "C").env("PATH", search_path());
    // A directory of the path that this user may not enter makes a missing program one that is not permitted.
    let there = || std::env::split_paths(&search_path()).any(|path| path.join(program).exists());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if !there() => {
            let package = package_of(program);
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{program} is missing; install the package {package} (its name in Debian)"),
            )
        }
        kind => io::Error::new(kind, format!("{program} cannot be started: {error}")),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = said.collect::<Vec<_>>().join("; ");
    Err(io::Error::other(if said.is_empty() {
        format!("{program}: {}", output.status)
    } else {
        said
    }))
}

/// The user's, and where the system's own tools are.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

/// The Debian package that brings `program`.
fn package_of(program: &str) -> &str {
    match program {
        "fusermount3" => "fuse3",
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        "losetup" => "mount",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_told_with_its_package() {
        let error = run("mkfs.nothing", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("mkfs.nothing is missing"), "{error}");
        for (program, package) in [("fusermount3", "fuse3"), ("mkfs.xfs", "xfsprogs")] {
            assert_eq!(package_of(program), package);
        }
    }

    #[test]
    fn what_a_failing_program_said_is_the_error() {
        let script = "echo one >&2; echo >&2; echo two >&2; exit 3";
        let error = run("sh", &[OsStr::new("-c"), OsStr::new(script)]).unwrap_err();
        assert_eq!(error.to_string(), "one; two");
        let error = run("sh", &[OsStr::new("-c"), OsStr::new("exit 3")]).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let said = run("sh", &[OsStr::new("-c"), OsStr::new("echo $LC_ALL")]).unwrap();
        assert_eq!(said, "C\n");
    }
}
