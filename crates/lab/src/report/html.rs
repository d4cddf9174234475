//! The page: one report as one HTML file that needs nothing else.
//!
//! Its first screen is for those who run the disk: what it does, which settings to change, and the depth plot.
//! Below it, collapsed, is what engine authors look for: a section for each experiment, the comparisons,
//! every record, the facts and the command. All of it is plain HTML with plots as inline SVG, so that
//! it can be read without scripts, printed, and searched.
//!
//! The page's content security policy forbids every fetch. That is the proof that it asks
//! nothing of the network; a promise in a comment was the alternative.
//!
//! Invariants:  [HTM-1] no text of the report can leave the place it is put in
//!              [HTM-2] every record is shown in at least one table
//!              [HTM-3] a fact that is null reads `unknown`, never `0`
//!              [HTM-4] nothing in the page points outside of it

mod facts;

use std::borrow::Cow;

use anyhow::Context;
use minijinja::value::{Serde, Value as Safe};
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;

use super::plot::{self, Drawing};
use super::{Part, Plot, Report, Section, Table, numbers, paste, tables};

const TEMPLATES: [(&str, &str); 3] = [
    ("page.html", include_str!("page.html")),
    ("table.html", include_str!("table.html")),
    ("plot.html", include_str!("plot.html")),
];
const PAGE_CSS: &str = include_str!("../../assets/page.css");
const PAGE_JS: &str = include_str!("../../assets/page.js");

/// The experiment whose plot is on the first screen.
const HEADLINE: &str = "depth";

/// Size of that plot, and of the others, in pixels before they are scaled to their place.
const HEADLINE_SIZE: (f64, f64) = (470.0, 350.0);
const PLOT_SIZE: (f64, f64) = (1000.0, 320.0);

/// What the page shows of an experiment.
#[derive(Debug, Serialize)]
struct View<'s> {
    name: &'s str,
    title: &'s str,
    about: &'s str,
    parts: Vec<PartView<'s>>,
}

/// A piece of it; one field is set.
#[derive(Debug, Default, Serialize)]
struct PartView<'s> {
    text: Option<&'s str>,
    table: Option<TableView<'s>>,
    plot: Option<Drawing>,
}

/// A table, and which of its columns hold words.
#[derive(Debug, Serialize)]
struct TableView<'t> {
    #[serde(flatten)]
    table: Cow<'t, Table>,
    words: Vec<bool>,
}

/// Writes `report` as one self-contained HTML page, scripts and styles included. `sections`: what its
/// experiments show; one without a name shows nothing, its records are in a plain table all the same.
///
/// # Errors
/// The template does not render or the report does not serialise. Both are bugs of ours; the
/// JSON file of the run is worth keeping all the same.
pub fn render(report: &Report, sections: &[Section]) -> anyhow::Result<String> {
    let headline = sections.iter().find(|section| section.name == HEADLINE);
    let headline = headline.and_then(|section| section.headline.as_ref());
    let device = report.device.as_ref();
    let page = context! {
        report => Serde(report),
        report_json => embedded(report)?,
        took => numbers::seconds(report.seconds),
        place => facts::setting(report),
        host => Serde(facts::host(&report.host)),
        storage => Serde(facts::storage(&report.storage)),
        device => Serde(device.map(tables::device).map(owned)),
        device_remarks => device.map(tables::device_remarks).unwrap_or_default(),
        settings => Serde(owned(tables::settings(&report.advice))),
        headline => Serde(headline.and_then(|plot| draw(plot, HEADLINE_SIZE))),
        snippets => Serde(paste::snippets(&report.advice, &report.storage)),
        sections => Serde(sections.iter().filter(|it| !it.name.is_empty()).map(view).collect::<Vec<_>>()),
        counts => tables::verdict_counts(&report.verdicts),
        verdicts => Serde(owned(tables::verdicts(&report.verdicts))),
        records => Serde(records(report)),
        page_css => Safe::from_safe_string(PAGE_CSS.to_owned()),
        page_js => Safe::from_safe_string(PAGE_JS.to_owned()),
    };
    environment()?.get_template("page.html")?.render(page).context("rendering the page")
}

fn environment() -> anyhow::Result<Environment<'static>> {
    let mut environment = Environment::new(); // a name ending in .html turns escaping on [HTM-1]
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, template) in TEMPLATES {
        environment.add_template(name, template).with_context(|| format!("reading {name}"))?;
    }
    Ok(environment)
}

/// The report as JSON that may stand inside a script element: `<` is written as its escape, so that no text
/// of the report can end the element or open a comment [HTM-1].
fn embedded(report: &Report) -> anyhow::Result<Safe> {
    let text = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(Safe::from_safe_string(text))
}

fn draw(plot: &Plot, (width, height): (f64, f64)) -> Option<Drawing> {
    plot::draw(plot, width, height)
}

fn view(section: &Section) -> View<'_> {
    let Section { name, title, about, parts, .. } = section;
    View { name, title, about, parts: parts.iter().map(part).collect() }
}

fn part(part: &Part) -> PartView<'_> {
    let empty = PartView::default();
    match part {
        Part::Text(text) => PartView { text: Some(text), ..empty },
        Part::Table(table) => PartView { table: Some(shown(Cow::Borrowed(table))), ..empty },
        Part::Plot(plot) => PartView { plot: draw(plot, PLOT_SIZE), ..empty },
    }
}

fn shown(table: Cow<'_, Table>) -> TableView<'_> {
    let words = (0..table.columns.len()).map(|column| table.is_words(column)).collect();
    TableView { table, words }
}

fn owned(table: Table) -> TableView<'static> {
    shown(Cow::Owned(table))
}

/// A plain table for each experiment, in the order measured [HTM-2].
fn records(report: &Report) -> Vec<TableView<'static>> {
    let mut names: Vec<&str> = Vec::new();
    for record in &report.records {
        if !names.contains(&record.experiment.as_str()) {
            names.push(&record.experiment);
        }
    }
    names.into_iter().map(|name| owned(tables::plain(name, &report.records))).collect()
}

#[cfg(test)]
mod tests;
