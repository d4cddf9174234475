//! The pacer on a simulated clock and disk: when pages are sent, and the results.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const STARTED: Duration = Duration::from_secs(1000);

/// The growth of the log and the foreground's reads, by time since the start.
type Grown = Box<dyn Fn(Duration) -> u64>;
type Reads = Box<dyn Fn(Duration, u64) -> Option<Latency>>;

fn usual(mean: Duration) -> Waits {
    Waits { own: Some(Latency { reads: 100, mean }), ahead: None }
}

/// A checkpoint, the disk that it writes to, and its environment.
struct Run {
    pacer: Pacer,
    plan: Plan,
    /// The disk's time for a page, and the number of pages it has room for.
    page_time: Duration,
    room: u64,
    /// When the disk does nothing, relative to the start.
    standstill: std::ops::Range<Duration>,
    log: Grown,
    reads: Reads,
    ahead: Reads,
    /// Time since the start.
    now: Duration,
    ends: VecDeque<Duration>,
    sent: u64,
    done: u64,
    /// How many pages were sent at which time.
    sendings: Vec<(Duration, u64)>,
    /// Pages sent, and those planned, whenever there was a rest.
    at_rest: Vec<(u64, f64)>,
    rests: u64,
    steps: u64,
}

impl Run {
    fn new(pages: u64, over: Duration) -> Run {
        Run::with_log(pages, over, None, Box::new(|_| 0))
    }

    fn with_log(pages: u64, over: Duration, log_budget: Option<u64>, log: Grown) -> Run {
        let plan = Plan { pages, over, log_budget, started: STARTED };
        Run {
            pacer: Pacer::new(plan),
            plan,
            page_time: Duration::ZERO,
            room: 256,
            standstill: Duration::ZERO..Duration::ZERO,
            log,
            reads: Box::new(|_, _| None),
            ahead: Box::new(|_, _| None),
            now: Duration::ZERO,
            ends: VecDeque::new(),
            sent: 0,
            done: 0,
            sendings: Vec::new(),
            at_rest: Vec::new(),
            rests: 0,
            steps: 0,
        }
    }

    /// Runs until all is written, or until `end`.
    fn until(&mut self, end: Duration) -> &mut Run {
        while self.done < self.plan.pages && self.now < end {
            self.step();
        }
        self
    }

    fn whole(&mut self) -> &mut Run {
        self.until(Duration::MAX)
    }

    fn step(&mut self) {
        self.steps += 1;
        while self.ends.front().is_some_and(|&end| end <= self.now) {
            self.ends.pop_front();
            self.done += 1;
        }
        let in_flight = self.ends.len() as u64;
        let seen = Observed {
            now: STARTED + self.now,
            pages_done: self.done,
            log_bytes: (self.log)(self.now),
            foreground: Waits {
                own: (self.reads)(self.now, in_flight),
                ahead: (self.ahead)(self.now, in_flight),
            },
            in_flight: in_flight as u32,
        };
        let next_end = self.ends.front().copied();
        let planned = self.pacer.planned;
        match self.pacer.step(&seen) {
            Verdict::Go { pages_max } => {
                assert!(pages_max > 0, "a step for nothing");
                let left = self.plan.pages - self.sent;
                let pages = u64::from(pages_max).min(self.room - in_flight).min(left);
                if pages > 0 {
                    self.send(pages);
                } else {
                    self.now = next_end.unwrap_or(self.now);
                }
            }
            Verdict::Rest { until } => {
                assert!(until > STARTED + self.now, "a rest that has no length");
                self.rests += 1;
                self.at_rest.push((self.sent, self.pacer.planned));
                assert!(self.pacer.planned >= planned, "[PAC-1] the plan goes forward");
                let until = until - STARTED;
                self.now = next_end.map_or(until, |end| end.clamp(self.now, until));
            }
        }
    }

    fn send(&mut self, pages: u64) {
        self.sendings.push((self.now, pages));
        for _ in 0..pages {
            let start = self.ends.back().map_or(self.now, |&last| last.max(self.now));
            let mut end = start + self.page_time;
            if self.standstill.contains(&end) {
                end = self.standstill.end;
            }
            self.ends.push_back(end);
        }
        self.sent += pages;
    }

    /// The fewest and the most pages sent in any of the twentieths that begin at a twentieth of `over`
    /// or in the middle of one.
    fn twentieths(&self) -> (u64, u64) {
        let counts = (0..39).map(|half| {
            let window = self.plan.over / 40 * half..self.plan.over / 40 * (half + 2);
            let inside = self.sendings.iter().filter(|(at, _)| window.contains(at));
            inside.map(|(_, pages)| pages).sum::<u64>()
        });
        let counts: Vec<u64> = counts.collect();
        (*counts.iter().min().unwrap(), *counts.iter().max().unwrap())
    }

    fn sent_by(&self, moment: Duration) -> u64 {
        self.sendings.iter().filter(|(at, _)| *at <= moment).map(|(_, pages)| pages).sum()
    }
}

/// Reads of 200 us, 10 in each step, that take `times` as long in the given time.
fn slow_between(from: Duration, to: Duration, times: u32) -> Reads {
    Box::new(move |now, _| {
        let mean = Duration::from_micros(200) * if (from..to).contains(&now) { times } else { 1 };
        Some(Latency { reads: 10, mean })
    })
}

#[test]
fn pages_leave_in_even_batches_until_the_end() {
    let mut run = Run::new(6400, 100 * SECOND);
    run.whole();
    assert!(run.sendings.iter().all(|(_, pages)| *pages == 32), "{:?}", run.sendings);
    let intervals = run.sendings.windows(2).map(|pair| pair[1].0 - pair[0].0);
    for interval in intervals {
        assert!(interval.abs_diff(SECOND / 2) < SECOND / 1000, "{interval:?}");
    }
    assert!(run.now.abs_diff(100 * SECOND) < SECOND / 1000, "{:?}", run.now);
    assert_eq!(run.twentieths(), (288, 320), "[PAC-2] ten batches, or nine at the edges");
}

#[test]
fn few_pages_leave_one_by_one() {
    let mut run = Run::new(10, 27 * SECOND);
    run.whole();
    assert_eq!(run.sendings.len(), 10);
    assert!(run.pacer.lag() < SECOND / 100, "[PAC-5] {:?}", run.pacer.lag());
    let rests_most = u64::from(LOOKS) + 20;
    assert!(run.rests < rests_most, "a look at the log now and then, not more: {}", run.rests);
}

#[test]
fn the_log_drives_a_checkpoint_that_time_would_leave_behind() {
    let log = |now: Duration| now.as_millis() as u64 * 3;
    let mut run = Run::with_log(64_000, 100 * SECOND, Some(100_000), Box::new(log));
    run.whole();
    assert!(run.now <= SECOND * 34, "a third of the time: {:?}", run.now);
    assert!(run.now > SECOND * 33);
    let behind = run.at_rest.iter().map(|(sent, planned)| planned * 64_000.0 - *sent as f64);
    let behind: Vec<f64> = behind.collect();
    assert!(behind.iter().all(|pages| (-1.0..320.0).contains(pages)), "{behind:?}");
    let learned = &behind[behind.len() / 20..];
    assert!(learned.iter().all(|pages| *pages < 33.0), "[PAC-2] {learned:?}");
}

#[test]
fn time_drives_it_when_the_log_stands_still() {
    let mut run = Run::with_log(6400, 100 * SECOND, Some(1 << 30), Box::new(|_| 0));
    run.whole();
    assert_eq!(run.twentieths(), (288, 320), "[PAC-2] ten batches, or nine at the edges");
}

#[test]
fn a_log_that_jumps_is_followed_soon_but_not_in_one_burst() {
    let log = |now: Duration| if now < 10 * SECOND { 0 } else { 50 };
    let mut run = Run::with_log(6400, 100 * SECOND, Some(100), Box::new(log));
    run.whole();
    let at_once = run.sent_by(SECOND * 101 / 10) - run.sent_by(SECOND * 99 / 10);
    assert!(at_once < 800, "[PAC-3] {at_once}");
    let soon = run.sent_by(15 * SECOND);
    assert!((3100..=3200).contains(&soon), "half of the log, half of the pages: {soon}");
    assert_eq!(run.sent_by(49 * SECOND), soon, "time has to come after first");
    assert!(run.now.abs_diff(100 * SECOND) < SECOND / 1000);
    let most = run.sendings.iter().map(|(_, pages)| *pages).max();
    assert!(most <= Some(128), "with a look at the foreground in between");
    assert!(run.pacer.lag() < SECOND, "[PAC-5] {:?}", run.pacer.lag());
    assert_eq!(run.pacer.yielded(), Duration::ZERO, "[PAC-5]");
}

#[test]
fn a_disk_that_stood_still_is_not_flooded_afterwards() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 100_000;
    run.standstill = 40 * SECOND..50 * SECOND;
    run.whole();
    let (_, most) = run.twentieths();
    let mean = 64_000 / 20;
    assert!(most <= 2 * mean + 100, "[PAC-3] {most} in a twentieth");
    assert!(most > mean * 19 / 10, "what was missed comes after at twice the speed: {most}");
    assert!(run.now < 100 * SECOND + SECOND / 100, "{:?}", run.now);
    let lag = run.pacer.lag();
    assert!((9 * SECOND..11 * SECOND).contains(&lag), "[PAC-5] {lag:?}");
}

#[test]
fn what_is_missed_late_is_made_good_in_time_at_any_speed() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 100_000;
    run.standstill = 80 * SECOND..95 * SECOND;
    run.whole();
    assert!(run.now < 101 * SECOND, "{:?}", run.now);
    assert!(run.sent_by(99 * SECOND) > 62_000, "and not all of it at the very end");
    assert!(run.twentieths().1 > 2 * 64_000 / 20, "twice the speed would have been too slow");
}

#[test]
fn lag_is_how_late_a_disk_is_that_cannot_keep_up() {
    let mut run = Run::new(10_000, 10 * SECOND);
    run.page_time = SECOND / 500;
    run.whole();
    assert!(run.now.abs_diff(20 * SECOND) < SECOND / 10, "{:?}", run.now);
    let lag = run.pacer.lag();
    assert!(lag.abs_diff(10 * SECOND) < SECOND / 5, "[PAC-5] {lag:?}");
    assert_eq!(run.pacer.yielded(), Duration::ZERO);
    let rests_early = run.sendings.iter().filter(|(at, _)| *at < SECOND).count();
    assert!(rests_early > 0, "it begins like any other");
}

#[test]
fn a_disk_that_keeps_up_does_not_lag() {
    let mut run = Run::new(65_536, 27 * SECOND);
    run.page_time = SECOND / 10_000;
    run.whole();
    assert!(run.pacer.lag() < SECOND / 50, "[PAC-5] {:?}", run.pacer.lag());
}

#[test]
fn slow_reads_are_made_way_for_and_what_was_put_off_comes_after() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 2000;
    run.pacer.baseline(usual(Duration::from_micros(200)));
    run.reads = slow_between(30 * SECOND, 40 * SECOND, 4);
    run.whole();
    let while_slow = run.sent_by(40 * SECOND) - run.sent_by(30 * SECOND);
    assert!((2200..3200).contains(&while_slow), "1.5 / 4 of 6400: {while_slow}");
    let smaller = run.sendings.iter().filter(|(at, _)| (31..39).contains(&at.as_secs()));
    assert!(smaller.clone().count() > 100);
    assert!(smaller.clone().all(|(_, pages)| *pages <= 20), "less at a time");
    let yielded = run.pacer.yielded();
    assert!((5 * SECOND..8 * SECOND).contains(&yielded), "[PAC-5] {yielded:?}");
    assert!(run.pacer.lag() < SECOND / 10, "[PAC-5] {:?}", run.pacer.lag());
    let (_, most) = run.twentieths();
    assert!(most <= 2 * 3200 + 64, "[PAC-3] {most}");
    assert!(run.sent_by(50 * SECOND) > 31_500, "made good at twice the speed");
    assert!(run.now.abs_diff(100 * SECOND) < SECOND / 20, "{:?}", run.now);
}

#[test]
fn reads_that_stay_slow_do_not_cost_the_end() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 1000;
    run.pacer.baseline(usual(Duration::from_micros(200)));
    run.reads = slow_between(Duration::ZERO, 1000 * SECOND, 20);
    run.whole();
    assert!(run.now.abs_diff(100 * SECOND) < SECOND / 20, "{:?}", run.now);
    let yielded = run.pacer.yielded();
    assert!((11 * SECOND..13 * SECOND).contains(&yielded), "[PAC-1] {yielded:?}");
    let (_, most) = run.twentieths();
    assert!(most <= 3200 * 16 / 10, "1.5 times the mean at the end, not more: {most}");
    assert!(run.pacer.lag() < SECOND / 10, "[PAC-5] {:?}", run.pacer.lag());
}

#[test]
fn what_is_usual_is_learned_while_nothing_is_written() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 5000;
    run.reads = Box::new(|_, in_flight| {
        let times = if in_flight > 0 { 5 } else { 1 };
        Some(Latency { reads: 10, mean: Duration::from_micros(200) * times })
    });
    run.until(50 * SECOND);
    let usual = run.pacer.own.usual_ns.unwrap();
    assert!((190_000.0..210_000.0).contains(&usual), "{usual}");
    assert!(run.pacer.yielded() > SECOND, "{:?}", run.pacer.yielded());
}

#[test]
fn another_kind_of_work_becomes_usual() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.pacer.baseline(usual(Duration::from_micros(200)));
    run.reads = slow_between(10 * SECOND, 1000 * SECOND, 3);
    run.until(90 * SECOND);
    assert_eq!(run.pacer.own.speed(), CATCH_UP);
}

/// Pages read ahead, each waited for this long.
fn ahead(mean: Duration) -> Option<Latency> {
    Some(Latency { reads: 100, mean })
}

#[test]
fn streams_that_wait_longer_for_their_pages_are_made_way_for() {
    for (usual, slow) in [(20, 80), (0, 80)] {
        let mut run = Run::new(64_000, 100 * SECOND);
        run.page_time = SECOND / 2000;
        run.pacer.baseline(Waits { own: None, ahead: ahead(Duration::from_micros(usual)) });
        run.ahead = Box::new(move |now, _| {
            let is_slow = (30 * SECOND..40 * SECOND).contains(&now);
            ahead(Duration::from_micros(if is_slow { slow } else { usual }))
        });
        run.whole();
        let while_slow = run.sent_by(40 * SECOND) - run.sent_by(30 * SECOND);
        assert!(while_slow < 3200, "{while_slow} pages in the time of 6400");
        assert!(run.pacer.yielded() > 4 * SECOND, "[PAC-5] {:?}", run.pacer.yielded());
        assert!(run.now.abs_diff(100 * SECOND) < SECOND / 20, "{:?}", run.now);
    }
}

#[test]
fn a_wait_for_pages_read_ahead_that_is_no_longer_than_a_look_at_them_is_not_slow() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.pacer.baseline(Waits { own: None, ahead: ahead(Duration::ZERO) });
    run.ahead = Box::new(|_, _| ahead(AHEAD_NOTICED));
    run.whole();
    assert_eq!(run.pacer.yielded(), Duration::ZERO, "[PAC-5]");
}

#[test]
fn streams_that_come_and_go_make_reads_look_neither_fast_nor_slow() {
    let no_wait = Box::new(|now, _: u64| ahead(Duration::ZERO).filter(|_| now < 50 * SECOND));
    let mut run = Run::new(64_000, 100 * SECOND);
    run.pacer.baseline(Waits { ahead: ahead(Duration::ZERO), ..usual(Duration::from_micros(200)) });
    run.reads = slow_between(Duration::ZERO, Duration::ZERO, 1);
    run.ahead = no_wait.clone();
    run.whole();
    assert_eq!(run.pacer.yielded(), Duration::ZERO, "[PAC-5] the end of a stream");
    let mut run = Run::new(64_000, 100 * SECOND);
    run.pacer.baseline(usual(Duration::from_micros(200)));
    run.reads = slow_between(30 * SECOND, 40 * SECOND, 4);
    run.ahead = no_wait;
    run.whole();
    assert!(run.pacer.yielded() > 4 * SECOND, "[PAC-5] {:?} next to one", run.pacer.yielded());
}

#[test]
fn the_pacer_yields_to_no_reader_that_has_ended() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.pacer.baseline(usual(Duration::from_micros(200)));
    run.reads = Box::new(|now, _| {
        let slow = Latency { reads: 100, mean: Duration::from_millis(2) };
        (now < 10 * SECOND).then_some(slow)
    });
    run.until(10 * SECOND);
    assert!(run.pacer.own.speed() < 1.0);
    run.until(12 * SECOND);
    assert_eq!(run.pacer.own.speed(), CATCH_UP);
}

#[test]
fn after_hurry_nothing_rests_and_nothing_more_gets_late() {
    let mut run = Run::new(64_000, 100 * SECOND);
    run.page_time = SECOND / 500;
    run.until(20 * SECOND);
    let (rests, lag) = (run.rests, run.pacer.lag());
    run.pacer.hurry(STARTED + run.now);
    run.whole();
    assert_eq!(run.rests, rests, "[PAC-4]");
    assert!((127 * SECOND..129 * SECOND).contains(&run.now), "as the disk can: {:?}", run.now);
    assert!(run.pacer.lag() <= lag + 2 * SECOND, "{:?}", run.pacer.lag());
}

#[test]
fn nothing_to_do_no_time_and_no_log_are_no_division_by_zero() {
    for pages in [0, 1, 7, u64::MAX] {
        for over in [Duration::ZERO, Duration::from_nanos(1), SECOND, Duration::MAX] {
            for log_budget in [None, Some(0), Some(1), Some(u64::MAX)] {
                let started = STARTED;
                let mut pacer = Pacer::new(Plan { pages, over, log_budget, started });
                pacer.baseline(usual(Duration::ZERO));
                for now in [Duration::ZERO, STARTED, STARTED + SECOND, Duration::MAX] {
                    let waits = Some(Latency { reads: u64::MAX, mean: Duration::ZERO });
                    let foreground = Waits { own: waits, ahead: waits };
                    let log_bytes = u64::from(now > STARTED);
                    let (pages_done, in_flight) = (pages / 2, 0);
                    let seen = Observed { now, pages_done, log_bytes, foreground, in_flight };
                    let verdict = pacer.step(&seen);
                    let all_due = over.is_zero() || log_budget == Some(0) || pages == 0;
                    if all_due {
                        assert_eq!(verdict, Verdict::Go { pages_max: u32::MAX }, "[PAC-4]");
                    }
                }
                pacer.hurry(Duration::MAX);
                assert!(pacer.lag() <= Duration::MAX && pacer.yielded() <= over);
            }
        }
    }
}

#[test]
fn a_rest_is_never_so_short_that_it_is_none() {
    let plan = Plan { pages: 1 << 40, over: SECOND, log_budget: None, started: STARTED };
    let now = STARTED + Duration::from_nanos(1);
    let seen = Observed {
        now,
        pages_done: 1100,
        log_bytes: 0,
        foreground: Waits::default(),
        in_flight: 0,
    };
    match Pacer::new(plan).step(&seen) {
        Verdict::Rest { until } => assert!(until > now, "{until:?}"),
        other => panic!("the line is at page 1099: {other:?}"),
    }
}

#[test]
fn pages_that_others_write_count_and_are_waited_for() {
    let plan = Plan { pages: 640, over: 10 * SECOND, log_budget: None, started: STARTED };
    let mut pacer = Pacer::new(plan);
    let at = |now, pages_done| Observed {
        now: STARTED + now,
        pages_done,
        log_bytes: 0,
        foreground: Waits::default(),
        in_flight: 0,
    };
    let verdict = pacer.step(&at(SECOND, 320));
    assert!(matches!(verdict, Verdict::Rest { .. }), "{verdict:?}");
    assert!(matches!(pacer.step(&at(5 * SECOND + SECOND / 4, 320)), Verdict::Go { .. }));
    let more_than_planned = pacer.step(&at(6 * SECOND, 700));
    assert_eq!(more_than_planned, Verdict::Go { pages_max: u32::MAX });
}

proptest! {
    /// Any size, any time, an even log.
    #[test]
    fn a_disk_that_keeps_up_gets_each_page_within_a_batch_of_its_turn(
        pages in 0_u64..30_000,
        over_ms in 1_u64..300_000,
        log_times in 0_u64..5,
    ) {
        let over = Duration::from_millis(over_ms);
        // The log fills its budget in `over` when `log_times` is 1.
        let log = move |now: Duration| now.as_nanos() as u64 / 1000 * log_times;
        let budget = over.as_nanos() as u64 / 1000;
        let mut run = Run::with_log(pages, over, Some(budget), Box::new(log));
        run.whole();
        let expected = over / u32::try_from(log_times.max(1)).unwrap();
        prop_assert!(run.now <= expected + over / 64, "ends in time: {:?} of {expected:?}", run.now);
        let batch = run.pacer.batch as f64;
        // A log's speed must be learned.
        let learning = if log_times > 1 { pages as f64 / 50.0 + batch } else { 0.0 };
        let allowed = batch * 1.01 + 1.0 + learning;
        for &(sent, planned) in &run.at_rest {
            let behind = planned * pages as f64 - sent as f64;
            prop_assert!((-1.0..=allowed).contains(&behind), "[PAC-2] {behind} of {allowed}");
        }
        if log_times <= 1 {
            let (least, most) = run.twentieths();
            let mean = pages as f64 / 20.0;
            prop_assert!(most as f64 <= mean + batch + 1.0, "[PAC-3] {most} of {mean}");
            prop_assert!(least as f64 >= mean - batch - 1.0, "[PAC-2] {least} of {mean}");
        }
    }

    /// Arbitrary parameters: the checkpoint ends, and when the disk allows it, in time and not in bursts.
    #[test]
    fn whatever_happens_it_ends_as_early_as_it_should(
        pages in 1_u64..20_000,
        over_ms in 100_u64..100_000,
        disk in 1_u64..400,
        standstill in (0_u64..100, 0_u64..30),
        slow in (0_u64..100, 0_u64..100, 1_u32..50),
        room in 1_u64..300,
    ) {
        let over = Duration::from_millis(over_ms);
        let part = |percent: u64| over.mul_f64(percent as f64 / 100.0);
        let mut run = Run::new(pages, over);
        run.room = room;
        // All pages together take from a hundredth to four times the interval.
        run.page_time = over.mul_f64(disk as f64 / 100.0 / pages as f64);
        run.standstill = part(standstill.0)..part(standstill.0 + standstill.1);
        run.pacer.baseline(usual(Duration::from_micros(200)));
        run.reads = slow_between(part(slow.0), part(slow.0 + slow.1), slow.2);
        run.whole();
        let busy = run.page_time * u32::try_from(pages).unwrap();
        let due = over.max(part(standstill.0 + standstill.1)).max(busy);
        // The last page may start when time is up.
        let latest = due + (busy / 2).max(run.page_time) + over / 50;
        prop_assert!(run.now <= latest, "{:?} of {latest:?}", run.now);
        prop_assert!(run.steps < 20 * pages + 10_000, "{} steps", run.steps);
        prop_assert!(run.pacer.yielded() <= over / 8 + over / 100, "[PAC-1]");
        // The deadline was never at risk.
        if standstill.0 + standstill.1 < 40 && disk < 40 && standstill.1 < 12 {
            let (_, most) = run.twentieths();
            let mean = pages as f64 / 20.0;
            let looks = 4.0 * pages as f64 / f64::from(LOOKS);
            let bound = 2.0 * mean + 2.0 * run.pacer.batch as f64 + looks + 1.0;
            prop_assert!(most as f64 <= bound, "[PAC-3] {most} of {mean}");
            prop_assert!(run.now <= over + run.page_time * 300, "{:?}", run.now);
        }
    }
}
