//! Backend selection: opens the best backend that works here, and records why each better one does not.
//!
//! A silent fallback to a slower backend is a performance bug that goes undetected. So for each backend that cannot be
//! used, the report keeps the system's error and the remedy; the laboratory and the user's log show it.

use std::fmt;
use std::sync::Arc;

use super::{Backend, Sink, sync::SyncBackend, threads::ThreadsBackend};
use crate::error::Error;
use crate::kind::{Kind, Refusal};
use crate::options::{IoOptions, Prefer};

/// The selected backend, and why it was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The backend in use.
    pub chosen: Kind,
    /// The better backends that cannot be used, best first; empty when a particular one was requested.
    pub refused: Vec<Refusal>,
    /// Other notes, such as memory that could not be registered.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn custom(chosen: Kind) -> Report {
        Report { chosen, refused: Vec::new(), notes: Vec::new() }
    }

    /// Adds a note if memory should be registered and the backend does not support it.
    fn note_unregistered(&mut self, options: &IoOptions) {
        if options.register.is_some() && self.chosen != Kind::Uring {
            self.notes.push(format!(
                "I/O memory should be registered, which uring does and {} does not; requests work, a little slower",
                self.chosen
            ));
        }
    }

    /// Notes for users: the better backends that the system refused, and the other notes.
    pub(crate) fn for_users(&self) -> Vec<String> {
        let by_system = self.refused.iter().filter(|refusal| refusal.source.is_some());
        let reasons: Vec<_> =
            by_system.map(|refusal| format!("{}: {refusal}", refusal.backend)).collect();
        let refused = (!reasons.is_empty())
            .then(|| format!("I/O by {}, for want of {}", self.chosen, reasons.join(", and of ")));
        refused.into_iter().chain(self.notes.iter().cloned()).collect()
    }
}

impl fmt::Display for Report {
    /// One line: `threads (not uring: io_uring_setup: Operation not permitted ...)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.chosen)?;
        for refusal in &self.refused {
            write!(out, " (not {}: {refusal})", refusal.backend)?;
        }
        for note in &self.notes {
            write!(out, " ({note})")?;
        }
        Ok(())
    }
}

/// Opens the backend that `options` prefer.
pub(crate) fn open(
    options: &IoOptions,
    sink: Arc<dyn Sink>,
) -> Result<(Box<dyn Backend>, Report), Error> {
    let rungs: &[Kind] = match options.prefer {
        Prefer::Auto => &[Kind::Uring, Kind::Aio, Kind::Threads],
        Prefer::Only(Kind::Uring) => &[Kind::Uring],
        Prefer::Only(Kind::Aio) => &[Kind::Aio],
        Prefer::Only(Kind::Threads) => &[Kind::Threads],
        Prefer::Only(Kind::Sync) => &[Kind::Sync],
    };
    let mut report = Report::custom(Kind::Sync);
    for &kind in rungs {
        match open_one(kind, options, &sink, &mut report.notes) {
            Ok(backend) => {
                report.chosen = kind;
                report.note_unregistered(options);
                tracing::info!(%report, "I/O backend opened");
                return Ok((backend, report));
            }
            Err(why) if options.prefer == Prefer::Auto => report.refused.push(why),
            Err(why) => return Err(Error::Unavailable { backend: kind, why }),
        }
    }
    // Not even one thread could be started. The caller's own thread always works.
    let backend = SyncBackend::new(options.queue_depth, options.advise, sink);
    report.note_unregistered(options);
    tracing::info!(%report, "I/O backend opened");
    Ok((Box::new(backend), report))
}

/// Opens one backend without a queue, for another backend to wrap.
///
/// For use inside [`Io::over`](crate::Io::over): a wrapper that injects faults, delays or traces passes its own sink to
/// the wrapped backend. `options.prefer` is ignored, and memory that could not be registered is not reported.
///
/// # Errors
/// [`Error::Setting`] for settings out of range, [`Error::Unavailable`] when the backend does not
/// work here.
pub fn open_raw(
    kind: Kind,
    options: &IoOptions,
    sink: &Arc<dyn Sink>,
) -> Result<Box<dyn Backend>, Error> {
    options.check()?;
    open_one(kind, options, sink, &mut Vec::new())
        .map_err(|why| Error::Unavailable { backend: kind, why })
}

fn open_one(
    kind: Kind,
    options: &IoOptions,
    sink: &Arc<dyn Sink>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn Backend>, Refusal> {
    let (capacity, sink) = (options.queue_depth, Arc::clone(sink));
    if !kind.serves(options.cache) {
        return Err(Refusal::buffered(kind));
    }
    match kind {
        Kind::Sync => Ok(Box::new(SyncBackend::new(capacity, options.advise, sink))),
        Kind::Threads => {
            let threads = ThreadsBackend::new(capacity, options.workers, sink)
                .map_err(|error| Refusal::os(kind, "starting a thread", error))?;
            Ok(Box::new(threads))
        }
        Kind::Aio | Kind::Uring => open_linux(kind, options, &sink, notes),
    }
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
fn open_linux(
    kind: Kind,
    options: &IoOptions,
    sink: &Arc<dyn Sink>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn Backend>, Refusal> {
    use super::{aio::AioBackend, uring::UringBackend};
    use crate::os_error::OsError;

    if kind == Kind::Aio {
        return Ok(Box::new(AioBackend::open(options.queue_depth, Arc::clone(sink))?));
    }
    let mut ring = UringBackend::open(options.queue_depth, Arc::clone(sink))?;
    if let Some(memory) = &options.register
        && let Err(source) = ring.register(memory)
    {
        let (what, needed) = ("registering I/O memory", memory.len() as u64);
        notes.push(match source {
            OsError::ENOMEM | OsError::EPERM => Error::Memlock { what, needed, source }.to_string(),
            other => format!("{what} was refused ({other}); requests work, a little slower"),
        });
    }
    Ok(Box::new(ring))
}

#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
fn open_linux(
    kind: Kind,
    _options: &IoOptions,
    _sink: &Arc<dyn Sink>,
    _notes: &mut Vec<String>,
) -> Result<Box<dyn Backend>, Refusal> {
    Err(Refusal { backend: kind, step: "not part of this build", source: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os_error::OsError;

    #[test]
    fn a_report_names_the_call_the_error_and_the_remedy() {
        let report = Report {
            chosen: Kind::Threads,
            refused: vec![Refusal::os(Kind::Uring, "io_uring_setup", OsError::EPERM)],
            notes: vec![],
        };
        let line = report.to_string();
        assert!(line.starts_with("threads (not uring: io_uring_setup: Operation not permitted"));
        assert!(line.contains("kernel.io_uring_disabled"));
    }
}
