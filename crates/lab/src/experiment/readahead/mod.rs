//! Experiment `readahead`: how far the kernel should read ahead for sequential readers.
//!
//! Document 002 of the sources measured an array under readahead settings from 8 to 98304 sectors, with one
//! and with eight sequential readers, and found factors of 2 to 20: a disk that serves several streams
//! moves its heads between them, and only a large piece read at each stop pays for the way. The same here, on
//! the user's own disk: readahead by readers by files (one for each, or one for all) by size of a read.
//!
//! What is measured: all readers start together from an emptied page cache, and bytes are counted until the
//! first has read its share or time is up. Beside that, in the same shuffle, large direct reads with many
//! in flight say what the disk could give, and raw reads of its beginning and end what position alone does.
//!
//! Failure:     a cell that this system has not the means for is unmeasured and says why; a block that is
//!              not the one asked for ends the run.
//! Source:      document 002.

mod conclusion;
mod ends;
mod files;
mod knob;
mod race;
mod reader;
mod record;
mod settings;

pub use files::Files;
pub use knob::By;
pub use settings::Settings;

pub(in crate::experiment) use files::{BLOCK_BYTES, emptied, ranges};
pub(in crate::experiment) use knob::{Knob, Setting, Turned};
pub(in crate::experiment) use race::{Finish, Lane, Limits, Runner, hold};
pub(in crate::experiment) use reader::check;
pub(in crate::experiment) use record::place;
pub(in crate::experiment) use settings::check_requests;

use std::time::{Duration, Instant};

use super::tally::lack_of_means;
use super::{Bench, Experiment, Ground, Outcome, probe_direct};
use crate::facts::{CounterSource, DeviceCounters};
use crate::measure::Coldness;
use crate::report::BackendNote;
use crate::workfile::{self, Naming};
use crate::{bad_input, interrupt};
use ends::{Position, Raw};
use files::{Library, Own};
use reader::{Buffered, Direct, direct_depth};
use record::Tally;

/// The name of this experiment in records.
pub const NAME: &str = "readahead";

/// How long the device may take to finish what the kernel has begun to read ahead.
const SETTLING_TIME_MAX: Duration = Duration::from_millis(200);

/// One thing to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// Readers through the page cache.
    Buffered { files: Files, readers: u32, setting: Setting, request_bytes: u64 },
    /// Readers past it.
    Direct { files: Files, readers: u32 },
    /// A part of the whole disk.
    End(Position),
}

impl Cell {
    fn label(self) -> String {
        match self {
            Cell::Buffered { files, readers, setting, request_bytes } => {
                let request = crate::units::typed_size(request_bytes);
                format!("{setting}, {readers} readers, {files}, {request}")
            }
            Cell::Direct { files, readers } => format!("direct, {readers} readers, {files}"),
            Cell::End(position) => format!("the {} of the disk", position.name()),
        }
    }
}

/// What there is to measure with.
#[derive(Debug)]
pub struct Means {
    turned: Turned,
    missing_direct: Option<String>,
    raw: Result<Raw, String>,
}

impl Settings {
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &files in &self.files {
            for &readers in &self.readers {
                for &request_bytes in self.requests.iter().filter(|_| self.buffered) {
                    cells.extend(self.readaheads.iter().map(|&setting| Cell::Buffered {
                        files,
                        readers,
                        setting,
                        request_bytes,
                    }));
                }
                if self.direct {
                    cells.push(Cell::Direct { files, readers });
                }
            }
        }
        if self.ends {
            cells.extend(Position::ALL.map(Cell::End));
        }
        cells
    }

    /// Whether another round is likely to end in time. `begun`: rounds that took `elapsed`.
    fn another_round(&self, begun: u32, elapsed: Duration) -> bool {
        let in_time = |time_max: Duration| begun == 0 || elapsed + elapsed / begun <= time_max;
        begun < self.rounds && self.time_max.is_none_or(in_time)
    }
}

impl Experiment for Settings {
    type Means = Means;

    const NAMING: Naming = Naming::Nameless;

    fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.one_bytes(),
            block_bytes: BLOCK_BYTES,
            seed: self.seed,
        }
    }

    fn space_bytes(&self) -> u64 {
        u64::from(self.own_files()) * self.share_bytes + self.one_bytes()
    }

    fn measurements(&self) -> u64 {
        u64::from(self.own_files()) + self.cells().len() as u64 * u64::from(self.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe(&self, bench: &Bench<'_>) -> anyhow::Result<Means> {
        // What is reserved on an emulated disk takes no space.
        let reserved = self.apart_bytes.filter(|_| !ends::is_emulated(bench.storage));
        let each = reserved.unwrap_or(self.share_bytes);
        let own_bytes = u64::from(self.own_files()).saturating_mul(each);
        workfile::check_directory(&self.directory, own_bytes.saturating_add(self.one_bytes()))?;
        let missing_direct = match self.direct {
            true => probe_direct(&self.ground(), bench.workfile)?,
            false => None,
        };
        if let (false, Some(why)) = (self.buffered, &missing_direct) {
            bad_input!("nothing of this can be measured here: {why}");
        }
        let raw = Raw::find(bench.storage);
        Ok(Means { turned: self.knob.take()?, missing_direct, raw })
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        means: Means,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        let Means { turned, missing_direct, raw } = means;
        let cells = self.cells();
        let mut tallies: Vec<Tally> = cells.iter().map(|_| Tally::default()).collect();
        let session = Session { settings: self, bench, turned, missing_direct, raw };
        let held = session.rounds(&cells, &mut tallies, progress);
        // Put back whatever happened; and if both failed, what went wrong first is told.
        let restored = session.turned.restore();
        held.and(restored)?;
        let records = record::records(self, bench.storage, &cells, &tallies);
        let advice = conclusion::draw(&records, bench.storage, self.knob.found_bytes);
        Ok(Outcome {
            records,
            backends: backends(&tallies),
            conclusions: advice,
            ..Outcome::default()
        })
    }
}

/// Which backends carried direct reads out.
fn backends(tallies: &[Tally]) -> Vec<BackendNote> {
    let mut notes: Vec<BackendNote> = Vec::new();
    for backend in tallies.iter().filter_map(|tally| tally.backend.as_ref()) {
        if notes.iter().all(|note| note.backend != *backend) {
            let (backend, note) = (backend.clone(), String::new());
            notes.push(BackendNote { backend, available: true, note });
        }
    }
    notes
}

/// A run of this experiment that is under way.
struct Session<'a> {
    settings: &'a Settings,
    bench: &'a Bench<'a>,
    turned: Turned,
    missing_direct: Option<String>,
    raw: Result<Raw, String>,
}

impl Session<'_> {
    fn rounds(
        &self,
        cells: &[Cell],
        tallies: &mut [Tally],
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let settings = self.settings;
        let own = Own {
            count: settings.own_files(),
            share_bytes: settings.share_bytes,
            apart_bytes: settings.apart_bytes,
            directory: &settings.directory,
            seed: settings.seed,
        };
        let library = self.bench.untimed(|| Library::make(self.bench.workfile, &own, progress))?;
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let begun = Instant::now();
        let mut round = 0;
        while settings.another_round(round, begun.elapsed()) {
            let mut order: Vec<usize> = (0..cells.len()).collect();
            random.shuffle(&mut order);
            for index in order {
                interrupt::check()?;
                progress(&cells[index].label());
                self.measure(cells[index], &library, &mut tallies[index])?;
            }
            round += 1;
        }
        Ok(())
    }

    fn measure(&self, cell: Cell, library: &Library<'_>, tally: &mut Tally) -> anyhow::Result<()> {
        let coldness = library.empty()?;
        match cell {
            Cell::Buffered { files, readers, setting, request_bytes } => {
                // Before the files are opened, which take it then.
                tally.made_bytes = self.turned.set(setting)?;
                let mut runners = Vec::new();
                for share in library.shares(files, readers) {
                    runners.push(Buffered::open(share, setting, request_bytes)?);
                }
                let (finish, device) = self.race(&mut runners)?;
                tally.take(coldness, finish, device);
            }
            Cell::Direct { files, readers } => {
                if let Some(why) = &self.missing_direct {
                    tally.failures.push(why.clone());
                    return Ok(());
                }
                let opened = library.shares(files, readers).into_iter().map(|share| {
                    let (path, range) = (share.workfile.path(), share.range);
                    Direct::open(path, range, Some(share.workfile), direct_depth(readers))
                });
                self.direct(opened.collect(), tally)?;
            }
            Cell::End(position) => match &self.raw {
                Ok(raw) => self.direct(raw.open(position).map(|reader| vec![reader]), tally)?,
                Err(why) => tally.failures.push(why.clone()),
            },
        }
        Ok(())
    }

    /// A race past the page cache, or why there is none.
    fn direct(
        &self,
        opened: Result<Vec<Direct<'_>>, forebay_io::Error>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let mut runners = match opened {
            Ok(runners) => runners,
            Err(error @ forebay_io::Error::DirectRefused { .. }) => {
                tally.failures.push(error.to_string());
                return Ok(());
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                let Some(lack) = lack_of_means(&error) else { return Err(error) };
                tally.failures.push(lack.to_string());
                return Ok(());
            }
        };
        tally.backend = runners.first().map(Direct::backend);
        let (finish, device) = self.race(&mut runners)?;
        tally.take(Coldness::Cold, finish, device);
        Ok(())
    }

    fn race<R: Runner>(
        &self,
        runners: &mut [R],
    ) -> anyhow::Result<(Finish, Option<DeviceCounters>)> {
        let limits = Limits { settle: Duration::ZERO, time_max: self.settings.cell_time_max };
        counted(self.bench.counters, || hold(runners, limits))
    }
}

/// What `work` gives, and what the device did meanwhile and until it came to rest.
pub(in crate::experiment) fn counted<T>(
    counters: Option<&CounterSource>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Option<DeviceCounters>)> {
    let read = || counters.and_then(|source| source.read().ok());
    let before = read();
    let worked = work()?;
    let begun = Instant::now();
    let mut now = read();
    while now.is_some() && begun.elapsed() < SETTLING_TIME_MAX {
        std::thread::sleep(Duration::from_millis(5));
        let later = read();
        if later.map(|later| later.reads) == now.map(|now| now.reads) {
            break;
        }
        now = later;
    }
    Ok((worked, before.zip(now).map(|(before, now)| now.since(&before))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CommonArgs, ReadaheadArgs};

    #[test]
    fn every_setting_meets_every_number_of_readers_and_the_ceiling_each_once() {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        let args = ReadaheadArgs {
            readers: vec![8, 1, 8],
            request: vec![8192, 131_072],
            ..ReadaheadArgs::quick(&common)
        };
        let settings = Settings::new(&args).unwrap();
        let cells = settings.cells();
        // Three kinds of advice, two numbers of readers, two files, two sizes; the ceiling; the ends.
        assert_eq!(cells.len(), 3 * 2 * 2 * 2 + 2 * 2 + 2);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{cell:?} twice");
        }
    }

    #[test]
    fn rounds_go_on_while_there_is_time_and_all_of_those_asked_for_are_held() {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        let mut settings = Settings::new(&ReadaheadArgs::quick(&common)).unwrap();
        let time_max = settings.time_max.unwrap();
        assert!(settings.another_round(0, Duration::ZERO));
        assert!(!settings.another_round(1, time_max));
        settings.time_max = None;
        assert!(settings.another_round(1, time_max));
        assert!(!settings.another_round(settings.rounds, Duration::ZERO));
    }
}
