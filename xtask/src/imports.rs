//! Imports between the files of one crate, for `cargo xtask tidy`: circles, and imports of a higher layer.
//!
//! A file imports another if it names one of its items, by `use` or by a path from `crate` or `super`. A name that
//! a module re-exports counts as an import of the file that defines it. Method calls do not count: the methods of a
//! type may be in several files, and their callers need none of those. Tests are left out.
//!
//! Failure: names in macros are not seen, nor a path that begins with the name of an imported module.

use std::collections::{BTreeMap, BTreeSet};

type Module = Vec<String>;

/// One file: the names it uses, and its re-exports by name.
struct File<'a> {
    path: &'a str,
    names: Vec<Module>,
    handed_on: BTreeMap<String, Module>,
}

/// The files of one crate, and which of them each imports.
pub(crate) struct Imports<'a> {
    files: BTreeMap<Module, File<'a>>,
    /// By file, the files that it imports.
    of: BTreeMap<Module, BTreeSet<Module>>,
}

impl<'a> Imports<'a> {
    /// Reads the imports of the files below `source`.
    pub(crate) fn read(
        source: &str,
        texts: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Imports<'a> {
        let mut files = BTreeMap::new();
        for (path, text) in texts {
            let Some(inside) = path.strip_prefix(source).and_then(|it| it.strip_suffix(".rs"))
            else {
                continue;
            };
            let mut module: Module = inside.split('/').map(str::to_owned).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
                module.pop();
            }
            if !module.iter().any(|part| ["tests", "models"].contains(&part.as_str())) {
                files.insert(module.clone(), parse(path, text, &module));
            }
        }
        let of = files.iter().map(|(module, file)| {
            let found = file.names.iter().filter_map(|name| home(&files, name));
            let found = found.filter(|it| *it != module && !it.is_empty()).cloned();
            (module.clone(), found.collect())
        });
        let of = of.collect();
        Imports { files, of }
    }

    /// Each set of files that import each other, in order.
    pub(crate) fn circles(&self) -> Vec<Vec<&'a str>> {
        let reach: BTreeMap<_, _> = self.of.keys().map(|it| (it, reached(&self.of, it))).collect();
        let mut circles = BTreeSet::new();
        for (module, far) in reach.iter().filter(|(module, far)| far.contains(*module)) {
            let circle = far.iter().filter(|it| reach[*it].contains(module));
            circles.insert(circle.map(|it| self.files[*it].path).collect::<Vec<_>>());
        }
        circles.into_iter().collect()
    }

    /// The imports of a layer above the file's own. `layers`: folders and files of the crate, those of the lowest layer
    /// first; what is in none of them may be imported by all, and may import all.
    pub(crate) fn upward(&self, layers: &[&[&str]]) -> Vec<(&'a str, &'a str)> {
        let layer = |module: &Module| {
            let top = module.first()?;
            layers.iter().position(|layer| layer.contains(&top.as_str()))
        };
        let mut upward = Vec::new();
        for (module, imported) in &self.of {
            let Some(mine) = layer(module) else { continue };
            let above = imported.iter().filter(|it| layer(it).is_some_and(|layer| layer > mine));
            upward.extend(above.map(|it| (self.files[module].path, self.files[it].path)));
        }
        upward
    }
}

fn reached<'m>(
    imports: &'m BTreeMap<Module, BTreeSet<Module>>,
    from: &'m Module,
) -> BTreeSet<&'m Module> {
    let (mut far, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(imports[module].iter().filter(|it| far.insert(*it)));
    }
    far
}

/// The file that defines the name, after following re-exports.
fn home<'f>(files: &'f BTreeMap<Module, File<'_>>, name: &[String]) -> Option<&'f Module> {
    let mut name = name.to_vec();
    // The maximum number of re-exports before a name repeats.
    for _ in 0..files.len() {
        let len = (0..=name.len()).rev().find(|len| files.contains_key(&name[..*len]))?;
        let (module, file) = files.get_key_value(&name[..len])?;
        match name.get(len).and_then(|item| file.handed_on.get(item)) {
            Some(from) => name = [from, &name[len + 1..]].concat(),
            None => return Some(module),
        }
    }
    None
}

fn parse<'a>(path: &'a str, text: &str, module: &[String]) -> File<'a> {
    let text = without_tests(text);
    let (mut names, mut handed_on, mut rest) = (Vec::new(), BTreeMap::new(), String::new());
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    while let Some(line) = lines.next() {
        let Some((visibility, tree)) = import(line) else {
            // A visibility is no import.
            let item = line.strip_prefix("pub(in ").and_then(|it| it.split_once(')'));
            rest.extend([item.map_or(line, |it| it.1), "\n"]);
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.ends_with(';') {
            let Some(more) = lines.next() else { break };
            tree.push_str(more);
        }
        for path in expand(tree.trim_end_matches(';')) {
            let Some(full) = absolute(&path, module) else { continue };
            match full.last().filter(|_| visibility.starts_with("pub")) {
                Some(item) => drop(handed_on.insert(item.clone(), full.clone())),
                None => names.push(full),
            }
        }
    }
    for word in rest.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c))) {
        if word.starts_with("crate::") || word.starts_with("super::") {
            names.extend(absolute(word, module));
        }
    }
    File { path, names, handed_on }
}

/// `text` without the items that are compiled for tests alone: each ends with a line that begins like it.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.extend([line, "\n"]);
            continue;
        }
        let is_end =
            |line: &&str| *line == "}" || !line.starts_with([' ', '#']) && line.ends_with(';');
        lines.find(is_end);
    }
    kept
}

/// A line that begins an import: its visibility, and the part of the tree on that line.
fn import(line: &str) -> Option<(&str, &str)> {
    let (visibility, tree) = line.split_once("use ")?;
    let begins =
        visibility.is_empty() || (visibility.starts_with("pub") && !visibility.contains("fn"));
    begins.then_some((visibility, tree))
}

/// The paths of a tree of imports.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((stem, inner)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or(tree).trim().to_owned()];
    };
    let (mut depth, mut from, mut paths) = (0, 0, Vec::new());
    let inner = inner.strip_suffix('}').unwrap_or(inner).trim().trim_end_matches(',');
    let inner = format!("{inner},");
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let paths_inside = expand(&inner[from..at]);
                paths.extend(paths_inside.into_iter().map(|it| format!("{stem}{it}")));
                from = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// From the root of the crate; `None` for a path of another crate.
fn absolute(path: &str, module: &[String]) -> Option<Module> {
    let mut parts = path.split("::").map(str::trim).filter(|it| !it.is_empty()).peekable();
    let mut full: Module = module.to_vec();
    match *parts.peek()? {
        "crate" => full.clear(),
        "super" | "self" => {}
        first if first.starts_with(char::is_lowercase) => {}
        _ => return None,
    }
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => drop(full.pop()),
            part => full.push(part.to_owned()),
        }
    }
    Some(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(samples: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts: BTreeMap<String, String> = samples
            .iter()
            .map(|(path, text)| (format!("c/src/{path}"), (*text).to_owned()))
            .collect();
        let found = Imports::read("c/src/", texts.iter());
        let found = found.circles();
        found
            .iter()
            .map(|it| it.iter().map(|path| path["c/src/".len()..].to_owned()).collect())
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_circle_however_they_name_it() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
        for (of_a, of_b) in [
            ("use crate::b::B;\n", "use crate::a::A;\n"),
            ("use crate::b::{B, C};\n", "use super::a::{A as Other, D};\n"),
            ("use std::fmt;\nuse crate::{\n    b::B,\n    x::{Y, Z},\n};\n", "use crate::A;\n"),
            ("fn f() -> crate::b::B {}\n", "impl F {\n    fn g(_: &super::a::A) {}\n}\n"),
        ] {
            let found = circles(&[lib, ("a.rs", of_a), ("b.rs", of_b)]);
            assert_eq!(found, [["a.rs", "b.rs"]], "{of_a}{of_b}");
        }
    }

    #[test]
    fn a_name_that_is_handed_on_is_of_the_file_that_has_it() {
        let both = [
            ("m/mod.rs", "mod low;\nmod high;\npub(crate) use low::Low;\nuse high::High;\n"),
            ("m/low.rs", "fn f() {}\n"),
            ("m/high.rs", "use super::Low;\n"),
        ];
        assert!(circles(&both).is_empty(), "low, which m hands on, knows neither");
        let mut round = both;
        round[1].1 = "use crate::m::high::High;\n";
        assert_eq!(circles(&round), [["m/high.rs", "m/low.rs"]]);
    }

    #[test]
    fn an_import_of_a_higher_layer_is_found() {
        let texts: BTreeMap<String, String> = [
            ("low/a.rs", "use super::b::B;\nuse crate::base::Base;\n"),
            ("low/b.rs", "use crate::high::High;\n"),
            ("high.rs", "use crate::low::a::A;\nuse crate::base::Base;\n"),
            ("base.rs", "use crate::high::High;\n"),
        ]
        .map(|(path, text)| (format!("c/src/{path}"), text.to_owned()))
        .into();
        let imports = Imports::read("c/src/", texts.iter());
        let found = imports.upward(&[&["low"], &["high"]]);
        assert_eq!(found, [("c/src/low/b.rs", "c/src/high.rs")]);
    }

    #[test]
    fn comments_tests_and_other_crates_make_no_circle() {
        let a = ("a.rs", "use crate::b::B;\n");
        for text in [
            "// use crate::a::A;\n",
            "use a::A;\nuse std::a::A;\n",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        ] {
            assert!(circles(&[a, ("b.rs", text)]).is_empty(), "{text}");
        }
        assert!(circles(&[a, ("b/tests.rs", "use crate::a::A;\n"), ("b/mod.rs", "")]).is_empty());
    }
}
