//! The bytes in the store, as docs/format-object.md describes them: pure functions from and to bytes.
//!
//! All numbers are little-endian. For any input, decoding returns either a value that was encoded or a
//! sentence that says what is wrong; it does not panic, and allocates no more memory than the length of the input.

pub(crate) mod manifest;
pub(crate) mod object;

/// The newest version known, of manifests and of data objects.
pub(crate) const VERSION: u16 = 3;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// They are damaged; a sentence.
    Damaged(String),
    /// They are of another version.
    Version(u16),
}

impl Broken {
    fn new(what: impl Into<String>) -> Broken {
        Broken::Damaged(what.into())
    }
}

/// Reads numbers from the front of a slice.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (head, rest) =
            self.0.split_at_checked(count).ok_or_else(|| Broken::new("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, Broken> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a count of items of at least `least` bytes each, and checks that the input is long enough for all of them.
    fn count(&mut self, least: usize) -> Result<usize, Broken> {
        let count = self.u32()? as usize;
        if count > self.0.len() / least {
            return Err(Broken::new("it counts more than it holds"));
        }
        Ok(count)
    }
}
