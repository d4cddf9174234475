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
    assert_eq!(steps(&mut sampler, 504, FAST), 48);
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
            assert!(!sampler.rests());
            sampler.begin();
        }
        assert!(sampler.rests() && !sampler.begin());
        sampler.read(None);
        assert!(!sampler.rests() && sampler.begin());
        sampler.read(None);
    }
}

proptest! {
    #[test]
    fn whatever_happens_one_step_in_so_many_is_timed(
        steps in prop::collection::vec((any::<bool>(), any::<bool>()), 1..4_000),
    ) {
        let mut sampler = Sampler::default();
        let (mut without_timing, mut unread, mut waited) = (0, 0, false);
        let mut rests_after = RESTS_AFTER_UNREAD;
        for (reads, waits) in steps {
            prop_assert_eq!(sampler.rests(), unread >= rests_after, "[SMP-3]");
            let timed = sampler.begin();
            prop_assert!(timed || !waited || unread >= rests_after, "[SMP-2]");
            without_timing = if timed || unread >= rests_after { 0 } else { without_timing + 1 };
            prop_assert!(without_timing < PART_MOST, "[SMP-1]");
            (unread, waited) = if reads { (0, false) } else { (unread + 1, waited && !timed) };
            if reads {
                rests_after = RESTS_AFTER;
                sampler.read(timed.then_some(if waits { SLOW } else { FAST }));
                waited = timed && waits;
            }
        }
    }
}
