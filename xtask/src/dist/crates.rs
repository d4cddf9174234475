//! The crates for crates.io: packaged by cargo, each built from its package alone, in the order of publication.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context as _, Result};
use cargo_metadata::Package;

use super::{Dist, copy, succeed};
use crate::workspace;

pub(super) fn make(dist: &Dist) -> Result<()> {
    let order = publication_order(&dist.workspace.packages);
    forget_packages()?;
    let target = dist.workspace.target_directory.join("dist-crates");
    // All that `cargo publish` does before it uploads; then the files, which it keeps to itself.
    for command in [["publish", "--dry-run"], ["package", "--no-verify"]] {
        let mut cargo = workspace::cargo(&dist.workspace);
        // A checkout that is packaged may have changes.
        cargo.args(command).arg("--allow-dirty").arg("--target-dir").arg(&target);
        for package in &order {
            cargo.args(["--package", &package.name]);
        }
        succeed(&mut cargo)?;
    }
    for package in &order {
        let file = format!("{}-{}.crate", package.name, package.version);
        copy(target.join("package").join(file).as_std_path(), &dist.out)?;
    }
    let names: Vec<&str> = order.iter().map(|it| it.name.as_str()).collect();
    fs::write(dist.out.join("crates.txt"), names.join("\n") + "\n")?;
    Ok(())
}

/// Cargo unpacks a package only once for each version, so a later run would build with the contents of an earlier run.
fn forget_packages() -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no home")?;
    for registry in fs::read_dir(home.join("registry/src"))? {
        for package in fs::read_dir(registry?.path())? {
            let package = package?;
            if package.file_name().to_string_lossy().starts_with("forebay-") {
                fs::remove_dir_all(package.path())?;
            }
        }
    }
    Ok(())
}

/// Those that are published, each after those of them that it depends on.
fn publication_order(packages: &[Package]) -> Vec<&Package> {
    let mut left: Vec<&Package> =
        packages.iter().filter(|it| it.publish.as_ref().is_none_or(|it| !it.is_empty())).collect();
    left.sort_by(|a, b| a.name.cmp(&b.name));
    let mut order: Vec<&Package> = Vec::new();
    while !left.is_empty() {
        let waits = |package: &Package| {
            let needs = |name: &str| {
                package
                    .dependencies
                    .iter()
                    .any(|it| it.name == name && it.path.is_some() && it.req.to_string() != "*")
            };
            left.iter().any(|other| needs(&other.name))
        };
        // cargo refuses circles, so one of them waits for no other.
        let Some(next) = left.iter().position(|it| !waits(it)) else { break };
        order.push(left.remove(next));
    }
    order
}
