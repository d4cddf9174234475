//! "Why was this slow?", answered in sentences.
//!
//! First the errors, then where waiting time was spent, largest first, then what to change. Advice is given only with
//! the number that supports it, so that a reader who disagrees knows with what. Times are those of all threads
//! together: eight threads that wait one second each have waited eight.
//!
//! Worked example:
//! ```text
//! Threads waited 9.4s in all.
//! - 88% for pages to be read from disk: 8.3s in 4100 waits, half within 1.8ms, 99% within ...
//! - 12% for dirty pages to be written: 1.1s in 120 waits, half within 8.9ms, 99% within ...
//! What to change:
//! - Only 43% of the requested pages were in memory. Make the pool larger, or read what is ...
//! ```

use std::fmt::{self, Write};
use std::time::Duration;

use super::snapshot::{Stats, StrategyStats, share};
use super::waits::Wait;
use crate::strategy_kind::StrategyKind;

/// A wait with less than this share of all waiting time gets no advice.
const SHARE_NOTABLE: f64 = 0.1;

/// Less waiting than this, by all threads together, needs no action.
const WAITED_NOTABLE: Duration = Duration::from_millis(10);

/// From this hit ratio on, more memory is not the first thing to try.
const HIT_RATIO_GOOD: f64 = 0.95;

/// A cleaner that keeps up leaves fewer dirty victims than this share of evictions.
const VICTIM_WRITES_NOTABLE: f64 = 0.01;

/// More than this share of optimistic reads repeated is waste.
const RETRIES_NOTABLE: f64 = 0.1;

/// A ring that fails to reuse more than this share of its frames does not work as a ring.
const REFUSALS_NOTABLE: f64 = 0.1;

impl Stats {
    /// Says in plain sentences where threads lost their time, and what to change. Best called on a difference
    /// ([`Stats::since`]) over the time that was slow.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        self.write_reasons(&mut text).expect("a string takes all that is written to it");
        text
    }

    fn write_reasons(&self, out: &mut String) -> fmt::Result {
        list(out, "Something went wrong:", &self.troubles())?;
        self.write_waits(out)?;
        list(out, "What to change:", &self.advice())
    }

    fn write_waits(&self, out: &mut String) -> fmt::Result {
        let mut waits = Wait::ALL.map(|wait| (wait, self.wait(wait)));
        waits.sort_by_key(|(_, times)| std::cmp::Reverse(times.sum()));
        let waited = self.waited();
        if waits.iter().all(|(_, times)| times.count() == 0) {
            return writeln!(out, "No thread waited for the pool; the time went elsewhere.");
        }
        writeln!(out, "Threads waited {waited:.1?} in all.")?;
        for (wait, times) in waits.into_iter().filter(|(_, times)| times.count() > 0) {
            writeln!(
                out,
                "- {} for {}: {:.1?} in {}, half within {:.1?}, 99% within {:.1?}, the longest \
                 {:.1?}.",
                percent(share_of_time(times.sum(), waited)),
                what_for(wait),
                times.sum(),
                several(times.count(), "wait"),
                times.p50(),
                times.p99(),
                times.max(),
            )?;
        }
        Ok(())
    }

    /// Events that should not have happened at all.
    fn troubles(&self) -> Vec<String> {
        let total = self.total();
        let happened = [
            (total.corrupt_pages, "corrupt page", "Restore them from the log or a backup."),
            (total.read_errors, "failed read", "Check the device and the system's log."),
            (total.write_errors, "failed write", "Check the device and its free space."),
            (
                self.pool.sync_errors,
                "failed sync",
                "What was written since the last good one may be lost: close the pool and recover.",
            ),
            (
                self.pool.log_errors,
                "failed log flush",
                "Pages stay dirty until their log can be flushed: see to the log first.",
            ),
            (
                self.pool.unlogged_changes,
                "unlogged change",
                "Those pages wait for all of the log: give each change its record's LSN.",
            ),
        ];
        let happened = happened.into_iter().filter(|(count, ..)| *count > 0);
        happened.map(|(count, what, then)| format!("{}. {then}", several(count, what))).collect()
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        advice.extend(self.on_reads());
        advice.extend(self.on_writes());
        advice.extend(self.on_latches());
        advice.extend(self.on_frames());
        advice.extend(self.on_log_and_syncs());
        advice.extend(self.on_rings());
        advice
    }

    fn on_reads(&self) -> Option<String> {
        let in_flight_notable = self.is_notable(&[Wait::InFlightRead]);
        if !self.is_notable(&[Wait::Read, Wait::InFlightRead]) {
            return None;
        }
        let found = self.hit_ratio().unwrap_or(1.0);
        Some(if found < HIT_RATIO_GOOD {
            format!(
                "Only {} of the requested pages were in memory. Make the pool larger, or read \
                 what is read once with a bulk strategy, so that it does not push out the rest.",
                percent(found),
            )
        } else if in_flight_notable {
            "Threads want the same pages at the same time and wait for one read. Read ahead, so \
             that the pages are there when they come."
                .to_owned()
        } else {
            format!(
                "{} of the requested pages were in memory, yet reads took the time. Read ahead \
                 where the next blocks are known; if 99% within {:.1?} is slow for this device, \
                 look for what else uses it.",
                percent(found),
                self.wait(Wait::Read).p99(),
            )
        })
    }

    fn on_writes(&self) -> Option<String> {
        let StrategyStats { victim_writes, evictions, .. } = self.total();
        let behind = share(victim_writes, evictions.max(victim_writes)).unwrap_or(0.0);
        if behind >= VICTIM_WRITES_NOTABLE {
            return Some(format!(
                "The cleaner is behind: threads in need of a frame had to write {} themselves, \
                 {} of what was evicted. Let the cleaner write earlier or more at a time, or \
                 make the pool larger.",
                several(victim_writes, "dirty page"),
                percent(behind),
            ));
        }
        self.is_notable(&[Wait::Write]).then(|| {
            "Threads wait for writes that they or others requested. Spread checkpoints over more \
             time, and leave writing to the cleaner."
                .to_owned()
        })
    }

    fn on_latches(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.is_notable(&[Wait::Latch]) {
            advice.push(format!(
                "Threads queue for the latches of hot pages ({}). Read those pages \
                 optimistically, hold latches shorter, or spread what they hold over more pages.",
                several(self.wait(Wait::Latch).count(), "wait"),
            ));
        }
        let (again, reads) = (self.pool.optimistic_retries, self.pool.optimistic_reads);
        let wasted = share(again, reads.saturating_add(again)).unwrap_or(0.0);
        if wasted >= RETRIES_NOTABLE {
            advice.push(format!(
                "{} of the optimistic reads met a change and were done again. Those pages change \
                 too often for that: latch them.",
                percent(wasted),
            ));
        }
        advice
    }

    fn on_frames(&self) -> Option<String> {
        self.is_notable(&[Wait::Frame]).then(|| {
            let pinned = match self.frames {
                0 => String::new(),
                frames => format!(" ({} of {frames} are pinned now)", self.frames_pinned),
            };
            format!(
                "Too many pages are pinned at once{pinned}: threads wait for a frame to come \
                 free. Hold fewer pages at a time, or make the pool larger.",
            )
        })
    }

    fn on_log_and_syncs(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.is_notable(&[Wait::Log]) {
            advice.push(
                "Pages wait for the log before they may be written. Flush the log more often, so \
                 that it is ahead of the pages."
                    .to_owned(),
            );
        }
        if self.is_notable(&[Wait::Sync]) {
            advice.push(format!(
                "{} took the time. Request fewer, start writeback before them, or use a device \
                 whose cache survives power loss.",
                several(self.wait(Wait::Sync).count(), "sync"),
            ));
        }
        advice
    }

    fn on_rings(&self) -> Vec<String> {
        let refused = StrategyKind::ALL.into_iter().filter_map(|kind| {
            let StrategyStats { ring_refusals: refused, ring_reuses, .. } = *self.strategy(kind);
            let tried = ring_reuses.saturating_add(refused);
            let refused_share = share(refused, tried).filter(|share| *share >= REFUSALS_NOTABLE)?;
            Some(format!(
                "The {kind} ring could not take its own frame again {} of {tried} times and took \
                 one from the rest of the pool. Release its pages sooner, make the ring larger, \
                 or flush the log sooner ({}).",
                refused,
                percent(refused_share),
            ))
        });
        refused.collect()
    }

    /// True if these waits together took a notable share of all waiting time.
    fn is_notable(&self, waits: &[Wait]) -> bool {
        let these: Duration = waits.iter().map(|wait| self.wait(*wait).sum()).sum();
        these >= WAITED_NOTABLE && share_of_time(these, self.waited()) >= SHARE_NOTABLE
    }

    /// Time waited, for any reason, by all threads together.
    fn waited(&self) -> Duration {
        Wait::ALL.iter().map(|wait| self.wait(*wait).sum()).sum()
    }
}

fn what_for(wait: Wait) -> &'static str {
    match wait {
        Wait::Read => "pages to be read from disk",
        Wait::InFlightRead => "pages that another thread was reading",
        Wait::Write => "dirty pages to be written",
        Wait::Latch => "latches on pages",
        Wait::Frame => "a frame to come free",
        Wait::Log => "the log to be flushed",
        Wait::Sync => "syncs",
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) -> fmt::Result {
    if !lines.is_empty() {
        writeln!(out, "{title}")?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "- {line}"))
}

fn share_of_time(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

/// `share` from 0 to 1 as a percentage; never 0% for something or 100% for not quite all.
pub(super) fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.01 {
        "less than 1%".to_owned()
    } else if share < 1.0 && share > 0.99 {
        "more than 99%".to_owned()
    } else {
        format!("{:.0}%", share * 100.0)
    }
}

/// A count with its noun.
fn several(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests;
