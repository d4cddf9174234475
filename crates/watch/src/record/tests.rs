//! Records: what is written can be read back, and anything else is refused.

use proptest::prelude::*;

use super::super::access::{FILES_MAX, Read as ReadAccess, ReadMode};
use super::super::event::Transfer;
use super::super::file_table::FileName;
use super::super::replay::Player;
use super::super::stats::Stats;
use super::super::summary::Summary;
use super::*;
use forebay_measure::report::terminal::Look;

const PAGE: u64 = 4096;

fn any_access() -> impl Strategy<Value = Access> {
    let transfer = prop::sample::select(vec![Transfer::Read, Transfer::Write, Transfer::Other]);
    let mode = prop::sample::select(vec![ReadMode::Cached, ReadMode::Direct, ReadMode::Unseen]);
    let read = (
        0..5u32,
        0..9u32,
        0..1u64 << 40,
        0..100u64,
        prop::option::of(0..1u64 << 30),
        any::<bool>(),
    );
    prop_oneof![
        (read, mode).prop_map(|((task, file, first, more, waited_ns, missed), mode)| {
            let (bytes, took_ns) = ((more + 1) * PAGE, waited_ns.unwrap_or(0) + 700);
            Access::Read(ReadAccess {
                task,
                file,
                first,
                more,
                bytes,
                took_ns,
                waited_ns,
                missed,
                mode,
            })
        }),
        (0..9u32, 0..1u64 << 30).prop_map(|(file, bytes)| Access::ReadAnywhere { file, bytes }),
        (0..9u32, 0..1u64 << 30).prop_map(|(file, bytes)| Access::Write { file, bytes }),
        (0..9u32, 0..1u64 << 40).prop_map(|(file, took_ns)| Access::Sync { file, took_ns }),
        (0..9u32, any::<u64>(), 0..7u8).prop_map(|(file, offset, advice)| {
            let (bytes, pages, took_ns) = (offset / 2, offset >> 40, offset >> 30);
            Access::Advise { task: 1, file, offset, bytes, advice, pages, took_ns }
        }),
        (0..9u32, 0..1u64 << 40, 1..100u64)
            .prop_map(|(file, first, pages)| { Access::Ahead { file, first, pages } }),
        (0..3u32, 0..1u64 << 22, transfer, prop::option::of(0..9u32)).prop_map(
            |(device, bytes, transfer, file)| Access::Request { device, bytes, transfer, file }
        ),
        Just(Access::Requeue { device: 1, bytes: 4096, transfer: Transfer::Read }),
        Just(Access::Exited { task: 1 }),
    ]
}

/// Accesses, each with the time in ns since the previous one, and whether a piece ends after it.
fn any_story() -> impl Strategy<Value = Vec<(u64, Access, bool)>> {
    let step = (0..1u64 << 20, any_access(), prop::bool::weighted(0.1));
    prop::collection::vec(step, 1..60)
}

fn file_table(files: u32) -> FileTable {
    let called = |at| {
        let path = (at % 3 > 0).then(|| format!("/srv/{at}"));
        (at, FileName { name: format!("orders.{at}"), path, state: None })
    };
    FileTable {
        subject: "process 7".to_owned(),
        processes: files as usize,
        files: (0..files).map(called).collect(),
        devices: (0..files.min(2)).map(|at| (at, format!("vd{at}"))).collect(),
        ..FileTable::default()
    }
}

/// Writes a record of `story`. Returns its times and accesses.
fn written(path: &Path, story: &[(u64, Access, bool)], ends: bool) -> Vec<(u64, Access)> {
    let mut recorder = Recorder::create(path, 1 << 30, PAGE).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap());
    assert_eq!(mode & 0o777, 0o600, "names and a command are in it");
    let (mut at_ns, mut done, mut files) = (0, Vec::new(), 1);
    for &(after_ns, access, is_last_of_piece) in story {
        at_ns += after_ns;
        recorder.add(at_ns, access);
        done.push((at_ns, access));
        if is_last_of_piece {
            files = 9.min(files + 1);
            recorder.flush(at_ns, &file_table(files));
        }
    }
    if ends {
        recorder.end(at_ns, &file_table(9)).unwrap();
    } else {
        recorder.flush(at_ns, &file_table(9));
    }
    done
}

/// All accesses of a record, and its number of pieces.
fn read(record: &mut Record) -> (Vec<(u64, Access)>, usize) {
    let (mut all, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = record.next().unwrap() {
        all.extend(piece.accesses());
        pieces += 1;
    }
    (all, pieces)
}

/// The message if the record is refused; if not, replaying and drawing it must not panic.
fn opened(path: &Path) -> Result<Record, String> {
    match Record::open(path) {
        Ok(record) => {
            let mut player = Player::open(path).unwrap();
            let mut stats = Stats::default();
            for until_ns in [0, u64::MAX, u64::MAX] {
                player.advance_to(until_ns, &mut stats, &mut FileTable::default()).unwrap();
            }
            let watched = Summary::of(&stats, &record.file_table, record.page_bytes, 1.0);
            watched.drawn(Look { width: 100, colour: false, ascii: false });
            Ok(record)
        }
        Err(error) => {
            assert!(error.is::<forebay_measure::BadInput>(), "{error:#}");
            Err(error.to_string())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read_and_seen_alike(story in any_story()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let done = written(&path, &story, true);
        let mut record = Record::open(&path).unwrap();
        prop_assert_eq!(&record.file_table, &file_table(9));
        prop_assert_eq!((record.remark.as_deref(), record.page_bytes), (None, PAGE));
        prop_assert_eq!(record.until_ns, done.last().unwrap().0);
        prop_assert_eq!(&read(&mut record).0, &done);
        record.rewind().unwrap();
        prop_assert_eq!(read(&mut record).0.len(), done.len());

        let json = |stats: &Stats| {
            serde_json::to_string(&Summary::of(stats, &file_table(9), PAGE, 1.0)).unwrap()
        };
        let (mut live, mut replayed) = (Stats::default(), Stats::default());
        done.iter().for_each(|(_, access)| live.access(access));
        let mut player = Player::open(&path).unwrap();
        // In two steps; the first ends exactly at the time of an access.
        for until_ns in [done[done.len() / 2].0, u64::MAX] {
            player.advance_to(until_ns, &mut replayed, &mut FileTable::default()).unwrap();
        }
        prop_assert_eq!(json(&live), json(&replayed));
    }

    #[test]
    fn a_record_that_is_cut_off_is_read_to_its_last_whole_piece(
        story in any_story(), cut in any::<prop::sample::Index>(), zeros in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let done = written(&path, &story, true);
        let bytes = std::fs::read(&path).unwrap();
        let (all, pieces) = read(&mut Record::open(&path).unwrap());
        prop_assert_eq!(&all, &done);
        let cut = cut.index(bytes.len());
        std::fs::write(&path, &bytes[..cut]).unwrap();
        match opened(&path) {
            Err(error) => prop_assert!(error.contains("is no record") || error.contains("is a truncated record"), "{error}"),
            Ok(mut record) => {
                prop_assert!(record.remark.is_some(), "[REC-2]");
                let (some, whole) = read(&mut record);
                prop_assert!(whole < pieces && done.starts_with(&some), "[REC-2]");
                // As a crash may leave it: the length is on disk, the data is not.
                let end = record.at as usize;
                prop_assert!(end <= cut);
                if zeros {
                    std::fs::write(&path, [&bytes[..end], &vec![0; 5000][..]].concat()).unwrap();
                    let (same, _) = read(&mut opened(&path).unwrap());
                    prop_assert_eq!(same, some, "[REC-2]");
                }
            }
        }
    }

    #[test]
    fn a_record_with_any_other_byte_is_refused(
        story in any_story(), at in any::<prop::sample::Index>(), other in 1..=255u8, ends in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        written(&path, &story, ends);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= other;
        std::fs::write(&path, &bytes).unwrap();
        let error = opened(&path).expect_err("[REC-2]");
        prop_assert!(at < MAGIC.len() || error.contains("is damaged: a checksum is wrong"), "{error}");
    }

    #[test]
    fn whatever_the_bytes_are_reading_them_ends(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let (mut bytes, mut chain) = (MAGIC.to_vec(), 0);
        for (piece, is_framed) in pieces {
            let framed = if is_framed { frame(&piece, chain).unwrap() } else { (piece, chain) };
            bytes.extend(framed.0);
            chain = framed.1;
        }
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(opened(&path).is_err() || bytes.len() < MAGIC.len() + HEAD + FOOT, "[REC-1]");
    }

    #[test]
    fn whatever_a_piece_says_is_read_or_refused(
        story in any_story(), at in any::<prop::sample::Index>(), other in 1..=255u8, cut in any::<bool>(),
    ) {
        // As the test above, but with correct checksums.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        written(&path, &story, true);
        let mut record = Record::open(&path).unwrap();
        let length = record.head().unwrap().unwrap();
        let mut piece = vec![0; length];
        record.bytes(&mut piece).unwrap();
        let at = at.index(length);
        piece[at] ^= other;
        if cut {
            piece.truncate(at);
        }
        std::fs::write(&path, [&MAGIC[..], &frame(&piece, 0).unwrap().0].concat()).unwrap();
        let error = opened(&path).err().filter(|it| it.contains("damaged"));
        prop_assert!(error.is_none_or(|it| it.ends_with("in the piece at byte 16")));
    }
}

#[test]
fn pieces_that_are_missing_or_in_another_place_or_behind_the_end_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let write = Access::Write { file: 0, bytes: 5 };
    written(
        &path,
        &[(5, write, true), (6, write, true), (7, write, true), (8, write, false)],
        true,
    );
    let bytes = std::fs::read(&path).unwrap();
    let mut record = Record::open(&path).unwrap();
    let mut ends = vec![record.at as usize];
    while record.next().unwrap().is_some() {
        ends.push(record.at as usize);
    }
    let piece = |at: usize| &bytes[ends[at]..ends[at + 1]];
    for order in [&[0, 2, 3][..], &[1, 2, 3], &[0, 2, 1, 3], &[0, 1, 1, 2, 3], &[0, 1, 2, 3, 3]] {
        let pieces: Vec<&[u8]> = order.iter().map(|&at| piece(at)).collect();
        std::fs::write(&path, [&bytes[..ends[0]], &pieces.concat()].concat()).unwrap();
        assert!(opened(&path).unwrap_err().contains("is damaged: a checksum"), "{order:?}");
    }
    let behind = frame(
        &postcard::to_stdvec(&Piece { page_bytes: PAGE, ..Piece::default() }).unwrap(),
        record.chain,
    );
    std::fs::write(&path, [&bytes[..], &behind.unwrap().0].concat()).unwrap();
    let error = format!("it continues after its end in the piece at byte {}", bytes.len());
    assert!(opened(&path).unwrap_err().contains(&error));
    // A later version, and something else.
    for (begin, error) in [
        ("forebay watch 27\n", "of version 27"),
        ("forebay watch x\n", "is no record"),
        ("", "is no record"),
    ] {
        std::fs::write(&path, [begin.as_bytes(), &bytes[16..]].concat()).unwrap();
        assert!(opened(&path).unwrap_err().contains(error), "{begin}");
    }
    assert!(opened(directory.path()).unwrap_err().contains("is no file"));
    assert!(opened(&directory.path().join("none")).unwrap_err().contains("cannot read"));
}

#[test]
fn a_pipe_is_no_record_and_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let errors = [Record::open(&pipe).err(), check(&pipe).err()];
        say.send(errors.map(|it| it.is_some_and(|it| it.is::<forebay_measure::BadInput>())))
            .unwrap();
    });
    assert_eq!(said.recv_timeout(std::time::Duration::from_secs(20)), Ok([true, true]));
}

#[test]
fn years_in_which_nothing_was_done_are_few_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let write = Access::Write { file: 0, bytes: 5 };
    let (second, years) = (1_000_000_000, 1 << 60);
    written(&path, &[(5, write, true), (years, write, false), (years, write, true)], true);
    let lines = |skips| {
        let mut player = Player::open(&path).unwrap();
        let (mut shown_ns, mut lines, mut stats) = (0, 0, Stats::default());
        while shown_ns < player.record.until_ns && lines < 1000 {
            shown_ns = player.shown_next(shown_ns, second, skips).unwrap();
            player.advance_to(shown_ns, &mut stats, &mut FileTable::default()).unwrap();
            lines += 1;
        }
        lines
    };
    assert_eq!((lines(true), lines(false)), (5, 1000));
}

#[test]
fn more_devices_or_files_than_there_can_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let request =
        |device| Access::Request { device, bytes: 4096, transfer: Transfer::Read, file: None };
    let most = DEVICES_MAX as u32;
    for (devices, files, is_read) in
        [(most, 9, true), (most + 1, 9, false), (1, FILES_MAX + 2, false)]
    {
        let mut recorder = Recorder::create(&path, 1 << 30, PAGE).unwrap();
        (0..devices).for_each(|device| recorder.add(1, request(device)));
        recorder.end(2, &file_table(files)).unwrap();
        let error = opened(&path).err();
        assert_eq!(error.is_none(), is_read, "[REC-1] {devices} {files}");
        // Too many devices take two pieces.
        let is_first = error.is_some_and(|it| it.ends_with("in the piece at byte 16"));
        assert_eq!(is_first, files > 9);
    }
}

#[test]
fn a_record_that_has_no_room_for_names_still_says_who_was_watched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let mut recorder = Recorder::create(&path, LIMIT_MIN, PAGE).unwrap();
    recorder.flush(1, &file_table(1));
    let mut names = file_table(4000);
    names.files.values_mut().for_each(|called| called.name = "long".repeat(100));
    recorder.end(2, &names).unwrap();
    let FileTable { subject, processes, files, .. } = Record::open(&path).unwrap().file_table;
    assert_eq!((subject.as_str(), processes, files.len()), ("process 7", 4000, 1));
}

#[test]
fn a_record_that_is_full_ends_within_its_limit_and_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let mut recorder = Recorder::create(&path, LIMIT_MIN, PAGE).unwrap();
    for at in 0..1_000_000 {
        recorder.add(at, Access::Write { file: 3, bytes: at });
        if at % 100_000 == 0 {
            recorder.flush(at, &file_table(4));
        }
    }
    assert!(recorder.end(1_000_000, &file_table(9)).unwrap().contains("it reached --record-limit"));
    let length = std::fs::metadata(&path).unwrap().len();
    assert!((LIMIT_MIN / 2..=LIMIT_MIN).contains(&length), "[REC-3] {length}");
    let mut record = Record::open(&path).unwrap();
    let (all, _) = read(&mut record);
    assert!(all.iter().map(|(at, _)| *at).eq(0..all.len() as u64), "the first of them");
    let error = record.remark.unwrap();
    assert!(error.contains("reached its limit"), "{error}");
}
