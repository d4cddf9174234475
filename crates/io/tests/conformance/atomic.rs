//! Atomic writes: refused where they are not proven, and executed where they are.
//!
//! XFS with reflinks guarantees them on any device since Linux 6.16, by writing out of place first; so an XFS image is
//! created and mounted, if `mkfs.xfs` and root are available.

use forebay_io::{Error, Request};

use crate::bench::{Bench, Cell, assert_same, lease_of, noise};
use crate::full_disk::on_small_filesystem;
use crate::harness::{Claim, Outcome, claims};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![an_atomic_write_that_is_not_proven_is_refused];
    if cell.is_direct() {
        claims.extend(claims![an_atomic_write_that_is_proven_is_executed]);
    }
    claims
}

pub(crate) fn child_bodies() -> Vec<Claim> {
    claims![atomic_writes]
}

fn an_atomic_write_that_is_not_proven_is_refused(bench: &Bench) -> Outcome {
    if let Some(reason) = bench.cell.refusal() {
        return Outcome::Skipped(reason);
    }
    let (io, file) = (bench.io(4), bench.empty_file("data"));
    let bytes = noise(&mut bench.rng(), 65_536);
    let piece = |len: usize| lease_of(&bytes[..len]);
    let takes = file.atomic_write();
    for (offset, len) in [(0, 12_288), (4096, 8192)] {
        let request = Request::write(&file, offset, vec![piece(len)]).atomic();
        let refused = io.submit(request).wait();
        assert!(matches!(refused.result, Err(Error::Unsupported { .. })), "{:?}", refused.result);
        assert_eq!(refused.leases.len(), 1, "what was lent comes back");
    }
    if takes.is_none() {
        let refused = io.submit(Request::write(&file, 0, vec![piece(8192)]).atomic()).wait();
        assert!(matches!(refused.result, Err(Error::Unsupported { .. })), "{:?}", refused.result);
    }
    assert_eq!(file.len().unwrap(), 0, "nothing was written");
    Outcome::Held
}

fn an_atomic_write_that_is_proven_is_executed(bench: &Bench) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Outcome::Skipped("mounting an image needs root".to_owned());
    }
    let make = "mkfs.xfs -V >/dev/null && truncate -s 320M \"$0.image\" \
        && mkfs.xfs -q -m reflink=1 \"$0.image\" && mount -o loop \"$0.image\" \"$0\"";
    on_small_filesystem(bench, "atomic_writes", make)
}

fn atomic_writes(bench: &Bench) -> Outcome {
    if let Some(reason) = bench.cell.refusal() {
        return Outcome::Skipped(reason);
    }
    let (io, file) = (bench.io(4), bench.empty_file("data"));
    let Some(takes) = file.atomic_write() else {
        return Outcome::Skipped("this kernel's XFS proves no atomic writes".to_owned());
    };
    assert!(takes.takes(8192) && !takes.takes(12_288), "{takes:?}");
    let bytes = noise(&mut bench.rng(), 65_536);
    for (offset, len) in [(0, 4096), (8192, 8192), (0, 16_384), (65_536, 65_536)] {
        let request = Request::write(&file, offset, vec![lease_of(&bytes[..len])]).atomic();
        io.submit(request).wait().into_result().unwrap();
        let read = Request::read(&file, offset, vec![lease_of(&vec![0; len])]);
        let read = io.submit(read).wait().into_result().unwrap();
        assert_same(&read[0], &bytes[..len], "what was written atomically");
    }
    let two = vec![lease_of(&bytes[..4096]), lease_of(&bytes[..4096])];
    let refused = io.submit(Request::write(&file, 0, two).atomic()).wait();
    if takes.pieces_max < 2 {
        assert!(matches!(refused.result, Err(Error::Unsupported { .. })), "{:?}", refused.result);
    }
    Outcome::Held
}
