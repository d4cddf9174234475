//! The step that makes each package, installs it, uses it as its users do, and removes it.
//!
//! A use is a query whose reads wait, after which the counter of prefetched pages must have counted: a package that
//! can only be loaded proves little. Debian packages are installed in this system, which must be a disposable one, and
//! removed again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::run::Run;
use crate::dist::{self, Kind, output, succeed};

/// Makes a database, takes it out of the page cache, and prints how many prefetched pages were useful to a query.
const IN_PYTHON: &str = "
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
import forebay_sqlite
db = forebay_sqlite.connect(path)
db.execute('select sum(length(b)) from t where k between 0 and 10000').fetchone()
print(forebay_sqlite.stats(db)['useful'])
";

/// The same in SQL, before and after the table's files are taken out of the page cache.
const BEFORE: &str = "create table t as select i, (i::bigint * 7919 % 200003)::int as k, repeat('x', 300) as b from generate_series(1, 200000) i; \
     create index by_k on t(k); create extension forebay; checkpoint";
const AFTER: &str = "set enable_bitmapscan = off; set enable_seqscan = off; set max_parallel_workers_per_gather = 0; \
     select sum(length(b)) from t where k between 0 and 50000; select sum(useful)::text from forebay_stat_indexes; drop extension forebay";

/// Prefetched pages that were useful, at least, if the queries above have waited.
const USEFUL_MIN: u64 = 1000;

/// A directory that all users may enter, on a disk, whose reads wait.
const SCRATCH: &str = "/var/tmp";

type Check = fn(&Path, &[PathBuf]) -> Result<()>;

pub(super) fn run(run: &mut Run) -> Result<()> {
    let root = output(Command::new("id").arg("--user"))? == "0";
    let out = run.workspace.target_directory.join("dist").into_std_path_buf();
    let kinds: [(Kind, &str, bool, Check); 4] = [
        (Kind::Python, "python3", false, python),
        (Kind::Node, "npm", false, node),
        (Kind::Command, "dpkg-shlibdeps", true, command),
        (Kind::Postgres, "dpkg-shlibdeps", true, postgres),
    ];
    for (kind, tool, needs_root, check) in kinds {
        if Command::new(tool).arg("--version").output().is_err() {
            run.skip(&format!("{kind:?}"), &format!("no {tool}"));
            continue;
        }
        if needs_root && !root {
            run.skip(&format!("{kind:?}"), "only root installs packages");
            continue;
        }
        dist::run(run.workspace.clone(), &[kind])?;
        let mut packages: Vec<PathBuf> =
            fs::read_dir(&out)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
        packages.sort();
        let scratch = TempDir::with_prefix_in("forebay-package-", SCRATCH)?;
        // The server has a user of its own.
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755))?;
        check(scratch.path(), &packages).with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}

fn of_kind(packages: &[PathBuf], suffix: &str) -> Result<PathBuf> {
    let found = packages.iter().find(|it| it.to_string_lossy().ends_with(suffix));
    Ok(found.with_context(|| format!("there is no package *{suffix}"))?.clone())
}

fn was_useful(says: &str) -> Result<()> {
    let useful = says.lines().next_back().and_then(|line| line.parse::<u64>().ok());
    ensure!(useful >= Some(USEFUL_MIN), "useful prefetches: {says}");
    Ok(())
}

/// Fails if a file below `place` has forebay in its name.
fn nothing_is_left(place: &Path) -> Result<()> {
    let left = output(Command::new("find").arg(place).args(["-name", "*forebay*"]))?;
    ensure!(left.is_empty(), "left after the removal: {left}");
    Ok(())
}

fn python(scratch: &Path, packages: &[PathBuf]) -> Result<()> {
    let environment = scratch.join("environment");
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = || Command::new(environment.join("bin/python"));
    let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"];
    succeed(python().args(pip).args(["install", "--no-index"]).arg(of_kind(packages, ".whl")?))?;
    was_useful(&output(python().args(["-c", IN_PYTHON]).arg(scratch.join("data.db")))?)?;
    succeed(python().args(pip).args(["uninstall", "--yes", "forebay-sqlite"]))?;
    nothing_is_left(&environment)
}

/// No client for node is there without the network: the same library is queried by the check of the wheel.
fn node(scratch: &Path, packages: &[PathBuf]) -> Result<()> {
    let npm = |arguments: &[&str]| {
        let mut npm = Command::new("npm");
        npm.current_dir(scratch).args(arguments).arg("--silent");
        npm
    };
    output(&mut npm(&["init", "--yes"]))?;
    output(npm(&["install", "--offline"]).arg(of_kind(packages, ".tgz")?))?;
    let script = "require('fs').accessSync(require('forebay-sqlite').getLoadablePath())";
    succeed(Command::new("node").current_dir(scratch).args(["-e", script]))?;
    output(&mut npm(&["uninstall", "forebay-sqlite"]))?;
    nothing_is_left(&scratch.join("node_modules"))
}

/// Installs a Debian package, calls `using`, and removes the package.
fn installed(package: &Path, using: impl FnOnce() -> Result<()>) -> Result<()> {
    let name = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Package"))?;
    output(Command::new("dpkg").arg("--install").arg(package))?;
    let files = output(Command::new("dpkg").arg("--listfiles").arg(&name))?;
    let used = using();
    output(Command::new("dpkg").arg("--purge").arg(&name))?;
    used?;
    let left = files.lines().find(|path| path.contains("forebay") && Path::new(path).exists());
    ensure!(left.is_none(), "left after the removal: {left:?}");
    Ok(())
}

fn command(_: &Path, packages: &[PathBuf]) -> Result<()> {
    installed(&of_kind(packages, ".deb")?, || {
        let says = output(Command::new("/usr/bin/forebay").args(["emulate", "--list"]))?;
        ensure!(says.contains("raid10-12"), "{says}");
        Ok(())
    })
}

fn postgres(scratch: &Path, packages: &[PathBuf]) -> Result<()> {
    let debs = packages.iter().filter(|it| it.extension().is_some_and(|it| it == "deb"));
    for deb in debs {
        let name = deb.file_name().unwrap_or_default().to_string_lossy();
        let major = name.split('-').nth(1).context("the package's name has no version")?;
        let place = scratch.join(major);
        installed(deb, || in_a_cluster(&place, major))?;
    }
    Ok(())
}

/// Runs the query in a cluster of its own, in `place`.
fn in_a_cluster(place: &Path, major: &str) -> Result<()> {
    let programs = format!("/usr/lib/postgresql/{major}/bin");
    let (data, sockets) = (place.join("data"), place.display());
    let as_user = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("runuser");
        command.args(["--user", "postgres", "--"]).arg(format!("{programs}/{program}"));
        command.args(arguments).current_dir("/");
        command
    };
    let path = data.to_string_lossy();
    let options = format!(
        "-c listen_addresses='' -c unix_socket_directories='{sockets}' -c shared_buffers=1MB -c shared_preload_libraries=forebay"
    );
    fs::create_dir_all(place)?;
    succeed(Command::new("chown").arg("postgres").arg(place))?;
    output(&mut as_user("initdb", &["--pgdata", &path, "--auth", "trust", "--no-sync"]))?;
    let start = ["--pgdata", &path, "--wait", "--silent", "--options", &options, "--log"];
    let log = place.join("log");
    succeed(as_user("pg_ctl", &start).arg(&log).arg("start"))?;
    let sql = |statements: &str| {
        let host = sockets.to_string();
        let mut psql = as_user("psql", &["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        output(psql.args(["--host", &host, "--command", statements]))
    };
    let queried = sql(BEFORE).and_then(|_| {
        for file in
            output(Command::new("find").arg(data.join("base")).args(["-size", "+1M"]))?.lines()
        {
            // Advises the kernel to drop the file's pages.
            output(
                Command::new("dd").arg(format!("if={file}")).args(["iflag=nocache", "count=0"]),
            )?;
        }
        sql(AFTER)
    });
    succeed(&mut as_user("pg_ctl", &["--pgdata", &path, "--silent", "--mode", "fast", "stop"]))?;
    was_useful(&queried?)
}
