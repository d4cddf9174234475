//! Tests of the trace: what is kept, and in which order.

use std::thread;

use super::*;

fn event(stream: u32, first: Block, blocks: u32, why: Why) -> TraceEvent {
    let at = Duration::from_micros(u64::from(first));
    TraceEvent { at, stream, file: FileId(1), first, blocks, action: Action::Request, why }
}

/// [TRC-1] [TRC-2]
#[test]
fn trc_1_the_newest_events_stay_in_order_and_the_others_are_counted() {
    let trace = Trace::new(16).unwrap();
    for first in 0..16 {
        trace.record(event(0, first, 1, Why::Random));
    }
    assert_eq!((trace.events().len(), trace.dropped()), (16, 0));
    for first in 16..20 {
        trace.record(event(0, first, 1, Why::Random));
    }
    let firsts: Vec<Block> = trace.events().iter().map(|event| event.first).collect();
    assert_eq!(firsts, (4..20).collect::<Vec<_>>());
    assert_eq!(trace.dropped(), 4);
    trace.clear();
    assert_eq!((trace.events().len(), trace.dropped()), (0, 0));
    trace.record(event(0, 5, 1, Why::Random));
    assert_eq!(trace.events().len(), 1);
}

#[test]
fn a_capacity_out_of_bounds_is_refused_in_words() {
    for capacity in [0, 15, (16 << 20) + 1, usize::MAX] {
        let message = Trace::new(capacity).unwrap_err().to_string();
        let want = format!("trace capacity is {capacity}: it has to be 16 to 16777216 events");
        assert_eq!(message, want);
    }
    assert_eq!(Trace::new(16).unwrap().capacity(), 16);
    assert!(size_of::<TraceEvent>() <= 40);
}

/// [TRC-3]
#[test]
fn trc_3_recording_stays_in_the_memory_set_aside() {
    let trace = Trace::new(100).unwrap();
    let before = trace.locked().events.capacity();
    for first in 0..250 {
        trace.record(event(0, first, 1, Why::Random));
    }
    assert_eq!(trace.locked().events.capacity(), before);
}

#[test]
fn clones_share_their_events() {
    let trace = Trace::new(16).unwrap();
    trace.clone().record(event(0, 1, 1, Why::Random));
    assert_eq!(trace.events().len(), 1);
    assert_eq!(format!("{trace:?}"), "Trace { capacity: 16, events: 1, dropped: 0 }");
}

#[test]
fn threads_that_record_at_once_lose_nothing_and_keep_their_order() {
    let trace = Trace::new(1000).unwrap();
    thread::scope(|scope| {
        for stream in 0..4 {
            let trace = trace.clone();
            scope.spawn(move || {
                for first in 0..500 {
                    trace.record(event(stream, first, 1, Why::Random));
                }
            });
        }
    });
    assert_eq!(trace.dropped(), 1000);
    let events = trace.events();
    assert_eq!(events.len(), 1000);
    for stream in 0..4 {
        let mine = events.iter().filter(|event| event.stream == stream);
        let firsts: Vec<Block> = mine.map(|event| event.first).collect();
        assert!(firsts.is_sorted_by(|one, next| one + 1 == *next), "[TRC-2] {firsts:?}");
        assert!(firsts.last().is_none_or(|last| *last == 499), "[TRC-1] the newest stay");
    }
}

#[test]
fn names_are_single_words_and_differ() {
    let whys = Why::ALL.map(Why::name);
    let actions = Action::ALL.map(Action::name);
    for names in [&whys[..], &actions[..]] {
        let mut once = names.to_vec();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())));
    }
}

#[test]
fn each_decision_has_its_letter() {
    let of = |action: Action| move |why| action.letter(why, false).unwrap_or(' ');
    let all = |action: Action| Why::ALL.map(of(action)).into_iter().collect::<String>();
    let asked = all(Action::Request);
    assert_eq!(asked, "SSSSRMGJ.R!", "{:?}", Why::ALL);
    assert_eq!(all(Action::Hint), asked.to_lowercase());
    let delivered = all(Action::Deliver);
    assert_eq!(delivered.trim_start(), ". !");
    assert_eq!(Action::Request.letter(Why::Single, true), Some('S'), "it goes on");
}
