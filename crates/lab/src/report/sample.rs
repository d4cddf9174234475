//! Records and a report for the unit tests of this folder.

use serde_json::{Map, Value, json};

use super::{BackendNote, Record, Report, SCHEMA};
use crate::facts::{Host, Storage};

/// One record of `depth`; every metric but the rate follows from it, or is null without it.
pub(crate) fn record(
    backend: &str,
    cache: &str,
    depth: u64,
    blocks_per_s: Option<f64>,
    remarks: &[&str],
) -> Record {
    let cell = json!({"backend": backend, "cache": cache, "depth": depth});
    let scaled = |factor: f64| blocks_per_s.map(|rate| rate * factor);
    let metrics = json!({
        "seconds": blocks_per_s.map(|rate| 4096.0 / rate),
        "rounds": 3,
        "blocks": blocks_per_s.map(|_| 4096),
        "blocks_per_s": blocks_per_s,
        "blocks_per_s_min": scaled(0.97),
        "blocks_per_s_max": scaled(1.03),
        "bytes_per_s": scaled(8192.0),
        "device_requests": blocks_per_s.map(|_| 4012),
        "device_bytes": blocks_per_s.map(|_| 4096 * 8192),
        "over_read": blocks_per_s.map(|_| 0.02),
        "wait_us_p50": blocks_per_s.map(|rate| 900_000.0 / rate),
        "wait_us_p99": blocks_per_s.map(|rate| 2_400_000.0 / rate),
        "cpu_us_per_block": blocks_per_s.map(|_| 3.2),
    });
    Record {
        rounds: Vec::new(),
        experiment: "depth".to_owned(),
        cell: object(cell),
        metrics: object(metrics),
        remarks: remarks.iter().map(|remark| (*remark).to_owned()).collect(),
    }
}

/// The fields of a JSON object; none for any other value.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A report of a machine about which next to nothing is known.
pub(crate) fn report(records: Vec<Record>) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        forebay: "0.1.0".to_owned(),
        command: "forebay lab depth --dir /srv --seed 7".to_owned(),
        started: "2026-03-04T05:06:07Z".to_owned(),
        seconds: 61.0,
        host: Host {
            name: "crab".to_owned(),
            kernel: "Linux 6.18.44".to_owned(),
            cpu: None,
            cpus: 2,
            memory_bytes: None,
            virtualisation: None,
            container: None,
            root: false,
        },
        storage: Storage {
            directory: "/srv".to_owned(),
            filesystem: None,
            mount_point: None,
            mount_options: None,
            source: None,
            device: None,
            device_remark: "the filesystem has no block device".to_owned(),
            emulated: None,
        },
        backends: vec![BackendNote {
            backend: "uring".to_owned(),
            available: false,
            note: "io_uring_setup: EPERM".to_owned(),
        }],
        records,
        device: None,
        verdicts: Vec::new(),
        advice: Vec::new(),
        conclusions: Vec::new(),
    }
}

/// One record of `checkpoint`, of 65,536 pages; every metric follows from the two given.
pub(crate) fn checkpoint(
    place: (&str, &str),
    way: (&str, bool, &str),
    seconds: f64,
    ratio: f64,
) -> Record {
    let ((dirty, cache), (elevator, combine, backend)) = (place, way);
    let requests = if combine { 8192 } else { 65_536 };
    Record {
        rounds: Vec::new(),
        experiment: "checkpoint".to_owned(),
        cell: object(json!({
            "dirty": dirty, "elevator": elevator, "combine": combine, "cache": cache,
            "backend": backend, "paced": false, "foreground": false,
        })),
        metrics: object(json!({
            "seconds": seconds, "seconds_min": seconds * 0.98, "seconds_max": seconds * 1.02,
            "checkpoints": 3, "pages": 65_536, "pages_per_s": 65_536.0 / seconds,
            "ratio_to_arrival": ratio, "requests": requests, "device_requests": requests + 3,
            "bytes_per_request": 65_536 * 8192 / requests, "sync_seconds": 0.2,
            "tablespace_seconds": [seconds], "slip": null,
        })),
        remarks: Vec::new(),
    }
}

/// One record of `checkpoint` with readers, whose p99 is so many times what it was before.
pub(crate) fn beside(cache: &str, paced: bool, times: f64) -> Record {
    let mut made = checkpoint(("clustered", cache), ("balanced", true, "uring"), 18.0, 1.0);
    made.cell.insert("paced".into(), json!(paced));
    made.cell.insert("foreground".into(), json!(true));
    let over_time: Vec<f64> =
        (0..50).map(|second| if second % 20 == 10 { times * 900.0 } else { 700.0 }).collect();
    made.metrics.extend(object(json!({
        "ratio_to_arrival": null,
        "slip": if paced { Some(0.004) } else { None },
        "foreground_us_p50": 150.0, "foreground_us_p99": times * 400.0,
        "foreground_us_p999": times * 600.0, "foreground_us_max": times * 900.0,
        "foreground_reads": 20_000,
        "foreground_before_us_p50": 130.0, "foreground_before_us_p99": 400.0,
        "foreground_slot_seconds": 1.0,
        "foreground_us_max_over_time": over_time,
        "checkpoint_spans_seconds": if paced { [[10.0, 28.0], [30.0, 48.0]] }
            else { [[10.0, 12.5], [30.0, 32.5]] },
    })));
    made
}

/// Records of `checkpoint` such as nobody should write, each shape of them once.
pub(crate) fn absurd_checkpoints() -> Vec<Record> {
    let whole = json!({
        "dirty": "uniform", "elevator": "arrival", "combine": false, "cache": "direct",
        "backend": "sync", "paced": false, "foreground": true,
    });
    let long = json!({
        "dirty": "d".repeat(90), "elevator": "é".repeat(90), "combine": true, "cache": "c".repeat(90),
        "backend": "b".repeat(90), "paced": true, "foreground": true, "more": {"a": 1},
    });
    let cells = [json!({}), json!({"dirty": 7, "elevator": null}), whole, long];
    let metrics = [
        json!({}),
        json!({"seconds": null, "pages_per_s": "many", "foreground_us_max_over_time": 5}),
        json!({"seconds": -1, "foreground_us_p99": -1, "foreground_us_max_over_time": [-1, [], null]}),
        json!({"seconds": 0, "pages_per_s": 0, "checkpoint_spans_seconds": [[1, 0], [], 7]}),
        json!({
            "seconds": f64::MAX, "pages_per_s": f64::MAX, "bytes_per_request": f64::MAX,
            "foreground_us_max_over_time": [f64::MAX, 0, f64::MIN_POSITIVE],
            "foreground_slot_seconds": f64::MAX, "checkpoint_spans_seconds": [[0, f64::MAX]],
            "foreground_us_p99": f64::MAX, "foreground_before_us_p99": f64::MIN_POSITIVE,
        }),
    ];
    let mut records = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        for (kind, metrics) in metrics.iter().enumerate() {
            let mut cell = object(cell.clone());
            // Each in a panel of its own, so that none is a second one of the same cell.
            if number >= 2 {
                cell.insert("kind".into(), json!(kind));
            }
            records.push(Record {
                rounds: Vec::new(),
                experiment: "checkpoint".to_owned(),
                cell,
                metrics: object(metrics.clone()),
                remarks: vec!["not cold: 1".into(), "two\nlines".into()],
            });
        }
    }
    records
}

/// One record of `readahead` with reads of 8 KiB; without `bytes` a ceiling.
pub(crate) fn readahead(files: &str, readers: u64, bytes: Option<u64>, rate: f64) -> Record {
    let share = rate / readers as f64;
    Record {
        rounds: Vec::new(),
        experiment: "readahead".to_owned(),
        cell: object(json!({
            "readers": readers, "files": files, "readahead_bytes": bytes,
            "request_bytes": if bytes.is_some() { 8192 } else { 1 << 20 },
            "cache": if bytes.is_some() { "buffered" } else { "direct" },
            "profile": null, "filesystem": "ext4",
        })),
        metrics: object(json!({
            "bytes_per_s": rate, "bytes_per_s_min": rate * 0.98, "bytes_per_s_max": rate * 1.02,
            "reader_bytes_per_s": vec![share; readers.min(256) as usize], "slowest_of_fastest": 0.9,
            "seconds": 2.0, "bytes": rate * 2.0, "rounds": 3, "device_requests": 4000,
            "device_bytes": rate * 2.1,
        })),
        remarks: Vec::new(),
    }
}

/// One end of the disk.
pub(crate) fn readahead_end(position: &str, rate: f64) -> Record {
    let mut made = readahead("", 1, None, rate);
    made.cell.insert("files".into(), Value::Null);
    made.cell.insert("position".into(), json!(position));
    made
}

/// Records of `readahead` such as nobody should write, each shape of them once.
pub(crate) fn absurd_readaheads() -> Vec<Record> {
    let long = "w".repeat(90);
    let cells = [
        json!({}),
        json!({"readers": "many", "files": 7, "readahead_bytes": -1}),
        json!({"readers": u64::MAX, "files": long, "readahead_bytes": u64::MAX,
               "request_bytes": u64::MAX, "cache": long, "advice": long, "more": {"a": [1]}}),
        json!({"readers": 0, "files": "own", "readahead_bytes": 0, "request_bytes": 0}),
        json!({"readers": 1, "files": "one", "cache": "direct", "position": long}),
        json!({"cache": "direct", "files": "one"}),
    ];
    let metrics = [
        json!({}),
        json!({"bytes_per_s": null, "reader_bytes_per_s": 5, "slowest_of_fastest": -1}),
        json!({"bytes_per_s": -1, "bytes_per_s_min": "few"}),
        json!({"bytes_per_s": 0, "slowest_of_fastest": 0}),
        json!({"bytes_per_s": f64::MAX, "slowest_of_fastest": f64::MAX, "device_requests": f64::MAX}),
    ];
    let mut records = Vec::new();
    for cell in &cells {
        for (kind, metrics) in metrics.iter().enumerate() {
            let mut cell = object(cell.clone());
            cell.insert("kind".into(), json!(kind));
            records.push(Record {
                rounds: Vec::new(),
                experiment: "readahead".to_owned(),
                cell,
                metrics: object(metrics.clone()),
                remarks: vec!["two\nlines".into()],
            });
        }
    }
    records
}

/// One record of `activation` with reads of 8 KiB; `stride` in reads.
pub(crate) fn activation(start: &str, advice: &str, stride: u64, reads: Option<u32>) -> Record {
    let windows = if reads.is_some() { vec![32_768, 65_536, 131_072, 131_072] } else { Vec::new() };
    Record {
        rounds: Vec::new(),
        experiment: "activation".to_owned(),
        cell: object(json!({
            "start": start, "advice": advice, "request_bytes": 8192, "stride_bytes": 8192 * stride,
            "streams": 1, "descriptors": "one", "readahead_bytes": 131_072, "cache": "buffered",
            "profile": null, "filesystem": "ext4",
        })),
        metrics: object(json!({
            "reads_until_ahead": reads, "window_bytes_initial": windows.first(),
            "window_bytes_max": windows.iter().max(), "windows_bytes": windows, "repetitions": 20,
            "repetitions_agreeing": 20, "repetitions_agreeing_on_windows": 19,
            "repetitions_ahead": if reads.is_some() { 20 } else { 0 },
        })),
        remarks: Vec::new(),
    }
}

/// One record of `mixture`: both kinds have 100 MB/s and 1000 reads a second alone.
pub(crate) fn mixture(bytes: u64, mix: &str, stream: f64, random: f64) -> Record {
    let of = |kind: &str, value: f64| (mix == kind || mix == "both").then_some(value);
    let kept = |value: f64| (mix == "both").then_some(value);
    Record {
        rounds: Vec::new(),
        experiment: "mixture".to_owned(),
        cell: object(json!({
            "mix": mix, "streams": 4, "random_readers": 4, "readahead_bytes": bytes,
            "readahead_by": "device", "advice": null, "request_bytes": 8192, "cache": "buffered",
            "profile": null, "filesystem": "ext4",
        })),
        metrics: object(json!({
            "stream_bytes_per_s": of("streams", 1e8 * stream), "stream_kept": kept(stream),
            "random_reads_per_s": of("random", 1e3 * random), "random_kept": kept(random),
            "random_wait_us_p50": of("random", 3e3 / random),
            "random_wait_us_p99": of("random", 2e4 / random), "seconds": 4.0, "rounds": 3,
        })),
        remarks: Vec::new(),
    }
}
