//! random_page_cost, computed from where an index scan and a sequential scan take equally long; and seq_page_cost
//! relative to the processor's costs.
//!
//! The planner compares scans of a key range by page costs. At one share of a table's rows it changes from an index
//! scan to a sequential scan; at another share the two really cross on the disk. The second is measured: both scans run
//! cold on ranges of growing shares, round by round. Then EXPLAIN alone is used to find the value with which the
//! planner changes there. So everything else that the planner counts, such as the expected cache and the order of the
//! rows, is included. seq_page_cost stays as it is, because one crossing determines one ratio. Worked example: the
//! scans cross at 1.2 % of the rows; the planner changes at 3.5 % with 4, and at 1.2 % with 11.
//!
//! The second result is the cost of a sequential page relative to a tuple: from memory, the same sequential scan takes
//! only processor time, which cpu_tuple_cost and cpu_operator_cost count. Worked example: 31 rows a page, each 0.015,
//! are 0.465; the scan takes 3.2 times as long cold, so a page costs 2.2 times 0.465, 1.02. It is reported with the
//! random_page_cost that belongs to it, and not proposed: jit_above_cost, parallel_setup_cost and others are absolute
//! costs, and would mean other times.
//!
//! The gain is proved as for any setting, on ranges between the two shares, with the scans that the planner chooses
//! freely, including bitmap scans: if these are so fast that replacing one by a sequential scan is a loss, nothing is
//! proposed. The crossing of bitmap scans was tried as the criterion and rejected: at that share they touch nearly
//! every block, and random_page_cost hardly matters.
//!
//! Invariants:  [CST-1] with the advised value the planner changes within a fifth of the share at which the scans cross
//!              [CST-2] a scan that is not significantly slower cold than from memory yields no cost of a page
//! Failure:     tables that are too large to read whole, or that stay in the server's buffers, are left out and
//!              reported.

use serde::{Deserialize, Serialize};

use super::prove::{Site, Value};
use super::query::{self, Query, Shape};
use super::server::{RANDOM, SEQUENTIAL, Table};
use forebay_measure::progress::Progress;
use forebay_measure::report::numbers;
use forebay_measure::statistics::{Estimate, paired_ratio, unpaired_ratio};

/// Maximum blocks of the table, because it is read whole some thirty times: 1 GiB.
const BLOCKS_MAX: u64 = 131_072;

/// If the order of rows and index correlates more than this, the scans hardly cross.
const CORRELATION_MAX: f64 = 0.5;

/// Rows of the first range: few enough for the slowest disk.
const ROWS_FIRST: f64 = 200.0;

/// Maximum number of measurements that approach the crossing, and rounds at it.
const STEPS: usize = 4;
const ROUNDS: u32 = 5;

/// Logarithms: a time ratio within the first needs no further step; two shares that differ by more than the second give
/// a slope.
const NEAR: f64 = 0.1;
const DISTANCE: f64 = 0.7;

/// Range in which random_page_cost is searched.
const COSTS: [f64; 2] = [0.05, 5000.0];

/// Largest factor between the planner's share and the crossing that is near enough: a fifth.
const ENOUGH: f64 = 1.2;

/// Settings that make the planner choose either scan.
const BY_INDEX: [(&str, &str); 2] = [("enable_seqscan", "off"), ("enable_bitmapscan", "off")];
const IN_SEQUENCE: [(&str, &str); 2] = [("enable_indexscan", "off"), ("enable_bitmapscan", "off")];

/// Where the two scans of a table cross, and where the planner changes between them, as shares of its rows.
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
    /// The random_page_cost to set, and the share at which the planner changes with it.
    pub(super) advised: String,
    pub(super) advised_share: f64,
    #[serde(default)]
    pub(super) page: Option<PageCost>,
}

/// The cost of a sequential page, in the unit of cpu_tuple_cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PageCost {
    /// Time of a cold sequential scan, relative to that of one from memory.
    pub(super) cold: Estimate,
    /// seq_page_cost, and the ends of its interval.
    pub(super) cost: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The random_page_cost with which the planner then changes where the scans cross; none if no value achieves that.
    pub(super) random: Option<f64>,
}

impl PageCost {
    /// From the processor's cost of a scan, `cpu` per page; none if cold is not significantly slower [CST-2].
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

    /// As a sentence; `current`: the present seq_page_cost.
    pub(super) fn text(&self, table: &str, current: &str) -> String {
        let [ratio, low, high, from, to] =
            [self.cold.value, self.cold.low, self.cold.high, self.low, self.high]
                .map(numbers::number);
        let random = self.random.map_or_else(
            || format!("no {RANDOM} makes the planner change"),
            |random| format!("{RANDOM} = {random} makes the planner change"),
        );
        let is_met = current.parse::<f64>().is_ok_and(|it| (self.low..=self.high).contains(&it));
        let place = if is_met { "within" } else { "outside" };
        format!(
            "{SEQUENTIAL} = {} ({from} to {to}) is the measured cost of a sequential page, given the present \
             cpu_tuple_cost; the present value, {current}, is {place} this interval. A sequential scan of {table} \
             takes {ratio} times as long cold as from memory ({low} to {high}, {} rounds). With this {SEQUENTIAL}, \
             {random} at the crossing. This is for information only: changing the unit would change the meaning of \
             absolute costs such as jit_above_cost.",
            self.cost, self.cold.rounds
        )
    }
}

impl Crossing {
    /// Whether the planner already changes near the crossing.
    pub(super) fn is_met(&self) -> bool {
        is_near(self.planned_share, self.share)
    }

    /// Whether it does so with the advised value [CST-1].
    pub(super) fn is_reached(&self) -> bool {
        is_near(self.advised_share, self.share)
    }

    /// The measurement as a sentence; `current`: the present random_page_cost.
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

/// The most suitable of `tables`: large, but small enough to be read whole. If there is none, a remark says why.
pub(super) fn table<'s>(site: &mut Site<'_>, tables: &[&'s Table]) -> Option<&'s Table> {
    let shuffled = |table: &&&Table| {
        table.index.as_ref().is_some_and(|index| index.correlation <= CORRELATION_MAX)
    };
    let mut found = tables.iter().filter(shuffled).filter(|table| table.blocks <= BLOCKS_MAX);
    let why = if !site.drop_caches {
        "it needs whole scans of a table from a cold cache: use --drop-caches"
    } else if let Some(table) = found.find(|table| site.forgets(table)) {
        return Some(table);
    } else {
        "it needs a table of at most 1 GiB with an index whose order is not that of the rows, four times as large as \
         shared_buffers or on a server that can evict it (PostgreSQL 17 with pg_buffercache)"
    };
    site.remark(format!("{RANDOM} is not tried: {why}."));
    None
}

/// Finds the crossing of `table`; none if a scan takes too long or they do not cross.
///
/// # Errors
/// A server error on our own statements, or an interruption.
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
        // Exponent of an index scan's time by its rows: below 1 if blocks are read repeatedly.
        let log = ratio.value.ln();
        if let Some((earlier, at)) = before
            && (share.ln() - at).abs() > DISTANCE
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
    // A range predicate has two comparisons.
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

/// The random_page_cost with which the planner changes at `share` if seq_page_cost is `unit`, and the share at which it
/// changes with that value, rounded.
fn crossing_at(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    unit: f64,
) -> anyhow::Result<(f64, f64)> {
    let exact = halved(COSTS, |cost| is_by_index(site, table, share, [cost, unit]))?;
    // A random page never costs less than a sequential one: that would mean memory, which is not measured here.
    let cost = rounded(exact.max(unit));
    Ok((cost, planned(site, table, [cost, unit])?))
}

/// Seconds of a sequential scan from memory, per round; empty if it takes too long.
fn warm(
    site: &mut Site<'_>,
    table: &Table,
    share: f64,
    progress: &mut Progress,
) -> anyhow::Result<Vec<f64>> {
    let Some(query) = Query::share(table, share) else { return Ok(Vec::new()) };
    site.drop_caches = false;
    // The first round fills the cache.
    let found = site.rates(query, &[values(IN_SEQUENCE)], ROUNDS + 1, progress);
    site.drop_caches = true;
    Ok(found?
        .map_or_else(Vec::new, |rates| rates[0].iter().skip(1).map(|rate| 1.0 / rate).collect()))
}

/// Seconds of each scan for `share`, per round; none if one of them takes too long.
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

/// The share at which the planner changes to a sequential scan with `costs`, random_page_cost and seq_page_cost.
fn planned(site: &mut Site<'_>, table: &Table, costs: [f64; 2]) -> anyhow::Result<f64> {
    halved([1.0 / table.rows, 1.0], |share| is_by_index(site, table, share, costs))
}

/// Where between `low` and `high` `holds` becomes false, by bisection of logarithms; to half a percent.
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

/// Ranges between the two shares for which the planner, free to choose, has other plans with the advised value; and a
/// count of all rows if its plan changes too: it must not read the table instead of a small index in memory.
///
/// # Errors
/// A server error on our own statements, or an interruption.
pub(super) fn between(
    site: &mut Site<'_>,
    table: &Table,
    crossing: &Crossing,
    [current, advised]: [&Value; 2],
) -> anyhow::Result<Vec<Query>> {
    // At most three times the share: with the worse plan each run takes that much longer.
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

/// Rounds to two digits, an error of less than a tenth.
fn rounded(cost: f64) -> f64 {
    let scale = 10_f64.powf(cost.log10().floor() - 1.0);
    // Formatting and parsing drops the digits that come from the scale's own error.
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
        let text = page.text("public.orders", "1");
        let words = [
            "seq_page_cost = 1 (0.930 to 1.16)",
            "the present value, 1, is within this interval",
            "3.20 times as long cold",
            "With this seq_page_cost, random_page_cost = 13 makes the planner change at the crossing",
        ];
        assert!(words.iter().all(|it| text.contains(it)), "{text}");
        let text = page.text("public.orders", "2");
        assert!(text.contains("the present value, 2, is outside this interval"), "{text}");
        page.random = None;
        let text = page.text("public.orders", "1");
        assert!(
            text.contains("no random_page_cost makes the planner change at the crossing"),
            "{text}"
        );
        assert!(PageCost::of(cold(1.3, 0.98), 0.465).is_none(), "[CST-2]");
    }

    #[test]
    fn halving_finds_where_something_stops() {
        let found = halved([0.05, 5000.0], |it| Ok(it < 27.0)).unwrap();
        assert!((found / 27.0).ln().abs() < 0.005, "{found}");
        assert!(halved(COSTS, |_| Ok(true)).unwrap() > 4900.0);
    }
}
