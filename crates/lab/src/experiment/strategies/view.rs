//! The section of `strategies`: every row as shares of its best.

use super::NAME;
use crate::experiment::Entrant;
use crate::experiment::contest::Standing;
use forebay_measure::lists::unique;
use forebay_measure::report::{Mark, Part, Section, Table, TableCell};
use forebay_measure::statistics::{Judge, Judgement};
use forebay_measure::units::shown_size;

/// The section for `standings`.
pub(super) fn section(standings: &[Standing], judge: &Judge) -> Section {
    Section {
        name: NAME,
        title: "Patterns and strategies".to_owned(),
        about: "How fast each way of reading reads the same blocks, as a share of the fastest of its row. \
                adaptive chooses by itself and is to be as fast as the best of the others: filled rows of \
                it are surely not, pale ones are undecided. By how much is among the comparisons, and all \
                figures are among the records."
            .to_owned(),
        parts: vec![Part::Table(matrix(standings, judge))],
    }
}

/// The conditions of a row, except for its pattern.
fn group(standing: &Standing) -> String {
    let readahead = standing.device_readahead_bytes.map(shown_size);
    let readahead = readahead.unwrap_or_else(|| "unknown".to_owned());
    format!("{}, {}, kernel readahead {readahead}", standing.row.state, standing.row.cache)
}

/// Rows by variants, all of them in the order of their first occurrence: shares of the best of the row.
fn matrix(standings: &[Standing], judge: &Judge) -> Table {
    let all = standings.iter().flat_map(|standing| standing.row.entrants.clone());
    let entrants: Vec<Entrant> = unique(&all.collect::<Vec<_>>());
    let columns = std::iter::once("pattern".to_owned());
    let mut table = Table::new(
        "Share of the fastest of the row",
        columns.chain(entrants.iter().map(ToString::to_string)),
    );
    for standing in standings {
        let ratios = standing.ratios_to_best();
        let mut cells = vec![TableCell::new(standing.row.pattern.to_string())];
        cells.extend(entrants.iter().map(|entrant| {
            let index = standing.row.entrants.iter().position(|it| it == entrant);
            index.map_or_else(TableCell::default, |index| {
                share(standing, judge, index, ratios[index])
            })
        }));
        table.push(group(standing), cells);
    }
    table
}

/// The table cell of a variant with this share of the best.
fn share(standing: &Standing, judge: &Judge, index: usize, share: Option<f64>) -> TableCell {
    let entrant = standing.row.entrants[index];
    let judgement =
        standing.adaptive(judge).filter(|it| it.entrant == entrant).map(|it| it.ratio.judgement());
    let mark = match judgement {
        _ if share.is_none() => Mark::Weak,
        Some(Judgement::Misses) => Mark::Bad,
        Some(Judgement::Undecided) => Mark::Weak,
        _ if share == Some(1.0) => Mark::Best,
        _ => Mark::Plain,
    };
    let text = match share {
        Some(share) => share_text(share),
        None if standing.tallies[index].rounds.is_empty() => "–".to_owned(),
        None => "?".to_owned(),
    };
    TableCell { text, share, mark, notes: standing.tallies[index].notes() }
}

/// A share with two digits, rounded down, so that only the best is 1.00.
fn share_text(share: f64) -> String {
    match (share * 100.0 + 1e-9).floor() / 100.0 {
        0.0 if share > 0.0 => "<.01".to_owned(),
        floored => format!("{floored:.2}"),
    }
}
