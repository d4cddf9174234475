//! A Rust file seen three ways: its code, its comments, its string contents.
//!
//! The three views have the file's own lines and columns; what belongs to another view is blank.
//! So a rule can look for a word in code without meeting it in a message, and a position in one
//! view is a position in the others. Example, for the line `a("b"); // c`:
//! ```text
//! code      a(" ");
//! strings      b
//! comments           // c
//! ```
//! Character literals count as code with a blank content. The scanner trusts that rustc accepts
//! the file: on broken source its views are merely useless.

use std::ops::Range;

/// One Rust file with its views and its test regions.
#[derive(Debug)]
pub(crate) struct RustFile {
    /// Relative to the root, `/`-separated.
    pub(crate) path: String,
    pub(crate) code: Vec<char>,
    pub(crate) comments: Vec<char>,
    pub(crate) strings: Vec<char>,
    /// Character ranges compiled only for tests.
    pub(crate) test_ranges: Vec<Range<usize>>,
    /// Names declared as `#[cfg(test)] mod NAME;`.
    test_modules: Vec<String>,
}

#[derive(Clone, Copy)]
enum View {
    Code,
    Comment,
    Text,
}

impl RustFile {
    /// Splits `text` into its views and finds the test regions inside it.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut file = Self {
            path: path.to_owned(),
            code: blank(&chars),
            comments: blank(&chars),
            strings: blank(&chars),
            test_ranges: Vec::new(),
            test_modules: Vec::new(),
        };
        let mut at = 0;
        while at < chars.len() {
            let (len, view) = token(&chars, at);
            let range = at..at + len;
            match view {
                View::Code => file.code[range.clone()].copy_from_slice(&chars[range]),
                View::Comment => file.comments[range.clone()].copy_from_slice(&chars[range]),
                View::Text => file.put_string(&chars, range),
            }
            at += len;
        }
        file.find_tests();
        file
    }

    /// Delimiters stay in the code, the content goes to the strings.
    fn put_string(&mut self, chars: &[char], range: Range<usize>) {
        let quote = |at: &usize| matches!(chars[*at], '"' | '\'');
        let first = range.clone().find(quote).unwrap_or(range.start);
        let last = range.clone().rev().find(quote).unwrap_or(range.start);
        for at in range {
            if at <= first || at >= last {
                self.code[at] = chars[at];
            } else if chars[first] == '"' {
                self.strings[at] = chars[at];
            }
        }
    }

    fn find_tests(&mut self) {
        let code: String = self.code.iter().collect();
        if code.contains("#![cfg(test)]") {
            self.test_ranges.push(0..self.code.len());
        }
        for mark in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
            let mark: Vec<char> = mark.chars().collect();
            for start in 0..self.code.len().saturating_sub(mark.len()) {
                if self.code[start..].starts_with(&mark) {
                    let end = item_end(&self.code, start);
                    self.test_ranges.push(start..end);
                    self.test_modules.extend(module_declared(&self.code[start..end]));
                }
            }
        }
    }

    /// Whether the character at `at` is compiled only for tests.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.test_ranges.iter().any(|range| range.contains(&at))
    }

    /// The line, from 1, of the character at `at`.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        1 + self.code[..at].iter().filter(|c| **c == '\n').count()
    }

    /// Start and text of each line of the code view.
    pub(crate) fn code_lines(&self) -> Vec<(usize, String)> {
        lines(&self.code)
    }

    /// Start and text of each line of the comment view.
    pub(crate) fn comment_lines(&self) -> Vec<(usize, String)> {
        lines(&self.comments)
    }

    /// `crates/io` for a file of the crate there; none outside crates/.
    pub(crate) fn crate_dir(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("crates/")?;
        let name = rest.split('/').next()?;
        Some(&self.path[.."crates/".len() + name.len()])
    }

    /// Whether cargo compiles the file as a test or benchmark of its crate.
    fn is_test_target(&self) -> bool {
        let inside = self.crate_dir().map_or("", |dir| &self.path[dir.len()..]);
        inside.starts_with("/tests/") || inside.starts_with("/benches/")
    }
}

/// Marks whole files as tests: integration tests, and files that a `#[cfg(test)] mod x;` names.
pub(crate) fn mark_test_modules(files: &mut [RustFile]) {
    let mut modules = Vec::new();
    for file in files.iter() {
        let (dir, name) = file.path.rsplit_once('/').unwrap_or((".", &file.path));
        let stem = name.trim_end_matches(".rs");
        let base = match stem {
            "lib" | "main" | "mod" => dir.to_owned(),
            _ => format!("{dir}/{stem}"),
        };
        modules.extend(file.test_modules.iter().map(|module| format!("{base}/{module}")));
    }
    for file in files {
        let named = modules.iter().any(|module| {
            let rest = file.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
        if named || file.is_test_target() {
            file.test_ranges = std::iter::once(0..file.code.len()).collect();
        }
    }
}

fn blank(chars: &[char]) -> Vec<char> {
    chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }).collect()
}

fn lines(view: &[char]) -> Vec<(usize, String)> {
    let mut start = 0;
    let mut found = Vec::new();
    for line in view.split(|c| *c == '\n') {
        found.push((start, line.iter().collect()));
        start += line.len() + 1;
    }
    found
}

/// Length and view of the token that starts at `at`; code is taken one identifier or sign at a time.
fn token(chars: &[char], at: usize) -> (usize, View) {
    let rest = &chars[at..];
    match rest {
        ['/', '/', ..] => (find(rest, |rest| rest[0] == '\n'), View::Comment),
        ['/', '*', ..] => (block_comment(rest), View::Comment),
        ['"', ..] => (quoted(rest, '"'), View::Text),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (quoted(rest, '\''), View::Text),
        [c, ..] if is_word(*c) => {
            let word = find(rest, |rest| !is_word(rest[0]));
            let raw = matches!(rest[..word], ['r'] | ['b' | 'c', 'r']);
            match raw.then(|| raw_string(rest, word)).flatten() {
                Some(len) => (len, View::Text),
                None => (word, View::Code),
            }
        }
        _ => (1, View::Code),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Characters before the first position at which `stop` holds; all of them if it never does.
fn find(rest: &[char], stop: impl Fn(&[char]) -> bool) -> usize {
    (0..rest.len()).find(|at| stop(&rest[*at..])).unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a raw string whose `r` prefix has `prefix` characters, if it is one.
fn raw_string(rest: &[char], prefix: usize) -> Option<usize> {
    let hashes = find(&rest[prefix..], |rest| rest[0] != '#');
    let content = prefix + hashes + 1;
    if rest.get(content - 1) != Some(&'"') {
        return None;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|c| *c == '#')
    };
    let end = content + find(&rest[content..], closes) + 1 + hashes;
    Some(end.min(rest.len()))
}

/// The end of the item whose attribute starts at `start`: its `;`, or its closing brace.
fn item_end(code: &[char], start: usize) -> usize {
    let mut depth = 0_i64;
    for (at, c) in code.iter().enumerate().skip(start) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                if depth <= 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The name in `mod NAME;`, if that is what the item is.
fn module_declared(item: &[char]) -> Option<String> {
    let item: String = item.iter().collect();
    let (_, rest) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    rest.chars().all(is_word).then(|| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(view: &[char]) -> String {
        view.iter().collect()
    }

    #[test]
    fn the_views_keep_columns() {
        let file = RustFile::new("a.rs", "a(\"b\"); // c\n");
        assert_eq!(text(&file.code), "a(\" \");     \n");
        assert_eq!(text(&file.strings), "   b        \n");
        assert_eq!(text(&file.comments), "        // c\n");
    }

    #[test]
    fn strings_of_every_kind_are_no_code() {
        let samples = [
            r#"x("unsafe \" unsafe")"#,
            r##"x(r"unsafe")"##,
            r###"x(br#"unsafe " unsafe"#)"###,
            "/* unsafe /* unsafe */ unsafe */ x()",
            "x('\"'); // unsafe \"",
        ];
        for sample in samples {
            let code = text(&RustFile::new("a.rs", sample).code);
            assert!(!code.contains("unsafe"), "{sample}: {code}");
            assert!(code.contains('x'), "{sample}: {code}");
        }
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        for sample in ["fn a<'b>(c: &'b str) { unsafe {} }", "let r#x = '\\''; unsafe {}"] {
            assert!(text(&RustFile::new("a.rs", sample).code).contains("unsafe {}"), "{sample}");
        }
    }

    #[test]
    fn a_test_module_is_a_test_region_to_its_brace() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"}\"; }\n}\nfn c() {}\n";
        let file = RustFile::new("a.rs", source);
        let at = |what: &str| source.find(what).unwrap();
        assert!(!file.is_test(at("fn a")));
        assert!(file.is_test(at("fn b")));
        assert!(!file.is_test(at("fn c")));
    }

    #[test]
    fn test_files_are_those_named_by_a_module_or_by_cargo() {
        let mut files = vec![
            RustFile::new("crates/io/src/pool.rs", "#[cfg(test)]\nmod tests;\nmod plain;\n"),
            RustFile::new("crates/io/src/pool/tests.rs", "fn a() {}"),
            RustFile::new("crates/io/src/pool/tests/more.rs", "fn a() {}"),
            RustFile::new("crates/io/src/pool/plain.rs", "fn a() {}"),
            RustFile::new("crates/io/tests/all.rs", "fn a() {}"),
            RustFile::new("crates/io/src/tests.rs", "fn a() {}"),
        ];
        mark_test_modules(&mut files);
        let whole: Vec<bool> = files.iter().map(|file| file.is_test(file.code.len() - 1)).collect();
        assert_eq!(whole, [false, true, true, false, true, false]);
    }
}
