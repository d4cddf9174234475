//! Files that are shortened, extended and closed while other threads load, write and read their pages.

use super::Model;
use super::interleavings::{check, run, tag, with_block_0};
use crate::cache::frame::NO_FRAME;
use crate::cache::frame::word::Mode;
use crate::error::{Error, Fate};

#[test]
fn loom_a_discarded_page_is_freed_by_the_last_who_has_it() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.acquire(0, Mode::Pin).unwrap();
        let other = run(&pool, |pool| drop(pool.change(0, 1)));
        let truncation = run(&pool, |pool| pool.truncate(0));
        pool.frames().pin_again(0);
        pool.frames().unpin(0);
        assert!(pool.frames().get(0).holds(tag(0)), "[FRM-1] discarded under a pin");
        pool.frames().unpin(0);
        other.join().unwrap();
        truncation.join().unwrap();
        assert_eq!(pool.lookup(0), NO_FRAME, "[RSZ-1]");
        assert_eq!(pool.frames().free_count(), 1, "[FRM-3]");
        pool.assert_settled();
    });
}

/// The length and the page table are read in opposite orders: one side sees the other.
#[test]
fn loom_rsz_1_a_page_loaded_during_a_truncation_does_not_stay() {
    for blocks in [0, 1] {
        check(4, move || {
            let pool = Model::new(1, 1);
            if blocks == 0 {
                pool.spoil(0);
            }
            let other = run(&pool, |pool| drop(pool.value(0)));
            pool.truncate(0);
            // A thread that mapped it too late is about to remove it again.
            other.join().unwrap();
            assert_eq!(pool.lookup(0), NO_FRAME, "[RSZ-1] a page beyond the end");
            assert_eq!(pool.frames().free_count(), 1, "[FRM-3]");
            pool.assert_settled();
        });
    }
}

/// A thread that looks up a block after the file has grown again does not get an error for its previous end, from a
/// load that ended too late.
#[test]
fn loom_an_end_that_was_is_not_reported_after_the_file_has_grown() {
    check(4, || {
        let pool = Model::new(2, 1);
        let other = run(&pool, |pool| drop(pool.value(0)));
        pool.truncate(0);
        pool.extend(20);
        assert_eq!(pool.value(0).unwrap(), 20);
        other.join().unwrap();
        pool.assert_settled();
    });
}

/// A thread that sees the block sees the page of the appending thread, even if it requested the block before it was
/// truncated.
#[test]
fn loom_rsz_3_a_block_that_is_appended_is_found_with_its_page() {
    check(3, || {
        let pool = Model::new(2, 1);
        let other = run(&pool, |pool| pool.value(0));
        pool.truncate(0);
        pool.append(7);
        assert_eq!(pool.value(0).unwrap(), 7, "[RSZ-3]");
        match other.join().unwrap() {
            Ok(value) => assert!([10, 7].contains(&value), "[RSZ-3] {value}"),
            Err(error) => assert!(!matches!(error, Error::Corrupt { .. }), "{error}"),
        }
        pool.assert_settled();
    });
}

#[test]
fn loom_rsz_1_nothing_is_written_after_a_truncation() {
    check(4, || {
        let pool = with_block_0(1, 1);
        pool.change(0, 1).unwrap();
        let writer = run(&pool, |pool| pool.write_out(0));
        pool.truncate(0);
        let disk = pool.on_disk(0);
        let written = writer.join().unwrap();
        assert_eq!(pool.on_disk(0), disk, "[RSZ-1] written after a truncation");
        assert_eq!(disk, if written { 11 } else { 10 });
        assert_eq!(pool.frames().free_count(), 1, "[FRM-3]");
        pool.assert_settled();
    });
}

#[test]
fn loom_rsz_1_a_page_read_ahead_during_a_truncation_does_not_stay() {
    check(3, || {
        let pool = Model::new(1, 1);
        let ahead = run(&pool, |pool| pool.prefetch(0));
        pool.truncate(0);
        ahead.join().unwrap();
        while pool.end_request() {}
        assert_eq!(pool.lookup(0), NO_FRAME, "[RSZ-1] a page beyond the end");
        assert_eq!(pool.frames().free_count(), 1, "[FRM-3]");
        pool.assert_settled();
    });
}

/// The truncation has to drive the queue: no other thread does.
#[test]
fn loom_rsz_1_a_truncation_ends_while_a_hit_and_a_read_ahead_are_under_way() {
    check(2, || {
        let pool = Model::new(2, 2);
        pool.acquire(1, Mode::Pin).unwrap();
        pool.frames().unpin(0);
        assert!(pool.prefetch(0));
        let hit = run(&pool, |pool| pool.value(1));
        pool.truncate(0);
        let seen = hit.join().unwrap();
        let invalidated =
            |error: &Error| matches!(error, Error::Invalidated { how: Fate::Truncated, .. });
        match seen {
            Ok(value) => assert_eq!(value, 11),
            Err(error) => {
                assert!(invalidated(&error) || matches!(error, Error::PastEnd { .. }), "{error}");
            }
        }
        assert_eq!(pool.frames().free_count(), 2, "[FRM-3]");
        pool.assert_settled();
    });
}

/// A thread that reads during a close that fails is not affected; if the close succeeds, it sees at most that.
#[test]
fn loom_rsz_2_no_caller_is_notified_of_a_close_that_fails() {
    for synced in [false, true] {
        check(2, move || {
            let pool = with_block_0(2, 1);
            let closing = run(&pool, move |pool| pool.close(synced));
            match pool.value(0) {
                Ok(value) => assert_eq!(value, 10),
                Err(Error::Invalidated { how: Fate::Closed, .. }) => assert!(synced, "[RSZ-2]"),
                Err(error) => panic!("[RSZ-2] {error}"),
            }
            closing.join().unwrap().unwrap();
            assert_eq!(pool.value(0).is_ok(), !synced, "[RSZ-2]");
            pool.assert_settled();
        });
    }
}
