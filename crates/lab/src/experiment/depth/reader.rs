//! One measurement: read a list of blocks in order, with `depth` of them prefetched.

use std::time::Duration;

use anyhow::ensure;

use crate::experiment::samples::Round;
use crate::experiment::window::Window;
use forebay_measure::coldness::Stopwatch;
use forebay_measure::coldness::wait_histogram;
use forebay_measure::interrupt;
use forebay_measure::workfile::Workfile;

/// When a measurement ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    /// Not before this time.
    pub(super) time_min: Duration,
    /// And not before this many blocks were requested,
    pub(super) blocks_min: u64,
    /// but no later than this.
    pub(super) time_max: Duration,
}

impl Until {
    fn enough(self, blocks: u64, elapsed: Duration) -> bool {
        elapsed > self.time_max || (elapsed > self.time_min && blocks >= self.blocks_min)
    }
}

/// Reads blocks `numbers`, all different, in order until `until` is reached; it then waits for the requests
/// in flight and counts them.
///
/// # Errors
/// A failed read, a block that is not the one requested, or Ctrl-C.
pub(super) fn read(
    window: &mut Window,
    workfile: &Workfile,
    numbers: &[u64],
    until: Until,
) -> anyhow::Result<Round> {
    let (mut waits, mut blocks) = (wait_histogram(), 0);
    let block_bytes = workfile.block_bytes;
    let watch = Stopwatch::start();
    let enough = |(count, _): &(u64, &u64)| until.enough(*count, watch.elapsed());
    let rest = (0..).zip(numbers).take_while(|next| !enough(next));
    window.read(rest.map(|(_, number)| number * block_bytes), |offset, bytes, waited| {
        waits.saturating_record(waited.as_nanos() as u64);
        let number = offset / block_bytes;
        ensure!(
            bytes[..8] == workfile.stamp(number),
            "block {number} of the working file has other contents"
        );
        blocks += 1;
        Ok(interrupt::check()?)
    })?;
    Ok(Round::ended(&watch, blocks, blocks, Some(waits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_io::backend::{Backend, Driven, Sink, Transfer, Want, open_raw};
    use forebay_io::{Arena, File, Io, IoOptions, Kind, OpenOptions};
    use forebay_measure::workfile::Naming;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    const BLOCKS: u64 = 128;

    /// `sync`, taking its time.
    #[derive(Debug)]
    struct Slow {
        inner: Box<dyn Backend>,
        start: Duration,
        drive: Duration,
    }

    impl Backend for Slow {
        fn kind(&self) -> Kind {
            self.inner.kind()
        }

        fn capacity(&self) -> usize {
            self.inner.capacity()
        }

        fn start(&self, transfers: &mut Vec<Transfer>) {
            assert_eq!(transfers.len(), 1, "blocks are requested one by one");
            std::thread::sleep(self.start);
            self.inner.start(transfers);
        }

        fn drive(&self, want: &Want<'_>) -> Driven {
            std::thread::sleep(self.drive);
            self.inner.drive(want)
        }
    }

    /// A queue of `depth` in which starting and executing a request take this many milliseconds.
    fn slow(depth: usize, start_ms: u64, drive_ms: u64) -> Io {
        let make = |sink: Arc<dyn Sink>| {
            let options = IoOptions { queue_depth: depth.max(1), ..IoOptions::default() };
            let inner = open_raw(Kind::Sync, &options, &sink)?;
            let (start, drive) = (Duration::from_millis(start_ms), Duration::from_millis(drive_ms));
            Ok(Box::new(Slow { inner, start, drive }) as Box<dyn Backend>)
        };
        Io::over(depth.max(1), make).unwrap()
    }

    fn full_file(directory: &tempfile::TempDir) -> Workfile {
        let (directory, naming) = (directory.path(), Naming::Nameless);
        let mut workfile = Workfile::create(directory, BLOCKS * 512, 512, 7, naming).unwrap();
        workfile.fill(|_| ()).unwrap();
        workfile
    }

    fn window(io: Io, workfile: &Workfile, depth: usize) -> Window {
        let file = File::open(workfile.path(), &OpenOptions::new().read_only(true)).unwrap();
        Window::new(io, file, BLOCKS * 512, depth, &Arena::new(depth.max(1) + 1, 512).unwrap())
    }

    /// Reads the whole file, in order.
    fn read(window: &mut Window, workfile: &Workfile, time_max: Duration) -> anyhow::Result<Round> {
        let until = Until { time_min: time_max, blocks_min: 0, time_max };
        super::read(window, workfile, &(0..BLOCKS).collect::<Vec<u64>>(), until)
    }

    fn wait_median(round: &Round) -> Duration {
        Duration::from_nanos(round.wait_ns.as_ref().unwrap().value_at_quantile(0.5))
    }

    #[test]
    fn when_time_is_up_all_that_was_requested_is_still_read_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        for depth in [0, 1, 8] {
            let mut window = window(slow(depth, 0, 2), &workfile, depth);
            let round = read(&mut window, &workfile, Duration::from_millis(20)).unwrap();
            assert!((1..BLOCKS).contains(&round.blocks), "depth {depth}: {}", round.blocks);
            assert_eq!(window.io.stats().requests, round.blocks, "depth {depth}");
            assert_eq!(round.wait_ns.unwrap().len(), round.blocks, "depth {depth}");
        }
    }

    #[test]
    fn it_ends_after_its_time_and_blocks_but_never_later_than_its_latest() {
        let ms = Duration::from_millis;
        let until = Until { time_min: ms(250), blocks_min: 64, time_max: ms(1000) };
        assert!(!until.enough(5000, ms(249)), "fast, and still not for longer than noise lasts");
        assert!(until.enough(64, ms(251)));
        assert!(!until.enough(63, ms(900)), "too few blocks");
        assert!(until.enough(3, ms(1001)));
    }

    #[test]
    fn in_time_every_block_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        // The last window is larger than the file.
        for depth in [0, 1, 8, 1000] {
            let mut window = window(slow(depth, 0, 0), &workfile, depth);
            let round = read(&mut window, &workfile, Duration::from_secs(60)).unwrap();
            assert_eq!(
                (round.blocks, window.io.stats().requests),
                (BLOCKS, BLOCKS),
                "depth {depth}"
            );
        }
    }

    #[test]
    fn a_wait_is_waiting_alone_and_at_depth_0_the_whole_read() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        let median = |depth, start_ms, drive_ms| {
            let mut window = window(slow(depth, start_ms, drive_ms), &workfile, depth);
            wait_median(&read(&mut window, &workfile, Duration::from_secs(60)).unwrap())
        };
        let asking = Duration::from_millis(4);
        assert!(median(4, 4, 0) < asking, "requesting the next block is not waiting for this one");
        assert!(median(0, 4, 0) >= asking, "a block requested when needed is waited for");
        assert!(median(4, 0, 4) >= asking);
    }

    #[test]
    fn while_a_block_is_in_hand_depth_others_are_in_flight() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        let file = std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap();
        file.write_all_at(&[0xff; 8], 5 * 512).unwrap();
        let mut window = window(slow(3, 0, 0), &workfile, 3);
        let error = read(&mut window, &workfile, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("block 5 "), "{error}");
        // Blocks 0 to 5 were delivered; 6 to 8 were in flight when the reader looked at 5.
        assert_eq!(window.io.stats().requests, 9);
    }
}
