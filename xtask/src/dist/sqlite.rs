//! The extension for SQLite: Python wheels, an npm package, and an archive for C.
//!
//! The library calls nothing that a C library of 2012 lacks (glibc 2.17), which is what the wheels' tag says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Dist, copy, linux_on, output};

const PACKAGE: &str = "forebay-sqlite";
const LIBRARY: &str = "libforebay_sqlite.so";
const SOURCES: &str = "integrations/sqlite";
const GLIBC: &str = "2.17";
/// The name in wheels and triples, and node's.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x64"), ("aarch64", "arm64")];

fn library(dist: &Dist, architecture: &str) -> Result<PathBuf> {
    let target = format!("{architecture}-unknown-linux-gnu.{GLIBC}");
    Ok(dist.build_for(&target, PACKAGE, "")?.join(LIBRARY))
}

pub(super) fn wheels(dist: &Dist) -> Result<()> {
    ARCHITECTURES.iter().try_for_each(|(architecture, _)| wheel(dist, architecture))
}

fn wheel(dist: &Dist, architecture: &str) -> Result<()> {
    let stage = dist.stage(&format!("wheel-{architecture}"))?;
    let (package, version) = (stage.join("forebay_sqlite"), &dist.version);
    fs::create_dir_all(&package)?;
    let sources = dist.root().join(SOURCES).join("python");
    copy(&sources.join("forebay_sqlite/__init__.py"), &package)?;
    copy(&library(dist, architecture)?, &package)?;
    let info = stage.join(format!("forebay_sqlite-{version}.dist-info"));
    fs::create_dir_all(&info)?;
    let metadata = fs::read_to_string(sources.join("METADATA"))?.replace("@VERSION@", version);
    fs::write(info.join("METADATA"), metadata)?;
    // Two names for the same: the first is known to older versions of pip.
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: xtask\nRoot-Is-Purelib: false\nTag: py3-none-manylinux2014_{architecture}\n\
         Tag: py3-none-manylinux_2_17_{architecture}\n"
    );
    fs::write(info.join("WHEEL"), wheel)?;
    let mut pack = Command::new(dist.python()?);
    pack.args(["-m", "wheel", "pack", "--dest-dir"]).arg(&dist.out).arg(&stage);
    output(&mut pack).map(drop)
}

/// One package with the libraries of all architectures: together they are small.
pub(super) fn npm(dist: &Dist) -> Result<()> {
    let stage = dist.stage("npm")?;
    let sources = dist.root().join(SOURCES).join("node");
    for name in ["index.js", "README.md", "package.json"] {
        copy(&sources.join(name), &stage)?;
    }
    for (architecture, of_node) in ARCHITECTURES {
        let directory = stage.join(format!("linux-{of_node}"));
        fs::create_dir_all(&directory)?;
        copy(&library(dist, architecture)?, &directory)?;
    }
    let npm = || {
        let mut npm = Command::new("npm");
        npm.current_dir(&stage);
        npm
    };
    output(npm().args(["pkg", "set"]).arg(format!("version={}", dist.version)))?;
    output(npm().arg("pack").arg("--pack-destination").arg(&dist.out)).map(drop)
}

/// A directory that may be unpacked anywhere: the pkg-config file finds the others from where it is.
pub(super) fn for_c(dist: &Dist) -> Result<()> {
    for (architecture, _) in ARCHITECTURES {
        let stage = dist.stage(&format!("c-{architecture}"))?;
        let (include, config) = (stage.join("include"), stage.join("lib/pkgconfig"));
        fs::create_dir_all(&include)?;
        fs::create_dir_all(&config)?;
        copy(&dist.root().join(SOURCES).join("include/forebay_sqlite.h"), &include)?;
        copy(&library(dist, architecture)?, &stage.join("lib"))?;
        fs::write(config.join("forebay-sqlite.pc"), pkg_config(&dist.version))?;
        licences(dist, &stage)?;
        dist.tar(PACKAGE, &linux_on(architecture), &stage)?;
    }
    Ok(())
}

fn licences(dist: &Dist, stage: &Path) -> Result<()> {
    ["LICENSE-MIT", "LICENSE-APACHE"].iter().try_for_each(|it| copy(&dist.root().join(it), stage))
}

fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: {PACKAGE}\n\
         Description: Read-ahead for SQLite: a VFS that prefetches the pages that a query will read next\n\
         Version: {version}\n\
         Requires: sqlite3 >= 3.35\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lforebay_sqlite\n"
    )
}
