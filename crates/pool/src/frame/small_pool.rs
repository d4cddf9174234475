//! A pool in small, for tests: the frames and the page table as they are, around a disk of numbers.
//!
//! Loom and shuttle cannot follow a pool into the kernel, so the miss path, the sweep and the
//! truncation of `load`, `replacement::victim`, `write::out` and `file::resize` are repeated here,
//! step for step and without what does not concern the frames. Keep them alike.
//!
//! A page is two words that are equal whenever nobody changes it, so that a mix is seen. They are
//! accessed `Relaxed`: whatever orders them has to be in the frames.

use std::path::Path;
use std::sync::Arc;

use super::word::{DIRTY, Mode, ORPHAN, Obstacle, Touch, USAGE_MAX, VALID};
use super::{FrameIndex, Frames, Loaded, NO_FRAME, Owned};
use crate::error::{Error, Fate};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};
use crate::table::PageTable;
use crate::tag::{Block, FileId, Lsn, PageTag};

/// What a page is that has not been read whole, or whose checksum is wrong.
pub(super) const BAD: u64 = u64::MAX;

/// A page in memory: two words, equal while nobody changes it.
struct Page([AtomicU64; 2]);

impl Page {
    fn set(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn words(&self) -> [u64; 2] {
        [self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed)]
    }
}

pub(super) struct SmallPool {
    pub(super) frames: Frames,
    pub(super) table: PageTable,
    memory: Vec<Page>,
    /// What is on disk, by block; `BAD` where it cannot be read.
    disk: Vec<AtomicU64>,
    /// Blocks in the file.
    blocks: AtomicU64,
    pub(super) reads: AtomicU64,
}

/// As `guard::Optimistic`.
#[derive(Clone, Copy)]
pub(super) struct Look {
    frame: FrameIndex,
    version: u64,
}

pub(super) fn tag(block: Block) -> PageTag {
    PageTag { file: FileId(7), block }
}

fn gone() -> Error {
    Error::Gone { file: Path::new("small").into(), how: Fate::Truncated }
}

impl SmallPool {
    /// A file of blocks that say 10, 11, 12 and so on.
    pub(super) fn new(frames: usize, blocks: u64) -> Arc<SmallPool> {
        let table = PageTable::new();
        for block in 0..blocks as Block {
            table.entry(block);
        }
        Arc::new(SmallPool {
            frames: Frames::new(frames).expect("memory for a few frames"),
            table,
            memory: (0..frames).map(|_| Page([AtomicU64::new(BAD), AtomicU64::new(BAD)])).collect(),
            disk: (0..blocks).map(|block| AtomicU64::new(10 + block)).collect(),
            blocks: AtomicU64::new(blocks),
            reads: AtomicU64::new(0),
        })
    }

    pub(super) fn spoil(&self, block: Block) {
        self.disk[block as usize].store(BAD, Ordering::Relaxed);
    }

    #[cfg(loom)]
    pub(super) fn on_disk(&self, block: Block) -> u64 {
        self.disk[block as usize].load(Ordering::Relaxed)
    }

    fn check(&self, block: Block) -> Result<(), Error> {
        let blocks = self.blocks.load(Ordering::SeqCst);
        if u64::from(block) < blocks { Ok(()) } else { Err(gone()) }
    }

    /// `Core::enter` and `Core::enter_slowly`.
    pub(super) fn enter(&self, block: Block, mode: Mode) -> Result<FrameIndex, Error> {
        loop {
            self.check(block)?;
            let frame = self.table.lookup(block);
            if frame == NO_FRAME {
                match self.bring_in(block, mode)? {
                    Some(frame) => return Ok(frame),
                    None => continue,
                }
            }
            if self.frames.enter(frame, tag(block), mode, Touch::Count).is_some() {
                return Ok(frame);
            }
            let obstacle = self.frames.obstacle(frame, tag(block));
            let pinned =
                obstacle != Obstacle::NotHere && self.frames.pin(frame, tag(block), Touch::Count);
            if !pinned {
                yield_now();
                continue;
            }
            if !self.frames.get(frame).word().has(VALID) {
                self.frames.wait_loaded(frame);
                let loaded = self.frames.loaded(frame);
                if !matches!(loaded, Loaded::Here) {
                    self.frames.unpin(frame);
                }
                match loaded {
                    Loaded::Here => {}
                    Loaded::Failed(error) => return Err(error),
                    Loaded::LookAgain => continue,
                }
            }
            self.latch_pinned(frame, mode);
            if self.frames.get(frame).word().has(ORPHAN) {
                self.leave(frame, mode);
                return Err(gone());
            }
            return Ok(frame);
        }
    }

    pub(super) fn latch_pinned(&self, frame: FrameIndex, mode: Mode) {
        if !self.frames.try_latch(frame, mode) {
            self.frames.latch(frame, mode);
        }
    }

    pub(super) fn leave(&self, frame: FrameIndex, mode: Mode) {
        match mode {
            Mode::Pin => self.frames.unpin(frame),
            Mode::Shared => self.frames.leave_shared(frame),
            Mode::Exclusive => self.frames.leave_exclusive(frame),
        }
    }

    /// `Core::bring_in`.
    fn bring_in(&self, block: Block, mode: Mode) -> Result<Option<FrameIndex>, Error> {
        let owned = self.allocate();
        let entry = self.table.entry(block);
        let Some(loading) = owned.load(tag(block), 0, |frame| entry.list(frame)) else {
            return Ok(None);
        };
        // Listed first, looked second.
        fence(Ordering::SeqCst);
        let frame = loading.frame();
        let filled = self.check(block).and_then(|()| {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let value = self.disk[block as usize].load(Ordering::Relaxed);
            self.memory[frame as usize].set(value);
            if value == BAD {
                let file = Path::new("small").into();
                let (expected, found, all_zeroes) = (0, 1, false);
                return Err(Error::Corrupt { file, block, expected, found, all_zeroes });
            }
            Ok(())
        });
        match filled {
            Ok(()) => {
                loading.finish(mode, 0);
                Ok(Some(frame))
            }
            Err(error) => {
                entry.unlist(frame);
                loading.fail(error.clone());
                Err(error)
            }
        }
    }

    /// `Core::allocate`, without an end to its patience.
    fn allocate(&self) -> Owned<'_> {
        loop {
            if let Some(owned) = self.frames.take_free() {
                return owned;
            }
            for (frame, it) in self.frames.iter() {
                if it.word().has(DIRTY) {
                    self.write_out(frame);
                }
                if let Some(owned) = self.claim(frame) {
                    return owned;
                }
            }
            spin_loop();
            yield_now();
        }
    }

    fn claim(&self, frame: FrameIndex) -> Option<Owned<'_>> {
        let (owned, tag) = self.frames.claim(frame, USAGE_MAX)?;
        self.table.entry(tag.block).unlist(frame);
        Some(owned)
    }

    /// Puts the page in `frame` out, if that can be done.
    pub(super) fn evict(&self, frame: FrameIndex) -> bool {
        self.claim(frame).is_some()
    }

    /// `Core::write_page`: true when it was written.
    pub(super) fn write_out(&self, frame: FrameIndex) -> bool {
        let Some(tag) = self.frames.get(frame).tag() else { return false };
        if !self.frames.pin(frame, tag, Touch::Not) {
            return false;
        }
        let written = self.frames.try_latch(frame, Mode::Shared) && {
            let begun = self.frames.begin_write(frame);
            let copy = self.read(frame);
            if begun {
                self.frames.copied(frame);
            }
            self.frames.unlatch_shared(frame);
            if begun {
                self.disk[tag.block as usize].store(copy, Ordering::Relaxed);
                self.frames.end_write(frame, None);
            }
            begun
        };
        self.frames.unpin(frame);
        written
    }

    /// What the latched page says.
    pub(super) fn read(&self, frame: FrameIndex) -> u64 {
        let [one, two] = self.memory[frame as usize].words();
        assert_eq!(one, two, "[FRM-2] a latched page is changing");
        one
    }

    /// Adds to the exclusively latched page.
    pub(super) fn add(&self, frame: FrameIndex, more: u64) {
        let page = &self.memory[frame as usize].0;
        let old = page.each_ref().map(|word| word.fetch_add(more, Ordering::Relaxed));
        assert_eq!(old[0], old[1], "[FRM-2] two change a page");
    }

    /// Adds to a page as its user would.
    pub(super) fn change(&self, block: Block, more: u64) -> Result<(), Error> {
        let frame = self.enter(block, Mode::Exclusive)?;
        self.add(frame, more);
        self.frames.mark_dirty(frame, Lsn::NONE);
        self.frames.leave_exclusive(frame);
        Ok(())
    }

    /// Reads a page as its user would.
    pub(super) fn value(&self, block: Block) -> Result<u64, Error> {
        let frame = self.enter(block, Mode::Shared)?;
        let value = self.read(frame);
        self.frames.leave_shared(frame);
        Ok(value)
    }

    /// `Core::look_at_once`, of an entry that may be old.
    pub(super) fn look(&self, frame: FrameIndex, block: Block) -> Option<Look> {
        let it = self.frames.get(frame);
        let version = it.version();
        if !version.is_multiple_of(2) || !it.holds(tag(block)) {
            return None;
        }
        Some(Look { frame, version })
    }

    /// `Optimistic::read`.
    pub(super) fn read_by(&self, look: Look) -> Option<u64> {
        let [one, two] = self.memory[look.frame as usize].words();
        if !self.frames.get(look.frame).still_as_of(look.version) {
            return None;
        }
        assert_eq!(one, two, "[OPT-1] a mix of two states was taken for one");
        Some(one)
    }

    /// `FileCore::truncate`.
    pub(super) fn truncate(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for (block, frame) in self.table.listed_from(blocks as Block) {
            let entry = self.table.entry(block);
            let mut frame = frame;
            while frame != NO_FRAME {
                if self.frames.discard(frame, tag(block), || entry.unlist(frame), |_| {}).is_none()
                {
                    yield_now();
                }
                frame = entry.frame();
            }
        }
    }

    /// `FileCore::extend`, by one block that says `value`. Nobody else is at work on that block.
    pub(super) fn extend(&self, value: u64) {
        let block = self.blocks.load(Ordering::Relaxed);
        self.disk[block as usize].store(value, Ordering::Relaxed);
        self.blocks.store(block + 1, Ordering::SeqCst);
    }

    /// Whatever has happened: when all is quiet, each frame is free or has a listed page.
    pub(super) fn assert_settled(&self) {
        let mut resident = 0;
        for (frame, it) in self.frames.iter() {
            let word = it.word();
            assert_eq!((word.pins(), word.shared()), (0, 0), "[FRM-1] held by nobody: {word:?}");
            let even = it.version().is_multiple_of(2);
            match it.tag() {
                Some(tag) => {
                    resident += 1;
                    assert!(word.has(VALID) && even, "[FRM-2] a page at rest: {word:?}");
                    assert_eq!(self.table.lookup(tag.block), frame, "[TAB-1] {tag}");
                }
                None => assert!(!word.has(VALID) && !even, "[FRM-2] nothing at rest: {word:?}"),
            }
        }
        let free = self.frames.free_count();
        assert_eq!(free + resident, self.frames.len(), "[FRM-3] a frame is lost or freed twice");
    }
}
