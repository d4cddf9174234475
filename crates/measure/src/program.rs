//! System programs: found where the system keeps its tools, and their messages returned when they fail.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::bad_input;

/// Runs a system program, and returns its output.
///
/// # Errors
/// [`BadInput`](crate::BadInput): it is missing (with the Debian package that has it). Or it failed, with its message.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    // The user's PATH, and the directories of the system's own tools.
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
    let mut command = Command::new(program);
    // Its messages in English, which the code can match.
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").env("PATH", path);
    let output = match command.output() {
        // Permission denied: a directory of the path that this user may not enter.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            let package = package_of(program);
            bad_input!("{program} is missing; install the package {package} (its name in Debian)")
        }
        output => output.with_context(|| format!("{program} cannot be started"))?,
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    anyhow::ensure!(!said.is_empty(), "{program}: {}", output.status);
    anyhow::bail!("{}", said.join("; "))
}

/// The Debian package that contains `program`.
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
    fn a_program_that_is_missing_is_reported_with_its_package() {
        let error = run("mkfs.nothing", &[]).unwrap_err();
        assert!(error.is::<crate::BadInput>());
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
