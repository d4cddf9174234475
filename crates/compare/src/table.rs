//! Table: the report as text, a table of rates and one of waits for each case.
//!
//! Rows are numbers of threads and columns are peers, so that a column reads as how a peer scales
//! and a row as which peer is faster. Below are a description of each peer and the source of its pages.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use forebay_measure::report::numbers;
use forebay_measure::units::shown_size;

use crate::cli::Case;
use crate::peer::Kind;
use crate::report::{Cell, Record, Report};

/// If the rounds of a cell differ by more than this part of their median, the table reports it.
const SPREAD_SHOWN: f64 = 0.2;

/// Draws `report`; every line ends in a line feed.
pub(crate) fn draw(report: &Report) -> String {
    let mut text = heading(report);
    for &case in &report.settings.cases {
        text.push_str(&rates(report, case));
        text.push_str(&waits(report, case));
    }
    text.push_str(&peers(report));
    text.push_str(&remarks(report));
    text
}

fn heading(report: &Report) -> String {
    let (settings, host, storage) = (&report.settings, &report.host, &report.storage);
    let unknown = || "unknown".to_owned();
    format!(
        "{} for pages, files of {}, pages of {}; {} rounds of {} s; seed {}\n\
         {}, {} processors; {} on {}; forebay {}\n",
        shown_size(settings.memory_bytes),
        shown_size(settings.file_bytes()),
        shown_size(settings.page_bytes as u64),
        settings.rounds,
        settings.duration.as_secs_f64(),
        settings.seed,
        host.kernel,
        host.cpus,
        storage.filesystem.clone().unwrap_or_else(unknown),
        storage.device.as_ref().map_or_else(unknown, |device| device.name.clone()),
        report.forebay
    )
}

fn rates(report: &Report, case: Case) -> String {
    let drawn = table(report, case, |record| {
        let times = record.metric("times_page_db").filter(|_| record.cell.peer != Kind::PageDb);
        let times = times.map(|times| format!(" ({})", number(Some(times)))).unwrap_or_default();
        let mark = if record.remarks.is_empty() { "" } else { "*" };
        format!("{mark}{}{times}", number(record.metric("reads_per_s")))
    });
    format!("\n{}: pages read per second (times page-db)\n{drawn}", case.name())
}

fn waits(report: &Report, case: Case) -> String {
    let drawn = table(report, case, |record| {
        let wait = |name| number(record.metric(name));
        format!("{} / {}", wait("wait_us_p50"), wait("wait_us_p99"))
    });
    format!("\n{}: time of one read in us, p50 / p99\n{drawn}", case.name())
}

/// A table of the records of `case`, each shown as `text` says.
fn table(report: &Report, case: Case, text: impl Fn(&Record) -> String) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let peers = report.settings.peers.iter();
    table.set_header(std::iter::once("threads").chain(peers.map(|peer| peer.name())));
    for &threads in &report.settings.threads {
        let cells = report.settings.peers.iter().map(|&peer| {
            let cell = Cell { case, threads, peer };
            report.records.iter().find(|record| record.cell == cell).map_or("-".to_owned(), &text)
        });
        table.add_row(std::iter::once(threads.to_string()).chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((2, 0));
    }
    table.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

/// What each peer is, and where it read its missing pages.
fn peers(report: &Report) -> String {
    let mut text = String::from("\n");
    for about in &report.peers {
        let pages = report.records.iter().filter(|record| {
            record.cell.case == Case::Missing && record.cell.peer.name() == about.peer
        });
        let pages = pages.filter_map(|record| record.metric("process_pages_per_read"));
        let (low, high) = pages
            .fold((f64::INFINITY, 0.0f64), |(low, high), pages| (low.min(pages), high.max(pages)));
        let _ = write!(
            text,
            "{} ({}): {}; during a miss {}; checksum: {}",
            about.peer, about.version, about.cache, about.miss, about.checksum
        );
        if low.is_finite() {
            let _ = write!(text, "; {low:.2} to {high:.2} pages from the device for each miss");
        }
        text.push('\n');
    }
    text
}

/// A measured number; a dash where there is none.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), numbers::number)
}

fn remarks(report: &Report) -> String {
    let mut text = String::new();
    for record in &report.records {
        let Cell { case, threads, peer } = record.cell;
        let name = format!("{}, {threads} threads, {}", case.name(), peer.name());
        for remark in &record.remarks {
            let _ = writeln!(text, "* {name}: {remark}");
        }
        let metric = |name| record.metric(name);
        let (Some(low), Some(high), Some(median)) =
            (metric("reads_per_s_min"), metric("reads_per_s_max"), metric("reads_per_s"))
        else {
            continue;
        };
        if high - low > SPREAD_SHOWN * median {
            let (low, high) = (number(Some(low)), number(Some(high)));
            let _ = writeln!(text, "{name}: rounds from {low} to {high}");
        }
    }
    text
}
