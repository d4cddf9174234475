//! Rules for Rust files: how a file opens, what a module may be called, what stays out of a library.

use super::Finding;
use super::source::RustFile;
use super::text::contains_word;

/// Names that say nothing about what a module does.
const VAGUE_MODULES: [&str; 4] = ["common", "utils", "helpers", "prelude"];

/// What a library gets from its caller instead, and the words by which it would help itself.
const AMBIENT: [(&str, &str); 9] = [
    ("println!", "return the text"),
    ("print!", "return the text"),
    ("eprintln!", "return an error or emit a tracing event"),
    ("eprint!", "return an error or emit a tracing event"),
    ("dbg!", "emit a tracing event"),
    ("std::env", "take the value as an option"),
    ("env::", "take the value as an option"),
    ("Instant::now", "take the clock as an argument"),
    ("SystemTime", "take the clock as an argument"),
];

/// The crates that measure: programs, which nothing depends on.
const PROGRAMS: [&str; 2] = ["crates/lab", "crates/compare"];

/// The default clock of the pool, which is handed one, and the clock by which emulated devices run: the
/// only places below the programs that ask the system for the time.
const CLOCK_FILES: [&str; 2] =
    ["crates/pool/src/clock.rs", "crates/emulate/src/clockwork/clock.rs"];

/// A file says first what it is: its first line is inner documentation.
pub(crate) fn header(file: &RustFile) -> Option<Finding> {
    let ours = file.path.starts_with("crates/") || file.path.starts_with("xtask/");
    let opens = file.comments.starts_with(&['/', '/', '!']);
    (ours && !opens)
        .then(|| Finding::new(&file.path, 1, "header", "open the file with `//! What it is: …`"))
}

/// A module is named for what it does.
pub(crate) fn module_names(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (_, line)) in file.code_lines().iter().enumerate() {
        for name in VAGUE_MODULES {
            if contains_word(line, &format!("mod {name}")) {
                let advice = format!("name the module `{name}` for what it does");
                findings.push(Finding::new(&file.path, index + 1, "module-name", advice));
            }
        }
    }
    findings
}

/// No crate below the programs prints, or reads the environment or the clock, outside tests and
/// examples.
pub(crate) fn ambient(file: &RustFile) -> Vec<Finding> {
    let is_program = |dir| PROGRAMS.contains(&dir) || is_example(file, dir);
    if file.crate_dir().is_none_or(is_program) || CLOCK_FILES.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, (start, line)) in file.code_lines().iter().enumerate() {
        let met = AMBIENT.iter().find(|(word, _)| starts_word(line, word));
        if let Some((word, instead)) = met
            && !file.is_test(*start)
        {
            let advice = format!("a library uses no `{word}`: {instead}");
            findings.push(Finding::new(&file.path, index + 1, "ambient", advice));
        }
    }
    findings
}

/// An example is a program: it has arguments, a user to print for, and a clock of its own.
fn is_example(file: &RustFile, crate_dir: &str) -> bool {
    file.path[crate_dir.len()..].starts_with("/examples/")
}

/// Whether `word` stands in `line` and is not the tail of a longer name.
fn starts_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::super::source::mark_test_modules;
    use super::*;

    #[test]
    fn a_file_opens_with_inner_documentation() {
        let opens = |path, text| header(&RustFile::new(path, text)).is_none();
        assert!(opens("crates/io/src/a.rs", "//! What it is.\nfn a() {}\n"));
        assert!(!opens("crates/io/src/a.rs", "fn a() {}\n"));
        assert!(!opens("crates/io/src/a.rs", "// Copyright\n//! What it is.\n"));
        assert!(!opens("crates/io/tests/a.rs", ""));
        assert!(opens("fuzz/a.rs", "fn a() {}\n"));
    }

    #[test]
    fn vague_module_names_fail() {
        let count = |text| module_names(&RustFile::new("crates/io/src/a.rs", text)).len();
        assert_eq!(count("mod common;\npub mod utils {}\n"), 2);
        assert_eq!(count("pub(crate) mod helpers;\nmod prelude;\n"), 2);
        assert_eq!(count("mod common_case; // mod common\nlet a = \"mod utils\";\n"), 0);
    }

    #[test]
    fn libraries_use_nothing_ambient() {
        let count = |path: &str, text: &str| ambient(&RustFile::new(path, text)).len();
        let bad = [
            "fn a() { println!(\"x\"); }",
            "fn a() { eprint!(\"x\"); }",
            "use std::env;",
            "fn a() { env::var(\"X\"); }",
            "fn a() { std::time::Instant::now(); }",
            "use std::time::SystemTime;",
        ];
        for text in bad {
            assert_eq!(count("crates/io/src/a.rs", text), 1, "{text}");
            assert_eq!(count("crates/lab/src/a.rs", text), 0, "{text}");
            assert_eq!(count("crates/io/examples/a.rs", text), 0, "{text}");
            assert_eq!(count("crates/compare/src/a.rs", text), 0, "{text}");
            let test = format!("#[cfg(test)]\nmod tests {{\n{text}\n}}\n");
            assert_eq!(count("crates/io/src/a.rs", &test), 0, "{text}");
        }
        let good =
            ["// println!(\"x\")", "let a = \"SystemTime\";", "env!(\"A\");", "my_env::a();"];
        for text in good {
            assert_eq!(count("crates/io/src/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn integration_tests_may_print() {
        let mut files = [RustFile::new("crates/io/tests/a.rs", "fn a() { println!(); }")];
        mark_test_modules(&mut files);
        assert_eq!(ambient(&files[0]), []);
    }
}
