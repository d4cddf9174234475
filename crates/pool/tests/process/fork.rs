//! Children of `fork`: every operation on the parent's pool returns an error, and does not affect the parent.
#![expect(unsafe_code, reason = "fork, waitpid, alarm and unshare")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use forebay::{
    BufferPool, CheckpointOptions, Error, ErrorKind, FileOptions, Lsn, PagedFile, Tablespace, Wal,
};
use forebay_io::{
    Arena, CacheMode, Error as IoError, File, Io, IoOptions, Kind, OpenOptions, Prefer, Request,
};

use crate::{alone, builder, dirty, on_disk, set, with};

/// Maximum time for a child, in seconds.
const PATIENCE: u32 = 120;

/// Runs `body` in a child of this process, with only this thread, and waits for its successful end. No objects of the
/// parent are dropped there, except what `body` drops.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child continues with a copy of this thread. It calls what `body` calls, allocates, and ends by
    // `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: a number; the signal ends a child that hangs.
        unsafe { libc::alarm(PATIENCE) };
        let ended = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: it ends here, without the parent's destructors.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of this thread, and writes its status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child ended with {status:#x}");
}

#[track_caller]
fn is_forked<T>(result: Result<T, Error>) {
    let Err(error) = result else { panic!("it was done") };
    let forked = matches!(error, Error::Forked | Error::Io(IoError::Forked));
    assert!(forked && error.kind() == ErrorKind::Usage, "{error}");
}

/// What a child may try with the parent's pool: the page of `resident` is in memory, and the second page of `cold` is
/// not.
fn try_everything(pool: BufferPool, resident: PagedFile, cold: &PagedFile) {
    assert_eq!(resident.read(0).unwrap()[100], 1);
    set(&resident, 99);
    is_forked(resident.flush_file());
    is_forked(resident.sync());
    is_forked(resident.extend(1));
    is_forked(resident.append().map(drop));
    is_forked(resident.truncate(0));
    is_forked(resident.evict(0));
    is_forked(resident.close());
    is_forked(resident.drop_file());
    is_forked(cold.read(1).map(drop));
    is_forked(cold.write(1).map(drop));
    is_forked(cold.init(1).map(drop));
    is_forked(cold.salvage(1));
    is_forked(cold.backup(0..2, |_, _| Ok::<(), Error>(())));
    assert_eq!(cold.prefetch(&[1]), 0);
    for page in cold.scan(1..2) {
        is_forked(page.map_err(|failed| failed.error));
    }
    is_forked(pool.open_file("another", &FileOptions::new().create(true)));
    is_forked(pool.checkpoint(CheckpointOptions::now()));
    is_forked(pool.flush_and_sync());
    is_forked(pool.set_memory("512 KiB"));
    is_forked(pool.close());
    pool.drive();
    drop(resident);
    drop(pool);
}

fn a_child_gets_an_error(kind: Kind, cache: CacheMode) {
    let directory = tempfile::tempdir().unwrap();
    let main = || Tablespace::new("main", directory.path()).cache(cache);
    let build = || with(main()).backend(Prefer::Only(kind)).build();
    let opened = build().and_then(|pool| {
        let cold = pool.open_file("cold", &FileOptions::new().create(true))?;
        Ok((pool, cold))
    });
    let (pool, cold) = match opened {
        Ok(opened) => opened,
        Err(error) => return crate::skip(&format!("fork: {kind} {cache}"), &error.to_string()),
    };
    cold.extend(2).unwrap();
    // The queue has been used, so its threads and rings exist.
    pool.flush_and_sync().unwrap();
    let file = dirty(&pool, "t", 1);
    let checkpoint = pool.checkpoint(CheckpointOptions::now()).map(|report| report.pages);
    assert_eq!(checkpoint.unwrap(), 1);
    set(&file, 1);

    in_child(|| {
        // The child has the parent's handles, and drops them as the parent would.
        let (pool, file) = (pool.clone(), file.clone());
        try_everything(pool, file, &cold);
    });
    in_child(|| {
        // SAFETY: copies of the parent's handles, the only ones in this process, which ends without dropping others.
        let (pool, file, cold) = unsafe {
            (
                std::ptr::read(&raw const pool),
                std::ptr::read(&raw const file),
                std::ptr::read(&raw const cold),
            )
        };
        drop((cold, file, pool));
    });

    // The directory still belongs to the parent, and so do its pages.
    assert!(matches!(build(), Err(Error::InUse { .. })), "[END-2]");
    assert_eq!((file.blocks(), file.read(0).unwrap()[100]), (1, 1));
    set(&file, 5);
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!(on_disk(&file), 5);
    cold.read(1).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_pool_is_not_a_childs_whatever_carries_its_requests() {
    alone(|| {
        for kind in Kind::ALL {
            for cache in [CacheMode::Buffered, CacheMode::Direct] {
                if kind.serves(cache) {
                    a_child_gets_an_error(kind, cache);
                }
            }
        }
    });
}

#[test]
fn a_child_may_have_a_separate_pool() {
    alone(|| {
        let directory = tempfile::tempdir().unwrap();
        let parents = builder(&directory.path().join("parent")).build().unwrap();
        let file = dirty(&parents, "t", 1);
        in_child(|| {
            let own = builder(&directory.path().join("child")).build().unwrap();
            let file = dirty(&own, "t", 7);
            own.checkpoint(CheckpointOptions::now()).unwrap();
            own.close().unwrap();
            assert_eq!(on_disk(&file), 7);
        });
        parents.close().unwrap();
        assert_eq!(on_disk(&file), 1);
    });
}

/// A log of which a child has a copy, with locks that may be held by threads that it does not have.
#[derive(Debug)]
struct Log(u32);

impl Wal for Log {
    fn flush_to(&self, _: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        assert_eq!(self.0, std::process::id(), "a child flushes its parent's log");
        Ok(())
    }

    fn position(&self) -> Lsn {
        if self.0 != std::process::id() {
            // A panic would be caught.
            std::process::abort();
        }
        Lsn(1)
    }

    fn flushed(&self) -> Lsn {
        Lsn::NONE
    }
}

#[test]
fn a_child_does_not_use_the_parents_log() {
    alone(|| {
        let directory = tempfile::tempdir().unwrap();
        let log = Arc::new(Log(std::process::id()));
        let pool = builder(directory.path()).wal(log).build().unwrap();
        let file = dirty(&pool, "t", 1);
        in_child(|| file.write(0).unwrap()[100] = 2);
        assert_eq!(file.read(0).unwrap()[100], 1);
        pool.close().unwrap();
    });
}

/// The first process of each PID namespace has the id 1: its child, in a namespace within, has the same.
#[test]
fn a_child_with_its_parents_id_is_a_child() {
    let unshare = || {
        // SAFETY: a number; children of this process are in a new namespace from here on.
        let refused = unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0;
        if refused {
            crate::skip("fork", &format!("PID namespaces: {}", std::io::Error::last_os_error()));
        }
        !refused
    };
    alone(|| {
        if !unshare() {
            return;
        }
        in_child(|| {
            assert_eq!(std::process::id(), 1);
            let directory = tempfile::tempdir().unwrap();
            let pool = builder(directory.path()).build().unwrap();
            let file = dirty(&pool, "t", 1);
            if unshare() {
                in_child(|| {
                    assert_eq!(std::process::id(), 1);
                    is_forked(file.flush_file());
                });
            }
        });
    });
}

#[test]
fn a_checkpoint_and_a_request_under_way_are_the_parents() {
    alone(|| {
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(&directory.path().join("main")).build().unwrap();
        let file = dirty(&pool, "t", 1);
        let long = std::time::Duration::from_secs(3600);
        let checkpoint = pool.start_checkpoint(CheckpointOptions::spread(long)).unwrap();

        let io = Io::open(&IoOptions::default()).unwrap();
        let path = directory.path().join("plain");
        std::fs::write(&path, [3; 4096]).unwrap();
        let plain = File::open(&path, &OpenOptions::new()).unwrap();
        let arena = Arena::new(2, 4096).unwrap();
        let read =
            |io: &Io| io.submit(Request::read(&plain, 0, arena.take().into_iter().collect()));
        let ticket = read(&io);
        in_child(|| {
            is_forked(checkpoint.wait());
            assert!(matches!(read(&io).wait().result, Err(IoError::Forked)));
            // SAFETY: the parent's ticket and queue, the only ones of this process, which drops them once.
            let (ticket, io) =
                unsafe { (std::ptr::read(&raw const ticket), std::ptr::read(&raw const io)) };
            // The `threads` backend may have completed it before the fork.
            let done = ticket.wait();
            assert!(matches!(done.result, Ok(()) | Err(IoError::Forked)), "{:?}", done.result);
            drop(io);
        });
        assert_eq!(ticket.wait().into_result().unwrap()[0][..], [3; 4096]);
        checkpoint.hurry();
        checkpoint.wait().unwrap();
        pool.close().unwrap();
        assert_eq!(on_disk(&file), 1);
    });
}
