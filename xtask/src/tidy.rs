//! `cargo xtask tidy`: the style rules that neither rustc, clippy nor rustfmt can check.
//!
//! - A Rust file opens with `//!`, has 800 lines at most, and has a meaningful name.
//! - No mark of unfinished work stays, in any text, and none of the words in `words`.
//! - Dependencies between the workspace's crates point down only, and no files of a crate import each other
//!   in a circle. The folders of the pool are layers: a file imports none of a higher one.
//! - Invariant tags, two to four capitals, a dash and a number in square brackets: a tag that a `//!` line defines
//!   appears in code (the message of an assert, say) or in a test of the same crate, and no other tag is
//!   named there.
//!
//! Files are checked line by line. A parser was rejected: it drops comments, which most rules are about.
//!
//! Failure: a file that cannot be read is an error, not a pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata};

use crate::ci::snippets;
use crate::imports::Imports;
use crate::{links, words};

/// A Rust file longer than this is split.
const LINES_MAX: usize = 800;

/// Names that do not describe a module.
const VAGUE: [&str; 4] = ["common", "utils", "helpers", "prelude"];

/// Words that mark unfinished work, put together here so that this file does not hold them.
const LEFTOVER: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Each package of the workspace, and the workspace packages that it may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("forebay-io", &[]),
    ("forebay-lookahead", &[]),
    ("forebay-lookahead-c", &["forebay-lookahead"]),
    ("forebay-sqlite", &["forebay-lookahead"]),
    ("forebay", &["forebay-io", "forebay-lookahead"]),
    ("forebay-btree", &["forebay"]),
    ("forebay-sim", &["forebay-io"]),
    // The pool and the tree in its tests alone.
    ("forebay-object", &["forebay", "forebay-btree", "forebay-io", "forebay-lookahead"]),
    ("forebay-emulate", &[]),
    // The pool in its tests alone.
    ("forebay-measure", &["forebay", "forebay-io"]),
    ("forebay-session", &["forebay-measure"]),
    (
        "forebay-watch",
        &["forebay", "forebay-io", "forebay-lookahead", "forebay-measure", "forebay-session"],
    ),
    ("forebay-advise", &["forebay-io", "forebay-measure", "forebay-session"]),
    (
        "forebay-lab",
        &["forebay", "forebay-emulate", "forebay-io", "forebay-measure", "forebay-object"],
    ),
    // The pool, io and the emulation in its tests alone.
    (
        "forebay-cli",
        &[
            "forebay",
            "forebay-advise",
            "forebay-emulate",
            "forebay-io",
            "forebay-lab",
            "forebay-measure",
            "forebay-object",
            "forebay-watch",
        ],
    ),
    (
        "forebay-compare",
        &["forebay", "forebay-btree", "forebay-io", "forebay-measure", "forebay-tpcc"],
    ),
    ("forebay-tpcc", &["forebay", "forebay-btree", "forebay-measure"]),
    ("forebay-instructions", &["forebay"]),
    ("forebay-postgres-harness", &[]),
    ("xtask", &[]),
];

/// The layers of the pool's folders, the lowest first: see ARCHITECTURE.md.
const POOL: &str = "crates/pool/src/";
const POOL_LAYERS: &[&[&str]] = &[
    &[
        "clock",
        "error",
        "names",
        "observe",
        "readahead_strategy",
        "strategy_kind",
        "sync",
        "tag",
        "wal",
    ],
    &["cache", "tasks"],
    &["store"],
    &["core"],
    &["readahead", "writeback"],
    &["api", "shared"],
];

/// May be dev-dependencies of any package: one only implements io's traits, the other starts servers.
const OF_TESTS: [&str; 2] = ["forebay-sim", "forebay-postgres-harness"];

/// Libraries of the `forebay` command: the command's own tests hold their invariants.
const OF_COMMAND: [&str; 4] = ["crates/advise", "crates/lab", "crates/session", "crates/watch"];
const COMMAND: &str = "crates/cli";

/// Text files by their paths, `/`-separated and relative to the root.
type Texts = BTreeMap<String, String>;

/// Checks the workspace and prints each finding.
///
/// # Errors
/// A rule is broken, or a file cannot be read.
pub(crate) fn run(workspace: &Metadata) -> Result<()> {
    let mut texts = Texts::new();
    read(workspace.workspace_root.as_std_path(), "", &mut texts)?;
    let mut findings = leftovers(&texts);
    findings.extend(texts.iter().flat_map(|(path, text)| words::find(path, text)));
    findings.extend(snippets::without_a_test(&texts));
    findings.extend(links::broken(workspace.workspace_root.as_std_path(), &texts));
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|end| end == "rs");
    texts.retain(|path, _| is_rust(path));
    for (path, text) in &texts {
        findings.extend(shape(path, text));
    }
    for package in workspace.packages.iter().filter_map(|package| package.manifest_path.parent()) {
        let source = format!("{}/src/", package.strip_prefix(&workspace.workspace_root)?);
        let imports = Imports::read(&source, texts.iter());
        findings.extend(imports.circles().iter().map(|circle| {
            format!("{}: imported by what it imports: {}", circle[0], circle[1..].join(", "))
        }));
        if source == POOL {
            let upward = imports.upward(POOL_LAYERS);
            findings.extend(upward.iter().map(|(file, above)| {
                format!("{file}: imports {above}, which is of a higher layer")
            }));
        }
    }
    for package in workspace.packages.iter().filter_map(|package| package.manifest_path.parent()) {
        let directory = package.strip_prefix(&workspace.workspace_root)?;
        let is_of_command = |path: &Path| OF_COMMAND.iter().any(|it| path.starts_with(it));
        if directory.starts_with("crates") && !is_of_command(directory.as_std_path()) {
            let is_ours = |path: &Path| {
                path.starts_with(directory) || directory == COMMAND && is_of_command(path)
            };
            findings.extend(tags(texts.iter().filter(|(path, _)| is_ours(Path::new(path)))));
        }
    }
    for package in &workspace.packages {
        let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        findings.extend(ours.filter_map(|dependency| {
            let in_tests = dependency.kind == DependencyKind::Development;
            layer(&package.name, &dependency.name, in_tests)
        }));
    }
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "tidy: {} findings", findings.len());
    println!("tidy: {} Rust files", texts.len());
    Ok(())
}

/// Reads the text files below `directory`, except for those that .gitignore names and hidden ones.
fn read(directory: &Path, prefix: &str, texts: &mut Texts) -> Result<()> {
    let cannot = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().with_context(cannot)?;
        if path.starts_with('.') || ["target", "forebay-report"].contains(&path.as_str()) {
            continue;
        }
        if kind.is_dir() {
            read(&entry.path(), &format!("{path}/"), texts)?;
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            texts.extend(String::from_utf8(bytes).ok().map(|text| (path, text)));
        }
    }
    Ok(())
}

fn leftovers(texts: &Texts) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in texts {
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| LEFTOVER.contains(word)) {
                let at = index + 1;
                findings.push(format!("{path}:{at}: do what the {word} says, or write an issue"));
            }
        }
    }
    findings
}

/// Checks how a Rust file opens, its length and its name.
fn shape(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{path}:1: open the file with `//! What it is: …`"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(format!("{path}:1: split the file: {lines} lines, {LINES_MAX} at most"));
    }
    if path.split(['/', '.']).any(|name| VAGUE.contains(&name)) {
        findings.push(format!("{path}:1: name the module for what it does"));
    }
    findings
}

/// Whether `package` may depend on `dependency`, another workspace package.
fn layer(package: &str, dependency: &str, in_tests: bool) -> Option<String> {
    let below = LAYERS.iter().find(|(name, _)| *name == package).map_or(&[][..], |it| it.1);
    // Tests have their own package with all its features.
    let of_tests = dependency == package || OF_TESTS.contains(&dependency);
    let allowed = below.contains(&dependency) || (in_tests && of_tests);
    (!allowed).then(|| {
        format!("{package} may not depend on {dependency}: see LAYERS in xtask/src/tidy.rs")
    })
}

/// Compares the tags that one crate's files define with those that they name.
fn tags<'a>(files: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    let mut defined = BTreeMap::new();
    let mut named = Vec::new();
    let mut held = BTreeSet::new();
    for (path, text) in files {
        let mut in_tests = ["/tests/", "/benches/", "tests.rs"].iter().any(|it| path.contains(it));
        for (index, line) in text.lines().enumerate() {
            in_tests |= line.starts_with("mod ") && line.ends_with("tests {");
            let words = line.trim_start();
            for tag in tags_in(line) {
                let place = format!("{path}:{}", index + 1);
                if words.starts_with("//!") && !in_tests {
                    defined.entry(tag).or_insert(place);
                    continue;
                }
                named.push((tag, place));
                if !words.starts_with(if in_tests { "//!" } else { "//" }) {
                    held.insert(tag);
                }
            }
        }
    }
    let unknown = named.iter().filter(|(tag, _)| !defined.contains_key(tag));
    let unknown = unknown.map(|(tag, place)| format!("{place}: no module header defines {tag}"));
    let claimed = defined.iter().filter(|(tag, _)| !held.contains(*tag));
    let claimed = claimed.map(|(tag, place)| {
        format!("{place}: {tag} is claimed only: assert it, or name it in a test")
    });
    unknown.chain(claimed).collect()
}

fn tags_in(line: &str) -> impl Iterator<Item = &str> {
    line.split('[').skip(1).filter_map(|rest| {
        let (tag, _) = rest.split_once(']')?;
        let (letters, digits) = tag.split_once('-')?;
        let lettered = letters.bytes().all(|byte| byte.is_ascii_uppercase());
        let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        ((2..=4).contains(&letters.len()) && lettered && numbered).then_some(tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(samples: &[(&str, &str)]) -> Texts {
        samples.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    fn places(findings: &[String]) -> Vec<&str> {
        findings.iter().map(|finding| finding.split(": ").next().unwrap()).collect()
    }

    #[test]
    fn all_text_is_read_but_what_is_built_or_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["a.rs", "crates/io/target/b.rs", "target/debug/c.rs", ".git/config"];
        for path in all.map(|path| dir.path().join(path)) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        fs::write(dir.path().join("a.png"), [0x89, 0xff]).unwrap();
        let mut found = Texts::new();
        read(dir.path(), "", &mut found).unwrap();
        assert_eq!(found, texts(&[("a.rs", "x"), ("crates/io/target/b.rs", "x")]));
    }

    #[test]
    fn leftover_words_are_found_as_whole_words() {
        for word in LEFTOVER {
            let text = format!("fine\n// {word}: later\n_{word}, {word}{word}\n");
            assert_eq!(places(&leftovers(&texts(&[("a.md", &text)]))), ["a.md:2"]);
        }
        assert!(leftovers(&texts(&[("a.md", "todo = \"deny\"\n")])).is_empty());
    }

    #[test]
    fn a_file_opens_with_what_it_is_and_is_short_and_named() {
        let count = |path, text: &str| shape(path, text).len();
        assert_eq!(count("crates/io/src/a.rs", "//! What it is.\nfn a() {}\n"), 0);
        assert_eq!(count("crates/io/src/a.rs", "// Copyright\n//! What it is.\n"), 1);
        assert_eq!(count("crates/io/src/a.rs", &"//! x\n".repeat(800)), 0);
        assert_eq!(count("crates/io/src/a.rs", &"//! x\n".repeat(801)), 1);
        assert_eq!(count("crates/io/src/utils.rs", "//! x\n"), 1);
        assert_eq!(count("crates/io/tests/common/mod.rs", "//! x\n"), 1);
    }

    #[test]
    fn dependencies_point_down_and_tests_may_use_the_simulated_disk() {
        assert_eq!(layer("forebay", "forebay-io", false), None);
        assert_eq!(layer("forebay", "forebay-sim", true), None);
        for (package, dependency) in
            [("forebay", "forebay-sim"), ("forebay-io", "forebay"), ("forebay-new", "forebay-io")]
        {
            assert!(layer(package, dependency, false).is_some(), "{package} {dependency}");
        }
        // Compared with its peers by the laboratory's statistics.
        let is_other = |name: &str| !["forebay-compare", "forebay-cli"].contains(&name);
        let mut others = LAYERS.iter().filter(|(name, _)| is_other(name));
        assert!(others.all(|(name, _)| layer(name, "forebay-cli", true).is_some()));
        assert_eq!(layer("forebay-cli", "forebay-cli", true), None);
        assert!(layer("forebay-cli", "forebay-cli", false).is_some());
    }

    fn broken(body: &str) -> usize {
        tags(texts(&[("crates/io/src/a.rs", &format!("//! [RS-1] a <= b\n{body}\n"))]).iter()).len()
    }

    #[test]
    fn a_tag_that_is_claimed_only_fails() {
        for body in ["fn a() {}", "/// Keeps [RS-1].\nfn a() {}", "    // [RS-1]\n"] {
            assert_eq!(broken(body), 1, "{body}");
        }
        let claimed_again = [
            ("crates/io/src/a.rs", "//! [RS-1] a <= b\n"),
            ("crates/io/tests/b.rs", "//! Tests [RS-1].\nfn a() {}\n"),
        ];
        assert_eq!(places(&tags(texts(&claimed_again).iter())), ["crates/io/src/a.rs:1"]);
    }

    #[test]
    fn a_message_or_a_test_holds_a_tag() {
        for body in
            ["fn a() { assert!(a <= b, \"[RS-1]\"); }", "mod tests {\n    // Holds [RS-1].\n}"]
        {
            assert_eq!(broken(body), 0, "{body}");
        }
        let header = ("crates/io/src/a.rs", "//! [RS-1] a <= b\n");
        for path in ["crates/io/tests/b.rs", "crates/io/src/a/tests.rs"] {
            assert!(tags(texts(&[header, (path, "// [RS-1]\n")]).iter()).is_empty(), "{path}");
        }
    }

    #[test]
    fn an_unknown_tag_fails_wherever_it_stands() {
        for body in ["// see [RS-2]", "fn a() { b(\"[RS-2]\"); }", "/// [RS-2]\nfn a() {}"] {
            assert_eq!(broken(&format!("assert!(d, \"[RS-1]\");\n{body}")), 1, "{body}");
        }
        let others = "//! [A-1] [ABCDE-1] [ab-1] [AB-x] [AB-] AB-1 [AB-1 AB-2] [crate::a]\n";
        assert!(tags(texts(&[("crates/io/src/a.rs", others)]).iter()).is_empty());
    }
}
