//! Tests run as an ordinary user, when CI itself runs as root.
//!
//! Root opens what others may not, has no memlock limit and ignores file modes, so a passing run
//! as root says little about other users. The test binaries that root has built run as uid and gid
//! 65534 without supplementary groups (the standard library drops them together with the uid), in a
//! temporary directory of that user, which is also its HOME and TMPDIR.
//!
//! A target directory below a closed home is out of that user's reach, so the binaries are copied into its
//! directory. An integration test has the path of the program under test compiled in; when that is out of
//! reach the binary is skipped, said and counted.
//! Documentation examples have no binary and do not run here.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::binaries::Test;
use super::run::Run;

/// The user and group `nobody` on every Linux we know of; they own nothing.
const NOBODY: u32 = 65534;

/// The user, with a private directory.
pub(super) struct OrdinaryUser {
    home: TempDir,
}

impl OrdinaryUser {
    /// The user; none, with a message, when a step cannot run as such here.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(super) fn new(run: &mut Run) -> Result<Option<Self>> {
        let home = tempfile::Builder::new().prefix("forebay-user-").tempdir()?;
        let (path, uid) = (home.path(), fs::metadata(&home)?.uid());
        if uid != 0 {
            println!("nothing to do: the steps before already ran as uid {uid}");
            return Ok(None);
        }
        if chown(path, Some(NOBODY), Some(NOBODY)).is_err() || !reaches(path) {
            let path = path.display();
            let reason = format!("uid {NOBODY} cannot be had, or cannot enter {path}");
            run.skip("the whole step", &reason);
            return Ok(None);
        }
        Ok(Some(Self { home }))
    }

    /// The command that runs `test`; none, with a message, if the user cannot.
    ///
    /// # Errors
    /// The binary cannot be copied.
    pub(super) fn command(
        &self,
        run: &mut Run,
        test: &Test<'_>,
        arguments: &[&str],
    ) -> Result<Option<Command>> {
        if let Some(program) = test.programs().find(|program| !reaches(program)) {
            let program = program.display();
            let reason = format!("uid {NOBODY} cannot reach {program}, which is compiled in");
            run.skip("a whole test binary", &reason);
            return Ok(None);
        }
        let home = self.home.path();
        let copy = home.join(test.path.file_name().context("a binary without a name")?);
        fs::copy(test.path, &copy)?;
        fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
        let mut command = Command::new(copy);
        test.prepare(&mut command);
        as_user(&mut command).args(arguments).current_dir(home);
        command
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("USER", "nobody")
            .env("LOGNAME", "nobody");
        command.env_remove("XDG_RUNTIME_DIR");
        Ok(Some(command))
    }
}

fn as_user(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

/// Whether the user may execute the file, or enter the directory, at `path`.
fn reaches(path: &Path) -> bool {
    let asked = as_user(Command::new("test").arg("-x").arg(path).current_dir("/")).status();
    asked.is_ok_and(|status| status.success())
}
