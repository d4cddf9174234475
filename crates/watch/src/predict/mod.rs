//! `--predict`: the gain of other strategies of reading ahead, measured by repeating recorded reads.
//!
//! The reads of a record are repeated on the same files, at the times at which the process would issue them, once
//! unchanged and once with each other strategy, in several rounds and in shuffled order; `evaluation` evaluates the
//! rounds.
//!
//! Invariants:  [PRE-1] files are only opened for reading
//!              [PRE-2] it takes at most the given time and one round
//! Failure:     [`ReadaheadGuard`] restores the readahead of devices on every exit path.

mod evaluation;
mod plan;
mod replay;

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_io::Hint;
use forebay_lookahead::Takes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::record::Record;
use crate::args::WatchArgs;
pub(super) use evaluation::Prediction;
use evaluation::Variant;
use forebay_measure::device_readahead::{ReadaheadGuard, read_kib};
use forebay_measure::facts::{Storage, Sysfs};
use forebay_measure::interrupt;
use forebay_measure::progress::Progress;
use forebay_measure::units::shown_size;
use plan::Plan;
use replay::{Ahead, CacheDelta, ReadStrategy};

/// A run is cut off when it takes this many times as long as recorded, and more than its share of the time.
const TIMES_MAX: u32 = 4;

/// Maximum number of files that are open in addition to those of a plan.
const OPEN_ELSE: usize = 64;

/// All strategies to compare; the first is the unchanged run. `advises`: the program advises the kernel.
fn variants(args: &WatchArgs, advises: bool) -> Vec<Variant> {
    let ahead = |knows_all, takes, most| ReadStrategy::Ahead(Ahead { knows_all, takes, most });
    let mut all = vec![
        Variant::new("as it is", ReadStrategy::AsItIs),
        Variant::new("kernel readahead: none (RANDOM)", ReadStrategy::Hint(Hint::Random)),
        Variant::new("kernel readahead: twice (SEQUENTIAL)", ReadStrategy::Hint(Hint::Sequential)),
    ];
    all.extend(args.readahead.iter().map(|&bytes| {
        let size = if bytes == 0 { "0".to_owned() } else { shown_size(bytes) };
        Variant::new(format!("kernel readahead: {size}"), ReadStrategy::Readahead(bytes))
    }));
    if advises {
        all.push(Variant::new("without the program's advice", ReadStrategy::WithoutAdvice));
    }
    // As far ahead as the PostgreSQL extension looks in a scan that returns all rows, and the SQLite VFS in any scan.
    all.extend([
        Variant::new("look-ahead: what could be known", ahead(false, Takes::All, 256)),
        Variant::new("look-ahead: if all were known", ahead(true, Takes::All, 256)),
        Variant::new("look-ahead: all known, may stop", ahead(true, Takes::MayStop, 128)),
    ]);
    all
}

/// Predicts from the record at `path`.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`Interrupted`](forebay_measure::interrupt::Interrupted), or a system error.
pub(super) fn predict(args: &WatchArgs, path: &Path) -> anyhow::Result<Prediction> {
    // After a watch that Ctrl-C ended, there is no prediction.
    interrupt::check()?;
    let time = Duration::from_secs(args.predict_seconds);
    // Whether the program advises the kernel is known later; this is the larger number.
    let runs = args.rounds * variants(args, true).len() as u32;
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let open_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open_max = (open_max as usize).saturating_sub(OPEN_ELSE);
    // Half of the time: a quarter is for preparation, and some strategies take longer than the original.
    let mut plan = Plan::new(&mut Record::open(path)?, time / 2 / runs, open_max)?;
    let mut variants = variants(args, plan.advises());
    let guards = guards(&plan, &variants)?;
    let result = rounds(args, &mut plan, &guards, &mut variants, time);
    // Restore also after an error; the first error is returned.
    let restored = guards.into_iter().try_for_each(|(guard, _)| guard.restore());
    let remarks = result.and_then(|remarks| restored.map(|()| remarks))?;
    plan.remarks.extend(remarks);
    Ok(Prediction::of(&plan, &variants))
}

/// Guards for the readahead of all devices that hold the plan's files, with its current bytes; none if no strategy sets
/// it.
fn guards(plan: &Plan, variants: &[Variant]) -> anyhow::Result<Vec<(ReadaheadGuard, u64)>> {
    let mut files = Vec::new();
    if variants.iter().any(|variant| matches!(variant.strategy, ReadStrategy::Readahead(_))) {
        for file in &plan.files {
            let directory = file.path.parent().unwrap_or(Path::new("/"));
            let file = Sysfs::system().readahead_file_of(&Storage::read(directory)?)?;
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    let taken = files.into_iter().map(|file| {
        let found = read_kib(&file)? * 1024;
        match ReadaheadGuard::at(file) {
            Ok(guard) => Ok((guard, found)),
            Err(error) => {
                forebay_measure::bad_input!("--readahead: {error:#}; run as root, or leave it out")
            }
        }
    });
    taken.collect()
}

/// Runs as many rounds as there is time for. Returns remarks.
fn rounds(
    args: &WatchArgs,
    plan: &mut Plan,
    guards: &[(ReadaheadGuard, u64)],
    variants: &mut [Variant],
    time: Duration,
) -> anyhow::Result<Vec<String>> {
    let length = Duration::from_nanos(plan.until_ns - plan.from_ns);
    let runs = args.rounds * variants.len() as u32;
    let time_max = (length * TIMES_MAX).max(time / runs);
    let begun = Instant::now();
    let mut progress = Progress::new(u64::from(runs));
    let mut random = fastrand::Rng::with_seed(0);
    let (mut delta, mut remarks) = (CacheDelta::default(), Vec::new());
    // Only the first preparation may have to read from the disk, and has limited time. Pages that it leaves out stay
    // out, so that all runs find the same pages in memory.
    let mut preparing = Some(time / 4);
    for round in 0..args.rounds {
        // [PRE-2]
        let elapsed = begun.elapsed();
        if round > 0 && elapsed + elapsed / round > time {
            remarks.push(format!("{round} rounds were made in {} s", elapsed.as_secs()));
            break;
        }
        let mut order: Vec<usize> = (0..variants.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let variant = &mut variants[at];
            progress.step(&variant.name);
            for (guard, found) in guards {
                guard.set(if let ReadStrategy::Readahead(bytes) = variant.strategy {
                    bytes
                } else {
                    *found
                })?;
            }
            let found = replay::prepare(plan, preparing.take())?;
            delta.stayed = delta.stayed.max(found.stayed);
            delta.missing += found.missing;
            variant.rounds.push(replay::replay(plan, variant.strategy, time_max)?);
        }
    }
    let size = |pages| shown_size(pages * plan.page_bytes);
    if delta.stayed > 0 {
        let stayed = size(delta.stayed);
        remarks.push(format!(
            "{stayed} of the files could not be dropped from memory, as others use it: the waits are too short"
        ));
    }
    if delta.missing > 0 {
        let missing = size(delta.missing);
        remarks.push(format!(
            "{missing} that were in memory then are not now, as --predict-seconds is too short to bring them in: the waits \
             are too long"
        ));
    }
    Ok(remarks)
}

#[cfg(test)]
mod tests;
