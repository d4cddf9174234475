//! Advice: settings to change, each with its gain and its confidence; and the same to paste.
//!
//! A setting is not advised if it is the default already, if it was not measured, or if its gain may be too small to
//! be worth a change: only [`Advice::worth_it`] decides this.
//!
//! Invariants:  [ADV-1] advice rests on three rounds at least, and the current value surely does not reach
//!              [`BOUND`](crate::statistics::BOUND) of it: the whole interval of its gain is above 1.053
//!              [ADV-2] nothing is advised that is set already

use serde::{Deserialize, Serialize};

use crate::statistics::Estimate;

/// A gain that is surely larger than this, by many rounds, is advised with high confidence.
const GAIN_HIGH: f64 = 1.2;
const ROUNDS_HIGH: usize = 5;

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The experiment that it rests on.
    pub experiment: String,
    /// The setting, such as `effective_io_concurrency`.
    pub setting: String,
    /// The system that has the setting.
    pub applies_to: AppliesTo,
    /// The current value, or the default if it is not set; `None` where that is not known.
    pub current: Option<String>,
    /// The advised value.
    pub advised: String,
    /// How many times as fast the advised setting is, in the measure that `evidence` names.
    pub gain: f64,
    /// Lower end of the gain's interval.
    pub gain_low: f64,
    /// Upper end of the gain's interval.
    pub gain_high: f64,
    /// How sure it is that it helps.
    pub confidence: Confidence,
    /// The measurement, in one sentence.
    pub evidence: String,
}

/// The owner of a setting, by product and versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AppliesTo {
    /// Every version from 14 on.
    #[serde(rename = "PostgreSQL 14-18")]
    Postgres,
    /// Before asynchronous reads.
    #[serde(rename = "PostgreSQL 14-17")]
    Postgres14To17,
    /// 18 with `io_method = sync`.
    #[serde(rename = "PostgreSQL 18 io_method=sync")]
    Postgres18Sync,
    /// 18 with `io_method = worker`, its default.
    #[serde(rename = "PostgreSQL 18 io_method=worker")]
    Postgres18Worker,
    /// 18 with `io_method = io_uring`.
    #[serde(rename = "PostgreSQL 18 io_method=io_uring")]
    Postgres18Uring,
    /// The device under the directory measured.
    #[serde(rename = "Linux block device")]
    BlockDevice,
    /// The file that Forebay's pools load.
    #[serde(rename = "Forebay profile")]
    Profile,
}

/// How sure it is that an advised setting helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A large gain, by many rounds.
    High,
    /// Surely a gain.
    Medium,
}

crate::shown_by_name!(AppliesTo, Confidence);

impl Advice {
    /// Advice to replace `current` by `advised`, if that is worth a change [ADV-1] [ADV-2]. `gain`: the
    /// figure with the advised value divided by that with the current one; `evidence`: the measurement.
    pub fn worth_it(
        experiment: &str,
        (applies_to, setting): (AppliesTo, &str),
        [current, advised]: [String; 2],
        gain: Estimate,
        evidence: String,
    ) -> Option<Advice> {
        if !gain.is_gain() || current == advised {
            return None;
        }
        let high = gain.rounds >= ROUNDS_HIGH && gain.low >= GAIN_HIGH;
        Some(Advice {
            experiment: experiment.to_owned(),
            setting: setting.to_owned(),
            applies_to,
            current: Some(current),
            advised,
            gain: gain.value,
            gain_low: gain.low,
            gain_high: gain.high,
            confidence: if high { Confidence::High } else { Confidence::Medium },
            evidence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(gain: (f64, f64, f64), rounds: usize, current: &str) -> Option<Advice> {
        let (value, low, high) = gain;
        let setting = (AppliesTo::Postgres14To17, "effective_io_concurrency");
        let change = [current, "64"].map(str::to_owned);
        let gain = Estimate { value, low, high, rounds };
        Advice::worth_it("depth", setting, change, gain, String::new())
    }

    #[test]
    fn adv_1_an_interval_that_includes_no_gain_advises_nothing() {
        let advised = |gain, rounds| advised(gain, rounds, "1").is_some();
        assert!(advised((2.0, 1.5, 2.5), 3));
        assert!(!advised((2.0, 0.9, 3.5), 30), "[ADV-1]");
        assert!(!advised((2.0, 1.9, 2.5), 2), "[ADV-1] too few rounds");
        assert!(!advised((1.05, 1.04, 1.06), 30), "[ADV-1] surely a gain, and none worth a change");
        assert!(!advised((1.18, 1.04, 1.34), 30), "[ADV-1] perhaps a gain that is worth none");
        assert!(advised((1.08, 1.06, 1.10), 30), "[ADV-1]");
    }

    #[test]
    fn adv_2_what_is_set_already_is_not_advised() {
        let gain = (2.0, 1.5, 2.5);
        assert!(advised(gain, 5, "64").is_none(), "[ADV-2]");
        assert!(advised(gain, 5, "1").is_some());
    }

    #[test]
    fn confidence_comes_of_many_rounds_and_a_gain_that_is_surely_large() {
        let confidence = |gain, rounds| advised(gain, rounds, "1").unwrap().confidence;
        assert_eq!(confidence((2.0, 1.5, 2.5), 5), Confidence::High);
        assert_eq!(confidence((2.0, 1.5, 2.5), 3), Confidence::Medium);
        assert_eq!(confidence((1.3, 1.1, 1.5), 9), Confidence::Medium);
    }

    #[test]
    fn whose_setting_it_is_reads_the_same_in_json() {
        for (applies_to, text) in [
            (AppliesTo::Postgres14To17, "PostgreSQL 14-17"),
            (AppliesTo::Postgres18Worker, "PostgreSQL 18 io_method=worker"),
            (AppliesTo::BlockDevice, "Linux block device"),
            (AppliesTo::Profile, "Forebay profile"),
        ] {
            assert_eq!(serde_json::to_value(applies_to).unwrap(), text);
            assert_eq!(applies_to.to_string(), text);
        }
    }
}
