//! The command line.

mod compare;
mod emulate;
mod explain;
mod on;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use forebay_io::{CacheMode, Kind};

use crate::experiment::Choice;

pub use crate::device::DeviceArgs;
pub use compare::CompareArgs;
pub use emulate::EmulateArgs;
pub use explain::ExplainArgs;
pub use on::OnArgs;

/// Measure what your disk and your kernel do with a storage engine's requests.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the command can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure a disk: every experiment quickly, or one of them thoroughly
    Lab(Box<LabArgs>),
    /// Mount an emulated disk: a RAID, an SSD or a cloud volume that one does not have
    Emulate(EmulateArgs),
    /// Show the very requests that the kernel issues for a list of blocks, on an emulated disk
    Explain(ExplainArgs),
    /// Compare two reports: which figures really changed, and which advice
    Compare(CompareArgs),
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
    pub experiment: Option<Choice>,
    /// Where and with what.
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

impl LabArgs {
    /// What the experiments that will run have in common.
    pub(crate) fn common(&self) -> CommonArgs {
        self.clone().common_mut().clone()
    }

    fn common_mut(&mut self) -> &mut CommonArgs {
        match &mut self.experiment {
            None => &mut self.common,
            Some(choice) => choice.args().0,
        }
    }

    /// The same run in another directory.
    pub(crate) fn in_directory(&self, directory: &Path) -> LabArgs {
        let mut args = self.clone();
        directory.clone_into(&mut args.common_mut().dir);
        args
    }
}

/// Settings that every experiment takes.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Seed of everything random; printed in the report so that a run can be repeated
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// The files that one experiment alone writes, if they are asked for.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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
    fn a_run_is_moved_to_another_directory_whatever_it_measures() {
        for words in ["", "depth ", "strategies ", "checkpoint "] {
            let line = format!("forebay lab {words}--dir /here --seed 7");
            let Command::Lab(lab) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}");
            };
            let moved = lab.in_directory(Path::new("/there"));
            assert_eq!(lab.common().dir, Path::new("/here"));
            assert_eq!(
                (moved.common().dir, moved.common().seed),
                (PathBuf::from("/there"), Some(7))
            );
        }
    }
}
