//! Two databases that are alike, and a session in each: without the extension, and with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;
use forebay_postgres_harness::suite::text;
use forebay_postgres_harness::{HintCount, Outcome, Server, Session};

use crate::scripts::{How, Script, Step};

/// The template, and the databases made from it.
const WORLD: &str = "world";
const DATABASES: [&str; 2] = ["stock", "ours"];

/// A join of these tables may take a minute on a busy machine.
const PATIENCE: &str = "set statement_timeout = '5min'";
/// Statements that may take longer than that without the extension.
const TOO_LONG_MAX: usize = 3;

/// How the sessions with the extension get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// There is none yet: stock against stock.
    Nothing,
    Preloaded,
    ByHand,
}

/// A setting of the extension that anyone may change, and values to give it.
struct Setting {
    name: String,
    values: Vec<String>,
}

pub(crate) struct Pair {
    pub(crate) sessions: [Session; 2],
    pub(crate) counts: Counts,
    hints: HintCount,
    settings: Vec<Setting>,
    rng: Rng,
}

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    statements: usize,
    rows: usize,
    notices: usize,
    /// Blocks that the kernel prefetched, before their reads, without and with the extension.
    hints: [u64; 2],
    /// Those of the statements for which the extension prefetches more than the server, whose bitmap scans prefetch as well.
    pub(crate) gained: u64,
    /// Statements that were not compared, as they took too long without the extension.
    too_long: usize,
    /// Scripts that ended where only the order of a hash index differed.
    reordered: usize,
    /// By SQLSTATE.
    errors: BTreeMap<String, usize>,
}

impl Counts {
    fn count(&mut self, outcome: &Outcome) {
        self.statements += 1;
        self.rows += outcome.rows.len();
        self.notices += outcome.notices.len();
        if let Some(code) = outcome.code() {
            *self.errors.entry(code.to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Counts) {
        self.statements += other.statements;
        self.rows += other.rows;
        self.notices += other.notices;
        self.hints = [0, 1].map(|side| self.hints[side] + other.hints[side]);
        self.gained += other.gained;
        self.too_long += other.too_long;
        self.reordered += other.reordered;
        for (code, count) in other.errors {
            *self.errors.entry(code).or_default() += count;
        }
    }
}

/// Makes the template.
pub(crate) fn make_world(server: &Server) -> Result<(), String> {
    let mut postgres = connect(server, "postgres", Load::Nothing)?;
    must(&mut postgres, &format!("create database {WORLD}"))?;
    let mut world = connect(server, WORLD, Load::Nothing)?;
    must(&mut world, include_str!("world.sql"))?;
    must(&mut world, "vacuum (analyze)")?;
    // Dead rows, and pages that are no longer all visible.
    must(
        &mut world,
        "update item set b = b where id % 7 = 0; update child set v = v where id % 11 = 0; analyze",
    )?;
    // Freed pages stay as they are: what a statement would prune must be the same for both.
    must(&mut world, "checkpoint")
}

/// Makes `name` from the template, again where it is there.
pub(crate) fn make_database(server: &Server, name: &str) -> Result<(), String> {
    let mut postgres = connect(server, "postgres", Load::Nothing)?;
    must(&mut postgres, &format!("drop database if exists {name}"))?;
    let strategy = if server.major() < 15 { "" } else { " strategy file_copy" };
    must(&mut postgres, &format!("create database {name} template {WORLD}{strategy}"))
}

/// The collations to sort by besides the database's.
pub(crate) fn collations(server: &Server) -> Result<Vec<String>, String> {
    let mut session = connect(server, "postgres", Load::Nothing)?;
    let names = "select collname from pg_collation where collname in ('en-x-icu', 'C.utf8') order by 1 desc";
    session.rows(names).map_err(text)
}

/// A session in `database` with the extension, or without where `load` says nothing.
pub(crate) fn connect(server: &Server, database: &str, load: Load) -> Result<Session, String> {
    let settings: &[(&str, &str)] = match load {
        Load::Preloaded => &[("session_preload_libraries", "forebay")],
        Load::Nothing | Load::ByHand => &[],
    };
    let mut session = server.connect(database, settings).map_err(text)?;
    if load == Load::ByHand {
        must(&mut session, "load 'forebay'")?;
    }
    must(&mut session, PATIENCE)?;
    Ok(session)
}

/// Runs what has to succeed.
pub(crate) fn must(session: &mut Session, sql: &str) -> Result<(), String> {
    session.rows(sql).map(drop).map_err(|error| format!("{sql}: {error}"))
}

impl Pair {
    /// Two databases made again.
    pub(crate) fn new(server: &Server, load: Load, seed: u64) -> Result<Pair, String> {
        for name in DATABASES {
            make_database(server, name)?;
        }
        Pair::within(server, DATABASES, load, seed)
    }

    /// Sessions in databases that are there.
    pub(crate) fn within(
        server: &Server,
        databases: [&str; 2],
        load: Load,
        seed: u64,
    ) -> Result<Pair, String> {
        let mut sessions =
            [connect(server, databases[0], Load::Nothing)?, connect(server, databases[1], load)?];
        let settings = settings(&mut sessions[1])?;
        let hints = server.hint_count().map_err(text)?;
        Ok(Pair { sessions, counts: Counts::default(), hints, settings, rng: Rng::with_seed(seed) })
    }

    /// Gives the extension's settings other values than their own, some of the time.
    fn vary(&mut self) -> Result<Vec<String>, String> {
        let mut said = Vec::new();
        for Setting { name, values } in &self.settings {
            if self.rng.u8(..100) < 20 {
                let value = &values[self.rng.usize(..values.len())];
                said.push(format!("set {name} = '{value}'"));
            }
        }
        for sql in &said {
            must(&mut self.sessions[1], sql)?;
        }
        Ok(said)
    }

    /// Runs `script` on both sides and undoes what it leaves in the sessions.
    ///
    /// # Errors
    /// A step does another thing on one side; all that one needs to know is in the text.
    pub(crate) fn run(&mut self, script: &Script) -> Result<(), String> {
        let varied = self.vary()?;
        let different = self.steps(script, &varied);
        if different.is_ok() {
            let writes = script.steps.iter().any(|step| step.sql.contains("update item"));
            for session in &mut self.sessions {
                session.run("rollback");
                must(session, "discard all")?;
                must(session, PATIENCE)?;
                if writes {
                    must(session, "reindex index item_a_hash")?;
                }
            }
        }
        different
    }

    /// Runs `script` under a snapshot that both sides go on with: a savepoint is what is undone, and settings.
    ///
    /// # Errors
    /// Those of [`Pair::run`].
    pub(crate) fn read(&mut self, script: &Script) -> Result<(), String> {
        let varied = self.vary()?;
        self.mark_place()?;
        self.steps(script, &varied)?;
        self.back_to_place()
    }

    /// Runs a script that is cut, and says whether it was, on either side.
    ///
    /// # Errors
    /// It ends otherwise, or a session does not survive it.
    pub(crate) fn cut(&mut self, script: &Script) -> Result<bool, String> {
        self.mark_place()?;
        let mut cut = false;
        for session in &mut self.sessions {
            for step in &script.steps {
                let outcome = execute(session, step);
                compare(&outcome, &outcome, step.how)?;
                cut |= outcome.code() == Some("57014");
            }
        }
        self.back_to_place()?;
        Ok(cut)
    }

    fn mark_place(&mut self) -> Result<(), String> {
        self.sessions.iter_mut().try_for_each(|session| must(session, "savepoint here"))
    }

    fn back_to_place(&mut self) -> Result<(), String> {
        let back = "rollback to here; release here";
        self.sessions.iter_mut().try_for_each(|session| must(session, back))
    }

    fn steps(&mut self, script: &Script, varied: &[String]) -> Result<(), String> {
        for (index, step) in script.steps.iter().enumerate() {
            let before = self.hints.now().map_err(text)?;
            let stock = execute(&mut self.sessions[0], step);
            if stock.code() == Some("57014") && !step.how.cuts() {
                self.counts.too_long += 1;
                return match self.counts.too_long {
                    0..=TOO_LONG_MAX => Ok(()),
                    _ => Err(format!("`{}` and others take more than five minutes", step.sql)),
                };
            }
            let between = self.hints.now().map_err(text)?;
            let ours = execute(&mut self.sessions[1], step);
            let after = self.hints.now().map_err(text)?;
            self.counts.count(&stock);
            let hints = [between - before, after - between];
            self.counts.hints = [0, 1].map(|side| self.counts.hints[side] + hints[side]);
            self.counts.gained += hints[1].saturating_sub(hints[0]);
            if let Err(why) = compare(&stock, &ours, step.how) {
                let done = &script.steps[..=index];
                if compare(&stock, &ours, How::AnyOrder).is_ok() && self.may_reorder(done)? {
                    self.counts.reordered += 1;
                    return Ok(());
                }
                return Err(self.describe(script, varied, done, &why));
            }
        }
        Ok(())
    }

    /// Whether the last step returns rows in the order of a hash index whose rows earlier steps have changed. An UPDATE
    /// with the extension reads rows ahead of their changes. So it finds dead entries earlier, and new entries take
    /// their places.
    fn may_reorder(&mut self, done: &[Step]) -> Result<bool, String> {
        let Some((last, before)) = done.split_last() else { return Ok(false) };
        if !before.iter().any(|step| step.sql.contains("update item")) {
            return Ok(false);
        }
        let plan = self.sessions[0].rows(&format!("explain {}", last.sql));
        Ok(plan.map_err(text)?.iter().any(|line| line.contains("item_a_hash")))
    }

    /// What there is to say of a difference: the script as far as it went, and the plans.
    fn describe(&mut self, script: &Script, varied: &[String], done: &[Step], why: &str) -> String {
        let mut said = format!("{}: without and with the extension differ: {why}\n", script.kind);
        for sql in varied {
            let _ = writeln!(said, "  with: {sql};");
        }
        for step in done {
            let _ = writeln!(said, "  {};  -- {:?}", step.sql, step.how);
        }
        for (session, name) in self.sessions.iter_mut().zip(DATABASES) {
            session.run("rollback");
            for step in done.iter().filter(|step| step.sql.starts_with("set ")) {
                session.run(&step.sql);
            }
            let plan = session.run(&format!("explain {}", script.query));
            let lines = plan.error.map_or(plan.rows, |(code, message)| vec![code, message]);
            let _ = writeln!(said, "plan {name}:\n    {}", lines.join("\n    "));
        }
        said
    }

    /// Whether what the scripts have left in the tables is the same.
    pub(crate) fn check_tables(&mut self) -> Result<(), String> {
        for table in ["item", "child", "tag", "part", "memo"] {
            let sql = format!("select count(*), sum(hashtext(x::text)::bigint) from {table} x");
            let step = Step { sql, how: How::Exact };
            let [stock, ours] = self.sessions.each_mut().map(|session| execute(session, &step));
            compare(&stock, &ours, How::Exact).map_err(|why| format!("table {table}: {why}"))?;
        }
        Ok(())
    }
}

fn execute(session: &mut Session, step: &Step) -> Outcome {
    match step.how {
        How::Exact | How::AnyOrder | How::Code => session.run(&step.sql),
        How::Portal(rows) => session.run_in_steps(&step.sql, rows),
        How::Cancel(after) => session.run_cancelled(&step.sql, Duration::from_millis(after)),
        How::Timeout(after) => {
            session.run(&format!("set statement_timeout = {after}"));
            let outcome = session.run(&step.sql);
            session.run(PATIENCE);
            outcome
        }
    }
}

/// # Errors
/// The outcomes differ in what `how` says has to be equal.
fn compare(stock: &Outcome, ours: &Outcome, how: How) -> Result<(), String> {
    match how {
        How::Exact | How::Portal(_) => stock.same(ours, true).map_err(text),
        How::AnyOrder => stock.same(ours, false).map_err(text),
        How::Code if stock.code() == ours.code() => Ok(()),
        How::Timeout(_) | How::Cancel(_) => {
            [stock, ours].iter().try_for_each(|it| match it.code() {
                None | Some("57014") => Ok(()),
                Some(_) => Err(format!("cut, it ends with {:?}", it.error)),
            })
        }
        How::Code => Err(format!("error: {:?} and {:?}", stock.error, ours.error)),
    }
}

/// The extension's settings that this session may change, with values of all their range; off is rare.
fn settings(session: &mut Session) -> Result<Vec<Setting>, String> {
    let sql = "select name, vartype, min_val, max_val, array_to_string(enumvals, ',') from pg_settings \
               where name like 'forebay.%' and context = 'user' order by 1";
    let rows = session.rows(sql).map_err(text)?;
    let setting = |row: &String| {
        let fields: Vec<&str> = row.split('|').collect();
        let values = match fields[..] {
            [_, "bool", ..] => vec!["on".to_owned(), "on".to_owned(), "off".to_owned()],
            [_, "enum", _, _, values] => values.split(',').map(str::to_owned).collect(),
            [_, "integer", low, high, _] => {
                vec![low.to_owned(), high.to_owned(), between(low, high)]
            }
            [_, "real", low, high, _] => vec![low.to_owned(), high.to_owned()],
            _ => return None,
        };
        Some(Setting { name: fields[0].to_owned(), values })
    };
    Ok(rows.iter().filter_map(setting).collect())
}

/// A small number of the range.
fn between(low: &str, high: &str) -> String {
    let [low, high] = [low, high].map(|it| it.parse::<i64>().unwrap_or(0));
    high.min(low.max(0) + 3).to_string()
}
