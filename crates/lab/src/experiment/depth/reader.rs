//! One measurement: read a list of blocks in order, with so many prefetched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use forebay_io::{Arena, Error, File, Io, Lease, Request, Ticket};

use crate::experiment::tally::{Round, wait_histogram};
use crate::interrupt;
use crate::measure::Stopwatch;
use crate::workfile::Workfile;

/// When a measurement ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    /// Not before so long.
    pub(super) time_min: Duration,
    /// And not before so many blocks were requested,
    pub(super) blocks_min: u64,
    /// but no later than this.
    pub(super) time_max: Duration,
}

impl Until {
    fn enough(self, blocks: u64, elapsed: Duration) -> bool {
        elapsed > self.time_max || (elapsed > self.time_min && blocks >= self.blocks_min)
    }
}

/// Reads blocks through one queue with a window of `depth` requests.
pub(super) struct Reader<'a> {
    io: &'a Io,
    file: &'a File,
    workfile: &'a Workfile,
    depth: usize,
    /// Memory for `depth` requests in flight and the block in hand.
    spare: Vec<Vec<Lease>>,
    ahead: VecDeque<(u64, Ticket)>,
}

impl<'a> Reader<'a> {
    /// Memory for the window and the block in hand.
    pub(super) fn memory(workfile: &Workfile, depth: usize) -> Result<Arc<Arena>, Error> {
        Arena::new(depth.max(1) + 1, workfile.block_bytes() as usize)
    }

    pub(super) fn new(
        io: &'a Io,
        file: &'a File,
        workfile: &'a Workfile,
        depth: usize,
        memory: &Arc<Arena>,
    ) -> Reader<'a> {
        let spare = std::iter::from_fn(|| memory.take()).map(|lease| vec![lease]).collect();
        let mut reader =
            Reader { io, file, workfile, depth, spare, ahead: VecDeque::with_capacity(depth) };
        reader.touch_memory();
        reader
    }

    /// Reads `numbers` in order until `until` says that it is enough: what is in flight then is waited for
    /// and counted, so that the device did nothing uncounted.
    ///
    /// # Errors
    /// A failed read, a block that is not the one requested, or Ctrl-C.
    pub(super) fn read(&mut self, numbers: &[u64], until: Until) -> anyhow::Result<Round> {
        let mut waits = wait_histogram();
        let mut blocks = 0;
        let watch = Stopwatch::start();
        let enough = |(count, _): &(u64, u64)| until.enough(*count, watch.elapsed());
        let numbers = (0..).zip(numbers.iter().copied());
        let mut rest = numbers.take_while(|next| !enough(next)).map(|(_, number)| number);
        for number in rest.by_ref().take(self.depth) {
            self.ask(number);
        }
        loop {
            let moment = Instant::now();
            if self.depth == 0
                && let Some(number) = rest.next()
            {
                self.ask(number);
            }
            let Some((number, ticket)) = self.ahead.pop_front() else { break };
            let leases = ticket.wait().into_result()?;
            waits.saturating_record(moment.elapsed().as_nanos() as u64);
            // Before the block in hand is looked at: while it is, `depth` others are in flight.
            if self.depth > 0
                && let Some(next) = rest.next()
            {
                self.ask(next);
            }
            self.check(number, &leases)?;
            self.spare.push(leases);
            blocks += 1;
            interrupt::check()?;
        }
        let round = Round {
            blocks,
            // They are different ones.
            blocks_needed: Some(blocks),
            seconds: watch.elapsed().as_secs_f64(),
            processor_seconds: watch.processor_elapsed().as_secs_f64(),
            wait_ns: Some(waits),
        };
        // Has nothing to do, as every ticket was waited for; a stray request would be the next
        // measurement's noise.
        self.io.drain();
        Ok(round)
    }

    /// Asks for one block more. One by one, never as a batch: a backend may sort and merge what
    /// comes together, and the window would start with other requests than it goes on with.
    fn ask(&mut self, number: u64) {
        let request = self.request(number);
        self.ahead.push_back((number, self.io.submit(request)));
    }

    fn request(&mut self, number: u64) -> Request {
        let leases = self.spare.pop().expect("there is memory for the window and one more");
        Request::read(self.file, number * self.workfile.block_bytes(), leases)
    }

    fn check(&self, number: u64, leases: &[Lease]) -> anyhow::Result<()> {
        if leases[0][..8] != self.workfile.stamp(number) {
            bail!("block {number} of the working file came back with other contents");
        }
        Ok(())
    }

    /// First use of memory costs a page fault, which is not what is measured.
    fn touch_memory(&mut self) {
        for lease in self.spare.iter_mut().flatten() {
            lease.fill(0);
        }
    }

    /// Starts the threads, if the backend has any, by reading `numbers`: as random as those to be
    /// measured, or the kernel would take them for a sequence and read ahead.
    pub(super) fn warm_up(&mut self, numbers: &[u64]) -> anyhow::Result<()> {
        for &number in numbers {
            self.ask(number);
        }
        while let Some((_, ticket)) = self.ahead.pop_front() {
            self.spare.push(ticket.wait().into_result()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workfile::Naming;
    use forebay_io::backend::{Backend, Driven, Sink, Transfer, Want, open_raw};
    use forebay_io::{IoOptions, Kind, OpenOptions};
    use std::os::unix::fs::FileExt;

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
            assert_eq!(transfers.len(), 1, "blocks are asked for one by one");
            std::thread::sleep(self.start);
            self.inner.start(transfers);
        }

        fn drive(&self, want: &Want<'_>) -> Driven {
            std::thread::sleep(self.drive);
            self.inner.drive(want)
        }
    }

    /// A queue of `depth` in which starting and carrying out a request take so many milliseconds.
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

    /// Reads the whole file through `io`, in order.
    fn read(
        io: &Io,
        workfile: &Workfile,
        depth: usize,
        time_max: Duration,
    ) -> anyhow::Result<Round> {
        let until = Until { time_min: time_max, blocks_min: 0, time_max };
        let file = File::open(workfile.path(), &OpenOptions::new().read_only(true))?;
        let memory = Reader::memory(workfile, depth)?;
        let mut reader = Reader::new(io, &file, workfile, depth, &memory);
        let numbers: Vec<u64> = (0..BLOCKS).collect();
        reader.read(&numbers, until)
    }

    fn wait_median(round: &Round) -> Duration {
        Duration::from_nanos(round.wait_ns.as_ref().unwrap().value_at_quantile(0.5))
    }

    #[test]
    fn when_time_is_up_all_that_was_requested_is_still_read_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        for depth in [0, 1, 8] {
            let io = slow(depth, 0, 2);
            let round = read(&io, &workfile, depth, Duration::from_millis(20)).unwrap();
            assert!((1..BLOCKS).contains(&round.blocks), "depth {depth}: {}", round.blocks);
            assert_eq!(io.stats().requests, round.blocks, "depth {depth}");
            assert_eq!(round.wait_ns.unwrap().len(), round.blocks, "depth {depth}");
        }
    }

    #[test]
    fn it_ends_after_its_time_and_blocks_but_never_later_than_its_latest() {
        let ms = Duration::from_millis;
        let until = Until { time_min: ms(250), blocks_min: 64, time_max: ms(1000) };
        assert!(!until.enough(5000, ms(249)), "fast, and still not for longer than noise lasts");
        assert!(until.enough(64, ms(251)));
        assert!(!until.enough(63, ms(900)), "too few to tell");
        assert!(until.enough(3, ms(1001)));
    }

    #[test]
    fn in_time_every_block_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        // The last window is larger than the file.
        for depth in [0, 1, 8, 1000] {
            let io = slow(depth, 0, 0);
            let round = read(&io, &workfile, depth, Duration::from_secs(60)).unwrap();
            assert_eq!((round.blocks, io.stats().requests), (BLOCKS, BLOCKS), "depth {depth}");
        }
    }

    #[test]
    fn a_wait_is_waiting_alone_and_at_depth_0_the_whole_read() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        let median = |depth, start_ms, drive_ms| {
            let io = slow(depth, start_ms, drive_ms);
            wait_median(&read(&io, &workfile, depth, Duration::from_secs(60)).unwrap())
        };
        let asking = Duration::from_millis(4);
        assert!(median(4, 4, 0) < asking, "asking for the next block is not waiting for this one");
        assert!(median(0, 4, 0) >= asking, "a block asked for when needed is waited for");
        assert!(median(4, 0, 4) >= asking);
    }

    #[test]
    fn while_a_block_is_in_hand_depth_others_are_in_flight() {
        let directory = tempfile::tempdir().unwrap();
        let workfile = full_file(&directory);
        let file = std::fs::OpenOptions::new().write(true).open(workfile.path()).unwrap();
        file.write_all_at(&[0xff; 8], 5 * 512).unwrap();
        let io = slow(3, 0, 0);
        let error = read(&io, &workfile, 3, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("block 5 "), "{error}");
        // Blocks 0 to 5 were delivered, 6 to 8 were in flight when 5 was looked at.
        assert_eq!(io.stats().requests, 9);
    }
}
