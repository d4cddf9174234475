//! A private cluster: made, started, restarted, stopped, removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use postgres::config::Config;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::installation::{last_lines, run};
use crate::owner::Owner;
use crate::watcher::Watcher;
use crate::{Error, Extension, Installation, Result, Session};

/// The prefix of each line of the log, by which it is parsed: time, process, SQLSTATE.
pub(crate) const LOG_PREFIX: &str = "%m [%p] %e ";

/// Settings by name, as in postgresql.conf; a later one replaces an earlier one.
pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// The superuser of every server of the tests.
pub(crate) const SUPERUSER: &str = "postgres";

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(180);

/// The longest path of a socket, without its final zero.
const SOCKET_PATH_MAX: usize = 107;

/// What every server has: nothing but its socket, no chance in when things happen, and a log that can be read.
const BASE: Settings<'_> = &[
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0777"),
    ("fsync", "off"),
    ("autovacuum", "off"),
    ("jit", "off"),
    ("max_connections", "40"),
    ("log_min_messages", "warning"),
    ("lc_messages", "C"),
    ("timezone", "UTC"),
];

/// What the server's reads are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// As they are here.
    Real,
    /// A read that was not hinted takes this many microseconds at least, except for one stretch in five; needs `cc`.
    Slow(u32),
    /// The same without such a stretch, for what compares runs.
    Steady(u32),
}

/// Numbers in the file that slow_reads.c counts in.
const COUNTS: usize = 6;

/// For how many blocks the processes of a server whose disk is not real have given the kernel hints, and what
/// work the extension has done.
#[derive(Debug)]
pub struct HintCount(File);

impl HintCount {
    /// The count since the server was made.
    ///
    /// # Errors
    /// The file of the count cannot be read.
    pub fn now(&self) -> Result<u64> {
        Ok(self.all()?[3])
    }

    /// How often it was said since then how a file is read: as any (which takes advice back), at random,
    /// sequentially.
    ///
    /// # Errors
    /// As [`HintCount::now`].
    pub fn advice(&self) -> Result<[u64; 3]> {
        let [normal, random, sequential, ..] = self.all()?;
        Ok([normal, random, sequential])
    }

    /// How many blocks they have read.
    ///
    /// # Errors
    /// As [`HintCount::now`].
    pub fn reads(&self) -> Result<u64> {
        Ok(self.all()?[4])
    }

    /// Basic blocks executed of an extension that is [counted](Extension::counted).
    ///
    /// # Errors
    /// As [`HintCount::now`].
    pub fn work(&self) -> Result<u64> {
        Ok(self.all()?[5])
    }

    fn all(&self) -> Result<[u64; COUNTS]> {
        let mut counts = [[0; 8]; COUNTS];
        self.0
            .read_exact_at(counts.as_flattened_mut(), 0)
            .map_err(Error::file(Path::new("the count of hints")))?;
        Ok(counts.map(u64::from_ne_bytes))
    }
}

/// While it lives, no read is delayed.
#[derive(Debug)]
pub struct QuickReads(File);

impl QuickReads {
    fn set(&self, quick: bool) -> std::io::Result<()> {
        // The number after the counts.
        self.0.write_all_at(&u64::from(quick).to_ne_bytes(), 8 * COUNTS as u64)
    }
}

impl Drop for QuickReads {
    fn drop(&mut self) {
        // Where it fails, all reads are quick, and tests of look-ahead fail.
        let _ = self.set(false);
    }
}

/// A running, or stopped, server. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    owner: Owner,
    disk: Disk,
    directory: TempDir,
    postmaster: Option<Child>,
    watcher: Watcher,
}

impl Server {
    /// Makes a cluster of `installation`, with `extension` installed where there is one, and starts it.
    ///
    /// # Errors
    /// The extension does not build, initdb fails, or the server does not start.
    pub fn new(
        installation: &Installation,
        extension: Option<&Extension>,
        disk: Disk,
        settings: Settings<'_>,
    ) -> Result<Server> {
        let builder = |at: &Path| tempfile::Builder::new().prefix("forebay-pg-").tempdir_in(at);
        let temporary = std::env::temp_dir();
        let directory = builder(&temporary).map_err(Error::file(&temporary))?;
        let path = directory.path();
        // The server's user passes through.
        fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Error::file(path))?;
        let socket = path.join("s/.s.PGSQL.5432");
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(Error::LongPath(socket));
        }
        let watcher = Watcher::start(path)?;
        let owner = Owner::find();
        let installation = installation.clone();
        let mut server = Server { installation, owner, disk, directory, postmaster: None, watcher };
        server.make(extension)?;
        server.start(settings)?;
        Ok(server)
    }

    fn make(&self, extension: Option<&Extension>) -> Result<()> {
        self.installation.copy_into(&self.path("root"), extension)?;
        for name in ["data", "s", "l"] {
            self.owner.make_directory(&self.path(name))?;
        }
        if self.disk != Disk::Real {
            self.build_slow_reads()?;
        }
        let mut initdb = self.owner.command(&self.program("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--username", SUPERUSER, "--pgdata"]).arg(self.path("data"));
        run(&mut initdb)
    }

    fn build_slow_reads(&self) -> Result<()> {
        let (source, hints) = (self.path("slow_reads.c"), self.path("hints"));
        fs::write(&source, include_str!("slow_reads.c")).map_err(Error::file(&source))?;
        fs::write(&hints, [0; 8 * (COUNTS + 1)]).map_err(Error::file(&hints))?;
        // The server's user writes into it.
        fs::set_permissions(&hints, Permissions::from_mode(0o666)).map_err(Error::file(&hints))?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-o"]).arg(self.path("slow_reads.so")).arg(source);
        run(&mut compile)
    }

    /// Counts the hints that the server's processes give.
    ///
    /// # Errors
    /// Its disk is real.
    pub fn hint_count(&self) -> Result<HintCount> {
        let path = self.path("hints");
        File::open(&path).map(HintCount).map_err(Error::file(&path))
    }

    /// Delays no read until the value is dropped: to set up tables, and to look at them.
    ///
    /// # Errors
    /// Its disk is real.
    pub fn quick_reads(&self) -> Result<QuickReads> {
        let path = self.path("hints");
        let file = OpenOptions::new().write(true).open(&path).map_err(Error::file(&path))?;
        let quick = QuickReads(file);
        quick.set(true).map_err(Error::file(&path))?;
        Ok(quick)
    }

    /// Starts the server with `settings`, next to its socket and its log, and waits until it takes connections.
    ///
    /// # Errors
    /// It ends, or takes no connection; what it said is in the error.
    pub fn start(&mut self, settings: Settings<'_>) -> Result<()> {
        let log_path = self.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(Error::file(&log_path))?;
        let mut command = self.owner.command(&self.program("postgres"));
        command.arg("-D").arg(self.path("data")).process_group(0);
        command
            .arg("-c")
            .arg(format!("unix_socket_directories={}", self.socket_directory().display()));
        command.arg("-c").arg(format!("log_line_prefix={LOG_PREFIX}"));
        for (name, value) in BASE.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if let Disk::Slow(us) | Disk::Steady(us) = self.disk {
            command.env("LD_PRELOAD", self.path("slow_reads.so"));
            command.env("FOREBAY_SLOW_READ_US", us.to_string());
            command.env("FOREBAY_SLOW_READ_HINTS", self.path("hints"));
        }
        if let Disk::Steady(_) = self.disk {
            command.env("FOREBAY_SLOW_READ_STEADY", "1");
        }
        let errors = log.try_clone().map_err(Error::file(&log_path))?;
        command.stdout(log).stderr(errors).stdin(Stdio::null());
        let program = self.program("postgres");
        self.postmaster = Some(command.spawn().map_err(Error::file(&program))?);
        let until = Instant::now() + PATIENCE;
        loop {
            if self.connect("postgres", &[]).is_ok() {
                return Ok(());
            }
            let ended =
                self.postmaster.as_mut().is_none_or(|it| !matches!(it.try_wait(), Ok(None)));
            if ended || Instant::now() > until {
                return Err(Error::Start { log: last_lines(self.log()?.as_bytes(), 20) });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server, cutting what runs; nothing to do where it is stopped.
    ///
    /// # Errors
    /// It does not stop, or ends with a failure: it is then killed.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.postmaster.take() else { return Ok(()) };
        signal(&child, Signal::INT);
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
                _ => break None,
            }
        };
        if status.is_some_and(|it| it.success()) {
            return Ok(());
        }
        if status.is_none() {
            // Its children notice, and end too.
            signal(&child, Signal::QUIT);
            thread::sleep(Duration::from_secs(6));
            let _ = child.kill();
            let _ = child.wait();
        }
        let words = last_lines(self.log()?.as_bytes(), 20);
        Err(Error::Command { command: "stopping the server".to_owned(), words })
    }

    /// Stops the server and starts it with `settings`.
    ///
    /// # Errors
    /// Those of [`Server::stop`] and [`Server::start`].
    pub fn restart(&mut self, settings: Settings<'_>) -> Result<()> {
        self.stop()?;
        self.start(settings)
    }

    /// A new session in `database`, as the superuser, with its `settings` from its start.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn connect(&self, database: &str, settings: Settings<'_>) -> Result<Session> {
        self.connect_as(SUPERUSER, database, settings)
    }

    /// A new session in `database` as `user`.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn connect_as(
        &self,
        user: &str,
        database: &str,
        settings: Settings<'_>,
    ) -> Result<Session> {
        let mut config = Config::new();
        config.host_path(self.socket_directory()).user(user).dbname(database);
        // A blank ends an option, unless a backslash is before it.
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(' ', "\\ ");
        let option = |(name, value): &(&str, &str)| format!("-c {name}={}", escaped(value));
        let options: Vec<String> = settings.iter().map(option).collect();
        config.options(&options.join(" "));
        Session::connect(&mut config)
    }

    /// A backend in single-user mode for the database `postgres`, run by a tool, such as valgrind. It reads statements
    /// from its standard input, one a line. The server must be stopped.
    pub fn single_user(&self, tool: &str, arguments: &[&str], settings: Settings<'_>) -> Command {
        let mut command = self.owner.command(Path::new(tool));
        command.args(arguments).arg(self.program("postgres"));
        command.arg("--single").arg("-D").arg(self.path("data"));
        for (name, value) in BASE.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.arg("postgres");
        command
    }

    /// Its version's number before the dot.
    pub fn major(&self) -> u32 {
        self.installation.major
    }

    /// Where its data is.
    pub fn data_directory(&self) -> PathBuf {
        self.path("data")
    }

    /// The directory of its socket, `PGHOST` for libpq; the port is the default one.
    pub fn socket_directory(&self) -> PathBuf {
        self.path("s")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path("l/log")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.installation.program(&self.path("root"), name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = fs::remove_dir_all(self.directory.path());
        self.watcher.dismiss();
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
