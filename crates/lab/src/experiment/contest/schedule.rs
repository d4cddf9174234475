//! Schedule: which rows are measured in the next round.
//!
//! Every row gets the first rounds, for which there is twice the time that a run should take, as fewer decide
//! next to nothing. Then only those rows go on that are open, and time goes where it decides.
//! A row is judged after so many rounds as all have, then after twice, four times, eight times as many:
//! a reader who looks after each single round sees a difference sooner or later where there is none. Worked
//! example: of six rows with five rounds two are open; they get five more each, one is decided by its ten
//! rounds, and the other goes on to twenty.
//!
//! Invariants:  [SCH-1] whatever the time, each row is measured once
//!              [SCH-2] a decided row gets no further rounds
//! Source:      P. Armitage, C. K. McPherson, B. C. Rowe, "Repeated Significance Tests on Accumulating
//!              Data", 1969, for what looking often does.

use std::time::Duration;

/// A row, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) rounds: u32,
    /// Whether its rounds do not tell, or not surely enough to be the last.
    pub(super) is_open: bool,
    /// How long a round of it takes.
    pub(super) cost: Duration,
}

/// The rows of the next round, those with the fewest rounds first; none at the end. `first`: rounds that
/// all rows get. `time`: how much there is, and how much of it has gone by; `None` for the first rounds only,
/// whatever they take.
pub(super) fn next(rows: &[Due], first: u32, time: Option<(Duration, Duration)>) -> Vec<usize> {
    let is_judged_now =
        |row: &Due| row.rounds.is_multiple_of(first) && (row.rounds / first).is_power_of_two();
    let is_due = |row: &Due| {
        row.rounds < first || time.is_some() && (row.is_open || !is_judged_now(row)) // [SCH-2]
    };
    let mut next: Vec<usize> = (0..rows.len()).filter(|&index| is_due(&rows[index])).collect();
    next.sort_by_key(|&index| rows[index].rounds);
    if let Some((time_max, elapsed)) = time {
        // For the first rounds, and for those that are added.
        let mut left = [2 * time_max, time_max].map(|time| time.saturating_sub(elapsed));
        next.retain(|&index| {
            let Due { rounds, cost, .. } = rows[index];
            let left = &mut left[usize::from(rounds >= first)];
            let fits = rounds == 0 || cost <= *left; // [SCH-1]
            *left = left.saturating_sub(if fits { cost } else { Duration::ZERO });
            fits
        });
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(seconds: u32) -> Option<(Duration, Duration)> {
        Some((seconds * SECOND, Duration::ZERO))
    }

    fn row(rounds: u32, is_open: bool) -> Due {
        Due { rounds, is_open, cost: SECOND }
    }

    #[test]
    fn sch_1_without_time_each_row_is_measured_once() {
        let none = of(0);
        assert_eq!(next(&[row(0, false), row(0, true)], 5, none), [0, 1], "[SCH-1]");
        assert_eq!(next(&[row(1, true), row(0, true)], 5, none), [1], "[SCH-1]");
        assert!(next(&[row(1, true), row(1, true)], 5, none).is_empty());
    }

    #[test]
    fn sch_2_after_the_first_rounds_only_open_rows_go_on() {
        let rows = [row(5, false), row(5, true), row(4, false), row(10, false), row(10, true)];
        assert_eq!(next(&rows, 5, of(100)), [2, 1, 4], "[SCH-2]");
        assert_eq!(next(&rows, 5, None), [2], "so many rounds were asked for, and no more");
        assert!(next(&[row(5, false), row(20, false)], 5, of(100)).is_empty());
    }

    #[test]
    fn a_row_is_judged_after_twice_as_many_rounds_as_before_and_not_between() {
        let judged: Vec<u32> =
            (1..50).filter(|&rounds| next(&[row(rounds, false)], 3, of(1)).is_empty()).collect();
        assert_eq!(judged, [3, 6, 12, 24, 48]);
    }

    #[test]
    fn time_that_is_left_goes_to_the_rows_with_the_fewest_rounds() {
        let rows = [row(7, true), row(6, true), row(5, true)];
        assert_eq!(next(&rows, 5, of(2)), [2, 1]);
        let dear = Due { cost: 9 * SECOND, ..row(5, true) };
        assert_eq!(next(&[row(7, true), dear], 5, of(2)), [0], "what does not fit is passed over");
    }

    #[test]
    fn the_first_rounds_may_take_twice_the_time_and_no_more() {
        let left = |elapsed| Some((10 * SECOND, elapsed * SECOND));
        let rows = [row(4, true), row(5, true)];
        assert_eq!(next(&rows, 5, left(9)), [0, 1]);
        assert_eq!(next(&rows, 5, left(11)), [0]);
        assert!(next(&rows, 5, left(20)).is_empty());
    }
}
