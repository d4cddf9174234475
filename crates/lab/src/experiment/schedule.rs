//! Schedule: which series are measured in the next round, the one stopping rule of all experiments.
//!
//! A series is a set of rows that are compared with each other, and so measured side by side. Every series gets the
//! first rounds, as fewer decide almost nothing. After that only open series continue, so that time is spent where it
//! decides. They are examined after the first rounds, and after twice, four times, eight times as many: a reader who
//! looks after each single round sooner or later sees a difference where there is none. The confidence of each look is
//! up to the [`Judge`](forebay_measure::statistics::Judge). Worked example: of six series with five rounds two are open; they get
//! five more each, one is decided by its ten rounds, and the other continues to twenty.
//!
//! A series that leaves does not return: so all that are still measured have the same rounds, and round n of one is
//! measured together with round n of any other.
//!
//! Invariants:  [SCH-1] whatever the time, each series is measured once
//!              [SCH-2] a decided series gets no further rounds, and one that left does not return
//!              [SCH-3] whether a series is open is evaluated at its looks only, and at most
//!              [`LOOKS_MAX`] times
//! Source:      P. Armitage, C. K. McPherson, B. C. Rowe, "Repeated Significance Tests on Accumulating
//!              Data", 1969, for what looking often does.

use std::time::Duration;

use forebay_measure::statistics::LOOKS_MAX;

/// How long there are rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Rounds of all series.
    pub(super) first: u32,
    /// Of these rounds only the first may begin after this time.
    pub(super) first_time: Duration,
    /// Until then open series get more rounds; 0 for none.
    pub(super) time: Duration,
}

/// The rounds of an experiment.
#[derive(Debug)]
pub(super) struct Schedule {
    limits: Limits,
    rounds: u32,
    /// For each series the time of its rounds, or `None` once it has left.
    took: Vec<Option<Duration>>,
}

impl Schedule {
    /// For this many `series`.
    pub(super) fn new(limits: Limits, series: usize) -> Schedule {
        Schedule { limits, rounds: 0, took: vec![Some(Duration::ZERO); series] }
    }

    /// Completed rounds of all series that are still measured.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether rounds are examined now. `usize`: at which look, from 0.
    fn look(&self) -> Option<u32> {
        let times = self.rounds / self.limits.first;
        let is_now = self.rounds.is_multiple_of(self.limits.first) && times.is_power_of_two();
        is_now.then(|| times.ilog2())
    }

    /// The series of the next round; none at the end. `elapsed`: since the first one began. `is_open`: for each series
    /// whether more rounds could decide something.
    pub(super) fn next(
        &mut self,
        elapsed: Duration,
        is_open: impl FnOnce() -> Vec<bool>,
    ) -> Vec<usize> {
        let is_first = self.rounds < self.limits.first;
        if let Some(look) = self.look().filter(|_| !self.limits.time.is_zero()) {
            let is_open = if look + 1 < LOOKS_MAX { is_open() } else { Vec::new() }; // [SCH-3]
            for (index, took) in self.took.iter_mut().enumerate() {
                *took = took.filter(|_| is_open.get(index) == Some(&true)); // [SCH-2]
            }
        }
        let limit = if is_first { self.limits.first_time } else { self.limits.time };
        let mut left = limit.saturating_sub(elapsed);
        for took in &mut self.took {
            let Some(cost) = took.map(|took| took / self.rounds.max(1)) else { continue };
            match left.checked_sub(cost) {
                Some(rest) if !left.is_zero() => left = rest,
                _ if self.rounds == 0 => {} // [SCH-1]
                _ => *took = None,
            }
        }
        (0..self.took.len()).filter(|&index| self.took[index].is_some()).collect()
    }

    /// A measurement of `series` took this time.
    pub(super) fn measured(&mut self, series: usize, time: Duration) {
        self.took[series] = self.took[series].map(|took| took + time);
    }

    /// The round that was begun has ended.
    pub(super) fn end_round(&mut self) {
        self.rounds += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(first: u32, seconds: u32) -> Limits {
        Limits { first, first_time: Duration::MAX, time: seconds * SECOND }
    }

    /// The series of each round, if those of `cost` seconds a round are open until they have this many rounds.
    fn rounds(limits: Limits, series: &[(u32, u32)]) -> Vec<Vec<usize>> {
        let (mut schedule, mut elapsed, mut made) =
            (Schedule::new(limits, series.len()), Duration::ZERO, Vec::new());
        loop {
            let round = schedule.rounds();
            let next =
                schedule.next(elapsed, || series.iter().map(|&(_, until)| round < until).collect());
            if next.is_empty() {
                return made;
            }
            for &index in &next {
                let cost = series[index].0 * SECOND;
                schedule.measured(index, cost);
                elapsed += cost;
            }
            schedule.end_round();
            made.push(next);
        }
    }

    fn counts(made: &[Vec<usize>], series: usize) -> usize {
        made.iter().filter(|round| round.contains(&series)).count()
    }

    #[test]
    fn sch_1_without_time_each_series_is_measured_once() {
        let none = Limits { first: 5, first_time: Duration::ZERO, time: SECOND };
        assert_eq!(rounds(none, &[(1, 99), (1, 99)]), [[0, 1]], "[SCH-1]");
    }

    #[test]
    fn sch_2_after_the_first_rounds_only_open_series_go_on_and_none_comes_back() {
        let made = rounds(limits(5, 1000), &[(1, 0), (1, 6), (1, 11), (1, 0)]);
        let of = |series| counts(&made, series);
        assert_eq!([of(0), of(1), of(2), of(3)], [5, 10, 20, 5], "[SCH-2]");
        let left = |pair: &[Vec<usize>]| pair[1].iter().all(|series| pair[0].contains(series));
        assert!(made.windows(2).all(left), "[SCH-2]");
        let asked = limits(5, 0);
        assert_eq!(rounds(asked, &[(1, 99)]).len(), 5, "the requested number, and no more");
    }

    #[test]
    fn sch_3_series_are_looked_at_after_twice_as_many_rounds_as_before_and_not_between() {
        let mut schedule = Schedule::new(limits(3, 1), 1);
        let mut looks = Vec::new();
        loop {
            let round = schedule.rounds();
            let next = schedule.next(Duration::ZERO, || {
                looks.push(round);
                vec![true]
            });
            if next.is_empty() {
                break;
            }
            schedule.end_round();
        }
        assert_eq!(looks, [3, 6, 12, 24, 48], "[SCH-3]");
        assert_eq!(schedule.rounds(), 96, "[SCH-3] the last look is the end");
    }

    #[test]
    fn what_does_not_fit_into_the_time_leaves_and_what_fits_stays() {
        let made = rounds(limits(2, 10), &[(1, 99), (3, 99)]);
        // The first rounds take eight seconds; the rest is enough for the first series alone.
        assert_eq!([counts(&made, 0), counts(&made, 1)], [4, 2]);
    }

    #[test]
    fn first_rounds_have_a_time_of_their_own() {
        let limits = Limits { first_time: 5 * SECOND, ..limits(9, 1) };
        assert_eq!(rounds(limits, &[(2, 99)]).len(), 2, "a third one would end too late");
    }
}
