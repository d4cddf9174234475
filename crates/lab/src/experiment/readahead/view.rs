//! What the experiment shows: curves and tables, from its typed cells.

use super::conclusion::{Group, SECTOR_BYTES, groups};
use super::throughput::{Cache, Throughput, files_name, readers};
use super::{Found, NAME, Settings, activation, mixture, throughput};
use crate::experiment::unique;
use crate::report::{
    Line, Mark, Part, Plot, PlotMark, Point, Row, Section, Table, TableCell, numbers,
};
use crate::statistics::median;
use crate::units::{shown_size, typed_size};

/// Windows that a table shows of each row.
const WINDOWS_SHOWN: usize = 10;

pub(super) fn section(found: &Found, settings: &Settings) -> Section {
    let mut parts = Vec::new();
    for group in groups(&found.throughput) {
        parts.extend(plot(&group, settings).map(Part::Plot));
        parts.push(Part::Table(throughput(&group)));
    }
    if !found.activation.is_empty() {
        parts.push(Part::Table(activation(&found.activation)));
    }
    if !found.mixture.is_empty() {
        parts.push(Part::Table(mixture(&found.mixture)));
    }
    Section {
        name: NAME,
        title: "The kernel's readahead".to_owned(),
        about: "What all readers together get when each of them reads its share from beginning to end, under \
                each readahead of the kernel. A disk that serves several streams moves between them; only \
                what is read at each stop pays for the way. Direct reads, large and many in flight, show what \
                the disk could give."
            .to_owned(),
        parts,
        headline: None,
    }
}

fn heading(group: &Group<'_>) -> String {
    let (files, request) = (files_name(group.files), typed_size(group.request_bytes));
    format!("{files}, reads of {request}")
}

/// MB/s over readahead, a line for each number of readers and a dashed one for what the disk could give.
/// Only cells that can be compared are on a curve.
fn plot(group: &Group<'_>, settings: &Settings) -> Option<Plot> {
    let readaheads = group.cells.iter().map(|cell| cell.cell.readahead);
    let ticks = unique(&readaheads.collect::<Vec<_>>());
    let ticks: Option<Vec<(f64, String)>> =
        ticks.iter().map(|tick| Some((tick.bytes? as f64, tick.to_string()))).collect();
    let ticks = ticks?;
    let point = |cell: &throughput::Cell, x: f64| {
        let rates = cell.rates();
        Some(Point {
            x,
            y: cell.rate()? / 1e6,
            low: rates.iter().copied().reduce(f64::min)? / 1e6,
            high: rates.iter().copied().reduce(f64::max)? / 1e6,
        })
    };
    let place = |cell: &throughput::Cell| point(cell, cell.cell.readahead.bytes? as f64);
    let mut lines = Vec::new();
    for count in group.readers() {
        let points = group.curve(count).cells.into_iter().filter_map(place).collect();
        lines.push(Line { name: readers(count), points, dashed: false });
        let ceilings = group.ceilings.iter().filter(|cell| cell.cell.readers == count);
        lines.extend(ceilings.filter(|cell| cell.rate().is_some()).map(|cell| Line {
            name: format!("{}, direct", readers(count)),
            points: ticks.iter().filter_map(|(x, _)| point(cell, *x)).collect(),
            dashed: true,
        }));
    }
    let chosen = group.choice(settings).and_then(|choice| choice.chosen);
    let most = group.curve(group.readers().last().copied()?);
    let mark = chosen.and_then(|chosen| place(most.cells[chosen]));
    let mark = mark.map(|Point { x, y, .. }| PlotMark { x, y, text: "enough".to_owned() });
    Some(Plot {
        title: heading(group),
        x_name: "readahead".to_owned(),
        y_name: "MB/s of all readers".to_owned(),
        ticks,
        lines,
        marks: mark.into_iter().collect(),
    })
}

fn table(caption: String, columns: impl IntoIterator<Item = impl Into<String>>) -> Table {
    let columns = columns.into_iter().map(Into::into).collect();
    Table { caption, columns, ..Table::default() }
}

/// Remembers all of `notes` in `table`, and gives their numbers.
fn noted<'a>(table: &mut Table, notes: impl IntoIterator<Item = &'a String>) -> Vec<usize> {
    let notes: Vec<usize> = notes.into_iter().map(|note| table.note(note)).collect();
    unique(&notes)
}

/// A row for each readahead, a column for each number of readers, and direct reads as the last row.
fn throughput(group: &Group<'_>) -> Table {
    let counts = group.readers();
    let columns = ["readahead".to_owned(), "sectors".to_owned()].into_iter();
    let columns = columns.chain(counts.iter().map(|&count| readers(count)));
    let mut table = table(format!("{}: MB/s of all readers together", heading(group)), columns);
    let all = || group.cells.iter().chain(&group.ceilings).copied();
    let fastest = |cells: &mut dyn Iterator<Item = &throughput::Cell>| {
        cells.filter_map(throughput::Cell::rate).reduce(f64::max)
    };
    let highest = fastest(&mut all()).unwrap_or(1.0);
    for readahead in unique(&all().map(|cell| cell.cell.readahead).collect::<Vec<_>>()) {
        let sectors = readahead.bytes.map(|bytes| (bytes / SECTOR_BYTES).to_string());
        let sectors = sectors.map_or_else(TableCell::missing, TableCell::new);
        let mut cells = vec![TableCell::new(readahead.to_string()), sectors];
        for &count in &counts {
            let is_here = |one: &Throughput| one.readers == count && one.readahead == readahead;
            let Some(cell) = all().find(|cell| is_here(&cell.cell)) else {
                cells.push(TableCell::missing());
                continue;
            };
            let best = fastest(&mut group.curve(count).cells.into_iter());
            let mark = match (cell.cold, cell.cell.cache) {
                (false, _) => Mark::Weak,
                (true, Cache::Buffered) if cell.rate() == best => Mark::Best,
                (true, _) => Mark::Plain,
            };
            let text = cell.rate().map(|rate| numbers::number(rate / 1e6));
            cells.push(TableCell {
                share: cell.rate().map(|rate| rate / highest).filter(|_| cell.cold),
                mark,
                notes: noted(&mut table, cell.failure.iter().chain(&cell.remarks)),
                ..text.map_or_else(TableCell::missing, TableCell::new)
            });
        }
        table.rows.push(Row { group: String::new(), cells });
    }
    table
}

pub(super) fn activation(cells: &[activation::Cell]) -> Table {
    let caption = "When the kernel begins to read ahead, and what each read brought from then on";
    let columns = ["reads", "told", "begins with", "repetitions agreeing", "windows"];
    let mut table = table(caption.to_owned(), columns);
    for cell in cells {
        let (summary, readahead) = (cell.summary(), cell.cell.readahead.to_string());
        let size = |&bytes: &u64| shown_size(bytes).replace(".0 ", " ");
        let shown = summary.windows_bytes.iter().take(WINDOWS_SHOWN);
        let mut windows: Vec<String> = shown.map(size).collect();
        windows.extend((summary.windows_bytes.len() > WINDOWS_SHOWN).then(|| "…".to_owned()));
        let begins = match (summary.reads_until_ahead, summary.repetitions) {
            (_, 0) => TableCell::missing(),
            (Some(reads), _) => TableCell::new(format!("read {reads}")),
            (None, _) => TableCell::new("never"),
        };
        let reads = cell.cell.label();
        let agreeing = format!("{} of {}", summary.repetitions_agreeing, summary.repetitions);
        let notes = noted(&mut table, &cell.remarks());
        table.rows.push(Row {
            group: format!("reads of {}", typed_size(cell.cell.request_bytes)),
            cells: vec![
                TableCell::new(reads),
                TableCell::new(readahead),
                TableCell { notes, ..begins },
                TableCell::new(agreeing),
                TableCell::new(windows.join(", ")),
            ],
        });
    }
    table
}

/// A row for each readahead: each kind alone, beside the other, and what it keeps.
pub(super) fn mixture(cells: &[mixture::Cell]) -> Table {
    let columns = [
        "readahead",
        "streams, MB/s",
        "beside random readers",
        "kept, %",
        "random reads/s",
        "beside streams",
        "kept, %",
        "p99 wait, ms",
        "beside streams",
    ];
    let of = cells.first().map(|cell| (cell.cell.streams, cell.cell.random_readers));
    let (streams, random) = of.unwrap_or_default();
    let caption = format!("{streams} streams and {random} random readers, alone and together");
    let mut table = table(caption, columns);
    for three in cells.chunks(3) {
        let [streams, random, both] = three else { continue };
        let figure = |cell: &mixture::Cell, of: fn(&mixture::Round) -> Option<f64>, scale: f64| {
            let rounds: Option<Vec<f64>> = cell.rounds.iter().map(of).collect();
            let middle = rounds.and_then(|rounds| median(&rounds));
            let text = middle.map(|middle| numbers::number(middle * scale));
            let mark = if cell.cold { Mark::Plain } else { Mark::Weak };
            TableCell { mark, ..text.map_or_else(TableCell::missing, TableCell::new) }
        };
        let label = TableCell::new(streams.cell.readahead.to_string());
        let notes = noted(&mut table, three.iter().flat_map(|cell| &cell.remarks));
        table.rows.push(Row {
            group: String::new(),
            cells: vec![
                TableCell { notes, ..label },
                figure(streams, |round| round.stream_bytes_per_s, 1e-6),
                figure(both, |round| round.stream_bytes_per_s, 1e-6),
                figure(both, |round| round.stream_kept, 100.0),
                figure(random, |round| round.random_reads_per_s, 1.0),
                figure(both, |round| round.random_reads_per_s, 1.0),
                figure(both, |round| round.random_kept, 100.0),
                figure(random, |round| round.random_wait_us_p99, 1e-3),
                figure(both, |round| round.random_wait_us_p99, 1e-3),
            ],
        });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::conclusion::tests::{cell, device, settings};
    use super::super::knob::{Readahead, Told};
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Two readaheads, one and eight readers, and what eight get past the page cache.
    fn realistic() -> Vec<throughput::Cell> {
        let mut direct = cell(8, Readahead::default(), &[630.0, 640.0, 650.0]);
        (direct.cell.cache, direct.cell.request_bytes) = (Cache::Direct, MIB);
        vec![
            device(1, 4096, &[280.0, 290.0, 300.0]),
            device(1, 6 * MIB, &[308.0, 309.0, 310.0]),
            device(8, 4096, &[37.0, 38.0, 39.0]),
            device(8, 6 * MIB, &[303.0, 304.0, 305.0]),
            direct,
        ]
    }

    fn shown(throughput: Vec<throughput::Cell>) -> Section {
        let found = Found { throughput, activation: Vec::new(), mixture: Vec::new() };
        section(&found, &settings(Some(4096)))
    }

    fn plot_and_table(section: &Section) -> (&Plot, &Table) {
        let [Part::Plot(plot), Part::Table(table), ..] = &section.parts[..] else {
            panic!("{section:?}")
        };
        (plot, table)
    }

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        let mut rows = Vec::new();
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{row:?}");
            rows.push(row.cells.iter().map(|cell| cell.text.as_str()).collect());
        }
        rows
    }

    #[test]
    fn readaheads_are_rows_readers_columns_and_direct_reads_the_ceiling() {
        let section = shown(realistic());
        let (plot, table) = plot_and_table(&section);
        assert_eq!(table.columns, ["readahead", "sectors", "1 reader", "8 readers"]);
        let expected: [[&str; 4]; 3] = [
            ["4 KiB", "8", "290", "38.0"],
            ["6 MiB", "12288", "309", "304"],
            ["direct", "–", "–", "640"],
        ];
        assert_eq!(texts(table), expected);
        let best: Vec<Mark> = table.rows.iter().map(|row| row.cells[3].mark).collect();
        assert_eq!(best, [Mark::Plain, Mark::Best, Mark::Plain]);
        assert_eq!(table.rows[1].cells[3].share, Some(304.0 / 640.0));

        assert_eq!(
            plot.ticks,
            [(4096.0, "4 KiB".to_owned()), (6.0 * MIB as f64, "6 MiB".to_owned())]
        );
        let names: Vec<(&str, bool)> =
            plot.lines.iter().map(|line| (line.name.as_str(), line.dashed)).collect();
        assert_eq!(names, [("1 reader", false), ("8 readers", false), ("8 readers, direct", true)]);
        let Point { y, low, high, .. } = plot.lines[1].points[1];
        assert_eq!((y, low, high), (304.0, 303.0, 305.0));
        assert_eq!(plot.lines[2].points.len(), 2);
        assert_eq!((plot.marks[0].x, plot.marks[0].y), (6.0 * MIB as f64, 304.0));
    }

    #[test]
    fn what_was_not_cold_is_weak_on_no_curve_and_not_the_best() {
        let mut cells = realistic();
        cells[3].cold = false;
        cells[3].remarks = vec!["not cold: 1 of 2 pages stayed".to_owned(); 3];
        let section = shown(cells);
        let (plot, table) = plot_and_table(&section);
        let warm = &table.rows[1].cells[3];
        assert_eq!((warm.mark, warm.share, &warm.notes[..]), (Mark::Weak, None, &[0][..]));
        assert_eq!(table.notes, ["not cold: 1 of 2 pages stayed"]);
        assert_eq!(table.rows[0].cells[3].mark, Mark::Best);
        assert_eq!(plot.lines[1].points.len(), 1);
    }

    #[test]
    fn what_could_not_be_measured_is_a_dash_and_says_why() {
        let mut cells = realistic();
        cells[4].failure = Some("no O_DIRECT".to_owned());
        cells[4].rounds.clear();
        let section = shown(cells);
        let (plot, table) = plot_and_table(&section);
        assert_eq!(table.rows[2].cells[3].text, "–");
        assert_eq!(table.notes, ["no O_DIRECT"]);
        assert!(plot.lines.iter().all(|line| !line.dashed));
        assert!(shown(Vec::new()).parts.is_empty());
    }

    #[test]
    fn a_readahead_that_nobody_knows_has_a_row_and_no_curve() {
        let cells = [Told::Random, Told::Normal]
            .map(|told| cell(1, Readahead::descriptor(told, None), &[30.0; 3]));
        let section = shown(cells.to_vec());
        let [Part::Table(table)] = &section.parts[..] else { panic!("{section:?}") };
        assert_eq!(texts(table)[0][..2], ["none (RANDOM)", "0"]);
        assert_eq!(texts(table)[1][..2], ["unknown (NORMAL)", "–"]);
    }
}
