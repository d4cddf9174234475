//! The packages of the extension for SQLite: each client makes a database, drops it from the page cache, and reads it
//! through the VFS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Place, nothing_is_left, root, was_useful};
use crate::dist::{output, succeed};

/// Makes a database and drops it from the page cache.
const MADE: &str = "
import os, sqlite3, sys
path = sys.argv[1]
db = sqlite3.connect(path)
db.execute('create table t(a integer primary key, k, b)')
db.executemany('insert into t(k, b) values (?, zeroblob(3000))', [[i * 7919 % 20011] for i in range(20000)])
db.execute('create index by_k on t(k)')
db.commit()
db.close()
file = os.open(path, os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
";

const QUERY: &str = "select sum(length(b)) from t where k between 0 and 10000";

/// Prints how many prefetched pages were useful.
fn in_python() -> String {
    format!(
        "{MADE}
import forebay_sqlite
db = forebay_sqlite.connect(path)
db.execute('{QUERY}').fetchone()
print(forebay_sqlite.stats(db)['useful'])
"
    )
}

/// Makes a database in `scratch` that is not in the page cache.
fn cold_database(scratch: &Path) -> Result<PathBuf> {
    let path = scratch.join("data.db");
    succeed(Command::new("python3").args(["-c", MADE]).arg(&path))?;
    Ok(path)
}

pub(super) fn wheel(place: &Place<'_>) -> Result<()> {
    let environment = place.scratch.join("environment");
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = || Command::new(environment.join("bin/python"));
    let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"];
    let wheel = place.package(&format!("{}.whl", std::env::consts::ARCH))?;
    succeed(python().args(pip).args(["install", "--no-index"]).arg(wheel))?;
    was_useful(&output(python().args(["-c", &in_python()]).arg(place.scratch.join("data.db")))?)?;
    succeed(python().args(pip).args(["uninstall", "--yes", "forebay-sqlite"]))?;
    nothing_is_left(&environment)
}

/// In a Python of that architecture, with its SQLite.
pub(super) fn wheel_of_aarch64(place: &Place<'_>) -> Result<()> {
    let root = place.scratch.join("root");
    root::unpacked(&root, "arm64", &["python3", "libsqlite3-0"])?;
    let site = place.scratch.join("site");
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(place.package("aarch64.whl")?).arg(&site);
    succeed(&mut unpack)?;
    let mut python = Command::new("qemu-aarch64-static");
    python.arg("-L").arg(&root).arg(root.join("usr/bin/python3")).env("PYTHONPATH", &site);
    was_useful(&output(python.args(["-c", &in_python()]).arg(place.scratch.join("data.db")))?)
}

/// In the SQLite of a current node, which npm has as a package.
pub(super) fn npm(place: &Place<'_>) -> Result<()> {
    let npm = |arguments: &[&str]| {
        let mut npm = Command::new("npm");
        npm.current_dir(place.scratch).args(arguments).arg("--silent");
        npm
    };
    output(&mut npm(&["init", "--yes"]))?;
    output(npm(&["install", "--offline"]).arg(place.package(".tgz")?))?;
    output(&mut npm(&["install", "node@24"]))?;
    let path = cold_database(place.scratch)?;
    let script = format!(
        "const {{ load }} = require('forebay-sqlite');
const {{ DatabaseSync }} = require('node:sqlite');
load(new DatabaseSync(':memory:', {{ allowExtension: true }}));
const db = new DatabaseSync('file:{}?vfs=forebay');
db.prepare('{QUERY}').get();
console.log(/useful=(\\d+)/.exec(Object.values(db.prepare('pragma forebay_stats').get())[0])[1]);",
        path.display()
    );
    let mut node = Command::new(place.scratch.join("node_modules/node/bin/node"));
    was_useful(&output(node.current_dir(place.scratch).args(["-e", &script]))?)?;
    output(&mut npm(&["uninstall", "forebay-sqlite"]))?;
    nothing_is_left(&place.scratch.join("node_modules"))
}

/// A program that is compiled and linked by what pkg-config prints.
pub(super) fn in_c(place: &Place<'_>) -> Result<()> {
    let unpacked = place.unpacked(&format!("{}.tar.gz", std::env::consts::ARCH))?;
    let path = cold_database(place.scratch)?;
    let source = place.scratch.join("program.c");
    let program = format!(
        "#include <forebay_sqlite.h>
#include <stdio.h>
#include <string.h>

int main(void)
{{
    sqlite3 *db;
    sqlite3_stmt *statement;
    if (forebay_sqlite_use(0) != SQLITE_OK ||
        sqlite3_auto_extension((void (*)(void))forebay_sqlite_stats) != SQLITE_OK ||
        sqlite3_open_v2(\"file:{}?vfs=forebay\", &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK ||
        sqlite3_exec(db, \"{QUERY}\", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, \"select sum(useful) from forebay_stats\", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        return 1;
    printf(\"%s\\n\", sqlite3_column_text(statement, 0));
    return 0;
}}
",
        path.display()
    );
    fs::write(&source, program)?;
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "forebay-sqlite"]);
    let flags = output(config.env("PKG_CONFIG_PATH", unpacked.join("lib/pkgconfig")))?;
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(place.scratch.join("program"));
    succeed(compile.arg(source).args(flags.split_whitespace()))?;
    let mut run = Command::new(place.scratch.join("program"));
    was_useful(&output(run.env("LD_LIBRARY_PATH", unpacked.join("lib")))?)
}
