//! Progress of a run: a bar on a terminal, an occasional line when stderr is something else.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one part of a run; dropping it removes what it drew.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    len: u64,
    /// When the next line is due, where there is no terminal.
    line_due: Instant,
}

impl Progress {
    /// Of `len` steps.
    pub fn new(len: u64) -> Progress {
        let bar = ProgressBar::new(len);
        let template = "{bar:28} {pos}/{len} {wide_msg} {elapsed} (left {eta})";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Progress { bar, len, line_due: Instant::now() + LINE_INTERVAL }
    }

    /// `position` of the steps are done, and `doing` is in progress.
    pub fn reach(&mut self, position: u64, doing: &str) {
        // Rounds are added while something is undecided.
        self.len = self.len.max(position);
        self.bar.set_length(self.len);
        self.bar.set_message(doing.to_owned());
        self.bar.set_position(position);
        if self.bar.is_hidden() && Instant::now() >= self.line_due {
            // If the reader has exited, only the progress is lost.
            let _ = writeln!(std::io::stderr(), "{}", self.line(position, doing));
            self.line_due = Instant::now() + LINE_INTERVAL;
        }
    }

    /// Begins one more step, with the description `doing`.
    pub fn step(&mut self, doing: &str) {
        self.reach(self.bar.position() + 1, doing);
    }

    fn line(&self, position: u64, doing: &str) -> String {
        format!("{doing}: {position} of {}", self.len)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_how_far() {
        let progress = Progress::new(280);
        assert_eq!(progress.line(37, "sync direct depth 16"), "sync direct depth 16: 37 of 280");
    }

    #[test]
    fn a_line_is_due_again_only_after_the_interval() {
        let mut progress = Progress::new(9);
        progress.line_due = Instant::now();
        progress.reach(12, "now");
        assert_eq!(progress.line(12, "now"), "now: 12 of 12", "rounds were added");
        // A terminal has its bar.
        let is_later = progress.line_due > Instant::now() + LINE_INTERVAL / 2;
        assert!(is_later || !progress.bar.is_hidden());
    }
}
