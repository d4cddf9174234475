//! What the records of `readahead` say: the knee of the curve, and what to set.
//!
//! The curve is that of the most readers, since it is them that a small readahead costs most; with files of
//! their own and the smallest read if there are several. Its knee is the smallest readahead within
//! [`KNEE`] of the best. To set it is advised only where every round at the knee was faster than every
//! round at the readahead that was found: worked example, 311 MB/s (305 to 315) at 6 MiB against 81 (80 to
//! 83) at 128 KiB is advice, 311 (290 to 330) against 300 (280 to 305) is none.
//!
//! Invariants:  [RCN-1] advice to change a setting rests on at least [`ROUNDS_MIN`] rounds of each cell, and on
//!              rounds that do not overlap

use super::NAME;
use crate::facts::Storage;
use crate::report::{Conclusion, Record};
use crate::units::shown_size;

/// Within this part of the best a smaller readahead is as good.
const KNEE: f64 = 0.95;

/// With fewer rounds nothing is known of how far they lie apart.
const ROUNDS_MIN: u64 = 3;

/// Sectors are what `blockdev` counts in, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    bytes: u64,
    rate: f64,
    rate_min: f64,
    rate_max: f64,
}

impl Point {
    fn of(record: &Record) -> Option<Point> {
        if record.is_not_cold() {
            return None;
        }
        Some(Point {
            bytes: record.cell_number("readahead_bytes")?,
            rate: record.metric("bytes_per_s")?,
            rate_min: record.metric("bytes_per_s_min")?,
            rate_max: record.metric("bytes_per_s_max")?,
        })
    }

    /// Whether each of its rounds was faster than each of the `other`'s.
    fn is_clearly_above(&self, other: &Point) -> bool {
        self.rate_min > other.rate_max
    }
}

/// The smallest readahead whose rate is within [`KNEE`] of the best.
fn knee(curve: &[Point]) -> Option<Point> {
    let best = curve.iter().map(|point| point.rate).reduce(f64::max)?;
    let good = curve.iter().filter(|point| point.rate >= best * KNEE);
    good.min_by_key(|point| point.bytes).copied()
}

/// The conclusions, the most useful first. `found_bytes`: the readahead that the device had.
pub(super) fn draw(
    records: &[Record],
    storage: &Storage,
    found_bytes: Option<u64>,
) -> Vec<Conclusion> {
    let mut advice = Vec::new();
    let rounds = records.iter().filter_map(|record| record.metric("rounds")).reduce(f64::min);
    if let Some(rounds) = rounds.filter(|&rounds| rounds < ROUNDS_MIN as f64) {
        // [RCN-1]
        let times = if rounds == 1.0 { "once".to_owned() } else { format!("{rounds} times") };
        return vec![sentence(format!(
            "No setting is advised: some cells were measured {times} only, and how far rounds lie apart is              not known. Ask for --rounds {ROUNDS_MIN}, or for fewer cells."
        ))];
    }
    if records.iter().any(|record| record.cell_text("readahead_by") == "device") {
        advice.extend(by_device(records, storage, found_bytes));
    } else {
        advice.extend(by_descriptor(records, storage));
    }
    advice.extend(ends(records));
    if advice.is_empty() {
        let why = if records.iter().any(Record::is_not_cold) {
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
        } else {
            "No conclusion about readahead: too little could be measured."
        };
        advice.push(sentence(why.to_owned()));
    }
    advice
}

fn sentence(sentence: String) -> Conclusion {
    Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    }
}

/// Records through the page cache of one number of readers, all of the same files and size of a read.
fn curve_of(records: &[Record], readers: u64) -> Vec<&Record> {
    let here: Vec<&Record> = records
        .iter()
        .filter(|record| record.cell_text("cache") == "buffered")
        .filter(|record| record.cell_number("readers") == Some(readers))
        .collect();
    let request = here.iter().filter_map(|record| record.cell_number("request_bytes")).min();
    let of = |files: &str| -> Vec<&Record> {
        let here = here.iter().filter(|record| record.cell_text("files") == files);
        here.filter(|record| record.cell_number("request_bytes") == request).copied().collect()
    };
    let own = of("own");
    if own.is_empty() { of("one") } else { own }
}

fn readers(records: &[Record]) -> Option<(u64, u64)> {
    let buffered = records.iter().filter(|record| record.cell_text("cache") == "buffered");
    let readers: Vec<u64> = buffered.filter_map(|record| record.cell_number("readers")).collect();
    Some((*readers.iter().min()?, *readers.iter().max()?))
}

fn points(records: &[&Record]) -> Vec<Point> {
    records.iter().filter_map(|record| Point::of(record)).collect()
}

fn by_device(records: &[Record], storage: &Storage, found: Option<u64>) -> Vec<Conclusion> {
    let Some((fewest, most)) = readers(records) else { return Vec::new() };
    let curve = points(&curve_of(records, most));
    let mut advice: Vec<Conclusion> = with_knee(&curve, most, storage, found).into_iter().collect();
    if fewest < most
        && let (Some(few), Some(many)) = (gain(&points(&curve_of(records, fewest))), gain(&curve))
    {
        advice.push(sentence(format!(
            "From the smallest to the best readahead {} {few:.1} times faster, {} {many:.1} times.",
            gets(fewest),
            gets(most),
        )));
    }
    advice
}

fn gets(readers: u64) -> String {
    if readers == 1 { "one reader gets".to_owned() } else { format!("{readers} readers get") }
}

/// How many times the rate at the smallest readahead the best one is.
fn gain(curve: &[Point]) -> Option<f64> {
    let smallest = curve.iter().min_by_key(|point| point.bytes)?;
    let best = curve.iter().map(|point| point.rate).reduce(f64::max)?;
    (curve.len() > 1 && smallest.rate > 0.0).then(|| best / smallest.rate)
}

fn with_knee(
    curve: &[Point],
    readers: u64,
    storage: &Storage,
    found: Option<u64>,
) -> Option<Conclusion> {
    let knee = knee(curve)?;
    let with = |point: &Point| {
        let (size, sectors) = (shown_size(point.bytes), point.bytes / SECTOR_BYTES);
        format!("{size} ({sectors} sectors), {:.0} MB/s", point.rate / 1e6)
    };
    let slowest = curve.iter().min_by(|a, b| a.rate.total_cmp(&b.rate))?;
    if !knee.is_clearly_above(slowest) {
        return Some(sentence(format!(
            "The kernel's readahead makes no difference here that is larger than that between rounds: \
             {readers} sequential readers together get {:.0} to {:.0} MB/s with any of those measured.",
            slowest.rate / 1e6,
            curve.iter().map(|point| point.rate).fold(0.0, f64::max) / 1e6,
        )));
    }
    let at_knee = format!("{readers} sequential readers need a readahead of {}", with(&knee));
    let Some(current) = found.and_then(|found| curve.iter().find(|point| point.bytes == found))
    else {
        return Some(sentence(format!("{at_knee}; more gains less than 5 %.")));
    };
    if !knee.is_clearly_above(current) {
        return Some(sentence(format!(
            "{at_knee}; what is set now, {}, is not clearly worse: leave it.",
            with(current)
        ))); // [RCN-1]
    }
    let gain = knee.rate / current.rate;
    let (how, setting, value) = how_to_set(storage, knee.bytes);
    Some(Conclusion {
        experiment: NAME.to_owned(),
        sentence: format!(
            "{at_knee}, {gain:.1} times as much as with what is set now, {}; more gains less than 5 %. {how}",
            with(current)
        ),
        setting,
        value,
    })
}

/// What to do about it: in words, and as a setting and its value.
fn how_to_set(storage: &Storage, bytes: u64) -> (String, String, String) {
    let (sectors, kib) = (bytes / SECTOR_BYTES, bytes / 1024);
    match &storage.device {
        Some(device) => {
            let name = &device.name;
            let how = format!(
                "Set it with `blockdev --setra {sectors} /dev/{name}`; to keep it over a restart, have a \
                 udev rule for that disk set ATTR{{queue/read_ahead_kb}} to {kib}."
            );
            (how, format!("blockdev --setra /dev/{name}"), sectors.to_string())
        }
        None => {
            let how = format!(
                "This filesystem has no block device of its own: write {kib} to read_ahead_kb of its entry in \
                 /sys/class/bdi after each mount."
            );
            (how, "read_ahead_kb".to_owned(), kib.to_string())
        }
    }
}

/// What advice for descriptors says about the device's setting.
fn by_descriptor(records: &[Record], storage: &Storage) -> Option<Conclusion> {
    let (_, most) = readers(records)?;
    let curve = curve_of(records, most);
    let of = |advice: &str| {
        let record = curve.iter().find(|record| record.cell_text("advice") == advice)?;
        // The readahead may be unknown; what is compared are rates.
        let rate = |key| record.metric(key).filter(|_| !record.is_not_cold());
        Some(Point {
            bytes: record.cell_number("readahead_bytes").unwrap_or(0),
            rate: rate("bytes_per_s")?,
            rate_min: rate("bytes_per_s_min")?,
            rate_max: rate("bytes_per_s_max")?,
        })
    };
    let (none, normal, double) = (of("random")?, of("normal")?, of("sequential")?);
    let readers = if most == 1 {
        "One sequential reader gets".to_owned()
    } else {
        format!("{most} sequential readers get")
    };
    if double.is_clearly_above(&normal) && double.rate > normal.rate / KNEE {
        let who = storage.device.as_ref().map_or("the filesystem", |device| &device.name);
        return Some(sentence(format!(
            "{readers} {:.2} times as much with twice the readahead (SEQUENTIAL): that of {who} is \
             too small for them. As root, `forebay lab readahead` finds out how large it should be.",
            double.rate / normal.rate
        )));
    }
    if normal.is_clearly_above(&none) {
        return Some(sentence(format!(
            "{readers} {:.1} times as much with the kernel's readahead as without; twice the \
             readahead (SEQUENTIAL) gains nothing clear.",
            normal.rate / none.rate
        )));
    }
    Some(sentence(format!(
        "{readers} about as much with the kernel's readahead as without (RANDOM): the rounds overlap."
    )))
}

/// What position alone does.
fn ends(records: &[Record]) -> Option<Conclusion> {
    let at = |position: &str| {
        let record = records.iter().find(|record| record.cell_text("position") == position)?;
        let figure = |key| record.metric(key);
        Some((figure("bytes_per_s")?, figure("bytes_per_s_min")?, figure("bytes_per_s_max")?))
    };
    let (begin, end) = (at("begin")?, at("end")?);
    let ratio = begin.0 / end.0;
    (begin.1 > end.2 && ratio > 1.0 / KNEE).then(|| {
        sentence(format!(
            "The beginning of the disk is {ratio:.2} times as fast as its end ({:.0} against {:.0} MB/s): \
             where a file lies matters as much.",
            begin.0 / 1e6,
            end.0 / 1e6
        ))
    })
}

#[cfg(test)]
mod tests;
