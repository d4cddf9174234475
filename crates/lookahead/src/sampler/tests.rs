//! Property tests of the sampler.

use proptest::prelude::*;

use super::*;

const FAST: Duration = Duration::from_micros(4);
const SLOW: Duration = Duration::from_micros(100);

/// Takes `count` steps, each of which reads; returns how many were timed.
fn steps(sampler: &mut Sampler, count: u32, read: Duration) -> u32 {
    (0..count)
        .filter(|_| {
            let timed = sampler.begin();
            sampler.read(timed.then_some(read));
            timed
        })
        .count() as u32
}

#[test]
fn reads_that_do_not_wait_are_timed_ever_more_rarely() {
    let mut sampler = Sampler::default();
    assert_eq!(steps(&mut sampler, 168, FAST), 24);
    assert_eq!(steps(&mut sampler, 6_400, FAST), 100);
}

#[test]
fn all_reads_that_wait_are_timed() {
    let mut sampler = Sampler::default();
    steps(&mut sampler, 10_000, FAST);
    // Sooner or later one is seen to wait, and from then on each step is timed.
    assert!(steps(&mut sampler, 1_000, SLOW) > 1_000 - PART_MOST);
}

#[test]
fn without_reads_it_rests_until_one_comes() {
    let mut sampler = Sampler::default();
    for rests_after in [RESTS_AFTER_UNREAD, RESTS_AFTER] {
        for _ in 0..rests_after {
            assert_eq!(sampler.pause(), 0);
            sampler.begin();
        }
        assert!(sampler.pause() == 1 && !sampler.begin());
        sampler.resume();
        assert!(sampler.pause() == 0 && sampler.begin());
        sampler.read(None);
    }
}

#[test]
fn where_reads_do_not_wait_most_of_them_are_not_observed() {
    let mut sampler = Sampler::default();
    steps(&mut sampler, 168, FAST);
    for _ in 0..100 {
        assert_eq!(sampler.pause(), PART_MOST - 1);
        sampler.resume();
        // A step that reads nothing does not show whether reads wait.
        assert!(sampler.begin() && sampler.pause() == 0);
        assert_eq!(steps(&mut sampler, 1, FAST), 1);
    }
    sampler.resume();
    assert_eq!(steps(&mut sampler, 1_000, SLOW), 1_000);
}

#[test]
fn pauses_that_reads_of_others_end_become_longer() {
    let mut sampler = Sampler::default();
    let mut pauses = Vec::new();
    for _ in 0..6 {
        while sampler.pause() == 0 {
            sampler.begin();
        }
        pauses.push(sampler.pause());
        sampler.resume();
    }
    assert_eq!(pauses, [1, 1, 4, 16, 64, 64]);
    steps(&mut sampler, 1, SLOW);
    while sampler.pause() == 0 {
        sampler.begin();
    }
    assert_eq!(sampler.pause(), 1, "after a read that waited, one read ends it");
}

proptest! {
    /// A consumer whose steps read or do not, and wait or do not; it observes no step in a pause.
    #[test]
    fn whatever_happens_one_read_in_so_many_is_timed(
        steps in prop::collection::vec((any::<bool>(), any::<bool>()), 1..4_000),
    ) {
        let mut sampler = Sampler::default();
        let (mut passed, mut unread, mut waited) = (0, 0, false);
        let mut rests_after = RESTS_AFTER_UNREAD;
        let mut pause = 0;
        for (reads, waits) in steps {
            if pause > 0 {
                pause -= u32::from(reads);
                passed += u32::from(reads);
                prop_assert!(passed <= PART_MOST, "[SMP-4]");
                if pause == 0 {
                    sampler.resume();
                    (passed, unread, rests_after) = (0, 0, RESTS_AFTER);
                }
                continue;
            }
            prop_assert!(sampler.pause() == 0 || unread < rests_after, "[SMP-3]");
            let timed = sampler.begin();
            prop_assert!(timed || !waited, "[SMP-2]");
            passed = if reads && !timed { passed + 1 } else { 0 };
            prop_assert!(passed < PART_MOST, "[SMP-1]");
            unread = if reads { 0 } else { unread + 1 };
            waited = if reads { timed && waits } else { waited };
            if reads {
                rests_after = RESTS_AFTER;
                sampler.read(timed.then_some(if waits { SLOW } else { FAST }));
            }
            pause = sampler.pause();
            prop_assert_eq!(unread >= rests_after, pause > 0 && unread > 0, "[SMP-3]");
        }
    }
}
