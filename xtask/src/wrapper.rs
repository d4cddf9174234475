//! Lints, or a cfg, for the workspace's crates alone, without building their dependencies again.
//!
//! RUSTFLAGS apply to every crate, so that another flag rebuilds everything. A wrapper around rustc that cargo
//! uses for the workspace's members alone (RUSTC_WORKSPACE_WRAPPER) does not: dependencies stay as they are.
//! Cargo distinguishes the members' artifacts by the wrapper's path, hence one wrapper for each purpose.
//!
//! `cargo clippy` is such a wrapper itself, for a build that only checks, and so compiles each dependency a second time.
//! Here clippy's driver makes the build that the tests run.
//!
//! Cargo also queries the wrapper for the target's cfgs, and the wrapper does not report this one: a manifest's
//! `[target.'cfg(...)'.dependencies]` would leave some dependencies out, so others have other features and are rebuilt.
//! A crate that needs that section (loom) takes RUSTFLAGS and a separate target directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use cargo_metadata::Metadata;
use cargo_metadata::camino::Utf8PathBuf;

/// The environment variable that names a wrapper to cargo.
pub(crate) const VARIABLE: &str = "RUSTC_WORKSPACE_WRAPPER";

/// The wrapper that adds `cfg`, an identifier, and treats warnings as errors.
///
/// # Errors
/// It cannot be written into the target directory.
pub(crate) fn for_cfg(workspace: &Metadata, cfg: &str) -> Result<Utf8PathBuf> {
    written(workspace, cfg, &format!("\"$@\" --cfg {cfg}"))
}

/// The wrapper that lints with clippy, and treats warnings as errors.
///
/// # Errors
/// It cannot be written into the target directory.
pub(crate) fn for_lints(workspace: &Metadata) -> Result<Utf8PathBuf> {
    written(workspace, "clippy", "clippy-driver \"$@\"")
}

fn written(workspace: &Metadata, name: &str, command: &str) -> Result<Utf8PathBuf> {
    let directory = workspace.target_directory.join("wrappers");
    let path = directory.join(name);
    let script = format!(
        "#!/bin/sh\n\
         case \"$*\" in *'--crate-name ___ '*) exec \"$@\" ;; esac\n\
         exec {command} -D warnings\n"
    );
    // Not written again: rustc may be running through it, and a running program cannot be written.
    if fs::read_to_string(&path).ok().as_deref() != Some(script.as_str()) {
        let cannot = || format!("cannot write {path}");
        fs::create_dir_all(&directory).with_context(cannot)?;
        fs::write(&path, script).with_context(cannot)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).with_context(cannot)?;
    }
    Ok(path)
}
