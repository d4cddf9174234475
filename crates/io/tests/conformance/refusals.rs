//! Requests and opens that are refused with a typed error before anything is done.

use forebay_io::{Action, CacheMode, Error, File, Hint, Kind, Op, OpenOptions, Request, Ticket};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, noise};
use crate::harness::{Claim, Outcome, claims};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        writes_on_a_read_only_file_are_not_permitted,
        offsets_that_overflow_are_too_large,
        one_file_is_not_open_in_both_modes,
        private_descriptors_read_the_same_bytes,
        a_refused_request_counts_as_failed_and_takes_no_place,
    ];
    if cell.kind == Kind::Aio {
        claims.extend(claims![a_buffered_file_is_refused_by_aio]);
    }
    claims
}

const BLOCK: usize = 4096;

fn writes_on_a_read_only_file_are_not_permitted(bench: &Bench) {
    let io = bench.io(4);
    let bytes = noise(&mut bench.rng(), BLOCK);
    drop(bench.file("file", &bytes));
    let file = File::open(&bench.path("file"), &bench.cell.opening().read_only(true)).unwrap();
    let refused = io.submit(Request::write(&file, 0, vec![lease(BLOCK)])).wait();
    match refused.result {
        Err(Error::Permission { op, .. }) => assert_eq!(op, Action::Request(Op::Write)),
        other => panic!("{other:?}"),
    }
    assert_eq!(refused.leases.len(), 1);
    let resized = file.set_len(0);
    assert!(matches!(resized, Err(Error::Permission { .. })), "{resized:?}");
    let read = io.submit(Request::read(&file, 0, refused.leases)).wait();
    assert_same(&bytes_of(read), &bytes, "the file is as it was");
    io.submit(Request::sync_data(&file)).wait().result.unwrap();
}

fn offsets_that_overflow_are_too_large(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let largest = i64::MAX as u64;
    let block = BLOCK as u64;
    for offset in [largest, largest - block + 1, largest + 1, u64::MAX - block + 1, u64::MAX] {
        for make in [Request::read, Request::write] {
            let completed = io.submit(make(&file, offset, vec![lease(BLOCK)])).wait();
            match completed.result {
                Err(Error::TooLarge { end, .. }) => {
                    assert_eq!(end, offset.saturating_add(block));
                }
                other => panic!("offset {offset}: {other:?}"),
            }
            assert_eq!(completed.leases.len(), 1);
        }
    }
    assert_eq!(file.len().unwrap(), block);
}

fn one_file_is_not_open_in_both_modes(bench: &Bench) -> Outcome {
    let file = bench.file("file", &[1; BLOCK]);
    let mode = bench.cell.cache;
    let other = match mode {
        CacheMode::Buffered => CacheMode::Direct,
        CacheMode::Direct => CacheMode::Buffered,
    };
    let asking = OpenOptions::new().cache(other);
    match File::open(&bench.path("file"), &asking) {
        Err(Error::MixedModes { open_as, asked, .. }) => {
            assert_eq!((open_as, asked), (mode, other));
        }
        Err(refused @ Error::DirectRefused { .. }) => return Outcome::Skipped(refused.to_string()),
        opened => panic!("[FIL-1] {opened:?}"),
    }
    let io = bench.io(4);
    let ticket = io.submit(Request::read(&file, 0, vec![lease(BLOCK)]));
    drop(file);
    ticket.wait().result.unwrap();
    File::open(&bench.path("file"), &asking).expect("closed, it may be opened in either mode");
    Outcome::Held
}

fn private_descriptors_read_the_same_bytes(bench: &Bench) {
    let io = bench.io(8);
    let bytes = noise(&mut bench.rng(), 8 * BLOCK);
    let file = bench.file("file", &bytes);
    // A portable build cannot give advice.
    let hints = if cfg!(all(target_os = "linux", not(forebay_portable))) {
        [Hint::Normal, Hint::Random, Hint::Sequential]
    } else {
        [Hint::Normal; 3]
    };
    let privates = hints.map(|hint| file.private(hint).unwrap());
    for private in &privates {
        assert_eq!(
            (private.cache_mode(), private.alignment()),
            (file.cache_mode(), file.alignment())
        );
        let read = io.submit(Request::read(private, 0, vec![lease(8 * BLOCK)])).wait();
        assert_same(&bytes_of(read), &bytes, "through a private descriptor");
    }
    let [first, second, _] = &privates;
    let mut block = lease(BLOCK);
    block.fill(7);
    io.submit(Request::write(first, 0, vec![block])).wait().result.unwrap();
    let read = io.submit(Request::read(second, 0, vec![lease(BLOCK)])).wait();
    assert_same(&bytes_of(read), &[7; BLOCK], "what another descriptor wrote");
}

fn a_refused_request_counts_as_failed_and_takes_no_place(bench: &Bench) {
    let io = bench.io(1);
    let file = bench.file("file", &[1; BLOCK]);
    let held: Vec<_> =
        (0..10).map(|_| io.submit(Request::read(&file, u64::MAX, vec![lease(BLOCK)]))).collect();
    assert!(held.iter().all(Ticket::is_done));
    assert_eq!(io.in_flight(), 0);
    assert_eq!(io.stats().failed, 10);
    io.submit(Request::read(&file, 0, vec![lease(BLOCK)])).wait().result.unwrap();
}

fn a_buffered_file_is_refused_by_aio(bench: &Bench) {
    let io = bench.io(4);
    std::fs::write(bench.path("buffered"), [1; BLOCK]).unwrap();
    let file = File::open(&bench.path("buffered"), &OpenOptions::new()).unwrap();
    let completed = io.submit(Request::read(&file, 0, vec![lease(BLOCK)])).wait();
    match completed.result {
        Err(Error::Unavailable { backend: Kind::Aio, why }) => assert_eq!(why.source, None),
        other => panic!("{other:?}"),
    }
    assert_eq!(completed.leases.len(), 1);
}
