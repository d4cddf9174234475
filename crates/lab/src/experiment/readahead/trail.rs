//! What a list of looks at the page cache says: when the kernel began to read ahead, and how far each time.
//!
//! After each read the resident bytes from that read on are known. What is resident and was never asked
//! for was read ahead. What is resident and was not at the look before came with this read: that is a
//! window. Worked example, reads of 8 KiB from the middle of a file: after the first only itself is
//! resident; after the second 32 KiB are new, of which 8 KiB were asked for; so the kernel began with the
//! second read, with a window of 32 KiB.
//!
//! Invariants:  [TRL-1] bytes that were asked for are never counted as read ahead
//!              [TRL-2] a trail that never saw anything ahead has no windows

use std::ops::Range;

use serde::Serialize;

/// The reads of one stream in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Trail {
    reads: u32,
    /// Until something was read ahead.
    asked: Vec<Range<u64>>,
    /// At the last look: in order, not touching each other.
    resident: Vec<Range<u64>>,
    finding: Finding,
}

/// What a trail comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Finding {
    /// The number of the read, counted from 1, at which more was read than was asked for.
    pub(super) reads_until_ahead: Option<u32>,
    /// Bytes that came with each read that brought anything, from that read on.
    pub(super) windows_bytes: Vec<u64>,
}

impl Trail {
    /// Takes in a read of `asked`, and what is `resident` from its start on when that had settled.
    pub(super) fn push(&mut self, asked: Range<u64>, resident: Vec<Range<u64>>) {
        self.reads += 1;
        if self.finding.reads_until_ahead.is_none() {
            self.asked.push(asked);
            let unasked =
                self.asked.iter().fold(resident.clone(), |left, hole| without(&left, hole));
            if !unasked.is_empty() {
                self.finding.reads_until_ahead = Some(self.reads); // [TRL-1]
            }
        }
        if self.finding.reads_until_ahead.is_some() {
            let fresh =
                self.resident.iter().fold(resident.clone(), |left, old| without(&left, old));
            let bytes: u64 = fresh.iter().map(|range| range.end - range.start).sum();
            self.finding.windows_bytes.extend((bytes > 0).then_some(bytes)); // [TRL-2]
        }
        self.resident = resident;
    }

    /// Reads so far.
    pub(super) fn reads(&self) -> u32 {
        self.reads
    }

    /// When it began and how it grew.
    pub(super) fn finding(&self) -> &Finding {
        &self.finding
    }

    /// Whether the window has come to its full size: three times the same in a row, after another. On the
    /// way there it may be the same twice, since what is left of one window makes the next one smaller.
    pub(super) fn is_steady(&self) -> bool {
        matches!(self.finding.windows_bytes[..], [_, .., a, b, c] if a == b && b == c)
    }
}

/// `ranges` without what they have in common with `hole`.
fn without(ranges: &[Range<u64>], hole: &Range<u64>) -> Vec<Range<u64>> {
    let pieces = ranges.iter().flat_map(|range| {
        [range.start..range.end.min(hole.start), range.start.max(hole.end)..range.end]
    });
    pieces.filter(|range| range.start < range.end).collect()
}

/// The most common of `findings`, of equals the least, and how many agree on the number of reads and on
/// the windows as well.
pub(super) fn agreed(findings: &[Finding]) -> (Finding, u32, u32) {
    let count =
        |same: &dyn Fn(&Finding) -> bool| findings.iter().filter(|one| same(one)).count() as u32;
    let reads =
        |finding: &Finding| count(&|one| one.reads_until_ahead == finding.reads_until_ahead);
    let whole = |finding: &Finding| count(&|one| one == finding);
    let most = findings
        .iter()
        .max_by(|a, b| (reads(a), whole(a)).cmp(&(reads(b), whole(b))).then_with(|| b.cmp(a)));
    let most = most.cloned().unwrap_or_default();
    let (by_reads, by_windows) = (reads(&most), whole(&most));
    (most, by_reads, by_windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// One range.
    fn resident_to(start: u64, end: u64) -> Vec<Range<u64>> {
        std::iter::once(start..end).collect()
    }

    /// A trail of reads of 8 KiB one after the other from `start` on; `ends[n]` is how far it is resident
    /// after read `n`, in KiB from the start.
    fn sequence(start: u64, ends: &[u64]) -> Trail {
        let mut trail = Trail::default();
        for (read, &end) in ends.iter().enumerate() {
            let at = start + read as u64 * 8 * KIB;
            trail.push(at..at + 8 * KIB, resident_to(at, start + end * KIB));
        }
        trail
    }

    fn finding(reads: u32, windows_kib: &[u64]) -> Finding {
        let windows_bytes = windows_kib.iter().map(|kib| kib * KIB).collect();
        Finding { reads_until_ahead: Some(reads), windows_bytes }
    }

    #[test]
    fn the_read_that_brings_more_than_asked_is_the_one_and_its_bytes_the_first_window() {
        // (resident after each read, expected)
        let cases: [(&[u64], Finding); 4] = [
            // From the beginning of a file: at once.
            (&[32, 96, 96, 96, 96], finding(1, &[32, 64])),
            // From the middle: the second read; the first brought itself alone.
            (&[8, 40, 104, 104, 232], finding(2, &[32, 64, 128])),
            // Only the last one looked at.
            (&[8, 16, 24, 56], finding(4, &[32])),
            // Nothing ahead at all.
            (&[8, 16, 24, 32], Finding::default()),
        ];
        for (ends, expected) in cases {
            for start in [0, 4096 * KIB] {
                assert_eq!(*sequence(start, ends).finding(), expected, "[TRL-1] [TRL-2] {ends:?}");
            }
        }
    }

    #[test]
    fn reads_apart_are_not_taken_for_each_others_readahead() {
        let mut trail = Trail::default();
        // Every other block; each brings itself alone, and what was asked for later is not ahead.
        for read in 0..5 {
            let at = read * 16 * KIB;
            trail.push(at..at + 8 * KIB, resident_to(at, at + 8 * KIB));
        }
        assert_eq!(*trail.finding(), Finding::default(), "[TRL-1]");
        // The block in between comes with the next one.
        trail.push(80 * KIB..88 * KIB, vec![80 * KIB..96 * KIB, 112 * KIB..116 * KIB]);
        assert_eq!(*trail.finding(), finding(6, &[20]));
    }

    #[test]
    fn pages_that_were_resident_before_are_no_window() {
        let mut trail = Trail::default();
        trail.push(0..8, vec![0..8, 100..120]);
        trail.push(8..16, vec![8..16, 100..120]);
        trail.push(16..24, vec![16..40, 100..120]);
        assert_eq!(trail.finding().windows_bytes, [28, 8, 24]);
    }

    #[test]
    fn three_equal_windows_after_another_are_the_full_size() {
        assert!(!sequence(0, &[32, 96]).is_steady());
        assert!(!sequence(0, &[32, 64]).is_steady(), "growth has to be seen");
        assert!(!sequence(0, &[32, 96, 160, 224 - 8]).is_steady());
        assert!(sequence(0, &[32, 96, 160, 160, 224]).is_steady());
        assert!(!Trail::default().is_steady());
    }

    #[test]
    fn holes_are_cut_wherever_they_lie() {
        let ranges = [10..20, 30..40];
        for (hole, expected) in [
            (0..5, vec![10..20, 30..40]),
            (0..15, vec![15..20, 30..40]),
            (12..18, vec![10..12, 18..20, 30..40]),
            (15..35, vec![10..15, 35..40]),
            (0..50, vec![]),
        ] {
            assert_eq!(without(&ranges, &hole), expected, "{hole:?}");
        }
    }

    #[test]
    fn the_most_common_finding_is_told_with_how_many_agree() {
        let (two, other, three) = (finding(2, &[32, 64]), finding(2, &[16]), finding(3, &[32]));
        let findings = [three.clone(), two.clone(), other.clone(), two.clone()];
        assert_eq!(agreed(&findings), (two.clone(), 3, 2));
        assert_eq!(agreed(&[three, two.clone()]), (two, 1, 1), "of equals the least");
        assert_eq!(agreed(&[]), (Finding::default(), 0, 0));
    }
}
