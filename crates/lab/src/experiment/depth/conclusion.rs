//! What the cells of `depth` say: how many blocks to prefetch, and what that is as a setting.
//!
//! A depth is advised where its line's knee is, judged against every depth that was measured, also those
//! that a setting does not take: what is past a limit may be better, and then that is said.
//!
//! `io_method=worker` has two settings. With PostgreSQL's default of three workers the depth is
//! effective_io_concurrency; at one depth the number of threads is io_workers.
//!
//! Source:      PostgreSQL 14 to 18, guc_tables.c, for defaults and limits.

use forebay_io::{CacheMode, Kind};

use super::cell::{Engine, Line, Row};
use super::settings::PG_WORKERS;
use super::{NAME, Settings};
use crate::experiment::rounds;
use crate::report::{Advice, AppliesTo, Conclusion, Proposal, Verdict, numbers};
use crate::statistics::{self, Judgement};

/// PostgreSQL takes no larger value for effective_io_concurrency and maintenance_io_concurrency.
const CONCURRENCY_MAX: u32 = 1000;

/// PostgreSQL's effective_io_concurrency, and from 18 on maintenance_io_concurrency too.
const CONCURRENCY_18: u32 = 16;

/// Forebay's own queue_depth. Source: `QUEUE_DEPTH_DEFAULT` of the pool's tablespaces.
const QUEUE_DEPTH: u32 = 256;

/// What follows from the cells.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) advice: Vec<Advice>,
    pub(super) conclusions: Vec<Conclusion>,
}

/// A setting that is a number of requests in flight.
#[derive(Debug, Clone, Copy)]
struct Depth {
    setting: &'static str,
    applies_to: AppliesTo,
    default: u32,
    max: u32,
}

/// The verdicts, the advice, and the sentences, the most useful first.
pub(super) fn draw(settings: &Settings, lines: &[Line<'_>], rows: &[Row]) -> Found {
    let ours: Vec<&Line<'_>> =
        lines.iter().filter(|line| line.cell().backend != Engine::Fio).collect();
    let Some(best) = fastest(&ours) else {
        let warm = rows.iter().any(|row| !row.cold);
        let why = if warm {
            "No conclusion: the page cache could not be emptied, so these are the speeds of memory, \
             not of a disk."
        } else {
            "No conclusion: nothing could be measured."
        };
        return Found { conclusions: vec![sentence(why.to_owned())], ..Found::default() };
    };
    let (mut advice, mut conclusions) = (Vec::new(), Vec::new());
    conclusions.extend(headline(settings, best, &ours).map(sentence));
    for line in &ours {
        for depth in depth_settings(line) {
            let (advised, limit) = for_depth(line, depth);
            advice.extend(advised);
            // The same of each setting of a line, and said once.
            let said =
                |limit: &String| conclusions.iter().any(|it: &Conclusion| it.sentence == *limit);
            let limit = limit.filter(|limit| !said(limit));
            conclusions.extend(limit.map(sentence));
        }
    }
    advice.extend(io_workers(settings, &ours, &advice));
    advice.extend(backend(&ours));
    let verdicts = ours.iter().flat_map(|line| verdicts(line)).collect();
    Found { verdicts, advice, conclusions }
}

fn sentence(sentence: String) -> Conclusion {
    Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    }
}

/// The line that is the fastest at its knee; by its fastest cell it would be the luckiest of all.
pub(super) fn fastest<'l, 'a>(lines: &[&'l Line<'a>]) -> Option<&'l Line<'a>> {
    let rate = |line: &Line<'_>| line.knee().and_then(Row::rate).unwrap_or(0.0);
    lines.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// What the knee, and the depth before it, are of the best of the others.
fn verdicts(line: &Line<'_>) -> Vec<Verdict> {
    let Some(knee) = line.knee() else { return Vec::new() };
    let before = line.rows.iter().rev().find(|row| row.cell.depth < knee.cell.depth);
    let judged = |row: &Row| {
        let (rival, ratio) = line.compared(row)?;
        Some(Verdict {
            experiment: NAME.to_owned(),
            row: line.label(),
            entrant: format!("depth {}", row.cell.depth),
            rival: format!("depth {}", rival.cell.depth),
            ratio: ratio.value,
            low: ratio.low,
            high: ratio.high,
            verdict: statistics::judge(ratio, line.rounds()),
        })
    };
    before.into_iter().chain([&knee]).filter_map(|row| judged(row)).collect()
}

/// Which line is the fastest, where it is, and which others may be as good.
fn headline(settings: &Settings, best: &Line<'_>, lines: &[&Line<'_>]) -> Option<String> {
    let (start, knee) = (best.rows[0], best.knee()?);
    let prefetched = match knee.cell.depth {
        0 => "nothing prefetched".to_owned(),
        depth => format!("{depth} prefetched"),
    };
    let gain = statistics::paired_ratio(&knee.rates(), &start.rates());
    let gained = match gain {
        _ if best.rows.len() == 1 => "the only depth measured".to_owned(),
        Some(gain) if gain.low > 1.0 && knee.rounds.len() >= statistics::ROUNDS_MIN => format!(
            "{} ({} to {}) times depth {}",
            numbers::number(gain.value),
            numbers::number(gain.low),
            numbers::number(gain.high),
            start.cell.depth
        ),
        _ => format!("no clear gain over depth {}", start.cell.depth),
    };
    let judgement =
        best.compared(knee).map(|(rival, ratio)| (rival, statistics::judge(ratio, best.rounds())));
    let surely = match judgement {
        Some((_, Judgement::Keeps)) => "; no other depth is more than 5 % faster".to_owned(),
        Some((rival, _)) => {
            format!(
                "; {} rounds do not tell whether depth {} is faster",
                best.rounds(),
                rival.cell.depth
            )
        }
        None => String::new(),
    };
    let as_good: Vec<String> = lines
        .iter()
        .filter(|line| line.label() != best.label() && may_be_as_fast(line, best))
        .map(|line| line.label())
        .collect();
    let (which, others) = match as_good.as_slice() {
        [] => ("The fastest way", String::new()),
        [one] => ("One of the fastest ways", format!("; {one} is not surely slower")),
        [one, other] => {
            ("One of the fastest ways", format!("; {one} and {other} are not surely slower"))
        }
        more => {
            ("One of the fastest ways", format!("; {} others are not surely slower", more.len()))
        }
    };
    Some(format!(
        "{which} to read random blocks here is {}: {} of {} with {prefetched}, {gained}{surely}{others}.",
        best.label(),
        knee.told(),
        crate::units::shown_size(settings.block_bytes),
    ))
}

fn may_be_as_fast(line: &Line<'_>, best: &Line<'_>) -> bool {
    let (Some(ours), Some(theirs)) = (line.fastest(), best.knee()) else { return false };
    let (a, b) = (ours.rates(), theirs.rates());
    let (a, b) = rounds::side_by_side(&a, &b);
    statistics::paired_ratio(a, b)
        .is_some_and(|ratio| ratio.value >= statistics::BOUND || ratio.high >= 1.0)
}

/// The settings for which a line stands. PostgreSQL reads through the page cache: with WILLNEED up to
/// version 17 and with `io_method=sync`, by worker processes or io_uring from 18 on.
fn depth_settings(line: &Line<'_>) -> Vec<Depth> {
    let postgres = |applies_to, effective, maintenance| {
        [("effective_io_concurrency", effective), ("maintenance_io_concurrency", maintenance)]
            .map(|(setting, default)| Depth { setting, applies_to, default, max: CONCURRENCY_MAX })
            .to_vec()
    };
    let (cell, new) = (line.cell(), CONCURRENCY_18);
    match (cell.backend, cell.cache, cell.workers) {
        (Engine::Forebay(Kind::Sync), CacheMode::Buffered, _) => [
            postgres(AppliesTo::Postgres14To17, 1, super::settings::PG_MAINTENANCE),
            postgres(AppliesTo::Postgres18Sync, new, new),
        ]
        .concat(),
        (Engine::Forebay(Kind::Threads), CacheMode::Buffered, Some(PG_WORKERS)) => {
            postgres(AppliesTo::Postgres18Worker, new, new)
        }
        (Engine::Forebay(Kind::Uring), CacheMode::Buffered, _) => {
            postgres(AppliesTo::Postgres18Uring, new, new)
        }
        (Engine::Forebay(Kind::Uring), CacheMode::Direct, _) => {
            let (setting, applies_to) = ("queue_depth", AppliesTo::Profile);
            vec![Depth { setting, applies_to, default: QUEUE_DEPTH, max: u32::MAX }]
        }
        _ => Vec::new(),
    }
}

/// What a line says about a depth, and in a sentence that it is best past the setting's limit.
fn for_depth(line: &Line<'_>, depth: Depth) -> (Option<Advice>, Option<String>) {
    let knee = line.knee();
    let beyond = knee.filter(|knee| knee.cell.depth > depth.max && !line.is_undecided());
    let beyond = beyond.map(|knee| {
        format!(
            "{} is best with {} prefetched, more than PostgreSQL's limit of {}: {}.",
            line.label(),
            knee.cell.depth,
            depth.max,
            knee.told()
        )
    });
    // Only a depth that was measured is advised, so never the limit in place of what is past it.
    let rows = line.rows.iter().copied().filter(|row| row.cell.depth <= depth.max).collect();
    let settable = Line { rows };
    let advised = settable.rows.first().and_then(|_| advised_depth(&settable, depth));
    (advised, beyond)
}

fn advised_depth(line: &Line<'_>, depth: Depth) -> Option<Advice> {
    let (knee, now) = (line.knee()?, line.at(depth.default)?);
    // A pool's queue is for writes too: that reads need less is no reason to make it shorter.
    if depth.applies_to == AppliesTo::Profile && knee.cell.depth < depth.default {
        return None;
    }
    Advice::worth_it(Proposal {
        experiment: NAME,
        setting: depth.setting,
        applies_to: depth.applies_to,
        current: Some(depth.default.to_string()),
        advised: knee.cell.depth.to_string(),
        gain: statistics::paired_ratio(&knee.rates(), &now.rates())?,
        rounds: line.rounds(),
        evidence: format!(
            "{}, random reads from a cold cache: {} at depth {}, {} at {} ({} rounds).",
            line.label(),
            knee.told(),
            knee.cell.depth,
            now.told(),
            now.cell.depth,
            line.rounds()
        ),
    })
}

/// io_workers, at the depth that PostgreSQL would have with what is advised already: a number of threads
/// that was measured, at most so many for each processor, by its gain against the default.
fn io_workers(settings: &Settings, lines: &[&Line<'_>], advised: &[Advice]) -> Option<Advice> {
    let of_worker = |one: &&Advice| {
        one.applies_to == AppliesTo::Postgres18Worker && one.setting == "effective_io_concurrency"
    };
    let in_effect = advised.iter().find(of_worker).and_then(|one| one.advised.parse().ok());
    let most = in_effect.unwrap_or(CONCURRENCY_18);
    let mut by_workers: Vec<(u32, &Line<'_>)> = lines
        .iter()
        .filter(|line| line.cell().is(Kind::Threads, CacheMode::Buffered))
        .filter_map(|&line| Some((line.cell().workers?, line)))
        .filter(|(workers, _)| *workers <= settings.workers_max())
        .collect();
    by_workers.sort_by_key(|(workers, _)| *workers);
    let (_, default) = by_workers.iter().find(|(workers, _)| *workers == PG_WORKERS)?;
    let common =
        |depth: u32| by_workers.iter().filter(|(_, line)| line.at(depth).is_some()).count();
    let depths = default.rows.iter().map(|row| row.cell.depth);
    let depth = depths.filter(|&depth| depth <= most && common(depth) > 1).max()?;
    let rows: Vec<&Row> = by_workers.iter().filter_map(|(_, line)| line.at(depth)).collect();
    let rounds = rows.iter().map(|row| row.rounds.len()).min()?;
    let rates: Vec<Vec<f64>> =
        rows.iter().map(|row| row.rates().into_iter().take(rounds).collect()).collect();
    let knee = statistics::knee(&rates.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let now = rows.iter().position(|row| row.cell.workers == Some(PG_WORKERS))?;
    let workers = rows[knee].cell.workers?;
    Advice::worth_it(Proposal {
        experiment: NAME,
        setting: "io_workers",
        applies_to: AppliesTo::Postgres18Worker,
        current: Some(PG_WORKERS.to_string()),
        advised: workers.to_string(),
        gain: statistics::paired_ratio(&rates[knee], &rates[now])?,
        rounds,
        evidence: format!(
            "{workers} threads that read buffered at depth {depth} on {} processors: {}, with \
             {PG_WORKERS} threads {} ({rounds} rounds).",
            settings.processors,
            rows[knee].told(),
            rows[now].told()
        ),
    })
}

/// Forebay's backend, if another one than the first that works is surely faster past the page cache.
fn backend(lines: &[&Line<'_>]) -> Option<Advice> {
    let direct = |kind: Kind| {
        let line = lines.iter().find(|line| line.cell().is(kind, CacheMode::Direct))?;
        Some((kind, line.knee()?))
    };
    // In this order the pool tries them.
    let found: Vec<(Kind, &Row)> = Kind::ALL.into_iter().filter_map(direct).collect();
    let (&(auto, now), others) = found.split_first()?;
    let gain = |row: &Row| {
        let (ours, theirs) = (row.rates(), now.rates());
        let (ours, theirs) = rounds::side_by_side(&ours, &theirs);
        statistics::paired_ratio(ours, theirs)
    };
    let (kind, row, gain) = others
        .iter()
        .filter_map(|&(kind, row)| Some((kind, row, gain(row)?)))
        .max_by(|a, b| a.2.value.total_cmp(&b.2.value))?;
    let rounds = row.rounds.len().min(now.rounds.len());
    Advice::worth_it(Proposal {
        experiment: NAME,
        setting: "backend",
        applies_to: AppliesTo::Profile,
        current: Some("auto".to_owned()),
        advised: kind.to_string(),
        gain,
        rounds,
        evidence: format!(
            "{kind} direct: {} at depth {}; {auto} direct, which auto takes here: {} at depth {}.",
            row.told(),
            row.cell.depth,
            now.told(),
            now.cell.depth
        ),
    })
}

#[cfg(test)]
mod tests;
