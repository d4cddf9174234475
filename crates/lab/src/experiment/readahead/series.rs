//! The series of throughputs: which cells are compared, and how one of them is measured.

use std::time::Duration;

use forebay_io::CacheMode;

use super::conclusion;
use super::control::{Turned, set};
use super::files::{Library, emptied};
use super::race::hold;
use super::reader::{Direct, Plain, direct_depth};
use super::settings::{SETTLING_TIME_MAX, Settings};
use super::throughput::{Cell, Round, Throughput, cells};
use crate::experiment::driver::{RowSet, drive};
use crate::experiment::samples::counted;
use crate::experiment::{Bench, stopwatch};
use crate::on;
use forebay_measure::lists::grouped;

/// Measures all cells.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn measure(
    settings: &Settings,
    bench: &Bench<'_>,
    turned: &Turned,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Cell>> {
    let cells: Vec<Cell> = cells(settings).into_iter().map(Cell::new).collect();
    if cells.is_empty() {
        return Ok(cells);
    }
    let library =
        on::without_timing(bench.on, || Library::make(bench.workfile, settings, progress))?;
    let mut random = fastrand::Rng::with_seed(settings.args.common.seed);
    let mut rows = Rows { settings, cells };
    drive(&mut rows, settings.limits(), &mut random, &stopwatch(), progress, |rows, index, _| {
        measure_row(settings, bench, turned, &library, &mut rows.cells[index])
    })?;
    Ok(rows.cells)
}

/// The cells of a run. Those that decide form one series: all curves of it count.
pub(super) struct Rows<'s> {
    pub(super) settings: &'s Settings,
    pub(super) cells: Vec<Cell>,
}

impl RowSet for Rows<'_> {
    type Cell = Throughput;
    type Figures = Round;

    fn rows(&self) -> usize {
        self.cells.len()
    }

    fn row(&mut self, index: usize) -> &mut Cell {
        &mut self.cells[index]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        let decide = conclusion::deciding(&self.cells);
        let decides = |index: &usize| decide.contains(&self.cells[*index].cell);
        let (decide, others) = (0..self.cells.len()).partition(decides);
        vec![decide, others]
    }

    fn open(&self) -> Vec<bool> {
        vec![conclusion::is_undecided(self.settings, &self.cells), false]
    }

    fn label(&self, index: usize) -> String {
        self.cells[index].cell.label()
    }

    /// Cells of a row are adjacent.
    fn order(&self, due: &[&[usize]], random: &mut fastrand::Rng) -> Vec<usize> {
        let mut is_due = vec![false; self.cells.len()];
        due.concat().into_iter().for_each(|index| is_due[index] = true);
        let mut rows = rows(&self.cells, |index| is_due[index]);
        random.shuffle(&mut rows);
        rows.iter_mut().for_each(|row| random.shuffle(row));
        rows.concat()
    }
}

/// The numbers of those cells that are `due`, by row.
pub(super) fn rows(cells: &[Cell], due: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let row = |&index: &usize| {
        let Throughput { readers, files, request_bytes, cache, .. } = cells[index].cell;
        (readers, files, request_bytes, cache)
    };
    let wanted = (0..cells.len()).filter(|&index| due(index));
    grouped(wanted, row).into_iter().map(|(_, row)| row).collect()
}

fn measure_row(
    settings: &Settings,
    bench: &Bench<'_>,
    turned: &Turned,
    library: &Library<'_>,
    row: &mut Cell,
) -> anyhow::Result<Round> {
    let Throughput { readers, files, readahead, request_bytes, cache, .. } = row.cell;
    for workfile in library.all() {
        let coldness = emptied(workfile)?;
        if cache == CacheMode::Buffered {
            row.begins(&coldness);
        }
    }
    let shares = library.shares(files, readers).into_iter();
    let (at_once, time_max) = (Duration::ZERO, settings.args.time);
    let settle = SETTLING_TIME_MAX;
    let (finish, device) = if cache == CacheMode::Buffered {
        // Before the files are opened, since opening takes over the value.
        row.remarks.extend(set(turned, readahead)?);
        let opened = shares.map(|share| Plain::open(share, readahead, None, request_bytes));
        let mut runners = opened.collect::<anyhow::Result<Vec<_>>>()?;
        counted(bench.counters, settle, || hold(&mut runners, at_once, time_max))?
    } else {
        let opened = shares.map(|share| Direct::open(share, direct_depth(readers)));
        let mut runners = opened.collect::<Result<Vec<_>, _>>()?;
        row.cell.backend = runners.first().map(Direct::backend);
        counted(bench.counters, settle, || hold(&mut runners, at_once, time_max))?
    };
    Ok(Round::new(&finish, device))
}
