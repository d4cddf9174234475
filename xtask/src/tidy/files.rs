//! Which files tidy looks at: what git tracks or would add, or everything where there is no git.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Directories that the walk without git leaves out.
const UNTRACKED_DIRS: &[&str] = &[".git", "target"];

/// Lists the files under `root`, as `/`-separated paths relative to it, sorted.
///
/// # Errors
/// A directory cannot be read (in the walk that replaces git).
pub(crate) fn list(root: &Path) -> Result<Vec<String>> {
    let mut paths = match list_by_git(root) {
        Some(paths) => paths,
        None => {
            println!("tidy: git lists nothing here, so every file is looked at");
            let mut paths = Vec::new();
            walk(root, "", &mut paths)?;
            paths
        }
    };
    paths.retain(|path| is_there(root, path));
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Leaves out symbolic links, and what is deleted but still in git's index.
fn is_there(root: &Path, path: &str) -> bool {
    // A name that is no UTF-8 cannot be looked up by its lossy form; the path rule reports it.
    let unreadable = path.contains(char::REPLACEMENT_CHARACTER);
    let meta = root.join(path).symlink_metadata();
    unreadable || meta.is_ok_and(|meta| meta.is_file())
}

fn list_by_git(root: &Path) -> Option<Vec<String>> {
    let said = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !said.status.success() || said.stdout.is_empty() {
        return None;
    }
    let names = said.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn walk(dir: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().with_context(|| format!("cannot examine {path}"))?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && !UNTRACKED_DIRS.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), paths)?;
        }
    }
    Ok(())
}

/// Reads the files that are text (UTF-8); the others have only a path to check.
///
/// # Errors
/// A listed file cannot be read.
pub(crate) fn read_texts(root: &Path, paths: &[String]) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for path in paths {
        let bytes = match fs::read(root.join(path)) {
            Ok(bytes) => bytes,
            // Deleted since it was listed, by an editor or another person.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        };
        if let Ok(text) = String::from_utf8(bytes) {
            texts.insert(path.clone(), text);
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_all_but_build_output_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a.rs", "crates/io/b.rs", "target/debug/c.rs", ".git/config"] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let mut paths = Vec::new();
        walk(dir.path(), "", &mut paths).unwrap();
        paths.sort();
        assert_eq!(paths, ["a.rs", "crates/io/b.rs"]);
    }

    #[test]
    fn only_files_that_are_there_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.rs"), "x").unwrap();
        assert!(is_there(dir.path(), "a.rs"));
        assert!(!is_there(dir.path(), "deleted.rs"));
        assert!(is_there(dir.path(), "caf\u{fffd}.rs"));
    }

    #[test]
    fn bytes_that_are_no_text_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.png"), [0x89, 0xff]).unwrap();
        fs::write(dir.path().join("b.md"), "words").unwrap();
        let paths = ["a.png".to_owned(), "b.md".to_owned()];
        let texts = read_texts(dir.path(), &paths).unwrap();
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["b.md"]);
    }
}
