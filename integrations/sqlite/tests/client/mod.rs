//! Programs that load the extension. Each is run to completion.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Opens the database argv[2] with the extension argv[1], as `db`.
pub(crate) const OPEN: &str = "
import os, sqlite3, sys, threading
library, path = sys.argv[1:3]
def load(entry=None):
    loader = sqlite3.connect(':memory:')
    loader.enable_load_extension(True)
    call = 'select load_extension(?)' if entry is None else 'select load_extension(?, ?)'
    loader.execute(call, [library] if entry is None else [library, entry])
    return loader
def connect(arguments=''):
    return sqlite3.connect(f'file:{path}?vfs=forebay{arguments}', uri=True, timeout=20, isolation_level=None)
";

/// A program, and the library that it loads.
pub(crate) struct Client {
    program: &'static str,
    library: PathBuf,
    /// Loaded before the program's own libraries.
    preloaded: Option<PathBuf>,
}

/// A Python that loads extensions, which not every build supports.
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

/// Prints and counts that a test did nothing.
pub(crate) fn skip(test: &str, reason: &str) {
    println!("skipped: {test}: {reason}");
    if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(skips).unwrap();
        file.write_all(format!("sqlite: {test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// The first of these programs that accepts these arguments.
pub(crate) fn found(
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
    // Cargo builds the library for tests into the directory of the test programs.
    let library = std::env::current_exe().unwrap().with_file_name("libforebay_sqlite.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    Some(Client { program, library, preloaded: None })
}

impl Client {
    /// Makes the program's reads wait like those of a disk. Returns `None`, and counts a skip, where that is
    /// impossible.
    pub(crate) fn with_slow_reads(self, test: &str, directory: &Path) -> Option<Client> {
        // Linux's magic number of tmpfs.
        if rustix::fs::statfs(directory).unwrap().f_type == 0x0102_1994 {
            skip(test, "the temporary directory is in memory");
            return None;
        }
        let (source, built) = (directory.join("slow_reads.c"), directory.join("slow_reads.so"));
        std::fs::write(&source, include_str!("slow_reads.c")).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&built).arg(source);
        let Ok(output) = compile.output() else {
            skip(test, "no C compiler");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Client { preloaded: Some(built), ..self })
    }

    /// The library that SQLite loads.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Runs a Python script with the library and a database as its arguments; returns its output.
    pub(crate) fn python(&self, script: &str, database: &Path) -> String {
        self.python_with(script, database, &[])
    }

    /// The same with further arguments.
    pub(crate) fn python_with(&self, script: &str, database: &Path, more: &[&str]) -> String {
        let mut command = self.command(script, &[self.library(), database]);
        command.args(more);
        succeed(command)
    }

    /// Runs lines (dot commands or SQL) in the shell; returns its output.
    pub(crate) fn shell(&self, lines: &[&str]) -> String {
        self.shell_of(":memory:", &["-bail"], lines)
    }

    /// The same on a database and with options.
    pub(crate) fn shell_of(&self, database: &str, options: &[&str], lines: &[&str]) -> String {
        let mut command = Command::new(self.program);
        command.arg("-batch").args(options).arg(database).args(lines);
        succeed(command)
    }

    /// Runs a Python script with arguments; returns its output.
    pub(crate) fn run(&self, script: &str, arguments: &[&Path]) -> String {
        succeed(self.command(script, arguments))
    }

    fn command(&self, script: &str, arguments: &[&Path]) -> Command {
        let mut command = Command::new(self.program);
        command.args(["-c", script]).args(arguments);
        command.envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)));
        command
    }
}

fn succeed(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
