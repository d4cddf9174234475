//! Dependencies point down only: lab, engine, pool, io.
//!
//! Read from cargo's own view of the manifests, so that a renamed or platform-only dependency
//! counts as well.

use std::path::Path;

use anyhow::Result;
use cargo_metadata::{DependencyKind, TargetKind};

use super::Finding;
use crate::workspace;

/// Each package of ours, and the packages of ours that it may depend on.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("forebay-io", &[]),
    ("forebay-lookahead", &[]),
    ("forebay", &["forebay-lookahead", "forebay-io"]),
    ("forebay-sim", &["forebay-io"]),
    ("forebay-emulate", &[]),
    ("forebay-engine", &["forebay", "forebay-io"]),
    ("forebay-lab", &["forebay-engine", "forebay-emulate", "forebay-sim", "forebay", "forebay-io"]),
    ("forebay-compare", &["forebay-engine", "forebay", "forebay-io"]),
    ("xtask", &[]),
];

/// May be a dev-dependency of any package: it only implements io's traits.
const TEST_DISK: &str = "forebay-sim";

/// What the rules need to know of a workspace package.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// `crates/io/Cargo.toml`
    pub(crate) manifest: String,
    /// The source files at which its libraries and programs start.
    pub(crate) roots: Vec<String>,
    /// Name, and whether it is a dev-dependency.
    pub(crate) dependencies: Vec<(String, bool)>,
}

/// Asks cargo for the packages of the workspace at `root`.
///
/// # Errors
/// A manifest is broken.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = workspace::metadata(root)?;
    let base = &metadata.workspace_root;
    let relative = |path: &cargo_metadata::camino::Utf8Path| {
        path.strip_prefix(base).unwrap_or(path).to_string()
    };
    let packages = metadata.packages.iter().map(|package| {
        let program = |kinds: &[TargetKind]| {
            let roots = [TargetKind::Lib, TargetKind::Bin, TargetKind::ProcMacro];
            kinds.iter().any(|kind| roots.contains(kind))
        };
        let targets = package.targets.iter().filter(|target| program(&target.kind));
        let dependencies = package.dependencies.iter();
        Package {
            name: package.name.to_string(),
            manifest: relative(&package.manifest_path),
            roots: targets.map(|target| relative(&target.src_path)).collect(),
            dependencies: dependencies
                .map(|one| (one.name.clone(), one.kind == DependencyKind::Development))
                .collect(),
        }
    });
    Ok(packages.collect())
}

/// A package depends only on packages below it; `text` is its manifest, for line numbers.
pub(crate) fn down_only(package: &Package, text: &str, layers: &[(&str, &[&str])]) -> Vec<Finding> {
    let Some((_, below)) = layers.iter().find(|(name, _)| *name == package.name) else {
        let advice = format!("give `{}` its place in xtask/src/tidy/layers.rs", package.name);
        return vec![Finding::new(&package.manifest, 1, "layers", advice)];
    };
    let mut findings = Vec::new();
    for (name, dev) in &package.dependencies {
        let ours = layers.iter().any(|(known, _)| known == name);
        let allowed = below.contains(&name.as_str()) || (*dev && name == TEST_DISK);
        if ours && !allowed {
            let line = text.lines().position(|line| line.starts_with(name.as_str()));
            let advice = format!("`{}` may not depend on `{name}`: it is not below", package.name);
            findings.push(Finding::new(
                &package.manifest,
                line.map_or(1, |index| index + 1),
                "layers",
                advice,
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &[(&str, bool)]) -> usize {
        let package = Package {
            name: name.to_owned(),
            manifest: "crates/x/Cargo.toml".to_owned(),
            roots: Vec::new(),
            dependencies: dependencies.iter().map(|(name, dev)| (name.to_string(), *dev)).collect(),
        };
        down_only(&package, "", LAYERS).len()
    }

    #[test]
    fn io_depends_on_none_of_ours() {
        assert_eq!(check("forebay-io", &[("libc", false), ("tempfile", true)]), 0);
        assert_eq!(check("forebay-io", &[("forebay", false)]), 1);
        assert_eq!(check("forebay-io", &[("forebay-lab", true)]), 1);
    }

    #[test]
    fn the_pool_depends_only_on_io_and_lookahead() {
        assert_eq!(check("forebay", &[("forebay-io", false), ("forebay-sim", true)]), 0);
        assert_eq!(check("forebay", &[("forebay-sim", false)]), 1);
        assert_eq!(check("forebay", &[("forebay-engine", true)]), 1);
    }

    #[test]
    fn nothing_depends_on_the_lab() {
        for (name, _) in LAYERS {
            assert_eq!(check(name, &[("forebay-lab", false)]), 1, "{name}");
        }
    }

    #[test]
    fn a_new_package_needs_a_place() {
        assert_eq!(check("forebay-extra", &[]), 1);
    }

    #[test]
    fn the_finding_names_the_line() {
        let package = Package {
            name: "forebay-io".to_owned(),
            manifest: "crates/io/Cargo.toml".to_owned(),
            roots: Vec::new(),
            dependencies: vec![("forebay-lab".to_owned(), false)],
        };
        let text = "[dependencies]\nlibc = \"1\"\nforebay-lab.workspace = true\n";
        assert_eq!(down_only(&package, text, LAYERS)[0].line, 3);
    }
}
