//! What is put is read again: by the writer, by readers, after reopening. On a simulated store, and on a real server.

use forebay_object::{Error, Takeover};

use super::pages::{PAGE, commit, fill, pages, states};
use super::site::Site;
use super::store::Faults;

#[test]
fn a_commit_is_seen_by_a_reader_that_refreshes_and_not_by_one_that_does_not() {
    let Some(site) = Site::start() else { return };
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
    // A view that is held would keep the objects that it needs.
    drop(before);
    reader.close().unwrap();
    assert!(site.paths("space/readers").iter().all(|it| it.ends_with("clock")));
}

#[test]
fn staged_pages_are_the_writers_until_they_are_published() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.created(1);
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
    // Nothing has changed, so no request is sent.
    let before = bucket.stats();
    writer.publish().unwrap();
    assert_eq!(bucket.stats(), before);
}

/// A file is cut while its pages are staged: data written after the cut is not lost, and data from before it is.
#[test]
fn snp_3_what_is_cut_while_it_is_staged_is_as_it_was_written_since() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, 10 * PAGE as u64).unwrap();
    let mut state = 1;
    let mut asked = Vec::new();
    let staged = writer.stage(&pages(file, 0..10), &mut |page, bytes| {
        asked.push(page.block);
        if asked.len() == 6 {
            writer.set_len(file, 3 * PAGE as u64)?;
            writer.set_len(file, 8 * PAGE as u64)?;
            state = 2;
        }
        fill(page, state, bytes);
        Ok(())
    });
    staged.unwrap();
    assert_eq!(asked, (0..10).chain(3..8).collect::<Vec<_>>());
    writer.set_len(file, 10 * PAGE as u64).unwrap();
    let expected = [1, 1, 1, 2, 2, 2, 2, 2, 0, 0];
    assert_eq!(states(&writer.view(), file, 10).unwrap(), expected);
    writer.publish().unwrap();
    assert_eq!(states(&bucket.reader().unwrap().view(), file, 10).unwrap(), expected);
}

/// A second pass over pages that were cut meanwhile fails: nothing of the first pass is there either.
#[test]
fn staging_that_fails_half_way_has_staged_nothing() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, 10 * PAGE as u64).unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    let mut asked = 0;
    let staged = writer.stage(&pages(file, 0..10), &mut |page, bytes| {
        asked += 1;
        if asked == 6 {
            writer.set_len(file, 3 * PAGE as u64)?;
            writer.set_len(file, 10 * PAGE as u64)?;
        }
        fill(page, 2, bytes);
        let what = "the disk has failed".to_owned();
        if asked == 12 { Err(Error::Local { path: String::new(), what }) } else { Ok(()) }
    });
    staged.unwrap_err();
    writer.publish().unwrap();
    let expected = [[1; 3].as_slice(), &[0; 7]].concat();
    assert_eq!(states(&bucket.reader().unwrap().view(), file, 10).unwrap(), expected);
}

#[test]
fn what_was_cut_and_removed_does_not_come_back() {
    let Some(site) = Site::start() else { return };
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
fn pages_written_in_order_take_a_run_for_each_object_in_memory() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..2420), 1).unwrap();
    // 20 objects; two more runs at the ends of rows of the map.
    assert_eq!(writer.space().runs, 22);
}

#[test]
fn a_tablespace_is_not_made_twice_and_not_opened_where_there_is_none() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.bucket(Faults::default(), 1);
    assert!(matches!(bucket.writer(Takeover::Force), Err(Error::Absent { .. })));
    assert!(matches!(bucket.reader(), Err(Error::Absent { .. })));
    bucket.create(PAGE as u32).unwrap();
    assert!(matches!(bucket.create(PAGE as u32), Err(Error::Exists { .. })));
    assert!(matches!(bucket.create(1000), Err(Error::Setting { .. })));
    assert!(site.paths("space/probes").is_empty());
    assert!(site.paths("space/readers").is_empty());
}
