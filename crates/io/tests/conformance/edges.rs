//! Interactions: syncs that overlap failing syncs, closing while threads submit, callers' code inside a submission,
//! attempts that make no progress.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use forebay_io::{CacheMode, Error, Kind, Op, OsError, Request};

use crate::bench::{Bench, Cell, lease, lease_of};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        a_sync_interrupted_without_end_latches_the_file,
        a_full_disk_at_a_sync_is_a_lost_write_and_latches_the_file,
        nothing_is_written_after_closing,
        an_iterator_that_panics_leaves_the_queue_whole,
        an_iterator_may_use_the_queue_itself,
    ];
    if matches!(cell.kind, Kind::Uring | Kind::Aio) {
        claims.extend(claims![a_sync_concurrent_with_a_failing_one_does_not_succeed]);
    }
    if cell.cache == CacheMode::Direct {
        claims.extend(claims![
            a_transfer_that_stays_inside_a_sector_fails_after_a_bounded_number_of_attempts
        ]);
    }
    claims
}

const BLOCK: usize = 4096;

/// Gives the attempts of one kind of request scripted results, and repeats the last one.
struct Results {
    op: Op,
    results: Vec<Option<Attempt>>,
    attempts: AtomicU64,
}

impl Results {
    fn new(op: Op, results: &[Option<Attempt>]) -> Results {
        Results { op, results: results.into(), attempts: AtomicU64::new(0) }
    }
}

impl Script for Results {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        if transfer.op() != self.op {
            return Verdict::Deliver(result);
        }
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst) as usize;
        let scripted = self.results[attempt.min(self.results.len() - 1)];
        Verdict::Deliver(scripted.unwrap_or(result))
    }
}

// [SYN-1]
fn a_sync_concurrent_with_a_failing_one_does_not_succeed(bench: &Bench) {
    // The sync that ends first fails, then the one that ends first succeeds.
    for script in [[Some(Err(OsError::EIO)), None], [None, Some(Err(OsError::EIO))]] {
        let (io, _rig) = bench.rigged(4, Results::new(Op::SyncData, &script));
        let file = bench.empty_file("file");
        io.submit(Request::write(&file, 0, vec![lease_of(&[1; BLOCK])])).wait().result.unwrap();
        let tickets = io.submit_all([Request::sync_data(&file), Request::sync_data(&file)]);
        let results: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().result).collect();
        let own = results.iter().filter(|result| matches!(result, Err(Error::Io { .. }))).count();
        let other = results.iter().filter(|one| matches!(one, Err(Error::Failed { .. }))).count();
        assert_eq!((own, other), (1, 1), "{results:?}");
    }
}

fn a_sync_interrupted_without_end_latches_the_file(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, Results::new(Op::SyncAll, &[Some(Err(OsError::EINTR))]));
    let file = bench.empty_file("file");
    let result = io.submit(Request::sync_all(&file)).wait().result;
    assert!(matches!(result, Err(Error::Io { source: OsError::EINTR, .. })), "{result:?}");
    assert!(matches!(file.sync_data(), Err(Error::Failed { .. })));
}

fn a_full_disk_at_a_sync_is_a_lost_write_and_latches_the_file(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, Results::new(Op::SyncData, &[Some(Err(OsError::ENOSPC))]));
    let file = bench.empty_file("file");
    let result = io.submit(Request::sync_data(&file)).wait().result;
    assert!(matches!(result, Err(Error::Io { source: OsError::ENOSPC, .. })), "{result:?}");
    assert!(matches!(file.sync_data(), Err(Error::Failed { .. })));
}

fn nothing_is_written_after_closing(bench: &Bench) {
    const WRITERS: usize = 3;
    for _ in 0..200 {
        let io = bench.io(1);
        let file = bench.empty_file("file");
        let start = Barrier::new(WRITERS + 1);
        let (at_close, written) = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (io, file, start) = (&io, &file, &start);
                    scope.spawn(move || {
                        let offset = (writer * BLOCK) as u64;
                        let request = Request::write(file, offset, vec![lease_of(&[1; BLOCK])]);
                        start.wait();
                        match io.submit(request).wait().result {
                            Ok(()) => BLOCK as u64,
                            Err(Error::Closed) => 0,
                            Err(other) => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            start.wait();
            io.close();
            let at_close = io.stats().bytes_written;
            let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            (at_close, written)
        });
        assert_eq!(at_close, written, "all that was ever written was written before close ended");
        assert_eq!(io.stats().bytes_written, at_close);
    }
}

fn an_iterator_that_panics_leaves_the_queue_whole(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let requests = (0..2).map(|index| {
        if index == 1 {
            resume_unwind(Box::new("part of the test")); // a panic without a message
        }
        Request::read(&file, 0, vec![lease(BLOCK)])
    });
    let unwound = catch_unwind(AssertUnwindSafe(|| io.submit_all(requests)));
    assert!(unwound.is_err());
    assert_eq!(io.in_flight(), 0);
    io.submit(Request::read(&file, 0, vec![lease(BLOCK)])).wait().result.unwrap();
    io.drain();
}

fn an_iterator_may_use_the_queue_itself(bench: &Bench) {
    let io = bench.io(1);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let read = |block: u64| Request::read(&file, block * BLOCK as u64, vec![lease(BLOCK)]);
    let tickets = io.submit_all((0..4).map(|block| {
        io.submit(read(0)).wait().result.unwrap();
        read(block)
    }));
    for ticket in tickets {
        ticket.wait().result.unwrap();
    }
}

fn a_transfer_that_stays_inside_a_sector_fails_after_a_bounded_number_of_attempts(bench: &Bench) {
    let (io, _rig) = bench.rigged(2, Results::new(Op::Write, &[Some(Ok(100))]));
    let file = bench.empty_file("file");
    let completed = io.submit(Request::write(&file, 0, vec![lease(2 * BLOCK)])).wait();
    assert!(matches!(completed.result, Err(Error::Io { .. })), "{:?}", completed.result);
    assert_eq!(completed.leases.len(), 1);
}
