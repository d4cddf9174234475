//! A store in memory: chunks of 64 KiB in a map that is split among locks.
//!
//! A chunk exists from the first nonzero byte written to it until all of it is discarded, so that
//! formatting a disk of a terabyte, which writes zeros over much of it, takes almost no memory.
//!
//! Adjacent chunks are behind different locks, so that readers of one file rarely contend.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::StoreError;

/// Bytes of a chunk, the unit of allocation.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// Number of locks that the chunks are split among.
const SHARDS: usize = 64;

type Shard = HashMap<u64, Box<[u8]>>;

#[derive(Debug)]
pub(super) struct Memory {
    shards: Vec<RwLock<Shard>>,
    held_bytes: AtomicU64,
    limit_bytes: u64,
}

/// The part of a transfer that is within one chunk.
struct Piece {
    chunk: u64,
    /// Range in the chunk.
    within: Range<usize>,
    /// Range in the caller's buffer.
    outside: Range<usize>,
}

/// Cuts `len` bytes at `at` into pieces.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let position = at + done as u64;
        let start = (position % CHUNK_BYTES) as usize;
        let here = (CHUNK_BYTES as usize - start).min(len - done);
        let outside = done..done + here;
        done += here;
        Some(Piece { chunk: position / CHUNK_BYTES, within: start..start + here, outside })
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|part| part == &ZEROS[..part.len()])
}

impl Memory {
    pub(super) fn new(limit_bytes: u64) -> Memory {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Memory { shards, held_bytes: AtomicU64::new(0), limit_bytes }
    }

    fn shard(&self, chunk: u64) -> &RwLock<Shard> {
        &self.shards[(chunk % SHARDS as u64) as usize]
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.held_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn read(&self, at: u64, into: &mut [u8]) {
        for piece in pieces(at, into.len()) {
            let shard = self.shard(piece.chunk).read().unwrap_or_else(PoisonError::into_inner);
            match shard.get(&piece.chunk) {
                Some(bytes) => into[piece.outside].copy_from_slice(&bytes[piece.within]),
                None => into[piece.outside].fill(0),
            }
        }
    }

    pub(super) fn write(&self, at: u64, from: &[u8]) -> Result<(), StoreError> {
        for piece in pieces(at, from.len()) {
            let from = &from[piece.outside];
            let mut shard = self.shard(piece.chunk).write().unwrap_or_else(PoisonError::into_inner);
            if let Some(bytes) = shard.get_mut(&piece.chunk) {
                bytes[piece.within].copy_from_slice(from);
            } else if !is_zero(from) {
                self.take_room()?;
                let mut bytes = vec![0; CHUNK_BYTES as usize].into_boxed_slice();
                bytes[piece.within].copy_from_slice(from);
                shard.insert(piece.chunk, bytes);
            }
        }
        Ok(())
    }

    pub(super) fn discard(&self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let (first, last) = (at / CHUNK_BYTES, end.div_ceil(CHUNK_BYTES));
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            // A discard may cover a whole terabyte with only a few chunks, or one chunk among
            // very many: the code iterates over whichever is fewer.
            if last - first > shard.len() as u64 {
                let held = |chunk: &&u64| (first..last).contains(*chunk);
                let chunks: Vec<u64> = shard.keys().filter(held).copied().collect();
                chunks.iter().for_each(|chunk| self.clear(&mut shard, *chunk, at..end));
            } else {
                let ours = (first..last).filter(|chunk| (chunk % SHARDS as u64) as usize == number);
                ours.for_each(|chunk| self.clear(&mut shard, chunk, at..end));
            }
        }
    }

    /// Zeroes the part of `chunk` that is in `range`, and frees the chunk if all of it is zero then.
    fn clear(&self, shard: &mut Shard, chunk: u64, range: Range<u64>) {
        let start = chunk * CHUNK_BYTES;
        let within = range.start.max(start) - start..range.end.min(start + CHUNK_BYTES) - start;
        let Some(bytes) = shard.get_mut(&chunk) else { return };
        bytes[within.start as usize..within.end as usize].fill(0);
        if within == (0..CHUNK_BYTES) || is_zero(bytes) {
            shard.remove(&chunk);
            self.held_bytes.fetch_sub(CHUNK_BYTES, Ordering::Relaxed);
        }
    }

    fn take_room(&self) -> Result<(), StoreError> {
        let before = self.held_bytes.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
        if before + CHUNK_BYTES > self.limit_bytes {
            self.held_bytes.fetch_sub(CHUNK_BYTES, Ordering::Relaxed);
            return Err(StoreError::Full { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: &Memory) -> u64 {
        let counted: usize = memory.shards.iter().map(|shard| shard.read().unwrap().len()).sum();
        assert_eq!(memory.held_bytes.load(Ordering::Relaxed), counted as u64 * CHUNK_BYTES);
        counted as u64
    }

    #[test]
    fn zeros_cost_nothing_and_a_whole_discard_gives_chunks_back() {
        let memory = Memory::new(u64::MAX);
        memory.write(1 << 40, &[0; 1 << 20]).unwrap();
        assert_eq!(held(&memory), 0);
        memory.write(CHUNK_BYTES - 1, &[1, 2]).unwrap();
        assert_eq!(held(&memory), 2);
        memory.discard(CHUNK_BYTES + 1, CHUNK_BYTES);
        assert_eq!(held(&memory), 2, "there is something else in the chunk");
        memory.discard(CHUNK_BYTES, 1);
        assert_eq!(held(&memory), 1, "nothing else was in the chunk");
        let mut found = [9; 2];
        memory.read(CHUNK_BYTES - 1, &mut found);
        assert_eq!(found, [1, 0]);
        memory.discard(0, 1 << 50);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn a_full_memory_refuses_and_takes_what_needs_no_more() {
        let memory = Memory::new(2 * CHUNK_BYTES);
        memory.write(0, &[1; 2 * CHUNK_BYTES as usize]).unwrap();
        let refused = memory.write(2 * CHUNK_BYTES, &[1]).unwrap_err();
        assert!(
            matches!(refused, StoreError::Full { limit_bytes } if limit_bytes == 2 * CHUNK_BYTES)
        );
        assert_eq!(held(&memory), 2, "[STO-2]");
        memory.write(5, &[3; 1000]).unwrap();
        memory.write(9 * CHUNK_BYTES, &[0; 10]).unwrap();
        memory.discard(0, CHUNK_BYTES);
        memory.write(2 * CHUNK_BYTES, &[1]).unwrap();
        assert_eq!(held(&memory), 2, "[STO-2]");
    }
}
