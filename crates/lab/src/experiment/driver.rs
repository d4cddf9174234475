//! Driver: the one loop of rounds, for all experiments.
//!
//! In a round every row of the series that are due ([`schedule`](super::schedule)) is measured once. The order is
//! reshuffled, so that a disk that gets slower meanwhile favours none of them.
//!
//! Invariants:  [DRV-1] round n of a row is measured with round n of every other: one that leaves does not return
//! Failure:     a round that this system does not support ends its row, which says why; any other
//!              error is returned and ends the run.

use std::time::Duration;

use super::samples::{Row, unsupported};
use super::schedule::{Limits, Schedule};
use forebay_measure::interrupt;

/// The set of rows that one experiment measures in rounds.
pub(super) trait RowSet {
    /// The identity of a row.
    type Cell;
    /// The result of one of its rounds.
    type Figures;

    fn rows(&self) -> usize;

    fn row(&mut self, index: usize) -> &mut Row<Self::Cell, Self::Figures>;

    /// The indexes of the rows that are compared with each other, and so get their rounds together. Each row is in one
    /// of these series.
    fn series(&self) -> Vec<Vec<usize>>;

    /// For each series whether more rounds could decide something.
    fn open(&self) -> Vec<bool>;

    /// What a row measures.
    fn label(&self, index: usize) -> String;

    /// The rows of these series in the order of a round.
    fn order(&self, due: &[&[usize]], random: &mut fastrand::Rng) -> Vec<usize> {
        let mut order = due.concat();
        random.shuffle(&mut order);
        order
    }
}

/// Cells that all have the same number of rounds, as none of them decides anything.
#[derive(Debug)]
pub(super) struct AllAlike<C, F> {
    pub(super) rows: Vec<Row<C, F>>,
    label: fn(&C) -> String,
}

impl<C, F> AllAlike<C, F> {
    pub(super) fn new(cells: Vec<C>, label: fn(&C) -> String) -> AllAlike<C, F> {
        AllAlike { rows: cells.into_iter().map(Row::new).collect(), label }
    }
}

impl<C, F> RowSet for AllAlike<C, F> {
    type Cell = C;
    type Figures = F;

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn row(&mut self, index: usize) -> &mut Row<C, F> {
        &mut self.rows[index]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        vec![(0..self.rows.len()).collect()]
    }

    fn open(&self) -> Vec<bool> {
        vec![false]
    }

    fn label(&self, index: usize) -> String {
        (self.label)(&self.rows[index].cell)
    }
}

/// The round of a measurement.
#[derive(Debug)]
pub(super) struct Turn<'r> {
    /// From 0.
    pub(super) round: u32,
    /// For values that are new in each round.
    pub(super) random: &'r mut fastrand::Rng,
    /// Whether the measurement is the first of its round.
    pub(super) is_first: bool,
}

/// Measures `set` within `limits`. `now`: time since any moment. `progress` gets the label of each measurement before
/// it begins.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn drive<S: RowSet>(
    set: &mut S,
    limits: Limits,
    random: &mut fastrand::Rng,
    now: &dyn Fn() -> Duration,
    progress: &mut dyn FnMut(&str),
    mut measure: impl FnMut(&mut S, usize, Turn<'_>) -> anyhow::Result<S::Figures>,
) -> anyhow::Result<()> {
    let series = set.series();
    let mut series_of = vec![0; set.rows()];
    for (number, rows) in series.iter().enumerate() {
        rows.iter().for_each(|&row| series_of[row] = number);
    }
    let mut schedule = Schedule::new(limits, series.len());
    let begun = now();
    loop {
        let due = schedule.next(now() - begun, || set.open());
        if due.is_empty() {
            return Ok(());
        }
        let round = schedule.rounds();
        let due: Vec<&[usize]> = due.into_iter().map(|index| series[index].as_slice()).collect();
        for (place, index) in set.order(&due, random).into_iter().enumerate() {
            let row = set.row(index);
            if row.failure.is_some() {
                continue;
            }
            assert_eq!(row.rounds.len(), round as usize, "[DRV-1]");
            interrupt::check()?;
            progress(&set.label(index));
            let moment = now();
            let turn = Turn { round, random: &mut *random, is_first: place == 0 };
            match measure(set, index, turn) {
                Ok(figures) => set.row(index).rounds.push(figures),
                Err(error) => set.row(index).failure = Some(unsupported(&error).ok_or(error)?),
            }
            schedule.measured(series_of[index], now() - moment);
        }
        schedule.end_round();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(first: u32) -> Limits {
        Limits { first, first_time: Duration::MAX, time: Duration::ZERO }
    }

    #[test]
    fn what_is_not_supported_ends_a_row_and_anything_else_the_run() {
        let lack = || forebay_io::Error::Memlock {
            what: "the arena",
            needed: 9,
            source: forebay_io::OsError::ENOMEM,
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut rows = AllAlike::new(vec!["one", "other"], ToString::to_string);
        let mut labels = Vec::new();
        let note = &mut |label: &str| labels.push(label.to_owned());
        drive(&mut rows, limits(3), &mut random, &|| Duration::ZERO, note, |rows, index, turn| {
            if rows.rows[index].cell == "one" && turn.round == 1 {
                Err(lack().into())
            } else {
                Ok(turn.round)
            }
        })
        .unwrap();
        assert_eq!(rows.rows[1].rounds, [0, 1, 2]);
        assert_eq!((rows.rows[0].rounds.len(), rows.rows[0].failure.is_some()), (1, true));
        assert_eq!(labels.len(), 5, "a row that has failed is not tried again");
        let mut rows: AllAlike<&str, ()> = AllAlike::new(vec!["one"], ToString::to_string);
        let failed =
            drive(&mut rows, limits(3), &mut random, &|| Duration::ZERO, &mut |_| (), |_, _, _| {
                anyhow::bail!("a failing disk")
            });
        assert_eq!(failed.unwrap_err().to_string(), "a failing disk");
    }

    #[test]
    fn drv_1_a_round_is_of_all_rows_in_a_new_order() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut rows = AllAlike::new((0..9).collect(), u32::to_string);
        let mut order = Vec::new();
        drive(
            &mut rows,
            limits(4),
            &mut random,
            &|| Duration::ZERO,
            &mut |_| (),
            |_, index, turn| {
                assert_eq!(turn.is_first, order.len() % 9 == 0);
                order.push(index);
                Ok(())
            },
        )
        .unwrap();
        assert_ne!(order[..9], order[9..18], "[DRV-1]");
        for round in order.chunks_mut(9) {
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3, 4, 5, 6, 7, 8], "[DRV-1]");
        }
    }
}
