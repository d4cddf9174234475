//! io_uring blocked, missing or short of memory: with a system call filter and without capabilities.
//!
//! Each runs in a child, because neither a filter nor a dropped capability can be restored.

use std::sync::Arc;

use forebay_io::{Arena, CacheMode, Error, Io, IoOptions, Kind, OsError, Prefer, Request};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::options;
use crate::bench::{Bench, assert_same, bytes_of, lease, lease_of};
use crate::child;
use crate::harness::{Claim, Outcome, claims};

pub(super) fn uring_claims() -> Vec<Claim> {
    claims![
        entering_forbidden_later_fails_requests_and_hangs_no_caller,
        memory_that_may_not_be_locked_is_reported_and_works,
    ]
}

pub(super) fn general_claims() -> Vec<Claim> {
    claims![with_uring_blocked_auto_falls_back, with_uring_missing_auto_falls_back]
}

pub(super) fn child_bodies() -> Vec<Claim> {
    claims![blocked, missing, forbidden_later, no_memlock]
}

fn with_uring_blocked_auto_falls_back(bench: &Bench) -> Outcome {
    child::run_plain(bench, "blocked")
}

fn with_uring_missing_auto_falls_back(bench: &Bench) -> Outcome {
    child::run_plain(bench, "missing")
}

fn blocked(_bench: &Bench) -> Outcome {
    falls_back(OsError::EPERM, "seccomp")
}

fn missing(_bench: &Bench) -> Outcome {
    falls_back(OsError::ENOSYS, "Linux 5.11")
}

/// Makes the io_uring calls of this thread, and of threads it starts from now on, fail.
fn block_uring(errno: OsError) -> Result<(), String> {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let filter = SeccompFilter::new(
        calls.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw().unsigned_abs()),
        TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?,
    )
    .unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    seccompiler::apply_filter(&program).map_err(|error| format!("no seccomp filter: {error}"))
}

fn falls_back(errno: OsError, remedy: &str) -> Outcome {
    if let Err(reason) = block_uring(errno) {
        return Outcome::Skipped(reason);
    }
    let io = Io::open(&options(Prefer::Auto, CacheMode::Buffered)).unwrap();
    assert_eq!(io.kind(), Kind::Threads);
    let [uring, aio] = io.report().refused.as_slice() else {
        panic!("two better ones were refused: {:?}", io.report());
    };
    assert_eq!((uring.backend, uring.step), (Kind::Uring, "io_uring_setup"));
    assert_eq!(uring.source, Some(errno));
    assert!(uring.remedy().contains(remedy), "{uring}");
    assert_eq!((aio.backend, aio.source), (Kind::Aio, None));
    let line = io.report().to_string();
    assert!(line.starts_with("threads (not uring: io_uring_setup: "), "{line}");
    let [note] = &io.notes()[..] else { panic!("{:?}", io.notes()) };
    assert!(note.starts_with("I/O by threads, for want of uring: io_uring_setup: "), "{note}");
    assert!(note.contains(remedy), "{note}");

    let direct = Io::open(&options(Prefer::Auto, CacheMode::Direct)).unwrap();
    assert_eq!(direct.report().refused[0].source, Some(errno));
    assert_ne!(direct.kind(), Kind::Uring);

    match Io::open(&options(Prefer::Only(Kind::Uring), CacheMode::Buffered)) {
        Err(Error::Unavailable { backend: Kind::Uring, why }) => assert_eq!(&why, uring),
        other => panic!("{other:?}"),
    }
    Outcome::Held
}

fn entering_forbidden_later_fails_requests_and_hangs_no_caller(bench: &Bench) -> Outcome {
    child::run_plain(bench, "forbidden_later")
}

fn forbidden_later(bench: &Bench) -> Outcome {
    let io = bench.io(8);
    let file = bench.file("file", &[1; 65_536]);
    let before =
        io.submit_all((0..8).map(|block| Request::read(&file, block * 4096, vec![lease(4096)])));
    if let Err(reason) = block_uring(OsError::EPERM) {
        return Outcome::Skipped(reason);
    }
    for ticket in before {
        assert_same(&bytes_of(ticket.wait()), &[1; 4096], "what the kernel had taken");
    }
    for _ in 0..2 {
        let requests = (0..12).map(|block| Request::read(&file, block * 4096, vec![lease(4096)]));
        for ticket in io.submit_all(requests) {
            let completed = ticket.wait();
            match completed.result {
                Err(Error::Permission { source, .. }) => assert_eq!(source, OsError::EPERM),
                other => panic!("{other:?}"),
            }
            assert_eq!(completed.leases.len(), 1);
        }
    }
    // A sync that the kernel did not accept is not a failed sync: a later one that it accepts is reliable.
    let sync = io.submit(Request::sync_data(&file)).wait().result;
    assert!(matches!(sync, Err(Error::Unavailable { backend: Kind::Uring, .. })), "{sync:?}");
    file.sync_data().unwrap();
    io.close();
    Outcome::Held
}

fn memory_that_may_not_be_locked_is_reported_and_works(bench: &Bench) -> Outcome {
    child::run_plain(bench, "no_memlock")
}

fn no_memlock(bench: &Bench) -> Outcome {
    // A process with this capability has no limit.
    let mut rights = capabilities(None).unwrap();
    rights.effective.remove(CapabilitySet::IPC_LOCK);
    rights.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, rights).unwrap();
    // Room for the queue, which some kernels count as well, but not for the arena.
    let limit = Some(2 << 20);
    setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).unwrap();
    let arena = Arena::new(1024, 4096).unwrap();
    let options =
        IoOptions { register: Some(Arc::clone(arena.mapping())), ..bench.cell.options(8) };
    let io = match Io::open(&options) {
        Ok(io) => io,
        // Other queues of the same user may have exhausted the limit.
        Err(error @ Error::Unavailable { .. }) => return Outcome::Skipped(error.to_string()),
        Err(other) => panic!("{other:?}"),
    };
    let notes = &io.report().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("4194304 bytes") && notes[0].contains("ulimit -l"), "{notes:?}");
    let file = bench.file("file", &[1; 4096]);
    let mut lease = arena.take().unwrap();
    lease.fill(2);
    io.submit(Request::write(&file, 0, vec![lease])).wait().result.unwrap();
    assert_same(&bench.contents("file"), &[2; 4096], "the file");
    io.submit(Request::write(&file, 0, vec![lease_of(&[3; 4096])])).wait().result.unwrap();
    let read = io.submit(Request::read(&file, 0, vec![arena.take().unwrap()])).wait();
    assert_same(&bytes_of(read), &[3; 4096], "the memory");
    Outcome::Held
}
