//! What `checkpoint` shows: what each way of writing takes, and what readers wait beside it.

use super::record::{Readers, Round, Tally, baseline};
use super::{NAME, Settings};
use crate::report::numbers::number;
use crate::report::{Line, Mark, Part, Plot, Point, Row, Section, Table, TableCell};

pub(super) fn draw(settings: &Settings, tallies: &[Tally]) -> Section {
    let mut parts = vec![Part::Table(writing(settings, tallies))];
    if tallies.iter().any(|tally| tally.cell.foreground) {
        parts.push(Part::Table(reading(settings, tallies)));
        parts.extend(over_time(settings, tallies).map(Part::Plot));
    }
    Section {
        name: NAME,
        title: "Checkpoints".to_owned(),
        about: "The same changed pages, written in the order of frames (arrival), by place (sorted), or by place \
                with all tablespaces at once (balanced); one page a request, or neighbours coalesced. Times go to \
                the end of the last sync. Readers read random pages at a steady rate beside it."
            .to_owned(),
        parts,
        headline: None,
    }
}

fn figure(value: Option<f64>) -> TableCell {
    value.map_or_else(TableCell::missing, |value| TableCell::new(number(value)))
}

/// The row of a cell: its group, its name with its remarks, and its figures.
fn row(settings: &Settings, table: &mut Table, tally: &Tally, figures: Vec<TableCell>) -> Row {
    let cell = tally.cell;
    let order = if cell.combine { "coalesced" } else { "one by one" };
    let pace = match (cell.is_timed(), cell.paced) {
        (false, _) => "",
        (true, true) => ", spread",
        (true, false) => ", at once",
    };
    let name = format!("{}, {order}, {}{pace}", cell.elevator, cell.backend);
    let notes = tally.remarks(settings).iter().map(|remark| table.note(remark)).collect();
    let mut cells = vec![TableCell { notes, ..TableCell::new(name) }];
    cells.extend(figures);
    Row { group: format!("{} pages, {}", cell.dirty, cell.cache), cells }
}

fn writing(settings: &Settings, tallies: &[Tally]) -> Table {
    let columns = [
        "way of writing",
        "seconds",
        "times as fast",
        "requests",
        "KiB a device request",
        "sync seconds",
    ];
    let mut table = Table {
        caption: "To the end of the sync, and how many times as fast as one page after another"
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        ..Table::default()
    };
    for tally in tallies.iter().filter(|tally| !tally.cell.is_timed()) {
        let slowest = baseline(tallies, &tally.cell);
        let seconds = tally.median(|round| Some(round.seconds));
        let times =
            slowest.and_then(|slowest| tally.ratio_to(slowest, |round| Some(round.seconds)));
        let most = slowest.and_then(|slowest| slowest.median(|round| Some(round.seconds)));
        let share = seconds.zip(most).map(|(seconds, most)| (seconds / most).min(1.0));
        let mark = if settings.is_best(&tally.cell) { Mark::Best } else { Mark::Plain };
        let figures = vec![
            TableCell { share, mark, ..figure(seconds) },
            figure(times.map(|(ratio, _)| 1.0 / ratio.value)),
            figure(tally.median(|round| Some(round.requests as f64))),
            figure(tally.median(|round| Some(round.bytes_per_request? / 1024.0))),
            figure(tally.median(|round| Some(round.sync_seconds))),
        ];
        let row = row(settings, &mut table, tally, figures);
        table.rows.push(row);
    }
    table
}

fn reading(settings: &Settings, tallies: &[Tally]) -> Table {
    let columns =
        ["checkpoint", "p99 before", "p99 in the interval", "while writing: p50", "p99", "longest"];
    let mut table = Table {
        caption: "What reads take beside a checkpoint, in microseconds".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        ..Table::default()
    };
    for tally in tallies.iter().filter(|tally| tally.cell.foreground) {
        let of = |value: fn(&Readers) -> Option<f64>| {
            figure(tally.median(|round| round.readers.as_ref().and_then(value)))
        };
        let figures = vec![
            of(|readers| readers.foreground_before_us_p99),
            of(|readers| readers.foreground_interval_us_p99),
            of(|readers| readers.foreground_us_p50),
            of(|readers| readers.foreground_us_p99),
            of(|readers| readers.foreground_us_max),
        ];
        let row = row(settings, &mut table, tally, figures);
        table.rows.push(row);
    }
    table
}

/// The longest read of each slot of an interval, of the first cells with readers: a checkpoint at once is a
/// tooth.
fn over_time(settings: &Settings, tallies: &[Tally]) -> Option<Plot> {
    let first = tallies.iter().find(|tally| tally.cell.foreground && !tally.rounds.is_empty())?;
    let here = |tally: &&Tally| {
        let (a, b) = (tally.cell, first.cell);
        a.foreground && (a.dirty, a.cache) == (b.dirty, b.cache) && settings.is_best(&a)
    };
    let readers =
        |round: &Round| round.readers.as_ref().map(|it| it.foreground_us_max_over_time.clone());
    let slot = first.rounds.first()?.readers.as_ref()?.foreground_slot_seconds;
    let slots = first.rounds.first().and_then(readers)?.len();
    let line = |tally: &Tally| {
        let at = |index: usize| {
            let us: Option<Vec<f64>> = tally
                .rounds
                .iter()
                .map(|round| readers(round)?.get(index).copied().flatten().map(|us| us / 1e3))
                .collect();
            let us = us?;
            let y = crate::statistics::median(&us)?;
            let (low, high) =
                us.iter().fold((y, y), |(low, high), &it| (low.min(it), high.max(it)));
            Some(Point { x: index as f64 * slot, y, low, high })
        };
        let name = if tally.cell.paced { "spread" } else { "at once" }.to_owned();
        Line { name, points: (0..slots).filter_map(at).collect(), dashed: tally.cell.paced }
    };
    Some(Plot {
        title: format!("{} pages, {}", first.cell.dirty, first.cell.cache),
        x_name: "seconds since the checkpoint began".to_owned(),
        y_name: "longest read, milliseconds".to_owned(),
        ticks: (0..slots).map(|index| (index as f64 * slot, number(index as f64 * slot))).collect(),
        lines: tallies.iter().filter(here).map(line).collect(),
        marks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Dirty;
    use super::super::record::tests::{beside, settings, written};
    use super::*;

    #[test]
    fn every_cell_has_a_row_and_what_was_not_measured_says_why() {
        let mut left_out = written(Dirty::Uniform, true, &[]);
        left_out.leave_out("no time");
        let tallies = [
            written(Dirty::Clustered, false, &[4.0, 4.0, 4.0]),
            written(Dirty::Clustered, true, &[1.0, 1.0, 1.0]),
            left_out,
            beside(true, &[500.0, 520.0, 480.0]),
        ];
        let section = draw(&settings(), &tallies);
        let tables: Vec<&Table> = section
            .parts
            .iter()
            .filter_map(|part| if let Part::Table(table) = part { Some(table) } else { None })
            .collect();
        assert_eq!(tables.iter().map(|table| table.rows.len()).sum::<usize>(), tallies.len());
        for table in &tables {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        }
        let best = &tables[0].rows[1];
        assert_eq!((best.cells[1].share, best.cells[1].mark), (Some(0.25), Mark::Best));
        assert_eq!(best.cells[2].text, "4.00");
        let missing = &tables[0].rows[2];
        assert_eq!(missing.cells[1].text, "–");
        assert_eq!(tables[0].notes[missing.cells[0].notes[0]], "not measured: no time");
    }
}
