//! Foreground: threads that read at a steady rate, whatever the disk does, and how long the reads take.
//!
//! A reader that waits for one read before it starts the next hides its delays: during a stall of a
//! second it requests one page instead of hundreds. So reads are due at even times. A read that is late
//! because the previous one took long is counted from its due time; one that is late only because the thread
//! woke up late, from its start. Worked example: 4 threads at 1000 reads/s are due each 4 ms; a read of 10 ms
//! makes the next two late, which count 6 and 2 ms more than they take.
//!
//! Nothing is read ahead for them. Next to runs of changed pages random reads sometimes look like
//! sequences; a page that was read ahead would be in a reader's ring, perhaps be changed there, and leave with it
//! before the checkpoint.
//!
//! Invariants:  [FGR-1] no page is read twice while there are unread ones; all are clean and cold
//!              [FGR-2] only the wanted pages enter the pool
//! Concurrency: each thread keeps its own samples; they are merged when all threads have ended.
//! Source:      Gil Tene's "coordinated omission" for counting from the due time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{BufferPool, PagedFile, ReadaheadStrategy, StrategyKind};

use super::dirty::Place;
use super::settings::Settings;

/// One read: its due time, and how long it took from then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) took: Duration,
}

/// The readers' demand.
#[derive(Debug)]
pub(super) struct Demand {
    /// For each thread, in its order.
    blocks: Vec<Vec<u32>>,
    /// Between two reads of one thread.
    every: Duration,
}

impl Demand {
    /// Clean pages of the first file in random order, divided among the readers.
    pub(super) fn new(settings: &Settings, set: &[Place], random: &mut fastrand::Rng) -> Demand {
        let mut is_dirty = vec![false; settings.file_blocks() as usize];
        for &(_, block) in set.iter().filter(|(side, _)| *side == 0) {
            is_dirty[block as usize] = true;
        }
        let mut clean: Vec<u32> =
            (0..settings.file_blocks()).filter(|&block| !is_dirty[block as usize]).collect();
        random.shuffle(&mut clean);
        let share = (clean.len() / settings.readers as usize).max(1);
        let blocks: Vec<Vec<u32>> = clean.chunks(share).map(<[u32]>::to_vec).collect();
        let blocks = blocks.into_iter().take(settings.readers as usize).collect();
        let every = Duration::from_secs(1) * settings.readers / settings.reads_per_s;
        Demand { blocks, every }
    }
}

/// Runs `work` while readers read `demand` from `file`, and returns the latencies of the reads, by
/// due time.
///
/// # Errors
/// The error of `work`; otherwise the first read that failed.
pub(super) fn with_readers<T>(
    pool: &BufferPool,
    file: &PagedFile,
    demand: &Demand,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<Sample>)> {
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    // Not all at the same moment.
    let gap = demand.every / demand.blocks.len().max(1) as u32;
    let (result, samples) = thread::scope(|scope| {
        let readers: Vec<_> = (0_u32..)
            .zip(&demand.blocks)
            .map(|(number, blocks)| {
                let (stop, every, first) = (&stop, demand.every, start + gap * number);
                scope.spawn(move || read(pool, file, blocks, first, every, stop))
            })
            .collect();
        // Also when the work panics: the scope would wait for the readers forever.
        let ends = Stopper(&stop);
        let result = work();
        drop(ends);
        let samples = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (result, samples.collect::<Result<Vec<_>, _>>())
    });
    let (result, mut samples) = (result?, samples?.concat());
    samples.sort_unstable_by_key(|sample| sample.at);
    Ok((result, samples))
}

/// Has the readers stop when it is dropped.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn read(
    pool: &BufferPool,
    file: &PagedFile,
    blocks: &[u32],
    first: Instant,
    every: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Sample>, forebay::Error> {
    // Through a ring: the dirty pages stay where they are.
    let strategy = pool.strategy(StrategyKind::BulkRead);
    let file = &file.with_readahead(ReadaheadStrategy::Os); // [FGR-2]
    let mut samples = Vec::new();
    let mut due = first;
    for &block in blocks.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let wait = due.saturating_duration_since(Instant::now());
        let at = if wait.is_zero() {
            due
        } else {
            thread::sleep(wait);
            Instant::now()
        };
        let page = file.read_with(block, &strategy)?;
        std::hint::black_box(page[0]);
        drop(page);
        samples.push(Sample { at, took: at.elapsed() });
        due += every;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::{Checksum, FileOptions, TornPages};

    fn settings(readers: u32, reads: u32) -> Settings {
        let options =
            format!("--quick --essential --size 1MiB --readers {readers} --reads {reads}");
        crate::experiment::typed::<Settings>(&options).checked().unwrap()
    }

    #[test]
    fn readers_share_the_clean_pages_and_never_read_a_dirty_one() {
        let settings = settings(3, 1000);
        let set: Vec<Place> = (0..64).map(|block| (0, block * 2)).collect();
        let demand = Demand::new(&settings, &set, &mut fastrand::Rng::with_seed(1));
        assert_eq!(demand.blocks.len(), 3);
        let mut all: Vec<u32> = demand.blocks.concat();
        assert!(all.iter().all(|block| block % 2 == 1), "[FGR-1]");
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "[FGR-1]");
        assert_eq!(demand.every, Duration::from_millis(3));
    }

    fn builder(directory: &tempfile::TempDir) -> forebay::PoolBuilder {
        let builder = BufferPool::builder().checksum(Checksum::Off);
        builder.torn_pages(TornPages::Unprotected).directory(directory.path())
    }

    fn wait_for_reads(pool: &BufferPool, count: u64) {
        let reads = || {
            let stats = pool.stats();
            let stats = stats.strategy(StrategyKind::BulkRead);
            stats.hits + stats.misses
        };
        while reads() < count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn reads_are_wanted_at_even_times_and_end_with_the_work() {
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(&directory).frames(256).build().unwrap();
        let file = pool.open_file("blocks", &FileOptions::new().create(true)).unwrap();
        file.extend(128).unwrap();
        let demand = Demand::new(&settings(2, 400), &[], &mut fastrand::Rng::with_seed(1));
        let begun = Instant::now();
        let work = || {
            wait_for_reads(&pool, 60);
            Ok(7)
        };
        let (seven, samples) = with_readers(&pool, &file, &demand, work).unwrap();
        assert_eq!(seven, 7);
        // A busy machine sleeps for longer, and both threads may have one more read in flight.
        let due = (begun.elapsed().as_secs_f64() * 400.0) as usize + 2;
        assert!((60..=due).contains(&samples.len()), "{due} were due: {}", samples.len());
        assert!(samples.is_sorted_by_key(|sample| sample.at));
        let failed: anyhow::Result<((), _)> =
            with_readers(&pool, &file, &demand, || anyhow::bail!("the work failed"));
        assert_eq!(failed.unwrap_err().to_string(), "the work failed");
    }

    #[test]
    fn what_is_held_up_is_counted_from_when_it_was_due() {
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(&directory).frames(256).build().unwrap();
        let file = pool.open_file("blocks", &FileOptions::new().create(true)).unwrap();
        file.extend(128).unwrap();
        // More reads than the system can do: each read is due long before its turn.
        let demand = Demand::new(&settings(1, 1_000_000), &[], &mut fastrand::Rng::with_seed(1));
        let first = Instant::now();
        // A latch that blocks the first read and so all of them, like a disk that stalls.
        let page = file.write(demand.blocks[0][0]).unwrap();
        let work = || {
            thread::sleep(Duration::from_millis(100));
            drop(page);
            wait_for_reads(&pool, 200);
            Ok(())
        };
        let (_, samples) = with_readers(&pool, &file, &demand, work).unwrap();
        let late = samples.iter().filter(|one| one.took > Duration::from_millis(30)).count();
        assert!(late > 100, "the reads behind the stalled one: {late} of {}", samples.len());
        assert!(samples.iter().all(|one| one.at >= first));
    }

    #[test]
    fn nothing_is_read_ahead_next_to_changed_pages() {
        let directory = tempfile::tempdir().unwrap();
        let pool =
            builder(&directory).frames(1024).readahead(ReadaheadStrategy::Async).build().unwrap();
        let file = pool.open_file("blocks", &FileOptions::new().create(true)).unwrap();
        file.extend(128).unwrap();
        // Runs of three in memory, each followed by a requested page: the pattern that a detector looks for.
        let set: Vec<Place> =
            (0..128).filter(|block| block % 4 != 3).map(|block| (0, block)).collect();
        for &(_, block) in set.iter().filter(|place| place.1 % 8 < 4) {
            file.init(block).unwrap();
        }
        let demand = Demand::new(&settings(1, 100_000), &set, &mut fastrand::Rng::with_seed(1));
        let work = || {
            thread::sleep(Duration::from_millis(50));
            Ok(())
        };
        with_readers(&pool, &file, &demand, work).unwrap();
        let stats = pool.stats();
        assert_eq!(stats.strategy(StrategyKind::BulkRead).prefetches, 0, "[FGR-2]");
        let strangers = (0..128).filter(|block| block % 8 >= 4 && block % 4 != 3);
        assert_eq!(strangers.filter(|&block| file.is_resident(block)).count(), 0, "[FGR-2]");
    }
}
