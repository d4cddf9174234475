//! What there is to measure with: which backends and cache modes work here, and whether fio does.
//!
//! Looked at before the working file is filled, so that a run which cannot succeed says so at
//! once.

use std::collections::BTreeMap;

use forebay_io::{CacheMode, Kind};

use super::cell::{Cell, Engine};
use super::fio::Fio;
use super::{Settings, open_queue};
use crate::bad_input;
use crate::experiment::window::memory;
use crate::experiment::{Experiment, probe_direct};
use crate::report::BackendNote;
use crate::workfile::Workfile;

/// What can be measured with.
#[derive(Debug)]
pub struct Means {
    pub(super) fio: Option<Fio>,
    pub(super) backends: Vec<BackendNote>,
    pub(super) missing: Missing,
}

/// What cannot, and why.
#[derive(Debug, Default)]
pub(super) struct Missing {
    backends: BTreeMap<&'static str, String>,
    direct: Option<String>,
}

impl Missing {
    pub(super) fn works(&self, kind: Kind) -> bool {
        !self.backends.contains_key(kind.name())
    }

    /// Why `cell` cannot be measured, if that is so.
    pub(super) fn of(&self, cell: Cell) -> Option<&str> {
        let direct = self.direct.as_ref().filter(|_| cell.cache == CacheMode::Direct);
        let backend = match cell.backend {
            Engine::Forebay(kind) => self.backends.get(kind.name()),
            Engine::Fio => None,
        };
        backend.or(direct).map(String::as_str)
    }
}

impl Means {
    /// Tries each backend and cache mode once, on a `workfile` that may still be empty.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when nothing of what was asked for can be measured.
    pub fn probe(settings: &Settings, workfile: &Workfile) -> anyhow::Result<Means> {
        let fio = if settings.fio { Some(Fio::find()?) } else { None };
        let mut missing = Missing::default();
        if settings.caches.contains(&CacheMode::Direct) || settings.fio {
            missing.direct = probe_direct(&settings.ground(), workfile)?;
        }
        let mut backends = Vec::new();
        for &kind in &settings.backends {
            let note = probe_backend(settings, workfile, kind);
            if !note.available {
                missing.backends.insert(kind.name(), note.note.clone());
            }
            backends.push(note);
        }
        let cells = settings.cells();
        if cells.is_empty() {
            bad_input!("there is nothing to measure: aio reads direct only; add --cache direct");
        }
        if let Some(why) = cells.iter().map(|&cell| missing.of(cell)).collect::<Option<Vec<_>>>() {
            bad_input!("nothing of this can be measured here: {}", why[0]);
        }
        Ok(Means { fio, backends, missing })
    }
}

/// Opens `kind` as the deepest measurement will, so that limits show; and where that fails, as
/// the shallowest would, because then it is only the deep cells that cannot be measured.
fn probe_backend(settings: &Settings, workfile: &Workfile, kind: Kind) -> BackendNote {
    let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
    let deepest = settings.depths.last().map_or(1, |&depth| depth as usize);
    let deep = memory(deepest, workfile.block_bytes())
        .and_then(|memory| open_queue(kind, cache, deepest, None, Some(&memory)));
    let (available, note) = match deep {
        Ok(io) => (true, io.notes().join("; ")),
        Err(error) => match open_queue(kind, cache, 1, None, None) {
            Ok(_) => (true, format!("not at depth {deepest}: {error}")),
            Err(error) => (false, error.to_string()),
        },
    };
    BackendNote { backend: kind.to_string(), available, note }
}
