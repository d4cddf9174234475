//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;

use forebay_io::CacheMode;

use super::{Pattern, Strategy};
use crate::bad_input;
use crate::cli::ExplainArgs;
use crate::device_readahead::typed_readahead;
use crate::experiment::{listed, quoted, unique};
use crate::output::{check_directory, check_file};
use crate::units::typed_size;

/// Sizes of a page that a pool takes.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=65_536;

/// Bytes of the file after the last block of the pattern: more than any kernel reads ahead, so that
/// the end of the file has no part in what is shown.
const TAIL_BYTES: u64 = 64 << 20;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) pattern: Pattern,
    /// A shipped profile, or a file of one.
    pub(super) profile: String,
    pub(super) strategies: Vec<Strategy>,
    /// How many blocks ahead WILLNEED is.
    pub(super) distance: u32,
    pub(super) block_bytes: u64,
    pub(super) readahead_bytes: Option<u64>,
    /// Of the pool.
    pub(super) cache: CacheMode,
    pub(super) speed_up: f64,
    pub(super) seed: u64,
    pub(super) json: Option<PathBuf>,
    pub(super) svg: Option<PathBuf>,
    pub(super) logs: Option<PathBuf>,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub(super) fn new(args: &ExplainArgs) -> anyhow::Result<Settings> {
        let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
        let pattern =
            match Pattern::parse(&args.pattern, seed, |name| std::fs::read_to_string(name)) {
                Ok(pattern) => pattern,
                Err(error) => bad_input!("{error}"),
            };
        let block_bytes = args.block_size;
        if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
            bad_input!(
                "--block-size {}: it has to be a power of two from 4KiB to 64KiB",
                typed_size(block_bytes)
            );
        }
        for path in [&args.json, &args.svg].into_iter().flatten() {
            check_file(path)?;
        }
        if let Some(directory) = &args.logs {
            let existing = directory.ancestors().find(|path| path.exists());
            check_directory(existing.unwrap_or(std::path::Path::new("")), directory)?;
        }
        Ok(Settings {
            pattern,
            profile: args.profile.clone(),
            strategies: unique(&args.strategy),
            distance: args.distance,
            block_bytes,
            readahead_bytes: args.readahead,
            cache: if args.direct { CacheMode::Direct } else { args.cache },
            speed_up: args.speed_up,
            seed,
            json: args.json.clone(),
            svg: args.svg.clone(),
            logs: args.logs.clone(),
        })
    }

    /// Size of the file that is read.
    pub(super) fn file_bytes(&self) -> u64 {
        let last = self.pattern.blocks.iter().copied().max().unwrap_or(0);
        (u64::from(last) + 1) * self.block_bytes + TAIL_BYTES
    }

    /// The command that does it again.
    pub(super) fn command(&self, program: &str) -> String {
        let mut command = format!(
            "{} explain {} --profile {} --strategy {} --distance {} --block-size {} --cache {} \
             --speed-up {}",
            quoted(program),
            quoted(&self.pattern.text),
            quoted(&self.profile),
            listed(&self.strategies),
            self.distance,
            typed_size(self.block_bytes),
            self.cache,
            self.speed_up,
        );
        if let Some(bytes) = self.readahead_bytes {
            command.push_str(&format!(" --readahead {}", typed_readahead(bytes)));
        }
        command.push_str(&format!(" --seed {}", self.seed));
        command
    }
}
