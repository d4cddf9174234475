//! Threads that sleep because another thread drives, and what happens when the driver leaves.
//!
//! Each claim stages one interleaving with a script, in which a missing wake-up leaves a thread sleeping forever. The
//! tickets of the requests that advance the staging are dropped, so that only the sleeping thread can notice their
//! completion.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use forebay_io::{Arena, File, Io, Kind, Op, Request, Ticket};

use crate::bench::{Bench, Cell, lease, lease_of};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Rig, Script, Transfer, Verdict, wait_for};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        a_submitter_held_back_by_what_is_not_started_yet_is_let_in,
        a_thread_that_drains_does_not_keep_submitters_out,
    ];
    if matches!(cell.kind, Kind::Uring | Kind::Aio) {
        claims.extend(claims![
            a_thread_that_leaves_hands_the_driving_over,
            a_thread_that_only_looks_hands_the_driving_over,
        ]);
    }
    claims
}

const BLOCK: usize = 4096;

/// Longer than any wake-up takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Time for a thread that is about to sleep to do so.
const MOMENT: Duration = Duration::from_millis(20);

/// What a script does to a read, by the number of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Not started before [`Rig::start_withheld`].
    Withhold,
    /// Waits for the gate before it starts.
    GateBefore,
    /// Waits for the gate before its result is delivered.
    GateAfter,
    /// Its result is held back until [`Rig::deliver_held`].
    Hold,
}

/// Applies a turn to each of the first blocks; leaves the others unchanged.
struct Staging {
    turns: Vec<Turn>,
    reached: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

/// The test's side of the gate.
struct Gate {
    /// Receives a message when a transfer has reached the gate.
    reached: Receiver<()>,
    open: Sender<()>,
}

impl Staging {
    fn new(turns: &[Turn]) -> (Staging, Gate) {
        let ((reached, is_reached), (open, opened)) = (mpsc::channel(), mpsc::channel());
        let staging = Staging { turns: turns.into(), reached, gate: Mutex::new(opened) };
        (staging, Gate { reached: is_reached, open })
    }

    fn turn(&self, transfer: &Transfer) -> Option<Turn> {
        let block = transfer.position() / BLOCK as u64;
        let ours = transfer.op() == Op::Read;
        self.turns.get(block as usize).copied().filter(|_| ours)
    }

    fn pass_gate(&self) {
        self.reached.send(()).unwrap();
        self.gate.lock().unwrap().recv().unwrap();
    }
}

impl Script for Staging {
    fn before(&self, transfer: &mut Transfer) {
        if self.turn(transfer) == Some(Turn::GateBefore) {
            self.pass_gate();
        }
    }

    fn withhold(&self, transfer: &Transfer) -> bool {
        self.turn(transfer) == Some(Turn::Withhold)
    }

    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        match self.turn(transfer) {
            Some(Turn::Hold) => return Verdict::Hold,
            Some(Turn::GateAfter) => self.pass_gate(),
            _ => {}
        }
        Verdict::Deliver(result)
    }
}

/// A file of a few blocks, with methods to read one.
struct Stage {
    io: Io,
    file: File,
    arena: std::sync::Arc<Arena>,
    done: Sender<&'static str>,
    ended: Receiver<&'static str>,
}

impl Stage {
    fn new(bench: &Bench, io: Io) -> Stage {
        let file = bench.file("file", &[1; 8 * BLOCK]);
        let (done, ended) = mpsc::channel();
        Stage { io, file, arena: Arena::new(8, BLOCK).unwrap(), done, ended }
    }

    fn request(&self, block: usize) -> Request {
        Request::read(&self.file, (block * BLOCK) as u64, vec![self.arena.take().unwrap()])
    }

    fn submit(&self, block: usize) -> Ticket {
        self.io.submit(self.request(block))
    }

    /// Starts a thread whose end is reported to [`Stage::assert_ends`]. It may hang, so it is not joined.
    fn spawn(&self, name: &'static str, body: impl FnOnce(&Io) + Send + 'static) {
        let (io, done) = (self.io.clone(), self.done.clone());
        thread::spawn(move || {
            body(&io);
            drop(io);
            done.send(name).ok(); // if the receiver is closed, the test has failed
        });
    }

    fn assert_ends(&self, name: &str, why: &str) {
        match self.ended.recv_timeout(SOON) {
            Ok(ended) => assert_eq!(ended, name),
            Err(_) => panic!("{why}"),
        }
    }

    /// Starts the withheld transfer together with a read whose answer is discarded.
    fn start_withheld(&self, rig: &Rig, nudge: usize) {
        rig.start_withheld();
        drop(self.submit(nudge));
    }
}

fn a_thread_that_leaves_hands_the_driving_over(bench: &Bench) {
    let (staging, _gate) = Staging::new(&[Turn::Withhold, Turn::Withhold]);
    let (io, rig) = bench.rigged(8, staging);
    let stage = Stage::new(bench, io);
    let [first, second] = [stage.submit(0), stage.submit(1)];
    stage.spawn("first", move |_| first.wait().result.unwrap());
    rig.wait_driving(1);
    stage.spawn("second", move |_| second.wait().result.unwrap());
    rig.wait_sent_to_sleep(1);
    stage.start_withheld(&rig, 2);
    stage.assert_ends("first", "the thread that drives missed its own completion");
    stage.start_withheld(&rig, 3);
    stage.assert_ends("second", "the driving thread left, and no thread drives for the other one");
}

fn a_thread_that_only_looks_hands_the_driving_over(bench: &Bench) {
    let (staging, gate) = Staging::new(&[Turn::Withhold, Turn::GateAfter]);
    let (io, rig) = bench.rigged(8, staging);
    let stage = Stage::new(bench, io);
    let [waited, mut looked_at] = [stage.submit(0), stage.submit(1)];
    stage.spawn("looking", move |_| {
        while let Err(same) = looked_at.try_wait() {
            looked_at = same;
        }
    });
    gate.reached.recv().unwrap();
    // The polling thread is inside the backend, so this thread finds that another one drives. On uring the polling
    // thread has already released the right to reap.
    stage.spawn("waiting", move |_| waited.wait().result.unwrap());
    if bench.cell.kind == Kind::Aio {
        rig.wait_sent_to_sleep(1);
    }
    thread::sleep(MOMENT);
    gate.open.send(()).unwrap();
    stage.assert_ends("looking", "looking did not end");
    stage.start_withheld(&rig, 2);
    stage.assert_ends(
        "waiting",
        "the looking thread left, and no thread drives for the waiting one",
    );
}

// [IO-2]
fn a_submitter_held_back_by_what_is_not_started_yet_is_let_in(bench: &Bench) {
    let (staging, gate) = Staging::new(&[Turn::GateBefore]);
    let (io, rig) = bench.rigged(1, staging);
    let stage = Stage::new(bench, io);
    let slow = stage.request(0);
    stage.spawn("slow", move |io| drop(io.submit(slow)));
    gate.reached.recv().unwrap();
    // The only slot is used by a transfer that the backend has not received yet.
    let held_back = stage.request(1);
    stage.spawn("held back", move |io| io.submit(held_back).wait().result.unwrap());
    wait_for(|| stage.io.stats().held_back == 1);
    if bench.cell.kind == Kind::Sync {
        rig.wait_sent_to_sleep(1);
    }
    thread::sleep(MOMENT);
    gate.open.send(()).unwrap();
    // "slow" and "held back", in any order.
    for _ in 0..2 {
        let ended = stage.ended.recv_timeout(SOON);
        assert!(ended.is_ok(), "no thread executes what keeps the submitter waiting");
    }
}

fn a_thread_that_drains_does_not_keep_submitters_out(bench: &Bench) {
    let (staging, gate) = Staging::new(&[Turn::Hold, Turn::GateAfter]);
    let (io, rig) = bench.rigged(2, staging);
    let stage = Stage::new(bench, io);
    drop([stage.submit(0), stage.submit(1)]);
    stage.spawn("draining", Io::drain);
    gate.reached.recv().unwrap();
    thread::sleep(MOMENT);
    let bytes = [2; BLOCK];
    let write = Request::write(&stage.file, 7 * BLOCK as u64, vec![lease_of(&bytes)]);
    stage.spawn("submitting", move |io| io.submit(write).wait().result.unwrap());
    wait_for(|| stage.io.stats().held_back == 1);
    thread::sleep(MOMENT);
    gate.open.send(()).unwrap();
    stage.assert_ends("submitting", "a place is free, and the submitter was not woken");
    rig.wait_held(1);
    rig.deliver_held();
    stage.io.submit(Request::read(&stage.file, 0x4000, vec![lease(BLOCK)])).wait().result.unwrap();
    stage.assert_ends("draining", "everything is done, and the draining thread was not woken");
}
