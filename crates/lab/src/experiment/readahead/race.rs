//! A race: readers that start together, and what they have read when it ends.
//!
//! All wait at a gate, then read. The race ends when time is up or when the first of them has read its
//! share, because from then on fewer readers run than the measurement needs. Only the bytes that
//! each had read at that moment count, not what it still finishes afterwards. Worked example: of two readers
//! one has its 32 MiB after 0.5 s, when the other has 20 MiB; 52 MiB in 0.5 s is the result.
//!
//! A race may have a time to settle, which is not counted.
//!
//! Invariants:  [RCE-1] nothing that is read after the end of a race is counted
//! Concurrency: a thread and a counter for each reader; the end is taken once.
//! Failure:     the first reader that fails ends the race with its error; Ctrl-C does the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use forebay_measure::interrupt;

/// The interval of checks for Ctrl-C.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A participant.
pub(super) trait Runner: Send {
    /// Reads until its share is read or [`ReadCounter::moved`] says that the race is over.
    ///
    /// # Errors
    /// A read that failed, or returned a block other than the requested one.
    fn run(&mut self, counter: &ReadCounter<'_>) -> anyhow::Result<()>;
}

/// The result of a race.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finish {
    pub(super) seconds: f64,
    /// The bytes that each has read, in the order of the runners.
    pub(super) moved: Vec<u64>,
}

#[cfg(test)]
impl Finish {
    /// All together.
    pub(super) fn total(&self) -> u64 {
        self.moved.iter().sum()
    }
}

/// Where a runner counts what it has done.
#[derive(Debug)]
pub(super) struct ReadCounter<'a> {
    track: &'a Track,
    number: usize,
}

impl ReadCounter<'_> {
    /// Counts `amount` more; true while the race is running.
    pub(super) fn moved(&self, amount: u64) -> bool {
        if self.is_settled() {
            self.track.moved[self.number].fetch_add(amount, Ordering::AcqRel);
        }
        !self.is_over()
    }

    /// Whether work done now is counted.
    pub(super) fn is_settled(&self) -> bool {
        self.track.start.get().is_some()
    }

    /// Whether nothing more is counted.
    pub(super) fn is_over(&self) -> bool {
        self.track.finish.get().is_some()
    }
}

/// The state that all of them share.
#[derive(Debug)]
struct Track {
    gate: Barrier,
    moved: Vec<AtomicU64>,
    /// When counting began.
    start: OnceLock<Instant>,
    finish: OnceLock<Finish>,
    umpire: Thread,
}

impl Track {
    /// Takes the end, unless it has been taken.
    fn finish(&self) {
        self.finish.get_or_init(|| {
            let moved = self.moved.iter().map(|moved| moved.load(Ordering::Acquire)).collect(); // [RCE-1]
            let seconds = self.start.get().map_or(0.0, |start| start.elapsed().as_secs_f64());
            Finish { seconds, moved }
        });
        self.umpire.unpark();
    }

    /// Waits for `time` or the end, whichever is first.
    fn wait(&self, time: Duration) -> Result<(), interrupt::Interrupted> {
        let begun = Instant::now();
        while self.finish.get().is_none() && begun.elapsed() < time {
            interrupt::check()?;
            thread::park_timeout(time.saturating_sub(begun.elapsed()).min(LOOK_INTERVAL));
        }
        Ok(())
    }

    /// Starts them, and reads the clock.
    fn time(&self, settle: Duration, time_max: Duration) -> Result<(), interrupt::Interrupted> {
        let start = || self.start.get_or_init(Instant::now);
        // Once until all have arrived, and once to start them: none has read before the watch is started.
        self.gate.wait();
        if settle.is_zero() {
            start();
        }
        self.gate.wait();
        self.wait(settle)?;
        start();
        self.wait(time_max)
    }
}

/// Runs a race of `runners`, with the time `settle` before counting and at most `time_max` from then on.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what went wrong first.
pub(super) fn hold<R: Runner>(
    runners: &mut [R],
    settle: Duration,
    time_max: Duration,
) -> anyhow::Result<Finish> {
    let track = Track {
        gate: Barrier::new(runners.len() + 1),
        moved: runners.iter().map(|_| AtomicU64::new(0)).collect(),
        start: OnceLock::new(),
        finish: OnceLock::new(),
        umpire: thread::current(),
    };
    let run = |(number, runner): (usize, &mut R)| {
        track.gate.wait();
        track.gate.wait();
        let ran = runner.run(&ReadCounter { track: &track, number });
        track.finish();
        ran
    };
    thread::scope(|scope| {
        let numbered = runners.iter_mut().enumerate();
        let threads: Vec<_> = numbered.map(|one| scope.spawn(|| run(one))).collect();
        let timed = track.time(settle, time_max);
        track.finish();
        let ran: Vec<anyhow::Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        timed?;
        ran.into_iter().collect::<anyhow::Result<()>>()
    })?;
    Ok(track.finish.into_inner().expect("taken before the threads are joined"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts one, `times` times, each after a pause.
    struct Walker {
        times: u64,
        pause: Duration,
        fails: bool,
    }

    impl Runner for Walker {
        fn run(&mut self, counter: &ReadCounter<'_>) -> anyhow::Result<()> {
            for _ in 0..self.times {
                std::thread::sleep(self.pause);
                if !counter.moved(1) {
                    return Ok(());
                }
            }
            if self.fails { anyhow::bail!("it hurts") } else { Ok(()) }
        }
    }

    fn walker(times: u64, pause_ms: u64) -> Walker {
        Walker { times, pause: Duration::from_millis(pause_ms), fails: false }
    }

    const AT_ONCE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_who_has_its_share_ends_the_race() {
        let begun = Instant::now();
        // The second would take a minute and a half.
        let finish = hold(&mut [walker(20, 2), walker(900, 100)], AT_ONCE, LONG).unwrap();
        assert_eq!(finish.moved[0], 20);
        assert!(finish.moved[1] < 900, "{finish:?}");
        assert!(finish.seconds >= 0.040 && begun.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn when_time_is_up_what_comes_later_does_not_count() {
        let time_max = Duration::from_millis(100);
        // One step takes three times as long as the whole race.
        let finish = hold(&mut [walker(10, 300), walker(10, 300)], AT_ONCE, time_max).unwrap();
        // On a stalled machine the umpire may be late, but nothing counts after it has run.
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
        let time_max = Duration::from_millis(20);
        let finish = hold(&mut [walker(u64::MAX, 10)], settle, time_max).unwrap();
        // Thirty steps in the first part, and as many as time allows in the second.
        let most = finish.seconds / 0.010 + 1.0;
        assert!(finish.total() as f64 <= most, "{finish:?}");
    }

    #[test]
    fn one_who_fails_ends_the_race_with_its_error() {
        let mut hurt = walker(1, 1);
        hurt.fails = true;
        let error = hold(&mut [hurt, walker(900, 100)], AT_ONCE, LONG).unwrap_err();
        assert_eq!(error.to_string(), "it hurts");
    }
}
