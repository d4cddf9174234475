//! Proof on the server: queries run in turn under the present and the proposed settings.
//!
//! In a round each query runs once under each candidate ("arm"), one after the other. The order is shuffled in every
//! other round and reversed in the next. So a temporary slowdown of the server affects all arms, and none is favoured
//! by chance because it finds in memory what the one before has read. A *search* first finds the value to try; a
//! *proof* then measures its gain over the present one in new rounds, because the rounds by which the best was chosen
//! overstate it.
//!
//! Generated queries are compared by rows a second, because two parts of a table differ in size; the user's queries by
//! runs a second.
//!
//! Invariants:  [PRV-1] a query runs in a read-only transaction that is rolled back, with a time limit
//!              [PRV-2] the rounds of a proof are not those of the search
//!              [PRV-3] a value that makes any query significantly slower is not proposed, however much another one
//!              gains
//!              [PRV-5] what --apply has set is measured again in a new session, as it takes effect there, not under
//!              SET LOCAL
//! Failure:     a query that the server refuses or that takes too long is left out, and the reason is reported.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use super::query::{self, Query, Shape};
use super::server::{Server, Table};
use super::trial::{Phase, Rates, Run, Trial, goes_on, good, narrow, together, turn};
use crate::args::PostgresArgs;
use forebay_measure::interrupt;
use forebay_measure::progress::Progress;
use forebay_measure::report::{Advice, AppliesTo, Record, Verdict, numbers};
use forebay_measure::statistics::{Estimate, Judgement, median, paired_ratio};
use forebay_session::{Connection, Refused};

/// The experiment's name in records.
pub(super) const NAME: &str = "advise";

/// Rounds of a search: it finds a knee, not a gain. With dropped caches it gets more rounds within this time, until it
/// is decided which values are near the best; otherwise they would use up parts that the proof needs unread. Only a
/// slow disk uses all of the time: at 300 requests a second it makes some ten rounds of the remaining values [PRV-9].
const SEARCH_ROUNDS: u32 = 3;
const SEARCH_ROUNDS_MOST: u32 = 16;
const SEARCH_TIME: Duration = Duration::from_secs(60);

/// The fastest of this many runs fits a query to the disk, if they take no longer than this time.
const FITS: u32 = 3;
const FIT_TIME: Duration = Duration::from_secs(2);

/// A proof that is undecided after its rounds gets up to this many times as many, if they take no longer than this
/// time.
const MORE: u32 = 4;
const MORE_TIME: Duration = Duration::from_mins(2);

/// A table with more than this share in memory says little about a disk.
pub(super) const CACHED: f64 = 0.3;

/// A setting and its value in one arm.
pub(super) type Value = (String, String);

/// Where and how queries run.
pub(super) struct Site<'a> {
    pub(super) connection: Connection,
    /// The session of the user's queries, if there are any.
    pub(super) given: Option<Connection>,
    pub(super) server: &'a Server,
    pub(super) statement_timeout: Duration,
    /// Whether pages are evicted before each query.
    pub(super) drop_caches: bool,
    pub(super) random: fastrand::Rng,
    /// What was left out, and why; each remark occurs once.
    pub(super) remarks: Vec<String>,
    pub(super) records: Vec<Record>,
    /// Whether a table was found in the page cache.
    pub(super) from_memory: bool,
}

/// The outcome of a query: its figures, or why there are none.
enum Ran {
    Done(Run),
    LeftOut(Refused),
}

/// SQLSTATE of a statement that exceeds its time limit.
const CANCELED: &str = "57014";

/// The result of a proof.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) verdicts: Vec<Verdict>,
    /// None if there is no significant gain, or a query is significantly slower.
    pub(super) advice: Option<Advice>,
}

impl Proof {
    /// The result of the comparisons and of the total gain.
    fn of(verdicts: Vec<Verdict>, gain: Option<Advice>) -> Proof {
        let harms = verdicts.iter().any(|verdict| verdict.verdict == Judgement::Misses);
        Proof { verdicts, advice: gain.filter(|_| !harms) } // [PRV-3]
    }
}

/// The result of measuring again after --apply.
#[derive(Debug, Serialize)]
pub(super) struct After {
    /// Speed of the queries together, relative to that with the settings from before; none if no query could run.
    pub(super) gain: Option<Estimate>,
    pub(super) evidence: String,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) records: Vec<Record>,
    pub(super) remarks: Vec<String>,
    /// Whether a table that was read was in the page cache: settings for the disk gain nothing then.
    pub(super) from_memory: bool,
}

impl After {
    /// Whether there is a gain for which it would be proposed, and no query is significantly slower.
    pub(super) fn is_there(&self) -> bool {
        self.gain.is_some_and(|gain| gain.is_gain()) && self.harmed().is_none()
    }

    /// The first query that is significantly slower than before.
    pub(super) fn harmed(&self) -> Option<&str> {
        let harmed = self.verdicts.iter().find(|it| it.verdict == Judgement::Misses);
        harmed.map(|it| it.row.as_str())
    }
}

impl<'a> Site<'a> {
    /// Runs queries over `connection`, the user's over `given`, with the options of `args`.
    pub(super) fn new(
        args: &PostgresArgs,
        server: &'a Server,
        connection: Connection,
        given: Option<Connection>,
    ) -> Site<'a> {
        Site {
            connection,
            given,
            server,
            statement_timeout: args.statement_timeout,
            drop_caches: args.drop_caches,
            random: fastrand::Rng::with_seed(args.seed),
            remarks: Vec::new(),
            records: Vec::new(),
            from_memory: false,
        }
    }

    /// The smallest of `values` of `setting` that is as good as the best by `queries` ([`good`]); preferably `hoped`,
    /// which the disk's measurement advises, if it is as good. None if nothing could be measured.
    ///
    /// # Errors
    /// A server error on our own statements, or an interruption.
    pub(super) fn search(
        &mut self,
        setting: &str,
        (values, hoped): (&[String], Option<&String>),
        queries: &mut [Query],
        progress: &mut Progress,
    ) -> anyhow::Result<Option<String>> {
        let arms: Vec<Vec<Value>> =
            values.iter().map(|value| vec![(setting.to_owned(), value.clone())]).collect();
        let may_repeat = |query: &Query| query.table.as_ref().is_none_or(|it| self.forgets(it));
        let most = if self.drop_caches && queries.iter().all(may_repeat) {
            SEARCH_ROUNDS_MOST
        } else {
            SEARCH_ROUNDS
        };
        let found = self.rounds(Phase::Search, queries, &arms, SEARCH_ROUNDS..=most, progress)?;
        let found: Vec<&Rates<'_>> = found.iter().filter(|it| it.harm.is_none()).collect();
        let arms = found.first().map_or(&[][..], |rates| &rates.arms);
        let good: Vec<&String> = good(&found).into_iter().map(|at| &values[arms[at]]).collect();
        Ok(hoped.filter(|value| good.contains(value)).or(good.first().copied()).cloned())
    }

    /// Compares `advised` with `current`, both with the settings `others`, in separate rounds [PRV-2]. The gain is that
    /// of the `queries` whose shape is in `using`.
    ///
    /// # Errors
    /// As [`Site::search`].
    pub(super) fn prove(
        &mut self,
        (applies_to, others): (AppliesTo, &[Value]),
        [current, advised]: [&Value; 2],
        (queries, using): (&mut [Query], &[Shape]),
        rounds: u32,
        progress: &mut Progress,
    ) -> anyhow::Result<Proof> {
        let arms = [current, advised].map(|value| [others, std::slice::from_ref(value)].concat());
        let found = self.rounds(Phase::Proof, queries, &arms, rounds..=rounds * MORE, progress)?;
        let named = |(name, value): &Value| format!("{name} = {value}");
        let verdicts = verdicts(&found, &[named(advised), named(current)]);
        let gain = gain(&found, using, [&advised.1, &current.1]).and_then(|(ratio, evidence)| {
            let change = [current.1.clone(), advised.1.clone()];
            Advice::worth_it(NAME, (applies_to, &advised.0), change, ratio, evidence)
        });
        Ok(Proof::of(verdicts, gain))
    }

    /// Compares the settings in effect with those from `before` [PRV-5]. The gain is that of the `queries` whose shape
    /// is in `using`.
    ///
    /// # Errors
    /// As [`Site::search`].
    pub(super) fn after(
        mut self,
        before: Vec<Value>,
        (queries, using): (&mut [Query], &[Shape]),
        rounds: u32,
    ) -> anyhow::Result<After> {
        let mut progress = Progress::new(u64::from(rounds) * 2 * queries.len() as u64);
        let arms = [before, Vec::new()];
        let found =
            self.rounds(Phase::After, queries, &arms, rounds..=rounds * MORE, &mut progress)?;
        let verdicts = verdicts(&found, &["as set".to_owned(), "as before".to_owned()]);
        let gain = gain(&found, using, ["what is set", "what was set before"]);
        let (gain, evidence) = gain.map_or((None, String::new()), |(gain, it)| (Some(gain), it));
        let Site { records, remarks, from_memory, .. } = self;
        Ok(After { gain, evidence, verdicts, records, remarks, from_memory })
    }

    /// Runs each of `queries` under each of `arms` in each of `rounds`: at least the minimum, and more while the result
    /// is undecided and there is time. A query that can no longer run is left out.
    fn rounds<'q>(
        &mut self,
        phase: Phase,
        queries: &'q mut [Query],
        arms: &[Vec<Value>],
        rounds: RangeInclusive<u32>,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Rates<'q>>> {
        let mut trials: Vec<Trial<'q>> =
            queries.iter_mut().map(|query| Trial::new(query, arms.len())).collect();
        let clock = Instant::now();
        let more_time = if phase == Phase::Search { SEARCH_TIME } else { MORE_TIME };
        let is_open = |trials: &[Trial<'_>]| trials.iter().any(|trial| trial.is_open(phase));
        for round in 0..*rounds.end() {
            if phase == Phase::Search && round >= *rounds.start() {
                narrow(&mut trials);
            }
            let is_late = round >= *rounds.start() && clock.elapsed() >= more_time;
            if is_late || !goes_on(phase, round, *rounds.start(), || is_open(&trials)) {
                break;
            }
            for trial in trials.iter_mut().filter(|trial| !trial.left_out) {
                self.round(phase, (trial, round), arms, progress)?;
            }
        }
        for trial in trials.iter_mut().filter(|it| !it.left_out && it.runs[0].is_empty()) {
            trial.left_out = true;
            self.remark(format!("{} is left out: it has found no rows.", trial.query.label));
        }
        trials.retain(|trial| !trial.left_out || trial.harm.is_some());
        for trial in trials.iter().filter(|trial| !trial.runs[0].is_empty()) {
            for (arm, runs) in arms.iter().zip(&trial.runs) {
                let mut cell = serde_json::Map::new();
                cell.insert("phase".to_owned(), serde_json::json!(phase));
                cell.insert("query".to_owned(), trial.query.label.clone().into());
                cell.extend(arm.iter().map(|(name, value)| (name.clone(), value.clone().into())));
                self.records.push(Record::new(NAME, &cell, runs));
            }
            if trial.query.given_again > 0 {
                self.remark(format!(
                    "{}: parts of it were read more than once, so from memory.",
                    trial.query.label
                ));
            }
            let is_for_the_disk = matches!(trial.query.shape, Shape::Bitmap | Shape::SparseBitmap);
            if is_for_the_disk && trial.buffered() > CACHED {
                self.remark(format!(
                    "{}: much of what it reads was in shared_buffers, so this partly measures memory.",
                    trial.query.label
                ));
            }
        }
        Ok(trials.into_iter().map(Trial::ended).collect())
    }

    /// One round of `trial`, which counts only if each arm has a figure.
    fn round(
        &mut self,
        phase: Phase,
        (trial, rounds_before): (&mut Trial<'_>, u32),
        arms: &[Vec<Value>],
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        turn(&mut trial.order, rounds_before, &mut self.random);
        let mut round = vec![None; arms.len()];
        let mut refusals = Vec::new();
        for arm in trial.order.clone() {
            // After a timeout with the new setting the old one still runs, to find out whether the query can run at
            // all.
            let is_to_see = phase != Phase::Search
                && matches!(&refusals[..], [(1, Refused { code, .. })] if code == CANCELED);
            if !refusals.is_empty() && !is_to_see {
                break;
            }
            progress.step(&format!("{phase}: {}", trial.query.label));
            match self.run(trial.query, &arms[arm])? {
                Ran::Done(run) => round[arm] = Some(run),
                Ran::LeftOut(why) => refusals.push((arm, why)),
            }
        }
        if let [(arm, why), ..] = &refusals[..] {
            trial.left_out = true;
            let is_late = phase != Phase::Search && *arm == 1 && why.code == CANCELED;
            let earlier = round[0].as_ref().filter(|_| is_late);
            trial.harm = earlier.map(|run| run.seconds / self.statement_timeout.as_secs_f64());
            if trial.harm.is_some() {
                let what = "takes longer than --statement-timeout with the new setting, and not with the old one";
                self.remark(format!("{} {what}.", trial.query.label));
            } else {
                self.remark(format!("{} is left out: {why}.", trial.query.label));
            }
            return Ok(());
        }
        // A part without rows says nothing about speed.
        if round.iter().flatten().all(|run| run.per_s > 0.0) {
            for (runs, run) in trial.runs.iter_mut().zip(round) {
                runs.extend(run);
            }
        }
        Ok(())
    }

    /// Whether the server plans `query` as intended; if not, a remark says why.
    ///
    /// # Errors
    /// A server error on our own statements, or an interruption.
    pub(super) fn is_planned(&mut self, query: &Query) -> anyhow::Result<bool> {
        let Some(node) = query.node() else { return Ok(true) };
        let plan = match refusal(self.planned(query, &[]))? {
            Ok(plan) => plan,
            Err(why) => {
                self.remark(format!("{} is left out: {why}.", query.label));
                return Ok(false);
            }
        };
        if query::find(query::root(&plan)?, node).is_some() {
            return Ok(true);
        }
        self.remark(format!("{} is left out: the server plans it without a {node}.", query.label));
        Ok(false)
    }

    /// Runs `query` on `table` with the server's settings, and fits its size to the disk accordingly.
    ///
    /// # Errors
    /// As [`Site::search`].
    pub(super) fn fit(
        &mut self,
        query: &mut Query,
        table: &Table,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let fits = match query.shape {
            Shape::IndexRange | Shape::Join => true,
            // If their pages stay in memory, longer scans would soon leave the proof no unread part.
            Shape::Bitmap | Shape::SparseBitmap => self.forgets(table),
            _ => false,
        };
        if !fits {
            return Ok(());
        }
        if query.shape == Shape::SparseBitmap {
            query.read_anywhere(query.rows_of(table) / table.rows);
            return Ok(());
        }
        progress.step(&format!("how long it takes: {}", query.label));
        // The fastest of a few runs, if they are short: the disk may have been busy with something else during one.
        let (clock, mut fastest) = (Instant::now(), None::<Run>);
        for _ in 0..FITS {
            match self.run(query, &[])? {
                Ran::Done(run) if fastest.is_none_or(|it| it.per_s < run.per_s) => {
                    fastest = Some(run);
                }
                // It was cancelled, so it has read fewer rows than intended.
                Ran::LeftOut(why) if why.code == CANCELED => {
                    query.fit(query.rows_of(table), self.statement_timeout);
                    return Ok(());
                }
                Ran::Done(_) | Ran::LeftOut(_) => {}
            }
            if clock.elapsed() > FIT_TIME {
                break;
            }
        }
        if let Some(run) = fastest {
            query.fit(run.rows, Duration::from_secs_f64(run.seconds));
        }
        Ok(())
    }

    /// The plan of `query` under `arm`, without running it.
    ///
    /// # Errors
    /// A server error, or an interruption.
    pub(super) fn planned(
        &mut self,
        query: &Query,
        arm: &[Value],
    ) -> anyhow::Result<serde_json::Value> {
        // On a copy, because this part is only planned and stays unread.
        let text = query.clone().next(&mut self.random.clone());
        let begin = self.begin(query, arm);
        let session = self.session(query)?;
        let plan = session
            .rows(&begin)
            .and_then(|_| session.plan(&format!("explain (costs off, format json) {text}")));
        session.rows("rollback")?;
        plan
    }

    /// Rates of `query`, per second, under each of `arms`, per round; none if it cannot run.
    ///
    /// # Errors
    /// As [`Site::search`].
    pub(super) fn rates(
        &mut self,
        mut query: Query,
        arms: &[Vec<Value>],
        rounds: u32,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<Vec<Vec<f64>>>> {
        let query = std::slice::from_mut(&mut query);
        let found = self.rounds(Phase::Search, query, arms, rounds..=rounds, progress)?;
        Ok(found.into_iter().next().map(|rates| rates.of_arms))
    }

    /// The session in which `query` runs [QRY-1].
    fn session(&mut self, query: &Query) -> anyhow::Result<&mut Connection> {
        match query.shape {
            Shape::Given => self.given.as_mut().context("[QRY-1]"),
            _ => Ok(&mut self.connection),
        }
    }

    /// SQL that begins the transaction in which `query` runs [PRV-1].
    fn begin(&self, query: &Query, arm: &[Value]) -> String {
        let mut sql = format!(
            "begin transaction read only; set local statement_timeout = {}; set local lock_timeout = '1s'",
            self.statement_timeout.as_millis().max(1)
        );
        if self.server.major >= 17 {
            // If it were shorter than statement_timeout, it would end the session, not the statement.
            sql += "; set local transaction_timeout = 0";
        }
        if query.shape != Shape::Given {
            sql += "; set local max_parallel_workers_per_gather = 0; set local jit = off";
        }
        for (name, value) in query.planned_by() {
            sql += &format!("; set local {name} = {value}");
        }
        for (name, value) in arm {
            sql += &format!("; set local {name} = '{}'", value.replace('\'', "''"));
        }
        sql
    }

    /// Runs `query` once, on the next part of its table.
    fn run(&mut self, query: &mut Query, arm: &[Value]) -> anyhow::Result<Ran> {
        interrupt::check()?;
        let text = query.next(&mut self.random);
        if self.drop_caches {
            let forgotten = self.forget(query.table.as_ref());
            if let Err(why) = refusal(forgotten)? {
                return Ok(Ran::LeftOut(why));
            }
        }
        let begin = self.begin(query, arm);
        let session = self.session(query)?;
        let explained = session.rows(&begin).and_then(|_| {
            session.plan(&format!("explain (analyze, buffers, timing off, format json) {text}"))
        });
        // A transaction that has an ID has written.
        let wrote = match &explained {
            Ok(_) => session
                .row("select pg_catalog.pg_current_xact_id_if_assigned() is not null")?
                .is_true(0),
            Err(_) => false,
        };
        session.rows("rollback")?;
        if wrote {
            let message = "it writes".to_owned();
            return Ok(Ran::LeftOut(Refused { message, code: String::new() }));
        }
        let explained = match refusal(explained)? {
            Ok(explained) => explained,
            Err(why) => return Ok(Ran::LeftOut(why)),
        };
        let root = query::root(&explained)?;
        let number =
            |plan: &serde_json::Value, key: &str| plan.get(key).and_then(serde_json::Value::as_f64);
        let seconds = number(&explained[0], "Execution Time").unwrap_or(0.0) / 1e3;
        let rows = match query.node() {
            None => 1.0,
            Some(node) => query::find(root, node).map_or(0.0, |plan| {
                number(plan, "Actual Rows").unwrap_or(0.0)
                    * number(plan, "Actual Loops").unwrap_or(1.0)
            }),
        };
        let blocks = |key| number(root, key).unwrap_or(0.0);
        let (blocks_read, blocks_hit) = (blocks("Shared Read Blocks"), blocks("Shared Hit Blocks"));
        let per_s = if seconds > 0.0 { rows / seconds } else { 0.0 };
        Ok(Ran::Done(Run { per_s, seconds, rows, blocks_read, blocks_hit }))
    }

    /// Adds a remark for the reader, unless it is there already.
    pub(super) fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

/// The result, or the server's refusal.
///
/// # Errors
/// Any other failure, such as a lost connection.
pub(super) fn refusal<T>(done: anyhow::Result<T>) -> anyhow::Result<Result<T, Refused>> {
    match done.map_err(anyhow::Error::downcast::<Refused>) {
        Ok(done) => Ok(Ok(done)),
        Err(Ok(refused)) if !refused.code.is_empty() => Ok(Err(refused)),
        Err(Ok(lost)) => Err(lost.into()),
        Err(Err(error)) => Err(error),
    }
}

/// The ratio of each query, second arm to first; `of` names the two in this order.
fn verdicts(found: &[Rates<'_>], of: &[String; 2]) -> Vec<Verdict> {
    let verdict = |rates: &Rates<'_>| {
        if let Some(value) = rates.harm {
            let most = Estimate { value, low: 0.0, high: value, rounds: 1 };
            let verdict = Verdict::new(NAME, rates.query.label.clone(), of.clone(), most);
            return Some(Verdict { verdict: Judgement::Misses, ..verdict });
        }
        let ratio = paired_ratio(&rates.of_arms[1], &rates.of_arms[0])?;
        Some(Verdict::new(NAME, rates.query.label.clone(), of.clone(), ratio))
    };
    found.iter().filter_map(verdict).collect()
}

/// The ratio of all queries whose shape is in `using` together, second arm to first, and the rates as a sentence; `of`
/// names the two in this order.
fn gain(found: &[Rates<'_>], using: &[Shape], of: [&str; 2]) -> Option<(Estimate, String)> {
    let using: Vec<&Rates<'_>> =
        found.iter().filter(|it| it.harm.is_none() && using.contains(&it.query.shape)).collect();
    let rates = together(&using);
    let [now, then] = &rates[..] else { return None };
    let ratio = paired_ratio(then, now)?;
    let what = match &using[..] {
        [one] => one.query.label.clone(),
        more => format!("{} queries together", more.len()),
    };
    let unit = match using.iter().filter(|it| it.query.node().is_some()).count() {
        0 => "runs",
        rows if rows == using.len() => "rows",
        _ => "rows or runs",
    };
    let [now, then] = [now, then].map(|rates| numbers::number(median(rates).unwrap_or(0.0)));
    let ([advised, current], rounds) = (of, ratio.rounds);
    let evidence = format!(
        "{what}: {then} {unit} a second with {advised}, {now} with {current} ({rounds} rounds)."
    );
    Some((ratio, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prv_3_what_harms_one_query_is_not_proposed_for_anothers_gain() {
        let proof = |ratios: &[f64]| {
            let estimate =
                |value: f64| Estimate { value, low: value - 0.01, high: value + 0.01, rounds: 5 };
            let name = |text: &str| text.to_owned();
            let verdict = |value: &f64| {
                Verdict::new(NAME, name("row"), [name("new"), name("old")], estimate(*value))
            };
            let gain = |value: &f64| {
                let change = [name("1"), name("64")];
                Advice::worth_it(
                    NAME,
                    (AppliesTo::Postgres, "s"),
                    change,
                    estimate(*value),
                    String::new(),
                )
            };
            Proof::of(ratios.iter().map(verdict).collect(), gain(&ratios[0]))
        };
        assert_eq!(proof(&[2.0, 1.0]).advice.map(|advice| advice.gain), Some(2.0));
        assert!(proof(&[2.0, 0.8]).advice.is_none(), "[PRV-3]");
        assert!(proof(&[1.02, 1.0]).advice.is_none());
    }
}
