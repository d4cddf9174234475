//! The end of a file, and empty requests.

use forebay_io::{Arena, Error, Request, Ticket};

use crate::bench::{Bench, Cell, assert_same, bytes_of, lease, lease_of, noise, unit};
use crate::harness::{Claim, claims};

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![
        reads_past_the_end_say_how_much_was_there,
        reads_wholly_past_the_end_say_that_nothing_was_there,
        a_read_up_to_the_end_exactly_succeeds,
        a_write_past_the_end_extends_the_file,
        an_empty_request_completes_at_once,
    ]
}

/// File sizes near the sizes of sectors, pages and leases.
const SIZES: [usize; 10] = [1, 511, 512, 513, 4096, 4097, 8192, 10_000, 12_288, 16_383];

fn reads_past_the_end_say_how_much_was_there(bench: &Bench) {
    let io = bench.io(4);
    let bytes = noise(&mut bench.rng(), 16_384);
    let arena = Arena::new(4, 8192).unwrap();
    for size in SIZES {
        let file = bench.file(&format!("file-{size}"), &bytes[..size]);
        let unit = unit(&file);
        for offset in [0, unit, 4096, 8192].into_iter().filter(|&offset| offset < size) {
            let leases = arena.take_many(3).unwrap();
            let completed = io.submit(Request::read(&file, offset as u64, leases)).wait();
            let there = size - offset;
            match &completed.result {
                Err(Error::PastEnd { got, offset: at, len: 24_576, .. }) => {
                    assert_eq!((*got, *at), (there as u64, offset as u64), "size {size}");
                }
                other => panic!("size {size}, offset {offset}: {other:?}"),
            }
            let found: Vec<u8> =
                completed.leases.iter().flat_map(|lease| lease.iter().copied()).collect();
            let what = format!("size {size}, offset {offset}");
            assert_same(&found[..there], &bytes[offset..size], &what);
        }
    }
}

fn reads_wholly_past_the_end_say_that_nothing_was_there(bench: &Bench) {
    let io = bench.io(4);
    for size in [0, 1, 4096, 10_000] {
        let file = bench.file(&format!("file-{size}"), &vec![1; size]);
        for offset in [size.next_multiple_of(4096) as u64, 1 << 20, 1 << 40] {
            let completed = io.submit(Request::read(&file, offset, vec![lease(4096)])).wait();
            match completed.result {
                Err(Error::PastEnd { got: 0, offset: at, len: 4096, .. }) => {
                    assert_eq!(at, offset);
                }
                other => panic!("size {size}, offset {offset}: {other:?}"),
            }
            assert_eq!(completed.leases.len(), 1);
        }
    }
}

fn a_read_up_to_the_end_exactly_succeeds(bench: &Bench) {
    let io = bench.io(4);
    let bytes = noise(&mut bench.rng(), 16_384);
    let file = bench.file("file", &bytes);
    let completed = io.submit(Request::read(&file, 4096, vec![lease(8192), lease(4096)])).wait();
    assert_same(&bytes_of(completed), &bytes[4096..], "up to the end");
    if !bench.cell.is_direct() {
        let file = bench.file("odd", &bytes[..9999]);
        let completed = io.submit(Request::read(&file, 1, vec![lease(9998)])).wait();
        assert_same(&bytes_of(completed), &bytes[1..9999], "up to an odd end");
    }
}

fn a_write_past_the_end_extends_the_file(bench: &Bench) {
    let io = bench.io(4);
    let bytes = noise(&mut bench.rng(), 4096);
    let file = bench.file("file", &[1; 4096]);
    io.submit(Request::write(&file, 12_288, vec![lease_of(&bytes)])).wait().into_result().unwrap();
    assert_eq!(file.len().unwrap(), 16_384);
    let completed = io.submit(Request::read(&file, 0, vec![lease(16_384)])).wait();
    let expected = [vec![1; 4096], vec![0; 8192], bytes].concat();
    assert_same(&bytes_of(completed), &expected, "the extended file");
}

fn an_empty_request_completes_at_once(bench: &Bench) {
    let io = bench.io(1);
    let file = bench.file("file", &[1; 4096]);
    let empty = || {
        let mut lease = lease(4096);
        lease.truncate(0);
        lease
    };
    for leases in [Vec::new(), vec![empty()], vec![empty(), empty()]] {
        let count = leases.len();
        let tickets = [Request::read(&file, 0, leases), Request::write(&file, 1 << 30, Vec::new())]
            .map(|request| io.submit(request));
        assert!(tickets.iter().all(Ticket::is_done), "no caller waited");
        let [read, write] = tickets.map(Ticket::wait);
        read.result.unwrap();
        write.result.unwrap();
        assert_eq!(read.leases.len(), count);
    }
    assert_eq!(io.in_flight(), 0);
    assert_eq!(file.len().unwrap(), 4096, "an empty write extends nothing");
}
