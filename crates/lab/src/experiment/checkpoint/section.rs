//! What `checkpoint` shows: the time of each way of writing, and the waits of concurrent readers.

use super::cell::NAME;
use super::record::{Readers, Round, Samples, baseline};
use super::settings::Settings;
use forebay_measure::report::numbers::number;
use forebay_measure::report::{Line, Mark, Part, Plot, Point, Section, Table, TableCell};

pub(super) fn draw(settings: &Settings, measured: &[Samples]) -> Section {
    let mut parts = vec![Part::Table(writing(settings, measured))];
    if measured.iter().any(|samples| samples.cell.foreground) {
        parts.push(Part::Table(reading(measured)));
        parts.extend(over_time(settings, measured).map(Part::Plot));
    }
    Section {
        name: NAME,
        title: "Checkpoints".to_owned(),
        about: "The same changed pages, written in the order of frames (arrival), by place (sorted), or by place \
                with all tablespaces at once (balanced); one page a request, or neighbours coalesced. Times go to \
                the end of the last sync. Meanwhile readers read random pages at a steady rate."
            .to_owned(),
        parts,
    }
}

/// The way of writing, with its remarks.
fn name(samples: &Samples) -> TableCell {
    TableCell::new(samples.cell.write_mode()).with_notes(&samples.notes())
}

fn figure(samples: &Samples, value: impl Fn(&Round) -> Option<f64>) -> TableCell {
    TableCell::figure(samples.median(value))
}

fn writing(settings: &Settings, measured: &[Samples]) -> Table {
    let seconds = |samples: &Samples| {
        let here = samples.median(|round| Some(round.seconds));
        let slowest = baseline(measured, &samples.cell);
        let most = slowest.and_then(|slowest| slowest.median(|round| Some(round.seconds)));
        let share = here.zip(most).map(|(seconds, most)| (seconds / most).min(1.0));
        let mark = if settings.is_best(&samples.cell) { Mark::Best } else { Mark::Plain };
        TableCell { share, mark, ..TableCell::figure(here) }
    };
    let times = |samples: &Samples| {
        let slowest = baseline(measured, &samples.cell)?;
        Some(1.0 / samples.ratio_to(slowest, |round| Some(round.seconds))?.value)
    };
    Table::of(
        "To the end of the sync, and how many times as fast as one page after another",
        measured.iter().filter(|samples| !samples.cell.is_timed()),
        |samples| samples.cell.pages(),
        &[
            ("way of writing", &name),
            ("seconds", &seconds),
            ("times as fast", &|samples| TableCell::figure(times(samples))),
            ("requests", &|samples| figure(samples, |round| Some(round.requests as f64))),
            ("KiB a device request", &|samples| {
                figure(samples, |round| Some(round.bytes_per_request? / 1024.0))
            }),
            ("sync seconds", &|samples| figure(samples, |round| Some(round.sync_seconds))),
        ],
    )
}

fn reading(measured: &[Samples]) -> Table {
    let of = |samples: &Samples, value: fn(&Readers) -> Option<f64>| {
        figure(samples, |round| round.readers.as_ref().and_then(value))
    };
    Table::of(
        "Latency of reads during a checkpoint, in microseconds",
        measured.iter().filter(|samples| samples.cell.foreground),
        |samples| samples.cell.pages(),
        &[
            ("checkpoint", &name),
            ("p99 before", &|samples| of(samples, |it| it.foreground_before_us_p99)),
            ("p99 in the interval", &|samples| of(samples, |it| it.foreground_interval_us_p99)),
            ("while writing: p50", &|samples| of(samples, |it| it.foreground_us_p50)),
            ("p99", &|samples| of(samples, |it| it.foreground_us_p99)),
            ("longest", &|samples| of(samples, |it| it.foreground_us_max)),
        ],
    )
}

/// The longest read of each slot of an interval, of the first cells with readers: a checkpoint at once shows as a
/// spike.
fn over_time(settings: &Settings, measured: &[Samples]) -> Option<Plot> {
    let first =
        measured.iter().find(|samples| samples.cell.foreground && !samples.rounds.is_empty())?;
    let here = |samples: &&Samples| {
        let (a, b) = (samples.cell, first.cell);
        a.foreground && (a.dirty, a.cache) == (b.dirty, b.cache) && settings.is_best(&a)
    };
    let readers = first.rounds[0].readers.as_ref()?;
    let slots = 0..readers.foreground_us_max_over_time.len();
    let ms = |round: &Round, slot: usize| {
        let us = round.readers.as_ref()?.foreground_us_max_over_time.get(slot).copied().flatten();
        Some(us? / 1e3)
    };
    let line = |samples: &Samples| {
        let at = |slot: usize| Point::of(slot, &samples.figures(|round| ms(round, slot))?);
        let name = if samples.cell.paced { "spread" } else { "at once" }.to_owned();
        Line { name, points: slots.clone().filter_map(at).collect(), dashed: samples.cell.paced }
    };
    let second = |slot: usize| number(slot as f64 * readers.foreground_slot_seconds);
    Some(Plot {
        title: first.cell.pages(),
        x_name: "seconds since the checkpoint began".to_owned(),
        y_name: "longest read, milliseconds".to_owned(),
        ticks: slots.clone().map(second).collect(),
        lines: measured.iter().filter(here).map(line).collect(),
        mark: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Dirty;
    use super::super::record::tests::{settings, with_readers, written};
    use super::*;

    #[test]
    fn every_cell_has_a_row_and_what_was_not_measured_says_why() {
        let mut left_out = written(Dirty::Uniform, true, &[]);
        left_out.failure = Some("no time".to_owned());
        let measured = [
            written(Dirty::Clustered, false, &[4.0, 4.0, 4.0]),
            written(Dirty::Clustered, true, &[1.0, 1.0, 1.0]),
            left_out,
            with_readers(true, &[500.0, 520.0, 480.0]),
        ];
        let section = draw(&settings(), &measured);
        let tables: Vec<&Table> = section
            .parts
            .iter()
            .filter_map(|part| if let Part::Table(table) = part { Some(table) } else { None })
            .collect();
        assert_eq!(tables.iter().map(|table| table.rows.len()).sum::<usize>(), measured.len());
        for table in &tables {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        }
        let best = &tables[0].rows[1];
        assert_eq!((best.cells[1].share, best.cells[1].mark), (Some(0.25), Mark::Best));
        assert_eq!(best.cells[2].text, "4.00");
        let missing = &tables[0].rows[2];
        assert_eq!(missing.cells[1].text, "–");
        assert_eq!(missing.cells[0].notes, ["not measured: no time"]);
    }
}
