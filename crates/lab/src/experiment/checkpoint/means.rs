//! What there is to measure with: backends, cache modes, the second tablespace, the devices' counters.
//!
//! Looked at before the working file is filled, so that a run which cannot succeed says so at once.

use anyhow::Context;
use forebay_io::{CacheMode, Io, IoOptions, Kind, Prefer};

use super::{Cell, Dirty, Settings};
use crate::bad_input;
use crate::experiment::{Bench, Ground, probe_direct};
use crate::facts::{CounterSource, DeviceCounters, Storage};
use crate::report::BackendNote;
use crate::workfile::Workfile;

/// What can be measured with.
#[derive(Debug)]
pub struct Means {
    backends: Vec<BackendNote>,
    /// Why direct files cannot be had, if that is so; in the second directory likewise.
    direct: Option<String>,
    second_direct: Option<String>,
    pub(super) second: Option<Workfile>,
    /// What is written to the second tablespace is counted there, too.
    second_counters: SecondCounters,
}

#[derive(Debug)]
enum SecondCounters {
    /// Both tablespaces are on one device, which counts for both.
    Same,
    Own(CounterSource),
    Unknown,
}

impl Means {
    /// # Errors
    /// [`BadInput`](crate::BadInput) when nothing of what was asked for can be measured.
    pub(super) fn probe(settings: &Settings, bench: &Bench<'_>) -> anyhow::Result<Means> {
        let wants_direct = settings.caches.contains(&CacheMode::Direct);
        let direct = |ground: &Ground, workfile: &Workfile| {
            if wants_direct { probe_direct(ground, workfile) } else { Ok(None) }
        };
        let mut means = Means {
            backends: Vec::new(),
            direct: direct(&settings.ground(), bench.workfile)?,
            second_direct: None,
            second: None,
            second_counters: SecondCounters::Same,
        };
        let has_second = settings.patterns.contains(&Dirty::TwoTablespaces);
        if let Some(ground) = settings.second_ground().filter(|_| has_second) {
            let Ground { directory, size_bytes, block_bytes, seed, naming } = &ground;
            let workfile = Workfile::create(directory, *size_bytes, *block_bytes, !*seed, *naming)
                .context("the second tablespace (--dir2)")?;
            means.second_direct = direct(&ground, &workfile)?;
            means.second_counters = second_counters(bench, &ground)?;
            means.second = Some(workfile);
        }
        let probed = settings.backends.iter().map(|&kind| probe_backend(settings, kind));
        means.backends = probed.collect();
        let missing: Option<Vec<String>> =
            settings.cells().into_iter().map(|cell| means.missing(cell)).collect();
        if let Some(why) = missing {
            bad_input!("nothing of this can be measured here: {}", why[0]);
        }
        Ok(means)
    }

    /// Why `cell` cannot be measured, if that is so.
    pub(super) fn missing(&self, cell: Cell) -> Option<String> {
        let name = cell.backend.to_string();
        let backend = self.backends.iter().find(|note| note.backend == name && !note.available);
        let direct = if cell.cache == CacheMode::Direct {
            let second = self.second_direct.as_ref();
            self.direct.as_ref().or(second.filter(|_| cell.dirty == Dirty::TwoTablespaces))
        } else {
            None
        };
        backend.map(|note| &note.note).or(direct).cloned()
    }

    /// Fills the second tablespace's file, if there is one.
    pub(super) fn fill_second(&mut self) -> anyhow::Result<()> {
        self.second.as_mut().map_or(Ok(()), |workfile| workfile.fill(|_| ()))
    }

    /// What the devices of `dirty` have counted; `None` where one does not count.
    pub(super) fn counters(&self, bench: &Bench<'_>, dirty: Dirty) -> Option<DeviceCounters> {
        let first = bench.counters?.read().ok()?;
        if dirty != Dirty::TwoTablespaces {
            return Some(first);
        }
        match &self.second_counters {
            SecondCounters::Same => Some(first),
            SecondCounters::Own(source) => Some(first.plus(source.read().ok()?)),
            SecondCounters::Unknown => None,
        }
    }

    pub(super) fn into_backends(self) -> Vec<BackendNote> {
        self.backends
    }
}

fn second_counters(bench: &Bench<'_>, ground: &Ground) -> anyhow::Result<SecondCounters> {
    let storage = Storage::read(&ground.directory)
        .with_context(|| format!("cannot look at {}", ground.directory.display()))?;
    let (Some(first), Some(second)) = (&bench.storage.device, &storage.device) else {
        return Ok(SecondCounters::Unknown);
    };
    if first.leaves == second.leaves {
        return Ok(SecondCounters::Same);
    }
    Ok(CounterSource::open(second).map_or(SecondCounters::Unknown, SecondCounters::Own))
}

/// Whether a queue of `kind` can be had, and what it has to say.
fn probe_backend(settings: &Settings, kind: Kind) -> BackendNote {
    let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
    let options = IoOptions {
        prefer: Prefer::Only(kind),
        cache,
        queue_depth: settings.depth as usize,
        ..IoOptions::default()
    };
    let (available, note) = match Io::open(&options) {
        Ok(io) => (true, io.notes().join("; ")),
        Err(error) => (false, error.to_string()),
    };
    BackendNote { backend: kind.to_string(), available, note }
}
