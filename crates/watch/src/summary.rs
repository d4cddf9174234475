//! The result of a watch, as data and as text.
//!
//! Invariants:  [SUM-1] the text names at most `FILES_SHOWN` files

use anstyle::Style;
use serde::Serialize;

use super::file_table::{FileName, FileTable};
use super::predict::Prediction;
use super::stats::{FileStats, Sizes, Stats};
use forebay_measure::output::printable_line;
use forebay_measure::report::terminal::text::{ascii, push_line, push_wrapped, styled};
use forebay_measure::report::terminal::{self, Look};
use forebay_measure::report::{Table, TableCell, numbers};
use forebay_measure::units::shown_size;

/// Maximum number of files that the text names; those with the longest waits come first.
pub(super) const FILES_SHOWN: usize = 20;

/// Shown for a value of zero.
const NOTHING: &str = "–";

/// Maximum number of characters shown of a name.
const NAME_MAX: usize = 34;

pub(super) const LEGEND: &str = "strip: S in sequence, R random, . hits, ! read ahead but not there in time; the newest to the right";

/// The result.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Summary {
    schema: &'static str,
    pub(super) forebay: &'static str,
    /// The process, service or command that was watched.
    subject: String,
    /// Where the events come from, and which are missing.
    source: String,
    pub(super) seconds: f64,
    processes: usize,
    pub(super) remarks: Vec<String>,
    pub(super) files: Vec<File>,
    pub(super) devices: Vec<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prediction: Option<Prediction>,
}

/// Reads, writes or requests: count, bytes, and a histogram of sizes by powers of two.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Transfers {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) sizes: Vec<(u64, u64)>,
}

impl From<&Sizes> for Transfers {
    fn from(sizes: &Sizes) -> Transfers {
        Transfers { count: sizes.count, bytes: sizes.bytes, sizes: sizes.seen().collect() }
    }
}

/// One file.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct File {
    /// The PostgreSQL relation, the path, or the inode number.
    pub(super) name: String,
    path: Option<String>,
    pub(super) reads: Transfers,
    pub(super) writes: Transfers,
    pub(super) requests: Transfers,
    requests_written: Transfers,
    hits: u64,
    ahead_bytes: u64,
    unused_bytes: u64,
    /// Read because the program advised the kernel.
    advised_bytes: u64,
    pub(super) syncs: u64,
    sync_seconds: f64,
    sync_longest_seconds: f64,
    waits: u64,
    pub(super) wait_seconds: f64,
    wait_longest_seconds: f64,
    pub(super) avoidable: Avoidable,
    pub(super) strip: String,
}

/// Seconds of waiting for blocks that could have been known earlier, by how they could.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Avoidable {
    sequence_seconds: f64,
    stride_seconds: f64,
    range_seconds: f64,
}

impl Avoidable {
    pub(super) fn seconds(self) -> f64 {
        self.sequence_seconds + self.stride_seconds + self.range_seconds
    }
}

/// Requests to one device, from all processes and from the watched ones.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Device {
    pub(super) name: String,
    read: Transfers,
    written: Transfers,
    own_read: Transfers,
    own_written: Transfers,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Summary {
    /// The state of `stats` after `seconds`, with the names in `file_table`. `page_bytes`: page size of the page cache.
    pub(super) fn of(
        stats: &Stats,
        file_table: &FileTable,
        page_bytes: u64,
        seconds: f64,
    ) -> Summary {
        let mut files: Vec<File> = stats
            .files()
            .map(|(number, file)| File::of(file, file_table.file(number), page_bytes))
            .collect();
        files.sort_by(|one, other| {
            let weight = |file: &File| file.reads.bytes + file.writes.bytes + file.requests.bytes;
            other.wait_seconds.total_cmp(&one.wait_seconds).then(weight(other).cmp(&weight(one)))
        });
        let devices = stats.devices.iter().map(|(&device, of)| Device {
            name: printable_line(&file_table.device(device)),
            read: (&of.read).into(),
            written: (&of.written).into(),
            own_read: (&of.own_read).into(),
            own_written: (&of.own_written).into(),
        });
        let devices = devices.collect();
        Summary {
            schema: "forebay-watch/1",
            forebay: env!("CARGO_PKG_VERSION"),
            subject: printable_line(&file_table.subject),
            source: printable_line(&file_table.source),
            seconds,
            processes: file_table.processes,
            remarks: file_table.remarks.iter().map(|remark| printable_line(remark)).collect(),
            files,
            devices,
            prediction: None,
        }
    }

    /// Sums over all files.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for file in &self.files {
            totals.reads += file.reads.count;
            totals.read_bytes += file.reads.bytes;
            totals.requests += file.requests.count;
            totals.writes += file.writes.count;
            totals.written_bytes += file.writes.bytes;
            totals.syncs += file.syncs;
            totals.wait_seconds += file.wait_seconds;
            totals.avoidable_seconds += file.avoidable.seconds();
        }
        totals
    }

    /// Title: the subject, its number of processes, and how long it was watched.
    pub(super) fn title(&self) -> String {
        let processes = match self.processes {
            // Those that called nothing are not counted.
            0 => "no active process".to_owned(),
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        format!("{}: {processes}, {}", self.subject, numbers::seconds(self.seconds))
    }

    /// The whole result as text.
    pub(super) fn drawn(&self, look: Look) -> String {
        let mut text = String::new();
        let title = self.title();
        push_wrapped(&mut text, "", &title, look.width);
        push_wrapped(&mut text, "source: ", &self.source, look.width);
        for remark in &self.remarks {
            push_wrapped(&mut text, "* ", remark, look.width);
        }
        push_line(&mut text, "");
        if self.files.is_empty() {
            push_line(&mut text, "No file on a disk was read, written or synced.");
        } else {
            text.push_str(&terminal::drawn(&self.table(), look));
            let more = self.files.len() - self.shown().len();
            if more > 0 {
                push_line(&mut text, &format!("and {more} more files"));
            }
        }
        if let Some(waiting) = self.waiting() {
            push_wrapped(&mut text, "", &waiting, look.width);
        }
        for device in &self.devices {
            push_wrapped(&mut text, &format!("{}: ", device.name), &device.sentence(), look.width);
        }
        let (strips, widest) = self.strips(FILES_SHOWN);
        if !strips.is_empty() {
            push_line(&mut text, "");
        }
        for file in &strips {
            let name = format!("{:widest$}", file.short());
            let room = look.width.saturating_sub(widest + 2).max(10);
            push_line(
                &mut text,
                &format!("{}  {}", styled(&name, Style::new().dimmed(), look), file.newest(room)),
            );
        }
        if !strips.is_empty() {
            push_wrapped(&mut text, "", LEGEND, look.width);
        }
        if look.ascii { ascii(&text) } else { text }
    }

    /// A sentence on how long reads waited, and how much of that was avoidable.
    fn waiting(&self) -> Option<String> {
        let of = |part: fn(&Avoidable) -> f64| {
            self.files.iter().map(|file| part(&file.avoidable)).sum::<f64>()
        };
        let parts = [
            (of(|it| it.sequence_seconds), "in sequence"),
            (of(|it| it.stride_seconds), "at a constant stride"),
            (of(|it| it.range_seconds), "named by an index block"),
        ];
        let totals = self.totals();
        if totals.wait_seconds <= 0.0 {
            return None;
        }
        let known: Vec<String> = parts
            .into_iter()
            .filter(|(seconds, _)| *seconds > 0.0)
            .map(|(seconds, how)| format!("{} {how}", numbers::seconds(seconds)))
            .collect();
        let (waited, avoidable) =
            (numbers::seconds(totals.wait_seconds), time(totals.avoidable_seconds));
        Some(match &known[..] {
            [] => format!(
                "reads waited {waited}, none of it for blocks that could have been known earlier"
            ),
            known => format!(
                "reads waited {waited}, {avoidable} of it for blocks that could have been known earlier: {}",
                known.join(", ")
            ),
        })
    }

    /// The files to show [SUM-1], without those that have no path and were only read from memory: mostly libraries.
    pub(super) fn shown(&self) -> Vec<&File> {
        let shown = self.files.iter().filter(|file| {
            file.path.is_some() || file.requests.count + file.writes.count + file.syncs > 0
        });
        shown.take(FILES_SHOWN).collect()
    }

    /// At most `most` files that have a strip, and the length of their longest shown name in characters.
    pub(super) fn strips(&self, most: usize) -> (Vec<&File>, usize) {
        let mut strips = self.shown();
        strips.retain(|file| !file.strip.is_empty());
        strips.truncate(most);
        let widest = strips.iter().map(|file| file.short().chars().count()).max().unwrap_or(0);
        (strips, widest)
    }

    fn table(&self) -> Table {
        let shown = self.shown();
        let rows: Vec<[String; COLUMNS.len()]> = shown.iter().map(|file| file.cells()).collect();
        // Columns without values are left out.
        let columns: Vec<usize> = (0..COLUMNS.len())
            .filter(|&column| rows.iter().any(|row| row[column] != NOTHING))
            .collect();
        let mut table = Table::new("", columns.iter().map(|&column| COLUMNS[column]));
        for row in &rows {
            table.push(
                String::new(),
                columns.iter().map(|&column| TableCell::new(&row[column])).collect(),
            );
        }
        table
    }
}

/// Columns of the table of files.
pub(super) const COLUMNS: [&str; 12] = [
    "file",
    "reads",
    "bytes",
    "hits",
    "requests",
    "each",
    "ahead",
    "unused",
    "waited",
    "avoidable",
    "written",
    "syncs",
];

/// Sums over all files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    reads: u64,
    read_bytes: u64,
    requests: u64,
    writes: u64,
    written_bytes: u64,
    syncs: u64,
    wait_seconds: f64,
    avoidable_seconds: f64,
}

impl Totals {
    /// The change since `before`, as one line.
    pub(super) fn since(self, before: Totals) -> String {
        let count = |count: u64| numbers::grouped(count as f64);
        format!(
            "{} reads ({}), {} requests, waited {} ({} avoidable), {} writes ({}), {} syncs",
            count(self.reads - before.reads),
            shown_size(self.read_bytes - before.read_bytes),
            count(self.requests - before.requests),
            time(self.wait_seconds - before.wait_seconds),
            time(self.avoidable_seconds - before.avoidable_seconds),
            count(self.writes - before.writes),
            shown_size(self.written_bytes - before.written_bytes),
            count(self.syncs - before.syncs),
        )
    }
}

fn time(seconds: f64) -> String {
    if seconds <= 0.0 { "0 s".to_owned() } else { numbers::seconds(seconds) }
}

impl File {
    fn of(it: &FileStats, called: FileName, page_bytes: u64) -> File {
        let FileName { name, path, .. } = called;
        let [sequence_seconds, stride_seconds, range_seconds] = it.avoidable_ns.map(seconds);
        File {
            name: printable_line(&name),
            path,
            reads: (&it.reads).into(),
            writes: (&it.writes).into(),
            requests: (&it.requests).into(),
            requests_written: (&it.requests_written).into(),
            hits: it.hits,
            ahead_bytes: it.ahead_pages.saturating_mul(page_bytes),
            unused_bytes: it.unused_pages().saturating_mul(page_bytes),
            advised_bytes: it.advised_pages.saturating_mul(page_bytes),
            syncs: it.syncs.count,
            sync_seconds: seconds(it.syncs.total_ns),
            sync_longest_seconds: seconds(it.syncs.longest_ns),
            waits: it.waits.count,
            wait_seconds: seconds(it.waits.total_ns),
            wait_longest_seconds: seconds(it.waits.longest_ns),
            avoidable: Avoidable { sequence_seconds, stride_seconds, range_seconds },
            strip: it.strip.iter().collect(),
        }
    }

    /// The name, cut at the start if it is too long: names differ most at the end.
    pub(super) fn short(&self) -> String {
        let count = self.name.chars().count();
        if count <= NAME_MAX {
            return self.name.clone();
        }
        let end: String = self.name.chars().skip(count - NAME_MAX + 1).collect();
        format!("…{end}")
    }

    /// The newest letters of the strip, at most `most`.
    pub(super) fn newest(&self, most: usize) -> &str {
        // Each letter is one byte.
        &self.strip[self.strip.len().saturating_sub(most)..]
    }

    /// The cells of the file's row, by [`COLUMNS`].
    pub(super) fn cells(&self) -> [String; 12] {
        let dash = || NOTHING.to_owned();
        let count = |count: u64| if count == 0 { dash() } else { numbers::grouped(count as f64) };
        let share = |part: f64, whole: f64| {
            if whole > 0.0 { format!("{} %", numbers::percent(part / whole)) } else { dash() }
        };
        let size = |bytes: u64| if bytes == 0 { dash() } else { shown_size(bytes) };
        let syncs = if self.syncs == 0 {
            dash()
        } else {
            format!(
                "{} of {}",
                count(self.syncs),
                numbers::seconds(self.sync_seconds / self.syncs as f64)
            )
        };
        [
            self.short(),
            count(self.reads.count),
            size(self.reads.bytes),
            share(self.hits as f64, self.reads.count as f64),
            count(self.requests.count),
            self.requests.bytes.checked_div(self.requests.count).map_or_else(dash, shown_size),
            size(self.ahead_bytes),
            share(self.unused_bytes as f64, self.ahead_bytes as f64),
            if self.waits == 0 { dash() } else { numbers::seconds(self.wait_seconds) },
            share(self.avoidable.seconds(), self.wait_seconds),
            size(self.writes.bytes),
            syncs,
        ]
    }
}

impl Device {
    pub(super) fn sentence(&self) -> String {
        let of = |all: &Transfers, own: &Transfers, what: &str| {
            let [all_count, own_count] = [all, own].map(|it| numbers::grouped(it.count as f64));
            format!(
                "{all_count} requests {what} {} ({own_count} by the watched processes)",
                shown_size(all.bytes)
            )
        };
        let parts =
            [(&self.read, &self.own_read, "read"), (&self.written, &self.own_written, "wrote")];
        let happened = parts.into_iter().filter(|(all, ..)| all.count > 0);
        happened.map(|(all, own, what)| of(all, own, what)).collect::<Vec<_>>().join(", ")
    }
}

/// Fifty files with the same counts.
#[cfg(test)]
pub(super) fn sample() -> Summary {
    let file = |at| File {
        name: format!("/srv/a/path/that/is/longer/than/what/is/shown/orders.{at}"),
        requests: Transfers { count: 7, bytes: 7 << 13, ..Transfers::default() },
        strip: "RS.!".repeat(64),
        waits: 1,
        wait_seconds: 0.5,
        avoidable: Avoidable { sequence_seconds: 0.25, ..Avoidable::default() },
        ..File::default()
    };
    let read = Transfers { count: 9, bytes: 9 << 13, ..Transfers::default() };
    let devices = vec![Device { name: "vda".to_owned(), read, ..Device::default() }];
    Summary { files: (0..50).map(file).collect(), devices, processes: 3, ..Summary::default() }
}

#[cfg(test)]
mod tests {
    use super::super::access::Access;
    use super::*;

    #[test]
    fn any_sum_of_pages_is_shown() {
        let mut stats = Stats::default();
        let (offset, bytes, pages, took_ns) = (0, 0, (1 << 33) - 1, 0);
        let advised = Access::Advise { task: 1, file: 0, offset, bytes, advice: 3, pages, took_ns };
        assert!(advised.is_possible());
        stats.access(&Access::Write { file: 0, bytes: 1 });
        (0..1 << 16).for_each(|_| stats.access(&advised));
        Summary::of(&stats, &FileTable::default(), 1 << 16, 1.0);
    }

    #[test]
    fn the_text_names_so_many_files_and_no_line_is_too_wide() {
        for width in [80, 100, 200] {
            let text = sample().drawn(Look { width, colour: false, ascii: false });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            let named = |at: usize| text.contains(&format!("shown/orders.{at} "));
            assert!(named(FILES_SHOWN - 1) && !named(FILES_SHOWN), "[SUM-1] {text}");
            assert!(text.contains("30 more files") && !text.contains("syncs"), "{text}");
            assert!(
                text.contains("vda: 9 requests read 72.0 KiB (0 by the watched processes)\n"),
                "{text}"
            );
            assert!(
                text.contains("reads waited 25.0 s, 12.5 s of it for blocks that could"),
                "{text}"
            );
        }
        let file_table = FileTable {
            subject: "a\u{1b}]0;b\u{7}".to_owned(),
            remarks: vec!["c\nd".to_owned()],
            files: [(0, FileName::new("e\u{1b}[2J\u{202e}\u{200f}\t".to_owned(), None))].into(),
            devices: [(0, "f\r".to_owned())].into(),
            ..FileTable::default()
        };
        let mut stats = Stats::default();
        let transfer = super::super::event::Transfer::Read;
        stats.access(&Access::Request { device: 0, bytes: 1, transfer, file: Some(0) });
        let hostile = Summary::of(&stats, &file_table, 4096, 1.0);
        let text = hostile.drawn(Look { width: 100, colour: false, ascii: false });
        let shown = [
            "a\\u{1b}]0;b\\u{7}:",
            "* c\\nd",
            "e\\u{1b}[2J\\u{202e}\\u{200f}\\t ",
            "f\\r: 1 request",
        ];
        assert!(shown.iter().all(|it| text.contains(it)), "{text}");
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text}");
        let ascii = sample().drawn(Look { width: 80, colour: false, ascii: true });
        assert!(ascii.is_ascii());
        assert!(
            Summary::default()
                .drawn(Look { width: 80, colour: true, ascii: false })
                .contains("No file")
        );
    }
}
