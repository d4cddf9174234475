//! A codec for tests: pages are masked with a mask derived from a key, their file and their block, and carry a tag of
//! all these.
//!
//! It is not a cipher, but it changes pages as a real one would, as far as a test can observe that. Bytes 0..4 are
//! reserved for the pool's checksum; the tag is stored in 4..8, which pages in tests leave unused.

use std::error::Error;

use forebay::{Block, PageCodec};

const TAG: std::ops::Range<usize> = 4..8;

#[derive(Debug)]
pub(crate) struct Cipher(pub(crate) u64);

/// Source: the finalizer of splitmix64.
fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Cipher {
    /// A hash of key, file and block.
    fn place(&self, file: &str, block: Block) -> u64 {
        let name = file.bytes().fold(self.0, |sum, byte| mixed(sum ^ u64::from(byte)));
        mixed(name ^ (u64::from(block) << 8))
    }

    fn mask(&self, file: &str, block: Block, page: &mut [u8]) {
        let place = self.place(file, block);
        for (at, word) in (1..).zip(page[TAG.end..].as_chunks_mut::<8>().0) {
            *word = (u64::from_le_bytes(*word) ^ mixed(place.wrapping_add(at))).to_le_bytes();
        }
    }

    fn tag(&self, file: &str, block: Block, masked: &[u8]) -> [u8; 4] {
        let words = masked[TAG.end..].as_chunks::<8>().0.iter();
        let sum = words.fold(self.place(file, block), |sum, word| {
            sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from_le_bytes(*word)
        });
        (mixed(sum) as u32).to_le_bytes()
    }
}

impl PageCodec for Cipher {
    fn encode(&self, file: &str, block: Block, page: &mut [u8]) {
        self.mask(file, block, page);
        let tag = self.tag(file, block, page);
        page[TAG].copy_from_slice(&tag);
    }

    fn decode(
        &self,
        file: &str,
        block: Block,
        page: &mut [u8],
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        if page[TAG] != self.tag(file, block, page) {
            return Err("the tag is not this page's".into());
        }
        self.mask(file, block, page);
        Ok(())
    }
}
