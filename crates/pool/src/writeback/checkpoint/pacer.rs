//! Pacer: when and how many pages of a checkpoint are sent.
//!
//! If the pages of a checkpoint are written as fast as the disk accepts them, they delay all reads and then leave the
//! disk idle until the next one. Here they are spread: a *line* says which share of them may have been sent by now, and
//! whenever it is a batch ahead of what was sent, a batch is sent. The length of a rest follows from where the line
//! meets the next batch; it is not a parameter. Worked example: 6400 pages over 100 s are batches of 32, one every half
//! second.
//!
//! The plan advances with time and with the log, whichever is further: a log that has grown by half of its limit
//! requires half of the pages to be sent. The line follows the plan, with these exceptions:
//! - after the disk stood still, or the log jumped, it catches up at twice the plan's speed, so that the backlog is not
//!   sent in one burst;
//! - when reads take 1.5 times as long as usual it moves no faster than the plan, at six times at a quarter of the
//!   plan's speed, in smaller batches, until it is an eighth of the interval behind;
//! - where less than twice the plan's speed would no longer suffice, neither limit applies.
//!
//! Why an eighth, when the end would allow a half? Reads that are slow because of any write at all stay slow until the
//! end, and all deferred pages have to be sent in less time: the reads would be worse off. An eighth is enough for
//! another client's passing scan.
//!
//! The usual duration of reads is learned before the checkpoint ([`Pacer::baseline`]) and between two steps with
//! nothing in flight; it adapts slowly, so that another kind of work becomes usual in half of the interval.
//!
//! Threads wait for two things: reads that they began themselves, and pages that were read ahead, or for others, and
//! are not resident yet. Each is compared with its own usual time, and the worse of the two counts. A common mean would
//! say more about their mixture than about the disk: a stream waits for few of its pages and not long, so as it begins,
//! slow reads would look fast, and as it ends, the usual ones slow. For pages read ahead the time is that per page,
//! including those that no thread waited for: a stream that never waits until a checkpoint writes has a usual time as
//! well, zero.
//!
//! Invariants:  [PAC-1] the line is never ahead of the plan; it yields at most an eighth of the interval, and at the
//!              end it is not behind
//!              [PAC-2] a disk that keeps up is sent each page within a batch of its turn, while time drives or the log
//!              grows evenly
//!              [PAC-3] in any period at most twice what the plan moves in it, plus a batch, is sent, unless less would
//!              be too late
//!              [PAC-4] there are no rests after `hurry`, or past the end
//!              [PAC-5] lag is the time by which pages were done after the line requested them, in batches; deferral
//!              for the foreground's sake is reported separately
//! Concurrency: one owner, the driver of the checkpoint.
//! Failure:     none; no clock is read, no division by zero pages, time or log.
//! Source:      the two measures of progress are those of PostgreSQL's IsCheckpointOnSchedule, which
//!              sleeps 100 ms when ahead and nothing when behind.

use std::time::Duration;

/// Most pages in a batch: two writes of the usual combine limit, short enough that a read can wait for it.
const BATCH_PAGES_MAX: u64 = 32;

/// A checkpoint of fewer pages is sent in this many batches, or page by page.
const BATCHES_MIN: u64 = 64;

/// Most batches at once, however late they are: the foreground is checked in between.
const BATCHES_AT_ONCE: u64 = 4;

/// How often the log and the foreground are checked in an interval.
const LOOKS: u32 = 256;

/// The catch-up speed, as a multiple of the plan's.
const CATCH_UP: f64 = 2.0;

/// The share of the interval by which pages may be deferred for the foreground.
const YIELD_SHARE_MAX: f64 = 0.125;

/// Reads that take this many times as long as usual are slow.
const SLOW: f64 = 1.5;

/// The slowest that the line moves for the foreground, as a part of the plan's speed.
const YIELD_SPEED_MIN: f64 = 0.25;

/// Pages read ahead that are waited for no longer than this on average are never slow: checking an 8 KiB page takes
/// about as long.
const AHEAD_NOTICED: Duration = Duration::from_micros(2);

/// The number of reads in the recent average.
const RECENT_READS: f64 = 32.0;

/// The averaging time of the usual duration, as a fraction of the interval: one in this many parts.
const USUAL_PARTS: u32 = 2;

/// The averaging time of the plan's speed, as a fraction of the interval: one in this many parts.
const SPEED_PARTS: u32 = 128;

/// Added to a rest, because a step that is slightly too early would do nothing.
const ROUNDED_UP: Duration = Duration::from_micros(1);

/// Absorbs rounding errors from adding shares, in pages.
const ROUNDING_PAGES: f64 = 1e-3;

/// The work of a checkpoint, and its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Pages to write.
    pub(crate) pages: u64,
    /// Time over which to spread them: the interval times the target.
    pub(crate) over: Duration,
    /// Bytes by which the log may grow until all pages must be written; `None` when only time counts.
    pub(crate) log_budget: Option<u64>,
    /// Start time, by the pool's clock.
    pub(crate) started: Duration,
}

/// The observations at a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed {
    /// By the pool's clock.
    pub(crate) now: Duration,
    /// Pages of the checkpoint that are written, by the checkpoint or by others.
    pub(crate) pages_done: u64,
    /// Bytes that the log has grown by since the redo point.
    pub(crate) log_bytes: u64,
    /// The foreground's waits since the last step.
    pub(crate) foreground: Waits,
    /// Pages sent whose write has not ended.
    pub(crate) in_flight: u32,
}

/// The foreground's waits; `None` where there were none of the kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    /// Reads that a thread began because it needed the page.
    pub(crate) own: Option<Latency>,
    /// Pages that were read ahead or for others, whether a thread waited for them or not.
    pub(crate) ahead: Option<Latency>,
}

/// The duration of reads, or of waits for pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) reads: u64,
    pub(crate) mean: Duration,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send at most this many pages, at least 1. Finishing a run of neighbours is allowed.
    Go { pages_max: u32 },
    /// Send nothing before that moment.
    Rest { until: Duration },
}

/// Decides when and how many pages of one checkpoint are sent.
#[derive(Debug)]
pub(crate) struct Pacer {
    plan: Plan,
    /// Pages that are sent together while the foreground is not disturbed.
    batch: u64,
    /// The plan: the share of the pages that time and log require by now.
    planned: f64,
    /// The line, continued from what was really sent.
    asked: f64,
    /// The line for a disk that accepts everything at once: lag is measured from it.
    promised: f64,
    /// The same for a foreground that is never slow.
    unyielding: f64,
    /// Shares per second at which the plan moves.
    speed: f64,
    /// The last step.
    now: Duration,
    due: DueTimes,
    own: Foreground,
    ahead: Foreground,
    /// Nothing has been in flight since the last step.
    quiet: bool,
    hurried: bool,
    lag: Duration,
    /// The largest distance of `promised` behind `unyielding`.
    yielded: f64,
}

impl Pacer {
    /// For a checkpoint that begins now.
    pub(crate) fn new(plan: Plan) -> Pacer {
        Pacer {
            plan,
            batch: (plan.pages / BATCHES_MIN).clamp(1, BATCH_PAGES_MAX),
            planned: 0.0,
            asked: 0.0,
            promised: 0.0,
            unyielding: 0.0,
            speed: 0.0,
            now: plan.started,
            due: DueTimes::new(plan.started),
            own: Foreground::new(Duration::ZERO),
            ahead: Foreground::new(AHEAD_NOTICED),
            quiet: false,
            hurried: false,
            lag: Duration::ZERO,
            yielded: 0.0,
        }
    }

    /// Sets the foreground's waits before the checkpoint.
    pub(crate) fn baseline(&mut self, usual: Waits) {
        for (foreground, usual) in [(&mut self.own, usual.own), (&mut self.ahead, usual.ahead)] {
            if let Some(usual) = usual {
                foreground.usual_ns = Some(usual.mean.as_nanos() as f64);
                foreground.usual_reads = f64::INFINITY;
            }
        }
    }

    /// The next action. Call it whenever there is room for a write, a rest is over, or a write has ended.
    pub(crate) fn step(&mut self, seen: &Observed) -> Verdict {
        let sent = seen.pages_done.saturating_add(u64::from(seen.in_flight));
        let passed = seen.now.saturating_sub(self.now);
        let waits = seen.foreground;
        for (foreground, waits) in [(&mut self.own, waits.own), (&mut self.ahead, waits.ahead)] {
            foreground.observe(waits, seen.now, passed, self.quiet, self.plan.over);
        }
        // What the disk had no room for is requested again, at catch-up speed.
        let in_hand = (sent + self.batch) as f64 / self.plan.pages.max(1) as f64;
        self.asked = self.asked.min(in_hand);
        self.move_on(seen.now, seen.log_bytes);
        self.note_lag(seen);
        let verdict = self.verdict(sent);
        self.quiet = seen.in_flight == 0 && matches!(verdict, Verdict::Rest { .. });
        verdict
    }

    /// No more rests from `now` on [PAC-4]. Pages that were not due by then can no longer be late.
    pub(crate) fn hurry(&mut self, now: Duration) {
        self.move_on(now, 0);
        self.hurried = true;
    }

    /// The longest time by which a page was done after its turn, so far [PAC-5].
    pub(crate) fn lag(&self) -> Duration {
        self.lag
    }

    /// The longest time by which pages were deferred for the foreground's sake, so far [PAC-5].
    pub(crate) fn yielded(&self) -> Duration {
        part_of(self.plan.over, self.yielded)
    }

    /// Moves the plan and the lines to `now`.
    fn move_on(&mut self, now: Duration, log_bytes: u64) {
        let passed = now.saturating_sub(self.now).as_secs_f64();
        self.now = self.now.max(now);
        if self.hurried {
            return;
        }
        let before = self.planned;
        self.planned = before.max(self.time_share()).max(self.log_share(log_bytes));
        let over = self.plan.over.as_secs_f64();
        if passed > 0.0 && over > 0.0 {
            let latest = (self.planned - before) / passed;
            let part = passed / (passed + over / f64::from(SPEED_PARTS));
            self.speed += (latest - self.speed) * part;
        }
        let moved = passed * self.speed.max(over.recip());
        let speed = self.speed_for_foreground();
        for (at, speed) in [
            (&mut self.asked, speed),
            (&mut self.promised, speed),
            (&mut self.unyielding, CATCH_UP),
        ] {
            *at = line(*at, self.planned, moved, speed);
            assert!(*at <= self.planned, "[PAC-1] {at} of {}", self.planned);
        }
        self.due.reach(self.promised, self.now);
        self.yielded = self.yielded.max(self.unyielding - self.promised);
    }

    /// The speed limit of the line for the foreground's sake, as a multiple of the plan's speed.
    fn speed_for_foreground(&self) -> f64 {
        self.own.speed().min(self.ahead.speed())
    }

    fn time_share(&self) -> f64 {
        let elapsed = self.now.saturating_sub(self.plan.started);
        if elapsed >= self.plan.over {
            return 1.0;
        }
        elapsed.as_secs_f64() / self.plan.over.as_secs_f64()
    }

    fn log_share(&self, log_bytes: u64) -> f64 {
        match self.plan.log_budget {
            None => 0.0,
            Some(budget) if log_bytes >= budget => 1.0,
            Some(budget) => log_bytes as f64 / budget as f64,
        }
    }

    /// [PAC-5]
    fn note_lag(&mut self, seen: &Observed) {
        let pages = self.plan.pages;
        if seen.pages_done >= pages {
            return;
        }
        // The first page that is not done is sent with its batch.
        let batch_end = seen.pages_done.saturating_add(self.batch).min(pages);
        if let Some(due) = self.due.when(batch_end as f64 / pages as f64) {
            self.lag = self.lag.max(self.now.saturating_sub(due));
        }
    }

    fn verdict(&self, sent: u64) -> Verdict {
        let pages = self.plan.pages;
        if self.hurried || self.planned >= 1.0 || sent >= pages {
            return Verdict::Go { pages_max: u32::MAX };
        }
        let speed = self.speed_for_foreground();
        let batch = ((self.batch as f64 * speed.min(1.0)) as u64).max(1);
        let due =
            (self.asked * pages as f64 + ROUNDING_PAGES - sent as f64).floor().max(0.0) as u64;
        if due >= batch.min(pages - sent) {
            let pages_max = due.min(batch * BATCHES_AT_ONCE);
            return Verdict::Go { pages_max: u32::try_from(pages_max).unwrap_or(u32::MAX) };
        }
        // Behind the plan the line moves at its own speed, on the plan no faster than the plan.
        let speed = if self.asked < self.planned { speed } else { speed.min(1.0) };
        let over = self.plan.over.as_secs_f64();
        let missing = (sent + batch).min(pages) as f64 / pages as f64 - self.asked;
        let rest = missing.max(0.0) / (speed * self.speed.max(over.recip()));
        let rest = Duration::from_secs_f64(rest.min(over / f64::from(LOOKS)));
        let end = self.plan.started.saturating_add(self.plan.over);
        Verdict::Rest { until: self.now.saturating_add(rest).min(end).saturating_add(ROUNDED_UP) }
    }
}

/// The point that a line reaches from `at`, when the plan is at `planned` and would have advanced by `moved` meanwhile
/// at its recent speed. `speed`: of the line, as a multiple of the plan's. All but `speed` are shares of the pages.
fn line(at: f64, planned: f64, moved: f64, speed: f64) -> f64 {
    let left = 1.0 - planned;
    // Half of the remainder is caught up at 1.5 times the plan's speed: part of the 2 is in reserve.
    let latest = planned - YIELD_SHARE_MAX.min(left / 2.0);
    let next = (at + speed * moved).max(latest).min(at + CATCH_UP * moved); // [PAC-3]
    next.max(1.0 - CATCH_UP * left).min(planned)
}

/// The recent and the usual duration of one kind of wait.
#[derive(Debug, Default)]
struct Foreground {
    /// Lower bound of the usual duration.
    noticed_ns: f64,
    usual_ns: Option<f64>,
    /// The number of reads behind the usual duration.
    usual_reads: f64,
    recent_ns: Option<f64>,
    /// When reads were last seen.
    read_at: Duration,
}

impl Foreground {
    fn new(noticed: Duration) -> Foreground {
        let noticed_ns = (noticed.as_nanos() as f64).max(1.0);
        Foreground { noticed_ns, ..Foreground::default() }
    }

    /// `passed`: since the last step. `quiet`: nothing was in flight meanwhile. `over`: the interval.
    fn observe(
        &mut self,
        seen: Option<Latency>,
        now: Duration,
        passed: Duration,
        quiet: bool,
        over: Duration,
    ) {
        let Some(Latency { reads, mean }) = seen.filter(|latency| latency.reads > 0) else {
            // After a while without reads there is no foreground to yield to.
            if now.saturating_sub(self.read_at) > over / LOOKS * 4 {
                self.recent_ns = None;
            }
            return;
        };
        self.read_at = now;
        let (reads, mean) = (reads as f64, mean.as_nanos() as f64);
        smooth(&mut self.recent_ns, mean, reads / (reads + RECENT_READS));
        if quiet {
            self.usual_reads += reads;
            let (passed, long) = (passed.as_secs_f64(), (over / USUAL_PARTS).as_secs_f64());
            let by_time = if passed > 0.0 { passed / (passed + long) } else { 0.0 };
            smooth(&mut self.usual_ns, mean, by_time.max(reads / self.usual_reads));
        }
    }

    /// The speed limit of the line, as a multiple of the plan's speed.
    fn speed(&self) -> f64 {
        let (Some(recent), Some(usual)) = (self.recent_ns, self.usual_ns) else {
            return CATCH_UP;
        };
        let times = recent / usual.max(self.noticed_ns);
        if times < SLOW { CATCH_UP } else { (SLOW / times).clamp(YIELD_SPEED_MIN, 1.0) }
    }
}

/// Moves a smoothed time towards `new` by `part` of the way; the first one counts in full.
fn smooth(smoothed: &mut Option<f64>, new: f64, part: f64) {
    *smoothed = Some(smoothed.map_or(new, |old| old + (new - old) * part));
}

/// When the line requested which share of the pages: points of it, linearly interpolated.
#[derive(Debug)]
struct DueTimes {
    /// When the line reached 0, 1/64, 2/64 ... of the pages.
    at: [Duration; DueTimes::MARKS + 1],
    /// How many of these it has reached.
    known: usize,
    /// Its current position.
    last: (f64, Duration),
}

impl DueTimes {
    const MARKS: usize = 64;

    fn new(started: Duration) -> DueTimes {
        DueTimes { at: [started; DueTimes::MARKS + 1], known: 1, last: (0.0, started) }
    }

    /// The line is at `share` now.
    fn reach(&mut self, share: f64, now: Duration) {
        while self.known <= DueTimes::MARKS && mark(self.known) <= share {
            self.at[self.known] = between(self.last, (share, now), mark(self.known));
            self.known += 1;
        }
        self.last = (share, now);
    }

    /// When the line reached `share`; `None` if it has not.
    fn when(&self, share: f64) -> Option<Duration> {
        if share > self.last.0 {
            return None;
        }
        let before = ((share * DueTimes::MARKS as f64) as usize).min(self.known - 1);
        let after = match self.at.get(before + 1) {
            Some(&at) if before + 1 < self.known => (mark(before + 1), at),
            _ => self.last,
        };
        Some(between((mark(before), self.at[before]), after, share))
    }
}

fn mark(index: usize) -> f64 {
    index as f64 / DueTimes::MARKS as f64
}

/// When a straight line from `from` to `to` reached `share`.
fn between(from: (f64, Duration), to: (f64, Duration), share: f64) -> Duration {
    let part = (share - from.0) / (to.0 - from.0);
    // NaN where nothing moved.
    let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
    from.1 + part_of(to.1.saturating_sub(from.1), part)
}

/// `share` of `time`, at most all of it; without the overflow of `mul_f64` for the longest times.
fn part_of(time: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * share).map_or(time, |part| part.min(time))
}

#[cfg(test)]
mod tests;
