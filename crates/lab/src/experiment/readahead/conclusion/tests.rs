//! What is advised, and where nothing is.

use serde_json::json;

use super::*;
use crate::facts::FakeSys;

const KIB: u64 = 1024;

/// Rounds that are this part of a rate above and below it.
fn point(bytes: u64, rate: f64, spread: f64) -> Point {
    Point { bytes, rate, rate_min: rate * (1.0 - spread), rate_max: rate * (1.0 + spread) }
}

fn record(readers: u64, bytes: u64, mb_per_s: f64, spread: f64) -> Record {
    let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
    let rate = mb_per_s * 1e6;
    Record {
        rounds: Vec::new(),
        experiment: NAME.to_owned(),
        cell: map(json!({
            "readers": readers, "files": "own", "readahead_bytes": bytes, "readahead_by": "device",
            "advice": null, "request_bytes": 8192, "cache": "buffered",
        })),
        metrics: map(json!({
            "rounds": 3, "bytes_per_s": rate, "bytes_per_s_min": rate * (1.0 - spread),
            "bytes_per_s_max": rate * (1.0 + spread),
        })),
        remarks: Vec::new(),
    }
}

/// Document 002's first array: readahead in sectors, MB/s of eight readers.
const ARRAY: [(u64, f64); 10] = [
    (8, 38.0),
    (256, 81.0),
    (512, 108.0),
    (1024, 162.0),
    (2048, 211.0),
    (4096, 264.0),
    (8192, 292.0),
    (12_288, 304.0),
    (16_384, 312.0),
    (49_152, 311.0),
];

fn array(spread: f64) -> Vec<Record> {
    let eight = ARRAY.map(|(sectors, rate)| record(8, sectors * 512, rate, spread));
    let one = [(8, 290.0), (256, 300.0), (12_288, 309.0)]
        .map(|(sectors, rate)| record(1, sectors * 512, rate, spread));
    [eight.to_vec(), one.to_vec()].concat()
}

fn storage(with_device: bool) -> Storage {
    Storage {
        directory: "/srv".to_owned(),
        filesystem: Some("ext3".to_owned()),
        emulated: None,
        mount_point: None,
        mount_options: None,
        source: None,
        device: with_device.then(|| FakeSys::server().device(8, 0)),
        device_remark: String::new(),
    }
}

fn told(records: &[Record], found: Option<u64>) -> String {
    let advice = draw(records, &storage(true), found);
    advice.into_iter().map(|advice| advice.sentence).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_knee_is_the_smallest_that_is_nearly_the_best() {
    let curve = ARRAY.map(|(sectors, rate)| point(sectors * 512, rate, 0.02));
    assert_eq!(knee(&curve).unwrap().bytes, 12_288 * 512);
    let falling = [point(4096, 100.0, 0.0), point(8192, 90.0, 0.0), point(16_384, 70.0, 0.0)];
    assert_eq!(knee(&falling).unwrap().bytes, 4096);
    let flat = [point(8192, 100.0, 0.0), point(4096, 99.0, 0.0)];
    assert_eq!(knee(&flat).unwrap().bytes, 4096);
    assert_eq!(knee(&[]), None);
}

#[test]
fn the_array_of_document_002_is_told_to_read_12288_sectors_ahead() {
    let advice = draw(&array(0.02), &storage(true), Some(128 * KIB));
    assert_eq!(advice[0].setting, "blockdev --setra /dev/sda");
    assert_eq!(advice[0].value, "12288");
    let sentence = &advice[0].sentence;
    assert!(sentence.starts_with("8 sequential readers need a readahead of 6.0 MiB"), "{sentence}");
    assert!(sentence.contains("3.8 times as much as with what is set now"), "{sentence}");
    assert!(sentence.contains("ATTR{queue/read_ahead_kb} to 6144"), "{sentence}");
    let second = &advice[1].sentence;
    assert!(second.contains("one reader gets 1.1 times faster, 8 readers get 8.2"), "{second}");
}

#[test]
fn where_rounds_overlap_nothing_is_to_be_changed() {
    // At 4096 sectors from 224 to 304 MB/s, at the knee from 258 to 350.
    let advice = draw(&array(0.15), &storage(true), Some(4096 * 512));
    assert_eq!(advice[0].setting, "", "[RCN-1]");
    assert!(
        advice[0].sentence.ends_with("is not clearly worse: leave it."),
        "{}",
        advice[0].sentence
    );
    let flat = [record(8, 4 * KIB, 300.0, 0.05), record(8, 128 * KIB, 310.0, 0.05)];
    let told = told(&flat, Some(128 * KIB));
    assert!(told.contains("makes no difference"), "[RCN-1] {told}");
}

#[test]
fn without_a_device_the_bdi_is_named() {
    let advice = draw(&array(0.02), &storage(false), Some(128 * KIB));
    assert_eq!((&*advice[0].setting, &*advice[0].value), ("read_ahead_kb", "6144"));
    assert!(advice[0].sentence.contains("/sys/class/bdi"));
}

#[test]
fn a_readahead_that_was_not_measured_is_not_compared() {
    let told = told(&array(0.02), Some(48 * KIB));
    assert!(told.contains("more gains less than 5 %") && !told.contains("set now"), "{told}");
}

#[test]
fn what_was_not_cold_is_no_evidence() {
    let mut records = array(0.02);
    for record in &mut records {
        record.remarks.push("not cold: 3 of 9 pages stayed in the page cache".to_owned());
    }
    assert!(told(&records, Some(128 * KIB)).contains("the page cache could not be emptied"));
}

fn advised(advice: &str, mb_per_s: f64) -> Record {
    let mut made = record(8, 128 * KIB, mb_per_s, 0.01);
    made.cell.insert("readahead_by".into(), json!("descriptor"));
    made.cell.insert("advice".into(), json!(advice));
    made
}

#[test]
fn advice_for_descriptors_shows_a_readahead_that_is_too_small() {
    let three = |none, normal, double| {
        let records =
            [advised("random", none), advised("normal", normal), advised("sequential", double)];
        told(&records, Some(128 * KIB))
    };
    assert!(three(30.0, 81.0, 108.0).contains("1.33 times as much with twice the readahead"));
    assert!(three(30.0, 300.0, 301.0).contains("10.0 times as much with the kernel's readahead"));
    assert!(three(300.0, 300.0, 301.0).contains("the rounds overlap"));
}

#[test]
fn the_faster_end_is_told_if_it_is_faster() {
    let end = |position: &str, mb_per_s: f64| {
        let mut made = record(1, 0, mb_per_s, 0.01);
        made.cell.insert("position".into(), json!(position));
        made.cell.insert("cache".into(), json!("direct"));
        made
    };
    let told =
        |begin, last| ends(&[end("begin", begin), end("end", last)]).map(|advice| advice.sentence);
    assert!(told(642.0, 432.0).unwrap().contains("1.49 times as fast as its end"));
    assert_eq!(told(500.0, 495.0), None);
    assert_eq!(told(432.0, 642.0), None);
}

#[test]
fn one_round_or_two_are_no_evidence() {
    for rounds in [1, 2] {
        let mut records = array(0.0);
        records[4].metrics.insert("rounds".to_owned(), json!(rounds));
        let advice = draw(&records, &storage(true), Some(256 * 512));
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert!(advice[0].setting.is_empty(), "[RCN-1] {advice:?}");
        assert!(advice[0].sentence.contains("--rounds 3"), "{advice:?}");
    }
    let advice = draw(&array(0.0), &storage(true), Some(256 * 512));
    assert!(advice.iter().any(|one| !one.setting.is_empty()), "{advice:?}");
}
