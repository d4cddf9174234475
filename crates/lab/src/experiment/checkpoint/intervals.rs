//! Intervals: a checkpoint with readers beside it if the cell has any, spread over its interval or not.
//!
//! First a calm time, in which readers show what they take without a checkpoint; then pages are changed and
//! written out, at once at the beginning of an interval or spread over it.
//!
//! Worked example: 10 s, unpaced: 5 s of calm, pages changed, 2 s of writing, 8 s of calm.

use std::thread;
use std::time::{Duration, Instant};

use forebay::CheckpointOptions;

use super::Settings;
use super::dirty::Place;
use super::foreground::{self, Demand};
use super::record::{Readers, Taken};
use super::site::{Site, Written};
use crate::interrupt;

/// Between two looks for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The measurement of a cell with readers or pacing.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(super) fn measure(
    site: &mut Site<'_>,
    settings: &Settings,
    set: &[Place],
    random: &mut fastrand::Rng,
) -> anyhow::Result<Taken> {
    let (written, readers) = if site.cell.foreground {
        let demand = Demand::new(settings, set, random);
        let (pool, file) = (site.pool().clone(), site.file().clone());
        let work = || {
            rest_until(Instant::now() + settings.calm())?;
            interval(site, settings, set)
        };
        let (written, samples) = foreground::beside(&pool, &file, &demand, work)?;
        let readers = Readers::new(settings.interval, written.span, &samples);
        (written, Some(readers))
    } else {
        (interval(site, settings, set)?, None)
    };
    site.check(set)?;
    Ok(Taken { written, readers, coldness: site.coldness.clone() })
}

fn interval(site: &mut Site<'_>, settings: &Settings, set: &[Place]) -> anyhow::Result<Written> {
    site.change(set)?;
    let options = if site.cell.paced {
        CheckpointOptions::spread(settings.interval)
    } else {
        CheckpointOptions::now()
    };
    let begun = Instant::now();
    let written = site.write(options)?;
    rest_until(begun + settings.interval)?;
    Ok(written)
}

/// Sleeps, but not past Ctrl-C.
fn rest_until(moment: Instant) -> Result<(), interrupt::Interrupted> {
    loop {
        interrupt::check()?;
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK_INTERVAL));
    }
}
