//! Kernel: simulates how an operating system serves readers, on a timing model and in simulated time.
//!
//! It simulates two workloads: a program that reads random blocks and prefetches a number of them (document
//! 003 of the founding papers), and several programs that each read a file sequentially with kernel
//! readahead (document 002). The simulated kernel is simplified: readahead windows double up to the
//! readahead size, the kernel requests the next window when the reader enters the current one, and
//! requests have a maximum size. For the real kernel, use the emulated disk.
//!
//! Source:      the windows are those of the kernel's mm/readahead.c.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use forebay_emulate::model::{Command, Device, Ended, Op};

/// Processor time that a program needs to copy 8 KiB out of the page cache and process it.
const READ_CPU: Duration = Duration::from_micros(4);
/// Processor time of a system call.
const CALL_CPU: Duration = Duration::from_micros(2);
/// Pages of the page cache.
const PAGE_BYTES: u64 = 4096;

/// Time to read blocks of `len` bytes in the given order while the next `depth - 1` blocks are prefetched.
pub(crate) fn prefetching(
    device: &mut dyn Device,
    offsets: &[u64],
    len: u64,
    depth: usize,
) -> Duration {
    let mut here = vec![false; offsets.len()];
    let (mut now, mut asked) = (Duration::ZERO, 0);
    let mut ended: Vec<Ended> = Vec::new();
    for wanted in 0..offsets.len() {
        while asked < (wanted + depth).min(offsets.len()) {
            now += CALL_CPU;
            let command = Command { op: Op::Read, offset: offsets[asked], len };
            device.submit(now, asked as u64, command);
            asked += 1;
        }
        while !here[wanted] {
            let next = device.next_event().expect("the block is under way");
            now = now.max(next);
            device.advance(next, &mut ended);
            ended.drain(..).for_each(|ended| here[ended.id as usize] = true);
        }
        now += READ_CPU;
    }
    now
}

/// Programs that each read a separate file, one request after another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streaming {
    /// Number of readers.
    pub(crate) readers: usize,
    /// The kernel's readahead setting, in bytes.
    pub(crate) readahead: u64,
    /// Size of one read call of the program, in bytes.
    pub(crate) request: u64,
    /// Largest request that goes to the device, in bytes.
    pub(crate) request_max: u64,
    /// Where the first file begins, and the distance to the next.
    pub(crate) begin: u64,
    /// See `begin`.
    pub(crate) spacing: u64,
}

/// A reader and its readahead state in the kernel.
#[derive(Debug)]
struct Reader {
    position: u64,
    /// The end of the newest window, and its size.
    window_end: u64,
    window: u64,
    /// A read at this position makes the kernel request the next window.
    marker: u64,
    /// Requests in progress or done, in order of position: id and end.
    asked: VecDeque<(usize, u64)>,
    /// Everything before this position is in the page cache.
    here: u64,
    sleeps: bool,
}

/// The state of a running [`Streaming`].
#[derive(Debug)]
struct Scene<'a> {
    device: &'a mut dyn Device,
    readers: Vec<Reader>,
    /// When each reader that does not sleep continues.
    wakes: BinaryHeap<Reverse<(Duration, usize)>>,
    /// The reader of each request, and whether the request has ended.
    requests: Vec<(usize, bool)>,
    ended: Vec<Ended>,
}

impl Streaming {
    /// Total bytes a second of all readers, over `time` after a warm-up that does not count.
    pub(crate) fn rate(&self, device: &mut dyn Device, time: Duration) -> f64 {
        let mut scene = Scene {
            device,
            readers: (0..self.readers).map(|number| self.reader(number)).collect(),
            wakes: (0..self.readers).map(|number| Reverse((Duration::ZERO, number))).collect(),
            requests: Vec::new(),
            ended: Vec::new(),
        };
        let (warm_up, mut counted) = (time / 4, 0);
        loop {
            let wake = scene.wakes.peek().map(|&Reverse((at, _))| at);
            let event = scene.device.next_event();
            let now = match (event, wake) {
                (Some(event), Some(wake)) => event.min(wake),
                (event, wake) => event.or(wake).expect("a reader goes on or waits"),
            };
            if now > warm_up + time {
                return counted as f64 / time.as_secs_f64();
            }
            if event == Some(now) {
                self.device_goes_on(&mut scene, now);
            } else if self.reader_goes_on(&mut scene, now) && now > warm_up {
                counted += self.request;
            }
        }
    }

    /// Completes requests, and wakes the readers that wait for them.
    fn device_goes_on(&self, scene: &mut Scene<'_>, now: Duration) {
        scene.device.advance(now, &mut scene.ended);
        for ended in scene.ended.drain(..) {
            let (number, has_ended) = &mut scene.requests[ended.id as usize];
            *has_ended = true;
            let number = *number;
            let reader = &mut scene.readers[number];
            while let Some(&(id, end)) = reader.asked.front()
                && scene.requests[id].1
            {
                reader.here = end;
                reader.asked.pop_front();
            }
            if reader.sleeps && reader.here >= reader.position + self.request {
                reader.sleeps = false;
                scene.wakes.push(Reverse((now, number)));
            }
        }
    }

    /// A reader issues its next read; returns whether the data is already there.
    fn reader_goes_on(&self, scene: &mut Scene<'_>, now: Duration) -> bool {
        let Some(Reverse((_, number))) = scene.wakes.pop() else { return false };
        let reader = &mut scene.readers[number];
        for (start, end) in self.wanted(reader) {
            for from in (start..end).step_by(self.request_max as usize) {
                let to = (from + self.request_max).min(end);
                let id = scene.requests.len();
                scene.requests.push((number, false));
                reader.asked.push_back((id, to));
                let command = Command { op: Op::Read, offset: from, len: to - from };
                scene.device.submit(now, id as u64, command);
            }
        }
        let here = reader.here >= reader.position + self.request;
        if here {
            reader.position += self.request;
            scene.wakes.push(Reverse((now + READ_CPU, number)));
        }
        reader.sleeps = !here;
        here
    }

    fn reader(&self, number: usize) -> Reader {
        let begin = self.begin + number as u64 * self.spacing;
        Reader {
            position: begin,
            window_end: begin,
            window: 0,
            marker: u64::MAX,
            asked: VecDeque::new(),
            here: begin,
            sleeps: false,
        }
    }

    /// The windows that the kernel requests because of a read at the reader's position.
    fn wanted(&self, reader: &mut Reader) -> Vec<(u64, u64)> {
        let mut windows = Vec::new();
        let most = self.readahead.max(self.request);
        let end = reader.position + self.request;
        if reader.window_end < end {
            // A miss: the first window, or every window if readahead is too small to read ahead.
            reader.window =
                if reader.window == 0 { first_window(self.request, most) } else { most };
            let start = reader.window_end;
            reader.window_end = start + reader.window;
            reader.marker = start + self.request;
            windows.push((start, reader.window_end));
        }
        if most > self.request && reader.marker < end {
            reader.window = next_window(reader.window, most);
            let start = reader.window_end;
            reader.window_end = start + reader.window;
            reader.marker = start;
            windows.push((start, reader.window_end));
        }
        windows
    }
}

fn first_window(request: u64, most: u64) -> u64 {
    let size = request.next_power_of_two().max(PAGE_BYTES);
    let times = if size <= most / 32 { 4 } else { 2 };
    if size <= most / 4 { size * times } else { most }
}

fn next_window(window: u64, most: u64) -> u64 {
    if window < most / 16 { window * 4 } else { (window * 2).min(most) }
}
