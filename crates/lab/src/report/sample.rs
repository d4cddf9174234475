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
        },
        backends: vec![BackendNote {
            backend: "uring".to_owned(),
            available: false,
            note: "io_uring_setup: EPERM".to_owned(),
        }],
        records,
        advice: Vec::new(),
    }
}

/// One record of `strategies`, under a kernel readahead of 128 KiB.
pub(crate) fn strategy(
    pattern: &str,
    strategy: &str,
    place: (&str, &str),
    blocks_per_s: Option<f64>,
    remarks: &[&str],
) -> Record {
    let (state, cache) = place;
    let mut made = record("", cache, 0, blocks_per_s, remarks);
    made.experiment = "strategies".to_owned();
    made.cell = object(json!({
        "pattern": pattern,
        "strategy": strategy,
        "cache_state": state,
        "cache": cache,
        "device_readahead_bytes": 131_072,
    }));
    made
}

/// One record of `interplay`.
pub(crate) fn interplay(
    pattern: &str,
    strategy: &str,
    cache: &str,
    readahead_bytes: Option<u64>,
    blocks_per_s: Option<f64>,
) -> Record {
    let mut made = record("", cache, 0, blocks_per_s, &[]);
    made.experiment = "interplay".to_owned();
    made.cell = object(json!({
        "pattern": pattern,
        "strategy": strategy,
        "cache": cache,
        "device_readahead_bytes": readahead_bytes,
    }));
    made
}

/// Records of both experiments such as nobody should write, each shape of them once.
pub(crate) fn absurd() -> Vec<Record> {
    let cells = [
        json!({}),
        json!({"pattern": null, "strategy": 7}),
        json!({"pattern": "uniform", "strategy": "adaptive"}),
        json!({"pattern": "uniform", "strategy": "os", "cache": [1], "cache_state": {"a": 1}}),
        json!({"pattern": "uniform", "strategy": "willneed-", "device_readahead_bytes": -1}),
        json!({"pattern": "é".repeat(90), "strategy": "w".repeat(90), "cache": "c".repeat(90)}),
    ];
    let metrics = [
        json!({}),
        json!({"blocks_per_s": null, "device_requests": "many"}),
        json!({"blocks_per_s": -1, "over_read": -1, "seconds": -3}),
        json!({"blocks_per_s": 0, "device_bytes": -5, "seconds": 0}),
        json!({"blocks_per_s": f64::MAX, "device_bytes": f64::MAX, "over_read": f64::MAX}),
        json!({"blocks_per_s": f64::MIN_POSITIVE, "seconds": u64::MAX, "blocks_per_s_max": "x"}),
    ];
    let remarks = [&[][..], &["not cold: 1", "", "two\nlines"]];
    let mut records = Vec::new();
    for experiment in ["strategies", "interplay"] {
        for cell in &cells {
            for metrics in &metrics {
                for remarks in remarks {
                    records.push(Record {
                        experiment: experiment.to_owned(),
                        cell: object(cell.clone()),
                        metrics: object(metrics.clone()),
                        remarks: remarks.iter().map(|remark| (*remark).to_owned()).collect(),
                    });
                }
            }
        }
    }
    records
}
