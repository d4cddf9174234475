//! The packages of the extension for PostgreSQL.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::root::Root;
use super::{Place, files, was_useful};
use crate::dist::{output, succeed};

/// A table whose index has another order, before it leaves the page cache, and a query through that index.
const BEFORE: &str = "create table t as select i, (i::bigint * 7919 % 200003)::int as k, repeat('x', 300) as b from generate_series(1, 200000) i; \
     create index by_k on t(k); create extension forebay; checkpoint";
const AFTER: &str = "set enable_bitmapscan = off; set enable_seqscan = off; set max_parallel_workers_per_gather = 0; \
     select sum(length(b)) from t where k between 0 and 50000; select sum(useful)::text from forebay_stat_indexes; drop extension forebay";

/// The validator that PGXN's own manager is built with.
const VALIDATOR: [&str; 2] = ["pgxn_meta", "0.7.0"];

/// Builds and installs from the archive as PGXN's client does, without the network.
pub(super) fn pgxn(place: &Place<'_>) -> Result<()> {
    let tools = place.workspace.target_directory.join("dist-tools").into_std_path_buf();
    let [name, version] = VALIDATOR;
    let mut install = Command::new("cargo");
    install.args(["install", "--quiet", "--locked", "--version", version, "--root"]).arg(&tools);
    succeed(install.arg(name).current_dir(place.scratch))?;
    let unpacked = place.unpacked(".zip")?;
    let source = files(&unpacked)?.pop().context("an empty archive")?;
    succeed(Command::new(tools.join("bin").join(name)).arg("META.json").current_dir(&source))?;
    let installed = place.scratch.join("installed");
    for goals in [&["all"][..], &["install"]] {
        let mut make = Command::new("make");
        make.current_dir(&source).args(goals).arg(format!("DESTDIR={}", installed.display()));
        make.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
        output(&mut make)?;
    }
    let found = output(Command::new("find").arg(&installed).args(["-name", "forebay*"]))?;
    ensure!(found.lines().count() == 3, "a library, a control file and a script: {found}");
    Ok(())
}

/// Each package in a fresh root with Debian's server.
pub(super) fn debian(place: &Place<'_>) -> Result<()> {
    let path = place.scratch.join("root");
    let root = Root::new(&path)?;
    for deb in place.packages.iter().filter(|it| it.extension().is_some_and(|it| it == "deb")) {
        let name = deb.file_name().unwrap_or_default().to_string_lossy();
        let major = name.split('-').nth(1).context("the package's name has no version")?;
        root.with(deb, || in_a_cluster(&root, &path, major))?;
    }
    Ok(())
}

/// Runs the query in a new cluster.
fn in_a_cluster(root: &Root<'_>, path: &Path, major: &str) -> Result<()> {
    let programs = format!("/usr/lib/postgresql/{major}/bin");
    let (data, log) = (format!("/var/lib/postgresql/{major}-used"), "/tmp/log");
    let as_user = |program: &str, arguments: &[&str]| {
        let mut command = root.command("runuser");
        command.args(["--user", "postgres", "--"]).arg(format!("{programs}/{program}"));
        command.args(arguments);
        command
    };
    let options = "-c listen_addresses='' -c unix_socket_directories=/tmp -c shared_buffers=1MB -c shared_preload_libraries=forebay";
    output(&mut as_user("initdb", &["--pgdata", &data, "--auth", "trust", "--no-sync"]))?;
    let start = ["--pgdata", &data, "--wait", "--silent", "--options", options, "--log", log];
    succeed(as_user("pg_ctl", &start).arg("start"))?;
    let sql = |statements: &str| {
        let format = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--host", "/tmp"];
        output(as_user("psql", &format).args(["--command", statements]))
    };
    let queried = sql(BEFORE).and_then(|_| {
        let tables = path.join(data.trim_start_matches('/')).join("base");
        for file in output(Command::new("find").arg(tables).args(["-size", "+1M"]))?.lines() {
            // Advises the kernel to drop the file's pages.
            let mut drop = Command::new("dd");
            output(drop.arg(format!("if={file}")).args(["iflag=nocache", "count=0"]))?;
        }
        sql(AFTER)
    });
    succeed(&mut as_user("pg_ctl", &["--pgdata", &data, "--silent", "--mode", "fast", "stop"]))?;
    fs::remove_dir_all(path.join(data.trim_start_matches('/')))?;
    was_useful(&queried?)
}
