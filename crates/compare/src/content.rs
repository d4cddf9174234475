//! Content: what a page holds, so that a reader can verify that it got the requested page.
//!
//! The first and the last word of a payload follow from the block's number and the seed; random
//! bytes fill the space between them, so that no device or filesystem can compress them away. Peers differ
//! in what they put into a page themselves, so the payload is [`RESERVED_BYTES`] shorter than the
//! page for every peer, wherever in the page a peer keeps its data.
//!
//! Invariants:  [CMP-1] no two blocks, and no mixture of two, fold to the same number (except for a
//!              chance of about 1 in 2^64)

/// Bytes of each page left to the peer: page-db takes 32, Forebay fewer, an LRU none.
pub(crate) const RESERVED_BYTES: usize = 64;

/// The contents of a file of one seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    seed: u64,
    payload_bytes: usize,
}

impl Content {
    /// For pages of `page_bytes`, which are at least twice [`RESERVED_BYTES`].
    pub(crate) fn new(seed: u64, page_bytes: usize) -> Content {
        assert!(page_bytes >= 2 * RESERVED_BYTES, "a page of {page_bytes} bytes holds no payload");
        Content { seed, payload_bytes: page_bytes - RESERVED_BYTES }
    }

    /// Writes the payload of `block` into the first bytes of `space`; the bytes after it are unchanged.
    pub(crate) fn write(&self, block: u32, space: &mut [u8]) {
        let payload = &mut space[..self.payload_bytes];
        let last = payload.len() - 8;
        fastrand::Rng::with_seed(self.word(block, 2)).fill(&mut payload[8..last]);
        payload[..8].copy_from_slice(&self.word(block, 0).to_le_bytes());
        payload[last..].copy_from_slice(&self.word(block, 1).to_le_bytes());
    }

    /// The number that a reader computes from the payload at the start of `space`: from its first and last word.
    pub(crate) fn fold(&self, space: &[u8]) -> u64 {
        join(word_at(space, 0), word_at(space, self.payload_bytes - 8))
    }

    /// The result of [`Content::fold`] for `block`.
    pub(crate) fn expected(&self, block: u32) -> u64 {
        join(self.word(block, 0), self.word(block, 1))
    }

    fn word(&self, block: u32, place: u64) -> u64 {
        mix(mix(self.seed ^ u64::from(block)).wrapping_add(place))
    }
}

fn join(first: u64, last: u64) -> u64 {
    first.rotate_left(1) ^ last
}

fn word_at(space: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&space[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The finisher of splitmix64, a bijection.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_page_folds_to_what_is_expected_of_its_block() {
        let content = Content::new(7, 4096);
        let mut page = vec![0xee; 4096];
        content.write(5, &mut page);
        assert_eq!(content.fold(&page), content.expected(5));
        assert!(page[4096 - RESERVED_BYTES..].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn cmp_1_other_blocks_halves_of_blocks_and_empty_pages_are_distinguished() {
        let content = Content::new(7, 4096);
        let folds: HashSet<u64> = (0..10_000).map(|block| content.expected(block)).collect();
        assert_eq!(folds.len(), 10_000, "[CMP-1]");
        let (mut mixed, mut other) = (vec![0; 4096], vec![0; 4096]);
        assert!(!folds.contains(&content.fold(&mixed)), "[CMP-1]");
        content.write(1, &mut mixed);
        content.write(2, &mut other);
        mixed[2048..].copy_from_slice(&other[2048..]);
        assert!(!folds.contains(&content.fold(&mixed)), "[CMP-1]");
        assert_ne!(Content::new(8, 4096).expected(1), content.expected(1), "[CMP-1]");
    }
}
