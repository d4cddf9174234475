//! What the server bears while settings are tried on it: other people's sessions, and standbys that fall behind.
//!
//! A query that reads as fast as it can is in somebody's way if their sessions pile up behind it. How many are at work at once,
//! and how much WAL its standbys have to catch up with, is noted before the first query and looked at again
//! once a second between queries. What exceeds both a multiple of the most there was and a fixed allowance three times
//! in a row ends the trying. A query under way is not cut: its statement_timeout bounds it.

use std::time::{Duration, Instant};

use super::connection::{Connection, Row};
use crate::interrupt;
use crate::units::shown_size;

/// Looks before the first query, and the time from one to the next then and later.
const FIRST: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);

/// So many looks in a row are more than chance.
const IN_A_ROW: u32 = 3;

/// What may be there beyond twice the most there was: sessions at work, and bytes of WAL.
const MORE_SESSIONS: u64 = 8;
const MORE_LAG: u64 = 256 << 20;

/// Sessions at work that are not ours, and WAL that is not replayed yet: here on a standby, else on the slowest of its own.
const LOOK: &str = "select (select count(*) from pg_stat_activity where state = 'active' and backend_type = 'client backend' \
     and application_name <> 'forebay advise'), \
     case when pg_is_in_recovery() then pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) \
     else (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) from pg_stat_replication) end::bigint";

/// The server suffers: why nothing more is tried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Suffers(pub(super) String);

/// What there was before, and how it has been since.
#[derive(Debug, Default)]
pub(super) struct Load {
    before: Seen,
    last: Option<Instant>,
    /// How often in a row there was too much.
    too_much: u32,
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    sessions: u64,
    lag: u64,
}

impl Seen {
    fn of(row: &Row) -> Seen {
        Seen { sessions: row.number(0).unwrap_or(0), lag: row.number(1).unwrap_or(0) }
    }

    /// What of it is too much after there was `before`, as words.
    fn exceeds(self, before: Seen) -> Option<String> {
        if self.sessions > before.sessions * 2 + MORE_SESSIONS {
            return Some(format!(
                "{} sessions of others are at work at once, and at most {} were before",
                self.sessions, before.sessions
            ));
        }
        let size = shown_size;
        (self.lag > before.lag * 2 + MORE_LAG).then(|| {
            format!(
                "{} of WAL wait to be replayed on a standby, and {} did before",
                size(self.lag),
                size(before.lag)
            )
        })
    }
}

impl Load {
    /// What there is before anything is tried.
    ///
    /// # Errors
    /// What the server says, or an interruption.
    pub(super) fn before(connection: &mut Connection) -> anyhow::Result<Load> {
        let mut before = Seen::default();
        for _ in 0..FIRST {
            let Seen { sessions, lag } = Seen::of(&connection.row(LOOK)?);
            before.sessions = before.sessions.max(sessions);
            before.lag = before.lag.max(lag);
            interrupt::check()?;
            std::thread::sleep(FIRST_PAUSE);
        }
        Ok(Load { before, ..Load::default() })
    }

    /// Looks, unless it was looked a moment ago.
    ///
    /// # Errors
    /// [`Suffers`]; else as [`Load::before`].
    pub(super) fn look(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        if self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            return Ok(());
        }
        let Some(why) = Seen::of(&connection.row(LOOK)?).exceeds(self.before) else {
            (self.last, self.too_much) = (Some(Instant::now()), 0);
            return Ok(());
        };
        (self.last, self.too_much) = (Some(Instant::now()), self.too_much + 1);
        if self.too_much < IN_A_ROW { Ok(()) } else { Err(Suffers(why).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_borne_and_much_more_is_not() {
        let seen = |sessions, lag| Seen { sessions, lag };
        assert_eq!(seen(8, 0).exceeds(seen(0, 0)), None);
        assert!(seen(9, 0).exceeds(seen(0, 0)).is_some_and(|why| why.starts_with("9 sessions")));
        assert_eq!(seen(100, 1 << 30).exceeds(seen(50, 1 << 29)), None);
        let lag = seen(0, 300 << 20).exceeds(seen(0, 1 << 20));
        assert!(lag.is_some_and(|why| why.starts_with("300.0 MiB of WAL")));
    }
}
