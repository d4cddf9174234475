//! The section of `strategies`: every row as shares of its best, the losses, the noise, and all figures.

use super::NAME;
use super::conclusion::of_adaptive;
use super::settings::BLOCK_BYTES;
use crate::experiment::Entrant;
use crate::experiment::contest::Standing;
use crate::experiment::tally::Figures;
use crate::report::numbers::{self, bytes};
use crate::report::{Conclusion, Mark, Part, Row, Section, Table, TableCell, Verdict};
use crate::statistics::Judgement;

/// A figure of an entrant: its heading, what it is in a round, and how the number is written.
type Figure = (&'static str, fn(&Figures) -> Option<f64>, fn(f64) -> String);

const FIGURES: [Figure; 8] = [
    ("blocks/s", |round| Some(round.blocks_per_s), numbers::number),
    ("seconds", |round| Some(round.seconds), numbers::number),
    ("blocks", |round| Some(round.blocks as f64), numbers::number),
    ("requests", |round| round.device_requests.map(|requests| requests as f64), numbers::number),
    ("over-read %", |round| round.over_read, numbers::percent),
    ("wait p50 µs", |round| round.wait_us_p50, numbers::number),
    ("wait p99 µs", |round| round.wait_us_p99, numbers::number),
    ("processor µs/block", |round| Some(round.cpu_us_per_block), numbers::number),
];

/// What is shown of `standings`.
pub(super) fn section(
    standings: &[Standing],
    verdicts: &[Verdict],
    conclusions: &[Conclusion],
) -> Section {
    let mut parts: Vec<Part> =
        conclusions.iter().map(|conclusion| Part::Text(conclusion.sentence.clone())).collect();
    parts.push(Part::Table(matrix(standings)));
    let lost = of_adaptive(verdicts, Judgement::Misses);
    if !lost.is_empty() {
        parts.push(Part::Table(losses(&lost)));
    }
    parts.push(Part::Table(figures(standings)));
    Section {
        name: NAME,
        title: "Patterns and strategies".to_owned(),
        about: "How fast each way of reading reads the same blocks, as a share of the fastest of its row. \
                adaptive chooses by itself and is to be as fast as the best of the others: filled rows of \
                it are surely not, pale ones are undecided."
            .to_owned(),
        parts,
        headline: None,
    }
}

/// What a row is measured under, but for its pattern.
fn group(standing: &Standing) -> String {
    let readahead = standing.device_readahead_bytes.map(bytes);
    let readahead = readahead.unwrap_or_else(|| "unknown".to_owned());
    format!("{}, {}, kernel readahead {readahead}", standing.row.state, standing.row.cache)
}

/// Every entrant of any row, in the order met.
fn entrants(standings: &[Standing]) -> Vec<Entrant> {
    let all: Vec<Entrant> =
        standings.iter().flat_map(|standing| standing.row.entrants.clone()).collect();
    crate::experiment::unique(&all)
}

/// Rows by entrants: shares of the best of the row.
fn matrix(standings: &[Standing]) -> Table {
    let entrants = entrants(standings);
    let mut table =
        Table { caption: "Share of the fastest of the row".to_owned(), ..Table::default() };
    table.columns = std::iter::once("pattern".to_owned())
        .chain(entrants.iter().map(ToString::to_string))
        .collect();
    for standing in standings {
        let (ratios, adaptive) = (standing.ratios_to_best(), standing.adaptive());
        let mut cells = vec![TableCell::new(standing.row.pattern.to_string())];
        for entrant in &entrants {
            let Some(index) = standing.row.entrants.iter().position(|it| it == entrant) else {
                cells.push(TableCell::new(""));
                continue;
            };
            let judgement = adaptive.filter(|it| it.entrant == *entrant).map(|it| it.judgement);
            let (share, is_measured) = (ratios[index], !standing.tallies[index].rounds.is_empty());
            let mark = match judgement {
                _ if share.is_none() => Mark::Weak,
                Some(Judgement::Misses) => Mark::Bad,
                Some(Judgement::Undecided) => Mark::Weak,
                _ if share == Some(1.0) => Mark::Best,
                _ => Mark::Plain,
            };
            let text = match share {
                Some(share) => share_text(share),
                None if is_measured => "?".to_owned(),
                None => TableCell::missing().text,
            };
            let notes =
                standing.tallies[index].notes().iter().map(|remark| table.note(remark)).collect();
            cells.push(TableCell { text, share, mark, notes });
        }
        table.rows.push(Row { group: group(standing), cells });
    }
    table
}

/// The rows in which `adaptive` surely misses its bound, the worst first.
fn losses(lost: &[&Verdict]) -> Table {
    let columns = ["row", "best other", "adaptive's part of it", "at least", "at most"];
    let cells = |miss: &&Verdict| {
        let figures =
            [miss.ratio, miss.low, miss.high].map(|it| TableCell::new(format!("{it:.2}")));
        let names = [&miss.row, &miss.rival].map(|name| TableCell::new(name.as_str()));
        names.into_iter().chain(figures).collect()
    };
    Table {
        caption: "Where adaptive loses".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: lost.iter().map(|miss| Row { group: String::new(), cells: cells(miss) }).collect(),
        notes: Vec::new(),
    }
}

/// Every entrant of every row with its medians.
fn figures(standings: &[Standing]) -> Table {
    let columns = FIGURES.iter().map(|(heading, ..)| (*heading).to_owned());
    let mut table = Table {
        caption: "All figures, medians of the rounds".to_owned(),
        columns: std::iter::once("strategy".to_owned()).chain(columns).collect(),
        ..Table::default()
    };
    for standing in standings {
        for (entrant, tally) in standing.row.entrants.iter().zip(&standing.tallies) {
            let cell = |(_, value, text): &Figure| {
                let median = tally.median(|round| value(&round.figures(BLOCK_BYTES)));
                median.map_or_else(TableCell::missing, |median| TableCell::new(text(median)))
            };
            let group = format!("{}, {}", standing.row.pattern, group(standing));
            let name = std::iter::once(TableCell::new(entrant.to_string()));
            table.rows.push(Row { group, cells: name.chain(FIGURES.iter().map(cell)).collect() });
        }
    }
    table
}

/// A share with two digits, rounded down, so that 1.00 is the best and nothing else.
fn share_text(share: f64) -> String {
    match (share * 100.0 + 1e-9).floor() / 100.0 {
        0.0 if share > 0.0 => "<.01".to_owned(),
        floored => format!("{floored:.2}"),
    }
}
