//! The section of the experiment: curves and tables, from its typed cells.

use forebay_io::CacheMode;

use super::conclusion::{Group, SECTOR_BYTES, groups};
use super::settings::{NAME, Settings};
use super::throughput::{Throughput, readers};
use super::{activation, mixture, throughput};
use forebay_measure::lists::unique;
use forebay_measure::report::{Line, Mark, Part, Plot, Point, Section, Table, TableCell};
use forebay_measure::statistics::Floor;
use forebay_measure::units::{shown_size, typed_size};

/// The rounds of all cells.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) throughput: Vec<throughput::Cell>,
    pub(super) activation: Vec<activation::Cell>,
    pub(super) mixture: Vec<mixture::Cell>,
}

/// Windows that a table shows of each row.
const WINDOWS_SHOWN: usize = 10;

pub(super) fn section(found: &Found, settings: &Settings, floor: Floor) -> Section {
    let mut parts = Vec::new();
    for group in groups(&found.throughput, floor) {
        parts.extend([Part::Plot(plot(&group, settings)), Part::Table(throughput(&group))]);
    }
    let others = [activation(&found.activation), mixture(&found.mixture)];
    parts.extend(others.into_iter().filter(|table| !table.rows.is_empty()).map(Part::Table));
    Section {
        name: NAME,
        title: "The kernel's readahead".to_owned(),
        about: "What all readers together get when each of them reads its share from beginning to end, under \
                each readahead of the kernel. A disk that serves several streams moves between them; only \
                what is read at each stop pays for the way. Direct reads, large and many in flight, show what \
                the disk could give."
            .to_owned(),
        parts,
    }
}

/// MB/s over readahead, a line for each number of readers and a dashed one for the disk's upper bound.
/// Only comparable cells are on a curve.
fn plot(group: &Group<'_>, settings: &Settings) -> Plot {
    let readaheads = group.cells.iter().map(|cell| cell.cell.readahead);
    let readaheads = unique(&readaheads.collect::<Vec<_>>());
    let point = |cell: &throughput::Cell, x: usize| {
        let rates: Vec<f64> = cell.rates().iter().map(|rate| rate / 1e6).collect();
        Point::of(x, &rates)
    };
    let place = |cell: &throughput::Cell| {
        point(cell, readaheads.iter().position(|it| *it == cell.cell.readahead)?)
    };
    let mut lines = Vec::new();
    for count in group.readers() {
        let points = group.curve(count).cells.into_iter().filter_map(place).collect();
        lines.push(Line { name: readers(count), points, dashed: false });
        let ceilings = group.ceilings.iter().filter(|cell| cell.cell.readers == count);
        lines.extend(ceilings.filter(|cell| cell.rate().is_some()).map(|cell| Line {
            name: format!("{}, direct", readers(count)),
            points: (0..readaheads.len()).filter_map(|tick| point(cell, tick)).collect(),
            dashed: true,
        }));
    }
    let choice = group.choice(settings);
    let mark = choice.and_then(|choice| place(choice.many.cells[choice.reached()?]));
    Plot {
        title: group.cells[0].cell.reads(),
        x_name: "readahead".to_owned(),
        y_name: "MB/s of all readers".to_owned(),
        ticks: readaheads.iter().map(ToString::to_string).collect(),
        lines,
        mark: mark.map(|point| (point, "enough".to_owned())),
    }
}

/// A row for each readahead, a column for each number of readers, and direct reads as the last row.
fn throughput(group: &Group<'_>) -> Table {
    let counts = group.readers();
    let columns = ["readahead".to_owned(), "sectors".to_owned()].into_iter();
    let mut table = Table::new(
        format!("{}: MB/s of all readers together", group.cells[0].cell.reads()),
        columns.chain(counts.iter().map(|&count| readers(count))),
    );
    let all = || group.cells.iter().chain(&group.ceilings).copied();
    let highest = all().filter_map(throughput::Cell::rate).fold(0.0, f64::max);
    for readahead in unique(&all().map(|cell| cell.cell.readahead).collect::<Vec<_>>()) {
        let sectors = |bytes: u64| (bytes / SECTOR_BYTES).to_string();
        let sectors = readahead.bytes.map_or("–".to_owned(), sectors);
        let mut cells = vec![TableCell::new(readahead.to_string()), TableCell::new(sectors)];
        cells.extend(counts.iter().map(|&count| {
            let is_here = |one: &Throughput| one.readers == count && one.readahead == readahead;
            let cell = all().find(|cell| is_here(&cell.cell));
            cell.map_or_else(|| TableCell::figure(None), |cell| rate(group, cell, highest))
        }));
        table.push(String::new(), cells);
    }
    table
}

/// A cell's rate, compared with the `highest` rate of its table.
fn rate(group: &Group<'_>, cell: &throughput::Cell, highest: f64) -> TableCell {
    let compared = group.curve(cell.cell.readers).cells;
    let best = compared.iter().filter_map(|cell| cell.rate()).reduce(f64::max);
    let mark = match (cell.cold, cell.cell.cache) {
        (false, _) => Mark::Weak,
        (true, CacheMode::Buffered) if cell.rate() == best => Mark::Best,
        (true, _) => Mark::Plain,
    };
    let share = cell.rate().map(|rate| rate / highest).filter(|_| cell.cold);
    let text = TableCell::figure(cell.rate().map(|rate| rate / 1e6));
    TableCell { share, mark, ..text }.with_notes(&cell.notes())
}

pub(super) fn activation(cells: &[activation::Cell]) -> Table {
    let begins = |cell: &activation::Cell| {
        let summary = cell.summary();
        let text = match (summary.reads_until_ahead, summary.repetitions) {
            (_, 0) => "–".to_owned(),
            (Some(reads), _) => format!("read {reads}"),
            (None, _) => "never".to_owned(),
        };
        TableCell::new(text).with_notes(&cell.remarks())
    };
    let agreeing = |cell: &activation::Cell| {
        let summary = cell.summary();
        format!("{} of {}", summary.repetitions_agreeing, summary.repetitions)
    };
    let windows = |cell: &activation::Cell| {
        let windows = cell.summary().windows_bytes;
        let sizes = windows.iter().map(|&bytes| shown_size(bytes).replace(".0 ", " "));
        let mut shown: Vec<String> = sizes.take(WINDOWS_SHOWN).collect();
        shown.extend((windows.len() > WINDOWS_SHOWN).then(|| "…".to_owned()));
        shown.join(", ")
    };
    Table::of(
        "When the kernel begins to read ahead, and what each read brought from then on",
        cells,
        |cell| format!("reads of {}", typed_size(cell.cell.request_bytes)),
        &[
            ("reads", &|cell| TableCell::new(cell.cell.label())),
            ("advice", &|cell| TableCell::new(cell.cell.readahead.to_string())),
            ("begins with", &begins),
            ("repetitions agreeing", &|cell| TableCell::new(agreeing(cell))),
            ("windows", &|cell| TableCell::new(windows(cell))),
        ],
    )
}

/// A row for each readahead: each kind alone, together with the other, and the part that it keeps.
pub(super) fn mixture(cells: &[mixture::Cell]) -> Table {
    let of = cells.first().map(|cell| (cell.cell.streams, cell.cell.random_readers));
    let (streams, random) = of.unwrap_or_default();
    let figure = |cell: &mixture::Cell, of: fn(&mixture::Round) -> Option<f64>| {
        let mark = if cell.cold { Mark::Plain } else { Mark::Weak };
        TableCell { mark, ..TableCell::figure(cell.median(of)) }
    };
    let streams_mb = |round: &mixture::Round| Some(round.stream_bytes_per_s? / 1e6);
    let wait_ms = |round: &mixture::Round| Some(round.random_wait_us_p99? / 1e3);
    let label = |three: &[mixture::Cell; 3]| {
        let notes = three.iter().flat_map(|cell| cell.remarks.clone());
        TableCell::new(three[0].cell.readahead.to_string()).with_notes(&notes.collect::<Vec<_>>())
    };
    let (threes, _) = cells.as_chunks::<3>();
    Table::of(
        format!("{streams} streams and {random} random readers, alone and together"),
        threes,
        |_| String::new(),
        &[
            ("readahead", &label),
            ("streams, MB/s", &|[streams, ..]| figure(streams, streams_mb)),
            ("with random readers", &|[.., both]| figure(both, streams_mb)),
            ("kept, %", &|[.., both]| figure(both, |it| Some(it.stream_kept? * 100.0))),
            ("random reads/s", &|[_, random, _]| figure(random, |it| it.random_reads_per_s)),
            ("with streams", &|[.., both]| figure(both, |it| it.random_reads_per_s)),
            ("kept, %", &|[.., both]| figure(both, |it| Some(it.random_kept? * 100.0))),
            ("p99 wait, ms", &|[_, random, _]| figure(random, wait_ms)),
            ("with streams", &|[.., both]| figure(both, wait_ms)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::super::conclusion::tests::{cell, device, settings};
    use super::super::control::{Fadvise, Readahead};
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Two readaheads, one and eight readers, and the rate of eight past the page cache.
    fn realistic() -> Vec<throughput::Cell> {
        let mut direct = cell(8, Readahead::default(), &[630.0, 640.0, 650.0]);
        (direct.cell.cache, direct.cell.request_bytes) = (CacheMode::Direct, MIB);
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
        section(&found, &settings(Some(4096)), Floor::default())
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

        assert_eq!(plot.ticks, ["4 KiB", "6 MiB"]);
        let names: Vec<(&str, bool)> =
            plot.lines.iter().map(|line| (line.name.as_str(), line.dashed)).collect();
        assert_eq!(names, [("1 reader", false), ("8 readers", false), ("8 readers, direct", true)]);
        let Point { y, low, high, .. } = plot.lines[1].points[1];
        assert_eq!((y, low, high), (304.0, 303.0, 305.0));
        assert_eq!(plot.lines[2].points.len(), 2);
        assert!(plot.mark.is_none(), "a larger one was not measured");
        let mut more = realistic();
        more.splice(
            4..4,
            [(1, 310.0), (8, 305.0)].map(|(count, rate)| device(count, 24 * MIB, &[rate; 3])),
        );
        let section = shown(more);
        let mark = plot_and_table(&section).0.mark.as_ref();
        assert_eq!(mark.map(|(at, _)| (at.x, at.y)), Some((1, 304.0)));
    }

    #[test]
    fn what_was_not_cold_is_weak_on_no_curve_and_not_the_best() {
        let mut cells = realistic();
        cells[3].cold = false;
        cells[3].remarks = vec!["not cold: 1 of 2 pages stayed".to_owned(); 3];
        let section = shown(cells);
        let (plot, table) = plot_and_table(&section);
        let warm = &table.rows[1].cells[3];
        assert_eq!((warm.mark, warm.share), (Mark::Weak, None));
        assert_eq!(warm.notes, ["not cold: 1 of 2 pages stayed"]);
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
        assert_eq!(table.notes(), ["not measured: no O_DIRECT"]);
        assert!(plot.lines.iter().all(|line| !line.dashed));
        assert!(shown(Vec::new()).parts.is_empty());
    }

    #[test]
    fn an_unknown_readahead_has_a_row_and_a_tick() {
        let cells = [Fadvise::Random, Fadvise::Normal]
            .map(|advice| cell(1, Readahead::descriptor(advice, None), &[30.0; 3]));
        let section = shown(cells.to_vec());
        let (plot, table) = plot_and_table(&section);
        assert_eq!(plot.ticks, ["none (RANDOM)", "unknown (NORMAL)"]);
        assert_eq!(texts(table)[0][..2], ["none (RANDOM)", "0"]);
        assert_eq!(texts(table)[1][..2], ["unknown (NORMAL)", "–"]);
    }
}
