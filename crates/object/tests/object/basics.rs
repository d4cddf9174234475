//! What is put is read again: by the writer, by readers, after reopening.

use std::time::Duration;

use forebay_object::{Error, Takeover};

use crate::site::{PAGE, Site, commit, fill, pages, states};
use crate::store::{Faults, What};

#[test]
fn a_commit_is_seen_by_a_reader_that_refreshes_and_not_by_one_that_does_not() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, 10 * PAGE as u64).unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();

    let (elsewhere, _) = site.bucket(Faults::default(), 2);
    let reader = elsewhere.reader().unwrap();
    let before = reader.view();
    assert_eq!(before.file("table"), Some(file));
    commit(&writer, &pages(file, [2, 3, 7]), 2).unwrap();
    assert_eq!(states(&before, file, 10).unwrap(), [1; 10]);
    assert!(reader.refresh().unwrap() && !reader.refresh().unwrap());
    let expected = [1, 1, 2, 2, 1, 1, 1, 2, 1, 1];
    assert_eq!(states(&reader.view(), file, 10).unwrap(), expected);
    assert_eq!(states(&writer.view(), file, 10).unwrap(), expected);
    assert_eq!(states(&before, file, 10).unwrap(), [1; 10], "a view stays as it is");
    writer.close().unwrap();

    let writer = bucket.writer(Takeover::Refuse).unwrap();
    assert_eq!(states(&writer.view(), file, 10).unwrap(), expected);
    // A view that is held would keep what it needs.
    drop(before);
    reader.close().unwrap();
    assert!(site.world.paths("space/readers").iter().all(|it| it.ends_with("clock")));
}

#[test]
fn staged_pages_are_the_writers_until_they_are_published() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.publish().unwrap();
    let reader = bucket.reader().unwrap();
    let put = |state| {
        let pages = pages(file, 0..4);
        writer.stage(&pages, &mut |page, bytes| {
            fill(page, state, bytes);
            Ok(())
        })
    };
    put(1).unwrap();
    assert_eq!(states(&writer.view(), file, 4).unwrap(), [1; 4]);
    assert!(!reader.refresh().unwrap());
    put(2).unwrap();
    writer.publish().unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(states(&reader.view(), file, 4).unwrap(), [2; 4]);
    // Nothing has changed, so nothing is asked.
    let before = handle.requests();
    writer.publish().unwrap();
    assert_eq!(handle.requests(), before);
}

#[test]
fn what_was_cut_and_removed_does_not_come_back() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    let other = writer.create_file("other").unwrap();
    writer.set_len(file, 10 * PAGE as u64).unwrap();
    commit(&writer, &[pages(file, 0..10), pages(other, 0..3)].concat(), 1).unwrap();
    writer.set_len(file, 4 * PAGE as u64).unwrap();
    writer.set_len(file, 8 * PAGE as u64).unwrap();
    writer.remove_file(other).unwrap();
    writer.rename_file(file, "other").unwrap();
    commit(&writer, &pages(file, [6]), 2).unwrap();
    let expected = [1, 1, 1, 1, 0, 0, 2, 0, 0, 0];
    assert_eq!(states(&writer.view(), file, 10).unwrap(), expected);
    let reader = bucket.reader().unwrap();
    assert_eq!(states(&reader.view(), file, 10).unwrap(), expected);
    let files = reader.view().files();
    assert_eq!((files.len(), &*files[0].name, files[0].bytes), (1, "other", 8 * PAGE as u64));
    assert!(matches!(states(&reader.view(), other, 1), Err(Error::NoFile { .. })));
    assert!(matches!(writer.create_file("other"), Err(Error::NameTaken { .. })));
}

#[test]
fn a_checkpoint_is_a_few_large_objects_and_a_scan_a_few_large_reads() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    let before = site.world.events().len();
    // 121 pages of 512 bytes fit into 64 KiB, if each is a run by itself.
    let blocks: Vec<u32> = (0..1210).map(|at| at * 3).collect();
    commit(&writer, &pages(file, blocks), 1).unwrap();
    let puts = site.world.events()[before..].iter().filter(|it| it.what == What::Put).count();
    assert_eq!(puts, 10);
    assert!(site.world.events().iter().all(|it| it.bytes <= 64 << 10));

    let before = bucket.stats();
    let mut bytes = vec![0; 3 * 1210 * PAGE];
    writer.view().read(file, 0, &mut bytes).unwrap();
    let stats = bucket.stats();
    assert_eq!(stats.gets - before.gets, 10);
    assert_eq!(stats.pages_read - before.pages_read, 1210);
    let odd = writer.view().read(file, 0, &mut bytes[..700]);
    assert!(matches!(odd, Err(Error::Setting { .. })));
}

#[test]
fn pages_written_in_order_take_a_run_for_each_object_in_memory() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..2420), 1).unwrap();
    // 20 objects; two runs more where a row of the map ends.
    assert_eq!(writer.space().runs, 22);
}

#[test]
fn a_tablespace_is_not_made_twice_and_not_opened_where_there_is_none() {
    let site = Site::new();
    let (bucket, _) = site.bucket(Faults::default(), 1);
    assert!(matches!(bucket.writer(Takeover::Force), Err(Error::Absent { .. })));
    assert!(matches!(bucket.reader(), Err(Error::Absent { .. })));
    bucket.create(PAGE as u32).unwrap();
    assert!(matches!(bucket.create(PAGE as u32), Err(Error::Exists { .. })));
    assert!(matches!(bucket.create(1000), Err(Error::Setting { .. })));
    assert!(site.world.paths("space/probes").is_empty());
    assert!(site.world.paths("space/readers").is_empty());
}

#[test]
fn a_store_without_conditions_that_hold_is_refused_with_the_reason() {
    let site = Site::new();
    let ignored = Faults { no_conditions: true, ..Faults::default() };
    let (bucket, _) = site.bucket(ignored, 1);
    let error = bucket.create(PAGE as u32).unwrap_err();
    assert!(
        matches!(&error, Error::NotConditional { why } if why.contains("If-None-Match")),
        "{error}"
    );
    let none = Faults { no_updates: true, ..Faults::default() };
    let (bucket, _) = site.bucket(none.clone(), 2);
    assert!(matches!(bucket.create(PAGE as u32), Err(Error::NotConditional { .. })));
    let (bucket, handle) = site.created(3);
    handle.set_faults(none);
    assert!(matches!(bucket.writer(Takeover::Refuse), Err(Error::NotConditional { .. })));
    handle.set_faults(Faults::default());
    bucket.writer(Takeover::Refuse).unwrap();
}

#[test]
fn damage_and_loss_in_the_store_are_errors_and_never_data() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    writer.close().unwrap();
    let object = site.world.paths("space/data")[0].clone();
    site.world.damage(&object, 3 * 528 + 100);
    let reader = bucket.reader().unwrap();
    assert!(matches!(states(&reader.view(), file, 10), Err(Error::Corrupt { .. })));
    assert_eq!(states(&reader.view(), file, 3).unwrap(), [1; 3], "others are whole");
    site.world.damage(&object, 10 * 528 + 5);
    assert!(matches!(bucket.reader(), Err(Error::Corrupt { .. })));
    site.world.remove(&object);
    assert!(matches!(bucket.reader(), Err(Error::Missing { .. })));
    site.world.damage("space/manifest", 40);
    assert!(matches!(bucket.reader(), Err(Error::Corrupt { .. })));
    assert!(matches!(bucket.writer(Takeover::Force), Err(Error::Corrupt { .. })));
}

#[test]
fn requests_in_flight_are_bounded() {
    let site = Site::new();
    let options = forebay_object::Options { in_flight: 3, ..site.options(1) };
    let slow = Faults { latency: (Duration::from_millis(20), Duration::ZERO), ..Faults::default() };
    let (bucket, handle) = site.bucket_with(slow, options);
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, (0..2000).map(|at| at * 2)), 1).unwrap();
    states(&writer.view(), file, 4000).unwrap();
    assert_eq!(handle.in_flight_most(), 3);
}
