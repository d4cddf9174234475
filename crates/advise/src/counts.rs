//! The server's statistics of its writes: why checkpoints began and what they wrote, where the background writer
//! stopped, and which writes were left to sessions; also how fast the disk completes a checkpoint's writes.
//!
//! No read-only query can show what these settings gain, and a proof would take a restart or an hour of the user's own
//! writes. So they are reported, with the counts, and never set.
//!
//! Worked example: 37 of 40 checkpoints were requested, 400 GiB of WAL in 10 hours, a checkpoint every 5 minutes,
//! completion target 0.9: 11.4 MiB/s times 300 s times 1.9 is 6.3 GiB, so `max_wal_size = 8GB`. They wrote 60,000 pages
//! each, spread over 270 s; the disk writes 400 pages/s, so it is busy for 150 s: more than half, so
//! `checkpoint_timeout = 600s`.
//!
//! Source:      PostgreSQL's documentation, "WAL Configuration", for what max_wal_size must hold: the WAL between two
//!              checkpoints, and that of the written part of the next; "Monitoring Database Activity" for who writes.
//!              Before pg_stat_io, buffers_backend includes the blocks by which tables grow, and is not used here.

use std::fs;
use std::time::Duration;

use serde::Serialize;

use super::Proposal;
use super::disks::Disk;
use super::server::{COMPLETION, COMPLETION_DEFAULT, Server, Setting, is_hasty};
use forebay_measure::report::{Advice, AppliesTo, Record, numbers};
use forebay_measure::statistics::median;
use forebay_measure::units::shown_size;
use forebay_session::Connection;

/// Fewer checkpoints, rounds that stopped early, or syncs by sessions are not evidence.
const CHECKPOINTS_MIN: f64 = 5.0;
const STOPPED_MIN: f64 = 100.0;
/// Smaller shares are normal.
const REQUESTED_SHARE: f64 = 0.1;
const STOPPED_SHARE: f64 = 0.05;
const WRITTEN_SHARE: f64 = 0.1;
/// Fewer pages written by sessions, which is 80 MiB, are not evidence.
const WRITTEN_MIN: f64 = 10_000.0;
/// Maximum advised values: bgwriter_lru_maxpages (pages a round), bgwriter_lru_multiplier, checkpoint_timeout
/// (seconds).
const MAXPAGES: f64 = 1000.0;
const MULTIPLIER: f64 = 10.0;
const TIMEOUT_S: f64 = 3600.0;
/// A disk that is busy for more than this part of a checkpoint's time has little left for readers.
const BUSY: f64 = 0.5;
/// Syncs at a checkpoint's end that take longer than this, in seconds, are noticeable.
const SYNC_S: f64 = 1.0;
/// From this much shared memory on, in bytes, the size of its page tables matters.
const SHARED_BYTES_MIN: u64 = 1 << 30;

/// Counted since the server's statistics were reset.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Counts {
    timed: f64,
    requested: f64,
    /// Completed checkpoints; up to 17, including those that had nothing to write.
    done: f64,
    /// Pages that they wrote, and seconds that they spent syncing them.
    pages: f64,
    sync_s: f64,
    checkpoints_s: f64,
    /// Rounds of the background writer that ended at bgwriter_lru_maxpages, and pages that it wrote.
    stopped: f64,
    cleaned: f64,
    bgwriter_s: f64,
    /// Pages that sessions wrote to free buffers, where the server counts that.
    by_sessions: Option<f64>,
    /// Files that sessions synced because the checkpointer's queue was full.
    synced: f64,
    wal_bytes: f64,
    wal_s: f64,
}

impl Counts {
    /// # Errors
    /// A server error on our own statement.
    pub(super) fn read(connection: &mut Connection, server: &Server) -> anyhow::Result<Counts> {
        let of_checkpoints = if server.major >= 17 {
            let done =
                if server.major >= 18 { "c.num_done" } else { "c.num_timed + c.num_requested" };
            format!(
                "c.num_timed, c.num_requested, {done}, c.buffers_written, c.sync_time / 1000, \
                 extract(epoch from now() - c.stats_reset)"
            )
        } else {
            "b.checkpoints_timed, b.checkpoints_req, b.checkpoints_timed + b.checkpoints_req, b.buffers_checkpoint, \
             b.checkpoint_sync_time / 1000, extract(epoch from now() - b.stats_reset)"
                .to_owned()
        };
        let of_sessions = |what: &str| {
            format!(
                "(select sum({what}) from pg_stat_io where object = 'relation' and context = 'normal' \
                 and backend_type in ('client backend', 'background worker'))"
            )
        };
        let of_sessions = if server.major >= 16 {
            format!("{}, {}", of_sessions("writes"), of_sessions("fsyncs"))
        } else {
            "null, b.buffers_backend_fsync".to_owned()
        };
        let row = connection.row(&format!(
            "select {of_checkpoints}, b.maxwritten_clean, b.buffers_clean, extract(epoch from now() - b.stats_reset), \
             {of_sessions}, w.wal_bytes, extract(epoch from now() - w.stats_reset) from pg_stat_bgwriter b{}, pg_stat_wal w",
            if server.major >= 17 { ", pg_stat_checkpointer c" } else { "" }
        ))?;
        let number = |column| row.number(column).unwrap_or(0.0);
        Ok(Counts {
            timed: number(0),
            requested: number(1),
            done: number(2),
            pages: number(3),
            sync_s: number(4),
            checkpoints_s: number(5),
            stopped: number(6),
            cleaned: number(7),
            bgwriter_s: number(8),
            by_sessions: row.number(9),
            synced: number(10),
            wal_bytes: number(11),
            wal_s: number(12),
        })
    }

    /// What the counts say about `server`, a sentence each; its checkpoints write to the main one of `disks`.
    pub(super) fn remarks(&self, server: &Server, disks: &[Disk]) -> Vec<String> {
        let set = |name: &str| server.setting(name)?.value.parse::<f64>().ok();
        let local = server.local.then(|| fs::read_to_string("/proc/meminfo").ok()).flatten();
        let main = disks.iter().find(|disk| disk.is_main);
        let remarks = [
            self.checkpoints(&set),
            main.and_then(|disk| self.pace(&set, &disk.name, bursts(disk)?)),
            self.syncs(&set),
            self.background_writer(&set),
            local.and_then(|meminfo| huge_pages(&set, &meminfo)),
        ];
        remarks.into_iter().flatten().collect()
    }

    /// Whether max_wal_size triggers checkpoints early.
    fn checkpoints(&self, set: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        let limit_mb = set("max_wal_size")?;
        let span = 1.0 + set(COMPLETION)?;
        let timeout_s = set("checkpoint_timeout")?;
        let all = self.timed + self.requested;
        // A CHECKPOINT or a backup also requests one, after any amount of WAL.
        let by_wal = self.wal_bytes * span / (limit_mb * MIB);
        let is_full = self.requested >= CHECKPOINTS_MIN
            && self.requested > all * REQUESTED_SHARE
            && by_wal >= self.requested / 2.0;
        if !is_full || self.wal_s <= 0.0 {
            return None;
        }
        let rate = self.wal_bytes / self.wal_s;
        // While checkpoints come early, more is written than the average rate says.
        let wanted_mb = (rate * timeout_s * span / MIB).max(2.0 * limit_mb);
        Some(format!(
            "max_wal_size = '{}GB' is worth trying: {} of {all} checkpoints in {} were requested, most of them because \
             max_wal_size ({}) was reached before checkpoint_timeout; the WAL rate was {}/s. The new value takes as \
             much room under pg_wal, and recovery after a crash takes longer.",
            ((wanted_mb / 1024.0).ceil() as u64).next_power_of_two(),
            self.requested,
            since(self.checkpoints_s),
            shown_size((limit_mb * MIB) as u64),
            shown_size(rate as u64),
        ))
    }

    /// Whether a disk that completed checkpoint-like writes, `bytes` of them at `rates` pages/s per round, has enough
    /// time for all of them.
    fn pace(
        &self,
        set: &dyn Fn(&str) -> Option<f64>,
        disk: &str,
        (bytes, rates): (u64, Vec<f64>),
    ) -> Option<String> {
        let timeout_s = set("checkpoint_timeout")?;
        let pages = self.pages / self.done;
        if self.done < CHECKPOINTS_MIN || pages < 1.0 {
            return None;
        }
        let span_s = set(COMPLETION)? * timeout_s.min(self.checkpoints_s / self.done);
        let needed_s = pages / median(&rates)?;
        let advised_s = (2.0 * timeout_s).min(TIMEOUT_S);
        let verdict = if needed_s <= BUSY * span_s {
            "neither that nor checkpoint_timeout needs to be longer for them.".to_owned()
        } else if self.requested <= self.timed && advised_s > timeout_s {
            format!(
                "checkpoint_timeout = '{advised_s}s' is worth trying, by which pages that change again are written less often, \
                 and recovery after a crash takes longer."
            )
        } else {
            "readers have little of the disk left.".to_owned()
        };
        Some(format!(
            "Checkpoints wrote {} pages ({}) each on the mean of {} in {}, and {COMPLETION} gives them {} at most. {disk} took {} of \
             such writes ({} rounds of {}), which is {} for all of them: {verdict}",
            numbers::number(pages),
            shown_size((pages * 8192.0) as u64),
            self.done,
            since(self.checkpoints_s),
            numbers::seconds(span_s),
            numbers::of_rounds(&rates, "a second"),
            rates.len(),
            shown_size(bytes),
            numbers::seconds(needed_s),
        ))
    }

    /// Whether the writes of checkpoints accumulate in the page cache until the sync.
    fn syncs(&self, set: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        let each_s = self.sync_s / self.done;
        let is_heaped = set("checkpoint_flush_after")? == 0.0 && self.done >= CHECKPOINTS_MIN;
        (is_heaped && each_s >= SYNC_S).then(|| {
            format!(
                "checkpoint_flush_after = '256kB' is worth trying: it is 0, so that the kernel may keep what checkpoints write \
                 until the syncs at their ends, which took {} each on the mean of {}.",
                numbers::seconds(each_s),
                self.done,
            )
        })
    }

    /// Whether the background writer leaves its work to sessions, and why.
    fn background_writer(&self, set: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        if self.synced >= STOPPED_MIN {
            return Some(format!(
                "Sessions have synced files {} times themselves, because the checkpointer's queue was full: its length \
                 is that of shared_buffers, in pages.",
                self.synced
            ));
        }
        let pages = set("bgwriter_lru_maxpages")?;
        let rounds = self.bgwriter_s * 1000.0 / set("bgwriter_delay")?;
        let advised = (4.0 * pages).min(MAXPAGES);
        let share = self.by_sessions.map(|it| it / (it + self.cleaned + self.pages));
        let left = share.filter(|_| self.by_sessions >= Some(WRITTEN_MIN));
        let left = left.map(|share| format!("{} % of all pages", numbers::percent(share)));
        if self.stopped >= STOPPED_MIN && self.stopped > rounds * STOPPED_SHARE {
            let left = left.unwrap_or_else(|| "the rest".to_owned());
            return (advised > pages).then(|| {
                format!(
                    "bgwriter_lru_maxpages = {advised} is worth trying: {:.0} % of the background writer's rounds \
                     ended at {pages} pages, and {left} had to be written by the sessions that needed a free buffer.",
                    100.0 * self.stopped / rounds,
                )
            });
        }
        let multiplier = set("bgwriter_lru_multiplier")?;
        let advised = (2.0 * multiplier).min(MULTIPLIER);
        let is_short =
            share.is_some_and(|it| it > WRITTEN_SHARE) && pages > 0.0 && advised > multiplier;
        left.filter(|_| is_short).map(|left| {
            format!(
                "bgwriter_lru_multiplier = {advised} is worth trying: sessions had to write {left} themselves to free \
                 a buffer, and the background writer's rounds did not end at bgwriter_lru_maxpages, but at what it \
                 thought would be needed."
            )
        })
    }
}

/// Proposes the default spread of checkpoints if `set` is less and the measurement of `disk` shows that readers gain.
pub(super) fn spread(set: &Setting, disk: &Disk) -> Option<Proposal> {
    let mut verdicts = disk.report.as_ref()?.verdicts.iter();
    let verdict = verdicts.find(|it| it.experiment == "checkpoint" && it.variant == "spread");
    let ratio = verdict.filter(|_| is_hasty(set))?.ratio;
    let evidence = format!(
        "Reads during a checkpoint on {}: their 99th percentile when it is written at once, relative to that when it \
         is spread over its interval ({} rounds); {} lies between.",
        disk.name, ratio.rounds, set.value
    );
    let change = [set.value.clone(), COMPLETION_DEFAULT.to_string()];
    let setting = (AppliesTo::Postgres, COMPLETION);
    let advice = Advice::worth_it("checkpoint", setting, change, ratio, evidence)?;
    Some(disk.unproved("no read-only statement uses it", advice))
}

/// Bytes written to `disk` the way PostgreSQL's checkpoints write them, and the rate in pages/s, per round.
fn bursts(disk: &Disk) -> Option<(u64, Vec<f64>)> {
    let is_alone = |it: &&Record| {
        it.experiment == "checkpoint" && it.cell.get("foreground") == Some(&false.into())
    };
    let record = disk.report.as_ref()?.records.iter().find(is_alone)?;
    let figures = |name: &str| {
        record.rounds.iter().filter_map(|it| it.get(name)?.as_f64()).collect::<Vec<f64>>()
    };
    Some((*figures("pages").first()? as u64 * 8192, figures("pages_per_s")))
}

fn since(seconds: f64) -> String {
    match seconds as u64 / (24 * 3600) {
        0 | 1 => humantime::format_duration(Duration::from_secs(seconds as u64)).to_string(),
        days => format!("{days} days"),
    }
}

const MIB: f64 = 1_048_576.0;

/// Whether the shared memory could be in huge pages, according to `meminfo`, and is not.
fn huge_pages(set: &dyn Fn(&str) -> Option<f64>, meminfo: &str) -> Option<String> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let needed = set("shared_memory_size_in_huge_pages").filter(|pages| *pages > 0.0)? as u64;
    let taken = field("HugePages_Total")?.checked_sub(field("HugePages_Free")?)?;
    let bytes = needed * field("Hugepagesize")? * 1024;
    (bytes >= SHARED_BYTES_MIN && taken < needed).then(|| {
        format!(
            "huge_pages is worth trying: the shared memory of {} lies in pages of 4 KiB, whose tables take up to {} in \
             each process. vm.nr_hugepages = {} at least, by sysctl, then a restart with huge_pages = try.",
            shown_size(bytes),
            shown_size(bytes / 4096 * 8),
            needed + taken,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_measure::report::{Report, Verdict};
    use forebay_measure::statistics::Estimate;

    fn set(name: &str) -> Option<f64> {
        let all = [
            ("max_wal_size", 1024.0),
            ("checkpoint_completion_target", 0.9),
            ("checkpoint_timeout", 300.0),
            ("bgwriter_lru_maxpages", 100.0),
            ("bgwriter_delay", 200.0),
            ("bgwriter_lru_multiplier", 2.0),
            ("checkpoint_flush_after", 0.0),
            ("shared_memory_size_in_huge_pages", 4096.0),
        ];
        all.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    const HOURS: f64 = 36_000.0;

    fn counts() -> Counts {
        Counts {
            timed: 3.0,
            requested: 37.0,
            done: 40.0,
            pages: 40.0 * 60_000.0,
            sync_s: 20.0,
            checkpoints_s: HOURS,
            stopped: 18_000.0,
            cleaned: 100_000.0,
            bgwriter_s: HOURS,
            by_sessions: Some(625_000.0),
            synced: 0.0,
            wal_bytes: 400.0 * 1024.0 * MIB,
            wal_s: HOURS,
        }
    }

    #[test]
    fn max_wal_size_holds_the_wal_of_a_checkpoint_and_the_part_being_written() {
        let text = counts().checkpoints(&set).unwrap();
        assert!(text.starts_with("max_wal_size = '8GB'") && text.contains("37 of 40"), "{text}");
        assert!(text.contains("10h") && text.contains("the WAL rate was 11.4 MiB/s"), "{text}");
        assert!(text.contains("max_wal_size (1.0 GiB) was reached"), "{text}");
    }

    #[test]
    fn checkpoints_that_another_user_requested_say_nothing() {
        let by_hand = Counts { wal_bytes: 400.0 * MIB, ..counts() };
        let few = Counts { requested: 4.0, ..counts() };
        let rare = Counts { timed: 400.0, ..counts() };
        for quiet in [by_hand, few, rare] {
            assert_eq!(quiet.checkpoints(&set), None, "{quiet:?}");
        }
    }

    #[test]
    fn long_times_are_shown_in_days() {
        let texts = [60.0, 176_000.0, 16_352_545.0].map(since);
        assert_eq!(texts, ["1m", "2 days", "189 days"]);
    }

    #[test]
    fn a_disk_that_checkpoints_keep_busy_has_them_less_often() {
        let by_time = Counts { timed: 36.0, requested: 4.0, ..counts() };
        let text = |counts: &Counts, rate: f64| {
            counts.pace(&set, "vda", (8 << 20, vec![rate; 3])).unwrap()
        };
        // 60,000 pages in 150 of 270 s.
        let busy = text(&by_time, 400.0);
        for words in [
            "60,000 pages (468.8 MiB)",
            "mean of 40 in 10h",
            "4 min 30 s",
            "400 a second",
            "2 min 30 s for all",
            "= '600s'",
        ] {
            assert!(busy.contains(words), "{words}: {busy}");
        }
        assert!(text(&by_time, 500.0).ends_with("needs to be longer for them."), "120 s");
        // Checkpoints that WAL requests begin as early as before.
        assert!(!text(&counts(), 400.0).contains("worth trying"));
        // A checkpoint every two minutes is spread over 108 s.
        let often =
            Counts { done: 300.0, pages: 300.0 * 60_000.0, timed: 300.0, ..by_time.clone() };
        assert!(
            text(&often, 1000.0).contains("1 min 48 s at most")
                && text(&often, 1000.0).contains("'600s'")
        );
        let few = Counts { done: 4.0, ..by_time.clone() };
        let idle = Counts { pages: 0.0, ..by_time };
        for quiet in [few, idle] {
            assert_eq!(quiet.pace(&set, "vda", (8 << 20, vec![1.0; 3])), None, "{quiet:?}");
        }
    }

    #[test]
    fn checkpoints_are_spread_where_that_surely_gains_readers_and_less_is_set() {
        let set = |value: &str| Setting { value: value.to_owned(), ..Setting::default() };
        let disk = |low| {
            let ratio = Estimate { value: 3.0, low, high: 4.0, rounds: 3 };
            let names = ["spread", "at once"].map(str::to_owned);
            let verdicts = vec![Verdict::new("checkpoint", String::new(), names, ratio)];
            let record = serde_json::json!({
                "experiment": "checkpoint", "cell": {"foreground": false}, "metrics": {}, "remarks": [],
                "rounds": [{"pages": 1024, "pages_per_s": 500.0}, {"pages": 1024, "pages_per_s": 600.0}],
            });
            let records = vec![serde_json::from_value(record).unwrap()];
            let report = Some(Report { verdicts, records, ..Report::default() });
            let name = "vda".to_owned();
            Disk { name, tablespaces: Vec::new(), is_main: true, room: Err(None), report }
        };
        let proposal = spread(&set("0.5"), &disk(2.0)).unwrap();
        assert!(!proposal.proved && proposal.not_applied.is_some(), "[ADP-1]");
        assert_eq!((proposal.advice.advised.as_str(), proposal.advice.gain), ("0.9", 3.0));
        for (value, low) in [("0.9", 2.0), ("1", 2.0), ("0.5", 0.9)] {
            assert!(spread(&set(value), &disk(low)).is_none(), "{value} {low}");
        }
        assert_eq!(bursts(&disk(2.0)), Some((8 << 20, vec![500.0, 600.0])));
    }

    #[test]
    fn syncs_that_take_long_call_for_writes_that_begin_earlier() {
        assert_eq!(counts().syncs(&set), None, "half a second each");
        let long = Counts { sync_s: 480.0, ..counts() };
        let text = long.syncs(&set).unwrap();
        assert!(
            text.starts_with("checkpoint_flush_after = '256kB'") && text.contains("12.0 s each"),
            "{text}"
        );
        let begun =
            |name: &str| if name == "checkpoint_flush_after" { Some(32.0) } else { set(name) };
        assert_eq!(long.syncs(&begun), None);
    }

    #[test]
    fn rounds_that_end_early_call_for_more_pages_up_to_a_limit() {
        let text = counts().background_writer(&set).unwrap();
        assert!(text.contains("bgwriter_lru_maxpages = 400 ") && text.contains("10 %"), "{text}");
        assert!(text.contains("20 % of all pages had to be written"), "{text}");
        let rare = Counts { stopped: 8_000.0, ..counts() };
        let text = rare.background_writer(&set).unwrap();
        assert!(
            text.starts_with("bgwriter_lru_multiplier = 4 ") && text.contains("write 20 %"),
            "{text}"
        );
        let most =
            |name: &str| if name == "bgwriter_lru_maxpages" { Some(1000.0) } else { set(name) };
        assert_eq!(counts().background_writer(&most), None);
        // Before 16 it is not counted, a few pages are not evidence, and a background writer that is off stays off.
        let uncounted = Counts { by_sessions: None, ..rare.clone() };
        let few = Counts { by_sessions: Some(9_000.0), pages: 0.0, cleaned: 0.0, ..rare.clone() };
        for quiet in [&uncounted, &few] {
            assert_eq!(quiet.background_writer(&set), None, "{quiet:?}");
        }
        let off = |name: &str| if name == "bgwriter_lru_maxpages" { Some(0.0) } else { set(name) };
        assert_eq!(rare.background_writer(&off), None);
        let text = Counts { synced: 300.0, ..rare }.background_writer(&set).unwrap();
        assert!(text.starts_with("Sessions have synced files 300 times"), "{text}");
    }

    #[test]
    fn shared_memory_that_is_in_huge_pages_already_needs_none() {
        let meminfo = |total, free| {
            format!("HugePages_Total: {total}\nHugePages_Free: {free}\nHugepagesize:    2048 kB\n")
        };
        let text = huge_pages(&set, &meminfo(10, 0)).unwrap();
        assert!(text.contains("8.0 GiB") && text.contains("nr_hugepages = 4106"), "{text}");
        assert!(text.contains("16.0 MiB"), "{text}");
        assert_eq!(huge_pages(&set, &meminfo(4200, 100)), None);
        assert_eq!(huge_pages(&|_| Some(300.0), &meminfo(0, 0)), None, "600 MiB");
        assert_eq!(huge_pages(&set, "MemTotal: 1 kB\n"), None);
    }
}
