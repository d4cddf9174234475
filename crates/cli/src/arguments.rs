//! The command line: the commands, and what replaces those of earlier versions.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use forebay_advise::AdviseArgs;
use forebay_lab::{CompareArgs, EmulateArgs, ExplainArgs, LabArgs};
use forebay_watch::WatchArgs;

/// Measure what your disk and your kernel do with a storage engine's requests.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, propagate_version = true)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses `words`. For a command of an earlier version, the error names its replacement.
    ///
    /// # Errors
    /// An error with a message; or clap prints its own and ends the process.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
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

/// The earlier names of options of `lab`, and the present ones.
const RENAMED: [(&str, &str); 5] = [
    ("--on", "--emulate"),
    ("--on-size", "--emulated-size"),
    ("--apart", "--spacing"),
    ("--by", "--set-via"),
    ("--handicap", "--inject-slowdown"),
];

/// Replaces earlier names of options in `words`. Returns those that occurred, with the present ones.
pub(crate) fn rename_options(words: &mut [OsString]) -> Vec<(&'static str, &'static str)> {
    let mut renamed = Vec::new();
    if words.get(1).is_none_or(|command| command != "lab") {
        return renamed;
    }
    for word in words.iter_mut().take_while(|word| *word != "--") {
        let Some(text) = word.to_str() else { continue };
        let (name, value) =
            text.split_once('=').map_or((text, None), |(name, it)| (name, Some(it)));
        let Some(&(old, new)) = RENAMED.iter().find(|(old, _)| *old == name) else { continue };
        *word = value.map_or(new.to_owned(), |value| format!("{new}={value}")).into();
        renamed.push((old, new));
    }
    renamed
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
pub(crate) enum Command {
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
    /// Write the man pages and the completions of shells, as a package has them below /usr/share.
    #[cfg(feature = "packaging")]
    #[command(hide = true)]
    Generate {
        /// Where share is.
        directory: std::path::PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_an_earlier_version_are_reported_with_what_does_it_now() {
        let refused = |command: &str| {
            Cli::read(["forebay", "lab", command].map(OsString::from)).unwrap_err().to_string()
        };
        for (earlier, now) in [
            ("interplay", "tip: now it is forebay lab strategies\n"),
            ("activation", "tip: now it is forebay lab readahead --parts activation\n"),
            ("mixture", "tip: now it is forebay lab readahead --parts mixture\n"),
        ] {
            assert!(refused(earlier).contains(now), "{}", refused(earlier));
        }
        assert!(!refused("stratagems").contains("tip: now it is"));
    }

    #[test]
    fn options_of_an_earlier_version_are_renamed_under_lab_alone() {
        let renamed = |line: &str| {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let old: Vec<&str> = rename_options(&mut words).iter().map(|(old, _)| *old).collect();
            let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
            (words.join(" "), old.join(" "))
        };
        let (line, old) =
            renamed("forebay lab readahead --on nvme --by=descriptor --apart 1GiB --fs xfs");
        let now =
            "forebay lab readahead --emulate nvme --set-via=descriptor --spacing 1GiB --fs xfs";
        assert_eq!((line.as_str(), old.as_str()), (now, "--on --by --apart"));
        let words = line.split(' ').map(OsString::from);
        assert!(Cli::read(words).is_ok());
        for line in ["forebay watch --on nvme", "forebay lab -- --on nvme", "forebay"] {
            assert_eq!(renamed(line), (line.to_owned(), String::new()));
        }
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
            (lab.on.emulate, lab.on.fs.map(|filesystem| filesystem.to_string()), lab.on.speed_up)
        };
        let expected = (Some("nvme".to_owned()), Some("xfs".to_owned()), Some(4.0));
        assert_eq!(on("forebay lab --emulate nvme --fs xfs --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth --emulate nvme --fs xfs --quick --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth"), (None, None, None));
        let refused = Cli::try_parse_from(["forebay", "lab", "--emulate", "nvme", "--fs", "zfs"]);
        assert!(refused.unwrap_err().to_string().contains("ext4, xfs, btrfs"));
    }
}
