//! io_method: by what PostgreSQL 18 has its reads made, and what the disk's measurement says of the other ways.
//!
//! It counts from a restart on, and to restart somebody's server is not for us: no value is proved there, and none is set. What is told is what
//! is set, which methods the server was built with, and, where the disk was measured, the rates of reading alike, as many blocks
//! prefetched as effective_io_concurrency has it. Worked example: 16 ahead, three workers 21,000 blocks/s, io_uring 48,000 in
//! the same rounds: io_uring is worth a restart, if the processor time that it takes from the backends is there.
//!
//! Source:      PostgreSQL's documentation, "Resource Consumption", for what the methods are.

use serde_json::Value;

use super::Proposal;
use super::disks::Disk;
use super::server::{EFFECTIVE, Server, Setting};
use crate::report::{Advice, AppliesTo, Record, Report, numbers};
use crate::statistics::{median, paired_ratio};

const METHOD: &str = "io_method";
const WORKERS: &str = "io_workers";

/// PostgreSQL's methods, and the laboratory's backends that read alike.
const METHODS: [(&str, &str); 3] = [("worker", "threads"), ("io_uring", "uring"), ("sync", "sync")];

/// Of PostgreSQL 18, for what is not a number.
const DEFAULT_DEPTH: u64 = 16;
const DEFAULT_WORKERS: u64 = 3;

/// The laboratory's backends by which the disk of `server` is measured: hints up to 17, and then what it was built with.
pub(super) fn backends(server: &Server) -> Vec<&'static str> {
    let Some(setting) = server.setting(METHOD) else { return vec!["sync"] };
    let is_there = |(method, _): &&(&str, &str)| setting.choices.iter().any(|it| it == method);
    METHODS.iter().filter(is_there).map(|(_, backend)| *backend).collect()
}

/// What `disk` says of `server`'s method: another one that reads surely faster, or else a sentence.
pub(super) fn told(server: &Server, disk: &Disk) -> Option<Result<Proposal, String>> {
    let set = server.setting(METHOD)?;
    let number = |name: &str| server.setting(name).and_then(|it| it.value.parse::<u64>().ok());
    let depth = number(EFFECTIVE).unwrap_or(DEFAULT_DEPTH);
    let workers = number(WORKERS).unwrap_or(DEFAULT_WORKERS);
    let compared = disk.report.as_ref().and_then(|report| compared(report, set, depth, workers));
    let built = if set.choices.iter().any(|it| it == "io_uring") {
        "this server was built with io_uring"
    } else {
        "this server was built without io_uring"
    };
    let restart = "it counts from a restart on, and so was not proved on the server";
    let lead = format!("{METHOD} = {} ({}); {built}", set.value, set.source);
    Some(match compared {
        Some((Some(advice), _)) => Ok(Proposal {
            tablespace: None,
            proved: false,
            not_applied: Some(format!("{restart}, nor was the processor time that it takes")),
            advice,
        }),
        Some((None, rates)) => Err(format!(
            "{lead}. No other method reads surely faster on {}: {rates}; {restart}.",
            disk.name
        )),
        None => Err(format!("{lead}. No other was measured on {}; {restart}.", disk.name)),
    })
}

/// The methods' rates at the largest depth up to `depth` at which all were measured: the advice to take another one than is `set`, if that is
/// surely faster, and all rates.
fn compared(
    report: &Report,
    set: &Setting,
    depth: u64,
    workers: u64,
) -> Option<(Option<Advice>, String)> {
    let of = |backend: &str, depth: u64| {
        let is_it = |record: &&Record| {
            record.experiment == "depth"
                && record.cell_text("backend") == backend
                && record.cell_text("cache") == "buffered"
                && record.cell_number("depth") == Some(depth)
        };
        let all = report.records.iter().filter(is_it);
        // Of threads, those that are as many as the workers, or the nearest fewer.
        let all = all.filter(|it| it.cell_number("workers").is_none_or(|count| count <= workers));
        all.max_by_key(|it| it.cell_number("workers"))
    };
    let depths = report.records.iter().filter_map(|record| record.cell_number("depth"));
    let mut depths: Vec<u64> = depths.filter(|&it| it <= depth).collect();
    depths.sort_unstable_by(|one, other| other.cmp(one));
    let current = METHODS.iter().find(|(method, _)| *method == set.value)?;
    let at = |depth: u64| {
        let now = of(current.1, depth)?;
        let others = METHODS.iter().filter(|other| *other != current);
        let others = others.filter_map(|(method, backend)| Some((*method, of(backend, depth)?)));
        let others: Vec<(&str, &Record)> = others.collect();
        (!others.is_empty()).then_some((depth, now, others))
    };
    let (depth, now, others) = depths.into_iter().find_map(at)?;
    let shown = |(method, record): &(&str, &Record)| {
        let rate = median(&rates(record)).map_or("unknown".to_owned(), numbers::number);
        let threads = record.cell_number("workers").filter(|_| *method == "worker");
        let threads = threads.map_or_else(String::new, |count| format!(" ({count} of them)"));
        format!("{method}{threads} {rate} blocks/s")
    };
    let all: Vec<String> = [(current.0, now)].iter().chain(&others).map(shown).collect();
    let told = format!("random reads from a cold cache, {depth} prefetched: {}", all.join(", "));
    let rate = |record: &Record| median(&rates(record)).unwrap_or(0.0);
    let best = others.iter().max_by(|one, other| rate(one.1).total_cmp(&rate(other.1)))?;
    let gain = paired_ratio(&rates(best.1), &rates(now))?;
    let change = [set.value.clone(), best.0.to_owned()];
    let evidence = format!("{told} ({} rounds).", gain.rounds);
    Some((Advice::worth_it("depth", (AppliesTo::Postgres, METHOD), change, gain, evidence), told))
}

/// Round by round; those of one round were measured side by side.
fn rates(record: &Record) -> Vec<f64> {
    let rate = |round: &serde_json::Map<String, Value>| round.get("blocks_per_s")?.as_f64();
    record.rounds.iter().filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(backend: &str, workers: Option<u64>, depth: u64, rates: [f64; 3]) -> Record {
        let cell = serde_json::json!({"backend": backend, "cache": "buffered", "depth": depth, "workers": workers});
        let rounds = rates.map(|rate| serde_json::json!({ "blocks_per_s": rate }));
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        Record {
            experiment: "depth".to_owned(),
            cell: map(cell),
            metrics: serde_json::Map::new(),
            rounds: rounds.into_iter().map(map).collect(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn another_method_is_worth_a_restart_where_it_is_surely_faster_with_what_is_set() {
        let set = |value: &str| Setting {
            name: METHOD.to_owned(),
            value: value.to_owned(),
            choices: vec!["sync".to_owned(), "worker".to_owned(), "io_uring".to_owned()],
            ..Setting::default()
        };
        let report = Report {
            records: vec![
                record("threads", Some(3), 16, [100.0, 110.0, 105.0]),
                record("threads", Some(8), 16, [400.0, 410.0, 405.0]),
                record("uring", None, 16, [200.0, 220.0, 215.0]),
                record("uring", None, 64, [900.0, 900.0, 900.0]),
                record("sync", None, 16, [90.0, 95.0, 300.0]),
            ],
            ..Report::default()
        };
        let found = |set: &Setting, depth, workers| compared(&report, set, depth, workers).unwrap();
        let (advice, told) = found(&set("worker"), 20, 3);
        let advice = advice.unwrap();
        assert_eq!((advice.setting.as_str(), advice.advised.as_str()), (METHOD, "io_uring"));
        assert!(
            told.ends_with(
                "worker (3 of them) 105 blocks/s, io_uring 215 blocks/s, sync 95.0 blocks/s"
            ),
            "{told}"
        );
        // With more workers nothing is faster; with fewer than were measured nothing is said.
        assert!(found(&set("worker"), 16, 8).0.is_none());
        assert!(compared(&report, &set("worker"), 16, 2).is_none());
        assert!(compared(&report, &set("worker"), 8, 3).is_none());
        assert_eq!(found(&set("sync"), 16, 8).0.unwrap().advised, "worker");
        assert!(found(&set("io_uring"), 64, 3).0.is_none());
    }
}
