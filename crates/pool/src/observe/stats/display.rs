//! Statistics as a table for the terminal.
//!
//! ```text
//! 1000 frames of 8.0 KiB: 10 free, 5 pinned, 30 dirty
//!
//!                normal  bulk_read    total
//! hits             1200         16     1216
//! misses             40        300      340
//! read bytes  320.0 KiB    2.3 MiB  2.7 MiB
//! hit ratio       96.8%       5.1%    78.1%
//!
//! cleaner pages  12
//!
//! wait  count   total    p50    p99  longest
//! read    340  61.2ms  180us  299us    410us
//! ```
//! A strategy that was not used has no column, and a count that is 0 everywhere no row. The ratios are of pinned pages;
//! optimistic reads have no strategy and count in [`Stats::hit_ratio`] only.

use std::fmt;

use super::snapshot::{FileStats, Named, Stats, StrategyStats};
use super::waits::Wait;
use crate::strategy_kind::StrategyKind;

impl fmt::Display for Stats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.frames > 0 {
            parts.push(format!(
                "{} frames of {}: {} free, {} pinned, {} dirty\n",
                self.frames,
                bytes(self.page_bytes),
                self.frames_free,
                self.frames_pinned,
                self.frames_dirty,
            ));
        }
        let tables = [self.strategy_rows(), count_rows(self.pool.named()), self.wait_rows()];
        parts.extend(tables.iter().filter(|rows| !rows.is_empty()).map(|rows| aligned(rows)));
        if parts.is_empty() {
            parts.push("nothing has happened yet\n".to_owned());
        }
        out.write_str(parts.join("\n").trim_end())
    }
}

impl fmt::Display for FileStats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(aligned(&count_rows(self.named())).trim_end())
    }
}

impl Stats {
    fn strategy_rows(&self) -> Vec<Vec<String>> {
        let mut columns: Vec<(&str, StrategyStats)> = StrategyKind::ALL
            .into_iter()
            .map(|kind| (kind.name(), *self.strategy(kind)))
            .filter(|(_, stats)| !stats.is_empty())
            .collect();
        match columns.len() {
            0 => return Vec::new(),
            1 => {}
            _ => columns.push(("total", self.total())),
        }
        let mut rows = vec![row("", columns.iter().map(|(title, _)| (*title).to_owned()))];
        let counts: Vec<_> = columns.iter().map(|(_, stats)| stats.named()).collect();
        for (index, count) in self.total().named().iter().enumerate() {
            if count.value > 0 {
                let values = counts.iter().map(|counts| number(count.name, counts[index].value));
                rows.push(row(&spaced(count.name), values));
            }
        }
        if columns.iter().any(|(_, stats)| stats.asked() > 0) {
            let ratios = columns.iter().map(|(_, stats)| stats.hit_ratio());
            rows.push(row("hit ratio", ratios.map(ratio)));
        }
        rows
    }

    fn wait_rows(&self) -> Vec<Vec<String>> {
        let titles = ["count", "total", "p50", "p99", "longest"].map(str::to_owned);
        let mut rows = vec![row("wait", titles)];
        for wait in Wait::ALL {
            let times = self.wait(wait);
            if times.count() > 0 {
                let durations = [times.sum(), times.p50(), times.p99(), times.max()];
                let durations = durations.map(|duration| format!("{duration:.1?}"));
                rows.push(row(
                    &spaced(wait.name()),
                    [times.count().to_string()].into_iter().chain(durations),
                ));
            }
        }
        if rows.len() > 1 { rows } else { Vec::new() }
    }
}

/// The counts that are not 0.
fn count_rows(counts: Vec<Named>) -> Vec<Vec<String>> {
    let counts = counts.into_iter().filter(|count| count.value > 0);
    counts.map(|count| row(&spaced(count.name), [number(count.name, count.value)])).collect()
}

fn row(title: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    [title.to_owned()].into_iter().chain(cells).collect()
}

/// Lines of columns with two spaces between them, the first left-aligned, the others right-aligned.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            text += &match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

fn number(name: &str, value: u64) -> String {
    if name.ends_with("_bytes") { bytes(value) } else { value.to_string() }
}

/// Returns an amount of bytes as people read it, in powers of 1024.
pub(crate) fn bytes(count: u64) -> String {
    match count.max(1).ilog2() / 10 {
        0 => format!("{count} B"),
        power => {
            let unit = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][power as usize - 1];
            format!("{:.1} {unit}", count as f64 / (1_u64 << (10 * power)) as f64)
        }
    }
}

fn ratio(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::observe::stats::{Counters, Event, PoolEvent};

    fn table(stats: &Stats) -> String {
        stats.to_string()
    }

    #[test]
    fn a_pool_that_did_nothing_says_so() {
        assert_eq!(table(&Stats::default()), "nothing has happened yet");
    }

    #[test]
    fn what_happened_is_printed_and_nothing_else() {
        let counters = Counters::new();
        (0..1200).for_each(|_| counters.hit(StrategyKind::Normal));
        counters.add(StrategyKind::Normal, Event::Miss, 40);
        counters.add(StrategyKind::BulkRead, Event::Miss, 300);
        counters.add(StrategyKind::BulkRead, Event::BytesRead, 300 * 8192);
        counters.add_pool(PoolEvent::CleanerPages, 12);
        counters.waited(Wait::InFlightRead, Duration::from_millis(15));
        let stats = Stats {
            frames: 1000,
            frames_free: 10,
            frames_pinned: 5,
            frames_dirty: 30,
            page_bytes: 8192,
            ..counters.snapshot()
        };
        let expected = "\
1000 frames of 8.0 KiB: 10 free, 5 pinned, 30 dirty

            normal  bulk_read    total
hits          1200          0     1200
misses          40        300      340
read bytes     0 B    2.3 MiB  2.3 MiB
hit ratio    96.8%       0.0%    77.9%

cleaner pages  12

wait            count   total     p50     p99  longest
in flight read      1  15.0ms  15.2ms  15.2ms   15.2ms";
        assert_eq!(table(&stats), expected);
    }

    #[test]
    fn one_strategy_needs_no_total() {
        let counters = Counters::new();
        counters.hit(StrategyKind::Maintenance);
        assert_eq!(
            table(&counters.snapshot()),
            "           maintenance\nhits                 1\nhit ratio       100.0%"
        );
    }

    #[test]
    fn a_strategy_that_requested_nothing_has_no_ratio() {
        let counters = Counters::new();
        counters.hit(StrategyKind::Normal);
        counters.count(StrategyKind::BulkWrite, Event::Init);
        let table = table(&counters.snapshot());
        let ratios = table.lines().find(|line| line.starts_with("hit ratio")).unwrap();
        assert_eq!(
            ratios.split_whitespace().collect::<Vec<_>>(),
            ["hit", "ratio", "100.0%", "-", "100.0%"]
        );
    }

    #[test]
    fn columns_stay_aligned_when_a_unit_is_not_ascii() {
        let counters = Counters::new();
        counters.waited(Wait::Latch, Duration::from_micros(3));
        counters.waited(Wait::Sync, Duration::from_millis(700));
        let table = table(&counters.snapshot());
        let lengths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{table}");
    }
}
