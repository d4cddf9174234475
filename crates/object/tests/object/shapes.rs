//! The shapes of requests, and stores that are damaged or lack a required feature.

use std::time::Duration;

use forebay_object::{Error, Takeover};

use super::pages::{PAGE, commit, pages, states};
use super::site::Site;
use super::store::{Faults, What};

#[test]
fn a_checkpoint_is_a_few_large_objects_and_a_scan_a_few_large_reads() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    let before = site.world.events().len();
    // 121 pages of 512 bytes fit into 64 KiB, if each is its own run.
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
fn a_store_without_conditions_that_hold_is_refused_with_the_reason() {
    let site = Site::new();
    let ignored = Faults { no_conditions: true, ..Faults::default() };
    let (bucket, _) = site.bucket(ignored, 1);
    let error = bucket.create(PAGE as u32).unwrap_err();
    assert!(
        matches!(&error, Error::NotConditional { why } if why.contains("If-None-Match")),
        "{error}"
    );
    let half = Faults { no_if_match: true, ..Faults::default() };
    let error = site.bucket(half, 4).0.create(PAGE as u32).unwrap_err();
    assert!(matches!(&error, Error::NotConditional { why } if why.contains("If-Match")), "{error}");
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

/// Pages of one repeated word: how much compression shrinks them, and that objects of both kinds are read, merged and
/// read again.
#[test]
fn a_compressed_tablespace_takes_less_space_and_may_be_compressed_later() {
    let site = Site::new();
    let (plain, _) = site.created(1);
    let writer = plain.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..3000), 1).unwrap();
    let before = writer.space().stored_bytes;
    writer.close().unwrap();
    let (compressed, _) = site.bucket(Faults::default(), 4);
    let writer = compressed.writer(Takeover::Refuse).unwrap();
    let objects = compressed.stats().puts;
    commit(&writer, &pages(file, 0..2500), 2).unwrap();
    assert!(
        compressed.stats().puts - objects <= 4,
        "objects are full after compression, not before"
    );
    while writer.maintain().unwrap().merged > 0 {}
    let space = writer.space();
    assert!(space.stored_bytes * 3 < before, "{space:?} of {before}");
    let expected = [vec![2; 2500], vec![1; 500]].concat();
    assert_eq!(states(&writer.view(), file, 3000).unwrap(), expected);
    writer.close().unwrap();
    let reader = plain.reader().unwrap();
    assert_eq!(states(&reader.view(), file, 3000).unwrap(), expected);
}
