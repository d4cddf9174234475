//! The sections of the experiments on the kernel's readahead: tables, and curves over them.
//!
//! Invariants:  [RAV-1] a figure that was not cold has no bar, is on no curve and is not the best

use anyhow::Context;
use minijinja::Environment;
use minijinja::context;
use minijinja::value::{Serde, Value as Safe};
use serde::Serialize;

use super::super::activation::{self, Activations};
use super::super::footnotes::Footnotes;
use super::super::mixture::{self, Mixtures};
use super::super::readahead::{self, Curves};
use super::super::standing::Standing;
use super::super::{Record, numbers};
use super::curves::{self, Line};
use super::tables::{Cell, Row, Table};
use super::written;

/// A table with the curves over it.
#[derive(Debug, Serialize)]
struct PanelView {
    name: String,
    plot: Option<Safe>,
    description: String,
    legend: Vec<Key>,
    has_ceiling: bool,
    table: Safe,
}

/// One line of a plot.
#[derive(Debug, Serialize)]
struct Key {
    ink: &'static str,
    name: String,
}

/// What one end of the disk gives.
#[derive(Debug, Serialize)]
struct EndView {
    position: String,
    rate: String,
    marks: String,
}

#[derive(Debug, Serialize)]
struct ReadaheadView {
    sentence: String,
    panels: Vec<PanelView>,
    ends: Vec<EndView>,
    notes: Vec<String>,
    some_not_cold: bool,
}

#[derive(Debug, Serialize)]
struct ActivationView {
    tables: Vec<Safe>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MixtureView {
    panels: Vec<PanelView>,
    notes: Vec<String>,
    some_not_cold: bool,
}

/// All three sections, written; empty without records of theirs.
pub(super) fn sections(environment: &Environment<'_>, records: &[Record]) -> anyhow::Result<Safe> {
    let view = context! {
        readahead => Serde(readahead_view(environment, records)?),
        activation => Serde(activation_view(environment, records)?),
        mixture => Serde(mixture_view(environment, records)?),
    };
    let template = environment.get_template("readaheads.html")?;
    let html = template.render(view).context("rendering the sections on readahead")?;
    Ok(Safe::from_safe_string(html))
}

/// Names of these experiments, which have views of their own.
pub(super) const EXPERIMENTS: [&str; 3] =
    [readahead::EXPERIMENT, activation::EXPERIMENT, mixture::EXPERIMENT];

/// Records that fit nowhere in these sections, by what the page calls them.
pub(super) fn leftovers(records: &[Record]) -> [(&'static str, Vec<&Record>); 3] {
    [
        ("readahead, records that fit no table", Curves::group(records).leftovers),
        ("activation, records that fit no table", Activations::group(records).leftovers),
        ("mixture, records that fit no table", Mixtures::group(records).leftovers),
    ]
}

fn readahead_view(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Option<ReadaheadView>> {
    let grouped = Curves::group(records);
    if grouped.is_empty() {
        return Ok(None);
    }
    let mut notes = Footnotes::default();
    let mut panels = Vec::new();
    for panel in &grouped.panels {
        panels.push(curve_panel(environment, panel, &mut notes)?);
    }
    let end = |end: &readahead::End<'_>| EndView {
        position: end.position.to_owned(),
        rate: end
            .cell
            .rate()
            .map_or("–".to_owned(), |rate| format!("{} MB/s", numbers::number(rate / 1e6))),
        marks: notes.marks(&end.cell.record.remarks),
    };
    let ends = grouped.ends.iter().map(end).collect();
    let mut cells = grouped
        .panels
        .iter()
        .flat_map(|panel| panel.rows.iter().chain(&panel.ceiling))
        .flat_map(|row| &row.cells);
    Ok(Some(ReadaheadView {
        sentence: grouped.sentence(),
        panels,
        ends,
        some_not_cold: cells.any(|cell| cell.standing() == Standing::NotCold),
        notes: notes.sentences().to_vec(),
    }))
}

fn curve_panel(
    environment: &Environment<'_>,
    panel: &readahead::Panel<'_>,
    notes: &mut Footnotes,
) -> anyhow::Result<PanelView> {
    let readers = panel.readers();
    let mut lines = Vec::new();
    let mut legend = Vec::new();
    let mut description = String::from("Line plot of throughput against readahead.");
    for (number, &count) in readers.iter().enumerate() {
        let ceiling = panel.ceiling.as_ref().and_then(|row| row.at(count)?.cold_rate()); // [RAV-1]
        let points: Vec<(u64, f64)> =
            panel.curve(count).into_iter().map(|(bytes, rate)| (bytes, rate / 1e6)).collect();
        let name = if count == 1 { "1 reader".to_owned() } else { format!("{count} readers") };
        if let (Some((_, first)), Some(best)) = (points.first(), panel.best(count)) {
            description.push_str(&format!(
                " {name}: {} MB/s with the smallest, at best {}.",
                numbers::number(*first),
                numbers::number(best / 1e6)
            ));
        }
        lines.push(Line { points, ceiling: ceiling.map(|rate| rate / 1e6) });
        legend.push(Key { ink: curves::ink(number), name });
    }
    let table = written(environment, &curve_table(panel, &readers, notes))?;
    Ok(PanelView {
        name: panel.label.clone(),
        plot: curves::draw(&lines).map(Safe::from_safe_string),
        description,
        legend,
        has_ceiling: lines.iter().any(|line| line.ceiling.is_some()),
        table,
    })
}

fn curve_table(panel: &readahead::Panel<'_>, readers: &[u64], notes: &mut Footnotes) -> Table {
    let highest = panel.highest().filter(|highest| *highest > 0.0);
    let mut row = |head: String, row: &readahead::Row<'_>, is_ceiling: bool| {
        let mut cells = vec![Cell::plain(row.sectors().unwrap_or_else(|| "–".to_owned()), "text")];
        for &count in readers {
            let Some(cell) = row.at(count) else {
                cells.push(Cell::plain(String::new(), "absent"));
                continue;
            };
            let rate = cell.cold_rate();
            let text = cell.rate().map_or("–".to_owned(), |rate| numbers::number(rate / 1e6));
            cells.push(Cell {
                best: !is_ceiling && rate.is_some() && rate == panel.best(count), // [RAV-1]
                share: rate
                    .zip(highest)
                    .map(|(rate, highest)| (rate / highest * 100.0).round() as u32),
                marks: notes.marks(&cell.record.remarks),
                ..Cell::plain(text, cell.standing().name())
            });
        }
        Row { head, backend: "", dashed: false, apart: is_ceiling, cells }
    };
    let mut rows: Vec<Row> =
        panel.rows.iter().map(|of_size| row(of_size.label(), of_size, false)).collect();
    if let Some(ceiling) = &panel.ceiling {
        rows.push(row("direct".to_owned(), ceiling, true));
    }
    let count = |&count: &u64| match count {
        1 => "1 reader".to_owned(),
        count => format!("{count} readers"),
    };
    Table {
        name: panel.label.clone(),
        caption: format!("{}: MB/s of all readers together.", panel.label),
        corner: "readahead".to_owned(),
        columns: std::iter::once("sectors".to_owned()).chain(readers.iter().map(count)).collect(),
        rows,
    }
}

fn activation_view(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Option<ActivationView>> {
    let grouped = Activations::group(records);
    if grouped.panels.is_empty() {
        return Ok(None);
    }
    let mut notes = Footnotes::default();
    let mut tables = Vec::new();
    for panel in &grouped.panels {
        let row = |row: &activation::Row<'_>| Row {
            head: format!("{}, {}", row.start, row.gait()),
            backend: "",
            dashed: false,
            apart: false,
            cells: vec![
                Cell::plain(row.told(), "text"),
                Cell {
                    marks: notes.marks(&row.record.remarks),
                    ..Cell::plain(row.begins(), "text")
                },
                Cell::plain(row.agreeing(), "text"),
                Cell::plain(row.growth(), "text"),
            ],
        };
        let table = Table {
            name: panel.label.clone(),
            caption: panel.label.clone(),
            corner: "reads".to_owned(),
            columns: ["told", "begins with", "repetitions agreeing", "windows"]
                .map(str::to_owned)
                .to_vec(),
            rows: panel.rows.iter().map(row).collect(),
        };
        tables.push(written(environment, &table)?);
    }
    Ok(Some(ActivationView { tables, notes: notes.sentences().to_vec() }))
}

fn mixture_view(
    environment: &Environment<'_>,
    records: &[Record],
) -> anyhow::Result<Option<MixtureView>> {
    let grouped = Mixtures::group(records);
    if grouped.panels.is_empty() {
        return Ok(None);
    }
    let mut notes = Footnotes::default();
    let mut panels = Vec::new();
    let mut some_not_cold = false;
    for panel in &grouped.panels {
        let kinds = [("stream", "streams"), ("random", "random readers")];
        let lines = kinds.map(|(kind, _)| {
            let percent = |(bytes, kept): (u64, f64)| (bytes, kept * 100.0);
            Line { points: panel.curve(kind).into_iter().map(percent).collect(), ceiling: None }
        });
        let legend = kinds
            .iter()
            .enumerate()
            .map(|(number, (_, name))| Key { ink: curves::ink(number), name: (*name).to_owned() });
        let of_row = |row: &mixture::Row<'_>| {
            [row.streams(), row.random(), row.both()].into_iter().flatten().any(Record::is_not_cold)
        };
        some_not_cold |= panel.rows.iter().any(of_row);
        panels.push(PanelView {
            name: panel.label.clone(),
            plot: curves::draw(&lines).map(Safe::from_safe_string),
            description: "Line plot of what each kind of readers keeps beside the other."
                .to_owned(),
            legend: legend.collect(),
            has_ceiling: false,
            table: written(environment, &mixture_table(panel, &mut notes))?,
        });
    }
    Ok(Some(MixtureView { panels, notes: notes.sentences().to_vec(), some_not_cold }))
}

const MIXTURE_COLUMNS: [&str; 8] = [
    "streams, MB/s",
    "beside random readers",
    "kept, %",
    "random reads/s",
    "beside streams",
    "kept, %",
    "p99 wait, ms",
    "beside streams",
];

fn mixture_table(panel: &mixture::Panel<'_>, notes: &mut Footnotes) -> Table {
    let figure = |record: Option<&Record>, key: &str, text: fn(f64) -> String| {
        let Some(record) = record else { return Cell::plain(String::new(), "absent") };
        let value = record.metric(key).map_or("–".to_owned(), text);
        Cell::plain(value, Standing::by(record, key).name())
    };
    let megabytes: fn(f64) -> String = |rate| numbers::number(rate / 1e6);
    let milliseconds: fn(f64) -> String = |us| numbers::number(us / 1e3);
    let mut row = |row: &mixture::Row<'_>| {
        let (streams, random, both) = (row.streams(), row.random(), row.both());
        let first = figure(streams, "stream_bytes_per_s", megabytes);
        let cells = vec![
            Cell { marks: notes.marks(&row.remarks()), ..first },
            figure(both, "stream_bytes_per_s", megabytes),
            figure(both, "stream_kept", numbers::percent),
            figure(random, "random_reads_per_s", numbers::number),
            figure(both, "random_reads_per_s", numbers::number),
            figure(both, "random_kept", numbers::percent),
            figure(random, "random_wait_us_p99", milliseconds),
            figure(both, "random_wait_us_p99", milliseconds),
        ];
        Row { head: row.label(), backend: "", dashed: false, apart: false, cells }
    };
    Table {
        name: panel.label.clone(),
        caption: panel.label.clone(),
        corner: "readahead".to_owned(),
        columns: MIXTURE_COLUMNS.map(str::to_owned).to_vec(),
        rows: panel.rows.iter().map(&mut row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{
        absurd_readaheads, activation, mixture, readahead, readahead_end, report,
    };
    use super::super::render;
    use serde_json::json;

    #[test]
    fn each_of_the_three_has_its_section_its_table_and_its_curves() {
        let mut records = vec![
            readahead("own", 8, Some(4096), 38e6),
            readahead("own", 8, Some(6 << 20), 304e6),
            readahead("own", 8, None, 640e6),
            readahead_end("begin", 642e6),
            activation("middle", "normal", 1, Some(2)),
        ];
        for (bytes, kept) in [(131_072, 0.4), (6 << 20, 0.1)] {
            records.extend(["streams", "random", "both"].map(|mix| mixture(bytes, mix, 0.9, kept)));
        }
        let page = render(&report(records)).unwrap();
        for id in ["readahead", "activation", "mixture"] {
            assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        }
        assert!(page.contains("<td class=\"cold best\" style=\"--share:48%\">304</td>"), "[RAV-1]");
        assert!(page.contains(">12,288</td>") && page.contains("begin 642 MB&#x2f;s"));
        assert!(
            page.contains("8 readers: 38.0 MB&#x2f;s with the smallest, at best 304."),
            "in words"
        );
        assert!(page.contains(">32 KiB, 64 KiB, 128 KiB, 128 KiB</td>"));
        assert_eq!(page.matches("<figure class=\"teeth\">").count(), 2);
        assert!(page.contains("8 reading at once get up to 8.00 times"), "the sentence");
    }

    #[test]
    fn a_figure_that_was_not_cold_is_struck() {
        let mut warm = readahead("own", 8, Some(6 << 20), 9e9);
        warm.remarks.push("not cold: 1 of 2 pages stayed".into());
        let page = render(&report(vec![warm, readahead("own", 8, Some(4096), 38e6)])).unwrap();
        assert!(page.contains("<td class=\"not-cold\">9,000<sup>1</sup></td>"), "[RAV-1]");
        assert!(page.contains("Figures struck in grey"));
    }

    #[test]
    fn hostile_and_absurd_records_are_shown_and_stay_text() {
        const HOSTILE: &str = "</section><script>alert(1)</script><img src=x>";
        let mut records = Vec::new();
        for experiment in super::EXPERIMENTS {
            for mut record in absurd_readaheads() {
                record.experiment = experiment.to_owned();
                record.cell.insert("place".into(), json!(HOSTILE));
                record.remarks.push(HOSTILE.to_owned());
                records.push(record);
            }
        }
        let mut hostile = activation(HOSTILE, HOSTILE, 1, Some(1));
        hostile.cell.insert("descriptors".into(), json!(HOSTILE));
        hostile.cell.insert("streams".into(), json!(2));
        let mut end = readahead_end(HOSTILE, 1.0);
        end.cell.insert("files".into(), json!(HOSTILE));
        let mut mixed = mixture(1, "both", 0.5, 0.5);
        mixed.cell.insert("advice".into(), json!(HOSTILE));
        let mut own = readahead(HOSTILE, 1, Some(1), 1.0);
        own.cell.insert("advice".into(), json!(HOSTILE));
        records.extend([hostile, end, mixed, own]);
        let page = render(&report(records)).unwrap();
        assert!(!page.contains("<script>alert") && !page.contains("<img"));
        for name in ["readahead", "activation", "mixture"] {
            assert!(
                page.contains(&format!("<h2>{name}, records that fit no table</h2>")),
                "{name}"
            );
        }
    }
}
