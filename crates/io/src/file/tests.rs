//! Tests of files: modes, the latch, private descriptors, space, residency.

use super::*;
use crate::properties::Hint;

fn scratch() -> (tempfile::TempDir, File) {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new().create_new(true);
    let file = File::open(&directory.path().join("file"), &options).unwrap();
    (directory, file)
}

#[test]
fn fil_1_one_file_cannot_be_open_in_both_modes() {
    let (directory, file) = scratch();
    let path = directory.path().join("file");
    let direct = OpenOptions::new().cache(CacheMode::Direct);
    match File::open(&path, &direct) {
        Err(Error::MixedModes { open_as: CacheMode::Buffered, .. }) => {
            // A hard link is the same file under another name.
            let link = directory.path().join("link");
            std::fs::hard_link(&path, &link).unwrap();
            let linked = File::open(&link, &direct);
            assert!(matches!(linked, Err(Error::MixedModes { .. })), "[FIL-1] {linked:?}");
            drop(file);
            File::open(&path, &direct).unwrap();
        }
        Err(Error::DirectRefused { .. }) => {} // no direct I/O on this filesystem: nothing to mix
        other => panic!("[FIL-1] {other:?}"),
    }
}

#[test]
fn fil_2_a_failed_sync_latches_every_open_of_the_file() {
    let (directory, file) = scratch();
    let other = File::open(&directory.path().join("file"), &OpenOptions::new()).unwrap();
    let error = file.failure(Op::SyncData.into(), 0..0, OsError::EIO);
    let error = file.sync_failed(error);
    assert!(matches!(error, Error::Io { source: OsError::EIO, .. }));
    for handle in [&file, &other, &other.private(Hint::Normal).unwrap()] {
        assert!(matches!(handle.sync_data(), Err(Error::Failed { .. })), "[FIL-2]");
        assert!(matches!(handle.set_len(1), Err(Error::Failed { .. })), "[FIL-2]");
    }
    drop((file, other));
    let reopened = File::open(&directory.path().join("file"), &OpenOptions::new()).unwrap();
    reopened.sync_data().unwrap();
}

#[test]
fn a_private_descriptor_is_another_description_of_the_same_file_and_is_reused() {
    let (_directory, file) = scratch();
    file.set_len(8192).unwrap();
    let private = file.private(Hint::Normal).unwrap();
    let number = private.descriptor_number();
    assert_ne!(number, file.descriptor_number());
    assert_eq!(private.len().unwrap(), 8192);
    drop(private);
    let again = file.private(Hint::Normal).unwrap();
    assert_eq!(again.descriptor_number(), number);
}

#[test]
fn a_hint_is_taken_or_refused_aloud() {
    let (_directory, file) = scratch();
    for hint in [Hint::Random, Hint::Sequential] {
        let refused = matches!(file.private(hint), Err(Error::Unsupported { .. }));
        assert_eq!(refused, cfg!(not(all(target_os = "linux", not(forebay_portable)))));
    }
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn a_private_descriptor_works_after_the_file_was_removed() {
    let (directory, file) = scratch();
    std::fs::remove_file(directory.path().join("file")).unwrap();
    file.set_len(1).unwrap();
    assert_eq!(file.private(Hint::Normal).unwrap().len().unwrap(), 1);
}

#[test]
fn a_read_only_file_refuses_to_change() {
    let (directory, _file) = scratch();
    let options = OpenOptions::new().read_only(true);
    let file = File::open(&directory.path().join("file"), &options).unwrap();
    assert!(matches!(file.set_len(1), Err(Error::Permission { .. })));
    let reserve = file.preallocate(0..1, Preallocate::Extend);
    assert!(matches!(reserve, Err(Error::Permission { .. })));
}

#[test]
fn opening_says_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let missing = File::open(&directory.path().join("no"), &OpenOptions::new()).unwrap_err();
    assert!(missing.to_string().contains("check the path"), "{missing}");
    let a_directory =
        File::open(directory.path(), &OpenOptions::new().read_only(true)).unwrap_err();
    assert!(a_directory.to_string().contains("it is a directory"), "{a_directory}");
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn residency_follows_what_is_read_and_dropped() {
    let (directory, file) = scratch();
    let bytes = 64 * sys::page_bytes();
    let plain = std::fs::File::options().write(true).open(directory.path().join("file")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&plain, &vec![3; bytes as usize], 0).unwrap();
    let full = file.residency(0..u64::MAX).unwrap();
    assert_eq!((full.pages, full.pages_resident), (64, 64));
    file.sync_data().unwrap();
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    if file.filesystem() != "tmpfs" {
        assert_eq!(file.residency(0..u64::MAX).unwrap().pages_resident, 0);
        file.advise(0..bytes / 2, Advice::WillNeed).unwrap();
        let half = file.residency(0..bytes / 2).unwrap();
        assert!(half.pages_resident > 0, "{half:?}");
    }
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn space_can_be_reserved_with_and_without_growing() {
    let (_directory, file) = scratch();
    match file.preallocate(0..1 << 20, Preallocate::KeepSize) {
        Err(Error::Unsupported { .. }) => return, // a filesystem that cannot
        result => result.unwrap(),
    }
    assert_eq!(file.len().unwrap(), 0);
    file.preallocate(0..1 << 20, Preallocate::Extend).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn writeback_cleans_the_range() {
    let (directory, file) = scratch();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![5; 1 << 20]).unwrap();
    file.start_writeback(0..1 << 20).unwrap();
    file.wait_writeback(0..1 << 20).unwrap();
    if let Some(dirty) = file.residency(0..1 << 20).unwrap().pages_dirty
        && file.filesystem() != "tmpfs"
    {
        assert_eq!(dirty, 0);
    }
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
#[test]
fn direct_on_tmpfs_is_refused_and_the_fallback_is_reported() {
    let path = Path::new("/dev/shm").join(format!("forebay-io-{}", std::process::id()));
    let options = OpenOptions::new().create(true).cache(CacheMode::Direct);
    let refused = File::open(&path, &options);
    let fallback = File::open(&path, &options.clone().buffered_if_refused(true));
    let _ = std::fs::remove_file(&path);
    match refused {
        Err(Error::DirectRefused { filesystem, .. }) => assert_eq!(filesystem, "tmpfs"),
        Err(Error::Open { .. }) => return, // no /dev/shm here
        other => panic!("{other:?}"),
    }
    let fallback = fallback.unwrap();
    assert_eq!(fallback.cache_mode(), CacheMode::Buffered);
    assert!(matches!(fallback.fallback(), Some(Error::DirectRefused { .. })));
}
