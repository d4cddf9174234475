//! `--predict`: what other ways of reading ahead would gain, by reading again what was recorded.
//!
//! The reads of a record are done again, on the same files, at the times at which the process would come to them, once
//! as it is and once in each other way, in several rounds and in shuffled order. What a way waits is compared with what is
//! waited as it is, round by round, and so a disk that gets slower meanwhile favours nobody. Where it waits less, the
//! prediction is the same share of what was waited when it was recorded; where it waits more, it is so much more than that, since
//! a share of little waiting would be one of its noise. Worked example: recorded were 500 ms of waiting; in three rounds
//! it waits 520, 480 and 610 ms as it is and 260, 250 and 300 ms without readahead: 0.50 of it, so 250 ms. Recorded
//! were 20 ms, and in a round it waits 10 ms as it is and 300 ms without advice: 310 ms, and not 600. How long all
//! of it would take is told by how long each round took, in the same way.
//!
//! Invariants:  [PRE-1] files are opened to be read, and nothing is written to them
//!              [PRE-2] it takes so long as it may, and a round
//! Failure:     the readahead of devices is put back by [`ReadaheadGuard`], whatever happens.

mod plan;
mod play;

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_io::Hint;
use forebay_lookahead::Takes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use super::record::Record;
use crate::cli::WatchArgs;
use crate::device_readahead::{ReadaheadGuard, read_kib};
use crate::facts::{Storage, Sysfs};
use crate::interrupt;
use crate::progress::Progress;
use crate::report::numbers;
use crate::report::terminal::text::{push_line, push_wrapped};
use crate::report::terminal::{self, Look};
use crate::report::{Table, TableCell};
use crate::statistics::{Estimate, ROUNDS_MIN, median, paired_ratio};
use crate::units::shown_size;
use plan::Plan;
use play::{Ahead, Apart, Played, Way};

/// A way may take so many times as long as what was recorded, or its part of `--predict-seconds`; then it is cut off.
const TIMES_MOST: u32 = 4;

/// A replay of it as it is that waits so many times as long as was recorded, or this part, is another thing.
const ALIKE: f64 = 1.5;

/// Waiting less than this is none: logarithms are taken of it.
const LEAST: Duration = Duration::from_micros(1);

/// At least that, of seconds.
fn at_least(seconds: f64) -> f64 {
    seconds.max(LEAST.as_secs_f64())
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Prediction {
    /// The part that was read again, in seconds of the record.
    from_seconds: f64,
    until_seconds: f64,
    reads: usize,
    tasks: usize,
    /// What reads waited in that part when it was recorded, in all of the record, and when it was read again as it is.
    recorded_wait_seconds: f64,
    recorded_wait_seconds_in_all: f64,
    replayed_wait_seconds: f64,
    replayed_seconds: f64,
    ways: Vec<Predicted>,
    remarks: Vec<String>,
}

/// One way.
#[derive(Debug, Clone, Serialize)]
struct Predicted {
    way: String,
    /// What would be waited in that part.
    wait_seconds: f64,
    /// That, of what was waited when it was recorded; none from a single round.
    ratio: Option<Estimate>,
    /// How long that part would take.
    seconds: f64,
    verdict: &'static str,
    /// What was waited, and how long it took, in each round.
    rounds: Vec<(f64, f64)>,
}

/// A way, and its rounds.
struct Entrant {
    name: String,
    way: Way,
    rounds: Vec<Played>,
}

impl Entrant {
    fn new(name: impl Into<String>, way: Way) -> Entrant {
        Entrant { name: name.into(), way, rounds: Vec::new() }
    }

    /// What each round waited, or whatever `of` it. Of one that was cut off, as much for the rest of it.
    fn each(&self, of: fn(&Played) -> Duration) -> Vec<f64> {
        self.rounds.iter().map(|it| of(it).max(LEAST).as_secs_f64() / it.share).collect()
    }

    /// The same if `recorded` had been measured where `as_it_is` is now, in seconds.
    fn expected(&self, recorded: f64, as_it_is: &Entrant, of: fn(&Played) -> Duration) -> Vec<f64> {
        let pairs = self.each(of).into_iter().zip(as_it_is.each(of));
        let expected = pairs.map(|(way, as_it_is)| {
            if way < as_it_is { recorded * way / as_it_is } else { recorded + way - as_it_is }
        });
        expected.collect()
    }
}

/// All ways for a plan in which the program `advises` the kernel or does not; the first is as it is.
fn entrants(args: &WatchArgs, advises: bool) -> Vec<Entrant> {
    let hint = |hint| Way { hint, ..Way::AS_IT_IS };
    let ahead = |knows_all, takes, most| {
        let ahead = Some(Ahead { knows_all, takes, most });
        Way { ahead, ..Way::AS_IT_IS }
    };
    let mut all = vec![
        Entrant::new("as it is", Way::AS_IT_IS),
        Entrant::new("kernel readahead: none (RANDOM)", hint(Hint::Random)),
        Entrant::new("kernel readahead: twice (SEQUENTIAL)", hint(Hint::Sequential)),
    ];
    all.extend(args.readahead.iter().map(|&bytes| {
        let size = if bytes == 0 { "0".to_owned() } else { shown_size(bytes) };
        let way = Way { readahead: Some(bytes), ..Way::AS_IT_IS };
        Entrant::new(format!("kernel readahead: {size}"), way)
    }));
    if advises {
        let way = Way { advises: false, ..Way::AS_IT_IS };
        all.push(Entrant::new("without the program's advice", way));
    }
    // As far as the extension looks ahead of a scan that takes all, and as the SQLite VFS does of any.
    all.extend([
        Entrant::new("look-ahead: what could be known", ahead(false, Takes::All, 256)),
        Entrant::new("look-ahead: if all were known", ahead(true, Takes::All, 256)),
        Entrant::new("look-ahead: all known, may stop", ahead(true, Takes::MayStop, 128)),
    ]);
    all
}

/// Reads again what is in the record at `path`.
///
/// # Errors
/// [`BadInput`](crate::BadInput), [`Interrupted`](crate::interrupt::Interrupted), or what went wrong.
pub(super) fn predict(args: &WatchArgs, path: &Path) -> anyhow::Result<Prediction> {
    // Who has ended the watch by Ctrl-C wants no more of it.
    interrupt::check()?;
    let time = Duration::from_secs(args.predict_seconds);
    // As if it advised, which is known only then.
    let runs = args.rounds * entrants(args, true).len() as u32;
    // A quarter is to prepare, and some ways take longer than it took.
    let mut plan = Plan::new(&mut Record::open(path)?, time / 2 / runs)?;
    // Each task opens each file that it reads.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let mut entrants = entrants(args, plan.advises());
    let guards = guards(&plan, &entrants)?;
    let played = rounds(args, &mut plan, &guards, &mut entrants, time);
    // Put back whatever happened; and if both failed, what went wrong first is told.
    let restored = guards.into_iter().try_for_each(|(guard, _)| guard.restore());
    let remarks = played.and_then(|remarks| restored.map(|()| remarks))?;
    plan.remarks.extend(remarks);
    Ok(Prediction::of(&plan, &entrants))
}

/// The right to set the readahead of all devices under the plan's files, with what it is, if any way wants that.
fn guards(plan: &Plan, entrants: &[Entrant]) -> anyhow::Result<Vec<(ReadaheadGuard, u64)>> {
    let mut files = Vec::new();
    if entrants.iter().any(|entrant| entrant.way.readahead.is_some()) {
        for file in &plan.files {
            let directory = file.path.parent().unwrap_or(Path::new("/"));
            let file = Sysfs::system().readahead_file_of(&Storage::read(directory)?)?;
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    let taken = files.into_iter().map(|file| {
        let found = read_kib(&file)? * 1024;
        match ReadaheadGuard::at(file) {
            Ok(guard) => Ok((guard, found)),
            Err(error) => crate::bad_input!("--readahead: {error:#}; run as root, or leave it out"),
        }
    });
    taken.collect()
}

/// All rounds, as time allows. Returns remarks.
fn rounds(
    args: &WatchArgs,
    plan: &mut Plan,
    guards: &[(ReadaheadGuard, u64)],
    entrants: &mut [Entrant],
    time: Duration,
) -> anyhow::Result<Vec<String>> {
    let length = Duration::from_nanos(plan.until_ns - plan.from_ns);
    let runs = args.rounds * entrants.len() as u32;
    let time_max = (length * TIMES_MOST).max(time / runs);
    let begun = Instant::now();
    let mut progress = Progress::new(u64::from(runs));
    let mut random = fastrand::Rng::with_seed(0);
    let (mut apart, mut remarks) = (Apart::default(), Vec::new());
    // The first time it may be on the disk. What is left out then is so for all: later all runs are to find the same memory.
    let mut preparing = Some(time / 4);
    for round in 0..args.rounds {
        // [PRE-2]
        let elapsed = begun.elapsed();
        if round > 0 && elapsed + elapsed / round > time {
            remarks.push(format!("{round} rounds were made in {} s", elapsed.as_secs()));
            break;
        }
        let mut order: Vec<usize> = (0..entrants.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let entrant = &mut entrants[at];
            progress.step(&entrant.name);
            for (guard, found) in guards {
                guard.set(entrant.way.readahead.unwrap_or(*found))?;
            }
            let found = play::prepare(plan, preparing.take())?;
            apart.stayed = apart.stayed.max(found.stayed);
            apart.missing += found.missing;
            entrant.rounds.push(play::play(plan, entrant.way, time_max)?);
        }
    }
    let size = |pages| shown_size(pages * plan.page_bytes);
    if apart.stayed > 0 {
        let stayed = size(apart.stayed);
        remarks.push(format!(
            "{stayed} of the files stayed in memory, as others use it: the waits are too short"
        ));
    }
    if apart.missing > 0 {
        let missing = size(apart.missing);
        remarks.push(format!(
            "{missing} that were in memory then are not now, as --predict-seconds is too short to bring them in: the waits \
             are too long"
        ));
    }
    Ok(remarks)
}

impl Prediction {
    fn of(plan: &Plan, entrants: &[Entrant]) -> Prediction {
        let recorded = plan.waited_ns as f64 / 1e9;
        let seconds = (plan.until_ns - plan.from_ns) as f64 / 1e9;
        let as_it_is = &entrants[0];
        let replayed = median(&as_it_is.each(|it| it.waited)).unwrap_or(0.0);
        let mut remarks = plan.remarks.clone();
        let apart = replayed / at_least(recorded);
        if !(1.0 / ALIKE..=ALIKE).contains(&apart) {
            remarks.push(format!(
                "read again as it is, reads waited {}, and {} when it was recorded: what is said here is about something \
                 else, such as another state of memory or a disk that others use",
                numbers::seconds(replayed),
                numbers::seconds(recorded)
            ));
        }
        let is_cut = |entrant: &&Entrant| entrant.rounds.iter().any(|it| it.share < 1.0);
        for entrant in entrants.iter().filter(is_cut) {
            remarks.push(format!(
                "{}: cut off, as it takes so long; the rest is taken to wait as much",
                entrant.name
            ));
        }
        let ways = entrants.iter().enumerate().map(|(at, entrant)| {
            let of = |recorded: f64, of: fn(&Played) -> Duration| {
                let expected = entrant.expected(recorded, as_it_is, of);
                paired_ratio(&expected, &vec![recorded; expected.len()])
            };
            let (least, seconds) = (at_least(recorded), at_least(seconds));
            let compared = of(least, |it| it.waited);
            // An interval of one round would be none.
            let ratio = compared.filter(|it| at > 0 && it.rounds > 1);
            let verdict = match ratio {
                _ if at == 0 => "",
                Some(ratio) if ratio.rounds >= ROUNDS_MIN && ratio.high < 1.0 => "gains",
                Some(ratio) if ratio.rounds >= ROUNDS_MIN && ratio.low > 1.0 => "loses",
                _ => "undecided",
            };
            let rounds =
                entrant.rounds.iter().map(|it| (it.waited.as_secs_f64(), it.took.as_secs_f64()));
            let value = |ratio: Option<Estimate>| ratio.map_or(f64::NAN, |ratio| ratio.value);
            Predicted {
                way: entrant.name.clone(),
                wait_seconds: least * value(compared),
                ratio,
                seconds: seconds * value(of(seconds, |it| it.took)),
                verdict,
                rounds: rounds.collect(),
            }
        });
        Prediction {
            from_seconds: plan.from_ns as f64 / 1e9,
            until_seconds: plan.until_ns as f64 / 1e9,
            reads: plan.steps(),
            tasks: plan.tasks.len(),
            recorded_wait_seconds: recorded,
            recorded_wait_seconds_in_all: plan.waited_in_all_ns as f64 / 1e9,
            replayed_wait_seconds: replayed,
            replayed_seconds: median(&as_it_is.each(|it| it.took)).unwrap_or(0.0),
            ways: ways.collect(),
            remarks,
        }
    }

    /// For a terminal.
    pub(super) fn drawn(&self, look: Look) -> String {
        let mut text = String::new();
        push_line(&mut text, "");
        let part = if self.recorded_wait_seconds < self.recorded_wait_seconds_in_all * 0.995 {
            format!(
                ", in which {} % of all waiting was",
                numbers::percent(self.recorded_wait_seconds / self.recorded_wait_seconds_in_all)
            )
        } else {
            String::new()
        };
        let told = format!(
            "{} steps of {} were read again{part}: reads waited {} when it was recorded, and {} now",
            numbers::grouped(self.reads as f64),
            numbers::seconds(self.until_seconds - self.from_seconds),
            numbers::seconds(self.recorded_wait_seconds),
            numbers::seconds(self.replayed_wait_seconds),
        );
        push_wrapped(&mut text, "prediction: ", &told, look.width);
        for remark in &self.remarks {
            push_wrapped(&mut text, "* ", remark, look.width);
        }
        push_line(&mut text, "");
        let mut table = Table::new("", ["way", "would wait", "between", "would take", "verdict"]);
        for way in &self.ways {
            let waits = |ratio: f64| numbers::seconds(ratio * at_least(self.recorded_wait_seconds));
            let between =
                |ratio: Estimate| format!("{} and {}", waits(ratio.low), waits(ratio.high));
            let cells = [
                way.way.clone(),
                numbers::seconds(way.wait_seconds),
                way.ratio.map_or_else(String::new, between),
                numbers::seconds(way.seconds),
                way.verdict.to_owned(),
            ];
            table.push(String::new(), cells.iter().map(TableCell::new).collect());
        }
        text.push_str(&terminal::drawn(&table, look));
        text
    }
}

#[cfg(test)]
mod tests;
