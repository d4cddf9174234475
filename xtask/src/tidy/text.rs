//! Rules for any text: paths, leftover words, white space, length.

use super::Finding;

/// A Rust file longer than this is split.
const LINES_MAX: usize = 800;
/// A Rust file longer than this is thought about.
const LINES_WARN: usize = 600;

/// Words that mark unfinished work, put together here so that this file does not hold them.
const LEFTOVER: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Paths are ASCII, so that every file system and terminal shows the same name.
pub(crate) fn ascii_path(path: &str) -> Option<Finding> {
    let plain = path.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (!plain).then(|| Finding::new(path, 1, "ascii-path", "rename the file to printable ASCII"))
}

/// No mark of unfinished work stays in the tree.
pub(crate) fn leftover_words(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in LEFTOVER {
            if contains_word(line, word) {
                let advice = format!("do what the {word} says, or write an issue, and remove it");
                findings.push(Finding::new(path, index + 1, "leftover", advice));
            }
        }
    }
    findings
}

/// No trailing white space and no tabs in the files that people edit.
pub(crate) fn whitespace(path: &str, text: &str) -> Vec<Finding> {
    if ![".rs", ".md", ".toml"].iter().any(|end| path.ends_with(end)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with(char::is_whitespace) {
            let advice = "remove the white space at the line's end";
            findings.push(Finding::new(path, index + 1, "whitespace", advice));
        }
        if line.contains('\t') {
            let advice = "use spaces, or \\t in a string, for the tab";
            findings.push(Finding::new(path, index + 1, "whitespace", advice));
        }
    }
    findings
}

/// Files stay short enough to be read in one sitting.
pub(crate) fn size(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let advice = format!("split the file: {lines} lines, {LINES_MAX} at most");
        Some(Finding::new(path, 1, "size", advice))
    } else if lines > LINES_WARN {
        let advice = format!("think about splitting the file: {lines} lines");
        Some(Finding { warning: true, ..Finding::new(path, 1, "size", advice) })
    } else {
        None
    }
}

/// Whether `line` holds `word` with no identifier character on either side.
pub(crate) fn contains_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ascii_paths_pass() {
        assert_eq!(ascii_path("crates/io/src/lib.rs"), None);
        assert!(ascii_path("docs/caf\u{e9}.md").is_some());
        assert!(ascii_path("docs/two\nlines.md").is_some());
    }

    #[test]
    fn leftover_words_are_found_as_whole_words() {
        for word in LEFTOVER {
            assert_eq!(leftover_words("a.md", &format!("fine\n// {word}: later\n")).len(), 1);
            assert_eq!(leftover_words("a.md", &format!("name.{word}{word}\n")), []);
        }
        assert_eq!(leftover_words("a.md", "todo = \"deny\"\n"), []);
    }

    #[test]
    fn leftover_words_tell_the_line() {
        let text = format!("a\nb\n{}\n", LEFTOVER[0]);
        assert_eq!(leftover_words("a.md", &text)[0].line, 3);
    }

    #[test]
    fn trailing_space_and_tabs_fail_in_edited_files_only() {
        assert_eq!(whitespace("a.rs", "fn a() {}\n    b();\n"), []);
        assert_eq!(whitespace("a.rs", "fn a() {} \n").len(), 1);
        assert_eq!(whitespace("a.md", "words\r\n").len(), 1);
        assert_eq!(whitespace("a.toml", "a =\t1\n").len(), 1);
        assert_eq!(whitespace("a.csv", "a\tb \n"), []);
    }

    #[test]
    fn long_files_warn_then_fail() {
        assert_eq!(size("a.rs", &"x\n".repeat(600)), None);
        assert!(size("a.rs", &"x\n".repeat(601)).unwrap().warning);
        assert!(size("a.rs", &"x\n".repeat(800)).unwrap().warning);
        assert!(!size("a.rs", &"x\n".repeat(801)).unwrap().warning);
    }
}
