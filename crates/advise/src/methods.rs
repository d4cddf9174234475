//! io_method: how PostgreSQL 18 performs reads, and what the disk's measurement says about the other methods.
//!
//! It takes effect after a restart, and this command never restarts the user's server: no value is proved, and none is
//! set. The report gives the present method, those that the server was built with, and, if the disk was measured, the
//! rates of equivalent reads with as many blocks prefetched as effective_io_concurrency says. Worked example: at depth
//! 16, three workers read 21,000 blocks/s and io_uring 48,000 in the same rounds: io_uring is worth a restart, if the
//! backends can spare the processor time that it takes from them.
//!
//! Source:      PostgreSQL's documentation, "Resource Consumption", for what the methods are.

use serde_json::Value;

use super::Proposal;
use super::disks::Disk;
use super::server::{EFFECTIVE, METHOD, METHODS, Server, Setting, URING};
use forebay_measure::report::{Advice, AppliesTo, Record, Report, numbers};
use forebay_measure::statistics::{Floor, Judge, median};

const WORKERS: &str = "io_workers";

/// The other requirements for a server to start with io_uring.
const NEEDS: &str = "; the server does not start with it unless its user may use it: check first that \
                     kernel.io_uring_disabled is 0 where it runs, that no seccomp profile of a container forbids it, \
                     and that `ulimit -n` of the server's user leaves a ring, which is an open file, for each backend";

/// Defaults of PostgreSQL 18, for values that are not numbers.
const DEFAULT_DEPTH: u64 = 16;
const DEFAULT_WORKERS: u64 = 3;

/// What `disk` says about `server`'s method: another one that reads significantly faster, or else a sentence.
pub(super) fn proposal(server: &Server, disk: &Disk) -> Option<Result<Proposal, String>> {
    let set = server.setting(METHOD)?;
    let number = |name: &str| server.setting(name).and_then(|it| it.value.parse::<u64>().ok());
    let depth = number(EFFECTIVE).unwrap_or(DEFAULT_DEPTH);
    let workers = number(WORKERS).unwrap_or(DEFAULT_WORKERS);
    let compared = disk.report.as_ref().and_then(|report| compared(report, set, depth, workers));
    // Kernels before 6.6 do not have this switch.
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let is_barred = switch.is_ok_and(|it| it.trim() != "0");
    Some(proposed(set, &disk.name, compared, is_barred))
}

/// The conclusion from what was `compared` on a `disk`; `is_barred`: the kernel forbids io_uring.
fn proposed(
    set: &Setting,
    disk: &str,
    compared: Option<(Option<Advice>, String)>,
    is_barred: bool,
) -> Result<Proposal, String> {
    let built = if set.choices.iter().any(|it| it == URING) {
        "this server was built with io_uring"
    } else {
        "this server was built without io_uring"
    };
    let restart = "a change needs a restart, so none was tested on the server";
    let lead = format!("{METHOD} = {} ({}); {built}", set.value, set.source);
    match compared {
        Some((Some(advice), rates)) if advice.advised == URING && is_barred => Err(format!(
            "{lead}. io_uring reads significantly faster on {disk}: {rates}; but kernel.io_uring_disabled forbids it, \
             so the server would not start with it."
        )),
        Some((Some(advice), _)) => {
            let more = if advice.advised == URING { NEEDS } else { "" };
            Ok(Proposal {
                tablespace: None,
                proved: false,
                not_applied: Some(format!(
                    "it needs a restart, so it was not tested on the server; its processor time was not measured \
                     either{more}"
                )),
                advice,
            })
        }
        Some((None, rates)) => Err(format!(
            "{lead}. No other method reads significantly faster on {disk}: {rates}; {restart}."
        )),
        None => {
            Err(format!("{lead}. It was not compared with another method on {disk}; {restart}."))
        }
    }
}

/// The methods' rates at the largest depth up to `depth` at which the present method (`set`), with `workers` workers,
/// was measured together with another: the advice to use another method, if that is significantly faster, and all
/// rates.
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
                && (backend != "threads" || record.cell_number("workers") == Some(workers))
        };
        report.records.iter().filter(is_it).find(|record| is_evidence(record))
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
    let measured =
        format!("random reads from a cold cache, {depth} prefetched: {}", all.join(", "));
    let rate = |record: &Record| median(&rates(record)).unwrap_or(0.0);
    let best = others.iter().max_by(|one, other| rate(one.1).total_cmp(&rate(other.1)))?;
    // Of several methods the best is compared.
    let series = [now].into_iter().chain(others.iter().map(|(_, record)| *record)).map(rates);
    let judge = Judge::new(&[series.collect()], others.len(), Floor::default());
    let gain = judge.ratio(&rates(best.1), &rates(now))?;
    let change = [set.value.clone(), best.0.to_owned()];
    let evidence = format!("{measured} ({} rounds).", gain.rounds);
    Some((
        Advice::worth_it("depth", (AppliesTo::Postgres, METHOD), change, gain, evidence),
        measured,
    ))
}

/// Whether it is evidence about the disk: cold in all rounds, and without failure, by its remarks.
fn is_evidence(record: &Record) -> bool {
    let is_against =
        |it: &String| ["not cold", "not measured"].iter().any(|why| it.starts_with(why));
    !record.rounds.is_empty() && !record.remarks.iter().any(is_against)
}

/// Blocks/s per round; those of one round were measured together.
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
                record("threads", None, 16, [500.0, 510.0, 505.0]),
                record("threads", Some(3), 16, [100.0, 110.0, 105.0]),
                record("threads", Some(3), 64, [100.0, 110.0, 105.0]),
                record("threads", Some(8), 16, [400.0, 410.0, 405.0]),
                record("uring", None, 16, [200.0, 220.0, 215.0]),
                record("uring", None, 64, [900.0, 900.0, 900.0]),
                record("sync", None, 16, [90.0, 95.0, 100.0]),
            ],
            ..Report::default()
        };
        let found = |set: &Setting, depth, workers| compared(&report, set, depth, workers).unwrap();
        let (advice, text) = found(&set("worker"), 20, 3);
        let advice = advice.unwrap();
        assert_eq!((advice.setting.as_str(), advice.advised.as_str()), (METHOD, "io_uring"));
        assert!(
            text.ends_with(
                "worker (3 of them) 105 blocks/s, io_uring 215 blocks/s, sync 95.0 blocks/s"
            ),
            "{text}"
        );
        // With more workers no method is faster, even if that many were measured only at a smaller depth.
        assert!(found(&set("worker"), 16, 8).0.is_none());
        assert!(found(&set("worker"), 64, 8).0.is_none());
        // If that many were not measured, there is no result.
        assert!(compared(&report, &set("worker"), 16, 2).is_none());
        assert!(compared(&report, &set("worker"), 16, 5).is_none());
        assert!(compared(&report, &set("worker"), 8, 3).is_none());
        assert_eq!(found(&set("sync"), 16, 8).0.unwrap().advised, "worker");
        assert!(found(&set("io_uring"), 64, 3).0.is_none());

        // Only if the kernel permits it, and never without its other requirements.
        let of = |is_barred| {
            let compared = compared(&report, &set("worker"), 16, 3);
            proposed(&set("worker"), "vda", compared, is_barred)
        };
        let not = of(false).unwrap().not_applied.unwrap();
        assert!(["seccomp", "ulimit -n", "io_uring_disabled"].iter().all(|it| not.contains(it)));
        assert!(of(true).unwrap_err().contains("would not start"));
        let sync = compared(&report, &set("sync"), 16, 8);
        let not = proposed(&set("sync"), "vda", sync, true).unwrap().not_applied.unwrap();
        assert!(!not.contains("seccomp"), "{not}");

        // Reads from memory, and reads that failed, are no evidence.
        for remark in ["not cold: 5 of 9 pages", "not measured after 1 rounds: it failed"] {
            let mut report = report.clone();
            for record in report.records.iter_mut().filter(|it| it.cell_text("backend") == "uring")
            {
                record.remarks.push(remark.to_owned());
            }
            let (advice, text) = compared(&report, &set("worker"), 16, 3).unwrap();
            assert!(advice.is_none() && !text.contains("io_uring"), "{text}");
        }
    }
}
