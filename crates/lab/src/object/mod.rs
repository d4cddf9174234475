//! `forebay lab object`: what an object store does with a storage engine's requests, and what a tablespace on it gains.
//!
//! `bare` measures a client without our code, `space` a tablespace below a pool, in the same rounds; `slowed` makes a
//! store slower on request; `retry` repeats requests that fail temporarily; `gate` and `removing` end a run without leaving objects; `view` shows the results. There is
//! no working file and no disk, so it is no
//! [`Experiment`](crate::experiment::Experiment); records, tables and their JSON are the same.

mod args;
mod bare;
mod gate;
mod removing;
mod retry;
mod slowed;
mod space;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use forebay_object::{Error, in_short, is_transient, open};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::args::repeated;
use bare::{Bare, OBJECT_BYTES, Rates};
use forebay_measure::bad_input;
use forebay_measure::facts::Host;
use forebay_measure::interrupt::{self, Cleanup};
use forebay_measure::lists::sorted;
use forebay_measure::output::{self, note};
use forebay_measure::progress::Progress;
use forebay_measure::report::Record;
use forebay_measure::start;
use gate::Gate;
use retry::again;
use slowed::Slowed;
use space::{Done, PAGE, Reading, Space};

pub use args::{ObjectArgs, ObjectPart};
pub use slowed::Latency;

/// The schema of `--json`.
const SCHEMA: &str = "forebay-object/1";
/// How long a first request may take.
const REACH: Duration = Duration::from_secs(10);
/// How long to look for objects that others have left; without an answer in this time they are not reported.
const LOOK: Duration = Duration::from_secs(2);
/// Minimum time of a bare client that other results are compared with.
const COMPARED: Duration = Duration::from_secs(2);
/// The default of a tablespace.
const THREADS: usize = 2;

/// The findings of a run.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    /// Version of forebay.
    forebay: String,
    /// The command line that repeats it.
    command: String,
    /// Start of the run, RFC 3339, UTC.
    started: String,
    seconds: f64,
    host: Host,
    url: String,
    /// Delay added to each request.
    latency: Option<String>,
    /// Maximum bytes a second of all requests together.
    bandwidth: Option<u64>,
    records: Vec<Record>,
    remarks: Vec<String>,
    #[serde(skip)]
    cells: Vec<RequestCell>,
    #[serde(skip)]
    parts: Vec<PartCell>,
}

/// The settings of a cell of the bare client, and its rounds.
#[derive(Debug, Serialize)]
struct RequestCell {
    op: &'static str,
    bytes: u64,
    in_flight: u32,
    #[serde(skip)]
    rounds: Vec<Rates>,
}

/// The settings of a part on the tablespace, and its rounds next to those of the bare client.
#[derive(Debug, Serialize)]
struct PartCell {
    part: &'static str,
    #[serde(skip)]
    rounds: Vec<Done>,
    /// In bytes a second; for parts that are compared.
    #[serde(skip)]
    bare: Vec<f64>,
}

/// Runs it.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) for an invalid address, credentials or server,
/// [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(crate) fn run(args: &ObjectArgs, version: &str, typed: Vec<String>) -> anyhow::Result<()> {
    start::start()?;
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    if args.clean {
        return clean(args);
    }
    let clock = Instant::now();
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let site = Site::reach(args)?;
    let findings = Findings {
        schema: SCHEMA,
        forebay: version.to_owned(),
        command: repeated(typed, None, args.seed),
        started,
        seconds: 0.0,
        host: Host::read(),
        url: args.url.clone(),
        latency: args.latency.map(|it| it.to_string()),
        bandwidth: args.bandwidth,
        records: Vec::new(),
        remarks: Vec::new(),
        cells: Vec::new(),
        parts: Vec::new(),
    };
    let mut measuring = Measuring { args, site, findings };
    let measured = measuring.all();
    let Measuring { site, mut findings, .. } = measuring;
    drop(site);
    measured?;
    findings.seconds = clock.elapsed().as_secs_f64();
    for cell in &findings.cells {
        findings.records.push(Record::new("object-requests", cell, &cell.rounds));
    }
    for cell in &findings.parts {
        findings.records.push(Record::new("object", cell, &view::rounds(cell)));
    }
    let json = args
        .json
        .as_deref()
        .map(|path| output::save(path, &(serde_json::to_string_pretty(&findings)? + "\n")));
    output::print(&view::drawn(&findings, args.thousand_gets, output::look()))?;
    json.unwrap_or(Ok(()))
}

/// The store and the place of this run in it.
struct Site {
    /// Removes all that was put, before the runtime that finishes PUTs is dropped.
    _cleanup: Cleanup,
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    prefix: Path,
}

impl Site {
    /// Opens the store, puts an object there and removes it.
    fn reach(args: &ObjectArgs) -> anyhow::Result<Site> {
        let (store, base) = store_at(&args.url)?;
        let base = Path::from(base);
        let name = format!("{}{:x}-{}", removing::PREFIX, args.seed, std::process::id());
        let prefix = base.clone().join(name);
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
        let gate = Arc::new(Gate::new(store, runtime.handle().clone()));
        let cleanup = {
            let (gate, url, prefix) = (Arc::clone(&gate), args.url.clone(), prefix.clone());
            Cleanup::new(move || removing::end(&gate, &url, &prefix))
        };
        let store: Arc<dyn ObjectStore> = match (args.latency, args.bandwidth) {
            (None, None) => Arc::clone(&gate) as _,
            (latency, bandwidth) => {
                Arc::new(Slowed::new(Arc::clone(&gate) as _, latency, bandwidth, args.seed))
            }
        };
        let site = Site { _cleanup: cleanup, store, runtime: Arc::new(runtime), prefix };
        site.try_out(&args.url, &*gate)?;
        let listed = async { timeout(LOOK, removing::left_below(&*gate, &base)).await };
        let left = site.runtime.block_on(listed).ok().and_then(Result::ok).unwrap_or_default();
        // The run's own directory exists already.
        let left = left.iter().filter(|it| **it != site.prefix).count();
        if left > 0 {
            let url = &args.url;
            note(&format!(
                "{url} has objects of {left} other runs; unless these are running, forebay lab object --url {url} --clean removes them"
            ));
        }
        Ok(site)
    }

    fn try_out(&self, url: &str, store: &dyn ObjectStore) -> anyhow::Result<()> {
        let path = self.prefix.clone().join("reach");
        let put_and_delete = async {
            again(|| {}, || store.put(&path, "x".into())).await?;
            again(|| {}, || store.delete(&path)).await
        };
        match self.runtime.block_on(async { timeout(REACH, put_and_delete).await }) {
            Ok(Ok(())) => Ok(()),
            Err(_) => bad_input!("{url}: no answer within {REACH:?}; is the server there?"),
            Ok(Err(error)) => bad_input!("{url}: {}", refused(&error)),
        }
    }
}

fn store_at(url: &str) -> anyhow::Result<(Arc<dyn ObjectStore>, String)> {
    match open(url, std::env::vars()) {
        Ok(opened) => Ok(opened),
        Err(error @ Error::Address { .. }) => bad_input!("{error}"),
        Err(error) => Err(error.into()),
    }
}

/// A hint for the user.
fn refused(error: &StoreError) -> String {
    let hint = match error {
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            "credentials are missing or not accepted; see --help for the variables that have them"
        }
        StoreError::NotFound { .. } => "it does not know the bucket or the key",
        StoreError::Generic { .. } if is_transient(error) => "it does not answer as a store does",
        StoreError::Generic { .. } => "it cannot be reached, or refuses the request",
        _ => "it does not take objects",
    };
    format!("{hint}: {}", in_short(error))
}

/// Removes the leftovers of killed runs.
fn clean(args: &ObjectArgs) -> anyhow::Result<()> {
    let (store, base) = store_at(&args.url)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(removing::left_below(&*store, &Path::from(base))) {
        Ok(left) => removing::remove_left(&args.url, &left),
        Err(error) => bad_input!("{}: {}", args.url, refused(&error)),
    }
}

struct Measuring<'a> {
    args: &'a ObjectArgs,
    site: Site,
    findings: Findings,
}

impl Measuring<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        let Site { store, runtime, prefix, .. } = &self.site;
        let bare =
            Bare::new(Arc::clone(store), Arc::clone(runtime), prefix.clone(), self.args.seed)?;
        if self.args.parts.contains(&ObjectPart::Requests) {
            self.requests(&bare)?;
        }
        if self.args.parts.iter().any(|part| *part != ObjectPart::Requests) {
            self.parts(&bare)?;
        }
        let repeats = bare.repeats();
        if repeats > 0 {
            let remark = format!("{repeats} requests of the bare client failed and were repeated");
            self.findings.remarks.push(remark);
        }
        Ok(())
    }

    fn requests(&mut self, bare: &Bare) -> anyhow::Result<()> {
        let (sizes, numbers) = (sorted(&self.args.sizes), sorted(&self.args.in_flight));
        let of = |op, bytes| {
            let cell = move |&in_flight: &u32| RequestCell { op, bytes, in_flight, rounds: vec![] };
            numbers.iter().map(cell)
        };
        let mut cells: Vec<RequestCell> = sizes
            .iter()
            .flat_map(|&bytes| of("GET", bytes))
            .chain(of("PUT", OBJECT_BYTES))
            .collect();
        let rounds = u64::from(self.args.rounds);
        let mut progress = Progress::new(rounds * cells.len() as u64);
        for round in 0..rounds {
            for cell in &mut cells {
                interrupt::check()?;
                let RequestCell { op, bytes, in_flight, .. } = *cell;
                progress.step(&format!("{op} of {bytes} bytes, {in_flight} in flight"));
                cell.rounds.push(match op {
                    "GET" => bare.get(bytes, in_flight, self.args.time, self.args.seed ^ round)?,
                    _ => bare.put("put", u64::from(in_flight).max(16), in_flight)?,
                });
            }
        }
        self.findings.cells = cells;
        Ok(())
    }

    /// The number in flight at which the bare client was best; if that was not measured, the largest.
    fn best(&self, op: &str, bytes: u64) -> u32 {
        let cells = self.findings.cells.iter().filter(|it| it.op == op && it.bytes == bytes);
        let best = cells.max_by(|a, b| view::middle(&a.rounds).total_cmp(&view::middle(&b.rounds)));
        let largest = || self.args.in_flight.iter().copied().max().unwrap_or(1);
        best.map_or_else(largest, |it| it.in_flight)
    }

    fn parts(&mut self, bare: &Bare) -> anyhow::Result<()> {
        let args = self.args;
        let (large, small, puts) = (
            self.best("GET", OBJECT_BYTES),
            self.best("GET", PAGE),
            self.best("PUT", OBJECT_BYTES),
        );
        let prefix = self.site.prefix.clone().join("space").to_string();
        let mut progress = Progress::new(1 + u64::from(args.rounds) * args.parts.len() as u64);
        progress.step("a tablespace is written");
        let (store, runtime) = (Arc::clone(&self.site.store), Arc::clone(&self.site.runtime));
        let in_flight = large.max(small);
        let made = Space::new(store, runtime, &prefix, in_flight, args.data, args.memory);
        let space = match made {
            Err(error) if matches!(error.downcast_ref(), Some(Error::NotConditional { .. })) => {
                let why = format!("only requests were measured: {error}");
                self.findings.remarks.push(why);
                return Ok(());
            }
            made => made?,
        };
        let costs = space.costs();
        self.findings.remarks.push(format!(
            "the mount assumes {:.1?} a request and {:.2?} a MiB",
            costs.request, costs.mebibyte
        ));
        let time = args.time.max(COMPARED);
        let mut rng = Rng::with_seed(args.seed);
        // Scans read pages in the order of their first writes; checkpoints scatter them.
        let (last, first): (Vec<_>, Vec<_>) =
            args.parts.iter().copied().partition(|part| *part == ObjectPart::Checkpoint);
        let rounds = |parts: Vec<ObjectPart>| {
            (0..u64::from(args.rounds))
                .flat_map(move |round| parts.clone().into_iter().map(move |part| (round, part)))
        };
        for (round, part) in rounds(first).chain(rounds(last)) {
            interrupt::check()?;
            progress.step(&format!("{part:?}").to_lowercase());
            let seed = args.seed ^ round;
            match part {
                ObjectPart::Requests => {}
                ObjectPart::Checkpoint => {
                    let done = space.checkpoint(&mut rng)?;
                    // As many objects as were needed, without the manifest.
                    let bare = bare.put("put", done.requests.max(2) - 1, puts)?;
                    self.keep("checkpoint", done, Some(bare.bytes_per_s));
                }
                ObjectPart::Scan => {
                    let bare_rate = bare.get(OBJECT_BYTES, large, time, seed)?.bytes_per_s;
                    let done = space.read(Reading::Scan, &mut rng)?;
                    self.keep("scan, read ahead", done, Some(bare_rate));
                    let done = space.read(Reading::PageByPage(args.pages.min(200)), &mut rng)?;
                    self.keep("scan, page by page", done, Some(bare_rate));
                }
                ObjectPart::Random => {
                    let bare_rate = bare.get(PAGE, small, time, seed)?.bytes_per_s;
                    let done = space.read(Reading::Random(args.pages), &mut rng)?;
                    self.keep("random, all known ahead", done, Some(bare_rate));
                    let done = space.read(Reading::Local(args.pages), &mut rng)?;
                    self.keep("local, all known ahead", done, Some(bare_rate));
                }
                ObjectPart::Single => {
                    for (name, hedge) in [("single", false), ("single, hedged", true)] {
                        let store = Arc::clone(&self.site.store);
                        let done = space.single(store, &prefix, hedge, args.pages, seed)?;
                        self.keep(name, done, None);
                    }
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, part: &'static str, done: Done, bare: Option<f64>) {
        let parts = &mut self.findings.parts;
        let at = parts.iter().position(|it| it.part == part).unwrap_or_else(|| {
            parts.push(PartCell { part, rounds: Vec::new(), bare: Vec::new() });
            parts.len() - 1
        });
        parts[at].rounds.push(done);
        parts[at].bare.extend(bare);
    }
}
