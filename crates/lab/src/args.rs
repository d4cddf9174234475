//! Arguments that several commands share, and their parsers.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Command};
use forebay_io::{CacheMode, Kind};

use crate::experiment::WorkfileSpec;
use forebay_measure::shell::quoted;
use forebay_measure::workfile::Naming;

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
    pub(crate) fn workfile_spec(
        &self,
        size_bytes: u64,
        block_bytes: u64,
        naming: Naming,
    ) -> WorkfileSpec {
        WorkfileSpec {
            directory: self.dir.clone(),
            size_bytes,
            block_bytes,
            seed: self.seed,
            naming,
        }
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
pub fn repeated(typed: impl IntoIterator<Item = String>, dir: Option<&Path>, seed: u64) -> String {
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
            Some("--emulate") => Path::new(&word).is_file(),
            _ => false,
        };
        let path = std::path::absolute(&word).ok().filter(|_| is_path);
        words.push(path.map_or(word, |path| path.display().to_string()));
    }
    let has = |option: &str| words.iter().any(|word| word == option);
    let (has_place, has_seed) = (has("--dir") || has("--emulate"), has("--seed"));
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

/// The settings of a command that is called with these words.
pub(crate) fn typed<S: Args>(words: &str) -> S {
    let command = S::augment_args(Command::new("lab").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace());
    let settings = matches.and_then(|matches| S::from_arg_matches(&matches));
    settings.expect("valid arguments")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            again("forebay lab sync --emulate nvme"),
            "forebay lab sync --emulate nvme --seed 7"
        );
        assert_eq!(
            again("forebay lab sync --dir=/x --emulate=nvme"),
            "forebay lab sync --dir /x --emulate nvme --seed 7"
        );
        let second = std::path::absolute("second").unwrap();
        assert_eq!(
            again("forebay lab checkpoint --dir2 second"),
            format!("forebay lab checkpoint --dir2 {} {rest}", quoted(&second.to_string_lossy()))
        );
    }
}
