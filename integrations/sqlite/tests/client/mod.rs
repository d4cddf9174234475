//! Programs that load the extension, each run to its end.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program, and how it is told to run a script.
pub(crate) struct Client {
    program: &'static str,
    library: PathBuf,
}

/// A Python that loads extensions, which not every build does.
pub(crate) fn python(test: &str) -> Option<Client> {
    let loads = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    found(
        test,
        "no python3 whose sqlite3 loads extensions",
        &["python3", "/usr/bin/python3"],
        &["-c", loads],
    )
}

/// The sqlite3 shell.
pub(crate) fn shell(test: &str) -> Option<Client> {
    found(test, "no sqlite3 on PATH", &["sqlite3"], &["-version"])
}

/// Says and counts that a test did nothing.
pub(crate) fn skip(test: &str, reason: &str) {
    println!("skipped: {test}: {reason}");
    if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(skips).unwrap();
        file.write_all(format!("sqlite: {test}: {reason}\n").as_bytes()).unwrap();
    }
}

fn found(
    test: &str,
    missing: &str,
    programs: &[&'static str],
    arguments: &[&str],
) -> Option<Client> {
    let works = |program: &&&str| {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let Some(program) = programs.iter().find(works) else {
        skip(test, missing);
        return None;
    };
    // Cargo builds the library for tests into the directory of their programs.
    let library = std::env::current_exe().unwrap().with_file_name("libforebay_sqlite.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    Some(Client { program, library })
}

impl Client {
    /// What SQLite is told to load.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Runs Python's script with the library and a database as its arguments; returns what it prints.
    pub(crate) fn python(&self, script: &str, database: &Path) -> String {
        self.python_with(script, database, &[])
    }

    /// The same with more arguments.
    pub(crate) fn python_with(&self, script: &str, database: &Path, more: &[&str]) -> String {
        let mut command = self.command(script, database);
        command.args(more);
        succeed(command)
    }

    /// Kills a script once it has printed so many lines.
    pub(crate) fn kill_after_lines(&self, script: &str, database: &Path, lines: usize) {
        let mut child = self.command(script, database).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(output.lines().take(lines).count(), lines);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Has the shell carry out lines, dot commands or SQL; returns what it prints.
    pub(crate) fn shell(&self, lines: &[&str]) -> String {
        let mut command = Command::new(self.program);
        command.args(["-batch", "-bail", ":memory:"]).args(lines);
        succeed(command)
    }

    fn command(&self, script: &str, database: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(["-c", script]).arg(self.library()).arg(database);
        command
    }
}

fn succeed(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
