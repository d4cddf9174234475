//! A run from beginning to end: check, gather facts, make the file, measure, report.

use std::path::Path;
use std::time::{Instant, SystemTime};

use anyhow::Context;

use crate::cli::{Cli, Command, CommonArgs, LabArgs, OutputArgs};
use crate::compare;
use crate::device::{self, DeviceArgs, Effort};
use crate::emulate;
use crate::experiment::{Bench, Choice, Experiment, Ground, Outcome, quoted};
use crate::explain;
use crate::facts::{CounterSource, Host, Storage};
use crate::ground::ledger;
use crate::ground::on::{self, OnDisk};
use crate::interrupt;
use crate::output::{self, Outputs};
use crate::progress::Progress;
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
    // Settings that make no sense are told of before anything is started.
    let Some(on) = OnDisk::start(&lab.on, &lab.common().dir, || needed_bytes(lab))? else {
        return lab_in_place(lab, None);
    };
    match lab_in_place(&lab.in_directory(on.directory()), Some(&on)) {
        Ok(()) => on.remove(),
        Err(error) => Err(on.blamed(error)),
    }
}

/// Bytes of files that the experiments write, one after the other.
fn needed_bytes(lab: &LabArgs) -> anyhow::Result<u64> {
    match &lab.experiment {
        None => Ok(all(&lab.common)?.iter().map(|one| one.space_bytes()).sum()),
        Some(choice) => Ok(choice.experiment()?.space_bytes()),
    }
}

/// What `lab` says, in the directory that it names; `on`: the emulated disk that this lies on.
fn lab_in_place(lab: &LabArgs, on: Option<&OnDisk>) -> anyhow::Result<()> {
    let Some(mut choice) = lab.experiment.clone() else { return run_all(lab, on) };
    let experiment = choice.experiment()?;
    run_one(&*experiment, Under { disk: on, device: lab.device }, choice.args().1)
}

/// What comes before anything is looked at: what a killed run left would be measured.
fn prepare() -> anyhow::Result<()> {
    interrupt::install()?;
    for told in ledger::sweep() {
        output::tell(&told);
    }
    Ok(())
}

/// Every experiment there is, with quick settings.
fn all(common: &CommonArgs) -> anyhow::Result<Vec<Box<dyn Experiment>>> {
    Choice::all(common).iter().map(Choice::experiment).collect()
}

/// `forebay lab`: every experiment there is, quickly.
fn run_all(lab: &LabArgs, on: Option<&OnDisk>) -> anyhow::Result<()> {
    // One seed for all, so that the command below repeats all of them.
    let seed = lab.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let all = all(&CommonArgs { seed: Some(seed), ..lab.common.clone() })?;
    let outputs = Outputs::within(&lab.report)?;
    let largest = all.iter().map(|one| one.space_bytes()).max().unwrap_or(0);
    let directory = all[0].ground().directory;
    let mut run = Run::begin(&directory, on, largest)?;
    run.effort = Effort::full(lab.device);
    for experiment in &all {
        run.measure(&**experiment)?;
    }
    let report = std::path::absolute(&lab.report).unwrap_or_else(|_| lab.report.clone());
    let command = format!(
        "{} lab --dir {} --seed {seed} --report {}",
        quoted(&program()),
        quoted(&directory.display().to_string()),
        quoted(&report.display().to_string()),
    );
    run.report(&with_sustained(command, lab.device), &outputs)
}

/// What lies under a single experiment.
#[derive(Debug, Clone, Copy)]
struct Under<'a> {
    /// The emulated disk, if it is one.
    disk: Option<&'a OnDisk>,
    /// How the disk itself is measured.
    device: DeviceArgs,
}

fn with_sustained(command: String, device: DeviceArgs) -> String {
    match device.sustained {
        Some(time) => {
            let time = humantime::format_duration(time).to_string();
            format!("{command} --sustained {}", time.replace(' ', ""))
        }
        None => command,
    }
}

/// One experiment alone.
fn run_one(experiment: &dyn Experiment, on: Under<'_>, files: &OutputArgs) -> anyhow::Result<()> {
    let outputs = Outputs::files(files.json.as_deref(), files.html.as_deref())?;
    let ground = experiment.ground();
    let mut run = Run::begin(&ground.directory, on.disk, ground.size_bytes)?;
    run.effort = Effort::short(on.device);
    run.measure(experiment)?;
    run.report(&with_sustained(experiment.command(&program()), on.device), &outputs)
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
    /// In `directory`, where a file of `size_bytes` has to fit, and which lies on `on`.
    fn begin(directory: &Path, on: Option<&'a OnDisk>, size_bytes: u64) -> anyhow::Result<Run<'a>> {
        let (clock, started) = (Instant::now(), SystemTime::now());
        workfile::check_directory(directory, size_bytes)?;
        let mut storage = Storage::read(directory)
            .with_context(|| format!("cannot look at {}", directory.display()))?;
        let counters = counter_source(&mut storage);
        let found = Outcome::default();
        let (effort, sections) = (Effort::short(DeviceArgs::default()), Vec::new());
        Ok(Run { on, clock, started, storage, counters, found, effort, device: None, sections })
    }

    /// Makes the working file, lets `experiment` measure on it, and keeps what it found.
    fn measure(&mut self, experiment: &dyn Experiment) -> anyhow::Result<()> {
        let ground = experiment.ground();
        let Ground { directory, size_bytes, block_bytes, seed, naming } = ground;
        let mut workfile = Workfile::create(&directory, size_bytes, block_bytes, seed, naming)?;
        let measuring = experiment.probe(&self.bench(&workfile))?;
        let mut filling = Progress::new(size_bytes >> 20);
        on::untimed(self.on, || {
            workfile.fill(|written| filling.reach(written >> 20, "MiB of the working file written"))
        })?;
        drop(filling);

        if self.device.is_none() {
            self.measure_device(&workfile)?;
        }
        let mut progress = Progress::new(experiment.measurements());
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
        let mut measuring = Progress::new(1);
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
    fn report(self, command: &str, outputs: &Outputs) -> anyhow::Result<()> {
        let command = self.on.map_or_else(|| command.to_owned(), |on| on.retold(command));
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
