//! The oracle detects operations that were lost, executed twice, or executed partially.

use std::cell::Cell;

use forebay::Lsn;

use crate::engine::op::{COUNTERS, Change, Entry, FileName, Op, WORKERS};
use crate::engine::oracle::{Found, History, Model};

const FILE: FileName = FileName { slot: 0, space: 0, serial: 1 };

fn entry(worker: u8, serial: u64, op: Op) -> Entry {
    Entry { worker, serial, op }
}

fn transfer(delta: i64) -> Op {
    let change = |block, delta| Change { file: FILE, block, counter: 2, delta };
    Op::Transfer(vec![change(0, delta), change(1, -delta)])
}

/// Worker 0 has created a file of two blocks by moment 2 and has added 10 by moment 3; worker 1 has begun to add 5 at
/// moment 4.
fn history() -> History {
    let mut history = History::default();
    let time = Cell::new(0);
    let mut done = |serial, op| {
        time.set(time.get() + 1);
        history.intended(time.get() - 1, entry(0, serial, op));
        history.acknowledged(time.get(), 0, serial, Lsn(serial * 100));
    };
    done(1, Op::Create(FILE));
    done(2, Op::Extend { file: FILE, from: 0, to: 2 });
    done(3, transfer(10));
    history.intended(4, entry(1, 1, transfer(5)));
    history
}

/// A database with the given serial numbers of both workers, and the given values in the first counters of its blocks.
fn found(serials: (u64, u64), sums: &[i64]) -> Found {
    let mut found = Found { model: Model::default(), lsns: [Lsn::NONE; WORKERS as usize] };
    (found.model.ledger[0], found.model.ledger[1]) = serials;
    (found.lsns[0], found.lsns[1]) = (Lsn(serials.0 * 100), Lsn(serials.1 * 350));
    let block = |sum: &i64| {
        let mut counters = [0; COUNTERS];
        counters[2] = *sum;
        counters
    };
    found.model.files.insert(FILE, sums.iter().map(block).collect());
    found
}

#[test]
fn what_was_acknowledged_has_to_be_there_and_what_was_under_way_may_be() {
    let promise = history().promised(4);
    promise.check(&found((3, 0), &[10, -10])).unwrap();
    promise.check(&found((3, 1), &[15, -15])).unwrap();
    for (serials, sums) in [
        ((2, 0), vec![0, 0]),       // an acknowledged operation lost
        ((3, 0), vec![0, 0]),       // and so that the ledger does not know it
        ((3, 0), vec![20, -20]),    // executed twice
        ((3, 0), vec![10, 0]),      // executed partially
        ((3, 1), vec![15, -10]),    // one in progress, partially
        ((3, 0), vec![15, -15]),    // not recorded in the ledger
        ((3, 2), vec![15, -15]),    // one that was never requested
        ((3, 0), vec![10]),         // a block missing
        ((3, 0), vec![10, -10, 0]), // a block too many
    ] {
        let broken = promise.check(&found(serials, &sums));
        assert!(broken.is_err(), "{serials:?} {sums:?} passed");
    }
}

#[test]
fn a_promise_is_that_of_its_moment() {
    let history = history();
    assert_eq!(history.acknowledgements(2), 2);
    let early = history.promised(2);
    early.check(&found((2, 0), &[0, 0])).unwrap();
    early.check(&found((3, 0), &[10, -10])).unwrap();
    assert!(history.promised(3).check(&found((2, 0), &[0, 0])).is_err());
    assert!(early.check(&found((3, 1), &[15, -15])).is_err(), "it was not begun at that moment");
}

#[test]
fn operations_are_put_in_the_order_of_the_log() {
    let mut history = history();
    // Acknowledged after the truncation, but before it in the log.
    history.intended(5, entry(2, 1, Op::Truncate { file: FILE, to: 1 }));
    history.acknowledged(6, 2, 1, Lsn(400));
    history.acknowledged(7, 1, 1, Lsn(350));
    let mut found = found((3, 1), &[15]);
    (found.model.ledger[2], found.lsns[2]) = (1, Lsn(400));
    history.promised(7).check(&found).unwrap();
}
