//! Names after a power cut.

use std::collections::BTreeSet;

use forebay_io::{Error, OpenOptions, OsError};
use forebay_sim::Image;

use crate::rig::{Rig, sectors};

fn names(image: &Image) -> String {
    let names = image.files().into_iter().map(|path| path.to_str().unwrap().to_owned());
    names.collect::<Vec<_>>().join(" ")
}

fn seen(rig: &Rig) -> BTreeSet<String> {
    rig.crashes().iter().map(names).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_new_name_is_lost_sometimes_without_a_directory_sync_and_never_after_one() {
    let rig = Rig::new();
    let file = rig.open("f");
    rig.write(&file, 0, &sectors(b"x"));
    // A sync of the file makes its bytes durable, but not its name.
    file.sync_all().unwrap();
    assert_eq!(seen(&rig), set(&["", "f"]));
    rig.volume.sync_directory(rig.disk.directory()).unwrap();
    assert_eq!(seen(&rig), set(&["f"]), "[CRS-1]");
}

#[test]
fn a_removed_file_comes_back_sometimes_and_never_after_a_directory_sync() {
    let rig = Rig::new();
    rig.file("f");
    rig.volume.remove(&rig.path("f")).unwrap();
    assert_eq!(seen(&rig), set(&["", "f"]));
    rig.volume.sync_directory(rig.disk.directory()).unwrap();
    assert_eq!(seen(&rig), set(&[""]), "[CRS-1]");
}

#[test]
fn of_several_changes_in_a_directory_every_subset_survives_sometimes() {
    let rig = Rig::new();
    rig.file("a");
    rig.volume.remove(&rig.path("a")).unwrap();
    rig.open("b");
    rig.open("c");
    let all = ["", "a", "b", "c", "a b", "a c", "b c", "a b c"];
    assert_eq!(seen(&rig), set(&all));
}

#[test]
fn a_rename_survives_wholly_or_not_at_all() {
    let rig = Rig::new();
    let old = rig.file("control");
    rig.write(&old, 0, &sectors(b"o"));
    old.sync_data().unwrap();
    let new = rig.open("control.new");
    rig.write(&new, 0, &sectors(b"n"));
    new.sync_data().unwrap();
    rig.volume.rename(&rig.path("control.new"), &rig.path("control")).unwrap();
    let mut contents = BTreeSet::new();
    for image in rig.crashes() {
        let control = image.file("control").expect("one of the two is always there")[0];
        contents.insert((control, image.exists("control.new")));
    }
    assert_eq!(contents, BTreeSet::from([(b'o', false), (b'o', true), (b'n', false)]));
    rig.volume.sync_directory(rig.disk.directory()).unwrap();
    for image in rig.crashes() {
        assert_eq!(
            (image.file("control").unwrap()[0], names(&image)),
            (b'n', "control".to_owned())
        );
    }
}

#[test]
fn a_directory_whose_name_is_lost_takes_its_files_along() {
    let rig = Rig::new();
    rig.volume.make_directory(&rig.path("d")).unwrap();
    rig.open("d/f");
    rig.volume.sync_directory(&rig.path("d")).unwrap();
    let journal = rig.disk.journal();
    // Entry 0 creates the directory, entry 1 syncs its parent.
    let early: BTreeSet<bool> = (0..100).map(|seed| journal.crash(1, seed).exists("d")).collect();
    assert_eq!(early, BTreeSet::from([false, true]));
    assert!((0..100).all(|seed| journal.crash(2, seed).exists("d")), "[CRS-1]");
    assert_eq!(seen(&rig), set(&["d/f"]), "[CRS-1]");
}

#[test]
fn jrn_1_a_new_file_of_an_old_name_is_another_file() {
    let rig = Rig::new();
    let old = rig.file("f");
    rig.write(&old, 0, &sectors(b"old"));
    old.sync_data().unwrap();
    rig.volume.remove(&rig.path("f")).unwrap();
    drop(old);
    let new = rig.open("f");
    rig.write(&new, 0, &sectors(b"n"));
    new.sync_data().unwrap();
    let mut contents = BTreeSet::new();
    for image in rig.crashes() {
        contents.insert(image.file("f").map(|bytes| (bytes.len() / 512, bytes[0])));
    }
    assert_eq!(contents, BTreeSet::from([None, Some((3, b'o')), Some((1, b'n'))]), "[JRN-1]");
}

#[test]
fn what_the_system_would_refuse_is_refused_and_not_recorded() {
    let rig = Rig::new();
    rig.file("f");
    let at = rig.disk.position();
    let again = rig.volume.open(&rig.path("f"), &OpenOptions::new().create_new(true));
    assert!(matches!(again, Err(Error::Open { .. })));
    assert!(rig.volume.remove(&rig.path("g")).is_err());
    assert!(rig.volume.rename(&rig.path("g"), &rig.path("h")).is_err());
    let elsewhere = rig.volume.remove(std::path::Path::new("/nowhere/f")).unwrap_err();
    assert_eq!(elsewhere.os_error(), Some(OsError::from_raw(2)));
    assert_eq!(rig.disk.position(), at);
}

#[test]
#[should_panic(expected = "past the disk's volume")]
fn a_file_that_was_made_past_the_volume_is_a_bug_of_the_test() {
    let rig = Rig::new();
    std::fs::write(rig.path("f"), "?").unwrap();
    rig.open("f").set_len(9).unwrap();
}
