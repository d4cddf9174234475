//! A run from beginning to end: check, write the files, measure round by round, report.
//!
//! Every measurement opens its peer again, so that nothing of the cell before stays in its memory,
//! and reads pages until the memory is full before time counts. In the missing case these are
//! pages that the cell does not read: every read is a miss, and each has to evict a page.
//!
//! Invariants:  [CMP-6] what fills the memory before a missing cell is not read in it

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};

use crate::cell::{self, Blocks};
use crate::cli::{Args, Case, Settings};
use crate::content::Content;
use crate::counters::Counts;
use crate::output::{finish, version};
use crate::peer::{About, Format, Kind, Peer, Site};
use crate::report::{self, Cell, Measurement, Report};
use crate::scratch::Scratch;
use crate::{table, vmcache};
use forebay_measure::facts::{CounterSource, Host, Storage, Sysfs};
use forebay_measure::progress::Progress;
use forebay_measure::{interrupt, output};

/// Threads that fill a peer's memory before a measurement.
const FILLING_THREADS: u32 = 8;

/// Filling always runs to its end.
const FILLING_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Runs the command line.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput), [`Interrupted`](interrupt::Interrupted), or what went wrong.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (clock, started) = (Instant::now(), SystemTime::now());
    interrupt::install()?;
    if let Some(json) = &args.json {
        output::check_file(json)?;
    }
    if let Some(program) = &args.vmcache {
        return vmcache::run(args, program);
    }
    let settings = Settings::new(args)?;
    let directories: Vec<_> = formats(&settings.peers).into_iter().map(Format::directory).collect();
    let scratch = Scratch::create(&settings.directory, &directories, settings.file_bytes())?;
    let storage = Storage::read(&settings.directory)
        .with_context(|| format!("cannot look at {}", settings.directory.display()))?;
    // A device without counters is no failure: these metrics are null then.
    let counters = CounterSource::of(&Sysfs::system(), &storage).ok().flatten();
    let bench = Bench::new(&settings, &scratch, counters);
    bench.write_files()?;
    let peers = settings.peers.iter().map(|kind| Ok(bench.open(*kind)?.1));
    let peers = peers.collect::<anyhow::Result<Vec<About>>>()?;
    let measurements = bench.measure_all()?;
    scratch.remove()?;

    let report = Report {
        schema: report::SCHEMA,
        forebay: version(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        host: Host::read(),
        storage,
        records: report::records(&settings, &measurements),
        settings,
        peers,
    };
    finish(&report, &table::draw(&report), args.json.as_deref())
}

/// The formats that `peers` need, each once.
fn formats(peers: &[Kind]) -> Vec<Format> {
    let mut formats = Vec::new();
    for format in peers.iter().map(|kind| kind.format()) {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    formats
}

/// The state that all measurements share.
struct Bench<'a> {
    settings: &'a Settings,
    scratch: &'a Scratch,
    counters: Option<CounterSource>,
    content: Content,
    /// Blocks that fill the memory: as many as fit, and never read in the missing case.
    filling: Vec<u32>,
}

impl<'a> Bench<'a> {
    fn new(
        settings: &'a Settings,
        scratch: &'a Scratch,
        counters: Option<CounterSource>,
    ) -> Bench<'a> {
        let content = Content::new(settings.seed, settings.page_bytes);
        let filling = (0..settings.frames).collect();
        Bench { settings, scratch, counters, content, filling }
    }

    fn write_files(&self) -> anyhow::Result<()> {
        let blocks = u64::from(self.settings.blocks);
        for format in formats(&self.settings.peers) {
            let mut progress = Progress::new(blocks);
            let doing = format!("writing pages for {}", format.directory());
            self.at(format, |site| {
                format.write(site, &mut |done| {
                    // Reading the clock for every page would take longer than writing it.
                    if done.is_multiple_of(1024) {
                        progress.reach(u64::from(done), &doing);
                    }
                })
            })?;
        }
        Ok(())
    }

    fn open(&self, kind: Kind) -> anyhow::Result<(Box<dyn Peer>, About)> {
        self.at(kind.format(), |site| kind.open(site))
            .with_context(|| format!("cannot open {}", kind.name()))
    }

    fn at<T>(
        &self,
        format: Format,
        then: impl FnOnce(&Site<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let directory = self.scratch.of(format.directory());
        let (settings, content) = (self.settings, self.content);
        then(&Site { directory: &directory, settings, content })
    }

    /// Measures every cell once in each round, with the peers side by side in shuffled order.
    fn measure_all(&self) -> anyhow::Result<Vec<Measurement>> {
        let all = self.settings.measurements();
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        let (mut progress, mut measurements) = (Progress::new(all), Vec::new());
        for round in 0..self.settings.rounds {
            let order = self.missing_order(&mut random);
            for &case in &self.settings.cases {
                for &threads in &self.settings.threads {
                    let mut peers = self.settings.peers.clone();
                    random.shuffle(&mut peers);
                    for peer in peers {
                        interrupt::check()?;
                        let cell = Cell { case, threads, peer };
                        let doing = format!("{}, {threads} threads, {}", case.name(), peer.name());
                        progress.reach(measurements.len() as u64, &doing);
                        measurements.push(self.measure(cell, round, &order)?);
                    }
                }
            }
        }
        Ok(measurements)
    }

    /// All blocks that do not fill the memory, shuffled: the same for all peers of a round.
    fn missing_order(&self, random: &mut fastrand::Rng) -> Vec<u32> {
        let mut order: Vec<u32> = (self.settings.frames..self.settings.blocks).collect();
        random.shuffle(&mut order);
        order
    }

    fn measure(&self, cell: Cell, round: u32, order: &[u32]) -> anyhow::Result<Measurement> {
        let (peer, _) = self.open(cell.peer)?;
        let working = &self.filling[..self.settings.resident_blocks() as usize];
        let (filling, blocks) = match cell.case {
            Case::Resident => {
                let seed = self.settings.seed ^ u64::from(round);
                (working, Blocks::Drawn { below: self.settings.resident_blocks(), seed })
            }
            Case::Missing => (self.filling.as_slice(), Blocks::Once(order)),
        };
        assert!(order.iter().all(|block| *block >= self.settings.frames), "[CMP-6]");
        self.fill(peer.as_ref(), filling)?;
        if cell.case == Case::Missing {
            self.scratch.empty_cache(cell.peer.format().directory())?;
        }
        let counts = || Counts::read(self.counters.as_ref());
        let before = counts();
        let (threads, duration) = (cell.threads, self.settings.duration);
        let outcome = cell::measure(peer.as_ref(), &self.content, blocks, threads, duration)?;
        let counts = counts().since(&before);
        Ok(Measurement { cell, round, outcome, counts })
    }

    fn fill(&self, peer: &dyn Peer, blocks: &[u32]) -> anyhow::Result<()> {
        let (once, threads) = (Blocks::Once(blocks), FILLING_THREADS);
        let filled = cell::measure(peer, &self.content, once, threads, FILLING_TIME_MAX)?;
        let (reads, len) = (filled.reads, blocks.len());
        ensure!(reads == len as u64, "{} read {reads} of {len} pages", peer.name());
        Ok(())
    }
}
