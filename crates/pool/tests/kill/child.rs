//! The writer: this program started again, selected by an environment variable, until it is killed.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use std::{env, io};

use forebay::{CheckpointOptions, Elevator};

use crate::Variant;
use crate::engine::worker::{Mix, Witness, Worker};
use crate::engine::{Engine, Error};
use crate::pipe::Teller;

const ROOT: &str = "FOREBAY_KILL_CHILD_ROOT";
const VARIANT: &str = "FOREBAY_KILL_CHILD_VARIANT";
const SEED: &str = "FOREBAY_KILL_CHILD_SEED";

const WORKERS: u8 = 4;

/// Maximum pause between two checkpoints.
const PAUSE_MS_MAX: u64 = 15;

/// Maximum lifetime of a writer that is not killed.
const LIFE: Duration = Duration::from_secs(240);

/// The command that starts a writer on `root`.
pub(crate) fn command(
    variant: Variant,
    root: &Path,
    seed: u64,
) -> io::Result<std::process::Command> {
    let mut command = std::process::Command::new(env::current_exe()?);
    command.env(ROOT, root).env(VARIANT, variant.name).env(SEED, seed.to_string());
    Ok(command)
}

/// Writes until killed, if this process is such a child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    let root = env::var_os(ROOT)?;
    let variant = Variant::named(&env::var(VARIANT).unwrap());
    let seed = env::var(SEED).unwrap().parse().unwrap();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        // Otherwise the death of one thread would go unnoticed.
        std::process::abort();
    }));
    thread::spawn(|| {
        thread::sleep(LIFE);
        eprintln!("kill: the writer was not killed");
        std::process::exit(1);
    });
    Some(match write(variant, Path::new(&root), seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill: the writer fails: {error}");
            ExitCode::FAILURE
        }
    })
}

fn write(variant: Variant, root: &Path, seed: u64) -> Result<(), Error> {
    let engine = Engine::open(&variant.settings(root))?;
    let teller = Teller::new().expect("standard output");
    thread::scope(|scope| {
        let (engine, teller) = (&engine, &teller);
        for number in 0..WORKERS {
            scope.spawn(move || or_die(work(engine, number, seed, teller)));
        }
        if !variant.automatic {
            scope.spawn(move || or_die(checkpoints(engine, seed)));
        }
    });
    Ok(())
}

fn work(engine: &Engine, number: u8, seed: u64, witness: &dyn Witness) -> Result<(), Error> {
    let mut worker = Worker::new(engine, number, seed, Mix::default())?;
    loop {
        worker.step(engine, witness)?;
    }
}

fn checkpoints(engine: &Engine, seed: u64) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        thread::sleep(Duration::from_millis(random.u64(0..PAUSE_MS_MAX)));
        engine.checkpoint_with(options(&mut random))?;
    }
}

/// Fast and slow checkpoints, in any order of writes.
fn options(random: &mut fastrand::Rng) -> CheckpointOptions {
    let options = match random.u32(0..3) {
        0 => CheckpointOptions::spread(Duration::from_millis(random.u64(1..80))),
        _ => CheckpointOptions::now(),
    };
    let options = options.combine(random.bool()).depth(random.usize(1..8));
    match random.u32(0..4) {
        0 => options.elevator(Elevator::Arrival),
        1 => options.elevator(Elevator::Sorted),
        _ => options,
    }
}

/// Aborts, because the other threads would run forever.
fn or_die(result: Result<(), Error>) {
    if let Err(error) = result {
        eprintln!("kill: the writer fails: {error}");
        std::process::exit(1);
    }
}
