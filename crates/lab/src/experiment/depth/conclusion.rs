//! Conclusions from the cells of `depth`: how many blocks to prefetch, and the settings for that.
//!
//! The advised depth is the knee of a line, judged against every measured depth that the setting
//! supports.
//!
//! `io_method=worker` has two settings. With PostgreSQL's default of three workers the depth is
//! effective_io_concurrency; at one depth the number of threads is io_workers.
//!
//! Source:      PostgreSQL 14 to 18, guc_tables.c, for defaults and limits.

use forebay_io::{CacheMode, Kind};

use super::cell::{CONCURRENCY_18, Cell, DepthSetting, EFFECTIVE, Line, PG_WORKERS, Row};
use super::settings::{NAME, Settings};
use crate::experiment::Outcome;
use forebay_measure::report::{Advice, AppliesTo, Conclusion, Verdict, tables};
use forebay_measure::statistics::{BOUND, Judgement};
use forebay_measure::units::shown_size;

/// PostgreSQL accepts no larger value for effective_io_concurrency and maintenance_io_concurrency.
const CONCURRENCY_MAX: u32 = 1000;

/// The verdicts, the advice, and the sentences.
pub(super) fn draw(settings: &Settings, lines: &[Line<'_>], rows: &[Row]) -> Outcome {
    let ours: Vec<&Line<'_>> = lines.iter().filter(|line| line.cell().backend.is_some()).collect();
    let sentence = match fastest(&ours) {
        Some(best) => headline(settings, best, &ours),
        None if rows.iter().any(|row| !row.cold) => Some(
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
                .to_owned(),
        ),
        None => Some("No conclusion: nothing could be measured.".to_owned()),
    };
    let depths = ours.iter().flat_map(|line| {
        let settings = line.cell().depth_settings().into_iter();
        settings.filter_map(|setting| depth_advice(line, setting))
    });
    let mut advice: Vec<Advice> = depths.collect();
    advice.extend(io_workers(settings, &ours, &advice));
    advice.extend(backend(&ours));
    let verdicts = ours.iter().flat_map(|line| verdicts(line)).collect();
    Outcome { verdicts, advice, conclusions: Conclusion::all(NAME, sentence), ..Outcome::default() }
}

/// The line that is the fastest at its knee; chosen by its fastest cell it would be the luckiest of all.
pub(super) fn fastest<'l, 'a>(lines: &[&'l Line<'a>]) -> Option<&'l Line<'a>> {
    let rate = |line: &Line<'_>| line.near_best().and_then(Row::rate).unwrap_or(0.0);
    lines.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// The ratios of the knee, and of the depth before it, to the best of the others.
fn verdicts(line: &Line<'_>) -> Vec<Verdict> {
    let judged = |row: &&Row| {
        let (rival, ratio) = line.compared(row)?;
        let of = [row, rival].map(|row| format!("depth {}", row.cell.depth));
        Some(Verdict::new(NAME, line.label(), of, ratio))
    };
    line.about_the_knee().iter().filter_map(judged).collect()
}

/// Which line is the fastest, where it is, and which others may be as good.
fn headline(settings: &Settings, best: &Line<'_>, lines: &[&Line<'_>]) -> Option<String> {
    let (start, knee) = (best.rows[0], best.near_best()?);
    let gained = match best.judge.ratio(&knee.rates(), &start.rates()) {
        _ if best.rows.len() == 1 => "the only depth measured".to_owned(),
        Some(gain) if gain.is_gain() => {
            let times = tables::times(gain.value, gain.low, gain.high);
            format!("{times} that of depth {}", start.cell.depth)
        }
        _ => format!("no clear gain over depth {}", start.cell.depth),
    };
    let others = lines.iter().filter(|line| line.label() != best.label());
    let as_good: Vec<String> =
        others.filter(|line| may_be_as_fast(line, knee)).map(|line| line.label()).collect();
    let (which, others) = if as_good.is_empty() {
        ("The fastest way", String::new())
    } else {
        ("One of the fastest ways", format!("; not significantly slower: {}", as_good.join(", ")))
    };
    let edge = if best.is_edge(knee) {
        ". No larger depth was measured: the knee is not reached"
    } else {
        ""
    };
    Some(format!(
        "{which} to read random blocks here is {}: {} of {} with {} prefetched, {gained}{others}{edge}.",
        best.label(),
        knee.text(),
        shown_size(settings.block_bytes),
        knee.cell.depth,
    ))
}

fn may_be_as_fast(line: &Line<'_>, best: &Row) -> bool {
    let ratio = line.fastest().and_then(|row| line.run.ratio(&row.rates(), &best.rates()));
    ratio.is_some_and(|ratio| ratio.value >= BOUND || ratio.high >= 1.0)
}

/// Whether more rounds of a line could show where its knee is, or whether a setting gains.
pub(super) fn is_open(line: &Line<'_>) -> bool {
    let is_undecided = |setting| {
        let compared = settable(line, setting)
            .and_then(|(line, advised, now)| line.judge.ratio(&now.rates(), &advised.rates()));
        compared.is_some_and(|ratio| ratio.judgement() == Judgement::Undecided)
    };
    line.is_undecided() || line.cell().depth_settings().into_iter().any(is_undecided)
}

/// The part of a line that a setting supports, the smallest depth that reaches the best of it, and the default; `None`
/// if these are the same.
fn settable<'a>(
    line: &Line<'a>,
    (applies_to, _, default): DepthSetting,
) -> Option<(Line<'a>, &'a Row, &'a Row)> {
    let is_profile = applies_to == AppliesTo::Profile;
    // Only a measured depth is advised, so never the limit instead of a depth beyond it.
    let is_settable = |row: &&Row| is_profile || row.cell.depth <= CONCURRENCY_MAX;
    let rows = line.rows.iter().copied().filter(is_settable).collect();
    let line = Line { rows, ..*line };
    let (advised, now) = (line.near_best()?, line.at(default)?);
    // A pool's queue also serves writes: a lower need of reads is no reason to make it shorter.
    let is_shorter = is_profile && advised.cell.depth < default;
    (advised.cell != now.cell && !is_shorter).then_some((line, advised, now))
}

/// The depth that reaches the best of a line, against the default of a setting.
fn depth_advice(line: &Line<'_>, setting: DepthSetting) -> Option<Advice> {
    let (line, advised, now) = settable(line, setting)?;
    let (applies_to, setting, default) = setting;
    let edge = if line.is_edge(advised) {
        " The knee is not reached: it is the largest depth measured that the setting takes."
    } else {
        ""
    };
    Advice::worth_it(
        NAME,
        (applies_to, setting),
        [default.to_string(), advised.cell.depth.to_string()],
        line.judge.ratio(&advised.rates(), &now.rates())?,
        format!(
            "{}, random reads from a cold cache: {} at depth {}, {} at {default} ({} rounds).{edge}",
            line.label(),
            advised.text(),
            advised.cell.depth,
            now.text(),
            line.rounds()
        ),
    )
}

/// io_workers, at the depth that PostgreSQL would have with the advice so far: a measured number of threads,
/// up to a maximum for each processor, by its gain over the default.
fn io_workers(settings: &Settings, lines: &[&Line<'_>], advised: &[Advice]) -> Option<Advice> {
    let of_worker =
        |one: &&Advice| one.applies_to == AppliesTo::Postgres18Worker && one.setting == EFFECTIVE;
    let in_effect = advised.iter().find(of_worker).and_then(|one| one.advised.parse().ok());
    let most = in_effect.unwrap_or(CONCURRENCY_18);
    let is_settable = |cell: Cell| {
        cell.is(Kind::Threads, CacheMode::Buffered)
            && cell.workers.is_some_and(|workers| workers <= settings.workers_max())
    };
    // By the number of threads, where the default is among them.
    let at = |depth: u32| {
        let lines = lines.iter().filter(|line| is_settable(line.cell()));
        let mut rows: Vec<&Row> = lines.filter_map(|line| line.at(depth)).collect();
        rows.sort_by_key(|row| row.cell.workers);
        let now = rows.iter().position(|row| row.cell.workers == Some(PG_WORKERS))?;
        (rows.len() > 1).then_some((depth, rows, now))
    };
    let rows = lines.iter().flat_map(|line| &line.rows);
    let depths = rows.map(|row| row.cell.depth).filter(|&depth| depth <= most);
    let (depth, rows, now) = depths.filter_map(at).max_by_key(|(depth, ..)| *depth)?;
    let rates: Vec<Vec<f64>> = rows.iter().map(|row| row.rates()).collect();
    let judge = lines.first()?.run;
    let knee = judge.knee(&rates)?;
    let gain = judge.ratio(&rates[knee], &rates[now])?;
    let workers = rows[knee].cell.workers?;
    Advice::worth_it(
        NAME,
        (AppliesTo::Postgres18Worker, "io_workers"),
        [PG_WORKERS.to_string(), workers.to_string()],
        gain,
        format!(
            "{workers} threads that read buffered at depth {depth} on {} processors: {}, with \
             {PG_WORKERS} threads {} ({} rounds).",
            settings.processors,
            rows[knee].text(),
            rows[now].text(),
            gain.rounds,
        ),
    )
}

/// Forebay's backend, if another one than the first that works is surely faster past the page cache.
fn backend(lines: &[&Line<'_>]) -> Option<Advice> {
    let direct = |kind: Kind| {
        let line = lines.iter().find(|line| line.cell().is(kind, CacheMode::Direct))?;
        Some((kind, line.near_best()?))
    };
    // In this order the pool tries them.
    let found: Vec<(Kind, &Row)> = Kind::ALL.into_iter().filter_map(direct).collect();
    let (&(auto, now), others) = found.split_first()?;
    let rate = |row: &Row| row.rate().unwrap_or(0.0);
    let &(kind, row) = others.iter().max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)))?;
    Advice::worth_it(
        NAME,
        (AppliesTo::Profile, "backend"),
        ["auto".to_owned(), kind.to_string()],
        lines.first()?.run.ratio(&row.rates(), &now.rates())?,
        format!(
            "{kind} direct: {} at depth {}; {auto} direct, which auto takes here: {} at depth {}.",
            row.text(),
            row.cell.depth,
            now.text(),
            now.cell.depth
        ),
    )
}

#[cfg(test)]
mod tests;
