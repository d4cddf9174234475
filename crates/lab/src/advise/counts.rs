//! What the server has counted itself: why its checkpoints began, and where its background writer stopped.
//!
//! No read-only query can show what these settings gain, and a proof of them would take a restart or an hour of somebody
//! else's writes. So they are told, with the counts, and neither proposed nor set.
//!
//! Worked example: 37 of 40 checkpoints were requested, 400 GiB of WAL in 10 hours, a checkpoint every 5 minutes, completion
//! target 0.9: 11.4 MiB/s times 300 s times 1.9 is 6.3 GiB, so `max_wal_size = 8GB`.
//!
//! Source:      PostgreSQL's documentation, "WAL Configuration", for what max_wal_size must hold: the WAL between two
//!              checkpoints and of the part of the next that is being written.

use std::fs;

use super::server::Server;
use crate::libpq::Connection;
use crate::units::shown_size;

/// Fewer checkpoints, or rounds that stopped early, say nothing.
const REQUESTED_MIN: f64 = 5.0;
const STOPPED_MIN: f64 = 100.0;
/// What is rare is as it should be.
const REQUESTED_SHARE: f64 = 0.1;
const STOPPED_SHARE: f64 = 0.05;
/// Most that bgwriter_lru_maxpages is raised to here, in pages a round.
const MAXPAGES: f64 = 1000.0;
/// From so much shared memory on, in bytes, the tables of its pages matter.
const SHARED_BYTES_MIN: u64 = 1 << 30;

/// Since the server's statistics were reset.
#[derive(Debug, Clone)]
struct Counts {
    timed: f64,
    requested: f64,
    checkpoints_s: f64,
    /// Rounds of the background writer that ended at bgwriter_lru_maxpages.
    stopped: f64,
    bgwriter_s: f64,
    wal_bytes: f64,
    wal_s: f64,
}

/// What they say, a sentence each.
///
/// # Errors
/// What the server says of our own statement.
pub(super) fn told(connection: &mut Connection, server: &Server) -> anyhow::Result<Vec<String>> {
    let checkpoints = if server.major >= 17 {
        "c.num_timed, c.num_requested, extract(epoch from now() - c.stats_reset), b.maxwritten_clean, \
         extract(epoch from now() - b.stats_reset) from pg_stat_checkpointer c, pg_stat_bgwriter b"
    } else {
        "b.checkpoints_timed, b.checkpoints_req, extract(epoch from now() - b.stats_reset), b.maxwritten_clean, \
         extract(epoch from now() - b.stats_reset) from pg_stat_bgwriter b"
    };
    let row = connection.row(&format!(
        "select w.wal_bytes, extract(epoch from now() - w.stats_reset), {checkpoints}, pg_stat_wal w"
    ))?;
    let number = |column| row.number(column).unwrap_or(0.0);
    let counts = Counts {
        wal_bytes: number(0),
        wal_s: number(1),
        timed: number(2),
        requested: number(3),
        checkpoints_s: number(4),
        stopped: number(5),
        bgwriter_s: number(6),
    };
    let set = |name: &str| server.setting(name)?.value.parse::<f64>().ok();
    let local = server.local.then(|| fs::read_to_string("/proc/meminfo").ok()).flatten();
    let told = [
        counts.checkpoints(&set),
        counts.background_writer(&set),
        local.and_then(|meminfo| huge_pages(&set, &meminfo)),
    ];
    Ok(told.into_iter().flatten().collect())
}

impl Counts {
    /// Whether max_wal_size ends checkpoints before their time.
    fn checkpoints(&self, set: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        let limit_mb = set("max_wal_size")?;
        let span = 1.0 + set("checkpoint_completion_target")?;
        let timeout_s = set("checkpoint_timeout")?;
        let all = self.timed + self.requested;
        // A CHECKPOINT or a backup requests one too, with any amount of WAL.
        let by_wal = self.wal_bytes * span / (limit_mb * MIB);
        let is_full = self.requested >= REQUESTED_MIN
            && self.requested > all * REQUESTED_SHARE
            && by_wal >= self.requested / 2.0;
        if !is_full || self.wal_s <= 0.0 {
            return None;
        }
        let rate = self.wal_bytes / self.wal_s;
        // More than the average tells is written while checkpoints come early.
        let wanted_mb = (rate * timeout_s * span / MIB).max(2.0 * limit_mb);
        Some(format!(
            "max_wal_size = '{}GB' is worth trying: {} of {all} checkpoints in {} were requested, most of them since \
             {} of WAL were full before checkpoint_timeout; {}/s were written. It takes as much room under \
             pg_wal, and recovery after a crash takes longer.",
            ((wanted_mb / 1024.0).ceil() as u64).next_power_of_two(),
            self.requested,
            humantime::format_duration(std::time::Duration::from_secs(self.checkpoints_s as u64)),
            shown_size((limit_mb * MIB) as u64),
            shown_size(rate as u64),
        ))
    }

    /// Whether bgwriter_lru_maxpages ends its rounds.
    fn background_writer(&self, set: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        let pages = set("bgwriter_lru_maxpages")?;
        let rounds = self.bgwriter_s * 1000.0 / set("bgwriter_delay")?;
        let advised = (4.0 * pages).min(MAXPAGES);
        let is_short = self.stopped >= STOPPED_MIN && self.stopped > rounds * STOPPED_SHARE;
        (is_short && advised > pages).then(|| {
            format!(
                "bgwriter_lru_maxpages = {advised} is worth trying: {:.0} % of the background writer's rounds ended at \
                 {pages} pages, and the rest was left to who needed the room.",
                100.0 * self.stopped / rounds,
            )
        })
    }
}

const MIB: f64 = 1_048_576.0;

/// Whether the shared memory could lie in huge pages, of which `meminfo` tells, and does not.
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

    fn set(name: &str) -> Option<f64> {
        let all = [
            ("max_wal_size", 1024.0),
            ("checkpoint_completion_target", 0.9),
            ("checkpoint_timeout", 300.0),
            ("bgwriter_lru_maxpages", 100.0),
            ("bgwriter_delay", 200.0),
            ("shared_memory_size_in_huge_pages", 4096.0),
        ];
        all.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    const HOURS: f64 = 36_000.0;

    fn counts() -> Counts {
        Counts {
            timed: 3.0,
            requested: 37.0,
            checkpoints_s: HOURS,
            stopped: 18_000.0,
            bgwriter_s: HOURS,
            wal_bytes: 400.0 * 1024.0 * MIB,
            wal_s: HOURS,
        }
    }

    #[test]
    fn max_wal_size_holds_the_wal_of_a_checkpoint_and_the_part_being_written() {
        let told = counts().checkpoints(&set).unwrap();
        assert!(told.starts_with("max_wal_size = '8GB'") && told.contains("37 of 40"), "{told}");
        assert!(told.contains("10h") && told.contains("11.4 MiB/s"), "{told}");
    }

    #[test]
    fn checkpoints_that_somebody_else_requested_say_nothing() {
        let by_hand = Counts { wal_bytes: 400.0 * MIB, ..counts() };
        let few = Counts { requested: 4.0, ..counts() };
        let rare = Counts { timed: 400.0, ..counts() };
        for quiet in [by_hand, few, rare] {
            assert_eq!(quiet.checkpoints(&set), None, "{quiet:?}");
        }
    }

    #[test]
    fn rounds_that_end_early_ask_for_more_pages_up_to_a_limit() {
        let told = counts().background_writer(&set).unwrap();
        assert!(told.contains("bgwriter_lru_maxpages = 400 ") && told.contains("10 %"), "{told}");
        assert_eq!(Counts { stopped: 8_000.0, ..counts() }.background_writer(&set), None);
        let most =
            |name: &str| if name == "bgwriter_lru_maxpages" { Some(1000.0) } else { set(name) };
        assert_eq!(counts().background_writer(&most), None);
    }

    #[test]
    fn shared_memory_that_is_in_huge_pages_already_needs_none() {
        let meminfo = |total, free| {
            format!("HugePages_Total: {total}\nHugePages_Free: {free}\nHugepagesize:    2048 kB\n")
        };
        let told = huge_pages(&set, &meminfo(10, 0)).unwrap();
        assert!(told.contains("8.0 GiB") && told.contains("nr_hugepages = 4106"), "{told}");
        assert!(told.contains("16.0 MiB"), "{told}");
        assert_eq!(huge_pages(&set, &meminfo(4200, 100)), None);
        assert_eq!(huge_pages(&|_| Some(300.0), &meminfo(0, 0)), None, "600 MiB");
        assert_eq!(huge_pages(&set, "MemTotal: 1 kB\n"), None);
    }
}
