//! A run from beginning to end: check, gather facts, make the file, measure, report.
// The one place, with `main`, that writes to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{Cli, Command, DepthArgs, Experiment, LabArgs};
use crate::experiment::depth;
use crate::facts::{CounterSource, Host, Storage};
use crate::report::{self, Report, terminal::Look};
use crate::workfile::{self, Workfile};
use crate::{bad_input, interrupt};

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

/// Where to write a report.
struct Outputs {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
}

/// `forebay lab`: every experiment there is, quickly.
fn all(lab: &LabArgs) -> anyhow::Result<()> {
    let settings = depth::Settings::new(&DepthArgs::quick(&lab.common))?;
    workfile::check_directory(&settings.directory, settings.size_bytes)?;
    std::fs::create_dir_all(&lab.report).map_err(|error| {
        crate::BadInput(format!(
            "cannot make the report directory {}: {error}; choose another with --report",
            lab.report.display()
        ))
    })?;
    let outputs = Outputs {
        json: Some(lab.report.join("report.json")),
        html: Some(lab.report.join("index.html")),
    };
    let result = measure(&settings, &outputs);
    if result.is_err() {
        // Only goes if this run made it and put nothing in it.
        let _ = std::fs::remove_dir(&lab.report);
    }
    result
}

/// `forebay lab depth`.
fn one(args: &DepthArgs) -> anyhow::Result<()> {
    let settings = depth::Settings::new(args)?;
    let outputs = Outputs { json: args.json.clone(), html: args.html.clone() };
    for path in [&outputs.json, &outputs.html].into_iter().flatten() {
        check_output(path)?;
    }
    measure(&settings, &outputs)
}

/// Better before a minute of measuring than after it.
fn check_output(path: &Path) -> anyhow::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() {
        bad_input!("{} is a directory; name a file to write", path.display());
    }
    if !parent.is_dir() {
        bad_input!("{}: there is no directory {}", path.display(), parent.display());
    }
    Ok(())
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
    let progress = Progress::new();
    let filling = progress.bar(settings.size_bytes, "{bytes}/{total_bytes}");
    filling.set_message("writing the working file");
    workfile.fill(|written| filling.set_position(written))?;
    filling.finish_and_clear();

    let measuring = progress.bar(settings.measurements(), "{pos}/{len}");
    let outcome = depth::run(settings, &workfile, means, counters.as_ref(), |label| {
        measuring.set_message(label.to_owned());
        measuring.inc(1);
    })?;
    measuring.finish_and_clear();
    drop(workfile);

    let report = Report {
        schema: report::SCHEMA.to_owned(),
        forebay: version(),
        command: settings.command(),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        host: Host::read(),
        storage,
        backends: outcome.backends,
        records: outcome.records,
        advice: outcome.advice,
    };
    show(&report);
    write(&report, outputs)
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

fn show(report: &Report) {
    let stdout = std::io::stdout();
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .is_none_or(|value| value.to_lowercase().replace('-', "").contains("utf8"));
    let width = match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 100,
    };
    print!("{}", report::summary(report, Look { width, colour, ascii: !utf8 }));
}

fn write(report: &Report, outputs: &Outputs) -> anyhow::Result<()> {
    if let Some(path) = &outputs.json {
        let text = serde_json::to_string_pretty(report)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("records: {}", path.display());
    }
    if let Some(path) = &outputs.html {
        std::fs::write(path, report::html::render(report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("report:  {}", path.display());
    }
    Ok(())
}

/// Progress bars on a terminal; now and then a line when the output goes elsewhere.
struct Progress {
    visible: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { visible: std::io::stderr().is_terminal() }
    }

    fn bar(&self, len: u64, counter: &str) -> ProgressBar {
        if !self.visible {
            return ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        }
        let template = format!("{{bar:28}} {counter} {{wide_msg}} {{elapsed}} (left {{eta}})");
        let bar = ProgressBar::new(len);
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}
