//! The scheduler with answers that are only recorded, and no mount.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use super::*;

/// Ends commands after `takes`, those for the first sector after twice that, and records its calls.
#[derive(Debug)]
struct Noting {
    takes: Duration,
    under_way: Vec<Ended>,
    last: Duration,
    sender: Sender<(Duration, Command)>,
}

impl Device for Noting {
    fn size_bytes(&self) -> u64 {
        1 << 40
    }

    fn submit(&mut self, now: Duration, id: u64, command: Command) {
        assert!(now >= self.last, "[SCD-2] time went back");
        self.last = now;
        let takes = if command.offset == 0 { self.takes * 2 } else { self.takes };
        self.under_way.push(Ended { id, at: now + takes });
        self.under_way.sort_by_key(|one| one.at);
        self.sender.send((now, command)).unwrap();
    }

    fn next_event(&self) -> Option<Duration> {
        self.under_way.first().map(|one| one.at)
    }

    fn advance(&mut self, now: Duration, ended: &mut Vec<Ended>) {
        assert!(now >= self.last, "[SCD-2] time went back");
        self.last = now;
        let due = self.under_way.iter().take_while(|one| one.at <= now).count();
        ended.extend(self.under_way.drain(..due));
    }
}

fn scheduler(takes: Duration) -> (Scheduler, Receiver<(Duration, Command)>) {
    let (sender, commands) = channel();
    let last = Duration::ZERO;
    let device = Noting { takes, under_way: Vec::new(), last, sender };
    let scheduler = Scheduler::start(Box::new(device), 1.0, RequestLog::new(100_000)).unwrap();
    (scheduler, commands)
}

fn arrive(scheduler: &Scheduler, places: &[(u64, u64)]) -> Ticket {
    let (op, number, offset, len) = (Op::Read, 0, 0, places.iter().map(|(_, len)| len).sum());
    scheduler.arrive(&Incoming { number, op, file: &"disk".into(), offset, len, places })
}

/// How long an answer may take on a busy machine before it counts as lost.
const LONG: Duration = Duration::from_secs(60);

const FOR_EVER: Duration = Duration::from_secs(1 << 30);

#[test]
fn every_request_of_many_threads_is_answered_once_and_not_early() {
    let takes = Duration::from_micros(300);
    let (scheduler, commands) = scheduler(takes);
    let (answered, answers) = channel();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (scheduler, answered) = (&scheduler, answered.clone());
            scope.spawn(move || {
                for request in 0..200 {
                    // Short answers, and long ones, before which leadership is handed over.
                    let len = if request % 3 == 0 { 1 << 20 } else { 512 };
                    let begun = Instant::now();
                    let ticket = arrive(scheduler, &[(0, 512), ((thread + 1) << 20, len)]);
                    let answered = answered.clone();
                    scheduler.ready(
                        ticket,
                        Box::new(move || {
                            answered.send(((thread, request), begun.elapsed())).unwrap();
                        }),
                    );
                }
            });
        }
    });
    drop(answered);
    let mut seen: Vec<_> = answers
        .iter()
        .map(|(which, took)| {
            assert!(took >= takes * 2, "early: {took:?}");
            which
        })
        .collect();
    seen.sort_unstable();
    let all = (0..4).flat_map(|thread| (0..200).map(move |request| (thread, request)));
    assert!(seen.iter().copied().eq(all), "[SCD-1]");
    assert_eq!(commands.try_iter().count(), 1600, "two parts each");
    scheduler.settle();
    let counters = scheduler.counters();
    assert_eq!((counters.reads, counters.in_flight), (800, 0));
    assert_eq!(scheduler.summary().requests, 800);
}

#[test]
fn an_answer_that_uses_the_scheduler_does_not_wait_for_itself() {
    let (scheduler, _commands) = scheduler(Duration::from_micros(50));
    let scheduler = Arc::new(scheduler);
    let (answered, answers) = channel();
    for _ in 0..20 {
        let ticket = arrive(&scheduler, &[(0, 512)]);
        let (inside, answered) = (Arc::clone(&scheduler), answered.clone());
        // [SCD-3] Under the lock, this would deadlock.
        let answer = Box::new(move || answered.send(inside.counters().in_flight).unwrap());
        scheduler.ready(ticket, answer);
    }
    drop(answered);
    assert!(answers.iter().all(|in_flight| in_flight > 0), "its own request is not recorded yet");
}

#[test]
fn what_is_under_way_is_answered_when_timing_is_switched_off_and_when_it_stops() {
    let (scheduler, commands) = scheduler(FOR_EVER);
    let (answered, answers) = channel();
    let ask = |number: u32| {
        let ticket = arrive(&scheduler, &[(0, 512)]);
        let answered = answered.clone();
        (ticket, Box::new(move || answered.send(number).unwrap()))
    };
    let (first, first_answer) = ask(1);
    scheduler.ready(first, first_answer);
    let (second, second_answer) = ask(2);
    assert!(answers.try_recv().is_err());
    scheduler.set_timing(false);
    assert_eq!(answers.recv_timeout(LONG), Ok(1), "[SCD-1]");
    // It arrived before, and its bytes are copied only now.
    scheduler.ready(second, second_answer);
    assert_eq!(answers.recv_timeout(LONG), Ok(2), "[SCD-1]");
    scheduler.set_timing(true);
    let (third, third_answer) = ask(3);
    scheduler.ready(third, third_answer);
    scheduler.stop();
    assert_eq!(answers.recv_timeout(LONG), Ok(3), "[SCD-1]");
    let (fourth, fourth_answer) = ask(4);
    scheduler.ready(fourth, fourth_answer);
    assert_eq!(answers.recv_timeout(LONG), Ok(4), "[SCD-1] also after the end");
    assert_eq!(commands.try_iter().count(), 3, "the model has not seen the last");
}

#[test]
fn what_was_let_go_delays_nothing_when_timing_is_switched_on_again() {
    // No workers, so that this test alone decides when things happen: it uses the model, not the clock.
    let profile = crate::profile::Profile::load("7200rpm").unwrap();
    let shared = Arc::new(Shared::new(profile.build(0), 1.0, RequestLog::new(1000)));
    let scheduler = Scheduler { shared: Arc::clone(&shared), workers: Vec::new() };
    let takes = || {
        let ticket = arrive(&scheduler, &[(0, 4096)]);
        let inner = shared.lock();
        let arrived = inner.waiting[&ticket.request].accounting.arrived;
        drop(inner);
        loop {
            let mut inner = shared.lock();
            if inner.waiting[&ticket.request].parts == 0 {
                return inner.waiting[&ticket.request].accounting.ended - arrived;
            }
            let next = inner.next_event().unwrap();
            inner.advance(next);
        }
    };
    for _ in 0..5 {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100 {
            let place = random.u64(..profile.size_bytes / 4096) * 4096;
            let ticket = arrive(&scheduler, &[(place, 4096)]);
            scheduler.ready(ticket, Box::new(|| ()));
        }
        let before = shared.lock().reported;
        scheduler.set_timing(false);
        assert!(shared.lock().next_event().is_none(), "[SCD-4]");
        scheduler.set_timing(true);
        shared.lock().due.clear();
        let took = takes();
        assert!(took < Duration::from_millis(30), "[SCD-4] {took:?}");
        assert!(shared.lock().reported >= before, "[SCD-2]");
    }
}

#[test]
fn a_request_that_was_answered_is_in_the_log() {
    let (scheduler, _commands) = scheduler(Duration::from_micros(20));
    for _ in 0..200 {
        let (answered, answers) = channel();
        let ticket = arrive(&scheduler, &[(0, 512)]);
        scheduler.ready(ticket, Box::new(move || answered.send(()).unwrap()));
        answers.recv_timeout(LONG).unwrap();
        scheduler.settle();
        let lines = scheduler.log().lines();
        assert!(!String::from_utf8(lines).unwrap().contains("null"));
        scheduler.log().clear();
    }
}

#[test]
fn what_has_no_place_takes_no_time_and_a_flush_does() {
    let (scheduler, commands) = scheduler(FOR_EVER);
    let (answered, answers) = channel();
    let ticket = arrive(&scheduler, &[]);
    scheduler.ready(ticket, Box::new(move || answered.send(()).unwrap()));
    answers.recv_timeout(LONG).unwrap();
    let file = "disk".into();
    let (op, number, offset, len) = (Op::Flush, 0, 0, 0);
    let incoming = Incoming { number, op, file: &file, offset, len, places: &[] };
    let (answered, answers) = channel();
    let ticket = scheduler.arrive(&incoming);
    scheduler.ready(ticket, Box::new(move || answered.send(()).unwrap()));
    assert_eq!(commands.recv().unwrap().1.op, Op::Flush);
    assert!(answers.try_recv().is_err());
    drop(scheduler);
    assert!(answers.recv_timeout(LONG).is_ok(), "[SCD-1]");
}

#[test]
fn a_thread_that_watches_the_clock_stops_when_another_has_noticed_the_end() {
    // No workers: the leader stops in the middle of its polling, as on a busy machine.
    let (sender, _commands) = channel();
    let (takes, last) = (Duration::from_micros(1), Duration::ZERO);
    let device = Noting { takes, under_way: Vec::new(), last, sender };
    let shared = Arc::new(Shared::new(Box::new(device), 1.0, RequestLog::new(100)));
    let watched = || shared.next_event_ns.load(Ordering::Relaxed);
    let stood_still = Scheduler { shared: Arc::clone(&shared), workers: Vec::new() };

    let timed = arrive(&stood_still, &[(0, 512)]);
    stood_still.ready(timed, Box::new(|| ()));
    assert_ne!(watched(), u64::MAX);
    std::thread::sleep(Duration::from_millis(1));
    // A read of a hole notices that the first has ended, and causes no event itself.
    let hole = arrive(&stood_still, &[]);
    assert_eq!(watched(), 0, "[SCD-1] the leader would watch forever");
    stood_still.ready(hole, Box::new(|| ()));
    shared.lock().due.clear();

    let timed = arrive(&stood_still, &[(0, 512)]);
    stood_still.ready(timed, Box::new(|| ()));
    assert_ne!(watched(), 0);
    stood_still.set_timing(false);
    assert_eq!(watched(), 0, "[SCD-1] the leader would watch forever");
}

#[test]
fn a_load_spends_the_credits_of_a_volume_and_then_its_time_goes_on() {
    // No workers: the test uses the model, not the clock.
    let profile = crate::profile::Profile::load("cloud-burst").unwrap();
    assert!(profile.bursts());
    let shared = Arc::new(Shared::new(profile.build(0), 1.0, RequestLog::new(1000)));
    let scheduler = Scheduler { shared: Arc::clone(&shared), workers: Vec::new() };
    // How long 600 simultaneous reads take.
    let takes = || {
        let tickets: Vec<Ticket> = (0..600).map(|_| arrive(&scheduler, &[(0, 8192)])).collect();
        let mut inner = shared.lock();
        let begun = inner.reported;
        while let Some(next) = inner.next_event() {
            inner.advance(next);
        }
        tickets.iter().map(|one| inner.waiting[&one.request].accounting.ended).max().unwrap()
            - begun
    };
    let rested = takes();
    assert!(rested < Duration::from_millis(300), "{rested:?}");
    let (waiting, before) = (arrive(&scheduler, &[(0, 8192)]), shared.lock().reported);
    scheduler.load(8192, Duration::from_secs(3600));
    assert_eq!(shared.lock().waiting[&waiting.request].parts, 0, "[SCD-1]");
    assert!(shared.lock().next_event().is_none() && shared.lock().reported >= before, "[SCD-5]");
    let tired = takes();
    assert!(tired > Duration::from_millis(1800), "[SCD-5] {tired:?}");
    assert!(tired < Duration::from_millis(2100), "{tired:?}");
}
