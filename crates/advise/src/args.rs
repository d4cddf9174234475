//! The arguments of `forebay advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use forebay_measure::units::parse_time;

/// `forebay advise`.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    /// The product whose settings are advised.
    #[command(subcommand)]
    pub product: Product,
}

/// The products with advice.
#[derive(Debug, Clone, Subcommand)]
pub enum Product {
    /// Settings of a running PostgreSQL 14 to 18 that are proved on it by read-only queries
    Postgres(Box<PostgresArgs>),
}

/// `forebay advise postgres`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Every setting that is proposed was tried on this server: queries in read-only transactions, \
                  the settings as they are and as they would be in turn, made ones on parts of the largest tables that \
                  were not read before, and compared round by round. What did not help significantly is not proposed. \
                  Nothing is changed without --apply.\n\
                  The server is found as by psql: --dsn, PGSERVICE, PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE, PGSSLMODE, PGSSLROOTCERT, ~/.pgpass.\n\n\
                  Example: forebay advise postgres --dsn 'host=/run/postgresql dbname=shop' --json advice.json\n\
                  then:    forebay advise postgres --dsn 'host=/run/postgresql dbname=shop' --from advice.json --apply"
)]
pub struct PostgresArgs {
    /// Where the server is, such as 'host=/run/postgresql dbname=shop' or postgresql://user@host/shop
    #[arg(long, value_name = "DSN")]
    pub dsn: Option<String>,
    /// The server's data directory, for a role that may not query it
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Prove with these queries instead of generated ones: each ends in a line that ends in ; and is run unchanged
    /// again and again, so that without --drop-caches it reads from memory
    #[arg(long, value_name = "FILE", conflicts_with = "rollback")]
    pub queries: Option<PathBuf>,
    /// How the session of --queries reaches the server [default: as by --dsn]: its role must have no rights but to
    /// read, as a query may call any function
    #[arg(long, value_name = "DSN", requires = "queries")]
    pub queries_dsn: Option<String>,
    /// Rounds in which a setting is proved, each on other parts of the tables
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    pub rounds: u32,
    /// A query that takes longer is given up and left out
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub statement_timeout: Duration,
    /// Drop the pages of the table and index that a generated query reads from the page cache, before each; with
    /// --queries those of the 20 largest tables, each with one index. From PostgreSQL 17 on with pg_buffercache also
    /// from the server's cache. It makes the next reads of these tables slower for all users
    #[arg(long)]
    pub drop_caches: bool,
    /// Measure the disks without asking
    #[arg(long)]
    pub yes: bool,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "rollback"])]
    pub json: Option<PathBuf>,
    /// Write the results to this file as a self-contained page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "rollback"])]
    pub html: Option<PathBuf>,
    /// Take the proposals of an earlier --json FILE instead of measuring
    #[arg(long, value_name = "FILE", requires = "apply", conflicts_with = "rollback")]
    pub from: Option<PathBuf>,
    /// Apply the proposals by ALTER SYSTEM and a reload, and measure again; the previous values are kept for --rollback
    #[arg(long, conflicts_with = "rollback")]
    pub apply: bool,
    /// Restore the settings that --apply has changed
    #[arg(long)]
    pub rollback: bool,
    /// Where --apply keeps the previous settings [default: forebay/ in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..1 << 32), hide_default_value = true)]
    pub seed: u64,
    /// Keep a disk busy for this long before it is measured (such as 30min), so that credits of a cloud volume
    /// are used up [default: less than a second]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "The disk itself")]
    pub sustained: Option<Duration>,
}
