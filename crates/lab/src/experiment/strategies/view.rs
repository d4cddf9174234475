//! The section of `strategies`: every row as shares of its best.

use super::settings::NAME;
use crate::experiment::Variant;
use crate::experiment::comparison::RowResult;
use forebay_measure::lists::unique;
use forebay_measure::report::{Mark, Part, Section, Table, TableCell};
use forebay_measure::statistics::{Judge, Judgement};
use forebay_measure::units::shown_size;

/// The section for `results`.
pub(super) fn section(results: &[RowResult], judge: &Judge) -> Section {
    Section {
        name: NAME,
        title: "Patterns and strategies".to_owned(),
        about: "How fast each way of reading reads the same blocks, as a share of the fastest of its row. \
                adaptive chooses on its own, and should be as fast as the best of the others: in filled rows \
                it is not, pale ones are undecided. The comparisons say by how much, and the records have \
                all figures."
            .to_owned(),
        parts: vec![Part::Table(matrix(results, judge))],
    }
}

/// The conditions of a row, except for its pattern.
fn group(result: &RowResult) -> String {
    let readahead = result.device_readahead_bytes.map(shown_size);
    let readahead = readahead.unwrap_or_else(|| "unknown".to_owned());
    format!("{}, {}, kernel readahead {readahead}", result.row.state, result.row.cache)
}

/// Rows by variants, all of them in the order of their first occurrence: shares of the best of the row.
fn matrix(results: &[RowResult], judge: &Judge) -> Table {
    let all = results.iter().flat_map(|result| result.row.variants.clone());
    let variants: Vec<Variant> = unique(&all.collect::<Vec<_>>());
    let columns = std::iter::once("pattern".to_owned());
    let mut table = Table::new(
        "Share of the fastest of the row",
        columns.chain(variants.iter().map(ToString::to_string)),
    );
    for result in results {
        let ratios = result.ratios_to_best();
        let mut cells = vec![TableCell::new(result.row.pattern.to_string())];
        cells.extend(variants.iter().map(|variant| {
            let index = result.row.variants.iter().position(|it| it == variant);
            index
                .map_or_else(TableCell::default, |index| share(result, judge, index, ratios[index]))
        }));
        table.push(group(result), cells);
    }
    table
}

/// The table cell of a variant with this share of the best.
fn share(result: &RowResult, judge: &Judge, index: usize, share: Option<f64>) -> TableCell {
    let variant = result.row.variants[index];
    let judgement =
        result.adaptive(judge).filter(|it| it.variant == variant).map(|it| it.ratio.judgement());
    let mark = match judgement {
        _ if share.is_none() => Mark::Weak,
        Some(Judgement::Misses) => Mark::Bad,
        Some(Judgement::Undecided) => Mark::Weak,
        _ if share == Some(1.0) => Mark::Best,
        _ => Mark::Plain,
    };
    let text = match share {
        Some(share) => share_text(share),
        None if result.measured[index].rounds.is_empty() => "–".to_owned(),
        None => "?".to_owned(),
    };
    TableCell { text, share, mark, notes: result.measured[index].notes() }
}

/// A share with two digits, rounded down, so that only the best is 1.00.
fn share_text(share: f64) -> String {
    match (share * 100.0 + 1e-9).floor() / 100.0 {
        0.0 if share > 0.0 => "<.01".to_owned(),
        floored => format!("{floored:.2}"),
    }
}
