//! A frame's life with one thread: each guarantee of `life`, step by step.

use std::thread;

use super::word::{
    AHEAD, CHECKPOINT, DIRTY, Mode, ORPHAN, Obstacle, Touch, USAGE_MAX, VALID, WRITING,
};
use super::{Copied, Discarded, Frames, Loaded, Loading};
use crate::error::Error;
use crate::tag::{Block, FileId, Lsn, PageTag};

fn tag(block: Block) -> PageTag {
    PageTag { file: FileId(7), block }
}

/// Frames of which the first holds block 3, unpinned and never used.
fn with_a_page(count: usize) -> Frames {
    let frames = Frames::new(count).unwrap();
    let loading = frames.take_free().unwrap().load(tag(3), false, |_| true).unwrap();
    assert_eq!(loading.frame(), 0);
    loading.finish(Mode::Pin, 0);
    frames.unpin(0);
    frames
}

fn error() -> Error {
    Error::NoTablespace { name: "none".to_owned() }
}

#[test]
fn a_new_frame_is_free_and_cannot_be_had_by_a_lookup() {
    let frames = Frames::new(2).unwrap();
    assert_eq!((frames.len(), frames.free_count()), (2, 2));
    assert_eq!(frames.get(0).tag(), None);
    assert!(frames.acquire(0, tag(3), Mode::Pin, Touch::Count).is_none());
    assert_eq!(frames.obstacle(0, tag(3)), Obstacle::NotHere);
    assert!(!frames.pin(0, tag(3), Touch::Not));
    assert!(frames.claim(0, USAGE_MAX).is_none());
    assert!(!frames.get(0).version().is_multiple_of(2), "[FRM-2] no thread may read it");
}

/// An entry may point to a frame that has been given to another page since it was read.
#[test]
fn a_stale_entry_leaves_the_page_that_is_there_now_as_it_was() {
    let frames = Frames::new(1).unwrap();
    frames.take_free().unwrap().load(tag(3), false, |_| true).unwrap().complete(false);
    let before = frames.get(0).word();
    assert!(before.has(AHEAD));
    for mode in [Mode::Pin, Mode::Shared, Mode::Exclusive] {
        assert!(frames.acquire(0, tag(4), mode, Touch::Count).is_none());
        assert_eq!(frames.get(0).word(), before, "{mode:?}");
    }
    assert!(!frames.pin(0, tag(4), Touch::Count));
    assert_eq!(frames.get(0).word(), before);
    assert_eq!(frames.ahead_outcomes(), (0, 0));
    assert!(frames.acquire(0, tag(3), Mode::Pin, Touch::Count).is_some());
    assert_eq!(frames.ahead_outcomes(), (1, 0), "it was read ahead and is used now");
}

#[test]
fn frm_3_an_owned_frame_goes_back_when_it_is_not_used() {
    let frames = Frames::new(1).unwrap();
    let owned = frames.take_free().unwrap();
    assert!(frames.take_free().is_none());
    drop(owned);
    assert_eq!(frames.free_count(), 1, "[FRM-3]");
}

#[test]
fn frm_3_free_frames_go_round_among_threads_and_none_is_lost_or_given_twice() {
    let frames = Frames::new(5).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for count in 0..5000 {
                    let owned: Vec<_> = (0..count % 3).filter_map(|_| frames.take_free()).collect();
                    // If two threads owned one frame, the second would find it loading.
                    let loads =
                        owned.into_iter().map(|it| it.load(tag(3), false, |_| true).unwrap());
                    let loads: Vec<_> = loads.collect();
                    loads.into_iter().for_each(Loading::abandon);
                }
            });
        }
    });
    assert_eq!(frames.free_count(), 5, "[FRM-3]");
    assert_eq!((0..6).filter_map(|_| frames.take_free()).map(std::mem::forget).count(), 5);
}

#[test]
#[should_panic(expected = "[FRM-3]")]
fn frm_3_a_frame_freed_twice_is_a_bug() {
    let frames = Frames::new(1).unwrap();
    drop(super::Owned { frames: &frames, frame: 0 });
}

#[test]
fn a_load_makes_a_page_resident_with_the_latch_as_asked() {
    for (mode, shared, exclusive) in
        [(Mode::Pin, 0, false), (Mode::Shared, 1, false), (Mode::Exclusive, 0, true)]
    {
        let frames = Frames::new(1).unwrap();
        let loading = frames.take_free().unwrap().load(tag(3), false, |_| true).unwrap();
        assert!(frames.acquire(0, tag(3), mode, Touch::Not).is_none());
        assert_eq!(frames.obstacle(0, tag(3)), Obstacle::Reading);
        loading.finish(mode, 2);
        let (word, version) = (frames.get(0).word(), frames.get(0).version());
        assert_eq!((word.pins(), word.shared(), word.usage()), (1, shared, 2));
        assert!(word.has(VALID) && frames.get(0).holds(tag(3)), "[FRM-1]");
        assert_eq!(version.is_multiple_of(2), !exclusive, "[FRM-2]");
        match mode {
            Mode::Pin => frames.unpin(0),
            Mode::Shared => frames.release_shared(0),
            Mode::Exclusive => frames.release_exclusive(0),
        }
        assert!(frames.get(0).word().is_unlatched());
        assert!(frames.get(0).version().is_multiple_of(2), "[FRM-2]");
    }
}

#[test]
fn frm_1_another_page_s_frame_is_let_go_at_once() {
    let frames = with_a_page(1);
    for mode in [Mode::Pin, Mode::Shared, Mode::Exclusive] {
        let version = frames.get(0).version();
        assert!(frames.acquire(0, tag(4), mode, Touch::Not).is_none());
        assert_eq!(frames.obstacle(0, tag(4)), Obstacle::NotHere);
        let word = frames.get(0).word();
        assert!(word.pins() == 0 && word.is_unlatched(), "[FRM-1] {word:?}");
        assert_eq!(frames.get(0).version(), version, "[FRM-2] nothing was changed");
    }
    assert!(!frames.pin(0, tag(4), Touch::Not));
    assert_eq!(frames.get(0).word().pins(), 0);
}

#[test]
fn frm_1_a_pinned_frame_is_not_claimed() {
    let frames = with_a_page(1);
    assert!(frames.pin(0, tag(3), Touch::Not));
    assert!(frames.claim(0, USAGE_MAX).is_none(), "[FRM-1]");
    assert!(frames.claim_page(0, tag(3), USAGE_MAX).is_none(), "[FRM-1]");
    frames.pin_again(0);
    frames.unpin(0);
    assert!(frames.claim(0, USAGE_MAX).is_none(), "[FRM-1] one of two pins is left");
    frames.unpin(0);
    let version = frames.get(0).version();
    let (owned, page) = frames.claim(0, USAGE_MAX).unwrap();
    assert_eq!((page, frames.get(0).tag()), (tag(3), None));
    assert_eq!(frames.get(0).version(), version + 1, "[FRM-2] guards of the old page are over");
    drop(owned);
    assert_eq!(frames.free_count(), 1, "[FRM-3]");
}

#[test]
fn a_page_is_claimed_by_its_tag_only() {
    let frames = with_a_page(1);
    assert!(frames.claim_page(0, tag(4), USAGE_MAX).is_none());
    assert_eq!(frames.get(0).word().pins(), 0);
    assert!(frames.claim_page(0, tag(3), USAGE_MAX).is_some());
    assert_eq!(frames.free_count(), 1);
}

#[test]
fn uses_count_against_a_claim_until_they_have_aged() {
    let frames = with_a_page(1);
    assert!(frames.acquire(0, tag(3), Mode::Pin, Touch::Count).is_some());
    frames.unpin(0);
    assert!(frames.claim(0, 0).is_none());
    frames.age(0);
    frames.age(0);
    frames.touch(0);
    frames.touch(0);
    assert_eq!(frames.get(0).word().usage(), 1);
    assert!(frames.claim(0, 1).is_some());
}

#[test]
fn frm_4_a_dirty_page_is_claimed_only_after_it_was_written() {
    let frames = with_a_page(1);
    assert!(!frames.begin_write(0), "a clean page is not written");
    assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
    assert!(frames.mark_dirty(0, Lsn(7)));
    assert!(!frames.mark_dirty(0, Lsn(5)), "dirty before");
    frames.release_exclusive(0);
    assert!(frames.claim(0, USAGE_MAX).is_none(), "[FRM-4]");

    assert!(frames.acquire(0, tag(3), Mode::Shared, Touch::Not).is_some());
    assert!(frames.begin_write(0));
    assert!(!frames.begin_write(0), "one write at a time");
    let copied = Copied { lsn: Lsn(7), due: false };
    assert_eq!(frames.copied(0), copied, "the newest change, not the last");
    frames.release_shared(0);
    assert!(frames.claim(0, USAGE_MAX).is_none(), "[FRM-4] the write is under way");
    frames.end_write(0, None);
    assert!(frames.claim(0, USAGE_MAX).is_some());
    assert_eq!(frames.get(0).lsn(), Lsn::NONE);
}

#[test]
fn frm_4_a_page_changed_during_its_write_or_whose_write_failed_is_dirty() {
    for failed in [false, true] {
        let frames = with_a_page(1);
        assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
        frames.mark_dirty(0, Lsn(7));
        frames.downgrade(0);
        assert!(frames.begin_write(0));
        let copied = frames.copied(0);
        frames.unlatch_shared(0);
        if !failed {
            assert!(frames.try_latch(0, Mode::Exclusive));
            assert!(!frames.mark_dirty(0, Lsn(8)), "on its way out: it was not saved before");
            frames.pin_again(0);
            frames.release_exclusive(0);
        }
        assert!(!frames.end_write(0, failed.then_some(copied)), "[FRM-4] it is not saved");
        frames.unpin(0);
        assert_eq!(copied.lsn, Lsn(7));
        assert!(frames.get(0).word().has(DIRTY), "[FRM-4]");
        assert!(!frames.get(0).word().has(WRITING));
        assert_eq!(frames.get(0).lsn(), Lsn(if failed { 7 } else { 8 }));
        assert!(frames.claim(0, USAGE_MAX).is_none(), "[FRM-4]");
    }
}

#[test]
fn frm_3_a_failed_load_wakes_its_waiters_and_the_last_of_them_frees_the_frame() {
    let frames = Frames::new(1).unwrap();
    let loading = frames.take_free().unwrap().load(tag(3), false, |_| true).unwrap();
    assert!(frames.pin(0, tag(3), Touch::Count), "a visitor");
    loading.fail(error());
    frames.wait_loaded(0);
    assert!(matches!(frames.loaded(0), Loaded::Failed(Error::NoTablespace { .. })));
    assert!(frames.get(0).word().has(ORPHAN));
    assert!(!frames.get(0).holds(tag(3)), "[OPT-1] no thread takes these bytes for the page");
    assert_eq!(frames.free_count(), 0, "[FRM-3] not while it is pinned");
    frames.unpin(0);
    assert_eq!(frames.free_count(), 1, "[FRM-3]");
    let loading = frames.take_free().unwrap().load(tag(4), false, |_| true).unwrap();
    loading.finish(Mode::Pin, 0);
    assert!(matches!(frames.loaded(0), Loaded::Here), "the old failure is forgotten");
}

#[test]
fn frm_3_a_load_that_lost_the_race_frees_its_frame() {
    let frames = Frames::new(1).unwrap();
    assert!(frames.take_free().unwrap().load(tag(3), false, |_| false).is_none());
    assert_eq!((frames.free_count(), frames.get(0).tag()), (1, None), "[FRM-3]");
}

#[test]
fn a_visitor_of_a_load_that_lost_the_race_is_sent_to_look_again() {
    let frames = Frames::new(1).unwrap();
    let lost = frames.take_free().unwrap().load(tag(3), false, |frame| {
        assert!(frames.pin(frame, tag(3), Touch::Not), "an entry that was true a moment ago");
        false
    });
    assert!(lost.is_none());
    frames.wait_loaded(0);
    assert!(matches!(frames.loaded(0), Loaded::LookAgain));
    assert_eq!(frames.free_count(), 0);
    frames.unpin(0);
    assert_eq!(frames.free_count(), 1, "[FRM-3]");
}

#[test]
fn a_discarded_page_stays_with_who_has_it_and_is_never_written() {
    let frames = with_a_page(1);
    assert_eq!(frames.discard(0, tag(4), || unreachable!("another page's entry"), |_| {}), None);
    assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
    frames.mark_dirty(0, Lsn(9));
    let mut unmapped = 0;
    assert_eq!(
        frames.discard(0, tag(3), || unmapped += 1, |_| {}),
        Some(Discarded { pinned: true, dirty: true })
    );
    assert_eq!(unmapped, 1);
    assert!(frames.get(0).holds(tag(3)), "[FRM-1] it is pinned");
    assert!(frames.acquire(0, tag(3), Mode::Pin, Touch::Not).is_none());
    assert_eq!(frames.obstacle(0, tag(3)), Obstacle::NotHere);
    assert!(!frames.mark_dirty(0, Lsn(10)) && !frames.begin_write(0), "[RSZ-1]");
    assert_eq!(frames.free_count(), 0);
    frames.release_exclusive(0);
    assert_eq!(frames.free_count(), 1, "[FRM-3]");
    assert_eq!((frames.get(0).tag(), frames.get(0).lsn()), (None, Lsn::NONE));
}

#[test]
fn a_checkpoint_is_content_with_a_copy_made_after_its_look_and_written_well() {
    for (early, failed) in [(true, false), (false, true), (false, false)] {
        let frames = with_a_page(1);
        assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
        frames.mark_dirty(0, Lsn(7));
        frames.downgrade(0);
        if !early {
            assert_eq!(frames.mark_due(0), Some(tag(3)));
        }
        assert!(frames.begin_write(0));
        let copied = frames.copied(0);
        if early {
            // Changed since the copy, or about to be: the copy's write proves nothing.
            assert_eq!(frames.mark_due(0), Some(tag(3)), "it is on its way out");
        }
        frames.end_write(0, failed.then_some(copied));
        let due = frames.get(0).word().has(CHECKPOINT);
        assert_eq!(due, early || failed, "[CKP-1] a copy from before: {early}, failed: {failed}");
        frames.release_shared(0);
    }
    let frames = with_a_page(1);
    assert_eq!(frames.mark_due(0), None, "a clean page");
    assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
    assert_eq!(frames.mark_due(0), Some(tag(3)), "[CKP-1] a change may be logged and not marked");
    frames.release_exclusive(0);
    assert!(frames.claim(0, USAGE_MAX).is_some(), "it was not changed: it may go");
}

#[test]
fn what_was_seen_is_over_when_the_page_changes_or_leaves() {
    let frames = with_a_page(1);
    let see = || frames.see(0).unwrap().settled();
    let seen = see().unwrap();
    assert!(seen.is_still());
    assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Not).is_some());
    assert!(!seen.is_still() && see().is_none(), "[FRM-2] it may be changing");
    frames.downgrade(0);
    let seen = see().unwrap();
    assert!(seen.is_still(), "[FRM-2] readers change nothing");
    assert!(frames.try_upgrade(0));
    frames.release_exclusive(0);
    assert!(!seen.is_still(), "[FRM-2]");
    let seen = see().unwrap();
    assert!(frames.pin(0, tag(3), Touch::Not));
    frames.discard(0, tag(3), || (), |_| {});
    frames.unpin(0);
    assert!(!seen.is_still() && see().is_none(), "[OPT-1]");
}

#[test]
fn frm_5_a_page_is_cold_while_its_next_use_has_to_be_counted() {
    let frames = with_a_page(1);
    let (usual, usage) = (|| frames.see(0).unwrap().is_usual(), || frames.get(0).word().usage());
    assert!(!usual(), "it was never used");
    frames.touch(0);
    assert!(usual() && usage() == 1);
    let seen = frames.see(0).unwrap();
    frames.age(0);
    assert!(!usual() && usage() == 0, "[FRM-5]");
    assert!(seen.is_still(), "its bytes are as they were");
    assert!(frames.acquire(0, tag(3), Mode::Exclusive, Touch::Count).is_some());
    assert!(frames.see(0).unwrap().settled().is_none(), "cold or not, it may be changing");
    frames.release_exclusive(0);
    frames.touch(0);
    assert!(usual() && usage() == 1);
}

#[test]
fn an_upgrade_needs_to_be_the_only_reader() {
    let frames = with_a_page(1);
    assert!(frames.acquire(0, tag(3), Mode::Shared, Touch::Not).is_some());
    assert!(frames.acquire(0, tag(3), Mode::Shared, Touch::Not).is_some());
    assert!(!frames.try_upgrade(0));
    frames.release_shared(0);
    assert!(frames.try_upgrade(0));
    assert!(!frames.try_latch(0, Mode::Shared));
    frames.release_exclusive(0);
}

#[test]
fn prk_1_a_sleeper_is_woken_by_who_lets_go() {
    let frames = with_a_page(1);
    for (held, wanted) in [
        (Mode::Exclusive, Mode::Shared),
        (Mode::Exclusive, Mode::Exclusive),
        (Mode::Shared, Mode::Exclusive),
    ] {
        assert!(frames.acquire(0, tag(3), held, Touch::Not).is_some());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(frames.pin(0, tag(3), Touch::Not));
                frames.latch(0, wanted);
                let pins = frames.get(0).word().pins();
                if wanted == Mode::Shared {
                    frames.release_shared(0);
                } else {
                    frames.release_exclusive(0);
                }
                pins
            });
            while !frames.get(0).word().has(super::SLEEPERS) {
                std::thread::yield_now();
            }
            if held == Mode::Shared {
                frames.release_shared(0);
            } else {
                frames.release_exclusive(0);
            }
            assert_eq!(waiter.join().unwrap(), 1, "[PRK-1]");
        });
        assert!(
            !frames.get(0).word().has(super::SLEEPERS),
            "[PRK-1] a frame that no thread could claim"
        );
    }
}

/// A checkpoint that starts while the pool shrinks scans all frames that may hold pages.
#[test]
fn ext_1_frames_to_remove_are_scanned_until_they_are_removed() {
    let frames = Frames::with_room(3, 5).unwrap();
    assert_eq!((frames.len(), frames.free_count(), frames.most()), (3, 3, 5));
    let numbers = || frames.iter().map(|(number, _)| number).collect::<Vec<_>>();
    let third =
        frames.take_free().into_iter().chain(frames.take_free()).chain(frames.take_free()).last();
    third.unwrap().load(tag(1), false, |_| true).unwrap().finish(Mode::Exclusive, 0);
    frames.release_exclusive(2);
    let version = frames.claim(2, USAGE_MAX).map(|_| frames.get(2).version()).unwrap();
    assert!(version > 1);
    let shrinking = frames.begin_shrink(1);
    assert_eq!((numbers(), frames.usable()), (vec![0, 1, 2], 1), "[EXT-1]");
    let first = frames.take_free().unwrap();
    assert!(frames.take_free().is_none(), "[EXT-2] one that is not handed out");
    assert_eq!(shrinking.left().count(), 0);
    assert!(shrinking.finish());
    drop(shrinking);
    assert_eq!((numbers(), frames.free_count()), (vec![0], 0), "[EXT-1]");
    drop(first);
    frames.grow(5);
    assert_eq!((numbers(), frames.free_count()), (vec![0, 1, 2, 3, 4], 5), "[EXT-1]");
    assert!(frames.get(2).version() >= version, "[FRM-2] a version goes back");
    let shrinking = frames.begin_shrink(3);
    assert_eq!((shrinking.left().count(), frames.free_count()), (0, 3), "[EXT-2] all are free");
    drop(shrinking);
    assert_eq!((frames.len(), frames.free_count()), (5, 5), "[FRM-3]");
    let mut all: Vec<_> = std::iter::from_fn(|| frames.take_free()).collect();
    assert_eq!(all.len(), 5, "[FRM-3]");
    let shrinking = frames.begin_shrink(2);
    let one = all.pop().unwrap();
    assert!(frames.retire(one).is_none_or(|owned| owned.load(tag(1), false, |_| false).is_none()));
    assert!(!shrinking.finish(), "[EXT-2]");
    drop(shrinking);
    drop(all);
    assert_eq!((frames.len(), frames.free_count()), (5, 5), "[FRM-3]");
}
