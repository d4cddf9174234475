//! Experiment `interplay`: what the kernel makes of advice for single blocks, and of ours.
//!
//! Document 004 of the sources found that advising every block (WILLNEED) made clustered random reads
//! slower: the kernel carries out each piece of advice by itself, and no longer sees the pattern for
//! which it would have read ahead. Here the same three orders are read by the kernel alone, with that
//! advice at several distances, and through streams of a pool.
//!
//! Patterns: `shuffled` is document 004's case (ranges in turn, each locally random), `neighbours` its
//! example 1, 3, 2, 6, 4, 9 along the file, `two-streams` its example 1, 1001, 2, 1002.
//!
//! Source:      document 004.

mod conclusion;
mod settings;

pub use settings::{Settings, Way};

use super::contest::{Form, Means, measurements};
use super::{Bench, Experiment, Ground, Outcome};
use crate::workfile::Naming;

/// The name of this experiment in records.
pub const NAME: &str = "interplay";

impl Experiment for Settings {
    type Means = Means;

    const NAMING: Naming = Naming::Named;

    fn ground(&self) -> Ground {
        self.setup.ground()
    }

    fn measurements(&self) -> u64 {
        measurements(&self.rows(), self.setup.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe(&self, bench: &Bench<'_>) -> anyhow::Result<Means> {
        Means::probe(&self.setup, &self.rows(), bench)
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        means: Means,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        let form =
            Form { experiment: NAME, with_state: false, block_bytes: self.ground().block_bytes };
        let rules = self.setup.rules(self.shape());
        let (records, backends) = means.records(form, &rules, self.rows(), bench, progress)?;
        let advice = conclusion::draw(&records);
        Ok(Outcome { records, backends, conclusions: advice, ..Outcome::default() })
    }
}
