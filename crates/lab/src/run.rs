//! A run from beginning to end: check, gather facts, make the file, measure, report.

use std::path::Path;
use std::time::{Instant, SystemTime};

use anyhow::Context;

use crate::cli::{Cli, Command, LabArgs, OutputArgs, repeated};
use crate::compare;
use crate::device::{self, Effort};
use crate::emulate;
use crate::experiment::{Bench, Choice, Experiment, Ground, Outcome};
use crate::explain;
use crate::facts::{CounterSource, Host, Storage};
use crate::ground::ledger;
use crate::ground::on::{self, OnDisk};
use crate::interrupt;
use crate::output::{self, Outputs};
use crate::progress::{Progress, Unit};
use crate::report::{self, Conclusion, DeviceSummary, Report, Section};
use crate::workfile::{self, Workfile};

/// Does what the command line says.
///
/// # Errors
/// [`BadInput`](crate::BadInput), [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub fn run(cli: &Cli) -> anyhow::Result<()> {
    let lab = match &cli.command {
        Command::Emulate(args) => return emulate::run(args),
        Command::Compare(args) => return compare::run(args),
        Command::Explain(args) => {
            prepare()?;
            return explain::run(args, &program());
        }
        Command::Lab(lab) => lab,
    };
    prepare()?;
    let mut choices = lab.choices();
    let named = choices[0].args().0.clone();
    // Settings that make no sense are told of before anything is started.
    let needed = || Ok(experiments(&choices)?.iter().map(|one| one.space_bytes()).sum());
    let on = OnDisk::start(&lab.on, &named.dir, needed)?;
    if let Some(on) = &on {
        for choice in &mut choices {
            on.directory().clone_into(&mut choice.args().0.dir);
        }
    }
    let command =
        repeated(std::env::args_os().map(|word| word.to_string_lossy().into_owned()), &named);
    let done = measure(lab, &mut choices, on.as_ref(), command);
    match (on, done) {
        (None, done) => done,
        (Some(on), Ok(())) => on.remove(),
        (Some(on), Err(error)) => Err(on.blamed(error)),
    }
}

fn experiments(choices: &[Choice]) -> anyhow::Result<Vec<Box<dyn Experiment>>> {
    choices.iter().map(Choice::experiment).collect()
}

/// Measures all of `choices`, on the emulated disk `on` if there is one. `command`: what repeats the run.
fn measure(
    lab: &LabArgs,
    choices: &mut [Choice],
    on: Option<&OnDisk>,
    command: String,
) -> anyhow::Result<()> {
    let experiments = experiments(choices)?;
    let (outputs, effort) = match lab.experiment {
        None => (Outputs::within(&lab.report)?, Effort::full(lab.device)),
        Some(_) => {
            let OutputArgs { json, html } = choices[0].args().1;
            let outputs = Outputs::files(json.as_deref(), html.as_deref())?;
            (outputs, Effort::short(lab.device))
        }
    };
    let largest = experiments.iter().map(|one| one.space_bytes()).max().unwrap_or(0);
    let mut run = Run::begin(&experiments[0].ground().directory, on, largest, effort)?;
    for experiment in &experiments {
        run.measure(&**experiment)?;
    }
    run.report(command, &outputs)
}

/// What comes before anything is looked at: what a killed run left would be measured.
fn prepare() -> anyhow::Result<()> {
    interrupt::install()?;
    for told in ledger::sweep() {
        output::tell(&told);
    }
    Ok(())
}

/// A run that is under way.
struct Run<'a> {
    on: Option<&'a OnDisk>,
    clock: Instant,
    started: SystemTime,
    storage: Storage,
    counters: Option<CounterSource>,
    found: Outcome,
    effort: Effort,
    /// What the disk itself does, once that was measured.
    device: Option<DeviceSummary>,
    sections: Vec<Section>,
}

impl<'a> Run<'a> {
    /// In `directory`, where files of `size_bytes` have to fit, and which lies on `on`.
    fn begin(
        directory: &Path,
        on: Option<&'a OnDisk>,
        size_bytes: u64,
        effort: Effort,
    ) -> anyhow::Result<Run<'a>> {
        let (clock, started) = (Instant::now(), SystemTime::now());
        workfile::check_directory(directory, size_bytes)?;
        let mut storage = Storage::read(directory)
            .with_context(|| format!("cannot look at {}", directory.display()))?;
        let counters = counter_source(&mut storage);
        let (found, sections) = (Outcome::default(), Vec::new());
        Ok(Run { on, clock, started, storage, counters, found, effort, device: None, sections })
    }

    /// Makes the working file, lets `experiment` measure on it, and keeps what it found.
    fn measure(&mut self, experiment: &dyn Experiment) -> anyhow::Result<()> {
        let ground = experiment.ground();
        let Ground { directory, size_bytes, block_bytes, seed, naming } = ground;
        let mut workfile = Workfile::create(&directory, size_bytes, block_bytes, seed, naming)?;
        let measuring = experiment.probe(&self.bench(&workfile))?;
        let mut filling = Progress::new(size_bytes, Unit::Bytes);
        on::untimed(self.on, || {
            workfile.fill(|written| filling.reach(written, "writing the working file"))
        })?;
        drop(filling);

        if self.device.is_none() {
            self.measure_device(&workfile)?;
        }
        let mut progress = Progress::new(experiment.measurements(), Unit::Measurements);
        let mut begun = 0;
        let outcome = measuring(&self.bench(&workfile), &mut |label| {
            begun += 1;
            progress.reach(begun, label);
        })?;
        self.found.records.extend(outcome.records);
        self.found.verdicts.extend(outcome.verdicts);
        self.found.advice.extend(outcome.advice);
        self.found.conclusions.extend(outcome.conclusions);
        self.sections.push(outcome.section);
        for note in outcome.backends {
            let known = self.found.backends.iter().any(|other| other.backend == note.backend);
            if !known {
                self.found.backends.push(note);
            }
        }
        Ok(())
    }

    /// Measures the disk itself, before anything else.
    fn measure_device(&mut self, workfile: &Workfile) -> anyhow::Result<()> {
        let mut measuring = Progress::new(1, Unit::Measurements);
        measuring.reach(0, "the disk itself");
        let summary = device::measure(&self.bench(workfile), &self.effort)?;
        self.found.conclusions.extend(summary.burst.as_ref().map(|burst| Conclusion {
            experiment: "device".to_owned(),
            sentence: device::told(burst),
            setting: String::new(),
            value: String::new(),
        }));
        self.device = Some(summary);
        Ok(())
    }

    fn bench<'b>(&'b self, workfile: &'b Workfile) -> Bench<'b> {
        let counters = self.counters.as_ref();
        Bench { workfile, storage: &self.storage, counters, on: self.on }
    }

    /// Writes and shows what was found. `command`: what repeats the run.
    fn report(self, command: String, outputs: &Outputs) -> anyhow::Result<()> {
        let report = Report {
            schema: report::SCHEMA.to_owned(),
            forebay: version(),
            command,
            started: humantime::format_rfc3339_seconds(self.started).to_string(),
            seconds: self.clock.elapsed().as_secs_f64(),
            host: Host::read(),
            storage: self.storage,
            backends: self.found.backends,
            records: self.found.records,
            device: self.device,
            verdicts: self.found.verdicts,
            advice: self.found.advice,
            conclusions: self.found.conclusions,
        };
        // The files first, and the summary also if they could not be written: it took a minute.
        let written = outputs.write(&report, &self.sections);
        outputs.show(&report, &self.sections, written.is_ok())?;
        written
    }
}

/// How this program was called, so that the reader of a report can call it again.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or_else(|| "forebay".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The device's counters, or a remark why there are none.
fn counter_source(storage: &mut Storage) -> Option<CounterSource> {
    match CounterSource::of(storage) {
        Ok(source) => source,
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
