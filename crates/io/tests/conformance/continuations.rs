//! Continuations: callbacks at the end of requests that no thread waits for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use forebay_io::{Arena, Completed, Error, File, Io, Kind, Lease, Op, OsError, Request, Then};

use crate::bench::{Bench, Cell, assert_same, lease, noise};
use crate::harness::{Claim, claims};
use crate::rig::{Attempt, Script, Transfer, Verdict, wait_for};

pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    let mut claims = claims![
        every_continuation_runs_once_with_the_result_of_its_request,
        errors_found_before_anything_starts_reach_the_continuation,
        errors_of_the_device_reach_the_continuation_with_the_leases,
        a_queue_that_is_closed_runs_the_continuations_it_refuses,
        a_request_is_in_flight_until_its_continuation_has_returned,
        a_drain_waits_for_continuations,
        closing_waits_for_continuations,
        dropping_the_queue_waits_for_continuations,
        more_requests_than_the_queue_holds_all_end,
        places_are_booked_as_far_as_there_are_any_and_given_back,
        waiting_for_what_holds_already_returns_at_once,
        a_sleeper_is_woken_by_the_continuation_of_a_later_request,
        a_sleeper_is_woken_though_another_thread_drives_on,
        a_sleeper_is_woken_by_a_request_refused_before_it_started,
        looking_runs_continuations,
        tickets_and_continuations_share_a_queue,
    ];
    if cell.kind == Kind::Threads {
        claims.extend(claims![continuations_run_without_a_waiting_thread]);
    }
    if cell.kind == Kind::Uring {
        claims.extend(claims![
            a_continuation_that_takes_its_time_holds_up_no_other_thread,
            a_sleeper_in_the_kernel_is_woken_by_a_continuation_in_other_hands,
        ]);
    }
    if cell.is_direct() {
        claims.extend(claims![a_misaligned_request_runs_its_continuation]);
    }
    claims
}

const BLOCK: usize = 4096;

/// Time for a thread that is about to sleep to do so.
const MOMENT: Duration = Duration::from_millis(30);

/// Longer than any wake-up takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The result of a request, and its leases.
type Answer = (Result<(), Error>, Vec<Lease>);

/// The results that continuations received, by the number of their request.
#[derive(Default)]
struct Completions(Mutex<Vec<(usize, Answer)>>);

impl Completions {
    fn then(self: &Arc<Self>, number: usize) -> Then {
        let completions = Arc::clone(self);
        Box::new(move |Completed { leases, result }: Completed| {
            completions.0.lock().unwrap().push((number, (result, leases)));
        })
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// All results so far, by number. The numbers must be 0, 1, 2, ... once each.
    fn take(&self, count: usize) -> Vec<Answer> {
        let mut completions = std::mem::take(&mut *self.0.lock().unwrap());
        completions.sort_by_key(|(number, _)| *number);
        let numbers: Vec<usize> = completions.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "[CMP-1] each once");
        completions.into_iter().map(|(_, answer)| answer).collect()
    }
}

fn read(file: &File, block: usize) -> Request {
    Request::read(file, (block * BLOCK) as u64, vec![lease(BLOCK)])
}

/// A condition that a thread waits for, and that thread.
#[derive(Clone, Default)]
struct Flag(Arc<(AtomicBool, OnceLock<Thread>)>);

impl Flag {
    fn is_set(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    /// Sets the flag and wakes the thread.
    fn then(&self) -> Then {
        let flag = self.clone();
        Box::new(move |_| {
            flag.0.0.store(true, Ordering::SeqCst);
            flag.0.1.get().inspect(|thread| thread.unpark());
        })
    }
}

fn every_continuation_runs_once_with_the_result_of_its_request(bench: &Bench) {
    let io = bench.io(8);
    let bytes = noise(&mut bench.rng(), 64 * BLOCK);
    let file = bench.file("file", &bytes);
    let completions = Arc::new(Completions::default());
    io.submit_all_then(
        (0..64).map(|block| (read(&file, block), completions.then(block))).collect(),
    );
    io.drain();
    for ((result, leases), expected) in completions.take(64).into_iter().zip(bytes.chunks(BLOCK)) {
        result.unwrap();
        assert_same(&leases[0], expected, "the block");
    }
    io.drain();
    assert_eq!(completions.count(), 0, "[CMP-1] each completion is delivered once");
}

fn errors_found_before_anything_starts_reach_the_continuation(bench: &Bench) {
    let io = bench.io(4);
    drop(bench.file("file", &[1; BLOCK]));
    let file = File::open(&bench.path("file"), &bench.cell.opening().read_only(true)).unwrap();
    let completions = Arc::new(Completions::default());
    let requests = vec![
        Request::write(&file, 0, vec![lease(BLOCK)]),
        Request::read(&file, i64::MAX as u64 - 4095, vec![lease(2 * BLOCK)]),
        Request::read(&file, 0, vec![]),
        read(&file, 7),
        read(&file, 0),
    ];
    let numbered = requests.into_iter().enumerate();
    io.submit_all_then(numbered.map(|(number, it)| (it, completions.then(number))).collect());
    io.drain();
    let completions = completions.take(5);
    assert!(matches!(completions[0].0, Err(Error::Permission { .. })), "{:?}", completions[0]);
    assert!(matches!(completions[1].0, Err(Error::TooLarge { .. })), "{:?}", completions[1]);
    assert!(matches!(completions[2].0, Ok(())), "{:?}", completions[2]);
    assert!(matches!(completions[3].0, Err(Error::PastEnd { got: 0, .. })), "{:?}", completions[3]);
    assert!(matches!(completions[4].0, Ok(())), "{:?}", completions[4]);
    let leases: Vec<usize> = completions.iter().map(|(_, leases)| leases.len()).collect();
    assert_eq!(leases, [1, 1, 0, 1, 1], "leases come back");
    assert_eq!(io.in_flight(), 0);
}

/// Fails reads of the second block.
struct FailsSecond;

impl Script for FailsSecond {
    fn after(&self, transfer: &Transfer, result: Attempt) -> Verdict {
        let second = transfer.op() == Op::Read && transfer.position() == BLOCK as u64;
        Verdict::Deliver(if second { Err(OsError::EIO) } else { result })
    }
}

fn errors_of_the_device_reach_the_continuation_with_the_leases(bench: &Bench) {
    let (io, _rig) = bench.rigged(4, FailsSecond);
    let file = bench.file("file", &[1; 3 * BLOCK]);
    let arena = Arena::new(3, BLOCK).unwrap();
    let completions = Arc::new(Completions::default());
    let request = |block: usize| {
        let lease = arena.take().unwrap();
        (Request::read(&file, (block * BLOCK) as u64, vec![lease]), completions.then(block))
    };
    io.submit_all_then((0..3).map(request).collect());
    io.drain();
    let completions = completions.take(3);
    assert!(completions[0].0.is_ok() && completions[2].0.is_ok(), "{completions:?}");
    assert!(
        matches!(&completions[1].0, Err(Error::Io { source: OsError::EIO, .. })),
        "{:?}",
        completions[1]
    );
    assert_eq!(arena.slots_free(), 0, "the continuations have kept the leases");
    drop(completions);
    assert_eq!(arena.slots_free(), 3, "leases come back");
}

fn a_queue_that_is_closed_runs_the_continuations_it_refuses(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    io.close();
    let completions = Arc::new(Completions::default());
    io.submit_all_then((0..10).map(|number| (read(&file, 0), completions.then(number))).collect());
    for (result, leases) in completions.take(10) {
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        assert_eq!(leases.len(), 1, "leases come back");
    }
}

fn a_misaligned_request_runs_its_continuation(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 2 * BLOCK]);
    let completions = Arc::new(Completions::default());
    let odd = Request::read(&file, 1, vec![lease(BLOCK)]);
    io.submit_all_then(vec![(odd, completions.then(0)), (read(&file, 1), completions.then(1))]);
    io.drain();
    let completions = completions.take(2);
    assert!(matches!(completions[0].0, Err(Error::Misaligned { .. })), "{:?}", completions[0]);
    assert!(completions[1].0.is_ok(), "{:?}", completions[1]);
}

/// A continuation that reports its start and waits for permission to return.
fn gated() -> (Then, mpsc::Receiver<()>, mpsc::Sender<()>, Arc<AtomicBool>) {
    let (begin, begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let then: Then = Box::new(move |_| {
        begin.send(()).unwrap();
        may_end.recv().unwrap();
        flag.store(true, Ordering::SeqCst);
    });
    (then, begun, end, ended)
}

fn a_request_is_in_flight_until_its_continuation_has_returned(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let (then, begun, end, _ended) = gated();
    io.submit_all_then(vec![(read(&file, 0), then)]);
    thread::scope(|scope| {
        scope.spawn(|| io.drain());
        begun.recv_timeout(SOON).expect("the continuation runs");
        let in_flight = io.in_flight();
        end.send(()).unwrap();
        assert_eq!(in_flight, 1, "[CMP-3]");
    });
    io.drain();
    assert_eq!(io.in_flight(), 0, "[CMP-3]");
}

/// Runs `wait` on another thread and asserts that it waits for a continuation.
fn waits_for_a_continuation(io: &Io, file: &File, wait: impl FnOnce() + Send) {
    let (then, begun, end, ended) = gated();
    io.submit_all_then(vec![(read(file, 0), then)]);
    thread::scope(|scope| {
        let waiter = scope.spawn(wait);
        begun.recv_timeout(SOON).expect("the continuation runs");
        thread::sleep(MOMENT);
        let early = waiter.is_finished();
        end.send(()).unwrap();
        waiter.join().unwrap();
        assert!(!early, "[CMP-3] over before the continuation was");
        assert!(ended.load(Ordering::SeqCst), "[CMP-3]");
    });
}

fn a_drain_waits_for_continuations(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    waits_for_a_continuation(&io, &file, || io.drain());
}

fn closing_waits_for_continuations(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    waits_for_a_continuation(&io, &file, || io.close());
}

fn dropping_the_queue_waits_for_continuations(bench: &Bench) {
    let file = bench.file("file", &[1; 64 * BLOCK]);
    for _ in 0..5 {
        let io = bench.io(16);
        let arena = Arena::new(64, BLOCK).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let request = |block: usize| {
            let (ran, lease) = (Arc::clone(&ran), arena.take().unwrap());
            let then: Then = Box::new(move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
            });
            (Request::read(&file, (block * BLOCK) as u64, vec![lease]), then)
        };
        io.submit_all_then((0..64).map(request).collect());
        drop(io);
        assert_eq!(ran.load(Ordering::SeqCst), 64, "[CMP-1] continuations before the queue ends");
        assert_eq!(arena.slots_free(), 64, "leases come back");
    }
}

fn more_requests_than_the_queue_holds_all_end(bench: &Bench) {
    let io = bench.io(3);
    let file = bench.file("file", &[1; 64 * BLOCK]);
    let completions = Arc::new(Completions::default());
    thread::scope(|scope| {
        for part in 0..2 {
            let (io, file, completions) = (&io, &file, &completions);
            scope.spawn(move || {
                let numbers = (part..400).step_by(2);
                let requests = numbers.map(|it| (read(file, it % 64), completions.then(it)));
                io.submit_all_then(requests.collect());
            });
        }
    });
    io.drain();
    assert!(completions.take(400).iter().all(|(result, _)| result.is_ok()));
}

fn places_are_booked_as_far_as_there_are_any_and_given_back(bench: &Bench) {
    let io = bench.io(3);
    let file = bench.file("file", &[1; BLOCK]);
    let completions = Arc::new(Completions::default());
    let booked = io.book(2);
    let rest = io.book(9);
    assert_eq!(
        (booked.len(), rest.len(), io.book(1).len(), io.in_flight()),
        (2, 1, 0, 3),
        "[CMP-2]"
    );
    // One slot is used, one request is refused before it needs a slot, and the unused slots are released.
    let empty = Request::read(&file, 0, Vec::new());
    booked
        .submit_all_then(vec![(read(&file, 0), completions.then(0)), (empty, completions.then(1))]);
    drop(rest);
    io.drain();
    assert_eq!((io.in_flight(), io.stats().held_back), (0, 0), "[CMP-2]");
    assert!(completions.take(2).iter().all(|(result, _)| result.is_ok()));
}

fn waiting_for_what_holds_already_returns_at_once(bench: &Bench) {
    let io = bench.io(4);
    io.wait_until(&|| true);
    let file = bench.file("file", &[1; BLOCK]);
    let completions = Arc::new(Completions::default());
    io.submit_all_then(vec![(read(&file, 0), completions.then(0))]);
    io.wait_until(&|| true);
    io.drain();
    io.wait_until(&|| completions.count() == 1);
}

/// Waits on a separate thread until `flag` is set, and reports when it is.
fn sleeper<'s>(scope: &'s thread::Scope<'s, '_>, io: &'s Io, flag: &Flag) -> mpsc::Receiver<()> {
    let (done, is_done) = mpsc::channel();
    let flag = flag.clone();
    scope.spawn(move || {
        flag.0.1.set(thread::current()).unwrap();
        io.wait_until(&|| flag.is_set());
        done.send(()).unwrap();
    });
    thread::sleep(MOMENT);
    is_done
}

/// After the request has been submitted, only the sleeper itself drives.
fn a_sleeper_is_woken_by_the_continuation_of_a_later_request(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let flag = Flag::default();
    thread::scope(|scope| {
        let wakeup = sleeper(scope, &io, &flag);
        io.submit_all_then(vec![(read(&file, 0), flag.then())]);
        wakeup.recv_timeout(SOON).expect("the sleeper wakes");
    });
}

/// The continuation runs on a thread that continues to drive for another request.
fn a_sleeper_is_woken_though_another_thread_drives_on(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 2 * BLOCK]);
    let (first, second) = (Flag::default(), Flag::default());
    thread::scope(|scope| {
        let driver = sleeper(scope, &io, &second);
        let wakeup = sleeper(scope, &io, &first);
        io.submit_all_then(vec![(read(&file, 0), first.then())]);
        wakeup.recv_timeout(SOON).expect("the sleeper wakes");
        io.submit_all_then(vec![(read(&file, 1), second.then())]);
        driver.recv_timeout(SOON).expect("the driver wakes");
    });
}

/// The continuation runs inside the submission, while a thread sleeps in the kernel or on its own ticket.
fn a_sleeper_is_woken_by_a_request_refused_before_it_started(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; BLOCK]);
    let flag = Flag::default();
    thread::scope(|scope| {
        let wakeup = sleeper(scope, &io, &flag);
        let refused = Request::read(&file, u64::MAX - 4095, vec![lease(BLOCK)]);
        io.submit_all_then(vec![(refused, flag.then())]);
        wakeup.recv_timeout(SOON).expect("the sleeper wakes");
    });
}

fn looking_runs_continuations(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let completions = Arc::new(Completions::default());
    io.submit_all_then((0..4).map(|block| (read(&file, block), completions.then(block))).collect());
    wait_for(|| {
        io.poll();
        completions.count() == 4
    });
    assert!(completions.take(4).iter().all(|(result, _)| result.is_ok()));
}

fn continuations_run_without_a_waiting_thread(bench: &Bench) {
    let io = bench.io(4);
    let file = bench.file("file", &[1; 4 * BLOCK]);
    let completions = Arc::new(Completions::default());
    io.submit_all_then((0..4).map(|block| (read(&file, block), completions.then(block))).collect());
    wait_for(|| completions.count() == 4);
}

fn tickets_and_continuations_share_a_queue(bench: &Bench) {
    let io = bench.io(6);
    let bytes = noise(&mut bench.rng(), 32 * BLOCK);
    let file = bench.file("file", &bytes);
    let completions = Arc::new(Completions::default());
    thread::scope(|scope| {
        let (io, file, completions, bytes) = (&io, &file, &completions, &bytes);
        scope.spawn(move || {
            for number in (0..200).step_by(4) {
                let four =
                    (number..number + 4).map(|it| (read(file, it % 32), completions.then(it)));
                io.submit_all_then(four.collect());
            }
        });
        scope.spawn(move || {
            for number in 0..200 {
                let done = io.submit(read(file, number % 32)).wait();
                done.result.unwrap();
                let expected = &bytes[number % 32 * BLOCK..][..BLOCK];
                assert_same(&done.leases[0], expected, "the block");
            }
        });
    });
    io.drain();
    assert!(completions.take(200).iter().all(|(result, _)| result.is_ok()));
}

/// A continuation that reports its start and waits for permission to continue.
fn held(begun: mpsc::Sender<()>, go_on: mpsc::Receiver<()>, then: Then) -> Then {
    Box::new(move |completed| {
        begun.send(()).unwrap();
        go_on.recv_timeout(SOON).unwrap();
        then(completed);
    })
}

fn a_continuation_that_takes_its_time_holds_up_no_other_thread(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &noise(&mut bench.rng(), 4 * BLOCK));
    let ((begin, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let flag = Flag::default();
    io.submit_all_then(vec![(read(&file, 0), held(begin, go_on, flag.then()))]);
    thread::scope(|scope| {
        scope.spawn(|| {
            flag.0.1.set(thread::current()).unwrap();
            io.wait_until(&|| flag.is_set());
        });
        begun.recv_timeout(SOON).unwrap();
        io.submit(read(&file, 1)).wait().into_result().unwrap();
        let other = Flag::default();
        other.0.1.set(thread::current()).unwrap();
        io.submit_all_then(vec![(read(&file, 2), other.then())]);
        io.wait_until(&|| other.is_set());
        assert!(!flag.is_set(), "the first one is still in hand");
        let_go.send(()).unwrap();
    });
}

fn a_sleeper_in_the_kernel_is_woken_by_a_continuation_in_other_hands(bench: &Bench) {
    let io = bench.io(8);
    let file = bench.file("file", &noise(&mut bench.rng(), 4 * BLOCK));
    let wake = || {
        let ((begin, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
        let flag = Flag::default();
        flag.0.1.set(thread::current()).unwrap();
        io.submit_all_then(vec![(read(&file, 0), held(begin, go_on, flag.then()))]);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !flag.is_set() {
                    io.poll();
                }
            });
            begun.recv_timeout(SOON).unwrap();
            let completions = scope.spawn(move || {
                thread::sleep(MOMENT);
                let now = Instant::now();
                let_go.send(()).unwrap();
                now
            });
            io.wait_until(&|| flag.is_set());
            let woken = Instant::now();
            woken - completions.join().unwrap()
        })
    };
    // Without a wake-up the thread would check again after sleeping for 100 ms.
    let soonest = (0..3).map(|_| wake()).min().unwrap();
    assert!(soonest < MOMENT, "[URG-3] woken after {soonest:?}");
}
