//! The distance on a simulated clock: which value it reaches, and how soon.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_millis(1);

/// A disk that serves `channels` blocks at once, a stream, and a consumer; times in nanoseconds.
struct Simulation {
    distance: Distance,
    latency: u64,
    interval: u64,
    now: u64,
    /// When each channel of the disk is free again.
    channels: Vec<u64>,
    /// Submission and completion of each block that was prefetched.
    ahead: VecDeque<(u64, u64)>,
    waits: u32,
}

impl Simulation {
    fn new(distance: Distance, channels: usize, latency_us: u64, interval_us: u64) -> Simulation {
        let (latency, interval) = (latency_us * 1000, interval_us * 1000);
        let (channels, ahead) = (vec![0; channels], VecDeque::new());
        Simulation { distance, latency, interval, now: 0, channels, ahead, waits: 0 }
    }

    fn ask_ahead(&mut self) {
        while self.ahead.len() < self.distance.blocks() as usize {
            let channel = self.channels.iter_mut().min().unwrap();
            *channel = self.now.max(*channel) + self.latency;
            self.ahead.push_back((self.now, *channel));
        }
    }

    /// The consumer takes `blocks` blocks; returns the distance after that.
    fn take(&mut self, blocks: u32) -> u32 {
        for _ in 0..blocks {
            self.ask_ahead();
            let (submitted, completed) = self.ahead.pop_front().unwrap();
            self.distance.latency(Duration::from_nanos(completed - submitted));
            if completed > self.now {
                self.distance.waited(Duration::from_nanos(completed - self.now));
                self.now = completed;
                self.waits += 1;
            } else {
                self.distance.ready();
            }
            self.ask_ahead();
            self.now += self.interval;
            self.distance.interval(Duration::from_nanos(self.interval));
        }
        self.distance.blocks()
    }
}

#[test]
fn the_distance_follows_the_latency_up_and_down() {
    let mut run = Simulation::new(Distance::new(1, 256), 64, 100, 20);
    let near = run.take(50);
    assert!((5..=20).contains(&near), "100 us need 5 blocks, aim at 10: {near}");

    run.latency = 1_000_000;
    let far = run.take(300);
    assert!((50..=200).contains(&far), "1 ms need 50 blocks, aim at 100: {far}");
    run.waits = 0;
    run.take(1000);
    assert_eq!(run.waits, 0, "far enough, and stays so");

    run.latency = 100_000;
    let back = run.take(400);
    assert!((5..=20).contains(&back), "100 us again: {back}");
    run.waits = 0;
    run.take(1000);
    assert_eq!(run.waits, 0, "[DST-4] shrinking stops before the consumer waits");
}

#[test]
fn a_slow_consumer_stays_at_a_small_distance() {
    let mut run = Simulation::new(Distance::new(1, 256), 64, 100, 1000);
    assert!(run.take(500) <= 2);
    let mut run = Simulation::new(Distance::new(200, 256), 64, 100, 1000);
    assert!(run.take(600) <= 2, "and comes down again");
}

#[test]
fn a_fast_consumer_goes_to_the_most() {
    let mut run = Simulation::new(Distance::new(1, 256), 32, 1000, 1);
    assert_eq!(run.take(600), 256);
    assert_eq!(run.take(2000), 256);
}

#[test]
fn it_doubles_once_in_a_distance_worth_of_blocks() {
    let mut distance = Distance::new(4, 1000);
    let mut grown = Vec::new();
    for _ in 0..60 {
        distance.waited(LONG);
        grown.push(distance.blocks());
    }
    let times = |blocks| grown.iter().filter(|&&one| one == blocks).count();
    // 8 is reached at once; then 8 blocks are taken, and the next wait makes 16.
    assert_eq!([times(8), times(16), times(32)], [9, 17, 33], "[DST-2]");
}

#[test]
fn a_wait_that_is_none_does_not_count() {
    let mut distance = Distance::new(4, 1000);
    for _ in 0..100 {
        distance.waited(Duration::from_nanos(1999));
    }
    assert_eq!(distance.blocks(), 4, "[DST-3]");
    distance.waited(WAIT_MIN);
    assert_eq!(distance.blocks(), 8, "[DST-3]");
}

#[test]
fn without_times_a_ready_block_changes_nothing() {
    let mut distance = Distance::new(50, 100);
    for _ in 0..1000 {
        distance.ready();
    }
    assert_eq!(distance.blocks(), 50);
}

#[test]
fn ready_blocks_shrink_it_to_the_aim_after_one_distance() {
    let mut distance = Distance::new(50, 100);
    distance.latency(Duration::from_micros(100));
    distance.interval(Duration::from_micros(20));
    for _ in 0..50 {
        distance.ready();
    }
    assert_eq!(distance.blocks(), 50, "[DST-4] held");
    for _ in 0..15 {
        distance.ready();
    }
    assert_eq!(distance.blocks(), 35, "[DST-4] by 1 each");
    for _ in 0..1000 {
        distance.ready();
    }
    assert_eq!(distance.blocks(), 10, "[DST-4] the aim");
}

#[test]
fn one_cached_run_does_not_end_deep_look_ahead() {
    let mut distance = Distance::new(200, 256);
    for _ in 0..10 {
        for _ in 0..HITS_FREE {
            distance.hits(1);
        }
        distance.ready();
    }
    assert_eq!(distance.blocks(), 200, "[DST-5]");
}

#[test]
fn a_long_resident_run_ends_look_ahead() {
    let hits_to_1 = |start| {
        let mut distance = Distance::new(start, start);
        (0..)
            .take_while(|_| {
                distance.hits(1);
                distance.blocks() > 1
            })
            .count()
    };
    assert!(hits_to_1(32) > 64, "slow at first");
    assert!(hits_to_1(256) <= 256);
    assert!(hits_to_1(4096) <= 256, "then faster");
}

#[test]
fn waste_beyond_a_quarter_halves_and_may_be_made_good() {
    let mut distance = Distance::new(64, 256);
    for _ in 0..30 {
        distance.ready();
    }
    distance.wasted(10);
    assert_eq!(distance.blocks(), 64, "10 of 40 are a quarter");
    distance.wasted(1);
    assert_eq!(distance.blocks(), 32);
    distance.wasted(7);
    assert_eq!(distance.blocks(), 32, "too few to judge by");
    distance.wasted(1);
    assert_eq!(distance.blocks(), 16);
    for _ in 0..17 {
        distance.waited(LONG);
    }
    assert_eq!(distance.blocks(), 32, "grows again");
}

#[test]
fn old_good_blocks_do_not_excuse_waste_for_ever() {
    let mut distance = Distance::new(64, 256);
    for _ in 0..100_000 {
        distance.ready();
    }
    distance.wasted(100);
    assert_eq!(distance.blocks(), 32);
}

#[test]
fn the_bound_holds_at_once_and_raising_it_prefetches_nothing() {
    let mut distance = Distance::new(64, 256);
    distance.set_most(10);
    assert_eq!(distance.blocks(), 10, "[DST-1]");
    distance.set_most(256);
    assert_eq!(distance.blocks(), 10);
}

#[derive(Debug, Clone)]
enum Event {
    Waited(u64),
    Ready,
    Hits(u32),
    Wasted(u32),
    Latency(u64),
    Interval(u64),
    Most(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop_oneof![0..5000_u64, any::<u64>()].prop_map(Event::Waited),
        Just(Event::Ready),
        (1..200_u32).prop_map(Event::Hits),
        prop_oneof![0..20_u32, any::<u32>()].prop_map(Event::Wasted),
        any::<u64>().prop_map(Event::Latency),
        any::<u64>().prop_map(Event::Interval),
        prop_oneof![1..300_u32, 1..=u32::MAX].prop_map(Event::Most),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 1000 }))]

    #[test]
    fn whatever_happens_the_distance_stays_within_its_bounds(
        start in 1..=u32::MAX,
        most in 1..=u32::MAX,
        events in proptest::collection::vec(event(), 0..200),
    ) {
        let mut most = most;
        let mut distance = Distance::new(start, most);
        for event in events {
            let before = distance.blocks();
            let grows = matches!(event, Event::Waited(2000..));
            match event {
                Event::Waited(nanos) => distance.waited(Duration::from_nanos(nanos)),
                Event::Ready => distance.ready(),
                Event::Hits(hits) => distance.hits(hits),
                Event::Wasted(blocks) => distance.wasted(blocks),
                Event::Latency(nanos) => distance.latency(Duration::from_nanos(nanos)),
                Event::Interval(nanos) => distance.interval(Duration::from_nanos(nanos)),
                Event::Most(blocks) => {
                    most = blocks;
                    distance.set_most(blocks);
                }
            }
            prop_assert!((1..=most).contains(&distance.blocks()), "[DST-1] {:?}", distance);
            prop_assert!(grows || distance.blocks() <= before, "[DST-3] {:?}", distance);
        }
    }
}
