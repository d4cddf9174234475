//! A run from beginning to end: check, gather facts, make the file, measure, report.

use std::time::{Instant, SystemTime};

use anyhow::Context;

use crate::cli::{Cli, Command, DepthArgs, Experiment, LabArgs};
use crate::experiment::depth;
use crate::facts::{CounterSource, Host, Storage};
use crate::interrupt;
use crate::output::Outputs;
use crate::progress::{Progress, Unit};
use crate::report::{self, Report};
use crate::workfile::{self, Workfile};

/// Does what the command line says.
///
/// # Errors
/// [`BadInput`](crate::BadInput), [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub fn run(cli: &Cli) -> anyhow::Result<()> {
    let Command::Lab(lab) = &cli.command;
    interrupt::install()?;
    match &lab.experiment {
        Some(Experiment::Depth(args)) => one(args),
        None => all(lab),
    }
}

/// `forebay lab`: every experiment there is, quickly.
fn all(lab: &LabArgs) -> anyhow::Result<()> {
    let settings = depth::Settings::new(&DepthArgs::quick(&lab.common))?;
    measure(&settings, &Outputs::within(&lab.report)?)
}

/// `forebay lab depth`.
fn one(args: &DepthArgs) -> anyhow::Result<()> {
    let settings = depth::Settings::new(args)?;
    measure(&settings, &Outputs::files(args.json.as_deref(), args.html.as_deref())?)
}

fn measure(settings: &depth::Settings, outputs: &Outputs) -> anyhow::Result<()> {
    let (clock, started) = (Instant::now(), SystemTime::now());
    workfile::check_directory(&settings.directory, settings.size_bytes)?;
    let mut storage = Storage::read(&settings.directory)
        .with_context(|| format!("cannot look at {}", settings.directory.display()))?;
    let counters = counter_source(&mut storage);

    let mut workfile = Workfile::create(
        &settings.directory,
        settings.size_bytes,
        settings.block_bytes,
        settings.seed,
    )?;
    let means = depth::Means::probe(settings, &workfile)?;
    let mut filling = Progress::new(settings.size_bytes, Unit::Bytes);
    workfile.fill(|written| filling.reach(written, "writing the working file"))?;
    drop(filling);

    let mut measuring = Progress::new(settings.measurements(), Unit::Measurements);
    let mut begun = 0;
    let outcome = depth::run(settings, &workfile, means, counters.as_ref(), |label| {
        begun += 1;
        measuring.reach(begun, label);
    })?;
    drop(measuring);
    drop(workfile);

    let report = Report {
        schema: report::SCHEMA.to_owned(),
        forebay: version(),
        command: settings.command(&program()),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        host: Host::read(),
        storage,
        backends: outcome.backends,
        records: outcome.records,
        advice: outcome.advice,
    };
    // The files first, and the summary also if they could not be written: it took a minute.
    let written = outputs.write(&report);
    outputs.show(&report, written.is_ok())?;
    written
}

/// How this program was called, so that the reader of a report can call it again.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or_else(|| "forebay".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The device's counters, or a remark why there are none.
fn counter_source(storage: &mut Storage) -> Option<CounterSource> {
    let device = storage.device.as_ref()?;
    match CounterSource::open(device) {
        Ok(source) => Some(source),
        Err(error) => {
            if storage.device_remark.is_empty() {
                storage.device_remark = error.to_string();
            }
            None
        }
    }
}

fn version() -> String {
    match option_env!("FOREBAY_COMMIT") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
