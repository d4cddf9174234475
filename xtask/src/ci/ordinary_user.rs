//! The tests of io, pool and lab run as an ordinary user, when CI itself runs as root.
//!
//! Root opens what others may not, has no memlock limit and ignores file modes, so a green run
//! as root says little about anyone else's. Cargo builds the test binaries as root and names
//! them; each then runs as uid and gid 65534 without supplementary groups (the standard library
//! drops them together with the uid), in a temporary directory of that user's own, which is also
//! its HOME and TMPDIR.
//!
//! A target directory below a closed home is out of that user's reach: the binaries are then
//! copied into its directory. An integration test has the path of the program under test
//! compiled in, so a copy would not find it; that binary is skipped, said and counted.
//! Documentation examples have no binary and do not run here.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Message, TargetKind};

use super::Context;
use super::child::{self, SkipFile};
use super::report::Outcome;
use super::steps::not_here;
use crate::workspace;

/// The user and group `nobody` on every Linux we know of; they own nothing.
const NOBODY: u32 = 65534;

struct TestBinary {
    path: PathBuf,
    package_dir: PathBuf,
    /// An integration test: knows the paths of its package's programs.
    integration: bool,
}

struct Built {
    tests: Vec<TestBinary>,
    /// Name, path and package directory of each program.
    programs: Vec<(String, PathBuf, PathBuf)>,
}

pub(super) fn run(context: &Context) -> Result<Outcome> {
    let uid = fs::metadata("/proc/self").context("cannot read /proc/self")?.uid();
    if uid != 0 {
        println!("nothing to do: the steps before already ran as uid {uid}");
        return Ok(Outcome::default());
    }
    if let Err(error) = as_user(&mut Command::new("true")).status() {
        return Ok(not_here(&format!("this root cannot become uid {NOBODY}: {error}")));
    }
    let built = build(context)?;
    let home = tempfile::Builder::new().prefix("forebay-ci-").tempdir()?;
    chown(home.path(), Some(NOBODY), Some(NOBODY))
        .with_context(|| format!("cannot give {} away", home.path().display()))?;
    if !reaches(home.path()) {
        let reason = format!("uid {NOBODY} cannot enter {}", home.path().display());
        return Ok(not_here(&reason));
    }
    let mut outcome = Outcome::default();
    for test in &built.tests {
        outcome.add(run_one(context, &built, test, home.path())?);
    }
    Ok(outcome)
}

fn as_user(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

/// Whether the user may execute the file, or enter the directory, at `path`.
fn reaches(path: &Path) -> bool {
    let asked = as_user(Command::new("test").arg("-x").arg(path).current_dir("/")).status();
    asked.is_ok_and(|status| status.success())
}

fn build(context: &Context) -> Result<Built> {
    let mut command = workspace::cargo(&context.root);
    command.args(["test", "--no-run", "-p", "forebay-io", "-p", "forebay", "-p", "forebay-lab"]);
    command.arg("--message-format=json-render-diagnostics");
    child::prepare(&mut command);
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = cargo.stdout.take().context("cargo has no standard output")?;
    let mut built = Built { tests: Vec::new(), programs: Vec::new() };
    for message in Message::parse_stream(BufReader::new(output)) {
        let Message::CompilerArtifact(made) = message.context("cannot read cargo's output")? else {
            continue;
        };
        let Some(path) = made.executable else {
            continue;
        };
        let path = path.into_std_path_buf();
        let package_dir = made.manifest_path.parent().context("a package without a directory")?;
        let package_dir = package_dir.as_std_path().to_path_buf();
        if made.profile.test {
            let integration = made.target.kind.contains(&TargetKind::Test);
            built.tests.push(TestBinary { path, package_dir, integration });
        } else if made.target.kind.contains(&TargetKind::Bin) {
            built.programs.push((made.target.name, path, package_dir));
        }
    }
    let status = cargo.wait().context("cannot wait for cargo")?;
    if !status.success() || built.tests.is_empty() {
        bail!("cargo test --no-run: {status}, {} test binaries", built.tests.len());
    }
    Ok(built)
}

fn run_one(context: &Context, built: &Built, test: &TestBinary, home: &Path) -> Result<Outcome> {
    let name = test.path.file_name().context("a binary without a name")?.to_string_lossy();
    let programs: Vec<_> =
        built.programs.iter().filter(|(_, _, dir)| *dir == test.package_dir).collect();
    if test.integration
        && let Some((_, program, _)) = programs.iter().find(|(_, path, _)| !reaches(path))
    {
        let reason =
            format!("uid {NOBODY} cannot reach {}, which is compiled in", program.display());
        println!("skipped: {name}: {reason}");
        return Ok(Outcome { counts: None, skips: vec![format!("{name}: all of it: {reason}")] });
    }
    let path = if reaches(&test.path) { test.path.clone() } else { copy_into(home, &test.path)? };
    let skips = SkipFile::create_at(home.join("skips.txt"))?;
    chown(home.join("skips.txt"), Some(NOBODY), Some(NOBODY))
        .context("cannot give away skips.txt")?;

    let mut command = Command::new(path);
    as_user(&mut command).current_dir(home);
    command.env("HOME", home).env("TMPDIR", home).env("USER", "nobody").env("LOGNAME", "nobody");
    command.env_remove("XDG_RUNTIME_DIR").env("CARGO_MANIFEST_DIR", &test.package_dir);
    for (program, path, _) in programs {
        command.env(format!("CARGO_BIN_EXE_{program}"), path);
    }
    skips.tell(&mut command);
    let mut outcome = child::run(context, &mut command)?;
    outcome.skips = skips.read()?;
    Ok(outcome)
}

fn copy_into(home: &Path, binary: &Path) -> Result<PathBuf> {
    let name = binary.file_name().context("a binary without a name")?;
    let copy = home.join(name);
    fs::copy(binary, &copy).with_context(|| format!("cannot copy {}", binary.display()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    println!("copied: {} is out of uid {NOBODY}'s reach", binary.display());
    Ok(copy)
}
