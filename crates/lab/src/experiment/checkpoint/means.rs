//! What there is to measure with: backends, cache modes, the second tablespace, the devices' counters.

use anyhow::Context;
use forebay_io::{CacheMode, Io, IoOptions, Kind, Prefer};

use super::{Cell, Dirty, Settings};
use crate::experiment::means::{check, note, probe_direct};
use crate::experiment::{Bench, Experiment, Ground, means};
use crate::facts::{CounterSource, DeviceCounters, Storage};
use crate::report::BackendNote;
use crate::workfile::Workfile;

/// What can be measured with.
#[derive(Debug)]
pub(super) struct Means {
    /// In the first directory.
    pub(super) first: means::Means,
    pub(super) second: Option<Workfile>,
    /// Why direct files cannot be had there, if that is so.
    second_direct: Option<String>,
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
        let backends = settings.backends.iter().map(|&kind| probe_backend(settings, kind));
        let (ground, backends) = (settings.ground(), backends.collect());
        let mut means = Means {
            first: means::Means::probe(&ground, bench.workfile, &settings.caches, backends)?,
            second: None,
            second_direct: None,
            second_counters: SecondCounters::Same,
        };
        if let Some(ground) = settings.second_ground() {
            let Ground { directory, size_bytes, block_bytes, seed, naming } = &ground;
            let workfile = Workfile::create(directory, *size_bytes, *block_bytes, !*seed, *naming)
                .context("the second tablespace (--dir2)")?;
            means.second_direct = probe_direct(&ground, &workfile, &settings.caches)?;
            means.second_counters = second_counters(bench, &ground)?;
            means.second = Some(workfile);
        }
        check(settings.cells().into_iter().map(|cell| means.missing(cell)))?;
        Ok(means)
    }

    /// Why `cell` cannot be measured, if that is so.
    pub(super) fn missing(&self, cell: Cell) -> Option<&str> {
        let in_second = cell.cache == CacheMode::Direct && cell.dirty == Dirty::TwoTablespaces;
        let second = self.second_direct.as_deref().filter(|_| in_second);
        self.first.missing(Some(cell.backend), cell.cache).or(second)
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
    let opened = Io::open(&IoOptions {
        prefer: Prefer::Only(kind),
        cache,
        queue_depth: settings.depth as usize,
        ..IoOptions::default()
    });
    note(kind, opened)
}
