//! Which conclusions and advice are made, and when there are none.

use super::super::control::{Fadvise, Readahead};
use super::super::race::Finish;
use super::super::throughput::Round;
use super::*;
use forebay_measure::facts::FakeSys;
use forebay_measure::lists::unique;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// A cell of about eight readers with this many MB/s in each round.
pub(in super::super) fn cell(count: u32, readahead: Readahead, mb_per_s: &[f64]) -> Cell {
    let mut cell = Cell::new(Throughput {
        readers: count,
        files: Files::Own,
        readahead,
        request_bytes: 8192,
        cache: CacheMode::Buffered,
        backend: None,
        spacing_bytes: None,
    });
    cell.rounds.extend(mb_per_s.iter().map(|rate| {
        let finish = Finish { seconds: 1.0, moved: vec![(rate * 1e6) as u64] };
        Round::new(&finish, None)
    }));
    cell
}

pub(in super::super) fn device(count: u32, bytes: u64, mb_per_s: &[f64]) -> Cell {
    cell(count, Readahead::device(bytes), mb_per_s)
}

/// Settings of a run on a disk whose readahead was `found`.
pub(in super::super) fn settings(found: Option<u64>) -> Settings {
    let options = "--quick --files own --set-via descriptor";
    let mut settings = Settings::new(crate::experiment::typed(options)).unwrap();
    settings.control.found_bytes = found;
    settings
}

pub(in super::super) fn storage(with_device: bool) -> Storage {
    Storage {
        directory: "/srv".to_owned(),
        filesystem: Some("ext4".to_owned()),
        emulated: None,
        mount_point: None,
        mount_options: None,
        source: None,
        device: with_device.then(|| FakeSys::server().device(8, 0)),
        device_remark: String::new(),
    }
}

fn drawn(cells: &[Cell], found: Option<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    draw(&settings(found), &storage(true), cells, Floor::default(), &mut outcome);
    outcome
}

fn sentences(outcome: &Outcome) -> String {
    let sentences: Vec<&str> =
        outcome.conclusions.iter().map(|conclusion| conclusion.sentence.as_str()).collect();
    sentences.join("\n")
}

/// Readahead in bytes, and MB/s of eight readers in three rounds.
type Rows = [(u64, [f64; 3]); 10];

/// `readahead-raid10-12-spread.json` of results/2026-11-21-vm, files spread over the whole disk: lowest, middle
/// and highest of its three rounds.
const SPREAD: Rows = [
    (4 * KIB, [35.0, 44.0, 67.0]),
    (128 * KIB, [56.0, 61.0, 61.0]),
    (256 * KIB, [93.0, 94.0, 105.0]),
    (512 * KIB, [145.0, 160.0, 162.0]),
    (MIB, [247.0, 252.0, 259.0]),
    (2 * MIB, [357.0, 357.0, 366.0]),
    (4 * MIB, [449.0, 450.0, 458.0]),
    (6 * MIB, [428.0, 464.0, 484.0]),
    (8 * MIB, [472.0, 485.0, 491.0]),
    (24 * MIB, [462.0, 485.0, 489.0]),
];

fn spread() -> Vec<Cell> {
    SPREAD.iter().map(|(bytes, rates)| device(8, *bytes, rates)).collect()
}

#[test]
fn on_an_array_whose_readers_are_all_over_it_much_more_than_128_kib_is_advised() {
    let outcome = drawn(&spread(), Some(128 * KIB));
    let [advice] = &outcome.advice[..] else { panic!("{outcome:?}") };
    assert_eq!((&*advice.setting, advice.applies_to), ("read_ahead_kb", AppliesTo::BlockDevice));
    assert_eq!((advice.current.as_deref(), &*advice.advised), (Some("128"), "8192"));
    assert!((8.0..8.3).contains(&advice.gain) && advice.gain_low > 3.0, "{advice:?}");
    let text = sentences(&outcome);
    let need = "8 sequential readers need a readahead of 8 MiB, 485 MB/s; more gains less than 5 %. That is 8";
    assert!(text.starts_with(need), "{text}");
    assert!(text.contains("`blockdev --setra 16384 /dev/sda`"), "{text}");
    let [verdict, chosen] = &outcome.verdicts[..] else { panic!("{outcome:?}") };
    assert_eq!(verdict.row, "8 readers, own files, reads of 8KiB");
    assert_eq!((&*verdict.variant, verdict.verdict), ("readahead 128 KiB", Judgement::Misses));
    assert!(chosen.ratio.value >= BOUND, "[RCN-1] {chosen:?}");
}

#[test]
fn a_mount_without_a_device_is_reported_for_its_bdi() {
    let mut outcome = Outcome::default();
    draw(&settings(Some(128 * KIB)), &storage(false), &spread(), Floor::default(), &mut outcome);
    assert!(
        sentences(&outcome).contains("write 8192 to read_ahead_kb of its entry in /sys/class/bdi")
    );
}

#[test]
fn two_cells_that_could_not_be_measured_veto_nothing() {
    // Direct reads that the filesystem refuses, next to eight readers that gain five times.
    let of = |count, advice, rates: &[f64]| {
        cell(count, Readahead::descriptor(advice, Some(8 * MIB)), rates)
    };
    let refused = |count| {
        let mut direct = cell(count, Readahead::default(), &[]);
        (direct.cell.cache, direct.cell.request_bytes) = (CacheMode::Direct, MIB);
        direct.failure = Some("tmpfs refuses".to_owned());
        direct
    };
    let cells = [
        of(1, Fadvise::Random, &[180.0, 175.0, 190.0]),
        of(1, Fadvise::Normal, &[1380.0, 1400.0, 1390.0]),
        of(1, Fadvise::Sequential, &[1400.0, 1390.0, 1385.0]),
        of(8, Fadvise::Random, &[260.0, 264.0, 270.0]),
        of(8, Fadvise::Normal, &[1400.0, 1418.0, 1430.0]),
        of(8, Fadvise::Sequential, &[1410.0, 1400.0, 1425.0]),
        refused(1),
        refused(8),
    ];
    let outcome = drawn(&cells, Some(8 * MIB));
    let text = sentences(&outcome);
    let need = "8 sequential readers need a readahead of 8 MiB (NORMAL), 1418 MB/s";
    assert!(text.starts_with(need), "{text}");
    let now = "What is set now, 8 MiB (NORMAL), 1418 MB/s, is not clearly worse: leave it.";
    assert!(text.ends_with(now), "{text}");
    assert!(outcome.advice.is_empty(), "[RCN-2] {outcome:?}");
    assert!(!text.contains("  ") && !text.contains("times only"), "{text}");
}

#[test]
fn without_the_right_to_set_readahead_the_report_says_what_was_varied_instead() {
    let mut settings = settings(Some(128 * KIB));
    settings.control.why_not_device = Some("read_ahead_kb: Permission denied".to_owned());
    let mut outcome = Outcome::default();
    draw(&settings, &storage(true), &spread(), Floor::default(), &mut outcome);
    let expected =
        "by advice for descriptors, since the device's cannot be set (read_ahead_kb: Permission";
    assert_eq!(sentences(&outcome).matches(expected).count(), 1, "{outcome:?}");
}

#[test]
fn a_cell_that_lacks_a_round_or_was_not_cold_is_left_out_alone() {
    let mut cells = spread();
    cells[9].rounds.pop();
    cells[8].cold = false;
    cells[8].rounds = device(8, 0, &[9000.0; 3]).rounds;
    let outcome = drawn(&cells, Some(128 * KIB));
    assert_eq!(outcome.advice[0].advised, "4096", "of those that are left: {outcome:?}");
    for cell in &mut cells {
        cell.cold = false;
    }
    let outcome = drawn(&cells, Some(128 * KIB));
    assert!(sentences(&outcome).contains("the page cache could not be emptied"), "{outcome:?}");
    assert!(outcome.advice.is_empty());
}

#[test]
fn what_is_set_already_or_as_good_is_not_advised_again() {
    for found in [4 * MIB, 6 * MIB, 8 * MIB, 24 * MIB] {
        let outcome = drawn(&spread(), Some(found));
        assert!(outcome.advice.is_empty(), "[RCN-2] {found}: {outcome:?}");
    }
    let text = sentences(&drawn(&spread(), Some(24 * MIB)));
    assert!(
        text.contains("What is set now, 24 MiB, 485 MB/s, is not clearly worse: leave it."),
        "{text}"
    );
    let unknown = drawn(&spread(), Some(48 * KIB));
    assert!(unknown.advice.is_empty() && !says_what_is_set(&unknown), "{unknown:?}");
}

fn says_what_is_set(outcome: &Outcome) -> bool {
    sentences(outcome).contains("set now")
}

#[test]
fn one_round_or_two_are_no_evidence() {
    for rounds in [1, 2] {
        let mut cells = spread();
        cells.iter_mut().for_each(|cell| cell.rounds.truncate(rounds));
        let outcome = drawn(&cells, Some(128 * KIB));
        assert!(outcome.advice.is_empty(), "[RCN-2] {outcome:?}");
        assert!(sentences(&outcome).contains("--rounds 3"), "{outcome:?}");
    }
}

#[test]
fn rounds_that_differ_more_than_readaheads_show_no_difference() {
    let cells =
        [(4, [300.0, 200.0, 310.0]), (128, [290.0, 330.0, 200.0]), (6144, [310.0, 220.0, 330.0])];
    let cells = cells.map(|(kib, rates)| device(8, kib * KIB, &rates));
    let outcome = drawn(&cells, Some(4 * KIB));
    assert!(sentences(&outcome).contains("no difference here that is clear"), "{outcome:?}");
    assert!(outcome.advice.is_empty());
    assert!(is_undecided(&settings(Some(4 * KIB)), &cells), "more rounds may decide");
}

#[test]
fn what_slows_all_in_a_round_hides_no_gain() {
    let busy = [1.0, 0.4, 0.7];
    let cells = [(128, 80.0), (1024, 200.0), (6144, 300.0), (24_576, 303.0)];
    let cells = cells.map(|(kib, rate)| device(8, kib * KIB, &busy.map(|part| rate * part)));
    let outcome = drawn(&cells, Some(128 * KIB));
    assert_eq!(outcome.advice[0].advised, "6144", "{outcome:?}");
    assert!((outcome.advice[0].gain - 3.75).abs() < 0.01);
    assert!(!is_undecided(&settings(Some(128 * KIB)), &cells), "three rounds are enough");
}

#[test]
fn what_would_cost_one_reader_more_than_it_may_is_passed_over() {
    let eight = [(128, 80.0), (1024, 294.0), (6144, 300.0), (24_576, 301.0)];
    let both = |one: [f64; 4]| {
        let cells = eight.into_iter().zip(one).flat_map(|((kib, rate), alone)| {
            [(8, rate), (1, alone)].map(|(count, rate)| device(count, kib * KIB, &[rate; 3]))
        });
        let cells: Vec<Cell> = cells.collect();
        drawn(&cells, Some(128 * KIB))
    };
    let advised = |outcome: &Outcome| outcome.advice.first().map(|it| it.advised.clone());
    assert_eq!(advised(&both([400.0; 4])).as_deref(), Some("1024"));
    let dear = both([400.0, 350.0, 390.0, 395.0]);
    assert_eq!(advised(&dear).as_deref(), Some("6144"), "[RCN-1]");
    assert!(sentences(&dear).contains("a smaller one would do for them"), "{dear:?}");
    let none = both([400.0, 350.0, 300.0, 200.0]);
    assert_eq!(advised(&none), None, "[RCN-1]");
    assert!(sentences(&none).contains("no setting is best for both"), "{none:?}");
}

#[test]
fn only_the_rows_that_decide_are_measured_again_and_only_until_they_do() {
    let rates = [(128, 1.0, 0.0), (1024, 0.9, 0.0), (6144, 0.93, 0.05)];
    let noisy = |count: u32, rounds: usize| {
        rates.map(|(kib, rate, noise)| {
            let sign = |round: usize| if round.is_multiple_of(2) { 1.0 } else { -1.0 };
            let of_round = |round| 300.0 * rate * (1.0 + noise * sign(round));
            device(count, kib * KIB, &(0..rounds).map(of_round).collect::<Vec<_>>())
        })
    };
    let cells: Vec<Cell> = [1, 2, 8].into_iter().flat_map(|count| noisy(count, 3)).collect();
    // The current value is neither surely as good as the best nor surely worse.
    assert!(is_undecided(&settings(Some(6 * MIB)), &cells));
    let counts = unique(&deciding(&cells).iter().map(|cell| cell.readers).collect::<Vec<_>>());
    assert_eq!(counts, [1, 8]);
    let cells: Vec<Cell> = [1, 2, 8].into_iter().flat_map(|count| noisy(count, 48)).collect();
    assert!(!is_undecided(&settings(Some(128 * KIB)), &cells), "the smallest is the best");
    let sure: Vec<Cell> =
        SPREAD.iter().map(|(bytes, _)| device(8, *bytes, &[*bytes as f64; 3])).collect();
    assert!(!is_undecided(&settings(None), &sure));
}

#[test]
fn twice_the_readahead_is_advised_where_a_descriptor_shows_that_it_helps() {
    let of = |advice, rate: f64| {
        cell(8, Readahead::descriptor(advice, Some(128 * KIB)), &[rate, rate * 1.02, rate * 0.98])
    };
    let outcome = drawn(
        &[of(Fadvise::Random, 30.0), of(Fadvise::Normal, 81.0), of(Fadvise::Sequential, 108.0)],
        Some(128 * KIB),
    );
    assert_eq!(outcome.advice[0].advised, "256", "{outcome:?}");
    assert!(sentences(&outcome).contains("at least: the knee is not reached"), "{outcome:?}");
}

#[test]
fn own_files_and_the_smallest_read_are_spoken_of_first() {
    let mut one = device(8, 4096, &[1.0; 3]);
    one.cell.files = Files::One;
    let mut large = device(8, 4096, &[1.0; 3]);
    large.cell.request_bytes = 131_072;
    let mut ceiling = Cell::new(one.cell.clone());
    (ceiling.cell.cache, ceiling.cell.request_bytes) = (CacheMode::Direct, 1 << 20);
    let cells = [one, large, device(8, 4096, &[1.0; 3]), ceiling];
    let groups = groups(&cells, Floor::default());
    let of = |group: &Group<'_>| (group.cells[0].cell.files, group.cells[0].cell.request_bytes);
    let order: Vec<_> = groups.iter().map(of).collect();
    let (own, one) = (Files::Own, Files::One);
    assert_eq!(order, [(own, 8192), (own, 131_072), (one, 8192)]);
    assert_eq!(groups.iter().map(|it| it.ceilings.len()).collect::<Vec<_>>(), [0, 0, 1]);
}
