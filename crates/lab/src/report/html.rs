//! The page: one report as one HTML file that needs nothing else.
//!
//! The facts, the conclusions and every figure are plain HTML, so that the page can be read
//! without scripts, printed, and searched.
//!
//! The page's content security policy forbids every fetch. That is the proof that it asks
//! nothing of the network; a promise in a comment was the alternative.
//!
//! Invariants:  [HTM-1] no text of the report can leave the place it is put in
//!              [HTM-2] every record is shown in at least one table
//!              [HTM-3] a fact that is null reads `unknown`, never `0`
//!              [HTM-4] nothing in the page points outside of it

mod checkpoints;
mod curves;
mod facts;
mod matrix;
mod panels;
mod readaheads;
mod tables;
mod timeline;

use anyhow::Context;
use minijinja::value::{Serde, Value as Safe};
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use serde_json::Value;

use super::checkpoint::{self, Checkpoints};
use super::footnotes::Footnotes;
use super::interplay::{self, Panels};
use super::standing::Standing;
use super::strategies::{self, Maps};
use super::{Record, Report, numbers};
use tables::Table;

const TEMPLATES: [(&str, &str); 5] = [
    ("page.html", include_str!("page.html")),
    ("table.html", include_str!("table.html")),
    ("matrix.html", include_str!("matrix.html")),
    ("readaheads.html", include_str!("readaheads.html")),
    ("remarks.html", include_str!("remarks.html")),
];
const PAGE_CSS: &str = include_str!("../../assets/page.css");
const PAGE_JS: &str = include_str!("../../assets/page.js");
const UPLOT_CSS: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");

/// Experiments that the page shows in views of their own.
const WITH_VIEW: [&str; 3] =
    [strategies::EXPERIMENT, interplay::EXPERIMENT, checkpoint::EXPERIMENT];

/// What the page shows of the experiment `interplay`.
#[derive(Debug, Serialize)]
struct PanelsView {
    /// What `adaptive` makes of the kernel's readahead.
    sentence: String,
    patterns: Vec<PatternView>,
    notes: Vec<String>,
    some_not_cold: bool,
}

/// One pattern of `interplay`, a table for each kernel readahead.
#[derive(Debug, Serialize)]
struct PatternView {
    name: String,
    tables: Vec<Safe>,
}

/// What the page shows of the experiment `checkpoint`.
#[derive(Debug, Serialize)]
struct CheckpointsView {
    /// What the best way of writing takes of the baseline's time.
    sentence: String,
    writing: Vec<Safe>,
    beside: Vec<BesideView>,
    notes: Vec<String>,
}

/// What readers felt in one pattern and cache mode.
#[derive(Debug, Serialize)]
struct BesideView {
    table: Safe,
    /// The longest reads over time, if anybody read, and the same in words.
    plot: Option<Safe>,
    description: String,
}

/// What the page shows of an experiment that it knows nothing about.
#[derive(Debug, Serialize)]
struct PlainView {
    name: String,
    table: Safe,
    notes: Vec<String>,
}

/// Writes `report` as one self-contained HTML page, scripts and styles included.
///
/// # Errors
/// The template does not render or the report does not serialise. Both are bugs of ours; the
/// JSON file of the run is worth keeping all the same.
pub fn render(report: &Report) -> anyhow::Result<String> {
    let environment = environment()?;
    let page = context! {
        report => Serde(report),
        report_json => embedded(&serde_json::to_value(report)?)?,
        took => numbers::seconds(report.seconds),
        setting => facts::setting(report),
        host => Serde(facts::host(&report.host)),
        storage => Serde(facts::storage(&report.storage)),
        matrix => matrix_view(&environment, &report.records)?,
        panels => Serde(panels_view(&environment, &report.records)?),
        checkpoints => Serde(checkpoints_view(&environment, &report.records)?),
        readaheads => readaheads::sections(&environment, &report.records)?,
        others => Serde(plain_views(&environment, &report.records)?),
        page_css => Safe::from_safe_string(PAGE_CSS.to_owned()),
        page_js => Safe::from_safe_string(PAGE_JS.to_owned()),
        uplot_css => Safe::from_safe_string(UPLOT_CSS.to_owned()),
        uplot_js => Safe::from_safe_string(UPLOT_JS.to_owned()),
    };
    environment.get_template("page.html")?.render(page).context("rendering the page")
}

fn environment() -> anyhow::Result<Environment<'static>> {
    let mut environment = Environment::new(); // a name ending in .html turns escaping on [HTM-1]
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, template) in TEMPLATES {
        environment.add_template(name, template).with_context(|| format!("reading {name}"))?;
    }
    Ok(environment)
}

fn written(environment: &Environment<'_>, table: &Table) -> anyhow::Result<Safe> {
    let template = environment.get_template("table.html")?;
    let html = template.render(context! { table => Serde(table) }).context("rendering a table")?;
    Ok(Safe::from_safe_string(html))
}

/// JSON as it may stand inside a script element: `<` is written as its escape, so that no text
/// of the report can end the element or open a comment [HTM-1].
fn embedded(value: &Value) -> anyhow::Result<Safe> {
    let text = serde_json::to_string(value)?.replace('<', "\\u003c");
    Ok(Safe::from_safe_string(text))
}

/// The heat maps of `strategies`, written; `None` without records that fit into one.
fn matrix_view(environment: &Environment<'_>, records: &[Record]) -> anyhow::Result<Option<Safe>> {
    let Some(view) = matrix::view(&Maps::group(records)) else {
        return Ok(None);
    };
    let template = environment.get_template("matrix.html")?;
    let html = template.render(context! { view => Serde(view) }).context("rendering a heat map")?;
    Ok(Some(Safe::from_safe_string(html)))
}

fn panels_view(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Option<PanelsView>> {
    let grouped = Panels::group(records);
    if grouped.panels.is_empty() {
        return Ok(None);
    }
    let mut footnotes = Footnotes::default();
    let mut patterns = Vec::new();
    for of_pattern in panels::tables(&grouped, &mut footnotes) {
        let mut tables = Vec::new();
        for table in &of_pattern.tables {
            tables.push(written(environment, table)?);
        }
        patterns.push(PatternView { name: of_pattern.pattern, tables });
    }
    let mut cells = grouped.panels.iter().flat_map(|panel| &panel.cells);
    Ok(Some(PanelsView {
        sentence: grouped.sentence(),
        patterns,
        notes: footnotes.sentences().to_vec(),
        some_not_cold: cells.any(|cell| cell.standing() == Standing::NotCold),
    }))
}

fn checkpoints_view(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Option<CheckpointsView>> {
    let grouped = Checkpoints::group(records);
    if grouped.is_empty() {
        return Ok(None);
    }
    let mut footnotes = Footnotes::default();
    let mut writing = Vec::new();
    for panel in &grouped.panels {
        writing.push(written(environment, &checkpoints::writing(panel, &mut footnotes))?);
    }
    let mut beside = Vec::new();
    for panel in &grouped.beside {
        let table = written(environment, &checkpoints::reading(panel, &mut footnotes))?;
        let (plot, description) = timeline::draw(panel).map_or((None, String::new()), |drawn| {
            (Some(Safe::from_safe_string(drawn.svg)), drawn.description)
        });
        beside.push(BesideView { table, plot, description });
    }
    let (sentence, notes) = (grouped.sentence(), footnotes.sentences().to_vec());
    Ok(Some(CheckpointsView { sentence, writing, beside, notes }))
}

/// One table for each experiment that has no view of its own, in the order measured, and for
/// records that fit no view of the experiment they belong to [HTM-2].
fn plain_views(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Vec<PlainView>> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        let name = record.experiment.as_str();
        let has_view = WITH_VIEW.contains(&name) || readaheads::EXPERIMENTS.contains(&name);
        if !has_view && !names.contains(&name) {
            names.push(name);
        }
    }
    let mut views: Vec<PlainView> = Vec::new();
    for (name, leftovers) in [
        ("strategies, records that fit no map", Maps::group(records).leftovers),
        ("interplay, records that fit no table", Panels::group(records).leftovers),
        ("checkpoint, records that fit no table", Checkpoints::group(records).leftovers),
    ]
    .into_iter()
    .chain(readaheads::leftovers(records))
    {
        if !leftovers.is_empty() {
            views.push(plain_view(environment, name, &leftovers)?);
        }
    }
    for name in names {
        let of_name: Vec<&Record> =
            records.iter().filter(|record| record.experiment == name).collect();
        views.push(plain_view(environment, name, &of_name)?);
    }
    Ok(views)
}

fn plain_view(
    environment: &Environment<'_>,
    name: &str,
    records: &[&Record],
) -> anyhow::Result<PlainView> {
    let mut footnotes = Footnotes::default();
    let table = written(environment, &tables::plain(name, records, &mut footnotes))?;
    Ok(PlainView { name: name.to_owned(), table, notes: footnotes.sentences().to_vec() })
}

#[cfg(test)]
mod tests;
