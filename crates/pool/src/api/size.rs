//! Sizes: an amount of bytes as people write it.
//!
//! A setter takes anything that converts into a [`Size`], so `.memory("2 GiB")` and `.memory(1 << 20)` both work. The
//! text is stored and parsed only when it is used: a setter need not return a `Result`, and building the pool is the
//! one place that can fail. A size in a profile is parsed at once, while its line is known.
//!
//! A letter alone counts in powers of 1024, as on the lab's command line and everywhere near a
//! disk's block size. Examples: `8k` and `8 KiB` are 8192, `8KB` is 8000, `1.5m` is 1,572,864.
//!
//! Invariants:  [SIZ-1] an amount that does not fit 64 bits is rejected, not clamped
//! Failure:     [`Error::Setting`] with the text. Whether an amount is valid, zero included, is decided by the setting.

use std::fmt;

use crate::Error;

#[cfg(feature = "config")]
const EXPECTED: &str = "write a size such as 8KiB, 64k, 1.5 GiB, or a plain number of bytes";

/// With fewer, two threads with two pages each would block each other.
const FRAMES_MIN: u64 = 8;
/// Frame numbers are 32 bits, and the page table keeps one of them for "none".
const FRAMES_MAX: u64 = u32::MAX as u64 - 1;

/// An amount of bytes as a person wrote it: `2GiB`, `512 MiB`, `64k`, `8192`, or a number.
///
/// `k`, `m`, `g`, `t`, `p` and `e` alone count in powers of 1024, as `KiB` and the like do; `KB` and the like count in
/// powers of 1000. A fraction is rounded down to whole bytes. Without the feature `config` only numbers of bytes are
/// supported.
/// numbers of bytes only.
#[derive(Debug, Clone)]
pub struct Size {
    written: Written,
}

#[derive(Debug, Clone)]
enum Written {
    Bytes(u64),
    Text(String),
}

impl Size {
    /// Returns the amount in bytes. `setting` is the name for an error.
    ///
    /// # Errors
    /// [`Error::Setting`] when the text is not a size, or the number is negative.
    pub fn bytes(&self, setting: &'static str) -> Result<u64, Error> {
        match &self.written {
            Written::Bytes(bytes) => Ok(*bytes),
            Written::Text(text) => parse(text).map_err(|expected| Error::Setting {
                setting,
                value: format!("{text:?}"),
                expected: expected.to_owned(),
            }),
        }
    }
}

/// How many pages of `page_bytes` bytes fit in `bytes` of memory, the value of `setting`.
pub(super) fn frames_of(setting: &'static str, bytes: u64, page_bytes: u64) -> Result<u64, Error> {
    check_frames(setting, bytes, bytes / page_bytes, page_bytes)
}

/// The number of frames if a pool may have it, or an error about `setting`, whose value was `value`.
pub(super) fn check_frames(
    setting: &'static str,
    value: u64,
    frames: u64,
    page_bytes: u64,
) -> Result<u64, Error> {
    let fits = usize::try_from(frames.saturating_mul(page_bytes))
        .is_ok_and(|bytes| isize::try_from(bytes).is_ok());
    if (FRAMES_MIN..=FRAMES_MAX).contains(&frames) && fits {
        return Ok(frames);
    }
    Err(Error::Setting {
        setting,
        value: value.to_string(),
        expected: format!(
            "it should be from {FRAMES_MIN} to {FRAMES_MAX} pages of {page_bytes} bytes, and fit the address \
             space; give more memory, or less"
        ),
    })
}

/// The expected form of a size, if `text` is not one.
#[cfg(not(feature = "config"))]
fn parse(text: &str) -> Result<u64, &'static str> {
    text.trim().parse().map_err(|_| "write a number of bytes; units need the feature `config`")
}

/// The expected form of a size, if `text` is not one.
#[cfg(feature = "config")]
pub(super) fn parse(text: &str) -> Result<u64, &'static str> {
    let trimmed = text.trim();
    // For bytesize a letter alone is a power of 1000.
    let binary = match trimmed.to_ascii_lowercase().strip_suffix(['k', 'm', 'g', 't', 'p', 'e']) {
        Some(_) => format!("{trimmed}iB"),
        None => trimmed.to_owned(),
    };
    match binary.parse::<bytesize::ByteSize>() {
        // bytesize returns its maximum for any amount that is too large ([SIZ-1]).
        Ok(size) if size.as_u64() == u64::MAX => Err("write a size of less than 16 EiB"),
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err(EXPECTED),
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Size {
        Size { written: Written::Bytes(bytes) }
    }
}

impl From<usize> for Size {
    fn from(bytes: usize) -> Size {
        Size::from(bytes as u64)
    }
}

/// For integer literals, which are `i32` by default. A negative one is rejected when the size is used.
impl From<i32> for Size {
    fn from(bytes: i32) -> Size {
        u64::try_from(bytes).map_or_else(|_| Size::from(bytes.to_string()), Size::from)
    }
}

impl From<&str> for Size {
    fn from(text: &str) -> Size {
        Size::from(text.to_owned())
    }
}

impl From<String> for Size {
    fn from(text: String) -> Size {
        Size { written: Written::Text(text) }
    }
}

/// The original text.
impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.written {
            Written::Bytes(bytes) => bytes.fmt(out),
            Written::Text(text) => text.fmt(out),
        }
    }
}

#[cfg(all(test, feature = "config"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(size: impl Into<Size>) -> Result<u64, Error> {
        size.into().bytes("memory")
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("512 MiB", 512 << 20),
            ("8192", 8192),
            (" 8192 ", 8192),
            ("64k", 64 << 10),
            ("64 K", 64 << 10),
            ("1m", 1 << 20),
            ("2g", 2 << 30),
            ("3T", 3 << 40),
            ("1p", 1 << 50),
            ("1e", 1 << 60),
            ("8KB", 8000),
            ("1GB", 1_000_000_000),
            ("1.5 KiB", 1536),
            ("512B", 512),
            ("0", 0),
            ("0 GiB", 0),
            ("18446744073709551614", u64::MAX - 1),
        ] {
            assert_eq!(bytes(text).unwrap(), expected, "{text}");
            assert_eq!(bytes(text.to_owned()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_bytes_and_a_bare_literal_is_a_number() {
        assert_eq!(bytes(8192).unwrap(), 8192);
        assert_eq!(bytes(3_usize << 30).unwrap(), 3 << 30);
        assert_eq!(bytes(u64::MAX).unwrap(), u64::MAX);
        assert_eq!(bytes(0).unwrap(), 0);
    }

    #[test]
    fn nonsense_is_answered_with_what_was_written_and_what_a_size_looks_like() {
        let nonsense =
            ["", " ", "-1", "-1 KiB", "NaN", "inf", "nan k", "k", "GiB", "1.5", "1e3", "1 000 B"];
        for text in nonsense.into_iter().chain(["2 gigs", "8 KiBB", "0x10", "1.2.3k", "1,5k"]) {
            let Err(Error::Setting { setting, value, expected }) = bytes(text) else {
                panic!("{text:?} was taken for a size");
            };
            assert_eq!(setting, "memory");
            assert_eq!(value, format!("{text:?}"));
            assert!(expected.contains("8KiB"), "{expected}");
        }
        let message = bytes(-5).unwrap_err().to_string();
        assert!(message.starts_with("memory is \"-5\": write a size such as"), "{message}");
    }

    #[test]
    fn siz_1_what_does_not_fit_is_refused() {
        for text in [
            "16EiB",
            "16e",
            "17 EiB",
            "16.5 EiB",
            "99999999999 GiB",
            "18446744073709551615B",
            "99999999999999999999999 KiB",
        ] {
            let Err(Error::Setting { expected, .. }) = bytes(text) else {
                panic!("[SIZ-1] {text} was taken for a size");
            };
            assert!(expected.contains("less than 16 EiB"), "[SIZ-1] {text}: {expected}");
        }
        assert!(bytes("18446744073709551616").is_err(), "[SIZ-1] without a unit");
    }

    #[test]
    fn a_size_is_shown_as_it_was_written() {
        assert_eq!(Size::from("2 GiB").to_string(), "2 GiB");
        assert_eq!(Size::from(8192).to_string(), "8192");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}") {
            let _ = bytes(text);
        }

        #[test]
        fn siz_1_a_whole_number_of_units_is_exact_or_refused(
            number in any::<u64>(),
            shift in 0..=6_u32,
        ) {
            let number = number >> (shift * 8);
            let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][shift as usize];
            let exact = number.checked_mul(1 << (10 * shift)).filter(|bytes| *bytes != u64::MAX);
            prop_assert_eq!(bytes(format!("{number} {unit}")).ok(), exact, "[SIZ-1]");
        }
    }
}
