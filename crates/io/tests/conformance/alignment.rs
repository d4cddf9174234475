//! Alignment: on direct files, misaligned requests are refused before any system call; buffered files have no
//! requirement.

use forebay_io::{Arena, Error, File, Lease, Part, Request};

use crate::bench::{Bench, Cell, bytes_of, lease, unit};
use crate::harness::{Claim, claims};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    if cell.is_direct() {
        claims![
            misaligned_direct_requests_are_refused_by_the_part_that_is_wrong,
            a_refused_request_moves_nothing_and_gives_its_leases_back,
            the_alignment_of_the_file_is_enough,
        ]
    } else {
        claims![odd_offsets_lengths_and_addresses_are_fine_on_buffered_files]
    }
}

/// A lease with an odd address, which is a multiple of 1 only.
fn odd_address(len: usize) -> Lease {
    let arena = Arena::new(2, len + 1 + len % 2).unwrap();
    let mut pair = arena.take_many(2).unwrap();
    let mut lease = pair.pop().unwrap();
    lease.truncate(len);
    assert_eq!((lease.as_ptr() as usize % 2, lease.len()), (1, len));
    lease
}

/// Offset and leases of requests that each break one part.
fn breaking(file: &File) -> Vec<(Part, u64, Vec<Lease>)> {
    let good = 16_384;
    let mut cases = Vec::new();
    let alignment = file.alignment();
    if alignment.offset > 1 {
        let step = u64::from(alignment.offset);
        cases.push((Part::Offset, 1, vec![lease(good)]));
        cases.push((Part::Offset, 3 * step + step / 2, vec![lease(good)]));
        for len in [1, good - 1, good + alignment.offset as usize / 2] {
            let mut long = lease(2 * good);
            long.truncate(len);
            cases.push((Part::Length, 0, vec![lease(good), long]));
        }
    }
    if alignment.memory > 1 {
        cases.push((Part::Memory, 0, vec![odd_address(good)]));
        cases.push((Part::Memory, step_of(file), vec![lease(good), odd_address(good)]));
    }
    cases
}

fn step_of(file: &File) -> u64 {
    unit(file) as u64
}

fn misaligned_direct_requests_are_refused_by_the_part_that_is_wrong(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 65_536]);
    for make in [Request::read, Request::write] {
        for (part, offset, leases) in breaking(&file) {
            let completed = io.submit(make(&file, offset, leases)).wait();
            match completed.result {
                Err(Error::Misaligned { what, value, required, .. }) => {
                    let needed = match part {
                        Part::Memory => file.alignment().memory,
                        _ => file.alignment().offset,
                    };
                    assert_eq!((what, required), (part, u64::from(needed)));
                    assert_ne!(value % required, 0, "{what}: {value}");
                }
                other => panic!("{part}: {other:?}"),
            }
        }
    }
}

fn a_refused_request_moves_nothing_and_gives_its_leases_back(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 65_536]);
    for (_, offset, mut leases) in breaking(&file) {
        leases.iter_mut().for_each(|lease| lease.fill(9));
        let count = leases.len();
        let completed = io.submit(Request::write(&file, offset, leases)).wait();
        assert!(completed.result.is_err());
        assert_eq!(completed.leases.len(), count);
        let read = io.submit(Request::read(&file, offset, completed.leases)).wait();
        assert!(read.leases.iter().all(|lease| lease.iter().all(|&byte| byte == 9)));
    }
    assert!(bench.contents("file").iter().all(|&byte| byte == 1));
    assert_eq!(io.in_flight(), 0);
}

fn the_alignment_of_the_file_is_enough(bench: &Bench) {
    let io = bench.io(4);
    let bytes: Vec<u8> = (0..65_536_usize).map(|at| (at / 512) as u8).collect();
    let file = bench.file("file", &bytes);
    let alignment = file.alignment();
    let (step, memory) = (alignment.offset as usize, alignment.memory as usize);
    // The second slot starts one step of memory alignment after a page, where that divides it.
    let arena = Arena::new(2, step.next_multiple_of(memory) + memory).unwrap();
    let mut leases = arena.take_many(2).unwrap();
    leases.iter_mut().for_each(|lease| lease.truncate(step));
    let completed = io.submit(Request::read(&file, step as u64, leases)).wait();
    assert_eq!(bytes_of(completed), bytes[step..3 * step]);
}

fn odd_offsets_lengths_and_addresses_are_fine_on_buffered_files(bench: &Bench) {
    let io = bench.io(4);
    let bytes: Vec<u8> = (0..65_536_usize).map(|at| (at % 251) as u8).collect();
    let file = bench.file("file", &bytes);
    assert_eq!(unit(&file), 1);
    for (offset, len) in [(1, 4096), (0, 1), (511, 513), (4095, 2), (10_001, 33_333)] {
        let leases = vec![odd_address(len), odd_address(1)];
        let completed = io.submit(Request::read(&file, offset as u64, leases)).wait();
        assert_eq!(bytes_of(completed), bytes[offset..=offset + len]);
    }
    let mut odd = odd_address(777);
    odd.fill(0);
    io.submit(Request::write(&file, 1, vec![odd])).wait().into_result().unwrap();
    let contents = bench.contents("file");
    assert_eq!((contents[0], contents[1], contents[777], contents[778]), (0, 0, 0, bytes[778]));
    assert_eq!(contents[778..], bytes[778..]);
}
