//! A report and its sections for tests: what a run on a cloud machine leaves behind, with everything that
//! can go wrong in it: a backend that is missing, a cell that was not cold, one never measured, facts that
//! could not be found.
//!
//! Shared by the unit tests of this crate and of the programs, and by the tests that open the page in a browser.
#![allow(clippy::unwrap_used)]

use crate::facts::{Device, Host, Storage};
use crate::report::{
    Advice, AppliesTo, BackendNote, Burst, Conclusion, Confidence, DeviceSummary, Figure, Line,
    Mark, Part, Plot, Point, Record, Report, Row, SCHEMA, Section, Table, TableCell, Verdict,
};
use crate::statistics::{Estimate, Judgement};
use serde_json::{Value, json};

const DEPTHS: [u32; 11] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Rate alone and highest rate of each line.
const LINES: [(&str, &str, f64, f64); 5] = [
    ("sync", "buffered", 1_140.0, 1_390.0),
    ("threads", "buffered", 1_120.0, 21_400.0),
    ("uring", "buffered", 1_180.0, 33_800.0),
    ("threads", "direct", 1_210.0, 24_900.0),
    ("uring", "direct", 1_236.0, 41_230.0),
];

/// One record of `depth`, of three rounds; every metric but the rate follows from it, or is null without it.
pub fn record(
    backend: &str,
    cache: &str,
    depth: u32,
    blocks_per_s: Option<f64>,
    remarks: &[&str],
) -> Record {
    let round = |factor: f64| {
        let rate = blocks_per_s.map(|rate| rate * factor);
        let of = |metric: fn(f64) -> f64| rate.map(metric);
        let metrics = json!({
            "seconds": of(|rate| 4096.0 / rate),
            "blocks": rate.map(|_| 4096),
            "blocks_per_s": rate,
            "bytes_per_s": of(|rate| rate * 8192.0),
            "device_requests": rate.map(|_| 4012),
            "over_read": rate.map(|_| 0.02),
            "wait_us_p50": of(|rate| 620_000.0 / rate),
            "wait_us_p99": of(|rate| 2_900_000.0 / rate),
        });
        metrics.as_object().cloned().unwrap()
    };
    let cell = json!({"backend": backend, "cache": cache, "depth": depth});
    let mut made = Record::new("depth", &cell, &[0.98, 1.0, 1.03].map(round));
    made.remarks = remarks.iter().map(|&remark| remark.to_owned()).collect();
    made
}

/// The rate of a line at a depth, similar to real disks.
fn rate(line: usize, depth: u32) -> f64 {
    let (_, _, alone, most) = LINES[line];
    let noise = 1.0 + 0.02 * (((line * 7 + depth as usize * 5) % 9) as f64 - 4.0) / 4.0;
    let ahead = alone * (1.0 + f64::from(depth));
    most / (1.0 + (most / ahead).powi(3)).cbrt() * noise
}

/// All of them, and one of an unknown experiment.
pub fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for (line, (backend, cache, ..)) in LINES.into_iter().enumerate() {
        for depth in DEPTHS {
            records.push(record(backend, cache, depth, Some(rate(line, depth)), &[]));
        }
    }
    records[13] = record("threads", "buffered", 2, Some(184_300.0), &["not cold: 61 % was cached"]);
    records[43] =
        record("threads", "direct", 512, None, &["not measured: 512 threads are too many"]);
    let cell = json!({"moon": "full", "gap_blocks": 4});
    let round = json!({"seconds": 1.25, "level_m": null}).as_object().cloned().unwrap();
    let mut tide = Record::new("tides", &cell, &[round]);
    tide.remarks.push("the gauge was frozen".to_owned());
    records.push(tide);
    records
}

/// A report of a machine with almost no known facts.
pub fn bare(records: Vec<Record>) -> Report {
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
        backends: vec![backend("uring", false, "io_uring_setup: EPERM")],
        records,
        device: None,
        verdicts: Vec::new(),
        advice: Vec::new(),
        conclusions: Vec::new(),
    }
}

/// The whole report.
pub fn report() -> Report {
    Report {
        command: "forebay lab --dir /var/lib/forebay --seed 20070913 --report forebay-report"
            .to_owned(),
        started: "2026-11-21T08:14:03Z".to_owned(),
        seconds: 212.4,
        host: Host {
            name: "reservoir-3".to_owned(),
            kernel: "Linux 6.18.44".to_owned(),
            cpu: Some("AMD EPYC 9R14".to_owned()),
            cpus: 4,
            memory_bytes: Some(16_642_998_272),
            virtualisation: Some("kvm".to_owned()),
            container: None,
            root: true,
        },
        storage: storage(),
        backends: vec![
            backend("sync", true, ""),
            backend("threads", true, ""),
            backend("aio", false, "io_setup: Resource temporarily unavailable"),
            backend("uring", true, "registered buffers"),
        ],
        device: Some(device()),
        verdicts: verdicts(),
        advice: advice(),
        conclusions: conclusions(),
        ..bare(records())
    }
}

fn backend(name: &str, available: bool, note: &str) -> BackendNote {
    BackendNote { backend: name.to_owned(), available, note: note.to_owned() }
}

/// A cloud volume.
pub fn storage() -> Storage {
    Storage {
        directory: "/var/lib/forebay".to_owned(),
        filesystem: Some("ext4".to_owned()),
        mount_point: Some("/var".to_owned()),
        mount_options: Some("rw,relatime,discard".to_owned()),
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

fn device() -> DeviceSummary {
    let figure = |per_s: f64, noise: f64, waits: Option<(f64, f64)>| {
        Some(Figure {
            per_s,
            low: per_s * (1.0 - noise),
            high: per_s * (1.0 + noise),
            rounds: 5,
            wait_us_p50: waits.map(|(p50, _)| p50),
            wait_us_p99: waits.map(|(_, p99)| p99),
        })
    };
    DeviceSummary {
        random_read_depth_1: figure(1_236.0, 0.021, Some((790.0, 2_140.0))),
        random_read_saturated: figure(41_230.0, 0.034, Some((1_480.0, 4_900.0))),
        saturated_depth: Some(64),
        sequential_read: figure(642e6, 0.012, None),
        sequential_write: figure(318e6, 0.083, None),
        sync: figure(412.0, 0.064, Some((2_310.0, 7_800.0))),
        burst: Some(Burst { seconds: 30.0, start_per_s: 62_400.0, end_per_s: 41_800.0 }),
        remarks: Vec::new(),
    }
}

/// Advice of each kind.
pub fn advice() -> Vec<Advice> {
    use AppliesTo::{
        BlockDevice, Postgres, Postgres14To17, Postgres18Uring, Postgres18Worker, Profile,
    };
    let depth = "random reads of a bitmap heap scan, 64 prefetched against none";
    let streams = "eight sequential readers through the page cache, each with a separate file";
    [
        (
            "depth",
            "effective_io_concurrency",
            Postgres14To17,
            Some("1"),
            "64",
            (34.6, 30.1, 38.2),
            depth,
        ),
        (
            "depth",
            "effective_io_concurrency",
            Postgres18Worker,
            Some("16"),
            "64",
            (2.31, 2.08, 2.56),
            depth,
        ),
        (
            "depth",
            "io_method",
            Postgres18Uring,
            Some("worker"),
            "io_uring",
            (1.62, 1.49, 1.74),
            depth,
        ),
        ("depth", "random_page_cost", Postgres, Some("4"), "1.1", (1.18, 1.07, 1.31), depth),
        (
            "readahead",
            "read_ahead_kb",
            BlockDevice,
            Some("128"),
            "4096",
            (3.71, 3.42, 3.98),
            streams,
        ),
        ("strategies", "readahead", Profile, Some("os"), "adaptive", (2.84, 2.51, 3.30), depth),
        ("depth", "queue_depth", Profile, None, "64", (1.21, 1.09, 1.35), depth),
        ("depth", "tablespace.main.queue_depth", Profile, None, "32", (1.1, 1.06, 1.2), depth),
    ]
    .into_iter()
    .map(
        |(
            experiment,
            setting,
            applies_to,
            current,
            advised,
            (gain, gain_low, gain_high),
            evidence,
        )| Advice {
            experiment: experiment.to_owned(),
            setting: setting.to_owned(),
            applies_to,
            current: current.map(str::to_owned),
            advised: advised.to_owned(),
            gain,
            gain_low,
            gain_high,
            confidence: if gain_low > 1.2 { Confidence::High } else { Confidence::Medium },
            evidence: evidence.to_owned(),
        },
    )
    .collect()
}

fn conclusions() -> Vec<Conclusion> {
    [
        ("depth", "With 64 blocks prefetched, direct reads through io_uring are 33 times as fast as one at a time; \
                   more depth gains less than 5 %."),
        ("depth", "Direct reads are 1.2 times as fast as reads through the page cache."),
        ("readahead", "Eight sequential readers need a readahead of 4 MiB; they have 128 KiB."),
        ("strategies", "adaptive keeps its bound in 41 of 44 rows."),
    ]
    .map(|(experiment, sentence)| Conclusion {
        experiment: experiment.to_owned(),
        sentence: sentence.to_owned(),
        for_engines: experiment == "strategies",
    })
    .to_vec()
}

fn verdicts() -> Vec<Verdict> {
    [
        ("uniform cold direct", "async", 1.01, 0.99, 1.03, Judgement::Keeps),
        ("bitmap-10 cold direct", "async", 0.88, 0.86, 0.91, Judgement::Misses),
        ("zipfian cold buffered", "max", 0.96, 0.89, 1.04, Judgement::Undecided),
    ]
    .map(|(row, rival, ratio, low, high, verdict)| Verdict {
        experiment: "strategies".to_owned(),
        row: row.to_owned(),
        variant: "adaptive".to_owned(),
        rival: rival.to_owned(),
        ratio: Estimate { value: ratio, low, high, rounds: 5 },
        verdict,
    })
    .to_vec()
}

/// The sections of the experiments of [`report`].
pub fn sections() -> Vec<Section> {
    vec![depth_section(), strategies_section(), readahead_section()]
}

/// `depth`: the headline plot, and its table with a cell that was not cold and one never measured.
pub fn depth_section() -> Section {
    let lines = LINES.into_iter().enumerate().map(|(line, (backend, cache, ..))| Line {
        name: format!("{backend} {cache}"),
        points: (0..)
            .zip(DEPTHS)
            .map(|(x, depth)| {
                let y = rate(line, depth);
                Point { x, y, low: y * 0.95, high: y * 1.04 }
            })
            .collect(),
        dashed: cache == "buffered",
    });
    let plot = Plot {
        title: "Blocks read per second, by prefetch depth".to_owned(),
        x_name: "prefetch depth".to_owned(),
        y_name: "blocks/s".to_owned(),
        ticks: DEPTHS.map(|depth| depth.to_string()).to_vec(),
        lines: lines.collect(),
        mark: Some((Point { x: 7, y: rate(4, 64), low: 0.0, high: 0.0 }, "knee at 64".to_owned())),
    };
    let mut table = Table::new("Blocks per second.", ["depth", "blocks/s", "wait p99"]);
    for (line, (backend, cache, ..)) in LINES.into_iter().enumerate() {
        for depth in [0, 64, 512] {
            let rate = rate(line, depth);
            let mut cells =
                [depth.to_string(), format!("{rate:.0}"), format!("{:.0} µs", 2.9e6 / rate)]
                    .map(TableCell::new);
            cells[1].share = Some(rate / 45e3);
            match (backend, cache, depth) {
                ("uring", "direct", 64) => cells[1].mark = Mark::Best,
                ("threads", "buffered", 64) => {
                    cells[1].mark = Mark::Weak;
                    cells[1].notes.push("not cold: 61 % was cached".to_owned());
                }
                ("threads", "direct", 512) => cells[1] = TableCell::figure(None),
                _ => {}
            }
            table.rows.push(Row { group: format!("{backend} {cache}"), cells: cells.to_vec() });
        }
    }
    Section {
        name: "depth",
        title: "Prefetch depth".to_owned(),
        about: "How many blocks a second the reader gets while that many of the next ones are prefetched.".to_owned(),
        parts: vec![Part::Plot(plot), Part::Table(table)],
    }
}

/// `strategies`: a matrix with more columns than a terminal has room for.
fn strategies_section() -> Section {
    let names = ["os", "hint", "max", "prefetch", "async", "adaptive"];
    let mut columns = vec!["pattern".to_owned()];
    columns.extend(names.map(str::to_owned));
    let row = |group: &str, pattern: &str, shares: [f64; 6]| {
        let mut cells = vec![TableCell::new(pattern)];
        cells.extend(shares.map(|share| TableCell {
            text: format!("{share:.2}"),
            share: Some(share),
            mark: if share == 1.0 { Mark::Best } else { Mark::Plain },
            notes: Vec::new(),
        }));
        if shares[5] < 0.95 {
            cells[6].mark = Mark::Bad;
        }
        Row { group: group.to_owned(), cells }
    };
    let table = Table {
        caption: "Share of the best strategy of each row.".to_owned(),
        columns,
        rows: vec![
            row("cold, direct", "uniform", [0.23, 0.23, 0.22, 0.66, 0.99, 1.0]),
            row("cold, direct", "bitmap-10", [0.27, 0.18, 0.33, 0.68, 1.0, 0.88]),
            row("page-cache, buffered", "uniform", [1.0, 0.99, 0.97, 0.91, 0.62, 0.98]),
        ],
    };
    let (title, about) =
        ("Patterns and strategies".to_owned(), "The same blocks by every strategy.".to_owned());
    Section { name: "strategies", title, about, parts: vec![Part::Table(table)] }
}

/// `readahead`: a plot.
fn readahead_section() -> Section {
    let sizes = ["0", "128 KiB", "1 MiB", "4 MiB"];
    let line = |name: &str, rates: [f64; 4]| Line {
        name: name.to_owned(),
        points: (0..)
            .zip(rates)
            .map(|(x, y)| Point { x, y, low: y * 0.97, high: y * 1.02 })
            .collect(),
        dashed: false,
    };
    let plot = Plot {
        title: "All readers together".to_owned(),
        x_name: "readahead".to_owned(),
        y_name: "MB/s".to_owned(),
        ticks: sizes.map(str::to_owned).to_vec(),
        lines: vec![
            line("1 reader", [290.0, 300.0, 302.0, 309.0]),
            line("8 readers", [38.0, 81.0, 162.0, 304.0]),
        ],
        mark: None,
    };
    Section {
        name: "readahead",
        title: "Readahead".to_owned(),
        about: "The kernel's readahead under several sequential readers.".to_owned(),
        parts: vec![Part::Plot(plot)],
    }
}

/// An unusually large run: ten times of everything, in long words.
pub fn large() -> Report {
    let mut report = report();
    let long = "A sentence that goes on and on, and that is not needed in full before the report is opened, ".repeat(4);
    report.conclusions = (0..40)
        .map(|index| Conclusion {
            sentence: format!("{index}: {long}"),
            ..report.conclusions[0].clone()
        })
        .collect();
    report.advice = (0..10).flat_map(|_| advice()).collect();
    report.verdicts = ["depth", "strategies", "interplay", "checkpoint", "readahead", "mixture"]
        .into_iter()
        .flat_map(|name| {
            verdicts().into_iter().map(move |it| Verdict { experiment: name.to_owned(), ..it })
        })
        .collect();
    report.backends = (0..4).map(|_| backend("uring", false, &long)).collect();
    report.storage.device_remark.clone_from(&long);
    report.command = "forebay lab --dir /a/directory/with/a/long/name ".repeat(9);
    report.device.as_mut().unwrap().remarks = vec![long; 5];
    report
}

/// Text that tries to be markup.
pub const HOSTILE: &str = "</script><script>document.title='taken'</script><!--\"'><img src=x onerror=\"document.title='taken'\">";

/// The report and its sections with hostile text in every text field.
pub fn hostile() -> (Report, Vec<Section>) {
    let written = serde_json::to_value(report()).unwrap();
    let report = serde_json::from_value(with_hostile_text(written)).unwrap();
    let hostile = || HOSTILE.to_owned();
    let cell = TableCell { text: hostile(), notes: vec![hostile()], ..TableCell::default() };
    let table = Table {
        caption: hostile(),
        columns: vec![hostile(), hostile()],
        rows: vec![Row { group: hostile(), cells: vec![cell.clone(), cell] }],
    };
    let Part::Plot(mut plot) = depth_section().parts.swap_remove(0) else { unreachable!() };
    for text in [
        &mut plot.title,
        &mut plot.x_name,
        &mut plot.y_name,
        &mut plot.mark.as_mut().unwrap().1,
        &mut plot.lines[0].name,
        &mut plot.ticks[3],
    ] {
        *text = hostile();
    }
    let parts = vec![Part::Table(table), Part::Plot(plot)];
    (report, vec![Section { name: "depth", title: hostile(), about: hostile(), parts }])
}

/// `value` with another text for each one that is not of a closed set.
fn with_hostile_text(value: Value) -> Value {
    let closed = |text: &str| {
        ["keeps", "misses", "undecided", "high", "medium"].contains(&text)
            || ["PostgreSQL", "Linux block", "Forebay profile"]
                .iter()
                .any(|start| text.starts_with(start))
    };
    match value {
        Value::String(text) if !closed(&text) => Value::String(HOSTILE.to_owned()),
        Value::Array(items) => items.into_iter().map(with_hostile_text).collect(),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(key, value)| (key, with_hostile_text(value))).collect(),
        ),
        other => other,
    }
}
