//! Trace events as JSON lines, for programs.
//!
//! Written by hand: every value is a number or one of our own words, so nothing needs escaping, and
//! the core does without a JSON library. A test reads the lines back with one.
//!
//! ```text
//! {"at_seconds":0.000001500,"stream":1,"file":3,"first":42,"blocks":8,"action":"hint","why":"gap"}
//! ```

use std::io;

use super::TraceEvent;

/// Writes one event and a newline.
pub(super) fn write_line(event: &TraceEvent, out: &mut impl io::Write) -> io::Result<()> {
    let TraceEvent { at, stream, file, first, blocks, action, why } = event;
    // All nine digits, not a float: a float of seconds loses nanoseconds after some months.
    let (seconds, nanos) = (at.as_secs(), at.subsec_nanos());
    writeln!(
        out,
        "{{\"at_seconds\":{seconds}.{nanos:09},\"stream\":{stream},\"file\":{file},\
         \"first\":{first},\"blocks\":{blocks},\"action\":\"{action}\",\"why\":\"{why}\"}}"
    )
}
