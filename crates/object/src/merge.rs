//! Merging: which objects are rewritten without their dead pages, to free their space.
//!
//! A share bounds space, a credit bounds writing. When objects take more than 1.6 times their live pages, those with
//! the fewest are merged first, until all take 1.5 times as much. Each byte that a commit puts earns two bytes of
//! merging, and a merge without credit waits: so bytes written never exceed three times the dirty ones, plus what a
//! writer may merge to begin with. The two bounds do not conflict while the amount of data is steady: at 1.6 the
//! emptiest object is at most 1 / 1.6 live, and recovering the space of the pages that a commit replaces costs at most
//! 1.7 times as much.
//!
//! Small commits leave small objects. They are merged when there are more than 64 of less than half the size,
//! each with others of similar size (the same order of magnitude), so that a page is moved once for each magnitude.
//!
//! Invariants:  [MRG-1] the pages of a group fit into one object   [MRG-2] groups cost no more than the credit
//! Source:      the cleaning of log-structured filesystems (Rosenblum and Ousterhout, 1991); the credit is ours.

use crate::format::manifest::ObjectEntry;
use crate::format::object::{FOOTER_BYTES, RUN_BYTES};

/// Merging begins when objects take this many times their live pages, in tenths,
const SPACE_BEGIN: u64 = 16;
/// and ends at this.
const SPACE_END: u64 = 15;
/// Number of objects of less than half the size that are left alone.
const SMALL_MAX: usize = 64;
/// An object is merged with smaller ones if these are together at least this many times as large.
const MAGNITUDE: u64 = 4;
/// Maximum number of objects made in one step, after which obsolete objects are deleted.
pub(crate) const STEP_OBJECTS: usize = 8;

/// The properties of an object that merging needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) entry: ObjectEntry,
    pub(crate) live: u32,
}

impl Candidate {
    fn number(&self) -> u64 {
        self.entry.id.number
    }

    fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    fn live_bytes(&self) -> u64 {
        self.entry.bytes_of(self.live)
    }
}

/// How much may be merged, and into objects of which size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) object_bytes: u64,
    /// In bytes.
    pub(crate) credit: u64,
}

/// Chooses the objects to merge now, in groups that become one object each.
pub(crate) fn choose(objects: &[Candidate], limits: Limits) -> Vec<Vec<u64>> {
    let live_bytes: u64 = objects.iter().map(Candidate::live_bytes).sum();
    let stored: u64 = objects.iter().map(Candidate::bytes).sum();
    let mut victims = small(objects, limits.object_bytes);
    if stored * 10 > live_bytes * SPACE_BEGIN {
        let mut emptiest = objects.to_vec();
        emptiest.sort_by_key(|it| u64::from(it.live) * 1000 / u64::from(it.entry.slots.max(1)));
        let mut left = stored;
        for it in emptiest {
            if left * 10 <= live_bytes * SPACE_END {
                break;
            }
            left -= it.bytes() - it.live_bytes();
            if !victims.contains(&it) {
                victims.push(it);
            }
        }
    }
    group(&victims, limits)
}

/// Small objects to merge, smallest first.
fn small(objects: &[Candidate], object_bytes: u64) -> Vec<Candidate> {
    let mut small: Vec<Candidate> =
        objects.iter().copied().filter(|it| it.bytes() < object_bytes / 2).collect();
    if small.len() <= SMALL_MAX {
        return Vec::new();
    }
    small.sort_by_key(Candidate::bytes);
    let mut total = 0;
    let fits = |it: &Candidate| {
        let fits = total == 0 || it.bytes() <= total / MAGNITUDE || total < object_bytes / 64;
        total += it.bytes();
        fits
    };
    let of_a_kind = small.iter().copied().take_while(fits).count();
    // At least this many, even if some are larger than that, so that every merge makes progress.
    small.truncate(of_a_kind.max(SMALL_MAX / 2));
    small
}

fn group(victims: &[Candidate], limits: Limits) -> Vec<Vec<u64>> {
    let room = limits.object_bytes.saturating_sub(FOOTER_BYTES as u64);
    let mut groups: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut credit = limits.credit;
    for it in victims {
        let Some(rest) = credit.checked_sub(it.live_bytes()) else {
            break;
        };
        credit = rest;
        // Each page may be its own run there.
        let needed = it.live_bytes() + u64::from(it.live) * RUN_BYTES as u64;
        let full = groups.len() == STEP_OBJECTS;
        match groups.last_mut() {
            Some((taken, group)) if *taken + needed <= room => {
                *taken += needed;
                group.push(it.number());
            }
            _ if full => break,
            _ => groups.push((needed, vec![it.number()])),
        }
    }
    // A single object without dead pages would only be copied.
    let gains = |group: &Vec<u64>| {
        let full = |it: &Candidate| it.live == it.entry.slots;
        group.len() > 1 || !victims.iter().any(|it| it.number() == group[0] && full(it))
    };
    groups.into_iter().map(|(_, group)| group).filter(gains).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::object::{Compression, ObjectId};

    const LIMITS: Limits = Limits { object_bytes: 1 << 20, credit: u64::MAX };

    fn of(number: u64, slots: u32, live: u32) -> Candidate {
        let (bytes, compression) = (u64::from(slots) * 4112 + 68, Compression::None);
        let id = ObjectId { epoch: 1, number };
        Candidate { entry: ObjectEntry { id, bytes, slots, runs: 1, compression }, live }
    }

    #[test]
    fn full_objects_are_left_alone_and_empty_ones_go_first() {
        let full: Vec<Candidate> = (0..20).map(|at| of(at, 254, 254)).collect();
        assert!(choose(&full, LIMITS).is_empty());
        let mut half = full;
        half.iter_mut().for_each(|it| it.live = 130);
        half[7].live = 3;
        half[9].live = 4;
        assert_eq!(choose(&half, LIMITS)[0][..2], [7, 9]);
    }

    #[test]
    fn many_small_objects_are_put_together() {
        let small: Vec<Candidate> = (0..65).map(|at| of(at, 3, 3)).collect();
        let groups = choose(&small, LIMITS);
        assert_eq!(groups.len(), 1);
        assert!(groups[0].len() >= 32, "{}", groups[0].len());
        assert!(choose(&small[..64], LIMITS).is_empty());
    }

    proptest! {
        #[test]
        fn groups_fit_and_are_paid_for(
            objects in proptest::collection::vec((1_u32..255, 0_u32..255), 0..200),
            credit in 0_u64..(200 << 20),
        ) {
            let objects: Vec<Candidate> =
                (0..).zip(objects).map(|(at, (slots, live))| of(at, slots, live.min(slots))).collect();
            let groups = choose(&objects, Limits { credit, ..LIMITS });
            let live = |number: &u64| u64::from(objects[*number as usize].live);
            let mut seen = std::collections::BTreeSet::new();
            for group in &groups {
                prop_assert!(group.iter().map(live).sum::<u64>() <= 254, "[MRG-1]");
                prop_assert!(group.iter().all(|it| seen.insert(*it)));
            }
            prop_assert!(groups.iter().flatten().map(live).sum::<u64>() * 4112 <= credit, "[MRG-2]");
            prop_assert!(groups.len() <= STEP_OBJECTS);
        }
    }
}
