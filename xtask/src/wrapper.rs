//! A cfg for our own crates alone, without building their dependencies again.
//!
//! RUSTFLAGS reach every crate, so that another flag builds everything anew. A wrapper around rustc that cargo
//! uses for the workspace's members alone (RUSTC_WORKSPACE_WRAPPER) does not: dependencies stay as they are.
//! Cargo tells the members' artifacts apart by the wrapper's path, hence one wrapper for each cfg.
//!
//! Cargo asks the wrapper for the target's cfgs, too, and is not told of ours: a manifest's
//! `[target.'cfg(...)'.dependencies]` would leave some out, and then others have other features and are built
//! again. What needs that section (loom) takes RUSTFLAGS and a target directory of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Lets `command`, a cargo, build the workspace's members with `cfg`, an identifier.
///
/// # Errors
/// The wrapper cannot be written into the target directory.
pub(crate) fn with_cfg(command: &mut Command, target: &Path, cfg: &str) -> Result<()> {
    let directory = target.join("wrappers");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(cfg);
    let script = format!(
        "#!/bin/sh\n\
         case \"$*\" in *'--crate-name ___ '*) exec \"$@\" ;; esac\n\
         exec \"$@\" --cfg {cfg}\n"
    );
    // Not written again: rustc may be running through it, and a program that runs cannot be written.
    if fs::read_to_string(&path).ok().as_deref() != Some(script.as_str()) {
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} a program", path.display()))?;
    }
    command.env("RUSTC_WORKSPACE_WRAPPER", path);
    Ok(())
}
