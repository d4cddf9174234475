//! Tests run as an ordinary user, when CI itself runs as root.
//!
//! Root opens what others may not, has no memlock limit and ignores file modes, so a green run
//! as root says little about anyone else's. The test binaries that root has built run as uid and gid
//! 65534 without supplementary groups (the standard library drops them together with the uid), in a
//! temporary directory of that user's own, which is also its HOME and TMPDIR.
//!
//! A target directory below a closed home is out of that user's reach: the binaries are then
//! copied into its directory. An integration test has the path of the program under test
//! compiled in, so a copy would not find it; that binary is skipped, said and counted.
//! Documentation examples have no binary and do not run here.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::Context;
use super::binaries::{Built, TestBinary};
use super::child::{self, SkipFile};
use super::report::Outcome;
use super::steps::not_here;

/// The user and group `nobody` on every Linux we know of; they own nothing.
const NOBODY: u32 = 65534;

/// The user, with a directory of its own.
pub(super) struct OrdinaryUser {
    home: TempDir,
}

impl OrdinaryUser {
    /// The user, or the outcome of a step that cannot run as such here.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(super) fn new() -> Result<Result<Self, Outcome>> {
        let uid = fs::metadata("/proc/self").context("cannot read /proc/self")?.uid();
        if uid != 0 {
            println!("nothing to do: the steps before already ran as uid {uid}");
            return Ok(Err(Outcome::default()));
        }
        if let Err(error) = as_user(&mut Command::new("true")).status() {
            return Ok(Err(not_here(&format!("this root cannot become uid {NOBODY}: {error}"))));
        }
        let home = tempfile::Builder::new().prefix("forebay-ci-").tempdir()?;
        chown(home.path(), Some(NOBODY), Some(NOBODY))
            .with_context(|| format!("cannot give {} away", home.path().display()))?;
        if !reaches(home.path()) {
            let reason = format!("uid {NOBODY} cannot enter {}", home.path().display());
            return Ok(Err(not_here(&reason)));
        }
        Ok(Ok(Self { home }))
    }

    /// Runs `command`, which starts `test`.
    ///
    /// # Errors
    /// A test fails.
    pub(super) fn run(
        &self,
        context: &Context,
        built: &Built,
        test: &TestBinary,
        command: &Command,
    ) -> Result<Outcome> {
        let home = self.home.path();
        let name = test.path.file_name().context("a binary without a name")?.to_string_lossy();
        if test.integration
            && let Some(program) = built.programs(test).find(|program| !reaches(&program.path))
        {
            let path = program.path.display();
            let reason = format!("uid {NOBODY} cannot reach {path}, which is compiled in");
            println!("skipped: {name}: {reason}");
            let skips = vec![format!("{name}: all of it: {reason}")];
            return Ok(Outcome { counts: None, skips });
        }
        let path =
            if reaches(&test.path) { test.path.clone() } else { copy_into(home, &test.path)? };
        let skips = SkipFile::create_at(home.join("skips.txt"))?;
        chown(home.join("skips.txt"), Some(NOBODY), Some(NOBODY))
            .context("cannot give away skips.txt")?;

        let mut here = Command::new(path);
        here.args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                here.env(name, value);
            }
        }
        as_user(&mut here).current_dir(home).env_remove("XDG_RUNTIME_DIR");
        here.env("HOME", home).env("TMPDIR", home).env("USER", "nobody").env("LOGNAME", "nobody");
        skips.tell(&mut here);
        let mut outcome = child::run(context, &mut here)?;
        outcome.skips = skips.read()?;
        Ok(outcome)
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

fn copy_into(home: &Path, binary: &Path) -> Result<PathBuf> {
    let name = binary.file_name().context("a binary without a name")?;
    let copy = home.join(name);
    fs::copy(binary, &copy).with_context(|| format!("cannot copy {}", binary.display()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    println!("copied: {} is out of uid {NOBODY}'s reach", binary.display());
    Ok(copy)
}
