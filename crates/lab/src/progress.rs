//! How far a run is: a bar on a terminal, now and then a line when stderr goes elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::shown_size;

/// Between two lines, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Bytes,
    Measurements,
}

/// The progress of one part of a run; what it drew goes with it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: Unit,
    len: u64,
    /// When the next line is due; `None` on a terminal.
    line_due: Option<Instant>,
}

impl Progress {
    /// Of `len` units.
    pub(crate) fn new(len: u64, unit: Unit) -> Progress {
        if !std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
            return Progress { bar, unit, len, line_due: Some(Instant::now() + LINE_INTERVAL) };
        }
        let counter = match unit {
            Unit::Bytes => "{bytes}/{total_bytes}",
            Unit::Measurements => "{pos}/{len}",
        };
        let template = format!("{{bar:28}} {counter} {{wide_msg}} {{elapsed}} (left {{eta}})");
        let bar = ProgressBar::new(len);
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar, unit, len, line_due: None }
    }

    /// `position` of the units are reached, and `doing` is what goes on now.
    pub(crate) fn reach(&mut self, position: u64, doing: &str) {
        let now = Instant::now();
        // Rounds are added while something is undecided.
        self.len = self.len.max(position);
        match self.line_due {
            None => {
                self.bar.set_length(self.len);
                self.bar.set_message(doing.to_owned());
                self.bar.set_position(position);
            }
            Some(due) if now >= due => {
                // A reader who has gone misses the progress, and nothing else.
                let _ = writeln!(std::io::stderr(), "{}", self.line(position, doing));
                self.line_due = Some(now + LINE_INTERVAL);
            }
            Some(_) => {}
        }
    }

    fn line(&self, position: u64, doing: &str) -> String {
        match self.unit {
            Unit::Bytes => format!("{doing}: {} of {}", shown_size(position), shown_size(self.len)),
            Unit::Measurements => format!("{doing}: {position} of {}", self.len),
        }
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
        let progress = Progress::new(280, Unit::Measurements);
        assert_eq!(progress.line(37, "sync direct depth 16"), "sync direct depth 16: 37 of 280");
        let progress = Progress::new(1 << 30, Unit::Bytes);
        assert_eq!(progress.line(1 << 20, "writing"), "writing: 1.0 MiB of 1.0 GiB");
    }

    #[test]
    fn a_line_is_due_again_only_after_the_interval() {
        let mut progress = Progress::new(9, Unit::Measurements);
        progress.line_due = Some(Instant::now());
        progress.reach(12, "now");
        assert_eq!(progress.line(12, "now"), "now: 12 of 12", "rounds were added");
        assert!(progress.line_due.unwrap() > Instant::now() + LINE_INTERVAL / 2);
    }
}
