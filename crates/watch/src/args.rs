//! The arguments of `forebay watch`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Speed;
use forebay_measure::device_readahead::parse_readahead;
use forebay_measure::units::parse_size;

/// `forebay watch`.
#[derive(Debug, Clone, Args)]
#[command(
    group(ArgGroup::new("recorded").args(["record", "predict"]).multiple(true)),
    after_help = "\
What is shown of each file:
  reads, bytes    as programs request them; hits: the kernel had all of it
  requests, each  what devices were asked to read for it, and the mean size
  ahead, unused   what the kernel read ahead, and how much of it was not used
                  since
  waited          how long reads slept
  avoidable       the part of it for blocks that could have been known earlier:
                  they go on where another read ended (sequence), lie in equal
                  steps (stride), or are several of one file behind a block of
                  another, such as an index block that names them (range)
  strip           a letter for each read, the newest to the right: S in sequence,
                  R random, . hits, ! read ahead but not there in time

The kernel's trace events are the source, in a private instance, which is
removed at the end, by Ctrl-C, and after a kill by the next start. That takes
root. Waits of mapped files and of io_uring are not seen.

Examples:
  sudo forebay watch --service postgresql@15-main --dsn 'host=/run/postgresql user=postgres'
  sudo forebay watch --pid 4711 --seconds 30 --json watched.json
  sudo forebay watch -- sqlite3 shop.db 'select count(*) from orders'
  sudo forebay watch --record shop.watch --pid 4711
  forebay watch --replay shop.watch --speed 10
  sudo forebay watch --replay shop.watch --predict --readahead 0,512KiB,4MiB"
)]
pub struct WatchArgs {
    /// A command to start and watch until it ends, with all that it starts; it runs as this user. Its exit status
    /// becomes that of the watch, 128 + N if signal N ended it; 0 if the watch ends first
    #[arg(value_name = "COMMAND", trailing_var_arg = true, conflicts_with_all = ["pid", "service"])]
    pub command: Vec<OsString>,
    /// A running process, with all its current and future descendants
    #[arg(long, value_name = "PID", conflicts_with = "service", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    /// A service of systemd, such as postgresql@15-main
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Stop after this many seconds; a COMMAND is ended then
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Ask this PostgreSQL server for its relations' names, such as 'host=/run/postgresql user=postgres'
    #[arg(long, value_name = "DSN")]
    pub dsn: Option<String>,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Record each read, write and request in this file, for --replay
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Maximum size of the record; when it is full, watching continues without it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GiB", requires = "recorded")]
    pub record_limit: u64,
    /// Show the recording in this file; needs no rights
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["command", "pid", "service", "seconds", "dsn", "record"])]
    pub replay: Option<PathBuf>,
    /// Replay this many times as fast as it happened, or as fast as possible: max [default: 1 on a terminal,
    /// max elsewhere]
    #[arg(long, value_name = "N|max", value_parser = parse_speed, requires = "replay")]
    pub speed: Option<Speed>,
    /// Repeat the recorded reads with other ways of reading ahead, and say what each would gain. That drops the pages
    /// of these files from the page cache. Without --record or --replay the record is an unnamed file, of up to
    /// --record-limit, in $TMPDIR or else /var/tmp
    #[arg(long)]
    pub predict: bool,
    /// Sizes of the kernel's readahead to try, such as 0,512KiB,4MiB, besides none and twice the current one. They
    /// apply to everyone who uses the device until the prediction ends; that takes root
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead, requires = "predict")]
    pub readahead: Vec<u64>,
    /// How often the reads are repeated in each way
    #[arg(long, value_name = "N", default_value_t = 5, requires = "predict",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Maximum seconds for all repeated reads, but at least one round of all ways: of a long record, the part in which
    /// reads waited longest is repeated
    #[arg(long, value_name = "N", default_value_t = 60, requires = "predict",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub predict_seconds: u64,
}

/// Replay speeds, as multiples of real time.
const SPEEDS: RangeInclusive<f64> = 0.001..=10_000.0;

fn parse_speed(text: &str) -> Result<Speed, String> {
    match text.trim() {
        "max" => Ok(Speed(None)),
        text => match text.parse() {
            Ok(factor) if SPEEDS.contains(&factor) => Ok(Speed(Some(factor))),
            _ => Err("a speed is a number from 0.001 to 10000, or max".to_owned()),
        },
    }
}
