//! Rounds: start a writer, kill it, recover, check with the oracle; repeatedly on one database.
//!
//! In about half of the rounds the parent recovers a copy, so that the next writer finds the files exactly as the
//! killed one left them, and may itself be killed during recovery.

use std::collections::HashSet;
use std::fs;
use std::io::{BufReader, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use forebay::TornPages;

use crate::Variant;
use crate::child;
use crate::engine::control::Control;
use crate::engine::disk::Disk;
use crate::engine::log::Log;
use crate::engine::op::{PageName, Record};
use crate::engine::oracle::{Found, History, Model};
use crate::engine::page::PAGE;
use crate::engine::recovery::{self, Recovered};
use crate::engine::{Engine, META, Settings};
use crate::pipe::{self, Message};

/// Maximum time until a writer must be ready to be killed. It needs less than a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The unit that a disk writes atomically.
const SECTOR: u64 = 512;

/// Maximum number of acknowledgements until a writer is killed.
const ACKNOWLEDGEMENTS_MAX: u64 = 250;

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) enum Outcome {
    /// All promises were kept; a summary.
    Held(String),
    Skipped(String),
}

/// When a writer is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// This long after its start, usually during recovery.
    After(Duration),
    /// This long after this many operations were acknowledged.
    Acknowledged(u64, Duration),
}

impl Moment {
    fn choose(random: &mut Rng) -> Moment {
        let micros = Duration::from_micros;
        if random.u32(0..4) == 0 {
            return Moment::After(micros(random.u64(0..30_000)));
        }
        let acknowledged = random.u64(1..ACKNOWLEDGEMENTS_MAX);
        Moment::Acknowledged(acknowledged, micros(random.u64(0..4_000)))
    }

    fn wait(self, child: &mut Child, acknowledged: &AtomicU64) -> Result<(), Failure> {
        let (count, pause) = match self {
            Moment::After(pause) => (0, pause),
            Moment::Acknowledged(count, pause) => (count, pause),
        };
        let start = Instant::now();
        while acknowledged.load(Ordering::SeqCst) < count {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the writer ended early: {status}").into());
            }
            if start.elapsed() > PATIENCE {
                return Err("the writer does not get on with its work".into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(pause);
        Ok(())
    }
}

/// The sums over all rounds of one variant.
#[derive(Debug, Default)]
struct Sum {
    acknowledged: u64,
    recovered: Recovered,
    /// Rounds in which a checkpoint has completed.
    checkpointed: u64,
    blocks: usize,
}

/// Kills a writer `rounds` times.
pub(crate) fn run(variant: Variant, rounds: u64, seed: u64) -> Result<Outcome, Failure> {
    let place = tempfile::tempdir()?;
    if let Some(reason) = refusal(variant, place.path()) {
        return Ok(Outcome::Skipped(reason));
    }
    let root = place.path().join("database");
    fs::create_dir(&root)?;
    let mut random = Rng::with_seed(seed);
    let (mut before, mut sum) = (Model::default(), Sum::default());
    for round in 1..=rounds {
        match kill_once(variant, &root, before, &mut random, &mut sum) {
            Ok(found) => before = found,
            Err(error) => {
                let kept = place.keep();
                return Err(format!("round {round}: {error}; see {}", kept.display()).into());
            }
        }
    }
    let Sum { acknowledged, recovered, checkpointed, blocks } = sum;
    let Recovered { records, applied, seen, pages_from_images, .. } = recovered;
    // Otherwise the test has tested nothing.
    let untorn = variant.torn == TornPages::Images && rounds > 15 && pages_from_images == 0;
    let idle = acknowledged < rounds || applied == 0 || blocks == 0;
    let unmoved = rounds > 15 && checkpointed == 0;
    if rounds > 3 && (idle || unmoved || untorn) {
        let what =
            format!("{acknowledged} acknowledged, {checkpointed} with checkpoints, {recovered:?}");
        return Err(format!("hardly anything happened: {what}").into());
    }
    Ok(Outcome::Held(format!(
        "{rounds} kills, {acknowledged} operations acknowledged, checkpoints in {checkpointed} rounds; \
         {records} records read back: \
         {applied} changes of pages done again, {seen} already there, {pages_from_images} pages from \
         their images; {blocks} blocks compared"
    )))
}

/// Why the variant cannot run in `directory`: not every filesystem and disk has the required features.
fn refusal(variant: Variant, directory: &Path) -> Option<String> {
    let opened = Engine::open(&variant.settings(&directory.join("probe")));
    opened.err().filter(|_| variant.needs_direct()).map(|error| error.to_string())
}

/// Runs one round; returns the state after it.
fn kill_once(
    variant: Variant,
    root: &Path,
    before: Model,
    random: &mut Rng,
    sum: &mut Sum,
) -> Result<Model, Failure> {
    let moment = Moment::choose(random);
    let mut command = child::command(variant, root, random.u64(..))?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("a pipe to the writer")?);
    let acknowledged = AtomicU64::new(0);
    let (history, killed) = thread::scope(|scope| {
        let listening = scope.spawn(|| listen(&mut output, before, &acknowledged));
        let killed = moment.wait(&mut child, &acknowledged);
        let killed = killed.and(child.kill().map_err(Failure::from));
        let killed = child.wait().map_err(Failure::from).and(killed);
        (listening.join().expect("the listener only counts"), killed)
    });
    killed?;
    sum.acknowledged += acknowledged.load(Ordering::SeqCst);
    let copy = if random.bool() { Some(copied(&variant.settings(root))?) } else { None };
    let there = copy.as_ref().map_or(root, tempfile::TempDir::path);
    if variant.torn == TornPages::Images {
        tear(&variant.settings(there), random)?;
    }
    let (engine, recovered) = recovery::open(&variant.settings(there))?;
    let found = Found::read(&engine)?;
    let promise = history.promised(0);
    promise.check(&found).map_err(|broken| format!("after {moment:?}: {broken}"))?;
    sum.checkpointed += u64::from(recovered.redo > sum.recovered.redo);
    sum.recovered.redo = recovered.redo;
    sum.recovered.records += recovered.records;
    sum.recovered.applied += recovered.applied;
    sum.recovered.seen += recovered.seen;
    sum.recovered.pages_from_images += recovered.pages_from_images;
    sum.blocks += found.model.blocks();
    Ok(found.model)
}

fn listen(output: &mut impl std::io::Read, before: Model, acknowledged: &AtomicU64) -> History {
    let mut history = History::after(before);
    while let Some(message) = pipe::hear(output) {
        match message {
            Message::Intended(entry) => history.intended(0, entry),
            Message::Acknowledged { worker, serial, lsn } => {
                history.acknowledged(0, worker, serial, lsn);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    history
}

/// Tears some of the pages that the log has images of and that were changed since the redo point: they may have been on
/// their way to the disk, and a power cut would have torn them.
fn tear(settings: &Settings, random: &mut Rng) -> Result<(), Failure> {
    let disk = Disk::open(&settings.volume, None)?;
    let records = Log::open(&disk, &settings.log_directory())?.records;
    let entries = records.iter().filter_map(|(_, record)| match record {
        Record::Entry(entry) => Some(entry.pages()),
        Record::Image { .. } => None,
    });
    let changed: HashSet<PageName> = entries.flatten().collect();
    for (_, record) in records {
        let Record::Image { page, .. } = record else { continue };
        let (space, name) = page.file.map_or((0, META.to_owned()), |it| (it.space, it.on_disk()));
        let path = settings.space_directory(space).join(name);
        let start = u64::from(page.block) * PAGE as u64;
        let there = fs::metadata(&path).is_ok_and(|it| it.len() > start);
        if there && changed.contains(&page) && random.bool() {
            let sector = random.u64(1..8) * SECTOR;
            let torn = vec![0xEE; PAGE - sector as usize];
            let file = fs::OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&torn, start + sector)?;
        }
    }
    Ok(())
}

/// Copies a log from `start` on: the part before it grows with every round, and is never read.
fn copy_end(from: &Path, to: &Path, start: u64) -> Result<(), Failure> {
    let (mut from, mut to) = (fs::File::open(from)?, fs::File::create(to)?);
    from.seek(SeekFrom::Start(start))?;
    to.set_len(start)?;
    to.seek(SeekFrom::Start(start))?;
    std::io::copy(&mut from, &mut to)?;
    Ok(())
}

/// A copy of the files as the killed writer has left them.
fn copied(settings: &Settings) -> Result<tempfile::TempDir, Failure> {
    let root = &settings.root;
    let disk = Disk::open(&settings.volume, None)?;
    let directory = settings.log_directory();
    // A writer that was killed before it created its log has left nothing to recover.
    let redo = directory.exists().then(|| Control::open(&disk, &directory.join("control")));
    let redo = redo.transpose()?.and_then(|control| control.redo()).unwrap_or_default().0;
    let copy = tempfile::tempdir()?;
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        let into = copy.path().join(directory.file_name());
        fs::create_dir(&into)?;
        for file in fs::read_dir(directory.path())? {
            let file = file?;
            let to = into.join(file.file_name());
            if file.file_name() == "log" {
                copy_end(&file.path(), &to, redo)?;
            } else {
                fs::copy(file.path(), to)?;
            }
        }
    }
    Ok(copy)
}
