//! What is undone, what is left alone, and what is reported.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn made(path: &Path) -> Verdict {
    undo(&Change::Directory { path: path.to_owned(), contents: true })
}

#[test]
fn a_readahead_is_put_back_only_while_it_is_one_that_the_run_set() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("read_ahead_kb");
    let undone = |seen: u64, set_kib: &[u64]| {
        fs::write(&file, format!("{seen}\n")).unwrap();
        let (file, set_kib) = (file.clone(), set_kib.to_vec());
        undo(&Change::Readahead { file, found_kib: 8192, set_kib, of: None })
    };
    let ours = |seen| matches!(undone(seen, &[0, 130]), Verdict::Undone(_));
    assert!(ours(0) && ours(130));
    let rounded = 130 / (rustix::param::page_size() as u64 / 1024) * 4;
    assert!(ours(rounded) || rounded == 130, "the kernel counts in pages");
    assert_eq!(undone(8192, &[0, 130]), Verdict::Nothing);
    assert!(matches!(undone(4096, &[0, 130]), Verdict::NotOurs(_)), "[UND-1]");
    assert!(matches!(undone(0, &[]), Verdict::NotOurs(_)), "[UND-1]: it never set any");
}

#[test]
fn a_readahead_file_is_written_and_reported_by_the_name_of_its_device() {
    let scratch = tempfile::tempdir().unwrap();
    let queue = scratch.path().join("loop9/queue");
    fs::create_dir_all(&queue).unwrap();
    let file = queue.join("read_ahead_kb");
    let set_kib = vec![0];
    let change = Change::Readahead { file: file.clone(), found_kib: 128, set_kib, of: None };
    assert_eq!(undo(&change), Verdict::Nothing, "the device was removed");
    fs::write(&file, "0\n").unwrap();
    assert_eq!(undo(&change), Verdict::Undone("readahead of loop9 to 128 KiB".to_owned()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "128\n");
    assert_eq!(undo(&change), Verdict::Nothing);
    fs::write(&file, "64\n").unwrap();
    let Verdict::NotOurs(message) = undo(&change) else { panic!("[UND-1]") };
    assert!(message.contains("loop9 is 64 KiB now"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "64\n", "[UND-1]");

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let Verdict::Failed(why) = undo(&change) else { panic!("it is no file") };
    assert!(why.contains("read_ahead_kb cannot be set to 128 KiB"), "{why}");
    assert!(why.ends_with(&format!("; by hand: echo 128 > {}", file.display())), "{why}");
}

#[test]
fn a_mount_is_unmounted_only_while_it_shows_what_was_mounted() {
    let here = |source: &str| Mount {
        id: 7,
        device: "7:3".to_owned(),
        mount_point: "/mnt".into(),
        filesystem: "ext4".to_owned(),
        source: source.to_owned(),
        options: String::new(),
    };
    assert!(shows(&here("/dev/loop3"), "/dev/loop3"));
    assert!(!shows(&here("/dev/sda1"), "/dev/loop3"), "[UND-1]");
    // The source of a mount may be any name: its type decides.
    assert!(shows(&here("nvme"), "ext4"));
    assert!(!shows(&here("nvme"), "fuse.forebay"), "[UND-1]");
    // Nothing is mounted at a directory that was just made.
    let scratch = tempfile::tempdir().unwrap();
    let point = scratch.path().to_owned();
    let change = Change::Mount { point, source: "/dev/loop3".to_owned() };
    let verdict = undo(&change);
    assert!(verdict == Verdict::Nothing || !cfg!(target_os = "linux"), "{verdict:?}");
}

#[test]
fn a_loop_device_is_detached_only_in_the_use_that_was_logged() {
    let (file, other) = (Path::new("/mnt/disk"), Path::new("/srv/other"));
    let seen = |backing_file: &Path, sequence| Loop {
        name: "loop3".to_owned(),
        backing_file: backing_file.to_owned(),
        sequence,
    };
    assert!(seen(file, Some(7)).is(file, Some(7)));
    // Its filesystem was unmounted lazily: the path has changed, the use is the same.
    assert!(seen(Path::new("/disk"), Some(7)).is(file, Some(7)));
    assert!(!seen(file, Some(9)).is(file, Some(7)), "[UND-1]");
    // Kernels without the number, or a run that was killed before it knew: the path decides.
    assert!(seen(file, None).is(file, None) && seen(file, Some(9)).is(file, None));
    assert!(!seen(other, None).is(file, None), "[UND-1]");
    let change = Change::Loop { backing_file: "/no/such/file".into(), sequence: None };
    assert_eq!(undo(&change), Verdict::Nothing, "no device shows that file");
}

#[test]
fn only_a_directory_with_our_name_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let ours = scratch.path().join(".forebay-lab-x");
    assert_eq!(made(&ours), Verdict::Nothing);
    fs::create_dir(&ours).unwrap();
    fs::write(ours.join("blocks"), "data").unwrap();
    // Another user's file, reached through a link from inside.
    let kept = scratch.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "mine").unwrap();
    symlink(&kept, ours.join("link")).unwrap();
    assert_eq!(made(&ours), Verdict::Undone(format!("removed {}", ours.display())));
    assert!(!ours.exists());
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"mine", "[UND-2]");

    assert!(matches!(made(&kept), Verdict::NotOurs(_)), "another name");
    symlink(&kept, &ours).unwrap();
    assert!(matches!(made(&ours), Verdict::NotOurs(_)), "[UND-2]: a link");
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"mine", "[UND-2]");

    let (facts, uid) = (fs::metadata(&kept).unwrap(), fs::metadata(&kept).unwrap().uid());
    assert_eq!(foreign(&ours, &facts, uid), None);
    assert!(foreign(&ours, &facts, uid + 1).unwrap().contains("belongs to user"), "[UND-1]");
}

#[test]
fn a_mount_point_goes_only_when_it_is_empty_and_a_failure_names_the_command() {
    let scratch = tempfile::tempdir().unwrap();
    let point = scratch.path().join("forebay-mount x");
    fs::create_dir(&point).unwrap();
    fs::write(point.join("precious"), "data").unwrap();
    let change = Change::Directory { path: point.clone(), contents: false };
    let Verdict::Failed(why) = undo(&change) else { panic!("it is not empty") };
    assert!(why.contains("not empty"), "{why}");
    assert!(why.ends_with(&format!("; by hand: rmdir '{}'", point.display())), "{why}");
    fs::remove_file(point.join("precious")).unwrap();
    assert_eq!(undo(&change), Verdict::Undone(format!("removed {}", point.display())));
}

#[test]
fn a_directory_in_which_files_are_still_made_goes_when_that_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let ours = scratch.path().join(".forebay-lab-x");
    fs::create_dir(&ours).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..5_000 {
                // Fails as soon as the directory no longer exists.
                if fs::write(ours.join(number.to_string()), "late").is_err() {
                    break;
                }
            }
        });
        let message = format!("removed {}", ours.display());
        assert_eq!(made(&ours), Verdict::Undone(message));
    });
    assert!(!ours.exists());
}

#[test]
fn a_directory_that_cannot_be_removed_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let ours = scratch.path().join(".forebay-lab-x");
    fs::create_dir(&ours).unwrap();
    let closed = |mode| fs::set_permissions(scratch.path(), fs::Permissions::from_mode(mode));
    closed(0o500).unwrap();
    let verdict = made(&ours);
    closed(0o700).unwrap();
    // Root may do it anyway.
    if !rustix::process::geteuid().is_root() {
        let Verdict::Failed(why) = verdict else { panic!("{verdict:?}") };
        assert!(why.ends_with(&format!("; by hand: rm -r {}", ours.display())), "{why}");
    }
}

#[test]
fn the_readahead_of_an_ended_mount_is_not_restored_on_the_next_one() {
    let scratch = tempfile::tempdir().unwrap();
    // The number of an existing mount: of /proc, for example.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let anonymous = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    let Some(number) = anonymous.into_iter().find(|number| number.starts_with("0:")) else {
        return; // Not a Linux.
    };
    let directory = scratch.path().join("bdi").join(number);
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("read_ahead_kb");
    fs::write(&file, "128\n").unwrap();
    let change =
        |of| Change::Readahead { file: file.clone(), found_kib: 6144, set_kib: vec![128], of };
    let ended = change(Some("fuse.forebay nvme on /tmp/x, mount 4711".to_owned()));
    assert_eq!(undo(&ended), Verdict::Nothing, "[UND-1]");
    assert_eq!(fs::read_to_string(&file).unwrap(), "128\n", "[UND-1]");
    let Change::Readahead { of, .. } = Change::readahead(&file, 6144) else { unreachable!() };
    assert!(of.is_some());
    assert!(matches!(undo(&change(of)), Verdict::Undone(_)));
}

#[test]
fn what_is_mounted_in_our_directory_is_not_removed_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (ours, theirs) = (scratch.path().join(".forebay-lab-x"), scratch.path().join("theirs"));
    let inside = ours.join("inside");
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("precious"), "x").unwrap();
    let bind = [OsStr::new("--bind"), theirs.as_os_str(), inside.as_os_str()];
    if run("mount", &bind).is_err() {
        return; // Only root may.
    }
    let verdict = made(&ours);
    let kept = theirs.join("precious").exists();
    run("umount", &[inside.as_os_str()]).unwrap();
    assert!(kept, "[UND-2]");
    let Verdict::Failed(why) = verdict else { panic!("[UND-2] {verdict:?}") };
    assert!(why.contains("is mounted in it; by hand: umount "), "{why}");
    assert!(matches!(made(&ours), Verdict::Undone(_)));
}
