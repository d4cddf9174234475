//! The load of the server while it is measured: the run stops before other sessions suffer from it.
//!
//! A separate session samples four times a second what other sessions do and how far standbys lag; first for a second
//! in which nothing is measured, then throughout. The mean number of waiting sessions is also the time that all of them
//! together wait per second, so waits are counted and not timed. Worked example: with at most 3 active sessions before,
//! a mean of more than 10 over two seconds stops the run.
//!
//! Invariants:  [ADL-1] load that was there before the start, however high, is no reason to stop
//!              [ADL-2] nor is a single sample
//! Concurrency: a thread samples; it stops the run the way Ctrl-C does, so the same cleanup runs.
//! Failure:     if the load can no longer be observed, the run stops as well.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use postgres::Client;

use super::APPLICATION;
use forebay_measure::interrupt;
use forebay_measure::units::shown_size;
use forebay_session::{Config, rows, session};

/// Interval between samples; number of samples before the start; number of samples in the mean.
const LOOK: Duration = Duration::from_millis(250);
const BEFORE: usize = 4;
const WINDOW: usize = 8;

/// The limit is twice the earlier load plus this, in sessions or bytes: an idle server may get some load.
const MORE: f64 = 2.0;
const MORE_ACTIVE: f64 = 4.0;
const MORE_WAITING: f64 = 2.0;
const MORE_LAG: f64 = 16.0 * 1024.0 * 1024.0;

/// A sample of the load from other sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    /// Sessions that run a statement, and those of them that wait for a lock, a latch or the disk.
    active: f64,
    waiting: f64,
    /// Bytes of WAL that the standby with the largest lag has not replayed; on a standby, bytes received and not
    /// replayed.
    lag: f64,
}

impl Sample {
    fn take(client: &mut Client) -> anyhow::Result<Sample> {
        let found = rows(
            client,
            &format!(
                "select count(*), count(*) filter (where wait_event_type in ('Lock', 'LWLock', 'BufferPin', 'IO')), \
                 case when pg_is_in_recovery() \
                 then (select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())) \
                 else (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) from pg_stat_replication) end \
                 from pg_stat_activity where backend_type = 'client backend' and state = 'active' \
                 and application_name <> '{APPLICATION}'"
            ),
        )?;
        let number = |column| found.first().and_then(|row| row.number(column)).unwrap_or(0.0);
        Ok(Sample { active: number(0), waiting: number(1), lag: number(2) })
    }
}

/// The reason to stop, if `now` is too much compared with `before` [ADL-1].
fn suffers(before: &[Sample], now: &VecDeque<Sample>) -> Option<String> {
    if now.len() < WINDOW {
        return None; // [ADL-2]
    }
    let most = |of: fn(&Sample) -> f64| before.iter().map(of).fold(0.0, f64::max);
    let mean = |of: fn(&Sample) -> f64| now.iter().map(of).sum::<f64>() / now.len() as f64;
    let sessions = [
        ("active", mean(|it| it.active), most(|it| it.active), MORE_ACTIVE),
        ("waiting", mean(|it| it.waiting), most(|it| it.waiting), MORE_WAITING),
    ];
    for (what, now, most, more) in sessions {
        if now > MORE * most + more {
            return Some(format!(
                "{now:.0} other sessions are {what}; at most {most:.0} were before the measurement"
            ));
        }
    }
    let (lag, most) = (now.iter().map(|it| it.lag).fold(f64::MAX, f64::min), most(|it| it.lag));
    (lag > MORE * most + MORE_LAG).then(|| {
        let [lag, most] = [lag, most].map(|bytes| shown_size(bytes as u64));
        format!("a standby is {lag} of WAL behind; at most {most} before the measurement")
    })
}

/// Watches the load until it is dropped.
#[derive(Debug)]
pub(super) struct Load {
    ended: Arc<AtomicBool>,
    why: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Samples the load for a second, then watches it from another thread.
    ///
    /// # Errors
    /// A server error, or an interruption.
    pub(super) fn watch(config: &Config) -> anyhow::Result<Load> {
        let mut client = session(config)?;
        let mut before = Vec::new();
        for _ in 0..BEFORE {
            interrupt::check()?;
            before.push(Sample::take(&mut client)?);
            std::thread::sleep(LOOK);
        }
        let (ended, why) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let (until, say) = (Arc::clone(&ended), Arc::clone(&why));
        let thread = std::thread::spawn(move || {
            let mut now = VecDeque::new();
            while !until.load(Ordering::SeqCst) {
                now.truncate(WINDOW - 1);
                let found = Sample::take(&mut client).map(|sample| now.push_front(sample));
                let found = found.map(|()| suffers(&before, &now));
                let stop = found.unwrap_or_else(|error| {
                    Some(format!("the load can no longer be watched: {error:#}"))
                });
                if let Some(stop) = stop {
                    let _ = say.set(stop);
                    return interrupt::request();
                }
                std::thread::park_timeout(LOOK);
            }
        });
        Ok(Load { ended, why, thread: Some(thread) })
    }

    /// Why the load stopped the run, if it did.
    pub(super) fn stopped(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Sample = Sample { active: 3.0, waiting: 1.0, lag: 1e6 };

    fn stops(now: &[Sample]) -> Option<String> {
        suffers(
            &[Sample { active: 0.0, waiting: 0.0, lag: 0.0 }, QUIET],
            &now.iter().copied().collect(),
        )
    }

    #[test]
    fn adl_1_what_was_there_before_is_no_reason_to_stop() {
        assert_eq!(stops(&[QUIET; WINDOW]), None, "[ADL-1]");
        assert_eq!(stops(&[Sample { active: 10.0, waiting: 4.0, lag: 1.8e7 }; WINDOW]), None);
        for (worse, words) in [
            (Sample { active: 10.2, ..QUIET }, "10 other sessions are active; at most 3"),
            (Sample { waiting: 4.2, ..QUIET }, "4 other sessions are waiting; at most 1"),
            (Sample { lag: 3e7, ..QUIET }, "28.6 MiB of WAL behind; at most"),
        ] {
            let why = stops(&[worse; WINDOW]).unwrap();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn adl_2_a_single_look_is_no_reason_to_stop() {
        let worse = Sample { active: 20.0, waiting: 9.0, lag: 1e9 };
        assert_eq!(stops(&[worse; WINDOW - 1]), None, "[ADL-2]");
        let mut now = [QUIET; WINDOW];
        now[2] = worse;
        assert_eq!(stops(&now), None, "[ADL-2]");
    }
}
