//! What the experiment shows: curves and tables, from its typed cells.

use super::conclusion::{Group, groups};
use super::knob::Told;
use super::mixture::{self, Mix};
use super::throughput::{self, Cache, files_name, readers};
use super::{Found, NAME, Settings, activation};
use crate::report::{
    Line, Mark, Part, Plot, PlotMark, Point, Row, Section, Table, TableCell, numbers,
};
use crate::units::{shown_size, typed_size};

/// Windows that a table shows of each row.
const WINDOWS_SHOWN: usize = 10;

/// The sectors of `blockdev --setra`.
const SECTOR_BYTES: u64 = 512;

pub(super) fn section(found: &Found, settings: &Settings) -> Section {
    let mut parts = Vec::new();
    for group in groups(&found.throughput) {
        parts.extend(plot(&group, settings).map(Part::Plot));
        parts.push(Part::Table(throughput(&group)));
    }
    parts.extend(ends(&found.throughput).map(Part::Text));
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
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for cell in &group.cells {
        let readahead = cell.cell.readahead;
        let x = readahead.bytes? as f64;
        if ticks.iter().all(|(other, _)| *other != x) {
            ticks.push((x, readahead.to_string()));
        }
    }
    let mut lines = Vec::new();
    for count in group.readers() {
        let point = |x: f64, rates: Vec<f64>, y: f64| Point {
            x,
            y: y / 1e6,
            low: rates.iter().copied().fold(f64::INFINITY, f64::min) / 1e6,
            high: rates.iter().copied().fold(0.0, f64::max) / 1e6,
        };
        let curve = group.curve(count);
        let of_cell = |cell: &&throughput::Cell| {
            Some(point(cell.cell.readahead.bytes? as f64, cell.rates(), cell.rate()?))
        };
        let points: Vec<Point> = curve.cells.iter().filter_map(of_cell).collect();
        lines.push(Line { name: readers(count), points, dashed: false });
        let ceiling = group.ceilings.iter().find(|cell| cell.cell.readers == count);
        if let Some((cell, rate)) = ceiling.and_then(|cell| Some((cell, cell.rate()?))) {
            let points = ticks.iter().map(|(x, _)| point(*x, cell.rates(), rate)).collect();
            lines.push(Line { name: format!("{}, direct", readers(count)), points, dashed: true });
        }
    }
    let chosen = group.choice(settings).and_then(|choice| choice.chosen);
    let most = group.readers().last().map(|&most| group.curve(most));
    let mark = chosen.zip(most).and_then(|(chosen, curve)| {
        let cell = curve.cells[chosen];
        let x = cell.cell.readahead.bytes? as f64;
        Some(PlotMark { x, y: cell.rate()? / 1e6, text: "enough".to_owned() })
    });
    Some(Plot {
        title: heading(group),
        x_name: "readahead".to_owned(),
        y_name: "MB/s of all readers".to_owned(),
        ticks,
        lines,
        marks: mark.into_iter().collect(),
    })
}

/// A row for each readahead, a column for each number of readers, and direct reads as the last row.
fn throughput(group: &Group<'_>) -> Table {
    let counts = group.readers();
    let mut columns = vec!["readahead".to_owned(), "sectors".to_owned()];
    columns.extend(counts.iter().map(|&count| readers(count)));
    let caption = format!("{}: MB/s of all readers together", heading(group));
    let mut table = Table { caption, columns, ..Table::default() };
    let all = || group.cells.iter().chain(&group.ceilings);
    let highest = all().filter_map(|cell| cell.rate()).fold(0.0, f64::max);
    let best = |count: u32| {
        let of_count = group.curve(count).cells;
        of_count.into_iter().filter_map(throughput::Cell::rate).fold(0.0, f64::max)
    };
    let mut labels: Vec<(String, String)> = Vec::new();
    for cell in &group.cells {
        let readahead = cell.cell.readahead;
        let sectors = readahead.bytes.map(|bytes| (bytes / SECTOR_BYTES).to_string());
        let label = (readahead.to_string(), sectors.unwrap_or_else(|| "–".to_owned()));
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels.extend((!group.ceilings.is_empty()).then(|| ("direct".to_owned(), "–".to_owned())));
    for (label, sectors) in labels {
        let mut cells = vec![TableCell::new(&label), TableCell::new(sectors)];
        for &count in &counts {
            let is_here = |cell: &&&throughput::Cell| {
                let own = match cell.cell.cache {
                    Cache::Buffered => cell.cell.readahead.to_string(),
                    Cache::Direct => "direct".to_owned(),
                };
                cell.cell.readers == count && own == label
            };
            cells.push(match all().find(is_here) {
                Some(cell) => figure(cell, highest, best(count), &mut table),
                None => TableCell::missing(),
            });
        }
        table.rows.push(Row { group: String::new(), cells });
    }
    table
}

fn figure(cell: &throughput::Cell, highest: f64, best: f64, table: &mut Table) -> TableCell {
    let failure = cell.failure.iter().map(|why| format!("not measured: {why}"));
    let notes: Vec<String> = failure.chain(cell.remarks.iter().cloned()).collect();
    let mut notes: Vec<usize> = notes.iter().map(|note| table.note(note)).collect();
    notes.dedup();
    let Some(rate) = cell.rate() else { return TableCell { notes, ..TableCell::missing() } };
    let mark = match cell.cell.cache {
        _ if !cell.is_cold() => Mark::Weak,
        Cache::Buffered if rate == best => Mark::Best,
        _ => Mark::Plain,
    };
    let share = (mark != Mark::Weak && highest > 0.0).then(|| rate / highest);
    TableCell { text: numbers::number(rate / 1e6), share, mark, notes }
}

/// What each end of the disk gives.
fn ends(cells: &[throughput::Cell]) -> Option<String> {
    let ends = cells.iter().filter(|cell| cell.cell.position.is_some());
    let told: Vec<String> = ends
        .filter_map(|cell| {
            let rate = numbers::number(cell.rate()? / 1e6);
            Some(format!("{} {rate} MB/s", cell.cell.label()))
        })
        .collect();
    (!told.is_empty()).then(|| format!("Read raw: {}.", told.join(", ")))
}

fn activation(cells: &[activation::Cell]) -> Table {
    let columns = ["reads", "told", "begins with", "repetitions agreeing", "windows"];
    let mut table = Table {
        caption: "When the kernel begins to read ahead, and what each read brought from then on"
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        ..Table::default()
    };
    for cell in cells {
        let (summary, mut notes) = (cell.summary(), Vec::new());
        notes.extend(cell.failure.iter().chain(&cell.remarks()).map(|note| table.note(note)));
        let size = |&bytes: &u64| shown_size(bytes).replace(".0 ", " ");
        let mut windows: Vec<String> =
            summary.windows_bytes.iter().take(WINDOWS_SHOWN).map(size).collect();
        windows.extend((summary.windows_bytes.len() > WINDOWS_SHOWN).then(|| "…".to_owned()));
        let begins = match (summary.reads_until_ahead, summary.repetitions) {
            (_, 0) => "–".to_owned(),
            (Some(reads), _) => format!("read {reads}"),
            (None, _) => "never".to_owned(),
        };
        let told = match (cell.cell.readahead.told, cell.cell.readahead.bytes) {
            (Some(Told::Random), _) => "RANDOM".to_owned(),
            _ => cell.cell.readahead.to_string(),
        };
        let agreeing = format!("{} of {}", summary.repetitions_agreeing, summary.repetitions);
        table.rows.push(Row {
            group: format!("reads of {}", typed_size(cell.cell.request_bytes)),
            cells: vec![
                TableCell::new(
                    format!("{:?}, {}", cell.cell.start, cell.cell.reads()).to_lowercase(),
                ),
                TableCell::new(told),
                TableCell { notes, ..TableCell::new(begins) },
                TableCell::new(agreeing),
                TableCell::new(windows.join(", ")),
            ],
        });
    }
    table
}

/// A row for each readahead: each kind alone, beside the other, and what it keeps.
fn mixture(cells: &[mixture::Cell]) -> Table {
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
    let mut table = Table {
        caption: format!("{streams} streams and {random} random readers, alone and together"),
        columns: columns.map(str::to_owned).to_vec(),
        ..Table::default()
    };
    for three in cells.chunks(3) {
        let of_mix = |mix| three.iter().find(|cell| cell.cell.mix == mix);
        let (streams, random, both) =
            (of_mix(Mix::Streams), of_mix(Mix::Random), of_mix(Mix::Both));
        let figure = |cell: Option<&mixture::Cell>, of: fn(&mixture::Round) -> Option<f64>| {
            let rounds: Option<Vec<f64>> =
                cell.and_then(|cell| cell.rounds.iter().map(of).collect());
            let middle = rounds.and_then(|rounds| crate::statistics::median(&rounds));
            let Some(middle) = middle else { return TableCell::missing() };
            let mark =
                if cell.is_some_and(mixture::Cell::is_cold) { Mark::Plain } else { Mark::Weak };
            TableCell { mark, ..TableCell::new(numbers::number(middle)) }
        };
        let rate: fn(&mixture::Round) -> Option<f64> =
            |round| Some(round.stream_bytes_per_s? / 1e6);
        let wait: fn(&mixture::Round) -> Option<f64> =
            |round| Some(round.random_wait_us_p99? / 1e3);
        let reads: fn(&mixture::Round) -> Option<f64> = |round| round.random_reads_per_s;
        let kept = both.map_or([None; 2], mixture::kept);
        let kept = kept.map(|kept| match kept {
            Some(kept) => TableCell::new(numbers::percent(kept.value)),
            None => TableCell::missing(),
        });
        let [stream_kept, random_kept] = kept;
        let remarks = three.iter().flat_map(|cell| &cell.remarks);
        let mut notes: Vec<usize> = remarks.map(|remark| table.note(remark)).collect();
        notes.dedup();
        let label = three[0].cell.readahead.to_string();
        table.rows.push(Row {
            group: String::new(),
            cells: vec![
                TableCell { notes, ..TableCell::new(label) },
                figure(streams, rate),
                figure(both, rate),
                stream_kept,
                figure(random, reads),
                figure(both, reads),
                random_kept,
                figure(random, wait),
                figure(both, wait),
            ],
        });
    }
    table
}
