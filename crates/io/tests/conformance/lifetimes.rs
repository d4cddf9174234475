//! Lifetimes of memory, files, tickets and queues while requests are in flight.

use std::path::Path;
use std::thread;

use forebay_io::{Arena, Error, Op, Request, Ticket};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, lease_of, noise};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        a_file_dropped_in_flight_is_closed_after_its_requests,
        files_dropped_in_flight_still_deliver_the_right_bytes,
        memory_of_a_dropped_ticket_stays_leased_until_the_transfer_ends,
        memory_given_back_is_never_written_again,
        after_a_drain_all_memory_has_been_given_back,
        dropped_writes_are_executed,
        a_ticket_outlives_its_queue,
        dropping_the_queue_waits_for_what_is_in_flight,
        closing_waits_and_then_refuses,
    ]
}

/// Block length in bytes; scripts act on the first block of a file.
const BLOCK: usize = 4096;

/// Holds back reads of the first block.
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

fn a_file_dropped_in_flight_is_closed_after_its_requests(bench: &Bench) {
    let (io, rig) = bench.rigged(4, HoldsFirst);
    let bytes = noise(&mut bench.rng(), BLOCK);
    let file = bench.file("file", &bytes);
    let other = bench.file("other", &[1; 2 * BLOCK]);
    let ticket = io.submit(Request::read(&file, 0, vec![lease(BLOCK)]));
    drop(file);
    let waiter = thread::spawn(move || ticket.wait());
    rig.wait_held(1);
    assert_descriptors(&bench.path("file"), 1);
    rig.deliver_held();
    io.submit(Request::read(&other, BLOCK as u64, vec![lease(BLOCK)])).wait().result.unwrap();
    assert_same(&bytes_of(waiter.join().unwrap()), &bytes, "the block");
    assert_descriptors(&bench.path("file"), 0);
}

/// Asserts the number of descriptors that this process has on `path`, if the system reports it.
fn assert_descriptors(path: &Path, expected: usize) {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let path = path.canonicalize().unwrap();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(links.filter(|link| *link == path).count(), expected, "descriptors");
}

fn files_dropped_in_flight_still_deliver_the_right_bytes(bench: &Bench) {
    let io = bench.io(16);
    let bytes = noise(&mut bench.rng(), 32 * BLOCK);
    let tickets: Vec<_> = bytes
        .chunks(BLOCK)
        .enumerate()
        .map(|(index, block)| {
            let file = bench.file(&format!("file-{index}"), block);
            io.submit(Request::read(&file, 0, vec![lease(BLOCK)]))
        })
        .collect();
    for (ticket, block) in tickets.into_iter().zip(bytes.chunks(BLOCK)) {
        assert_same(&bytes_of(ticket.wait()), block, "the block");
    }
    for index in 0..32 {
        assert_descriptors(&bench.path(&format!("file-{index}")), 0);
    }
}

fn memory_of_a_dropped_ticket_stays_leased_until_the_transfer_ends(bench: &Bench) {
    let (io, rig) = bench.rigged(4, HoldsFirst);
    let file = bench.file("file", &[1; 2 * BLOCK]);
    let arena = Arena::new(1, BLOCK).unwrap();
    let leased = arena.take().unwrap();
    let address = leased.as_ptr() as usize;
    drop(io.submit(Request::read(&file, 0, vec![leased])));
    let drainer = thread::spawn({
        let io = io.clone();
        move || io.drain()
    });
    rig.wait_held(1);
    assert!(arena.take().is_none(), "the slot is free while its transfer is in flight");
    assert!(!drainer.is_finished(), "drained with a transfer in flight");
    assert_eq!(io.in_flight(), 1);
    rig.deliver_held();
    io.submit(Request::read(&file, BLOCK as u64, vec![lease(BLOCK)])).wait().result.unwrap();
    drainer.join().unwrap();
    let again = arena.take().expect("the slot is free after the transfer");
    assert_eq!(again.as_ptr() as usize, address);
    assert!(again.iter().all(|&byte| byte == 1), "the transfer was executed");
}

fn memory_given_back_is_never_written_again(bench: &Bench) {
    const LEN: usize = 65_536;
    const CANARY: u8 = 0xEE;
    let io = bench.io(8);
    let file = bench.file("file", &vec![1; 16 * LEN]);
    let arena = Arena::new(6, LEN).unwrap();
    let mut rng = bench.rng();
    let mut guarded = None;
    for _ in 0..400 {
        let Some(mut lease) = arena.take() else {
            io.drain();
            continue;
        };
        lease.fill(CANARY);
        if let Some(lease) = guarded.replace(lease) {
            let touched = lease.iter().position(|&byte| byte != CANARY);
            assert_eq!(touched, None, "a transfer wrote to memory that was given back");
            drop(io.submit(Request::read(&file, LEN as u64 * rng.u64(..16), vec![lease])));
        }
    }
    drop(guarded);
    io.drain();
    assert_eq!(arena.slots_free(), 6);
}

fn after_a_drain_all_memory_has_been_given_back(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let arena = Arena::new(4, BLOCK).unwrap();
    for round in 0..500 {
        for block in 0..4 {
            let lease = arena.take().unwrap();
            drop(io.submit(Request::read(&file, block * BLOCK as u64, vec![lease])));
        }
        io.drain();
        assert_eq!(arena.slots_free(), 4, "round {round}");
    }
}

fn dropped_writes_are_executed(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), 64 * BLOCK);
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        drop(io.submit(Request::write(&file, (index * BLOCK) as u64, vec![lease_of(block)])));
    }
    io.drain();
    assert_eq!(io.in_flight(), 0);
    assert_same(&bench.contents("file"), &bytes, "the file");
}

fn a_ticket_outlives_its_queue(bench: &Bench) {
    let bytes = noise(&mut bench.rng(), BLOCK);
    let file = bench.file("file", &bytes);
    let io = bench.io(8);
    let ticket = io.submit(Request::read(&file, 0, vec![lease(BLOCK)]));
    drop((io, file));
    assert_same(&bytes_of(ticket.wait()), &bytes, "the block");
}

fn dropping_the_queue_waits_for_what_is_in_flight(bench: &Bench) {
    let file = bench.empty_file("file");
    let len = 16 * BLOCK;
    let arena = Arena::new(32, len).unwrap();
    for round in 1..=5 {
        let io = bench.io(64);
        let requests = (0..32).map(|index| {
            let mut lease = arena.take().unwrap();
            lease.fill(round);
            Request::write(&file, (index * len) as u64, vec![lease])
        });
        drop(io.submit_all(requests));
        drop(io);
        assert_eq!(arena.slots_free(), 32, "leases after the queue has ended");
        let contents = bench.contents("file");
        assert_same(&contents, &vec![round; 32 * len], "the file after the queue has ended");
    }
}

fn closing_waits_and_then_refuses(bench: &Bench) {
    let io = bench.io(64);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), 32 * BLOCK);
    let requests = bytes
        .chunks(BLOCK)
        .enumerate()
        .map(|(index, block)| Request::write(&file, (index * BLOCK) as u64, vec![lease_of(block)]));
    let tickets = io.submit_all(requests);
    io.close();
    assert!(tickets.iter().all(Ticket::is_done), "closed with requests in flight");
    assert_same(&bench.contents("file"), &bytes, "the file");
    for ticket in tickets {
        ticket.wait().result.unwrap();
    }
    let other = io.clone();
    for request in
        [Request::read(&file, 0, vec![lease(BLOCK)]), Request::write(&file, 0, vec![lease(BLOCK)])]
    {
        let completed = other.submit(request).wait();
        assert!(matches!(completed.result, Err(Error::Closed)), "{:?}", completed.result);
        assert_eq!(completed.leases.len(), 1);
    }
    let completed = io.submit(Request::sync_data(&file)).wait();
    assert!(matches!(completed.result, Err(Error::Closed)), "{:?}", completed.result);
    io.close();
}
