//! Token bucket: a number of tokens a second, and a burst after a rest.
//!
//! The bucket fills at its rate up to its depth. A command waits until there are enough tokens. A command
//! larger than the depth waits until the bucket is full, and leaves it in debt. Arithmetic is exact: a
//! token is a thousand million parts, and each nanosecond adds as many parts as the rate.
//!
//! Worked example: 100 a second, 2 deep, full. Three simultaneous commands pass after 0, 0 and 10 ms.
//!
//! Invariants:  [TKN-1] in any period, no more tokens are taken than the depth plus the rate times the period, except
//!              for one command that is larger than the depth, and for the tokens of one nanosecond

/// Parts of a token.
const PARTS: i128 = 1_000_000_000;

/// A bucket of tokens.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_s: i128,
    depth: i128,
    level: i128,
    at_ns: u64,
}

impl Bucket {
    /// A full bucket. A rate of 0 counts as 1.
    pub(crate) fn new(per_s: u64, depth: u64) -> Self {
        let depth = i128::from(depth.max(1)) * PARTS;
        Self { per_s: i128::from(per_s.max(1)), depth, level: depth, at_ns: 0 }
    }

    /// Takes `tokens` at `at_ns` or later; returns when. Calls come in order of time.
    pub(crate) fn take(&mut self, at_ns: u64, tokens: u64) -> u64 {
        let tokens = i128::from(tokens) * PARTS;
        // A later command does not pass an earlier one that waits.
        let from_ns = at_ns.max(self.at_ns);
        let passed = i128::from(from_ns - self.at_ns);
        self.level = (self.level + passed * self.per_s).min(self.depth);
        let lacking = (tokens.min(self.depth) - self.level).max(0);
        let wait = (lacking + self.per_s - 1) / self.per_s;
        self.level += wait * self.per_s - tokens;
        self.at_ns = from_ns + u64::try_from(wait).unwrap_or(0);
        self.at_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_exceeds_the_depth_comes_at_the_rate() {
        let mut bucket = Bucket::new(100, 2);
        let times: Vec<u64> = (0..5).map(|_| bucket.take(0, 1) / 1_000_000).collect();
        assert_eq!(times, [0, 0, 10, 20, 30]);
        assert_eq!(bucket.take(10_000_000_000, 2), 10_000_000_000);
        assert_eq!(bucket.take(10_000_000_000, 1), 10_010_000_000);
    }

    #[test]
    fn what_is_larger_than_the_bucket_leaves_a_debt() {
        let mut bucket = Bucket::new(100, 2);
        assert_eq!(bucket.take(0, 12), 0);
        assert_eq!(bucket.take(0, 1), 110_000_000);
    }

    proptest! {
        #[test]
        fn no_more_is_let_go_than_rate_and_depth_allow(
            per_s in 1_u64..10_000, depth in 1_u64..50,
            steps in prop::collection::vec((0_u64..20_000_000, 1_u64..50), 1..80),
        ) {
            let mut bucket = Bucket::new(per_s, depth);
            let (mut at_ns, mut granted) = (0, Vec::new());
            for (after_ns, tokens) in steps {
                at_ns += after_ns;
                let tokens = tokens.min(depth);
                let when = bucket.take(at_ns, tokens);
                prop_assert!(when >= at_ns);
                granted.push((when, tokens));
            }
            for (first, &(from, _)) in granted.iter().enumerate() {
                let mut total = 0;
                for &(to, tokens) in &granted[first..] {
                    total += u128::from(tokens);
                    let most = u128::from(depth) * 1_000_000_000
                        + u128::from(to - from + 1) * u128::from(per_s);
                    prop_assert!(total * 1_000_000_000 <= most, "[TKN-1]");
                }
            }
        }
    }
}
