//! How many rounds are requested.

use std::str::FromStr;
use std::time::Duration;

use super::schedule::Limits;

/// How often each cell is measured, as on the command line: `5` is five times, `5+` at least that often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Measurements of each cell.
    pub least: u32,
    /// Whether more rounds are added where they decide something, as time allows.
    pub more: bool,
}

impl Rounds {
    /// With `seconds` for all rounds, if more than the first are requested; the first are not limited.
    pub(super) fn limits(self, seconds: u64) -> Limits {
        let time = Duration::from_secs(if self.more { seconds } else { 0 });
        Limits { first: self.least, first_time: Duration::MAX, time }
    }
}

impl FromStr for Rounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Rounds, String> {
        let text = text.trim();
        let least = text.strip_suffix('+').unwrap_or(text);
        match least.parse() {
            Ok(least @ 1..=1000) => Ok(Rounds { least, more: text.ends_with('+') }),
            _ => {
                Err("a number from 1 to 1000, or such as 3+ for 3 and more as time allows"
                    .to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_so_many_or_at_least_so_many() {
        assert_eq!("5".parse(), Ok(Rounds { least: 5, more: false }));
        assert_eq!(" 3+".parse(), Ok(Rounds { least: 3, more: true }));
        for text in ["", "+", "0", "0+", "1001", "few"] {
            assert!(text.parse::<Rounds>().is_err(), "{text}");
        }
    }
}
