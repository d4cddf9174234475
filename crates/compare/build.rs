//! Records the measured commit.

use std::path::Path;
use std::process::Command;

fn main() {
    for source in ["src", "../pool/src", "../io/src"] {
        println!("cargo::rerun-if-changed={source}");
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The log of HEAD changes with every commit and checkout; without git there is no commit. Git knows its path,
    // also in a worktree; a path that does not exist would make cargo run this every time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "..", "../../Cargo.lock"])
            .is_some_and(|listed| !listed.is_empty());
        let mark = if changed { " with changes" } else { "" };
        println!("cargo::rustc-env=FOREBAY_COMMIT={commit}{mark}");
    }
}
