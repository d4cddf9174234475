//! The distributions of the specification (clauses 2.1.6 and 4.3.2), with vmcache's constants.

use fastrand::Rng;

pub(crate) const ITEMS: u32 = 100_000;
pub(crate) const DISTRICTS: u32 = 10;
pub(crate) const CUSTOMERS: u32 = 3000;

/// Constants of NURand. Those of the names differ between the load and a run (clause 2.1.6.1).
const ITEM_CONSTANT: u32 = 7911;
const CUSTOMER_CONSTANT: u32 = 259;
const NAME_LOAD_CONSTANT: u32 = 157;
const NAME_RUN_CONSTANT: u32 = 223;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

const CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn nurand(random: &mut Rng, a: u32, low: u32, high: u32, constant: u32) -> u32 {
    let number = (random.u32(0..=a) | random.u32(low..=high)) + constant;
    number % (high - low + 1) + low
}

pub(crate) fn item(random: &mut Rng) -> u32 {
    nurand(random, 8191, 1, ITEMS, ITEM_CONSTANT)
}

pub(crate) fn customer(random: &mut Rng) -> u32 {
    nurand(random, 1023, 1, CUSTOMERS, CUSTOMER_CONSTANT)
}

/// A last name, as terminals look for it.
pub(crate) fn name(random: &mut Rng) -> Vec<u8> {
    name_of(nurand(random, 255, 0, 999, NAME_RUN_CONSTANT))
}

/// The last name of a customer that is loaded.
pub(crate) fn name_to_load(random: &mut Rng) -> Vec<u8> {
    name_of(nurand(random, 255, 0, 999, NAME_LOAD_CONSTANT))
}

pub(crate) fn name_of(number: u32) -> Vec<u8> {
    let syllable = |digit: u32| SYLLABLES[(number / digit % 10) as usize];
    [syllable(100), syllable(10), syllable(1)].concat()
}

/// A text of `low` to `high` letters and digits.
pub(crate) fn text(random: &mut Rng, low: usize, high: usize) -> Vec<u8> {
    let len = random.usize(low..=high);
    (0..len).map(|_| CHARACTERS[random.usize(0..CHARACTERS.len())]).collect()
}

pub(crate) fn digits(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(b'0'..=b'9')).collect()
}

pub(crate) fn zip(random: &mut Rng) -> Vec<u8> {
    [&digits(random, 4)[..], b"11111"].concat()
}

/// Of ten texts, one contains ORIGINAL.
pub(crate) fn data(random: &mut Rng) -> Vec<u8> {
    let mut data = text(random, 25, 50);
    if random.u32(0..10) == 0 {
        let at = random.usize(0..=data.len() - 8);
        data[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    data
}

pub(crate) fn amount(random: &mut Rng, low: f64, high: f64) -> f64 {
    low + random.f64() * (high - low)
}

/// A number from `low` to `high` other than `but`; `low` if there is no other.
pub(crate) fn other_than(random: &mut Rng, low: u32, high: u32, but: u32) -> u32 {
    if high <= low {
        return low;
    }
    let number = random.u32(low..high);
    number + u32::from(number >= but)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_their_ranges() {
        let mut random = Rng::with_seed(1);
        for _ in 0..10_000 {
            assert!((1..=ITEMS).contains(&item(&mut random)));
            assert!((1..=CUSTOMERS).contains(&customer(&mut random)));
            let other = other_than(&mut random, 1, 20, 7);
            assert!((1..=20).contains(&other) && other != 7);
            assert!(name(&mut random).len() <= 16);
        }
        assert_eq!(name_of(371), b"PRICALLYOUGHT");
        assert_eq!(other_than(&mut random, 1, 1, 1), 1);
    }
}
