//! Checksums: how a page proves that it is what was written, and at the right place.
//!
//! The sum is CRC32C over the page without its four checksum bytes, followed by the block number in four little-endian
//! bytes. So a page that the device wrote to another block of the file is detected, although its bytes are intact. (A
//! page written to the same block of another file is not: files are renumbered in each run, and a number on disk would
//! outlive its meaning.) The engine chooses where in the page the sum is stored.
//!
//! No value of the sum is special, not even zero; "no checksum" is [`Checksum::Off`], never a value. A file that was
//! extended has pages of zeroes that were never written and that carry no sum, so an all-zero page passes unless
//! [`ZeroPages::Refuse`] is set. The page is only checked for zeroes when its sum does not match: a good page costs one
//! pass over its bytes.
//!
//! Invariants:  [CHK-1] the four bytes lie inside the page, and no other byte is changed
//!              [CHK-2] a stamped page verifies, whatever its bytes and its sum
//!              [CHK-3] one flipped bit, in the page or in its sum, never passes, except where it
//!                      leaves nothing but zeroes and those are accepted
//! Failure:     a [`Mismatch`]; the page is left as it is.
//! Source:      PostgreSQL's `checksum_impl.h` for mixing in the block number.

use crate::{Block, Error};

/// Bytes of the checksum in a page.
const FIELD_BYTES: usize = 4;

/// Whether pages carry a checksum, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Pages carry none: nothing is stored and every page verifies, damaged or not.
    Off,
    /// CRC32C in four little-endian bytes.
    Crc32c {
        /// The byte offset in the page.
        offset: usize,
    },
}

/// How to treat a page that is all zeroes and whose checksum does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZeroPages {
    /// It was never written since the file was extended: it verifies.
    #[default]
    Accept,
    /// It is corrupt. For engines that write every page before they read it: a lost first write is detected.
    Refuse,
}

/// A page whose checksum does not match its bytes and block number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the page's bytes give checksum {expected:#010x}, but it carries {found:#010x}; restore it \
     from the log or a backup"
)]
pub(crate) struct Mismatch {
    /// The checksum computed from the page's bytes and block number.
    pub(crate) expected: u32,
    /// The checksum stored in the page.
    pub(crate) found: u32,
    /// True when every byte of the page is zero.
    pub(crate) all_zeroes: bool,
}

impl Checksum {
    /// Checks that the checksum lies inside a page of `page_bytes`.
    ///
    /// # Errors
    /// [`Error::Setting`] when it does not.
    pub(crate) fn check_setting(&self, page_bytes: usize) -> Result<(), Error> {
        let Checksum::Crc32c { offset } = *self else {
            return Ok(());
        };
        if offset.checked_add(FIELD_BYTES).is_some_and(|end| end <= page_bytes) {
            return Ok(());
        }
        let expected = match page_bytes.checked_sub(FIELD_BYTES) {
            Some(last) => format!("its 4 bytes have to lie inside the page, so at most {last}"),
            None => format!("a page of {page_bytes} bytes has no room for its 4"),
        };
        Err(Error::Setting { setting: "checksum offset", value: offset.to_string(), expected })
    }

    /// Writes the checksum of `page`, which is about to be written to `block`, into it.
    ///
    /// # Panics
    /// When the checksum does not lie inside the page.
    pub fn stamp(&self, page: &mut [u8], block: Block) {
        let Checksum::Crc32c { offset } = *self else {
            return;
        };
        let parts = Parts::of(page, offset);
        let sum = parts.sum(block);
        page[offset..offset + FIELD_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns true when `page` is what was last stamped for this block, or carries no checksum.
    pub fn matches(&self, page: &[u8], block: Block, zero_pages: ZeroPages) -> bool {
        self.verify(page, block, zero_pages).is_ok()
    }

    /// Compares the checksum in `page`, which was read from `block`, with its bytes.
    ///
    /// # Errors
    /// [`Mismatch`]: the page is not what was last stamped for this block.
    ///
    /// # Panics
    /// When the checksum does not lie inside the page.
    pub(crate) fn verify(
        &self,
        page: &[u8],
        block: Block,
        zero_pages: ZeroPages,
    ) -> Result<(), Mismatch> {
        let Checksum::Crc32c { offset } = *self else {
            return Ok(());
        };
        let parts = Parts::of(page, offset);
        let (expected, found) = (parts.sum(block), u32::from_le_bytes(*parts.field));
        if expected == found {
            return Ok(());
        }
        #[cfg(forebay_bug)]
        if forebay_io::bug::is_planted("ignore_torn_page") {
            return Ok(());
        }
        let all_zeroes = is_all_zeroes(page);
        if all_zeroes && zero_pages == ZeroPages::Accept {
            return Ok(());
        }
        Err(Mismatch { expected, found, all_zeroes })
    }
}

/// A page split at its checksum.
struct Parts<'a> {
    before: &'a [u8],
    field: &'a [u8; FIELD_BYTES],
    after: &'a [u8],
}

impl Parts<'_> {
    fn of(page: &[u8], offset: usize) -> Parts<'_> {
        let parts = page.split_at_checked(offset).and_then(|(before, rest)| {
            let (field, after) = rest.split_first_chunk()?;
            Some(Parts { before, field, after })
        });
        parts.expect("[CHK-1] the checksum lies inside the page")
    }

    fn sum(&self, block: Block) -> u32 {
        let before = crc32c::crc32c(self.before);
        let bytes = crc32c::crc32c_append(before, self.after);
        crc32c::crc32c_append(bytes, &block.to_le_bytes())
    }
}

/// Checks 64 bytes at a time, which compiles to vector instructions and still stops early.
pub(super) fn is_all_zeroes(page: &[u8]) -> bool {
    let (chunks, rest) = page.as_chunks::<64>();
    let zero = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
    chunks.iter().all(|chunk| zero(chunk)) && zero(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const AT_START: Checksum = Checksum::Crc32c { offset: 0 };

    /// A page of any size that can hold a checksum, and the checksum's position.
    fn pages() -> impl Strategy<Value = (Vec<u8>, Checksum)> {
        (prop::collection::vec(any::<u8>(), FIELD_BYTES..600), any::<Index>()).prop_map(
            |(page, place)| {
                let offset = place.index(page.len() - FIELD_BYTES + 1);
                (page, Checksum::Crc32c { offset })
            },
        )
    }

    fn field(page: &[u8], checksum: Checksum) -> u32 {
        let Checksum::Crc32c { offset } = checksum else {
            panic!("there is none");
        };
        u32::from_le_bytes(*page[offset..].first_chunk().unwrap())
    }

    /// The block number with which `page` has the checksum `wanted`: four free bytes at the end
    /// reach every CRC, found by running the CRC's register backwards over them.
    fn block_giving(page: &[u8], checksum: Checksum, wanted: u32) -> Block {
        let Checksum::Crc32c { offset } = checksum else {
            panic!("there is none");
        };
        let rest = [&page[..offset], &page[offset + FIELD_BYTES..]].concat();
        let before = !crc32c::crc32c(&rest);
        let unwound = (0..32).fold(!wanted, |register, _| match register >> 31 {
            1 => (register ^ 0x82f6_3b78) << 1 | 1,
            _ => register << 1,
        });
        before ^ unwound
    }

    #[test]
    fn the_format_is_crc32c_of_the_other_bytes_and_the_block_number() {
        // CRC32C's published check value is that of "123456789".
        let block = u32::from_le_bytes(*b"6789");
        for (page, offset) in [(b"12____345", 2), (b"____12345", 0), (b"12345____", 5)] {
            let mut page = *page;
            Checksum::Crc32c { offset }.stamp(&mut page, block);
            assert_eq!(page[offset..offset + 4], [0x83, 0x92, 0x06, 0xe3], "little-endian");
        }
    }

    #[test]
    fn chk_1_a_checksum_outside_the_page_is_refused_with_the_last_offset_that_fits() {
        for offset in [0, 1, 4092] {
            Checksum::Crc32c { offset }.check_setting(4096).unwrap();
        }
        Checksum::Off.check_setting(0).unwrap();
        for offset in [4093, 4096, usize::MAX] {
            let result = Checksum::Crc32c { offset }.check_setting(4096);
            assert!(matches!(&result, Err(Error::Setting { .. })), "[CHK-1] {result:?}");
            assert!(result.unwrap_err().to_string().ends_with("at most 4092"), "[CHK-1]");
        }
        assert!(AT_START.check_setting(3).unwrap_err().to_string().contains("no room"), "[CHK-1]");
    }

    #[test]
    #[should_panic(expected = "[CHK-1]")]
    fn chk_1_stamping_outside_the_page_panics() {
        Checksum::Crc32c { offset: 13 }.stamp(&mut [0; 16], 0);
    }

    #[test]
    fn an_all_zero_page_is_accepted_or_refused_as_asked() {
        for len in [4, 63, 64, 65, 4096, 8192] {
            let page = vec![0; len];
            assert_eq!(AT_START.verify(&page, 7, ZeroPages::default()), Ok(()), "{len}");
            let refused = AT_START.verify(&page, 7, ZeroPages::Refuse).unwrap_err();
            assert!(refused.all_zeroes && refused.found == 0 && refused.expected != 0, "{len}");
            for one in [0, 3, len / 2, len - 1] {
                let mut page = page.clone();
                page[one] = 1;
                let result = AT_START.verify(&page, 7, ZeroPages::Accept);
                assert!(!result.unwrap_err().all_zeroes, "byte {one} of {len} is not zero");
            }
        }
    }

    #[test]
    fn off_stamps_nothing_and_verifies_everything() {
        let mut page = [7; 16];
        Checksum::Off.stamp(&mut page, 3);
        assert_eq!(page, [7; 16]);
        assert_eq!(Checksum::Off.verify(&page, 4, ZeroPages::Refuse), Ok(()));
        assert_eq!(Checksum::Off.verify(&[0; 16], 4, ZeroPages::Refuse), Ok(()));
    }

    proptest! {
        #[test]
        fn chk_2_a_stamped_page_verifies((mut page, checksum) in pages(), block: Block) {
            checksum.stamp(&mut page, block);
            prop_assert_eq!(checksum.verify(&page, block, ZeroPages::Refuse), Ok(()), "[CHK-2]");
            let stamped = page.clone();
            checksum.stamp(&mut page, block);
            prop_assert_eq!(page, stamped, "stamping again changes nothing");
        }

        #[test]
        fn chk_2_no_value_of_the_checksum_is_special(
            (mut page, checksum) in pages(),
            wanted in prop_oneof![Just(0), Just(u32::MAX), Just(1), any::<u32>()],
        ) {
            let block = block_giving(&page, checksum, wanted);
            checksum.stamp(&mut page, block);
            prop_assert_eq!(field(&page, checksum), wanted);
            prop_assert_eq!(checksum.verify(&page, block, ZeroPages::Refuse), Ok(()), "[CHK-2]");
        }

        #[test]
        fn chk_1_stamping_leaves_every_other_byte((page, checksum) in pages(), block: Block) {
            let mut stamped = page.clone();
            checksum.stamp(&mut stamped, block);
            let Checksum::Crc32c { offset } = checksum else { unreachable!() };
            stamped[offset..offset + FIELD_BYTES]
                .copy_from_slice(&page[offset..offset + FIELD_BYTES]);
            prop_assert_eq!(stamped, page, "[CHK-1]");
        }

        #[test]
        fn chk_3_every_flipped_bit_is_found(
            (mut page, checksum) in pages(),
            block: Block,
            place: Index,
        ) {
            checksum.stamp(&mut page, block);
            let sum = field(&page, checksum);
            let bit = place.index(page.len() * 8);
            page[bit / 8] ^= 1 << (bit % 8);
            let result = checksum.verify(&page, block, ZeroPages::Refuse);
            let Err(mismatch) = result else {
                return Err(TestCaseError::fail("[CHK-3] a flipped bit passed"));
            };
            prop_assert_eq!(mismatch.found, field(&page, checksum));
            prop_assert!(mismatch.found != sum || mismatch.expected != sum, "[CHK-3]");
        }

        #[test]
        fn chk_3_a_flipped_bit_of_the_checksum_itself_is_found(
            (mut page, checksum) in pages(),
            block: Block,
            bit in 0..32_usize,
        ) {
            checksum.stamp(&mut page, block);
            let sum = field(&page, checksum);
            let Checksum::Crc32c { offset } = checksum else { unreachable!() };
            page[offset + bit / 8] ^= 1 << (bit % 8);
            let mismatch = checksum.verify(&page, block, ZeroPages::Refuse).unwrap_err();
            prop_assert_eq!(mismatch.expected, sum, "[CHK-3]");
            prop_assert_eq!(mismatch.found, sum ^ 1 << bit, "[CHK-3]");
        }

        #[test]
        fn a_page_in_another_block_is_found(
            (mut page, checksum) in pages(),
            block: Block,
            other: Block,
        ) {
            prop_assume!(block != other);
            checksum.stamp(&mut page, block);
            let result = checksum.verify(&page, other, ZeroPages::Refuse);
            prop_assert!(result.is_err(), "written to {block}, read from {other}");
        }
    }
}
