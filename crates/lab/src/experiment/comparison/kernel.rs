//! The kernel alone: one read of one block after the other through one descriptor, with or without advice.
//!
//! This is the comparison of document 004: reads for which the kernel chooses the readahead, and the
//! same reads with FADV_WILLNEED for each block some blocks before. Worked example: at distance 2 and for
//! the blocks 1, 3, 2 it advises 1 and 3, reads 1, advises 2, reads 3, reads 2.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use forebay_io::{Advice, File, OpenOptions};
use rustix::io::{pread, retry_on_intr};

use super::Variant;
use super::pooled::Pass;
use crate::experiment::pattern::Plan;
use crate::experiment::samples::Round;
use forebay_measure::workfile::Workfile;

/// Reads `plan`, which is one list, until time is up.
///
/// # Errors
/// [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub(super) fn read(
    workfile: &Workfile,
    variant: Variant,
    plan: &Plan,
    time_max: Duration,
) -> anyhow::Result<Round> {
    assert_eq!(plan.streams.len(), 1, "the kernel alone reads one list");
    let (blocks, block_bytes) = (&plan.streams[0].blocks, workfile.block_bytes);
    // Opened only now: the device's readahead is the one of this moment.
    let file = File::open(workfile.path(), &OpenOptions::new().read_only(true))?;
    let mut page = vec![0; block_bytes as usize];
    if variant == Variant::Random {
        file.advise(0..u64::MAX, Advice::Random)?;
    }
    let distance = if let Variant::WillNeed(distance) = variant { distance as usize } else { 0 };
    let mut advised = 0;
    let mut pass = Pass::new(workfile, true, plan, time_max);
    for (at, &block) in blocks.iter().enumerate() {
        while distance > 0 && advised < blocks.len().min(at + distance) {
            let start = u64::from(blocks[advised]) * block_bytes;
            file.advise(start..start + block_bytes, Advice::WillNeed)?;
            advised += 1;
        }
        let moment = Some(Instant::now());
        read_exactly(&file, u64::from(block) * block_bytes, &mut page)?;
        if !pass.goes_on(moment, block, &page)? {
            break;
        }
    }
    Ok(pass.round(&[]))
}

/// Fills `page` from `offset` of `file` by as many plain reads as necessary.
///
/// # Errors
/// The file ends before, or the system returned an error.
pub(in crate::experiment) fn read_exactly(
    file: &File,
    mut offset: u64,
    mut page: &mut [u8],
) -> anyhow::Result<()> {
    while !page.is_empty() {
        let read = retry_on_intr(|| pread(file.descriptor(), &mut *page, offset))
            .context("cannot read the working file")?;
        ensure!(read > 0, "the working file ends at byte {offset}");
        page = &mut page[read..];
        offset += read as u64;
    }
    Ok(())
}
