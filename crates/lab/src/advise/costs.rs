//! random_page_cost, from where an index scan and a sequential scan really take as long as each other.
//!
//! The planner weighs a range of keys by costs of pages. There is a share of a table's rows at which it changes from an
//! index scan to a sequential one, and a share at which the two really cross on the disk. The second is measured: ranges
//! of growing shares by both scans, cold, round by round. Then that value is looked for at which the planner
//! changes there, by EXPLAIN alone. So whatever else the planner counts, the cache it hopes for, the order of the rows, is in
//! it. seq_page_cost stays: it is the unit, and one crossing tells one ratio. Worked example: they cross at 1.2 % of the
//! rows, and with 4 the planner changes at 3.5 %; with 11 it does at 1.2 %.
//!
//! What that gains is proved as any setting is, on ranges between the two shares, with the scans that the planner chooses by
//! itself, bitmap scans among them: where these are so fast that a sequential scan in place of one is a loss, nothing is
//! proposed. To have the crossing of bitmap scans decide was tried: where it lies, they touch nearly every block, and
//! random_page_cost hardly counts.
//!
//! Invariants:  [CST-1] the value that is advised has the planner change within a fifth of the share at which the scans cross
//! Failure:     tables that are too large to be read whole, or stay in the server's buffers, are left out, and it is told.

use serde::{Deserialize, Serialize};

use super::prove::{Site, Value};
use super::query::{self, Query};
use super::server::{RANDOM, Table};
use crate::progress::Progress;
use crate::report::numbers;
use crate::statistics::paired_ratio;

/// A table that is read whole some thirty times has at most so many blocks: 1 GiB.
const BLOCKS_MAX: u64 = 131_072;

/// A table whose rows are in the index's order to more than this has scans that hardly cross.
const CORRELATION_MAX: f64 = 0.5;

/// Rows of the first range: few enough for the slowest disk.
const ROWS_FIRST: f64 = 200.0;

/// The measurements that come nearer to the crossing, and the rounds at it.
const STEPS: usize = 4;
const ROUNDS: u32 = 5;

/// Nearer than this, as a logarithm, a step needs no other; two shares that are further apart than this tell a slope.
const NEAR: f64 = 0.1;
const APART: f64 = 0.7;

/// Between which values of random_page_cost it is looked for.
const COSTS: [f64; 2] = [0.05, 5000.0];

/// The planner changes near enough to the crossing: within a fifth.
const ENOUGH: f64 = 1.2;

/// How to have the planner choose either scan.
const INDEX: [(&str, &str); 2] = [("enable_seqscan", "off"), ("enable_bitmapscan", "off")];
const SEQUENTIAL: [(&str, &str); 2] = [("enable_indexscan", "off"), ("enable_bitmapscan", "off")];

/// Where the two scans of a table cross, and where the planner changes from one to the other. All shares are of its rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Crossing {
    pub(super) disk: String,
    pub(super) table: String,
    pub(super) share: f64,
    pub(super) share_low: f64,
    pub(super) share_high: f64,
    pub(super) rounds: usize,
    /// With the present random_page_cost.
    pub(super) planned_share: f64,
    /// What random_page_cost should be, and where the planner then changes.
    pub(super) advised: String,
    pub(super) advised_share: f64,
}

impl Crossing {
    /// Whether the planner changes where it should already.
    pub(super) fn is_met(&self) -> bool {
        is_near(self.planned_share, self.share)
    }

    /// Whether it does with the advised value [CST-1].
    pub(super) fn is_reached(&self) -> bool {
        is_near(self.advised_share, self.share)
    }

    /// What was measured, as a sentence.
    pub(super) fn evidence(&self, current: &str) -> String {
        let percent = |share: f64| format!("{} %", numbers::number(share * 100.0));
        format!(
            "Index scan and sequential scan of {} cross at {} of its rows ({} to {}, {} rounds); the planner changes at {} with \
             {current}, at {} with {}.",
            self.table,
            percent(self.share),
            percent(self.share_low),
            percent(self.share_high),
            self.rounds,
            percent(self.planned_share),
            percent(self.advised_share),
            self.advised,
        )
    }
}

fn is_near(one: f64, other: f64) -> bool {
    (one / other).ln().abs() <= ENOUGH.ln()
}

/// The one of `tables` that serves best: large, and short enough to be read whole.
pub(super) fn table<'s>(site: &mut Site<'_>, tables: &[&'s Table]) -> Option<&'s Table> {
    let server = site.server;
    let buffers = server.setting("shared_buffers").and_then(|it| it.value.parse::<u64>().ok());
    let is_forgotten = |table: &Table| {
        server.evicts_by.is_some() || buffers.is_some_and(|blocks| blocks * 4 <= table.blocks)
    };
    let shuffled = |table: &&&Table| {
        table.index.as_ref().is_some_and(|index| index.correlation <= CORRELATION_MAX)
    };
    let mut found = tables.iter().filter(shuffled).filter(|table| table.blocks <= BLOCKS_MAX);
    let why = if !site.drop_caches {
        "it takes whole scans of a table from a cold cache: --drop-caches"
    } else if let Some(table) = found.find(|table| is_forgotten(table)) {
        return Some(table);
    } else {
        "it takes a table of at most 1 GiB with an index whose order is not that of the rows, four times as large as \
         shared_buffers or on a server that can let go of it (PostgreSQL 17 with pg_buffercache)"
    };
    site.remark(format!("{RANDOM} is not tried: {why}."));
    None
}

/// Finds the crossing of `table`; none where a scan takes too long or they do not cross.
///
/// # Errors
/// What the server says of our own statements, or an interruption.
pub(super) fn crossing(
    site: &mut Site<'_>,
    (disk, table): (&str, &Table),
    progress: &mut Progress,
) -> anyhow::Result<Option<Crossing>> {
    let least = 2.0 / table.rows;
    let mut share = (ROWS_FIRST / table.rows).min(0.01);
    let mut before: Option<(f64, f64)> = None;
    let mut slope = 1.0;
    let mut rounds = 1;
    let mut found = None;
    for step in 0..=STEPS {
        if step == STEPS {
            rounds = ROUNDS;
        }
        let Some([index, sequential]) = times(site, table, share, rounds, progress)? else {
            return Ok(None);
        };
        let Some(ratio) = paired_ratio(&index, &sequential) else { return Ok(None) };
        // How the time of an index scan grows: less than its rows where blocks come again.
        let log = ratio.value.ln();
        if let Some((earlier, at)) = before
            && (share.ln() - at).abs() > APART
        {
            slope = ((log - earlier) / (share.ln() - at)).clamp(0.5, 1.0);
        }
        let at = |ratio: f64| share / ratio.powf(1.0 / slope);
        if rounds > 1 {
            found = Some((at(ratio.value), at(ratio.high), at(ratio.low), ratio.rounds));
            break;
        }
        if log.abs() < NEAR {
            rounds = ROUNDS;
        }
        before = Some((log, share.ln()));
        share = at(ratio.value);
        if !(least..=0.9).contains(&share) {
            site.remark(format!(
                "{RANDOM} is not advised on {disk}: index scan and sequential scan of {} do not cross.",
                table.name
            ));
            return Ok(None);
        }
    }
    let Some((share, share_low, share_high, rounds)) = found else { return Ok(None) };
    let server = site.server;
    let number = |name: &str| server.setting(name).and_then(|it| it.value.parse::<f64>().ok());
    let (Some(now), Some(unit)) = (number(RANDOM), number("seq_page_cost")) else {
        return Ok(None);
    };
    let planned_share = planned(site, table, now)?;
    let exact = halved(COSTS, |cost| is_by_index(site, table, share, cost))?;
    // No page at random is cheaper than one in sequence: what is cheaper still is memory, which is not what is measured.
    let advised = rounded(exact.max(unit));
    let advised_share = planned(site, table, advised)?;
    let (disk, table) = (disk.to_owned(), table.name.clone());
    let advised = advised.to_string();
    Ok(Some(Crossing {
        disk,
        table,
        share,
        share_low,
        share_high,
        rounds,
        planned_share,
        advised,
        advised_share,
    }))
}

/// Seconds that each scan takes for so large a share, in turn; none where one of them takes too long.
fn times(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    rounds: u32,
    progress: &mut Progress,
) -> anyhow::Result<Option<[Vec<f64>; 2]>> {
    let Some(query) = Query::share(table, share) else { return Ok(None) };
    let arms = [INDEX, SEQUENTIAL].map(values);
    let found = site.rates(query, &arms, rounds, progress)?;
    let seconds = |rates: &Vec<f64>| rates.iter().map(|rate| 1.0 / rate).collect();
    Ok(found.map(|rates| [seconds(&rates[0]), seconds(&rates[1])]))
}

fn values(settings: [(&str, &str); 2]) -> Vec<Value> {
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// The share at which the planner changes to a sequential scan with that random_page_cost.
fn planned(site: &mut Site<'_>, table: &Table, cost: f64) -> anyhow::Result<f64> {
    halved([1.0 / table.rows, 1.0], |share| is_by_index(site, table, share, cost))
}

/// Where in `range` something stops to hold, by halving logarithms; to a half of a percent.
fn halved(
    [low, high]: [f64; 2],
    mut holds: impl FnMut(f64) -> anyhow::Result<bool>,
) -> anyhow::Result<f64> {
    let (mut low, mut high) = (low.ln(), high.ln());
    while high - low > 0.005 {
        let middle = f64::midpoint(low, high);
        if holds(middle.exp())? { low = middle } else { high = middle }
    }
    Ok(f64::midpoint(low, high).exp())
}

fn is_by_index(site: &mut Site<'_>, table: &Table, share: f64, cost: f64) -> anyhow::Result<bool> {
    let arm = [("enable_bitmapscan", "off".to_owned()), (RANDOM, cost.to_string())];
    let arm = arm.map(|(name, value)| (name.to_owned(), value));
    let Some(query) = Query::share(table, share) else { return Ok(false) };
    let plan = site.planned(&query, &arm)?;
    Ok(query::find(query::root(&plan)?, "Seq Scan").is_none())
}

/// Ranges between the two shares for which the planner, free in its choice, has other plans with the advised value.
///
/// # Errors
/// What the server says of our own statements, or an interruption.
pub(super) fn between(
    site: &mut Site<'_>,
    table: &Table,
    crossing: &Crossing,
    [current, advised]: [&Value; 2],
) -> anyhow::Result<Vec<Query>> {
    // At most three times as much: with the worse plan each run takes so much longer.
    let factor = (crossing.planned_share / crossing.share).clamp(1.0 / 3.0, 3.0);
    let mut queries = Vec::new();
    for power in [0.5, 1.0] {
        let Some(query) = Query::share(table, (crossing.share * factor.powf(power)).min(0.9))
        else {
            continue;
        };
        let plans =
            [current, advised].map(|value| site.planned(&query, std::slice::from_ref(value)));
        let [now, then] = plans;
        if query::nodes(&now?) != query::nodes(&then?) {
            queries.push(query);
        }
    }
    Ok(queries)
}

/// To two digits, which is nearer than a tenth.
fn rounded(cost: f64) -> f64 {
    let scale = 10_f64.powf(cost.log10().floor() - 1.0);
    // Written as text and read: no digits that come of the scale's own.
    format!("{:.4}", (cost / scale).round() * scale).parse().unwrap_or(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_rounded_to_two_digits() {
        for (cost, text) in [(1.0, "1"), (1.26, "1.3"), (3.97, "4"), (26.6, "27"), (148.2, "150")] {
            assert_eq!(rounded(cost).to_string(), text);
        }
    }

    #[test]
    fn halving_finds_where_something_stops() {
        let found = halved([0.05, 5000.0], |it| Ok(it < 27.0)).unwrap();
        assert!((found / 27.0).ln().abs() < 0.005, "{found}");
        assert!(halved(COSTS, |_| Ok(true)).unwrap() > 4900.0);
    }
}
