//! Tests of the trace: what is kept, in which order, and both ways out.

use std::thread;

use proptest::prelude::*;

use super::*;

fn event(stream: u32, first: Block, blocks: u32, why: Why) -> TraceEvent {
    let at = Duration::from_micros(u64::from(first));
    TraceEvent { at, stream, file: FileId(1), first, blocks, action: Action::Request, why }
}

fn trace_of(events: impl IntoIterator<Item = TraceEvent>) -> Trace {
    let trace = Trace::new(1000).unwrap();
    for event in events {
        trace.record(event);
    }
    trace
}

/// What a user makes of plain reads that find a sequence, and of two streams.
fn some_events() -> Vec<TraceEvent> {
    let hint = |event| TraceEvent { action: Action::Hint, ..event };
    let delivered = |event| TraceEvent { action: Action::Deliver, ..event };
    let other_file = |event| TraceEvent { file: FileId(2), ..event };
    vec![
        event(0, 900, 1, Why::Random),
        event(0, 10, 1, Why::Random),
        event(0, 11, 4, Why::Sequential),
        delivered(event(0, 11, 1, Why::Sequential)),
        event(7, 500, 1, Why::Single),
        event(7, 501, 1, Why::Single),
        other_file(event(7, 502, 1, Why::Single)),
        event(0, 15, 8, Why::Sequential),
        event(7, 600, 3, Why::Merged),
        event(7, 603, 9, Why::Gap),
        delivered(event(7, 600, 1, Why::Late)),
        delivered(event(7, 601, 1, Why::Merged)),
        event(7, 700, 2, Why::Joined),
        delivered(event(7, 702, 1, Why::Hit)),
        hint(event(12, 40, 1, Why::Single)),
        hint(event(12, 41, 1, Why::Single)),
        hint(event(12, 80, 3, Why::Merged)),
    ]
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
        let told = Trace::new(capacity).unwrap_err().to_string();
        let want = format!("trace capacity is {capacity}: it has to be 16 to 16777216 events");
        assert_eq!(told, want);
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
fn the_strip_shows_each_stream_on_its_own_line() {
    let want = "\
plain reads  RRSS
stream 7     RSRMG!J.
stream 12    rsm
S sequential  R random  M merged  G gap read through  J joined a read  . hit
! came late  (small: only a hint)
";
    assert_eq!(trace_of(some_events()).strip(80, false), want);
}

#[test]
fn a_long_strip_is_wrapped_and_says_what_is_missing() {
    let trace = Trace::new(60).unwrap();
    for number in 0..70 {
        trace.record(event(3, number * 10, 1, Why::Single));
    }
    let want = "\
stream 3  RRRRRRRRRRRRRRRRRRRRRRRRRRRRRR
          RRRRRRRRRRRRRRRRRRRRRRRRRRRRRR
S sequential  R random  M merged
G gap read through  J joined a read
. hit  ! came late  (small: only a hint)
10 older events overwritten
";
    assert_eq!(trace.strip(40, false), want);
    assert_eq!(trace.strip(0, false), want, "no narrower than 40");
    assert_eq!(trace_of([]).strip(80, true), "No look-ahead was recorded.\n");
}

#[test]
fn colours_are_for_whole_runs() {
    let events = [0, 10, 11, 12].map(|first| event(0, first, 1, Why::Random));
    let strip = trace_of(events).strip(80, true);
    assert!(
        strip.starts_with("plain reads  \x1b[31mRR\x1b[0m\x1b[32mSS\x1b[0m\n\x1b[32mS\x1b[0m seq"),
        "{strip:?}"
    );
}

/// Without its colours; panics when one of them stays on.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap().to_owned();
    let mut on = false;
    for part in parts {
        let (code, rest) = part.split_once('m').unwrap();
        assert_ne!(on, code != "[0", "[TRC-5] a colour within another: {line:?}");
        on = code != "[0";
        text.push_str(rest);
    }
    assert!(!on, "[TRC-5] a colour stays on: {line:?}");
    text
}

fn any_event() -> impl Strategy<Value = TraceEvent> {
    let words = (0..Action::ALL.len(), 0..Why::ALL.len());
    let place = (any::<Block>(), 1..u32::MAX);
    let nanos = prop_oneof![0..2_000_000_000_u64, any::<u64>()];
    let whose = (prop_oneof![0..4_u32, any::<u32>()], any::<u32>());
    (words, place, nanos, whose).prop_map(|((action, why), (first, blocks), nanos, whose)| {
        let (stream, file) = (whose.0, FileId(whose.1));
        let at = Duration::from_nanos(nanos);
        let (action, why) = (Action::ALL[action], Why::ALL[why]);
        TraceEvent { at, stream, file, first, blocks, action, why }
    })
}

proptest! {
    #[test]
    fn a_strip_fits_and_its_colours_are_balanced(
        events in prop::collection::vec(any_event(), 0..200),
        columns in 0..200_usize,
    ) {
        let trace = trace_of(events);
        let black = trace.strip(columns, false);
        prop_assert!(black.lines().all(|line| line.len() <= columns.max(40)), "[TRC-5] {}", black);
        let colored = trace.strip(columns, true);
        let bared: Vec<String> = colored.lines().map(plain).collect();
        prop_assert_eq!(bared, black.lines().collect::<Vec<_>>(), "[TRC-5]");
    }

    #[test]
    fn a_json_library_reads_each_line_back(events in prop::collection::vec(any_event(), 0..50)) {
        let mut out = Vec::new();
        trace_of(events.clone()).write_json_lines(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        prop_assert_eq!(text.lines().count(), events.len(), "[TRC-4]");
        for (line, event) in text.lines().zip(events) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(value.as_object().unwrap().len(), 7, "[TRC-4]");
            let seconds = value["at_seconds"].as_f64().unwrap();
            prop_assert!((seconds - event.at.as_secs_f64()).abs() <= seconds * 1e-12 + 1e-12);
            prop_assert_eq!(&value["stream"], event.stream);
            prop_assert_eq!(&value["file"], event.file.get());
            prop_assert_eq!(&value["first"], event.first);
            prop_assert_eq!(&value["blocks"], event.blocks);
            prop_assert_eq!(&value["action"], event.action.name());
            prop_assert_eq!(&value["why"], event.why.name());
        }
    }
}

#[test]
fn a_line_of_json_is_as_documented() {
    let at = Duration::from_nanos(1_500);
    let event = TraceEvent { at, file: FileId(3), ..event(1, 42, 8, Why::Gap) };
    let mut out = Vec::new();
    trace_of([event]).write_json_lines(&mut out).unwrap();
    let want = "{\"at_seconds\":0.000001500,\"stream\":1,\"file\":3,\"first\":42,\"blocks\":8,\
                \"action\":\"request\",\"why\":\"gap\"}\n";
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn a_writer_that_fails_is_reported_and_the_events_stay() {
    let trace = trace_of(some_events());
    let mut small = [0_u8; 50];
    assert!(trace.write_json_lines(&mut &mut small[..]).is_err());
    assert_eq!(trace.events(), some_events());
}
