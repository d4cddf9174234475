//! Intervals: a few checkpoints one after the other, with readers beside them if the cell has any.
//!
//! First a calm time, in which readers show what they take without a checkpoint; then, in each interval,
//! the same pages are changed again and written out: at once at its beginning, or spread over it.
//!
//! Worked example: 20 s, unpaced: 10 s of calm, pages changed, 4 s of writing, 16 s of calm, pages changed,
//! 4 s of writing, 16 s of calm.

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
        let begun = Instant::now();
        let work = || {
            rest_until(begun + settings.calm())?;
            intervals(site, settings, set)
        };
        let (written, samples) = foreground::beside(&pool, &file, &demand, work)?;
        let spans: Vec<(Instant, Instant)> = written.iter().map(|one| one.span).collect();
        let readers = Readers::new(settings, begun, &spans, &samples);
        (written, Some(readers))
    } else {
        (intervals(site, settings, set)?, None)
    };
    site.check(set)?;
    Ok(Taken { written, readers, coldness: site.coldness.clone() })
}

fn intervals(
    site: &mut Site<'_>,
    settings: &Settings,
    set: &[Place],
) -> anyhow::Result<Vec<Written>> {
    let mut written = Vec::new();
    for _ in 0..settings.checkpoints() {
        let begun = Instant::now();
        site.change(set)?;
        let options = if site.cell.paced {
            CheckpointOptions::spread(settings.interval)
        } else {
            CheckpointOptions::now()
        };
        written.push(site.write(options)?);
        rest_until(begun + settings.interval)?;
    }
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
