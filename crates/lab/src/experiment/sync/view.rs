//! The section of `sync` on the page and the terminal: a table of methods for each kind of write.

use super::cell::Row;
use super::settings::NAME;
use forebay_measure::report::{Mark, Part, Section, Table, TableCell};
use forebay_measure::statistics::range;

/// The section.
pub(super) fn section(rows: &[Row]) -> Section {
    Section {
        name: NAME,
        title: "What a commit costs".to_owned(),
        about: "Writes, each made durable before the next one of the same writer. Overwritten is a file that \
                was written and synced before, as PostgreSQL's recycled WAL segments are."
            .to_owned(),
        parts: vec![Part::Table(table(rows))],
    }
}

fn table(rows: &[Row]) -> Table {
    let rate = |row: &Row| row.median(|round| Some(round.syncs_per_s));
    let rate_of_best = |row: &Row| {
        let label = row.cell.row_label();
        let others = rows.iter().filter(|other| other.cell.row_label() == label);
        others.filter_map(rate).fold(0.0, f64::max)
    };
    let compared = |row: &Row| {
        let share = rate(row).map(|rate| rate / rate_of_best(row));
        let mark = if share == Some(1.0) { Mark::Best } else { Mark::Plain };
        TableCell { share, mark, ..TableCell::figure(rate(row)) }.with_notes(&row.notes())
    };
    let measured = |row: &Row| Some(range(&row.rates())).filter(|_| !row.rounds.is_empty());
    Table::of(
        "Durable writes a second, and the latency of a write with its sync; p99 of 1,000 writes or more",
        rows,
        |row| row.cell.row_label(),
        &[
            ("method", &|row| TableCell::new(row.cell.method.to_string())),
            ("syncs/s", &compared),
            ("slowest round", &|row| TableCell::figure(measured(row).map(|(low, _)| low))),
            ("fastest round", &|row| TableCell::figure(measured(row).map(|(_, high)| high))),
            ("p50 µs", &|row| TableCell::figure(row.median(|it| Some(it.latency_us_p50)))),
            ("p99 µs", &|row| TableCell::figure(row.median(|it| it.latency_us_p99))),
        ],
    )
}
