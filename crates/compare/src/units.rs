//! Sizes as people type them, and numbers as people read them.

use std::str::FromStr;

use bytesize::ByteSize;

/// Parses `8KiB`, `8k`, `1 GiB`, `4096`; `k`, `m` and `g` count in powers of 1024.
///
/// # Errors
/// A sentence that says what a size looks like.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
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

/// A size for reading: `1.0 GiB`.
pub(crate) fn shown_size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// A measured number: `1,041,230`, `873`, `12.4`, `0.87`; a dash where there is none.
pub(crate) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value.abs() {
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len() - index;
        if index > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        for (text, bytes) in [("8KiB", 8192), ("8k", 8192), ("1 GiB", 1 << 30), ("4096", 4096)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "abc", "-1", "0"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_two_to_three_telling_digits() {
        let cases = [
            (1_041_230.4, "1,041,230"),
            (873.2, "873"),
            (12.44, "12.4"),
            (0.87, "0.87"),
            (-1234.0, "-1,234"),
            (-123.0, "-123"),
        ];
        for (value, text) in cases {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "-");
    }
}
