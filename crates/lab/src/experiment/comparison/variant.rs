//! Variants: the ways of reading that are compared.
//!
//! Streams of a pool have the names of their strategies. `plain`, `random` and `willneed-32` use no pool:
//! they are the subject of document 004, one read of one block after the other through one descriptor.

use std::fmt;
use std::str::FromStr;

use forebay::ReadaheadStrategy;

/// Maximum distance in blocks between WILLNEED for a block and its read.
const DISTANCE_MAX: u32 = 100_000;

/// A way of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// A stream, or several, of a pool.
    Stream(ReadaheadStrategy),
    /// `os` again: a difference between two equal variants is noise.
    OsAgain,
    /// Plain reads of one block each.
    Plain,
    /// The same after FADV_RANDOM.
    Random,
    /// The same with FADV_WILLNEED for each block, this many blocks before it is read.
    WillNeed(u32),
}

impl Variant {
    /// Its strategy, if it reads through a pool.
    pub(super) fn strategy(self) -> Option<ReadaheadStrategy> {
        match self {
            Variant::Stream(strategy) => Some(strategy),
            Variant::OsAgain => Some(ReadaheadStrategy::Os),
            Variant::Plain | Variant::Random | Variant::WillNeed(_) => None,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Stream(strategy) => out.pad(strategy.name()),
            Variant::OsAgain => out.pad("os-again"),
            Variant::Plain => out.pad("plain"),
            Variant::Random => out.pad("random"),
            Variant::WillNeed(distance) => out.pad(&format!("willneed-{distance}")),
        }
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(name: &str) -> Result<Variant, String> {
        let name = name.trim();
        let distance = name.strip_prefix("willneed-").and_then(|text| text.parse().ok());
        match (name, name.parse(), distance) {
            (_, Ok(strategy), _) => Ok(Variant::Stream(strategy)),
            ("plain", ..) => Ok(Variant::Plain),
            ("random", ..) => Ok(Variant::Random),
            (.., Some(distance @ 1..=DISTANCE_MAX)) => Ok(Variant::WillNeed(distance)),
            _ => {
                let names = ReadaheadStrategy::ALL.map(ReadaheadStrategy::name).join(", ");
                Err(format!(
                    "there are {names}, plain, random and willneed-N, N from 1 to {DISTANCE_MAX}"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_read_back_from_its_name() {
        let streams = ReadaheadStrategy::ALL.map(Variant::Stream);
        for variant in
            [Variant::Plain, Variant::Random, Variant::WillNeed(32)].iter().chain(&streams)
        {
            assert_eq!(variant.to_string().parse(), Ok(*variant));
        }
        for name in ["quantum", "willneed", "willneed-0", "willneed-x", "os-again"] {
            assert!(name.parse::<Variant>().unwrap_err().contains("willneed-N"), "{name}");
        }
    }
}
