//! Tests of volumes: every change is reported and made once, and a refused change is not made.

use std::sync::Mutex;

use std::sync::Arc;

use super::*;
use crate::backend::Kind;
use crate::file::Interpose;
use crate::properties::Hint;
use crate::{Arena, Io, IoOptions, Prefer, Request};

/// Records the changes it receives, and refuses those that a test selects.
#[derive(Debug, Default)]
struct Witness {
    reported: Mutex<Vec<String>>,
    refuse: Mutex<Option<(&'static str, OsError)>>,
}

impl Witness {
    fn reported(&self) -> Vec<String> {
        std::mem::take(&mut self.reported.lock().unwrap())
    }

    fn refuse(&self, what: &'static str, error: OsError) {
        *self.refuse.lock().unwrap() = Some((what, error));
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn said(change: &Change<'_>) -> String {
    match change {
        Change::Create { path } => format!("create {}", name(path)),
        Change::MakeDirectory { path } => format!("make {}", name(path)),
        Change::Remove { path } => format!("remove {}", name(path)),
        Change::Rename { from, to } => format!("rename {} {}", name(from), name(to)),
        Change::SyncDirectory { path } => format!("sync-names {}", name(path)),
        Change::SetLen { file, len } => format!("len {} {len}", name(file.path())),
        Change::Preallocate { file, range, .. } => {
            format!("reserve {} {range:?}", name(file.path()))
        }
        Change::Sync { file, op } => format!("{op} {}", name(file.path())),
        Change::Writeback { file, wait, .. } => {
            format!("writeback {} {wait}", name(file.path()))
        }
    }
}

impl Interpose for Witness {
    fn execute(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let said = said(change);
        let refused = *self.refuse.lock().unwrap();
        if let Some((_, error)) = refused.filter(|(what, _)| said.starts_with(what)) {
            self.reported.lock().unwrap().push(format!("no {said}"));
            return Err(error);
        }
        let made = make();
        self.reported.lock().unwrap().push(said);
        made
    }
}

fn scratch() -> (tempfile::TempDir, Arc<Witness>, Volume) {
    let witness = Arc::new(Witness::default());
    let volume = Volume::over(Arc::clone(&witness) as Arc<dyn Interpose>);
    (tempfile::tempdir().unwrap(), witness, volume)
}

#[test]
fn every_change_of_a_file_and_of_names_is_reported_once() {
    let (directory, witness, volume) = scratch();
    let path = |name: &str| directory.path().join(name);
    volume.make_directory(&path("a/b")).unwrap();
    let [above, scratch] = [directory.path().parent().unwrap(), directory.path()]
        .map(|path| format!("sync-names {}", name(path)));
    assert_eq!(witness.reported(), [&above, "make a", &scratch, "make b", "sync-names a"]);
    volume.make_directory(&path("a/b")).unwrap();
    assert_eq!(witness.reported(), ["sync-names a"], "[VOL-1] what is there is not made");

    let file = volume.open(&path("a/f"), &OpenOptions::new().create(true)).unwrap();
    let again = volume.open(&path("a/f"), &OpenOptions::new().create(true)).unwrap();
    assert_eq!(witness.reported(), ["create f"]);
    assert_eq!(file.number(), again.number());

    file.set_len(10).unwrap();
    again.private(Hint::Normal).unwrap().sync_all().unwrap();
    file.clone().sync_data().unwrap();
    assert_eq!(witness.reported(), ["len f 10", "sync f", "data sync f"]);

    volume.rename(&path("a/f"), &path("a/g")).unwrap();
    volume.sync_directory(&path("a")).unwrap();
    volume.remove(&path("a/g")).unwrap();
    assert_eq!(witness.reported(), ["rename f g", "sync-names a", "remove g"]);
    assert!(!volume.exists(&path("a/g")).unwrap());
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn reserving_space_and_writeback_are_reported() {
    let (directory, witness, volume) = scratch();
    let path = directory.path().join("f");
    let file = volume.open(&path, &OpenOptions::new().create_new(true)).unwrap();
    // Filesystems differ in support; the interposer is called in any case.
    let reserved = file.preallocate(0..4096, crate::properties::Preallocate::Extend);
    assert!(matches!(reserved, Ok(()) | Err(Error::Unsupported { .. })), "{reserved:?}");
    file.start_writeback(0..4096).unwrap();
    file.wait_writeback(0..4096).unwrap();
    let expected = ["create f", "reserve f 0..4096", "writeback f false", "writeback f true"];
    assert_eq!(witness.reported(), expected);
}

#[test]
fn vol_1_what_is_refused_is_not_done_and_vol_2_is_the_error_the_system_would_give() {
    let (directory, witness, volume) = scratch();
    let path = |name: &str| directory.path().join(name);
    let create = OpenOptions::new().create(true);
    let file = volume.open(&path("f"), &create).unwrap();
    let full = OsError::ENOSPC;

    witness.refuse("create", full);
    let refused = volume.open(&path("g"), &create).unwrap_err();
    assert!(matches!(refused, Error::Open { source: OsError::ENOSPC, .. }), "[VOL-2] {refused}");
    assert!(!path("g").exists(), "[VOL-1]");
    volume.open(&path("f"), &create).unwrap();

    witness.refuse("len", full);
    let refused = file.set_len(9).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "[VOL-2] {refused}");
    assert_eq!(file.len().unwrap(), 0, "[VOL-1]");

    witness.refuse("remove", OsError::EROFS);
    let refused = volume.remove(&path("f")).unwrap_err();
    assert!(matches!(refused, Error::Name { op: NameOp::Remove, .. }), "[VOL-2] {refused}");
    witness.refuse("rename", full);
    let refused = volume.rename(&path("f"), &path("g")).unwrap_err();
    assert!(matches!(refused, Error::Name { op: NameOp::Rename, .. }), "[VOL-2] {refused}");
    witness.refuse("make", full);
    let refused = volume.make_directory(&path("d")).unwrap_err();
    assert!(matches!(refused, Error::Name { op: NameOp::MakeDirectory, .. }), "[VOL-2] {refused}");
    assert!(path("f").exists() && !path("g").exists() && !path("d").exists(), "[VOL-1]");

    witness.refuse("sync-names", OsError::EIO);
    let refused = volume.sync_directory(directory.path()).unwrap_err();
    assert!(refused.is_failed_sync(), "[VOL-2] {refused}");
}

#[test]
fn a_refused_sync_latches_the_file_however_it_is_requested() {
    for by_queue in [false, true] {
        let (directory, witness, volume) = scratch();
        let create = OpenOptions::new().create(true);
        let file = volume.open(&directory.path().join("f"), &create).unwrap();
        witness.refuse("data sync", OsError::EIO);
        let sync = || match by_queue {
            false => file.sync_data(),
            true => {
                let prefer = Prefer::Only(Kind::Sync);
                let io = Io::open(&IoOptions { prefer, ..IoOptions::default() }).unwrap();
                io.submit(Request::sync_data(&file)).wait().result
            }
        };
        let error = sync().unwrap_err();
        assert!(matches!(error, Error::Io { source: OsError::EIO, .. }), "[VOL-2] {error}");
        assert!(matches!(sync(), Err(Error::Failed { .. })));
        assert_eq!(witness.reported(), ["create f", "no data sync f"], "the latch comes first");
    }
}

#[test]
fn a_missing_file_that_is_not_created_is_not_reported() {
    let (directory, witness, volume) = scratch();
    let absent = volume.open(&directory.path().join("f"), &OpenOptions::new());
    assert!(matches!(absent, Err(Error::Open { .. })));
    assert!(witness.reported().is_empty());
}

#[test]
fn vol_1_an_existing_directory_is_no_failure_but_a_file_is() {
    let (directory, _, volume) = scratch();
    let path = directory.path().join("f");
    volume.open(&path, &OpenOptions::new().create(true)).unwrap();
    for below in [path.clone(), path.join("d")] {
        let refused = volume.make_directory(&below).unwrap_err();
        assert!(matches!(&refused, Error::Name { file, .. } if **file == *below), "{refused}");
    }
}

/// Otherwise a power cut would remove the directory, with durable files in it.
#[test]
fn a_directory_that_could_not_be_made_durable_is_made_durable_by_the_next_call() {
    let (directory, witness, volume) = scratch();
    let path = |name: &str| directory.path().join(name);
    volume.make_directory(&path("a")).unwrap();
    witness.refuse("sync-names a", OsError::EIO);
    volume.make_directory(&path("a/b")).unwrap_err();
    assert!(path("a/b").exists());
    volume.make_directory(&path("a/b")).unwrap_err();
    witness.refuse("nothing", OsError::EIO);
    witness.reported();
    volume.make_directory(&path("a/b")).unwrap();
    assert_eq!(witness.reported(), ["sync-names a"]);
}

#[test]
#[should_panic(expected = "[VOL-1]")]
fn vol_1_an_interposer_that_makes_a_change_twice_is_a_bug() {
    #[derive(Debug)]
    struct Twice;
    impl Interpose for Twice {
        fn execute(
            &self,
            _: &Change<'_>,
            make: &mut dyn FnMut() -> Result<(), OsError>,
        ) -> Result<(), OsError> {
            make().and_then(|()| make())
        }
    }
    let (directory, _, _) = scratch();
    let volume = Volume::over(Arc::new(Twice));
    drop(volume.open(&directory.path().join("f"), &OpenOptions::new().create(true)));
}

#[test]
fn reads_and_writes_are_the_backends_and_not_reported() {
    let (directory, witness, volume) = scratch();
    let create = OpenOptions::new().create(true);
    let file = volume.open(&directory.path().join("f"), &create).unwrap();
    witness.reported();
    let io = Io::open(&IoOptions::default()).unwrap();
    let arena = Arena::new(1, 4096).unwrap();
    let lease = arena.take().unwrap();
    io.submit(Request::write(&file, 0, vec![lease])).wait().into_result().unwrap();
    assert!(witness.reported().is_empty());
}

#[test]
fn a_file_is_known_by_its_number_whatever_it_is_called_and_until_no_name_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
    let volume = Volume::system();
    let file = volume.open(&one, &OpenOptions::new().create(true)).unwrap();
    assert_eq!(volume.number(&two).unwrap(), None);
    std::fs::hard_link(&one, &two).unwrap();
    assert_eq!([&one, &two].map(|path| volume.number(path).unwrap()), [Some(file.number()); 2]);
    volume.remove(&one).unwrap();
    assert!(file.has_name().unwrap());
    volume.rename(&two, &one).unwrap();
    assert_eq!(volume.number(&one).unwrap(), Some(file.number()));
    volume.remove(&one).unwrap();
    assert!(!file.has_name().unwrap());
    let below_a_file = directory.path().join("three");
    std::fs::write(&below_a_file, "").unwrap();
    assert!(volume.number(&below_a_file.join("x")).is_err(), "not certain that nothing is there");
}
