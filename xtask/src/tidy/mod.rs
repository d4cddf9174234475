//! Our own checks: what the style asks for and neither rustc nor clippy looks at.
//!
//! Each rule is a small pure function over a file's text, or over facts about the workspace, which
//! returns findings; this module gathers the files, calls the rules and prints. A scanner that
//! tells code from comments and strings ([`source`]) stands under the rules for Rust, so that a
//! word in a message is not taken for code. A full parser (syn) was rejected: it drops comments,
//! which half the rules are about.
//!
//! Failure: a file that cannot be read is an error, not a pass.

mod files;
mod layers;
mod rust;
mod source;
mod tags;
mod text;
mod unsafe_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use source::RustFile;

/// One broken rule: where, which, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// From 1; a finding about the whole file says 1.
    line: usize,
    rule: &'static str,
    advice: String,
    warning: bool,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        let (path, advice) = (path.to_owned(), advice.into());
        Self { path, line, rule, advice, warning: false }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, advice, warning } = self;
        let kind = if *warning { "warning: " } else { "" };
        write!(out, "{path}:{line}: {kind}{rule}: {advice}")
    }
}

/// Checks the tree under `root` and prints each finding.
///
/// # Errors
/// A rule is broken, or a file or the workspace's metadata cannot be read.
pub(crate) fn run(root: &Path) -> Result<()> {
    let paths = files::list(root)?;
    let texts = files::read_texts(root, &paths)?;
    let mut rust: Vec<RustFile> = texts
        .iter()
        .filter(|(path, _)| is_rust(path))
        .map(|(path, text)| RustFile::new(path, text))
        .collect();
    source::mark_test_modules(&mut rust);

    let mut findings = check_files(&paths, &texts, &rust);
    findings.extend(check_workspace(root, &texts, &rust)?);
    findings.sort();

    let failures = findings.iter().filter(|finding| !finding.warning).count();
    for finding in &findings {
        println!("{finding}");
    }
    if failures > 0 {
        bail!("tidy: {failures} to mend in {} files looked at", paths.len());
    }
    println!("tidy: {} files, {} warnings", paths.len(), findings.len());
    Ok(())
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == "rs")
}

fn check_files(
    paths: &[String],
    texts: &BTreeMap<String, String>,
    rust: &[RustFile],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in paths {
        findings.extend(text::ascii_path(path));
    }
    for (path, content) in texts {
        findings.extend(text::leftover_words(path, content));
        findings.extend(text::whitespace(path, content));
        if is_rust(path) {
            findings.extend(text::size(path, content));
        }
    }
    for file in rust {
        findings.extend(rust::header(file));
        findings.extend(rust::module_names(file));
        findings.extend(rust::ambient(file));
        findings.extend(unsafe_files::keyword(file, unsafe_files::UNSAFE_FILES));
    }
    findings.extend(unsafe_files::list_is_true(rust, unsafe_files::UNSAFE_FILES));
    let crates: BTreeSet<&str> = rust.iter().filter_map(|file| file.crate_dir()).collect();
    for dir in crates {
        let files: Vec<&RustFile> =
            rust.iter().filter(|file| file.crate_dir() == Some(dir)).collect();
        findings.extend(tags::check(&files));
    }
    findings
}

fn check_workspace(
    root: &Path,
    texts: &BTreeMap<String, String>,
    rust: &[RustFile],
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in layers::packages(root)? {
        let manifest = texts.get(&package.manifest).map_or("", String::as_str);
        findings.extend(layers::down_only(&package, manifest, layers::LAYERS));
        findings.extend(unsafe_files::forbids(&package, rust, unsafe_files::UNSAFE_FILES));
    }
    Ok(findings)
}
