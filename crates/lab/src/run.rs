//! A run from beginning to end: check, gather facts, make the file, measure, report.

#[cfg(not(feature = "object"))]
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::args::{CommonArgs, repeated};
use crate::device::{self, DeviceArgs};
use crate::experiment::{Bench, Choice, Experiment, Measurements, Outcome, WorkfileSpec};
#[cfg(feature = "object")]
use crate::object::{self, ObjectArgs};
use crate::on::{self, OnArgs, OnDisk};
use forebay_measure::facts::{CounterSource, Host, Storage, Sysfs};
use forebay_measure::output::{self, Outputs};
use forebay_measure::progress::Progress;
use forebay_measure::report::{self, Conclusion, Report, Section, terminal};
use forebay_measure::start;
use forebay_measure::workfile::{self, Workfile};
use forebay_measure::{DiskRun, bad_input};

/// `forebay lab`.
#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without an experiment, all of them run with quick settings (about two \
                  minutes) and a report is written to forebay-report/.\n\
                  The working file is made in --dir and removed afterwards, also after Ctrl-C. \
                  Those of depth and sync have no name while they are used where the system allows that, and \
                  leave nothing even after a kill; the others are in a directory .forebay-lab-*, which the \
                  next start removes.\n\n\
                  Example: forebay lab depth --emulate raid10-12 --fs ext4"
)]
pub struct LabArgs {
    /// The one experiment to run.
    #[command(subcommand)]
    pub experiment: Option<Measured>,
    /// The place and the conditions.
    #[command(flatten)]
    pub common: CommonArgs,
    /// An emulated disk, instead of a real one.
    #[command(flatten)]
    pub on: OnArgs,
    /// The disk itself, which is measured first.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Directory for index.html and report.json
    #[arg(long, value_name = "DIR", default_value = "forebay-report")]
    pub report: PathBuf,
}

/// The options of `forebay lab`.
#[derive(Debug, Clone, Subcommand)]
pub enum Measured {
    /// A disk.
    #[command(flatten)]
    Disk(Choice),
    /// An object store: its requests, and a tablespace on it
    #[cfg(feature = "object")]
    Object(Box<ObjectArgs>),
    /// An object store, by a forebay that is built with --features object
    #[cfg(not(feature = "object"))]
    #[command(disable_help_flag = true)]
    Object {
        /// What that would take.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<OsString>,
    },
}

/// Runs `lab`. `version`: of the command, for its reports; `typed`: the command line, for a reader who repeats it.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub fn run(lab: &LabArgs, version: &str, typed: Vec<String>) -> anyhow::Result<()> {
    let one = match &lab.experiment {
        #[cfg(feature = "object")]
        Some(Measured::Object(_)) if lab.on.emulate.is_some() => {
            bad_input!("an object store is measured without --emulate; --latency makes it slower")
        }
        #[cfg(feature = "object")]
        Some(Measured::Object(args)) => return object::run(args, version, typed),
        #[cfg(not(feature = "object"))]
        Some(Measured::Object { .. }) => bad_input!(
            "object stores are not in this build: cargo build --release -p forebay-cli --features object"
        ),
        Some(Measured::Disk(choice)) => Some(vec![choice.clone()]),
        None => None,
    };
    start::start()?;
    let mut choices = one.unwrap_or_else(|| Choice::all(&lab.common));
    let named = choices[0].args().0.clone();
    // Invalid settings are reported before anything is started.
    let needed = || Ok(experiments(&choices)?.iter().map(|one| one.space_bytes()).sum());
    let on = OnDisk::start(&lab.on, &named.dir, needed)?;
    if let Some(on) = &on {
        for choice in &mut choices {
            on.directory().clone_into(&mut choice.args().0.dir);
        }
    }
    let done = measure(
        lab,
        &mut choices,
        on.as_ref(),
        Called { version, command: repeated(typed, Some(&named.dir), named.seed) },
    );
    match (on, done) {
        (None, done) => done,
        (Some(on), Ok(())) => on.remove(),
        (Some(on), Err(error)) => Err(on.with_cause(error)),
    }
}

fn experiments(choices: &[Choice]) -> anyhow::Result<Vec<Box<dyn Experiment>>> {
    choices.iter().map(Choice::experiment).collect()
}

/// What a report says of the call.
struct Called<'a> {
    version: &'a str,
    /// The command line that repeats it.
    command: String,
}

/// Measures all of `choices`, on the emulated disk `on` if there is one.
fn measure(
    lab: &LabArgs,
    choices: &mut [Choice],
    on: Option<&OnDisk>,
    called: Called<'_>,
) -> anyhow::Result<()> {
    let experiments = experiments(choices)?;
    let (outputs, device) = match lab.experiment {
        None => (Outputs::within(&lab.report)?, lab.device),
        Some(_) => (
            {
                let files = choices[0].args().1.clone();
                Outputs::files(files.json, files.html)?
            },
            DeviceArgs::short(lab.device.sustained),
        ),
    };
    let (report, sections) = measured(&experiments, device, on, called)?;
    // The files first, and the summary even if they could not be written: the run took a minute.
    let written = outputs.write(&report, &sections);
    let files = written.as_deref().unwrap_or("");
    output::print(&(terminal::summary(&report, &sections, output::look()) + files))?;
    written.map(drop)
}

/// Runs `experiments` on the disk under the directory of the first, or on the emulated disk `on`.
fn measured(
    experiments: &[Box<dyn Experiment>],
    device: DeviceArgs,
    on: Option<&OnDisk>,
    called: Called<'_>,
) -> anyhow::Result<(Report, Vec<Section>)> {
    let clock = Instant::now();
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let directory = experiments[0].workfile_spec().directory;
    let largest = experiments.iter().map(|one| one.space_bytes()).max().unwrap_or(0);
    workfile::check_directory(&directory, largest)?;
    let mut storage = Storage::read(&directory)
        .with_context(|| format!("cannot look at {}", directory.display()))?;
    let counters = CounterSource::of(&Sysfs::system(), &storage).unwrap_or_else(|error| {
        if storage.device_remark.is_empty() {
            storage.device_remark = format!("{error:#}");
        }
        None
    });
    let report = Report {
        schema: report::SCHEMA.to_owned(),
        forebay: called.version.to_owned(),
        command: called.command,
        started,
        host: Host::read(),
        storage,
        ..Report::default()
    };
    let mut run = Run { on, counters, device, report, sections: Vec::new() };
    let measured = experiments.iter().map(|experiment| run.measure(&**experiment));
    let measured = measured.collect::<anyhow::Result<Vec<Measurements<'_>>>>()?;
    // No conclusion contradicts the noise floor of another experiment.
    let floor = measured.iter().find_map(|it| it.floor).unwrap_or_default();
    for one in measured {
        let outcome = (one.conclude)(&run.report.storage, floor);
        run.keep(outcome);
    }
    run.report.seconds = clock.elapsed().as_secs_f64();
    Ok((run.report, run.sections))
}

/// Measures the disks of a server.
#[derive(Debug)]
pub struct Laboratory<'a> {
    /// Version of the command, for reports.
    pub version: &'a str,
}

impl forebay_measure::Laboratory for Laboratory<'_> {
    fn space_bytes(&self, run: &DiskRun) -> anyhow::Result<u64> {
        let experiments = experiments(&Choice::of_postgres(run))?;
        Ok(experiments.iter().map(|one| one.space_bytes()).max().unwrap_or(0))
    }

    fn measure(&self, run: &DiskRun) -> anyhow::Result<Report> {
        let words = ["forebay".to_owned(), "lab".to_owned()];
        let command = repeated(words, Some(&run.directory), run.seed);
        let experiments = experiments(&Choice::of_postgres(run))?;
        let called = Called { version: self.version, command };
        Ok(measured(&experiments, DeviceArgs::short(run.sustained), None, called)?.0)
    }
}

/// A run in progress.
struct Run<'a> {
    on: Option<&'a OnDisk>,
    counters: Option<CounterSource>,
    device: DeviceArgs,
    /// The results so far.
    report: Report,
    sections: Vec<Section>,
}

impl Run<'_> {
    /// Makes the working file, and lets `experiment` measure on it.
    fn measure<'e>(&mut self, experiment: &'e dyn Experiment) -> anyhow::Result<Measurements<'e>> {
        let workfile_spec = experiment.workfile_spec();
        let WorkfileSpec { directory, size_bytes, block_bytes, seed, naming } = workfile_spec;
        let mut workfile = Workfile::create(&directory, size_bytes, block_bytes, seed, naming)?;
        let measuring = experiment.probe(&self.bench(&workfile))?;
        let mut filling = Progress::new(size_bytes >> 20);
        on::without_timing(self.on, || {
            workfile.fill(|written| filling.reach(written >> 20, "MiB of the working file written"))
        })?;
        drop(filling);

        if self.report.device.is_none() {
            let mut measuring = Progress::new(1);
            measuring.reach(0, "the disk itself");
            let summary = device::measure(&self.bench(&workfile), &self.device)?;
            let sentence = summary.burst.as_ref().map(ToString::to_string);
            self.report.conclusions.extend(Conclusion::all("device", sentence));
            self.report.device = Some(summary);
        }
        let mut progress = Progress::new(experiment.measurements());
        let mut begun = 0;
        measuring(&self.bench(&workfile), &mut |label| {
            begun += 1;
            progress.reach(begun, label);
        })
    }

    fn keep(&mut self, outcome: Outcome) {
        let report = &mut self.report;
        report.records.extend(outcome.records);
        report.verdicts.extend(outcome.verdicts);
        report.advice.extend(outcome.advice);
        report.conclusions.extend(outcome.conclusions);
        for note in outcome.backends {
            if report.backends.iter().all(|other| other.backend != note.backend) {
                report.backends.push(note);
            }
        }
        self.sections.push(outcome.section);
    }

    fn bench<'b>(&'b self, workfile: &'b Workfile) -> Bench<'b> {
        let counters = self.counters.as_ref();
        Bench { workfile, storage: &self.report.storage, counters, on: self.on }
    }
}
