//! Response times.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use forebay_lab::emulate::{Emulated, EmulatedOptions};

use super::{direct, emulated, fixed, options};
use crate::command::{scratch, wait_until};
use crate::skip::{can_emulate, is_quiet};

/// Batches, of which the best counts: on a busy machine most are disturbed.
const TRIES: usize = 30;

/// `count` reads of a block, one after the other.
fn read(file: &File, count: u64) {
    for block in 0..count {
        file.read_exact_at(&mut [0; 4096], block * 4096).unwrap();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn no_answer_is_early_and_half_of_them_are_less_than_five_percent_late() {
    if !can_emulate("no_answer_is_early_and_half_of_them_are_less_than_five_percent_late") {
        return;
    }
    let is_quiet = is_quiet();
    let scratch = scratch();
    for (time, us) in [("200us", 200.0), ("2ms", 2000.0)] {
        let disk = emulated(&fixed(scratch.path(), time, time));
        let file = direct(&disk.disk());
        let mut best = f64::INFINITY;
        for _ in 0..TRIES {
            disk.control("log clear").unwrap();
            read(&file, 40);
            let late: Vec<f64> = disk
                .log()
                .unwrap()
                .iter()
                .map(|one| {
                    assert_eq!(one.service_us, Some(us));
                    one.replied_us.unwrap() - one.us - us
                })
                .collect();
            assert!(late.iter().all(|late| *late >= 0.0), "an answer was early: {late:?}");
            best = best.min(median(late) / us);
            if best < 0.05 || !is_quiet {
                break;
            }
        }
        let late = best * 100.0;
        assert!(best < 0.05 || !is_quiet, "{time}: the best median is {late:.1} % late");
    }
}

#[test]
fn commands_side_by_side_take_no_longer_than_one() {
    if !can_emulate("commands_side_by_side_take_no_longer_than_one") {
        return;
    }
    let scratch = scratch();
    let disk = emulated(&fixed(scratch.path(), "slow", "2s"));
    let file = &direct(&disk.disk());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for block in 0..16 {
            scope.spawn(move || file.read_exact_at(&mut [0; 4096], block * 4096).unwrap());
        }
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_secs(30), "one after another they take 32 s: {took:?}");
}

#[test]
fn a_speed_up_shortens_real_time_and_not_the_models() {
    if !can_emulate("a_speed_up_shortens_real_time_and_not_the_models") {
        return;
    }
    let scratch = scratch();
    let spec = fixed(scratch.path(), "slow", "100s");
    let disk =
        Emulated::start(&spec, &EmulatedOptions { speed_up: Some(1000.0), ..options() }).unwrap();
    let file = direct(&disk.disk());
    let begun = Instant::now();
    read(&file, 5);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    assert!(took < Duration::from_secs(240), "500 seconds without a speed-up: {took:?}");
    let log = disk.log().unwrap();
    assert!(log.iter().all(|one| one.service_us == Some(100e6)));
    assert!(log.windows(2).all(|two| two[1].us - two[0].us >= 100e6), "emulated time is the log's");
    assert_eq!(disk.profile().unwrap().speed_up, 1000.0);
}

#[test]
fn timing_is_switched_off_and_on_again_also_for_what_is_under_way() {
    if !can_emulate("timing_is_switched_off_and_on_again_also_for_what_is_under_way") {
        return;
    }
    let scratch = scratch();
    let disk = emulated(&fixed(scratch.path(), "slow", "3600s"));
    let file = direct(&disk.disk());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&file, 1));
        wait_until("the read to arrive", || disk.counters().unwrap().in_flight == 1);
        disk.control("timing off").unwrap();
        waiting.join().unwrap();
        read(&file, 10);
        disk.control("timing on").unwrap();
        let waiting = scope.spawn(|| read(&file, 1));
        wait_until("the read to arrive", || disk.counters().unwrap().in_flight == 1);
        assert!(!waiting.is_finished());
        disk.control("timing off").unwrap();
        waiting.join().unwrap();
    });
    let log = disk.log().unwrap();
    assert_eq!(log.len(), 12);
    assert!(log.iter().all(|one| one.replied_us.is_some()));
}

#[test]
fn a_summary_reports_requests_lateness_and_what_it_cost() {
    if !can_emulate("a_summary_reports_requests_lateness_and_what_it_cost") {
        return;
    }
    let mut called = super::Called::start("fixed-100us", &[]);
    read(&direct(&called.mount_point.join("disk")), 100);
    called.signal(rustix::process::Signal::INT);
    let said = called.rest();
    assert!(said.contains(" 100 requests; completions were "), "{said}");
    assert!(said.contains("processor seconds for 1000 requests"), "{said}");
}
