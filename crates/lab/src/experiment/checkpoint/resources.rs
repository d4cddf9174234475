//! Available resources: backends, cache modes, the second tablespace, the devices' counters.

use anyhow::Context;
use forebay_io::{CacheMode, Io, IoOptions, Kind, Op, Prefer};

use super::cell::{Cell, Dirty};
use super::settings::Settings;
use crate::experiment::modes::{check, note, probe_direct};
use crate::experiment::{Bench, Experiment, WorkfileSpec, modes};
use forebay_measure::facts::{CounterSource, DeviceCounters, Storage, Sysfs};
use forebay_measure::report::BackendNote;
use forebay_measure::workfile::Workfile;

/// The resources of a run.
#[derive(Debug)]
pub(super) struct Resources {
    /// In the first directory.
    pub(super) first: modes::Modes,
    pub(super) second: Option<Workfile>,
    /// The reason if direct files are not available there.
    second_direct: Option<String>,
    /// Further counters for the second directory, in addition to the first device's; empty if it is on the first
    /// device. `None`: its writes are not counted.
    second_counters: Option<Vec<CounterSource>>,
}

impl Resources {
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when nothing of the request can be measured.
    pub(super) fn probe(settings: &Settings, bench: &Bench<'_>) -> anyhow::Result<Resources> {
        let backends = settings.backends.iter().map(|&kind| probe_backend(settings, kind));
        let (workfile_spec, backends) = (settings.workfile_spec(), backends.collect());
        let mut resources = Resources {
            first: modes::Modes::probe(
                &workfile_spec,
                bench.workfile,
                &settings.caches,
                Op::Write,
                backends,
            )?,
            second: None,
            second_direct: None,
            second_counters: None,
        };
        if let Some(workfile_spec) = settings.second_spec() {
            let WorkfileSpec { directory, size_bytes, block_bytes, seed, naming } = &workfile_spec;
            let workfile = Workfile::create(directory, *size_bytes, *block_bytes, !*seed, *naming)
                .context("the second tablespace (--dir2)")?;
            resources.second_direct =
                probe_direct(&workfile_spec, &workfile, &settings.caches, Op::Write)?;
            resources.second_counters = second_counters(bench, &workfile_spec)?;
            resources.second = Some(workfile);
        }
        check(settings.cells().into_iter().map(|cell| resources.missing(cell)))?;
        Ok(resources)
    }

    /// The reason if `cell` cannot be measured.
    pub(super) fn missing(&self, cell: Cell) -> Option<&str> {
        let in_second = cell.cache == CacheMode::Direct && cell.dirty == Dirty::TwoTablespaces;
        let second = self.second_direct.as_deref().filter(|_| in_second);
        self.first.missing(Some(cell.backend), cell.cache).or(second)
    }

    /// The counts of the devices of `dirty`; `None` if one does not count.
    pub(super) fn counters(&self, bench: &Bench<'_>, dirty: Dirty) -> Option<DeviceCounters> {
        let mut counted = bench.counters?.read().ok()?;
        if dirty == Dirty::TwoTablespaces {
            for source in self.second_counters.as_ref()? {
                counted = counted.plus(source.read().ok()?);
            }
        }
        Some(counted)
    }
}

fn second_counters(
    bench: &Bench<'_>,
    workfile_spec: &WorkfileSpec,
) -> anyhow::Result<Option<Vec<CounterSource>>> {
    let storage = Storage::read(&workfile_spec.directory)
        .with_context(|| format!("cannot look at {}", workfile_spec.directory.display()))?;
    Ok(match (&bench.storage.device, &storage.device) {
        (Some(first), Some(second)) if first.leaves == second.leaves => Some(Vec::new()),
        (Some(_), Some(_)) => {
            let own = CounterSource::of(&Sysfs::system(), &storage).ok().flatten();
            own.map(|own| vec![own])
        }
        _ => None,
    })
}

/// Whether a queue of `kind` is available, and its remarks.
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
