//! A report such as a run on a small cloud machine leaves behind, with everything that can go
//! wrong in it: a backend that is missing, a cell that was not cold, one never measured, facts
//! that nobody could find, and names that try to be markup.

use forebay_lab::facts::{Device, Host, Storage};
use forebay_lab::report::{BackendNote, Conclusion, Record, Report, SCHEMA};
use serde_json::{Map, Value, json};

const DEPTHS: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
const BLOCKS: f64 = 4096.0;

/// Rate alone, highest rate, and the noise of a line, so that the lines look measured.
const LINES: [(&str, &str, f64, f64); 6] = [
    ("sync", "buffered", 1_140.0, 1_390.0),
    ("threads", "buffered", 1_120.0, 21_400.0),
    ("uring", "buffered", 1_180.0, 33_800.0),
    ("threads", "direct", 1_210.0, 24_900.0),
    ("uring", "direct", 1_236.0, 41_230.0),
    ("fio", "direct", 1_228.0, 40_100.0),
];

pub(crate) fn report() -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        forebay: "0.1.0 (4f1c2ab)".to_owned(),
        command:
            "forebay lab depth --dir /var/lib/forebay --blocks 4096 --rounds 5 --seed 20070913"
                .to_owned(),
        started: "2026-11-21T08:14:03Z".to_owned(),
        seconds: 212.4,
        host: host(),
        storage: storage(),
        backends: backends(),
        records: [records(), checkpoints(), readaheads(), others()].concat(),
        device: None,
        verdicts: Vec::new(),
        advice: Vec::new(),
        conclusions: advice(),
    }
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for (line, (backend, cache, alone, most)) in LINES.into_iter().enumerate() {
        for (step, depth) in DEPTHS.into_iter().enumerate() {
            let noise = 1.0 + 0.03 * (((line * 7 + step * 5) % 9) as f64 - 4.0) / 4.0;
            let ahead = alone * (1.0 + depth as f64);
            let rate = ahead * most / (ahead + most) * (1.0 + alone / most) * noise;
            let spread = 0.02 + 0.015 * ((line + step * 3) % 5) as f64;
            records.push(record(backend, cache, depth, rate, spread));
        }
    }
    let unsettled = &mut records[13];
    unsettled.remarks.push(
        "not cold: 61 % of the file was still in the page cache when the round began".to_owned(),
    );
    unsettled.metrics.insert("blocks_per_s".to_owned(), json!(184_300.0));
    unsettled.metrics.insert("blocks_per_s_min".to_owned(), Value::Null);
    let shaky = "one of five rounds was far slower than the others; the neighbours of this virtual \
                 machine may have been busy";
    records[46].remarks.push(shaky.to_owned());
    let lost = &mut records[39];
    for value in lost.metrics.values_mut() {
        *value = Value::Null;
    }
    lost.remarks.push("256 threads could not be started: Resource temporarily unavailable".into());
    records
}

fn record(backend: &str, cache: &str, depth: u64, rate: f64, spread: f64) -> Record {
    let merged = if cache == "buffered" { 0.94 } else { 1.0 };
    let round = |value: f64| (value * 10.0).round() / 10.0;
    let metrics = json!({
        "seconds": BLOCKS / rate,
        "seconds_min": BLOCKS / rate / (1.0 + spread),
        "seconds_max": BLOCKS / rate / (1.0 - spread),
        "rounds": 5,
        "blocks": BLOCKS,
        "blocks_per_s": round(rate),
        "blocks_per_s_min": round(rate * (1.0 - spread)),
        "blocks_per_s_max": round(rate * (1.0 + spread)),
        "bytes_per_s": round(rate * 8192.0),
        "device_requests": (BLOCKS * merged).round(),
        "device_bytes": BLOCKS * 8192.0,
        "over_read": if cache == "buffered" { json!(0.021) } else { json!(0.0) },
        "wait_us_p50": round(620_000.0 / rate),
        "wait_us_p99": round(2_900_000.0 / rate),
        "cpu_us_per_block": if backend == "fio" { Value::Null } else { json!(2.9) },
    });
    Record {
        rounds: Vec::new(),
        experiment: "depth".to_owned(),
        cell: object(&json!({"backend": backend, "cache": cache, "depth": depth})),
        metrics: object(&metrics),
        remarks: Vec::new(),
    }
}

/// `checkpoint` of one pattern, and what readers felt beside it in two intervals of 20 s.
fn checkpoints() -> Vec<Record> {
    let cell = |elevator: &str, combine: bool, backend: &str, beside: Option<bool>| {
        object(&json!({
            "dirty": "clustered", "elevator": elevator, "combine": combine, "cache": "direct",
            "backend": backend, "paced": beside == Some(true), "foreground": beside.is_some(),
        }))
    };
    let rows = [
        ("arrival", false, "sync", 9.2),
        ("sorted", true, "sync", 2.9),
        ("balanced", true, "uring", 1.7),
    ];
    let mut records: Vec<Record> = rows
        .into_iter()
        .map(|(elevator, combine, backend, seconds)| Record {
            rounds: Vec::new(),
            experiment: "checkpoint".to_owned(),
            cell: cell(elevator, combine, backend, None),
            metrics: object(&json!({
                "seconds": seconds, "pages": 65_536, "pages_per_s": 65_536.0 / seconds,
                "ratio_to_arrival": seconds / 9.2, "device_requests": if combine { 8195 } else { 65_539 },
                "bytes_per_request": if combine { 65_510 } else { 8191 }, "sync_seconds": 0.02,
                "tablespace_seconds": [seconds], "slip": null,
            })),
            remarks: Vec::new(),
        })
        .collect();
    for paced in [false, true] {
        let tooth = |second: usize| !paced && (second % 20 == 10 || second % 20 == 11);
        let longest: Vec<f64> = (0..50)
            .map(|second| if tooth(second) { 41_000.0 } else { 900.0 + 37.0 * (second % 7) as f64 })
            .collect();
        records.push(Record {
            rounds: Vec::new(),
            experiment: "checkpoint".to_owned(),
            cell: cell("balanced", true, "uring", Some(paced)),
            metrics: object(&json!({
                "seconds": if paced { 18.0 } else { 1.9 }, "slip": if paced { Some(0.004) } else { None },
                "foreground_us_p50": 160.0, "foreground_us_p99": if paced { 480.0 } else { 3600.0 },
                "foreground_us_p999": if paced { 820.0 } else { 9100.0 },
                "foreground_us_max": if paced { 1120.0 } else { 41_000.0 },
                "foreground_before_us_p99": 400.0, "foreground_slot_seconds": 1.0,
                "foreground_us_max_over_time": longest,
                "checkpoint_spans_seconds":
                    if paced { [[10.0, 28.0], [30.0, 48.0]] } else { [[10.0, 11.9], [30.0, 31.9]] },
            })),
            remarks: Vec::new(),
        });
    }
    records
}

/// `readahead` as document 002 found it on an array, with the ceiling.
fn readaheads() -> Vec<Record> {
    let made = |readers: u32, sectors: Option<u64>, mb_per_s: f64| Record {
        rounds: Vec::new(),
        experiment: "readahead".to_owned(),
        cell: object(&json!({
            "readers": readers, "files": "own", "readahead_bytes": sectors.map(|count| count * 512),
            "request_bytes": if sectors.is_some() { 8192 } else { 1 << 20 },
            "cache": if sectors.is_some() { "buffered" } else { "direct" }, "filesystem": "ext3",
        })),
        metrics: object(&json!({
            "bytes_per_s": mb_per_s * 1e6, "slowest_of_fastest": 0.9, "rounds": 3,
        })),
        remarks: Vec::new(),
    };
    let rows = [(8, 38.0, 290.0), (256, 81.0, 300.0), (1024, 162.0, 302.0), (12_288, 304.0, 309.0)];
    let mut records = vec![made(8, None, 642.0)];
    for (sectors, eight, one) in rows {
        records.extend([made(8, Some(sectors), eight), made(1, Some(sectors), one)]);
    }
    records
}

/// `activation` of one stream, and `mixture` under two readaheads.
fn others() -> Vec<Record> {
    let mut records = vec![Record {
        rounds: Vec::new(),
        experiment: "activation".to_owned(),
        cell: object(&json!({
            "start": "middle", "advice": "normal", "request_bytes": 8192, "stride_bytes": 8192,
            "streams": 1, "descriptors": "one", "readahead_bytes": 131_072,
        })),
        metrics: object(&json!({
            "reads_until_ahead": 2, "windows_bytes": [32_768, 65_536, 131_072], "repetitions": 20,
            "repetitions_agreeing": 20, "repetitions_ahead": 20,
        })),
        remarks: Vec::new(),
    }];
    for (bytes, stream, random) in [(131_072, 0.4, 0.9), (6 << 20, 0.85, 0.2)] {
        records.push(Record {
            rounds: Vec::new(),
            experiment: "mixture".to_owned(),
            cell: object(&json!({
                "mix": "both", "streams": 4, "random_readers": 4, "readahead_bytes": bytes,
                "request_bytes": 8192,
            })),
            metrics: object(&json!({ "stream_kept": stream, "random_kept": random })),
            remarks: Vec::new(),
        });
    }
    records
}

/// A record of an experiment that the page has never heard of.
pub(crate) fn unheard_of() -> Record {
    Record {
        rounds: Vec::new(),
        experiment: "tides".to_owned(),
        cell: object(&json!({"moon": "full", "gap_blocks": 4})),
        metrics: object(&json!({"seconds": 1.25, "level_m": null})),
        remarks: vec!["the gauge was frozen".to_owned()],
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn advice() -> Vec<Conclusion> {
    vec![
        Conclusion {
            experiment: "depth".to_owned(),
            sentence: "Ask 64 blocks ahead: direct reads through io_uring then come 22 times as \
                       fast as one at a time, and more depth gains less than 20 %."
                .to_owned(),
            setting: "effective_io_concurrency".to_owned(),
            value: "64".to_owned(),
        },
        Conclusion {
            experiment: "depth".to_owned(),
            sentence: "The page cache costs a fifth here: direct reads are faster at every depth."
                .to_owned(),
            setting: String::new(),
            value: String::new(),
        },
    ]
}

fn backends() -> Vec<BackendNote> {
    let note = |backend: &str, available: bool, note: &str| BackendNote {
        backend: backend.to_owned(),
        available,
        note: note.to_owned(),
    };
    vec![
        note("sync", true, ""),
        note("threads", true, ""),
        note("aio", false, "io_setup: Resource temporarily unavailable (fs.aio-max-nr is used up)"),
        note("uring", true, "registered buffers"),
    ]
}

fn host() -> Host {
    Host {
        name: "reservoir-3".to_owned(),
        kernel: "Linux 6.18.44".to_owned(),
        cpu: Some("AMD EPYC 9R14".to_owned()),
        cpus: 4,
        memory_bytes: Some(16_642_998_272),
        virtualisation: Some("kvm".to_owned()),
        container: None,
        root: true,
    }
}

fn storage() -> Storage {
    Storage {
        directory: "/var/lib/forebay".to_owned(),
        filesystem: Some("ext4".to_owned()),
        mount_point: Some("/var".to_owned()),
        mount_options: Some("rw,relatime,discard,errors=remount-ro".to_owned()),
        source: Some("/dev/nvme1n1p1".to_owned()),
        device: Some(Device {
            name: "nvme1n1p1".to_owned(),
            leaves: vec!["nvme1n1p1".to_owned()],
            model: Some("Elastic Block Volume".to_owned()),
            size_bytes: Some(107_374_182_400),
            rotational: Some(false),
            scheduler: Some("none".to_owned()),
            readahead_bytes: Some(131_072),
            queue_requests: Some(127),
            queue_depth: None,
            write_cache: Some("write through".to_owned()),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(4096),
            request_bytes_max: Some(262_144),
        }),
        device_remark: String::new(),
        emulated: None,
    }
}
