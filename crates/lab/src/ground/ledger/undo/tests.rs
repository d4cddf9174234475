//! What is undone, what is left alone, and what is told.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn not_ours(decision: &Decision) -> bool {
    matches!(decision, Decision::NotOurs(_))
}

fn made(path: &Path) -> Verdict {
    undo(&Change::Directory { path: path.to_owned(), contents: true })
}

#[test]
fn a_readahead_is_put_back_only_while_it_is_one_that_the_run_set() {
    let decide = |seen| decide_readahead(8192, &[0, 130], Some(seen));
    assert_eq!(decide(0), Decision::Undo);
    assert_eq!(decide(130), Decision::Undo);
    let rounded = 130 / (rustix::param::page_size() as u64 / 1024) * 4;
    if rounded < 130 {
        assert_eq!(decide(rounded), Decision::Undo, "the kernel counts in pages");
    }
    assert_eq!(decide(8192), Decision::Nothing);
    assert!(not_ours(&decide(4096)), "[UND-1]");
    assert!(not_ours(&decide_readahead(8192, &[], Some(0))), "[UND-1]: it never set any");
}

#[test]
fn a_readahead_file_is_written_and_told_by_the_name_of_its_device() {
    let scratch = tempfile::tempdir().unwrap();
    let queue = scratch.path().join("loop9/queue");
    fs::create_dir_all(&queue).unwrap();
    let file = queue.join("read_ahead_kb");
    let set_kib = vec![0];
    let change = Change::Readahead { file: file.clone(), found_kib: 128, set_kib, of: None };
    assert_eq!(undo(&change), Verdict::Nothing, "the device has gone");
    fs::write(&file, "0\n").unwrap();
    assert_eq!(undo(&change), Verdict::Undone("readahead of loop9 to 128 KiB".to_owned()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "128\n");
    assert_eq!(undo(&change), Verdict::Nothing);
    fs::write(&file, "64\n").unwrap();
    let Verdict::NotOurs(told) = undo(&change) else { panic!("[UND-1]") };
    assert!(told.contains("loop9 is 64 KiB now"), "{told}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "64\n", "[UND-1]");
    assert_eq!(holder(Path::new("/sys/class/bdi/0:57/read_ahead_kb")), "0:57");

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let Verdict::Failed { why, by_hand } = undo(&change) else { panic!("it is no file") };
    assert!(why.contains("read_ahead_kb"), "{why}");
    assert_eq!(by_hand, format!("echo 128 > {}", file.display()));
}

#[test]
fn a_mount_is_unmounted_only_while_it_shows_what_was_mounted() {
    let here = |source: &str| MountedHere { source: source.into(), filesystem: "ext4".into() };
    assert_eq!(decide_mount("/dev/loop3", None), Decision::Nothing);
    assert_eq!(decide_mount("/dev/loop3", Some(&here("/dev/loop3"))), Decision::Undo);
    assert!(not_ours(&decide_mount("/dev/loop3", Some(&here("/dev/sda1")))), "[UND-1]");
    // A mount whose source is any name: its type tells.
    assert_eq!(decide_mount("ext4", Some(&here("nvme"))), Decision::Undo);
    assert!(not_ours(&decide_mount("fuse.forebay", Some(&here("nvme")))), "[UND-1]");
    // Nothing is mounted at a directory that was just made.
    let scratch = tempfile::tempdir().unwrap();
    let point = scratch.path().to_owned();
    let change = Change::Mount { point, source: "/dev/loop3".to_owned() };
    let verdict = undo(&change);
    assert!(verdict == Verdict::Nothing || !cfg!(target_os = "linux"), "{verdict:?}");
}

#[test]
fn a_loop_device_is_detached_only_in_the_use_that_was_noted() {
    let (file, other) = (Path::new("/mnt/disk"), Path::new("/srv/other"));
    let noted = |sequence| Attached { name: "loop3".to_owned(), sequence };
    let seen = |backing_file: Option<&Path>, sequence| SeenLoop {
        name: "loop3".to_owned(),
        backing_file: backing_file.map(Path::to_path_buf),
        sequence,
    };
    let decide = |noted: &Attached, seen: &SeenLoop| decide_loop(file, noted, seen);
    assert_eq!(decide(&noted(Some(7)), &seen(None, Some(8))), Decision::Nothing);
    assert_eq!(decide(&noted(Some(7)), &seen(Some(file), Some(7))), Decision::Undo);
    // Its filesystem was unmounted lazily: the path is another one, the use is the same.
    assert_eq!(decide(&noted(Some(7)), &seen(Some(Path::new("/disk")), Some(7))), Decision::Undo);
    assert!(not_ours(&decide(&noted(Some(7)), &seen(Some(file), Some(9)))), "[UND-1]");
    // Kernels without the number: the path decides.
    assert_eq!(decide(&noted(None), &seen(Some(file), None)), Decision::Undo);
    assert!(not_ours(&decide(&noted(None), &seen(Some(other), None))), "[UND-1]");
    let change = Change::Loop { backing_file: "/no/such/file".into(), attached: None };
    assert_eq!(undo(&change), Verdict::Nothing, "no device shows that file");
}

#[test]
fn a_directory_goes_only_if_it_looks_like_one_of_ours() {
    let scratch = tempfile::tempdir().unwrap();
    let ours = scratch.path().join(".forebay-lab-x");
    assert_eq!(made(&ours), Verdict::Nothing);
    fs::create_dir(&ours).unwrap();
    fs::write(ours.join("blocks"), "data").unwrap();
    // Somebody else's file, reached through a link from inside.
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

    let theirs = SeenDirectory { is_directory: true, uid: 7, same_filesystem: true };
    assert!(not_ours(&decide_directory(&ours, 8, theirs)), "[UND-1]");
    assert_eq!(decide_directory(&ours, 7, theirs), Decision::Undo);
    assert_eq!(decide_directory(&ours.join("mnt"), 7, theirs), Decision::Undo, "right in ours");
    assert!(not_ours(&decide_directory(&ours.join("mnt/a"), 7, theirs)), "[UND-1]");
}

#[test]
fn a_mount_point_goes_only_when_it_is_empty_and_what_fails_is_told_with_the_command() {
    let scratch = tempfile::tempdir().unwrap();
    let point = scratch.path().join("forebay-mount x");
    fs::create_dir(&point).unwrap();
    fs::write(point.join("precious"), "data").unwrap();
    let change = Change::Directory { path: point.clone(), contents: false };
    let Verdict::Failed { why, by_hand } = undo(&change) else { panic!("it is not empty") };
    assert!(why.contains("precious") || why.contains("not empty"), "{why}");
    assert_eq!(by_hand, format!("rmdir '{}'", point.display()));
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
                // Fails from the moment at which the directory is gone.
                if fs::write(ours.join(number.to_string()), "late").is_err() {
                    break;
                }
            }
        });
        let told = format!("removed {}", ours.display());
        assert_eq!(made(&ours), Verdict::Undone(told));
    });
    assert!(!ours.exists());
}

#[test]
fn a_directory_that_cannot_be_removed_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let ours = scratch.path().join(".forebay-lab-x");
    fs::create_dir(&ours).unwrap();
    let closed = |mode| fs::set_permissions(scratch.path(), fs::Permissions::from_mode(mode));
    closed(0o500).unwrap();
    let verdict = made(&ours);
    closed(0o700).unwrap();
    // Root may do it all the same.
    if !rustix::process::geteuid().is_root() {
        let Verdict::Failed { by_hand, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(by_hand, format!("rm -r {}", ours.display()));
    }
}

#[test]
fn a_readahead_of_a_mount_that_has_gone_is_not_put_back_on_the_next_one() {
    let scratch = tempfile::tempdir().unwrap();
    // The number of a mount that is there: of /proc, say.
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
    let gone = change(Some("fuse.forebay nvme on /tmp/x, mount 4711".to_owned()));
    assert_eq!(undo(&gone), Verdict::Nothing, "[UND-1]");
    assert_eq!(fs::read_to_string(&file).unwrap(), "128\n", "[UND-1]");
    let Change::Readahead { of, .. } = Change::readahead(&file, 6144) else { unreachable!() };
    assert!(of.is_some());
    assert!(matches!(undo(&change(of)), Verdict::Undone(_)));
}

#[test]
fn what_is_mounted_in_a_directory_of_ours_is_not_removed_with_it() {
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
    let Verdict::Failed { why, by_hand } = verdict else { panic!("[UND-2] {verdict:?}") };
    assert!(why.contains("is mounted in it") && by_hand.contains("umount"), "{why}; {by_hand}");
    assert!(matches!(made(&ours), Verdict::Undone(_)));
}
