//! Predictions: the plan made from a record, its replay, and the conclusions.

use super::super::access::{Access, Read, ReadMode};
use super::super::file_table::{FileName, FileTable};
use super::super::record::Recorder;
use super::plan::{PlanFile, Step, StepKind};
use super::replay::{ReplayResult, Task};
use super::*;
use forebay_lookahead::Run;
use forebay_measure::report::terminal::Look;

const PAGE: u64 = 4096;
const SECOND: Duration = Duration::from_secs(1);
const OPEN_MAX: usize = 1000;

/// A read of page `first` by `task`, which waited for `waited_ns` unless that is 0.
fn read(task: u32, first: u64, waited_ns: u64) -> Access {
    let (missed, waited_ns) = (waited_ns > 0, (waited_ns > 0).then_some(waited_ns));
    let took_ns = waited_ns.unwrap_or(0) + 1000;
    let mode = ReadMode::Cached;
    Access::Read(Read {
        task,
        file: 0,
        first,
        more: 0,
        bytes: PAGE,
        took_ns,
        waited_ns,
        missed,
        mode,
    })
}

/// A record of `done`, on a file of 100 pages in `directory`.
fn record(directory: &Path, done: &[(u64, Access)]) -> anyhow::Result<Record> {
    let (file, path) = (directory.join("file"), directory.join("record"));
    std::fs::write(&file, vec![7; 100 * PAGE as usize]).unwrap();
    let called = |path: &Path| FileName::new(String::new(), Some(path.display().to_string()));
    // A pipe is at this path now: opening it would wait for a writer.
    let pipe = directory.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let files = [(0, called(&file)), (1, called(&pipe))].into();
    let file_table = FileTable { files, ..FileTable::default() };
    let mut recorder = Recorder::create(&path, 1 << 30, PAGE).unwrap();
    done.iter().for_each(|&(at_ns, access)| recorder.add(at_ns, access));
    recorder.end(done.last().map_or(0, |last| last.0), &file_table).unwrap();
    Record::open(&path)
}

fn plan(done: &[(u64, Access)], length_ns: u64) -> anyhow::Result<Plan> {
    let directory = tempfile::tempdir().unwrap();
    Plan::new(&mut record(directory.path(), done)?, Duration::from_nanos(length_ns), OPEN_MAX)
}

#[test]
fn each_task_reads_again_with_the_pauses_that_it_made() {
    let other = Access::Read(Read {
        file: 1,
        ..match read(1, 0, 0) {
            Access::Read(it) => it,
            _ => unreachable!(),
        }
    });
    let (offset, bytes, took_ns) = (0, PAGE, 5_000);
    let advised = Access::Advise { task: 2, file: 0, offset, bytes, advice: 3, pages: 1, took_ns };
    let done = [
        (100_000, read(1, 9, 90_000)),
        (111_000, read(2, 50, 0)),
        (150_000, read(1, 10, 20_000)),
        (160_000, advised),
        (170_000, read(2, 0, 0)),
        (180_000, other),
    ];
    let plan = plan(&done, 1_000_000).unwrap();
    let steps = |task: usize| -> Vec<(u64, u64, StepKind)> {
        plan.tasks[task]
            .iter()
            .map(|step: &Step| (step.after_ns, step.offset / PAGE, step.what))
            .collect()
    };
    let of = |is_known| StepKind::Read { is_known };
    // The first 9 us are idle.
    assert_eq!((plan.from_ns, plan.until_ns), (9_000, 170_000));
    assert_eq!(steps(0), [(0, 9, of(false)), (29_000, 10, of(true))]);
    assert_eq!(
        steps(1),
        [(101_000, 50, of(false)), (44_000, 0, StepKind::Advise(3)), (9_000, 0, of(false))]
    );
    // The advice brought page 0 in, and page 50 was in memory before.
    assert!(plan.files[0].resident.iter().eq([&(50..51)]));
    assert_eq!((plan.files.len(), plan.waited_ns, plan.files[0].block_bytes), (1, 110_000, PAGE));
    assert!(plan.advises());
    assert!(plan.remarks[0].contains("files that were deleted"), "{:?}", plan.remarks);
}

#[test]
fn what_advice_for_a_whole_file_has_brought_in_was_not_in_memory_before() {
    for (bytes, resident) in [(0, 0), (100 * PAGE, 0), (PAGE, 1)] {
        let (offset, pages, took_ns) = (0, 100, 5_000);
        let advised = Access::Advise { task: 1, file: 0, offset, bytes, advice: 3, pages, took_ns };
        let plan = plan(&[(100_000, advised), (200_000, read(1, 50, 0))], 1 << 30).unwrap();
        assert_eq!(plan.files[0].resident.iter().count(), resident, "{bytes}");
    }
}

#[test]
fn of_a_long_record_the_part_with_the_longest_waits_is_read_again() {
    let waits = |at: u64| if (600..700).contains(&at) { 50_000 } else { 2_000 };
    let done: Vec<_> = (1..1000).map(|at| (at * 100_000, read(1, at % 100, waits(at)))).collect();
    let plan = plan(&done, 12_000_000).unwrap();
    let length_ns = plan.until_ns - plan.from_ns;
    assert!((11_800_000..=12_000_000).contains(&length_ns), "[PLA-1] {length_ns}");
    assert!((55_000_000..=60_000_000).contains(&plan.from_ns), "{}", plan.from_ns);
    assert!(plan.waited_ns >= 100 * 50_000 && plan.waited_in_all_ns > plan.waited_ns);
    assert!((119..=121).contains(&plan.steps()), "{}", plan.steps());
}

#[test]
fn what_cannot_be_read_again_is_refused() {
    let direct = |read: Access| match read {
        Access::Read(it) => Access::Read(Read { mode: ReadMode::Direct, ..it }),
        other => other,
    };
    let error = plan(&[(200_000, direct(read(1, 3, 50_000)))], 1 << 30).unwrap_err();
    assert!(error.is::<forebay_measure::BadInput>());
    assert!(error.to_string().ends_with("(left out: reads past the page cache)"), "{error}");
    assert!(plan(&[], 1 << 30).unwrap_err().is::<forebay_measure::BadInput>());
}

#[test]
fn what_no_watch_has_recorded_is_not_read() {
    let beyond = |first| plan(&[(100_000, read(1, first, 0)), (200_000, read(1, 3, 0))], 1 << 30);
    for first in [100, (1 << 52) - 1] {
        assert_eq!(beyond(first).unwrap().steps(), 1, "{first}");
    }
    // A file of the kernel, under another path.
    let directory = tempfile::tempdir().unwrap();
    let mut record = record(directory.path(), &[(200_000, read(1, 3, 0))]).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/proc/version", &link).unwrap();
    let called = FileName::new(String::new(), Some(link.display().to_string()));
    assert!(called.state.is_some());
    record.file_table.files = [(0, called)].into();
    assert!(Plan::new(&mut record, SECOND, OPEN_MAX).is_err());
}

#[test]
fn a_record_with_a_readahead_of_nothing_is_refused() {
    let ahead = Access::Ahead { file: 0, first: 3, pages: 0 };
    let error = plan(&[(100_000, ahead), (200_000, read(1, 3, 50_000))], 1 << 30).unwrap_err();
    assert!(error.is::<forebay_measure::BadInput>(), "[REC-2] {error:#}");
}

#[test]
fn a_plan_is_replayed_in_its_time_with_each_strategy_and_the_file_stays_as_it_is() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let done: Vec<_> = (1..300).map(|at| (at * 100_000, read(1, at * 37 % 100, 0))).collect();
    let mut plan =
        Plan::new(&mut record(directory.path(), &done).unwrap(), SECOND, OPEN_MAX).unwrap();
    let file = directory.path().join("file");
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    let facts = || {
        let facts = std::fs::metadata(&file).unwrap();
        (facts.modified().unwrap(), facts.len())
    };
    let before = facts();
    let ahead = |knows_all| ReadStrategy::Ahead(Ahead { knows_all, takes: Takes::All, most: 256 });
    for way in [ReadStrategy::AsItIs, ReadStrategy::WithoutAdvice, ahead(false), ahead(true)] {
        let delta = replay::prepare(&mut plan, None).unwrap();
        assert_eq!((delta.missing, plan.files[0].resident.iter().count()), (0, 1));
        let result = replay::replay(&plan, way, Duration::from_secs(60)).unwrap();
        assert!(result.took >= Duration::from_micros(29_000) && result.share == 1.0, "{result:?}");
    }
    let cut =
        replay::replay(&plan, ReadStrategy::Hint(Hint::Random), Duration::from_millis(5)).unwrap();
    assert!(cut.share < 0.9 && cut.took < Duration::from_millis(500), "[PRE-2] {cut:?}");
    assert_eq!(facts(), before, "[PRE-1]");
    // No time to bring in the 100 pages that were in memory.
    let delta = replay::prepare(&mut plan, Some(Duration::ZERO)).unwrap();
    assert_eq!((delta.missing, plan.files[0].resident.is_empty()), (100, true), "[PRE-2]");
    // The file was deleted since.
    std::fs::remove_file(&file).unwrap();
    assert!(replay::prepare(&mut plan, None).is_err());
}

#[test]
fn look_ahead_prefetches_what_is_known_as_far_as_reads_have_waited() {
    let directory = tempfile::tempdir().unwrap();
    // Random reads and a sequence of four, then two pages that are read twice.
    let pages = [50, 7, 93, 20, 61, 62, 63, 64, 11, 35, 80, 80];
    let mut done: Vec<_> =
        (1..).zip(pages).map(|(at, page)| (at * 100_000, read(1, page, 0))).collect();
    for (_, access) in &mut done[10..] {
        if let Access::Read(it) = access {
            (it.more, it.bytes) = (1, 2 * PAGE);
        }
    }
    let plan = Plan::new(&mut record(directory.path(), &done).unwrap(), SECOND, OPEN_MAX).unwrap();
    let asked = |knows_all, takes| {
        let way = ReadStrategy::Ahead(Ahead { knows_all, takes, most: 256 });
        let mut task = Task::open(&plan, &plan.tasks[0], way, false).unwrap();
        let steps = plan.tasks[0].iter().enumerate();
        let asked = steps.flat_map(|(at, step)| {
            let asked = task.look_ahead(at, step, Duration::from_millis(1));
            asked.into_iter().flat_map(|(_, bytes)| bytes.start / PAGE..bytes.end / PAGE)
        });
        asked.collect::<Vec<u64>>()
    };
    // All reads but the first, once each; only those that continue a read; of a reader that may stop, a tenth ahead.
    let mut all = asked(true, Takes::All);
    all.sort_unstable();
    assert_eq!(all, [7, 11, 20, 35, 61, 62, 63, 64, 80, 81, 93]);
    assert_eq!(asked(false, Takes::All), [62, 63, 64]);
    assert_eq!(asked(true, Takes::MayStop), [80, 81]);
}

#[test]
fn blocks_of_different_files_are_distinguished() {
    let file =
        |first_block, block_bytes| PlanFile { first_block, block_bytes, ..PlanFile::default() };
    let done = [(1_000_000, read(1, 3, 800_000))];
    let files = vec![file(0, PAGE), file(102, 4 * PAGE), file(u64::from(u32::MAX) - 1, PAGE)];
    let plan = Plan { files, ..plan(&done, 1 << 30).unwrap() };
    let step = |file, offset, bytes| Step { file, offset, bytes, ..plan.tasks[0][0] };
    for (file, offset, bytes, blocks, whole) in [
        (0, 3 * PAGE, PAGE, 3..4, 3 * PAGE..4 * PAGE),
        (0, 3 * PAGE + 1, PAGE, 3..5, 3 * PAGE..5 * PAGE),
        (1, 5 * PAGE, 1, 103..104, 4 * PAGE..8 * PAGE),
    ] {
        assert_eq!(plan.blocks(&step(file, offset, bytes)), blocks);
        let run = Run { first: blocks.start, blocks: blocks.len() as u32, wanted: 1 };
        assert_eq!(plan.bytes(run), (file, whole));
    }
    // Beyond the end of the numbering.
    assert_eq!(plan.blocks(&step(2, 9 * PAGE, PAGE)), u32::MAX..u32::MAX);
}

#[test]
fn files_that_are_others_since_are_left_out_and_those_that_were_written_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let whole = vec![7; 100 * PAGE as usize];
    let done = [(200_000, read(1, 3, 50_000))];
    let cases: [(&str, &dyn Fn(), &str); 4] = [
        ("as it was", &|| (), ""),
        (
            "grown",
            &|| std::fs::write(&file, [&whole[..], &[1]].concat()).unwrap(),
            "1 of 1 files were written since",
        ),
        ("cut off", &|| std::fs::write(&file, &whole[..7]).unwrap(), "replaced or cut off since"),
        (
            "replaced",
            &|| {
                std::fs::write(directory.path().join("new"), &whole).unwrap();
                std::fs::rename(directory.path().join("new"), &file).unwrap();
            },
            "replaced or cut off since",
        ),
    ];
    for (case, change, expected) in cases {
        _ = std::fs::remove_file(directory.path().join("pipe"));
        let mut record = record(directory.path(), &done).unwrap();
        change();
        let planned = Plan::new(&mut record, SECOND, OPEN_MAX);
        let remarks = planned.map_or_else(|error| error.to_string(), |plan| plan.remarks.concat());
        assert!(
            remarks.contains(expected) && expected.is_empty() == remarks.is_empty(),
            "{case}: {remarks}"
        );
    }
}

/// A strategy with these waits in its rounds. `share`: the share of the steps that were done.
fn variant(waits_us: &[u64], share: f64) -> Variant {
    let rounds = waits_us.iter().map(|&us| ReplayResult {
        waited: Duration::from_micros(us),
        took: Duration::from_micros(us + 1000),
        share,
    });
    Variant { rounds: rounds.collect(), ..Variant::new("way", ReadStrategy::AsItIs) }
}

#[test]
fn a_strategy_that_waits_where_hardly_any_read_waited_is_predicted_to_wait() {
    for recorded_ns in [0, 1, 600] {
        let plan = plan(&[(1_000_000, read(1, 3, recorded_ns))], 1 << 30).unwrap();
        assert_eq!(plan.waited_ns, recorded_ns);
        let variants = [variant(&[0; 5], 1.0), variant(&[300_000; 5], 1.0)];
        let predicted = Prediction::of(&plan, &variants);
        let way = &predicted.ways[1];
        assert!((way.wait_seconds - 0.3).abs() < 1e-4, "{recorded_ns}: {}", way.wait_seconds);
        assert_eq!(way.verdict, "loses");
        let text = predicted.drawn(Look { width: 100, colour: false, ascii: false });
        assert!(text.contains("300 ms and 300 ms") && text.contains('µ'), "{text}");
        let text = predicted.drawn(Look { width: 100, colour: false, ascii: true });
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn a_difference_that_is_no_part_of_the_time_is_neither_a_gain_nor_a_loss() {
    let done = [(1_000_000, read(1, 3, 2000)), (100_000_000, read(1, 77, 1000))];
    let plan = plan(&done, 1 << 30).unwrap();
    for (waits, verdict) in [(45, "negligible"), (1, "negligible"), (5000, "loses")] {
        let variants = [variant(&[3; 5], 1.0), variant(&[waits; 5], 1.0)];
        let way = &Prediction::of(&plan, &variants).ways[1];
        assert_eq!(way.verdict, verdict, "{waits} us in {} s", way.seconds);
    }
}

#[test]
fn what_tasks_that_are_left_out_waited_is_not_compared() {
    let twice = (1..=128).flat_map(|task| [read(task, 3, 100), read(task, 4, 100)]);
    let once = std::iter::once(read(999, 5, 1_000_000));
    let done: Vec<(u64, Access)> = (1..).map(|at| at * 1_000_000).zip(twice.chain(once)).collect();
    let plan = plan(&done, 1 << 30).unwrap();
    assert_eq!((plan.tasks.len(), plan.waited_ns), (128, 128 * 200));
    assert!(plan.remarks.iter().any(|it| it.starts_with("of 129 tasks only the 128")));
}

#[test]
fn no_more_tasks_are_read_for_than_may_have_their_files_open() {
    let reads = [1, 2, 2, 3].map(|task| read(task, 3, 100));
    let done: Vec<(u64, Access)> = (1..).map(|at| at * 1_000_000).zip(reads).collect();
    let directory = tempfile::tempdir().unwrap();
    let mut record = record(directory.path(), &done).unwrap();
    for (open_max, tasks) in [(3, Some(3)), (2, Some(2)), (1, Some(1)), (0, None)] {
        let plan = Plan::new(&mut record, SECOND, open_max);
        assert_eq!(plan.as_ref().ok().map(|plan| plan.tasks.len()), tasks, "[PLA-1] {open_max}");
        let expected = plan.map_or_else(|error| error.to_string(), |plan| plan.remarks.concat());
        assert_eq!(expected.contains("no more files may be open"), open_max < 3, "{expected}");
    }
}

#[test]
fn a_way_gains_or_loses_where_its_rounds_are_sure_of_it() {
    let done = [(1_000_000, read(1, 3, 800_000)), (2_000_000, read(1, 77, 200_000))];
    let predicted = |rounds: &[&[u64]], share: f64| {
        let variants: Vec<Variant> = rounds
            .iter()
            .enumerate()
            .map(|(at, waits)| variant(waits, if at == 0 { 1.0 } else { share }))
            .collect();
        Prediction::of(&plan(&done, 1 << 30).unwrap(), &variants)
    };
    let as_it_is: &[u64] = &[1000, 2000, 900];
    let ways = |other: &[u64], share| {
        let predicted = predicted(&[as_it_is, other], share);
        // A strategy that was cut off has a remark.
        let remarks = predicted.remarks.len() - usize::from(share < 1.0);
        (predicted.ways[1].verdict, predicted.ways[1].wait_seconds, remarks)
    };
    let close = |(verdict, seconds, remarks): (&str, f64, usize), expected: (&str, f64)| {
        assert!(
            verdict == expected.0 && (seconds - expected.1).abs() < 1e-6 && remarks == 0,
            "{verdict} {seconds}"
        );
    };
    close(ways(&[500, 1000, 450], 1.0), ("gains", 0.0005));
    // Scaled up, 2000, 4000 and 1800 us were waited, which is 1000, 2000 and 900 us more than unchanged.
    close(ways(&[500, 1000, 450], 0.25), ("loses", 0.002_250_6));
    // The record took 1.801 ms. The rounds took 2000, 3000 and 1900 us unchanged, and 1500, 2000 and 1450 us now.
    let ways_of = predicted(&[as_it_is, &[500, 1000, 450]], 1.0).ways;
    let seconds: Vec<f64> = ways_of.iter().map(|it| it.seconds).collect();
    assert!((seconds[1] - 0.001_306_3).abs() < 1e-6 && seconds[0] == 0.001_801, "{seconds:?}");
    assert_eq!(ways(&[500, 2500, 950], 1.0).0, "undecided");
    assert_eq!(ways(&[500, 1000], 1.0).0, "undecided", "of two rounds");
    // The unchanged run is far from the recorded waiting, which was 1 ms.
    let delta = predicted(&[&[9000, 9100, 9200], &[500, 1000, 450]], 1.0);
    assert!(delta.remarks[0].contains("is about something else"), "{:?}", delta.remarks);
    let text = delta.drawn(Look { width: 90, colour: false, ascii: false });
    assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("read again: reads waited 1.00 ms when it was recorded, and 9.10 ms now"),
        "{text}"
    );
}
