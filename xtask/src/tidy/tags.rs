//! Invariant tags: what a module header claims, an assert or a test holds it to.
//!
//! A tag is two to four capitals, a dash and a number in square brackets. A `//!` line outside tests
//! defines it; it is checked when it stands in the message of an assert, panic or expect, or
//! anywhere in a test. Anything else (a doc comment, an error's text) is a mention: it has to
//! name a defined tag, and proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::RustFile;

/// Calls whose message is taken for a check; every `assert…` and `debug_assert…` is one too.
const CHECKS: [&str; 4] = ["panic", "unreachable", "expect", "expect_err"];

#[derive(Debug, PartialEq, Eq)]
enum Use {
    Definition,
    Check,
    Mention,
}

/// Compares the tags defined in one crate's `files` with those used there.
pub(crate) fn check(files: &[&RustFile]) -> Vec<Finding> {
    let mut defined: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    let mut checked: BTreeSet<String> = BTreeSet::new();
    let mut used: Vec<(String, &str, usize)> = Vec::new();
    for file in files {
        for (tag, at) in tags_in(&file.comments).into_iter().chain(tags_in(&file.strings)) {
            let place = (file.path.as_str(), file.line_of(at));
            match classify(file, at) {
                Use::Definition => {
                    defined.entry(tag).or_insert(place);
                }
                Use::Check => {
                    checked.insert(tag.clone());
                    used.push((tag, place.0, place.1));
                }
                Use::Mention => used.push((tag, place.0, place.1)),
            }
        }
    }
    let unproved = defined.iter().filter(|(tag, _)| !checked.contains(*tag));
    let mut findings: Vec<Finding> = unproved
        .map(|(tag, (path, line))| {
            let advice = format!("{tag} is claimed only: name it in an assert's message or a test");
            Finding::new(path, *line, "tag-unchecked", advice)
        })
        .collect();
    for (tag, path, line) in used {
        if !defined.contains_key(&tag) {
            let advice =
                format!("{tag} is in no module header of this crate: define or correct it");
            findings.push(Finding::new(path, line, "tag-undefined", advice));
        }
    }
    findings
}

fn classify(file: &RustFile, at: usize) -> Use {
    let inner_doc = line_at(&file.comments, at).trim_start().starts_with("//!");
    if inner_doc {
        return if file.is_test(at) { Use::Mention } else { Use::Definition };
    }
    if file.is_test(at) || above_test(file, at) || in_check(&file.code, at) {
        Use::Check
    } else {
        Use::Mention
    }
}

/// The tags in a view, each with its position; brackets are part of the tag.
fn tags_in(view: &[char]) -> Vec<(String, usize)> {
    let mut tags = Vec::new();
    for (at, _) in view.iter().enumerate().filter(|(_, c)| **c == '[') {
        let inside: String = view[at + 1..].iter().take_while(|c| **c != ']').take(12).collect();
        let Some((letters, digits)) = inside.split_once('-') else {
            continue;
        };
        let named = (2..=4).contains(&letters.len())
            && letters.bytes().all(|byte| byte.is_ascii_uppercase());
        let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if named && numbered {
            tags.push((format!("[{inside}]"), at));
        }
    }
    tags
}

fn line_at(view: &[char], at: usize) -> String {
    let start = view[..at].iter().rposition(|c| *c == '\n').map_or(0, |newline| newline + 1);
    view[start..].iter().take_while(|c| **c != '\n').collect()
}

/// Whether `at` is in a comment with only comments and attributes between it and a `#[test]`.
fn above_test(file: &RustFile, at: usize) -> bool {
    if file.comments[at] == ' ' {
        return false;
    }
    let first = file.line_of(at) - 1;
    let comments = file.comment_lines();
    for (index, (_, code)) in file.code_lines().iter().enumerate().skip(first) {
        let code = code.trim();
        if code.starts_with("#[test]") {
            return true;
        }
        let only_comment = code.is_empty() && !comments[index].1.trim().is_empty();
        if !only_comment && !code.starts_with("#[") {
            return false;
        }
    }
    false
}

/// Whether `at`, inside a string, is an argument of a call that checks.
fn in_check(code: &[char], at: usize) -> bool {
    let mut depth = 0_usize;
    for (index, c) in code[..at].iter().enumerate().rev() {
        match c {
            ')' | ']' | '}' => depth += 1,
            '(' | '[' | '{' if depth > 0 => depth -= 1,
            '(' if is_check(&code[..index]) => return true,
            '{' | ';' if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// Whether the call whose arguments open after `code` is one that checks.
fn is_check(code: &[char]) -> bool {
    let name = code.strip_suffix(&['!']).unwrap_or(code);
    let start = name.iter().rposition(|c| !c.is_alphanumeric() && *c != '_');
    let name: String = name[start.map_or(0, |at| at + 1)..].iter().collect();
    name.starts_with("assert")
        || name.starts_with("debug_assert")
        || CHECKS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::source::mark_test_modules;
    use super::*;

    fn rules(samples: &[(&str, &str)]) -> Vec<&'static str> {
        let mut files: Vec<RustFile> =
            samples.iter().map(|(path, text)| RustFile::new(path, text)).collect();
        mark_test_modules(&mut files);
        let files: Vec<&RustFile> = files.iter().collect();
        check(&files).into_iter().map(|finding| finding.rule).collect()
    }

    fn with_header(body: &str) -> Vec<&'static str> {
        rules(&[("crates/io/src/a.rs", &format!("//! Invariants: [RS-1] a <= b\n{body}\n"))])
    }

    #[test]
    fn a_claim_alone_fails() {
        assert_eq!(with_header("fn a() {}"), ["tag-unchecked"]);
        assert_eq!(with_header("/// Keeps [RS-1].\nfn a() {}"), ["tag-unchecked"]);
        assert_eq!(with_header("fn a() { b(\"[RS-1]\"); }"), ["tag-unchecked"]);
        assert_eq!(with_header("fn a() { assert!(b); c(\"[RS-1]\"); }"), ["tag-unchecked"]);
    }

    #[test]
    fn a_check_in_code_is_enough() {
        let checks = [
            "assert!(a <= b, \"[RS-1]\");",
            "debug_assert_eq!(f(a), b, \"[RS-1] {a}\");",
            "a.expect(\"[RS-1]: b is set\");",
            "panic!(\"[RS-1]\");",
            "assert!(a, \"{}\", format!(\"[RS-1] {}\", b(1)));",
            "c.unwrap_or_else(|e| unreachable!(\"[RS-1] {e}\"));",
        ];
        for check in checks {
            assert!(with_header(&format!("fn a() {{ {check} }}")).is_empty(), "{check}");
        }
    }

    #[test]
    fn a_test_is_enough() {
        let tests = [
            "#[cfg(test)]\nmod tests {\n    // Holds [RS-1].\n    fn a() {}\n}",
            "// [RS-1]\n// at any time\n#[should_panic]\n#[test]\nfn a() {}",
            "#[test]\nfn a() { b(\"[RS-1]\"); }",
        ];
        for test in tests {
            assert!(with_header(test).is_empty(), "{test}");
        }
        let header = ("crates/io/src/a.rs", "//! [RS-1] a <= b\n");
        let test = ("crates/io/tests/b.rs", "//! Tests.\n// [RS-1]\nfn a() {}\n");
        assert!(rules(&[header, test]).is_empty());
        let claimed_twice = ("crates/io/tests/b.rs", "//! Tests [RS-1].\nfn a() {}\n");
        assert_eq!(rules(&[header, claimed_twice]), ["tag-unchecked"]);
    }

    #[test]
    fn an_unknown_tag_fails_wherever_it_stands() {
        for body in ["// see [RS-2]", "fn a() { b(\"[RS-2]\"); }", "/// [RS-2]\nfn a() {}"] {
            let body = format!("fn c() {{ assert!(d, \"[RS-1]\"); }}\n{body}");
            assert_eq!(with_header(&body), ["tag-undefined"], "{body}");
        }
    }

    #[test]
    fn only_the_tag_pattern_is_a_tag() {
        let text = "//! [A-1] [ABCDE-1] [ab-1] [AB-x] [AB-] AB-1 [AB-1 AB-2] [crate::a]\n";
        assert!(rules(&[("crates/io/src/a.rs", text)]).is_empty());
    }
}
