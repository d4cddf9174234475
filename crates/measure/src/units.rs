//! Sizes as people type them, and numbers as people read them.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

/// Parses `8KiB`, `8k`, `1 GiB`, `4096`.
///
/// `k`, `m`, `g` and `t` count in powers of 1024, as everywhere near a disk's block size; write
/// `KB` or `GB` for powers of 1000.
///
/// # Errors
/// A sentence that says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let binary = match trimmed.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']) {
        Some(_) => format!("{trimmed}iB"),
        None => trimmed.to_owned(),
    };
    match ByteSize::from_str(&binary) {
        Ok(size) if size.as_u64() == 0 => Err("a size of zero makes no sense here".to_owned()),
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err("a size looks like 8KiB, 64k, 1GiB or 4096".to_owned()),
    }
}

/// Parses a time such as `30s`.
///
/// # Errors
/// A sentence that says what a valid time is.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "a time looks like 250ms, 30s or 5m".to_owned())
}

/// Parses a size that `range` contains.
pub fn parse_size_in(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    move |text| match parse_size(text)? {
        size if range.contains(&size) => Ok(size),
        _ => Err(format!(
            "it should be from {} to {}",
            shown_size(*range.start()),
            shown_size(*range.end())
        )),
    }
}

/// A size in a form that the command line accepts: `8KiB`, `1GiB`, or plain bytes.
pub fn typed_size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A size for reading: `1.0 GiB`.
pub fn shown_size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        for (text, bytes) in [
            ("8KiB", 8192),
            ("8k", 8192),
            ("8K", 8192),
            ("1GiB", 1 << 30),
            ("1 GiB", 1 << 30),
            ("2g", 2 << 30),
            ("4096", 4096),
            ("1KB", 1000),
            ("512B", 512),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_answered_with_what_a_size_looks_like() {
        for text in ["", "abc", "-1", "8 KiBB", "0"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_typed_size_is_read_back_as_itself() {
        for bytes in [1, 512, 8192, 8193, 1 << 20, 1 << 30, (1 << 30) + 4096] {
            assert_eq!(parse_size(&typed_size(bytes)), Ok(bytes));
        }
        assert_eq!(shown_size(16 << 30), "16.0 GiB");
    }
}
