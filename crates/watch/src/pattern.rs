//! Whether a read could have been known before it was issued.
//!
//! This is about what any look-ahead could know, not about what the kernel did: a wait for such a block is avoidable.
//! Worked example: 7, 8, 9 is a sequence from 8 on; 100, 103, 106 a stride at 106, as two equal steps are needed. If a
//! task reads a block of one file and then several blocks of another, the first block is assumed to name the others, as
//! in an index, provided that the task went from the one file to the other before: after 9, in the index, 70, 13 and 52
//! could all have been known with the 9, and so 13 and 52 earlier than they were read. That holds for a limited number
//! of blocks, since the list in an index block ends and random reads do not.
//!
//! Invariants:  [PAT-1] the first read of a file is never known

use foldhash::HashMap;
use serde::Serialize;

/// Recent reads of a file that are searched for a sequence: the maximum number of simultaneous readers distinguished.
const RECENT: usize = 16;

/// Maximum number of blocks that one block of an index may name.
const RANGE_MAX: u32 = 512;

/// How a read could have been known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pattern {
    /// It begins where another read ended, or ends where another began.
    Sequence,
    /// It is as far from the task's last read as that was from the one before.
    Stride,
    /// The task read a block of another file, then several of this one, as it did before.
    Range,
}

/// First and last page of a read.
type Pages = (u64, u64);

/// The recent reads of each file, by number, and the last read of each task.
#[derive(Debug, Default)]
pub(super) struct PatternDetector {
    files: HashMap<u32, Recent>,
    tasks: HashMap<u32, Last>,
}

/// Recent reads of one file, in a ring.
#[derive(Debug, Default)]
struct Recent {
    reads: [Option<Pages>; RECENT],
    next: usize,
}

/// The last read of one task.
#[derive(Debug)]
struct Last {
    file: u32,
    first: u64,
    /// Pages from the previous read to this one, if both are of this file.
    step: Option<i64>,
    /// The file that the task read before this one.
    other: Option<u32>,
    /// Reads of this file since the last one of `other`; `None` if the task did not read this file right before
    /// `other`.
    since_other: Option<u32>,
}

impl PatternDetector {
    /// Records that `task` reads `pages` of `file`. Returns how that could have been known.
    pub(super) fn read(&mut self, task: u32, file: u32, pages: Pages) -> Option<Pattern> {
        let (first, last) = pages;
        let recent = self.files.entry(file).or_default();
        let known = recent.in_sequence(pages);
        let before = self.tasks.get(&task);
        let step =
            before.filter(|it| it.file == file).map(|it| first.wrapping_sub(it.first) as i64);
        let (other, since_other) = match before {
            Some(it) if it.file == file => {
                (it.other, it.since_other.map(|count| count.saturating_add(1)))
            }
            Some(it) => (Some(it.file), (it.other == Some(file)).then_some(0)),
            None => (None, None),
        };
        let in_steps =
            step.is_some_and(|step| step != 0) && before.is_some_and(|it| it.step == step);
        let in_range = since_other.is_some_and(|count| (1..RANGE_MAX).contains(&count));
        self.tasks.insert(task, Last { file, first, step, other, since_other });
        recent.remember((first, last));
        known
            .then_some(Pattern::Sequence)
            .or(in_steps.then_some(Pattern::Stride))
            .or(in_range.then_some(Pattern::Range))
    }

    /// Forgets a task that has exited, or whose number belongs to another one now.
    pub(super) fn forget(&mut self, task: u32) {
        self.tasks.remove(&task);
    }
}

impl Recent {
    /// Whether a recent read ends where `pages` begin, in the same page or the one before, or vice versa.
    fn in_sequence(&self, (first, last): Pages) -> bool {
        let follows = |end: u64, begin: u64| begin == end || begin == end.wrapping_add(1);
        let mut reads = self.reads.iter().flatten();
        reads.any(|&(begin, end)| follows(end, first) || follows(last, begin))
    }

    /// A read that continues another one replaces it, so that each reader takes one place.
    fn remember(&mut self, pages: Pages) {
        let goes_on =
            |it: &Option<Pages>| it.is_some_and(|(_, end)| pages.0 == end || pages.0 == end + 1);
        let at = self.reads.iter().position(goes_on).unwrap_or(self.next);
        if at == self.next {
            self.next = (self.next + 1) % RECENT;
        }
        self.reads[at] = Some(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(reads: &[(u32, u32, Pages)]) -> Vec<Option<Pattern>> {
        let mut detector = PatternDetector::default();
        reads.iter().map(|&(task, file, pages)| detector.read(task, file, pages)).collect()
    }

    proptest! {
        #[test]
        fn sequences_side_by_side_are_known_from_their_second_read_on(
            sizes in prop::collection::vec(1u64..300, 1..40),
            readers in 1usize..=RECENT,
            backward in any::<bool>(),
        ) {
            let mut reads = Vec::new();
            let mut at = 1 << 30;
            for size in &sizes {
                let pages = if backward { (at - size, at - 1) } else { (at, at + size - 1) };
                at = if backward { at - size } else { at + size };
                for reader in 0..readers as u64 {
                    let shift = reader << 32;
                    reads.push((reader as u32, 0, (pages.0 + shift, pages.1 + shift)));
                }
            }
            let known = known(&reads);
            prop_assert!(known[..readers].iter().all(Option::is_none), "[PAT-1]");
            let later = &known[readers..];
            prop_assert!(backward && readers > 1 || later.iter().all(|it| *it == Some(Pattern::Sequence)));
        }

        #[test]
        fn equal_steps_are_known_from_the_third_read_on(step in 2i64..1000, count in 3usize..50) {
            for step in [step, -step] {
                let reads: Vec<_> = (0..count as i64)
                    .map(|index| { let at = ((1 << 30) + index * step) as u64; (1, 0, (at, at)) })
                    .collect();
                let known = known(&reads);
                prop_assert!(known[..2].iter().all(Option::is_none));
                prop_assert!(known[2..].iter().all(|it| *it == Some(Pattern::Stride)));
            }
        }

        #[test]
        fn what_is_read_anywhere_is_not_known(seed in any::<u64>(), tasks in 1u32..8) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let reads: Vec<_> = (0..1000)
                .map(|_| { let at = rng.u64(..1 << 40); (rng.u32(..tasks), 0, (at, at)) })
                .collect();
            prop_assert!(known(&reads).iter().all(Option::is_none));
        }

        #[test]
        fn what_an_index_names_is_known_but_for_the_first(
            seed in any::<u64>(), leaves in 1usize..6, each in 1usize..100,
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut any = || { let at = rng.u64(..1 << 40); (at, at) };
            let mut reads = Vec::new();
            for _ in 0..leaves {
                reads.push((1, 0, any()));
                reads.extend((0..each).map(|_| (1, 1, any())));
            }
            for (at, leaf) in known(&reads).chunks(each + 1).enumerate() {
                prop_assert_eq!(&leaf[..2], [None, None]);
                // The first leaf may be a coincidence.
                let expected = (at > 0).then_some(Pattern::Range);
                prop_assert!(leaf[2..].iter().all(|it| *it == expected));
            }
        }
    }

    #[test]
    fn random_reads_without_end_are_no_list_of_an_index() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut reads = vec![(1, 1, (1, 1)), (1, 0, (5, 5))];
        reads.extend((0..5000).map(|_| rng.u64(..1 << 40)).map(|at| (1, 1, (at, at))));
        let count = known(&reads).iter().flatten().count();
        assert_eq!(count, RANGE_MAX as usize - 1);
    }
}
