//! Which pages are changed: four patterns, each different pages in the order in which they are changed.
//!
//! Frames are assigned in the order of changes, so that order is what `arrival` writes in. Neighbours of
//! a run are changed one after the other, as one operation of an engine would: that is better for `arrival`
//! than any order with other pages in between.
//!
//! Worked example: 16 pages of 64, clustered, may be 40..48 and then 8..16.
//!
//! Invariants:  [DIR-1] a set has the requested number of pages, all different and all in the file
//!              [DIR-2] it depends only on the random numbers

use std::collections::BTreeMap;

use super::cell::Dirty;
use super::settings::Settings;
use crate::experiment::pattern::Zipf;

/// Pages in a run of `clustered`.
const RUN_PAGES: u32 = 8;

/// Pages that are equally popular in `zipfian`, since they are adjacent: 512 KiB.
const EXTENT_PAGES: u32 = 64;

/// Draws for each requested page, after which `zipfian` takes any remaining pages.
const ZIPF_DRAWS: u32 = 64;

/// A page: the number of its tablespace, 0 or 1, and its block in that tablespace's file.
pub(super) type Place = (usize, u32);

/// The sets of one round.
pub(super) fn sets(settings: &Settings, random: &mut fastrand::Rng) -> BTreeMap<Dirty, Vec<Place>> {
    let (blocks, count) = (settings.file_blocks(), settings.dirty_pages());
    let of = |&dirty: &Dirty| (dirty, places(dirty, blocks, count, random));
    settings.patterns.iter().map(of).collect()
}

fn places(dirty: Dirty, blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<Place> {
    let first = |list: Vec<u32>| list.into_iter().map(|block| (0, block)).collect();
    let places: Vec<Place> = match dirty {
        Dirty::Uniform => first(uniform(blocks, count, random)),
        Dirty::Clustered => first(clustered(blocks, count, random)),
        Dirty::Zipfian => first(zipfian(blocks, count, random)),
        Dirty::TwoTablespaces => {
            let mut sides = [0, 1].map(|_| uniform(blocks / 2, count.div_ceil(2), random));
            let turns = (0..count as usize).map(|turn| turn % 2);
            turns.map(|side| (side, sides[side].pop().unwrap_or_default())).collect()
        }
    };
    assert_eq!(places.len(), count as usize, "[DIR-1]");
    places
}

fn uniform(blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let mut list = random.choose_multiple(0..blocks, count as usize);
    random.shuffle(&mut list);
    list
}

fn clustered(blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let runs = uniform(blocks / RUN_PAGES, count.div_ceil(RUN_PAGES), random);
    let pages = runs.into_iter().flat_map(|run| run * RUN_PAGES..(run + 1) * RUN_PAGES);
    pages.take(count as usize).collect()
}

/// The extents are in a random order of popularity; the k-th page of that order is drawn in proportion to
/// 1 / k^0.99.
fn zipfian(blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let mut extents: Vec<u32> = (0..blocks / EXTENT_PAGES).collect();
    random.shuffle(&mut extents);
    let pages = extents.len() as u32 * EXTENT_PAGES;
    let mut is_taken = vec![false; blocks as usize];
    let mut list = Vec::with_capacity(count as usize);
    let mut draws = u64::from(count) * u64::from(ZIPF_DRAWS);
    let zipf = Zipf::new(pages);
    while list.len() < count as usize && draws > 0 && pages > 0 {
        draws -= 1;
        let rank = zipf.draw(random);
        let block = extents[(rank / EXTENT_PAGES) as usize] * EXTENT_PAGES + rank % EXTENT_PAGES;
        if !std::mem::replace(&mut is_taken[block as usize], true) {
            list.push(block);
        }
    }
    let left = (0..blocks).filter(|&block| !is_taken[block as usize]);
    let missing = count as usize - list.len();
    list.extend(left.take(missing));
    list
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    const BLOCKS: u32 = 8192;
    const COUNT: u32 = 1024;

    fn made(dirty: Dirty, seed: u64) -> Vec<Place> {
        places(dirty, BLOCKS, COUNT, &mut fastrand::Rng::with_seed(seed))
    }

    #[test]
    fn a_set_has_so_many_different_pages_of_the_file_and_depends_on_the_seed_alone() {
        for dirty in Dirty::value_variants().iter().copied() {
            let mut set = made(dirty, 1);
            assert_eq!(set, made(dirty, 1), "[DIR-2] {dirty}");
            assert_ne!(set, made(dirty, 2), "[DIR-2] {dirty}");
            set.sort_unstable();
            set.dedup();
            assert_eq!(set.len(), COUNT as usize, "[DIR-1] {dirty}");
            assert!(set.iter().all(|&(side, block)| side < 2 && block < BLOCKS), "[DIR-1]");
        }
    }

    /// Number of pages whose previous neighbour is dirty too.
    fn neighbours(dirty: Dirty) -> usize {
        let mut set = made(dirty, 3);
        set.sort_unstable();
        set.windows(2).filter(|pair| pair[1] == (pair[0].0, pair[0].1 + 1)).count()
    }

    #[test]
    fn patterns_differ_in_how_many_neighbours_there_are() {
        assert!(neighbours(Dirty::Uniform) < 200, "one in eight");
        let clustered = neighbours(Dirty::Clustered);
        assert!(clustered >= 7 * 128, "runs of eight: {clustered}");
        let zipfian = neighbours(Dirty::Zipfian);
        assert!((200..900).contains(&zipfian), "in between: {zipfian}");
    }

    #[test]
    fn runs_come_whole_and_one_after_the_other() {
        let set = made(Dirty::Clustered, 5);
        for run in set.chunks(RUN_PAGES as usize) {
            let first = run[0].1;
            assert_eq!(first % RUN_PAGES, 0);
            assert!(run.iter().map(|place| place.1).eq(first..first + RUN_PAGES));
        }
        assert!(!set.is_sorted(), "and in no order among each other");
    }

    #[test]
    fn two_tablespaces_take_turns() {
        let set = made(Dirty::TwoTablespaces, 7);
        assert!(set.iter().enumerate().all(|(index, place)| place.0 == index % 2));
        assert!(set.iter().all(|place| place.1 < BLOCKS / 2), "the files are half as long");
    }

    #[test]
    fn an_eighth_of_the_zipfian_extents_has_most_of_the_pages() {
        let mut counts = vec![0_u32; (BLOCKS / EXTENT_PAGES) as usize];
        for (_, block) in made(Dirty::Zipfian, 9) {
            counts[(block / EXTENT_PAGES) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts[..counts.len() / 8].iter().sum();
        assert!(hot > COUNT / 2, "{hot} of {COUNT}: {counts:?}");
        assert!(counts.iter().filter(|&&count| count > 0).count() > counts.len() / 2);
    }

    #[test]
    fn all_pages_of_a_file_can_be_dirty() {
        for dirty in [Dirty::Uniform, Dirty::Clustered, Dirty::Zipfian] {
            let set = places(dirty, 128, 128, &mut fastrand::Rng::with_seed(1));
            assert_eq!(set.len(), 128, "[DIR-1] {dirty}");
        }
    }

    #[test]
    fn a_pattern_is_read_back_from_its_name() {
        for dirty in Dirty::value_variants() {
            assert_eq!(Dirty::from_str(&dirty.to_string(), false), Ok(*dirty));
        }
    }
}
