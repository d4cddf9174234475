//! The findings, for the reader: a table of requests, one of the tablespace, and sentences.

use serde_json::{Map, Value};

use super::bare::Rates;
use super::{Findings, PartCell, RequestCell};
use forebay_measure::lists::grouped;
use forebay_measure::report::numbers::{compact, number, percent, seconds};
use forebay_measure::report::tables::times;
use forebay_measure::report::terminal::{Look, drawn as table_drawn};
use forebay_measure::report::{Table, TableCell, fields};
use forebay_measure::statistics::{knee, median, paired_ratio};
use forebay_measure::units::{shown_size, typed_size};

/// The median of the rates of rounds, in bytes a second.
pub(super) fn middle(rounds: &[Rates]) -> f64 {
    median(&per_round(rounds)).unwrap_or(0.0)
}

fn per_round(rounds: &[Rates]) -> Vec<f64> {
    rounds.iter().map(|it| it.bytes_per_s).collect()
}

/// The rounds of a part, each next to the bare client's round.
pub(super) fn rounds(cell: &PartCell) -> Vec<Map<String, Value>> {
    let with_bare = |(at, round)| {
        let mut round = fields(round);
        round.insert("bare_bytes_per_s".to_owned(), cell.bare.get(at).copied().into());
        round
    };
    cell.rounds.iter().enumerate().map(with_bare).collect()
}

/// All findings as text. `thousand_gets`: their price.
pub(super) fn drawn(findings: &Findings, thousand_gets: f64, look: Look) -> String {
    let slower = match (&findings.latency, findings.bandwidth) {
        (None, None) => String::new(),
        (latency, bandwidth) => {
            let latency = latency.iter().map(|it| format!("{it} a request"));
            let bandwidth = bandwidth.map(|it| format!("{}/s", shown_size(it)));
            let added: Vec<String> = latency.chain(bandwidth).collect();
            format!(", made slower: {}", added.join(", "))
        }
    };
    let mut text = format!("{}{slower}\n", findings.url);
    if !findings.cells.is_empty() {
        text += "\nA bare client: bytes a second, and the median wait, by requests in flight\n";
        text += &table_drawn(&requests(&findings.cells), look);
        for (name, cells) in by_size(&findings.cells) {
            let rates: Vec<Vec<f64>> = cells.iter().map(|it| per_round(&it.rounds)).collect();
            if let Some(at) = knee(&rates) {
                let at = cells[at].in_flight;
                text += &format!("* {name}: {at} in flight reach 95 % of the best.\n");
            }
        }
    }
    if !findings.parts.is_empty() {
        text += "\nA tablespace, and what it is of the bare client at its best\n";
        text += &table_drawn(&parts(&findings.parts, thousand_gets), look);
    }
    for remark in &findings.remarks {
        text += &format!("* {remark}\n");
    }
    text + &format!("\nto repeat: {}\n", findings.command)
}

fn by_size(cells: &[RequestCell]) -> Vec<(String, Vec<&RequestCell>)> {
    grouped(cells, |it| format!("{} {}", it.op, typed_size(it.bytes)))
}

fn requests(cells: &[RequestCell]) -> Table {
    let sizes = by_size(cells);
    let numbers = sizes.first().map(|(_, cells)| cells.iter().map(|it| it.in_flight.to_string()));
    let columns = std::iter::once("requests".to_owned()).chain(numbers.into_iter().flatten());
    let mut table = Table::new("", columns);
    for (name, cells) in &sizes {
        let figures = cells.iter().map(|cell| {
            let waits: Vec<f64> = cell.rounds.iter().filter_map(|it| it.wait_us_p50).collect();
            let wait = median(&waits).map_or(String::new(), |us| seconds(us / 1e6));
            TableCell::new(format!("{}B/s {wait}", compact(middle(&cell.rounds))))
        });
        table.push(String::new(), std::iter::once(TableCell::new(name)).chain(figures).collect());
    }
    table
}

fn parts(parts: &[PartCell], thousand_gets: f64) -> Table {
    let of = |cell: &PartCell, figure: &dyn Fn(&super::Done) -> f64| {
        median(&cell.rounds.iter().map(figure).collect::<Vec<_>>())
    };
    let wait = |cell: &PartCell, us: &dyn Fn(&super::Done) -> Option<f64>| {
        let waits: Vec<f64> = cell.rounds.iter().filter_map(us).collect();
        TableCell::new(median(&waits).map_or_else(|| "–".to_owned(), |us| seconds(us / 1e6)))
    };
    let ratio = |cell: &PartCell| {
        let ours: Vec<f64> = cell.rounds.iter().map(|it| it.bytes_per_s).collect();
        let ratio = paired_ratio(&ours, &cell.bare);
        TableCell::new(ratio.map_or_else(|| "–".to_owned(), |it| times(it.value, it.low, it.high)))
    };
    let cost = |cell: &PartCell| {
        let each = |it: &super::Done| it.requests as f64 / it.pages as f64;
        let cost = of(cell, &each).map(|it| it * 1e6 / 1000.0 * thousand_gets);
        let cost = cost.filter(|_| cell.part != "checkpoint");
        TableCell::new(cost.map_or_else(|| "–".to_owned(), number))
    };
    Table::of(
        "",
        parts,
        |_| String::new(),
        &[
            ("", &|it| TableCell::new(it.part)),
            ("pages/s", &|it| TableCell::figure(of(it, &|it| it.pages_per_s))),
            ("MB/s", &|it| TableCell::figure(of(it, &|it| it.bytes_per_s / 1e6))),
            ("of bare", &ratio),
            ("pages", &|it| TableCell::figure(of(it, &|it| it.pages as f64))),
            ("requests", &|it| TableCell::figure(of(it, &|it| it.requests as f64))),
            ("over-read %", &|it| {
                let over = of(it, &|it| it.over_read_percent / 100.0);
                TableCell::new(over.map_or_else(|| "–".to_owned(), percent))
            }),
            ("median", &|it| wait(it, &|it| it.wait_us_p50)),
            ("p99", &|it| wait(it, &|it| it.wait_us_p99)),
            ("a million pages cost", &cost),
        ],
    )
}
