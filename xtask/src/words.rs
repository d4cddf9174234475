//! Words that the project once used and the field does not: a new occurrence is a finding.
//!
//! A line is compared word by word. Names are split at underscores and before capitals, so that an identifier is
//! checked like a sentence.

/// The word or phrase, and what to write instead.
const REJECTED: [(&str, &str); 41] = [
    ("told", "reported, or in the active voice: says, returns"),
    ("tell", "report, return, show"),
    ("tells", "says, reports, returns"),
    ("came", "arrived, was"),
    ("comes to", "reaches, is"),
    ("came to", "reached, was"),
    ("foresee", "predict"),
    ("foreseen", "predicted"),
    ("asked for", "requested, prefetched"),
    ("asks for", "requests, needs"),
    ("ask for", "request"),
    ("asking for", "requesting"),
    ("nobody", "no caller, no reader, or the passive"),
    ("no one", "no caller, no reader, or the passive"),
    ("somebody", "a caller, another thread, another process"),
    ("someone", "a caller, another thread, another process"),
    ("by itself", "on its own"),
    ("beside", "next to, compared with, during"),
    ("noted", "recorded, registered"),
    ("awake", "active"),
    ("asleep", "idle, sleeping"),
    ("barren", "unproductive"),
    ("carry out", "execute, perform"),
    ("carries out", "executes, performs"),
    ("carried out", "executed, performed"),
    ("in the place of", "instead of"),
    ("takes the place", "replaces"),
    ("gone", "removed, freed, ended"),
    ("make do", "accept fewer"),
    ("at hand", "available, current"),
    ("patiently", "with retries"),
    ("untimed", "without timing"),
    ("contest", "comparison"),
    ("entrant", "variant"),
    ("standing", "result, state"),
    ("tally", "counts, samples"),
    ("knob", "control, setting"),
    ("apart", "separate, separately"),
    ("anew", "again"),
    ("once more", "again"),
    ("for good", "permanently"),
];

/// Where a rejected word is right: a system's user, a field of a file's format, the earlier name of an option.
const EXCEPTIONS: [(&str, &str); 8] = [
    ("CONTRIBUTING.md", "nobody"),
    ("crates/cli/src/arguments.rs", "apart"),
    ("crates/cli/tests/command/comparisons.rs", "entrant"),
    ("crates/measure/src/report/mod.rs", "entrant"),
    ("integrations/postgres/harness/src/lib.rs", "nobody"),
    ("integrations/postgres/harness/src/owner.rs", "nobody"),
    ("xtask/src/ci/again.rs", "nobody"),
    ("xtask/src/ci/ordinary_user.rs", "nobody"),
];

/// Decisions of the past keep their words, and this file has them all.
const EXEMPT: [&str; 4] = ["CHANGELOG.md", "docs/adr/", "results/", "xtask/src/words.rs"];

/// Endings of the files that are checked.
const ENDINGS: [&str; 6] = [".c", ".h", ".md", ".py", ".rs", ".sql"];

/// The rejected words in the file at `path`.
pub(crate) fn find(path: &str, text: &str) -> Vec<String> {
    let is_checked = ENDINGS.iter().any(|end| path.ends_with(end));
    if !is_checked || EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
        return Vec::new();
    }
    let line = |(number, line): (usize, &str)| {
        let words = words(line);
        let found = REJECTED.iter().filter(move |(word, _)| {
            words.contains(&format!(" {word} ")) && !EXCEPTIONS.contains(&(path, word))
        });
        found.map(move |(word, instead)| format!("{path}:{}: {word}: write {instead}", number + 1))
    };
    text.lines().enumerate().flat_map(line).collect()
}

/// The words of `line` in lower case, each between spaces.
fn words(line: &str) -> String {
    let (mut words, mut before) = (" ".to_owned(), ' ');
    for letter in line.chars() {
        let begins = letter.is_uppercase() && (before.is_lowercase() || before.is_numeric());
        let is_word = letter.is_alphanumeric();
        if (begins || !is_word) && !words.ends_with(' ') {
            words.push(' ');
        }
        if is_word {
            words.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words + " "
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_word_is_found_in_sentences_and_names_and_named_with_another() {
        let text =
            "/// No caller waits.\nfn reader_is_told() {}\nstruct OneEntrant; // asked  for\n";
        let found = find("crates/io/src/io.rs", text);
        let of = |at: usize| found[at].split(": write").next().unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(of(0), "crates/io/src/io.rs:2: told");
        assert_eq!(of(1), "crates/io/src/io.rs:3: asked for");
        assert_eq!(of(2), "crates/io/src/io.rs:3: entrant");
    }

    #[test]
    fn parts_of_other_words_exceptions_and_other_files_are_no_findings() {
        assert_eq!(find("crates/io/src/io.rs", "besides, a storyteller forgone"), [""; 0]);
        assert_eq!(find("xtask/src/ci/ordinary_user.rs", "nobody"), [""; 0]);
        assert_eq!(find("xtask/src/ci/run.rs", "nobody").len(), 1);
        assert_eq!(find("docs/adr/0001.md", "told"), [""; 0]);
        assert_eq!(find("Cargo.toml", "told"), [""; 0]);
    }
}
