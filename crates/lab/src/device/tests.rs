//! Falls of a rate, and figures of a real file.

use super::*;
use forebay_measure::facts::Storage;
use forebay_measure::workfile::{Naming, Workfile};

#[test]
fn a_fall_is_where_every_later_window_is_much_slower_than_before() {
    assert_eq!(fall(&[3000.0, 2990.0, 3010.0, 301.0, 300.0, 299.0]), Some(3), "[DEV-1]");
    assert_eq!(fall(&[3000.0, 2990.0, 3010.0, 3000.0]), None);
    let once_slow = [3000.0, 300.0, 3010.0, 3000.0, 301.0, 300.0, 302.0];
    assert_eq!(fall(&once_slow), Some(4), "it returned from the first");
    assert_eq!(fall(&[100.0, 180.0, 90.0, 170.0, 95.0, 160.0, 90.0, 95.0]), None, "noise");
    assert_eq!(fall(&[100.0, 101.0, 99.0, 40.0, 41.0]), None, "two slow windows are no level");
    assert_eq!(fall(&[300.0, 301.0, 3000.0, 3010.0]), None, "faster is no fall");
    assert_eq!(fall(&[]), None);
}

#[test]
fn a_99th_percentile_takes_a_thousand_waits() {
    let window = |count: u64, per_s| {
        let mut waits = wait_histogram();
        (0..count).for_each(|wait| waits.saturating_record(1000 * (wait + 1)));
        Window { per_s, waits }
    };
    let windows = [window(300, 30.0), window(300, 10.0), window(399, 20.0)];
    let few = figure(&windows, 1.0).unwrap();
    assert_eq!((few.per_s, few.low, few.high, few.rounds), (20.0, 10.0, 30.0, 3));
    assert!(few.wait_us_p50.is_some() && few.wait_us_p99.is_none());
    let many = [window(1000, 1.0)];
    assert!(figure(&many, 1.0).unwrap().wait_us_p99.is_some_and(|us| us > 980.0));
}

#[test]
fn every_figure_of_a_real_file_is_there_in_less_than_a_few_seconds() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path();
    let mut workfile = Workfile::create(path, 16 << 20, 8192, 1, Naming::Nameless).unwrap();
    workfile.fill(|_| ()).unwrap();
    let storage = Storage::read(path).unwrap();
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let summary = measure(&bench, &DeviceArgs::short(None)).unwrap();
    let text = format!("{summary:?}");
    for figure in [
        summary.random_read_depth_1,
        summary.random_read_saturated,
        summary.sequential_read,
        summary.sequential_write,
        summary.sync,
    ] {
        let figure = figure.expect(&text);
        assert!(figure.per_s > 0.0 && figure.low <= figure.per_s, "{text}");
        assert!(figure.wait_us_p50.is_some() && figure.rounds >= 3, "{text}");
    }
    assert!(summary.saturated_depth.is_some());
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_file_that_the_disk_would_answer_from_its_cache_gives_no_figure_of_reads() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let mut workfile =
        Workfile::create(directory.path(), 64 << 10, 8192, 1, Naming::Nameless).unwrap();
    workfile.fill(|_| ()).unwrap();
    let storage = Storage::read(directory.path()).unwrap();
    let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
    let summary = measure(&bench, &DeviceArgs::short(None)).unwrap();
    assert!(summary.random_read_depth_1.is_none() && summary.random_read_saturated.is_none());
    assert!(summary.burst.is_none() && summary.saturated_depth.is_none(), "{summary:?}");
    let expected = "random reads: not measured: the working file is too small";
    assert!(summary.remarks.iter().any(|remark| remark == expected), "{:?}", summary.remarks);
    assert!(summary.sync.is_some(), "syncs have files of their own");
}
