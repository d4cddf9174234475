//! Sorting by place: a radix sort that needs one scratch as large as its input, and nothing else.
//!
//! A key is a page tag, file above block. Of its 64 bits only those are looked at in which the keys
//! differ at all: a checkpoint of three files of a few gigabytes has some 22 such bits, which is two
//! passes of 11 bits each and one for the files.
//!
//! Invariants:  [SRT-1] the sorted keys are the keys given, each as often
//! Rejected:    a comparison sort (three to four times as long for a million keys), and a radix sort in
//!              place, whose swaps go all over memory.

const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Sorts `keys`, ascending. `scratch` is at least as long; its contents are lost.
pub(super) fn radix_sort(keys: &mut [u64], scratch: &mut [u64]) {
    let scratch = &mut scratch[..keys.len()];
    let Some(&first) = keys.first() else { return };
    let differing = keys.iter().fold(0, |bits, key| bits | (key ^ first));
    let (mut from, mut to) = (&mut *keys, &mut *scratch);
    let mut in_scratch = false;
    let mut shift = differing.trailing_zeros();
    while shift < u64::BITS && differing >> shift != 0 {
        pass(from, to, shift);
        std::mem::swap(&mut from, &mut to);
        in_scratch = !in_scratch;
        let above = (shift + DIGIT_BITS).min(u64::BITS - 1);
        shift += DIGIT_BITS;
        if shift < u64::BITS {
            // Bits in which no two keys differ need no pass.
            shift = above + (differing >> above).trailing_zeros();
        }
    }
    if in_scratch {
        keys.copy_from_slice(scratch);
    }
}

/// Moves `from` to `to`, ordered by the digit at `shift`, and in the old order where that is the same.
fn pass(from: &[u64], to: &mut [u64], shift: u32) {
    let digit = |key: u64| (key >> shift) as usize % DIGITS;
    let mut places = [0_usize; DIGITS];
    for &key in from {
        places[digit(key)] += 1;
    }
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    for &key in from {
        let place = &mut places[digit(key)];
        to[*place] = key;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(keys: &[u64]) -> Vec<u64> {
        let mut keys = keys.to_vec();
        // Longer than needed, and not empty.
        let mut scratch = vec![7; keys.len() + 3];
        radix_sort(&mut keys, &mut scratch);
        keys
    }

    proptest! {
        #[test]
        fn srt_1_keys_come_out_as_a_comparison_sort_has_them(
            keys in prop::collection::vec(any::<u64>(), 0..300),
            masks in prop::collection::vec(any::<u64>(), 1..4),
        ) {
            // Whatever bits they differ in.
            let mask = masks.iter().fold(u64::MAX, |all, mask| all & mask);
            let keys: Vec<u64> = keys.iter().map(|key| key & mask).collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            prop_assert_eq!(sorted(&keys), expected, "[SRT-1]");
        }
    }

    #[test]
    fn srt_1_keys_of_a_few_files_and_of_the_largest_numbers() {
        for keys in [
            vec![],
            vec![5],
            vec![5, 5, 5],
            vec![u64::MAX, 0, u64::MAX - 1, 1 << 63],
            (0..5000).rev().collect(),
            (0..3000).map(|it: u64| (it % 7) << 32 | (it * 7919 % 3000)).collect(),
        ] {
            let mut expected = keys.clone();
            expected.sort_unstable();
            assert_eq!(sorted(&keys), expected, "[SRT-1]");
        }
    }
}
