//! What is in the mount: the disk, files next to it, and the request log.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_emulate::log::{LoggedOp, LoggedRequest};
use forebay_lab::emulate::{Emulated, EmulatedOptions};

use super::{direct, emulated, fixed, options};
use crate::command::{entries, output, scratch};
use crate::skip::can_emulate;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The requests that reached the device, without the flushes.
fn transfers(disk: &Emulated) -> Vec<LoggedRequest> {
    let log = disk.log().unwrap();
    log.into_iter().filter(|request| request.op != LoggedOp::Flush).collect()
}

#[test]
fn what_is_written_to_the_disk_and_to_files_is_read_back_buffered_and_direct() {
    if !can_emulate("what_is_written_to_the_disk_and_to_files_is_read_back_buffered_and_direct") {
        return;
    }
    let disk = emulated("instant");
    let own = disk.directory().join("own");
    File::create(&own).unwrap();
    for (path, base) in [(disk.disk(), 3 << 30), (own, 0)] {
        let bytes = noise(base, 3 << 20);
        let (buffered, direct) =
            (File::options().read(true).write(true).open(&path).unwrap(), direct(&path));
        let mut found = vec![0; bytes.len()];
        buffered.write_all_at(&bytes, base).unwrap();
        direct.read_exact_at(&mut found, base).unwrap();
        assert!(found == bytes, "direct after buffered, {}", path.display());
        let other = noise(base + 1, 1 << 20);
        direct.write_all_at(&other, base + 8192).unwrap();
        buffered.read_exact_at(&mut found, base).unwrap();
        assert!(found[8192..][..other.len()] == other, "buffered after direct, {}", path.display());
        assert!(found[..8192] == bytes[..8192]);
        buffered.sync_all().unwrap();
    }
}

#[test]
fn files_and_directories_can_be_made_moved_and_removed_as_anywhere() {
    if !can_emulate("files_and_directories_can_be_made_moved_and_removed_as_anywhere") {
        return;
    }
    let disk = emulated("instant");
    let root = disk.directory();
    let free = || rustix::fs::statvfs(root).unwrap().f_bfree;
    let before = free();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/c"), noise(1, 100_000)).unwrap();
    std::fs::rename(root.join("a/b"), root.join("b")).unwrap();
    assert!(std::fs::read(root.join("b/c")).unwrap() == noise(1, 100_000));
    assert_eq!(
        std::fs::remove_dir(root.join("b")).unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(std::fs::remove_file(disk.disk()).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(entries(root), [".forebay", "a", "b", "disk"]);

    let mut open = File::options().read(true).open(root.join("b/c")).unwrap();
    std::fs::remove_dir_all(root.join("b")).unwrap();
    let mut kept = Vec::new();
    open.read_to_end(&mut kept).unwrap();
    assert!(kept == noise(1, 100_000), "an open file outlives its name");
    drop(open);
    std::fs::remove_dir(root.join("a")).unwrap();
    assert_eq!(entries(root), [".forebay", "disk"]);
    crate::command::wait_until("the room to come back", || free() == before);
}

#[test]
fn what_was_cut_off_or_never_written_is_zeros() {
    if !can_emulate("what_was_cut_off_or_never_written_is_zeros") {
        return;
    }
    let disk = emulated("instant");
    let path = disk.directory().join("f");
    // The bytes there belonged to another file before.
    std::fs::write(disk.directory().join("before"), noise(2, 4 << 20)).unwrap();
    std::fs::remove_file(disk.directory().join("before")).unwrap();
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&noise(3, 50_000)).unwrap();
    file.sync_all().unwrap();
    file.set_len(10_001).unwrap();
    file.set_len(3 << 20).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 3 << 20).unwrap();
    let mut found = vec![1; 3 << 20];
    direct(&path).read_exact_at(&mut found, 0).unwrap();
    assert!(found[..10_001] == noise(3, 50_000)[..10_001]);
    assert!(found[10_001..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_log_has_a_line_for_each_request_with_its_place_in_the_file_and_on_the_device() {
    if !can_emulate(
        "the_log_has_a_line_for_each_request_with_its_place_in_the_file_and_on_the_device",
    ) {
        return;
    }
    let disk = emulated("fixed-100us");
    std::fs::create_dir(disk.directory().join("dir")).unwrap();
    let path = disk.directory().join("dir/file");
    std::fs::write(&path, noise(4, 2 << 20)).unwrap();
    let (file, whole) = (direct(&path), direct(&disk.disk()));
    // On a page's boundary: otherwise it would be a page more than FUSE accepts in one request.
    let mut buffer = vec![0; (1 << 20) + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let buffer = &mut buffer[start..start + (1 << 20)];
    disk.control("log clear").unwrap();
    file.read_exact_at(&mut buffer[..8192], 4096).unwrap();
    whole.read_exact_at(&mut buffer[..4096], 1 << 30).unwrap();
    file.write_all_at(buffer, 1 << 20).unwrap();
    whole.sync_data().unwrap();

    let log = disk.log().unwrap();
    let stderr: Vec<_> =
        log.iter().map(|one| (one.op, one.file.as_str(), one.offset, one.len)).collect();
    let expected = [
        (LoggedOp::Read, "dir/file", 4096, 8192),
        (LoggedOp::Read, "disk", 1 << 30, 4096),
        (LoggedOp::Write, "dir/file", 1 << 20, 1 << 20),
        (LoggedOp::Flush, "disk", 0, 0),
    ];
    assert_eq!(stderr, expected);
    let place = log[0].device_offset.unwrap() - 4096;
    assert_eq!(place % 4096, 0);
    assert_eq!(log[1].device_offset, Some(1 << 30));
    assert_eq!(
        log[2].device_offset,
        Some(place + (1 << 20)),
        "a file that grew alone is in one piece"
    );
    assert_eq!(log[3].device_offset, None);
    assert!(log.iter().all(|one| one.service_us == Some(100.0)));
    assert!(log.windows(2).all(|two| two[0].us <= two[1].us));
    let mut at_its_place = vec![0; 1 << 20];
    whole.read_exact_at(&mut at_its_place, place + (1 << 20)).unwrap();
    assert!(at_its_place == buffer, "the disk and the file are the same bytes");
    let counters = disk.counters().unwrap();
    assert!(counters.reads >= 3 && counters.writes >= 3 && counters.in_flight == 0, "{counters:?}");
}

#[test]
fn a_log_file_has_every_request_once_the_disk_is_unmounted() {
    if !can_emulate("a_log_file_has_every_request_once_the_disk_is_unmounted") {
        return;
    }
    let scratch = scratch();
    let path = scratch.path().join("requests.jsonl");
    let mut called = super::Called::start("instant", &["--log", path.to_str().unwrap()]);
    let file = direct(&called.mount_point.join("disk"));
    for block in 0..100 {
        file.read_exact_at(&mut [0; 4096], block * 4096).unwrap();
    }
    drop(file);
    called.signal(rustix::process::Signal::TERM);
    called.rest();
    called.assert_removed();
    let text = std::fs::read_to_string(path).unwrap();
    let log: Vec<LoggedRequest> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(log.iter().map(|one| one.offset).eq((0..100).map(|block| block * 4096)));
}

#[test]
fn a_hole_takes_no_time_and_what_was_allocated_does() {
    if !can_emulate("a_hole_takes_no_time_and_what_was_allocated_does") {
        return;
    }
    let disk = emulated("fixed-100us");
    let path = disk.directory().join("f");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    disk.control("log clear").unwrap();
    let reader = direct(&path);
    reader.read_exact_at(&mut [0; 4096], 0).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    reader.read_exact_at(&mut [0; 4096], 0).unwrap();
    let services: Vec<_> =
        transfers(&disk).iter().map(|one| (one.service_us, one.device_offset)).collect();
    assert_eq!(services[0], (Some(0.0), None));
    assert_eq!(services[1].0, Some(100.0));
    assert!(services[1].1.is_some());
}

#[test]
fn the_kernel_reads_ahead_on_it_and_by_no_more_than_was_allowed() {
    if !can_emulate("the_kernel_reads_ahead_on_it_and_by_no_more_than_was_allowed") {
        return;
    }
    for (readahead_bytes, expected) in [(None, 128 << 10), (Some(32 << 10), 32 << 10)] {
        let disk =
            Emulated::start("instant", &EmulatedOptions { readahead_bytes, ..options() }).unwrap();
        let mut file = File::open(disk.disk()).unwrap();
        let mut block = [0; 4096];
        for _ in 0..1024 {
            file.read_exact(&mut block).unwrap();
        }
        let longest = transfers(&disk).iter().map(|one| one.len).max().unwrap();
        assert_eq!(longest, expected, "bytes in the longest request");
    }
}

#[test]
fn what_is_in_the_page_cache_stays_there_when_a_file_is_opened_again() {
    if !can_emulate("what_is_in_the_page_cache_stays_there_when_a_file_is_opened_again") {
        return;
    }
    let disk = emulated("instant");
    for _ in 0..3 {
        let mut file = File::open(disk.disk()).unwrap();
        file.read_exact(&mut [0; 4096]).unwrap();
    }
    assert_eq!(transfers(&disk).iter().filter(|one| one.offset == 0).count(), 1);
}

#[test]
fn data_in_a_file_that_was_there_is_kept_for_the_next_mount() {
    if !can_emulate("data_in_a_file_that_was_there_is_kept_for_the_next_mount") {
        return;
    }
    let scratch = scratch();
    let kept = scratch.path().join("kept");
    File::create(&kept).unwrap();
    for data in [kept, scratch.path().join("made")] {
        let there = data.ends_with("kept");
        let size_bytes = Some(1 << 30);
        let options = EmulatedOptions { data: Some(data), size_bytes, ..options() };
        let disk = Emulated::start("instant", &options).unwrap();
        // Still dirty when the disk is unmounted.
        File::options()
            .write(true)
            .open(disk.disk())
            .unwrap()
            .write_all_at(b"mine", 12_345)
            .unwrap();
        drop(disk);
        let disk = Emulated::start("instant", &options).unwrap();
        let mut found = [0; 4];
        File::open(disk.disk()).unwrap().read_exact_at(&mut found, 12_345).unwrap();
        assert_eq!(&found, if there { b"mine" } else { &[0; 4] });
    }
    assert_eq!(entries(scratch.path()), ["kept"]);
}

#[test]
fn memory_that_is_used_up_is_a_full_disk() {
    if !can_emulate("memory_that_is_used_up_is_a_full_disk") {
        return;
    }
    let called = super::Called::start("instant", &["--memory", "1MiB"]);
    let file = direct(&called.mount_point.join("disk"));
    let error = file.write_all_at(&noise(5, 2 << 20), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.write_all_at(&[0; 1 << 20], 1 << 30).unwrap();
}

#[test]
fn an_experiment_runs_on_it_with_every_backend() {
    if !can_emulate("an_experiment_runs_on_it_with_every_backend") {
        return;
    }
    let scratch = scratch();
    let disk = emulated(&fixed(scratch.path(), "some", "20us"));
    let directory = disk.directory().to_str().unwrap();
    let args =
        ["lab", "depth", "--dir", directory, "--size", "8MiB", "--blocks", "64", "--rounds", "1"];
    let more = ["--depths", "0,16", "--json", "r.json"];
    let output = output(scratch.path(), &[&args[..], &more[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(scratch.path().join("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let records = report["records"].as_array().unwrap();
    assert!(records.iter().any(|one| one["cell"]["cache"] == "direct"), "O_DIRECT works there");
    assert_eq!(entries(Path::new(directory)), [".forebay", "disk"]);
}
