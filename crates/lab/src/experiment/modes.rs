//! The modes that can be measured: which backends and cache modes work here.
//!
//! They are probed before the working file is filled, so that a run which cannot succeed says so immediately.

use std::path::Path;

use forebay_io::{CacheMode, Error, File, Io, Kind, Op, OpenOptions, Volume};

use super::WorkfileSpec;
use forebay_measure::bad_input;
use forebay_measure::report::BackendNote;
use forebay_measure::workfile::Workfile;

/// Backends and cache modes that can be measured with, and why others cannot.
#[derive(Debug)]
pub(super) struct Modes {
    pub(super) backends: Vec<BackendNote>,
    /// The reason if direct files are not available.
    direct: Option<String>,
}

impl Modes {
    /// Probes `backends`, on a `workfile` that may still be empty, for measurements of `op` in `caches`.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when blocks are too small for direct files.
    pub(super) fn probe(
        workfile_spec: &WorkfileSpec,
        workfile: &Workfile,
        caches: &[CacheMode],
        op: Op,
        backends: Vec<BackendNote>,
    ) -> anyhow::Result<Modes> {
        Ok(Modes { backends, direct: probe_direct(workfile_spec, workfile, caches, op)? })
    }

    pub(super) fn works(&self, kind: Kind) -> bool {
        self.missing(Some(kind), CacheMode::Buffered).is_none()
    }

    /// The reason if `backend`, one of Forebay's, cannot be measured in mode `cache`.
    pub(super) fn missing(&self, backend: Option<Kind>, cache: CacheMode) -> Option<&str> {
        let failed = |note: &&BackendNote| {
            !note.available && backend.is_some_and(|kind| note.backend == kind.name())
        };
        let note = self.backends.iter().find(failed).map(|note| &note.note);
        let direct = self.direct.as_ref().filter(|_| cache == CacheMode::Direct);
        note.or(direct).map(String::as_str)
    }
}

/// The remark of an attempt to open a queue of `kind`.
pub(super) fn note(kind: Kind, opened: Result<Io, Error>) -> BackendNote {
    let (available, note) = match opened {
        Ok(io) => (true, io.notes().join("; ")),
        Err(error) => (false, error.to_string()),
    };
    BackendNote { backend: kind.to_string(), available, note }
}

/// Refuses to begin if every cell has a reason why it is `missing`.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) with the first of them.
pub(super) fn check<'a>(missing: impl Iterator<Item = Option<&'a str>>) -> anyhow::Result<()> {
    match missing.collect::<Option<Vec<_>>>().as_deref() {
        Some([why, ..]) => bad_input!("nothing of this can be measured here: {why}"),
        _ => Ok(()),
    }
}

/// The reason if direct I/O by `op` in `directory` is not really direct: the kernel executes it through its page
/// cache, and the measurement says nothing of the disk.
pub(super) fn through_cache(directory: &Path, op: Op) -> Option<String> {
    let found = Volume::system().through_cache(directory).ok()?;
    let through = if op == Op::Read { found.reads } else { found.writes };
    through.then(|| {
        format!(
            "the kernel executes direct {found} in {} through its page cache, as btrfs does with files that have \
             checksums; measure buffered files, another --dir, or one with chattr +C",
            directory.display()
        )
    })
}

/// The reason if direct files cannot be measured on `workfile` and `caches` include them.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) when blocks are too small for them.
pub(super) fn probe_direct(
    workfile_spec: &WorkfileSpec,
    workfile: &Workfile,
    caches: &[CacheMode],
    op: Op,
) -> anyhow::Result<Option<String>> {
    if !caches.contains(&CacheMode::Direct) {
        return Ok(None);
    }
    let directory = workfile_spec.directory.display();
    let options = OpenOptions::new().read_only(true).cache(CacheMode::Direct);
    match File::open(workfile.path(), &options) {
        Ok(file) => {
            let needed = file.alignment().offset;
            if workfile_spec.block_bytes < u64::from(needed) {
                bad_input!(
                    "--block-size {}: direct I/O in {directory} needs multiples of {needed}; \
                     choose a larger block or --cache buffered",
                    workfile_spec.block_bytes
                );
            }
            Ok(through_cache(&workfile_spec.directory, op))
        }
        Err(Error::DirectRefused { filesystem, why, .. }) => Ok(Some(format!(
            "{directory} is on {filesystem}, which refuses direct I/O ({why}); use --cache \
             buffered or another --dir"
        ))),
        Err(error) => Err(error.into()),
    }
}
