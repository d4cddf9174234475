//! The order of requests that are in the queue together.

use std::collections::BTreeSet;

use forebay_sim::{DiskOptions, Image};

use crate::rig::{Rig, SEEDS, sectors};

/// The order in which three writes to one sector took effect, according to the journal.
fn order(seed: u64, reorder: bool) -> Vec<u8> {
    let options = DiskOptions { seed, reorder, ..DiskOptions::default() };
    let rig = Rig::boot(&Image::empty(), options);
    let file = rig.file("f");
    let at = rig.disk.position();
    let requests = b"abc".map(|byte| rig.writing(&file, 0, &sectors(&[byte])));
    let tickets = rig.io.submit_all(requests);
    tickets.into_iter().for_each(|ticket| ticket.wait().result.unwrap());
    let journal = rig.disk.journal();
    let mut replay = journal.replay();
    let seen = (at + 1..=journal.len()).map(|position| {
        replay.advance_to(position);
        replay.seen().file("f").unwrap()[0]
    });
    seen.collect()
}

#[test]
fn requests_in_the_queue_together_take_effect_in_every_order() {
    let orders: BTreeSet<Vec<u8>> = (0..SEEDS).map(|seed| order(seed, true)).collect();
    assert_eq!(orders.len(), 6, "{orders:?}");
}

#[test]
fn the_order_is_the_seeds_or_with_no_reordering_that_of_waiting() {
    assert_eq!(order(5, true), order(5, true));
    assert!((0..20).all(|seed| order(seed, false) == b"abc"));
}

#[test]
fn many_threads_over_one_queue_are_all_answered_and_dsk_1_the_journal_shows_what_the_files_show() {
    let rig = Rig::new();
    let file = rig.file("f");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (rig, file) = (&rig, &file);
            scope.spawn(move || {
                for round in 0..100 {
                    let at = (thread * 3 + round) % 11 * 512;
                    rig.write(file, at, &sectors(&[thread as u8 + 1, round as u8]));
                    assert_eq!(rig.read(file, at, 512).len(), 512);
                    if round % 10 == 0 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
    });
    let journal = rig.disk.journal();
    let mut replay = journal.replay();
    replay.advance_to(journal.len());
    let files = Image::read_from(rig.disk.directory()).unwrap();
    assert_eq!(replay.seen(), files, "[DSK-1]");
}
