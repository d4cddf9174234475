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
