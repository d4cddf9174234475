//! The heat maps of the experiment `strategies`, laid out here so that the template only writes
//! them down.
//!
//! A cell has one colour, for its share of the best of its row, and several figures, of which a
//! switch shows one at a time; all of them stand in its tooltip too. The colours come in six
//! steps instead of a smooth scale, because a reader then finds a cell's step in the legend.
//! They go from orange to blue, which people who see red and green alike can tell apart.
//!
//! Invariants:  [MAT-1] every cell of every map is shown, measured or not, with its remarks
//!              [MAT-2] only a cold figure has a colour; the best and a loss are marked as such
//!              [MAT-3] every row has as many cells as its map has columns

use serde::Serialize;

use super::super::footnotes::Footnotes;
use super::super::numbers;
use super::super::standing::Standing;
use super::super::strategies::{ADAPTIVE, Cell, Map, Maps, Row, STEPS, remarks, share_text, step};

/// What the page shows of the experiment.
#[derive(Debug, Serialize)]
pub(super) struct MatrixView {
    /// How `adaptive` did, in one sentence.
    sentence: String,
    /// What the switch offers; the first is shown to begin with.
    figures: Vec<&'static str>,
    legend: Vec<Swatch>,
    maps: Vec<HeatMap>,
    losses: Vec<Loss>,
    /// Said in place of the list when it is empty.
    none_lost: String,
    pub(super) notes: Vec<String>,
    some_not_cold: bool,
    some_unmeasured: bool,
}

/// One step of the colours.
#[derive(Debug, Serialize)]
struct Swatch {
    class: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct HeatMap {
    label: String,
    columns: Vec<Heading>,
    rows: Vec<HeatRow>,
    means: Vec<Mean>,
    /// Over how many patterns the means are; none are shown for fewer than two.
    mean_patterns: usize,
}

#[derive(Debug, Serialize)]
struct Heading {
    name: String,
    is_adaptive: bool,
}

#[derive(Debug, Serialize)]
struct HeatRow {
    pattern: String,
    cells: Vec<HeatCell>,
}

#[derive(Debug, Serialize)]
struct HeatCell {
    /// Style classes: `step-1` to `step-6`, `not-cold`, `unmeasured`, `absent`, `best`, `lost`.
    class: String,
    /// One text for each entry of the switch; empty where there is no such cell.
    figures: Vec<String>,
    tooltip: String,
    /// Numbers of its footnotes.
    marks: String,
}

#[derive(Debug, Serialize)]
struct Mean {
    text: String,
    class: String,
}

/// One row that `adaptive` loses.
#[derive(Debug, Serialize)]
struct Loss {
    pattern: String,
    place: String,
    told: String,
}

/// A figure of the switch: its name and how a cell's text is found.
struct Figure {
    name: &'static str,
    of: fn(&Row<'_>, &Cell<'_>) -> Option<String>,
}

const FIGURES: [Figure; 7] = [
    Figure { name: "Share of best", of: |row, cell| row.share(cell).map(share_text) },
    Figure { name: "Blocks/s", of: |_, cell| cell.rate().map(numbers::compact) },
    Figure { name: "Requests", of: |_, cell| metric(cell, "device_requests", numbers::compact) },
    Figure { name: "Over-read %", of: |_, cell| metric(cell, "over_read", numbers::percent) },
    Figure { name: "Seconds", of: |_, cell| metric(cell, "seconds", numbers::number) },
    Figure { name: "Wait p99 µs", of: |_, cell| metric(cell, "wait_us_p99", numbers::number) },
    Figure {
        name: "Processor µs/block",
        of: |_, cell| metric(cell, "cpu_us_per_block", numbers::number),
    },
];

fn metric(cell: &Cell<'_>, key: &str, text: fn(f64) -> String) -> Option<String> {
    cell.record.metric(key).map(text)
}

/// Lays out all maps; `None` when there are none.
pub(super) fn view(grouped: &Maps<'_>) -> Option<MatrixView> {
    if grouped.maps.is_empty() {
        return None;
    }
    let cells = || {
        grouped
            .maps
            .iter()
            .flat_map(|map| &map.rows)
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
    };
    // The first is the colour itself; another one that no cell has is not worth a button.
    let figures: Vec<&Figure> = FIGURES
        .iter()
        .enumerate()
        .filter(|(index, figure)| {
            *index == 0 || cells().any(|(row, cell)| (figure.of)(row, cell).is_some())
        })
        .map(|(_, figure)| figure)
        .collect();
    let mut notes = Footnotes::default();
    let maps =
        grouped.maps.iter().map(|map| heat_map(grouped, map, &figures, &mut notes)).collect();
    let verdict = grouped.verdict();
    let loss = |(map, lost): (&Map<'_>, &super::super::strategies::Contest<'_>)| Loss {
        pattern: lost.pattern.to_owned(),
        place: map.label.clone(),
        told: lost.told(),
    };
    let some = |standing| cells().any(|(_, cell)| cell.standing() == standing);
    Some(MatrixView {
        sentence: verdict.sentence(),
        figures: figures.iter().map(|figure| figure.name).collect(),
        legend: legend(),
        maps,
        losses: verdict.losses().into_iter().map(loss).collect(),
        none_lost: verdict.none_lost(),
        notes: notes.sentences().to_vec(),
        some_not_cold: some(Standing::NotCold),
        some_unmeasured: some(Standing::Unmeasured),
    })
}

fn legend() -> Vec<Swatch> {
    let ends = STEPS.iter().skip(1).map(|end| Some(*end)).chain([None]);
    let swatch = |(start, end): (&f64, Option<f64>)| Swatch {
        class: format!("step-{}", step(*start)),
        name: match end {
            Some(end) if *start == 0.0 => format!("below {end:.2}"),
            Some(_) | None => format!("≥ {start:.2}"),
        },
    };
    STEPS.iter().zip(ends).map(swatch).collect()
}

fn heat_map(
    grouped: &Maps<'_>,
    map: &Map<'_>,
    figures: &[&Figure],
    notes: &mut Footnotes,
) -> HeatMap {
    let heading =
        |name: &&str| Heading { name: (*name).to_owned(), is_adaptive: *name == ADAPTIVE };
    let strategies: Vec<&str> =
        grouped.strategies.iter().copied().filter(|name| map.has(name)).collect();
    let mut rows = Vec::new();
    for row in &map.rows {
        let cells: Vec<HeatCell> = strategies
            .iter()
            .map(|name| match row.at(name) {
                Some(cell) => heat_cell(map, row, cell, figures, notes),
                None => absent(),
            })
            .collect();
        assert_eq!(cells.len(), strategies.len(), "[MAT-3] {}", row.pattern);
        rows.push(HeatRow { pattern: row.pattern.to_owned(), cells });
    }
    let (means, mean_patterns) = map.means(&strategies);
    let mean = |mean: Option<f64>| Mean {
        text: mean.map_or("–".to_owned(), share_text),
        class: mean.map_or("unmeasured".to_owned(), |mean| format!("step-{}", step(mean))),
    };
    HeatMap {
        label: map.label.clone(),
        columns: strategies.iter().map(heading).collect(),
        rows,
        means: means.into_iter().map(mean).collect(),
        mean_patterns,
    }
}

fn absent() -> HeatCell {
    HeatCell {
        class: "absent".to_owned(),
        figures: Vec::new(),
        tooltip: String::new(),
        marks: String::new(),
    }
}

fn heat_cell(
    map: &Map<'_>,
    row: &Row<'_>,
    cell: &Cell<'_>,
    figures: &[&Figure],
    notes: &mut Footnotes,
) -> HeatCell {
    let share = row.share(cell);
    let mut classes = match (cell.standing(), share) {
        (Standing::Cold, Some(share)) => vec![format!("step-{}", step(share))],
        (standing, _) => vec![standing.name().to_owned()], // [MAT-2]
    };
    if row.best().is_some_and(|best| std::ptr::eq(best.record, cell.record)) {
        classes.push("best".to_owned());
    }
    let contest = row.contest(map.bound).filter(|_| cell.strategy == ADAPTIVE);
    let is_lost = contest.is_some_and(|contest| contest.is_lost());
    if is_lost {
        classes.push("lost".to_owned());
    }
    let text = |figure: &&Figure| (figure.of)(row, cell).unwrap_or_else(|| "–".to_owned());
    HeatCell {
        class: classes.join(" "),
        figures: figures.iter().map(text).collect(),
        tooltip: tooltip(row, cell),
        marks: notes.marks(&remarks(cell, is_lost)), // [MAT-1]
    }
}

/// Everything about a cell, one line each: what it is, its figures, its remarks.
fn tooltip(row: &Row<'_>, cell: &Cell<'_>) -> String {
    let mut lines = vec![format!("{}, {}", row.pattern, cell.strategy)];
    for figure in FIGURES {
        if let Some(text) = (figure.of)(row, cell) {
            lines.push(format!("{}: {text}", figure.name));
        }
    }
    let metric = |key: &str| cell.record.metric(key).map(numbers::number);
    if let Some((low, high)) = metric("blocks_per_s_min").zip(metric("blocks_per_s_max")) {
        lines.push(format!("Rounds: {low} to {high} blocks/s"));
    }
    lines.extend(cell.record.remarks.iter().cloned());
    lines.join("\n")
}
