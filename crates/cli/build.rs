//! Notes the version and the commit that the `forebay` command is built from, for its reports.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../io/src");
    for name in ["measure", "session", "watch", "advise", "lab"] {
        println!("cargo::rerun-if-changed=../{name}/src");
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The log of HEAD changes with every commit and checkout; without git there is no commit. Git knows where
    // it is, also in a worktree, and what is not there would have this run every time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "..", "../../Cargo.lock"])
            .is_some_and(|s| !s.is_empty());
        let mark = if changed { " with changes" } else { "" };
        version += &format!(" ({commit}{mark})");
    }
    println!("cargo::rustc-env=FOREBAY_VERSION={version}");
}
