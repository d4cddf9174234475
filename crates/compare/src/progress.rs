//! Progress of a run: one line that is overwritten on a terminal, an occasional line elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Between two updates on a terminal: faster ones are unreadable.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Progress on standard error; dropping it removes what it drew on a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    due: Instant,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let wait = if terminal { Duration::ZERO } else { LINE_INTERVAL };
        Progress { terminal, due: Instant::now() + wait }
    }

    /// Shows that `done` of `all` are done and the current step, if the last update is old enough.
    pub(crate) fn reach(&mut self, done: u64, all: u64, doing: &str) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let mut stderr = std::io::stderr();
        // If the reader has exited, only the progress is lost.
        let _ = write!(stderr, "{before}{doing}: {done} of {all}{after}");
        let _ = stderr.flush();
        self.due = now + if self.terminal { REDRAW_INTERVAL } else { LINE_INTERVAL };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
