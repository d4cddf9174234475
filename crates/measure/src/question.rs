//! Questions to the user, which Ctrl-C ends.

use std::io::{IsTerminal, Write};

use crate::interrupt;

/// Whether the user answers `question` with yes; without a terminal the answer is no.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted); or standard input cannot be read.
pub fn ask(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    let _ = write!(std::io::stderr(), "forebay: {question} [y/N] ");
    // On a separate thread, which ends with the process: Ctrl-C does not end a read.
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = answer.send(std::io::stdin().read_line(&mut line).map(|_| line));
    });
    loop {
        interrupt::check()?;
        if let Ok(line) = answered.recv_timeout(std::time::Duration::from_millis(20)) {
            return Ok(["y", "yes"].contains(&line?.trim().to_lowercase().as_str()));
        }
    }
}
