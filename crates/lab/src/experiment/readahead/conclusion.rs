//! What part `throughput` says: the knee of the curve, and what to set.
//!
//! The curve is that of the highest number of readers, since a small readahead costs them most; with own files
//! and the smallest read if there are several. Its knee is the smallest readahead that is as good
//! as the best. The advised value is at the knee or above it, and costs one reader less than 5 % of its rate
//! best. Worked example: eight readers get 464 MB/s with 6 MiB, 485 with 8 MiB and 61 with the 128 KiB that
//! are set, all in the same rounds; 6 MiB is advised, which is 7.6 times as much.
//!
//! A cell that could not be measured decides nothing, and does not prevent others from deciding.
//!
//! Invariants:  [RCN-1] the advised value reaches the bound of the best, for the most readers and for the fewest
//!              [RCN-2] nothing is advised unless the current value surely misses the bound, by three rounds at least

use forebay_io::CacheMode;

use super::settings::{Files, NAME, Settings};
use super::throughput::{Cell, Throughput, readers};
use crate::experiment::Outcome;
use forebay_measure::facts::Storage;
use forebay_measure::lists::grouped;
use forebay_measure::lists::sorted;
use forebay_measure::report::{Advice, AppliesTo, Conclusion, Verdict};
use forebay_measure::statistics::{
    BOUND, Estimate, Floor, Judge, Judgement, ROUNDS_MIN, median, range,
};

/// `blockdev` counts in sectors of this size, regardless of the disk's own.
pub(super) const SECTOR_BYTES: u64 = 512;

/// All cells with one kind of files and one size of a read.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// Through the page cache; one at least.
    pub(super) cells: Vec<&'a Cell>,
    judge: Judge,
    /// Past it, of the same files.
    pub(super) ceilings: Vec<&'a Cell>,
}

/// The cells of one number of readers that can be compared, readahead ascending.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    pub(super) cells: Vec<&'a Cell>,
    rates: Vec<Vec<f64>>,
    judge: Judge,
}

/// The readahead chosen for a group.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// Of the most readers.
    pub(super) many: Curve<'a>,
    /// The curve of the fewest readers, which may be the same number.
    few: Curve<'a>,
    /// The current value, by its index on the curve of the most readers.
    now: Option<usize>,
    /// As good as the best for the most readers.
    knee: usize,
    /// That or a larger one, if one exists that does not cost the fewest readers too much.
    pub(super) chosen: Option<usize>,
    /// Whether more rounds would say the same.
    is_decided: bool,
}

/// All groups; the one that conclusions are drawn from is first. No difference smaller than `floor` is decided.
pub(super) fn groups(cells: &[Cell], floor: Floor) -> Vec<Group<'_>> {
    let (buffered, direct): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| cell.cell.cache == CacheMode::Buffered);
    let mut groups = grouped(buffered, |cell| (cell.cell.files, cell.cell.request_bytes));
    groups.sort_by_key(|((files, request_bytes), _)| (*files != Files::Own, *request_bytes));
    let group = |((files, _), cells)| {
        let ceilings = direct.iter().copied().filter(|cell| cell.cell.files == files).collect();
        Group { cells, ceilings, judge: Judge::new(&[], 1, floor) }.judged(floor)
    };
    groups.into_iter().map(group).collect()
}

impl<'a> Group<'a> {
    /// Numbers of readers, ascending.
    pub(super) fn readers(&self) -> Vec<u32> {
        sorted(&self.cells.iter().map(|cell| cell.cell.readers).collect::<Vec<_>>())
    }

    /// The comparable cells of one number of `readers`.
    pub(super) fn curve(&self, readers: u32) -> Curve<'a> {
        let cells = self.comparable(readers);
        let rates: Vec<Vec<f64>> = cells.iter().map(|cell| cell.rates()).collect();
        Curve { judge: self.judge.within(&rates), rates, cells }
    }

    fn comparable(&self, readers: u32) -> Vec<&'a Cell> {
        let here = self.cells.iter().filter(|cell| cell.cell.readers == readers);
        let rounds = here.clone().map(|cell| cell.rounds.len()).max().unwrap_or(0);
        let good = here.filter(|cell| {
            let has_all = cell.failure.is_none() && rounds > 0 && cell.rounds.len() == rounds;
            let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0;
            has_all && cell.cold && cell.rates().iter().all(is_rate)
        });
        good.copied().collect()
    }

    /// The same group, judged by the curves of its fewest and its most readers: each readahead compared with the best,
    /// and with the current value.
    fn judged(self, floor: Floor) -> Group<'a> {
        let readers = self.readers();
        let ends = sorted(&[readers[0], readers[readers.len() - 1]]);
        let curves: Vec<Vec<&Cell>> =
            ends.into_iter().map(|count| self.comparable(count)).collect();
        let rates = |cells: &Vec<&Cell>| cells.iter().map(|cell| cell.rates()).collect();
        let rates: Vec<Vec<Vec<f64>>> = curves.iter().map(rates).collect();
        let comparisons = curves.iter().map(|cells| 2 * cells.len()).sum();
        Group { judge: Judge::new(&rates, comparisons, floor), ..self }
    }

    /// The chosen readahead, if anything can be compared.
    pub(super) fn choice(&self, settings: &Settings) -> Option<Choice<'a>> {
        let readers = self.readers();
        let (many, few) = (self.curve(*readers.last()?), self.curve(*readers.first()?));
        let knee = many.judge.knee(&many.rates)?;
        let of = |index: usize| {
            let of_few = few.position(many.cells[index]).and_then(|index| few.ratio(index));
            many.ratio(index).into_iter().chain(of_few).map(|(_, ratio)| ratio)
        };
        let is_judged = |index: usize, what| of(index).any(|ratio| ratio.judgement() == what);
        let misses = |index: usize| is_judged(index, Judgement::Misses);
        let reaches =
            |&index: &usize| !misses(index) && of(index).all(|ratio| ratio.value >= BOUND);
        let chosen = (knee..many.cells.len()).find(reaches); // [RCN-1]
        let found = settings.control.found_bytes;
        let is_found = |cell: &&Cell| found.is_some() && cell.cell.readahead.bytes == found;
        let now = many.cells.iter().position(is_found);
        let mut open = (0..many.cells.len())
            .filter(|&index| is_judged(index, Judgement::Undecided) && !misses(index));
        let is_open =
            open.any(|index| chosen.is_none_or(|chosen| index <= chosen) || now == Some(index));
        let is_decided = !is_open;
        Some(Choice { many, few, now, knee, chosen, is_decided })
    }
}

impl Choice<'_> {
    /// The choice, unless a larger value was not measured, which may be better.
    pub(super) fn reached(&self) -> Option<usize> {
        self.chosen.filter(|chosen| chosen + 1 < self.many.cells.len())
    }
}

impl Curve<'_> {
    /// The ratio of one to the best of them, and the index of the best.
    fn ratio(&self, index: usize) -> Option<(usize, Estimate)> {
        self.judge.ratio_to_best(&self.rates[index], &self.rates)
    }

    fn misses(&self, index: usize) -> bool {
        self.ratio(index).is_some_and(|(_, ratio)| ratio.judgement() == Judgement::Misses)
    }

    /// The cell under the same readahead as `other`.
    fn position(&self, other: &Cell) -> Option<usize> {
        self.cells.iter().position(|cell| cell.cell.readahead == other.cell.readahead)
    }

    /// In MB/s, the median of the rounds.
    fn rate(&self, index: usize) -> f64 {
        median(&self.rates[index]).unwrap_or(0.0) / 1e6
    }

    /// `6 MiB, 464 MB/s`.
    fn with(&self, index: usize) -> String {
        format!("{}, {:.0} MB/s", self.cells[index].cell.readahead, self.rate(index))
    }

    fn verdict(&self, index: usize) -> Option<Verdict> {
        let (best, ratio) = self.ratio(index)?;
        let cell = &self.cells[index].cell;
        let row = format!("{}, {}", readers(cell.readers), cell.reads());
        let of = [index, best].map(|it| format!("readahead {}", self.cells[it].cell.readahead));
        Some(Verdict::new(NAME, row, of, ratio))
    }
}

/// The cells that decide: those of the first group with its fewest and its most readers.
pub(super) fn deciding(cells: &[Cell]) -> Vec<Throughput> {
    let groups = groups(cells, Floor::default());
    let Some(group) = groups.first() else { return Vec::new() };
    let readers = group.readers();
    let is_end =
        |cell: &&&Cell| [readers.first(), readers.last()].contains(&Some(&cell.cell.readers));
    group.cells.iter().filter(is_end).map(|cell| cell.cell.clone()).collect()
}

/// Whether it is still open which readahead is the best.
pub(super) fn is_undecided(settings: &Settings, cells: &[Cell]) -> bool {
    let groups = groups(cells, Floor::default());
    let choice = groups.first().and_then(|group| group.choice(settings));
    choice.is_some_and(|choice| !choice.is_decided)
}

/// Puts the verdicts, the advice and the sentences into `outcome`.
pub(super) fn draw(
    settings: &Settings,
    storage: &Storage,
    cells: &[Cell],
    floor: Floor,
    outcome: &mut Outcome,
) {
    let groups = groups(cells, floor);
    let Some(group) = groups.first() else { return };
    let none = |why: &str| format!("No conclusion about readahead: {why}.");
    let rounds = group.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0);
    let mut sentences = vec![match group.choice(settings) {
        _ if group.cells.iter().all(|cell| !cell.cold) => none(
            "the page cache could not be emptied, so these are the speeds of memory, not of a disk",
        ),
        _ if rounds < ROUNDS_MIN => none(&format!("it takes --rounds {ROUNDS_MIN} at least")), // [RCN-2]
        Some(choice) if choice.many.cells.len() > 1 => of_choice(&choice, storage, outcome),
        _ => none("too little could be measured"),
    }];
    sentences.extend(settings.control.why_not_device.as_ref().map(|why| {
        format!(
            "The readahead was varied by advice for descriptors, since the device's cannot be set ({why})."
        )
    }));
    outcome.conclusions.extend(Conclusion::all(NAME, sentences));
}

fn of_choice(choice: &Choice<'_>, storage: &Storage, outcome: &mut Outcome) -> String {
    let Choice { many, few, now, knee, chosen, .. } = choice;
    let most = many.cells[0].cell.readers;
    let count = readers(most).replace("readers", "sequential readers");
    outcome.verdicts.extend(now.and_then(|now| many.verdict(now)));
    let all = 0..many.cells.len();
    if !all.clone().any(|index| many.misses(index)) {
        let (low, high) = range(&all.map(|index| many.rate(index)).collect::<Vec<_>>());
        return format!(
            "The kernel's readahead makes no difference here that is clear: {count} get {low:.0} to {high:.0} \
             MB/s with any of those measured."
        );
    }
    let Some(chosen) = *chosen else {
        return format!(
            "{count} need a readahead of {}, but each that is as good for them costs fewer readers more than \
             5 %: no setting is best for both.",
            many.with(*knee),
        );
    };
    if *now != Some(chosen) {
        outcome.verdicts.extend(many.verdict(chosen));
    }
    if few.cells.first().is_some_and(|cell| cell.cell.readers < most) {
        let of_few = few.position(many.cells[chosen]).and_then(|index| few.verdict(index));
        outcome.verdicts.extend(of_few);
    }
    let why = match (chosen > *knee, chosen + 1 < many.cells.len()) {
        (true, _) => "; a smaller one would do for them, but cost fewer readers more than 5 %.",
        (false, true) => "; more gains less than 5 %.",
        (false, false) => " at least: the knee is not reached, as no larger one was measured.",
    };
    let against = now.map(|now| against(many, chosen, now, storage, outcome));
    format!("{count} need a readahead of {}{why}{}", many.with(chosen), against.unwrap_or_default())
}

/// Compares the chosen readahead with the current one, `now`, and advises it if that is worth it.
fn against(
    many: &Curve<'_>,
    chosen: usize,
    now: usize,
    storage: &Storage,
    outcome: &mut Outcome,
) -> String {
    let set = many.with(now);
    let bytes = |index: usize| many.cells[index].cell.readahead.bytes;
    let advice = || {
        let (to, from) = (bytes(chosen)?, bytes(now)?);
        let gain = many.judge.ratio(&many.rates[chosen], &many.rates[now])?;
        if !many.misses(now) {
            return None; // [RCN-2]
        }
        let advice = Advice::worth_it(
            NAME,
            (AppliesTo::BlockDevice, "read_ahead_kb"),
            [(from / 1024).to_string(), (to / 1024).to_string()],
            gain,
            format!(
                "{} at once: {} against {set}, {} rounds",
                readers(many.cells[now].cell.readers),
                many.with(chosen),
                gain.rounds,
            ),
        );
        advice.zip(Some(to))
    };
    let Some((advice, to)) = advice() else {
        return format!(" What is set now, {set}, is not clearly worse: leave it.");
    };
    let sentence = format!(
        " That is {:.1} times ({:.1} to {:.1}) what they get with what is set now, {set}. {}",
        advice.gain,
        advice.gain_low,
        advice.gain_high,
        how_to_set(storage, to)
    );
    outcome.advice.push(advice);
    sentence
}

/// How to change it.
fn how_to_set(storage: &Storage, bytes: u64) -> String {
    match &storage.device {
        Some(device) => format!(
            "Set it with `blockdev --setra {} /dev/{}`, and keep it by a udev rule.",
            bytes / SECTOR_BYTES,
            device.name
        ),
        None => format!(
            "This filesystem has no block device: write {} to read_ahead_kb of its entry in \
             /sys/class/bdi after each mount.",
            bytes / 1024
        ),
    }
}

#[cfg(test)]
pub(super) mod tests;
