//! The command line.

mod compare;
mod emulate;
mod explain;
#[cfg(feature = "object")]
mod object;
mod on;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use forebay_io::{CacheMode, Kind};

use crate::experiment::{Choice, Ground};
use forebay_advise::AdviseArgs;
use forebay_measure::shell::quoted;
use forebay_measure::workfile::Naming;
use forebay_watch::WatchArgs;

pub use crate::device::DeviceArgs;
pub use compare::CompareArgs;
pub use emulate::EmulateArgs;
pub use explain::ExplainArgs;
#[cfg(feature = "object")]
pub use object::{ObjectArgs, ObjectPart};
pub use on::OnArgs;

/// Measure what your disk and your kernel do with a storage engine's requests.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, propagate_version = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses `words`. For a command of an earlier version, the error names its replacement.
    ///
    /// # Errors
    /// An error with a message; or clap prints its own and ends the process.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut command = with_negative_numbers(Cli::command());
        let matches = command.try_get_matches_from_mut(words);
        let read = matches.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
        read.map_err(|error| error.format(&mut command)).map_err(|mut error| {
            let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            if error.kind() == ErrorKind::UnknownArgument && unknown.as_deref() == Some("--report") {
                let tip = "one experiment alone writes its page with --html FILE, and its records with --json FILE";
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
                return error;
            }
            let named = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
            let now = match named.as_deref() {
                Some("interplay") => "strategies",
                Some("activation") => "readahead --parts activation",
                Some("mixture") => "readahead --parts mixture",
                _ => return error,
            };
            let tip = format!("now it is forebay lab {now}").into();
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            error
        })
    }
}

/// `command` whose options accept `-5` as a value, so that their own error says what is wrong with it.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |arg: clap::Arg| {
        if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure a disk: every experiment quickly, or one of them thoroughly
    Lab(Box<LabArgs>),
    /// Mount an emulated disk: a RAID, an SSD or a cloud volume that you do not have
    Emulate(EmulateArgs),
    /// Show the exact requests that the kernel issues for a list of blocks, on an emulated disk
    Explain(ExplainArgs),
    /// Compare two reports: which figures really changed, and which advice
    Compare(CompareArgs),
    /// Find settings for a running server, and prove them on it
    Advise(AdviseArgs),
    /// Show what a process tree reads and writes, file by file, and its avoidable waits
    Watch(WatchArgs),
}

/// `forebay lab`.
#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without an experiment, all of them run with quick settings (about three \
                  minutes) and a report is written to forebay-report/.\n\
                  The working file is made in --dir and is gone afterwards, also after Ctrl-C. \
                  Those of depth and sync have no name while they are used where the system allows that, and \
                  leave nothing even after a kill; the others are in a directory .forebay-lab-*, which the \
                  next start removes.\n\n\
                  Example: forebay lab depth --on raid10-12 --fs ext4"
)]
pub struct LabArgs {
    /// The one experiment to run.
    #[command(subcommand)]
    pub experiment: Option<Measured>,
    /// The place and the conditions.
    #[command(flatten)]
    pub common: CommonArgs,
    /// In place of a real disk.
    #[command(flatten)]
    pub on: OnArgs,
    /// The disk itself, which is measured first.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Directory for index.html and report.json
    #[arg(long, value_name = "DIR", default_value = "forebay-report")]
    pub report: PathBuf,
}

/// The options of `forebay lab`.
#[derive(Debug, Clone, Subcommand)]
pub enum Measured {
    /// A disk.
    #[command(flatten)]
    Disk(Choice),
    /// An object store: its requests, and a tablespace on it
    #[cfg(feature = "object")]
    Object(Box<ObjectArgs>),
    /// An object store, by a forebay that is built with --features object
    #[cfg(not(feature = "object"))]
    #[command(disable_help_flag = true)]
    Object {
        /// What that would take.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<OsString>,
    },
}

/// Settings that every experiment takes.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = directory_parser())]
    pub dir: PathBuf,
    /// Seed of all random numbers; printed in the report so that a run can be repeated
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..1 << 32),
          hide_default_value = true)]
    pub seed: u64,
}

impl CommonArgs {
    /// Where to measure with a working file of this size.
    pub(crate) fn ground(&self, size_bytes: u64, block_bytes: u64, naming: Naming) -> Ground {
        Ground { directory: self.dir.clone(), size_bytes, block_bytes, seed: self.seed, naming }
    }
}

/// The files that one experiment alone writes, if the user requests them.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The command that repeats a run from anywhere: the `typed` words, with absolute paths, and without files that it
/// would overwrite. Values that were not typed but differ from run to run are added as `dir` and `seed`.
pub(crate) fn repeated(
    typed: impl IntoIterator<Item = String>,
    dir: Option<&Path>,
    seed: u64,
) -> String {
    let typed = typed.into_iter().flat_map(|word| match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => vec![option.into(), value.into()],
        _ => vec![word],
    });
    let mut words: Vec<String> = Vec::new();
    for word in typed {
        let is_path = match words.last().map(String::as_str) {
            Some("--json" | "--html" | "--svg") => {
                words.pop();
                continue;
            }
            Some("--dir" | "--dir2" | "--report") => true,
            // A profile has a name, unless it is the user's own file.
            Some("--on") => Path::new(&word).is_file(),
            _ => false,
        };
        let path = std::path::absolute(&word).ok().filter(|_| is_path);
        words.push(path.map_or(word, |path| path.display().to_string()));
    }
    let has = |option: &str| words.iter().any(|word| word == option);
    let (has_place, has_seed) = (has("--dir") || has("--on"), has("--seed"));
    if let Some(dir) = dir.filter(|_| !has_place) {
        words.extend(["--dir".to_owned(), dir.display().to_string()]);
    }
    if !has_seed {
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Makes a directory's path absolute. The run reports a directory that does not exist.
pub(crate) fn directory_parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| std::fs::canonicalize(&path).unwrap_or(path))
}

pub(crate) fn parse_backend(name: &str) -> Result<Kind, String> {
    name.trim().parse().map_err(|_| "there are sync, threads, aio and uring".to_owned())
}

pub(crate) fn parse_cache(name: &str) -> Result<CacheMode, String> {
    match name.trim() {
        "buffered" => Ok(CacheMode::Buffered),
        "direct" => Ok(CacheMode::Direct),
        _ => Err("there are buffered and direct".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_an_earlier_version_are_told_with_what_does_it_now() {
        let refused = |command: &str| {
            Cli::read(["forebay", "lab", command].map(OsString::from)).unwrap_err().to_string()
        };
        for (gone, now) in [
            ("interplay", "tip: now it is forebay lab strategies\n"),
            ("activation", "tip: now it is forebay lab readahead --parts activation\n"),
            ("mixture", "tip: now it is forebay lab readahead --parts mixture\n"),
        ] {
            assert!(refused(gone).contains(now), "{}", refused(gone));
        }
        assert!(!refused("stratagems").contains("tip: now it is"));
    }

    #[test]
    fn a_report_of_one_experiment_is_named_by_html() {
        let words = "forebay lab depth --quick --report there".split(' ').map(OsString::from);
        let refused = Cli::read(words).unwrap_err().to_string();
        assert!(
            refused.contains("tip: one experiment alone writes its page with --html FILE"),
            "{refused}"
        );
        let words = "forebay lab --report there".split(' ').map(OsString::from);
        assert!(Cli::read(words).is_ok());
    }

    #[test]
    fn a_negative_number_is_a_wrong_value_and_no_unknown_option() {
        for (line, expected) in [
            ("explain 1,2 --readahead -5", "a readahead looks like 128KiB"),
            ("explain 1,2 --distance -5", "-5 is not in 1..=1000000"),
            ("lab readahead --readahead -5", "a readahead looks like 128KiB"),
            ("lab depth --size -5", "a size looks like"),
        ] {
            let words = "forebay".split(' ').chain(line.split(' ')).map(OsString::from);
            let refused = Cli::read(words).unwrap_err().to_string();
            assert!(refused.contains(expected), "{line}: {refused}");
        }
    }

    #[test]
    fn an_emulated_disk_is_named_before_or_behind_the_experiment() {
        let on = |line: &str| {
            let Command::Lab(lab) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}");
            };
            (lab.on.on, lab.on.fs.map(|filesystem| filesystem.to_string()), lab.on.speed_up)
        };
        let expected = (Some("nvme".to_owned()), Some("xfs".to_owned()), Some(4.0));
        assert_eq!(on("forebay lab --on nvme --fs xfs --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth --on nvme --fs xfs --quick --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth"), (None, None, None));
        let refused = Cli::try_parse_from(["forebay", "lab", "--on", "nvme", "--fs", "zfs"]);
        assert!(refused.unwrap_err().to_string().contains("ext4, xfs, btrfs"));
    }

    #[test]
    fn a_run_is_repeated_as_it_was_typed_with_whole_paths_and_the_seed() {
        let common = CommonArgs { dir: "/my data".into(), seed: 7 };
        let again = |line: &str| {
            repeated(line.split(' ').map(str::to_owned), Some(&common.dir), common.seed)
        };
        let rest = "--dir '/my data' --seed 7";
        assert_eq!(again("forebay lab"), format!("forebay lab {rest}"));
        assert_eq!(
            again("./forebay lab depth --json=a.json --quick --html b.html --depths 0,16"),
            format!("./forebay lab depth --quick --depths 0,16 {rest}")
        );
        assert_eq!(
            again("forebay lab --seed=9 --report /of(it) --sustained 500ms"),
            "forebay lab --seed 9 --report '/of(it)' --sustained 500ms --dir '/my data'"
        );
        assert_eq!(again("forebay lab sync --on nvme"), "forebay lab sync --on nvme --seed 7");
        assert_eq!(
            again("forebay lab sync --dir=/x --on=nvme"),
            "forebay lab sync --dir /x --on nvme --seed 7"
        );
        let second = std::path::absolute("second").unwrap();
        assert_eq!(
            again("forebay lab checkpoint --dir2 second"),
            format!("forebay lab checkpoint --dir2 {} {rest}", quoted(&second.to_string_lossy()))
        );
    }
}
