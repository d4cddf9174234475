//! Batches: requests that one thread manages, in any order of completion.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use forebay_io::{Arena, Error, File, Kind, Op, Request};

use crate::bench::{Bench, Cell, assert_same, lease, noise};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict, wait_for};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        every_answer_comes_once_with_its_place,
        places_are_used_again_and_again,
        an_error_belongs_to_its_request,
        more_places_than_the_queue_holds_are_filled_all_the_same,
        waiting_with_nothing_under_way_returns_at_once,
        syncs_and_transfers_share_a_batch,
        tickets_and_batches_share_a_queue,
        what_was_staged_and_never_started_gives_its_memory_back,
    ];
    if cell.kind != Kind::Sync {
        claims.extend(claims![
            the_first_to_end_ends_the_wait,
            a_batch_that_goes_waits_for_what_is_under_way,
        ]);
    }
    claims
}

const BLOCK: usize = 4096;

fn read(file: &File, block: usize) -> Request {
    Request::read(file, (block * BLOCK) as u64, vec![lease(BLOCK)])
}

fn every_answer_comes_once_with_its_place(bench: &Bench) {
    let io = bench.io(16);
    let bytes = noise(&mut bench.rng(), 16 * BLOCK);
    let file = bench.file("file", &bytes);
    let mut batch = io.batch(16);
    let mut blocks = [0; 16];
    for block in 0..16 {
        blocks[batch.stage(read(&file, block))] = block;
    }
    assert_eq!((batch.room(), batch.len()), (0, 16));
    batch.start();
    let mut answered = BTreeSet::new();
    while !batch.is_empty() {
        batch.wait();
        while let Some((place, done)) = batch.take_ended() {
            let leases = done.into_result().unwrap();
            assert_same(&leases[0], &bytes[blocks[place] * BLOCK..][..BLOCK], "the block");
            assert!(answered.insert(place), "[CMP-1] each once");
        }
    }
    assert_eq!((answered.len(), batch.room()), (16, 16));
    assert!(batch.take_ended().is_none());
}

fn places_are_used_again_and_again(bench: &Bench) {
    let io = bench.io(4);
    let bytes = noise(&mut bench.rng(), 8 * BLOCK);
    let file = bench.file("file", &bytes);
    let mut batch = io.batch(3);
    let (mut asked, mut answered) = (0, 0);
    let mut blocks = [0; 3];
    while answered < 200 {
        while batch.room() > 0 && asked < 200 {
            blocks[batch.stage(read(&file, asked % 8))] = asked % 8;
            asked += 1;
        }
        batch.start();
        batch.wait();
        while let Some((place, done)) = batch.take_ended() {
            let leases = done.into_result().unwrap();
            assert_same(&leases[0], &bytes[blocks[place] * BLOCK..][..BLOCK], "the block");
            answered += 1;
        }
    }
    assert_eq!(io.stats().requests, 200);
}

fn an_error_belongs_to_its_request(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let mut batch = io.batch(2);
    let good = batch.stage(read(&file, 0));
    let bad = batch.stage(read(&file, 9));
    batch.start();
    let mut answers = 0;
    while !batch.is_empty() {
        batch.wait();
        while let Some((place, done)) = batch.take_ended() {
            assert_eq!(done.leases.len(), 1, "leases come back");
            if place == bad {
                assert!(matches!(done.result, Err(Error::PastEnd { got: 0, .. })));
            } else {
                assert_eq!(place, good);
                done.result.unwrap();
            }
            answers += 1;
        }
    }
    assert_eq!(answers, 2);
}

fn more_places_than_the_queue_holds_are_filled_all_the_same(bench: &Bench) {
    let io = bench.io(2);
    let file = bench.file("file", &[1; 32 * BLOCK]);
    let mut batch = io.batch(32);
    (0..32).for_each(|block| {
        batch.stage(read(&file, block));
    });
    batch.start();
    let mut answers = 0;
    while !batch.is_empty() {
        batch.wait();
        while let Some((_, done)) = batch.take_ended() {
            done.result.unwrap();
            answers += 1;
        }
    }
    assert_eq!(answers, 32);
}

fn waiting_with_nothing_under_way_returns_at_once(bench: &Bench) {
    let io = bench.io(2);
    let mut batch = io.batch(2);
    batch.start();
    batch.wait();
    assert!(batch.is_empty() && !batch.has_ended());
}

fn syncs_and_transfers_share_a_batch(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &[1; 8 * BLOCK]);
    let mut batch = io.batch(8);
    for round in 0..3 {
        let sync = batch.stage(Request::sync_data(&file));
        let write = batch.stage(Request::write(&file, 0, vec![lease(BLOCK)]));
        batch.start();
        let mut seen = BTreeSet::new();
        while !batch.is_empty() {
            batch.wait();
            while let Some((place, done)) = batch.take_ended() {
                done.result.unwrap();
                seen.insert(place);
            }
        }
        assert_eq!(seen, BTreeSet::from([sync, write]), "round {round}");
    }
}

fn tickets_and_batches_share_a_queue(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &[1; 8 * BLOCK]);
    thread::scope(|scope| {
        scope.spawn(|| {
            for block in 0..100 {
                io.submit(read(&file, block % 8)).wait().result.unwrap();
            }
        });
        let mut batch = io.batch(4);
        for _ in 0..50 {
            (0..4).for_each(|block| {
                batch.stage(read(&file, block));
            });
            batch.start();
            while !batch.is_empty() {
                batch.wait();
                while let Some((_, done)) = batch.take_ended() {
                    done.result.unwrap();
                }
            }
        }
    });
}

fn what_was_staged_and_never_started_gives_its_memory_back(bench: &Bench) {
    let io = bench.io(2);
    let file = bench.file("file", &[1; BLOCK]);
    let arena = Arena::new(1, BLOCK).unwrap();
    let mut batch = io.batch(1);
    batch.stage(Request::read(&file, 0, vec![arena.take().unwrap()]));
    assert!(arena.take().is_none());
    drop(batch);
    assert!(arena.take().is_some(), "[BAT-1]");
    assert_eq!(io.stats().requests, 0);
}

/// Holds back reads of the first byte.
struct HoldsFirst;

impl Script for HoldsFirst {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        if transfer.op() == Op::Read && transfer.position() == 0 {
            Verdict::Hold
        } else {
            Verdict::Deliver(result)
        }
    }
}

fn the_first_to_end_ends_the_wait(bench: &Bench) {
    let (io, rig) = bench.rigged(8, HoldsFirst);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let mut batch = io.batch(2);
    let held = batch.stage(read(&file, 0));
    let free = batch.stage(read(&file, 1));
    batch.start();
    batch.wait();
    let (place, done) = batch.take_ended().expect("one has ended");
    done.result.unwrap();
    assert_eq!(place, free, "whichever is first");
    // The other read may not have reached the rig yet: only results that are already held are delivered now.
    wait_for(|| {
        io.poll();
        rig.held() == 1
    });
    rig.deliver_held();
    // Another request that ends: the rig delivers held results when it is driven and finds a completion.
    io.submit(read(&file, 2)).wait().result.unwrap();
    batch.wait();
    assert_eq!(batch.take_ended().map(|(place, _)| place), Some(held));
}

fn a_batch_that_goes_waits_for_what_is_under_way(bench: &Bench) {
    let (io, rig) = bench.rigged(8, HoldsFirst);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let arena = Arena::new(1, BLOCK).unwrap();
    let mut batch = io.batch(1);
    batch.stage(Request::read(&file, 0, vec![arena.take().unwrap()]));
    batch.start();
    thread::scope(|scope| {
        let dropping = scope.spawn(move || drop(batch));
        rig.wait_held(1);
        thread::sleep(Duration::from_millis(30));
        assert!(!dropping.is_finished(), "[BAT-1] the read is under way");
        rig.deliver_held();
        // Another request that ends: on a rig over the kernel's queues a thread must drive.
        io.submit(read(&file, 1)).wait().result.unwrap();
        dropping.join().unwrap();
        assert!(arena.take().is_some(), "[BAT-1] the memory is back");
    });
}
