//! Standing: what a record's figure is worth as evidence, decided in one place.
//!
//! A figure that memory answered in part is printed, because hiding it would hide a fault of the
//! run, and set apart, because ranking it would reward that fault. A rate below zero is no rate
//! at all, whoever wrote it down.
//!
//! Worked example: 41,230 blocks/s is cold; the same with the remark `not cold: 61 % was cached`
//! is not, and no table calls it the best of anything.
//!
//! Invariants:  [STA-1] a figure is evidence only when it was measured and no remark says `not cold`

use super::Record;

/// What a cell's figure is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Measured, and the caches were in the state that the cell names; cold where it names none.
    Cold,
    /// Measured, but memory answered some of it: it says little about the disk.
    NotCold,
    /// Not measured at all.
    Unmeasured,
}

impl Standing {
    /// The standing of a record's blocks per second.
    pub(crate) fn of(record: &Record) -> Standing {
        match rate(record) {
            None => Standing::Unmeasured,
            Some(_) if record.is_not_cold() => Standing::NotCold,
            Some(_) => Standing::Cold,
        }
    }

    /// The name used in the page's plot data and style classes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Standing::Cold => "cold",
            Standing::NotCold => "not-cold",
            Standing::Unmeasured => "unmeasured",
        }
    }
}

/// Blocks per second, as measured, whatever they are worth.
pub(crate) fn rate(record: &Record) -> Option<f64> {
    record.metric("blocks_per_s").filter(|rate| *rate >= 0.0)
}

/// Blocks per second, if they are evidence.
pub(crate) fn cold_rate(record: &Record) -> Option<f64> {
    match Standing::of(record) {
        Standing::Cold => rate(record),
        Standing::NotCold | Standing::Unmeasured => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::record;
    use super::*;

    #[test]
    fn only_a_cold_figure_is_evidence() {
        let cold = record("uring", "direct", 0, Some(5.0), &["a neighbour was busy"]);
        let warm = record("uring", "direct", 0, Some(5.0), &["not cold: half was cached"]);
        let lost = record("uring", "direct", 0, None, &["not cold: half was cached"]);
        let absurd = record("uring", "direct", 0, Some(-5.0), &[]);
        let found =
            [&cold, &warm, &lost, &absurd].map(|record| (Standing::of(record), cold_rate(record)));
        let expected = [
            (Standing::Cold, Some(5.0)),
            (Standing::NotCold, None),
            (Standing::Unmeasured, None),
            (Standing::Unmeasured, None),
        ];
        assert_eq!(found, expected, "[STA-1]");
    }
}
