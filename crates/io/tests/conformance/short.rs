//! Attempts that are short, interrupted or failed, and how the queue handles them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use forebay_io::{Arena, Error, Op, OsError, Request};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, lease_of, noise, unit};
use crate::churn::{self, churn};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        short_transfers_are_continued_until_whole,
        a_short_transfer_goes_on_inside_a_lease,
        short_reads_still_find_the_end_of_the_file,
        interrupted_and_cancelled_attempts_are_repeated,
        interruption_without_end_fails_after_a_bounded_number_of_attempts,
        a_write_that_moves_nothing_fails_after_a_bounded_number_of_attempts,
        an_io_error_names_the_request_and_gives_the_leases_back,
        no_space_is_typed_and_the_same_leases_can_be_written_again,
        an_error_belongs_to_its_request_alone,
    ]
}

/// Shortens attempts at random.
struct Shortens {
    rng: Mutex<Rng>,
}

impl Shortens {
    fn new(bench: &Bench) -> Shortens {
        Shortens { rng: Mutex::new(bench.rng()) }
    }
}

impl Script for Shortens {
    fn before(&self, transfer: &mut Transfer) {
        if !transfer.op().moves_data() {
            return;
        }
        let unit = unit(transfer.file()) as u64;
        let mut rng = self.rng.lock().unwrap();
        if rng.u8(..3) > 0 {
            // Fairly long pieces: otherwise a file of a mebibyte would take a million attempts.
            let units = transfer.remaining().div_ceil(unit);
            transfer.limit(unit * rng.u64(units.div_ceil(5)..=units));
        }
    }
}

fn short_transfers_are_continued_until_whole(bench: &Bench) {
    let (io, _rig) = bench.rigged(churn::QUEUE_DEPTH, Shortens::new(bench));
    churn(bench, &io);
    assert!(io.stats().continued > 0, "{:?}", io.stats());
}

/// Moves one unit per attempt.
struct OneUnit;

impl Script for OneUnit {
    fn before(&self, transfer: &mut Transfer) {
        transfer.limit(unit(transfer.file()) as u64);
    }
}

fn a_short_transfer_goes_on_inside_a_lease(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, OneUnit);
    let file = bench.empty_file("file");
    let unit = unit(&file);
    let bytes = noise(&mut bench.rng(), 40 * unit);
    // An empty lease in between is skipped.
    let pieces = if bench.cell.is_direct() { [7, 0, 20, 13] } else { [3, 0, 36, 1] };
    let mut start = 0;
    let mut written = Vec::new();
    for units in pieces {
        let end = start + units * unit;
        let mut piece = lease_of(&bytes[start..end.max(start + 1)]);
        piece.truncate(end - start);
        written.push(piece);
        start = end;
    }
    io.submit(Request::write(&file, 0, written)).wait().into_result().unwrap();
    assert_same(&bench.contents("file"), &bytes, "the file");
    let read = pieces.map(|units| {
        let mut piece = lease((units * unit).max(1));
        piece.truncate(units * unit);
        piece
    });
    let found = bytes_of(io.submit(Request::read(&file, 0, read.into())).wait());
    assert_same(&found, &bytes, "the memory");
    assert_eq!(io.stats().continued, 2 * 39);
}

fn short_reads_still_find_the_end_of_the_file(bench: &Bench) {
    let (io, _rig) = bench.rigged(4, Shortens::new(bench));
    let mut rng = bench.rng();
    for round in 0..20 {
        let len = rng.usize(1..50_000);
        let bytes = noise(&mut rng, len);
        let file = bench.file(&format!("file-{round}"), &bytes);
        let unit = unit(&file) as u64;
        let offset = unit * rng.u64(..=len as u64 / unit);
        let completed = io.submit(Request::read(&file, offset, vec![lease(65_536)])).wait();
        let there = len as u64 - offset;
        match completed.result {
            Err(Error::PastEnd { got, .. }) => assert_eq!(got, there, "{len} bytes, from {offset}"),
            other => panic!("{len} bytes, from {offset}: {other:?}"),
        }
        let found = &completed.leases[0][..there as usize];
        assert_same(found, &bytes[offset as usize..], "what was read");
    }
}

/// Replaces the result of a third of the attempts after they ran.
struct Interrupts {
    rng: Mutex<Rng>,
}

impl Script for Interrupts {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        let reasons = [OsError::EINTR, OsError::EAGAIN, OsError::ECANCELED];
        let mut rng = self.rng.lock().unwrap();
        match rng.usize(..9) {
            choice @ 0..3 if transfer.op() != Op::SyncAll => Verdict::Deliver(Err(reasons[choice])),
            _ => Verdict::Deliver(result),
        }
    }
}

fn interrupted_and_cancelled_attempts_are_repeated(bench: &Bench) {
    let script = Interrupts { rng: Mutex::new(bench.rng()) };
    let (io, _rig) = bench.rigged(churn::QUEUE_DEPTH, script);
    churn(bench, &io);
    let stats = io.stats();
    assert!(stats.repeated > 0 && stats.failed == 0, "{stats:?}");
}

/// Gives every attempt of one kind of request the same result.
struct Answers {
    op: Op,
    answer: Attempt,
    attempts: AtomicU64,
}

impl Answers {
    fn new(op: Op, answer: Attempt) -> Answers {
        Answers { op, answer, attempts: AtomicU64::new(0) }
    }
}

impl Script for Answers {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        if transfer.op() != self.op {
            return Verdict::Deliver(result);
        }
        let attempts = self.attempts.fetch_add(1, Ordering::Relaxed);
        assert!(attempts < 10_000, "repeated without end");
        Verdict::Deliver(self.answer)
    }
}

fn interruption_without_end_fails_after_a_bounded_number_of_attempts(bench: &Bench) {
    for reason in [OsError::EINTR, OsError::EAGAIN, OsError::ECANCELED] {
        let (io, _rig) = bench.rigged(2, Answers::new(Op::Read, Err(reason)));
        let file = bench.file("file", &[1; 8192]);
        let completed = io.submit(Request::read(&file, 0, vec![lease(8192)])).wait();
        match completed.result {
            Err(Error::Io { source, offset: 0, len: 8192, .. }) => assert_eq!(source, reason),
            other => panic!("{reason}: {other:?}"),
        }
        assert_eq!(completed.leases.len(), 1);
        let repeated = io.stats().repeated;
        assert!((1..=1000).contains(&repeated), "repeated {repeated} times");
    }
}

fn a_write_that_moves_nothing_fails_after_a_bounded_number_of_attempts(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, Answers::new(Op::Write, Ok(0)));
    let file = bench.empty_file("file");
    let completed = io.submit(Request::write(&file, 0, vec![lease(8192)])).wait();
    assert!(matches!(completed.result, Err(Error::Io { .. })), "{:?}", completed.result);
    assert_eq!(completed.leases.len(), 1);
}

fn an_io_error_names_the_request_and_gives_the_leases_back(bench: &Bench) {
    for op in [Op::Read, Op::Write] {
        let (io, _rig) = bench.rigged(2, Answers::new(op, Err(OsError::EIO)));
        let file = bench.file("file", &[1; 65_536]);
        let arena = Arena::new(3, 4096).unwrap();
        let leases = arena.take_many(3).unwrap();
        let request = match op {
            Op::Read => Request::read(&file, 8192, leases),
            _ => Request::write(&file, 8192, leases),
        };
        let completed = io.submit(request).wait();
        match &completed.result {
            Err(error @ Error::Io { op: action, offset: 8192, len: 12_288, source, .. }) => {
                assert_eq!((*action, *source), (op.into(), OsError::EIO));
                let text = error.to_string();
                assert!(text.contains("file") && text.contains("8192"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(completed.leases.len(), 3);
        drop(completed);
        assert_eq!(arena.slots_free(), 3);
        assert_eq!(io.stats().failed, 1);
    }
}

/// Reports a full disk, once.
struct FullOnce {
    attempts: AtomicU64,
}

impl Script for FullOnce {
    fn after(&self, _transfer: &Transfer, result: Attempt) -> Verdict {
        let first = self.attempts.fetch_add(1, Ordering::Relaxed) == 0;
        Verdict::Deliver(if first { Err(OsError::ENOSPC) } else { result })
    }
}

fn no_space_is_typed_and_the_same_leases_can_be_written_again(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, FullOnce { attempts: AtomicU64::new(0) });
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), 16_384);
    let refused = io.submit(Request::write(&file, 0, vec![lease_of(&bytes)])).wait();
    match refused.result {
        Err(Error::NoSpace { source, offset: 0, len: 16_384, .. }) => {
            assert_eq!(source, OsError::ENOSPC);
        }
        other => panic!("{other:?}"),
    }
    io.submit(Request::write(&file, 0, refused.leases)).wait().into_result().unwrap();
    assert_same(&bench.contents("file"), &bytes, "the file");
}

/// Fails every request at one offset.
struct BadPlace(u64);

impl Script for BadPlace {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        let bad = transfer.position() == self.0;
        Verdict::Deliver(if bad { Err(OsError::EIO) } else { result })
    }
}

fn an_error_belongs_to_its_request_alone(bench: &Bench) {
    let (io, _rig) = bench.rigged(8, BadPlace(4 * 4096));
    let bytes = noise(&mut bench.rng(), 8 * 4096);
    let file = bench.file("file", &bytes);
    let requests = (0..8).map(|block| Request::read(&file, block * 4096, vec![lease(4096)]));
    for (block, ticket) in io.submit_all(requests).into_iter().enumerate() {
        let completed = ticket.wait();
        if block == 4 {
            assert!(matches!(completed.result, Err(Error::Io { .. })), "{:?}", completed.result);
        } else {
            assert_same(&bytes_of(completed), &bytes[block * 4096..][..4096], "a good block");
        }
    }
}
