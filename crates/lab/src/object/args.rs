//! The arguments of `forebay lab object`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Latency;
use forebay_measure::units::{parse_size, parse_size_in, parse_time};

/// `forebay lab object`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "What is measured, all of it below a separate prefix, which is removed at the end and by Ctrl-C:\n  \
                  requests    a bare client: GETs of each size with so many in flight, and PUTs; the knee is the fewest in \
                  flight that reach 95 % of the best\n  \
                  checkpoint  a tablespace is written, then an eighth of its pages, at most 65,536, spread over all of it\n  \
                  scan        all of it through the pool, read ahead; and page by page\n  \
                  random      pages anywhere that are all known ahead; and pages of short ranges in an order that is local \
                  only, as an index names them\n  \
                  single      one page at a time, with second requests for those that are late and without\n\
                  Each is compared with the bare client at its best, in the same round. The last three need a store that \
                  replaces objects on a condition (S3, GCS, Azure), as a tablespace does.\n\n\
                  Credentials come from the environment, under the names that the stores' own tools have: \
                  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for another server; \
                  GOOGLE_SERVICE_ACCOUNT; AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY.\n\
                  Requests cost money: the default sends about 10,000 GETs and 200 PUTs, by S3's list prices two \
                  cents, and reads some GiB, which is free only within the store's region.\n\n\
                  Examples:\n  \
                  forebay lab object --url s3://bucket/scratch\n  \
                  forebay lab object --url file:///tmp/bucket --latency 20ms,p99=200ms --bandwidth 1GB/s\n  \
                  AWS_ENDPOINT_URL=http://127.0.0.1:7070 forebay lab object --url s3://bucket/x --parts requests --json a.json"
)]
pub struct ObjectArgs {
    /// The store and a prefix in it: s3://, gs://, az://, http:// (WebDAV) or file://
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// What to measure
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_values = ["requests", "checkpoint", "scan", "random", "single"])]
    pub parts: Vec<ObjectPart>,
    /// Sizes of GETs
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "8KiB,128KiB,1MiB,8MiB",
          value_parser = parse_size_in(512..=8 << 20))]
    pub sizes: Vec<u64>,
    /// Requests in flight
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,4,16,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub in_flight: Vec<u32>,
    /// Size of the tablespace
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size_in(64 << 20..=64 << 30))]
    pub data: u64,
    /// Memory of the pool
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size_in(64 << 20..=64 << 30))]
    pub memory: u64,
    /// Pages read at random, and one at a time
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..))]
    pub pages: u32,
    /// Rounds of each, interleaved
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Time of each cell of requests
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub time: Duration,
    /// Delay each request in addition: the median and, after p99=, the delay that one in a hundred exceeds
    #[arg(long, value_name = "TIME[,p99=TIME]")]
    pub latency: Option<Latency>,
    /// Bytes a second that all requests together may transfer, such as 1GB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub bandwidth: Option<u64>,
    /// Price of 1,000 GETs, for the cost of a million pages; the default is S3 Standard's list price in dollars
    #[arg(long, value_name = "PRICE", default_value_t = 0.0004)]
    pub thousand_gets: f64,
    /// Remove what earlier runs have left below the URL because they were killed, and measure nothing; do not use it
    /// while others measure there
    #[arg(long)]
    pub clean: bool,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..1 << 32), hide_default_value = true)]
    pub seed: u64,
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectPart {
    /// A bare client's GETs and PUTs.
    Requests,
    /// Pages written out.
    Checkpoint,
    /// All pages in order.
    Scan,
    /// Pages that are known ahead.
    Random,
    /// One page at a time.
    Single,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let per_second = text.trim().strip_suffix("/s");
    let size = per_second.ok_or("a rate looks like 1GB/s or 500MiB/s")?;
    parse_size(size)
}
