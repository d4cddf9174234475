//! The command line of `forebay lab sync`.

use clap::Args;

use crate::cli::{CommonArgs, OutputArgs};
use crate::units::parse_size;

/// `forebay lab sync`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each measurement writes and syncs, one after the other, for a quarter of a second: \
                  what a commit costs.\n\
                  Places: overwritten (a file that was written and synced before, as PostgreSQL's recycled \
                  WAL segments), appended (a file that grows).\n\
                  Methods: fdatasync, fsync, o_dsync, o_sync (a file that was opened so), rwf_dsync (each \
                  write says so), o_direct_o_dsync (past the page cache). In PostgreSQL's wal_sync_method o_dsync is \
                  open_datasync, and o_sync is open_sync.\n\
                  Writers share one file, each in a part of it.\n\n\
                  Example: forebay lab sync --dir /var/lib/postgresql"
)]
pub struct SyncArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the file that is overwritten, at least 32MiB [default: 256MiB, quick: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Measurements of each cell [default: 5 or more, quick: 3 or more, as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer cells and rounds: less than ten seconds
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl SyncArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> SyncArgs {
        SyncArgs {
            common: common.clone(),
            size: None,
            rounds: None,
            quick: true,
            output: OutputArgs::default(),
        }
    }
}
