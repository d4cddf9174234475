//! What the page and the terminal show of `sync`: a table of methods for each kind of write.

use super::NAME;
use super::cell::Row;
use crate::report::{Mark, Part, Row as TableRow, Section, Table, TableCell, numbers};

/// The section.
pub(super) fn section(rows: &[Row]) -> Section {
    Section {
        name: NAME,
        title: "What a commit costs".to_owned(),
        about: "Writes, each made durable before the next one of the same writer. Overwritten is a file that \
                was written and synced before, as PostgreSQL's recycled WAL segments are."
            .to_owned(),
        parts: vec![Part::Table(table(rows))],
        headline: None,
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = ["method", "syncs/s", "slowest round", "fastest round", "p50 µs", "p99 µs"];
    let mut table = Table {
        caption: "Durable writes a second, and the latency of a write with its sync; p99 of 1,000 writes or \
                  more"
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        ..Table::default()
    };
    let rate = |row: &Row| row.median(|round| Some(round.syncs_per_s));
    for row in rows {
        let group = row.cell.row_label();
        let beside = rows.iter().filter(|other| other.cell.row_label() == group);
        let best = beside.clone().filter_map(rate).fold(0.0, f64::max);
        let figure = |value: Option<f64>| match value {
            Some(value) => TableCell::new(numbers::number(value)),
            None => TableCell::missing(),
        };
        let rates = row.rates();
        let alone = beside.count() == 1;
        let is_best = rate(row).is_some_and(|rate| rate >= best) && !alone;
        let notes = row.notes().iter().map(|remark| table.note(remark)).collect();
        let first = TableCell {
            mark: if is_best { Mark::Best } else { Mark::Plain },
            share: rate(row).filter(|_| best > 0.0).map(|rate| rate / best),
            notes,
            ..figure(rate(row))
        };
        let cells = vec![
            TableCell::new(row.cell.method.name()),
            first,
            figure(rates.iter().copied().reduce(f64::min)),
            figure(rates.iter().copied().reduce(f64::max)),
            figure(row.median(|round| Some(round.latency_us_p50))),
            figure(row.median(|round| round.latency_us_p99)),
        ];
        assert_eq!(cells.len(), table.columns.len());
        table.rows.push(TableRow { group, cells });
    }
    table
}
