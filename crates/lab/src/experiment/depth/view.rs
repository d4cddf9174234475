//! What the page and the terminal show of `depth`: the plot with its knee, and tables over the depth.

use forebay_io::CacheMode;

use super::NAME;
use super::cell::{Engine, Figures, Line, Row};
use super::conclusion::fastest;
use crate::experiment::rounds;
use crate::report::{
    Line as Curve, Mark, Part, Plot, PlotMark, Point, Row as TableRow, Section, Table, TableCell,
    numbers,
};
use crate::statistics::median;

/// A metric with a table of its own: what it is, how a round has it, and how it reads.
type Metric = (&'static str, fn(&Figures) -> Option<f64>, fn(f64) -> String);

const OTHERS: [Metric; 6] = [
    ("Median wait of the reader for a block, in µs", |it| it.wait_us_p50, numbers::number),
    (
        "Wait for a block that 99 of 100 do not exceed, in µs; of 1,000 waits or more",
        |it| it.wait_us_p99,
        numbers::number,
    ),
    (
        "Requests that reached the device, for each block read",
        |it| Some(it.device_requests? as f64 / it.blocks.max(1) as f64),
        numbers::number,
    ),
    (
        "Over-read, in %: what the device read beyond the blocks",
        |it| it.over_read,
        numbers::percent,
    ),
    ("Processor time for each block, in µs", |it| Some(it.cpu_us_per_block), numbers::number),
    ("Throughput, in MB/s", |it| Some(it.bytes_per_s / 1e6), numbers::number),
];

/// The section. `lines`: those of `rows` that are evidence.
pub(super) fn section(rows: &[Row], lines: &[Line<'_>]) -> Section {
    let mut parts = vec![Part::Table(rates(rows, lines))];
    let measured = |(_, of, _): &&Metric| {
        rows.iter().flat_map(|row| &row.rounds).any(|round| of(round).is_some())
    };
    parts.extend(OTHERS.iter().filter(measured).map(|metric| Part::Table(other(rows, metric))));
    Section {
        name: NAME,
        title: "Prefetch depth".to_owned(),
        about: "Random reads while so many of the next blocks are in flight. The knee of a line is the \
                smallest depth that reaches the best of all depths; more prefetching gains nothing."
            .to_owned(),
        parts,
        headline: plot(lines),
    }
}

fn depths(rows: &[Row]) -> Vec<u32> {
    let mut depths: Vec<u32> = rows.iter().map(|row| row.cell.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

fn plot(lines: &[Line<'_>]) -> Option<Plot> {
    let rows: Vec<Row> = lines.iter().flat_map(|line| line.rows.iter().copied().cloned()).collect();
    let point = |row: &&Row| {
        let ((low, high), x) = (rounds::range(&row.rates()), f64::from(row.cell.depth));
        Some(Point { x, y: row.rate()?, low, high })
    };
    let curve = |line: &Line<'_>| Curve {
        name: line.label(),
        points: line.rows.iter().filter_map(point).collect(),
        dashed: line.cell().cache == CacheMode::Buffered,
    };
    let ours: Vec<&Line<'_>> =
        lines.iter().filter(|line| line.cell().backend != Engine::Fio).collect();
    let best = fastest(&ours)?;
    let mark = best.knee().map(|knee| PlotMark {
        x: f64::from(knee.cell.depth),
        y: knee.rate().unwrap_or(0.0),
        text: format!("knee of {}: {}", best.label(), knee.cell.depth),
    });
    Some(Plot {
        title: "Random reads by prefetch depth".to_owned(),
        x_name: "blocks prefetched".to_owned(),
        y_name: "blocks/s".to_owned(),
        ticks: depths(&rows).iter().map(|&at| (f64::from(at), at.to_string())).collect(),
        lines: lines.iter().map(curve).collect(),
        marks: mark.into_iter().collect(),
    })
}

/// Blocks per second, with the knee of each line marked and the remarks of all cells as notes.
fn rates(rows: &[Row], lines: &[Line<'_>]) -> Table {
    let knees: Vec<_> = lines.iter().filter_map(Line::knee).map(|knee| knee.cell).collect();
    let highest = rows.iter().filter(|row| row.is_evidence()).filter_map(Row::rate);
    let highest = highest.fold(0.0, f64::max);
    let caption = "Blocks per second, median of the rounds; the knee of each line is marked";
    let mut notes = Table::default();
    let mut table = by_depth(rows, caption, |row| {
        let mark = match row {
            row if !row.is_evidence() => Mark::Weak,
            row if knees.contains(&row.cell) => Mark::Best,
            _ => Mark::Plain,
        };
        let share = row.rate().filter(|_| mark != Mark::Weak && highest > 0.0);
        let text = row.rate().map_or_else(|| "–".to_owned(), numbers::number);
        let remarks = row.notes();
        let notes = remarks.iter().map(|remark| notes.note(remark)).collect();
        TableCell { text, share: share.map(|rate| rate / highest), mark, notes }
    });
    table.notes = notes.notes;
    table
}

fn other(rows: &[Row], (caption, of, text): &Metric) -> Table {
    by_depth(rows, caption, |row| {
        let values: Option<Vec<f64>> = row.rounds.iter().map(of).collect();
        let middle = values.and_then(|values| median(&values));
        middle.map_or_else(TableCell::missing, |middle| TableCell::new(text(middle)))
    })
}

/// A table of a row for each line and a column for each depth.
fn by_depth(rows: &[Row], caption: &str, mut cell: impl FnMut(&Row) -> TableCell) -> Table {
    let depths = depths(rows);
    let mut labels: Vec<String> = rows.iter().map(|row| row.cell.line_label()).collect();
    labels.dedup();
    let table_row = |label: &String| {
        let of_line = |depth| {
            rows.iter().find(|row| row.cell.depth == depth && row.cell.line_label() == *label)
        };
        let figures =
            depths.iter().map(|&depth| of_line(depth).map_or_else(TableCell::default, &mut cell));
        let cells = std::iter::once(TableCell::new(label)).chain(figures).collect();
        TableRow { group: String::new(), cells }
    };
    let rows = labels.iter().map(table_row).collect();
    let columns = std::iter::once("prefetch depth".to_owned());
    Table {
        caption: caption.to_owned(),
        columns: columns.chain(depths.iter().map(u32::to_string)).collect(),
        rows,
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_io::Kind;

    use super::super::cell::sample::line;
    use super::*;

    #[test]
    fn the_plot_has_a_tick_for_every_point_and_the_knee_of_the_fastest_line() {
        let mut rows = line(Kind::Sync, None, &[(1, 10.0), (64, 20.0)]);
        rows.extend(line(Kind::Uring, None, &[(1, 10.0), (16, 48.0), (64, 50.0)]));
        let lines = Line::all(&rows);
        let plot = section(&rows, &lines).headline.unwrap();
        let ticks: Vec<f64> = plot.ticks.iter().map(|tick| tick.0).collect();
        assert_eq!(ticks, [1.0, 16.0, 64.0]);
        assert!(plot.lines.iter().flat_map(|line| &line.points).all(|one| ticks.contains(&one.x)));
        assert_eq!((plot.marks[0].x, plot.marks.len()), (16.0, 1));
        assert!(plot.lines[1].points[1].low < plot.lines[1].points[1].y);
    }

    #[test]
    fn tables_have_a_cell_for_every_column_and_say_what_is_weak() {
        let mut rows = line(Kind::Sync, None, &[(1, 10.0), (64, 20.0)]);
        rows.extend(line(Kind::Uring, None, &[(16, 9000.0)]));
        rows[2].cold = false;
        rows[2].remarks.push("not cold: 5 of 9 pages".to_owned());
        let section = section(&rows, &Line::all(&rows));
        for part in &section.parts {
            let Part::Table(table) = part else { panic!("{part:?}") };
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        }
        let Part::Table(rates) = &section.parts[0] else { panic!() };
        let weak = &rates.rows[1].cells[2];
        assert_eq!((weak.mark, weak.share), (Mark::Weak, None));
        assert_eq!(rates.notes[weak.notes[0]], "not cold: 5 of 9 pages");
        assert_eq!(rates.rows[0].cells[3].mark, Mark::Best);
        assert_eq!(rates.rows[0].cells[3].share, Some(1.0), "a warm rate is no measure");
    }
}
