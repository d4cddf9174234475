//! Progress: waiting, polling, and threads that leave.

use std::thread;

use forebay_io::{Kind, Request, Ticket};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, lease_of, noise};
use crate::harness::{Claim, claims};
use crate::rig::wait_for;

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        looking_makes_progress,
        one_thread_can_look_for_the_requests_of_another,
        tickets_may_be_waited_for_in_any_order_and_by_other_threads,
        requests_of_a_thread_that_has_exited_complete,
        syncs_of_a_thread_that_has_exited_complete,
    ];
    if cell.kind != Kind::Sync {
        claims.extend(claims![transfers_are_under_way_when_submit_returns]);
    }
    if cell.kind == Kind::Sync {
        claims.extend(claims![one_look_carries_the_transfer_out]);
    }
    if cell.kind == Kind::Threads {
        claims.extend(claims![threads_complete_without_a_waiting_thread]);
    }
    claims
}

const BLOCK: usize = 4096;

fn looking_makes_progress(bench: &Bench) {
    let io = bench.io(8);
    let bytes = noise(&mut bench.rng(), 8 * BLOCK);
    let file = bench.file("file", &bytes);
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let request = Request::read(&file, (index * BLOCK) as u64, vec![lease(BLOCK)]);
        let mut ticket = io.submit(request);
        let completed = loop {
            match ticket.try_wait() {
                Ok(completed) => break completed,
                Err(same) => ticket = same,
            }
            thread::yield_now();
        };
        assert_same(&bytes_of(completed), block, "the block");
    }
}

fn one_look_carries_the_transfer_out(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &[1; BLOCK]);
    let ticket = io.submit(Request::read(&file, 0, vec![lease(BLOCK)]));
    assert!(!ticket.is_done(), "sync works when it is waited for");
    ticket.try_wait().expect("one look is enough").result.unwrap();
}

fn threads_complete_without_a_waiting_thread(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &[1; 8 * BLOCK]);
    let requests =
        (0..8).map(|index| Request::read(&file, index * BLOCK as u64, vec![lease(BLOCK)]));
    let tickets = io.submit_all(requests);
    wait_for(|| tickets.iter().all(Ticket::is_done));
}

fn one_thread_can_look_for_the_requests_of_another(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &[1; 8 * BLOCK]);
    let waited = io.submit(Request::read(&file, 0, vec![lease(BLOCK)]));
    let waiter = thread::spawn(move || waited.wait());
    // This thread takes any completion; the waiter must still get its own.
    for round in 0..200 {
        let place = (round % 8) * BLOCK as u64;
        let ticket = io.submit(Request::read(&file, place, vec![lease(BLOCK)]));
        match ticket.try_wait() {
            Ok(completed) => completed.result.unwrap(),
            Err(ticket) => ticket.wait().result.unwrap(),
        }
    }
    waiter.join().unwrap().result.unwrap();
}

fn tickets_may_be_waited_for_in_any_order_and_by_other_threads(bench: &Bench) {
    let io = bench.io(32);
    let bytes = noise(&mut bench.rng(), 32 * BLOCK);
    let file = bench.file("file", &bytes);
    let requests =
        (0..32).map(|index| Request::read(&file, index * BLOCK as u64, vec![lease(BLOCK)]));
    let mut tickets: Vec<_> = io.submit_all(requests).into_iter().enumerate().collect();
    bench.rng().shuffle(&mut tickets);
    let mut others = tickets.split_off(16);
    thread::scope(|scope| {
        for tickets in [&mut tickets, &mut others] {
            let bytes = &bytes;
            scope.spawn(move || {
                for (index, ticket) in tickets.drain(..) {
                    let block = &bytes[index * BLOCK..][..BLOCK];
                    assert_same(&bytes_of(ticket.wait()), block, "the block");
                }
            });
        }
    });
}

fn requests_of_a_thread_that_has_exited_complete(bench: &Bench) {
    let io = bench.io(64);
    let file = bench.empty_file("file");
    let len = 4 * BLOCK;
    let bytes = noise(&mut bench.rng(), 32 * len);
    for _ in 0..5 {
        let tickets = thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                let requests = bytes.chunks(len).enumerate().map(|(index, part)| {
                    Request::write(&file, (index * len) as u64, vec![lease_of(part)])
                });
                io.submit_all(requests)
            });
            submitter.join().unwrap()
        });
        for ticket in tickets {
            ticket.wait().result.unwrap();
        }
        assert_same(&bench.contents("file"), &bytes, "the file");
        file.set_len(0).unwrap();
    }
}

/// On io_uring, syncs always go to the kernel's own workers, which cancel syncs that they have not started when the
/// submitting thread exits.
fn syncs_of_a_thread_that_has_exited_complete(bench: &Bench) {
    let io = bench.io(64);
    let files: Vec<_> = (0..8).map(|index| bench.file(&format!("{index}"), &[1; BLOCK])).collect();
    let tickets = thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let syncs = (0..32).map(|index| Request::sync_all(&files[index % files.len()]));
            io.submit_all(syncs)
        });
        submitter.join().unwrap()
    });
    for ticket in tickets {
        ticket.wait().result.unwrap();
    }
}

fn transfers_are_under_way_when_submit_returns(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let ticket = io.submit(Request::write(&file, 0, vec![lease_of(&[2; BLOCK])]));
    wait_for(|| bench.contents("file") == [2; BLOCK]);
    ticket.wait().result.unwrap();
}
