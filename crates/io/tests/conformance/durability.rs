//! Syncs through the queue, and the latch of a failed sync.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_io::{Error, File, Op, OsError, Request};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, lease_of, noise};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        syncs_succeed_after_writes,
        a_failed_sync_latches_the_file,
        the_latch_holds_for_every_open_of_the_file_and_for_no_other,
        a_write_that_was_submitted_before_the_latch_keeps_its_own_answer,
        an_interrupted_sync_is_repeated_and_latches_nothing,
        a_failed_write_latches_nothing,
    ]
}

const BLOCK: usize = 4096;

fn syncs_succeed_after_writes(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), BLOCK);
    for make in [Request::sync_data, Request::sync_all] {
        io.submit(Request::write(&file, 0, vec![lease_of(&bytes)])).wait().result.unwrap();
        let completed = io.submit(make(&file)).wait();
        completed.result.unwrap();
        assert!(completed.leases.is_empty());
    }
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(io.stats().syncs, 2);
    assert_same(&bench.contents("file"), &bytes, "the file");
}

/// Makes the first attempt of one kind of request fail.
struct FailsOnce {
    op: Op,
    error: OsError,
    attempts: AtomicU64,
}

impl FailsOnce {
    fn new(op: Op, error: OsError) -> FailsOnce {
        FailsOnce { op, error, attempts: AtomicU64::new(0) }
    }
}

impl Script for FailsOnce {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        let ours = transfer.op() == self.op;
        let fails = ours && self.attempts.fetch_add(1, Ordering::Relaxed) == 0;
        Verdict::Deliver(if fails { Err(self.error) } else { result })
    }
}

fn assert_latched<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Failed { first }) => {
            assert!(
                matches!(&*first, Error::Io { source: OsError::EIO, .. }),
                "the first failure is kept: {first:?}"
            );
        }
        other => panic!("after a failed sync: {other:?}"),
    }
}

fn a_failed_sync_latches_the_file(bench: &Bench) {
    for (op, make) in [
        (Op::SyncData, Request::sync_data as fn(&File) -> Request),
        (Op::SyncAll, Request::sync_all),
    ] {
        let (io, _rig) = bench.rigged(4, FailsOnce::new(op, OsError::EIO));
        let name = format!("{op}");
        let file = bench.file(&name, &[1; BLOCK]);
        match io.submit(make(&file)).wait().result {
            Err(Error::Io { op: action, source: OsError::EIO, .. }) => {
                assert_eq!(action, op.into());
            }
            other => panic!("{op}: {other:?}"),
        }
        // [FIL-2]: the system would report success from now on, so it is not called.
        assert_latched(io.submit(Request::sync_data(&file)).wait().result);
        assert_latched(io.submit(Request::sync_all(&file)).wait().result);
        assert_latched(file.sync_data());
        assert_latched(file.sync_all());
        assert_latched(file.set_len(0));
        let refused = io.submit(Request::write(&file, 0, vec![lease(BLOCK)])).wait();
        assert_latched(refused.result);
        assert_eq!(refused.leases.len(), 1);
        let read = io.submit(Request::read(&file, 0, vec![lease(BLOCK)])).wait();
        assert_same(&bytes_of(read), &[1; BLOCK], "reads go on");
    }
}

fn the_latch_holds_for_every_open_of_the_file_and_for_no_other(bench: &Bench) {
    let (io, _rig) = bench.rigged(4, FailsOnce::new(Op::SyncData, OsError::EIO));
    let file = bench.file("file", &[1; BLOCK]);
    let before = File::open(&bench.path("file"), &bench.cell.opening()).unwrap();
    let other = bench.file("other", &[1; BLOCK]);
    io.submit(Request::sync_data(&file)).wait().result.unwrap_err();
    let after = File::open(&bench.path("file"), &bench.cell.opening()).unwrap();
    for open in [&before, &after] {
        assert_latched(io.submit(Request::sync_data(open)).wait().result);
        assert_latched(io.submit(Request::write(open, 0, vec![lease(BLOCK)])).wait().result);
        assert_latched(open.sync_all());
    }
    let second_queue = bench.io(2);
    assert_latched(second_queue.submit(Request::sync_all(&file)).wait().result);
    io.submit(Request::sync_data(&other)).wait().result.unwrap();
    io.submit(Request::write(&other, 0, vec![lease(BLOCK)])).wait().result.unwrap();
    // Reopening is the remedy, and requires that all other opens are closed.
    drop((file, before, after));
    let reopened = File::open(&bench.path("file"), &bench.cell.opening()).unwrap();
    io.submit(Request::write(&reopened, 0, vec![lease(BLOCK)])).wait().result.unwrap();
    reopened.sync_data().unwrap();
}

fn a_write_that_was_submitted_before_the_latch_keeps_its_own_answer(bench: &Bench) {
    let (io, _rig) = bench.rigged(4, FailsOnce::new(Op::SyncData, OsError::EIO));
    let file = bench.file("file", &[1; BLOCK]);
    let write = io.submit(Request::write(&file, 0, vec![lease_of(&[2; BLOCK])]));
    io.submit(Request::sync_data(&file)).wait().result.unwrap_err();
    write.wait().result.unwrap();
    assert_same(&bench.contents("file"), &[2; BLOCK], "the file");
}

fn an_interrupted_sync_is_repeated_and_latches_nothing(bench: &Bench) {
    for reason in [OsError::EINTR, OsError::EAGAIN, OsError::ECANCELED] {
        let (io, _rig) = bench.rigged(4, FailsOnce::new(Op::SyncData, reason));
        let file = bench.file("file", &[1; BLOCK]);
        io.submit(Request::sync_data(&file)).wait().result.unwrap();
        assert_eq!(io.stats().repeated, 1, "{reason}");
        file.sync_data().unwrap();
    }
}

fn a_failed_write_latches_nothing(bench: &Bench) {
    let (io, _rig) = bench.rigged(4, FailsOnce::new(Op::Write, OsError::EIO));
    let file = bench.file("file", &[1; BLOCK]);
    let failed = io.submit(Request::write(&file, 0, vec![lease_of(&[2; BLOCK])])).wait();
    assert!(matches!(failed.result, Err(Error::Io { .. })), "{:?}", failed.result);
    io.submit(Request::write(&file, 0, failed.leases)).wait().result.unwrap();
    io.submit(Request::sync_data(&file)).wait().result.unwrap();
    assert_same(&bench.contents("file"), &[2; BLOCK], "the file");
}
