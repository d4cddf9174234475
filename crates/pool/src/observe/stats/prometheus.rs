//! Statistics as Prometheus reads them: the text exposition format, version 0.0.4.
//!
//! Every count is a counter `forebay_<name>_total`, with a `strategy` label where there is one; the numbers of frames
//! are gauges; waits are one histogram, `forebay_wait_seconds`. All series exist from the start, zeros included,
//! because a series that first appears with a value has no rate. There is no label for the pool: a service with several
//! adds one when scraping.
//!
//! A client library was rejected: it would own the live counters, and its shared atomics cost more than a hit itself.
//!
//! Invariants:  [STAT-5] HELP and TYPE appear once before a metric's samples, and no series appears twice

use std::fmt::{self, Display, Write};

use super::snapshot::Stats;
use super::waits::Wait;
use crate::strategy_kind::StrategyKind;

impl Stats {
    /// Returns the statistics as text for Prometheus to scrape, to be served as
    /// `text/plain; version=0.0.4`. Take it from a whole [`Stats`], not from a difference:
    /// counters must not go down.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        self.write_metrics(&mut text).expect("a string takes all that is written to it");
        text
    }

    fn write_metrics(&self, out: &mut String) -> fmt::Result {
        let gauges = [
            ("frames", "Frames in the pool.", self.frames),
            ("frames_free", "Frames that hold no page.", self.frames_free),
            ("frames_pinned", "Frames whose page is pinned.", self.frames_pinned),
            ("frames_dirty", "Frames whose page has changes not yet written.", self.frames_dirty),
            ("page_bytes", "Size of a page.", self.page_bytes),
            ("memory_bytes", "Memory for pages.", self.memory_bytes()),
        ];
        for (name, about, value) in gauges {
            metric(out, name, about, "gauge")?;
            writeln!(out, "forebay_{name} {value}")?;
        }

        let strategies = StrategyKind::ALL.map(|kind| (kind, self.strategy(kind).named()));
        for (index, count) in self.total().named().iter().enumerate() {
            let name = format!("{}_total", count.name);
            metric(out, &name, count.about, "counter")?;
            for (kind, counts) in &strategies {
                writeln!(out, "forebay_{name}{{strategy=\"{kind}\"}} {}", counts[index].value)?;
            }
        }
        for count in self.pool.named() {
            let name = format!("{}_total", count.name);
            metric(out, &name, count.about, "counter")?;
            writeln!(out, "forebay_{name} {}", count.value)?;
        }

        metric(out, "wait_seconds", "Times that threads waited, by what for.", "histogram")?;
        for wait in Wait::ALL {
            let times = self.wait(wait);
            for (end, count) in times.buckets() {
                bucket(out, wait, end.as_secs_f64(), count)?;
            }
            bucket(out, wait, "+Inf", times.count())?;
            let sum_seconds = times.sum().as_secs_f64();
            writeln!(out, "forebay_wait_seconds_sum{{wait=\"{wait}\"}} {sum_seconds}")?;
            writeln!(out, "forebay_wait_seconds_count{{wait=\"{wait}\"}} {}", times.count())?;
        }
        Ok(())
    }
}

fn metric(out: &mut String, name: &str, about: &str, kind: &str) -> fmt::Result {
    writeln!(out, "# HELP forebay_{name} {about}")?;
    writeln!(out, "# TYPE forebay_{name} {kind}")
}

fn bucket(out: &mut String, wait: Wait, end: impl Display, count: u64) -> fmt::Result {
    writeln!(out, "forebay_wait_seconds_bucket{{wait=\"{wait}\",le=\"{end}\"}} {count}")
}

#[cfg(test)]
mod tests;
