//! Random operations on a few files, through every way of reading and writing, compared with vectors in memory.
//!
//! Source: the idea is that of fsx, the file system exerciser.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use super::{Aligned, Mounted, direct, mounted, options};

const FILE_BYTES_MAX: usize = 3 << 20;
const TRANSFER_BYTES_MAX: usize = 200_000;
const STEPS: usize = 1500;

/// A file, and its expected contents.
struct Modelled {
    path: PathBuf,
    buffered: File,
    direct: File,
    bytes: Vec<u8>,
}

impl Modelled {
    /// Opens the file in both ways, the direct one first or second.
    fn open(path: PathBuf, direct_first: bool, bytes: Vec<u8>) -> Modelled {
        let early = direct_first.then(|| direct(&path));
        let buffered = options().open(&path).unwrap();
        let direct = early.unwrap_or_else(|| direct(&path));
        Modelled { path, buffered, direct, bytes }
    }

    fn grow(&mut self, len: usize) {
        let longer = len.max(self.bytes.len());
        self.bytes.resize(longer, 0);
    }

    fn write(&mut self, random: &mut fastrand::Rng, (at, len): (usize, usize), directly: bool) {
        let mut from = Aligned::new(len);
        random.fill(from.bytes());
        let file = if directly { &self.direct } else { &self.buffered };
        file.write_all_at(from.bytes(), at as u64).unwrap();
        self.grow(at + len);
        self.bytes[at..at + len].copy_from_slice(from.bytes());
    }

    fn check(&self, (at, len): (usize, usize), directly: bool, what: &str) {
        let mut into = Aligned::new(len);
        let file = if directly { &self.direct } else { &self.buffered };
        let read = file.read_at(into.bytes(), at as u64).unwrap();
        let want = &self.bytes[at.min(self.bytes.len())..(at + len).min(self.bytes.len())];
        let place =
            format!("{what}: {} of {} bytes, {at}+{len}", self.path.display(), self.bytes.len());
        assert_eq!(read, want.len(), "{place}: length");
        let differs = into.bytes().iter().zip(want).position(|(got, want)| got != want);
        assert_eq!(differs, None, "{place}: first byte that differs");
    }

    fn zero(&mut self, (at, len): (usize, usize), flags: FallocateFlags) {
        fallocate(&self.buffered, flags, at as u64, len as u64).unwrap();
        if !flags.contains(FallocateFlags::KEEP_SIZE) {
            self.grow(at + len);
        }
        let end = (at + len).min(self.bytes.len());
        if flags != FallocateFlags::KEEP_SIZE && !flags.is_empty() && at < end {
            self.bytes[at..end].fill(0);
        }
    }

    fn truncate(&mut self, len: usize) {
        self.buffered.set_len(len as u64).unwrap();
        self.bytes.resize(len, 0);
    }

    /// Drops the page cache, so that the next reads reach the server.
    fn forget_pages(&self) {
        self.buffered.sync_all().unwrap();
        fadvise(&self.buffered, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Up to four files, and the operations on them.
struct Exercise {
    mount: Mounted,
    random: fastrand::Rng,
    files: [Option<Modelled>; 4],
}

impl Exercise {
    fn step(&mut self, seed: u64, number: usize) {
        let random = &mut self.random;
        let which = random.usize(..4);
        if self.files[which].is_none() {
            let path = self.mount.path.join(format!("{seed}-{which}"));
            File::create(&path).unwrap();
            self.files[which] = Some(Modelled::open(path, random.bool(), Vec::new()));
        }
        let Some(file) = &mut self.files[which] else { unreachable!() };
        let at = random.usize(..FILE_BYTES_MAX);
        let any = (at, random.usize(1..TRANSFER_BYTES_MAX).min(FILE_BYTES_MAX - at));
        let at = at.min(FILE_BYTES_MAX - TRANSFER_BYTES_MAX) / 4096 * 4096;
        let blocks = (at, any.1.next_multiple_of(4096));
        let step = format!("seed {seed}, step {number}");
        match random.u8(..100) {
            0..25 => file.write(random, any, false),
            25..40 => file.check(any, false, &step),
            40..50 => file.write(random, blocks, true),
            50..62 => file.check(blocks, true, &step),
            62..70 => file.truncate(random.usize(..FILE_BYTES_MAX)),
            70..77 => file.zero(any, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            77..80 => file.zero(any, FallocateFlags::ZERO_RANGE),
            80..82 => file.zero(any, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            82..84 => file.zero(any, FallocateFlags::empty()),
            84..86 => file.zero(any, FallocateFlags::KEEP_SIZE),
            86..88 => file.buffered.sync_all().unwrap(),
            88..91 => file.forget_pages(),
            91..94 => self.open_again(which),
            94..97 => self.rename(which, &step),
            _ => {
                std::fs::remove_file(&file.path).unwrap();
                file.check((0, FILE_BYTES_MAX), false, &step);
                self.files[which] = None;
            }
        }
    }

    fn open_again(&mut self, which: usize) {
        let Some(Modelled { path, buffered, direct, bytes }) = self.files[which].take() else {
            return;
        };
        drop((buffered, direct));
        let len = std::fs::metadata(&path).unwrap().len();
        assert_eq!(len, bytes.len() as u64, "{}", path.display());
        self.files[which] = Some(Modelled::open(path, self.random.bool(), bytes));
    }

    /// Renames a file over another one, which is checked once after it has lost its name.
    fn rename(&mut self, which: usize, step: &str) {
        let other = (which + 1) % 4;
        let Some(replaced) = self.files[other].take() else { return };
        let Some(mut file) = self.files[which].take() else { unreachable!() };
        std::fs::rename(&file.path, &replaced.path).unwrap();
        replaced.check((0, FILE_BYTES_MAX), false, step);
        file.path = replaced.path;
        self.files[other] = Some(file);
    }
}

#[test]
fn files_hold_what_a_vector_would_whichever_way_they_are_read_and_written() {
    for seed in [1, 2, 3] {
        let Some(mount) = mounted(super::INSTANT) else { return };
        let random = fastrand::Rng::with_seed(seed);
        let mut exercise = Exercise { mount, random, files: [const { None }; 4] };
        for number in 0..STEPS {
            exercise.step(seed, number);
        }
        for file in exercise.files.iter().flatten() {
            file.check((0, FILE_BYTES_MAX), false, &format!("seed {seed}, at the end"));
            file.forget_pages();
            file.check((0, FILE_BYTES_MAX), true, &format!("seed {seed}, from the server"));
        }
    }
}
