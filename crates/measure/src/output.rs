//! What a run leaves: the requested files, and the summary on standard output.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::bad_input;
use crate::report::{self, Report, Section, terminal::Look};

/// Where to write a report.
#[derive(Debug)]
pub struct Outputs {
    /// Made only when the report is written: a run that fails leaves nothing.
    directory: Option<PathBuf>,
    json: Option<PathBuf>,
    html: Option<PathBuf>,
}

impl Outputs {
    /// Single files, as requested.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) if one of them could not be written.
    pub fn files(json: Option<PathBuf>, html: Option<PathBuf>) -> anyhow::Result<Outputs> {
        for path in [&json, &html].into_iter().flatten() {
            check_file(path)?;
        }
        Ok(Outputs { directory: None, json, html })
    }

    /// `report.json` and `index.html` in `directory`, which need not exist yet.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) if they could not be written.
    pub fn within(directory: &Path) -> anyhow::Result<Outputs> {
        let [json, html] = ["report.json", "index.html"].map(|file| Some(directory.join(file)));
        let directory = directory.to_owned();
        if directory.is_dir() {
            return Ok(Outputs { directory: Some(directory), ..Outputs::files(json, html)? });
        }
        let existing = directory.ancestors().find(|path| path.exists());
        check_directory(existing.unwrap_or(Path::new("")), &directory)?;
        Ok(Outputs { directory: Some(directory), json, html })
    }

    /// Writes the files. Returns lines that say where they are.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write(&self, report: &Report, sections: &[Section]) -> anyhow::Result<String> {
        let mut summary = String::new();
        if let Some(directory) = &self.directory {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        }
        if let Some(path) = &self.json {
            save(path, &(serde_json::to_string_pretty(report)? + "\n"))?;
            summary += &format!("records:  {}\n", path.display());
        }
        if let Some(path) = &self.html {
            save(path, &report::html::render(&report::html::Kind::lab(report), report, sections)?)?;
            summary += &format!("report:   {}\n", path.display());
        }
        let Some(directory) = &self.directory else { return Ok(summary) };
        let snippets = report::snippets(&report.advice, &report.storage);
        for file in report::SNIPPET_FILES {
            let path = directory.join(file);
            match snippets.iter().find(|snippet| snippet.file == file) {
                Some(snippet) => save(&path, &snippet.text)?,
                // A file of an earlier run would be mistaken for this one's.
                None if path.exists() => std::fs::remove_file(path)
                    .with_context(|| format!("cannot remove an old {file}"))?,
                None => {}
            }
        }
        let files: Vec<&str> = snippets.iter().map(|snippet| snippet.file).collect();
        if !files.is_empty() {
            summary += &format!("to paste: in {}: {}\n", directory.display(), files.join(", "));
        }
        Ok(summary)
    }
}

/// Writes `text` to the file `path`.
///
/// # Errors
/// The system's error, with the path.
pub fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    let is_new = !path.exists();
    let written = std::fs::write(path, text);
    if written.is_err() && is_new {
        // Half of a report would be mistaken for a whole one.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Prints `text` as it is. A reader that has exited, such as `head`, is no error.
///
/// # Errors
/// What the system said about standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the summary")
        }
        _ => Ok(()),
    }
}

/// `text` without characters that a terminal would obey or show in another order: file names may contain any. Line ends
/// and tabs stay.
pub fn printable(text: &str) -> String {
    let is_meant = |letter: char| {
        matches!(letter, '\n' | '\t')
            || !letter.is_control()
                && !matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}')
                && !matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_meant(letter) { shown.push(letter) } else { shown.extend(letter.escape_default()) }
    }
    shown
}

/// The same of a name or a sentence, in one line.
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Writes a message that is no result to standard error. If the reader has exited, the message is lost
/// without a panic.
pub fn note(what: &str) {
    let _ = writeln!(std::io::stderr(), "forebay: {}", printable(what));
}

/// The capabilities of standard output.
pub fn look() -> Look {
    let stdout = std::io::stdout();
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .is_none_or(|value| value.to_lowercase().replace('-', "").contains("utf8"));
    let asked = std::env::var("COLUMNS").ok();
    let terminal = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| size.ws_col);
    Look { width: columns(asked.as_deref(), terminal), colour, ascii: !utf8 }
}

/// The width in columns: from COLUMNS, or from the terminal, or 100 without a terminal.
fn columns(asked: Option<&str>, terminal: u16) -> usize {
    let asked = asked.and_then(|columns| columns.trim().parse().ok()).unwrap_or(0);
    let found = [asked, terminal].into_iter().find(|columns| *columns > 0);
    usize::from(found.unwrap_or(100))
}

/// Better before a minute of measuring than after it.
pub fn check_file(path: &Path) -> anyhow::Result<()> {
    let Ok(facts) = std::fs::metadata(path) else {
        return check_directory(path.parent().unwrap_or(Path::new("")), path);
    };
    // To open anything else, a pipe or a terminal, would do something.
    if (facts.is_file() || facts.is_dir())
        && let Err(error) = std::fs::OpenOptions::new().append(true).open(path)
    {
        bad_input!("cannot write {}: {error}; name another file", path.display());
    }
    Ok(())
}

/// Whether two paths lead to one file, whether it is there or not.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let name = path.file_name()?;
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        Some(parent.unwrap_or(Path::new(".")).canonicalize().ok()?.join(name))
    };
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => whole(one).is_some_and(|one| Some(one) == whole(other)),
        _ => false,
    }
}

/// Whether `target` can be made in `directory`; the empty path is the current directory.
pub fn check_directory(directory: &Path, target: &Path) -> anyhow::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let (target, shown) = (target.display(), directory.display());
    if !directory.is_dir() {
        if directory.exists() {
            bad_input!("cannot write {target}: {shown} is no directory; choose another");
        }
        bad_input!("cannot write {target}: there is no directory {shown}");
    }
    // Without a name where the system allows that, and removed immediately.
    if let Err(error) = tempfile::tempfile_in(directory) {
        let kind = error.kind();
        bad_input!("cannot write {target}: no file can be made in {shown}: {kind}; choose another");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_settings_next_to_it_and_none_of_an_earlier_run() {
        let scratch = tempfile::tempdir().unwrap();
        let outputs = Outputs::within(&scratch.path().join("report")).unwrap();
        let names = || {
            let entries = std::fs::read_dir(scratch.path().join("report")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let mut report = report::sample::report();
        outputs.write(&report, &report::sample::sections()).unwrap();
        let toml = "forebay.advised.toml";
        let all =
            ["60-forebay.rules", toml, "index.html", "postgresql.conf.forebay", "report.json"];
        assert_eq!(names(), all);
        report.advice.retain(|advice| advice.applies_to == report::AppliesTo::Profile);
        outputs.write(&report, &[]).unwrap();
        assert_eq!(names(), [toml, "index.html", "report.json"]);
    }

    #[test]
    fn requested_columns_come_first_also_in_a_pipe() {
        assert_eq!([columns(Some("72"), 80), columns(Some("72"), 0)], [72, 72]);
        assert_eq!([columns(None, 80), columns(Some("wide"), 80), columns(Some("0"), 80)], [80; 3]);
        assert_eq!(columns(None, 0), 100);
    }

    #[test]
    fn checking_makes_nothing_and_changes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        let files =
            |json: &Path, html: Option<PathBuf>| Outputs::files(Some(json.to_owned()), html);
        files(&file, Some(scratch.path().join("new"))).unwrap();
        Outputs::within(&scratch.path().join("a/b")).unwrap();
        Outputs::within(scratch.path()).unwrap();
        let within = Outputs::within;
        for wrong in [within(&file), within(&file.join("a")), files(scratch.path(), None)] {
            assert!(wrong.unwrap_err().is::<crate::BadInput>());
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
