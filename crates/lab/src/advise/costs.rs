//! random_page_cost, from where an index scan and a sequential scan really take as long as each other; and seq_page_cost beside
//! what the processor costs.
//!
//! The planner weighs a range of keys by costs of pages. There is a share of a table's rows at which it changes from an
//! index scan to a sequential one, and a share at which the two really cross on the disk. The second is measured: ranges
//! of growing shares by both scans, cold, round by round. Then that value is looked for at which the planner
//! changes there, by EXPLAIN alone. So whatever else the planner counts, the cache it hopes for, the order of the rows, is in
//! it. With seq_page_cost as it is, since one crossing tells one ratio. Worked example: they cross at 1.2 % of the
//! rows, and with 4 the planner changes at 3.5 %; with 11 it does at 1.2 %.
//!
//! The second figure is what a page in sequence costs beside a tuple: the same sequential scan from memory takes the processor's part
//! alone, which cpu_tuple_cost and cpu_operator_cost count. Worked example: 31 rows a page, each 0.015, are 0.465; the scan takes 3.2 times
//! as long cold, so that a page costs 2.2 times 0.465, 1.02. It is told with the random_page_cost that belongs to it, and not
//! proposed: jit_above_cost, parallel_setup_cost and others are absolute figures, and would begin to mean other times.
//!
//! What that gains is proved as any setting is, on ranges between the two shares, with the scans that the planner chooses by
//! itself, bitmap scans among them: where these are so fast that a sequential scan in place of one is a loss, nothing is
//! proposed. To have the crossing of bitmap scans decide was tried: where it lies, they touch nearly every block, and
//! random_page_cost hardly counts.
//!
//! Invariants:  [CST-1] the value that is advised has the planner change within a fifth of the share at which the scans cross
//!              [CST-2] what was no slower cold than from memory tells no cost of a page
//! Failure:     tables that are too large to be read whole, or stay in the server's buffers, are left out, and it is told.

use serde::{Deserialize, Serialize};

use super::prove::{Site, Value};
use super::query::{self, Query, Shape};
use super::server::{RANDOM, SEQUENTIAL, Table};
use crate::progress::Progress;
use crate::report::numbers;
use crate::statistics::{Estimate, paired_ratio, unpaired_ratio};

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
const BY_INDEX: [(&str, &str); 2] = [("enable_seqscan", "off"), ("enable_bitmapscan", "off")];
const IN_SEQUENCE: [(&str, &str); 2] = [("enable_indexscan", "off"), ("enable_bitmapscan", "off")];

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
    #[serde(default)]
    pub(super) page: Option<PageCost>,
}

/// What a page in sequence costs, in the unit of cpu_tuple_cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PageCost {
    /// What a sequential scan takes cold of what it takes from memory.
    pub(super) cold: Estimate,
    /// seq_page_cost, and the ends of its interval.
    pub(super) cost: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// With which the planner then changes where the scans cross; none if it does with no value.
    pub(super) random: Option<f64>,
}

impl PageCost {
    /// Of a table of which the processor's part of a scan costs `cpu` a page; none where cold is not surely slower [CST-2].
    fn of(cold: Estimate, cpu: f64) -> Option<PageCost> {
        let at = |ratio: f64| cpu * (ratio - 1.0);
        (cold.low > 1.0).then(|| PageCost {
            cold,
            cost: rounded(at(cold.value)),
            low: at(cold.low),
            high: at(cold.high),
            random: None,
        })
    }

    /// As a sentence; `current`: seq_page_cost as it is.
    pub(super) fn told(&self, table: &str, current: &str) -> String {
        let [ratio, low, high, from, to] =
            [self.cold.value, self.cold.low, self.cold.high, self.low, self.high]
                .map(numbers::number);
        let random = self.random.map_or_else(
            || "no random_page_cost has the planner change where scans cross beside it".to_owned(),
            |random| format!("random_page_cost = {random} belongs to it"),
        );
        let is_met = current.parse::<f64>().is_ok_and(|it| (self.low..=self.high).contains(&it));
        let right = if is_met { ", with which what is set agrees" } else { "" };
        format!(
            "{SEQUENTIAL} = {} ({from} to {to}) is what a page in sequence costs beside cpu_tuple_cost, in place of {current}{right}: a \
             sequential scan of {table} takes {ratio} times as long cold as from memory ({low} to {high}, {} rounds). {random}. Neither \
             is tried nor set: jit_above_cost, parallel_setup_cost and other absolute costs would mean other times.",
            self.cost, self.cold.rounds
        )
    }
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
    let shuffled = |table: &&&Table| {
        table.index.as_ref().is_some_and(|index| index.correlation <= CORRELATION_MAX)
    };
    let mut found = tables.iter().filter(shuffled).filter(|table| table.blocks <= BLOCKS_MAX);
    let why = if !site.drop_caches {
        "it takes whole scans of a table from a cold cache: --drop-caches"
    } else if let Some(table) = found.find(|table| site.forgets(table)) {
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
            found = Some((at(ratio.value), at(ratio.high), at(ratio.low), sequential));
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
    let Some((share, share_low, share_high, cold)) = found else { return Ok(None) };
    let rounds = cold.len();
    let server = site.server;
    let number = |name: &str| server.setting(name).and_then(|it| it.value.parse::<f64>().ok());
    let costs = [RANDOM, SEQUENTIAL, "cpu_tuple_cost", "cpu_operator_cost"].map(number);
    let [Some(now), Some(unit), Some(tuple), Some(operator)] = costs else { return Ok(None) };
    let planned_share = planned(site, table, [now, unit])?;
    let (advised, advised_share) = crossing_at(site, table, share, unit)?;
    // A range has two comparisons.
    let cpu = table.rows / table.blocks as f64 * (tuple + 2.0 * operator);
    let warm = warm(site, table, share, progress)?;
    let mut page = unpaired_ratio(&cold, &warm).and_then(|ratio| PageCost::of(ratio, cpu));
    if let Some(page) = &mut page {
        let (random, at) = crossing_at(site, table, share, page.cost)?;
        page.random = Some(random).filter(|_| is_near(at, share));
    }
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
        page,
    }))
}

/// The random_page_cost with which, beside that seq_page_cost, the planner changes at `share`, and the share at which it then does.
fn crossing_at(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    unit: f64,
) -> anyhow::Result<(f64, f64)> {
    let exact = halved(COSTS, |cost| is_by_index(site, table, share, [cost, unit]))?;
    // No page at random is cheaper than one in sequence: what is cheaper still is memory, which is not what is measured.
    let cost = rounded(exact.max(unit));
    Ok((cost, planned(site, table, [cost, unit])?))
}

/// Seconds that a sequential scan takes from memory, round by round; nothing where it takes too long.
fn warm(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    progress: &mut Progress,
) -> anyhow::Result<Vec<f64>> {
    let Some(query) = Query::share(table, share) else { return Ok(Vec::new()) };
    site.drop_caches = false;
    // The first fills it.
    let found = site.rates(query, &[values(IN_SEQUENCE)], ROUNDS + 1, progress);
    site.drop_caches = true;
    Ok(found?
        .map_or_else(Vec::new, |rates| rates[0].iter().skip(1).map(|rate| 1.0 / rate).collect()))
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
    let arms = [BY_INDEX, IN_SEQUENCE].map(values);
    let found = site.rates(query, &arms, rounds, progress)?;
    let seconds = |rates: &Vec<f64>| rates.iter().map(|rate| 1.0 / rate).collect();
    Ok(found.map(|rates| [seconds(&rates[0]), seconds(&rates[1])]))
}

fn values(settings: [(&str, &str); 2]) -> Vec<Value> {
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// The share at which the planner changes to a sequential scan with that random_page_cost and seq_page_cost.
fn planned(site: &mut Site<'_>, table: &Table, costs: [f64; 2]) -> anyhow::Result<f64> {
    halved([1.0 / table.rows, 1.0], |share| is_by_index(site, table, share, costs))
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

fn is_by_index(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    [random, unit]: [f64; 2],
) -> anyhow::Result<bool> {
    let arm = [
        ("enable_bitmapscan", "off".to_owned()),
        (RANDOM, random.to_string()),
        (SEQUENTIAL, unit.to_string()),
    ];
    let arm = arm.map(|(name, value)| (name.to_owned(), value));
    let Some(query) = Query::share(table, share) else { return Ok(false) };
    let plan = site.planned(&query, &arm)?;
    Ok(query::find(query::root(&plan)?, "Seq Scan").is_none())
}

/// Ranges between the two shares for which the planner, free in its choice, has other plans with the advised value; beside them a
/// count of all rows, if its plan changes too: a small index that is in memory is no reason to read the table.
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
    let share = |power| Query::share(table, (crossing.share * factor.powf(power)).min(0.9));
    let ranges = [0.5, 1.0].into_iter().filter_map(share);
    for query in ranges.chain([Query::count(table)]) {
        if query.shape == Shape::Count && queries.is_empty() {
            break;
        }
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
    fn cst_2_a_page_costs_what_a_cold_scan_takes_more_than_one_from_memory() {
        let cold = |value, low| Estimate { value, low, high: 3.5, rounds: 5 };
        let mut page = PageCost::of(cold(3.2, 3.0), 31.0 * 0.015).unwrap();
        assert_eq!((page.cost.to_string().as_str(), page.cold.rounds), ("1", 5));
        page.random = Some(13.0);
        let told = page.told("public.orders", "1");
        let words = [
            "seq_page_cost = 1 (0.930 to 1.16)",
            "what is set agrees",
            "3.20 times as long cold",
            "random_page_cost = 13 belongs",
        ];
        assert!(words.iter().all(|it| told.contains(it)), "{told}");
        assert!(!page.told("public.orders", "2").contains("agrees"));
        assert!(PageCost::of(cold(1.3, 0.98), 0.465).is_none(), "[CST-2]");
    }

    #[test]
    fn halving_finds_where_something_stops() {
        let found = halved([0.05, 5000.0], |it| Ok(it < 27.0)).unwrap();
        assert!((found / 27.0).ln().abs() < 0.005, "{found}");
        assert!(halved(COSTS, |_| Ok(true)).unwrap() > 4900.0);
    }
}
