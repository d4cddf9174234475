//! The extension for SQLite: a Python wheel, and an npm package.
//!
//! The wheel has the tag `linux_*`, which pip installs from a file: an index of packages wants `manylinux`, and so a
//! library that was built against an old C library.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::{Dist, machine, output, succeed};

const LIBRARY: &str = "libforebay_sqlite.so";
const SOURCES: &str = "integrations/sqlite";

pub(super) fn wheel(dist: &Dist) -> Result<()> {
    let library = dist.build("forebay-sqlite", "")?.join(LIBRARY);
    let stage = dist.stage("wheel")?;
    let (package, version) = (stage.join("forebay_sqlite"), &dist.version);
    fs::create_dir_all(&package)?;
    let sources = dist.root().join(SOURCES).join("python");
    fs::copy(sources.join("forebay_sqlite/__init__.py"), package.join("__init__.py"))?;
    fs::copy(library, package.join(LIBRARY))?;
    let info = stage.join(format!("forebay_sqlite-{version}.dist-info"));
    fs::create_dir_all(&info)?;
    let metadata = fs::read_to_string(sources.join("METADATA"))?.replace("@VERSION@", version);
    fs::write(info.join("METADATA"), metadata)?;
    let tag = format!("py3-none-linux_{}", machine());
    let wheel =
        format!("Wheel-Version: 1.0\nGenerator: xtask\nRoot-Is-Purelib: false\nTag: {tag}\n");
    fs::write(info.join("WHEEL"), wheel)?;
    let environment = dist.out.join("stage/python");
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    output(Command::new(&python).args(["-m", "pip", "install", "--quiet", "wheel"]))?;
    let mut pack = Command::new(&python);
    pack.args(["-m", "wheel", "pack", "--dest-dir"]).arg(&dist.out).arg(&stage);
    output(&mut pack).map(drop)
}

pub(super) fn npm(dist: &Dist) -> Result<()> {
    let library = dist.build("forebay-sqlite", "")?.join(LIBRARY);
    let stage = dist.stage("npm")?;
    let sources = dist.root().join(SOURCES).join("node");
    for name in ["index.js", "README.md", "package.json"] {
        fs::copy(sources.join(name), stage.join(name))?;
    }
    fs::copy(library, stage.join(LIBRARY))?;
    let npm = || {
        let mut npm = Command::new("npm");
        npm.current_dir(&stage);
        npm
    };
    output(npm().args(["pkg", "set"]).arg(format!("version={}", dist.version)))?;
    output(npm().arg("pack").arg("--pack-destination").arg(&dist.out)).map(drop)
}
