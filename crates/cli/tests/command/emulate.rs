//! Emulated disks as their users meet them: the contents of the mount, response times, and leftovers.
//!
//! A mount needs /dev/fuse, and fusermount3 for users other than root; where these are missing, tests say `skipped` and
//! write that to the file named by FOREBAY_SKIPS.
#![allow(clippy::print_stdout)]

mod contents;
mod endings;
mod loops;
mod refusals;
mod times;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_lab::emulate::{Emulated, EmulatedOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::wait_until;

/// A device that takes this time for any command.
pub(crate) fn fixed(directory: &Path, name: &str, time: &str) -> String {
    let path = directory.join(format!("{name}.toml"));
    let text = format!(
        "about = \"{time} for any command\"\n[fixed]\nsize = \"1TiB\"\ncommand_time = \"{time}\"\n\
         rate = \"0MB/s\"\nflush_time = \"{time}\"\nconcurrency = 32\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

pub(crate) fn options() -> EmulatedOptions {
    EmulatedOptions {
        program: Some(env!("CARGO_BIN_EXE_forebay").into()),
        ..EmulatedOptions::default()
    }
}

pub(crate) fn emulated(spec: &str) -> Emulated {
    Emulated::start(spec, &options()).unwrap()
}

/// Opens past the page cache.
pub(crate) fn direct(path: &Path) -> File {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// Whether something is mounted at `path`, working or dead.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let path = path.to_str().unwrap().replace('\\', "\\134").replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(1) == Some(path.as_str()))
}

/// The number of guardians of mounts at `path`.
pub(crate) fn guardians(path: &Path) -> usize {
    guardians_of(path).len()
}

/// The guardians of mounts at `path`.
pub(crate) fn guardians_of(path: &Path) -> Vec<Pid> {
    let path = path.to_str().unwrap().as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ours = processes.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let is_one = words.contains(&b"forebay-guardian".as_slice()) && words.contains(&path);
        let number = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // A command that it starts has its words, too, until exec.
        let leads = || rustix::process::getpgid(Some(number)) == Ok(number);
        (is_one && leads()).then_some(number)
    });
    ours.collect()
}

/// `forebay emulate` as a user calls it, on a directory that exists before and after.
pub(crate) struct Called {
    pub(crate) child: Child,
    pub(crate) mount_point: PathBuf,
    out: BufReader<std::process::ChildStdout>,
    mounted: TakenAway,
    _around: tempfile::TempDir,
}

impl Called {
    /// Starts it and waits for its word.
    pub(crate) fn start(spec: &str, more: &[&str]) -> Called {
        let around = tempfile::tempdir().unwrap();
        let mount_point = around.path().canonicalize().unwrap().join("mnt");
        std::fs::create_dir(&mount_point).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("emulate").args(more).arg(spec).arg(&mount_point);
        // A separate process group, so that a signal to all of it reaches no other process.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line:?}");
        assert!(is_mounted(&mount_point));
        let mounted = TakenAway(mount_point.clone());
        Called { child, mount_point, out, mounted, _around: around }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended, and returns its output.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Fails unless only the empty directory is left.
    pub(crate) fn assert_removed(&self) {
        wait_until("the mount to go", || !is_mounted(&self.mount_point));
        wait_until("the guardian to go", || guardians(&self.mount_point) == 0);
        assert_eq!(std::fs::read_dir(&self.mount_point).unwrap().count(), 0);
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        // The leftovers of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.mounted.take_away();
    }
}

/// Removes a mount when this is dropped, if a failed test has left it.
pub(crate) struct TakenAway(pub(crate) PathBuf);

impl TakenAway {
    pub(crate) fn take_away(&self) {
        for _ in 0..400 {
            if !is_mounted(&self.0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A server that still runs ends with its mount.
        for program in [&["fusermount3", "-u", "-z"][..], &["umount", "-l"]] {
            let _ = Command::new(program[0]).args(&program[1..]).arg(&self.0).status();
        }
    }
}

impl Drop for TakenAway {
    fn drop(&mut self) {
        self.take_away();
    }
}
