//! Cargo's description of the workspace, and the calls of cargo.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// The workspace around the current directory, not a path that is compiled in, so that one built xtask can check
/// a scratch copy of the tree. Needs neither network nor a lock file.
pub(crate) fn find() -> Result<Metadata> {
    MetadataCommand::new().no_deps().exec().context("no workspace here: run this in the checkout")
}

/// The cargo that runs us, so that a `+toolchain` given by the caller holds for every command.
pub(crate) fn cargo(workspace: &Metadata) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(&workspace.workspace_root);
    command
}
