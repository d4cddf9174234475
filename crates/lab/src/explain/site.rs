//! A site: a new file on a separate emulated disk, and the requests that the disk received.
//!
//! Each strategy gets a separate disk, because disks have state: the position of a head, a track in a
//! buffer, the credit of a volume. The file has its position on the disk and was never written, so
//! nothing of it can be in the page cache. The disk's own log is the only source for the requests;
//! a pool's lock file is another file there and left out, and the log begins when the
//! reader is ready. The order of issue is that of the kernel's numbers: two requests that are issued
//! at the same time may be received by two threads of the disk and arrive in the opposite order.
//!
//! The log is read when no request is in flight. The kernel keeps a page locked while it
//! reads the page, and punching a hole into a file waits for the locks of all its pages there: so the whole
//! file is made a hole first. Rejected: to wait until the log does not change, since on a busy machine it may
//! pause anyway; to truncate the file to 0, since a read that the disk receives after that is beyond the file's
//! end and never logged.
//!
//! Invariants:  [EXP-7] the requests of a strategy cover all blocks of the pattern
//! Failure:     the disk is unmounted on every exit.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use forebay_emulate::log::{LoggedOp, LoggedRequest};
use forebay_io::{File, OpenOptions, Preallocate};

use super::ExplainArgs;
use super::pattern::Pattern;
use super::read::{FILE, Reader};
use super::request::Account;
use super::{Disk, Strategy, StrategyResult};
use crate::emulate::{Emulated, EmulatedOptions};
use forebay_measure::device_readahead::read_kib;
use forebay_measure::facts::{Host, Storage, Sysfs};
use forebay_measure::units::shown_size;
use forebay_measure::{bad_input, output};

/// The directory on the disk for a pool.
const DIRECTORY: &str = "explain";

/// Bytes of the file after the last block of the pattern: more than any kernel reads ahead, so that
/// the end of the file does not affect the picture.
const TAIL_BYTES: u64 = 64 << 20;

/// Runs `strategy` over the pattern on a separate disk, and returns its requests and the disk. `progress` receives the
/// blocks read.
///
/// # Errors
/// This system lacks FUSE, the file does not fit on the disk,
/// [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub(super) fn explain(
    args: &ExplainArgs,
    pattern: &Pattern,
    strategy: Strategy,
    progress: impl FnMut(usize),
) -> anyhow::Result<(Disk, StrategyResult)> {
    let options = EmulatedOptions {
        speed_up: Some(args.speed_up),
        seed: args.seed,
        readahead_bytes: args.readahead,
        ..EmulatedOptions::default()
    };
    let emulated = Emulated::start(&args.profile, &options)?;
    let directory = emulated.directory().join(DIRECTORY);
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let file_bytes = make_file(&directory, args, pattern, emulated.profile()?.size_bytes)?;
    let disk = look(&emulated)?;
    let reader = Reader::open(strategy, &directory, pattern, args)?;
    emulated.control("log clear")?;
    let begun = Instant::now();
    let cached = reader.read(&pattern.blocks, progress)?;
    let seconds = begun.elapsed().as_secs_f64() * args.speed_up;
    let remark = reader.remark();
    drop(reader);
    wait_for_reads(&directory, file_bytes)
        .context("cannot punch a hole into the file on the emulated disk")?;
    if let Some(logs) = &args.logs {
        fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
        output::save(&logs.join(format!("{strategy}.jsonl")), &emulated.read_file("log")?)?;
    }
    let account = Account::of(reads(emulated.log()?), &pattern.wanted, args.block_size);
    check(&account, pattern.wanted.len(), args.block_size)
        .with_context(|| format!("what {strategy} read cannot be explained"))?;
    Ok((disk, StrategyResult { strategy, account, seconds, cached, remark }))
}

/// Makes the file on a disk of `disk_bytes`, and returns its length in bytes.
fn make_file(
    directory: &Path,
    args: &ExplainArgs,
    pattern: &Pattern,
    disk_bytes: u64,
) -> anyhow::Result<u64> {
    let file = File::open(&directory.join(FILE), &OpenOptions::new().create_new(true))?;
    let last = pattern.wanted[pattern.wanted.len() - 1];
    let file_bytes = (u64::from(last) + 1) * args.block_size + TAIL_BYTES;
    if file_bytes > disk_bytes {
        let highest = (disk_bytes.saturating_sub(TAIL_BYTES) / args.block_size).saturating_sub(1);
        bad_input!(
            "PATTERN: block {last} is beyond the end of the disk {}, which has {}: the last block that fits is \
             {highest}; choose lower blocks, a smaller --block-size or another --profile",
            args.profile,
            shown_size(disk_bytes)
        );
    }
    // Without a place on the disk the file would be a hole, which costs no time. A pool may open it past the page
    // cache, and a process can have a file open in one mode only: so it is closed again.
    if let Err(error) = file.preallocate(0..file_bytes, Preallocate::Extend) {
        let (size, profile) = (shown_size(file_bytes), &args.profile);
        bad_input!(
            "a file of {size} does not fit on the disk {profile} ({error}); choose lower blocks, \
             or another --profile"
        );
    }
    Ok(file_bytes)
}

/// The disk, and the kernel over it.
fn look(emulated: &Emulated) -> anyhow::Result<Disk> {
    let profile = emulated.profile()?;
    let storage = Storage::read(emulated.directory())?;
    let readahead = Sysfs::system().readahead_file_of(&storage).ok();
    Ok(Disk {
        profile: profile.name,
        about: profile.about,
        readahead_bytes: readahead.and_then(|file| read_kib(&file).ok()).map(|kib| kib << 10),
        kernel: Host::read().kernel,
    })
}

/// Makes all of the file a hole; this returns when no page of the file is being read any more.
fn wait_for_reads(directory: &Path, file_bytes: u64) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        let file = fs::OpenOptions::new().write(true).open(directory.join(FILE))?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, hole, 0, file_bytes)?;
    }
    Ok(())
}

/// The reads of the file as byte ranges, in order of issue.
fn reads(mut log: Vec<LoggedRequest>) -> impl Iterator<Item = Range<u64>> {
    log.sort_by_key(|request| request.number);
    log.retain(|it| it.op == LoggedOp::Read && Path::new(&it.file).ends_with(FILE));
    log.into_iter().map(|request| request.offset..request.offset + request.len)
}

/// Whether every block of the `wanted` ones was read from the disk [EXP-7].
fn check(account: &Account, wanted: usize, block_bytes: u64) -> anyhow::Result<()> {
    ensure!(
        account.wanted_bytes == wanted as u64 * block_bytes,
        "the disk read {} of {wanted} blocks: its log is not whole, or the file was not cold",
        account.wanted_bytes / block_bytes,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reads_of_the_file_are_taken_from_a_log_in_order_of_issue() {
        let request = |number, op, file: &str, offset, len| LoggedRequest {
            us: 9.5,
            number,
            op,
            file: file.to_owned(),
            offset,
            len,
            device_offset: None,
            service_us: None,
            replied_us: None,
        };
        let log = vec![
            request(46, LoggedOp::Read, "explain/blocks", 8192, 4096),
            request(50, LoggedOp::Write, "explain/blocks", 0, 4096),
            request(54, LoggedOp::Read, "explain/blocks", 16_384, 8192),
            request(48, LoggedOp::Read, "explain/blocks", 0, 512),
            request(56, LoggedOp::Read, "explain/forebay.lock", 0, 512),
        ];
        let reads: Vec<Range<u64>> = reads(log).collect();
        assert_eq!(reads, [8192..12_288, 0..512, 16_384..24_576]);
    }

    #[test]
    fn requests_that_leave_out_a_block_of_the_pattern_are_no_explanation() {
        let read = |first: u64, blocks: u64| first * 8192..(first + blocks) * 8192;
        let whole = [read(1, 1), read(3, 4), read(9, 1), read(2, 1)];
        let wanted = [1, 2, 3, 4, 6, 9];
        let of = |reads: &[Range<u64>]| Account::of(reads.iter().cloned(), &wanted, 8192);
        check(&of(&whole), 6, 8192).expect("[EXP-7]");
        let message = check(&of(&whole[..3]), 6, 8192).expect_err("[EXP-7]").to_string();
        assert!(message.contains("5 of 6 blocks"), "{message}");
    }
}
