//! `forebay emulate`: an emulated disk, mounted until the user ends it.
//!
//! One line on standard output says that the disk is mounted; the process that started this waits for it. At the end
//! another line says how well the emulation kept its times.

mod args;
mod child;
#[cfg(target_os = "linux")]
mod parent;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use forebay_emulate::profile::Profile;
use forebay_emulate::serve::{self, Data, Emulation, Error, Options};

pub use args::EmulateArgs;
pub(crate) use args::parse_speed_up;
pub use child::{Emulated, EmulatedOptions};

use forebay_measure::bad_input;
use forebay_measure::{facts, interrupt, output};

/// Maximum memory for data if the system does not report how much there is.
const MEMORY_BYTES: u64 = 1 << 30;

/// Mounts the disk of `args`, and serves it until the end.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) for what the user can change, else what went wrong.
pub fn run(args: &EmulateArgs) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    let (Some(spec), Some(mount_point)) = (&args.profile, &args.mount_point) else {
        bad_input!("name a profile and a mount point, or use --list");
    };
    let profile =
        Profile::load(spec).map_err(|error| forebay_measure::BadInput(error.to_string()))?;
    let data = Some(&args.data).filter(|path| *path != Path::new("memory"));
    for path in args.log.iter().chain(data) {
        output::check_file(path)?;
    }
    // Before the mount, so that no signal finds it unguarded.
    let (ended, end) = channel();
    listen(args, &ended)?;
    let emulation = mount(args, &profile, mount_point, ended)?;
    emulation.end_process_on_panic();
    output::print(&format!(
        "mounted {} ({}) on {}; Ctrl-C unmounts\n",
        profile.name,
        profile.about,
        emulation.mount_point().display()
    ))?;
    // An error means that no sender is left, which cannot happen.
    let _ = end.recv();
    let mount_point = emulation.mount_point().to_owned();
    let mount_point = mount_point.display();
    let ending = emulation.unmount().context("the emulated disk is still mounted")?;
    let mut message = String::new();
    if ending.detached {
        message += &format!(
            "{mount_point} was in use; it was detached, and processes that use it get errors"
        );
        if ending.kept {
            message +=
                &format!("; what was written to disk until then is in {}", args.data.display());
        }
        message += "\n";
    }
    let summary = ending.summary;
    message += &format!(
        "unmounted {mount_point}: {} requests; completions were {} us (p50) and {} us (p99) later than the \
         model's time",
        summary.requests, summary.late_us_p50, summary.late_us_p99,
    );
    if summary.requests > 0 {
        let seconds = ending.cpu_seconds * 1000.0 / summary.requests as f64;
        message += &format!("; {seconds:.3} processor seconds for 1000 requests");
    }
    output::print(&(message + "\n"))
}

fn mount(
    args: &EmulateArgs,
    profile: &Profile,
    mount_point: &Path,
    ended: Sender<()>,
) -> anyhow::Result<Emulation> {
    let data = if args.data == Path::new("memory") {
        let half = facts::available_bytes().map_or(MEMORY_BYTES, |bytes| bytes / 2);
        Data::Memory { limit_bytes: args.memory.unwrap_or(half) }
    } else {
        Data::File(args.data.clone())
    };
    let options = Options {
        name: profile.name.clone(),
        about: profile.about.clone(),
        device: profile.build(args.seed),
        size_bytes: args.size.unwrap_or(profile.size_bytes),
        place: args.place,
        speed_up: args.speed_up,
        seed: args.seed,
        data,
        readahead_bytes: args.readahead,
        log_entries: serve::LOG_ENTRIES,
        log_file: args.log.clone(),
        remove: args.until_stdin_ends.then(|| mount_point.to_owned()),
        ended: Some(ended),
    };
    Emulation::mount(mount_point, options).map_err(|error| match error {
        Error::Io { .. } | Error::FuseRefused(_) => error.into(),
        // Another directory, another size or another machine: for the user to change.
        other => forebay_measure::BadInput(other.to_string()).into(),
    })
}

/// Notifies `ended` when a signal arrives, the parent ends, or standard input ends.
fn listen(args: &EmulateArgs, ended: &Sender<()>) -> anyhow::Result<()> {
    let signalled = ended.clone();
    interrupt::on_signals(move || {
        let _ = signalled.send(());
    })?;
    if args.until_stdin_ends {
        let ended = ended.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = ended.send(());
        });
    }
    #[cfg(target_os = "linux")]
    if !args.outlive_parent {
        parent::watch(ended.clone());
    }
    Ok(())
}

fn list() -> anyhow::Result<()> {
    let width = Profile::shipped().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in Profile::shipped() {
        let about = Profile::parse(text, name)?.about;
        output::print(&format!("{name:width$}  {about}\n"))?;
    }
    Ok(())
}
