//! The section of `depth` on the page and the terminal: the plot with its knee, and tables over the depth.

use forebay_io::CacheMode;

use super::cell::{Figures, Line, Row};
use super::conclusion::fastest;
use super::settings::NAME;
use forebay_measure::lists::sorted;
use forebay_measure::lists::unique;
use forebay_measure::report::{Line as Curve, Mark, Part, Plot, Point, Section, Table, TableCell};

/// A metric with a separate table: its name, and its value in a round.
type Metric = (&'static str, fn(&Figures) -> Option<f64>);

const OTHERS: [Metric; 6] = [
    ("Median wait of the reader for a block, in µs", |it| it.wait_us_p50),
    ("Wait for a block that 99 of 100 do not exceed, in µs; of 1,000 waits or more", |it| {
        it.wait_us_p99
    }),
    ("Requests that reached the device, for each block read", |it| {
        Some(it.device_requests? as f64 / it.blocks.max(1) as f64)
    }),
    ("Over-read, in %: what the device read beyond the blocks", |it| Some(it.over_read? * 100.0)),
    ("Processor time for each block, in µs", |it| Some(it.cpu_us_per_block)),
    ("Throughput, in MB/s", |it| Some(it.bytes_per_s / 1e6)),
];

/// The section. `lines`: those of `rows` that are evidence.
pub(super) fn section(rows: &[Row], lines: &[Line<'_>]) -> Section {
    let mut parts: Vec<Part> = plot(lines).into_iter().map(Part::Plot).collect();
    parts.push(Part::Table(rates(rows, lines)));
    parts.extend(OTHERS.iter().map(|(caption, of)| {
        Part::Table(by_depth(rows, caption, |row| TableCell::figure(row.median(of))))
    }));
    Section {
        name: NAME,
        title: "Prefetch depth".to_owned(),
        about: "Random reads while so many of the next blocks are in flight. The knee of a line is the \
                smallest depth that reaches the best of all depths; more prefetching gains nothing. A line \
                that is the fastest at its largest depth has none: its knee is not reached."
            .to_owned(),
        parts,
    }
}

fn depths<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<u32> {
    sorted(&rows.into_iter().map(|row| row.cell.depth).collect::<Vec<_>>())
}

fn plot(lines: &[Line<'_>]) -> Option<Plot> {
    let depths = depths(lines.iter().flat_map(|line| line.rows.iter().copied()));
    let point = |row: &Row| Point::of(depths.binary_search(&row.cell.depth).ok()?, &row.rates());
    let curve = |line: &Line<'_>| Curve {
        name: line.label(),
        points: line.rows.iter().filter_map(|row| point(row)).collect(),
        dashed: line.cell().cache == CacheMode::Buffered,
    };
    let ours: Vec<&Line<'_>> = lines.iter().filter(|line| line.cell().backend.is_some()).collect();
    let best = fastest(&ours)?;
    let name = |knee: Point| (knee, format!("knee of {}: {}", best.label(), depths[knee.x]));
    Some(Plot {
        title: "Random reads by prefetch depth".to_owned(),
        x_name: "blocks prefetched".to_owned(),
        y_name: "blocks/s".to_owned(),
        ticks: depths.iter().map(u32::to_string).collect(),
        lines: lines.iter().map(curve).collect(),
        mark: best.knee().and_then(point).map(name),
    })
}

/// Blocks per second, with the knee of each line marked and the remarks of all cells as notes.
fn rates(rows: &[Row], lines: &[Line<'_>]) -> Table {
    let knees: Vec<_> = lines.iter().filter_map(Line::knee).map(|knee| knee.cell).collect();
    let cold = rows.iter().filter(|row| row.is_evidence());
    let highest = cold.filter_map(Row::rate).fold(0.0, f64::max);
    let caption = "Blocks per second, median of the rounds; the knee of each line is marked";
    by_depth(rows, caption, |row| {
        let mark = match row {
            row if !row.is_evidence() => Mark::Weak,
            row if knees.contains(&row.cell) => Mark::Best,
            _ => Mark::Plain,
        };
        let share = row.rate().filter(|_| mark != Mark::Weak && highest > 0.0);
        let share = share.map(|rate| rate / highest);
        let notes = row.notes();
        TableCell { share, mark, notes, ..TableCell::figure(row.rate()) }
    })
}

/// A table of a row for each line and a column for each depth.
fn by_depth(rows: &[Row], caption: &str, cell: impl Fn(&Row) -> TableCell) -> Table {
    let depths = depths(rows);
    let columns = std::iter::once("prefetch depth".to_owned());
    let mut table = Table::new(caption, columns.chain(depths.iter().map(u32::to_string)));
    for label in unique(&rows.iter().map(|row| row.cell.line_label()).collect::<Vec<_>>()) {
        let of_line = |depth: &u32| {
            rows.iter().find(|row| row.cell.depth == *depth && row.cell.line_label() == label)
        };
        let figures =
            depths.iter().map(|depth| of_line(depth).map_or_else(TableCell::default, &cell));
        table.push(String::new(), std::iter::once(TableCell::new(&label)).chain(figures).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use forebay_io::Kind;

    use super::super::cell::sample::line;
    use super::*;
    use forebay_measure::statistics::Floor;

    #[test]
    fn the_plot_has_a_tick_for_every_point_and_the_knee_of_the_fastest_line() {
        let mut rows = line(Kind::Sync, None, &[(1, 10.0), (64, 20.0)]);
        rows.extend(line(Kind::Uring, None, &[(1, 10.0), (16, 49.0), (64, 50.0)]));
        let lines = Line::all(&rows, Floor::default());
        let plot = plot(&lines).unwrap();
        assert_eq!(plot.ticks, ["1", "16", "64"]);
        let places: Vec<usize> = plot.lines[0].points.iter().map(|point| point.x).collect();
        assert_eq!(places, [0, 2], "the line of sync has nothing at 16");
        assert_eq!(plot.mark.unwrap().0.x, 1);
        assert!(plot.lines[1].points[1].low < plot.lines[1].points[1].y);
    }

    #[test]
    fn tables_have_a_cell_for_every_column_and_say_what_is_weak() {
        let mut rows = line(Kind::Sync, None, &[(1, 10.0), (64, 20.0)]);
        rows.extend(line(Kind::Uring, None, &[(16, 9000.0)]));
        rows[2].cold = false;
        rows[2].remarks.push("not cold: 5 of 9 pages".to_owned());
        let section = section(&rows, &Line::all(&rows, Floor::default()));
        for part in &section.parts[1..] {
            let Part::Table(table) = part else { panic!("{part:?}") };
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        }
        let Part::Table(rates) = &section.parts[1] else { panic!() };
        let weak = &rates.rows[1].cells[2];
        assert_eq!((weak.mark, weak.share), (Mark::Weak, None));
        assert_eq!(weak.notes, ["not cold: 5 of 9 pages"]);
        assert_eq!(rates.rows[0].cells[3].mark, Mark::Plain, "a knee at the edge is not reached");
        assert_eq!(rates.rows[0].cells[3].share, Some(1.0), "a warm rate is no measure");
    }
}
