//! A race: readers that start together, and what they have read when it is over.
//!
//! All wait at a gate, then read. The race ends when time is up or when the first of them has read its
//! share, because from then on there are fewer readers than are to be measured. What counts is what
//! each had read at that moment, not what it still finishes afterwards. Worked example: of two readers
//! one has its 32 MiB after 0.5 s, when the other has 20 MiB; 52 MiB in 0.5 s is the result.
//!
//! A race may have a time to settle, which is not counted.
//!
//! Invariants:  [RCE-1] nothing that is read after the end of a race is counted
//! Concurrency: a thread for each reader; counters of their own; the end is taken once, under a lock.
//! Failure:     the first reader that fails ends the race with its error; Ctrl-C does the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::interrupt;

/// How often it is looked for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Who takes part.
pub(super) trait Runner: Send {
    /// Reads until its share is read or [`Lane::moved`] says that the race is over.
    ///
    /// # Errors
    /// A read that failed, or gave something else than what was asked for.
    fn run(&mut self, lane: &Lane<'_>) -> anyhow::Result<()>;
}

/// How long a race takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Not counted.
    pub(super) settle: Duration,
    /// Counted, at most.
    pub(super) time_max: Duration,
}

/// What came of a race.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finish {
    pub(super) seconds: f64,
    /// What each had moved, in the order of the runners.
    pub(super) moved: Vec<u64>,
    /// Whether one of them had its share before time was up.
    pub(super) by_share: bool,
}

impl Finish {
    /// All together.
    pub(super) fn total(&self) -> u64 {
        self.moved.iter().sum()
    }
}

/// Where a runner says what it has done.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    track: &'a Track,
    number: usize,
}

impl Lane<'_> {
    /// Counts `amount` more; true while the race goes on.
    pub(super) fn moved(&self, amount: u64) -> bool {
        if self.track.over.load(Ordering::Acquire) {
            return false;
        }
        self.track.moved[self.number].fetch_add(amount, Ordering::AcqRel);
        true
    }

    /// Whether what is done now is counted.
    pub(super) fn is_settled(&self) -> bool {
        self.track.settled.load(Ordering::Acquire)
    }
}

/// What all of them share.
#[derive(Debug)]
struct Track {
    gate: Barrier,
    moved: Vec<AtomicU64>,
    settled: AtomicBool,
    over: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When counting began, and what had been moved before.
    start: Option<(Instant, Vec<u64>)>,
    finish: Option<Finish>,
}

impl Track {
    fn so_far(&self) -> Vec<u64> {
        self.moved.iter().map(|moved| moved.load(Ordering::Acquire)).collect()
    }

    /// Counting begins.
    fn start(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.start = Some((Instant::now(), self.so_far()));
        self.settled.store(true, Ordering::Release);
    }

    /// Takes the end, unless that has been done.
    fn finish(&self, by_share: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.finish.is_none() {
            let mut moved = self.so_far();
            self.over.store(true, Ordering::Release); // [RCE-1]
            let (start, before) =
                state.start.clone().unwrap_or_else(|| (Instant::now(), moved.clone()));
            moved.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
            let seconds = start.elapsed().as_secs_f64();
            state.finish = Some(Finish { seconds, moved, by_share });
        }
        self.ended.notify_all();
    }

    /// Waits for `time` or the end, whichever comes first.
    fn wait(&self, time: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.finish.is_none() && begun.elapsed() < time {
            interrupt::check()?;
            let left = time.saturating_sub(begun.elapsed()).min(LOOK_INTERVAL);
            let waited = self.ended.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Lets them go, and looks at the clock.
    fn time(&self, limits: Limits) -> anyhow::Result<()> {
        // Once until all are there, and once to let them go: none has read before the watch is started.
        self.gate.wait();
        if limits.settle.is_zero() {
            self.start();
        }
        self.gate.wait();
        if !limits.settle.is_zero() {
            self.wait(limits.settle)?;
            self.start();
        }
        self.wait(limits.time_max)
    }
}

/// Holds a race of `runners`.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong first.
pub(super) fn hold<R: Runner>(runners: &mut [R], limits: Limits) -> anyhow::Result<Finish> {
    let track = Track {
        gate: Barrier::new(runners.len() + 1),
        moved: runners.iter().map(|_| AtomicU64::new(0)).collect(),
        settled: AtomicBool::new(false),
        over: AtomicBool::new(false),
        state: Mutex::default(),
        ended: Condvar::new(),
    };
    let run = |(number, runner): (usize, &mut R)| {
        track.gate.wait();
        track.gate.wait();
        let ran = runner.run(&Lane { track: &track, number });
        track.finish(ran.is_ok());
        ran
    };
    let (timed, ran) = std::thread::scope(|scope| {
        let numbered = runners.iter_mut().enumerate();
        let threads: Vec<_> = numbered.map(|one| scope.spawn(|| run(one))).collect();
        let timed = track.time(limits);
        track.finish(false);
        let ran = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (timed, ran.collect::<Vec<anyhow::Result<()>>>())
    });
    timed?;
    ran.into_iter().collect::<anyhow::Result<()>>()?;
    let state = track.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(state.finish.expect("taken by the last line of the scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves one, `times` times, each after a pause.
    struct Walker {
        times: u64,
        pause: Duration,
        fails: bool,
    }

    impl Runner for Walker {
        fn run(&mut self, lane: &Lane<'_>) -> anyhow::Result<()> {
            for _ in 0..self.times {
                std::thread::sleep(self.pause);
                if !lane.moved(1) {
                    return Ok(());
                }
            }
            if self.fails { anyhow::bail!("it hurts") } else { Ok(()) }
        }
    }

    fn walker(times: u64, pause_ms: u64) -> Walker {
        Walker { times, pause: Duration::from_millis(pause_ms), fails: false }
    }

    const LONG: Limits = Limits { settle: Duration::ZERO, time_max: Duration::from_secs(60) };

    #[test]
    fn the_first_who_has_its_share_ends_the_race() {
        let begun = Instant::now();
        // The second would take a minute and a half.
        let finish = hold(&mut [walker(20, 2), walker(900, 100)], LONG).unwrap();
        assert!(finish.by_share);
        assert_eq!(finish.moved[0], 20);
        assert!(finish.moved[1] < 900, "{finish:?}");
        assert!(finish.seconds >= 0.040 && begun.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn when_time_is_up_what_comes_later_does_not_count() {
        let limits = Limits { time_max: Duration::from_millis(100), ..LONG };
        // One step takes three times as long as there is.
        let finish = hold(&mut [walker(10, 300), walker(10, 300)], limits).unwrap();
        assert!(!finish.by_share);
        // On a machine that stands still the umpire may come late, but nothing counts after it came.
        assert!(finish.seconds >= 0.100, "{finish:?}");
        assert_eq!(
            finish.total(),
            if finish.seconds < 0.300 { 0 } else { finish.total() },
            "[RCE-1]"
        );
    }

    #[test]
    fn what_is_done_while_it_settles_does_not_count() {
        let settle = Duration::from_millis(300);
        let limits = Limits { settle, time_max: Duration::from_millis(20) };
        let finish = hold(&mut [walker(u64::MAX, 10)], limits).unwrap();
        // Thirty steps in the first part, and as many as time allows in the second.
        let most = finish.seconds / 0.010 + 1.0;
        assert!(finish.total() as f64 <= most, "{finish:?}");
    }

    #[test]
    fn one_who_fails_ends_the_race_with_its_error() {
        let mut hurt = walker(1, 1);
        hurt.fails = true;
        let error = hold(&mut [hurt, walker(900, 100)], LONG).unwrap_err();
        assert_eq!(error.to_string(), "it hurts");
    }
}
