//! The source of the extension for PostgreSQL, for those who build it without this repository: PGXN, and Debian's
//! packagers. What it needs of the workspace is in it, and nothing that a build would have to fetch.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Dist, copy, output, succeed};

const EXTENSION: &str = "integrations/postgres";
const CRATES: [&str; 2] = ["lookahead", "lookahead-c"];

/// Lays the source out in a separate directory, for `purpose`.
pub(super) fn lay_out(dist: &Dist, purpose: &str) -> Result<PathBuf> {
    let tree = dist.stage(purpose)?.join(format!("forebay-{}", dist.version));
    fs::create_dir_all(&tree)?;
    let extension = dist.root().join(EXTENSION);
    for name in
        ["META.json", "Makefile", "server.mk", "forebay.control", "expected", "specs", "sql", "src"]
    {
        copy(&extension.join(name), &tree)?;
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        copy(&dist.root().join(name), &tree)?;
    }
    fs::copy(dist.root().join("docs/postgresql.md"), tree.join("README.md"))?;
    let members = CRATES.map(|name| format!("\"crates/{name}\"")).join(", ");
    let workspace = fs::read_to_string(dist.root().join("Cargo.toml"))?;
    let workspace =
        sections(&workspace, |it| it.starts_with("[workspace") || it == "[profile.release]")
            .lines()
            .filter(|line| !line.starts_with("default-members"))
            .map(|line| match line.starts_with("members = ") {
                true => format!("members = [{members}]\n"),
                false => format!("{line}\n"),
            })
            .collect::<String>();
    fs::write(tree.join("Cargo.toml"), workspace)?;
    for name in CRATES {
        let (from, to) = (dist.root().join("crates").join(name), tree.join("crates").join(name));
        fs::create_dir_all(&to)?;
        copy(&from.join("src"), &to)?;
        if from.join("include").exists() {
            copy(&from.join("include"), &to)?;
        }
        let manifest = fs::read_to_string(from.join("Cargo.toml"))?;
        fs::write(to.join("Cargo.toml"), sections(&manifest, |it| it != "[dev-dependencies]"))?;
    }
    // Fails if something would have to be fetched.
    let mut lock = Command::new("cargo");
    succeed(lock.current_dir(&tree).args(["generate-lockfile", "--offline", "--quiet"]))?;
    Ok(tree)
}

/// The zip that PGXN takes. Its one directory has the name of the distribution and the version.
pub(super) fn pgxn(dist: &Dist) -> Result<()> {
    let tree = lay_out(dist, "pgxn")?;
    let directory = format!("forebay-{}", dist.version);
    let zip = dist.out.join(format!("{directory}.zip"));
    let mut python = Command::new("python3");
    python.current_dir(tree.parent().context("no directory around the source")?);
    output(python.args(["-m", "zipfile", "-c"]).arg(zip).arg(directory)).map(drop)
}

/// The sections of a manifest whose headers `keep` accepts, in their order.
fn sections(manifest: &str, keep: impl Fn(&str) -> bool) -> String {
    let mut kept = true;
    let mut text = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            kept = keep(line);
        }
        if kept {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn a_section_is_kept_with_its_lines_or_left_out() {
        let manifest = "# first\n[package]\nname = \"a\"\n\n[dev-dependencies]\nb = \"1\"\n[lints]\nworkspace = true\n";
        let kept = sections(manifest, |it| it != "[dev-dependencies]");
        assert_eq!(kept, "# first\n[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n");
    }
}
