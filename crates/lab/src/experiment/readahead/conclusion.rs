//! What part `throughput` says: the knee of the curve, and what to set.
//!
//! The curve is that of the most readers, since it is them that a small readahead costs most; with files of
//! their own and the smallest read if there are several. Its knee is the smallest readahead that is as good
//! as the best. What is advised is at the knee or above it, and costs one reader less than 5 % of its own
//! best. Worked example: eight readers get 464 MB/s with 6 MiB, 485 with 8 MiB and 61 with the 128 KiB that
//! are set, all in the same rounds; 6 MiB is advised, which is 7.6 times as much.
//!
//! A cell that could not be measured decides nothing and is named once; it keeps no other from deciding.
//!
//! Invariants:  [RCN-1] what is advised reaches the bound of the best, for the most readers and for the fewest
//!              [RCN-2] nothing is advised unless what is set now surely misses it, by three rounds at least

use super::files::Files;
use super::throughput::{Cache, Cell, Throughput, files_name, readers};
use super::{NAME, Settings, sentence};
use crate::experiment::{Outcome, unique};
use crate::facts::Storage;
use crate::report::{Advice, AppliesTo, Conclusion, Proposal, Verdict};
use crate::statistics::{
    BOUND, Estimate, Judgement, ROUNDS_MIN, judge, knee, median, paired_ratio, ratio_to_best,
};
use crate::units::typed_size;

/// Sectors are what `blockdev` counts in, whatever the disk's own are.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Everything with one kind of files and one size of a read.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) files: Option<Files>,
    pub(super) request_bytes: u64,
    /// Through the page cache.
    pub(super) cells: Vec<&'a Cell>,
    /// Past it, of the same files.
    pub(super) ceilings: Vec<&'a Cell>,
}

/// The cells of one number of readers that can be compared, readahead ascending.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    pub(super) cells: Vec<&'a Cell>,
    rates: Vec<Vec<f64>>,
}

/// Which readahead a group comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// As good as the best for the most readers, by its number on their curve.
    pub(super) knee: usize,
    /// That or a larger one, if there is one that does not cost the fewest readers too much.
    pub(super) chosen: Option<usize>,
    /// Whether more rounds would say the same.
    is_decided: bool,
}

/// All groups, that of which conclusions are drawn first.
pub(super) fn groups(cells: &[Cell]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.cell.cache == Cache::Buffered) {
        let (files, request_bytes) = (cell.cell.files, cell.cell.request_bytes);
        let is_of =
            |group: &&mut Group<'_>| (group.files, group.request_bytes) == (files, request_bytes);
        match groups.iter_mut().find(is_of) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group {
                files,
                request_bytes,
                cells: vec![cell],
                ceilings: cells.iter().filter(|cell| is_ceiling(cell, files)).collect(),
            }),
        }
    }
    groups.sort_by_key(|group| (group.files != Some(Files::Own), group.request_bytes));
    groups
}

fn is_ceiling(cell: &Cell, files: Option<Files>) -> bool {
    cell.cell.cache == Cache::Direct && cell.cell.files == files
}

impl<'a> Group<'a> {
    /// Numbers of readers, ascending.
    pub(super) fn readers(&self) -> Vec<u32> {
        let mut readers: Vec<u32> = self.cells.iter().map(|cell| cell.cell.readers).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// What of one number of `readers` can be compared.
    pub(super) fn curve(&self, readers: u32) -> Curve<'a> {
        let here = self.cells.iter().filter(|cell| cell.cell.readers == readers);
        let rounds = here.clone().map(|cell| cell.rounds.len()).max().unwrap_or(0);
        let good = here.filter(|cell| {
            let has_all = cell.failure.is_none() && rounds > 0 && cell.rounds.len() == rounds;
            let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0;
            has_all && cell.cold && cell.rates().iter().all(is_rate)
        });
        let cells: Vec<&Cell> = good.copied().collect();
        Curve { rates: cells.iter().map(|cell| cell.rates()).collect(), cells }
    }

    /// The curves of the most readers and, if there are others, of the fewest.
    fn ends(&self) -> Option<(Curve<'a>, Option<Curve<'a>>)> {
        let readers = self.readers();
        let (&fewest, &most) = (readers.first()?, readers.last()?);
        Some((self.curve(most), (fewest < most).then(|| self.curve(fewest))))
    }

    /// The readahead that this comes to, if anything can be compared.
    pub(super) fn choice(&self, settings: &Settings) -> Option<Choice> {
        let (many, few) = self.ends()?;
        let knee = knee(&many.slices())?;
        let all = 0..many.cells.len();
        let of = |index: usize| {
            let of_few = few.as_ref().and_then(|few| few.judged(few.position(many.cells[index])?));
            many.judged(index).into_iter().chain(of_few)
        };
        let is = |index: usize, what: Judgement| of(index).any(|(_, judgement)| judgement == what);
        let reaches = |&index: &usize| {
            !is(index, Judgement::Misses) && of(index).all(|(ratio, _)| ratio.value >= BOUND)
        };
        let chosen = (knee..all.end).find(reaches); // [RCN-1]
        let now = many.position_of(settings.knob.found_bytes);
        let mut open =
            all.filter(|&index| is(index, Judgement::Undecided) && !is(index, Judgement::Misses));
        let is_open =
            open.any(|index| chosen.is_none_or(|chosen| index <= chosen) || now == Some(index));
        Some(Choice { knee, chosen, is_decided: !is_open })
    }
}

impl Curve<'_> {
    fn slices(&self) -> Vec<&[f64]> {
        self.rates.iter().map(Vec::as_slice).collect()
    }

    /// What one is of the best of them, and which that is.
    fn ratio(&self, index: usize) -> Option<(usize, Estimate)> {
        ratio_to_best(&self.rates[index], &self.slices())
    }

    /// What that comes to.
    fn judged(&self, index: usize) -> Option<(Estimate, Judgement)> {
        let (_, ratio) = self.ratio(index)?;
        Some((ratio, judge(ratio, self.rates[index].len())))
    }

    /// The cell under the same readahead as `other`.
    fn position(&self, other: &Cell) -> Option<usize> {
        self.cells.iter().position(|cell| cell.cell.readahead == other.cell.readahead)
    }

    /// The cell that was measured with `bytes` of readahead.
    fn position_of(&self, bytes: Option<u64>) -> Option<usize> {
        self.cells.iter().position(|cell| bytes.is_some() && cell.cell.readahead.bytes == bytes)
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
        let (files, request) = (files_name(cell.files), typed_size(cell.request_bytes));
        Some(Verdict {
            experiment: NAME.to_owned(),
            row: format!("{}, {files}, reads of {request}", readers(cell.readers)),
            entrant: format!("readahead {}", cell.readahead),
            rival: format!("readahead {}", self.cells[best].cell.readahead),
            ratio: ratio.value,
            low: ratio.low,
            high: ratio.high,
            verdict: self.judged(index)?.1,
        })
    }
}

/// What is to be measured again, since it decides and is not decided: a cell of each such row.
pub(super) fn undecided(settings: &Settings, cells: &[Cell]) -> Vec<Throughput> {
    let groups = groups(cells);
    let open = groups.first().and_then(|group| {
        let choice = group.choice(settings)?;
        let readers = group.readers();
        let ends = group.cells.iter().map(|cell| &cell.cell);
        let ends = ends.filter(|it| [readers.first(), readers.last()].contains(&Some(&it.readers)));
        (!choice.is_decided).then(|| ends.cloned().collect())
    });
    open.unwrap_or_default()
}

/// Puts the verdicts, the advice and the sentences into `outcome`.
pub(super) fn draw(settings: &Settings, storage: &Storage, cells: &[Cell], outcome: &mut Outcome) {
    let groups = groups(cells);
    if let Some(group) = groups.first() {
        let told = of_group(group, settings, storage, outcome);
        outcome.conclusions.push(sentence(told));
        if let Some(why) = &settings.knob.why_not_device {
            outcome.conclusions.push(sentence(format!(
                "The readahead was varied by advice for descriptors, since the device's cannot be set ({why})."
            )));
        }
    }
    outcome.conclusions.extend(unmeasured(cells));
}

fn of_group(
    group: &Group<'_>,
    settings: &Settings,
    storage: &Storage,
    outcome: &mut Outcome,
) -> String {
    let none = |why: &str| format!("No conclusion about readahead: {why}.");
    let rounds = group.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0);
    match (group.ends(), group.choice(settings)) {
        _ if group.cells.iter().all(|cell| !cell.cold) => none(
            "the page cache could not be emptied, so these are the speeds of memory, not of a disk",
        ),
        _ if rounds < ROUNDS_MIN => none(&format!("it takes --rounds {ROUNDS_MIN} at least")), // [RCN-2]
        (Some((many, few)), Some(choice)) if many.cells.len() > 1 => {
            let now = many.position_of(settings.knob.found_bytes);
            of_curves(&many, few.as_ref(), &choice, now, storage, outcome)
        }
        _ => none("too little could be measured"),
    }
}

fn of_curves(
    many: &Curve<'_>,
    few: Option<&Curve<'_>>,
    choice: &Choice,
    now: Option<usize>,
    storage: &Storage,
    outcome: &mut Outcome,
) -> String {
    let count = readers(many.cells[0].cell.readers).replace("readers", "sequential readers");
    let mut order: Vec<usize> = (0..many.cells.len()).collect();
    order.sort_by(|&a, &b| many.rate(a).total_cmp(&many.rate(b)));
    let (slowest, fastest) = (order[0], order[order.len() - 1]);
    outcome.verdicts.extend(now.and_then(|now| many.verdict(now)));
    let misses = |&index: &usize| matches!(many.judged(index), Some((_, Judgement::Misses)));
    if !order.iter().any(misses) {
        return format!(
            "The kernel's readahead makes no difference here that is clear: {count} get {:.0} to {:.0} MB/s with \
             any of those measured.",
            many.rate(slowest),
            many.rate(fastest),
        );
    }
    let Some(chosen) = choice.chosen else {
        return format!(
            "{count} need a readahead of {}, but each that is as good for them costs fewer readers more than \
             5 %: no setting is best for both.",
            many.with(choice.knee),
        );
    };
    let few = few.and_then(|few| Some((few, few.position(many.cells[chosen])?)));
    if now != Some(chosen) {
        outcome.verdicts.extend(many.verdict(chosen));
    }
    outcome.verdicts.extend(few.and_then(|(few, index)| few.verdict(index)));
    let mut told = format!("{count} need a readahead of {}", many.with(chosen));
    let gain = paired_ratio(&many.rates[chosen], &many.rates[slowest]);
    if let Some(gain) = gain.filter(|_| chosen != slowest) {
        told.push_str(&format!(": {:.1} times as much as with {}", gain.value, many.with(slowest)));
    }
    told.push_str(match (chosen > choice.knee, chosen + 1 < many.cells.len()) {
        (true, _) => "; a smaller one would do for them, but cost fewer readers more than 5 %.",
        (false, true) => "; more gains less than 5 %.",
        (false, false) => ". A larger one was not measured.",
    });
    told + &now.map_or(String::new(), |now| against(many, chosen, now, storage, outcome))
}

/// Compares the chosen readahead with what is set `now`, and advises it if that is worth it.
fn against(
    many: &Curve<'_>,
    chosen: usize,
    now: usize,
    storage: &Storage,
    outcome: &mut Outcome,
) -> String {
    let (set, rounds) = (many.with(now), many.rates[now].len());
    match many.judged(now) {
        Some((_, Judgement::Misses)) => {} // [RCN-2]
        Some((ratio, _)) if ratio.value >= BOUND => {
            return format!(" What is set now, {set}, is as good: leave it.");
        }
        _ => return format!(" What is set now, {set}, is not clearly worse: leave it."),
    }
    let bytes = |index: usize| many.cells[index].cell.readahead.bytes;
    let gain = paired_ratio(&many.rates[chosen], &many.rates[now]);
    let (Some(gain), Some(to), Some(from)) = (gain, bytes(chosen), bytes(now)) else {
        return String::new();
    };
    let count = readers(many.cells[now].cell.readers);
    let advice = Advice::worth_it(Proposal {
        experiment: NAME,
        setting: "read_ahead_kb",
        applies_to: AppliesTo::BlockDevice,
        current: Some((from / 1024).to_string()),
        advised: (to / 1024).to_string(),
        gain,
        rounds,
        evidence: format!("{count} at once: {} against {set}, {rounds} rounds", many.with(chosen)),
    });
    let Some(advice) = advice else {
        return format!(" What is set now, {set}, is not clearly worse: leave it.");
    };
    let told = format!(
        " That is {:.1} times ({:.1} to {:.1}) what they get with what is set now, {set}. {}",
        advice.gain,
        advice.gain_low,
        advice.gain_high,
        how_to_set(storage, to)
    );
    outcome.advice.push(advice);
    told
}

/// What to do about it.
fn how_to_set(storage: &Storage, bytes: u64) -> String {
    let (sectors, kib) = (bytes / SECTOR_BYTES, bytes / 1024);
    match &storage.device {
        Some(device) => format!(
            "Set it with `blockdev --setra {sectors} /dev/{}`; to keep it over a restart, have a udev rule for \
             that disk set ATTR{{queue/read_ahead_kb}} to {kib}.",
            device.name
        ),
        None => format!(
            "This filesystem has no block device of its own: write {kib} to read_ahead_kb of its entry in \
             /sys/class/bdi after each mount."
        ),
    }
}

/// What could not be measured, once for each reason.
fn unmeasured(cells: &[Cell]) -> Vec<Conclusion> {
    let failed = || cells.iter().filter_map(|cell| Some((&cell.cell, cell.failure.as_ref()?)));
    let reasons = unique(&failed().map(|(_, why)| why).collect::<Vec<_>>());
    let told = reasons.into_iter().map(|why| {
        let of_reason = failed().filter(|(_, other)| *other == why);
        let labels: Vec<String> = of_reason.map(|(cell, _)| cell.label()).collect();
        sentence(format!("Not measured: {} ({why}).", labels.join("; ")))
    });
    told.collect()
}

#[cfg(test)]
pub(super) mod tests;
