//! Experiment `strategies`: which readahead strategy suits which order of reading.
//!
//! Document 000 of the sources proposed to tell the kernel RANDOM or NORMAL by access strategy, and was
//! asked for figures beside other patterns and with cold caches. Here every strategy that a stream can
//! have reads the same blocks: in 19 patterns, from four states of the caches, through the page cache and
//! past it, and for each value of the device's own readahead that is asked for. In each of these rows
//! the best strategy has ratio 1; `adaptive`, which is told nothing, should be near it everywhere.
//!
//! Source:      document 000.

mod conclusion;
mod settings;

pub use settings::Settings;

use super::contest::{Form, Means, measurements};
use super::{Bench, Experiment, Ground, Outcome};
use crate::workfile::Naming;

/// The name of this experiment in records.
pub const NAME: &str = "strategies";

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
            Form { experiment: NAME, with_state: true, block_bytes: self.ground().block_bytes };
        let rules = self.setup.rules(self.shape());
        let (records, backends) = means.records(form, &rules, self.rows(), bench, progress)?;
        let advice = conclusion::draw(&records);
        Ok(Outcome { records, backends, conclusions: advice, ..Outcome::default() })
    }
}
