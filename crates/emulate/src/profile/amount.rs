//! Amounts: sizes, times and rates as users type them.
//!
//! Examples: `64KiB`, `1TB`, `8.5ms`, `120MB/s`. In a size, a single letter means a power of 1024 (`64k`),
//! as elsewhere in Forebay. Seeks of 8.5 ms need fractions, which the usual parsers of durations
//! do not accept, hence this parser.
//!
//! Failure: a sentence that quotes the input and shows a valid example.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::{self, Deserializer};

/// The forms of a value in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Typed {
    Number(u64),
    Text(String),
}

/// Reads a size, in bytes.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Typed::deserialize(from) {
        Ok(Typed::Number(bytes)) => Ok(bytes),
        Ok(Typed::Text(text)) => parse_bytes(&text).map_err(de::Error::custom),
        Err(_) => Err(de::Error::custom(r#"write a size such as "64KiB" or "1TB""#)),
    }
}

/// Reads a rate, in bytes a second.
pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Typed::deserialize(from) {
        Ok(Typed::Number(bytes)) => Ok(bytes),
        Ok(Typed::Text(text)) => parse_rate(&text).map_err(de::Error::custom),
        Err(_) => Err(de::Error::custom(r#"write a rate such as "120MB/s""#)),
    }
}

/// Reads a time.
pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)
        .map_err(|_| de::Error::custom(r#"write a time with its unit, such as "8.5ms""#))?;
    parse_time(&text).map_err(de::Error::custom)
}

/// A size such as `64KiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let binary = match compact.chars().last() {
        // "64k" is 65,536, as it is for a disk's block size.
        Some(last) if "kKmMgGtTpP".contains(last) => format!("{compact}iB"),
        _ => compact,
    };
    let parsed = binary.parse::<ByteSize>();
    parsed
        .map(|size| size.as_u64())
        .map_err(|_| format!(r#""{text}" is no size; write one such as "64KiB" or "1TB""#))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let complaint = || format!(r#""{text}" is no rate; write one such as "120MB/s""#);
    let size = text.trim().strip_suffix("/s").ok_or_else(complaint)?;
    parse_bytes(size).map_err(|_| complaint())
}

/// A time such as `8.5ms`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let complaint =
        || format!(r#""{text}" is no time; write one such as "8.5ms", "90us", "200ns" or "2s""#);
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(complaint)?;
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number.parse().map_err(|_| complaint())?;
    let ns_per_unit = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return Err(complaint()),
    };
    let ns = (number * ns_per_unit).round();
    // No device takes years; up to here the arithmetic is exact enough.
    if ns > 1e15 { Err(complaint()) } else { Ok(Duration::from_nanos(ns as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_as_elsewhere_in_forebay() {
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("64 KiB"), Ok(65_536));
        assert_eq!(parse_bytes("1TB"), Ok(1_000_000_000_000));
        assert!(parse_bytes("many").unwrap_err().contains("64KiB"));
    }

    #[test]
    fn times_may_have_fractions_and_need_units() {
        assert_eq!(parse_time("8.5ms"), Ok(Duration::from_micros(8500)));
        assert_eq!(parse_time("90 us"), Ok(Duration::from_micros(90)));
        assert!(parse_time("8.5").is_err() && parse_time("1.2.3ms").is_err());
        assert!(parse_time("-1ms").is_err() && parse_time("9e99s").is_err());
    }

    #[test]
    fn rates_need_their_unit() {
        assert_eq!(parse_rate("120MB/s"), Ok(120_000_000));
        assert!(parse_rate("120MB").unwrap_err().contains("120MB/s"));
    }
}
