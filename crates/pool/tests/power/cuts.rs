//! Cuts: at many moments of a life, checks what was promised by then.

use fastrand::Rng;
use forebay_sim::{Disk, Image, Journal, Position};

use crate::engine::oracle::{Found, Model};
use crate::engine::{Engine, Error};
use crate::life::{Start, live};
use crate::variant::Variant;

/// Number of cuts in one life.
const CUTS_EACH: u64 = 50;

/// After this many lives a database ends and another begins: its log only grows, and is copied for each cut.
const LIVES_EACH: u64 = 8;

/// One in this many recoveries is cut as well.
const RECOVERIES_TO_A_CUT: u32 = 4;

/// The sums over all cuts.
#[derive(Debug, Default)]
struct Sum {
    lives: u64,
    cuts: u64,
    cuts_of_recoveries: u64,
    entries: u64,
    acknowledged: usize,
    openings: u32,
    blocks: usize,
}

/// Cuts the power `cuts` times; returns a summary, or what was lost.
pub(crate) fn run(variant: &Variant, cuts: u64, seed: u64) -> Result<String, String> {
    let mut random = Rng::with_seed(seed);
    let beginning = Start { image: Image::empty(), model: Model::default() };
    let mut start = beginning.clone();
    let mut sum = Sum::default();
    while sum.cuts < cuts {
        if sum.lives.is_multiple_of(LIVES_EACH) {
            start = beginning.clone();
        }
        sum.lives += 1;
        let cuts_here = CUTS_EACH.min(cuts - sum.cuts);
        start = one_life(variant, &start, cuts_here, &mut random, &mut sum)
            .map_err(|broken| format!("life {}: {broken}", sum.lives))?;
    }
    // Otherwise the test has tested nothing.
    if sum.acknowledged == 0 || (sum.lives > 2 && sum.blocks == 0) {
        return Err(format!("hardly anything happened: {sum:?}"));
    }
    let Sum { lives, cuts, cuts_of_recoveries, entries, acknowledged, openings, blocks } = sum;
    Ok(format!(
        "{cuts} power cuts and {cuts_of_recoveries} in recoveries from them, in {lives} lives of {entries} \
         entries, {acknowledged} acknowledgements and {openings} openings; {blocks} blocks compared"
    ))
}

fn one_life(
    variant: &Variant,
    start: &Start,
    cuts: u64,
    random: &mut Rng,
    sum: &mut Sum,
) -> Result<Start, String> {
    let life = live(variant, start, random.u64(..)).map_err(|error| format!("{error}"))?;
    let end = life.journal.len();
    let mut at: Vec<Position> = (0..cuts).map(|_| random.u64(0..=end)).collect();
    at.sort_unstable();
    sum.entries += end;
    sum.acknowledged += life.history.acknowledgements(end);
    sum.openings += life.openings;
    let going_on = random.usize(0..at.len());
    let mut next = None;
    let mut replay = life.journal.replay();
    for (number, at) in at.into_iter().enumerate() {
        replay.advance_to(at);
        let seed = random.u64(..);
        let image = replay.crash(seed);
        let promise = life.history.promised(at);
        let check = |image: &Image, seed| {
            let (found, journal) = recovered(variant, image, seed).map_err(|it| it.to_string())?;
            promise.check(&found).map_err(|it| it.to_string())?;
            Ok((found, journal))
        };
        let said = |broken: String| format!("cut at {at} of {end}, crash {seed}: {broken}");
        let (mut found, journal) = check(&image, seed).map_err(said)?;
        sum.cuts += 1;
        sum.blocks += found.model.blocks();
        let mut image = image;
        if random.u32(0..RECOVERIES_TO_A_CUT) == 0 {
            let again = random.u64(0..=journal.len());
            let said = |broken| format!("cut at {at} of {end}, then at {again}: {broken}");
            let cut = journal.crash(again, seed);
            found = check(&cut, seed).map_err(said)?.0;
            image = cut;
            sum.cuts_of_recoveries += 1;
        }
        if number == going_on {
            next = Some(Start { image, model: found.model });
        }
    }
    Ok(next.expect("one of them"))
}

/// What recovery finds in `image`, and its changes to the disk.
fn recovered(variant: &Variant, image: &Image, seed: u64) -> Result<(Found, Journal), Error> {
    let disk = Disk::boot(image, variant.disk(seed)).expect("a scratch directory");
    let engine = Engine::open(&variant.settings(&disk)?)?;
    let found = Found::read(&engine)?;
    Ok((found, disk.journal()))
}
