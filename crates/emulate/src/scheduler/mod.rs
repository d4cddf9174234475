//! The scheduler: a timing model driven by a real clock.
//!
//! A request is submitted in two steps. First its commands go to the model when it arrives, so that its
//! time starts. Then, after its bytes have been copied, the answer is submitted, to be sent when the model says so.
//! Copying a megabyte is therefore part of the emulated service time, not an addition to it.
//!
//! A few equal workers send the answers. One worker at a time, the leader, sleeps until the model's next
//! event. When answers are due, the leader sends short ones itself and continues. Before it sends a long one (which
//! is copied to the kernel), it hands leadership to another worker, so that the next event does not wait for the
//! copy. Rejected: one timer thread that hands answers to a pool, which costs every answer a second wake-up.
//!
//! A sleeping thread wakes some tens of microseconds late, so the leader sleeps until shortly before the event
//! and polls the clock for the rest ([`WATCHED`]); timer slack is set to its minimum.
//!
//! Invariants:  [SCD-1] every submitted request is answered exactly once, whatever the model does after
//!              timing has been switched off or the scheduler has been stopped
//!              [SCD-2] requests reach the model in order of arrival, at times that never go back
//!              [SCD-3] no answer is sent under the lock
//!              [SCD-4] requests released when timing was switched off do not delay later requests
//!              [SCD-5] after a load the model is in the state that it would have if its time had really passed
//! Concurrency: one lock over the model and the requests that wait for it. Answers run on workers, or on the caller
//!              of [`Scheduler::ready`] if the model was faster than the copying.
//! Failure:     an answer that panics ends its thread; the owner of the process decides what happens then.

mod clock;
mod statistics;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use clock::{Clock, Date, today};
pub use statistics::{Counters, Summary};

use crate::log::{Arrived, EntryNumber, RequestLog};
use crate::model::{Command, Device, Ended, Op};
use statistics::Statistics;

/// Threads that send answers.
const WORKERS: usize = 3;

/// How long before an event the leader stops sleeping and polls the clock instead.
const WATCHED: Duration = Duration::from_micros(40);

/// Answers with at least this many bytes are sent by a thread that has handed leadership to another worker.
const LONG_ANSWER_BYTES: u64 = 32 << 10;

/// Bits of a command's number that identify its part of the request.
const PART_BITS: u32 = 10;

/// Maximum number of commands that one request may be split into.
pub(crate) const PARTS_MAX: usize = 1 << PART_BITS;

/// How far the model's time may run ahead of the clock to complete released commands: a hundred years.
const AHEAD_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Maximum number of model steps while released commands complete; an array of disks with full write caches takes
/// some ten thousand.
const LET_GO_STEPS_MAX: u32 = 1 << 20;

/// Reads that a load keeps in progress, and the maximum number of reads that it makes: a volume with the largest
/// credits spends them in some six million.
const LOAD_DEPTH: u64 = 64;
const LOAD_STEPS_MAX: u64 = 1 << 24;

/// What to do when the model says that a request has ended.
pub(crate) type Answer = Box<dyn FnOnce() + Send>;

/// A request as it arrives.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    /// The kernel's number for it.
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) file: &'a Arc<str>,
    /// First byte, in the file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Position and length on the device of each part; empty if the range has no place there.
    pub(crate) places: &'a [(u64, u64)],
}

/// A submitted request without an answer yet.
#[derive(Debug)]
#[must_use = "a request without an answer keeps its caller waiting forever"]
pub(crate) struct Ticket {
    request: u64,
    len: u64,
}

/// A device that answers requests in the model's time.
#[derive(Debug)]
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// The leader sleeps here.
    alarm: Condvar,
    /// Threads that wait for answers to be recorded sleep here.
    recorded: Condvar,
    /// Workers that do not lead sleep here.
    followers: Condvar,
    /// When the leader has something to do, in emulated nanoseconds: the model's next event, 0 (now) if
    /// answers are due, `u64::MAX` (never) if there is nothing.
    next_event_ns: AtomicU64,
    clock: Clock,
    log: RequestLog,
}

#[derive(Debug)]
struct Inner {
    device: Box<dyn Device>,
    waiting: HashMap<u64, Waiting>,
    /// Answers that are due, with what to record about them.
    due: Vec<Due>,
    /// Requests whose answers are being sent and are not recorded yet.
    sending: Vec<u64>,
    /// Kept for its allocation.
    ended: Vec<Ended>,
    statistics: Statistics,
    /// The latest clock time that was passed to the model.
    reported: Duration,
    /// How far the model's time is ahead of the clock, because released commands have been completed.
    ahead: Duration,
    next_request: u64,
    timing: bool,
    led: bool,
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    /// Number of its commands that the model has not ended.
    parts: usize,
    accounting: Accounting,
    answer: Option<LaterAnswer>,
}

/// What the log and the statistics need of a request.
#[derive(Debug, Clone, Copy)]
struct Accounting {
    entry: EntryNumber,
    arrived: Duration,
    ended: Duration,
    timed: bool,
}

struct LaterAnswer {
    send: Answer,
    len: u64,
}

impl fmt::Debug for LaterAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LaterAnswer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Due {
    request: u64,
    accounting: Accounting,
    answer: LaterAnswer,
}

impl Scheduler {
    /// Drives `device`, `speed_up` times as fast as the real device.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub(crate) fn start(
        device: Box<dyn Device>,
        speed_up: f64,
        log: RequestLog,
    ) -> std::io::Result<Scheduler> {
        let shared = Arc::new(Shared::new(device, speed_up, log));
        let mut scheduler = Scheduler { shared: Arc::clone(&shared), workers: Vec::new() };
        for number in 0..WORKERS {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name(format!("emulate-{number}"));
            scheduler.workers.push(named.spawn(move || shared.work())?);
        }
        Ok(scheduler)
    }

    /// Submits a request; its time starts now. The answer must follow: see [`Scheduler::ready`].
    pub(crate) fn arrive(&self, incoming: &Incoming<'_>) -> Ticket {
        self.shared.arrive(incoming)
    }

    /// Sends `answer` when the model says so, or at once if it has said so already.
    pub(crate) fn ready(&self, ticket: Ticket, answer: Answer) {
        self.shared.ready(ticket, answer);
    }

    /// Off: all requests end at once, including those in progress. On: the model's time counts again, and it has
    /// no work left from before.
    pub(crate) fn set_timing(&self, timing: bool) {
        let mut inner = self.shared.lock();
        inner.timing = timing;
        if !timing {
            let now = self.shared.clock.now();
            inner.release_all(now);
            inner.let_go(now);
            self.shared.note_next_event(&inner);
            self.shared.alarm.notify_one();
        }
    }

    /// Makes the model perform random reads of `len` bytes, some dozens at a time, for `span` of emulated time, which
    /// passes at once: credits are spent, and caches are as after such a load. Requests in progress end.
    pub(crate) fn load(&self, len: u64, span: Duration) {
        let mut inner = self.shared.lock();
        let now = self.shared.clock.now().max(inner.reported);
        inner.release_all(now);
        inner.let_go(now);
        inner.load(&self.shared.clock, len, span);
        self.shared.note_next_event(&inner);
        self.shared.alarm.notify_one();
    }

    /// Waits until the answers that are being sent are recorded. A caller that got one may read the log at once, and
    /// should find it there.
    pub(crate) fn settle(&self) {
        let mut inner = self.shared.lock();
        let sending = inner.sending.clone();
        while inner.sending.iter().any(|request| sending.contains(request)) {
            inner = self.shared.recorded.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The counters since the mount.
    pub(crate) fn counters(&self) -> Counters {
        self.shared.lock().statistics.counters(self.shared.clock.now())
    }

    /// How well the real clock followed the model.
    pub(crate) fn summary(&self) -> Summary {
        self.shared.lock().statistics.summary()
    }

    /// The requests.
    pub(crate) fn log(&self) -> &RequestLog {
        &self.shared.log
    }

    /// Answers all waiting requests, and from now on answers every request at once.
    pub(crate) fn stop(&self) {
        let mut inner = self.shared.lock();
        inner.timing = false;
        inner.stopped = true;
        inner.release_all(self.shared.clock.now());
        self.shared.note_next_event(&inner);
        self.shared.alarm.notify_all();
        self.shared.followers.notify_all();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop();
        for worker in self.workers.drain(..) {
            // A worker that panicked has reported that itself.
            drop(worker.join());
        }
    }
}

impl Inner {
    /// Advances the model to `now`.
    fn advance(&mut self, now: Duration) {
        self.reported = self.reported.max(now);
        let mut ended = std::mem::take(&mut self.ended);
        self.device.advance(self.reported + self.ahead, &mut ended);
        for Ended { id, at } in ended.drain(..) {
            self.end_part(Ended { id, at: at.saturating_sub(self.ahead) });
        }
        self.ended = ended;
    }

    fn end_part(&mut self, ended: Ended) {
        let request = ended.id >> PART_BITS;
        // Absent if timing was switched off meanwhile.
        let Some(waiting) = self.waiting.get_mut(&request) else { return };
        assert!(
            ended.at >= waiting.accounting.arrived,
            "[MOD-1] a command ended before it arrived"
        );
        waiting.accounting.ended = waiting.accounting.ended.max(ended.at);
        waiting.parts -= 1;
        if waiting.parts == 0 {
            self.end_request(request);
        }
    }

    /// Ends `request`: the model has no work left for it.
    fn end_request(&mut self, request: u64) {
        if let Some(waiting) = self.waiting.get(&request)
            && waiting.answer.is_none()
        {
            return; // `ready` will find that it has ended
        }
        if let Some(Waiting { accounting, answer: Some(answer), .. }) =
            self.waiting.remove(&request)
        {
            self.due.push(Due { request, accounting, answer });
        }
    }

    /// The time at which the model must be advanced next, by the clock.
    fn next_event(&self) -> Option<Duration> {
        self.device.next_event().map(|at| at.saturating_sub(self.ahead))
    }

    /// Makes the model complete the commands that no request waits for any more, without waiting: its time runs ahead.
    /// No command is left then, and the arm and the caches are in the state in which these commands leave them.
    fn let_go(&mut self, now: Duration) {
        self.reported = self.reported.max(now);
        let mut ended = std::mem::take(&mut self.ended);
        for _ in 0..LET_GO_STEPS_MAX {
            let next = self.device.next_event().filter(|at| *at <= self.reported + AHEAD_MAX);
            let Some(next) = next else { break };
            self.device.advance(next, &mut ended);
            ended.clear();
            self.ahead = self.ahead.max(next.saturating_sub(self.reported));
        }
        self.ended = ended;
    }

    /// See [`Scheduler::load`]; the model's time runs ahead.
    fn load(&mut self, clock: &Clock, len: u64, span: Duration) {
        let mut random = fastrand::Rng::with_seed(0);
        let places = (self.device.size_bytes() / len.max(1)).max(1);
        let mut read = |device: &mut dyn Device, at: Duration, id: u64| {
            let offset = random.u64(..places) * len;
            device.submit(at, id, Command { op: Op::Read, offset, len });
        };
        let mut at = self.reported + self.ahead;
        let end = at + span;
        // Numbers that no request has, so that no request waits for these reads.
        for id in 0..LOAD_DEPTH {
            read(&mut *self.device, at, u64::MAX - id);
        }
        let mut ended = std::mem::take(&mut self.ended);
        for _ in 0..LOAD_STEPS_MAX {
            let Some(next) = self.device.next_event().filter(|next| *next < end) else { break };
            at = next;
            self.device.advance(at, &mut ended);
            for Ended { id, .. } in ended.drain(..) {
                read(&mut *self.device, at, id);
            }
        }
        self.ended = ended;
        // The time that the clock has counted meanwhile is not work left in the device [SCD-5].
        self.reported = self.reported.max(clock.now());
        self.ahead = self.ahead.max(at.saturating_sub(self.reported));
        self.let_go(self.reported);
    }

    /// Ends all requests that the model still has, at `now`.
    fn release_all(&mut self, now: Duration) {
        let under_way = self.waiting.iter().filter(|(_, waiting)| waiting.parts > 0);
        let requests: Vec<u64> = under_way.map(|(request, _)| *request).collect();
        for request in requests {
            if let Some(waiting) = self.waiting.get_mut(&request) {
                waiting.parts = 0;
                waiting.accounting.ended = now.max(waiting.accounting.arrived);
                waiting.accounting.timed = false;
            }
            self.end_request(request);
        }
    }
}

impl Shared {
    fn new(device: Box<dyn Device>, speed_up: f64, log: RequestLog) -> Shared {
        let inner = Inner {
            device,
            waiting: HashMap::new(),
            due: Vec::new(),
            sending: Vec::new(),
            ended: Vec::new(),
            statistics: Statistics::default(),
            reported: Duration::ZERO,
            ahead: Duration::ZERO,
            next_request: 0,
            timing: true,
            led: false,
            stopped: false,
        };
        Shared {
            inner: Mutex::new(inner),
            alarm: Condvar::new(),
            recorded: Condvar::new(),
            followers: Condvar::new(),
            next_event_ns: AtomicU64::new(u64::MAX),
            clock: Clock::start(speed_up),
            log,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, incoming: &Incoming<'_>) -> Ticket {
        assert!(incoming.places.len() <= PARTS_MAX, "a request in too many parts");
        let mut inner = self.lock();
        // Under the lock, so that the order of arrivals is the order of their times.
        let now = self.clock.now().max(inner.reported);
        let entry = self.log.arrived(Arrived {
            at: now,
            number: incoming.number,
            op: incoming.op,
            file: Arc::clone(incoming.file),
            offset: incoming.offset,
            len: incoming.len,
            device_offset: incoming.places.first().map(|(offset, _)| *offset),
        });
        let request = inner.next_request;
        inner.next_request += 1;
        inner.statistics.arrived(incoming.op, incoming.len, now);
        // Events of the model before this arrival come first.
        inner.advance(now);
        let timed = inner.timing && (incoming.op == Op::Flush || !incoming.places.is_empty());
        let mut parts = 0;
        if timed {
            parts = incoming.places.len().max(1);
            for part in 0..parts {
                let (offset, len) = incoming.places.get(part).copied().unwrap_or((0, 0));
                let command = Command { op: incoming.op, offset, len };
                let id = request << PART_BITS | part as u64;
                let by_model = now + inner.ahead;
                inner.device.submit(by_model, id, command);
            }
        }
        let accounting = Accounting { entry, arrived: now, ended: now, timed };
        inner.waiting.insert(request, Waiting { parts, accounting, answer: None });
        let sooner = self.note_next_event(&inner);
        let awaited = !inner.due.is_empty();
        drop(inner);
        if sooner || awaited {
            self.alarm.notify_one();
        }
        Ticket { request, len: incoming.len }
    }

    /// Publishes the time at which the leader, which may be polling the clock, has something to do. True if that is
    /// sooner than before.
    fn note_next_event(&self, inner: &Inner) -> bool {
        let next_ns = if inner.stopped || !inner.due.is_empty() {
            // Another thread, which does not send the answer, has noticed the event that the leader waits for.
            0
        } else {
            let next = inner.next_event();
            next.map_or(u64::MAX, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
        };
        next_ns < self.next_event_ns.swap(next_ns, Ordering::Relaxed)
    }

    fn ready(&self, Ticket { request, len }: Ticket, send: Answer) {
        let mut inner = self.lock();
        let answer = LaterAnswer { send, len };
        match inner.waiting.get_mut(&request) {
            Some(waiting) if waiting.parts > 0 => waiting.answer = Some(answer),
            Some(waiting) => {
                let accounting = waiting.accounting;
                inner.waiting.remove(&request);
                inner.sending.push(request);
                drop(inner);
                self.send(Due { request, accounting, answer });
            }
            None => unreachable!("[SCD-1] a request was answered before it had an answer"),
        }
    }

    /// Sends an answer, and records when it was sent.
    fn send(&self, due: Due) {
        (due.answer.send)();
        let replied = self.clock.now();
        let Accounting { entry, arrived, ended, timed } = due.accounting;
        self.log.ended(entry, ended - arrived, replied.max(arrived));
        let late = timed.then(|| self.clock.real(replied.saturating_sub(ended)));
        let mut inner = self.lock();
        inner.statistics.answered(late, replied);
        inner.sending.retain(|request| *request != due.request);
        self.recorded.notify_all();
    }

    /// The main loop of a worker.
    fn work(&self) {
        clock::least_timer_slack();
        let mut inner = self.lock();
        loop {
            while inner.led && !inner.stopped {
                inner = self.followers.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            inner.led = true;
            let due;
            (inner, due) = self.lead(inner);
            if due.is_empty() {
                return; // stopped, and no answers are left
            }
            inner.led = false;
            let long = due.iter().any(|one| one.answer.len >= LONG_ANSWER_BYTES);
            if long {
                self.followers.notify_one();
            } else {
                inner.led = true;
            }
            drop(inner);
            due.into_iter().for_each(|one| self.send(one));
            inner = self.lock();
            if !long {
                inner.led = false; // this worker continues to lead, since it holds the lock
            }
        }
    }

    /// Waits until answers are due. Returns without any if the scheduler has been stopped.
    fn lead<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> (MutexGuard<'a, Inner>, Vec<Due>) {
        loop {
            let now = self.clock.now();
            inner.advance(now);
            self.note_next_event(&inner);
            if !inner.due.is_empty() || inner.stopped {
                let due = std::mem::take(&mut inner.due);
                inner.sending.extend(due.iter().map(|one| one.request));
                return (inner, due);
            }
            let Some(next) = inner.next_event() else {
                inner = self.alarm.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = self.clock.real(next.saturating_sub(now));
            if left > WATCHED {
                let waited = self.alarm.wait_timeout(inner, left - WATCHED);
                (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(inner);
                while self.clock.now_ns() < self.next_event_ns.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                inner = self.lock();
            }
        }
    }
}

#[cfg(test)]
mod tests;
