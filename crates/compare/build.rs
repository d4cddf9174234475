//! Notes the commit that is measured, for the records.

use std::process::Command;

fn main() {
    // The log of HEAD changes with every commit and checkout; without git there is no commit.
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    for source in ["src", "../pool/src", "../io/src"] {
        println!("cargo::rerun-if-changed={source}");
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "..", "../../Cargo.lock"])
            .is_some_and(|listed| !listed.is_empty());
        let mark = if changed { " with changes" } else { "" };
        println!("cargo::rustc-env=FOREBAY_COMMIT={commit}{mark}");
    }
}
