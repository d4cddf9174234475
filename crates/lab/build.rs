//! Notes the commit that the `forebay` command is built from, for its reports.

use std::process::Command;

fn main() {
    // The log of HEAD changes with every commit and checkout; without git there is no commit.
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../io/src");
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "..", "../../Cargo.lock"])
            .is_some_and(|s| !s.is_empty());
        let mark = if changed { " with changes" } else { "" };
        println!("cargo::rustc-env=FOREBAY_COMMIT={commit}{mark}");
    }
}
