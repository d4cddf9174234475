//! The links of our Markdown files: where they lead, and those that lead nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// A link within the repository.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Of `[text](target)`, in bytes.
    pub(crate) whole: Range<usize>,
    /// Of the text between the brackets.
    pub(crate) text: Range<usize>,
    /// The file, relative to the root and `/`-separated.
    pub(crate) path: String,
    /// The part after `#`, if there is one.
    pub(crate) heading: Option<String>,
}

/// The links of `page`, a path relative to the root, to files of the repository. Those in blocks of code are none.
pub(crate) fn links(page: &str, text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut in_code = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code {
            links.extend(in_line(page, line, start));
        }
        start += line.len();
    }
    links
}

fn in_line(page: &str, line: &str, start: usize) -> Vec<Link> {
    let ends = line.match_indices("](").filter_map(|(middle, _)| {
        let end = middle + line[middle..].find(')')?;
        let target = &line[middle + 2..end];
        let opening = opening(&line[..middle])?;
        let is_outside = target.contains("://") || target.starts_with("mailto:");
        let (file, heading) = match target.split_once('#') {
            Some((file, heading)) => (file, Some(heading.to_owned())),
            None => (target, None),
        };
        let path = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
        let (whole, text) = (start + opening..start + end + 1, start + opening + 1..start + middle);
        (!is_outside).then_some(Link { whole, text, path, heading })
    });
    ends.collect()
}

/// Where the bracket is that the end of `text` closes.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().rev().find_map(|(at, it)| {
        depth += match it {
            ']' => 1,
            '[' => -1,
            _ => 0,
        };
        (depth == 0).then_some(at)
    })
}

fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The links of `texts` that lead to no file below `root`, or to no heading.
pub(crate) fn broken(root: &Path, texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    let is_page = |path: &str| Path::new(path).extension().is_some_and(|end| end == "md");
    for (page, text) in texts.iter().filter(|(path, _)| is_page(path)) {
        for Link { whole, path, heading, .. } in links(page, text) {
            let line = text[..whole.start].matches('\n').count() + 1;
            let shown = &text[whole];
            if !root.join(&path).exists() {
                findings.push(format!("{page}:{line}: there is no file {path}: {shown}"));
            } else if let (Some(heading), Some(target)) = (heading, texts.get(&path))
                && !headings(target).contains(&heading)
            {
                findings.push(format!("{page}:{line}: {path} has no such heading: {shown}"));
            }
        }
    }
    findings
}

/// The names by which the headings of a page can be linked to, as GitHub and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let titles = text.lines().filter_map(|line| {
        in_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        (!in_code && title.len() < line.len() && title.starts_with(' ')).then_some(title.trim())
    });
    let kept = |it: &char| it.is_alphanumeric() || matches!(it, '-' | '_' | ' ');
    let name = |title: &str| title.to_lowercase().chars().filter(kept).collect::<String>();
    titles.map(|title| name(title).replace(' ', "-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_their_page() {
        let text = "See [a `[b]`](../x.md#first-part), [c](https://d.e), ![f](g.svg).\n```\n[h](i)\n```\n[j](#k)\n";
        let found = links("docs/adr/1.md", text);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (&text[it.text.clone()], &*it.path, it.heading.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("a `[b]`", "docs/x.md", Some("first-part")),
                ("f", "docs/adr/g.svg", None),
                ("j", "docs/adr/1.md", Some("k"))
            ]
        );
        assert_eq!(&text[found[0].whole.clone()], "[a `[b]`](../x.md#first-part)");
    }

    #[test]
    fn a_missing_file_and_a_missing_heading_are_found() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("a.md"), "").expect("a file");
        let text = "# What it's for, `x`\n[b](b.md)\n[c](a.md#what-its-for-x) [d](#what-for)\n";
        let texts = BTreeMap::from([("a.md".to_owned(), text.to_owned())]);
        let missing = [
            "a.md:2: there is no file b.md: [b](b.md)",
            "a.md:3: a.md has no such heading: [d](#what-for)",
        ];
        assert_eq!(broken(root.path(), &texts), missing);
    }
}
