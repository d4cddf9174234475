//! The kernel alone: one read of one block after the other through one descriptor, with or without advice.
//!
//! This is what document 004 compared: reads that the kernel reads ahead for as it sees fit, and the
//! same reads with FADV_WILLNEED for each block some blocks before. Worked example: at distance 2 and for
//! the blocks 1, 3, 2 it advises 1 and 3, reads 1, advises 2, reads 3, reads 2.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_io::{Advice, File, OpenOptions};
use rustix::io::{Errno, pread};

use super::cache_state::{self, CacheState};
use super::{Attempt, Entrant, counted_settled};
use crate::experiment::Bench;
use crate::experiment::pattern::Plan;
use crate::experiment::tally::{Round, wait_histogram};
use crate::interrupt;
use crate::measure::{Coldness, Stopwatch, empty_cache};
use crate::workfile::Workfile;

/// Reads `plan`, which is one list, from an emptied page cache or, in state `page-cache`, from a full one.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or the state could not be made.
pub(super) fn measure(
    bench: &Bench<'_>,
    entrant: Entrant,
    state: CacheState,
    plan: &Plan,
    time_max: Duration,
) -> anyhow::Result<Attempt> {
    let workfile = bench.workfile;
    let open = || File::open(workfile.path(), &OpenOptions::new().read_only(true));
    let (coldness, note) = match state.reads_device() {
        true => (empty_cache(&open()?)?, None),
        false => (Coldness::Cold, cache_state::fill_page_cache(workfile)?),
    };
    // Opened only now: the device's readahead is the one of this moment.
    let file = open()?;
    let work = || {
        let mut round = read(&file, workfile, entrant, plan, time_max)?;
        round.blocks_needed = round.blocks_needed.filter(|_| state.reads_device());
        Ok(round)
    };
    let mut measured = counted_settled(bench.counters, work);
    if let Ok(measured) = &mut measured {
        measured.notes.extend(note);
    }
    Ok((coldness, measured))
}

fn read(
    file: &File,
    workfile: &Workfile,
    entrant: Entrant,
    plan: &Plan,
    time_max: Duration,
) -> anyhow::Result<Round> {
    assert_eq!(plan.legs.len(), 1, "the kernel alone reads one list");
    let (source, block_bytes) = (&plan.legs[0].source, workfile.block_bytes());
    let mut page = vec![0; block_bytes as usize];
    let mut waits = wait_histogram();
    if entrant == Entrant::Random {
        file.advise(0..u64::MAX, Advice::Random)?;
    }
    let distance = if let Entrant::WillNeed(distance) = entrant { distance as usize } else { 0 };
    let advise = |at: usize| {
        let start = u64::from(source.block(at)) * block_bytes;
        file.advise(start..start + block_bytes, Advice::WillNeed)
    };
    let (mut advised, mut blocks) = (0, 0);
    let watch = Stopwatch::start();
    for at in 0..source.len() {
        while distance > 0 && advised < source.len().min(at + distance) {
            advise(advised)?;
            advised += 1;
        }
        let moment = Instant::now();
        let block = source.block(at);
        read_exactly(file, u64::from(block) * block_bytes, &mut page)?;
        waits.saturating_record(moment.elapsed().as_nanos() as u64);
        super::pooled::consume(&page, workfile.stamp(u64::from(block)), block)?;
        blocks += 1;
        if watch.elapsed() > time_max {
            break;
        }
        interrupt::check()?;
    }
    let (seconds, processor) = (watch.elapsed(), watch.processor_elapsed());
    let mut needed: Vec<u32> = (0..blocks as usize).map(|at| source.block(at)).collect();
    needed.sort_unstable();
    needed.dedup();
    Ok(Round {
        blocks,
        blocks_needed: Some(needed.len() as u64),
        seconds: seconds.as_secs_f64(),
        processor_seconds: processor.as_secs_f64(),
        wait_ns: Some(waits),
    })
}

/// Fills `page` from `offset` of `file` by as many plain reads as that takes.
///
/// # Errors
/// The file ends before, or what the system said.
pub(in crate::experiment) fn read_exactly(
    file: &File,
    offset: u64,
    page: &mut [u8],
) -> anyhow::Result<()> {
    let mut done = 0;
    while done < page.len() {
        match pread(file.descriptor(), &mut page[done..], offset + done as u64) {
            Ok(0) => bail!("the working file ends before byte {offset}"),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot read the working file"),
        }
    }
    Ok(())
}
