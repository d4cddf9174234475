//! No polling: an idle queue and a waiting thread use no processor time.
//!
//! Measured in a child process that does nothing else.

use std::thread;
use std::time::Duration;

use forebay_io::{Io, Op, Request};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::{Bench, Cell, lease};
use crate::child;
use crate::harness::{Claim, Outcome, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict};

const WATCHED: Duration = Duration::from_secs(1);

const SPELLS: usize = 3;

/// Enough for the ten wake-ups per second of `aio`, far too little for polling.
const CPU_MAX: Duration = Duration::from_millis(5);

pub(crate) fn claims(_cell: Cell) -> Vec<Claim> {
    claims![an_idle_queue_uses_no_processor_time, a_waiting_thread_uses_no_processor_time]
}

pub(crate) fn child_bodies() -> Vec<Claim> {
    claims![idle, waiting]
}

fn an_idle_queue_uses_no_processor_time(bench: &Bench) -> Outcome {
    child::run_plain(bench, "idle")
}

fn a_waiting_thread_uses_no_processor_time(bench: &Bench) -> Outcome {
    child::run_plain(bench, "waiting")
}

fn idle(bench: &Bench) -> Outcome {
    let io = bench.io(8);
    warm_up(bench, &io);
    assert_idle();
    Outcome::Held
}

/// Holds back reads of the first byte.
struct HoldsFirst;

impl Script for HoldsFirst {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        if transfer.op() == Op::Read && transfer.position() == 0 {
            Verdict::Hold
        } else {
            Verdict::Deliver(result)
        }
    }
}

fn waiting(bench: &Bench) -> Outcome {
    let (io, rig) = bench.rigged(8, HoldsFirst);
    warm_up(bench, &io);
    let file = bench.file("file", &[1; 8192]);
    let held = io.submit(Request::read(&file, 0, vec![lease(4096)]));
    let waiter = thread::spawn(move || held.wait());
    rig.wait_held(1);
    assert_idle();
    rig.deliver_held();
    io.submit(Request::read(&file, 4096, vec![lease(4096)])).wait().result.unwrap();
    waiter.join().unwrap().result.unwrap();
    Outcome::Held
}

fn warm_up(bench: &Bench, io: &Io) {
    let file = bench.file("warm", &[1; 65_536]);
    let requests = (1..16).map(|block| Request::read(&file, block * 4096, vec![lease(4096)]));
    for ticket in io.submit_all(requests) {
        ticket.wait().result.unwrap();
    }
}

/// Measures several intervals and judges the quietest: a thread that polls does so in each of them, while on a busy
/// machine one wake-up can be charged milliseconds that other processes used.
fn assert_idle() {
    thread::sleep(Duration::from_millis(50)); // until the woken threads sleep again
    let mut used = Vec::new();
    while used.iter().all(|spell| *spell >= CPU_MAX) {
        assert!(used.len() < SPELLS, "{used:?} of processor time in spells of {WATCHED:?} idling");
        let before = cpu_used();
        thread::sleep(WATCHED);
        used.push(cpu_used() - before);
    }
}

/// Processor time of this process so far.
fn cpu_used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}
