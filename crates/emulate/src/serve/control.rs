//! The hidden directory: files that report and control, whose contents are made when they are opened.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::MountInfo;
use crate::model::SECTOR_BYTES;
use crate::scheduler::Scheduler;

/// A file of the hidden directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlFile {
    Counters,
    Control,
    Profile,
    Log,
}

impl ControlFile {
    pub(super) const ALL: [ControlFile; 4] =
        [ControlFile::Counters, ControlFile::Control, ControlFile::Profile, ControlFile::Log];

    pub(super) fn name(self) -> &'static str {
        match self {
            ControlFile::Counters => "counters",
            ControlFile::Control => "control",
            ControlFile::Profile => "profile",
            ControlFile::Log => "log",
        }
    }
}

/// Contents of a file at the time it was opened, by handle: a log that grows meanwhile still reads as one piece.
#[derive(Debug)]
pub(super) struct ControlFiles {
    info: MountInfo,
    open: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    next_handle: AtomicU64,
}

impl ControlFiles {
    pub(super) fn new(info: MountInfo) -> ControlFiles {
        ControlFiles { info, open: Mutex::default(), next_handle: AtomicU64::new(1) }
    }

    /// Opens `file` and returns a handle.
    pub(super) fn open(&self, file: ControlFile, scheduler: &Scheduler) -> u64 {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let contents = Arc::new(self.contents(file, scheduler));
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, contents);
        handle
    }

    /// Bytes of an open file; counters are refreshed whenever they are read from their start.
    pub(super) fn read(
        &self,
        (file, handle): (ControlFile, u64),
        offset: u64,
        len: usize,
        scheduler: &Scheduler,
    ) -> Vec<u8> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(contents) = open.get_mut(&handle) else { return Vec::new() };
        if file == ControlFile::Counters && offset == 0 {
            *contents = Arc::new(self.contents(file, scheduler));
        }
        let contents = Arc::clone(contents);
        drop(open);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        contents[start..contents.len().min(start.saturating_add(len))].to_vec()
    }

    pub(super) fn close(&self, handle: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    fn contents(&self, file: ControlFile, scheduler: &Scheduler) -> Vec<u8> {
        scheduler.settle();
        let line = match file {
            ControlFile::Counters => serde_json::to_vec(&scheduler.counters()),
            ControlFile::Profile => serde_json::to_vec(&self.info),
            ControlFile::Log => return scheduler.log().lines(),
            ControlFile::Control => return Vec::new(),
        };
        let mut line = line.unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Executes a command that was written to `control`. False if the command is unknown.
pub(super) fn obey(words: &[u8], scheduler: &Scheduler) -> bool {
    match words.trim_ascii() {
        b"timing off" => scheduler.set_timing(false),
        b"timing on" => scheduler.set_timing(true),
        b"log clear" => {
            scheduler.settle();
            scheduler.log().clear();
        }
        words if words.starts_with(b"load ") => return load(&words[5..], scheduler),
        // For tests of that case; release builds have no such command.
        b"panic" if cfg!(debug_assertions) => {
            panic!("asked to panic through .forebay/control")
        }
        _ => return false,
    }
    true
}

/// `SECONDS BYTES`: this much of the device's time passes at once, in which it is read at random.
fn load(words: &[u8], scheduler: &Scheduler) -> bool {
    let words = std::str::from_utf8(words).unwrap_or_default();
    let Some((seconds, bytes)) = words.split_once(' ') else { return false };
    let (Ok(seconds), Ok(bytes)) = (seconds.parse::<u32>(), bytes.parse::<u32>()) else {
        return false;
    };
    let whole = bytes > 0 && u64::from(bytes).is_multiple_of(SECTOR_BYTES);
    if whole {
        scheduler.load(bytes.into(), Duration::from_secs(seconds.into()));
    }
    whole
}
