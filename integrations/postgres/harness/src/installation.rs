//! The PostgreSQL installations of this machine, and private copies of them with the extension inside.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// An installation: a server, the headers and PGXS of one version.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Its `pg_config`.
    pub pg_config: PathBuf,
    /// Its major version, such as 15.
    pub major: u32,
    /// Its version as it says it, such as `PostgreSQL 15.20 (Debian 15.20-0+deb12u1)`.
    pub version: String,
    /// The directory of its postgres.h.
    pub headers: PathBuf,
    programs: PathBuf,
    libraries: PathBuf,
    shared: PathBuf,
}

/// What [`find`] found: what is usable, and for the rest a sentence each.
#[derive(Debug, Default)]
pub struct Found {
    /// By version, one for each.
    pub installations: Vec<Installation>,
    /// `path: what is missing there`.
    pub unusable: Vec<String>,
}

/// The extension's sources, and a directory in which to build them.
#[derive(Debug, Clone)]
pub struct Extension {
    /// The directory of its Makefile.
    pub sources: PathBuf,
    /// Made where it is missing; the Makefile separates the objects of several servers.
    pub build: PathBuf,
    /// Variables for make, such as `COPT=-O0`.
    pub variables: Vec<String>,
}

/// Looks for installations: at the `pg_config`s of `configured`, colon-separated, or, where that is none, below
/// /usr/lib/postgresql. A build of the extension needs a C compiler and make, which are looked for too.
pub fn find(configured: Option<&OsStr>) -> Found {
    let mut found = Found::default();
    for tool in ["make", "cc"] {
        let mut asked = Command::new(tool);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !asked.status().is_ok_and(|it| it.success()) {
            found.unusable.push(format!("{tool}: not on the PATH, and the extension needs it"));
            return found;
        }
    }
    let candidates: Vec<PathBuf> = match configured {
        Some(paths) => std::env::split_paths(paths).collect(),
        None => fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path().join("bin/pg_config")))
            .collect(),
    };
    if candidates.is_empty() {
        found.unusable.push("/usr/lib/postgresql: no PostgreSQL there".to_owned());
    }
    let mut seen = BTreeSet::new();
    for pg_config in candidates {
        match Installation::at(&pg_config) {
            Ok(it) if !seen.insert(it.major) => {
                found.unusable.push(format!("{}: a second {}", pg_config.display(), it.major));
            }
            Ok(it) => found.installations.push(it),
            Err(why) => found.unusable.push(format!("{}: {why}", pg_config.display())),
        }
    }
    found.installations.sort_by_key(|it| it.major);
    found
}

impl Installation {
    fn at(pg_config: &Path) -> std::result::Result<Installation, String> {
        let ask = |what: &str| {
            let said = Command::new(pg_config).arg(what).output();
            let said = said.map_err(|error| error.to_string())?;
            Ok::<_, String>(String::from_utf8_lossy(&said.stdout).trim().to_owned())
        };
        let there = |path: PathBuf, what: &str| match path.exists() {
            true => Ok(path),
            false => Err(format!("no {what} ({} is missing)", path.display())),
        };
        let version = ask("--version")?;
        let number = version.strip_prefix("PostgreSQL ").unwrap_or_default();
        let major = number.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
        let major = major.parse().map_err(|_| format!("no version in `{version}`"))?;
        let programs = PathBuf::from(ask("--bindir")?);
        there(programs.join("postgres"), "server")?;
        there(programs.join("initdb"), "initdb")?;
        there(ask("--pgxs")?.into(), "PGXS: install the server's development package")?;
        let headers = PathBuf::from(ask("--includedir-server")?);
        there(headers.join("postgres.h"), "headers: install the server's development package")?;
        Ok(Installation {
            pg_config: pg_config.to_owned(),
            major,
            version,
            headers,
            programs,
            libraries: ask("--pkglibdir")?.into(),
            shared: ask("--sharedir")?.into(),
        })
    }

    /// Copies the installation into `root`, with `extension` where there is one.
    ///
    /// The extension is installed first, into what is still empty: a link to a directory of the installation
    /// would take it there.
    ///
    /// # Errors
    /// The extension does not build; no room.
    pub(crate) fn copy_into(&self, root: &Path, extension: Option<&Extension>) -> Result<()> {
        if let Some(extension) = extension {
            self.make(extension, root)?;
        }
        let programs = inside(root, &self.programs);
        fs::create_dir_all(&programs).map_err(Error::file(&programs))?;
        // A server finds its other files from where its own program really is: a link would lead back.
        for name in ["postgres", "initdb"] {
            let (from, to) = (self.programs.join(name), programs.join(name));
            fs::copy(&from, &to).map_err(Error::file(&from))?;
        }
        link_tree(&self.libraries, &inside(root, &self.libraries))?;
        link_tree(&self.shared, &inside(root, &self.shared))
    }

    /// Where a program of a copy in `root` is.
    pub(crate) fn program(&self, root: &Path, name: &str) -> PathBuf {
        inside(root, &self.programs).join(name)
    }

    /// Builds `extension` for this version, next to its sources, and installs it below `root`.
    fn make(&self, extension: &Extension, root: &Path) -> Result<()> {
        fs::create_dir_all(&extension.build).map_err(Error::file(&extension.build))?;
        // Other tests build there too, in this process and in others.
        let lock = extension.build.join("lock");
        let building = File::create(&lock).map_err(Error::file(&lock))?;
        building.lock().map_err(Error::file(&lock))?;
        let destination = format!("DESTDIR={}", root.display());
        run(extension.make(&self.pg_config).args(["install", &destination]))
    }
}

impl Extension {
    /// `make` for the server of `pg_config`; the caller adds targets.
    pub fn make(&self, pg_config: &Path) -> Command {
        let mut command = Command::new("make");
        command.arg("-C").arg(&self.build).arg("-f").arg(self.sources.join("Makefile"));
        command.arg(format!("PG_CONFIG={}", pg_config.display()));
        command.args(&self.variables);
        command.env_remove("MAKEFLAGS").env_remove("DESTDIR");
        command
    }

    /// The same, for servers that count its work: see [`crate::HintCount::work`].
    #[must_use]
    pub fn counted(&self) -> Extension {
        let variables = vec!["COPT=-fsanitize-coverage=trace-pc".to_owned()];
        Extension { build: self.build.join("counted"), variables, ..self.clone() }
    }
}

/// Where `path`, which is absolute, is in a copy below `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Links everything in `from` into `to`; directories that `to` has already stay its own.
fn link_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::file(to))?;
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let path = entry.map_err(Error::file(from))?.path();
        let Some(name) = path.file_name() else { continue };
        let link = to.join(name);
        if link.is_dir() && path.is_dir() {
            link_tree(&path, &link)?;
        } else if !link.exists() {
            symlink(&path, &link).map_err(Error::file(&link))?;
        }
    }
    Ok(())
}

/// Runs `command`, and gives the end of its words where it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let ended = command.output();
    let words = match ended {
        Ok(ended) if ended.status.success() => return Ok(()),
        Ok(ended) => last_lines(&[ended.stdout, ended.stderr].concat(), 30),
        Err(error) => error.to_string(),
    };
    Err(Error::Command { command: format!("{command:?}"), words })
}

pub(crate) fn last_lines(text: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PGXN's versions have three numbers, PostgreSQL's scripts are named by the first two.
    #[test]
    fn the_distribution_has_the_version_of_the_control_file_and_of_cargo() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a parent");
        let text = |name: &str| fs::read_to_string(sources.join(name)).expect(name);
        let meta: serde_json::Value = serde_json::from_str(&text("META.json")).expect("JSON");
        let provided = &meta["provides"]["forebay"];
        let numbers = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("three numbers").0;
        assert_eq!(
            (&meta["name"], &meta["meta-spec"]["version"]),
            (&"forebay".into(), &"1.0.0".into())
        );
        assert_eq!(
            (&meta["version"], &provided["version"]),
            (&env!("CARGO_PKG_VERSION").into(), &meta["version"])
        );
        assert_eq!(provided["file"], format!("sql/forebay--{numbers}.sql"));
        let control = text("forebay.control");
        assert!(control.contains(&format!("\ndefault_version = '{numbers}'\n")), "{control}");
        for key in ["file", "docfile"] {
            text(provided[key].as_str().expect("a path"));
        }
        for required in ["abstract", "maintainer", "license"] {
            assert!(!meta[required].is_null(), "{required}");
        }
    }
}
