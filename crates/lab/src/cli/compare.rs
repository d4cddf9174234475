//! The arguments of `forebay compare`.

use std::path::PathBuf;

use clap::Args;

/// `forebay compare`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Both are files report.json of forebay lab, or what it wrote by --json. Records of the same \
                  experiment and cell are compared, round by round of the one against round by round of the \
                  other. A figure has changed if the interval of its ratio does not include 1, has not if \
                  the interval lies within 5 % of 1, and is undecided otherwise: measure with more --rounds.\n\
                  The interval knows how far the rounds of a run are apart, not how far two runs of the \
                  same disk are: compare two reports of the same state first to see that.\n\n\
                  Example: forebay compare before/report.json after/report.json"
)]
pub struct CompareArgs {
    /// The baseline report, such as one from before a change
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// The report to compare with it, such as one from after the change
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Write every comparison to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
