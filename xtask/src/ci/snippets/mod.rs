//! The step that runs the snippets of the pages: each fenced block in README.md, docs/ and the packages' own pages.
//!
//! A block's language says how it is run. Those of one page run in order, in one shell or interpreter after another, in
//! a directory of the page's own: what a block leaves behind, the next one finds. Blocks of Rust are tests of the crate
//! that includes their page; blocks marked `text`, and those without a mark, are output or pictures.
//!
//! Commands run as written, as root, on this system: a cluster `snippets` of Debian's is created on port 5432, and removed
//! afterwards.
//! `cargo xtask tidy` reports a block that this step would not run.

mod pages;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::run::Run;
use crate::dist::{self, Kind, output, succeed};
use pages::{PAGES, Page};

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Of its first line, from 1.
    line: usize,
    language: String,
    text: String,
}

/// How the blocks of a language are run.
const RUN: [&str; 6] = ["sh", "sql", "sqlite", "python", "js", "toml"];
/// Blocks that are shown only.
const SHOWN: [&str; 2] = ["", "text"];
/// Crates with an attribute that makes a page's Rust a test: the page, and the file with the attribute.
const RUST: [(&str, &str); 3] = [
    ("README.md", "crates/pool/src/lib.rs"),
    ("docs/engines.md", "crates/pool/src/lib.rs"),
    ("docs/object.md", "crates/object/src/lib.rs"),
];

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (line, content) in text.lines().enumerate() {
        if let Some(mark) = content.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                let (language, text) = (mark.trim().to_owned(), String::new());
                blocks.push(Block { line: line + 2, language, text });
            }
        } else if let (true, Some(block)) = (inside, blocks.last_mut()) {
            block.text += content;
            block.text.push('\n');
        }
    }
    blocks
}

fn is_page(path: &str) -> bool {
    let is_markdown = path.ends_with(".md") || path.ends_with("/METADATA");
    let is_ours = path.starts_with("docs/") || path.starts_with("integrations/");
    is_markdown && (path == "README.md" || is_ours && !path.starts_with("docs/adr/"))
}

/// The blocks that would not run, each with its place and the reason.
pub(crate) fn without_a_test(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_page(path)) {
        for Block { line, language, .. } in blocks(text) {
            let is_included = |(page, source): &(&str, &str)| {
                let name = page.rsplit('/').next().unwrap_or(page);
                page == path
                    && texts.get(*source).is_some_and(|it| it.contains(&format!("{name}\")]")))
            };
            let runs = match &*language {
                it if SHOWN.contains(&it) => true,
                "rust" => RUST.iter().any(is_included),
                it => RUN.contains(&it) && PAGES.iter().any(|page| page.path == path),
            };
            if !runs {
                findings.push(format!("{path}:{line}: a block `{language}` that no test runs"));
            }
        }
    }
    findings
}

pub(super) fn run(run: &mut Run) -> Result<()> {
    let mut object = run.cargo(&["test", "--quiet", "--doc", "-p", "forebay-object"]);
    object.args(["--features", "url"]).envs([run.lints()]);
    run.command(object)?;
    if output(Command::new("id").arg("--user"))? != "0" {
        run.skip("snippets", "needs root, and a system that may be changed");
        return Ok(());
    }
    let root = run.workspace.workspace_root.clone().into_std_path_buf();
    let out = run.workspace.target_directory.join("dist").into_std_path_buf();
    dist::run(run.workspace.clone(), &[Kind::Python, Kind::Node])?;
    let scratch = tempfile::TempDir::with_prefix_in("forebay-snippets-", "/var/tmp")?;
    // A page makes packages, too.
    let packages = scratch.path().join("packages");
    succeed(Command::new("cp").arg("--recursive").args([&out, &packages]))?;
    for page in PAGES {
        if let Some((_, reason)) =
            page.needs.iter().find(|(program, _)| !super::packages::is_there(program))
        {
            run.skip(page.path, reason);
            continue;
        }
        let directory = scratch.path().join(page.path.replace('/', "-"));
        fs::create_dir(&directory)?;
        let text = fs::read_to_string(root.join(page.path))?;
        let script = script(page, &blocks(&text), &directory)?;
        println!("snippets: {}", page.path);
        let bash = || {
            let mut bash = Command::new("bash");
            bash.current_dir(if page.in_checkout { &root } else { &directory });
            bash.env("ROOT", &root).env("PACKAGES", &packages).env("SCRATCH", &directory);
            bash.env("SHARED", scratch.path());
            bash
        };
        let ran = succeed(bash().arg(script)).with_context(|| page.path.to_owned());
        succeed(bash().args(["-c", page.after])).with_context(|| format!("after {}", page.path))?;
        ran?;
    }
    Ok(())
}

/// Writes what runs the page's blocks into `directory`, and returns it.
fn script(page: &Page, blocks: &[Block], directory: &Path) -> Result<PathBuf> {
    fs::write(directory.join("check.py"), pages::CHECK)?;
    let mut script = format!("set -euo pipefail\n{}\n{}\n", pages::BEFORE, page.before.concat());
    for block in blocks.iter().filter(|it| RUN.contains(&&*it.language)) {
        let place = format!("{}:{}", page.path, block.line);
        let file = directory.join(format!("{}.{}", block.line, block.language));
        let mut text = block.text.clone();
        for (from, to) in page.replace {
            text = text.replace(from, to);
        }
        if block.language == "sqlite" {
            text = text.replace("sqlite> ", "");
        }
        fs::write(&file, &text)?;
        script += &format!("printf '\\n-- %s\\n' {place}\n");
        script += &match &*block.language {
            "sh" => text,
            language => format!("run_{language} '{}'\n", file.display()),
        };
        script += &format!("{}\n", page.between);
    }
    let path = directory.join("script.sh");
    fs::write(&path, script)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_language_and_lines() {
        let text = "# A\n\n```sh\nls\nrm x\n```\n\n- in a list:\n  ```\n  a | b\n  ```\n";
        let block = |line, language: &str, text: &str| Block {
            line,
            language: language.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(blocks(text), [block(4, "sh", "ls\nrm x\n"), block(10, "", "  a | b\n")]);
    }

    #[test]
    fn a_block_that_nothing_runs_is_reported() {
        let found = |path: &str, text: &str| {
            without_a_test(&BTreeMap::from([(path.to_owned(), text.to_owned())]))
        };
        assert_eq!(found("docs/lab.md", "```sh\nforebay lab\n```\n"), [""; 0]);
        let unknown = "docs/lab.md:2: a block `go` that no test runs";
        assert_eq!(found("docs/lab.md", "```go\nmain()\n```\n"), [unknown]);
        let page = "docs/new.md:2: a block `sh` that no test runs";
        assert_eq!(found("docs/new.md", "```sh\nls\n```\n"), [page]);
        let rust = "docs/engines.md:2: a block `rust` that no test runs";
        assert_eq!(found("docs/engines.md", "```rust\nfn f() {}\n```\n"), [rust]);
        assert_eq!(found("docs/adr/0001.md", "```go\nmain()\n```\n"), [""; 0]);
    }
}
