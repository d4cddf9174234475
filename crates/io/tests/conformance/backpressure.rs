//! More requests than the queue holds: submitters wait, no request is refused, and no thread starves.

use std::sync::Barrier;
use std::thread;

use forebay_io::{Arena, File, Io, Request, Ticket};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease_of, noise};
use crate::harness::{Claim, claims};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        a_thread_that_never_waits_can_submit_more_than_the_queue_holds,
        a_batch_may_be_larger_than_the_queue,
        the_shortest_queue_works,
        many_threads_share_a_short_queue_and_none_starves,
        a_queue_holds_no_more_than_its_depth,
    ]
}

const BLOCK: usize = 4096;
const REQUESTS: usize = 1000;

fn block_writes<'a>(file: &'a File, bytes: &'a [u8]) -> impl Iterator<Item = Request> + 'a {
    bytes
        .chunks(BLOCK)
        .enumerate()
        .map(|(index, block)| Request::write(file, (index * BLOCK) as u64, vec![lease_of(block)]))
}

fn block_reads(file: &File, count: usize) -> impl Iterator<Item = Request> {
    let arena = Arena::new(count, BLOCK).unwrap();
    (0..count)
        .map(move |index| Request::read(file, (index * BLOCK) as u64, vec![arena.take().unwrap()]))
}

fn all_bytes(tickets: Vec<Ticket>) -> Vec<u8> {
    tickets.into_iter().flat_map(|ticket| bytes_of(ticket.wait())).collect()
}

// [IO-2]: there is no other thread to drive.
fn a_thread_that_never_waits_can_submit_more_than_the_queue_holds(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), REQUESTS * BLOCK);
    let written: Vec<Ticket> =
        block_writes(&file, &bytes).map(|request| io.submit(request)).collect();
    for ticket in written {
        ticket.wait().result.unwrap();
    }
    assert_same(&bench.contents("file"), &bytes, "the file");
    let read = block_reads(&file, REQUESTS).map(|request| io.submit(request)).collect();
    assert_same(&all_bytes(read), &bytes, "what was read");
    let stats = io.stats();
    assert!(stats.held_back > 0, "{stats:?}");
    assert_eq!(stats.requests, 2 * REQUESTS as u64);
    assert_eq!((stats.bytes_written, stats.bytes_read), (bytes.len() as u64, bytes.len() as u64));
}

fn a_batch_may_be_larger_than_the_queue(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), REQUESTS * BLOCK);
    for ticket in io.submit_all(block_writes(&file, &bytes)) {
        ticket.wait().result.unwrap();
    }
    assert_same(&all_bytes(io.submit_all(block_reads(&file, REQUESTS))), &bytes, "what was read");
    assert!(io.stats().held_back > 0, "{:?}", io.stats());
    io.drain();
    assert_eq!(io.in_flight(), 0);
}

fn the_shortest_queue_works(bench: &Bench) {
    let io = bench.io(1);
    let file = bench.empty_file("file");
    let bytes = noise(&mut bench.rng(), 50 * BLOCK);
    for ticket in io.submit_all(block_writes(&file, &bytes)) {
        ticket.wait().result.unwrap();
    }
    assert_same(&all_bytes(io.submit_all(block_reads(&file, 50))), &bytes, "what was read");
}

fn many_threads_share_a_short_queue_and_none_starves(bench: &Bench) {
    const THREADS: usize = 64;
    const ROUNDS: u8 = 12;
    let io = bench.io(8);
    let file = bench.file("file", &vec![0; THREADS * BLOCK]);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (io, file, start) = (&io, &file, &start);
            scope.spawn(move || {
                let place = (index * BLOCK) as u64;
                let arena = Arena::new(3, BLOCK).unwrap();
                start.wait();
                for round in 0..ROUNDS {
                    turn(io, file, place, &arena, index as u8 ^ round);
                }
            });
        }
    });
    io.drain();
    assert_eq!(io.in_flight(), 0);
    assert_eq!(io.stats().requests, 3 * THREADS as u64 * u64::from(ROUNDS));
}

/// One write, then two reads in flight, waited for in reverse order.
fn turn(io: &Io, file: &File, place: u64, arena: &std::sync::Arc<Arena>, byte: u8) {
    let mut lease = arena.take().unwrap();
    lease.fill(byte);
    io.submit(Request::write(file, place, vec![lease])).wait().into_result().unwrap();
    let reads =
        [(); 2].map(|()| io.submit(Request::read(file, place, vec![arena.take().unwrap()])));
    for ticket in reads.into_iter().rev() {
        assert_same(&bytes_of(ticket.wait()), &[byte; BLOCK], "a thread's own block");
    }
}

fn a_queue_holds_no_more_than_its_depth(bench: &Bench) {
    let io = bench.io(5);
    let file = bench.file("file", &vec![1; 200 * BLOCK]);
    let mut tickets = Vec::new();
    for request in block_reads(&file, 200) {
        tickets.push(io.submit(request));
        assert!(io.in_flight() <= 5, "{} in flight", io.in_flight());
    }
    assert_eq!(all_bytes(tickets).len(), 200 * BLOCK);
}
