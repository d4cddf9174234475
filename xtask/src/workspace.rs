//! Where the workspace is, and what cargo says about it.
//!
//! The root is looked up from the current directory rather than compiled in, so that one built
//! xtask can check a scratch copy of the tree.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

/// Finds the nearest directory upwards whose Cargo.toml declares a workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let start = env::current_dir().context("cannot tell the current directory")?;
    for dir in start.ancestors() {
        if let Ok(manifest) = fs::read_to_string(dir.join("Cargo.toml"))
            && manifest.lines().any(|line| line.trim() == "[workspace]")
        {
            return Ok(dir.to_path_buf());
        }
    }
    bail!("no workspace above {}: run this inside the checkout", start.display())
}

/// Asks cargo for the workspace's own packages; needs neither network nor a lock file.
pub(crate) fn metadata(root: &Path) -> Result<Metadata> {
    MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata failed")
}

/// The cargo that runs us, so that a `+toolchain` given by the caller holds for every step.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}
