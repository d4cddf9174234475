//! The page: one report as one HTML file that needs nothing else, of the laboratory or of another command.
//!
//! Its first screen is for those who run the disk: its performance, which settings to change, and the depth plot.
//! Below it, collapsed, is the part for engine authors: a section for each experiment, the comparisons,
//! every record, the facts and the command. All of it is plain HTML with plots as inline SVG, so that
//! it can be read without scripts, printed, and searched.
//!
//! The page's content security policy forbids every fetch. That proves that it loads
//! nothing from the network; a promise in a comment was the alternative.
//!
//! Invariants:  [HTM-1] no text of the report can leave the place it is put in
//!              [HTM-2] every record is shown in at least one table
//!              [HTM-3] a fact that is null reads `unknown`, never `0`
//!              [HTM-4] nothing in the page points outside of it

use anyhow::Context;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};

use super::{
    Conclusion, Part, Plot, Report, Section, Snippet, Table, numbers, paste, plot, tables,
};
use crate::units::shown_size;

const TEMPLATES: [(&str, &str); 3] = [
    ("page.html", include_str!("page.html")),
    ("table.html", include_str!("table.html")),
    ("plot.html", include_str!("plot.html")),
];
const PAGE_CSS: &str = include_str!("../../assets/page.css");
const PAGE_JS: &str = include_str!("../../assets/page.js");

/// The sections whose first plot is on the first screen: of the laboratory, and of `advise`.
pub const HEADLINES: [&str; 2] = ["depth", "tried"];

/// The differences between the pages of two commands.
#[derive(Debug)]
pub struct Kind {
    /// The command, such as `forebay lab`.
    pub command: &'static str,
    /// The heading of the collapsed part.
    pub details: &'static str,
    /// The settings to paste.
    pub snippets: Vec<Snippet>,
}

impl Kind {
    /// A page of the laboratory.
    pub fn lab(report: &Report) -> Kind {
        let snippets = paste::snippets(&report.advice, &report.storage);
        Kind { command: "forebay lab", details: "For engine authors", snippets }
    }
}

/// Size of that plot, and of the others, in pixels before they are scaled to their place.
const HEADLINE_SIZE: (f64, f64) = (470.0, 350.0);
const PLOT_SIZE: (f64, f64) = (1000.0, 320.0);

/// Writes `report` as one self-contained HTML page, scripts and styles included. `sections`: what its
/// experiments show; one without a name shows nothing, its records are in a plain table anyway.
///
/// # Errors
/// The template does not render or the report does not serialise. Both are bugs in this crate; the
/// JSON file of the run is worth keeping anyway.
pub fn render(kind: &Kind, report: &Report, sections: &[Section]) -> anyhow::Result<String> {
    let headline = sections.iter().filter(|section| HEADLINES.contains(&section.name));
    let headline = headline.flat_map(|section| &section.parts).find_map(|part| match part {
        Part::Plot(plot) => Some(drawn(plot, HEADLINE_SIZE)),
        Part::Table(_) => None,
    });
    let named = sections.iter().filter(|section| !section.name.is_empty());
    let records = tables::plain(&report.records);
    // Encoded for a script element: `<` is written as its escape, so that no text of the report can
    // end the element or open a comment [HTM-1].
    let report_json = serde_json::to_string(report)?.replace('<', "\\u003c");
    let page = context! {
        report => Serde(report),
        report_json => Value::from_safe_string(report_json),
        took => numbers::seconds(report.seconds),
        device => report.device.as_ref().map(|device| table(&tables::device(device))),
        settings => table(&tables::settings(&report.advice)),
        headline,
        command => kind.command,
        details => kind.details,
        snippets => Serde(&kind.snippets),
        sections => named.map(|section| shown(section, report)).collect::<Vec<_>>(),
        counts => tables::verdict_counts(&report.verdicts),
        verdicts => table(&tables::verdicts(&report.verdicts)),
        records => records.iter().map(table).collect::<Vec<_>>(),
        page_css => Value::from_safe_string(PAGE_CSS.to_owned()),
        page_js => Value::from_safe_string(PAGE_JS.to_owned()),
    };
    environment()?.get_template("page.html")?.render(page).context("rendering the page")
}

fn environment() -> anyhow::Result<Environment<'static>> {
    let mut environment = Environment::new(); // a name ending in .html turns escaping on [HTM-1]
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("bytes", |count: Option<u64>| count.map(shown_size));
    for (name, template) in TEMPLATES {
        environment.add_template(name, template).with_context(|| format!("reading {name}"))?;
    }
    Ok(environment)
}

fn drawn(plot: &Plot, (width, height): (f64, f64)) -> Value {
    Value::from(Serde(plot::draw(plot, width, height)))
}

/// A section with the conclusions for authors of engines, each of its parts under its own heading.
fn shown(section: &Section, report: &Report) -> Value {
    let part = |part: &Part| match part {
        Part::Table(shown) => context! { table => table(shown) },
        Part::Plot(plot) => context! { plot => drawn(plot, PLOT_SIZE) },
    };
    let &Section { name, ref title, ref about, ref parts } = section;
    let is_here = |it: &&Conclusion| it.for_engines && it.experiment == name;
    let sentences = report.conclusions.iter().filter(is_here).map(|it| it.sentence.clone());
    let (sentences, parts) =
        (sentences.collect::<Vec<_>>(), parts.iter().map(part).collect::<Vec<_>>());
    context! { name, title, about, sentences, parts }
}

/// A table with its notes, and which of its columns contain words.
fn table(table: &Table) -> Value {
    let words: Vec<bool> = (0..table.columns.len()).map(|it| table.is_words(it)).collect();
    context! { words, notes => Serde(table.notes()), ..Value::from(Serde(table)) }
}

#[cfg(test)]
mod tests;
