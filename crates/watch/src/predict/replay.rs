//! Replays a plan: repeats its reads with one strategy of reading ahead, with a thread for each task.
//!
//! Files are opened only for reading, and by each task separately, since the kernel reads ahead for each descriptor.
//! Before that, pages of these files that were not in memory when recorded are dropped from the page cache, and those
//! that were in memory are read. A read has waited if it took longer than its thread used the processor. Its duration
//! alone is no proof: starting to read a megabyte ahead takes half a millisecond of processor time.
//!
//! Concurrency: a thread for each task; they share only the plan, a stop flag and a counter.
//! Failure:     a read that fails ends all tasks.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_io::{Advice, File, Hint, OpenOptions};
use forebay_lookahead::{Hints, Limits, Takes};
use rangemap::RangeSet;
use rustix::io::{pread, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};

use super::plan::{Plan, PlanFile, Step, StepKind, advised_end};
use forebay_measure::interrupt;

/// The limits of one hint.
const LIMITS: Limits = Limits { combine_blocks: 32, gap_blocks: 0, over_read_percent: 0 };

/// The shortest wait: no device answers sooner, and reading the clocks takes less.
const WAIT_MIN: Duration = Duration::from_micros(5);

/// How late the kernel wakes a sleeping thread, at most.
const WAKES_LATER: Duration = Duration::from_micros(60);

/// Maximum bytes of one read call.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// It knows all future reads, not only those that could have been known.
    pub(super) knows_all: bool,
    pub(super) takes: Takes,
    /// Maximum blocks to be ahead of a task.
    pub(super) most: u32,
}

/// A strategy of reading ahead, by what differs from the unchanged run.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadStrategy {
    AsItIs,
    /// Each file is opened with this hint to the kernel.
    Hint(Hint),
    /// The kernel's readahead, in bytes, for all users of the devices.
    Readahead(u64),
    /// The program's advice is left out.
    WithoutAdvice,
    Ahead(Ahead),
}

/// The result of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplayResult {
    pub(super) waited: Duration,
    pub(super) took: Duration,
    /// The share of the steps that were done before the run was cut off.
    pub(super) share: f64,
}

/// How the page cache differs from its state when the plan was recorded, in pages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CacheDelta {
    /// Other pages of the files that could not be dropped.
    pub(super) stayed: u64,
    /// Pages that could not be read in time; they are removed from the plan.
    pub(super) missing: u64,
}

/// Restores the recorded state of the page cache for the plan's files, as far as there is `time`; `None`: all of it.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or a system error.
pub(super) fn prepare(plan: &mut Plan, time: Option<Duration>) -> anyhow::Result<CacheDelta> {
    let until = time.map(|time| Instant::now() + time);
    let (mut delta, mut memory) = (CacheDelta::default(), vec![0; PIECE_BYTES as usize]);
    let page_bytes = plan.page_bytes;
    for PlanFile { path, resident, .. } in &mut plan.files {
        interrupt::check()?;
        let file = File::open(path, &OpenOptions::new().read_only(true).hint(Hint::Random))?;
        let pages = file.len()?.div_ceil(page_bytes);
        resident.remove(pages..u64::MAX);
        let count = |set: &RangeSet<u64>| set.iter().map(|it| it.end - it.start).sum::<u64>();
        let wanted = count(resident);
        let pieces = resident.iter().flat_map(|range| {
            let end = range.end;
            let pieces = range.clone().step_by((PIECE_BYTES / page_bytes) as usize);
            pieces.map(move |first| (first, end - first))
        });
        let mut late = None;
        for (first, left) in pieces {
            interrupt::check()?;
            if until.is_some_and(|until| Instant::now() > until) {
                late = Some(first);
                break;
            }
            let bytes = (left * page_bytes).min(PIECE_BYTES);
            read(&file, first * page_bytes, bytes, &mut memory)?;
        }
        if let Some(first) = late {
            resident.remove(first..u64::MAX);
        }
        let held = count(resident);
        delta.missing += wanted - held;
        // The last gap ends at the page boundary at or after the end of the file.
        for gap in resident.gaps(&(0..pages.max(1))) {
            file.advise(gap.start * page_bytes..gap.end * page_bytes, Advice::DontNeed)?;
        }
        delta.stayed += file.residency(0..u64::MAX)?.pages_resident.saturating_sub(held);
    }
    Ok(delta)
}

/// Replays `plan` with the strategy `strategy`, for at most `time_max`.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or a system error.
pub(super) fn replay(
    plan: &Plan,
    strategy: ReadStrategy,
    time_max: Duration,
) -> anyhow::Result<ReplayResult> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    // Tasks spin only if each has a processor.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spins = plan.tasks.len() <= processors;
    let mut tasks = Vec::new();
    for steps in &plan.tasks {
        tasks.push(Task::open(plan, steps, strategy, spins)?);
    }
    let begun = Instant::now();
    let waits: Vec<anyhow::Result<Duration>> = std::thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let threads: Vec<_> = tasks
            .into_iter()
            .map(|task| scope.spawn(move || task.run(begun, time_max, stop, done)))
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined
            .map(|it| it.unwrap_or_else(|_| anyhow::bail!("a thread of the replay failed")))
            .collect()
    });
    let took = begun.elapsed();
    interrupt::check()?;
    let waited = waits.into_iter().sum::<anyhow::Result<Duration>>()?;
    let share = done.into_inner() as f64 / plan.steps() as f64;
    Ok(ReplayResult { waited, took, share })
}

/// A task, and its open files.
pub(super) struct Task<'a> {
    plan: &'a Plan,
    steps: &'a [Step],
    strategy: ReadStrategy,
    spins: bool,
    files: Vec<Option<File>>,
    /// In the numbering of the blocks of all files.
    hints: Option<Hints>,
    memory: Vec<u8>,
    /// The first step that the look-ahead has not handled.
    next: usize,
}

impl<'a> Task<'a> {
    pub(super) fn open(
        plan: &'a Plan,
        steps: &'a [Step],
        strategy: ReadStrategy,
        spins: bool,
    ) -> anyhow::Result<Task<'a>> {
        let mut files: Vec<Option<File>> = plan.files.iter().map(|_| None).collect();
        let hint = if let ReadStrategy::Hint(hint) = strategy { hint } else { Hint::Normal };
        for step in steps {
            if files[step.file].is_none() {
                let options = OpenOptions::new().read_only(true).hint(hint);
                files[step.file] = Some(File::open(&plan.files[step.file].path, &options)?);
            }
        }
        let hints = match strategy {
            ReadStrategy::Ahead(Ahead { most, takes, .. }) => Some(Hints::new(most, takes, LIMITS)),
            _ => None,
        };
        // Written now, so that page faults on first use are not measured.
        let memory = vec![1; PIECE_BYTES as usize];
        Ok(Task { plan, steps, strategy, spins, files, hints, memory, next: 0 })
    }

    /// Runs all steps. Returns how long the reads waited.
    fn run(
        mut self,
        begun: Instant,
        time_max: Duration,
        stop: &AtomicBool,
        done: &AtomicU64,
    ) -> anyhow::Result<Duration> {
        let (mut waited, mut due) = (Duration::ZERO, begun);
        for (at, step) in self.steps.iter().enumerate() {
            due += Duration::from_nanos(step.after_ns);
            self.wait(due);
            if begun.elapsed() > time_max
                || interrupt::is_requested()
                || stop.load(Ordering::Relaxed)
            {
                stop.store(true, Ordering::Relaxed);
                break;
            }
            let start = Instant::now();
            waited += self.step(at, step).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            // Correct for waking early or late, but not for time in which other threads had the processor.
            let late = start.saturating_duration_since(due).min(WAKES_LATER);
            due = Instant::now() + due.saturating_duration_since(start) - late;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(waited)
    }

    /// Waits until `due`, to within a few microseconds.
    fn wait(&self, due: Instant) {
        let left = due.saturating_duration_since(Instant::now());
        if left > WAKES_LATER {
            std::thread::sleep(left - WAKES_LATER);
        }
        while self.spins && Instant::now() < due {
            std::hint::spin_loop();
        }
    }

    /// Runs one step. Returns how long it waited, which is zero unless it is a read.
    fn step(&mut self, at: usize, step: &Step) -> anyhow::Result<Duration> {
        let Some(file) = &self.files[step.file] else { return Ok(Duration::ZERO) };
        match step.what {
            StepKind::Advise(_) if matches!(self.strategy, ReadStrategy::WithoutAdvice) => {
                Ok(Duration::ZERO)
            }
            StepKind::Advise(advice) => {
                advise(file, step, advice)?;
                Ok(Duration::ZERO)
            }
            StepKind::Read { .. } => {
                let (moment, worked) = (Instant::now(), processor_time());
                read(file, step.offset, step.bytes, &mut self.memory)?;
                let (took, worked) = (moment.elapsed(), processor_time().saturating_sub(worked));
                for (file, bytes) in self.look_ahead(at, step, took) {
                    if let Some(file) = &self.files[file] {
                        file.advise(bytes, Advice::WillNeed)?;
                    }
                }
                // As in a watch, which counts from the first sleep, almost the start of the read, to its end.
                let slept = took.saturating_sub(worked) >= WAIT_MIN;
                Ok(if slept { took } else { Duration::ZERO })
            }
        }
    }

    /// The bytes to advise the kernel to read after step `at`, which took `took`, with the indexes of their files.
    pub(super) fn look_ahead(
        &mut self,
        at: usize,
        step: &Step,
        took: Duration,
    ) -> Vec<(usize, Range<u64>)> {
        let (Some(hints), ReadStrategy::Ahead(ahead)) = (&mut self.hints, self.strategy) else {
            return Vec::new();
        };
        hints.on_read(self.plan.blocks(step).start, Some(took));
        self.next = self.next.max(at + 1);
        let mut room = hints.available();
        while let Some(step) = self.steps.get(self.next).filter(|_| room > 0) {
            if let StepKind::Read { is_known } = step.what {
                if !is_known && !ahead.knows_all {
                    break;
                }
                let blocks = self.plan.blocks(step);
                room = room.saturating_sub(blocks.len() as u32);
                for (part, block) in blocks.enumerate() {
                    match part {
                        _ if hints.contains(block) => {}
                        0 => hints.predict(block, false),
                        _ => hints.predict_part(block),
                    }
                }
            }
            self.next += 1;
        }
        hints.take_runs().iter().map(|&run| self.plan.bytes(run)).collect()
    }
}

/// The processor time that this thread has used.
fn processor_time() -> Duration {
    // Fails only for clocks that do not exist.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Reads `bytes` at `offset`, at most to the end of the file, through `memory`.
fn read(file: &File, offset: u64, bytes: u64, memory: &mut [u8]) -> anyhow::Result<()> {
    let end = offset.saturating_add(bytes);
    for at in (offset..end).step_by(memory.len()) {
        let piece = &mut memory[..(end - at).min(PIECE_BYTES) as usize];
        let count = retry_on_intr(|| pread(file.descriptor(), &mut *piece, at))
            .with_context(|| format!("cannot read {}", file.path().display()))?;
        if count == 0 {
            break;
        }
    }
    Ok(())
}

/// Repeats the program's advice to the kernel.
fn advise(file: &File, step: &Step, advice: u8) -> Result<(), forebay_io::Error> {
    let advice = match advice {
        0 => Advice::Normal,
        1 => Advice::Random,
        2 => Advice::Sequential,
        3 => Advice::WillNeed,
        4 => Advice::DontNeed,
        _ => return Ok(()),
    };
    file.advise(step.offset..advised_end(step.offset, step.bytes), advice)
}
