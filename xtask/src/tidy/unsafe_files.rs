//! Where `unsafe` may stand: a short list of named files, and nowhere else.
//!
//! The list is checked both ways. A file on it that is gone, or that no longer needs `unsafe`, is an
//! error too, so that the list stays a true map of what has to be reviewed with care. A package
//! without a file on it forbids unsafe code in every crate root.

use super::Finding;
use super::layers::Package;
use super::source::RustFile;
use super::text::contains_word;

/// The files that may contain `unsafe`.
pub(crate) const UNSAFE_FILES: &[&str] = &[
    "crates/io/src/backend/aio.rs",
    "crates/io/src/backend/uring.rs",
    "crates/io/src/backend/in_flight.rs",
    "crates/io/src/memory.rs",
    "crates/io/src/sys/linux.rs",
    "crates/pool/src/frame/memory.rs",
    "crates/pool/src/guard/page.rs",
    "crates/pool/src/table.rs",
];

const LIST: &str = "xtask/src/tidy/unsafe_files.rs";

/// `unsafe` occurs in `allowed` files only, tests included.
pub(crate) fn keyword(file: &RustFile, allowed: &[&str]) -> Vec<Finding> {
    if allowed.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, (_, line)) in file.code_lines().iter().enumerate() {
        if contains_word(line, "unsafe") {
            let advice = format!("write it without `unsafe`, or argue for a line in {LIST}");
            findings.push(Finding::new(&file.path, index + 1, "unsafe", advice));
        }
    }
    findings
}

/// Every file in `allowed` is there and does use `unsafe`.
pub(crate) fn list_is_true(files: &[RustFile], allowed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in allowed {
        let advice = match files.iter().find(|file| file.path == *path) {
            None => format!("no such file: take {path} off the list"),
            Some(file) if keyword(file, &[]).is_empty() => {
                format!("{path} has no `unsafe` any more: take it off the list")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(LIST, 1, "unsafe-list", advice));
    }
    findings
}

/// A package with no file in `allowed` forbids unsafe code in each crate root.
pub(crate) fn forbids(package: &Package, files: &[RustFile], allowed: &[&str]) -> Vec<Finding> {
    let dir = package.manifest.trim_end_matches("Cargo.toml");
    if allowed.iter().any(|path| path.starts_with(dir)) {
        return Vec::new();
    }
    let forbidding = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.is_some_and(|file| {
            let code: String = file.code.iter().collect();
            code.contains("#![forbid(unsafe_code")
        })
    };
    let roots = package.roots.iter().filter(|root| !forbidding(root));
    roots
        .map(|root| Finding::new(root, 1, "forbid-unsafe", "add `#![forbid(unsafe_code)]`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> RustFile {
        RustFile::new(path, text)
    }

    #[test]
    fn the_keyword_needs_a_place_on_the_list() {
        let bad = file("crates/io/src/a.rs", "fn a() {\n    unsafe { b() }\n}\n");
        assert_eq!(keyword(&bad, &[])[0].line, 2);
        assert_eq!(keyword(&bad, &["crates/io/src/a.rs"]), []);
        let good = file("crates/io/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\nb(\"unsafe\");");
        assert_eq!(keyword(&good, &[]), []);
    }

    #[test]
    fn the_list_names_only_files_that_need_it() {
        let files = [file("a.rs", "unsafe { b() }"), file("b.rs", "fn a() {}")];
        assert_eq!(list_is_true(&files, &["a.rs"]), []);
        assert_eq!(list_is_true(&files, &["a.rs", "b.rs", "gone.rs"]).len(), 2);
    }

    #[test]
    fn a_package_off_the_list_forbids_unsafe_in_every_root() {
        let package = Package {
            name: "forebay-lab".to_owned(),
            manifest: "crates/lab/Cargo.toml".to_owned(),
            roots: vec!["crates/lab/src/lib.rs".to_owned(), "crates/lab/src/main.rs".to_owned()],
            dependencies: Vec::new(),
        };
        let with = "//! A.\n#![forbid(unsafe_code)]\n";
        let files =
            [file("crates/lab/src/lib.rs", with), file("crates/lab/src/main.rs", "fn main() {}")];
        let found = forbids(&package, &files, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/lab/src/main.rs");
        assert_eq!(forbids(&package, &files, &["crates/lab/src/memory.rs"]), []);
    }
}
