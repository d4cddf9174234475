//! Bytes arrive complete and in the right place, in requests of any shape and on any memory.

use std::sync::Arc;

use forebay_io::{Arena, File, Io, IoOptions, Kind, Lease, Request};

use crate::bench::{Bench, Cell, assert_same, bytes_of, noise, unit};
use crate::churn::{self, churn};
use crate::harness::{Claim, claims};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        random_reads_and_writes_of_many_threads_agree_with_a_model,
        thousands_of_leases_in_one_request_complete_whole,
        many_mebibytes_in_one_request_complete_whole,
        memory_inside_and_outside_of_the_registered_arena_holds_the_right_bytes,
        leases_come_back_in_their_order,
    ]
}

fn random_reads_and_writes_of_many_threads_agree_with_a_model(bench: &Bench) {
    churn(bench, &bench.io(churn::QUEUE_DEPTH));
}

fn thousands_of_leases_in_one_request_complete_whole(bench: &Bench) {
    let file = bench.empty_file("file");
    let piece = if bench.cell.is_direct() { unit(&file) } else { 100 };
    // A little more than three times the number of segments that the kernel takes at once (UIO_MAXIOV).
    let slot_bytes = piece.next_multiple_of(512);
    let io = bench.io(4);
    round_trip(bench, &io, &file, 3 * 1024 + 7, slot_bytes, piece);
    assert!(io.stats().continued >= 6, "more than 1024 leases take several attempts");
}

fn many_mebibytes_in_one_request_complete_whole(bench: &Bench) {
    let file = bench.empty_file("file");
    let io = bench.io(4);
    round_trip(bench, &io, &file, 12, 2 << 20, 2 << 20);
    round_trip(bench, &io, &file, 1, 24 << 20, 24 << 20);
}

/// Writes `count` leases of `piece` bytes in one request, and reads them back in another.
fn round_trip(bench: &Bench, io: &Io, file: &File, count: usize, slot_bytes: usize, piece: usize) {
    let arena = Arena::new(count, slot_bytes).unwrap();
    let bytes = noise(&mut bench.rng(), count * piece);
    let leases = || -> Vec<Lease> {
        let mut leases = arena.take_many(count).unwrap();
        leases.iter_mut().for_each(|lease| lease.truncate(piece));
        leases
    };
    let mut written = leases();
    for (lease, part) in written.iter_mut().zip(bytes.chunks(piece)) {
        lease.copy_from_slice(part);
    }
    io.submit(Request::write(file, 0, written)).wait().into_result().unwrap();
    assert_same(&bench.contents("file"), &bytes, "the file");
    arena.take_many(count).unwrap().iter_mut().for_each(|lease| lease.fill(0));
    let read = io.submit(Request::read(file, 0, leases())).wait();
    assert_same(&bytes_of(read), &bytes, "the memory");
}

fn memory_inside_and_outside_of_the_registered_arena_holds_the_right_bytes(bench: &Bench) {
    const SLOT: usize = 8192;
    let registered = Arena::new(16, SLOT).unwrap();
    let options =
        IoOptions { register: Some(Arc::clone(registered.mapping())), ..bench.cell.options(8) };
    let io = Io::open(&options).unwrap();
    for note in &io.report().notes {
        let reason = if io.kind() == Kind::Uring { "ulimit -l" } else { "which uring does" };
        assert!(note.contains(reason), "memory that is not registered has a reason: {note}");
    }
    assert!(io.kind() == Kind::Uring || !io.notes().is_empty());
    let foreign = Arena::new(16, SLOT).unwrap();
    let bytes = noise(&mut bench.rng(), 16 * SLOT);
    let file = bench.file("file", &bytes);
    // One lease is read with one fixed buffer, two are a vector, and a vector may be mixed.
    let fixed = Request::read(&file, 0, registered.take_many(1).unwrap());
    let other = Request::read(&file, 0, foreign.take_many(1).unwrap());
    let several = Request::read(&file, 0, registered.take_many(2).unwrap());
    let mixed = Request::read(
        &file,
        0,
        vec![foreign.take().unwrap(), registered.take().unwrap(), foreign.take().unwrap()],
    );
    for ticket in io.submit_all([fixed, other, several, mixed]) {
        let found = bytes_of(ticket.wait());
        assert_same(&found, &bytes[..found.len()], "what was read");
    }
    let mut expected = bytes;
    for (place, arena) in [(3, &registered), (9, &foreign)] {
        let mut lease = arena.take().unwrap();
        lease.fill(place as u8);
        expected[place * SLOT..][..SLOT].fill(place as u8);
        let write = Request::write(&file, (place * SLOT) as u64, vec![lease]);
        io.submit(write).wait().into_result().unwrap();
    }
    assert_same(&bench.contents("file"), &expected, "the file");
}

fn leases_come_back_in_their_order(bench: &Bench) {
    let file = bench.file("file", &[7; 8 * 4096]);
    let arena = Arena::new(8, 4096).unwrap();
    let mut leases = arena.take_many(8).unwrap();
    bench.rng().shuffle(&mut leases);
    let sent: Vec<_> = leases.iter().map(|lease| (lease.as_ptr(), lease.len())).collect();
    let completed = bench.io(4).submit(Request::read(&file, 0, leases)).wait();
    let arrived: Vec<_> =
        completed.leases.iter().map(|lease| (lease.as_ptr(), lease.len())).collect();
    assert_eq!(arrived, sent);
}
