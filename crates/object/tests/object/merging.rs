//! Space and writing stay bounded under churn, and readers of old versions read on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use forebay_object::{Bucket, Error, Options, Takeover};
use tokio::runtime::Builder;

use super::pages::{PAGE, commit, fill, pages, state_in, states};
use super::site::Site;
use super::store::{Faults, World};

/// Blocks of the file that is changed: 33 objects' worth.
const BLOCKS: u32 = 4000;

/// An hour of checkpoints, one a minute, each of an eighth of the pages at random; and the same with
/// few pages, most of them in a corner.
#[test]
fn space_is_at_most_twice_the_data_and_three_bytes_are_put_for_a_dirty_one() {
    for (dirty, skewed, minutes) in
        [(BLOCKS / 8, false, 60), (BLOCKS / 8, true, 60), (6, true, 600)]
    {
        let site = Site::new();
        let (bucket, _) = site.created(1);
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        let file = writer.create_file("table").unwrap();
        commit(&writer, &pages(file, 0..BLOCKS), 1).unwrap();
        let mut model = vec![1; BLOCKS as usize];
        let mut rng = Rng::with_seed(7);
        let before = bucket.stats();
        let (mut space_most, mut objects_most) = (0.0_f64, 0);
        for state in 2..minutes + 2 {
            let corner = if skewed && rng.u32(0..10) > 0 { BLOCKS / 5 } else { BLOCKS };
            let mut blocks: Vec<u32> = (0..dirty).map(|_| rng.u32(0..corner)).collect();
            blocks.sort_unstable();
            blocks.dedup();
            for block in &blocks {
                model[*block as usize] = state;
            }
            commit(&writer, &pages(file, blocks), state).unwrap();
            let live = f64::from(BLOCKS) * PAGE as f64;
            space_most = space_most.max(site.world.bytes_below("space/") as f64 / live);
            writer.maintain().unwrap();
            space_most = space_most.max(site.world.bytes_below("space/") as f64 / live);
            objects_most = objects_most.max(writer.space().objects);
            site.sleep(Duration::from_secs(60));
        }
        assert_eq!(states(&writer.view(), file, BLOCKS).unwrap(), model);
        let stats = bucket.stats();
        let written = stats.bytes_written - before.bytes_written;
        let of_dirty = written as f64 / (stats.bytes_dirty - before.bytes_dirty) as f64;
        println!(
            "{dirty} dirty, skewed {skewed}: space at most {space_most:.2} of the data, {of_dirty:.2} bytes put for a \
             dirty one, at most {objects_most} objects"
        );
        assert!(space_most <= 2.0, "space: {space_most:.2}");
        assert!(of_dirty <= 3.0, "writing: {of_dirty:.2}");
        assert!(objects_most <= 200, "objects: {objects_most}");
    }
}

/// Removing a file leaves every object half empty; a commit that puts nothing may merge one object's worth ([MRG-2]).
#[test]
fn merging_is_paid_by_what_is_put_however_much_there_is_to_merge() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let [kept, removed] = ["kept", "removed"].map(|name| writer.create_file(name).unwrap());
    for at in 0..16 {
        let blocks = at * 60..(at + 1) * 60;
        commit(&writer, &[pages(kept, blocks.clone()), pages(removed, blocks)].concat(), 1)
            .unwrap();
    }
    writer.remove_file(removed).unwrap();
    writer.close().unwrap();
    let (elsewhere, _) = site.bucket(Faults::default(), 2);
    let writer = elsewhere.writer(Takeover::Refuse).unwrap();
    for _ in 0..20 {
        writer.maintain().unwrap();
    }
    let merged = elsewhere.stats().bytes_merged;
    assert!(merged > 0 && merged <= 64 << 10, "{merged} bytes merged, {:?}", writer.space());
    assert_eq!(states(&writer.view(), kept, 960).unwrap(), [1; 960]);
}

/// A file is cut and grows again while a merge reads its pages, which are then in the new object.
#[test]
fn snp_3_what_is_cut_during_a_merge_stays_cut() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let writer = Arc::new(bucket.writer(Takeover::Refuse).unwrap());
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, 60 * PAGE as u64).unwrap();
    commit(&writer, &pages(file, 0..60), 1).unwrap();
    commit(&writer, &pages(file, 0..45), 2).unwrap();
    let own = Arc::clone(&writer);
    handle.at_next_get(move || {
        own.set_len(file, 50 * PAGE as u64).unwrap();
        own.set_len(file, 60 * PAGE as u64).unwrap();
    });
    assert_eq!(writer.maintain().unwrap().merged, 1);
    let expected = [[2; 45].as_slice(), &[1; 5], &[0; 10]].concat();
    assert_eq!(states(&writer.view(), file, 60).unwrap(), expected);
    writer.publish().unwrap();
    let reader = bucket.reader().unwrap();
    assert_eq!(states(&reader.view(), file, 60).unwrap(), expected, "[SNP-3]");
}

/// Staged pages, cuts and names are half of a checkpoint until the whole is published.
#[test]
fn wrt_4_maintenance_publishes_nothing_of_what_is_under_way() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    writer.set_len(file, 60 * PAGE as u64).unwrap();
    commit(&writer, &pages(file, 0..60), 1).unwrap();
    commit(&writer, &pages(file, 0..45), 2).unwrap();
    let staged = pages(file, 10..30);
    writer
        .stage(&staged, &mut |page, bytes| {
            fill(page, 3, bytes);
            Ok(())
        })
        .unwrap();
    writer.set_len(file, 50 * PAGE as u64).unwrap();
    writer.create_file("other").unwrap();
    assert!(writer.maintain().unwrap().merged > 0);
    let seen = || bucket.reader().unwrap().view();
    let before = [[2; 45].as_slice(), &[1; 15]].concat();
    assert_eq!(states(&seen(), file, 60).unwrap(), before, "[WRT-4]");
    assert_eq!((seen().files().len(), seen().files()[0].bytes), (1, 60 * PAGE as u64), "[WRT-4]");
    writer.publish().unwrap();
    let after = [[2; 10].as_slice(), &[3; 20], &[2; 15], &[1; 5], &[0; 10]].concat();
    assert_eq!(states(&seen(), file, 60).unwrap(), after);
    assert_eq!(seen().files().len(), 2);
    site.sleep(Duration::from_secs(3600));
    assert!(writer.maintain().unwrap().deleted > 0);
    assert_eq!(states(&seen(), file, 60).unwrap(), after);
}

#[test]
fn a_reader_at_an_old_version_reads_to_its_end_while_all_of_it_is_merged_away() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..1000), 1).unwrap();
    let (elsewhere, _) = site.bucket(Faults::default(), 2);
    let reader = elsewhere.reader().unwrap();
    let view = reader.view();
    let mut rng = Rng::with_seed(3);
    for state in 2..40 {
        let blocks = (0..1000).filter(|_| rng.u32(0..3) == 0);
        commit(&writer, &pages(file, blocks), state).unwrap();
        writer.maintain().unwrap();
        // The reader refreshes at first, and holds the old view as well; then only its lease is renewed.
        if state < 6 {
            reader.refresh().unwrap();
        }
        site.sleep(Duration::from_secs(10));
        let from = (state as u32 - 2) * 25;
        view.read_pages(&pages(file, from..from + 25), &mut |page, bytes| {
            assert_eq!(state_in(page, bytes), 1, "[LEA-1] [WRT-2]");
        })
        .unwrap();
    }
    let waiting = writer.maintain().unwrap().waiting;
    assert!(waiting > 50, "the reader's objects wait: {waiting}");
    drop(view);
    reader.close().unwrap();
    let done = writer.maintain().unwrap();
    assert!(done.deleted >= waiting && done.waiting == 0, "{done:?}");
    assert_eq!(site.world.bytes_below("space/data"), writer.space().stored_bytes);
}

#[test]
fn a_reader_that_is_dead_holds_nothing_longer_than_its_lease() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..100), 1).unwrap();
    let (elsewhere, handle) = site.bucket(Faults::default(), 2);
    let reader = elsewhere.reader().unwrap();
    let view = reader.view();
    handle.die_after(1, false);
    commit(&writer, &pages(file, 0..100), 2).unwrap();
    site.sleep(Duration::from_secs(50));
    assert_eq!(writer.maintain().unwrap().deleted, 0);
    site.sleep(Duration::from_secs(20));
    assert_eq!(writer.maintain().unwrap().deleted, 1);
    // When it is back, it gets the error.
    handle.die_after(1 << 40, false);
    assert!(matches!(states(&view, file, 10), Err(Error::Expired { .. })));
    reader.refresh().unwrap();
    assert_eq!(states(&reader.view(), file, 10).unwrap(), [2; 10]);
    // Its earlier leases expire at last.
    site.sleep(Duration::from_secs(10));
    writer.maintain().unwrap();
}

#[test]
fn where_lists_are_out_of_date_the_grace_keeps_what_a_new_reader_needs() {
    for (grace, kept) in [(Duration::from_secs(30), true), (Duration::ZERO, false)] {
        let site = Site::new();
        let options = Options { grace, ..site.options(1) };
        let behind = Faults { lists_behind: Duration::from_secs(20), ..Faults::default() };
        let (bucket, _) = site.bucket_with(behind.clone(), options);
        bucket.create(PAGE as u32).unwrap();
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        let file = writer.create_file("table").unwrap();
        commit(&writer, &pages(file, 0..100), 1).unwrap();
        site.sleep(Duration::from_secs(60));
        let (elsewhere, _) = site.bucket(behind, 2);
        let reader = elsewhere.reader().unwrap();
        commit(&writer, &pages(file, 0..100), 2).unwrap();
        // The list does not show the reader's lease yet.
        writer.maintain().unwrap();
        let read = states(&reader.view(), file, 100);
        assert_eq!(read.is_ok(), kept, "with a grace of {grace:?}: {:?}", read.err());
        site.sleep(Duration::from_secs(40));
        writer.maintain().unwrap();
        assert_eq!(states(&reader.view(), file, 100).is_ok(), kept);
        reader.close().unwrap();
        site.sleep(Duration::from_secs(40));
        writer.maintain().unwrap();
        assert_eq!(writer.space().obsolete_bytes, 0);
    }
}

/// Readers open, read and close while a writer commits and merges, all over a store that fails now and then.
#[test]
fn every_read_is_of_one_version() {
    for seed in crate::crashes::seeds(15) {
        let mut rng = Rng::with_seed(seed);
        let site = Site::new();
        let (bucket, handle) = site.created(seed);
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        let file = writer.create_file("table").unwrap();
        let faults = Faults {
            unavailable: 20,
            answer_lost: 20,
            truncated: 10,
            damaged: 5,
            ..Faults::default()
        };
        handle.set_faults(faults.clone());
        let mut model = vec![0_u64; 300];
        let mut views = Vec::new();
        let (elsewhere, _) = site.bucket(faults, seed + 9);
        let mut reader = None;
        for state in 1..40 {
            let dirty: Vec<u32> = (0..300).filter(|_| rng.u32(0..4) == 0).collect();
            dirty.iter().for_each(|block| model[*block as usize] = state);
            commit(&writer, &pages(file, dirty), state).unwrap();
            match rng.u32(0..6) {
                0 | 1 => {
                    writer.maintain().unwrap();
                }
                2 => {
                    let reader = reader.get_or_insert_with(|| elsewhere.reader().unwrap());
                    reader.refresh().unwrap();
                    views.push((reader.view(), model.clone()));
                }
                3 if !views.is_empty() => {
                    views.swap_remove(rng.usize(0..views.len()));
                }
                _ => {}
            }
            for (view, model) in &views {
                let seen = states(view, file, 300);
                let seen = seen.unwrap_or_else(|it| panic!("FOREBAY_SEED={seed}: {it}"));
                assert_eq!(&seen, model, "FOREBAY_SEED={seed}");
            }
        }
    }
}

/// Readers open, read and close on another thread, at any moment of commits, merging and deleting ([LEA-1]).
#[test]
fn readers_that_come_at_any_moment_read_to_their_end() {
    // Time is real here: the two threads are not coordinated.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = Arc::new(runtime.unwrap());
    let world = World::new(&runtime);
    let bucket = |seed| {
        let latency = (Duration::from_millis(1), Duration::from_millis(10));
        let handle = world.handle(Faults { latency, ..Faults::default() }, seed);
        let runtime = Some(Arc::clone(&runtime));
        let options = Options { object_bytes: 64 << 10, runtime, ..Options::default() };
        Bucket::new(handle, "space", options).unwrap()
    };
    let (here, elsewhere) = (bucket(1), bucket(2));
    here.create(PAGE as u32).unwrap();
    let writer = here.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..300), 1).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut reads = 0_u32;
            while !stop.load(Ordering::SeqCst) {
                let reader = elsewhere.reader().unwrap();
                let view = reader.view();
                let first = states(&view, file, 300).unwrap();
                assert_eq!(states(&view, file, 300).unwrap(), first);
                // All of it is put with each commit.
                assert!(first.iter().all(|it| *it == first[0]), "{first:?}");
                reads += 1;
                drop(view);
                reader.close().unwrap();
            }
            reads
        });
        for state in 2..150 {
            commit(&writer, &pages(file, 0..300), state).unwrap();
            writer.maintain().unwrap();
            if reads.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::SeqCst);
        let reads = reads.join().unwrap();
        assert!(reads > 10, "{reads} readers");
    });
}

#[test]
fn a_view_of_the_writers_own_keeps_what_it_needs() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..100), 1).unwrap();
    let view = writer.view();
    commit(&writer, &pages(file, 0..100), 2).unwrap();
    let done = writer.maintain().unwrap();
    assert_eq!((done.deleted, done.waiting), (0, 1), "[WRT-2]");
    assert_eq!(states(&view, file, 100).unwrap(), [1; 100]);
    drop(view);
    assert_eq!(writer.maintain().unwrap().deleted, 1);
    assert_eq!(states(&writer.view(), file, 100).unwrap(), [2; 100]);
}
