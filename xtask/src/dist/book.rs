//! The documentation as a book: docs/ with README.md in front, by mdBook.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::{Dist, copy, output, succeed};
use crate::links::{self, Link};

const MDBOOK: [&str; 2] = ["mdbook", "0.5.4"];

const BOOK: &str = "[book]\ntitle = \"Forebay\"\nlanguage = \"en\"\nauthors = [\"The Forebay founders\"]\n\n\
    [output.html.search]\nenable = true\n";

pub(super) fn make(dist: &Dist) -> Result<()> {
    let tools = dist.tools();
    let [name, version] = MDBOOK;
    let mut install = Command::new("cargo");
    install.args(["install", "--quiet", "--locked", "--version", version, "--root"]);
    succeed(install.arg(&tools).arg(name))?;
    let stage = dist.stage("book")?;
    fs::write(stage.join("book.toml"), BOOK)?;
    let source = stage.join("src");
    copy(&dist.root().join("docs"), &source)?;
    let found = output(Command::new("find").arg(&source).args(["-name", "*.md"]))?;
    for path in found.lines() {
        let page = path.strip_prefix(&*source.to_string_lossy()).unwrap_or(path);
        let text = fs::read_to_string(path)?;
        fs::write(path, moved(&format!("docs{page}"), &text))?;
    }
    let readme = fs::read_to_string(dist.root().join("README.md"))?;
    fs::write(source.join("README.md"), moved("README.md", &readme))?;
    let html = stage.join("html");
    let mut build = Command::new(tools.join("bin").join(name));
    output(build.arg("build").arg(&stage).arg("--dest-dir").arg(&html))?;
    dist.tar("forebay-book", "", &html)
}

/// A page as it stands in the book, in which docs/ is the root and has README.md. What is not in the book is no link.
fn moved(page: &str, text: &str) -> String {
    let up = "../".repeat(page.strip_prefix("docs/").unwrap_or(page).matches('/').count());
    let mut moved = text.to_owned();
    for Link { whole, text: words, path, heading } in links::links(page, text).into_iter().rev() {
        let target = match path.strip_prefix("docs/") {
            Some(path) => Some(path),
            None => (path == "README.md").then_some("README.md"),
        };
        let words = &text[words];
        let heading = heading.map_or(String::new(), |it| format!("#{it}"));
        let link = match target {
            Some(target) => format!("[{words}]({up}{target}{heading})"),
            None => words.to_owned(),
        };
        moved.replace_range(whole, &link);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::moved;

    #[test]
    fn links_of_the_book_stay_in_the_book() {
        let readme = "[a](docs/lab.md#install), [results](results), ![x](docs/x.svg)";
        let expected = "[a](lab.md#install), results, ![x](x.svg)";
        assert_eq!(moved("README.md", readme), expected);
        let decision = "[a](../lab.md) [b](0002.md) [c](../../README.md) [d](../../CHANGELOG.md)";
        let expected = "[a](../lab.md) [b](../adr/0002.md) [c](../README.md) d";
        assert_eq!(moved("docs/adr/0001.md", decision), expected);
    }
}
