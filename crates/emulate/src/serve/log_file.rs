//! The request log as a file outside the mount, written while the emulation runs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Error;
use super::transfers::Transfers;

/// How often the file is updated.
const EVERY: Duration = Duration::from_millis(200);

/// Keeps the file up to date until this is dropped.
#[derive(Debug)]
pub(super) struct LogFile {
    /// Dropped to make the writer finish the file.
    finish: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl LogFile {
    pub(super) fn start(path: &Path, transfers: &Arc<Transfers>) -> Result<LogFile, Error> {
        let failed = |doing: &str, source| Error::Io {
            doing: format!("{doing} the log file {}", path.display()),
            source,
        };
        let mut file = File::create(path).map_err(|source| failed("make", source))?;
        let transfers = Arc::clone(transfers);
        let (finish, finished) = channel();
        let writer = std::thread::Builder::new().name("emulate-log".to_owned()).spawn(move || {
            let mut next = 0;
            loop {
                let last = finished.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
                let lines = transfers.scheduler.log().ended_lines(&mut next);
                // A log that cannot be written any more is not a reason to stop serving the disk.
                if file.write_all(&lines).is_err() || last {
                    return;
                }
            }
        });
        let writer = writer.map_err(|source| failed("follow", source))?;
        Ok(LogFile { finish: Some(finish), writer: Some(writer) })
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.finish.take();
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}
